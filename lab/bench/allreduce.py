#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""Fanin's collectives beside Open MPI's, and allreduces beside Gloo's: sums of f32, in one run,
taken in turns.

Hosts are network namespaces. Each has one link to fanin-switch, or to a Linux bridge with the
switch behind it, and one to a Linux bridge for the peers' TCP, whose offloads stay on. All run the
same loop: warm-up, a barrier before each collective, every collective timed separately, the first
and the last one checked. A collective's time is that of its slowest rank; a run's figure is the
median of these, and a row's the median of its runs. Each side gets the best of its set-ups for each
size. Open MPI over shared memory is compared with Fanin's memif.

First come hosts on UDP sockets, as user nobody and in place, at ordinary MTUs, each MTU separately.
They are compared with the bare exchange, which is the same without a protocol, and with Open MPI in
place, at the same MTU and at its best. Allreduces of four hosts have all set-ups; those of 8 and 16
hosts, and the other collectives, only this first one. docs/performance.md explains more.
"""

import contextlib
import os
import platform
import signal
import sys
from pathlib import Path

from lab.namespaces import LabError

from lab.bench.allreduce_report import table
from lab.bench.allreduce_rows import (ALLREDUCE, BARRIER, COLLECTIVES, HOSTS, SETUPS, Part,
                                      peers_of, rows_of, run_of)
from lab.bench.allreduce_sides import PEERS, Task, bare_exchange, bare_lab, fanin, payload_of
from lab.bench.cpu_times import Marks
from lab.bench.io_forwarding import say
from lab.bench.options import (add_bytes, add_hosts, add_repeated, add_rounds, bench_parser,
                               parse_rounds)
from lab.bench.outcome import outcome
from lab.bench.peer_network import mpi_files, peer_links, set_peer_mtu, version_of
from lab.bench.runs import figure
from lab.bench.sizes import KIB, MIB, human_bytes
from lab.bench.stamp import of_row, stamp_now

SIZES = (KIB, 4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, MIB, 4 * MIB, 16 * MIB, 64 * MIB)
FEW_SIZES = (KIB, 64 * KIB, MIB, 16 * MIB)
MORE_HOSTS = (8, 16)
# Each slot holds a whole packet: these are enough for the jobs of one round.
SWITCH = {"limits": {"slots": 4096}}


def iterations(size, hosts, quick):
    """Returns a number that is enough for a median, and takes about as long for every size, also on
    more hosts, which share the cores.
    """
    most = (64 if quick else 192) * MIB // max(size, KIB)
    return max(5, min(4000, most) * HOSTS ** 2 // max(hosts, HOSTS) ** 2)


def part_of(collective, hosts, options, sizes):
    """Allreduces of four hosts, and a transport that an option names, have all set-ups that have
    the collective.
    """
    everything = collective == ALLREDUCE and (hosts == HOSTS or options.transport is not None)
    setups = tuple(name for name, setup in SETUPS.items()
                   if (setup.in_place or everything)
                   and setup.transport in (options.transport or [setup.transport]))
    return Part(collective, hosts, setups, (0,) if collective == BARRIER else tuple(sizes))


def parts_of(options):
    """Returns the parts to be measured: all combinations of the requested hosts and collectives;
    without any, a selection; with --quick, allreduces of four hosts.
    """
    if options.hosts or options.collective or options.quick:
        sizes = options.bytes or (FEW_SIZES if options.quick else SIZES)
        wanted = [(collective, hosts, sizes) for hosts in options.hosts or [HOSTS]
                  for collective in options.collective or [ALLREDUCE]]
    else:
        few = options.bytes or FEW_SIZES
        wanted = [(ALLREDUCE, HOSTS, options.bytes or SIZES),
                  *((collective, HOSTS, few) for collective in COLLECTIVES[1:]),
                  *((ALLREDUCE, hosts, few) for hosts in MORE_HOSTS)]
    parts = [part_of(collective, hosts, options, sizes) for collective, hosts, sizes in wanted]
    kept = [part for part in parts if part.setups]
    if not kept:
        raise LabError(f"{', '.join(options.collective)}: found --transport "
                       f"{', '.join(options.transport)}, expected udp")
    return kept


class Turn:
    """One task of one part with one set-up, by all sides in turns."""

    def __init__(self, setup, lab, bare, middle, marks):
        self.setup, self.lab, self.bare, self.middle, self.marks = setup, lab, bare, middle, marks
        self.payload = payload_of(lab)

    def _add(self, samples, task, side, with_, times):
        found = run_of(figure(times), task.bytes, task.iters,
                       self.marks.load() if self.marks else None)
        samples.setdefault((task.bytes, side), {}).setdefault(with_, []).append(found)
        load = "" if self.marks is None else f" ({found.other_cores:.2f} other cores)"
        return f"{side} {with_} {found.seconds * 1e6:.1f} us{load}"

    def peers(self, task):
        """Yields (peer, its set-up, seconds) of each peer on each of its links, one after the
        other.
        """
        for mtu in SETUPS[self.setup].peer_mtus or (None,):
            if mtu is not None:
                set_peer_mtu(self.lab, self.middle, mtu)
            for name in peers_of(self.setup):
                yield name, f"MTU {mtu}" if mtu else "shared memory", PEERS[name](self.lab,
                                                                                  self.middle, task)

    def take(self, task, samples):
        said = [self._add(samples, task, "fanin", self.setup, fanin(self.lab, task)[0])]
        # The switch polls all the time; the others get its core.
        self.lab.switch.popen.send_signal(signal.SIGSTOP)
        try:
            if self.bare is not None and task.collective == ALLREDUCE:
                said.append(self._add(samples, task, "bare exchange", self.setup,
                                      bare_exchange(self.bare, self.payload, task)))
            for name, with_, times in self.peers(task):
                said.append(self._add(samples, task, name, with_, times))
        finally:
            self.lab.switch.popen.send_signal(signal.SIGCONT)
        say(f"{task.collective:>14} {human_bytes(task.bytes):>9}: " + ", ".join(said))


def one_setup(setup, hosts, parts, options, samples):
    """Measures all sizes of these parts once with one set-up. samples: {part: {(size, side):
    {set-up: [Run]}}}, added to.
    """
    _, transport, mtu, peer_mtus, linked, in_place = SETUPS[setup]
    with contextlib.ExitStack() as stack:
        lab = stack.enter_context(linked(hosts, transport, mtu, SWITCH))
        bare = stack.enter_context(bare_lab(hosts, mtu)) if in_place else None
        middle = peer_links(lab, peer_mtus[0]) if peer_mtus else None
        mpi_files(lab)
        # Processes that share memory are in no namespace of their own.
        marks = stack.enter_context(Marks(*filter(None, (lab, bare)))) if peer_mtus else None
        lab.start_switch()
        turn = Turn(setup, lab, bare, middle, marks)
        for part in parts:
            for size in part.sizes:
                turn.take(Task(part.collective, size, iterations(size, hosts, options.quick),
                               in_place, marks.path if marks else None), samples[part])


def one_round(parts, options, samples, name):
    for hosts in dict.fromkeys(part.hosts for part in parts):
        for setup in SETUPS:
            members = [part for part in parts if part.hosts == hosts and setup in part.setups]
            if members:
                say(f"{name}: {hosts} hosts, {setup}")
                one_setup(setup, hosts, members, options, samples)


def measure(options):
    parts = parts_of(options)
    samples = {part: {} for part in parts}
    stamp, load = stamp_now(), os.getloadavg()
    for turn in range(options.rounds):
        one_round(parts, options, samples, f"round {turn + 1} of {options.rounds}")
    rows = [{**row, **of_row(stamp)} for part in parts for row in rows_of(part, samples[part])]
    return {"benchmark": "allreduce",
            "ok": all(row["reached"] is not False
                      and row.get("bare", {}).get("reached") is not False for row in rows),
            "error": None, "stamp": stamp,
            "machine": {"description": stamp["machine"], "load_before": load,
                        "load_after": os.getloadavg(), "kernel": platform.release(),
                        "rmem_max": int(Path("/proc/sys/net/core/rmem_max").read_text()),
                        "openmpi": version_of("openmpi-bin"), "gloo": version_of("libgloo-dev")},
            "rounds": options.rounds, "results": rows}


def main():
    parser = bench_parser("allreduce", __doc__)
    add_rounds(parser, "four sizes, one round, fewer collectives in each, and allreduces of four "
                       "hosts unless said otherwise")
    add_bytes(parser, "this size")
    add_hosts(parser, "4, and without --quick some of 8 and 16")
    add_repeated(parser, "--collective", "this one (default: allreduce, and without --quick some "
                                         "of the others on 4 hosts)", choices=COLLECTIVES)
    add_repeated(parser, "--transport", "this one",
                 choices=sorted({setup.transport for setup in SETUPS.values()}))
    options = parse_rounds(parser)
    return outcome("allreduce", options, lambda: measure(options),
                   lambda result: print(table(result)))


if __name__ == "__main__":
    sys.exit(main())
