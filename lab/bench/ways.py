#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Which transport of hosts is the fastest: times allreduces by each transport, with each kind of
port on a kernel interface at the switch, at several MTUs, directly and behind a Linux bridge.
docs/operations.md has the rule for defaults that follows from the results.

Transports take turns in each round. An allreduce's time is that of its slowest rank; a run's figure
is the median of these, and a cell's the median of its runs.
"""

import statistics
import sys
from typing import NamedTuple

from lab.bridged import BridgedLab
from lab.namespaces import Lab, LabError

from lab.bench.allreduce_rows import ALLREDUCE
from lab.bench.allreduce_sides import Task, fanin
from lab.bench.io_forwarding import say
from lab.bench.options import add_bytes, add_repeated, bench_parser
from lab.bench.outcome import outcome
from lab.bench.runs import figure
from lab.bench.sizes import KIB, MIB, human_bytes
from lab.bench.stamp import stamp_now, words

SIZES = (KIB, 64 * KIB, MIB, 16 * MIB)
TRANSPORTS = ("udp", "af_packet", "af_xdp")
MAX_XDP_MTU = 3474  # the most that AF_XDP carries (docs/operations.md)
MAX_ITERATIONS, MIN_ITERATIONS = 2000, 5
BYTES_IN_ALL = 64 * MIB


class Network(NamedTuple):
    ports: str
    mtu: int
    lab: type = Lab

    def name(self):
        return f"{self.ports} {self.mtu}{' bridge' if self.lab is BridgedLab else ''}"

    def transports(self):
        """Returns the transports that hosts have here."""
        return [transport for transport in TRANSPORTS if transport != "af_xdp"
                or self.mtu <= MAX_XDP_MTU]


NETWORKS = (Network("af_packet", 1500), Network("af_packet", MAX_XDP_MTU),
            Network("af_packet", 9000), Network("af_packet", 61184),
            Network("af_xdp", 1500), Network("af_xdp", MAX_XDP_MTU),
            Network("af_packet", 1500, BridgedLab), Network("af_packet", 9000, BridgedLab))


def allreduce(lab, transport, size):
    """Makes a job's allreduces of one size. Returns the median of their times, in seconds."""
    iterations = max(MIN_ITERATIONS, min(MAX_ITERATIONS, BYTES_IN_ALL // size))
    times, reports = fanin(lab, Task(ALLREDUCE, size, iterations, in_place=True),
                           transport=transport)
    found = {report["transport"] for report in reports}
    if found != {transport}:
        raise LabError(f"the hosts are on {', '.join(sorted(found))}, expected {transport}")
    return figure(times)


def one_round(networks, options, samples):
    for network in networks:
        with network.lab(options.hosts, network.ports, network.mtu,
                            {"limits": {"slots": 4096}}) as lab:
            lab.start_switch()
            for size in options.bytes:
                for transport in network.transports():
                    seconds = allreduce(lab, transport, size)
                    samples.setdefault((network.name(), transport, size), []).append(seconds)
                    say(f"{network.name()}: {human_bytes(size)} by {transport}: "
                        f"{seconds * 1e6:.0f} us")


def rows_of(networks, sizes, samples):
    rows = []
    for network in networks:
        for size in sizes:
            medians = {transport: statistics.median(samples[network.name(), transport, size])
                       for transport in network.transports()}
            rows.append({"ports": network.ports, "mtu": network.mtu,
                         "bridge": network.lab is BridgedLab, "bytes": size,
                         "latency_us": {transport: seconds * 1e6 for transport,
                                        seconds in medians.items()},
                         "gbps": {transport: size * 8e-9 / seconds for transport,
                                  seconds in medians.items()},
                         "fastest": min(medians, key=medians.get),
                         "raw": {transport: samples[network.name(), transport, size]
                                 for transport in medians}})
    return rows


def table(result):
    lines = [words(result["stamp"]),
             f"allreduce, sum of f32, {result['hosts']} hosts, in place; time in us, medians of "
             f"{result['rounds']} rounds",
             "", f"{'ports':>9} {'MTU':>6} {'links':>7} {'bytes':>7}"
             + "".join(f" {transport:>10}" for transport in TRANSPORTS) + "  fastest"]
    for row in result["results"]:
        cells = "".join(f" {row['latency_us'][transport]:10.0f}"
                        if transport in row["latency_us"] else f" {'-':>10}"
                        for transport in TRANSPORTS)
        lines.append(f"{row['ports']:>9} {row['mtu']:6} {'bridge' if row['bridge'] else 'veth':>7} "
                     f"{human_bytes(row['bytes']):>7}{cells}  {row['fastest']}")
    return "\n".join(lines)


def parse():
    parser = bench_parser("ways", __doc__)
    parser.add_argument("--rounds", type=int, default=3, metavar="N", help="(default: 3)")
    parser.add_argument("--hosts", type=int, default=4, metavar="N", help="(default: 4)")
    add_bytes(parser, "of a vector (default: 1 KiB, 64 KiB, 1 MiB, 16 MiB)")
    add_repeated(parser, "--mtu", "only networks with this MTU", type=int, metavar="BYTES")
    options = parser.parse_args()
    if options.rounds < 1 or options.hosts < 2:
        parser.error("expected --rounds of at least 1 and --hosts of at least 2")
    known = sorted({network.mtu for network in NETWORKS})
    for mtu in options.mtu or []:
        if mtu not in known:
            parser.error(f"argument --mtu: found {mtu}, expected each to be one of "
                         f"{', '.join(map(str, known))}")
    options.bytes = options.bytes or list(SIZES)
    return options


def measure(options):
    networks = [network for network in NETWORKS if not options.mtu or network.mtu in options.mtu]
    samples, stamp = {}, stamp_now()
    for number in range(options.rounds):
        say(f"round {number + 1} of {options.rounds}")
        one_round(networks, options, samples)
    return {"ok": True, "error": None, "stamp": stamp, "hosts": options.hosts,
            "rounds": options.rounds,
            "results": rows_of(networks, options.bytes, samples)}


def main():
    options = parse()
    return outcome("ways", options, lambda: measure(options), lambda result: print(table(result)))


if __name__ == "__main__":
    sys.exit(main())
