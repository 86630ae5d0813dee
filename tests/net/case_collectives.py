# SPDX-License-Identifier: BSD-3-Clause
"""All collectives: exact under loss, through one switch and through a tree of them, and refused if
ranks disagree.
"""

import json
import re
import signal

from tests.net.support import (KIB, case, expect, expect_equal, expect_exact,
                               expect_unless_repeated, reports_of, run_exact_job, running_lab,
                               start_ranks)
from tests.net.case_levels import finish, running_fabric, start
from lab.fabric import leaf_spine
from lab.namespaces import HOST_INTERFACE, SWITCH_IP, program
from lab.traffic import link_bytes

COLLECTIVES = ("allreduce", "reduce", "reduce_scatter", "broadcast", "allgather", "barrier")
HANDLERS = ("single", "multi", "tree", "pull")
DTYPES = ("f32", "i64", "bf16", "u8", "f64", "i16")
LOSS = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 9}}
KEY = "0x5eed"


def size_of(collective, ranks, size=200 * KIB):
    """Returns a size that packets don't divide, but ranks of eight-byte elements do; a barrier has
    none.
    """
    return 0 if collective == "barrier" else size - size % (8 * ranks) + 8 * ranks


@case(120)
def every_collective_is_exact_under_loss_with_every_handler():
    with running_lab(4, config=LOSS) as lab:
        for handler in HANDLERS:
            job = lab.create_job(None, "--handler", handler)
            for number, (collective, dtype) in enumerate(zip(COLLECTIVES, DTYPES)):
                for in_place in (False, True):
                    reports = run_exact_job(lab, f"{collective} by {handler}, in place {in_place}",
                                            job=job, dtype=dtype,
                                            collective=collective, bytes=size_of(collective, 4),
                                            iters=3, in_place=in_place,
                                            root=number % 4)
                    expect_equal({report["collective"] for report in reports}, {collective},
                                 "collective")
            lab.ctl("jobs", "destroy", job["id"])
        expect(lab.drops()["fault_drop"] > 0, "no packet was lost")


@case(60)
def every_collective_is_exact_on_memif():
    with running_lab(3, "memif", config=LOSS) as lab:
        for collective in COLLECTIVES:
            run_exact_job(lab, f"{collective} on memif", collective=collective,
                          bytes=size_of(collective, 3), root=2)


@case(60)
def one_rank_alone_has_all_collectives():
    with running_lab(1) as lab:
        for collective in COLLECTIVES:
            run_exact_job(lab, f"{collective} alone", collective=collective,
                          bytes=size_of(collective, 1))


@case(120)
def every_collective_is_exact_through_a_tree_of_switches():
    """All ranks of a leaf may have no data for a block of a broadcast or an allgather: their switch
    then sends none up.
    """
    with running_fabric(leaf_spine(2, 1, 4), config=LOSS) as fabric:
        ranks = {host: host for host in range(4)}
        for handler in HANDLERS:
            fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks, handler=handler)
            for collective in COLLECTIVES:
                reports = finish(fabric,
                                 start(fabric, 5, ranks, collective=collective, iters=2, root=3,
                                               bytes=size_of(collective, 4, 50 * KIB)))
                expect_exact(reports, f"{collective} by {handler} through three switches", handler)
            fabric.uninstall(5, fabric.tree("spine0", ranks))


def shares_carried(lab, size, collective):
    """Returns ([(received, sent)] of each host in multiples of the vector, reports) of a job whose
    root is rank 2.
    """
    before = [link_bytes(lab.host_namespace(host), HOST_INTERFACE) for host in range(4)]
    reports = run_exact_job(lab, collective, collective=collective, bytes=size, root=2)
    return [tuple((after - earlier) / size for after,
                  earlier in zip(link_bytes(lab.host_namespace(host), HOST_INTERFACE),
                                 before[host]))
            for host in range(4)], reports


@case(60)
def who_has_no_data_sends_headers_only():
    """Checks the share of the vector's bytes that each host sends, including headers, at MTU 9000.
    All receive the vector.
    """
    size = 4096 * KIB
    with running_lab(4, "af_packet", 9000) as lab:
        for collective, shares in (("broadcast", (0.02, 0.02, 1, 0.02)),
                                   ("allgather", (0.25,) * 4)):
            def claim(collective=collective, shares=shares):
                wrong = []
                carried, reports = shares_carried(lab, size, collective)
                for host, ((received, sent), share) in enumerate(zip(carried, shares)):
                    if sent > share * 1.1 or not 1 <= received <= 1.1:
                        wrong.append(f"{collective}: host {host} sent {sent:.3f} of the vector and "
                                     f"received {received:.3f}, expected {share} and 1")
                return wrong, reports
            expect_unless_repeated(claim)


@case(60)
def who_keeps_no_result_receives_headers_only():
    """Checks the share of the vector's bytes that each link down carries: a P-th of a
    reduce_scatter; of a reduce all to the root and nothing to others. All send the vector.
    """
    size, headers = 4096 * KIB, 0.02
    with running_lab(4, "af_packet", 9000) as lab:
        for collective, shares in (("reduce_scatter", (0.25,) * 4), ("reduce", (0, 0, 1, 0))):
            def claim(collective=collective, shares=shares):
                wrong = []
                carried, reports = shares_carried(lab, size, collective)
                for host, ((received, sent), share) in enumerate(zip(carried, shares)):
                    if not 1 <= sent <= 1.1 or not share <= received <= 1.05 * share + headers:
                        wrong.append(f"{collective}: host {host} sent {sent:.3f} of the vector and "
                                     f"received {received:.3f}, expected 1 and {share}")
                return wrong, reports
            expect_unless_repeated(claim)


@case(120)
def each_link_down_of_a_tree_carries_what_its_owners_keep():
    """In a reduce_scatter 1/8 goes down to each host, and the parts of its four hosts to each leaf;
    each link up carries the vector once.
    """
    size, headers = 8192 * KIB, 0.02
    with running_fabric(leaf_spine(2, 1, 8), mtu=9000) as fabric:
        ranks = {host: host for host in range(8)}
        fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks, handler="single")
        links = [(f"host {host}", fabric.host_namespace(host), HOST_INTERFACE, 1 / 8)
                 for host in range(8)]
        links += [(leaf, fabric.switch_ns(leaf), f"to-{spine}", 1 / 2) for leaf,
                  spine in fabric.topology.links]

        def claim():
            before = [link_bytes(namespace, interface) for _, namespace, interface, _ in links]
            reports = finish(fabric, start(fabric, 5, ranks, collective="reduce_scatter",
                                           bytes=size, warmup=0, iters=1))
            expect_exact(reports, "reduce_scatter through three switches")
            wrong = []
            for (name, namespace, interface, share), earlier in zip(links, before):
                received, sent = ((after - first) / size for after,
                                  first in zip(link_bytes(namespace, interface), earlier))
                if not 1 <= sent <= 1.1 or not share <= received <= 1.05 * share + headers:
                    wrong.append(f"{name} sent {sent:.3f} of the vector and received "
                                 f"{received:.3f}, expected 1 and {share}")
            return wrong, reports
        expect_unless_repeated(claim)


def with_background(arguments):
    return ["/usr/bin/env", "FANIN_BACKGROUND_PROGRESS=1", *arguments]


@case(60, also_over_udp=True)
def a_host_that_computes_is_not_waited_for_if_it_has_a_progress_thread():
    with running_lab(3, config=LOSS) as lab:
        for transport in ("af_xdp", "af_packet"):
            job = lab.create_job()

            def spawn(rank, does):
                return [program("computing"), SWITCH_IP, transport, rank, 3, job["id"], job["key"],
                        does]

            computing = lab.spawn(0, with_background(spawn(0, "compute")), "computing")
            waiting = [lab.spawn(rank, spawn(rank, "wait"), "waiting") for rank in (1, 2)]
            for rank, process in enumerate(waiting, 1):
                status = process.wait(60)
                expect(process.stdout(),
                       f"rank {rank} printed nothing, status {status}: {process.last_words()}")
                report = json.loads(process.stdout())
                expect(report["ok"], f"rank {rank} with {transport}: {report}")
            expect(computing.popen.poll() is None,
                   f"rank 0 ended while it computed: {computing.last_words()}")
            computing.popen.send_signal(signal.SIGUSR1)
            computing.wait(60)
            report = json.loads(computing.stdout())
            expect(report["ok"], f"rank 0 with {transport}: {report}")
            expect_equal(report["computed"], report["bytes"],
                         "bytes that were done before it called the library again")
            lab.ctl("jobs", "destroy", job["id"])


@case(180, also_over_udp=True)
def two_communicators_of_one_process_are_independent():
    two_communicators(lambda arguments: arguments)
    two_communicators(with_background)


def two_communicators(how):
    with running_lab(4, config=LOSS) as lab:
        for transport in ("auto", "af_packet"):
            jobs = [lab.create_job(None, "--handler", handler) for handler in ("single", "tree")]
            arguments = [argument for job in jobs for argument in (job["id"], job["key"])]
            ranks = [lab.spawn(rank, how([program("two-communicators"), SWITCH_IP, transport, rank,
                                          4, *arguments]), "two")
                     for rank in range(4)]
            reports = []
            for rank, process in enumerate(ranks):
                status = process.wait(60)
                expect(process.stdout(),
                       f"rank {rank} printed nothing, status {status}: {process.last_words()}")
                reports.append(json.loads(process.stdout()))
            for rank, report in enumerate(reports):
                expect(report["ok"], f"rank {rank} with {transport}: {report}")
            last_came = max(report["came_ns"] for report in reports)
            first_went = min(report["went_ns"] for report in reports)
            expect(last_came <= first_went,
                   f"a rank passed the barrier {last_came - first_went} ns before the last one came")
            for job in jobs:
                lab.ctl("jobs", "destroy", job["id"])


@case(30)
def ranks_that_disagree_are_told_so():
    with running_lab(2) as lab:
        for options, other, words in (
                ({"collective": "broadcast", "root": 0}, {"collective": "broadcast", "root": 1},
                 "of rank 1"),
                ({"collective": "broadcast", "root": 0}, {"collective": "reduce", "root": 0},
                 "f32 sum"),
                ({"collective": "allgather"}, {"collective": "reduce_scatter"}, "f32 sum")):
            job = lab.create_job()
            reports = reports_of(lab,
                                 [lab.spawn_perf(rank, job, rank, 2, bytes=KIB,
                                                 transport=lab.transport, timeout_ms=2000,
                                                      **each) for rank,
                                  each in enumerate((options, other))])
            messages = [report["error"]["message"] for report in reports]
            expect(any("type, operator or count differ" in message for message in messages),
                   f"errors: {messages}")
            expect(any(words in message or "of rank 0" in message for message in messages),
                   f"errors: {messages}")
            lab.ctl("jobs", "destroy", job["id"])


@case(60)
def all_ranks_hear_who_disagrees_and_about_what():
    """This holds whether their own packets fit or not. None is told that others have ended, which
    they do because of the mismatch.
    """
    with running_lab(4) as lab:
        for handler in ("single", "multi", "tree"):
            for odd in (0, 3):
                job = lab.create_job(None, "--handler", handler)
                ranks = [lab.spawn_perf(rank, job, rank, 4, bytes=2 * KIB if rank == odd else KIB,
                                        transport=lab.transport, timeout_ms=10000)
                         for rank in range(4)]
                messages = [report["error"]["message"] for report in reports_of(lab, ranks)]
                for rank, message in enumerate(messages):
                    expect("type, operator or count differ from the block's, which another rank "
                           "began with " in message,
                           f"{handler}: what rank {rank} is told: {messages}")
                    expect("512 elements f32 sum" in message and "256 elements f32 sum" in message,
                           f"{handler}: rank {rank} is not told of both counts: {messages}")
                expect_equal(len({match.group(1) for message in messages
                                  if (match := re.search("block [0-9]+ of rank ([0-9])",
                                                         message))}), 1,
                             f"ranks whose packets are said not to fit: {messages}")
                lab.ctl("jobs", "destroy", job["id"])


@case(30)
def fanin_perf_says_what_a_collective_wants():
    with running_lab(3) as lab:
        job = {"id": 1, "key": "0x1"}
        for options, words in (({"collective": "gather"},
                                "--collective is 'gather', expected one of: allreduce, reduce"),
                               ({"collective": "broadcast", "root": 3},
                                "--root is 3, expected 0 to 2"),
                               ({"collective": "barrier", "bytes": 4},
                                "--bytes is 4, but a barrier has no data"),
                               ({"collective": "allgather", "bytes": 16},
                                "--bytes is 16, not a multiple of the 12 bytes"),
                               ({"collective": "reduce", "bytes": 6},
                                "--bytes is 6, not a multiple of f32's 4 bytes")):
            process = lab.spawn_perf(0, job, 0, 3, **options)
            expect_equal(process.wait(60), 2, f"exit status for {options}")
            expect(words in process.last_words() or words in process.stderr(),
                   f"said of {options}: {process.last_words()}")
        # The default size is cut for three ranks.
        job = lab.create_job()
        reports = reports_of(lab, start_ranks(lab, job, collective="allgather", bytes=None))
        expect_equal(reports[0]["bytes"], (64 << 20) - (64 << 20) % 12, "bytes")
        expect_exact(reports, "the default size")
