#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Jobs with a parameter server beside background traffic: PA-ATP's congestion control and the five
that it is compared with.

stragglers-bench runs a dumbbell in virtual time: real switches, queues, engines and servers. Each
row is a run; all members of the family see the same background traffic for the same seed. Tables
have medians over seeds, and the spread (quartiles).
"""

import json
import statistics
import subprocess
import sys

from lab.bench import stragglers_reasons
from lab.bench import virtual_time
from lab.bench.options import add_part, add_processes, bench_parser
from lab.bench.virtual_time import RunError, quartiles

MEMBERS = ("sync", "atp", "straw", "straw+progress", "straw+limit", "pa-atp")
LOADS = (0.2, 0.4, 0.6, 0.8)
# Aggregators of 1 KiB; the job's window is 4096 blocks.
MEMORY = (256, 512, 1024, 2048, 4096, 8192)
MEMORY_LOAD = 0.5
SEEDS = 10
LOAD_TOLERANCE = 0.05
TIMELINE_SECONDS = 0.4
PATH_MBIT = 100
BIN_MS = 20
# Loads at which the paper's order is expected, and the minimum distance of pa-atp from atp at the
# last one.
ORDER = ("pa-atp", "straw", "atp", "sync")
ORDER_LOADS = (0.6, 0.8)
MIN_GAIN = 0.15
# Shares of its path that A's second worker has while the first one's is busy.
TIMELINE_MIN = {"pa-atp": 0.7}
TIMELINE_MAX = {"sync": 0.3, "atp": 0.3}
# The paper's order at the smallest memory, fastest first.
MEMORY_ORDER = ("pa-atp", "straw+limit", "straw+progress", "straw")
FAIR_SHARE = 0.7


def run_one(options):
    """Makes one run, with options of stragglers-bench. Returns its output, without a trace unless
    one is requested.
    """
    found = virtual_time.run_one("stragglers-bench", options)
    for job in found["jobs"]:
        if job["error"] or not job["exact"]:
            raise RunError(f"{' '.join(virtual_time.command_of('stragglers-bench', options))}: "
                           f"{job['error'] or 'a result is not the sum'}")
    return found


def count(found, place, *names):
    """Returns the sum of counters over all jobs; place: "switch", "server" or "ranks"."""
    total = 0
    for job in found["jobs"]:
        for one in job["ranks"] if place == "ranks" else [job[place]]:
            total += sum(one.get(name, 0) for name in names)
    return total


def make_row(part, options, found):
    background = found["background"]
    wanted = background["wanted_load"]
    done = all(job["done"] for job in found["jobs"])
    row = {"part": part, "member": found["member"], "seed": found["seed"], "load": wanted,
           "aggregators": found["aggregators"],
           "ecn_bytes": found["ecn_bytes"], "background": "udp" if options.get("udp") else "dctcp",
           "done": done,
           "offered_load": background["offered_load"],
           "delivered_load": background["delivered_load"],
           "load_is_right": wanted == 0
           or abs(background["offered_load"] / wanted - 1) <= LOAD_TOLERANCE,
           "seconds": statistics.mean(statistics.mean(job["iterations"]) for job in found["jobs"])
           if done else None,
           "overflows": count(found, "switch", "overflows"),
           "flushes": count(found, "switch", "flushes"),
           "aecns": count(found, "switch", "aecn"),
           "marks": count(found, "switch", "ce") / max(1, count(found, "switch", "gradients")),
           "retransmits": count(found, "ranks", "retransmits"),
           "queries": count(found, "ranks", "queries"),
           "asked": count(found, "ranks", "asks_answered"),
           "dropped": sum(path["dropped"] for path in found["paths"]),
           "background_marked": background["marked_share"],
           "background_seconds": background["mean_seconds"]}
    return row


def run_all(part, runs, processes):
    """Returns the rows of many runs, in their order."""
    return virtual_time.run_all(f"stragglers: {part}", runs, processes,
                                lambda options: make_row(part, options, run_one(options)))


def summarise(rows, *keys):
    """Returns {values of keys: summary of the runs that have them}. Runs that did not end are left
    out of the median.
    """
    groups = {}
    for row in rows:
        groups.setdefault(tuple(row[key] for key in keys), []).append(row)
    found = {}
    for values, group in groups.items():
        ended = [row["seconds"] for row in group if row["done"]]
        summary = {key: value for key, value in zip(keys, values, strict=True)}
        summary["runs"] = len(group)
        summary["ended"] = len(ended)
        if ended:
            summary["seconds"] = statistics.median(ended)
            summary["quartiles"] = quartiles(ended)
        for name in ("delivered_load", "offered_load", "overflows", "flushes", "aecns", "marks",
                     "retransmits", "queries", "asked", "dropped"):
            summary[name] = statistics.mean(row[name] for row in group)
        found[values] = summary
    return found


# ------------------------------------------------------------------ parts

def timeline(_quick, processes):
    """The paper's figure 8: job A's first worker shares its path with UDP of 80 Mbit/s for 0.4 s;
    then job B begins.
    """
    runs = [{"member": member, "scenario": "timeline", "trace_ms": BIN_MS} for member in MEMBERS]
    found = virtual_time.run_all("stragglers: timeline", runs, processes, run_one)
    rows = []
    for one in found:
        bins = one["trace"]["bins"][:round(TIMELINE_SECONDS * 1000 / BIN_MS)]
        shares = [statistics.mean(at["sent_mbit"][worker] for at in bins) / PATH_MBIT
                  for worker in range(2)]
        rows.append({"part": "timeline", "member": one["member"], "shares": shares,
                     "done": all(job["done"] for job in one["jobs"]),
                     "aggregated_mbit": statistics.mean(at["aggregated_mbit"][0] for at in bins),
                     "seconds": [job["seconds"] for job in one["jobs"]],
                     "retransmits": count(one, "ranks", "retransmits"),
                     "queries": count(one, "ranks", "queries"),
                     "overflows": count(one, "switch", "overflows"), "trace": one["trace"]})
    return rows


def loads(quick, processes, kind="loads", **more):
    seeds = range(1, 4 if quick else SEEDS + 1)
    levels = (0.4, 0.8) if quick else LOADS
    runs = [{"member": member, "seed": seed, "load": load, "iterations": 2 if quick else 3, **more}
            for load in levels for member in MEMBERS for seed in seeds]
    return run_all(kind, runs, processes)


def loads_udp(quick, processes):
    return loads(quick, processes, "loads-udp", udp=True)


def without_ecn(quick, processes):
    seeds = range(1, 4 if quick else SEEDS + 1)
    runs = [{"member": member, "seed": seed, "load": 0.8, "iterations": 2 if quick else 3,
             "ecn_bytes": 0}
            for member in MEMBERS for seed in seeds]
    return run_all("without-ecn", runs, processes)


def memory(quick, processes):
    seeds = range(1, 4 if quick else SEEDS + 1)
    runs = [{"member": member, "seed": seed, "load": MEMORY_LOAD, "iterations": 2 if quick else 3,
             "jobs": 4, "aggregators": slots}
            for slots in ((MEMORY[0], MEMORY[-1]) if quick else MEMORY) for member in MEMBERS[1:]
            for seed in seeds]
    return run_all("memory", runs, processes)


def fairness(_quick, processes):
    """A job's worker has a path with three DCTCP flows that do not end. The job's other path has
    none, so that the worker is the straggler, or six.
    """
    runs = [{"member": member, "scenario": "fairness", "jobs": 1, "ranks": 2, "paths": 2,
             "iterations": 1, "bytes": 12000000,
             "flows": 3, "other_flows": other, "trace_ms": BIN_MS} for member in MEMBERS
            for other in (0, 6)]
    found = virtual_time.run_all("stragglers: fairness", runs, processes, run_one)
    rows = []
    for options, one in zip(runs, found, strict=True):
        # Counted from the second 0.2 s on, when slow start is over, until the job ends.
        bins = [at for at in one["trace"]["bins"][round(0.2 * 1000 / BIN_MS):]
                if at["sent_mbit"][0] > 1]
        flows_mbit = statistics.mean(at["background_mbit"][0] for at in bins) / 3
        rows.append({"part": "fairness", "member": one["member"],
                     "role": "straggler" if options["other_flows"] == 0 else "leader",
                     "flow_share": flows_mbit / (PATH_MBIT / 4),
                     "worker_share": statistics.mean(at["sent_mbit"][0] for at in bins)
                     / (PATH_MBIT / 4),
                     "seconds": one["jobs"][0]["seconds"], "done": one["jobs"][0]["done"]})
    return rows


def reasons(quick, processes):
    runs = stragglers_reasons.runs(quick)
    found = virtual_time.run_all("stragglers: reasons", [options for _, _, options in runs],
                                 processes, run_one)
    return [{**make_row("reasons", options, one), "question": question, "label": label,
             **stragglers_reasons.measure(one, options)}
            for (question, label, options), one in zip(runs, found, strict=True)]


PARTS = {"timeline": timeline, "loads": loads, "loads-udp": loads_udp, "without-ecn": without_ecn,
         "memory": memory, "fairness": fairness,
         "reasons": reasons}


# -------------------------------------------------------------- tables and expectations

def show_timeline(rows):
    print("figure 8: A's workers and their shares of their paths while the first one's has 80 "
          "Mbit/s of UDP, and both jobs' times")
    print(f"  {'member':15} {'A1':>5} {'A2':>5} {'A aggregated':>13} {'A s':>7} {'B s':>7} "
          f"{'queries':>8} {'overflows':>10}")
    for row in rows:
        print(f"  {row['member']:15} {row['shares'][0]:5.2f} {row['shares'][1]:5.2f} "
              f"{row['aggregated_mbit']:6.1f} Mbit/s {row['seconds'][0]:7.3f} "
              f"{row['seconds'][1]:7.3f} {row['queries']:8} {row['overflows']:10}")


def show_summary(title, key, rows):
    print(title)
    print(f"  {key:>11} {'member':15} {'s':>7} {'quartiles':>15} {'runs':>5} {'load':>6} "
          f"{'arrived':>8} {'marks':>6} {'overflows':>10} {'queries':>8} {'retrans':>8} "
          f"{'dropped':>8} {'AECN':>6}")
    for (value, member), one in summarise(rows, key, "member").items():
        seconds = f"{'-':>23}"
        if one["ended"]:
            seconds = (f"{one['seconds']:7.3f} {one['quartiles'][0]:7.3f} "
                       f"{one['quartiles'][1]:7.3f}")
        print(f"  {value:11g} {member:15} {seconds} {one['ended']:2}/{one['runs']:<2} "
              f"{one['offered_load']:6.2f} {one['delivered_load']:8.2f} {one['marks']:6.2f} "
              f"{one['overflows']:10.0f} {one['queries']:8.0f} {one['retransmits']:8.0f} "
              f"{one['dropped']:8.0f} {one['aecns']:6.0f}")


def show_fairness(rows):
    print("fairness: throughput of a DCTCP flow, and of the worker beside three of them, as "
          "multiples of a fair share")
    for row in rows:
        print(f"  {row['member']:15} {row['role']:10} flow {row['flow_share']:5.2f}, worker "
              f"{row['worker_share']:5.2f}")


def show(part, rows):
    if part == "timeline":
        show_timeline(rows)
    elif part == "fairness":
        show_fairness(rows)
    elif part == "reasons":
        stragglers_reasons.show(rows)
    elif part == "memory":
        show_summary(f"memory: 4 jobs, load {MEMORY_LOAD}; seconds of an iteration of 2 MB",
                     "aggregators", rows)
    else:
        title = {"loads": "loads: 2 jobs of 3 workers, background by DCTCP",
                 "loads-udp": "loads: the same, background by UDP",
                 "without-ecn": "the same by DCTCP, without marks at the ports"}[part]
        show_summary(f"{title}; seconds of an iteration of 2 MB", "load", rows)


def order_missed(which, found, order):
    """Returns a sentence for each pair of neighbours in the order whose medians are in the opposite
    order.
    """
    sentences = []
    for faster, slower in zip(order, order[1:]):
        if faster in found and slower in found and found[faster] >= found[slower]:
            sentences.append(f"{which}: {faster} takes {found[faster]:.3f} s, expected less than "
                             f"{slower}'s {found[slower]:.3f} s")
    return sentences


def medians(rows, **those):
    chosen = [row for row in rows if row["done"]
              and all(row[key] == value for key, value in those.items())]
    return {member: statistics.median(row["seconds"] for row in chosen if row["member"] == member)
            for member in {row["member"] for row in chosen}}


def missed_loads(rows):
    sentences = []
    for load in sorted({row["load"] for row in rows} & set(ORDER_LOADS)):
        sentences += order_missed(f"load {load:g}", medians(rows, load=load), ORDER)
    last = medians(rows, load=ORDER_LOADS[-1])
    if last["pa-atp"] > (1 - MIN_GAIN) * last["atp"]:
        sentences.append(f"load {ORDER_LOADS[-1]}: pa-atp takes {last['pa-atp'] / last['atp']:.2f} "
                         f"of atp's time, expected {1 - MIN_GAIN:.2f} at most")
    return sentences


def missed_timeline(rows):
    sentences = []
    for row in rows:
        share, member = row["shares"][1], row["member"]
        if share < TIMELINE_MIN.get(member, 0) or share > TIMELINE_MAX.get(member, 2):
            sentences.append(f"figure 8: A's second worker has {share:.2f} of its path with "
                             f"{member}, expected {TIMELINE_MIN.get(member, 0)} to "
                             f"{TIMELINE_MAX.get(member, 1)}")
    return sentences


def missed(part, rows):
    """Returns a sentence for each expectation that rows miss."""
    sentences = []
    if part == "timeline":
        sentences += missed_timeline(rows)
    if part == "loads":
        sentences += missed_loads(rows)
    if part == "memory":
        sentences += order_missed(f"{MEMORY[0]} aggregators", medians(rows, aggregators=MEMORY[0]),
                                  MEMORY_ORDER)
    if part == "fairness":
        sentences += [f"fairness: a flow beside {row['member']} ({row['role']}) has "
                      f"{row['flow_share']:.2f} of its share, expected {FAIR_SHARE} at least"
                      for row in rows if row["member"] == "pa-atp"
                      and row["flow_share"] < FAIR_SHARE]
    if part in ("timeline", "fairness", "reasons"):
        return sentences
    sentences += [f"{part}: {row['member']}, load {row['load']:g}, seed {row['seed']}: the load "
                  f"was {row['offered_load']:.3f}" for row in rows
                  if not row["load_is_right"]]
    return sentences + [f"{part}: {row['member']}, load {row['load']:g}, {row['aggregators']} "
                        f"aggregators, seed {row['seed']}: did not end"
                        for row in rows if not row["done"]]


def main():
    parser = bench_parser("stragglers", __doc__)
    parser.add_argument("--quick", action="store_true", help="3 seeds and fewer loads")
    add_part(parser, PARTS)
    add_processes(parser)
    arguments = parser.parse_args()
    results, sentences = [], []
    try:
        for part in arguments.part or PARTS:
            rows = PARTS[part](arguments.quick, arguments.processes)
            results += rows
            sentences += missed(part, rows)
            if not arguments.json:
                show(part, rows)
    except (RunError, OSError, subprocess.TimeoutExpired) as error:
        print(f"stragglers: {error}", file=sys.stderr)
        return 2
    if arguments.json:
        print(json.dumps({"benchmark": "stragglers", "machine": "virtual time, links of 100 Mbit/s",
                          "results": results, "missed": sentences}))
    else:
        for sentence in sentences:
            print(f"MISSED: {sentence}")
    return 1 if sentences else 0


if __name__ == "__main__":
    sys.exit(main())
