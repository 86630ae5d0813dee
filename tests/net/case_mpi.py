# SPDX-License-Identifier: BSD-3-Clause
"""MPI programs that know nothing of Fanin, with and without the libraries to preload and Open MPI's
component: the results are the same, and collectives are in the network. What only the component has
is in case_mpi_component.py.
"""

import contextlib
import json
import os
import re
import signal

from tests.net.support import case, expect, expect_equal, run, wait_until
from lab.fabric import Fabric, single
from lab.namespaces import BUILD_DIR, module
from lab.mpi import DOORS, MpiHosts, at_end, mpi_of, preload_library

RUN_SECONDS = 60
LONG_RUN_SECONDS = 300  # where polling ranks outnumber the cores, beside other tests
COMMUNICATORS = 6  # made by splitting, and as many by duplicating
# Open MPI 5.0's component for hosts with several ranks gathers types with gaps wrongly, and crashes
# with MPI_BOTTOM (docs/mpi.md).
WITHOUT_HAN = {"OMPI_MCA_coll": "^han"}


def program_of(name, kind):
    path = BUILD_DIR / "tests" / "mpi" / f"{name}-{mpi_of(kind)}"
    expect(path.exists(), f"{path} does not exist: the packages in packages.txt [mpi] were missing "
                          "when the build was configured")
    return path


def bytes_by_way(report):
    """Returns {way: bytes of all calls}."""
    found = {}
    for entry in report["collectives"]:
        found[entry["way"]] = found.get(entry["way"], 0) + entry["bytes"]
    return found


def expect_same(plain, preloaded, where):
    differences = [(a, b) for a,
                   b in zip(plain.splitlines(), preloaded.splitlines(), strict=False) if a != b]
    expect(not differences and plain == preloaded,
           f"{where}: without the library and with it: {differences[:5]}")
    expect("cases " in plain, f"{where}: the program did not come to its end")


def same_results(kind, n_hosts):
    with Fabric(single(n_hosts)) as fabric:
        fabric.start()
        fabric.start_manager()
        hosts = MpiHosts(fabric)
        program = program_of("collectives", kind)
        plain = hosts.run(kind, program, COMMUNICATORS, preload=False, done=at_end,
                          timeout=LONG_RUN_SECONDS)
        for calls in ("blocking", "nonblocking"):
            preloaded, report = hosts.run_reported(kind, program, COMMUNICATORS, calls,
                                                   FANIN_MPI_MIN_BYTES=1, timeout=LONG_RUN_SECONDS)
            expect_same(plain, preloaded, f"{kind}, {calls}")
            by_way = bytes_by_way(report)
            # The network lacks these types and operators by its nature.
            able = sum(count for way,
                       count in by_way.items() if way not in ("TYPE", "OPERATOR", "ONE_RANK"))
            expect(by_way["NETWORK"] >= 0.99 * able,
                   f"{kind}, {calls}: bytes by where they went: {by_way}")
            expect_equal({entry["call"] for entry in report["collectives"] if entry["in_network"]},
                         {"Allreduce", "Reduce", "Bcast", "Barrier", "Allgather",
                          "Reduce_scatter_block"}, f"{kind}, {calls}: calls in the network")
            expect_equal(fabric.ask_manager("trees")["trees"], [],
                         f"{kind}, {calls}: jobs that are left")


@case(150)
def open_mpi_programs_have_the_same_results_in_the_network():
    same_results("openmpi", 4)


@case(150)
def open_mpi_programs_have_the_same_results_through_the_component():
    same_results("component", 4)


@case(300, thorough=True)
def mpich_programs_have_the_same_results_in_the_network():
    # MPICH's ranks never yield their core.
    same_results("mpich", 3)


def same_errors(kind, n_hosts, ranks_per_host, unusable):
    with running_hosts(n_hosts) as fabric:
        program, where = program_of("arguments", kind), f"{kind}, {ranks_per_host} ranks on a host"
        options = {"timeout": LONG_RUN_SECONDS, "ranks_per_host": ranks_per_host}
        plain = fabric.mpi.run(kind, program, preload=False, done=at_end, **options)
        preloaded, report = fabric.mpi.run_reported(kind, program, FANIN_MPI_MIN_BYTES=1, **options)
        expect_same(plain, preloaded, where)
        sums = {entry["way"]: entry["calls"] for entry in report["collectives"]
                if entry["call"] == "Allreduce"}
        # Open MPI refuses calls before a component sees them.
        refused = sums["ARGUMENT"] if kind != "component" else 21
        expect(sums["NETWORK"] > refused > 20 and "ERROR" not in sums,
               f"{where}: where sums went: {sums}")
        fortran = program_of("fortran_arguments", kind)
        plain = fabric.mpi.run(kind, fortran, preload=False, done=at_end, **options)
        expect_same(plain, fabric.mpi.run_reported(kind, fortran, **options)[0],
                    f"{where}, Fortran")
        # Without the library Open MPI crashes, and MPICH sums what it finds at some address.
        printed, _ = fabric.mpi.run_reported(kind, program, "unusable", FANIN_MPI_MIN_BYTES=1,
                                             **options)
        found = re.findall(r"\[([^;]*); (\d) 0\]", printed)
        expect({("not made", "0"), (unusable, "1")} >= set(found) and len(found) > n_hosts,
               f"{where}: {printed}")


def same_errors_while_a_job_is_wanted(kind):
    """The errors of calls that are MPI's own: a rank that errs does not begin a collective in which
    the others take no part, and for which it would wait.
    """
    with running_hosts(2) as fabric:
        program = program_of("arguments", kind)
        plain = fabric.mpi.run(kind, program, "wanted", preload=False, done=at_end,
                               timeout=LONG_RUN_SECONDS)
        preloaded, report = fabric.mpi.run_reported(kind, program, "wanted", FANIN_MPI_MIN_BYTES=1,
                                                    timeout=RUN_SECONDS)
        expect_same(plain, preloaded, f"{kind}, a job is wanted")
        sums = {entry["way"]: entry["calls"] for entry in report["collectives"]
                if entry["call"] == "Allreduce"}
        n_tries = sum(line.startswith("Allreduce, ") for line in plain.splitlines())
        expect(sums["NETWORK"] > n_tries and "ERROR" not in sums,
               f"{kind}, a job is wanted: where sums went: {sums}")


@case(150, thorough=True)
def calls_that_mpi_refuses_make_no_job():
    for kind in DOORS:
        same_errors_while_a_job_is_wanted(kind)


@case(150, thorough=True)
def calls_that_mpi_refuses_have_the_same_errors_with_the_library():
    for kind in ("openmpi", "component"):
        for ranks_per_host in (1, 2):
            same_errors(kind, 2, ranks_per_host, "MPI_ERR_BUFFER: invalid buffer")
    same_errors("mpich", 2, 1, "Invalid buffer pointer")


def running_hosts(n, **options):
    """A network of n hosts with its manager, as mpirun knows them. options: the Fabric's."""
    class Running(Fabric):
        def __enter__(self):
            super().__enter__()
            try:
                self.start()
                self.start_manager()
                self.mpi = MpiHosts(self)
            except BaseException:
                self.close()
                raise
            return self
    return Running(single(n), **options)


def progress(kind):
    with running_hosts(3) as fabric:
        for arguments, level in (((6, "one-sided" if kind == "mpich" else ""), ""),
                                 ((0, "threads"), "level multiple")):
            printed, report = fabric.mpi.run_reported(kind, program_of("progress", kind),
                                                      *arguments, FANIN_MPI_TIMEOUT_MS=2000,
                                                      timeout=RUN_SECONDS)
            expect("cases " in printed and level in printed,
                   f"{kind}, {arguments}: found {printed}")
            by_way = bytes_by_way(report)
            expect("NETWORK" in by_way
                   and not {"FAILED", "NOT_JOINED", "NONBLOCKING", "NO_JOB_YET"} & set(by_way),
                   f"{kind}: bytes by where they went: {by_way}")


@case(90, thorough=True)
def many_nonblocking_collectives_are_under_way_at_the_same_time():
    with running_hosts(3) as fabric:
        for kind in DOORS:
            for at_init in (0, 1) if kind != "mpich" else (0,):
                printed, report = fabric.mpi.run_reported(kind, program_of("outstanding", kind),
                                                          FANIN_MPI_JOB_AT_INIT=at_init,
                                                          timeout=RUN_SECONDS)
                expect("cases " in printed, f"{kind}: {printed}")
                calls = {entry["way"]: entry["calls"] for entry in report["collectives"]
                         if entry["call"] == "Allreduce"}
                expect_equal(set(calls), {"NETWORK", "NO_JOB_YET"}, f"{kind}: where sums went")
                expect_equal(calls["NO_JOB_YET"], 3 * 50 * (2 - at_init),
                             f"{kind}, job at init {at_init}: sums before there was a job")
        for kind in ("openmpi", "component"):
            program = program_of("outstanding", kind)
            printed, report = fabric.mpi.run_reported(kind, program_of("progress", kind),
                                                      FANIN_MPI_NONBLOCKING=0, timeout=RUN_SECONDS)
            expect("NONBLOCKING" in bytes_by_way(report),
                   f"{kind}: where sums went without nonblocking ones: {report}")
            process = fabric.mpi.start(kind, program, "wait")
            wait_until(lambda process=process: "running" in process.stdout(), RUN_SECONDS,
                       "the program")
            os.kill(ranks_of(fabric, program)[1], signal.SIGKILL)
            expect(process.wait(RUN_SECONDS) != 0, f"{kind}: a program that lost a rank ended well")
            wait_until(lambda: fabric.ask_manager("trees")["trees"] == [], 20, "the end of its jobs")


@case(120)
def mpi_makes_progress_while_open_mpi_programs_wait_in_the_network():
    progress("openmpi")
    progress("component")


@case(90, thorough=True)
def mpi_makes_progress_while_mpich_programs_wait_in_the_network():
    progress("mpich")


@case(60)
def fortran_programs_run_in_the_network():
    with running_hosts(3) as fabric:
        for kind in DOORS:
            for name in ("fortran_calls", "f08_calls"):
                printed, report = fabric.mpi.run_reported(kind, program_of(name, kind),
                                                          timeout=RUN_SECONDS)
                expect("cases 13" in printed, f"{name} with {kind}: {printed}")
                by_call = {entry["call"]: entry["calls"] for entry in report["collectives"]
                           if entry["in_network"]}
                expect_equal(by_call, {"Allreduce": 18, "Reduce": 3, "Bcast": 3, "Barrier": 3,
                                       "Allgather": 6, "Reduce_scatter_block": 6},
                             f"{name} with {kind}: calls in the network")


@case(180, thorough=True)
def vectors_of_more_than_2_gib_are_summed_in_the_network():
    with running_hosts(2) as fabric:
        for kind in DOORS:
            printed, report = fabric.mpi.run_reported(kind, program_of("large", kind), 2200,
                                                      timeout=2 * RUN_SECONDS)
            expect("cases " in printed, f"{kind}: {printed}")
            by_way = bytes_by_way(report)
            # The network takes the sum, and with MPICH the reduction whose count is wider than int,
            # too.
            expect_equal(by_way["NETWORK"], (4 if kind == "mpich" else 2) * (2200 << 20),
                         f"{kind}: bytes in the network of {by_way}")


@case(260, thorough=True)
def hundreds_of_communicators_and_a_rank_that_sleeps_for_a_minute():
    with running_hosts(3) as fabric:
        for kind in DOORS:
            printed, report = fabric.mpi.run_reported(kind, program_of("collectives", kind), 300,
                                                      "communicators", FANIN_MPI_MIN_BYTES=1,
                                                      timeout=2 * RUN_SECONDS)
            expect("cases 300" in printed, f"{kind}: {printed[-200:]}")
            made = {entry["way"]: entry["count"] for entry in report["communicators"]}
            # Each half of a split and its copy has a job, except halves of one rank.
            expect(made["NETWORK"] >= 2 * 2 * 300 and "MANY_JOBS" not in made,
                   f"{kind}: communicators: {made}")
            printed, _ = fabric.mpi.run_reported(kind, program_of("progress", kind), 60,
                                                 timeout=2 * RUN_SECONDS)
            expect("cases " in printed, f"{kind}: {printed}")
        expect_equal(fabric.ask_manager("trees")["trees"], [], "jobs that are left")


@case(300, thorough=True)
def several_ranks_on_a_host_have_one_leader_in_the_network():
    with running_hosts(2) as fabric:
        program = program_of("collectives", "openmpi")
        plain = fabric.mpi.run("openmpi", program, 2, "few", preload=False, ranks_per_host=3,
                               timeout=LONG_RUN_SECONDS, **WITHOUT_HAN)
        for kind in ("openmpi", "component"):
            preloaded, report = fabric.mpi.run_reported(kind, program, 2, "few",
                                                        FANIN_MPI_MIN_BYTES=1, ranks_per_host=3,
                                                        timeout=LONG_RUN_SECONDS, **WITHOUT_HAN)
            expect_same(plain, preloaded, f"{kind}, 3 ranks on each of 2 hosts")
            by_way = bytes_by_way(report)
            able = sum(count for way,
                       count in by_way.items() if way not in ("TYPE", "OPERATOR", "ONE_RANK"))
            expect(by_way["NETWORK"] >= 0.9 * able,
                   f"{kind}: bytes by where they went: {by_way}")
        for kind in DOORS:
            # Vectors have many chunks, in place, and with MPICH by a nonblocking call.
            _, report = fabric.mpi.run_reported(kind, program_of("large", kind), 8,
                                                ranks_per_host=3, timeout=LONG_RUN_SECONDS)
            expect_equal(bytes_by_way(report)["NETWORK"],
                         6 * (3 if kind == "mpich" else 2) * (8 << 20),
                         f"{kind}: bytes of {report} in the network")


def right_answers(fabric, kind, min_bytes, most, ranks_per_host=1, in_network=1024, **options):
    """
    Runs the program that computes the answers itself. in_network: calls of so many bytes or more
    count as in the network. most: the program's argument. Returns the report.
    """
    printed, report = fabric.mpi.run_reported(kind, program_of("answers", kind), in_network, most,
                                              ranks_per_host=ranks_per_host,
                                              FANIN_MPI_MIN_BYTES=min_bytes,
                                              timeout=LONG_RUN_SECONDS, **options)
    where = f"{kind}, {ranks_per_host} ranks on a host, {min_bytes} bytes and more in the network, {options}"
    expect(re.search(r"^cases [1-9][0-9]* wrong 0$", printed, re.MULTILINE),
           f"{where}: {printed[-2000:]}")
    by_way = bytes_by_way(report)
    expect(not {"FAILED", "ERROR"} & set(by_way), f"{where}: {report}")
    # With a job, calls that MPI computes wrongly are in the network, however small they are.
    if "NETWORK" in by_way and min_bytes > 1:
        expect_equal("MPI_WRONG" in by_way, report["wrong_in_mpi"] != [],
                     f"{where}: small vectors in the network: {by_way}, {report['wrong_in_mpi']}")
    return report


def right_answers_in_both_placements(kind):
    with running_hosts(2) as fabric:
        for ranks_per_host in (1, 2):
            right_answers(fabric, kind, 1024, 0, ranks_per_host)


@case(200, thorough=True)
def every_type_and_operator_has_the_right_answer_with_open_mpi_whatever_the_count_and_the_placement():
    for kind in ("openmpi", "component"):
        right_answers_in_both_placements(kind)


@case(400, thorough=True)
def every_type_and_operator_has_the_right_answer_with_mpich_whatever_the_count_and_the_placement():
    # MPICH's ranks never yield their core.
    right_answers_in_both_placements("mpich")


@case(200, thorough=True)
def every_type_and_operator_has_the_right_answer_in_the_network_from_one_element_to_many_chunks():
    with running_hosts(2) as fabric:
        for kind in ("openmpi", "component"):
            right_answers(fabric, kind, 1, 70000, ranks_per_host=2, in_network=1)
        right_answers(fabric, "mpich", 1, 2000, in_network=1)


@case(250, thorough=True)
def ranks_of_a_host_need_no_common_dev_shm():
    with running_hosts(2) as fabric:
        no_memory = ("unshare", "--mount", "sh", "-c",
                     'mount -t tmpfs -o size=64k none /dev/shm && exec "$0" "$@"')
        for kind in ("openmpi", "component"):
            process = fabric.mpi.start(kind, program_of("answers", kind), 1, 2000,
                                       ranks_per_host=2, launcher=no_memory, FANIN_MPI_MIN_BYTES=1,
                                       OMPI_MCA_btl_vader_backing_directory=fabric.directory)
            expect_equal(process.wait(LONG_RUN_SECONDS), 0,
                         f"{kind}: exit status: {process.stderr()[-500:]}")
            expect("not in the network" not in process.stderr(),
                   f"what the library says: {process.stderr()[-500:]}")
            expect(" wrong 0\n" in process.stdout(), process.stdout()[-2000:])


def wrong_by_itself(fabric, kind):
    """Returns the {(type, operator)} for which MPI without the library has another answer than the
    program.
    """
    printed = fabric.mpi.run(kind, program_of("answers", kind), 1 << 40, 200, preload=False,
                             done=at_end, timeout=LONG_RUN_SECONDS)
    return set(re.findall(r"wrong: \w+ (MPI_\w+) (MPI_\w+),", printed))


@case(200, thorough=True)
def what_mpi_has_wrong_is_found_at_the_start_on_any_rank_and_right_without_a_manager_too():
    with running_hosts(2) as fabric:
        for kind in DOORS:
            wrong = wrong_by_itself(fabric, kind)
            report = right_answers(fabric, kind, 1024, 200, in_network=1 << 40,
                                   FANIN_MANAGER=f"{fabric.management_ip(0)}:1")
            expect_equal({(entry["type"], entry["operator"]) for entry in report["wrong_in_mpi"]},
                         wrong, f"{kind}: what MPI has wrong")
            expect("NETWORK" not in bytes_by_way(report), f"{kind}: {report}")
        # Open MPI computes these sums wrongly with AVX, on one rank of two.
        launcher = ("sh", "-c", 'test "$(hostname)" != p1 || export OMPI_MCA_op=^avx; exec "$0" '
                                '"$@"')
        for kind in ("openmpi", "component"):
            right_answers(fabric, kind, 1024, 200, launcher=launcher)


@case(150, thorough=True)
def reduces_are_right_and_counted_where_hosts_have_different_numbers_of_ranks():
    # Without the library MPICH computes some of them wrongly, and crashes in others: with one rank
    # on the first host, and in the second program's communicator without it.
    with running_hosts(2) as fabric:
        for kind, ranks_per_host in (("mpich", (1, 2)), ("mpich", (2, 2)), ("openmpi", (1, 2)),
                                     ("component", (1, 2))):
            for min_bytes in (1024, 1 << 30):
                where = f"{kind}, {ranks_per_host} ranks on the hosts, {min_bytes} bytes and more in the network"
                printed, report = fabric.mpi.run_reported(kind, program_of("reduces", kind),
                                                          ranks_per_host=ranks_per_host,
                                                          FANIN_MPI_MIN_BYTES=min_bytes,
                                                          timeout=LONG_RUN_SECONDS)
                n_ranks = sum(ranks_per_host)
                expect_equal(printed, f"cases {16 * (n_ranks ** 2 + (n_ranks - 1) ** 2)}\n", where)
                reduces = {entry["way"]: entry["calls"] for entry in report["collectives"]
                           if entry["call"] == "Reduce"}
                expect_equal(sum(reduces.values()), 16 * (n_ranks ** 2 + (n_ranks - 1) ** 2),
                             f"{where}: reductions in the report")
                expect(("NETWORK" in reduces) == (min_bytes == 1024) and "ERROR" not in reduces,
                       f"{where}: where they went: {reduces}")


@case(60)
def a_program_with_the_other_mpis_library_ends_at_once_and_names_the_right_one():
    with running_hosts(2) as fabric:
        for kind, found, other, expected in (("openmpi", "Open MPI v", "mpich", "MPICH"),
                                             ("mpich", "MPICH Version: ", "openmpi", "Open MPI")):
            for name in ("reduces", "unusual"):  # by MPI_Init, and by MPI_Init_thread
                process = fabric.mpi.start(kind, program_of(name, kind), preload=False,
                                           LD_PRELOAD=preload_library(fabric, other))
                expect(process.wait(RUN_SECONDS) != 0,
                       f"{name}, {kind}: the exit status with the library of {other} is 0")
                lines = lines_of(process)
                said = rf"fanin-mpi: this is libfanin-mpi-{other}.so: found a program of another MPI, '{found}[^']*', expected {expected}; preload libfanin-mpi-{kind}.so"
                expect(0 < len(lines) <= 2 and all(re.fullmatch(said, line) for line in lines),
                       f"{name}, {kind}: what was said: {process.stderr()[-2000:]}")


@case(60)
def without_a_manager_all_goes_to_mpi_and_the_report_says_so():
    with running_hosts(3) as fabric:
        for kind in ("openmpi", "component"):
            printed, report = fabric.mpi.run_reported(kind, program_of("fortran_calls", kind),
                                                      FANIN_MANAGER=f"{fabric.management_ip(0)}:1",
                                                      timeout=RUN_SECONDS)
            expect("cases 13" in printed, printed)
            expect_equal([entry for entry in report["collectives"] if entry["in_network"]], [],
                         f"{kind}: calls in the network")
            expect_equal({entry["way"] for entry in report["communicators"]}, {"NO_MANAGER"},
                         f"{kind}: why not")


def lines_of(process):
    """Returns the library's lines on standard error."""
    return [line for line in process.stderr().splitlines() if "fanin-mpi:" in line]


@case(300, thorough=True)
def callbacks_threads_and_odd_ends_of_programs_are_as_without_the_library():
    # Open MPI ends a program that leaves a call under way; the library does not wait for the call
    # for ever.
    for kind, ranks_per_host, arguments in (("openmpi", 1, ()), ("openmpi", 2, ("pending",)),
                                            ("component", 1, ()), ("component", 2, ("pending",)),
                                            ("mpich", 1, ())):
        where = f"{kind}, {ranks_per_host} ranks on a host"
        with running_hosts(2 if ranks_per_host > 1 else 3) as fabric:
            program, options = program_of("unusual", kind), {"ranks_per_host": ranks_per_host,
                                                             "timeout": RUN_SECONDS, **WITHOUT_HAN}
            plain = fabric.mpi.run(kind, program, *arguments, preload=False, done=at_end, **options)
            preloaded, report = fabric.mpi.run_reported(kind, program, *arguments,
                                                        FANIN_MPI_MIN_BYTES=1,
                                                        FANIN_MPI_TIMEOUT_MS=2000, **options)
            expect_equal(preloaded, plain, where)
            sums = {entry["way"]: entry["calls"] for entry in report["collectives"]
                    if entry["call"] == "Allreduce"}
            expect(sums["NETWORK"] > 100 and ("ERROR" in sums) == (arguments != ()),
                   f"{where}: where sums went: {sums}")


@case(60)
def what_is_said_of_a_failure_ends_with_its_reason():
    with running_hosts(2) as fabric:
        for kind in ("openmpi", "component"):
            process = fabric.mpi.start(kind, program_of("unusual", kind), "pending",
                                       FANIN_MPI_MIN_BYTES=1, FANIN_MPI_TIMEOUT_MS=1000)
            expect_equal(process.wait(RUN_SECONDS), 0,
                         f"{kind}: exit status: {process.stderr()[-500:]}")
            said = [line for line in lines_of(process) if "a collective in the network failed: "
                                                          "interrupted" in line]
            expect(len(said) == 1 and said[0].endswith("interrupted"),
                   f"{kind}: what was said: {lines_of(process)}")


@case(120, thorough=True)
def a_reason_is_said_once_in_the_program():
    with running_hosts(4, config={"limits": {"max_jobs": 1, "slots": 512}}) as fabric:
        for kind, ranks_per_host, more in (("openmpi", 1, {}), ("openmpi", 2, {}), ("mpich", 1, {}),
                                           ("component", 1, {}), ("component", 2, {}),
                                           ("openmpi", 1,
                                            {"FANIN_MANAGER": f"{fabric.management_ip(0)}:1"})):
            where = f"{kind}, {ranks_per_host} ranks on a host, {more}"
            path = fabric.directory / "report.json"
            process = fabric.mpi.start(kind, program_of("collectives", kind), 6, "communicators",
                                       ranks_per_host=ranks_per_host,
                                       FANIN_MPI_MIN_BYTES=1, FANIN_MPI_REPORT="json",
                                       FANIN_MPI_REPORT_FILE=path, **more)
            wait_until(lambda path=path: path.exists() and path.read_text().endswith("\n"),
                       RUN_SECONDS, f"the report, {where}")
            lines = lines_of(process)
            process.stop()
            expect(len(lines) == 1 and "not in the network: " in lines[0],
                   f"{where}: what was said: {lines}")
            report = json.loads(path.read_text())
            path.unlink()
            # Each rank leads its host's ranks in its half of the program and in the copy, and,
            # without a manager, in the whole program.
            expect_equal([(message["count"], f"fanin-mpi: {message['text']}")
                          for message in report["messages"]],
                         [(4 * ranks_per_host * (12 if not more else 13), lines[0])],
                         f"{where}: messages of the report")


@case(60)
def settings_of_mpi_programs_may_stand_in_fanin_conf():
    with running_hosts(3) as fabric:
        conf = fabric.directory / "fanin.conf"
        for kind, lines, more, wanted in (
                ("openmpi", "FANIN_MPI_MIN_BYTES = 1000000000", {}, "TOO_SMALL"),
                ("openmpi", "FANIN_MPI_MIN_BYTES = 1000000000", {"FANIN_MPI_MIN_BYTES": 1},
                 "NETWORK"),
                ("openmpi", "FANIN_MPI = 0", {}, "DISABLED"),
                ("component", "FANIN_MPI_MIN_BYTES = 1000000000", {}, "TOO_SMALL"),
                ("component", "FANIN_MPI_MIN_BYTES = 1000000000",
                 {"OMPI_MCA_coll_fanin_min_bytes": 1}, "NETWORK")):
            conf.write_text(f"{lines}\n")
            _, report = fabric.mpi.run_reported(kind, program_of("fortran_calls", kind),
                                                FANIN_CONF=conf, timeout=RUN_SECONDS, **more)
            sums = next(entry for entry in report["collectives"] if entry["call"] == "Allreduce")
            expect_equal(sums["way"], wanted,
                         f"{kind}: sums with {lines} and {more}: {report['collectives']}")
        conf.write_text("\nFANIN_TOKEN = secret\n")
        process = fabric.mpi.start("openmpi", program_of("fortran_calls", "openmpi"),
                                   FANIN_CONF=conf)
        expect_equal(process.wait(RUN_SECONDS), 0, "exit status with a file that is not valid")
        expect("fanin.conf, line 2: found 'FANIN_TOKEN', expected manager" in process.stderr(),
               f"what is wrong: {process.stderr()[-500:]}")


def idle_job(kind):
    """A job without collectives while the manager starts again."""
    with running_hosts(3) as fabric:
        report_path = fabric.directory / "report.json"
        go_on = fabric.directory / "go-on"
        process = fabric.mpi.start(kind, program_of("failure", kind), "idle", go_on,
                                   FANIN_MPI_REPORT="json", FANIN_MPI_REPORT_FILE=report_path)
        wait_until(lambda: "idle" in process.stdout(), RUN_SECONDS, "the program")
        fabric.manager.stop(signal.SIGKILL)
        fabric.start_manager()
        # The program calls nothing: the preloaded library's threads find the manager again. The
        # component has none, and finds it when the program goes on.
        if kind != "component":
            wait_until(lambda: [[member["state"] for member in job["members"]]
                                for job in fabric.ask_manager("jobs")["jobs"]] == 2 * [3 * ["live"]],
                       30,
                       "the hosts of both communicators' jobs to come back")
        go_on.touch()
        expect_equal(process.wait(RUN_SECONDS), 0, f"exit status: {process.stderr()[-500:]}")
        calls = {(entry["call"], entry["way"]): entry["calls"]
                 for entry in json.loads(report_path.read_text())["collectives"]}
        expect_equal(calls, {("Allreduce", "NETWORK"): 3 * 21, ("Barrier", "NO_JOB_YET"): 3 * 199,
                             ("Barrier", "NETWORK"): 3 * 52}, f"{kind}: calls")


@case(120)
def an_idle_job_outlives_the_managers_restart():
    idle_job("openmpi")
    idle_job("component")


@case(180)
def a_program_that_is_aborted_or_loses_a_rank_ends():
    for kind in ("openmpi", "component"):
        odd_end(kind)


def odd_end(kind):
    with running_hosts(3) as fabric:
        program = program_of("failure", kind)
        process = fabric.mpi.start(kind, program, "abort")
        expect_equal(process.wait(RUN_SECONDS), 42, f"{kind}: the exit status of MPI_Abort")
        process = fabric.mpi.start(kind, program, "loop")
        wait_until(lambda: "running" in process.stdout(), RUN_SECONDS, "the program")
        os.kill(ranks_of(fabric, program)[1], signal.SIGKILL)
        expect(process.wait(RUN_SECONDS) != 0, f"{kind}: a program that lost a rank ended well")
        wait_until(lambda: not ranks_of(fabric, program), 20, "the end of all ranks")
        wait_until(lambda: fabric.ask_manager("trees")["trees"] == [], 20, "the end of their job")
        # The rank that ends the program says the reason, too, if rank 0 knows none.
        process = fabric.mpi.start(kind, program, "gives-up", FANIN_MPI_TIMEOUT_MS=1000)
        wait_until(lambda: "running" in process.stdout(), RUN_SECONDS, "the program")
        fabric.process_of("switch0").popen.kill()
        expect_equal(process.wait(RUN_SECONDS), 4, f"{kind}: the exit status of MPI_Abort")
        said = [line for line in lines_of(process) if "a collective in the network failed: "
                                                      "timeout: " in line]
        expect(1 <= len(said) <= 2, f"{kind}: what the two ranks have said: {process.stderr()}")


@case(180, thorough=True)
def after_a_failure_in_the_network_all_ranks_go_on_with_mpi_together():
    for kind, ranks_per_host, calls in (("openmpi", 1, "blocking"), ("openmpi", 1, "nonblocking"),
                                        ("openmpi", 2, "nonblocking"), ("component", 1, "blocking"),
                                        ("component", 1, "nonblocking"),
                                        ("component", 2, "nonblocking"),
                                        ("mpich", 1, "nonblocking")):
        where = f"{kind}, {ranks_per_host} ranks on a host, {calls} calls"
        with running_hosts(3 if ranks_per_host == 1 else 2) as fabric:
            path = fabric.directory / "survivor.json"
            process = fabric.mpi.start(kind, program_of("survivor", kind), 50, calls,
                                       ranks_per_host=ranks_per_host, FANIN_MPI_TIMEOUT_MS=1000,
                                       FANIN_MPI_REPORT="json", FANIN_MPI_REPORT_FILE=path)
            wait_until(lambda process=process: "running" in process.stdout(), RUN_SECONDS,
                       "the program")
            fabric.process_of("switch0").popen.kill()
            wait_until(lambda process=process: "cases" in process.stdout() or not process.running(),
                       RUN_SECONDS, f"the end, {where}")
            expect("cases: errors 1 to " in process.stdout()
                   or ("nonblocking" in where and "cases: errors " in process.stdout()),
                   f"{where}: {process.stdout()}, {process.stderr()}")
            wait_until(path.exists, RUN_SECONDS, f"the report, {where}")
            wait_until(lambda path=path: path.read_text().endswith("\n"), 10,
                       f"the report, {where}")
            if kind != "mpich":
                expect_equal(process.wait(RUN_SECONDS), 0,
                             f"exit status, {where}; {process.stderr()}")
            else:
                process.stop()
            reasons = re.findall("a collective in the network failed: ([^:]*)", process.stderr())
            expect(0 < len(reasons) == len(set(reasons)),
                   f"what was said, {where}: {process.stderr()}")
            by_way = bytes_by_way(json.loads(path.read_text()))
            expect(by_way["FAILED"] >= 3 * 50 * 20000 * 8,
                   f"{where}: bytes by where they went: {by_way}")


@case(60)
def the_demonstration_of_an_mpi_program_shows_it_in_the_network():
    result = json.loads(run([*module("lab.demo"), "--mpi", "--hosts", "3", "--iters", "5",
                             "--json"],
                            timeout=RUN_SECONDS).stdout)
    expect(result["ok"] and result["error"] is None, f"the result: {result}")
    expect_equal((result["mpi"]["mismatches"], result["fanin"]["mismatches"]), (0, 0),
                 "wrong elements")
    expect(result["in_network_bytes"] >= 3 * 5 * (1 << 20),
           f"bytes in the network: {result['in_network_bytes']}")
    expect(result["switch_rx_super_frames"] > 0,
           "no super-frames: the ranks were not on UDP sockets")


def instructions(calls, door):
    """Returns the instructions of a process that makes so many calls, as valgrind counts them, with
    a library to preload or without a door.
    """
    environment = {**os.environ, "OMPI_ALLOW_RUN_AS_ROOT": "1",
                   "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1", "OMPI_MCA_btl": "self",
                   "OMPI_MCA_pml": "ob1"}
    if door == "openmpi":
        environment["LD_PRELOAD"] = str(BUILD_DIR / "bindings" / "mpi" / "libfanin-mpi-openmpi.so")
    done = run(["valgrind", "--tool=callgrind", "--callgrind-out-file=/dev/null",
                program_of("small_calls", "openmpi"), str(calls), "self"],
               env=environment, timeout=RUN_SECONDS)
    return int(re.search(r"Collected : (\d+)", done.stderr).group(1))


@case(60, thorough=True)
def a_call_that_goes_to_mpi_takes_at_most_300_instructions_more():
    calls = 20000
    plain, preloaded = ((instructions(calls, door) - instructions(0, door)) / calls
                        for door in (None, "openmpi"))
    expect(0 < plain < preloaded <= plain + 300,
           f"instructions of a call: found {preloaded:.0f} with the library and {plain:.0f} without")


def ranks_of(fabric, program):
    """Returns the process numbers of the ranks of a program that this network's hosts run."""
    found = []
    for host in range(fabric.hosts):
        for pid in run(["ip", "netns", "pids", fabric.host_namespace(host)]).stdout.split():
            with contextlib.suppress(OSError):
                if os.readlink(f"/proc/{pid}/exe") == str(program):
                    found.append(int(pid))
    return found
