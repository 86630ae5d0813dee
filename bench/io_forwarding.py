#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Frames per second of fanin-switch under an allreduce, beside those of dpdk-testpmd's io forwarding, in one run.

Both have the same four AF_XDP vdevs on veth, the same MTU and frame size, and one forwarding core. The switch's load are
four fanin-perf processes. testpmd's load is a second testpmd that holds the other ends of the links on the other core and
sends every frame back where it came from, so that a fixed number of frames circulates; the best of several numbers counts.
Frames are those that the ports count, received and sent, all ports together, in both cases.
"""

import argparse
import json
import os
import platform
import re
import statistics
import subprocess
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "demo"))
from gathered import Gathered  # noqa: E402
from lab import Interrupted, Lab, LabError, inside, private_sys, report_interruption, wait_until  # noqa: E402

HOSTS = 4
BYTES = 64 << 20
ITERS = 8
HEADERS = 96
# AF_XDP wants an mbuf with all that is kept beside it in one page, and testpmd's pools make its cache lines an odd number: 63.
# That leaves 3456 bytes for a frame, a little less than the switch has room for, so both run with an MTU that fits there.
MBUF_DATA_ROOM = 3840
MTU = 3442
BURST = 32
CIRCULATING = (1, 3, 6)  # bursts per port; a veth end queues 256 frames at most
WINDOW_SECONDS = 2.0
RATIO_WANTED = 0.5


def say(text):
    print(text, file=sys.stderr, flush=True)


def results_of(lab, job):
    return next(entry for entry in lab.control.ask("jobs.list")["jobs"] if entry["id"] == job["id"])["stats"]["results"]


def switch_rate(lab):
    """A series of allreduces through fanin-switch: frames per second and what the ranks report.

    The first allreduce is not measured: in it the hosts touch their memory for the first time.
    """
    job = lab.create_job()
    blocks = -(-BYTES // job["payload_bytes"])
    ranks = [lab.spawn_perf(host, job, host, HOSTS, bytes=BYTES, dtype="f32", op="sum", warmup=1, iters=ITERS,
                            transport="af_xdp") for host in range(HOSTS)]
    samples = []
    while all(rank.running() for rank in ranks) and results_of(lab, job) < blocks * ITERS:
        if samples or results_of(lab, job) > blocks:
            frames = lab.frames()
            samples.append((time.monotonic(), frames["rx"] + frames["tx"]))
        time.sleep(0.05)
    for rank in ranks:
        rank.wait(60)
    reports = [lab.perf_report(rank) for rank in ranks]
    lab.ctl("jobs", "destroy", job["id"])
    for report in reports:
        if report.get("error"):
            raise LabError(f"fanin-perf: {report['error']['message']}")
    if len(samples) < 3:
        raise LabError("the series was too short to be measured")
    (first, frames_first), (last, frames_last) = samples[0], samples[-1]
    return {"frames_per_second": (frames_last - frames_first) / (last - first), "seconds": last - first,
            "payload_bytes": job["payload_bytes"],
            "goodput_gbps": [report["goodput_gbps"] for report in reports],
            "retransmits": sum(report["retransmits"] for report in reports)}


class Testpmd:
    """dpdk-testpmd with its command line on a pipe."""

    PROMPT = "testpmd> "

    def __init__(self, lab, name, namespace, interfaces, core, frame_bytes, topology):
        main_core = 1 - core
        # Its prompt is not buffered, all else is: without stdbuf the prompt comes before the answer.
        arguments = ["stdbuf", "-oL", "dpdk-testpmd", "--in-memory", "--no-pci", "--no-telemetry", f"--file-prefix={name}",
                     "-m", "256", "--lcores", f"0@{main_core},1@{core}"]
        for index, interface in enumerate(interfaces):
            arguments += ["--vdev", f"net_af_xdp{index},iface={interface},busy_budget=0"]
        arguments += ["--", "-i", "--forward-mode=io", f"--port-topology={topology}", "--nb-cores=1",
                      f"--burst={BURST}", f"--mbuf-size={MBUF_DATA_ROOM}", f"--txpkts={frame_bytes}",
                      "--total-num-mbufs=32768", "--no-lsc-interrupt", f"--max-pkt-len={lab.mtu + 18}"]
        self.output = lab.directory / f"{name}.out"
        with open(self.output, "wb") as out, inside(namespace):
            self.popen = subprocess.Popen(arguments, stdin=subprocess.PIPE, stdout=out, stderr=subprocess.STDOUT,
                                          preexec_fn=private_sys, cwd=lab.directory)
        self.read = 0
        self.wait_for_prompt(30)

    def text(self):
        return self.output.read_text(errors="replace")[self.read:]

    def wait_for_prompt(self, timeout):
        def prompted():
            if self.popen.poll() is not None:
                raise LabError("dpdk-testpmd ended: " + " ".join(self.output.read_text().strip().splitlines()[-2:]))
            return self.text().endswith(self.PROMPT)
        wait_until(prompted, timeout, "dpdk-testpmd's prompt")
        text = self.text()
        self.read += len(text)
        return text

    def command(self, line, timeout=10):
        self.popen.stdin.write(line.encode() + b"\n")
        self.popen.stdin.flush()
        return self.wait_for_prompt(timeout)

    def frames(self):
        text = self.command("show port stats all")
        return sum(map(int, re.findall(r"[RT]X-packets:\s+(\d+)", text)))

    def close(self):
        if self.popen.poll() is None:
            self.popen.terminate()
            try:
                self.popen.wait(10)
            except subprocess.TimeoutExpired:
                self.popen.kill()
        self.popen.wait()
        self.popen.stdin.close()


def testpmd_rate(lab, gathered, frame_bytes, bursts):
    """testpmd forwarding between four ports, with that many bursts of frames per port going round."""
    processes = []
    try:
        forwarder = Testpmd(lab, "forwarder", lab.switch_namespace,
                            [lab.switch_interface(host) for host in range(HOSTS)], 1, frame_bytes, "paired")
        processes.append(forwarder)
        reflector = Testpmd(lab, "reflector", gathered.namespace, gathered.ends, 0, frame_bytes, "loop")
        processes.append(reflector)
        forwarder.command("start")
        reflector.command(f"start tx_first {bursts}")
        started, before = time.monotonic(), forwarder.frames()
        time.sleep(WINDOW_SECONDS)
        ended, after = time.monotonic(), forwarder.frames()
        return (after - before) / (ended - started)
    finally:
        for process in reversed(processes):
            process.close()


def measure(rounds):
    switch, testpmd = [], {bursts: [] for bursts in CIRCULATING}
    for turn in range(rounds):
        with Lab(HOSTS, "af_xdp", MTU) as lab:
            lab.start_switch()
            switch.append(switch_rate(lab))
            frame_bytes = HEADERS + switch[-1]["payload_bytes"]
            say(f"round {turn + 1}: fanin-switch {switch[-1]['frames_per_second'] / 1e6:.3f} M frames/s")
        with Lab(HOSTS, "af_xdp", MTU) as lab:
            gathered = Gathered(lab)
            for bursts in CIRCULATING:
                testpmd[bursts].append(testpmd_rate(lab, gathered, frame_bytes, bursts))
                say(f"round {turn + 1}: dpdk-testpmd {testpmd[bursts][-1] / 1e6:.3f} M frames/s with "
                    f"{bursts * BURST} frames per port going round")
    ours = statistics.median(round_["frames_per_second"] for round_ in switch)
    theirs = max(statistics.median(rates) for rates in testpmd.values())
    return {"ok": ours >= RATIO_WANTED * theirs, "hosts": HOSTS, "bytes": BYTES, "iters": ITERS, "mtu": MTU,
            "frame_bytes": frame_bytes, "rounds": rounds,
            "switch_frames_per_second": round(ours), "testpmd_frames_per_second": round(theirs),
            "ratio": round(ours / theirs, 3), "ratio_wanted": RATIO_WANTED,
            "switch_rounds": switch, "testpmd_rounds": {bursts * BURST: rates for bursts, rates in testpmd.items()},
            "machine": machine(), "error": None}


def machine():
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


def print_result(result):
    print(f"{result['machine']}")
    print(f"{result['hosts']} AF_XDP ports on veth, MTU {result['mtu']}, frames of {result['frame_bytes']} bytes; frames "
          f"received and sent, all ports together, median of {result['rounds']}:")
    print(f"  fanin-switch, allreduce of {result['bytes'] >> 20} MiB on {result['hosts']} hosts  "
          f"{result['switch_frames_per_second'] / 1e6:8.3f} M frames/s")
    print(f"  dpdk-testpmd, io forwarding                  {result['testpmd_frames_per_second'] / 1e6:8.3f} M frames/s")
    print(f"  ratio                                        {result['ratio']:8.3f}   (wanted: at least "
          f"{result['ratio_wanted']})")


def main():
    parser = argparse.ArgumentParser(prog="./dev bench io", description=__doc__.splitlines()[0])
    parser.add_argument("--rounds", type=int, default=3, choices=range(1, 21), metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object and nothing else")
    options = parser.parse_args()
    try:
        result = measure(options.rounds)
    except Interrupted as error:
        return report_interruption(error)
    except (LabError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if options.json:
        print(json.dumps(result))
    elif result["error"]:
        print(f"bench io: {result['error']}", file=sys.stderr)
    else:
        print_result(result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
