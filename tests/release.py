#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Builds and tests this checkout's last commit on a bare Debian of another release, in
build-release/.

usage: python3 -m tests.release [RELEASE [COMMAND [ARGUMENT]...]]

RELEASE: bookworm or trixie; by default the one of them that this machine does not run. COMMAND: is
run in a copy of the last commit there, instead of the build and the tests. Needs root, and 6 GB of
room. Progress goes to standard error, a summary to standard output. Exit status: 0 all right, 1
something failed, 2 wrong usage; with COMMAND, its own.

The bare system is made by debootstrap from this machine's own mirror, once. Each run has a copy of
it, in which ./dev installs packages, out of those that earlier runs have downloaded. Kernel,
devices and network are this machine's. Each step runs in a mount and a PID namespace of its own:
its mounts and whatever it has started go with it, even if this program is killed.
"""

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from lab.namespaces import (PATIENCE, SOURCE_DIR, Interrupted, LabError, die_with_parent,
                            report_interruption, run)

RELEASES = ("bookworm", "trixie")
# Marks of unit suites that are not run where others than this machine's build are tested.
LEFT_OUT = ("long", "slow", "waits", "thorough", "unsanitized")
DIRECTORY = SOURCE_DIR / "build-release"
ROOM_BYTES = 6 * 10 ** 9
SECONDS = 1800  # of everything, on a machine that has nothing else to do
KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
OS_RELEASE = "/etc/os-release"
# What apt asks servers for, and how: not what it does on a machine.
APT_FETCHES = ("http", "https", "Retries", "ForceIPv4", "ForceIPv6", "Languages",
               "Check-Valid-Until", "Check-Date")
# What says where servers are, and whom to believe.
MACHINE_FILES = ("etc/resolv.conf", "etc/hosts", "etc/ssl/certs/ca-certificates.crt")
CHECKOUT = "/src"
PROGRAM_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
LAST_LINES = 30
PROGRESS_SECONDS = 60

# Beside those with the mark "family": what depends on packages whose releases differ.
CASES = (
    # DPDK
    "sum_is_exact_on_af_xdp",
    "sum_is_exact_on_memif",
    "frames_are_switched_on_af_xdp_ports",
    "telemetry_says_what_faninctl_says",
    # libmicrohttpd, OpenSSL, Wireshark, groff, systemd
    "metrics_say_what_faninctl_says",
    "the_manager_is_spoken_to_by_tls",
    "the_dissector_knows_every_type_of_packet",
    "man_pages_are_formatted_without_a_warning",
    "the_units_are_what_systemd_understands",
    # meson
    "schemas_examples_and_tools_are_installed_whole",
    # Open MPI and MPICH
    "open_mpi_programs_have_the_same_results_in_the_network",
    "open_mpi_programs_have_the_same_results_through_the_component",
    "a_host_without_the_component_or_with_other_settings_is_named_and_the_others_agree_without_it",
    "open_mpis_own_collectives_make_no_job_and_are_not_counted",
    "open_mpi_shows_the_component_and_its_parameters_and_without_a_manager_it_says_nothing",
    "programs_get_the_level_of_threads_that_they_ask_for",
    "mpich_programs_have_the_same_results_in_the_network",
    "mpi_makes_progress_while_open_mpi_programs_wait_in_the_network",
    "mpi_makes_progress_while_mpich_programs_wait_in_the_network",
    "fortran_programs_run_in_the_network",
    "calls_that_mpi_refuses_have_the_same_errors_with_the_library",
    "after_a_failure_in_the_network_all_ranks_go_on_with_mpi_together",
    "a_program_with_the_other_mpis_library_ends_at_once_and_names_the_right_one",
    "a_program_that_is_aborted_or_loses_a_rank_ends",
    "the_demonstration_of_an_mpi_program_shows_it_in_the_network",
    # PyTorch
    "torch_collectives_are_exact_in_the_network",
    "torch_groups_work_side_by_side",
    "torch_training_is_equal_on_all_ranks_and_near_gloos",
    "torch_trains_with_several_ranks_on_a_host",
    "torchs_callbacks_make_collectives_and_wait_for_them",
    "a_killed_rank_of_torch_is_named",
    "torchrun_finds_itself_by_c10d_with_several_workers_on_a_host",
    "groups_of_torch_leave_nothing_and_end_with_calls_in_flight",
    "a_program_that_ends_after_a_forward_step_ends_at_once",
    "tensors_of_every_kind_are_summed_or_refused_at_all_ranks",
    "the_demo_trains_over_fanin_as_over_gloo",
)
# Those of PyTorch 2, which Debian 12 does not have.
CASES_OF_TRIXIE = (
    "calls_of_sharded_models_run_in_the_network",
    "torch_has_this_backend_for_the_cpu_and_another_for_other_devices",
    "a_checkpoint_of_torch_is_saved_and_loaded",
)

# The first process of a step: it also takes over and ends what lost its parent.
ENTER = """
root=$1 archives=$2 checkout=$3 path=$4
shift 4
mount --bind "$root" "$root"
mount -t proc proc "$root/proc"
mount --rbind /sys "$root/sys"
mount --rbind /dev "$root/dev"
mount -t tmpfs -o mode=1777 tmpfs "$root/dev/shm"
mount -t tmpfs -o mode=755 tmpfs "$root/run"
mkdir "$root/run/lock"
mount --bind "$archives" "$root/var/cache/apt/archives"
# Not chroot: paths of processes in /proc would begin with that of the system.
cd "$root"
pivot_root . .
umount --lazy .
cd "$checkout"
status=0
env -i HOME=/root LANG=C.UTF-8 TERM=dumb PATH="$path" "$@" || status=$?
exit "$status"
"""


class Failed(Exception):
    """A step failed; the text is for people."""


class Steps:
    """The steps of a run: what they say goes to a log, and to its end if one fails."""

    def __init__(self, log):
        self.started = time.monotonic()
        self.log = log

    def seconds(self):
        return time.monotonic() - self.started

    def say(self, what):
        """Says which step begins, with the time since the first one."""
        seconds = int(self.seconds())
        print(f"[{seconds // 60}:{seconds % 60:02}] {what}", file=sys.stderr, flush=True)

    def run(self, what, words, show=(), check=True, **options):
        """Runs a step to its end, in namespaces of its own. show: streams that are this program's,
        and not the log's. Returns its exit status and what the log has of it.
        """
        self.say(what)
        words = ["unshare", "--mount", "--pid", "--kill-child", "--fork", *words]
        with open(self.log, "ab") as log:
            begin = log.tell()
            process = subprocess.Popen(words, stdin=subprocess.DEVNULL,
                                       stdout=None if "stdout" in show else log,
                                       stderr=None if "stderr" in show else log,
                                       start_new_session=True, preexec_fn=die_with_parent,
                                       **options)
            try:
                status = self._wait(process, what)
            except BaseException:
                end(process)
                raise
        with open(self.log, "rb") as log:
            log.seek(begin)
            said = log.read().decode(errors="replace")
        if check and status != 0:
            last = "\n".join(said.rstrip().splitlines()[-LAST_LINES:])
            raise Failed(f"{what}: failed with exit status {status}; {self.log} has all:\n{last}")
        return status, said


    def _wait(self, process, what):
        """Returns the exit status of a step's process; says now and then that it goes on."""
        while True:
            with contextlib.suppress(subprocess.TimeoutExpired):
                return process.wait(PROGRESS_SECONDS)
            if self.seconds() > PATIENCE * SECONDS:
                raise Failed(f"{what}: not done {PATIENCE * SECONDS} s after the first step began")
            self.say(f"{what}: goes on")


def end(process):
    """Ends a step with all that it has started: the first process of its namespace takes the others
    with it, and is gone when they are.
    """
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    with contextlib.suppress(OSError):
        for child in children.read_text(encoding="ascii").split():
            os.kill(int(child), signal.SIGKILL)
    try:
        process.wait(30)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def own_release():
    """Returns the code name of this machine's release, such as bookworm."""
    with open(OS_RELEASE, encoding="utf-8") as file:
        words = dict(line.rstrip().split("=", 1) for line in file if "=" in line)
    return words.get("VERSION_CODENAME", "").strip('"')


def own_sources():
    """Returns what apt has of this machine's sources: a place, the code name and the name of a
    suite and a component in each line.
    """
    return run(["apt-get", "indextargets", "--format",
                "$(REPO_URI) $(CODENAME) $(RELEASE) $(COMPONENT)", "Created-By: Packages"]).stdout


def sources(release, listed):
    """Returns the mirror of this machine's own packages, and the lines of a sources.list that take
    those of another release from the same places. listed: see own_sources.
    """
    own = own_release()
    suites = [own, f"{own}-updates", f"{own}-security"]
    places = {}
    for line in listed.splitlines():
        uri, name, suite, component = line.split()
        # Without downloaded lists apt does not know the suite's code name.
        suite = suite if name.startswith("$") else name
        if suite in suites:
            places.setdefault((uri, suite), []).append(component)
    mirror = next((uri for uri, suite in places if suite == own), None)
    if mirror is None:
        raise Failed(f"apt's sources: found none with the suite {own}, expected Debian's own")
    return mirror, "".join(
        f"deb [signed-by={KEYRING}] {uri} {suite.replace(own, release)} "
        f"{' '.join(dict.fromkeys(components))}\n" for (uri, suite), components in places.items())


def fetch_options():
    """Returns apt's options of this machine by which it fetches packages, as lines of a file."""
    dumped = run(["apt-config", "dump", "--no-empty", "--format", '%F "%v";%n',
                  "Acquire"]).stdout
    return [line for line in dumped.splitlines() if line.split("::")[1] in APT_FETCHES
            or line.split()[0].removeprefix("Acquire::") in APT_FETCHES]


def proxy_environment(options):
    """The environment with the proxy that apt has: debootstrap fetches by other means."""
    for line in options:
        name, value = line.rstrip(";").split(maxsplit=1)
        if name in ("Acquire::http::Proxy", "Acquire::https::Proxy"):
            yield name.split("::")[1] + "_proxy", value.strip('"')


def remove(path):
    """Removes a directory, but nothing that is mounted in it."""
    run(["rm", "-rf", "--one-file-system", "--", str(path)], timeout=300)


def disk_bytes(*paths):
    """Returns what directories take on disk."""
    return sum(int(run(["du", "-s", "-x", "-B", "1", str(path)], timeout=300).stdout.split()[0])
               for path in paths)


class Root:
    """A bare system of a release, for the length of a block."""

    def __init__(self, release, steps, directory):
        self.release, self.steps = release, steps
        self.base, self.path = directory / "base", directory / "root"
        self.archives = directory / "archives"

    def __enter__(self):
        try:
            self._make()
        except BaseException:
            self.close()
            raise
        return self

    def __exit__(self, *_):
        self.close()

    def close(self):
        remove(self.path)

    def _make(self):
        mirror, lines = sources(self.release, own_sources())
        options = fetch_options()
        remove(self.path)
        if not self.base.exists():
            part = self.base.with_suffix(".part")
            remove(part)
            self.steps.run(f"making a bare {self.release}", [
                "bash", "-c", '"$@"; exit $?', "-", "debootstrap", "--variant=minbase",
                f"--keyring={KEYRING}", "--include=ca-certificates,git", self.release, str(part),
                mirror], env={**os.environ, **dict(proxy_environment(options))})
            part.rename(self.base)
        self.steps.say("copying it, and the last commit into it")
        run(["cp", "-a", str(self.base), str(self.path)], timeout=300)
        apt = self.path / "etc" / "apt"
        (apt / "sources.list").write_text(lines, encoding="utf-8")
        (apt / "apt.conf.d" / "90fetch").write_text(
            "\n".join([*options, 'APT::Keep-Downloaded-Packages "true";', ""]), encoding="utf-8")
        (self.archives / "partial").mkdir(parents=True, exist_ok=True)
        for name in MACHINE_FILES:
            # What stands there may be a link out of the system.
            (self.path / name).unlink(missing_ok=True)
            shutil.copyfile(f"/{name}", self.path / name)
        self._check_out(Path(f"{self.path}{CHECKOUT}"))

    @staticmethod
    def _check_out(there):
        """Puts the last commit's files there, with a git that knows them. A clone would want a
        checkout of root's own that is not shallow.
        """
        there.mkdir()
        with tempfile.NamedTemporaryFile() as archive:
            run(["git", "-c", "safe.directory=*", "-C", str(SOURCE_DIR), "archive", "-o",
                 archive.name, "--format=tar", "HEAD"], timeout=300)
            run(["tar", "-x", "-f", archive.name, "-C", str(there)], timeout=300)
        run(["git", "init", "-q", str(there)])
        run(["git", "-C", str(there), "add", "-A"])

    def run(self, what, *words, **options):
        """Runs a step in the system, in the checkout; see Steps.run."""
        return self.steps.run(what, ["bash", "-euc", ENTER, "-", str(self.path), str(self.archives),
                                     CHECKOUT, PROGRAM_PATH, *words], **options)


def uncommitted():
    """Returns the files that differ from the last commit."""
    return run(["git", "-c", "safe.directory=*", "-C", str(SOURCE_DIR), "status",
                "--porcelain"]).stdout.splitlines()


def versions(root):
    """Returns what the system has, in words."""
    said = root.run("looking at versions", "bash", "-c",
                    'gcc -dumpfullversion; pkg-config --modversion libdpdk ompi-c mpich; '
                    'clang -dumpversion; cat build/bindings/torch/missing; '
                    'tail -n 1 build/bindings/torch/fanin_torch/interpreter')[1].splitlines()
    return "GCC {}, DPDK {}, Open MPI {}, MPICH {}, clang {}".format(*said) + (
        f"; no PyTorch backend: {said[5]}" if said[5] else f", PyTorch {said[6]}")


def last_line(said):
    """Returns the last line of what a step said."""
    return (said.strip().splitlines() or ["no output"])[-1]


def test(root):
    """Builds and tests; yields each line of the summary, and whether it is good."""
    status, said = root.run("installing packages, and building: warnings are errors", "./dev",
                            "build", "--tests", show=("stderr",), check=False)
    if status != 0:
        yield "the build failed", False
        return
    yield f"built without warnings: {versions(root)}", True
    root.run("removing packages of earlier runs that have newer versions", "apt-get", "-q",
             "autoclean", check=False)
    program = "build/tests/fanin-check"
    marks = " ".join(LEFT_OUT)
    listed = root.run("listing unit suites and net cases", "bash", "-c",
                      f'for mark in {marks}; do {program} --list "$mark"; done; echo .; '
                      f"{program} --list; echo .; python3 -m tests.net.cases --list family")[1]
    without, suites, family = (part.split("\n") for part in listed.split(".\n"))
    suites = [suite for suite in suites if suite not in ("", "net", *without)]
    status, said = root.run(f"{len(suites)} unit suites", program, *suites, check=False)
    yield f"{len(suites)} unit suites: {last_line(said)}", status == 0
    names = [*(line.split()[0] for line in family if line), *CASES,
             *(CASES_OF_TRIXIE if root.release == "trixie" else ())]
    for name in names:
        status, said = root.run(f"net case {name}", "python3", "-m", "tests.net.cases", name,
                                check=False)
        if status != 0:
            last = last_line(said).removeprefix(f"{name}: ")
            yield f"net case {name}: {last}", False
    yield f"{len(names)} net cases ran", True


def run_all(release, command):
    """Returns the exit status."""
    directory = DIRECTORY / release
    directory.mkdir(parents=True, exist_ok=True)
    steps = Steps(directory / "log")
    with open(DIRECTORY / "lock", "w", encoding="ascii") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        open(steps.log, "wb").close()
        free = shutil.disk_usage(directory).free
        if free < ROOM_BYTES and free + disk_bytes(directory) < ROOM_BYTES:
            raise Failed(f"{DIRECTORY}: found {free >> 20} MiB of room, expected "
                         f"{ROOM_BYTES >> 20} MiB, with what is there of {release}")
        left_out = uncommitted()
        if left_out:
            steps.say(f"{len(left_out)} files have changes that are in no commit, and take no part")
        with Root(release, steps, directory) as root:
            if command:
                return root.run(" ".join(command), *command, show=("stdout", "stderr"),
                                check=False)[0]
            good = True
            lines = []
            for line, is_good in test(root):
                steps.say(line if is_good else f"FAILED: {line}")
                lines.append(line if is_good else f"FAILED: {line}")
                good = good and is_good
            size = disk_bytes(directory)
        steps.say("done")
        print("\n".join(f"release {release}: {line}" for line in lines))
        print(f"release {release}: {'all right' if good else 'FAILED'}, after "
              f"{steps.seconds() / 60:.1f} min, with {size / 1e9:.1f} GB on disk")
        return 0 if good else 1


def interrupt(signum, _frame):
    raise Interrupted(signum)


def main(arguments):
    """Returns the exit status."""
    release, command = (arguments or [None])[0], arguments[1:]
    if release is None:
        release = next(name for name in RELEASES if name != own_release())
    if release not in RELEASES:
        print(f"release: found '{release}', expected {' or '.join(RELEASES)}", file=sys.stderr)
        return 2
    if os.geteuid() != 0:
        print("release: needs root for mounts and network namespaces", file=sys.stderr)
        return 2
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(signum, interrupt)
    try:
        return run_all(release, command)
    except (Failed, LabError) as error:
        print(f"release {release}: FAILED: {error}")
        return 1
    except Interrupted as error:
        return report_interruption(error)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
