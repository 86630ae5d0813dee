# SPDX-License-Identifier: BSD-3-Clause
"""The protocol "acked" on real switches. In examples/ it is one from outside of the tree, which is
built in from a copy; in protocols/ the build has it.
"""

import contextlib
import re
import shutil
import tempfile
from pathlib import Path

from lab.fabric import Fabric, leaf_spine
from lab.namespaces import BUILD_DIR, SOURCE_DIR, inside
from tests.net.prometheus import scrape
from tests.net.support import (KIB, case, expect, expect_equal, job_entry, program, reports_of, run,
                               running_lab, start_ranks, wait_for_results)

HERE = Path(__file__).resolve().parent.parent
PROGRAMS = ("switch/fanin-switch", "tools/faninctl", "tools/fanin-perf", "manager/fanin-manager")
LISTEN = "127.0.0.1:9464"
LOSS = {"faults": {"drop": 0.05, "duplicate": 0.05, "reorder": 0.05, "seed": 7}}
COUNTERS = {"acknowledged", "repeated", "no_packet"}


@contextlib.contextmanager
def build_with_it():
    """The build to run: the tree's if it has the protocol, else one that is given a copy of its
    directory from elsewhere.
    """
    if HERE.parent.name == "protocols":
        yield BUILD_DIR
        return
    with tempfile.TemporaryDirectory(prefix="fanin-example-") as directory:
        elsewhere, build = Path(directory) / "acked", Path(directory) / "build"
        shutil.copytree(HERE, elsewhere)
        run(["meson", "setup", build, SOURCE_DIR, "--buildtype=release", "-Doptimization=1",
             "-Dbench=disabled", "-Dmpi=disabled",
             "-Dtorch=disabled", f"-Dprotocols={elsewhere}"], timeout=120)
        run(["ninja", "-C", build, *PROGRAMS], timeout=600)
        yield build


def expect_acked(reports, where):
    for rank, report in enumerate(reports):
        expect(not report.get("error"), f"{where}: rank {rank} failed: {report.get('error')}")
        expect_equal((report["ok"], report["mismatches"], report["in_network"], report["handler"],
                      report["protocol"],
                      report["protocol_reason"]),
                     (True, 0, True, "acked", "acked", "the job's handler is acked"),
                     f"{where}: how rank {rank} ran")


def expect_version(lab):
    handler = next(entry for entry in lab.control.ask("version")["handlers"]
                   if entry["name"] == "acked")
    expect_equal({entry["name"] for entry in handler["counters"]}, COUNTERS,
                 "counters that version lists")
    expect_equal([(entry["name"], entry["least"], entry["most"], entry["default"])
                  for entry in handler["parameters"]],
                 [("repeat_us", 10, 1000000, 1000)], "parameters that version lists")
    expect_equal([(entry["code"], entry["name"], entry["direction"])
                  for entry in handler["packets"]],
                 [(192, "ACKED_ACK", "up"), (193, "ACKED_WAITING", "down")],
                 "packets that version lists")
    text = lab.ctl("version").stdout
    for words in ("acked: dense reduction", "repeat_us=1000: ",
                  "packet 192 ACKED_ACK (up): the block's result has come"):
        expect(words in text, f"faninctl version does not say '{words}': {text}")
    with inside(lab.switch_namespace):
        checked = run([program("fanin-switch", lab.build), "--config",
                       str(lab.directory / "switch.json"), "--check"], check=False)
    expect_equal(checked.returncode, 0, f"status of --check ({checked.stderr})")


def counters_of(lab, job):
    return {entry["name"]: entry["count"] for entry in job_entry(lab, job)["counters"]}


def run_under_loss(lab, where, job):
    """Vectors of one block and of many, barriers; what is counted is in faninctl and in the
    metrics.
    """
    for options in ({"bytes": 40 * KIB + 4, "iters": 3}, {"bytes": 4, "iters": 100},
                    {"op": "max", "dtype": "i64", "bytes": 4 * KIB},
                    {"dtype": "f32", "op": "avg", "bytes": 2 * KIB},
                    {"collective": "barrier", "bytes": None, "check": None, "iters": 50}):
        reports = reports_of(lab, start_ranks(lab, job, **options))
        expect_acked(reports, f"{where}, {options}")
    counts = counters_of(lab, job)
    expect_equal(set(counts), COUNTERS, "names of counters")
    expect(counts["acknowledged"] > 0 and counts["repeated"] > 0, f"{where}: counters {counts}")
    words = lab.ctl("jobs").stdout
    expect(re.search(r"job \d+, acked:.*repeated", words),
           f"faninctl jobs says nothing of its counters: {words}")
    samples = scrape(lab.switch_namespace, LISTEN)["fanin_job_counter_total"].samples
    found = {dict(labels)["counter"]: number for (_, labels), number in samples.items()
             if dict(labels)["fanin_job"] == str(job["id"])}
    expect_equal(found, counts, "the metrics' counters")


def expect_missing_named(lab, where, job):
    """A rank that does not go on is named by what only comes in the handler's own packets."""
    before = job_entry(lab, job)["stats"]["results"]
    ranks = start_ranks(lab, job, bytes=4, iters=10 ** 7, timeout_ms=10000)
    wait_for_results(lab, job, before + 100)
    ranks[1].popen.kill()
    for rank in (0, 2):
        expect(ranks[rank].wait(60) != 0, f"{where}: rank {rank} has ended well")
        error = lab.perf_report(ranks[rank])["error"]
        expect("the switch waits for rank 1" in error["message"] and error["missing"] == [1],
               f"{where}: rank {rank} says {error}")


def run_on_one_switch(build, transport):
    config = {**LOSS, "metrics": {"listen": LISTEN}}
    if transport == "af_packet":
        # Two workers that share each block.
        config.update(workers=[{"lcore": 0}, {"lcore": 1}],
                      scheduling={"policy": "dispatch", "cluster_size": 2})
    lab = running_lab(3, transport, config=config)
    lab.build = build
    with lab:
        if transport != "memif":
            expect_version(lab)
        for wrong, words in (("repeat_us=9",
                              "parameter repeat_us: found 9, expected 10 to 1000000"),
                             ("repeat_us=x", "expected an integer"),
                             ("again_us=100",
                              'found the parameter "again_us", the handler "acked" has repeat_us')):
            done = lab.ctl("jobs", "create", "--member", "h0:10.77.0.1", "--handler", "acked",
                           "--parameter", wrong, check=False)
            expect(done.returncode != 0 and words in done.stderr,
                   f"--parameter {wrong}: {done.stderr}")
        job = lab.create_job(None, "--handler", "acked", "--parameter", "repeat_us=300")
        expect_equal(job_entry(lab, job)["parameters"], {"repeat_us": 300}, "parameters of the job")
        run_under_loss(lab, transport, job)
        expect_missing_named(lab, transport, job)
        # What it does not do is refused before anything is sent.
        done = reports_of(lab, start_ranks(lab, lab.create_job([0], "--handler", "acked"), [0],
                                           collective="broadcast"))
        expect("the protocol acked, which this job runs, has no broadcast" in done[
            0]["error"]["message"], f"a broadcast: {done[0]['error']}")
        tagged = lab.create_job([0], "--handler", "acked", "--authenticate")
        done = reports_of(lab, start_ranks(lab, tagged, [0], authenticate=True))
        expect("have tags, which the protocol acked" in done[0]["error"]["message"],
               f"a job with tags: {done[0]['error']}")


def run_on_a_fabric(build):
    """Over a leaf and a spine, by name: the manager knows of the handler what the switches say."""
    fabric = Fabric(leaf_spine(2, 2, 4), config=LOSS)
    fabric.build = build
    with fabric:
        fabric.start()
        fabric.start_manager(trees=2)

        def run_job(job, trees=1):
            options = {"bytes": 20 * KIB, "iters": 5, "check": True, "transport": "af_packet",
                       "handler": "acked", "trees": trees,
                       "no_fallback": True}
            ranks = [fabric.spawn_named(host, job, host, 4, **options) for host in range(4)]
            for rank in ranks:
                rank.wait(90)
            return [fabric.perf_report(rank) for rank in ranks]
        expect_acked(run_job("sum"), "by name")
        for rank, report in enumerate(run_job("split", trees=2)):
            expect("has 2 trees, but the protocol acked of its handler acked runs on one"
                   in report["error"]["message"],
                   f"several trees: rank {rank} says {report['error']}")


@case(900, thorough=True)
def acked_is_exact_on_one_switch_and_over_leaf_and_spine():
    with build_with_it() as build:
        for transport in ("af_xdp", "af_packet", "memif"):
            run_on_one_switch(build, transport)
        run_on_a_fabric(build)
