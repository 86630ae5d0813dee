# SPDX-License-Identifier: BSD-3-Clause
"""Protocols from outside of the tree: the text of docs/adding-a-protocol.md agrees with
examples/acked, and an unusable directory gets an error. examples/acked/tests has the case that runs
it.
"""

import re
import sys
import tempfile
from pathlib import Path

from lab.namespaces import SOURCE_DIR
from tests.net.support import case, expect, expect_equal, run, running_lab

EXAMPLE = SOURCE_DIR / "examples" / "acked"
PAGE = SOURCE_DIR / "docs" / "adding-a-protocol.md"
FINDER = SOURCE_DIR / "protocols" / "outside.py"


def find(kind, *directories):
    """Runs protocols/outside.py; returns its exit status, output and errors."""
    done = run([sys.executable, FINDER, kind, *directories], check=False)
    return done.returncode, done.stdout.splitlines(), done.stderr


@case()
def files_of_protocols_are_found_by_their_folders():
    expect_equal(find("handlers", EXAMPLE), (0, [str(EXAMPLE / "switch/acked.c")], ""),
                 "the example's handler")
    expect_equal(find("protocols", EXAMPLE), (0, [str(EXAMPLE / "host/acked.c")], ""),
                 "the example's host protocol")
    with tempfile.TemporaryDirectory() as directory:
        place = Path(directory)

        def expect_told(words, *directories):
            for kind in ("handlers", "protocols"):
                status, found, told = find(kind, *directories)
                expect_equal((status, found, told.count("\n")), (1, [], 1),
                             f"status, files and lines ({told})")
                for word in words:
                    expect(word in told, f"found '{told.strip()}', expected '{word}' in it")
        expect_told([str(place / "none"), "No such file or directory", "switch/", "host/"],
                    place / "none")
        expect_told([directory, "found no C files in switch/", "host/"], place)
        (place / "handler.c").touch()
        expect_told([directory, "found handler.c", "expected C files in switch/"], place)
        expect_told(["found handler.c"], EXAMPLE, place)
        expect_told(["Not a directory"], place / "handler.c")
        (place / "handler.c").unlink()
        (place / "switch").touch()
        expect_told([str(place / "switch"), "Not a directory"], place)
        (place / "switch").unlink()
        # Headers, tests and the like may be beside them.
        (place / "switch").mkdir()
        (place / "tests").mkdir()
        for name in ("switch/b.c", "switch/a.c", "switch/a.h", "both.h", "tests/test_both.c",
                     "README.md"):
            (place / name).touch()
        expect_equal(find("handlers", place, place)[:2],
                     (0, [str(place / "switch/a.c"), str(place / "switch/b.c")]), "two handlers")
        expect_equal(find("protocols", place)[:2], (0, []),
                     "no host protocol, which a handler may do without")
        expect_equal(find("handlers", place, EXAMPLE)[1][2:], [str(EXAMPLE / "switch/acked.c")],
                     "those of a second directory")
    expect_equal(find("others", EXAMPLE)[0], 2, "status of a wrong call")


def blocks_of(text):
    """Returns (file named last before it, lines) of each fenced block of C in a page."""
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
    expect_equal({name for name, _ in blocks},
                 {"examples/acked/acked.h", "examples/acked/switch/acked.c",
                  "examples/acked/host/acked.c"}, "files shown")
    for path in re.findall(r"\]\((?!http|#)([^)#]+)", page):
        expect((PAGE.parent / path).exists(), f"the page links to {path}, which is not there")


@case()
def a_switch_has_no_protocol_that_it_was_not_given():
    with running_lab(1) as lab:
        handlers = lab.control.ask("version")["handlers"]
        expect(handlers and all(handler["name"] != "elsewhere" for handler in handlers),
               f"handlers: {handlers}")
        done = lab.ctl("jobs", "create", "--member", "h0:10.77.0.1", "--handler", "elsewhere",
                       check=False)
        expect(done.returncode != 0 and 'found handler "elsewhere", expected one that `version` '
                                        'lists' in done.stderr, done.stderr)


@case(120, thorough=True)
def a_wrong_directory_is_told_by_meson():
    with tempfile.TemporaryDirectory(prefix="fanin-example-") as directory:
        done = run(["meson", "setup", Path(directory) / "build", SOURCE_DIR,
                    f"-Dprotocols={directory}/none"], check=False, timeout=90)
        words = f"protocols: {directory}/none: No such file or directory, expected a directory with C files in switch/"
        expect(done.returncode != 0 and words in done.stdout + done.stderr,
               f"meson says: {done.stdout[-500:]}")
