# SPDX-License-Identifier: BSD-3-Clause
"""The arithmetic behind ./dev bench allreduce and the plots: medians, the better set-up, ratios,
goals and CPU times.
"""

import argparse

from tests.net.support import case, expect, expect_equal

from lab.bench import allreduce as bench
from lab.bench import allreduce_rows as allreduce
from lab.bench import cpu_times
from lab.bench import plot
from lab.bench import plot_allreduce
from lab.bench import runs as measured

KIB, MIB = 1 << 10, 1 << 20


FOUR = allreduce.Part(allreduce.ALLREDUCE, 4, (), ())


def runs(*seconds, **fields):
    return [allreduce.Run(found, **fields) for found in seconds]


@case(10)
def an_allreduce_takes_as_long_as_its_slowest_rank():
    expect_equal(measured.slowest([[1, 5, 3], [2, 4, 9]]), [2, 5, 9], "times of two ranks")
    expect_equal(measured.figure(measured.times_of("peer", {"mismatches": 0, "times": [2, 9, 5]})),
                 5, "a run's figure")
    try:
        measured.times_of("peer", {"mismatches": 3, "times": [1]})
    except measured.LabError as error:
        expect_equal(str(error), "peer: 3 elements are wrong", "what is said of wrong elements")
    else:
        raise AssertionError("a run with wrong elements has a figure")


@case(10)
def rows_hold_the_better_set_up_of_both_sides_and_whether_the_goal_is_reached():
    ours = {"af_xdp 3474": runs(0.004, 0.002, 0.003), "af_packet 9000": runs(0.001, 0.0025, 0.009)}
    theirs = {"MTU 9000": runs(0.005, 0.008, 0.006), "MTU 65535": runs(0.010, 0.001, 0.009)}
    row = allreduce.make_row(FOUR, MIB, "openmpi-tcp", ours, theirs)
    expect_equal((row["setup"], row["transport"], row["peer_setup"]),
                 ("af_packet 9000", "af_packet", "MTU 9000"),
                 "the set-ups with the smaller medians")
    expect(abs(row["ratio"] - 0.006 / 0.0025) < 1e-9, f"ratio {row['ratio']} instead of 2.4")
    expect(abs(row["gbps"] / row["peer_gbps"] - row["ratio"]) < 1e-9,
           "the ratio is not that of the goodputs")
    expect(abs(row["gbps"] - MIB * 8 / 0.0025 / 1e9) < 1e-9, f"goodput {row['gbps']}")
    expect(abs(row["latency_us"] - 2500) < 1e-6, f"latency {row['latency_us']}")
    expect_equal((row["raw"]["seconds"], row["raw"]["peer_seconds"]),
                 ({"af_xdp 3474": [0.004, 0.002, 0.003], "af_packet 9000": [0.001, 0.0025, 0.009]},
                  {"MTU 9000": [0.005, 0.008, 0.006], "MTU 65535": [0.010, 0.001, 0.009]}),
                 "the raw numbers")
    expect_equal((row["cpu_seconds_per_mib"], row["busy_runs"], "bare" in row), (None, 0, False),
                 "what was not measured")
    expect_equal((row["goal"], row["reached"]), ("ratio >= 2", True), "the goal from 64 KiB")

    def reached(size, peer, seconds, peer_seconds):
        return allreduce.make_row(FOUR, size, peer, {"memif 9000": runs(seconds)},
                                  {"x": runs(peer_seconds)})["reached"]
    expect_equal(reached(64 * KIB, "openmpi-tcp", 1.0, 1.99), False, "a ratio of 1.99")
    expect_equal(reached(64 * KIB, "openmpi-tcp", 1.0, 2.0), True, "a ratio of 2")
    expect_equal(reached(16 * KIB, "openmpi-tcp", 1.0, 0.1), None, "sizes without a goal")
    expect_equal(reached(KIB, "openmpi-tcp", 1.0, 1.0), True, "the same latency")
    expect_equal(reached(KIB, "openmpi-tcp", 1.01, 1.0), False, "a higher latency")
    expect_equal(reached(256 * KIB, "openmpi-shm", 1.0, 1.49), False,
                 "shared memory below its goal")
    expect_equal(reached(64 * KIB, "openmpi-shm", 1.0, 0.5), None, "shared memory below 256 KiB")
    expect_equal(reached(MIB, "gloo-tcp", 1.0, 0.5), None, "Gloo, for which no goal is set")


@case(10)
def rows_in_place_stand_beside_the_same_mtu_the_best_one_and_the_bare_exchange():
    def row_of(size, seconds, peer_seconds, bare_seconds=1.0, **fields):
        return allreduce.make_row(FOUR, size, allreduce.IN_PLACE,
                                  {"udp 1500": runs(seconds, **fields)},
                                  {"MTU 1500": runs(peer_seconds * 2),
                                   "MTU 65535": runs(peer_seconds, **fields)},
                                  runs(bare_seconds, **fields))
    row = row_of(MIB, 2.0, 3.0, 1.5, cpu_seconds_per_mib=0.25, other_cores=0.1)
    expect_equal((row["ratio"], row["peer_setup"], row["same_mtu"]["ratio"]),
                 (1.5, "MTU 65535", 3.0), "ratios to both MTUs")
    expect_equal((row["bare"]["share"], row["bare"]["reached"], row["bare"]["latency_us"]),
                 (0.75, True, 1.5e6), "the bare exchange")
    expect_equal((row["cpu_seconds_per_mib"], row["peer_cpu_seconds_per_mib"],
                  row["bare"]["cpu_seconds_per_mib"], row["busy_runs"]),
                 (0.25, 0.25, 0.25, 0), "CPU times on a quiet machine")
    expect_equal(row_of(MIB, 1.0, 1.0, 0.74)["bare"]["reached"], False,
                 "less than three quarters of the bare exchange")
    expect_equal(row_of(MIB, 1.0, 1.0, other_cores=0.26)["busy_runs"], 3, "runs beside other load")
    for size, ratio, found in ((KIB, 0.99, (False, None)), (KIB, 1.0, (True, None)),
                               (16 * KIB, 0.1, (None, None)),
                               (64 * KIB, 0.89, (False, False)), (64 * KIB, 0.9, (True, False)),
                               (64 * KIB, 1.3, (True, True)),
                               (256 * KIB, 1.1, (True, False)), (256 * KIB, 1.5, (True, True)),
                               (MIB, 1.29, (True, False)),
                               (4 * MIB, 1.14, (False, False)), (16 * MIB, 1.15, (True, False)),
                               (16 * MIB, 1.7, (True, True)),
                               (64 * MIB, 0.1, (None, None))):
        row = row_of(size, 1.0, ratio)
        expect_equal((row["reached"], row["wanted"]), found,
                     f"the goal at {size} bytes with a ratio of {ratio}")


@case(10)
def each_ordinary_mtu_has_rows_of_its_own_before_all_others():
    samples = {(KIB, "fanin"): {"udp 1500": runs(1.0), "udp 9000": runs(2.0),
                                "af_packet 9000": runs(4.0), "af_packet 61184": runs(5.0)},
               (KIB, "bare exchange"): {"udp 1500": runs(0.5), "udp 9000": runs(1.9)},
               (KIB, allreduce.IN_PLACE): {"MTU 1500": runs(8.0), "MTU 9000": runs(6.0),
                                           "MTU 65535": runs(4.0)},
               (KIB, "openmpi-tcp"): {"MTU 65535": runs(8.0)},
               (KIB, "gloo-tcp"): {"MTU 65535": runs(8.0)}}
    setups = [setup for setup in allreduce.SETUPS if setup in samples[(KIB, "fanin")]]
    rows = allreduce.rows_of(FOUR._replace(setups=setups, sizes=[KIB]), samples)
    expect_equal([(row["setup"], row["peer"]) for row in rows],
                 [("udp 1500", allreduce.IN_PLACE), ("udp 9000", allreduce.IN_PLACE),
                  ("af_packet 9000", "openmpi-tcp"),
                  ("af_packet 9000", "gloo-tcp"), ("af_packet 61184", "openmpi-tcp"),
                  ("af_packet 61184", "gloo-tcp")], "rows")
    expect_equal([(row["same_mtu"]["ratio"], row["ratio"], row["bare"]["share"])
                  for row in rows[:2]],
                 [(8.0, 4.0, 0.5), (3.0, 2.0, 0.95)], "ratios in place")


@case(10)
def cpu_times_are_those_of_the_loop_and_the_rest_is_other_load():
    begin, end = cpu_times.Moment(10.0, 5.0, 100.0), cpu_times.Moment(12.0, 7.0, 101.5)
    expect_equal(cpu_times.load_between(begin, end, 2), cpu_times.Load(2.0, 0.25),
                 "own time, and what two cores had beside it and idleness")
    expect_equal(cpu_times.load_between(begin, end._replace(free=103.0), 2).other_cores, 0.0,
                 "idleness told in steps")
    load = cpu_times.Load(3.0, 0.5)
    expect_equal(allreduce.run_of(0.1, 2 * MIB, 4, load), allreduce.Run(0.1, 0.5, 0.5),
                 "CPU time per MiB of all allreduces but the last")
    expect_equal(allreduce.run_of(0.1, MIB, 4, None), allreduce.Run(0.1, None, None),
                 "a run whose time is not known")


@case(10)
def tcp_peers_are_compared_with_links_and_shared_memory_with_memif():
    samples = {(KIB, "fanin"): {"af_xdp 3474": runs(3.0), "memif 9000": runs(1.0)},
               (KIB, "openmpi-tcp"): {"MTU 9000": runs(6.0)},
               (KIB, "gloo-tcp"): {"MTU 9000": runs(9.0)},
               (KIB, "openmpi-shm"): {"shared memory": runs(4.0)}}
    rows = allreduce.rows_of(FOUR._replace(setups=["af_xdp 3474", "memif 9000"], sizes=[KIB]),
                             samples)
    expect_equal([(row["peer"], row["transport"], row["ratio"]) for row in rows],
                 [("openmpi-tcp", "af_xdp", 2.0), ("gloo-tcp", "af_xdp", 3.0),
                  ("openmpi-shm", "memif", 4.0)], "rows")


@case(10)
def plots_draw_each_line_once_in_order_of_size():
    rows = [{"bytes": size, "peer": peer, "gbps": size / 2, "peer_gbps": speed}
            for peer, speed in (("a", 1.0), ("b", 3.0)) for size in (64, 16)]
    expect_equal(plot.series_of(rows, "peer"),
                 ("message", {"fanin (a)": [(16, 8.0), (64, 32.0)],
                              "peer (a)": [(16, 1.0), (64, 1.0)],
                              "peer (b)": [(16, 3.0), (64, 3.0)]}), "lines of an allreduce's rows")
    expect_equal(plot.series_of([{"payload": 256, "gbps": 4.0, "roofline_gbps": 5.0}], "peer"),
                 ("payload", {"fanin": [(256, 4.0)], "roofline": [(256, 5.0)]}),
                 "lines of the pipeline's rows")
    expect_equal(plot.series_of([{"bytes": 16, "chains": chains, "hosts": 4, "gbps": 1.0}
                                 for chains in (2, 1)], "hosts", "chains"),
                 ("chains", {"fanin (4)": [(1, 1.0), (2, 1.0)]}), "lines of allgathers by chains")
    for rows in ([], [{"payload": 1}], [{"gbps": 1}]):
        try:
            plot.series_of(rows, "peer")
        except plot.PlotError:
            continue
        raise AssertionError(f"rows that can't be drawn were: {rows}")


@case(10)
def other_collectives_and_numbers_of_hosts_have_no_goal_but_latency():
    def row_of(collective, hosts, size, ratio, bare=None):
        part = allreduce.Part(collective, hosts, (), ())
        return allreduce.make_row(part, size, allreduce.IN_PLACE,
                                  {"udp 9000": runs(1.0, other_cores=0.1)},
                                  {"MTU 9000": runs(ratio)}, bare)
    row = row_of("barrier", 16, 0, 0.9)
    expect_equal((row["collective"], row["hosts"], row["mtu"], row["bytes"], row["gbps"]),
                 ("barrier", 16, 9000, 0, 0.0), "what the row is of")
    for collective, hosts, size, ratio, reached in (("barrier", 4, 0, 0.99, False),
                                                    ("barrier", 2, 0, 1.0, True),
                                                    ("allreduce", 8, KIB, 0.9, False),
                                                    ("allreduce", 16, KIB, 1.1, True),
                                                    ("allreduce", 8, MIB, 0.1, None),
                                                    ("broadcast", 4, MIB, 0.1, None),
                                                    ("reduce_scatter", 4, KIB, 0.1, None)):
        row = row_of(collective, hosts, size, ratio)
        expect_equal((row["reached"], row["wanted"], "bare" in row), (reached, None, False),
                     f"{collective} of {hosts} hosts, {size} bytes")
    expect_equal(allreduce.run_of(0.1, 0, 4, cpu_times.Load(3.0, 0.5)),
                 allreduce.Run(0.1, None, 0.5), "a barrier, whose MiB are none")


@case(10)
def what_is_measured_is_each_with_each_or_a_bit_of_all():
    def parts(**given):
        options = argparse.Namespace(**{"bytes": None, "quick": False, "hosts": None,
                                        "collective": None, "transport": None, **given})
        return [(part.collective, part.hosts, len(part.setups), part.sizes)
                for part in bench.parts_of(options)]
    few, many = bench.FEW_SIZES, bench.SIZES
    expect_equal(parts(quick=True), [("allreduce", 4, len(allreduce.SETUPS), few)], "quick")
    expect_equal(parts(quick=True, transport=["udp"], bytes=[KIB]), [("allreduce", 4, 2, (KIB,))],
                 "quick, on UDP sockets")
    expect_equal(parts(), [("allreduce", 4, len(allreduce.SETUPS), many),
                           ("reduce_scatter", 4, 2, few), ("broadcast", 4, 2, few),
                           ("allgather", 4, 2, few),
                           ("barrier", 4, 2, (0,)), ("allreduce", 8, 2, few),
                           ("allreduce", 16, 2, few)], "all")
    expect_equal(parts(hosts=[8], collective=["barrier", "allreduce"]),
                 [("barrier", 8, 2, (0,)), ("allreduce", 8, 2, many)], "what is asked for")
    try:
        parts(collective=["barrier"], transport=["memif"])
    except bench.LabError as error:
        expect_equal(str(error), "barrier: found --transport memif, expected udp",
                     "what is said of a collective without a set-up")
    else:
        raise AssertionError("barriers over memif have no set-up, and were measured")


@case(10)
def pictures_show_each_mtu_beside_the_peer_on_the_same_one_and_at_its_best():
    def row(size, mtu, gbps, best, collective="allreduce", hosts=4):
        return {"peer": allreduce.IN_PLACE, "collective": collective, "hosts": hosts, "mtu": mtu,
                "bytes": size, "gbps": gbps, "peer_gbps": best,
                "same_mtu": {"gbps": gbps / 2}}
    rows = [row(MIB, 1500, 4.0, 3.0), row(KIB, 1500, 1.0, 0.5), row(MIB, 9000, 6.0, 3.5),
            row(KIB, 9000, 1.0, 0.25),
            {"peer": "gloo-tcp", "collective": "allreduce", "hosts": 4, "mtu": 9000, "bytes": MIB}]
    expect_equal(plot_allreduce.by_size(rows),
                 {("Fanin", 1500): [(KIB, 1.0), (MIB, 4.0)],
                  ("Open MPI", 1500): [(KIB, 0.5), (MIB, 2.0)],
                  ("Fanin", 9000): [(KIB, 1.0), (MIB, 6.0)],
                  ("Open MPI", 9000): [(KIB, 0.5), (MIB, 3.0)],
                  ("Open MPI at its best", None): [(KIB, 0.5), (MIB, 3.5)]}, "lines")
    expect_equal(len(plot_allreduce.panels_of(rows)), 1,
                 "panels of one number of hosts and one collective")
    rows += [row(MIB, mtu, 2.0, 1.0, hosts=8)
             for mtu in (1500, 9000)] + [row(MIB, mtu, 1.0, 1.0, "broadcast")
                                         for mtu in (1500, 9000)]
    panels = plot_allreduce.panels_of(rows)
    expect_equal(len(panels), 3, "panels of all")
    expect_equal(panels[1][1][:2],
                 ([4, 8], {("Fanin", 1500): [4.0, 2.0], ("Open MPI", 1500): [2.0, 1.0],
                           ("Fanin", 9000): [6.0, 2.0],
                                             ("Open MPI", 9000): [3.0, 1.0]}), "bars by hosts")
    expect_equal(panels[2][1][0], ["allreduce", "broadcast"], "bars by collective")
