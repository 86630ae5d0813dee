# SPDX-License-Identifier: BSD-3-Clause
"""A protocol from outside of the tree: examples/acked, copied elsewhere and built in, does its work on real switches; what stands
about it in docs/adding-a-protocol.md is so; and a directory that can't be used is told in words.
"""

import re
import shutil
import sys
import tempfile
from pathlib import Path

from lab.fabric import Fabric, leaf_spine
from lab.namespaces import SOURCE_DIR, inside
from tests.net.prometheus import scrape
from tests.net.support import KIB, case, expect, expect_equal, job_entry, program, reports_of, run, running_lab, start_ranks, \
    wait_for_results

EXAMPLE = SOURCE_DIR / "examples" / "acked"
PAGE = SOURCE_DIR / "docs" / "adding-a-protocol.md"
FINDER = SOURCE_DIR / "handlers" / "outside.py"
PROGRAMS = ("switch/fanin-switch", "tools/faninctl", "tools/fanin-perf", "manager/fanin-manager")
LISTEN = "127.0.0.1:9464"
LOSS = {"faults": {"drop": 0.05, "duplicate": 0.05, "reorder": 0.05, "seed": 7}}
COUNTERS = {"acknowledged", "repeated", "no_packet"}


def find(kind, *directories):
    """What handlers/outside.py says: its exit status, output and errors."""
    done = run([sys.executable, FINDER, kind, *directories], check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@case()
def files_of_protocols_are_found_by_their_names():
    expect_equal(find("handlers", EXAMPLE), (0, [str(EXAMPLE / "handler.c")], ""), "the example's handler")
    expect_equal(find("protocols", EXAMPLE), (0, [str(EXAMPLE / "protocol.c")], ""), "the example's host protocol")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)

        def expect_told(words, *directories):
            for kind in ("handlers", "protocols"):
                status, found, told = find(kind, *directories)
                expect_equal((status, found, told.count("\n")), (1, [], 1), f"status, files and lines ({told})")
                for word in words:
                    expect(word in told, f"found '{told.strip()}', expected '{word}' in it")
        expect_told([str(place / "none"), "No such file or directory", "handler*.c", "protocol*.c"], place / "none")
        expect_told([directory, "found no handler*.c", "protocol*.c"], place)
        (place / "Handler.c").touch()
        expect_told([directory, "found Handler.c", "expected handler*.c"], place)
        expect_told(["found Handler.c"], EXAMPLE, place)
        expect_told(["Not a directory"], place / "Handler.c")
        (place / "Handler.c").unlink()
        # Headers, tests and the like may lie beside them.
        for name in ("handler_b.c", "handler_a.c", "both.h", "test_both.c", "README.md"):
            (place / name).touch()
        expect_equal(find("handlers", place, place)[:2], (0, [str(place / "handler_a.c"), str(place / "handler_b.c")]), "two handlers")
        expect_equal(find("protocols", place)[:2], (0, []), "no host protocol, which a handler may do without")
        expect_equal(find("handlers", place, EXAMPLE)[1][2:], [str(EXAMPLE / "handler.c")], "those of a second directory")
    expect_equal(find("others", EXAMPLE)[0], 2, "status of a wrong call")


def blocks_of(text):
    """(file named last before it, lines) of each fenced block of C in a page."""
    name, lines = None, None
    for line in text.splitlines():
        if line.startswith("```"):
            if lines is not None and lines[0] == "c":
                yield name, lines[1:]
            lines = None if lines is not None else [line[3:]]
        elif lines is not None:
            lines.append(line)
        else:
            for link in re.findall(r"\]\(\.\./(examples/[\w./]+\.[ch])\)", line):
                name = link


@case()
def the_page_shows_the_example_as_it_is():
    page = PAGE.read_text(encoding="utf-8")
    blocks = list(blocks_of(page))
    expect(len(blocks) >= 8, f"found {len(blocks)} pieces of C, expected 8 at least")
    for name, lines in blocks:
        expect(name is not None, f"a piece of C belongs to no file: {lines[:1]}")
        expect("\n".join(lines) + "\n" in (SOURCE_DIR / name).read_text(encoding="utf-8"),
               f"not in {name} as it stands in the page: {lines[0]} ...")
    expect_equal({name for name, _ in blocks}, {f"examples/acked/{path.name}" for path in EXAMPLE.glob("*.[ch]")}, "files shown")
    for path in re.findall(r"\]\((?!http|#)([^)#]+)", page):
        expect((PAGE.parent / path).exists(), f"the page links to {path}, which is not there")


@case()
def a_switch_has_no_protocol_that_it_was_not_given():
    with running_lab(1) as lab:
        handlers = lab.control.ask("version")["handlers"]
        expect(handlers and all(handler["packets"] == [] for handler in handlers), f"handlers of the tree: {handlers}")
        done = lab.ctl("jobs", "create", "--member", "h0:10.77.0.1", "--handler", "acked", check=False)
        expect(done.returncode != 0 and 'found handler "acked", expected one that `version` lists' in done.stderr, done.stderr)


# ---- built and run

def build_with(directory, build):
    """Builds the programs with a directory's protocols."""
    run(["meson", "setup", build, SOURCE_DIR, "--buildtype=release", "-Doptimization=1", f"-Dprotocols={directory}"], timeout=120)
    run(["ninja", "-C", build, *PROGRAMS], timeout=600)


def expect_acked(reports, where):
    for rank, report in enumerate(reports):
        expect(not report.get("error"), f"{where}: rank {rank} failed: {report.get('error')}")
        expect_equal((report["ok"], report["mismatches"], report["in_network"], report["handler"], report["protocol"],
                      report["protocol_reason"]), (True, 0, True, "acked", "acked", "the job's handler is acked"),
                     f"{where}: how rank {rank} ran")


def expect_version(lab):
    handler = next(entry for entry in lab.control.ask("version")["handlers"] if entry["name"] == "acked")
    expect_equal({entry["name"] for entry in handler["counters"]}, COUNTERS, "counters that version lists")
    expect_equal([(entry["name"], entry["least"], entry["most"], entry["default"]) for entry in handler["parameters"]],
                 [("repeat_us", 10, 1000000, 1000)], "parameters that version lists")
    expect_equal([(entry["code"], entry["name"], entry["direction"]) for entry in handler["packets"]],
                 [(192, "ACKED_ACK", "up"), (193, "ACKED_WAITING", "down")], "packets that version lists")
    text = lab.ctl("version").stdout
    for words in ("acked: dense reduction", "repeat_us=1000: ", "packet 192 ACKED_ACK (up): the block's result has come"):
        expect(words in text, f"faninctl version does not say '{words}': {text}")
    with inside(lab.switch_namespace):
        checked = run([program("fanin-switch", lab.build), "--config", str(lab.directory / "switch.json"), "--check"], check=False)
    expect_equal(checked.returncode, 0, f"status of --check ({checked.stderr})")


def counters_of(lab, job):
    return {entry["name"]: entry["count"] for entry in job_entry(lab, job)["counters"]}


def run_under_loss(lab, where, job):
    """Vectors of one block and of many, barriers; what is counted is in faninctl and in the metrics."""
    for options in ({"bytes": 40 * KIB + 4, "iters": 3}, {"bytes": 4, "iters": 100}, {"op": "max", "dtype": "i64", "bytes": 4 * KIB},
                    {"dtype": "f32", "op": "avg", "bytes": 2 * KIB}, {"collective": "barrier", "bytes": None, "check": None, "iters": 50}):
        reports = reports_of(lab, start_ranks(lab, job, **options))
        expect_acked(reports, f"{where}, {options}")
    counts = counters_of(lab, job)
    expect_equal(set(counts), COUNTERS, "names of counters")
    expect(counts["acknowledged"] > 0 and counts["repeated"] > 0, f"{where}: counters {counts}")
    words = lab.ctl("jobs").stdout
    expect(re.search(r"job \d+, acked:.*repeated", words), f"faninctl jobs says nothing of its counters: {words}")
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
        expect("the switch waits for rank 1" in error["message"] and error["missing"] == [1], f"{where}: rank {rank} says {error}")


def run_on_one_switch(build, transport):
    config = {**LOSS, "metrics": {"listen": LISTEN}}
    if transport == "af_packet":
        # Two workers that share each block.
        config.update(workers=[{"lcore": 0}, {"lcore": 1}], scheduling={"policy": "dispatch", "cluster_size": 2})
    lab = running_lab(3, transport, config=config)
    lab.build = build
    with lab:
        if transport != "memif":
            expect_version(lab)
        for wrong, words in (("repeat_us=9", "parameter repeat_us: found 9, expected 10 to 1000000"), ("repeat_us=x", "expected an integer"),
                             ("again_us=100", 'found the parameter "again_us", the handler "acked" has repeat_us')):
            done = lab.ctl("jobs", "create", "--member", "h0:10.77.0.1", "--handler", "acked", "--parameter", wrong, check=False)
            expect(done.returncode != 0 and words in done.stderr, f"--parameter {wrong}: {done.stderr}")
        job = lab.create_job(None, "--handler", "acked", "--parameter", "repeat_us=300")
        expect_equal(job_entry(lab, job)["parameters"], {"repeat_us": 300}, "parameters of the job")
        run_under_loss(lab, transport, job)
        expect_missing_named(lab, transport, job)
        # What it does not do is refused before anything is sent.
        done = reports_of(lab, start_ranks(lab, lab.create_job([0], "--handler", "acked"), [0], collective="broadcast"))
        expect("the protocol acked, which this job runs, has no broadcast" in done[0]["error"]["message"], f"a broadcast: {done[0]['error']}")
        tagged = lab.create_job([0], "--handler", "acked", "--authenticate")
        done = reports_of(lab, start_ranks(lab, tagged, [0], authenticate=True))
        expect("have tags, which the protocol acked" in done[0]["error"]["message"], f"a job with tags: {done[0]['error']}")


def run_on_a_fabric(build):
    """Over a leaf and a spine, by name: the manager knows of the handler what the switches say."""
    fabric = Fabric(leaf_spine(2, 2, 4), config=LOSS)
    fabric.build = build
    with fabric:
        fabric.start()
        fabric.start_manager(trees=2)

        def run_job(job, trees=1):
            options = {"bytes": 20 * KIB, "iters": 5, "check": True, "transport": "af_packet", "handler": "acked", "trees": trees,
                       "no_fallback": True}
            ranks = [fabric.spawn_named(host, job, host, 4, **options) for host in range(4)]
            for rank in ranks:
                rank.wait(90)
            return [fabric.perf_report(rank) for rank in ranks]
        expect_acked(run_job("sum"), "by name")
        for rank, report in enumerate(run_job("split", trees=2)):
            expect("has 2 trees, but the protocol acked of its handler acked runs on one" in report["error"]["message"],
                   f"several trees: rank {rank} says {report['error']}")


@case(900, thorough=True)
def a_protocol_from_outside_the_tree_runs_end_to_end():
    with tempfile.TemporaryDirectory(prefix="fanin-example-") as directory:
        elsewhere, build = Path(directory) / "acked", Path(directory) / "build"
        shutil.copytree(EXAMPLE, elsewhere)
        build_with(elsewhere, build)
        for transport in ("af_xdp", "af_packet", "memif"):
            run_on_one_switch(build, transport)
        run_on_a_fabric(build)


@case(120, thorough=True)
def a_wrong_directory_is_told_by_meson():
    with tempfile.TemporaryDirectory(prefix="fanin-example-") as directory:
        done = run(["meson", "setup", Path(directory) / "build", SOURCE_DIR, f"-Dprotocols={directory}/none"], check=False, timeout=90)
        words = f"protocols: {directory}/none: No such file or directory, expected a directory with handler*.c"
        expect(done.returncode != 0 and words in done.stdout + done.stderr, f"meson says: {done.stdout[-500:]}")
