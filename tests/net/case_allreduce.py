# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic behind ./dev bench allreduce and the plots: medians, the better set-up, ratios and goals."""

import sys

from support import case, expect, expect_equal
from lab import SOURCE_DIR

sys.path.insert(0, str(SOURCE_DIR / "bench"))
import allreduce  # noqa: E402
import plot  # noqa: E402

KIB, MIB = 1 << 10, 1 << 20


@case(10)
def an_allreduce_takes_as_long_as_its_slowest_rank():
    expect_equal(allreduce.slowest([[1, 5, 3], [2, 4, 9]]), [2, 5, 9], "times of two ranks")
    expect_equal(allreduce.figure("peer", {"mismatches": 0, "times": [2, 9, 5]}), 5, "a run's figure")
    try:
        allreduce.figure("peer", {"mismatches": 3, "times": [1]})
    except allreduce.LabError as error:
        expect_equal(str(error), "peer: 3 elements are wrong", "what is said of wrong elements")
    else:
        raise AssertionError("a run with wrong elements has a figure")


@case(10)
def rows_hold_the_better_set_up_of_both_sides_and_whether_the_goal_is_reached():
    ours = {"af_xdp 3474": [0.004, 0.002, 0.003], "af_packet 9000": [0.001, 0.0025, 0.009]}
    theirs = {"MTU 9000": [0.005, 0.008, 0.006], "MTU 65535": [0.010, 0.001, 0.009]}
    row = allreduce.make_row(MIB, "openmpi-tcp", ours, theirs)
    expect_equal((row["setup"], row["transport"], row["peer_setup"]), ("af_packet 9000", "af_packet", "MTU 9000"),
                 "the set-ups with the smaller medians")
    expect(abs(row["ratio"] - 0.006 / 0.0025) < 1e-9, f"ratio {row['ratio']} instead of 2.4")
    expect(abs(row["gbps"] / row["peer_gbps"] - row["ratio"]) < 1e-9, "the ratio is not that of the goodputs")
    expect(abs(row["gbps"] - MIB * 8 / 0.0025 / 1e9) < 1e-9, f"goodput {row['gbps']}")
    expect(abs(row["latency_us"] - 2500) < 1e-6, f"latency {row['latency_us']}")
    expect_equal(row["raw"], {"seconds": ours, "peer_seconds": theirs}, "the raw numbers")
    expect_equal((row["goal"], row["reached"]), ("ratio >= 2", True), "the goal from 64 KiB")

    def reached(size, peer, seconds, peer_seconds):
        return allreduce.make_row(size, peer, {"memif 9000": [seconds]}, {"x": [peer_seconds]})["reached"]
    expect_equal(reached(64 * KIB, "openmpi-tcp", 1.0, 1.99), False, "a ratio of 1.99")
    expect_equal(reached(64 * KIB, "openmpi-tcp", 1.0, 2.0), True, "a ratio of 2")
    expect_equal(reached(16 * KIB, "openmpi-tcp", 1.0, 0.1), None, "sizes without a goal")
    expect_equal(reached(KIB, "openmpi-tcp", 1.0, 1.0), True, "the same latency")
    expect_equal(reached(KIB, "openmpi-tcp", 1.01, 1.0), False, "a higher latency")
    expect_equal(reached(256 * KIB, "openmpi-shm", 1.0, 1.49), False, "shared memory below its goal")
    expect_equal(reached(64 * KIB, "openmpi-shm", 1.0, 0.5), None, "shared memory below 256 KiB")
    expect_equal(reached(MIB, "gloo-tcp", 1.0, 0.5), None, "Gloo, for which no goal is set")


@case(10)
def tcp_peers_are_compared_with_links_and_shared_memory_with_memif():
    samples = {(KIB, "fanin"): {"af_xdp 3474": [3.0], "memif 9000": [1.0]}, (KIB, "openmpi-tcp"): {"MTU 9000": [6.0]},
               (KIB, "gloo-tcp"): {"MTU 9000": [9.0]}, (KIB, "openmpi-shm"): {"shared memory": [4.0]}}
    rows = allreduce.rows_of([KIB], ["af_xdp 3474", "memif 9000"], samples)
    expect_equal([(row["peer"], row["transport"], row["ratio"]) for row in rows],
                 [("openmpi-tcp", "af_xdp", 2.0), ("gloo-tcp", "af_xdp", 3.0), ("openmpi-shm", "memif", 4.0)], "rows")


@case(10)
def plots_draw_each_line_once_in_order_of_size():
    rows = [{"bytes": size, "peer": peer, "gbps": size / 2, "peer_gbps": speed}
            for peer, speed in (("a", 1.0), ("b", 3.0)) for size in (64, 16)]
    expect_equal(plot.series_of(rows, "peer"),
                 ("message", {"fanin (a)": [(16, 8.0), (64, 32.0)], "peer (a)": [(16, 1.0), (64, 1.0)],
                              "peer (b)": [(16, 3.0), (64, 3.0)]}), "lines of an allreduce's rows")
    expect_equal(plot.series_of([{"payload": 256, "gbps": 4.0, "roofline_gbps": 5.0}], "peer"),
                 ("payload", {"fanin": [(256, 4.0)], "roofline": [(256, 5.0)]}), "lines of the pipeline's rows")
    expect_equal(plot.series_of([{"bytes": 16, "chains": chains, "hosts": 4, "gbps": 1.0} for chains in (2, 1)], "hosts", "chains"),
                 ("chains", {"fanin (4)": [(1, 1.0), (2, 1.0)]}), "lines of allgathers by chains")
    for rows in ([], [{"payload": 1}], [{"gbps": 1}]):
        try:
            plot.series_of(rows, "peer")
        except plot.PlotError:
            continue
        raise AssertionError(f"rows that can't be drawn were: {rows}")
