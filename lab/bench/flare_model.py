#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Flare's model of queues and memory beside what the switch counts, for f32 sums of several sizes,
handlers and clusters.

Four hosts and four workers share this machine's cores. The model (flare_formulae.py) gets the
kernel's measured speed, the workers' measured time per packet and the measured rate of packets. Its
interarrival times, queues, block latency and memory are printed beside the switch's own counters.
Medians over several rounds, each with a new switch.
"""

import argparse
import json
import os
import statistics
import sys

from lab.bench import flare_formulae as flare
from lab.bench.io_forwarding import machine
from lab.bench.outcome import outcome
from lab.namespaces import BUILD_DIR, Lab, LabError, run

HOSTS = 4
WORKERS = 4
KIB = 1 << 10
SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 1024 * KIB, 4096 * KIB)
PAYLOAD = 1024  # as in the paper
BUFFERS = 2
BYTES_PER_RUN = 16 << 20  # of each host
MAX_ITERS = 2000
# handler, S, whether it is also run without staggering
CONFIGURATIONS = (("single", 1, True), ("single", WORKERS, True), ("multi", WORKERS, False),
                  ("tree", WORKERS, False))
TIMEOUT = 60


def say(text):
    print(text, file=sys.stderr, flush=True)


def kernel_ns(payload):
    """Returns L: nanoseconds to add one packet's f32 payload, by the kernel alone and in the cache.
    """
    report = json.loads(run([str(BUILD_DIR / "lab" / "bench" / "kernel-bench"), "--json"],
                            timeout=120).stdout)
    found = next(kernel for kernel in report["kernels"]
                 if (kernel["dtype"], kernel["kernel"]) == ("f32", "sum"))
    return payload / found["small_bytes_per_s"] * 1e9


def workers_config(cluster_size):
    """Returns a switch with four workers on any number of cores."""
    cpus = os.cpu_count() or 1
    return {"workers": [{"lcore": lcore, "cpu": lcore % cpus} for lcore in range(WORKERS)],
            "scheduling": {"policy": "dispatch", "cluster_size": cluster_size}}


def histogram_sum(entries, key):
    total = {}
    for entry in entries:
        for bucket, count in entry[key].items():
            total[bucket] = total.get(bucket, 0) + count
    return total


def snapshot(lab):
    """Returns the counts of all workers together so far."""
    workers = lab.control.ask("stats")["workers"]
    return {"busy_us": sum(worker["busy_us"] for worker in workers),
            "retries": sum(worker["retries"] for worker in workers),
            "input_sum": sum(worker["input_sum"] for worker in workers),
            "input_occupancy": histogram_sum(workers, "input_occupancy")}


def percentile_bucket(histogram, share=0.99):
    """Returns the bucket, like "32-63", that at least this share of all samples does not exceed;
    "-" without samples.
    """
    left = share * sum(histogram.values())
    bucket = "-"
    for bucket, count in sorted(histogram.items(), key=lambda item: int(item[0].split("-")[0])):
        left -= count
        if left <= 0:
            break
    return bucket


def run_once(lab, handler, size, stagger):
    """Runs a series of allreduces of `size` bytes, and returns the switch's counts during it, per
    packet and per block.
    """
    job = lab.create_job(None, "--handler", handler, "--buffers", BUFFERS, "--payload", PAYLOAD)
    iters = max(1, min(MAX_ITERS, BYTES_PER_RUN // size))
    before = snapshot(lab)
    ranks = [lab.spawn_perf(host, job, host, HOSTS, bytes=size, iters=iters,
                            transport=lab.transport,
                            no_stagger=not stagger) for host in range(HOSTS)]
    for rank in ranks:
        rank.wait(TIMEOUT)
    reports = [lab.perf_report(rank) for rank in ranks]
    for report in reports:
        if report.get("error"):
            raise LabError(f"fanin-perf: {report['error']['message']}")
    after = snapshot(lab)
    entry = next(entry for entry in lab.control.ask("jobs.list")["jobs"]
                 if entry["id"] == job["id"])
    lab.ctl("jobs", "destroy", job["id"])
    stats = entry["stats"]
    inputs = {bucket: count - before["input_occupancy"].get(bucket, 0)
              for bucket, count in after["input_occupancy"].items()}
    seconds = max(report["seconds"] for report in reports)
    return {
        "handler": handler, "bytes": size, "stagger": stagger, "window": job["window"],
        "slots": entry["slots"],
        "stats": stats, "seconds": seconds,
        "goodput_gbps": min(report["goodput_gbps"] for report in reports),
        "delta_ns": seconds * 1e9 / stats["contributions"],
        "tau_ns": (after["busy_us"] - before["busy_us"]) * 1e3 / stats["contributions"],
        "delta_c_ns": stats["block_ns"] / (stats["results"] * (HOSTS - 1)),
        "latency_ns": stats["block_ns"] / stats["results"],
        "open_blocks": stats["block_ns"] / (seconds * 1e9),
        "open_blocks_p99": percentile_bucket(entry["occupancy"]),
        "waiting": (after["input_sum"] - before["input_sum"]) / max(1, sum(inputs.values())),
        "waiting_p99": percentile_bucket(inputs),
        "retries_per_1000": (after["retries"] - before["retries"]) * 1000 / stats["contributions"],
    }


def predict(measured, S, L):
    """Returns the model's predictions for a run, from its sizes, the kernel's L, and the measured
    tau and delta.
    """
    P, K = HOSTS, WORKERS
    blocks = min(-(-measured["bytes"] // PAYLOAD), measured["window"])
    tau, delta = measured["tau_ns"], measured["delta_ns"]
    delta_c = flare.spread(delta, blocks, measured["stagger"])
    Q = flare.queue_length(P, S, K, tau, delta, delta_c)
    M = flare.buffers_per_block(measured["handler"], P, BUFFERS)
    latency = flare.block_latency(P, Q, tau, delta_c)
    return {
        "tau_ns": flare.service_time(measured["handler"], L, P, S, S, delta_c, BUFFERS),
        "delta_c_ns": delta_c, "Q": Q, "M": M,
        "packets": flare.input_occupancy(P, S, K, tau, delta, delta_c) * S / K,
        "latency_ns": latency,
        "R": flare.working_memory(M, flare.bandwidth(K, tau, delta), P, latency),
    }


def median_run(runs):
    """Returns the medians of the figures of the same run in all rounds; for words, those of the
    middle round.
    """
    middle = sorted(runs, key=lambda each: each["latency_ns"])[len(runs) // 2]
    return {key: statistics.median(each[key] for each in runs)
            if isinstance(value, float) else value
            for key, value in middle.items()}


def measure(rounds):
    L = kernel_ns(PAYLOAD)
    say(f"kernel: {L:.1f} ns for {PAYLOAD} bytes of f32")
    found = {}
    for turn in range(rounds):
        for S in sorted({configuration[1] for configuration in CONFIGURATIONS}):
            with Lab(HOSTS, "af_xdp", None, workers_config(S)) as lab:
                lab.start_switch()
                for handler, size, stagger in [(handler, size, stagger) for handler, cluster,
                                               both in CONFIGURATIONS
                                               if cluster == S for size in SIZES
                                               for stagger in ((True, False) if both else (True,))]:
                    found.setdefault((handler, S, size, stagger),
                                     []).append(run_once(lab, handler, size, stagger))
            say(f"round {turn + 1} of {rounds}: clusters of {S} done")
    runs = []
    for (_, S, _, _), series in found.items():
        middle = median_run(series)
        runs.append({"S": S, "measured": middle, "model": predict(middle, S, L)})
    return {"ok": True, "error": None, "machine": machine(), "hosts": HOSTS, "workers": WORKERS,
            "payload_bytes": PAYLOAD,
            "buffers": BUFFERS, "rounds": rounds, "L_ns": L, "runs": runs}


# ---- output

def human_size(size):
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def us(value_ns):
    value = value_ns / 1e3
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}" if value >= 1 else f"{value:.3f}"


def number(value):
    return f"{value:.0f}" if value >= 100 else f"{value:.1f}"


TIMES = ("handler", "S", "message", "δ", "τ by L", "τ", "δc model", "δc", "ℒ model", "ℒ",
         "retries ‰")
MEMORY = ("handler", "S", "message", "𝒬·S/K model", "waiting", "waiting, 99 %", "M", "ℛ model", "ℛ",
          "open blocks, 99 %")
STAGGER = ("handler", "S", "message", "δc model", "δc", "ℛ model", "ℛ", "waiting", "goodput")


def times_row(entry):
    measured, model = entry["measured"], entry["model"]
    return (measured["handler"], entry["S"], human_size(measured["bytes"]),
            us(measured["delta_ns"]),
            us(model["tau_ns"]), us(measured["tau_ns"]), us(model["delta_c_ns"]),
            us(measured["delta_c_ns"]),
            us(model["latency_ns"]), us(measured["latency_ns"]),
            f"{measured['retries_per_1000']:.2f}")


def memory_row(entry):
    measured, model = entry["measured"], entry["model"]
    return (measured["handler"], entry["S"], human_size(measured["bytes"]),
            number(model["packets"]),
            number(measured["waiting"]), measured["waiting_p99"], f"{model['M']:g}",
            number(model["R"]),
            number(measured["open_blocks"] * model["M"]), measured["open_blocks_p99"])


def both(plain, staggered, form):
    return f"{form(plain)} → {form(staggered)}"


def stagger_row(plain, staggered):
    before, after = plain["measured"], staggered["measured"]
    model = (plain["model"], staggered["model"])
    return (after["handler"], staggered["S"], human_size(after["bytes"]),
            both(*(each["delta_c_ns"] for each in model), us),
            both(before["delta_c_ns"], after["delta_c_ns"], us),
            both(*(each["R"] for each in model), number),
            both(before["open_blocks"], after["open_blocks"], number),
            both(before["waiting"], after["waiting"], number),
            f"{after['goodput_gbps'] / before['goodput_gbps']:.2f}")


def tables(result):
    """Returns (title, headers, rows) of each table."""
    staggered = [entry for entry in result["runs"] if entry["measured"]["stagger"]]
    pairs = [(plain, entry) for plain in result["runs"] if not plain["measured"]["stagger"]
             for entry in staggered
             if (entry["S"], entry["measured"]["handler"], entry["measured"]["bytes"]) ==
             (plain["S"], plain["measured"]["handler"], plain["measured"]["bytes"])]
    return [("Times in µs, staggered", TIMES, [times_row(entry) for entry in staggered]),
            ("Packets and buffers, staggered", MEMORY, [memory_row(entry) for entry in staggered]),
            ("Without → with staggering; times in µs, goodput as a ratio", STAGGER,
             [stagger_row(*pair) for pair in pairs])]


def render(headers, rows, markdown):
    cells = [[str(cell) for cell in row] for row in (headers, *rows)]
    widths = [max(len(row[column]) for row in cells) for column in range(len(headers))]
    lines = ["  ".join(cell.rjust(width) for cell, width in zip(row, widths)) for row in cells]
    if markdown:
        lines = ["| " + " | ".join(row) + " |" for row in cells]
        lines.insert(1, "|" + "---|" * 3 + "---:|" * (len(headers) - 3))
    return "\n".join(lines)


def print_result(result, markdown):
    print(f"{result['machine']}; {result['hosts']} hosts, {result['workers']} workers, AF_XDP on "
          f"veth, payloads of {result['payload_bytes']} bytes, L = {result['L_ns']:.0f} ns, "
          f"medians of {result['rounds']} rounds")
    for title, headers, rows in tables(result):
        print(f"\n{title}:\n\n{render(headers, rows, markdown)}")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench model",
                                     description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 21), metavar="N")
    output = parser.add_mutually_exclusive_group()
    output.add_argument("--json", action="store_true",
                        help="print one JSON object and nothing else")
    output.add_argument("--markdown", action="store_true",
                        help="print the tables as in docs/flare-model.md")
    options = parser.parse_args()
    return outcome("model", options, lambda: measure(options.rounds),
                   lambda result: print_result(result, options.markdown))


if __name__ == "__main__":
    sys.exit(main())
