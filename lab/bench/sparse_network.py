# SPDX-License-Identifier: BSD-3-Clause
"""
Sparse allreduce over two leaves and two spines, compared with dense allreduces and with sparse
allreduces among hosts.

All ports are links of RATE_MBIT; those between switches are no faster. Each way sums the same
vectors of f32: as many values at random indices on each rank, zeros elsewhere. An allreduce's time
is that of its slowest rank, a row's the median of all; `bytes` are those of an allreduce on all
links in both directions, from the interfaces' counters, including headers.
"""

import statistics
from pathlib import Path

from lab.fabric import Fabric, leaf_spine
from lab.namespaces import HOST_INTERFACE, LabError, inside

from lab.bench.io_forwarding import say

HOSTS = 8
RATE_MBIT = 100
MTU = 9000
MIB = 1 << 20
SIZES = (16, 64)
DENSITIES = (0.002, 0.01, 0.1, 0.2)
RUN_SECONDS = 600
# TCP over a link that is filled by others may stall for seconds.
TIMEOUT_MS = 60000
# The results of these ways don't depend on the density.
DENSE_WAYS = {"dense": {"handler": "single"}, "ring": {"handler": "ring"}}
SPARSE_WAYS = {"sparse": {"handler": "sparse", "sparse": True},
               "maybe-sparse": {"handler": "sparse", "maybe_sparse": True},
               "sparcml": {"handler": "ring", "sparse": True}}
# (density, way, compared quantity, minimum ratio of the other way's to this one's): goals for both
# sizes.
GOALS = ((0.002, "maybe-sparse", "bytes", "dense", 40),
         (0.002, "maybe-sparse", "bytes", "ring", 80),
         (0.002, "maybe-sparse", "bytes", "sparcml", 1 / 0.65),
         (0.002, "maybe-sparse", "seconds", "sparcml", 1.8),
         (0.002, "maybe-sparse", "seconds", "dense", 10),
         (0.2, "maybe-sparse", "seconds", "dense", 1 / 1.1))


class RatedFabric(Fabric):
    """A fabric in which every port is a link of RATE_MBIT. Buckets cover the time for which a
    worker may not have a core, 10 ms.
    """

    def switch_config(self, switch):
        config = super().switch_config(switch)
        for port in config["ports"]:
            port.update(rate_mbit=RATE_MBIT, bucket_bytes=RATE_MBIT * 1250, queue_bytes=1_000_000)
        return config


def counters_of(fabric):
    """Returns the bytes on all links in both directions."""
    ends = [(fabric.host_namespace(host), HOST_INTERFACE) for host in range(HOSTS)]
    ends += [(fabric.switch_ns(a), f"to-{b}") for a, b in fabric.topology.links]
    total = 0
    for namespace, interface in ends:
        with inside(namespace):
            # A namespace shows its own interfaces only through netlink, or through a sysfs of its
            # own.
            lines = Path("/proc/net/dev").read_text().splitlines()
        fields = next(line.split(":")[1].split() for line in lines
                      if line.strip().startswith(f"{interface}:"))
        total += int(fields[0]) + int(fields[8])
    return total


def measure_sessions(fabric, way, sessions, iterations, **options):
    """Measures several jobs, one after the other, as measure_way does: each job chooses anew the
    spines that its TCP connections take.
    """
    found = [measure_way(fabric, way, iterations, 1, **options) for _ in range(sessions)]
    return [second for seconds, _,
            _ in found for second in seconds], statistics.mean(used for _, used,
                                                               _ in found), found[-1][2]


def measure_way(fabric, way, iterations, warmup, **options):
    """Measures one way. Returns (seconds of each allreduce, bytes of one, rank 0's report)."""
    before = counters_of(fabric)
    ranks = [fabric.spawn_named(host, "bench", host, HOSTS, transport="af_packet", iters=iterations,
                                warmup=warmup, times=True,
                                check_ends=True, no_progress=True, timeout=TIMEOUT_MS, **options)
             for host in range(HOSTS)]
    for rank in ranks:
        rank.wait(RUN_SECONDS)
    reports = [fabric.perf_report(rank) for rank in ranks]
    used = counters_of(fabric) - before
    for report in reports:
        if not report.get("ok"):
            raise LabError(f"{way}, {options}: {report.get('error') or report}")
    times = [max(rank) for rank in zip(*[report["times"] for report in reports], strict=True)]
    return times, used / (iterations + warmup), reports[0]


def make_row(vector, way, seconds, used, report):
    """Makes a row. vector: the fields common to all ways, as one of vectors_of or without a
    density.
    """
    sparse = report["sparse"] or {}
    return {"part": "network", **vector, "way": way, "seconds": statistics.median(seconds),
            "seconds_all": seconds, "bytes": used,
            "mode": report["mode"], "handler": report["handler"],
            "density_in": sparse.get("density_in"),
            "density_out": sparse.get("density_out"),
            "maybe_sparse_taken": sparse.get("maybe_sparse_taken"),
            "retransmits": report["retransmits"]}


def name_of(row):
    mib = f"{row['vector_bytes'] / MIB:.3g} MiB"
    if row["file"] is not None:
        return f"{mib}, {Path(row['file']).name}"
    return mib if row["density"] is None else f"{mib} at {100 * row['density']:g} %"


def add_ratios(rows):
    """Adds to each row of a sparse way the ratios of the other ways' time and bytes to its own."""
    def find(row, way, *keys):
        return next((other for other in rows if other["way"] == way
                     and all(other[key] == row[key] for key in keys)), None)
    for row in rows:
        if row["way"] in DENSE_WAYS:
            continue
        others = {way: find(row, way, "vector_bytes") for way in DENSE_WAYS}
        others["sparcml"] = find(row, "sparcml", "vector_bytes", "density", "file")
        row["ratios"] = {what: {way: other[what] / row[what] for way,
                                other in others.items() if other is not None}
                         for what in ("seconds", "bytes")}


def elements_of(path):
    """Returns the vector's length, which is in the first line of a file of indices that is not a
    comment.
    """
    with open(path, encoding="ascii") as file:
        words = next((line.split() for line in file if line.strip() and not line.startswith("#")),
                     [])
    if len(words) != 2 or words[0] != "n" or not words[1].isdigit():
        raise SystemExit(f"sparse: {path}: found {' '.join(words)[:40]!r} at the beginning, "
                         "expected n and the vector's length")
    return int(words[1])


def vectors_of(quick, files):
    """Returns the vectors that are summed: {bytes: [{"density": ..., "file": ...}]}."""
    densities = (DENSITIES[0], DENSITIES[-1]) if quick else DENSITIES
    vectors = {size * MIB: [{"density": density, "file": None} for density in densities]
               for size in (SIZES[:1] if quick else SIZES)}
    for path in files:
        vectors.setdefault(4 * elements_of(path), []).append({"density": None, "file": str(path)})
    return vectors


def cells_of(vector_bytes, vectors, quick):
    """Returns (vector, way, fanin-perf's options, (sessions, iterations)) of all measurements with
    vectors of this length.
    """
    plain = {"vector_bytes": vector_bytes, "density": None, "file": None}
    for way, options in DENSE_WAYS.items():
        yield plain, way, {"bytes": vector_bytes, **options}, (1, 2)
    for vector in vectors:
        times = (1, 2) if (vector["density"] or 0) >= 0.1 else (3, 3) if quick else (6, 4)
        places = {"density": vector[
            "density"]} if vector["file"] is None else {"pattern": vector["file"]}
        for way, options in SPARSE_WAYS.items():
            yield {**plain, **vector}, way, {"bytes": vector_bytes, **options, **places}, times


class Network:
    """Eight hosts on leaves and spines with slow links."""

    name = "network"
    title = f"8 hosts, 2 leaves, 2 spines, links of {RATE_MBIT} Mbit/s"

    files = ()  # of indices, as read by fanin-perf(1): in addition to the uniform vectors

    @classmethod
    def measure(cls, quick):
        rows = []
        vectors = vectors_of(quick, cls.files)
        config = {"limits": {"max_jobs": 2, "slots": 4160}}
        with RatedFabric(leaf_spine(2, 2, HOSTS), mtu=MTU, config=config) as fabric:
            fabric.start()
            fabric.start_manager()
            for vector_bytes in vectors:
                for vector, way, options, (sessions,
                                           iterations) in cells_of(vector_bytes,
                                                                   vectors[vector_bytes], quick):
                    found = measure_sessions(fabric, way, sessions, iterations, **options)
                    rows.append(make_row(vector, way, *found))
                    say(f"{name_of(vector)}, {way}: {rows[-1]['seconds'] * 1e3:.1f} ms, "
                        f"{rows[-1]['bytes'] / 1e6:.2f} MB on all links")
        add_ratios(rows)
        return rows

    @staticmethod
    def missed(rows):
        """Returns a sentence for each goal that a row misses."""
        sentences = []
        for row in rows:
            for density, way, what, other, least in GOALS:
                if (row["density"], row["way"]) != (density, way):
                    continue
                found = row["ratios"][what].get(other)
                if found is None or found < least:
                    sentences.append(f"{name_of(row)}: {other} takes"
                                     f" {'-' if found is None else f'{found:.2f}'} times the "
                                     f"{what} of {way}, expected {least:.2f} at least")
        return sentences

    @staticmethod
    def show(rows):
        print(f"{Network.title}, MTU {MTU}, f32 sums; `bytes` on all links; ratios: the other "
              "way's by this one's")
        print(f"{'vector':22} {'result':>8} {'way':13} {'ms':>9} {'MB':>9}"
              f" {'s dense':>8} {'ring':>7} {'sparcml':>8} {'B dense':>8} {'ring':>7} "
              f"{'sparcml':>8}")
        for row in rows:
            def cell(what, other, row=row):
                found = row.get("ratios", {}).get(what, {}).get(other)
                return "" if found is None else f"{found:.2f}"
            # Vectors that were sent as dense blocks have no densities.
            out = f"{100 * row['density_out']:.3g} %" if row["density_out"] else ""
            print(f"{name_of(row):22} {out:>8} {row['way']:13} {row['seconds'] * 1e3:9.1f} "
                  f"{row['bytes'] / 1e6:9.2f} {cell('seconds', 'dense'):>8} "
                  f"{cell('seconds', 'ring'):>7} {cell('seconds', 'sparcml'):>8} "
                  f"{cell('bytes', 'dense'):>8} {cell('bytes', 'ring'):>7} "
                  f"{cell('bytes', 'sparcml'):>8}")
