#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""TCP of iperf3 through two packet ports of one switch, beside a Linux bridge or an older commit.

Two laboratories stand side by side: two hosts on the switch, with its default configuration, and
two on a bridge between veth pairs of the same kind. They run in turns of some seconds, so that
other load on the machine affects both alike; the one that is not measured sleeps.
"""

import argparse
import contextlib
import json
import os
import statistics
import sys
import time
from typing import NamedTuple

from lab.bench import pairs
from lab.bench.cpu_times import Moment, free_seconds, load_between, own_seconds
from lab.bench.io_forwarding import machine, say
from lab.bench.options import bench_parser
from lab.bench.outcome import outcome
from lab.namespaces import (BUILD_DIR, HOST_INTERFACE, NETNS_DIR, Lab, LabError, WireLab, inside,
                            ip_in, run, wait_until)
from lab.bench.virtual_time import quartiles

MTU = 1500
SECONDS = 3
# The beginning and the end of a run don't count as CPU time: iperf3 starts and ends.
EDGE_SECONDS = 0.3
IPERF_SECONDS = 20  # maximum that iperf3 takes beside its run
PROGRAMS = ("fanin-switch", "faninctl")
SWITCH, BRIDGE = "switch", "bridge"


class Case(NamedTuple):
    name: str
    streams: int
    offloads: bool  # of the hosts' interfaces
    wanted: float | None  # minimum share of the bridge's goodput


CASES = (Case("1 stream", 1, True, 0.4), Case("4 streams", 4, True, None),
         Case("1 stream, hosts' offloads off", 1, False, None))


class Run(NamedTuple):
    gbit: float  # goodput at the receiver
    cores: float  # cores that hosts and switch, or bridge, used
    other: float  # cores that other processes used


class Bridged(Lab):
    """A bridge in the switch's place."""

    def start_switch(self, timeout=60):
        ip_in(self.switch_namespace, "link", "add", "name", "bridge", "type", "bridge")
        for host in range(self.hosts):
            ip_in(self.switch_namespace, "link", "set", self.switch_interface(host), "master",
                  "bridge")
        ip_in(self.switch_namespace, "link", "set", "bridge", "up")


class Link:
    """A laboratory with iperf3's server on host 1. A context manager."""

    def __init__(self, base, case, build=BUILD_DIR):
        self.lab = base(2, "af_packet", MTU, name="bridge" if base is Bridged else "switch")
        self.lab.build = build
        self.case = case

    def __enter__(self):
        with contextlib.ExitStack() as stack:
            lab = stack.enter_context(self.lab)
            for host in range(lab.hosts):
                if not self.case.offloads:
                    with inside(lab.host_namespace(host)):
                        run(["ethtool", "-K", HOST_INTERFACE, "tx", "off", "tso", "off", "gso",
                             "off", "gro", "off"])
            lab.start_switch()
            self.namespaces = {os.stat(NETNS_DIR / name).st_ino for name in lab.namespaces}
            server = lab.spawn(1, ["iperf3", "--server", "--forceflush"], "server")
            wait_until(lambda: "listening" in server.stdout(), IPERF_SECONDS, "iperf3's server")
            # The first connection is not measured: in it addresses are learned.
            self.measure(1)
            self.stack = stack.pop_all()
        return self

    def __exit__(self, *error):
        return self.stack.__exit__(*error)

    def _moment(self):
        return Moment(time.monotonic(), own_seconds(self.namespaces), free_seconds())

    def measure(self, seconds):
        lab = self.lab
        client = lab.spawn(0, ["iperf3", "--client", lab.host_ip(1), "--time", seconds,
                               "--parallel", self.case.streams, "--json",
                               "--connect-timeout", 1000 * IPERF_SECONDS], "client")
        time.sleep(EDGE_SECONDS)
        begin = self._moment()
        time.sleep(seconds - 2 * EDGE_SECONDS)
        load = load_between(begin, end := self._moment(), os.cpu_count())
        status = client.wait(seconds + IPERF_SECONDS)
        result = json.loads(client.stdout() or "{}")
        if status != 0 or "error" in result:
            raise LabError(f"iperf3: {result.get('error') or client.last_words()}")
        return Run(result["end"]["sum_received"]["bits_per_second"] / 1e9,
                   load.cpu_seconds / (end.seconds - begin.seconds), load.other_cores)


def rounded(values):
    return [round(value, 3) for value in values]


def row(case, runs):
    """Makes a row. runs: by side, in pairs."""
    gbit = {side: [one.gbit for one in runs[side]] for side in runs}
    ratios = [mine / other for mine, other in zip(gbit[SWITCH], gbit[BRIDGE], strict=True)]
    lower, upper = quartiles(ratios)
    median = statistics.median(ratios)
    return {"name": case.name, "streams": case.streams, "offloads": case.offloads,
            **{f"{side}_gbit": round(statistics.median(gbit[side]), 3) for side in runs},
            **{f"{side}_cores": round(statistics.median(one.cores for one in runs[side]), 3)
               for side in runs},
            "other_cores": round(statistics.median(one.other for side in runs
                                                   for one in runs[side]), 3),
            "ratio": {"median": round(median, 3), "lower": round(lower, 3),
                      "upper": round(upper, 3)}, "wanted": case.wanted,
            "ok": case.wanted is None or median >= case.wanted,
            "runs": {side: rounded(gbit[side]) for side in runs}}


def measure_case(case, count, seconds):
    with Link(Lab, case) as switch, Link(Bridged, case) as bridge:
        links = {SWITCH: switch, BRIDGE: bridge}
        runs = {side: [] for side in links}
        for pair, side in pairs.turns(count, links):
            runs[side].append(links[side].measure(seconds))
            say(f"{case.name}, pair {pair + 1} of {count}: {side} {runs[side][-1].gbit:.2f} Gbit/s")
    return row(case, runs)


def measure(count, seconds):
    pairs.catch_signals()
    load = os.getloadavg()
    rows = [measure_case(case, count, seconds) for case in CASES]
    return {"ok": all(entry["ok"] for entry in rows), "pairs": count, "seconds": seconds,
            "mtu": MTU, "cases": rows,
            "commit": pairs.git("rev-parse", "HEAD"),
            "changed": bool(pairs.git("status", "--porcelain")),
            "machine": {"description": machine(), "load_before": load,
                        "load_after": os.getloadavg()}, "error": None}


def run_of(seconds, older_offloads):
    """Runs a build once for a comparison. Returns Gbit/s by the cases' names."""
    def measured(build):
        base = Lab if older_offloads or build == BUILD_DIR else WireLab
        found = {}
        for case in CASES:
            with Link(base, case, build) as link:
                found[case.name] = round(link.measure(seconds).gbit, 4)
        return found
    return measured


def print_result(result):
    print(result["machine"]["description"])
    print(f"TCP at MTU {result['mtu']}, goodput in Gbit/s; medians of {result['pairs']} pairs of "
          f"{result['seconds']} s; ratio: median "
          "(quartiles) of the pairs'")
    print("cores: that the hosts had together with the switch, or the bridge; others: that the "
          "rest of the machine had meanwhile")
    print(f"load of the machine before: {result['machine']['load_before'][0]:.1f}")
    width = max(len(entry["name"]) for entry in result["cases"])
    print(f"\n{'':<{width}} {'switch':>7} {'cores':>5} {'bridge':>7} {'cores':>5}  {'ratio':<22} "
          f"{'others':>6}  goal")
    for entry in result["cases"]:
        goal = "" if entry[
            "wanted"] is None else f"{entry['wanted']}: {'reached' if entry['ok'] else 'MISSED'}"
        ratio = "{median:.2f} ({lower:.2f} to {upper:.2f})".format(**entry["ratio"])
        print(f"{entry['name']:<{width}} {entry['switch_gbit']:7.2f} {entry['switch_cores']:5.2f} "
              f"{entry['bridge_gbit']:7.2f} {entry['bridge_cores']:5.2f}  {ratio:<22} "
              f"{entry['other_cores']:6.2f}  {goal}".rstrip())


def seconds_of(text):
    if not text.isdecimal() or not 1 <= int(text) <= 60:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from 1 to 60")
    return int(text)


def main():
    parser = bench_parser("bridge", __doc__)
    parser.add_argument("--pairs", type=pairs.pair_count, default=pairs.PAIRS, metavar="N",
                        help="of runs, of switch and bridge or of both builds, 1 to 100 (default "
                             "%(default)s)")
    parser.add_argument("--seconds", type=seconds_of, default=SECONDS, metavar="S",
                        help="of each run, 1 to 60 (default %(default)s)")
    parser.add_argument("--against", metavar="COMMIT",
                        help="the switch alone, in pairs of runs with an older commit, which is "
                             "built for it")
    parser.add_argument("--older-offloads", choices=("on", "off"), default="on",
                        help="of all interfaces around the older commit's switch; off for one that "
                             "knows no super-frames (default %(default)s)")
    options = parser.parse_args()
    if options.against is None:
        return outcome("bridge", options, lambda: measure(options.pairs, options.seconds),
                       print_result)
    run = run_of(options.seconds, options.older_offloads == "on")
    return outcome("bridge", options,
                   lambda: pairs.compare("bridge", options.against, options.pairs, PROGRAMS, run,
                                         say),
                   lambda result: print(pairs.table(result, "Gbit/s")))


if __name__ == "__main__":
    sys.exit(main())
