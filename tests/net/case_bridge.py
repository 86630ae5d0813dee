# SPDX-License-Identifier: BSD-3-Clause
"""./dev bench bridge: its arithmetic and criterion, a tiny run, and that it leaves nothing behind.
"""

import json
import os

from tests.net.support import case, expect, expect_equal, run
from lab.namespaces import NETNS_DIR, module

from lab.bench.bridge import BRIDGE, CASES, SWITCH, Case, Run, row


def runs_of(switch, bridge):
    return {SWITCH: [Run(gbit, 1.5, 0.1) for gbit in switch],
            BRIDGE: [Run(gbit, 1.0, 0.3) for gbit in bridge]}


@case()
def bench_bridge_judges_by_the_median_of_the_pairs():
    wanted = Case("some", 1, True, 0.4)
    entry = row(wanted, runs_of([4, 5, 1], [10, 10, 10]))
    expect_equal((entry["ok"], entry["ratio"]),
                 (True, {"median": 0.4, "lower": 0.25, "upper": 0.45}), "the criterion at its goal")
    expect_equal((entry["switch_gbit"], entry["bridge_gbit"], entry["switch_cores"],
                  entry["bridge_cores"], entry["other_cores"]),
                 (4, 10, 1.5, 1.0, 0.2), "medians")
    expect(not row(wanted, runs_of([3.9], [10]))["ok"], "a ratio below the goal passes")
    expect(row(wanted._replace(wanted=None), runs_of([1], [10]))["ok"],
           "a case without a goal fails")


@case(90, thorough=True)
def bench_bridge_measures_both_sides_and_leaves_nothing():
    done = run([*module("lab.bench.bridge"), "--pairs", "1", "--seconds", "1", "--json"],
               check=False)
    result = json.loads(done.stdout)
    expect_equal(result["error"], None, "the error")
    expect_equal([entry["name"] for entry in result["cases"]], [one.name for one in CASES], "cases")
    for entry in result["cases"]:
        expect(all(entry[f"{side}_gbit"] > 0 and entry[f"{side}_cores"] > 0
                   for side in (SWITCH, BRIDGE)), f"nothing was measured: {entry}")
    expect_equal(done.returncode, 0 if result["ok"] else 1, "the exit status")
    left = [name for name in os.listdir(NETNS_DIR) if "-switch" in name or "-bridge" in name]
    expect_equal([name for name in left if not os.path.exists(f"/proc/{name.split('-')[1]}")], [],
                 "namespaces left")
