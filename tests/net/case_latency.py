# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic of ./dev bench latency, and fanin-perf's pauses that it measures."""

import argparse

from tests.net.support import case, expect, expect_equal, running_lab

from lab.bench import latency
from lab.bench import latency_pause
from lab.bench import latency_where
from lab.bench.allreduce_sides import Task, fanin

CELL = latency.Cell(4, "udp", 1500)


@case(10)
def a_row_has_the_medians_of_its_runs_and_only_barriers_and_one_kib_have_a_goal():
    fast, slow = [i / 1e6 for i in range(1, 101)], [2 * i / 1e6 for i in range(1, 101)]
    row = latency.make_row(CELL, Task("allreduce", 1024, 100), [slow, fast, fast], [slow, slow],
                           [fast])
    expect_equal([round(row[name], 6)
                  for name in ("p50_us", "p99_us", "openmpi_p50_us", "openmpi_p99_us",
                               "bare_p50_us", "ratio")],
                 [51, 100, 102, 200, 51, 2], "medians, 99th percentiles and their ratio")
    expect_equal((row["reached"], len(row["raw"]["fanin"]), row["hosts"], row["mtu"]),
                 (True, 3, 4, 1500), "the rest of the row")
    barrier = latency.make_row(CELL, Task("barrier", 0, 100), [slow], [fast], None)
    expect_equal((barrier["reached"], barrier["bare_p50_us"]), (False, None),
                 "a barrier that takes twice as long")
    expect_equal(latency.make_row(CELL, Task("allreduce", 64, 100), [slow], [fast],
                                  [fast])["reached"], None, "a size without a goal")


@case(10)
def cells_are_all_hosts_on_all_transports_or_what_is_asked_for():
    def cells(**given):
        return latency.cells_of(argparse.Namespace(**{"hosts": None, "quick": False,
                                                      "transport": None, **given}))
    expect_equal(len(cells()), len(latency.HOSTS) * len(latency.SETUPS), "all")
    expect_equal(cells(hosts=[8], transport=["udp"]), [(8, "udp", 1500), (8, "udp", 9000)], "some")
    expect_equal({cell.hosts for cell in cells(quick=True)}, {4}, "quick")


@case(10)
def a_step_has_what_each_group_had_between_the_marks():
    thread = latency_where.Thread
    begin = latency_where.Ends(10.0, 5.0,
                               {"hosts": thread(1000, 0, 10, 5, 5), "middle": thread(500)})
    end = latency_where.Ends(12.0, 6.0,
                             {"hosts": thread(1000 + 10**9, 10**9, 2010, 1005, 1005),
                              "middle": thread(500 + 10**9)})
    share = latency_where.share_of(begin, end, 1000, 4, 2)
    expect_equal([round(share[name], 3)
                  for name in ("wall_us", "cpu_us", "least_us", "idle_us", "other_us")],
                 [2000, 2000, 1000, 1000, 1000], "the step")
    expect_equal(share["groups"]["hosts"],
                 {"cpu_us": 1000.0, "wait_us": 1000.0, "turns": 2.0, "asleep": 1.0, "pushed": 1.0},
                 "its hosts")
    latency_where.add_calls(share, {"hosts": 5000, "middle": None}, 1000)
    expect_equal([share["groups"][name]["calls"] for name in ("hosts", "middle")], [5.0, None],
                 "system calls, and those that could not be counted")
    expect_equal(latency_where.middle_of([{"a": {"b": value}} for value in (3, 1, 2)]),
                 {"a": {"b": 2}}, "medians of rounds")
    row = latency_where.row_of(CELL, 8, [share], [share])
    expect("Fanin adds 0.0 us" in latency_where.lines_of(row)[-1],
           f"two equal sides differ: {latency_where.lines_of(row)[-1]}")


@case(10)
def after_silence_time_counts_from_when_the_last_rank_began():
    reports = [{"begins": [1.0, 5.0], "times": [2.0, 1.0]},
               {"begins": [2.0, 4.0], "times": [0.5, 1.0]}]
    expect_equal(latency_pause.from_last_begin(reports), [1.0, 1.0], "two allreduces of two ranks")
    rows = latency_pause.rows_of({("udp", 1500, 1, 0): [0.0001], ("udp", 1500, 1, 10): [0.0002],
                                  ("udp", 1500, 1, 100): [0.0012]})
    expect_equal([(row["pause_ms"], row["reached"]) for row in rows], [(10, True), (100, False)],
                 "0.1 ms more, and 1.1")


@case()
def all_ranks_pause_before_each_measured_collective():
    with running_lab(2, "af_packet") as lab:
        times, reports = fanin(lab, Task("allreduce", 64, 5), pause_ms=100)
    for report in reports:
        begins = report["begins"]
        expect_equal((len(begins), len(report["times"])), (5, 5), "how many began, and their times")
        gaps = [later - before for before, later in zip(begins, begins[1:])]
        expect(min(gaps) >= 0.1, f"collectives began {min(gaps)} s after each other, expected 0.1 "
                                 "or more")
    # A pause is not part of the measured time: otherwise even the fastest of five would be longer.
    expect(min(times) < 0.1, f"the fastest allreduce took {min(times)} s, with its pause")
