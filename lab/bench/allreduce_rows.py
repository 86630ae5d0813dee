# SPDX-License-Identifier: BSD-3-Clause
"""The rows of ./dev bench allreduce: their measurements, their goals, and how runs make a row."""

import statistics
from typing import NamedTuple

from lab.bridged import BridgedLab
from lab.namespaces import Lab

from lab.bench.cpu_times import BUSY_CORES
from lab.bench.sizes import KIB, MIB

HOSTS = 4  # whose allreduces have all set-ups, and goals
BARRIER, ALLREDUCE = "barrier", "allreduce"
COLLECTIVES = (ALLREDUCE, "reduce_scatter", "broadcast", "allgather", BARRIER)


class Setup(NamedTuple):
    """A set-up of one side, so that each gets the best for each size. Rows belong to a group."""

    group: str
    transport: str
    mtu: int  # of the links to the switch
    peer_mtus: tuple = ()  # of the peers' links, one after the other; none: the peers share memory
    linked: type = Lab
    in_place: bool = False


# With 32850 a payload has 32 KiB.
SETUPS = {"udp 1500": Setup("udp 1500", "udp", 1500, (1500, 65535), in_place=True),
          "udp 9000": Setup("udp 9000", "udp", 9000, (9000, 65535), in_place=True),
          "af_xdp 3474": Setup("frame by frame", "af_xdp", 3474, (9000,)),
          "af_packet 9000": Setup("frame by frame", "af_packet", 9000, (65535,)),
          "memif 9000": Setup("memif", "memif", 9000),
          "memif 32850": Setup("memif", "memif", 32850),
          "af_packet 61184": Setup("MTU 61184", "af_packet", 61184, (65535,)),
          "af_packet 61184 bridge": Setup("MTU 61184", "af_packet", 61184, (65535,), BridgedLab)}
# peer: (minimum of bytes, minimum ratio of goodput, size at which latency counts)
GOALS = {"openmpi-tcp": (64 * KIB, 2.0, KIB), "openmpi-shm": (256 * KIB, 1.5, None)}
# In place: bytes: (minimum ratio of goodput, the ratio that is wanted)
IN_PLACE = "openmpi-tcp in place"
IN_PLACE_GOALS = {64 * KIB: (0.9, 1.3), 256 * KIB: (1.1, 1.5), MIB: (0.9, 1.3),
                  4 * MIB: (1.15, 1.7), 16 * MIB: (1.15, 1.7)}
MIN_BARE_SHARE = 0.75

TCP_PEERS, IN_PLACE_PEERS, SHM_PEERS = ("openmpi-tcp", "gloo-tcp"), (IN_PLACE,), ("openmpi-shm",)


class Part(NamedTuple):
    """A group of rows: a collective of a number of hosts, with these set-ups and sizes."""

    collective: str
    hosts: int
    setups: tuple
    sizes: tuple


class Run(NamedTuple):
    """The results of one program at one size."""

    seconds: float  # of a collective
    # of all processes and ksoftirqd; None: not known, or of a barrier
    cpu_seconds_per_mib: float | None = None
    other_cores: float | None = None  # cores that other processes used meanwhile


def run_of(seconds, size, iters, load):
    """load: of all measured collectives but the last one, or None."""
    if load is None:
        return Run(seconds)
    return Run(seconds, None if size == 0 else load.cpu_seconds / (size * (iters - 1) / MIB),
               load.other_cores)


def middle_of(runs, field="seconds"):
    """Returns the median of a field of runs; None if a run lacks it."""
    values = [getattr(run, field) for run in runs]
    return None if None in values else statistics.median(values)


def best(runs):
    """Returns the set-up with the smallest median: (its name, seconds). runs: {set-up: [Run]}."""
    medians = {name: middle_of(found) for name, found in runs.items()}
    name = min(medians, key=medians.get)
    return name, medians[name]


def goal_of(row):
    """Returns the row's goal as text and whether the row reaches it: (text, bool), or None."""
    if row["peer"] == IN_PLACE and (row["collective"] == BARRIER
                                    or (row["collective"], row["bytes"]) == (ALLREDUCE, KIB)):
        return "latency <= peer's", row["latency_us"] <= row["peer_latency_us"]
    if (row["collective"], row["hosts"]) != (ALLREDUCE, HOSTS):
        return None
    if row["peer"] == IN_PLACE and row["bytes"] in IN_PLACE_GOALS:
        least, wanted = IN_PLACE_GOALS[row["bytes"]]
        return f"ratio >= {least:g}, wanted {wanted:g}", row["ratio"] >= least
    least, ratio, latency_bytes = GOALS.get(row["peer"], (None, None, None))
    if least is not None and row["bytes"] >= least:
        return f"ratio >= {ratio:g}", row["ratio"] >= ratio
    if row["bytes"] == latency_bytes:
        return "latency <= peer's", row["latency_us"] <= row["peer_latency_us"]
    return None


def busy_runs(runs):
    """Returns the number of these runs with too much other load."""
    return sum((run.other_cores or 0) > BUSY_CORES for run in runs)


def raw(runs, field):
    return {name: [getattr(run, field) for run in found] for name, found in runs.items()}


def make_row(part, size, peer, ours, theirs, bare=None):
    """Makes a row of the results. ours, theirs: {set-up: [Run]}. bare: runs of the bare exchange,
    or None.
    """
    setup, seconds = best(ours)
    peer_setup, peer_seconds = best(theirs)
    row = {"collective": part.collective, "bytes": size, "hosts": part.hosts,
           "mtu": SETUPS[setup].mtu, "beside": f"{SETUPS[setup].group}, {peer}",
           "transport": setup.split()[0], "setup": setup, "peer": peer, "peer_setup": peer_setup,
           "gbps": size * 8 / seconds / 1e9, "peer_gbps": size * 8 / peer_seconds / 1e9,
           "latency_us": seconds * 1e6, "peer_latency_us": peer_seconds * 1e6,
           "ratio": peer_seconds / seconds,
           "cpu_seconds_per_mib": middle_of(ours[setup], "cpu_seconds_per_mib"),
           "peer_cpu_seconds_per_mib": middle_of(theirs[peer_setup], "cpu_seconds_per_mib"),
           "busy_runs": busy_runs(ours[setup] + theirs[peer_setup] + (bare or [])),
           "raw": {"seconds": raw(ours, "seconds"), "peer_seconds": raw(theirs, "seconds"),
                   "cpu_seconds_per_mib": raw(ours, "cpu_seconds_per_mib"),
                   "peer_cpu_seconds_per_mib": raw(theirs, "cpu_seconds_per_mib"),
                   "other_cores": raw(ours, "other_cores"),
                   "peer_other_cores": raw(theirs, "other_cores")}}
    goal = goal_of(row)
    row["goal"], row["reached"] = goal if goal is not None else (None, None)
    if peer == IN_PLACE:
        has_wish = (part.collective, part.hosts) == (ALLREDUCE, HOSTS) and size in IN_PLACE_GOALS
        row["wanted"] = row["ratio"] >= IN_PLACE_GOALS[size][1] if has_wish else None
        row["same_mtu"] = beside_same_mtu(size, setup, seconds, theirs)
    if bare is not None:
        row["bare"] = beside_bare(size, seconds, bare)
    return row


def beside_same_mtu(size, setup, seconds, theirs):
    """Returns the peer on links with the set-up's MTU."""
    peer_seconds = middle_of(theirs[f"MTU {SETUPS[setup].mtu}"])
    return {"gbps": size * 8 / peer_seconds / 1e9, "ratio": peer_seconds / seconds}


def beside_bare(size, seconds, bare):
    """Returns the bare exchange, and Fanin's share of its goodput."""
    bare_seconds = middle_of(bare)
    share = bare_seconds / seconds
    return {"gbps": size * 8 / bare_seconds / 1e9, "latency_us": bare_seconds * 1e6, "share": share,
            "reached": share >= MIN_BARE_SHARE,
            "cpu_seconds_per_mib": middle_of(bare, "cpu_seconds_per_mib"),
            "raw": {field: [getattr(run, field) for run in bare] for field in Run._fields}}


def peers_of(setup):
    """Returns the names of the peers that a set-up is compared with."""
    if SETUPS[setup].in_place:
        return IN_PLACE_PEERS
    return TCP_PEERS if SETUPS[setup].peer_mtus else SHM_PEERS


def rows_of(part, samples):
    """Returns a row for every size and peer, for each group of set-ups with those that its peers
    were measured with. samples: {(size, side): {set-up: [Run]}}.
    """
    rows = []
    for group in dict.fromkeys(SETUPS[setup].group for setup in part.setups):
        members = [setup for setup in part.setups if SETUPS[setup].group == group]
        peer_mtus = {f"MTU {mtu}" for setup in members
                     for mtu in SETUPS[setup].peer_mtus} or {"shared memory"}
        for peer in peers_of(members[0]):
            for size in part.sizes:
                ours = {setup: samples[(size, "fanin")][setup] for setup in members}
                theirs = {with_: found for with_,
                          found in samples[(size, peer)].items() if with_ in peer_mtus}
                rows.append(make_row(part, size, peer, ours, theirs,
                                     samples.get((size, "bare exchange"), {}).get(members[0])))
    return rows
