#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""A reduce_scatter and an allgather at the same time, as training with sharded parameters has them,
beside each alone and the ring's pair, in virtual time.

sharded-bench runs a network of real switches, queues and engines with links of one rate. With
several leaves the trees of the two jobs have a spine each. A collective's time is that of its last
rank; a row has medians over several, one after the other, in one run.
"""

import json
import statistics
import sys

from lab.bench import virtual_time
from lab.bench.options import add_bytes, add_processes, add_repeated, bench_parser
from lab.bench.virtual_time import RunError

MIB = 1 << 20
# A bounded queue at a host's link leaves room for the other collective; a collective alone is
# faster without the bound.
VARIANTS = {"reduce_scatter": {"queue_us": 0}, "allgather": {"queue_us": 0}, "pair": {}, "ring": {}}
RANKS, LEAVES = (8, 16), (1, 4)
BYTES, QUICK_BYTES = (MIB, 4 * MIB), (4 * MIB,)
RATE_MBIT = 10000
REPEATS = 5
# Goals: the pair's time relative to the longer one alone, and the ring's relative to the pair's;
# for vectors from this many bytes on.
MAX_OF_LONGER, MIN_OF_RING = 1.25, 1.3
GOALS_FROM = 4 * MIB
# In a reduce_scatter each link down to a host carries a rank's part, and 96 bytes of headers for
# each block of 1408 bytes.
MAX_OF_PART, HEADERS = 1.05, 0.0682


def run_one(options):
    found = virtual_time.run_one("sharded-bench", options)
    if not found["exact"]:
        raise RunError(f"{' '.join(virtual_time.command_of('sharded-bench', options))}: a result "
                       "is wrong")
    return found


def row_of(place, found):
    times = {variant: statistics.median(found[variant]["seconds"]) for variant in VARIANTS}
    longer = max(times["reduce_scatter"], times["allgather"])
    down = found["reduce_scatter"]["most"]["host_down"]
    row = {**place, **{f"{variant}_seconds": seconds for variant, seconds in times.items()},
           "of_longer": times["pair"] / longer,
           "of_ring": times["ring"] / times["pair"], "reduce_scatter_down": down,
           "pair_down": found["pair"]["most"]["host_down"],
           "pair_up": found["pair"]["most"]["host_up"], "dropped": found["pair"]["dropped"],
           "fetched": found["pair"]["fetched"]}
    row["reached"] = {"down": down <= MAX_OF_PART / place["ranks"] + HEADERS}
    if place["bytes"] >= GOALS_FROM:
        row["reached"].update(of_longer=row["of_longer"] <= MAX_OF_LONGER,
                              of_ring=row["of_ring"] >= MIN_OF_RING)
    return row


def measure(options):
    places = [{"ranks": ranks, "leaves": leaves, "bytes": size} for leaves in LEAVES
              for ranks in options.ranks or RANKS
              for size in options.bytes or (QUICK_BYTES if options.quick else BYTES)]
    runs = [{"variant": variant, **place, **more, "rate_mbit": RATE_MBIT, "repeats": REPEATS}
            for place in places for variant, more in VARIANTS.items()]
    found = virtual_time.run_all("bench sharded", runs, options.processes, run_one)
    rows = [row_of(place, dict(zip(VARIANTS, found[i * len(VARIANTS):]))) for i,
            place in enumerate(places)]
    return {"ok": all(all(row["reached"].values()) for row in rows), "error": None,
            "rate_mbit": RATE_MBIT, "results": rows}


def table(result):
    lines = [f"links of {result['rate_mbit'] / 1000:g} Gbit/s, MTU 1500, virtual time; ms, and "
             "shares of the vector that a host's link carries", "",
             f"{'ranks':>5}{'leaves':>8}{'MiB':>6}{'scatter':>9}{'gather':>8}{'both':>8}{'ring':>8}{'of longer':>11}{'of ring':>9}{'scatter down':>14}{'both down':>11}{'both up':>9}  goals"]
    for row in result["results"]:
        missed = [name for name, reached in row["reached"].items() if not reached]
        lines.append(f"{row['ranks']:>5}{row['leaves']:>8}{row['bytes'] / MIB:>6g}" +
                     "".join(f"{1000 * row[f'{variant}_seconds']:>{width}.2f}" for variant,
                             width in zip(VARIANTS, (9, 8, 8, 8))) +
                     f"{row['of_longer']:>11.2f}{row['of_ring']:>9.2f}{row['reduce_scatter_down']:>14.3f}{row['pair_down']:>11.3f}{row['pair_up']:>9.3f}  {'MISSED: ' + ', '.join(missed) if missed else 'reached'}")
    return "\n".join(lines)


def main():
    parser = bench_parser("sharded", __doc__)
    parser.add_argument("--quick", action="store_true", help="one size")
    add_repeated(parser, "--ranks", "8, 12, 16, 24 or 32 (default: 8 and 16)", type=int,
                 choices=(8, 12, 16, 24, 32), metavar="N")
    add_bytes(parser, "of each of the two vectors")
    add_processes(parser)
    options = parser.parse_args()
    try:
        result = measure(options)
    except (RunError, OSError) as error:
        result = {"ok": False, "error": str(error)}
    if options.json:
        print(json.dumps(result))
    elif result["error"]:
        print(f"bench sharded: {result['error']}", file=sys.stderr)
    else:
        print(table(result))
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
