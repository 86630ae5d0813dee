#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Latency of small allreduces and of barriers, beside Open MPI's over TCP and the bare exchange, in
one run, taken in turns.

Hosts are network namespaces, linked as in ./dev bench allreduce. A collective's time is that of its
slowest rank. Each run has its median and 99th percentile, and a row has the medians of these over
its runs. Further tables show where the time of a small allreduce goes, and how long the first
allreduce after silence takes. docs/performance.md explains more.
"""

import contextlib
import signal
import statistics
import sys
from typing import NamedTuple

from lab.namespaces import Lab

from lab.bench import latency_pause
from lab.bench import latency_where
from lab.bench.allreduce_rows import ALLREDUCE, BARRIER
from lab.bench.allreduce_sides import Task, bare_exchange, bare_lab, fanin, openmpi_tcp, payload_of
from lab.bench.io_forwarding import say
from lab.bench.options import (add_bytes, add_hosts, add_part, add_repeated, add_rounds,
                               bench_parser, parse_rounds)
from lab.bench.outcome import outcome
from lab.bench.peer_network import mpi_files, peer_links, version_of
from lab.bench.runs import figure
from lab.bench.sizes import KIB, human_bytes
from lab.bench.stamp import of_row, stamp_now, words

HOSTS = (2, 4, 8, 16)
SIZES = (8, 64, 256, KIB, 4 * KIB)
QUICK_HOSTS, QUICK_SIZES = (4,), (8, KIB)
SETUPS = (("udp", 1500), ("udp", 9000), ("af_packet", 9000), ("af_xdp", 3474))
PARTS = ("latency", "where", "pause")
GOAL_SIZES = (0, KIB)  # 0 for a barrier
WHERE_HOSTS, WHERE_SIZES = 4, (8, KIB)
SWITCH = {"limits": {"slots": 4096}}
FANIN, PEER, BARE = "fanin", "openmpi", "bare"


class Cell(NamedTuple):
    hosts: int
    transport: str
    mtu: int


def iterations(hosts):
    """Returns a number that is enough for a 99th percentile, and takes about as long for any number
    of hosts, which share the cores.
    """
    return max(300, min(2000, 8000 // hosts))


def percentile(times, share):
    ordered = sorted(times)
    return ordered[min(len(ordered) - 1, int(len(ordered) * share))]


def name_of(collective, size):
    return collective if size == 0 else f"{collective} {human_bytes(size)}"


def tasks_of(options, hosts):
    """Returns allreduces of all sizes, and barriers."""
    sizes = options.bytes or (QUICK_SIZES if options.quick else SIZES)
    return [*(Task(ALLREDUCE, size, iterations(hosts), True) for size in sizes),
            Task(BARRIER, 0, iterations(hosts))]


def cells_of(options):
    hosts = options.hosts or (QUICK_HOSTS if options.quick else HOSTS)
    return [Cell(count, transport, mtu) for count in hosts for transport,
            mtu in SETUPS if transport in (options.transport or [transport])]


@contextlib.contextmanager
def halted(lab):
    """Stops the switch meanwhile, as it may poll on a core that the others can use."""
    lab.switch.popen.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        lab.switch.popen.send_signal(signal.SIGCONT)


def one_cell(cell, with_peers, options, samples):
    """Does all tasks once. with_peers: also the bare exchange and Open MPI. samples: {(cell or
    hosts, side, task): [times of a run]}, added to.
    """
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(Lab(cell.hosts, cell.transport, cell.mtu, SWITCH))
        if with_peers:
            bare = stack.enter_context(bare_lab(cell.hosts, cell.mtu))
            middle = peer_links(lab, cell.mtu)
            mpi_files(lab)
        lab.start_switch()
        payload = payload_of(lab)
        for task in tasks_of(options, cell.hosts):
            found = {(cell, FANIN): fanin(lab, task)[0]}
            if with_peers:
                with halted(lab):
                    found[cell.hosts, PEER] = openmpi_tcp(lab, middle, task)
                    if task.collective == ALLREDUCE:
                        found[cell.hosts, BARE] = bare_exchange(bare, payload, task)
            say(f"{name_of(task.collective, task.bytes):>16}: "
                + ", ".join(f"{side} {figure(times) * 1e6:.1f} us" for (_, side),
                            times in found.items()))
            for (where, side), times in found.items():
                samples.setdefault((where, side, task), []).append(times)


def figures(runs, prefix=""):
    """Returns medians over the runs of their medians and 99th percentiles, in us."""
    if runs is None:
        return {f"{prefix}p50_us": None, f"{prefix}p99_us": None}
    return {f"{prefix}{name}_us": statistics.median(percentile(times, share) for times in runs)
            * 1e6 for name, share in (("p50", 0.5), ("p99", 0.99))}


def make_row(cell, task, ours, theirs, bare):
    """Makes a row of the results. ours, theirs, bare: [seconds of each collective] of each run;
    bare may be None.
    """
    row = {"part": "latency", "collective": task.collective, "hosts": cell.hosts,
           "transport": cell.transport, "mtu": cell.mtu, "bytes": task.bytes,
           **figures(ours), **figures(theirs, "openmpi_"), **figures(bare, "bare_")}
    row["ratio"] = row["openmpi_p50_us"] / row["p50_us"]
    has_goal = task.bytes in GOAL_SIZES
    row["goal"], row["reached"] = ("latency <= Open MPI's",
                                   row["ratio"] >= 1) if has_goal else (None, None)
    row["raw"] = {side: [percentile(times, 0.5) for times in runs or []] for side,
                  runs in ((FANIN, ours), (PEER, theirs), (BARE, bare))}
    return row


def latency_rows(cells, options):
    samples = {}
    for turn in range(options.rounds):
        seen = set()
        for cell in cells:
            say(f"round {turn + 1} of {options.rounds}: {cell.hosts} hosts, {cell.transport} "
                f"{cell.mtu}")
            one_cell(cell, cell.hosts not in seen, options, samples)
            seen.add(cell.hosts)
    return [make_row(cell, task, runs, samples[cell.hosts, PEER, task],
                     samples.get((cell.hosts, BARE, task)))
            for (cell, side, task), runs in samples.items() if side == FANIN]


def where_rows(options):
    shares = {}
    counts = latency_where.can_count()
    for turn in range(options.rounds):
        say(f"round {turn + 1} of {options.rounds}: where the time goes")
        with Lab(WHERE_HOSTS, "udp", 1500, SWITCH) as lab, bare_lab(WHERE_HOSTS, 1500) as bare:
            lab.start_switch()
            payload = payload_of(lab)
            for size in WHERE_SIZES:
                task = Task(ALLREDUCE, size, 2 * iterations(WHERE_HOSTS), True)
                found = shares.setdefault(size, ([], []))
                found[0].append(latency_where.share_and_calls([lab],
                                                              lambda marked: fanin(lab, marked),
                                                              task, WHERE_HOSTS, counts))
                with halted(lab):
                    found[1].append(latency_where.share_and_calls(
                        [bare], lambda marked: bare_exchange(bare, payload, marked), task,
                        WHERE_HOSTS, counts))
    return [latency_where.row_of(Cell(WHERE_HOSTS, "udp", 1500), size, *both) for size,
            both in shares.items()]


def pause_rows(options):
    samples = {}
    pauses = {ms: latency_pause.PAUSES.get(ms, 20) for ms in options.pause_ms
              or latency_pause.PAUSES}
    for workers in latency_pause.WORKERS:
        for transport, mtu in latency_pause.SETUPS:
            if transport in (options.transport or [transport]):
                latency_pause.one_cell(transport, mtu, workers, pauses, samples)
    return latency_pause.rows_of(samples)


def measure(options):
    stamp, rows = stamp_now(), []
    parts = options.part or PARTS
    if "latency" in parts:
        rows += latency_rows(cells_of(options), options)
    if "where" in parts:
        rows += where_rows(options)
    if "pause" in parts:
        rows += pause_rows(options)
    return {"benchmark": "latency", "ok": all(row.get("reached") is not False for row in rows),
            "error": None, "stamp": stamp, "rounds": options.rounds,
            "machine": {"description": stamp["machine"], "openmpi": version_of("openmpi-bin")},
            "results": [{**row, **of_row(stamp)} for row in rows]}


# ---- printing

def number(value):
    return f"{'-' if value is None else format(value, '.1f'):>9}"


def latency_lines(rows):
    lines, head = [], None
    for row in rows:
        if (row["hosts"], row["transport"], row["mtu"]) != head:
            head = row["hosts"], row["transport"], row["mtu"]
            lines += ["", f"{row['hosts']} hosts, {row['transport']}, MTU {row['mtu']}",
                      f"{'':<22} {'p50 us':>9} {'p99 us':>9} {'Open MPI':>9} {'p99 us':>9} "
                      f"{'bare':>9} {'ratio':>6}  goal"]
        name = name_of(row["collective"], row["bytes"])
        goal = "" if row[
            "goal"] is None else f"{row['goal']}: {'reached' if row['reached'] else 'MISSED'}"
        lines.append(f"{name:<22} {number(row['p50_us'])} {number(row['p99_us'])} "
                     f"{number(row['openmpi_p50_us'])} {number(row['openmpi_p99_us'])} "
                     f"{number(row['bare_p50_us'])} {row['ratio']:6.2f}  {goal}".rstrip())
    return lines


def table(result):
    lines = [words(result["stamp"]), f"medians of {result['rounds']} rounds"]
    of = {part: [row for row in result["results"] if row["part"] == part] for part in PARTS}
    lines += latency_lines(of["latency"])
    for row in of["where"]:
        lines += ["", *latency_where.lines_of(row)]
    if of["pause"]:
        lines += ["", *latency_pause.lines_of(of["pause"])]
    return "\n".join(lines)


def main():
    parser = bench_parser("latency", __doc__)
    add_rounds(parser, "4 hosts, 8 bytes, 1 KiB and barriers, one round")
    add_part(parser, PARTS)
    add_hosts(parser, "in the part latency 2, 4, 8 and 16")
    add_bytes(parser, "this size, beside the barrier")
    add_repeated(parser, "--transport", "this one",
                 choices=sorted({transport for transport, _ in SETUPS}))
    add_repeated(parser, "--pause-ms", "this silence before an allreduce, 1 to 10000 (default: 10, "
                                       "100 and 1000)", type=int, choices=range(1, 10001),
                 metavar="N")
    options = parse_rounds(parser)
    return outcome("latency", options, lambda: measure(options),
                   lambda result: print(table(result)))


if __name__ == "__main__":
    sys.exit(main())
