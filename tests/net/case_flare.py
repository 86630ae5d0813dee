# SPDX-License-Identifier: BSD-3-Clause
"""Flare's model: the formulae give the paper's numbers, and a real run moves the counters beside
them.
"""

import math

from tests.net.support import KIB, case, expect, expect_equal, run_exact_job, running_lab

from lab.bench import flare_formulae as flare
from lab.bench import flare_model


def expect_near(found, expected, what):
    expect(math.isclose(found, expected, rel_tol=1e-9, abs_tol=1e-9),
           f"{what}: found {found!r}, expected {expected!r}")


@case(10)
def the_formulae_give_the_papers_numbers():
    # Figure 5: four cores that take 4 s per packet, four ports, a packet each second. (S, delta_c,
    # waiting packets)
    for scenario, S, delta_c, waiting in (("A", 4, 1, 0), ("B", 1, 1, 3), ("C", 1, 4, 0)):
        expect_near(flare.queue_length(P=4, S=S, K=4, tau=4, delta=1, delta_c=delta_c), waiting,
                    f"Q of scenario {scenario}")
        expect_near(flare.input_occupancy(P=4, S=S, K=4, tau=4, delta=1, delta_c=delta_c),
                    (waiting + 1) * 4,
                    f"packets in the switch of scenario {scenario}")
    expect_near(flare.spread(1, 4, True), 4, "delta_c of scenario C")
    expect_near(flare.spread(1, 2, True), 2, "delta_c with two blocks")
    expect_near(flare.spread(1, 4, False), 1, "delta_c of scenario B")
    # Section 6: 512 cores in clusters of 8 that need 1024 cycles for a packet of 1 KiB, and are
    # just fast enough.
    L, C, K, P = 1024, 8, 512, 64
    delta = L / K
    expect_equal(flare.least_blocks_without_contention(L, delta), 512,
                 "KiB from which one buffer has no contention")
    expect_equal(flare.least_blocks_without_contention(L, delta, B=4), 128,
                 "KiB up to which only the tree has none")
    expect_near(flare.service_time("single", L, P, C, C, delta_c=L), L,
                "tau of one buffer, large messages")
    expect_near(flare.service_time("single", L, P, 1, C, delta_c=delta), L,
                "tau of one buffer, S = 1")
    expect_near(flare.service_time("single", L, P, C, C, delta_c=L - 1),
                (1 + 2 + 3 + 4 + 5 + 6 + 7 + 8) * L / 8,
                "tau of one buffer, small messages")
    expect_near(flare.service_time("multi", L, P, C, C, delta_c=L / 4, B=4), L + 3 * L / P,
                "tau of four buffers")
    expect_near(flare.service_time("tree", L, P, C, C, delta_c=delta), 63 * L / 64,
                "tau of the tree")
    expect_near(flare.buffers_per_block("tree", P), 63 / 6, "M of the tree")
    # Section 6.1.1: working memory of around 512 KiB, at any number of ports.
    for P in (4, 64):
        Q = flare.queue_length(P, C, K, L, delta, delta_c=L)
        latency = flare.block_latency(P, Q, L, delta_c=L)
        expect_near(flare.working_memory(1, flare.bandwidth(K, L, delta), P, latency), 512,
                    f"KiB of working memory, {P} ports")


@case(thorough=True)
def the_counters_of_flares_model_move():
    with running_lab(flare_model.HOSTS, config=flare_model.workers_config(2)) as lab:
        for handler in flare.HANDLERS:
            for stagger in (True, False):
                found = flare_model.run_once(lab, handler, 256 * KIB, stagger)
                where = f"{handler}, stagger {stagger}: {found}"
                stats = found["stats"]
                expect_equal(stats["results"], stats["blocks"],
                             f"blocks begun and finished, {where}")
                expect_equal(stats["contributions"], stats["results"] * flare_model.HOSTS,
                             f"contributions, {where}")
                expect(stats["block_ns"] > 0, f"no time passed in blocks, {where}")
                # More blocks than slots can't be open at a time.
                expect(found["open_blocks"] <= found["slots"],
                       f"more open blocks than slots, {where}")
                expect(found["tau_ns"] > 0, f"the workers were never busy, {where}")
                expect(found["waiting"] >= 1,
                       f"less than its own packets wait for a burst, {where}")
                expect(flare_model.predict(found, 2, 10.0)["latency_ns"] > 0,
                       f"no latency predicted, {where}")
        job = lab.create_job()
        run_exact_job(lab, "a job to look at", job=job, bytes=64 * KIB)
        for words, verb in ((("BLOCK TIME", "INTERARRIVAL", " us"), "jobs"),
                            (("WAITING",), "stats")):
            shown = lab.ctl(verb).stdout
            for word in words:
                expect(word in shown, f"'{word}' is not in what faninctl {verb} shows:\n{shown}")


@case(10)
def histograms_and_tables_of_the_model_are_right():
    for histogram, share, bucket in (({"0": 99, "1": 1}, 0.99, "0"),
                                     ({"0": 98, "1": 1, "2-3": 1}, 0.99, "1"),
                                     ({"64-127": 5, "0": 5, "4096-": 5}, 1.0, "4096-"),
                                     ({}, 0.99, "-")):
        expect_equal(flare_model.percentile_bucket(histogram, share), bucket,
                     f"{share} of {histogram}")
    expect_equal(flare_model.render(("a", "b", "c", "d"), [(1, 22, 3, 4)], True),
                 "| a | b | c | d |\n|---|---|---|---:|\n| 1 | 22 | 3 | 4 |", "Markdown")
    expect_equal(flare_model.render(("a", "b"), [(1, 22)], False), "a   b\n1  22", "text")
