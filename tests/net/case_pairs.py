# SPDX-License-Identifier: BSD-3-Clause
"""Benchmarks in pairs with an older commit (./dev bench core and io --against): their ratios, their
turns, and their refusals.
"""

import json
import tempfile
from pathlib import Path

from tests.net.case_busy import PROGRAMS, building_from, commit
from tests.net.support import LabError, case, expect, expect_equal, run
from lab.namespaces import BUILD_DIR, module

from lab.bench import core
from lab.bench import pairs

CORE, IO = (module(f"lab.bench.{name}") for name in ("core", "io_forwarding"))


@case(10)
def pairs_of_runs_take_turns_and_have_medians_and_quartiles():
    expect_equal(pairs.turns(3, ("this", "against")),
                 [(0, "this"), (0, "against"), (1, "against"), (1, "this"), (2, "this"),
                  (2, "against")], "turns")
    found = pairs.case_of("a", [1.0, 4.0, 3.0, 8.0, 10.0], [1.0, 2.0, 1.0, 2.0, 2.0])
    expect_equal(found["ratios"], [1.0, 2.0, 3.0, 4.0, 5.0], "ratios of pairs")
    expect_equal(found["ratio"], {"median": 3.0, "lower": 2.0, "upper": 4.0}, "of them")
    expect_equal((found["this"], found["against"]), (4.0, 2.0), "medians of the sides")
    expect_equal(pairs.case_of("a", [3.0], [2.0])["ratio"],
                 {"median": 1.5, "lower": 1.5, "upper": 1.5}, "of one pair")


@case(60)
def an_older_commit_is_built_and_compared_case_by_case():
    said, ran = [], []

    def measure(build):
        ran.append(build)
        return {"first": 3.0, "second": 1.0} if build == BUILD_DIR else {"first": 1.5,
                                                                         "second": 2.0}
    with tempfile.TemporaryDirectory() as name, building_from(Path(name)):
        directory = Path(name)
        older = commit(directory, "int main(void) { return 0; }\n")
        (directory / "all.c").write_text("int main(void) { return 1; }\n")
        result = pairs.compare("core", "HEAD", 2, PROGRAMS, measure, said.append)
        kept = directory / "build" / "core" / older
        expect_equal(ran, [BUILD_DIR, kept, kept, BUILD_DIR], "builds in turns")
        expect_equal((result["ok"], result["commit"], result["against"], result["changed"]),
                     (True, older, older, True), "outcome")
        expect_equal([(found["name"], found["ratio"]["median"]) for found in result["cases"]],
                     [("first", 2.0), ("second", 0.5)], "cases")
        words = pairs.table(result, "bushels")
        expect(all(word in words for word in ("first", "2.000", "bushels", older[:10],
                                              "with changes")), f"the table: {words}")
        json.dumps(result, allow_nan=False)
        try:
            pairs.compare("core", older, 1, PROGRAMS, lambda build: {str(build): 1.0}, said.append)
            expect(False, "other cases were compared")
        except LabError as error:
            expect("measures other cases" in str(error), f"words about other cases: {error}")
        expect_equal(sum("building" in words for words in said), 1, "builds")


@case(60)
def runs_of_core_bench_have_its_cases_and_calibration():
    runs = core.Runs(["--handler", "multi", "--hosts", "2", "--batches", "2", "--seconds", "0",
                      "--no-huge"])
    figures = [runs(BUILD_DIR) for _ in range(2)]
    for found in figures:
        expect_equal(list(found),
                     ["multi f32 sum, 1024 bytes, 2 hosts, 1 job, 1 worker, 2048 packets"], "cases")
        expect(min(found.values()) > 0, f"packets per second: {found}")
    expect(runs.calibration > 0, f"calibration: {runs.calibration}")
    try:
        core.Runs(["--hosts", "17"])(BUILD_DIR)
        expect(False, "17 hosts were measured")
    except LabError as error:
        expect("--hosts is '17'" in str(error), f"what core-bench says: {error}")


@case(30)
def benches_in_pairs_tell_what_they_cannot_compare_with():
    for bench in (CORE, IO):
        for arguments, words in ((("--against", "no-such-commit"), "no-such-commit"),
                                 (("--against", "HEAD", "--pairs", "0"), "from 1 to 100"),
                                 (("--pairs", "3"), "goes with --against")):
            done = run([*bench, *arguments], check=False)
            expect(done.returncode != 0, f"{bench} {arguments} passed")
            expect(words in done.stderr and "Traceback" not in done.stderr,
                   f"{bench} {arguments}: {done.stderr}")
        done = run([*bench, "--against", "no-such-commit", "--json"], check=False)
        expect_equal((done.returncode, json.loads(done.stdout)["ok"]), (1, False),
                     f"{bench} --json with no such commit")
        expect("--against" in run([*bench, "--help"]).stdout, f"{bench} --help without --against")
