# SPDX-License-Identifier: BSD-3-Clause
"""./dev bench busy: its arithmetic and criteria, a tiny run with pings and loops, and that it
leaves nothing behind.
"""

import contextlib
import json
import math
import os
import re
import signal
import subprocess
import tempfile
import time
from pathlib import Path

from tests.net.support import Lab, LabError, case, expect, expect_equal, run, wait_until
from lab.namespaces import BUILD_DIR, module, program

from lab.bench import busy_report as report
from lab.bench import busy_run
from lab.bench import older_build
from lab.bench.busy import PROGRAMS

BUSY = module("lab.bench.busy")


def made_up_run(side, pair, gbps, resent=0.5, lost=0, ping_ms=1.0):
    """Returns a run as the bench reports it; gbps None: it failed."""
    if gbps is None:
        return {"side": side, "pair": pair, "ok": False, "error": "not done", "wrong": 0}
    return {"side": side, "pair": pair, "ok": True, "error": None, "wrong": 0, "goodput_gbps": gbps,
            "retransmit_percent": resent,
            "packets": 1000, "frames_sent": 1005, "retransmits": 5, "spurious": 1, "queries": None,
            "slowest_seconds": 0.1,
            "ping": {"sent": 200, "received": 200 - lost, "lost": lost, "median_ms": ping_ms,
                     "p99_ms": 2.0, "max_ms": 3.0}}


def made_up_cell(name, this, against=None, loss=0.0, **figures):
    """Returns a cell with these goodputs of its pairs."""
    hosts, transport, load = name.split("-", 2)
    runs = [made_up_run("this", pair, gbps, **figures) for pair, gbps in enumerate(this)]
    runs += [made_up_run("against", pair, gbps) for pair, gbps in enumerate(against or [])]
    return {"name": name, "hosts": int(hosts), "transport": transport, "load": load, "loss": loss,
            "runs": runs,
            **report.summary_of(runs, against is not None)}


def verdicts(cells):
    return [row["ok"] for row in report.criteria_of(cells)]


@case(10)
def ratios_of_a_busy_bench_are_those_of_pairs():
    cell = made_up_cell("4-x-quiet", [1.0, 2.0, 9.0], [1.0, 4.0, 3.0])
    expect_equal(cell["ratios"], [1.0, 0.5, 3.0], "ratios of pairs")
    expect_equal(cell["ratio"], {"median": 1.0, "min": 0.5, "max": 3.0}, "of them")
    expect_equal(cell["this"]["goodput_gbps"], 2.0, "median of a side")
    failing = made_up_cell("4-x-quiet", [None, 2.0, 2.0], [1.0, None, None])
    expect_equal(failing["ratios"], [0.0, None, None],
                 "ratios with a failed run of this side, and of the other")
    expect_equal(failing["ratio"], {"median": None, "min": 0.0, "max": None}, "of them")
    expect_equal((failing["this"]["failed"], failing["against"]["failed"]), (1, 2), "failed runs")
    json.dumps(failing, allow_nan=False)
    expect_equal(report.geometric_mean([{"median": 0.5}, {"median": 2.0}, {"median": None}, None]),
                 1.0, "geometric mean")
    expect_equal(report.geometric_mean([{"median": 0.0}, {"median": 2.0}]), 0.0,
                 "geometric mean with a cell that failed")
    expect_equal(report.geometric_mean([None]), None, "geometric mean of nothing")


@case(10)
def criteria_of_a_busy_bench_name_the_cells_that_miss_them():
    good = [made_up_cell("4-x-quiet", [2.0], [1.5]),
            made_up_cell("4-x-two-loops", [1.0], [0.5], ping_ms=20.0),
            made_up_cell("16-x-quiet", [1.0], [1.0]), made_up_cell("16-x-two-loops", [0.4], [0.2]),
            made_up_cell("4-x-loss", [1.0], [1.0], loss=0.02, resent=5.9)]
    expect_equal(verdicts(good), [True] * 10,
                 f"verdicts on cells that reach all: {report.criteria_of(good)}")
    bad = [made_up_cell("4-x-quiet", [1.0, None], [1.5, 1.5], ping_ms=3.1),
           made_up_cell("4-x-two-loops", [1.0], [1.0], ping_ms=20.1, resent=2.0),
           made_up_cell("16-x-quiet", [2.0], [2.0], lost=1),
           made_up_cell("16-x-two-loops", [0.6], [0.4]),
           made_up_cell("4-x-loss", [1.0], [1.0], loss=0.02, resent=6.0)]
    expect_equal(verdicts(bad), [False] * 10,
                 f"verdicts on cells that miss all: {report.criteria_of(bad)}")
    rows = {row["name"]: row for row in report.criteria_of(bad)}
    expect_equal((rows["pings lost"]["found"], rows["pings lost"]["cell"],
                  rows["pings lost"]["missed"]),
                 (1, "16-x-quiet", ["16-x-quiet"]), "the cell that lost a ping")
    alone = report.criteria_of([made_up_cell("8-x-quiet", [1.0])])
    expect_equal([row["ok"] for row in alone],
                 [True, True, True, None, None, None, None, None, None], f"one side alone: {alone}")
    dead = report.criteria_of([made_up_cell("4-x-quiet", [None])])
    expect_equal([row["ok"] for row in dead[:4]], [False] * 4,
                 f"of a cell whose only run failed: {dead}")


@case(10)
def figures_of_a_busy_bench_are_of_first_transmissions():
    reports = [{"times": [0.5, 1.0], "payload_bytes": 1000, "iters": 2, "frames_sent": 40,
                "retransmits": 3, "spurious": 1,
                "duplicates": 1, "ring_drops": 0},
               {"times": [1.0, 0.5], "payload_bytes": 1000, "iters": 2, "frames_sent": 40,
                "retransmits": 3, "spurious": 1,
                "duplicates": 1, "ring_drops": 0}]
    found = busy_run.figures_of([reports], 9500)
    # Two measured allreduces and the warm-up, of ten packets each, by two hosts.
    expect_equal((found["packets"], found["retransmits"], found["retransmit_percent"]),
                 (60, 6, 10.0), "packets")
    expect(math.isclose(found["goodput_gbps"], 9500 * 8 * 2 / 2.0 / 1e9),
           f"goodput: found {found['goodput_gbps']}")
    expect_equal(found["queries"], None, "a counter that hosts don't have")
    text = "".join(f"64 bytes from 10.0.0.1: icmp_seq={n} ttl=64 time={n}.5 ms\n"
                   for n in range(1, 200)) * 2
    pings = busy_run.pings_of(text)
    expect_equal((pings["lost"], pings["median_ms"], pings["p99_ms"], pings["max_ms"]),
                 (1, 100.5, 198.5, 199.5), "pings")
    expect_equal(busy_run.pings_of("")["median_ms"], None, "median of no replies")
    expect_equal(busy_run.iterations_for(2.0, 0.1), 30, "iterations for 2 s")
    expect_equal(busy_run.iterations_for(0.1, 10.0), 3, "iterations at least")
    expect_equal((busy_run.ping_interval(0.05), busy_run.ping_interval(1.0),
                  busy_run.ping_interval(9.0)), (0.01, 0.015, 0.04),
                 "seconds between pings")


@case(120, long=True)
def a_tiny_busy_bench_measures_goodput_and_pings():
    names = ["4-af_packet-two-loops", "4-udp-two-loops"]
    done = run([*BUSY, "--cells", *names, "--pairs", "1", "--against", "none", "--bytes", "1MiB",
                "--json"], check=False, timeout=110)
    expect_equal(done.returncode, 0, f"exit status; {done.stderr}")
    result = json.loads(done.stdout)
    expect_equal((result["ok"], result["error"], result["against"]), (True, None, None), "outcome")
    expect_equal([cell["name"] for cell in result["cells"]], names, "cells")
    for cell in result["cells"]:
        expect_equal((cell["ratios"], cell["ratio"], cell["against"], cell["loops"]),
                     ([], None, None, 2), "nothing to compare with")
        (only,) = cell["runs"]
        expect(only["ok"], f"the run failed: {only['error']}")
        expect(only["goodput_gbps"] > 0 and only["iterations"] >= 3,
               f"goodput and iterations: {only}")
        expect_equal((cell["mtu"], only["payload_bytes"]),
                     (9000, 8896) if cell["transport"] == "af_packet" else (1500, 1408),
                     "MTU and payload")
        expect(only["packets"] == (only["iterations"] + only["rounds"]) * 4
               * -(-(1 << 20) // only["payload_bytes"]),
               f"first transmissions: {only}")
        expect(only["frames_sent"] >= only["packets"] + only["retransmits"], f"frames sent: {only}")
        expect_equal(only["ping"]["sent"], 200, "pings")
        expect(only["ping"]["received"] > 0
               and 0 < only["ping"]["median_ms"] <= only["ping"]["p99_ms"],
               f"pings: {only['ping']}")
        expect(cell["name"] in report.table(result), f"the table: {report.table(result)}")
    for row in result["criteria"]:
        expect_equal(sorted(row), ["cell", "found", "missed", "name", "ok", "wanted"],
                     "keys of a criterion")
    expect("wanted" in report.table(result), f"the table: {report.table(result)}")


@case(10)
def builds_without_udp_sockets_are_beside_others_on_packet_sockets():
    class Built:
        transport = "udp"

        def __init__(self, build):
            self.build = build
    expect_equal(busy_run.hosts_transport(Built(BUILD_DIR)), "udp",
                 "the transport of this tree's hosts")
    with tempfile.TemporaryDirectory() as directory:
        older = Path(directory, "tools", "fanin-perf")
        older.parent.mkdir()
        older.write_text("#!/bin/sh\necho '  --transport NAME     auto, af_xdp, af_packet or memif "
                         "(default: auto)'\n", encoding="ascii")
        older.chmod(0o755)
        expect_equal(busy_run.hosts_transport(Built(Path(directory))), "af_packet",
                     "the transport of an older build's hosts")


def words_of_failure(lab, seconds, when_measured=None):
    """Returns the error of a round without an end when its time is over."""
    try:
        busy_run.one_round(lab, 1 << 20, 1000000, time.monotonic() + seconds, when_measured)
    except busy_run.RunFailed as failure:
        return str(failure)
    expect(False, "the round has ended")
    return ""


@case(60, long=True)
def a_round_that_is_not_done_in_time_says_whether_it_stands_still():
    with Lab(2, "af_packet") as lab:
        def stop_rank_1():
            process = [process for process in lab.processes if process.name.startswith("perf-")][1]
            process.popen.send_signal(signal.SIGSTOP)
        lab.start_switch()
        made = r"not done after \d+ s: no sign of the end of the job, \d+\.\d s after the job was made; 2 of 2 ranks run, \d+ results, "
        words = words_of_failure(lab, 10, stop_rank_1)
        expect(re.fullmatch(made + r"0 of them in the last 1 s; block \d+ has waited for ranks "
                                   r"\[1\] for \d+\.\d s; CPU time in the last 1 s: rank 1 0\.00 s "
                                   r"\(state T\)", words), f"with a rank that is stopped: {words}")
        words = words_of_failure(lab, 5, lambda: None)
        expect(re.match(made + r"[1-9]\d* of them in the last 1 s; ", words),
               f"with ranks that go on: {words}")


@case(10)
def a_busy_bench_tells_what_it_cannot_compare_with():
    for arguments, words in ((("--against", "no-such-commit"), "no-such-commit"),
                             (("--cells", "5-*"), "match no cell"),
                             (("--pairs", "0"), "from 1 to 100")):
        done = run([*BUSY, *arguments], check=False)
        expect(done.returncode != 0, f"{arguments} passed")
        expect(words in done.stderr and "Traceback" not in done.stderr,
               f"{arguments}: {done.stderr}")
    with tempfile.TemporaryDirectory() as directory, building_from(Path(directory)):
        try:
            older_build.commit_of("HEAD", ", or none")
            expect(False, "a directory without git has a commit")
        except LabError as error:
            expect("no git repository" in str(error) and "none" in str(error),
                   f"without git: {error}")


@contextlib.contextmanager
def building_from(directory):
    """Makes the bench take older commits from this directory, and keep programs in its build/, for
    the length of the block.
    """
    before = older_build.SOURCE_DIR, older_build.BUILD_DIR
    older_build.SOURCE_DIR, older_build.BUILD_DIR = directory, directory / "build"
    try:
        yield
    finally:
        older_build.SOURCE_DIR, older_build.BUILD_DIR = before


def commit(directory, text):
    """Commits one C file and the files that build it like a small Fanin; returns the commit's name.
    """
    for name, lines in FILES.items():
        (directory / name).parent.mkdir(exist_ok=True)
        (directory / name).write_text(lines)
    (directory / "all.c").write_text(text)
    git = ["git", "-C", str(directory), "-c", "user.name=test", "-c", "user.email=test@localhost"]
    for words in (("init", "-q"), ("add", "all.c", "meson.build", *FILES),
                  ("commit", "-q", "-m", "one")):
        run([*git, *words])
    return older_build.commit_of("HEAD")


FILES = {"meson.build": "project('small', "
                        "'c')\nsubdir('hostlib')\nsubdir('switch')\nsubdir('tools')\n",
         "hostlib/meson.build": "lib = shared_library('fanin', '../all.c', version: '0.1')\n",
         "switch/meson.build": "executable('fanin-switch', '../all.c')\n",
         "tools/meson.build": "foreach name : ['faninctl', 'fanin-perf']\n  executable(name, "
                              "'../all.c', link_with: lib)\nendforeach\n"}


@case(60)
def an_older_commit_is_built_once_and_what_built_it_is_removed():
    said = []
    with tempfile.TemporaryDirectory() as name, building_from(Path(name)):
        directory = Path(name)
        older = commit(directory, "int main(void) { return 7; }\n")
        newer = commit(directory, "int main(void) { return missing; }\n")
        kept = older_build.build_of(older, said.append, "busy", PROGRAMS)
        for built in PROGRAMS:
            expect_equal(run([program(built, kept)], check=False).returncode, 7,
                         f"exit status of {built}")
        expect_equal((older_build.build_of(older, said.append, "busy", PROGRAMS), len(said)),
                     (kept, 1), "built a second time")
        try:
            older_build.build_of(newer, said.append, "busy", PROGRAMS)
            expect(False, "what can't be compiled was built")
        except LabError as error:
            expect("ninja failed" in str(error) and "missing" in str(error),
                   f"the words of a failed build: {error}")
        expect_equal(os.listdir(kept.parent), [older], "what is kept")
        expect_equal(run(["git", "-C", name, "worktree", "list"]).stdout.count("\n"), 1,
                     "worktrees")
    left = [entry for entry in os.listdir(tempfile.gettempdir())
            if entry.startswith(f"fanin-{os.getpid()}-")]
    expect_equal(left, [], "what is left")


def loops_of(parent):
    """Returns the processes that spin for a bench: those below it that run the loop."""
    found = []
    for entry in Path("/proc").iterdir():
        with contextlib.suppress(OSError):
            if entry.name.isdecimal() and b"while :" in (entry / "cmdline").read_bytes() and \
                    (entry / "stat").read_text().rpartition(")")[2].split()[1] == str(parent):
                found.append(entry.name)
    return found


@case(90, thorough=True)
def an_interrupted_busy_bench_tells_what_it_has_and_leaves_nothing():
    process = subprocess.Popen([*BUSY, "--cells", "4-af_packet-quiet", "4-af_packet-two-loops",
                                "--pairs", "1",
                                "--against", "none", "--bytes", "256KiB", "--json"],
                               stdin=subprocess.DEVNULL, stdout=subprocess.PIPE,
                               stderr=subprocess.PIPE, text=True)
    try:
        loops = wait_until(lambda: len(loops_of(process.pid)) == 2 and loops_of(process.pid), 60,
                           "two busy loops")
        process.send_signal(signal.SIGINT)
        output, words = process.communicate(timeout=60)
    finally:
        process.kill()
        process.wait()
    expect_equal(process.returncode, 128 + signal.SIGINT, f"exit status; {words}")
    expect("everything is removed" in words, f"its words: {words}")
    result = json.loads(output)
    expect_equal((result["ok"], [cell["name"] for cell in result["cells"]]),
                 (False, ["4-af_packet-quiet"]), "what was done")
    expect("SIGINT" in result["error"], f"why it ended: {result['error']}")
    expect(not any(Path("/proc", loop).exists() for loop in loops), f"loops still run: {loops}")
    prefix = f"fanin-{process.pid}-"
    left = [name for place in ("/run/netns", tempfile.gettempdir()) for name in os.listdir(place)
            if name.startswith(prefix)]
    expect_equal(left, [], "what is left")
