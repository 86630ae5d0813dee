# SPDX-License-Identifier: BSD-3-Clause
"""Releases of Debian: which ones ./dev takes, and what keeps tests on another one apart from this
machine.
"""

import contextlib
import io
import os
import signal
import subprocess
import tempfile
from pathlib import Path

from tests import release
from tests.net.support import CASES, case, expect, expect_equal, run, wait_until
from lab.namespaces import (CLONE_NEWNS, MS_PRIVATE, MS_REC, SOURCE_DIR, libc, module,
                            system_call)

MS_BIND = 0x1000
UBUNTU = 'PRETTY_NAME="Ubuntu 24.04.1 LTS"\nID=ubuntu\nID_LIKE=debian\nVERSION_CODENAME=noble\n'
TRIXIE = 'PRETTY_NAME="Debian GNU/Linux 13 (trixie)"\nID=debian\nVERSION_CODENAME=trixie\n'
# The functions as written in dev.
PREPARE = ('source <(sed "/^# ---- commands/,\\$d" dev); ANY_RELEASE=$1; packages_of() { :; }; '
           'missing_of() { :; }; need_packages build; say_release; say_release')


def on(path, words):
    """Runs a command as if this machine had another /etc/os-release."""
    def enter():
        system_call(libc.unshare(CLONE_NEWNS), "unshare")
        system_call(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "making / private")
        system_call(libc.mount(os.fsencode(path), b"/etc/os-release", None, MS_BIND, None),
                    "another release")
    return run(words, check=False, cwd=SOURCE_DIR, preexec_fn=enter)


@case()
def dev_refuses_other_releases_by_name_unless_it_is_told_to_try():
    """Before it installs or builds anything, and with the option before or after the command."""
    with tempfile.NamedTemporaryFile("w", suffix="os-release") as file:
        file.write(UBUNTU)
        file.flush()
        done = on(file.name, ["./dev", "fmt"])
        expect_equal((done.returncode, done.stdout), (1, ""), "status and output")
        for words in ("found Ubuntu 24.04.1 LTS", "Debian 12 (bookworm)", "Debian 13 (trixie)",
                      "--any-release"):
            expect(words in done.stderr, f"found no '{words}' in: {done.stderr}")
        # Wrong words that only the command itself finds: the release is not refused before.
        for words in (["--any-release", "lint", "nothing"], ["lint", "nothing", "--any-release"]):
            done = on(file.name, ["./dev", *words])
            expect_equal((done.returncode, done.stderr),
                         (2, "dev: lint: found 'nothing', expected --fast or nothing\n"),
                         " ".join(words))
        for words in (["help"], ["--help"], []):
            done = on(file.name, ["./dev", *words])
            expect_equal((done.returncode, done.stderr), (0, ""), f"./dev {' '.join(words)}")
            expect("--any-release" in done.stdout, "help does not tell of --any-release")


@case()
def dev_says_once_which_release_it_prepares_something_for():
    with tempfile.NamedTemporaryFile("w", suffix="os-release") as file:
        for text, option, words in (
                (TRIXIE, "", "Debian GNU/Linux 13 (trixie)\n"),
                (UBUNTU, "yes", "Ubuntu 24.04.1 LTS, which packages.txt is not for\n")):
            file.seek(0)
            file.truncate()
            file.write(text)
            file.flush()
            done = on(file.name, ["bash", "-c", PREPARE, "dev", option])
            expect_equal((done.returncode, done.stderr), (0, words), "what is said")


@case()
def packages_txt_names_what_tests_on_another_release_need():
    """And these tests name cases and releases that are there."""
    expect_equal([name for name in release.CASES if name not in CASES], [], "unknown cases")
    done = run(["bash", "-c", 'source <(sed -n "/^packages_of()/,/^}/p" dev); packages_of release'],
               cwd=SOURCE_DIR)
    expect_equal(done.stdout.split(), ["debootstrap", "git"], "packages")
    for words in (["potato"], [""]):
        done = run([*module("tests.release"), *words], check=False)
        expect_equal((done.returncode, done.stderr),
                     (2, f"release: found '{words[0]}', expected bookworm or trixie\n"), str(words))
    done = run(["./dev", "test", "--release"], check=False, cwd=SOURCE_DIR)
    expect_equal((done.returncode, done.stderr),
                 (2, "dev: test: found '--release', expected --release and bookworm or trixie\n"),
                 "./dev test --release")


@case()
def sources_of_another_release_are_this_ones_places():
    own = release.own_release()
    listed = (f"http://a/debian/ {own} stable main\nhttp://a/debian/ {own} stable contrib\n"
              f"http://a/debian/ {own}-updates stable-updates main\n"
              f"http://b/security/ $(CODENAME) {own}-security main\n"
              "http://c/other/ nodistro nodistro main\n"
              f"http://d/tools/ tools-{own} tools-{own} main\n")
    mirror, lines = release.sources("sarge", listed)
    expect_equal(mirror, "http://a/debian/", "mirror")
    expect_equal([line.split("] ")[1] for line in lines.splitlines()],
                 ["http://a/debian/ sarge main contrib", "http://a/debian/ sarge-updates main",
                  "http://b/security/ sarge-security main"], "sources")
    try:
        release.sources("sarge", "http://c/other/ nodistro nodistro main\n")
    except release.Failed as failure:
        expect("expected Debian's own" in str(failure), str(failure))
    else:
        expect(False, "no source of this release is not refused")


@case()
def a_step_on_another_release_leaves_neither_mounts_nor_processes():
    """However it ends: by itself, by a signal, or with the program that waits for it."""
    with tempfile.TemporaryDirectory(prefix="fanin-release-") as name:
        there = Path(name, "there")
        there.mkdir()
        # A process that has lost its parent, and one that waits, beside a mount.
        words = f'mount -t tmpfs tmpfs "$0"; (setsid sleep {{0}} & ); : >{name}/begun; ' \
                'sleep {0}; exit 3'
        steps = release.Steps(Path(name, "log"))
        with contextlib.redirect_stderr(io.StringIO()):
            status, _ = steps.run("a step", ["bash", "-c", words.format(0), str(there)],
                                  check=False)
        expect_equal(status, 3, "its exit status")
        code = ("import signal, sys\nfrom pathlib import Path\nfrom tests import release\n"
                "signal.signal(signal.SIGTERM, release.interrupt)\n"
                "release.Steps(Path(sys.argv[1])).run('a step', sys.argv[2:])\n")
        for signum in (signal.SIGTERM, signal.SIGKILL):
            seconds = f"9{os.getpid()}{int(signum)}"
            Path(name, "begun").unlink(missing_ok=True)
            with subprocess.Popen(["env", f"PYTHONPATH={SOURCE_DIR}", "/usr/bin/python3", "-c",
                                   code, str(Path(name, "log")), "bash", "-c",
                                   words.format(seconds), str(there)],
                                  stderr=subprocess.DEVNULL) as process:
                wait_until(Path(name, "begun").exists, 60, "the step")
                expect(str(there) not in Path("/proc/mounts").read_text(encoding="utf-8"),
                       "a step's mount is seen outside")
                expect(sleepers(seconds) != [], "found no process of the step")
                process.send_signal(signum)
                process.wait(60)
            wait_until(lambda: sleepers(seconds) == [], 60, "the ends of the step's processes")
        expect_equal(list(there.iterdir()), [], "what is left")


def sleepers(seconds):
    """Returns the processes that sleep for so many seconds."""
    found = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            if path.read_bytes() == f"sleep\0{seconds}\0".encode():
                found.append(path.parent.name)
    return found
