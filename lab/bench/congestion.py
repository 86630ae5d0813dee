#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Canary beside static trees and a ring, over leaves and spines with background traffic, in virtual
time.

congestion-bench runs a network of real switches, queues and engines. Each row is a run; for the
same seed all variants have the same placement of ranks, and the same background traffic. Tables
have medians over placements, and quartiles.
"""

import json
import statistics
import subprocess
import sys
from pathlib import Path

from lab.bench import virtual_time
from lab.bench.options import add_part, add_processes, add_repeated, bench_parser
from lab.bench.virtual_time import RunError, quartiles

KIB, MIB = 1 << 10, 1 << 20
TOPOLOGIES = {"small": {"leaves": 4, "hosts_per_leaf": 4, "spines": 4},
              "large": {"leaves": 8, "hosts_per_leaf": 8, "spines": 8}}
# All variants have as many blocks in flight.
WINDOW, TREES = 512, 4
VARIANTS = {"canary": {"variant": "canary", "window": WINDOW}, "ring": {"variant": "ring"},
            "static-1": {"variant": "static", "trees": 1, "window": WINDOW},
            "static-4": {"variant": "static", "trees": TREES, "window": WINDOW // TREES}}
PLACEMENTS = 20
FEWER_PLACEMENTS = 5
BYTES = 4 * MIB
# Background traffic of all other hosts in the large network takes most of the time of all parts.
LARGE_SHARES_BYTES = MIB
SHARE = 0.5
SHARES = (0.05, 0.25, 0.5, 0.75)
SIZES = tuple(KIB << shift for shift in range(0, 15, 2))
# Maximum time of an allreduce: congestion-bench's own, and less where static trees are very slow.
LIMIT_MS, PERMUTATION_LIMIT_MS = 60000, 2000
BUSY_SHARES = (0, 0.0001, 0.001, 0.01, 0.1)
# 1 us at 100 Gbit/s is as long as 100 us at 1 Gbit/s.
BUSY_NS = 100000
# 11, 19 and 33 packet times.
FIXED_TIMEOUTS_US = (100, 173, 300)
TABLES = (16, 64, 256, 1024, 4096)
LINK_MBIT = 1000
# The inputs of section 3.2.2's model that depend on the network: the time of a packet on a link,
# and the maximum number of links between two hosts.
FRAME_BYTES = 1120
LINK_DELAY_NS = 1000
DIAMETER = 4
# A leader's host takes no virtual time to add its data.
LEADER_NS = 0
HISTOGRAM_BINS = 10
# Goals for medians.
MIN_OF_STATIC = 0.95
MIN_GAINS = {"static-4": 1.5, "static-1": 1.8}
MIN_PERMUTATION_GAINS = {"static-4": 0.9, "static-1": 1.4}
MAX_LATENCY = 2.5
MAX_DIFFERENCE = 1.3
ORDER = ("canary", "static-4", "static-1")


def n_ranks(topology, share):
    hosts = TOPOLOGIES[topology]["leaves"] * TOPOLOGIES[topology]["hosts_per_leaf"]
    return max(2, round(share * hosts))


def run_of(topology, variant, seed, share=SHARE, **more):
    """Makes a run: the fields that identify its row, and its options."""
    options = {**TOPOLOGIES[topology], **VARIANTS[variant], "seed": seed,
               "ranks": n_ranks(topology, share), "bytes": BYTES, **more}
    return {"topology": topology, "variant": variant, "seed": seed, "share": share}, options


def links_of(found):
    """Returns {tier: the use of each of its links}."""
    tiers = {}
    for link in found["links"]:
        tiers.setdefault(link["tier"], []).append(link["used"])
    return tiers


def make_row(part, key, options):
    found = virtual_time.run_one("congestion-bench", options)
    if found["error"] or not found["exact"]:
        command = " ".join(virtual_time.command_of("congestion-bench", options))
        raise RunError(f"{command}: {found['error'] or 'a result is not the sum'}")
    # A run that has not ended counts as if it had ended at its limit.
    seconds = statistics.median(found["seconds"]) if found["done"] else options.get("limit_ms",
                                                                                    LIMIT_MS) / 1000
    return {"part": part, **key, "ranks": found["ranks"], "bytes": found["bytes"],
            "done": found["done"], "seconds": seconds,
            "goodput_mbit": found["bytes"] * 8 / seconds / 1e6 if seconds else 0,
            "hosts": found["hosts"], "used": links_of(found),
            "dropped": sum(link["dropped"] for link in found["links"]),
            "marked": sum(link["marked"] for link in found["links"]),
            "background_sent": found["background_sent"],
            "background_delivered": found["background_delivered"],
            "switches": found.get("switches", {}), "timeout_ns": found.get("timeout_ns"),
            "descriptors_used": found.get("descriptors", [])}


def run_all(part, runs, processes):
    return virtual_time.run_all(f"congestion: {part}", runs, processes,
                                lambda run: make_row(part, *run))


def seeds(arguments, most=None):
    return range(1, (min(arguments.placements, most) if most else arguments.placements) + 1)


# ------------------------------------------------------------------ parts

def free(arguments):
    return run_all("free", [run_of(topology, variant, seed) for topology in arguments.topology
                            for variant in arguments.variant
                            for seed in seeds(arguments)], arguments.processes)


def spine(arguments):
    return run_all("spine", [run_of(topology, variant, seed, background="spine")
                             for topology in arguments.topology
                             for variant in arguments.variant for seed in seeds(arguments)],
                   arguments.processes)


def by_share(background, arguments, **more):
    """Background traffic of all hosts without a rank, by the share of hosts with one."""
    return run_all(background, [run_of(topology, variant, seed, share, background=background,
                                       bytes=LARGE_SHARES_BYTES if topology == "large" else BYTES,
                                       **more)
                                for topology in arguments.topology for share in SHARES
                                for variant in arguments.variant
                                for seed in seeds(arguments)], arguments.processes)


def uniform(arguments):
    return by_share("uniform", arguments)


def permutation(arguments):
    """Streams that share a link with static trees permanently, and leave them hardly anything."""
    return by_share("permutation", arguments, limit_ms=PERMUTATION_LIMIT_MS)


def allreduces_of(size):
    """Returns the number of allreduces that are measured in sequence. Switches learn from the first
    block of each leader.
    """
    return 40 if size <= 16 * KIB else 8 if size < MIB else 1


def sizes(arguments):
    runs = []
    for topology in arguments.topology:
        for size in SIZES:
            for variant in arguments.variant:
                runs += [run_of(topology, variant, seed, bytes=size, allreduces=allreduces_of(size))
                         for seed in seeds(arguments, FEWER_PLACEMENTS)]
    return run_all("sizes", runs, arguments.processes)


def timeouts(arguments):
    """Figure 11: hosts that are busy before some packets, with fixed timeouts, learned ones and
    four trees.
    """
    runs, labels = [], {}
    if "canary" in arguments.variant:
        labels = {"learned": 0, **{f"{us} us": us for us in FIXED_TIMEOUTS_US}}
    for background in ("none", "uniform"):
        for busy in BUSY_SHARES:
            more = {"busy_share": busy, "busy_ns": BUSY_NS, "background": background}
            for seed in seeds(arguments, FEWER_PLACEMENTS):
                for label, timeout_us in labels.items():
                    key, options = run_of("small", "canary", seed, timeout_us=timeout_us, **more)
                    runs.append(({**key, "timeout": label, "busy": busy, "background": background},
                                 options))
                if "static-4" in arguments.variant:
                    key, options = run_of("small", "static-4", seed, **more)
                    runs.append(({**key, "timeout": "-", "busy": busy, "background": background},
                                 options))
    return run_all("timeouts", runs, arguments.processes)


def table(arguments):
    runs = []
    for slots in TABLES:
        for background in ("none", "spine"):
            for seed in seeds(arguments, FEWER_PLACEMENTS):
                key, options = run_of("small", "canary", seed, descriptors=slots,
                                      background=background)
                runs.append(({**key, "descriptors": slots, "background": background}, options))
    return run_all("table", runs, arguments.processes) if "canary" in arguments.variant else []


PARTS = {"free": free, "spine": spine, "uniform": uniform, "permutation": permutation,
         "sizes": sizes, "timeouts": timeouts, "table": table}


# ------------------------------------------------------------------ tables

def groups_of(rows, *keys):
    """Returns {values of keys: the rows that have them}, in the order of the first ones."""
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    return groups


def median_of(rows, name="goodput_mbit"):
    return statistics.median(row[name] or 0 for row in rows)


def mean_of(rows, place, name):
    return statistics.mean(row[place].get(name, 0) for row in rows)


def used_links(row):
    return [used for tier in row["used"].values() for used in tier]


def used_line(rows):
    """Returns a line: shares of links by tenths of their use, and the mean use."""
    used = [one for row in rows for one in used_links(row)]
    bins = [0] * HISTOGRAM_BINS
    for one in used:
        bins[min(int(one * HISTOGRAM_BINS), HISTOGRAM_BINS - 1)] += 1
    idle = sum(one < 0.005 for one in used)
    return f"{100 * idle / len(used):5.1f} " + " ".join(f"{100 * n / len(used):5.1f}"
                                                        for n in bins) + f" {100 * statistics.mean(used):5.1f}"


def show_goodput(title, rows, *keys):
    print(title)
    print("  " + " ".join(f"{key:>11}" for key in keys) + f" {'Mbit/s':>8} {'quartiles':>15} "
                                                          f"{'runs':>7} {'dropped':>8} "
                                                          f"{'marked':>7} {'retrans':>8} "
                                                          f"{'queries':>8}")
    for values, group in groups_of(rows, *keys).items():
        low, high = quartiles([row["goodput_mbit"] for row in group])
        print("  " + " ".join(f"{value:>11}" for value in values) + f" {median_of(group):8.1f} "
                                                                    f"{low:7.1f} {high:7.1f} "
                                                                    f"{sum(row['done'] for row in group):3}/{len(group):<3} {median_of(group, 'dropped'):8.0f} {median_of(group, 'marked'):7.0f} {mean_of(group, 'hosts', 'retransmits'):8.0f} {mean_of(group, 'hosts', 'queries'):8.0f}")


def show_used(title, rows, *keys):
    print(title)
    print("  " + " ".join(f"{key:>11}" for key in keys) + f" {'idle':>5} "
          + " ".join(f"{'-' + str(10 * (n + 1)):>5}" for n in range(HISTOGRAM_BINS))
          + f" {'mean':>5}")
    for values, group in groups_of(rows, *keys).items():
        print("  " + " ".join(f"{value:>11}" for value in values) + f" {used_line(group)}")


def show_sizes(rows):
    print("sizes: seconds of an allreduce without background, medians and quartiles over placements")
    for (topology, size, variant), group in groups_of(rows, "topology", "bytes", "variant").items():
        low, high = quartiles([row["seconds"] for row in group])
        print(f"  {topology:6} {size:9} {variant:9} {median_of(group, 'seconds'):11.6f} "
              f"{low:11.6f} {high:11.6f}")


def show_table(rows):
    print("table: canary with fewer descriptors in each switch; counters are sums of all switches")
    print(f"  {'descriptors':>11} {'background':>11} {'Mbit/s':>8} {'quartiles':>15} "
          f"{'collisions':>11} {'restored':>9} {'stragglers':>11} {'queries':>8}")
    for (slots, background), group in groups_of(rows, "descriptors", "background").items():
        low, high = quartiles([row["goodput_mbit"] for row in group])
        print(f"  {slots:11} {background:>11} {median_of(group):8.1f} {low:7.1f} {high:7.1f} "
              f"{mean_of(group, 'switches', 'collisions'):11.0f} "
              f"{mean_of(group, 'switches', 'restored'):9.0f} "
              f"{mean_of(group, 'switches', 'stragglers'):11.0f} "
              f"{mean_of(group, 'hosts', 'queries'):8.0f}")


def modelled_ns(timeout_ns):
    """Returns the time for which a descriptor is held, by section 3.2.2: 2d(l + t) + r."""
    hop_ns = LINK_DELAY_NS + FRAME_BYTES * 8000 / LINK_MBIT
    return 2 * DIAMETER * (hop_ns + timeout_ns) + LEADER_NS


def modelled_descriptors(timeout_ns):
    """Returns the number of a switch's descriptors, by the same section: b(2d(l + t) + r), in
    packets.
    """
    return modelled_ns(timeout_ns) * LINK_MBIT / (FRAME_BYTES * 8000)


def descriptors_of(row):
    """Returns the switches' counts, average and maximum, and the model's prediction for the timeout
    that they have learned.
    """
    leaves = [one for one in row["descriptors_used"] if one["tier"] == "leaf"]
    spines = [one for one in row["descriptors_used"] if one["tier"] == "spine"]
    released = sum(one["released"] for one in leaves)
    return {"timeout_us": row["timeout_ns"] / 1000,
            "modelled_us": modelled_ns(row["timeout_ns"]) / 1000,
            "held_us": sum(one["held_ns"] for one in leaves) / 1000 / released if released else 0,
            "modelled": modelled_descriptors(row["timeout_ns"]),
            "leaf": statistics.mean(one["mean"] for one in leaves),
            "most_leaf": max(one["mean"] for one in leaves),
            "spine": statistics.mean(one["mean"] for one in spines),
            "left": sum(one["left"] for one in row["descriptors_used"]),
            "at_once": max(one["most"] for one in row["descriptors_used"])}


def show_descriptors(rows, *keys):
    groups = groups_of([row for row in rows if row.get("descriptors_used")], *keys)
    if not groups:
        return
    print("canary's descriptors by section 3.2.2 and as counted: medians over placements; held in "
          "a leaf, in use on average in leaves, the fullest leaf and spines, at once in any "
          "switch, and left at the end in all")
    print("  " + " ".join(f"{key:>11}" for key in keys) + f" {'timeout us':>10} {'model us':>9} "
                                                          f"{'held us':>8} {'model':>8} "
                                                          f"{'leaves':>7} {'fullest':>8} "
                                                          f"{'spines':>7} {'at once':>8} "
                                                          f"{'left':>6}")
    for values, group in groups.items():
        found = [descriptors_of(row) for row in group]
        middle = {name: statistics.median(one[name] for one in found) for name in found[0]}
        print("  " + " ".join(f"{value:>11}" for value in values)
              + f" {middle['timeout_us']:10.0f} {middle['modelled_us']:9.0f} "
                f"{middle['held_us']:8.0f} {middle['modelled']:8.0f} {middle['leaf']:7.1f} "
                f"{middle['most_leaf']:8.1f} {middle['spine']:7.1f} {middle['at_once']:8.0f} "
                f"{middle['left']:6.0f}")


def show_background(title, rows, *keys):
    show_goodput(title, rows, *keys, "variant")
    show_used("how much links are used, percent of links", rows, *keys, "variant")
    show_descriptors(rows, *keys)


def show(part, rows):
    if part == "free":
        show_background("free: no background; goodput of an allreduce", rows, "topology")
    elif part == "spine":
        show_background("spine: 0.9 of the links of one spine, the first tree's, are taken", rows,
                        "topology")
    elif part == "uniform":
        show_background("uniform: hosts without a rank send to random others", rows, "topology",
                        "share")
    elif part == "permutation":
        show_background("permutation: each host without a rank sends to one other, each to another "
                        "one", rows, "topology", "share")
    elif part == "sizes":
        show_sizes(rows)
    elif part == "timeouts":
        show_goodput(f"timeouts: hosts are busy for {BUSY_NS / 1000:g} us before this share of "
                     "packets", rows, "background", "busy", "variant", "timeout")
    else:
        show_table(rows)


# ------------------------------------------------------------------ goals

class Findings:
    """Sentences about goals, each met or missed."""

    def __init__(self):
        self.met = []
        self.missed = []

    def add(self, is_met, sentence):
        (self.met if is_met else self.missed).append(sentence)


def medians_by_variant(rows):
    return {variant: median_of(group) for (variant,), group in groups_of(rows, "variant").items()}


def judge_free(rows, findings):
    for (topology,), group in groups_of(rows, "topology").items():
        found = medians_by_variant(group)
        best = max((found[name] for name in ("static-1", "static-4") if name in found),
                   default=None)
        if best and "canary" in found:
            findings.add(found["canary"] >= MIN_OF_STATIC * best,
                         f"free, {topology}: canary has {found['canary'] / best:.3f} of the best "
                         f"static trees' goodput, wanted {MIN_OF_STATIC} at least")


def judge_gains(part, rows, gains, findings):
    for (topology,), group in groups_of(rows, "topology").items():
        found = medians_by_variant(group)
        for name, least in gains.items():
            if name in found and "canary" in found:
                findings.add(found["canary"] >= least * found[name],
                             f"{part}, {topology}: canary has {found['canary'] / found[name]:.2f} "
                             f"times {name}'s goodput, wanted {least} at least")


def judge_spine(rows, findings):
    judge_gains("spine", rows, MIN_GAINS, findings)


def judge_permutation(rows, findings):
    judge_gains(f"permutation, {100 * SHARE:g} % of hosts",
                [row for row in rows if row["share"] == SHARE], MIN_PERMUTATION_GAINS, findings)


def judge_uniform(rows, findings):
    for (topology, share), group in groups_of(rows, "topology", "share").items():
        found = medians_by_variant(group)
        pairs = [*zip(ORDER, ORDER[1:]), ("canary", "ring")]
        for faster, slower in pairs:
            if faster in found and slower in found:
                findings.add(found[faster] > found[slower],
                             f"uniform, {topology}, {100 * share:g} % of hosts: {faster} has "
                             f"{found[faster]:.0f} Mbit/s, {slower} {found[slower]:.0f}")


def judge_sizes(rows, findings):
    for (topology, size), group in groups_of(rows, "topology", "bytes").items():
        found = {variant: median_of(one, "seconds") for (variant,),
                 one in groups_of(group, "variant").items()}
        if {"canary", "static-1"} <= found.keys():
            findings.add(found["canary"] <= MAX_LATENCY * found["static-1"],
                         f"sizes, {topology}, {size} bytes: canary takes "
                         f"{found['canary'] / found['static-1']:.2f} times as long as static-1, "
                         f"wanted {MAX_LATENCY} at most")


def judge_timeouts(rows, findings):
    for (background, busy), group in groups_of([row for row in rows if row["variant"] == "canary"],
                                               "background", "busy").items():
        found = {timeout: median_of(one) for (timeout,), one in groups_of(group, "timeout").items()}
        learned = found.pop("learned", None)
        if found:
            ratio = max(found.values()) / min(found.values())
            findings.add(ratio <= MAX_DIFFERENCE,
                         f"timeouts, background {background}, {100 * busy:g} % of packets: "
                         f"{ratio:.2f} between the best and the worst fixed timeout, wanted "
                         f"{MAX_DIFFERENCE} at most; the learned one has "
                         f"{learned / max(found.values()):.2f} of the best")


def judge(part, rows, findings):
    judges = {"free": judge_free, "spine": judge_spine, "uniform": judge_uniform,
              "permutation": judge_permutation, "sizes": judge_sizes,
              "timeouts": judge_timeouts}
    if part in judges:
        judges[part](rows, findings)
    for row in rows:
        if not row["done"] and (part != "permutation" or row["variant"] == "canary"):
            findings.add(False, f"{part}: {row['topology']}, {row['variant']}, {row['share']}, "
                                f"seed {row['seed']}: did not end")


# ------------------------------------------------------------------ command line

def rows_of(arguments):
    """Returns {part: rows}, from runs or from the output of earlier ones."""
    if not arguments.rows_from:
        return {part: PARTS[part](arguments) for part in arguments.part or PARTS}
    rows = []
    for file in arguments.rows_from:
        rows += json.loads(file.read_text(encoding="utf-8"))["results"]
    return {part: [row for row in rows if row["part"] == part] for part in arguments.part or PARTS
            if any(row["part"] == part for row in rows)}


def parse():
    parser = bench_parser("congestion", __doc__)
    add_part(parser, PARTS)
    add_repeated(parser, "--variant", "this variant only", choices=VARIANTS)
    add_repeated(parser, "--topology", "this topology only (timeouts and table have the small one)",
                 choices=TOPOLOGIES)
    parser.add_argument("--placements", type=int, default=PLACEMENTS, metavar="N",
                        help=f"random ones, default: %(default)s; {FEWER_PLACEMENTS} at most in "
                             "sizes, timeouts and table")
    add_processes(parser)
    parser.add_argument("--from", dest="rows_from", type=Path, action="append", metavar="FILE",
                        help="rows that --json printed, in place of runs; may be given several "
                             "times")
    parser.add_argument("--plots", type=Path, metavar="DIR", help="draw figures there, too")
    arguments = parser.parse_args()
    arguments.variant = arguments.variant or list(VARIANTS)
    arguments.topology = arguments.topology or list(TOPOLOGIES)
    return arguments


def main():
    arguments = parse()
    findings, results = Findings(), []
    try:
        for part, rows in rows_of(arguments).items():
            results += rows
            judge(part, rows, findings)
            if not arguments.json:
                show(part, rows)
        if arguments.plots:
            from lab.bench import plot_congestion
            plot_congestion.draw(results, arguments.plots)
    except (RunError, OSError, ValueError, subprocess.TimeoutExpired) as error:
        print(f"congestion: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"benchmark": "congestion",
                          "machine": f"virtual time, links of {LINK_MBIT} Mbit/s",
                          "results": results,
                          "met": findings.met, "missed": findings.missed}))
    else:
        for sentence in findings.met:
            print(f"met: {sentence}")
        for sentence in findings.missed:
            print(f"MISSED: {sentence}")
    return 1 if findings.missed else 0


if __name__ == "__main__":
    sys.exit(main())
