#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Sparse allreduce (Flare section 7), measured part by part.

core: the sparse handlers on one core, on packets from memory: arrays, hash tables and dense blocks
side by side, each beside a bare loop over the same packets (sparse-bench; docs/performance.md says
how each figure is made).

network: over leaves and spines with slow links, beside dense blocks in the network, a ring, and
what SparCML does (sparse_network.py).

A part measures rows, each a dict that goes into the JSON as it is, says which goals they miss, and
prints them as a table.
"""

import json
import subprocess
import sys

from lab.bench.instructions import BUILD_DIR
from lab.bench.options import bench_parser
from lab.bench.sparse_network import Network

# Goals at 10 %: values of contributions per second, and their share of the bare loop's. They are
# for the medians, or for the fastest batches if too few batches were undisturbed.
GOAL_DENSITY = 0.1
GOAL_NNZ_PER_S = {"array": 350e6, "hash": 100e6}
GOAL_RATIO = 0.6


class Core:
    """One core, packets from memory."""

    name = "core"
    title = "one core, packets from memory"

    @staticmethod
    def measure(quick):
        command = [str(BUILD_DIR / "lab" / "bench" / "sparse-bench"),
                   "--json"] + (["--batches", "40", "--seconds", "1"] if quick else [])
        done = subprocess.run(command, stdin=subprocess.DEVNULL, capture_output=True, text=True,
                              timeout=1800, check=False)
        if done.returncode != 0:
            raise SystemExit(f"sparse: {' '.join(command)} ended with status "
                             f"{done.returncode}:\n{done.stderr}")
        found = json.loads(done.stdout)
        return [dict(row, part="core", **found["machine"]) for row in found["results"]]

    @staticmethod
    def missed(rows):
        """Returns a sentence for each goal that a row misses."""
        sentences = []
        for row in rows:
            if row["density"] != GOAL_DENSITY or row["kind"] not in GOAL_NNZ_PER_S:
                continue
            which = f"{row['kind']} at {100 * row['density']:g} %, MTU {row['mtu']}"
            least = GOAL_NNZ_PER_S[row["kind"]]
            nnz_per_s, ratio = (row["nnz_per_s"],
                                row["ratio"]) if row["undisturbed"] else (row["nnz_per_s_best"],
                                                                          row["ratio_best"])
            of = "" if row["undisturbed"] else ", fastest batch"
            if nnz_per_s < least:
                sentences.append(f"{which}: found {nnz_per_s / 1e6:.0f} M values per second{of}, "
                                 f"expected {least / 1e6:.0f} at least")
            if ratio < GOAL_RATIO:
                sentences.append(f"{which}: found {ratio:.2f} of the bare loop{of}, expected "
                                 f"{GOAL_RATIO} at least")
        return sentences

    @staticmethod
    def show(rows):
        first = rows[0]
        print(f"{Core.title}: {first['hosts']} hosts, f32 sums, kernels {first['isa']}, "
              f"{first['cpu']}")
        print("medians of undisturbed batches (*: few), the fastest one in parentheses; nnz: "
              "values of contributions")
        print(f"{'kind':6} {'density':>8} {'mtu':>5} {'Mpps':>7} {'Gbit/s':>7} {'M nnz/s':>16} "
              f"{'bare M nnz/s':>16} {'ratio':>6} {'slot KiB':>9} {'touched':>8} {'result':>7} "
              f"{'extra':>7}")
        for row in rows:
            print(f"{row['kind']:6} {100 * row['density']:6g} % {row['mtu']:5} {row['mpps']:7.3f} "
                  f"{row['gbps']:7.1f} {row['nnz_per_s'] / 1e6:7.1f} "
                  f"({row['nnz_per_s_best'] / 1e6:6.1f}) {row['bare_nnz_per_s'] / 1e6:7.1f} "
                  f"({row['bare_nnz_per_s_best'] / 1e6:6.1f}) {row['ratio']:6.3f} "
                  f"{row['slot_bytes'] / 1024:9.1f} {row['touched_bytes'] / 1024:8.1f} "
                  f"{row['result_bytes'] / 1024:7.1f} "
                  f"{100 * row['extra_traffic']:6.2f}%{'' if row['undisturbed'] else ' *'}")


PARTS = [Core, Network]


def main():
    parser = bench_parser("sparse", __doc__)
    parser.add_argument("--quick", action="store_true", help="fewer repetitions")
    parser.add_argument("--pattern", nargs="+", default=[], metavar="FILE",
                        help="the part network also sums vectors with the indices of these files "
                             "(fanin-perf(1), lab/bench/gradients.py)")
    only = parser.add_mutually_exclusive_group()
    for part in PARTS:
        only.add_argument(f"--{part.name}", dest="part", action="store_const", const=part,
                          help=f"this part only: {part.title}")
    arguments = parser.parse_args()
    Network.files = arguments.pattern
    rows, missed = [], []
    for part in PARTS if arguments.part is None else [arguments.part]:
        found = part.measure(arguments.quick)
        rows += found
        missed += part.missed(found)
        if not arguments.json:
            part.show(found)
    if arguments.json:
        print(json.dumps({"results": rows, "missed": missed}))
    else:
        for sentence in missed:
            print(f"MISSED: {sentence}")
    return 1 if missed else 0


if __name__ == "__main__":
    sys.exit(main())
