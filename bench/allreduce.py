#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fanin's allreduce beside Open MPI's and Gloo's: sums of f32 on four hosts, in one run, taken in turns.

Hosts are network namespaces. Each has one link to fanin-switch, or to a Linux bridge with the switch behind it, and one to a
Linux bridge for the peers' TCP, whose offloads stay on. Everybody runs the same loop: warm-up, a barrier before each
allreduce, every allreduce timed by itself, the first and the last one checked. An allreduce's time is that of its slowest
rank; a run's figure is the median of these, and a row's the median of its runs. Each side gets the best of its set-ups for
each size. Open MPI over shared memory is compared with Fanin's memif. docs/performance.md explains more.
"""

import argparse
import json
import os
import re
import signal
import statistics
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))
from bridged import BridgedLab, make_bridge  # noqa: E402
from lab import (BUILD_DIR, Interrupted, Lab, LabError, ip_in, report_interruption, run)  # noqa: E402

from io_forwarding import machine, say  # noqa: E402

HOSTS = 4
KIB, MIB = 1 << 10, 1 << 20
SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (KIB, 64 * KIB, MIB, 16 * MIB)
WARMUP = 2
RUN_SECONDS = 120
PEER_INTERFACE = "peer0"
PEER_NETWORK = "10.78.0"
# set-up: transport of the switch's ports, their MTU, the MTU of the peers' links meanwhile (None: the peers share memory), and
# how hosts and switch are linked. What a side is measured with, so that each gets the best for each size.
# With 32850 a payload has 32 KiB.
SETUPS = {"af_xdp 3474": ("af_xdp", 3474, 9000, Lab), "af_packet 9000": ("af_packet", 9000, 65535, Lab),
          "af_packet 61184": ("af_packet", 61184, 65535, Lab),
          "af_packet 61184 bridge": ("af_packet", 61184, 65535, BridgedLab), "memif 9000": ("memif", 9000, None, Lab),
          "memif 32850": ("memif", 32850, None, Lab)}
# Slots hold a whole packet each: 1024 are enough for one job.
SWITCH = {"limits": {"slots": 1024}}
# peer: (least bytes, least ratio of goodput, size at which latency counts)
GOALS = {"openmpi-tcp": (64 * KIB, 2.0, KIB), "openmpi-shm": (256 * KIB, 1.5, None)}


# ---- arithmetic

def iterations(size, quick):
    """Enough for a median, and about as long for every size."""
    return max(5, min(100 if quick else 400, (64 if quick else 192) * MIB // size))


def slowest(times_of_ranks):
    """Each allreduce's time on its slowest rank."""
    return [max(times) for times in zip(*times_of_ranks, strict=True)]


def best(runs):
    """The set-up with the smallest median: (its name, seconds). runs: {set-up: [seconds of each run]}."""
    medians = {name: statistics.median(seconds) for name, seconds in runs.items()}
    name = min(medians, key=medians.get)
    return name, medians[name]


def goal_of(row):
    """What the row has to reach, as text and whether it does: (text, bool), or None."""
    least, ratio, latency_bytes = GOALS.get(row["peer"], (None, None, None))
    if least is not None and row["bytes"] >= least:
        return f"ratio >= {ratio:g}", row["ratio"] >= ratio
    if row["bytes"] == latency_bytes:
        return "latency <= peer's", row["latency_us"] <= row["peer_latency_us"]
    return None


def make_row(size, peer, ours, theirs):
    """A row of the results. ours, theirs: {set-up: [seconds of each run]}."""
    setup, seconds = best(ours)
    peer_setup, peer_seconds = best(theirs)
    row = {"bytes": size, "hosts": HOSTS, "transport": setup.split()[0], "setup": setup, "peer": peer, "peer_setup": peer_setup,
           "gbps": size * 8 / seconds / 1e9, "peer_gbps": size * 8 / peer_seconds / 1e9,
           "latency_us": seconds * 1e6, "peer_latency_us": peer_seconds * 1e6, "ratio": peer_seconds / seconds,
           "raw": {"seconds": ours, "peer_seconds": theirs}}
    goal = goal_of(row)
    row["goal"], row["reached"] = goal if goal is not None else (None, None)
    return row


# ---- the peers' side of the laboratory

def peer_ip(host):
    return f"{PEER_NETWORK}.{host + 1}"


def peer_links(lab, mtu):
    """A bridge in a namespace of its own, with a veth to each host; offloads as the kernel has them. Returns the name."""
    middle = f"{lab.prefix}-br"
    lab.namespaces.append(middle)
    run(["ip", "netns", "add", middle])
    ip_in(middle, "link", "set", "lo", "up")
    make_bridge(middle, "br0", mtu)
    for host in range(lab.hosts):
        ip_in(middle, "link", "add", "name", f"p{host}", "mtu", str(mtu), "type", "veth", "peer", "name", PEER_INTERFACE,
              "mtu", str(mtu), "netns", lab.host_namespace(host))
        ip_in(middle, "link", "set", f"p{host}", "master", "br0", "up")
        ip_in(lab.host_namespace(host), "address", "add", f"{peer_ip(host)}/24", "dev", PEER_INTERFACE)
        ip_in(lab.host_namespace(host), "link", "set", PEER_INTERFACE, "up")
    ip_in(middle, "address", "add", f"{PEER_NETWORK}.254/24", "dev", "br0")
    return middle


def mpi_files(lab):
    """What mpirun needs to start ranks in other namespaces: a list of names, and what it takes for ssh."""
    (lab.directory / "hosts").write_text(
        "127.0.0.1 localhost\n" + "".join(f"{peer_ip(host)} p{host}\n" for host in range(lab.hosts)))
    agent = lab.directory / "agent"
    agent.write_text("#!/bin/sh\nname=$1\nshift\n"
                     f"exec nsenter --net=/run/netns/{lab.prefix}-h${{name#p}} unshare --uts "
                     "sh -c 'hostname \"$0\"; exec sh -c \"$*\"' \"$name\" \"$@\"\n")
    agent.chmod(0o755)


def peer_program(name):
    path = BUILD_DIR / "bench" / "peers" / name
    if not path.exists():
        raise LabError(f"{path} does not exist: its packages in packages.txt [bench] were missing when the build was "
                       "configured; ./dev bench allreduce installs them and configures again")
    return str(path)


def figure(name, report):
    """The median of a run's allreduces; LabError if an element was wrong."""
    if report["mismatches"] != 0:
        raise LabError(f"{name}: {report['mismatches']} elements are wrong")
    return statistics.median(report["times"])


def finish(lab, processes):
    """Waits for a peer's processes; LabError with their words if one fails."""
    for process in processes:
        if process.wait(RUN_SECONDS) != 0:
            raise LabError(f"{process.name}: {process.last_words()}")
        lab.processes.remove(process)
    return json.loads(processes[0].stdout())


def fanin(lab, size, iters):
    job = lab.create_job()
    ranks = [lab.spawn_perf(host, job, host, HOSTS, bytes=size, dtype="f32", op="sum", warmup=WARMUP, iters=iters,
                            transport=lab.transport, check_ends=True, times=True) for host in range(HOSTS)]
    for rank in ranks:
        rank.wait(RUN_SECONDS)
        lab.processes.remove(rank)
    reports = [lab.perf_report(rank) for rank in ranks]
    lab.ctl("jobs", "destroy", job["id"])
    for report in reports:
        if report.get("error"):
            raise LabError(f"fanin-perf: {report['error']['message']}")
    return figure("fanin-perf", {"mismatches": sum(report["mismatches"] for report in reports),
                                 "times": slowest([report["times"] for report in reports])})


def openmpi(lab, middle, arguments, *command_line):
    """arguments: mpirun's, that say where ranks run and how they reach each other. command_line: a peer program and its arguments."""
    lab.spawned += 1
    command = ["unshare", "--mount", "sh", "-c", 'mount --bind "$0" /etc/hosts && exec "$@"', lab.directory / "hosts",
               "mpirun", "--allow-run-as-root", "--bind-to", "none", "--mca", "orte_tmpdir_base", lab.directory,
               "--mca", "pml", "ob1", "--mca", "mpi_yield_when_idle", "1", *arguments,
               peer_program(command_line[0]), *command_line[1:]]
    process = lab._spawn(middle, f"mpirun-{lab.spawned}", command)
    return figure("Open MPI", finish(lab, [process]))


def tcp_arguments(lab):
    """Of mpirun: one rank on each host, which reach each other over the peers' links."""
    network = f"{PEER_NETWORK}.0/24"
    return ["-H", ",".join(f"p{host}" for host in range(lab.hosts)), "--mca", "plm_rsh_agent", lab.directory / "agent", "--mca",
            "oob_tcp_if_include", network, "--mca", "btl", "tcp,self", "--mca", "btl_tcp_if_include", network]


def openmpi_tcp(lab, middle, size, iters):
    return openmpi(lab, middle, tcp_arguments(lab), "allreduce-mpi", size, iters, WARMUP)


def openmpi_shm(lab, middle, size, iters):
    return openmpi(lab, middle, ["-n", HOSTS, "--oversubscribe", "--mca", "btl", "vader,self"], "allreduce-mpi", size, iters, WARMUP)


def gloo_tcp(lab, _middle, size, iters):
    directory = lab.directory / f"gloo-{lab.spawned}"
    directory.mkdir()
    ranks = [lab.spawn(host, [peer_program("allreduce-gloo"), size, iters, WARMUP, host, HOSTS, PEER_INTERFACE,
                              directory], "gloo") for host in range(HOSTS)]
    return figure("Gloo", finish(lab, ranks))


TCP_PEERS = {"openmpi-tcp": openmpi_tcp, "gloo-tcp": gloo_tcp}
SHM_PEERS = {"openmpi-shm": openmpi_shm}


# ---- the run

def peers_of(setup):
    return SHM_PEERS if SETUPS[setup][2] is None else TCP_PEERS


def one_setup(setup, sizes, options, samples):
    """All sizes once with one set-up, everybody in turns. samples: {(size, side): {set-up: [seconds]}}, added to."""
    transport, mtu, peer_mtu, linked = SETUPS[setup]
    with linked(HOSTS, transport, mtu, SWITCH) as lab:
        middle = None if peer_mtu is None else peer_links(lab, peer_mtu)
        mpi_files(lab)
        lab.start_switch()
        for size in sizes:
            iters = iterations(size, options.quick)
            found = {("fanin", setup): fanin(lab, size, iters)}
            # The switch polls all the time; the peers get its core.
            lab.switch.popen.send_signal(signal.SIGSTOP)
            try:
                for name, measure_peer in peers_of(setup).items():
                    found[(name, f"MTU {peer_mtu}" if peer_mtu else "shared memory")] = measure_peer(
                        lab, middle, size, iters)
            finally:
                lab.switch.popen.send_signal(signal.SIGCONT)
            say(f"{size:>9} bytes: " + ", ".join(f"{side} {seconds * 1e6:.1f} us"
                                                 for (side, _), seconds in found.items()))
            for (side, with_), seconds in found.items():
                samples.setdefault((size, side), {}).setdefault(with_, []).append(seconds)


def rows_of(sizes, setups, samples):
    """Every size beside every peer, with the set-ups of Fanin that the peer is compared with."""
    rows = []
    for peers in (TCP_PEERS, SHM_PEERS):
        with_them = [setup for setup in setups if peers_of(setup) is peers]
        for peer in peers if with_them else ():
            for size in sizes:
                ours = {setup: samples[(size, "fanin")][setup] for setup in with_them}
                rows.append(make_row(size, peer, ours, samples[(size, peer)]))
    return rows


def measure(options):
    sizes = options.bytes or (QUICK_SIZES if options.quick else SIZES)
    setups = [setup for setup in SETUPS if SETUPS[setup][0] in (options.transport or SETUPS[setup])]
    samples = {}
    load = os.getloadavg()
    for turn in range(options.rounds):
        for setup in setups:
            say(f"round {turn + 1} of {options.rounds}: {setup}")
            one_setup(setup, sizes, options, samples)
    rows = rows_of(sizes, setups, samples)
    return {"ok": all(row["reached"] is not False for row in rows), "error": None,
            "machine": {"description": machine(), "load_before": load, "load_after": os.getloadavg(),
                        "openmpi": version_of("openmpi-bin"), "gloo": version_of("libgloo-dev")},
            "rounds": options.rounds, "results": rows}


def version_of(package):
    return run(["dpkg-query", "-W", "-f", "${Version}", package], check=False).stdout or None


# ---- for people

def human_bytes(count):
    for unit, size in (("MiB", MIB), ("KiB", KIB)):
        if count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} bytes"


def table(result):
    lines = [result["machine"]["description"],
             f"allreduce, sum of f32, {HOSTS} hosts; goodput per host in Gbit/s, time of one allreduce in us; medians of "
             f"{result['rounds']} rounds"]
    peer = None
    for row in result["results"]:
        if row["peer"] != peer:
            peer = row["peer"]
            lines += ["", f"{'bytes':>9}  {'Fanin with':<22} {'Gbit/s':>8} {'us':>10}  {peer:<14} "
                          f"{'Gbit/s':>8} {'us':>10}  {'ratio':>6}  goal"]
        goal = "" if row["goal"] is None else f"{row['goal']}: {'reached' if row['reached'] else 'MISSED'}"
        lines.append(f"{human_bytes(row['bytes']):>9}  {row['setup']:<22} {row['gbps']:8.3f} {row['latency_us']:10.1f}  "
                     f"{row['peer_setup']:<14} {row['peer_gbps']:8.3f} {row['peer_latency_us']:10.1f}  "
                     f"{row['ratio']:6.2f}  {goal}".rstrip())
    return "\n".join(lines)


def byte_count(text):
    match = re.fullmatch(r"(\d+)(|KiB|MiB)", text)
    count = int(match.group(1)) * {"": 1, "KiB": KIB, "MiB": MIB}[match.group(2)] if match else 0
    if not 4 <= count <= 1 << 30 or count % 4 != 0:
        raise argparse.ArgumentTypeError(f"found '{text}', expected 4 to 1024MiB, a multiple of 4, like 64KiB")
    return count


def main():
    parser = argparse.ArgumentParser(prog="./dev bench allreduce", description=__doc__.splitlines()[0])
    parser.add_argument("--quick", action="store_true", help="four sizes, one round, fewer allreduces in each")
    parser.add_argument("--rounds", type=int, choices=range(1, 21), metavar="N", help="default: 3, with --quick 1")
    parser.add_argument("--bytes", type=byte_count, action="append", metavar="B", help="this size; may be repeated")
    parser.add_argument("--transport", choices=sorted({setup[0] for setup in SETUPS.values()}), action="append", help="this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else 3)
    try:
        result = measure(options)
    except Interrupted as error:
        return report_interruption(error)
    except (LabError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if options.json:
        print(json.dumps(result))
    elif result["error"]:
        print(f"bench allreduce: {result['error']}", file=sys.stderr)
    else:
        print(table(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
