#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Frames per second of fanin-switch, forwarding and aggregating, beside those of dpdk-testpmd's io
forwarding, in one run.

All have four vdevs of the same kind (memif, AF_XDP on veth, AF_PACKET on veth, one after the
other), the same frame size, and one forwarding core, which never rests. The load is on the other
core. For forwarding it is a second testpmd at the other ends of the links (see testpmd.py) with a
fixed number of frames that circulate; of several numbers the best counts. For aggregating it is
fanin-pktgen, which plays four hosts. Frames are those that the ports count, received and sent, all
ports together.

Three laboratories stand side by side, and all but one are halted: they run in turns of a fraction
of a second, so that other load on the machine affects all of them alike.
"""

import argparse
import contextlib
import os
import platform
import re
import signal
import statistics
import sys
import time
from pathlib import Path

from lab.bench import pairs
from lab.bench import testpmd
from lab.bench.gathered import Gathered
from lab.namespaces import BUILD_DIR, LabError, WireLab, wait_until
from lab.bench.options import bench_parser
from lab.bench.outcome import outcome

HOSTS = 4
HEADERS = 96
PAYLOAD_STEP = 64
DEFAULT_FRAME = HEADERS + 1024
ETHERNET = 14
# The AF_XDP ports' MTU is the largest that fits into testpmd's mbufs (see there), the others' that
# of an ordinary network.
MTU = {"memif": 1500, "af_xdp": 3442, "af_packet": 1500}
# bursts; a veth end queues 256 frames
CIRCULATING = {"memif": (1, 4, 16), "af_xdp": (1, 3, 6), "af_packet": (1, 3, 6)}
WINDOW_SECONDS = 0.25
WINDOW = {"memif": 64, "af_xdp": 64, "af_packet": 64}  # of the hosts, in blocks
FIRST_RESULTS = 1000
FOREVER_MS = 600000  # the generator is halted most of the time
GOALS = {("memif", "forwarding"): 0.9, ("af_xdp", "forwarding"): 0.85,
         ("af_packet", "forwarding"): 0.85,
         ("memif", "aggregating"): 0.6, ("af_xdp", "aggregating"): 0.5}
PROGRAMS = ("fanin-switch", "faninctl", "fanin-pktgen")
# Both as in testpmd: its cores never rest, and it doesn't run without hugepages.
CONFIG = {"idle": {"policy": "spin"}, "memory": {"megabytes": 256, "hugepages": "always"}}


def say(text):
    print(text, file=sys.stderr, flush=True)


# ---- measurements: each is a context manager that leaves its processes halted, and has rates()

class Halted:
    """A laboratory whose processes run only while they are measured."""

    def __init__(self, vdev, frame_bytes, name, build=BUILD_DIR):
        self.vdev, self.frame_bytes = vdev, frame_bytes
        self.lab = WireLab(HOSTS, vdev, MTU[vdev], CONFIG, name=name)
        self.lab.build = build
        self.processes = []
        self.stack = contextlib.ExitStack()

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            stack.enter_context(self.lab)
            stack.callback(self.signal, signal.SIGCONT)
            self.start(stack)
            self.signal(signal.SIGSTOP)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def signal(self, signum):
        for process in self.processes:
            process.send_signal(signum)

    def rates(self):
        """Returns frames per second by the number of frames per port that circulate."""
        self.signal(signal.SIGCONT)
        try:
            return self.measure()
        finally:
            self.signal(signal.SIGSTOP)

    def reflect(self, stack):
        self.reflector = stack.enter_context(testpmd.reflector(Gathered(self.lab),
                                                               self.frame_bytes))

    def circulate(self, frames):
        return {bursts * testpmd.BURST: testpmd.circulate(self.reflector, bursts, WINDOW_SECONDS,
                                                          frames)
                for bursts in CIRCULATING[self.vdev]}

    def switch_frames(self):
        frames = self.lab.frames()
        return frames["rx"] + frames["tx"]


class Testpmd(Halted):
    """testpmd forwarding."""

    def start(self, stack):
        self.forwarder = stack.enter_context(testpmd.forwarder(self.lab, self.frame_bytes))
        self.reflect(stack)
        self.processes = [self.forwarder.popen]

    def measure(self):
        return self.circulate(self.forwarder.frames)


class Forwarding(Halted):
    """The switch, which forwards by the addresses that it has learned."""

    def start(self, stack):
        self.lab.start_switch()
        self.reflect(stack)
        testpmd.teach(self.reflector, self.lab)
        self.processes = [self.lab.switch.popen]

    def flooded(self):
        return self.lab.control.ask("stats")["switching"]["flooded"]

    def measure(self):
        before = self.flooded()
        rates = self.circulate(self.switch_frames)
        if self.flooded() != before:
            raise LabError(f"the switch flooded {self.flooded() - before} frames whose addresses "
                           "it had learned")
        return rates


class Aggregating(Halted):
    """The switch with a job whose hosts keep their windows full. The first blocks, in which the
    hosts touch their memory, don't count.
    """

    def start(self, stack):
        lab = self.lab
        lab.start_switch()
        self.busy_shares = []
        self.generator = Gathered(lab).spawn_pktgen(
            control=str(lab.socket_path), payload=self.frame_bytes - HEADERS,
            window=WINDOW[self.vdev], cpu=0,
            seconds=FOREVER_MS // 1000, timeout_ms=FOREVER_MS, stall_ms=FOREVER_MS)
        wait_until(lambda: results(lab) >= FIRST_RESULTS or not self.generator.running(), 60,
                   "the first results")
        self.check()
        self.processes = [lab.switch.popen, self.generator.popen]

    def check(self):
        if not self.generator.running():
            raise LabError(self.generator.last_words())

    def measure(self):
        before, frames_before = self.busy_seconds(), self.switch_frames()
        started = time.monotonic()
        time.sleep(WINDOW_SECONDS)
        seconds, frames = time.monotonic() - started, self.switch_frames() - frames_before
        self.busy_shares.append((self.busy_seconds() - before) / seconds)
        self.check()
        return {"all": frames / seconds}

    def busy_seconds(self):
        """Returns how long the switch's worker has had packets to handle. Much less than the whole
        time means that the hosts can't send more.
        """
        stats = self.lab.control.ask("stats")
        return stats["workers"][0]["busy_share"] * stats["uptime_s"]


def results(lab):
    return sum(job["stats"]["results"] for job in lab.control.ask("jobs.list")["jobs"])


# ---- all of them

def best(rounds):
    """Returns the median over the rounds for the best number of frames."""
    return max(statistics.median(rates[number] for rates in rounds) for number in rounds[0])


def millions(rate):
    return round(rate / 1e6, 4)


def in_millions(rounds):
    return [{number: millions(rate) for number, rate in rates.items()} for rates in rounds]


def row(vdev, what, frame_bytes, ours, theirs):
    wanted = GOALS.get((vdev, what))
    ratio = best(ours) / best(theirs)
    return {"vdev": vdev, "what": what, "frame_bytes": frame_bytes, "mpps": millions(best(ours)),
            "testpmd_mpps": millions(best(theirs)), "ratio": round(ratio, 3), "wanted": wanted,
            "ok": wanted is None or ratio >= wanted, "rounds": in_millions(ours),
            "testpmd_rounds": in_millions(theirs)}


def measure_vdev(vdev, frame_bytes, rounds):
    with Testpmd(vdev, frame_bytes, "pmd") as theirs, Forwarding(vdev, frame_bytes,
                                                                 "fwd") as forwarding, \
            Aggregating(vdev, frame_bytes, "agg") as aggregating:
        turns = [(theirs.rates(), forwarding.rates(), aggregating.rates()) for _ in range(rounds)]
        busy = aggregating.busy_shares
    theirs, forwarding, aggregating = zip(*turns)
    say(f"{vdev}: testpmd {best(theirs) / 1e6:.3f}, forwarding {best(forwarding) / 1e6:.3f}, "
        f"aggregating {best(aggregating) / 1e6:.3f} M frames/s")
    return [row(vdev, "forwarding", frame_bytes, forwarding, theirs),
            with_bound(row(vdev, "aggregating", frame_bytes, aggregating, theirs),
                       statistics.median(busy))]


def with_bound(entry, busy_share):
    """Adds the switch's rate if its hosts took no time: the switch waits for them while it has no
    packets to handle.
    """
    bound = entry["mpps"] / busy_share
    return {**entry, "busy_share": round(busy_share, 3), "bound_mpps": round(bound, 4),
            "bound_ratio": round(bound / entry["testpmd_mpps"], 3)}


def measure(vdevs, frame_bytes, rounds):
    load = os.getloadavg()
    rows = [entry for vdev in vdevs for entry in measure_vdev(vdev, frame_bytes, rounds)]
    return {"ok": all(entry["ok"] for entry in rows), "rounds": rounds, "results": rows,
            "machine": {"description": machine(), "load_before": load,
                        "load_after": os.getloadavg()}, "error": None}


def run_of(vdevs, frame_bytes, rounds):
    """Runs a build once for a comparison: forwarding and aggregating in turns, in millions of
    frames per second.
    """
    def run(build):
        found = {}
        for vdev in vdevs:
            with Forwarding(vdev, frame_bytes, "fwd",
                            build) as forwarding, Aggregating(vdev, frame_bytes, "agg",
                                                              build) as aggregating:
                turns = [(forwarding.rates(), aggregating.rates()) for _ in range(rounds)]
            for what, rates in zip(("forwarding", "aggregating"), zip(*turns)):
                found[f"{vdev} {what}"] = millions(best(rates))
        return found
    return run


def machine():
    model = re.search(r"model name\s*: (.*)", Path("/proc/cpuinfo").read_text())
    return f"{model.group(1) if model else platform.machine()}, {os.cpu_count()} cores, Linux {platform.release()}"


# ---- printing

def print_result(result):
    print(result["machine"]["description"])
    print(f"{HOSTS} ports, frames of {result['results'][0]['frame_bytes']} bytes; millions of "
          f"frames per second, received and sent; medians of {result['rounds']} rounds")
    print(f"load of the machine before: {result['machine']['load_before'][0]:.1f}")
    print(f"\n{'vdev':<10} {'fanin-switch':<12} {'Mpps':>8} {'testpmd':>8} {'ratio':>6}  goal")
    for entry in result["results"]:
        goal = "" if entry[
            "wanted"] is None else f"{entry['wanted']}: {'reached' if entry['ok'] else 'MISSED'}"
        print(f"{entry['vdev']:<10} {entry['what']:<12} {entry['mpps']:8.3f} "
              f"{entry['testpmd_mpps']:8.3f} {entry['ratio']:6.2f}  {goal}".rstrip())
        if "busy_share" in entry:
            print(f"{'':<10} {'bound':<12} {entry['bound_mpps']:8.3f} {entry['testpmd_mpps']:8.3f} "
                  f"{entry['bound_ratio']:6.2f}  if hosts took no time: the switch had packets at "
                  f"hand for {100 * entry['busy_share']:.0f} % of it")


def frame_size(text):
    value = int(text)
    most = min(MTU.values()) + ETHERNET
    if value > most or value <= HEADERS or (value - HEADERS) % PAYLOAD_STEP != 0:
        raise argparse.ArgumentTypeError(f"found {value}, expected {HEADERS} and a multiple of "
                                         f"{PAYLOAD_STEP}, at most {most}")
    return value


def main():
    parser = bench_parser("io", __doc__)
    parser.add_argument("--rounds", type=int, default=10, choices=range(1, 101), metavar="N",
                        help="turns that each of the three has (default %(default)s)")
    parser.add_argument("--frame", type=frame_size, default=DEFAULT_FRAME, metavar="BYTES",
                        help="size of all frames, without the checksum (default %(default)s: a "
                             "payload of 1 KiB)")
    parser.add_argument("--vdev", action="append", choices=tuple(MTU),
                        help="only this one; may be given again")
    pairs.add_options(parser)
    options = parser.parse_args()
    pairs.check_options(parser, options)
    vdevs = options.vdev or tuple(MTU)
    if options.against is None:
        return outcome("io", options, lambda: measure(vdevs, options.frame, options.rounds),
                       print_result)
    run = run_of(vdevs, options.frame, options.rounds)
    return outcome("io", options,
                   lambda: pairs.compare("io", options.against, options.pairs, PROGRAMS, run, say),
                   lambda result: print(pairs.table(result, "millions of frames per second")))


if __name__ == "__main__":
    sys.exit(main())
