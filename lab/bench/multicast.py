#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Broadcast and allgather by reliable multicast, beside the same by contributions without data,
Open MPI and the ring of hosts.

Hosts are network namespaces with one link to a fanin-switch, whose counters tell that it carried
the data, and one to a Linux bridge for Open MPI's TCP, whose offloads stay on. All take turns in
each round. A collective's time is that of its slowest rank; a run's figure is the median of these,
and a row's the median of its runs. goodput is the vector's bytes, of an allgather those of all
ranks, over that time.
"""

import signal
import statistics
import sys

from lab.fabric import Fabric, leaf_spine, single
from lab.namespaces import LabError

from lab.bench.io_forwarding import machine, say
from lab.bench.options import (add_bytes, add_hosts, add_repeated, add_rounds, bench_parser,
                               parse_rounds)
from lab.bench.outcome import outcome
from lab.bench.peer_network import mpi_files, openmpi, peer_links, tcp_arguments, version_of
from lab.bench.runs import figure, perf_run
from lab.bench.sizes import KIB, MIB, human_bytes

HOSTS = (4, 8)
SIZES = (64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
QUICK_SIZES = (64 * KIB, MIB, 16 * MIB)
CHAINS = (1, 2, 4, 8)
# Trees over this many spines.
SUBGROUPS = (1, 2, 4)
COLLECTIVES = ("broadcast", "allgather")
MTUS, PEER_MTU = (9000, 61184), 65535
WARMUP = 2
JOB, KEY = 90, "0x5eed"
SWITCH = {"limits": {"slots": 1024}, "memory": {"megabytes": 512}}
# way: (minimum of bytes, minimum ratio of goodput by hosts and collective)
GOALS = (("today", MIB, lambda hosts, collective: 1.2),
         ("openmpi", MIB, lambda hosts,
          collective: {4: 1.0, 8: 1.5}.get(hosts) if collective == "broadcast" else None))


def iterations(size, quick):
    return max(5, min(40 if quick else 100, (64 if quick else 128) * MIB // size))


class Hosts:
    """A switch with its hosts, a manager for the ring, and the bridge of Open MPI's links."""

    def __init__(self, fabric, quick):
        self.fabric, self.quick = fabric, quick
        fabric.start()
        fabric.start_manager()
        self.middle = peer_links(fabric, PEER_MTU)
        mpi_files(fabric)

    def _options(self, collective, size):
        return {"collective": collective, "bytes": size, "dtype": "f32", "warmup": WARMUP,
                "iters": iterations(size, self.quick),
                "transport": "af_packet", "check_ends": True, "times": True}

    def in_network(self, collective, size, handler, **parameters):
        """Returns the seconds of a job on the switch. The switch's counters must show that it
        carried the data.
        """
        fabric, hosts = self.fabric, range(self.fabric.hosts)
        parents = fabric.tree("switch0", hosts)
        fabric.install(JOB, KEY, parents, {host: host for host in hosts}, handler=handler,
                       **({"parameters": parameters} if parameters else {}))
        before = sum(port["tx_bytes"] for port in fabric.port_counters("switch0").values())
        options = self._options(collective, size)
        times, reports = perf_run(fabric,
                                  [fabric.spawn_rank(host, JOB, KEY, host, fabric.hosts, **options)
                                   for host in hosts], handler)
        carried = sum(port["tx_bytes"]
                      for port in fabric.port_counters("switch0").values()) - before
        fabric.uninstall(JOB, parents)
        parts = 1 if collective == "broadcast" else fabric.hosts
        least = (fabric.hosts - 1) * size // parts * options["iters"]
        if carried < least:
            raise LabError(f"{handler}: the switch has sent {carried} bytes, expected {least} or "
                           "more: the data went another way")
        return figure(times), sum(report["multicast_fetched"]
                                  for report in reports) / max(1, sum(report["multicast_packets"]
                                                                      for report in reports))

    def ring(self, collective, size):
        options = self._options(collective, size)
        del options["transport"]
        ranks = [self.fabric.spawn_named(host, "ring", host, self.fabric.hosts, handler="ring",
                                         **options) for host in range(self.fabric.hosts)]
        return figure(perf_run(self.fabric, ranks, "ring")[0])

    def openmpi(self, collective, size):
        switch = self.fabric.switches["switch0"]
        # The switch polls all the time; the peer gets its core.
        switch.popen.send_signal(signal.SIGSTOP)
        try:
            return figure(openmpi(self.fabric, self.middle, tcp_arguments(self.fabric), collective,
                                  size, iterations(size, self.quick), WARMUP))
        finally:
            switch.popen.send_signal(signal.SIGCONT)


def one_round(hosts, sizes, mtu, samples):
    for collective in COLLECTIVES:
        for size in sizes:
            found = {}
            found["multicast"], fetched = hosts.in_network(collective, size, "broadcast")
            found["today"], _ = hosts.in_network(collective, size, "single")
            found["ring"] = hosts.ring(collective, size)
            found["openmpi"] = hosts.openmpi(collective, size)
            say(f"{collective} of {human_bytes(size)} on {hosts.fabric.hosts} hosts: "
                + ", ".join(f"{way} {seconds * 1e6:.0f} us" for way, seconds in found.items())
                + f", fetched {100 * fetched:.3f} %")
            row = samples.setdefault((collective, hosts.fabric.hosts, mtu, size), {"fetched": []})
            row["fetched"].append(fetched)
            for way, seconds in found.items():
                row.setdefault(way, []).append(seconds)


def row_of(key, sample):
    collective, hosts, mtu, size = key
    medians = {way: statistics.median(seconds) for way,
               seconds in sample.items() if way != "fetched"}
    row = {"collective": collective, "hosts": hosts, "mtu": mtu, "bytes": size,
           "fetched": max(sample["fetched"]),
           **{f"{way}_gbps": size * 8 / seconds / 1e9 for way, seconds in medians.items()},
           **{f"ratio_{way}": seconds / medians["multicast"] for way,
              seconds in medians.items() if way != "multicast"}, "raw": sample}
    goals = [(way, least(hosts, collective)) for way, from_bytes,
             least in GOALS if size >= from_bytes and least(hosts, collective)]
    row["goal"] = ", ".join(f"{ratio:g} of {way}" for way, ratio in goals) or None
    row["reached"] = all(row[f"ratio_{way}"] >= ratio for way, ratio in goals) if goals else None
    return row


def chains_swept(hosts, size, mtu, rounds):
    """Measures allgathers with other numbers of roots that send at the same time."""
    rows = []
    for chains in CHAINS:
        seconds = statistics.median(hosts.in_network("allgather", size, "broadcast",
                                                     chains=chains)[0] for _ in range(rounds))
        say(f"allgather of {human_bytes(size)} on {hosts.fabric.hosts} hosts, {chains} chains: "
            f"{seconds * 1e6:.0f} us")
        rows.append({"hosts": hosts.fabric.hosts, "mtu": mtu, "bytes": size, "chains": chains,
                     "gbps": size * 8 / seconds / 1e9})
    return rows


def subgroups_swept(n_hosts, size, mtu, options):
    """Measures allgathers over leaves and spines, whose packets take turns on several trees."""
    rows = []
    with Fabric(leaf_spine(2, max(SUBGROUPS), n_hosts), mtu=mtu, config=SWITCH) as fabric:
        fabric.start()
        fabric.start_manager()
        for subgroups in SUBGROUPS:
            found = []
            for turn in range(options.rounds):
                ranks = [fabric.spawn_named(host, f"groups{subgroups}-{turn}", host, n_hosts,
                                            collective="allgather", bytes=size, dtype="f32",
                                            warmup=WARMUP,
                                            iters=iterations(size, options.quick),
                                            transport="af_packet", check_ends=True, times=True,
                                            multicast="always",
                                            subgroups=subgroups) for host in range(n_hosts)]
                times, reports = perf_run(fabric, ranks, f"{subgroups} subgroups")
                for report in reports:
                    if not report["multicast_operations"]:
                        raise LabError(f"{subgroups} subgroups: {report.get('multicast_reason')}")
                found.append(figure(times))
            seconds = statistics.median(found)
            say(f"allgather of {human_bytes(size)} on {n_hosts} hosts, {subgroups} subgroups: "
                f"{seconds * 1e6:.0f} us")
            rows.append({"hosts": n_hosts, "mtu": mtu, "bytes": size, "subgroups": subgroups,
                         "gbps": size * 8 / seconds / 1e9})
    return rows


def measure(options):
    sizes = options.bytes or (QUICK_SIZES if options.quick else SIZES)
    samples, chains, subgroups = {}, [], []
    for turn in range(options.rounds):
        for n_hosts in options.hosts or HOSTS:
            for mtu in options.mtu or MTUS:
                say(f"round {turn + 1} of {options.rounds}: {n_hosts} hosts, MTU {mtu}")
                with Fabric(single(n_hosts), mtu=mtu, config=SWITCH) as fabric:
                    hosts = Hosts(fabric, options.quick)
                    one_round(hosts, sizes, mtu, samples)
                    swept_size = max(sizes[0], min(16 * MIB, sizes[-1]))
                    if turn + 1 == options.rounds:
                        chains += chains_swept(hosts, swept_size, mtu, options.rounds)
                if turn + 1 == options.rounds:
                    subgroups += subgroups_swept(n_hosts, swept_size, mtu, options)
    rows = [row_of(key, sample) for key, sample in samples.items()]
    return {"ok": all(row["reached"] is not False for row in rows), "error": None,
            "rounds": options.rounds,
            "machine": {"description": machine(), "openmpi": version_of("openmpi-bin")},
            "results": rows, "chains": chains, "subgroups": subgroups}


def table(result):
    lines = [result["machine"]["description"],
             f"goodput of the vector in Gbit/s, medians of {result['rounds']} rounds", "",
             f"{'':<10}{'hosts':>6}{'MTU':>7}{'bytes':>9}{'multicast':>11}{'today':>8}{'ring':>8}{'Open MPI':>10}{'fetched':>9}  goal"]
    for row in result["results"]:
        goal = "" if row[
            "goal"] is None else f"{row['goal']}: {'reached' if row['reached'] else 'MISSED'}"
        lines.append(f"{row['collective']:<10}{row['hosts']:>6}{row['mtu']:>7}{human_bytes(row['bytes']):>9}{row['multicast_gbps']:>11.3f}{row['today_gbps']:>8.3f}{row['ring_gbps']:>8.3f}{row['openmpi_gbps']:>10.3f}{100 * row['fetched']:>8.3f}%  {goal}".rstrip())
    lines += [""] + [f"allgather on {row['hosts']} hosts, MTU {row['mtu']}, "
                     f"{human_bytes(row['bytes'])}, {row['chains']} chains: {row['gbps']:.3f} "
                     "Gbit/s"
                     for row in result["chains"]]
    lines += [f"allgather on {row['hosts']} hosts behind two leaves, MTU {row['mtu']}, "
              f"{human_bytes(row['bytes'])}, {row['subgroups']} subgroups: {row['gbps']:.3f} Gbit/s"
              for row in result["subgroups"]]
    return "\n".join(lines)


def main():
    parser = bench_parser("multicast", __doc__)
    add_rounds(parser, "three sizes, one round, fewer collectives in each")
    add_hosts(parser, "4 and 8")
    add_repeated(parser, "--mtu", "of the switch's links (default: 9000 and 61184)", type=int,
                 metavar="BYTES")
    add_bytes(parser, "this size")
    options = parse_rounds(parser)
    return outcome("multicast", options, lambda: measure(options),
                   lambda result: print(table(result)))


if __name__ == "__main__":
    sys.exit(main())
