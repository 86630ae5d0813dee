# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs that know nothing of Fanin, with the library to preload and without it: the same results, and in the network."""

from support import case, expect, expect_equal
from fabric import Fabric, single
from lab import BUILD_DIR
from mpi import MpiHosts

RUN_SECONDS = 60
COMMUNICATORS = 6  # that are made by splitting and by duplicating, each


def program_of(name, kind):
    path = BUILD_DIR / "tests" / "mpi" / f"{name}-{kind}"
    expect(path.exists(), f"{path} does not exist: the packages in packages.txt [test] were missing when the build was configured")
    return path


def bytes_by_way(report):
    """{way: bytes of all calls}."""
    found = {}
    for entry in report["collectives"]:
        found[entry["way"]] = found.get(entry["way"], 0) + entry["bytes"]
    return found


def expect_same(plain, preloaded, where):
    differences = [(a, b) for a, b in zip(plain.splitlines(), preloaded.splitlines(), strict=False) if a != b]
    expect(not differences and plain == preloaded, f"{where}: without the library and with it: {differences[:5]}")
    expect("cases " in plain, f"{where}: the program did not come to its end")


def at_end(process):
    return "cases " in process.stdout()


def same_results(kind):
    with Fabric(single(4)) as fabric:
        fabric.start()
        fabric.start_manager()
        hosts = MpiHosts(fabric)
        program = program_of("collectives", kind)
        plain = hosts.run(kind, program, COMMUNICATORS, preload=False, done=at_end, timeout=RUN_SECONDS)
        preloaded, report = hosts.run_reported(kind, program, COMMUNICATORS, FANIN_MPI_MIN_BYTES=1, timeout=RUN_SECONDS)
        expect_same(plain, preloaded, kind)
        by_way = bytes_by_way(report)
        # What the network can't do by its nature: types and operators that it does not have.
        able = sum(count for way, count in by_way.items() if way not in ("TYPE", "OPERATOR", "ONE_RANK"))
        expect(by_way["NETWORK"] >= 0.99 * able, f"{kind}: bytes by where they went: {by_way}")
        expect_equal({entry["call"] for entry in report["collectives"] if entry["in_network"]},
                     {"Allreduce", "Reduce", "Bcast", "Barrier", "Allgather", "Reduce_scatter_block"}, f"{kind}: calls in the network")
        expect_equal(fabric.ask_manager("trees")["trees"], [], f"{kind}: jobs that are left")


@case(60)
def open_mpi_programs_have_the_same_results_in_the_network():
    same_results("openmpi")


@case(60)
def mpich_programs_have_the_same_results_in_the_network():
    same_results("mpich")
