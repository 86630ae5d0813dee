# SPDX-License-Identifier: BSD-3-Clause
"""Sparse allreduces by the real programs: exact with every handler that has them, also under loss,
and without a switch; other handlers refuse them by name.
"""

import os
import random
import signal
import struct
import time

from tests.net import case_levels as levels
from tests.net.case_by_name import expect_ring, run_by_name, spawn_by_name
from tests.net.case_packets import Liar, send_and_count
from tests.net.case_trees import finish, jobs_left, managed_fabric, start
from lab.fabric import leaf_spine, tree3
from tests.net.fake_manager import FakeManager
from tests.net.frames import SPARSE, SPARSE_RESULT, RawPort
from lab.namespaces import SOURCE_DIR, UDP_PORT
from tests.net.pace import Pace
from tests.net.support import (KIB, MIB, CaseFailed, LabError, case, expect, expect_equal,
                               expect_exact, job_entry, reports_of, run, run_exact_job, running_lab,
                               start_ranks, wait_until)

HANDLERS = ("sparse-array", "sparse-hash", "sparse")
PATTERNS = ("uniform", "clustered", "same", "disjoint")
LOSS = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5},
        "limits": {"max_jobs": 1, "slots": 2080}}


def limits():
    return {key: value for key, value in LOSS.items() if key == "limits"}


@case(120, also_over_udp=True)
def sparse_vectors_are_exact_with_every_handler():
    with running_lab(3, config=limits()) as lab:
        for handler in HANDLERS:
            for number, pattern in enumerate(PATTERNS):
                density = (0.3, 0.05, 0.01, 0.001)[number]
                reports = run_exact_job(lab, f"{handler}, {pattern}", handler=handler, sparse=True,
                                        density=density, pattern=pattern,
                                        bytes=MIB, iters=2)
                for report in reports:
                    sparse = report["sparse"]
                    expect(0.7 * density < sparse["density_in"] < 1.3 * density,
                           f"{handler}, {pattern}: {sparse}")
                    expect(sparse["density_in"] <= sparse["density_out"] < 3.5 * density,
                           f"{handler}, {pattern}: {sparse}")
                    expect_equal(sparse["dense_bytes"], 2 * MIB,
                                 "what dense blocks would have taken")
                    # Indices of 2 bytes come with each value of 4.
                    expect(sparse["bytes_sent"] < 2 * density * sparse["dense_bytes"] + 64 * KIB,
                           f"{handler}, {pattern}: {sparse}")


@case(120, also_over_udp=True, family=True)
def sparse_vectors_are_exact_under_loss():
    with running_lab(3, config=LOSS) as lab:
        for handler in HANDLERS:
            reports = run_exact_job(lab, f"{handler} under loss", handler=handler, sparse=True,
                                    density=0.2, bytes=MIB, iters=2)
            expect(any(report["retransmits"] for report in reports), f"{handler}: nothing was lost")
            run_exact_job(lab, f"{handler} under loss, dense", handler=handler, bytes=MIB)


def write_places(lab, places, length):
    """Makes a file for --pattern. places: a list of indices for each rank."""
    path = lab.directory / "places"
    lines = [" ".join(map(str, sorted(mine))) or "-" for mine in places]
    path.write_text(f"# places of {len(places)} ranks\nn {length}\n" + "\n".join(lines) + "\n")
    return path


@case(120)
def values_are_where_a_file_says():
    length = 100003
    chance = random.Random(4)
    places = [set(chance.sample(range(length), 700)), set(range(5000, 9000)) | {0, length - 1},
              set()]
    with running_lab(3, config=limits()) as lab:
        path = write_places(lab, places, length)
        for handler in HANDLERS:
            reports = run_exact_job(lab, f"{handler}, a file", handler=handler, sparse=True,
                                    pattern=path, bytes=4 * length, iters=2)
            for mine, report in zip(places, reports):
                sparse = report["sparse"]
                expect_equal(sparse["pattern"], str(path), "pattern")
                for key, count in (("density", len(places[1])), ("density_in", len(mine)),
                                   ("density_out", len(set().union(*places)))):
                    expect(abs(sparse[key] - count / length) < 1e-8,
                           f"{handler}, {key}: found {sparse[key]}, expected {count / length}")


@case(120)
def sparse_vectors_are_exact_on_every_kind_of_port():
    for transport in ("af_xdp", "af_packet", "memif"):
        with running_lab(3, transport, config=LOSS) as lab:
            for density in (0.01, 1):
                reports = run_exact_job(lab, f"{transport}, density {density}", handler="sparse",
                                        sparse=True, density=density, bytes=MIB, iters=2)
                expect_equal([report["transport"] for report in reports], [transport] * 3,
                             "transports")
            expect(any(report["retransmits"] for report in reports),
                   f"{transport}: nothing was lost")


@case(120, also_over_udp=True)
def sparse_vectors_are_exact_with_tags():
    with running_lab(3, config=LOSS) as lab:
        for handler in HANDLERS:
            job = lab.create_job(None, "--handler", handler, "--authenticate")
            reports = run_exact_job(lab, f"{handler} with tags", job=job, sparse=True, density=0.1,
                                    bytes=MIB, iters=2, authenticate=True)
            expect_equal([report["authenticated"] for report in reports], [True] * 3,
                         "authenticated")
            expect(any(report["retransmits"] for report in reports),
                   f"{handler} with tags: nothing was lost")
            lab.ctl("jobs", "destroy", job["id"])


@case(120)
def sparse_vectors_are_exact_on_workers_that_share_blocks():
    workers = {"workers": [{"lcore": lcore, "cpu": lcore % (os.cpu_count() or 1)}
                           for lcore in range(4)],
               "scheduling": {"policy": "dispatch", "cluster_size": 2}}
    with running_lab(3, config={**LOSS, **workers}) as lab:
        for handler in HANDLERS:
            run_exact_job(lab, f"{handler}, four workers", handler=handler, sparse=True,
                          density=0.05, bytes=2 * MIB, iters=3)


TREE_LIMITS = {"max_jobs": 2, "slots": 2 * 64 * 65}


@case(150, also_over_udp=True, long=True)
def sparse_vectors_are_exact_in_trees_of_switches():
    """The case runs each handler, with tags, with only one host at a leaf, and on three levels;
    packets are lost at each hop.
    """
    config = {"faults": LOSS["faults"], "limits": TREE_LIMITS}
    with levels.running_fabric(leaf_spine(2, 1, 4), config=config) as fabric:
        for handler in HANDLERS:
            levels.run_tree_job(fabric, "spine0", f"{handler} on two levels", handler=handler,
                                sparse=True, density=0.05, bytes=MIB, iters=2)
        levels.run_tree_job(fabric, "spine0", "sparse on two levels with tags", handler="sparse",
                            job_options={"authenticate": True}, authenticate=True,
                     sparse=True, density=0.3, bytes=MIB)
        levels.run_tree_job(fabric, "leaf0", "sparse, one host below another switch",
                            ranks={0: 0, 1: 1, 2: 2}, handler="sparse", sparse=True,
                     pattern="disjoint", bytes=MIB)
    with levels.running_fabric(tree3(8), config=config) as fabric:
        levels.run_tree_job(fabric, "core", "sparse on three levels", handler="sparse", sparse=True,
                            pattern="clustered", bytes=MIB, iters=2)


@case(120)
def sparse_jobs_of_the_manager_are_exact_on_two_levels():
    """Jobs are found by name, one of them with tags; a dense allreduce runs in a job of the same
    handler.
    """
    with levels.running_fabric(leaf_spine(2, 2, 4),
                               config={"faults": LOSS["faults"], "limits": TREE_LIMITS}) as fabric:
        fabric.start_manager()
        options = {"check": True, "no_fallback": True, "transport": fabric.transport, "bytes": MIB,
                   "iters": 2, "handler": "sparse"}
        jobs = {"words": {"sparse": True, "density": 0.02},
                "words-again": {"sparse": True, "density": 0.5, "authenticate": True}, "dense": {}}
        for name, more in jobs.items():
            reports = levels.finish(fabric,
                                    [fabric.spawn_named(host, name, host, 4, **options, **more)
                                     for host in range(4)])
            expect_exact(reports, f"{name} by the manager", "sparse")


GRADIENTS = [SOURCE_DIR / "lab" / "bench" / "gradients.py"]
PYTHON = "/usr/bin/python3"


@case(120)
def gradients_of_words_are_reduced_from_their_file():
    """fanin-perf reads the files of lab/bench/gradients.py. The embedding's file needs no packages.
    """
    with running_lab(4, config=limits()) as lab:
        done = run([PYTHON, *GRADIENTS, lab.directory, "--only", "words", "--workers", "4",
                    "--words", "4096", "--columns", "32",
                    "--tokens", "128"])
        fields = done.stdout.splitlines()[1].split()
        expect_equal(fields[:2], ["words.txt", str(4096 * 32)], "file and length")
        path = lab.directory / "words.txt"
        lines = [line.split() for line in path.read_text().splitlines()[2:]]
        expect_equal([min(map(len, lines)), max(map(len, lines))],
                     [int(field) for field in fields[2:4]], "values of the workers")
        for line in lines:
            rows = {int(index) // 32 for index in line}
            expect_equal(len(line), 32 * len(rows), "values of whole rows")
            expect(0 in rows and len(rows) < 128,
                   f"rows of 128 words, the first of which is the most frequent: {sorted(rows)}")
        for report in run_exact_job(lab, "words", handler="sparse", sparse=True, pattern=path,
                                    bytes=4 * 4096 * 32):
            expect(abs(report["sparse"]["density_out"] - float(fields[6]) / 100) < 1e-4,
                   f"{report['sparse']}, {done.stdout}")


@case()
def gradients_without_their_packages_name_them():
    """Without site-packages Python finds no PyTorch, whether it is installed or not."""
    done = run([PYTHON, "-S", *GRADIENTS, "/nowhere"], check=False)
    expect_equal((done.returncode, done.stdout, done.stderr.count("\n")), (1, "", 1),
                 f"exit status, output, lines of errors ({done.stderr})")
    for words in ("PyTorch", "apt-get install python3-torch dataset-fashion-mnist",
                  "/usr/bin/python3"):
        expect(words in done.stderr, f"found {done.stderr!r}, expected '{words}'")


@case()
def a_file_of_places_that_is_wrong_ends_the_rank_that_reads_it():
    with running_lab(2, config=limits()) as lab:
        job = lab.create_job(None, "--handler", "sparse")
        path = write_places(lab, [{1, 2}], 1000)
        rank = lab.spawn_perf(1, job, 1, 2, sparse=True, pattern=path)
        expect_equal(rank.wait(60), 2, "exit status")
        expect_equal(rank.stderr().splitlines()[0],
                     f"fanin-perf: --pattern {path}: found 1 lines of indices, expected 2, one for "
                     "each rank",
                     "the error")


def wait_for_a_stop(lab, job):
    """Waits until the job has open blocks and makes no results any more. Returns the first block
    without a result.
    """
    def standing():
        before = job_entry(lab, job)["stats"]
        time.sleep(1)
        after = job_entry(lab, job)["stats"]
        return after["blocks"] > after["results"] == before["results"] > 10
    wait_until(standing, 60, "a rank that pauses to stop the job")
    return job_entry(lab, job)["stats"]["results"]


def span_of_results(watcher):
    """Returns the indices of a block, as the results say that came to a host."""
    spans = {struct.unpack_from("<I", frame, 42 + 40)[0] for _, frame in watcher.arrived()
             if len(frame) > 96 and frame[23] == 17 and frame[36:38] == struct.pack("!H", UDP_PORT)
             and frame[43] == SPARSE_RESULT}
    expect(spans, "no result of a sparse block was seen")
    return max(spans)


@case(120, long=True)
def shards_that_a_member_forges_are_refused_and_in_no_result():
    """
    Host 1 pauses in an allreduce, and sends shards that nobody should send, for blocks that wait
    for it. Host 1 learns the reason; the others get no wrong result because of it, and name it.
    """
    with running_lab(3, "af_packet", config=limits()) as lab:
        job = lab.create_job(None, "--handler", "sparse")
        with RawPort(lab.host_namespace(0)) as watcher, RawPort(lab.host_namespace(1)) as port:
            ranks = [lab.spawn_perf(host, job, host, 3, sparse=True, density=0.03, bytes=16 * MIB,
                                    iters=3, check=True, transport=lab.transport,
                                    **({"pause": 12, "pause_at": 1, "pause_busy": True}
                                       if host == 1 else {}))
                     for host in range(3)]
            block = wait_for_a_stop(lab, job)
            span, epoch = span_of_results(watcher), job_entry(lab, job)["epoch"]
            liar = Liar(lab, job, 1, 1)
            # Indices have 2 bytes, so an index at the span can be written.
            expect(span < 65536, f"the span is {span}, expected one whose indices have 2 bytes and "
                                 "others than those of the block")
            width = "H"

            def shard(indices, number=0, total=1, span=span, form=0, block=block, payload=None,
                      **changes):
                if payload is None:
                    payload = struct.pack(f"<{len(indices)}f{len(indices)}{width}", *indices,
                                          *indices)
                fields = {"dtype": "f32", "op": "sum", "count": len(indices), "epoch": epoch,
                          "block": block,
                          "members": span | number << 32 | total << 40 | form << 48, **changes}
                return liar.make(SPARSE, payload, **fields)

            def bitmap(values, word, first):
                return struct.pack(f"<{values}fQI", *range(values), word, first)
            for name, what, frame in (
                    ("count_invalid", "an index at the span", shard([3, span])),
                    ("count_invalid", "the largest index",
                     shard([(1 << 8 * struct.calcsize(width)) - 1, 3])),
                    ("count_invalid", "a bit too many",
                     shard([1, 2], form=1, payload=bitmap(2, 0b111, 0))),
                    ("count_invalid", "bits beyond the span",
                     shard([1], form=1, payload=bitmap(1, 1, (span + 63) // 64 * 64))),
                    ("count_invalid", "bits that begin within a word",
                     shard([1], form=1, payload=bitmap(1, 1, 8))),
                    ("count_invalid", "another form", shard([1], form=2)),
                    ("count_invalid", "the 65th shard", shard([1], number=64, total=0)),
                    ("count_invalid", "65 shards", shard([1], number=64, total=65)),
                    ("count_invalid", "a last one that is not the last",
                     shard([1], number=0, total=2)),
                    ("count_invalid", "more values than bytes", shard([1], count=2)),
                    ("count_invalid", "a span of nothing", shard([1], span=0)),
                    ("block_out_of_window", "a block that is far ahead",
                     shard([1], block=block + 10000)),
                    ("port_wrong", "another rank", shard([1], rank=0)),
                    ("direction_wrong", "a result",
                     liar.make(SPARSE_RESULT, epoch=epoch, block=block, dtype="f32", op="sum",
                               members=span | 1 << 40)),
                    ("collective_mismatch", "a shorter span", shard([1], span=span - 64)),
                    ("collective_mismatch", "another operator", shard([1], op="max")),
                    ("collective_mismatch", "a dense block",
                     liar.contribution(epoch=epoch, block=block))):
                # All ranks hear of the first shard that does not fit its block, and end.
                if what == "a shorter span":
                    expect(all(rank.running() for rank in ranks),
                           "a rank has ended before the forger went on")
                try:
                    send_and_count(lab, port, name, frame)
                except (CaseFailed, LabError) as error:
                    raise CaseFailed(f"{what}: {error}") from error
        reports = reports_of(lab, ranks)
        for host, report in enumerate(reports):
            expect_equal((report["mismatches"], report["checked"], report["iters"]), (0, True, 1),
                         f"wrong elements and rounds of rank {host}")
        expect_equal(reports[1]["error"]["code"], "refused",
                     f"the forger's error ({reports[1]['error']})")
        expect(f"the switch refused block {block} ({span} indices f32 sum): " in reports[
            1]["error"]["message"], reports[1]["error"]["message"])
        for report in (reports[0], reports[2]):
            expect_equal(report["error"]["code"], "refused",
                         f"error of another one ({report['error']})")
            expect(f"the switch refused block {block} of rank 1 (" in report["error"]["message"],
                   f"whom another one names ({report['error']})")


@case()
def jobs_without_sparse_blocks_say_so():
    with running_lab(2) as lab:
        job = lab.create_job(None, "--handler", "single")
        for report in reports_of(lab, start_ranks(lab, job, sparse=True)):
            expect_equal(report["error"]["code"], "unsupported", "the error")
            expect("handler single has no allreduce_sparse" in report["error"]["message"],
                   report["error"]["message"])


@case(180, also_over_udp=True, thorough=True)
def sparse_allreduces_go_on_when_a_spine_dies():
    """Two spines die for each handler, the second one once the job has moved to it."""
    loss = {"drop": 0.002, "duplicate": 0.002, "reorder": 0.002, "seed": 7}
    for handler, density in (("sparse", 0.05), ("sparse-hash", 0.2)):
        with managed_fabric(leaf_spine(2, 3, 4),
                            config={"faults": loss,
                                    "limits": {"max_jobs": 1, "slots": 2080}}) as fabric:
            ranks = start(fabric, "job", 1, handler=handler, sparse=True, density=density, iters=60)

            def job_of(spine, fabric=fabric):
                return (fabric.ask(spine, "jobs.list")["jobs"] or [{"stats": {"results": 0}}])[0]

            def root_of(fabric=fabric):
                """Returns None while the job has no tree, as between two."""
                nodes = [node for tree in fabric.ask_manager("trees")["trees"]
                         for node in tree["nodes"]]
                return nodes[0]["switch"] if nodes else None

            for moved in (1, 2):
                roots = []
                wait_until(lambda roots=roots,
                           root_of=root_of: roots.append(root_of()) or roots[-1] is not None, 60,
                           "a tree")
                spine = roots[-1]
                wait_until(lambda spine=spine: job_of(spine)["stats"]["results"] > 200, 60,
                           f"results over {spine}")
                fabric.switches[spine].popen.kill()
                fabric.switches[spine].popen.wait()
                wait_until(lambda moved=moved: fabric.ask_manager(
                    "stats")["counters"]["jobs_moved"] == moved, 60, "the tree to move")
            reports = finish(fabric, ranks)
            expect_exact(reports, f"{handler} and a spine killed twice", handler)
            for rank, report in enumerate(reports):
                expect_equal(report["resumed"], 2, f"{handler}: runs taken up again by rank {rank}")
            wait_until(lambda fabric=fabric: not any(jobs_left(fabric).values()), 60,
                       "the job to be gone from all switches")


@case(120, also_over_udp=True)
def dense_vectors_that_may_be_sparse_take_the_shorter_way():
    with running_lab(3, config=LOSS) as lab:
        # 90 % of three ranks' values fill the result.
        for density, taken in ((0.02, 2), (0.9, 0)):
            for report in run_exact_job(lab, f"density {density}", handler="sparse",
                                        maybe_sparse=True, density=density, bytes=MIB, iters=2,
                                        in_place=True):
                sparse = report["sparse"]
                expect_equal((sparse["maybe_sparse"], sparse["maybe_sparse_taken"]), (2, taken),
                             f"calls at density {density}")
                expect_equal(sparse["dense_bytes"], taken * MIB,
                             "what dense blocks would have taken")
        # The hint is ignored where nothing can carry sparse blocks.
        for report in run_exact_job(lab, "a dense job", maybe_sparse=True, density=0.02, bytes=MIB):
            expect_equal(report["sparse"]["maybe_sparse"], 0, "calls that could be sparse ones")


@case(240, thorough=True)
def sparse_vectors_are_exact_without_a_switch():
    with running_lab(8) as lab, FakeManager(lab, ring="test") as manager:
        for size in (2, 3, 5, 8):
            for number, pattern in enumerate(PATTERNS):
                density = (0.3, 0.05, 0.01, 0.001)[number]
                options = {"bytes": MIB, "iters": 2, "dtype": ("f32", "u8", "f16", "i64")[number]}
                where = f"{size} ranks, {pattern}"
                reports = run_by_name(lab, manager, range(size), sparse=True, density=density,
                                      pattern=pattern, **options)
                expect_ring(reports, where, "test")
                for report in reports:
                    sparse = report["sparse"]
                    expect_equal(sparse["algorithm"], "recursive-doubling", f"{where}: how it ran")
                    expect(0.7 * min(density, 1 / size) < sparse["density_in"] < 1.3 * density,
                           f"{where}: {sparse}")
                    expect(sparse["density_in"] <= sparse["density_out"] < size * 1.1 * density,
                           f"{where}: {sparse}")
                    expect_equal(sparse["blocks"], 2, f"{where}: collectives")
                    expect(0 <= report["tcp_bytes_sent"] - sparse["bytes_sent"] < KIB,
                           f"{where}: {report}")
                if pattern != "disjoint":
                    hinted = run_by_name(lab, manager, range(size), maybe_sparse=True,
                                         density=density, pattern=pattern, **options)
                    expect_ring(hinted, f"{where}, maybe sparse", "test")
                    taken = {report["sparse"]["maybe_sparse_taken"] for report in hinted}
                    expect(len(taken) == 1,
                           f"{where}: ranks differ in how many were sparse: {taken}")
                    if pattern == "same":
                        expect_equal(taken, {2}, f"{where}: how many were sparse")
                    if pattern == "uniform" and size == 8:
                        expect_equal(taken, {0}, f"{where}: how many were sparse")
                dense = run_by_name(lab, manager, range(size), **options)
                expect_ring(dense, f"{where}, dense", "test")
                told = {report["rank"]: report["sparse"]["dense_bytes"] for report in reports}
                for report in dense:
                    # Barriers send a few bytes, too.
                    expect(0 <= report["tcp_bytes_sent"] - told[report["rank"]] < KIB,
                           f"{where}: a dense allreduce sends {report['tcp_bytes_sent']} bytes, "
                           f"told are {told}")


@case()
def a_host_killed_in_a_sparse_allreduce_without_a_switch_is_named():
    with running_lab(5) as lab, FakeManager(lab, ring="test") as manager:
        for killed in (1, 4):
            already = len(manager.told("heartbeat"))
            ranks = [spawn_by_name(lab, host, manager=manager.address, size=5, rank=host,
                                   iters=100000, check=False, sparse=True,
                                   density=0.1, bytes=16 * MIB) for host in range(5)]
            wait_until(lambda least=already + 5: len(manager.told("heartbeat")) >= least, 60,
                       "heartbeats of all hosts")
            with Pace() as pace:
                ranks[killed].popen.send_signal(signal.SIGKILL)
                reports = reports_of(lab, [ranks[rank] for rank in range(5) if rank != killed])
                seconds = time.monotonic() - pace.began
            pace.expect_within(seconds, 2, "that the others learn of it, without the timeout")
            for report in reports:
                expect_equal((report["error"]["code"], report["error"]["missing"]),
                             ("timeout", [killed]), f"error: {report['error']}")
                expect("its process has ended" in report["error"]["message"],
                       report["error"]["message"])
