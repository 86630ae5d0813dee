# SPDX-License-Identifier: BSD-3-Clause
"""Every handler is exact, with one worker or several that share blocks, and is chosen as the paper
says.
"""

import math
import os

from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, job_entry,
                               reports_of, run_exact_job, running_lab, start_ranks)

HANDLERS = ("single", "multi", "tree")
FLOATS = ("f16", "bf16", "f32", "f64")


def workers(count, cluster_size=1, policy="dispatch"):
    """Returns the configuration of a switch with that many workers, on any number of CPUs."""
    cpus = os.cpu_count() or 1
    return {"workers": [{"lcore": lcore, "cpu": lcore % cpus} for lcore in range(count)],
            "scheduling": {"policy": policy, "cluster_size": cluster_size}}


def faults(share, seed):
    return {"faults": {"drop": share, "duplicate": share, "reorder": share, "seed": seed}}


@case()
def every_handler_is_exact_in_odd_sizes():
    with running_lab(3) as lab:
        payload = lab.create_job()["payload_bytes"]
        for handler in (*HANDLERS, "pull"):
            for size in (4, payload - 4, payload + 4, MIB + 4):
                run_exact_job(lab, f"{handler}, {size} bytes", handler=handler, bytes=size)


def clusters_are_exact(cluster_size, policy="dispatch"):
    config = workers(4, cluster_size, policy) | faults(0.05, cluster_size)
    with running_lab(4, config=config) as lab:
        for handler in (*HANDLERS, "pull"):
            run_exact_job(lab, f"{handler}, 4 workers, clusters of {cluster_size}", handler=handler,
                          bytes=MIB)
        stats = lab.control.ask("stats")["workers"]
        expect_equal(len({worker["cluster"] for worker in stats}), 4 // cluster_size, "clusters")
        expect(all(worker["packets"] > 0 for worker in stats), f"a worker saw no packets: {stats}")
        expect(sum(worker["handed_over"] for worker in stats) > 0,
               f"no packet went to another cluster: {stats}")
        expect(any(worker["queue_lengths"] for worker in stats),
               f"no queue length was sampled: {stats}")


@case(120)
def four_workers_alone_are_exact_under_loss():
    clusters_are_exact(1)


@case(120, also_over_udp=True)
def four_workers_in_pairs_are_exact_under_loss():
    clusters_are_exact(2)


@case(120)
def four_workers_together_are_exact_under_loss():
    clusters_are_exact(4)


@case(120, also_over_udp=True)
def four_workers_by_rss_are_exact_under_loss():
    clusters_are_exact(1, "rss")


@case(180, also_over_udp=True)
def eight_jobs_of_all_handlers_are_exact_under_loss():
    config = workers(4, 2) | faults(0.05, 11) | {"limits": {"max_jobs": 8, "slots": 1024}}
    with running_lab(4, "af_packet", config=config) as lab:
        jobs = [lab.create_job(None, "--handler", HANDLERS[number % 3]) for number in range(8)]
        ranks = [start_ranks(lab, job, bytes=256 * KIB) for job in jobs]
        for job, started in zip(jobs, ranks):
            expect_exact(reports_of(lab, started, 150), f"job {job['id']}", job["handler"])
        for job in jobs:
            occupancy = job_entry(lab, job)["occupancy"]
            expect(sum(occupancy.values()) > 0, f"job {job['id']}: no slot occupancy was sampled")


@case()
def auto_chooses_by_message_size():
    with running_lab(2) as lab:
        for size, handler, buffers in ((4 * KIB, "tree", 2), (128 * KIB, "tree", 2),
                                       (256 * KIB, "multi", 2),
                                       (512 * KIB, "multi", 4), (MIB, "single", 2)):
            job = lab.create_job(None, "--handler", "auto", "--message-bytes", size)
            entry = job_entry(lab, job)
            expect_equal(entry["handler"], handler, f"handler for {size} bytes")
            expect_equal(entry["buffers"], buffers, f"buffers for {size} bytes")
            run_exact_job(lab, f"auto, {size} bytes", job=job, bytes=size)
            lab.ctl("jobs", "destroy", job["id"])


@case()
def reproducible_jobs_use_the_tree():
    with running_lab(2) as lab:
        job = lab.create_job(None, "--handler", "auto", "--reproducible")
        expect_equal(job["handler"], "tree", "handler")
        expect(job_entry(lab, job)["reproducible"], "the job is not shown as reproducible")
        run_exact_job(lab, "reproducible", job=job, bytes=MIB)
        refused = lab.ctl("jobs", "create", "--member", f"h0:{lab.host_ip(0)}", "--handler",
                          "single",
                          "--reproducible", check=False)
        expect_equal(refused.returncode, 1,
                     "exit status for a reproducible job with the handler single")
        expect("expected \"tree\" or \"auto\"" in refused.stderr,
               f"the refusal says: {refused.stderr}")


@case()
def jobs_that_accumulate_in_f32_say_so_and_are_exact():
    with running_lab(3) as lab:
        native = lab.create_job()
        expect_equal((native["accumulate"], job_entry(lab, native)["accumulate"]),
                     ("native", "native"), "default")
        lab.ctl("jobs", "destroy", native["id"])
        for handler in HANDLERS:
            job = lab.create_job(None, "--handler", handler, "--accumulate", "f32")
            expect_equal((job["accumulate"], job_entry(lab, job)["accumulate"]), ("f32", "f32"),
                         "accumulation")
            table = lab.ctl("jobs").stdout.splitlines()
            expect("ACCUMULATE" in table[0] and " f32 " in table[1],
                   f"the table of jobs: {table[:2]}")
            half = job["payload_bytes"] // 2
            for dtype, op, size, accumulate in (("f16", "sum", half + 2, "f32"),
                                                ("bf16", "avg", MIB + 2, "f32"),
                                                ("f16", "max", half + 2, "native"),
                                                ("f32", "sum", MIB, "native")):
                reports = run_exact_job(lab, f"{handler}, {op} of {dtype}", job=job, dtype=dtype,
                                        op=op, bytes=size)
                expect_equal({report["accumulate"] for report in reports}, {accumulate},
                             f"{op} of {dtype}")
            # Every run of fanin-perf begins with an empty block.
            blocks = [1 + math.ceil(size / payload) for size, payload in
                      ((half + 2, half), (MIB + 2, half), (half + 2, 2 * half), (MIB, 2 * half))]
            expect_equal(job_entry(lab, job)["stats"]["results"], sum(blocks), "blocks")
            lab.ctl("jobs", "destroy", job["id"])
        created = lab.ctl("jobs", "create", "--member", f"h0:{lab.host_ip(0)}", "--accumulate",
                          "f32").stdout
        expect("f16 and bf16 sums in f32" in created, f"jobs create printed {created!r}")


def digests_of(lab, job, where, **options):
    """Runs 100 sums of random data of each floating-point type; returns {type: digest}, the same on
    all ranks.
    """
    digests = {}
    for dtype in FLOATS:
        reports = reports_of(lab,
                             start_ranks(lab, job, bytes=8000, iters=100, dtype=dtype,
                                         data="random", **options))
        expect_exact(reports, f"{dtype} {where}", job["handler"])
        found = {report["digest"] for report in reports}
        expect_equal(len(found), 1, f"different digests on the ranks, {dtype} {where}")
        digests[dtype] = found.pop()
    return digests


@case(180, also_over_udp=True, thorough=True)
def reproducible_sums_have_the_same_bits_with_any_workers():
    """With loss and reordering, in every run, they are the reference's bits; the bits of another
    order would be noticed.
    """
    wanted = None
    for count, cluster_size in ((1, 1), (2, 2), (4, 4)):
        where = f"with {count} workers in clusters of {cluster_size}"
        with running_lab(4, config=workers(count, cluster_size)
                         | faults(0.02, 7 * count + cluster_size)) as lab:
            job = lab.create_job(None, "--handler", "auto", "--reproducible")
            digests = digests_of(lab, job, where)
            wanted = wanted or digests
            expect_equal(digests, wanted, f"digests {where}")
            expect(lab.drops()["fault_drop"] > 0, f"nothing was dropped {where}")
            other = digests_of(lab, lab.create_job(), f"by single, {where}", check=False)
            for dtype in FLOATS:
                expect(other[dtype] != wanted[dtype],
                       f"single has the reproducible bits for {dtype} {where}")


@case()
def random_data_are_checked_on_reproducible_jobs_only():
    with running_lab(2) as lab:
        for handler in ("single", "multi"):
            for report in reports_of(lab,
                                     start_ranks(lab, lab.create_job(None, "--handler", handler),
                                                 bytes=KIB,
                                                      data="random")):
                expect(report["error"], f"{handler}: random data were checked: {report}")
                expect_equal(report["error"]["code"], "unsupported", f"{handler}: error code")
                expect(f"found the handler {handler}, expected tree" in report["error"]["message"],
                       f"the message says: {report['error']['message']}")
        for dtype, op in (("i32", "sum"), ("f32", "max"), ("complex-f32", "prod")):
            rank = lab.spawn_perf(0, lab.create_job(), 0, 2, bytes=KIB, dtype=dtype, op=op,
                                  data="random")
            expect_equal(rank.wait(60), 2, f"exit status for random data for {op} of {dtype}")
