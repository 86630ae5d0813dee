# SPDX-License-Identifier: BSD-3-Clause
"""What only Open MPI's component has to show: it is chosen by agreement or not at all, makes no job
for Open MPI's own collectives, and costs calls that go to MPI next to nothing. Its results are in
case_mpi.py.
"""

import os
import re

from tests.net.support import case, expect, expect_equal, run
from tests.net.case_mpi import (LONG_RUN_SECONDS, RUN_SECONDS, bytes_by_way, expect_same, lines_of,
                                program_of, running_hosts)
from lab.mpi import component_path
from lab.namespaces import BUILD_DIR

ON_P1 = 'test "$(hostname)" != p1 || {}; exec "$0" "$@"'


def on_one_host(command):
    """Returns a launcher that runs a command of the shell on the host p1 before the program."""
    return ("sh", "-c", ON_P1.format(command))


@case(120)
def a_host_without_the_component_or_with_other_settings_is_named_and_the_others_agree_without_it():
    with running_hosts(4) as fabric:
        program = program_of("collectives", "component")
        plain = fabric.mpi.run("component", program, 2, "few", preload=False,
                               timeout=LONG_RUN_SECONDS)
        for command, found in (("unset OMPI_MCA_mca_base_component_path", "no coll/fanin"),
                               ("export OMPI_MCA_coll=^fanin", "no coll/fanin"),
                               ("export FANIN_MPI_MAX_JOBS=7",
                                "Fanin [^']*, min_bytes 1, max_jobs 7, [^']*")):
            process = fabric.mpi.start("component", program, 2, "few",
                                       launcher=on_one_host(command), FANIN_MPI_MIN_BYTES=1,
                                       FANIN_MPI_REPORT=1)
            expect_equal(process.wait(LONG_RUN_SECONDS), 0,
                         f"{command}: exit status: {process.stderr()[-1000:]}")
            expect_same(plain, process.stdout(), command)
            said = [line for line in lines_of(process) if "MPI_COMM_WORLD" in line]
            expect(len(said) == 1 and re.fullmatch(
                r"fanin-mpi: rank 1 of MPI_COMM_WORLD does not use the component with these "
                rf"settings, and communicators with it use MPI: found '{found}', expected "
                r"'Fanin [^']*, min_bytes 1, max_jobs 8, [^']*'", said[0]),
                   f"{command}: what was said: {said}")
            # Ranks 0 and 2 are the half of the program that has the component everywhere.
            expect(re.search(r"communicators, by rank: \d+ with a job in the network",
                             process.stderr()), f"{command}: the report: {process.stderr()}")
        expect_equal(fabric.ask_manager("trees")["trees"], [], "jobs that are left")


@case(60)
def open_mpis_own_collectives_make_no_job_and_are_not_counted():
    with running_hosts(3) as fabric:
        directory = fabric.directory / "files"
        directory.mkdir()
        directory.chmod(0o1777)
        printed, report = fabric.mpi.run_reported("component", program_of("internal", "component"),
                                                  directory / "file", FANIN_MPI_MIN_BYTES=1,
                                                  timeout=RUN_SECONDS)
        expect("cases 30" in printed, printed)
        expect_equal((report["collectives"], report["communicators"]), ([], []),
                     "calls and communicators of the report")


@case(60)
def open_mpi_shows_the_component_and_its_parameters_and_without_a_manager_it_says_nothing():
    with running_hosts(3) as fabric:
        shown = run(["ompi_info", "--param", "coll", "fanin", "--level", "9"],
                    env={**os.environ, "OMPI_MCA_mca_base_component_path": component_path(fabric)},
                    timeout=RUN_SECONDS).stdout
        for name in ("priority", "enable", "nonblocking", "job_at_init", "min_bytes", "max_jobs",
                     "timeout_ms", "report", "report_file", "interface", "transport", "handler"):
            expect(f'"coll_fanin_{name}"' in shown, f"ompi_info has no coll_fanin_{name}: {shown}")
        program = program_of("fortran_calls", "component")
        for more in ({"FANIN_MANAGER": ""}, {"OMPI_MCA_coll_fanin_enable": 0}, {"FANIN_MPI": 0}):
            process = fabric.mpi.start("component", program, FANIN_MPI_REPORT=1, **more)
            expect_equal(process.wait(RUN_SECONDS), 0, f"{more}: {process.stderr()}")
            expect_equal((process.stdout().split(), lines_of(process)), (["cases", "13"], []),
                         f"{more}: what was said")


@case(60)
def a_component_for_another_open_mpi_says_so_and_goes_on_with_mpi():
    with running_hosts(3) as fabric:
        process = fabric.mpi.start("component", program_of("fortran_calls", "component"),
                                   LD_PRELOAD=BUILD_DIR / "tests" / "mpi" / "libother-version.so",
                                   FANIN_MPI_REPORT=1)
        expect_equal(process.wait(RUN_SECONDS), 0, f"exit status: {process.stderr()[-1000:]}")
        expect("cases 13" in process.stdout(), process.stdout())
        lines = lines_of(process)
        expect(len(lines) == 3 and all(re.fullmatch(
            r"fanin-mpi: mca_coll_fanin.so: found Open MPI v(\d+)\.\d+\.0, expected Open MPI "
            r"v\1\.\d+\.x: all collectives go to MPI", line) for line in lines),
               f"what was said: {lines}")


@case(60)
def programs_get_the_level_of_threads_that_they_ask_for():
    with running_hosts(3) as fabric:
        for arguments, level in (((0,), "level lower"), ((0, "threads"), "level multiple")):
            printed, report = fabric.mpi.run_reported("component",
                                                      program_of("progress", "component"),
                                                      *arguments, timeout=RUN_SECONDS)
            expect(level in printed and "NETWORK" in bytes_by_way(report),
                   f"{arguments}: {printed}, {report}")


def own_instructions(path):
    """Returns the instructions that the component's own objects have taken, from callgrind's
    output.
    """
    names, total, counts, skips = {}, 0, False, False
    for line in path.read_text().splitlines():
        found = re.fullmatch(r"(c?ob)=\((\d+)\)(?: (.*))?", line)
        if found:
            if found[3]:
                names[found[2]] = os.path.basename(found[3])
            if found[1] == "ob":
                counts = names[found[2]] in ("mca_coll_fanin.so", "libfanin-coll.so")
        elif line.startswith("calls="):
            # The next line is the cost of the function that is called.
            skips = True
        elif re.match(r"[+*-]?\d*\s*[+*-]?\d+ \d+$|\* \d+$", line) or re.match(r"[+*\d-]\S* \d+$",
                                                                           line):
            if counts and not skips:
                total += int(line.split()[-1])
            skips = False
    return total


def instructions_of(fabric, calls, which):
    """Returns the most of the ranks."""
    directory = fabric.directory / f"callgrind-{which}-{calls}"
    directory.mkdir()
    directory.chmod(0o1777)
    process = fabric.mpi.start("component", program_of("small_calls", "component"), calls, which,
                               launcher=("valgrind", "--tool=callgrind",
                                         f"--callgrind-out-file={directory}/out-%p"))
    expect_equal(process.wait(LONG_RUN_SECONDS), 0, f"exit status: {process.stderr()[-1000:]}")
    return max(own_instructions(path) for path in directory.iterdir())


@case(150, thorough=True)
def a_call_that_goes_to_mpi_takes_at_most_60_instructions_of_the_component():
    calls = 5000
    with running_hosts(2) as fabric:
        for which in ("world", "receive"):
            found = (instructions_of(fabric, calls, which)
                     - instructions_of(fabric, 0, which)) / calls
            expect((which == "receive" or found > 5) and found <= 60,
                   f"{which}: instructions of the component in a call: found {found:.1f}, expected "
                   f"at most 60")
