# SPDX-License-Identifier: BSD-3-Clause
"""
Builds another commit of this project, to be compared with this tree. Its programs are kept in
build/BENCH/COMMIT.

The sources come out of git into a temporary directory (git archive, which leaves no worktree behind
in .git). Only the programs and the library that a benchmark runs are kept, laid out as in a build
directory.
"""

import os
import re
import shutil
import subprocess
import tempfile
from pathlib import Path

from lab.namespaces import BUILD_DIR, SOURCE_DIR, LabError

LIBRARY = "hostlib"
BUILD_SECONDS = 1200


def git(*arguments):
    """Runs git on this project; None if git fails."""
    try:
        done = subprocess.run(["git", "-c", "safe.directory=*", "-C", SOURCE_DIR, *arguments],
                              stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=60)
    except OSError:
        return None
    return done.stdout.strip() if done.returncode == 0 else None


def commit_of(name, others=""):
    """Returns the full name of a commit; LabError if there is none of that name. others: other
    allowed names, for the error's text.
    """
    commit = git("rev-parse", "--verify", "--quiet", f"{name}^{{commit}}")
    if commit is None:
        where = "there is no git" if shutil.which("git") is None else "this is no git repository"
        if git("rev-parse", "--git-dir") is not None:
            where = ".git has no such commit (a shallow clone gets all by git fetch --unshallow)"
        raise LabError(f"--against: found '{name}', but {where}; expected a commit of this "
                       f"project{others}")
    return commit


def _step(arguments, directory, log, **options):
    """Runs a step of the build; the step ends when this process is interrupted. LabError with its
    last output if it fails.
    """
    with open(log, "ab") as out:
        process = subprocess.Popen(arguments, stdin=subprocess.DEVNULL, stdout=out, stderr=out,
                                   cwd=directory, **options)
        try:
            status = process.wait(BUILD_SECONDS)
        except BaseException:
            process.terminate()  # ninja ends its compilers
            process.wait()
            raise
    if status != 0:
        lines = [line for line in log.read_text(errors="replace").splitlines() if line.strip()]
        words = next((line for line in lines if re.search(r"\berror\b", line, re.IGNORECASE)),
                     lines[-1] if lines else "no message")
        raise LabError(f"--against: {arguments[0]} failed: {words}")


def _targets(build, programs):
    """Returns where a configured build will have its programs: rooms have moved since older
    commits.
    """
    listed = subprocess.run(["ninja", "-C", str(build), "-t", "targets", "all"],
                            stdin=subprocess.DEVNULL, capture_output=True, text=True,
                            check=True, timeout=60).stdout
    rules = [line.split(": ")[0] for line in listed.splitlines()]
    found = [next((path for path in rules if Path(path).name == name), None) for name in programs]
    if None in found:
        raise LabError(f"--against: found no {programs[found.index(None)]} in that commit")
    return found


def _build(commit, directory, target, programs):
    """Builds a commit inside of a directory, and copies the files that run into another one."""
    sources, build, log = directory / "sources", directory / "build", directory / "log"
    sources.mkdir()
    archive = directory / "sources.tar"
    _step(["git", "-c", "safe.directory=*", "-C", str(SOURCE_DIR), "archive", "-o", str(archive),
           commit], directory, log)
    _step(["tar", "-x", "-f", str(archive), "-C", str(sources)], directory, log)
    # Commits that are older than the compiler don't know its warnings.
    _step(["meson", "setup", "--buildtype=release", "-Dwerror=false", str(build), str(sources)],
          directory, log)
    paths = _targets(build, programs)
    _step(["ninja", "-C", str(build), *paths], directory, log)
    for path in paths:
        (target / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copy2(build / path, target / path)
    (target / LIBRARY).mkdir(exist_ok=True)
    for library in (build / LIBRARY).glob("libfanin.so*"):
        if library.is_file():
            shutil.copy2(library, target / LIBRARY / library.name, follow_symlinks=False)


def build_of(commit, say, bench, programs):
    """Returns the directory with a commit's programs for a benchmark; builds them if they are not
    there. say: prints messages. commit: its full name.
    """
    kept = BUILD_DIR / bench / commit
    if kept.is_dir():
        return kept
    say(f"building {commit[:10]} into {kept}; this is done once")
    kept.parent.mkdir(parents=True, exist_ok=True)
    # The next laboratory removes a directory with such a name if this process is killed.
    with tempfile.TemporaryDirectory(prefix=f"fanin-{os.getpid()}-build-") as directory:
        target = Path(directory, "kept")
        target.mkdir()
        _build(commit, Path(directory), target, programs)
        # The rename makes it appear at once: a directory of that name is complete.
        half = kept.with_name(f"{kept.name}.{os.getpid()}")
        try:
            shutil.copytree(target, half, symlinks=True)
            half.rename(kept)
        except BaseException:
            shutil.rmtree(half, ignore_errors=True)
            raise
    return kept
