# SPDX-License-Identifier: BSD-3-Clause
"""The checks that ./dev makes before it runs something."""

import os
import socket
import tempfile
from pathlib import Path

from tests.net.support import case, expect, expect_equal, run
from lab.namespaces import BUILD_DIR, CLONE_NEWNS, MS_PRIVATE, MS_REC, SOURCE_DIR, libc, system_call

from tests import surface

MS_BIND = 0x1000
HEADERS = Path("/usr/include/gloo")


def hide(paths, socket_path):
    """Between fork and exec: makes these files impossible to open, as a socket is."""
    def enter():
        system_call(libc.unshare(CLONE_NEWNS), "unshare")
        system_call(libc.mount(b"none", b"/", None, MS_REC | MS_PRIVATE, None), "making / private")
        for path in paths:
            system_call(libc.mount(os.fsencode(socket_path), os.fsencode(path), None, MS_BIND,
                                   None), f"hiding {path}")
        if HEADERS.is_dir():
            system_call(libc.mount(b"tmpfs", os.fsencode(HEADERS), b"tmpfs", 0, None),
                        f"hiding {HEADERS}")
    return enter


def knows_gloo(build):
    return "allreduce-gloo" in (build / "build.ninja").read_text()


@case(thorough=True)
def a_library_that_is_installed_later_is_found():
    """Even if meson has not found Gloo before, ./dev bench allreduce gets its program once the
    package is installed.
    """
    real = [str(path) for place in ("/usr/lib", "/usr/lib/x86_64-linux-gnu", "/usr/local/lib")
            for path in Path(place).glob("libgloo.*")]
    with tempfile.TemporaryDirectory() as name:
        build, library, header = Path(
            name) / "build", Path(name) / "lib", Path(name) / "include" / "gloo" / "allreduce.h"
        library.mkdir()
        nothing = Path(name) / "nothing"
        with socket.socket(socket.AF_UNIX) as made:
            made.bind(str(nothing))
        options = {"cwd": SOURCE_DIR, "timeout": 60, "preexec_fn": hide(real, nothing),
                   "env": {**os.environ, "LIBRARY_PATH": str(library),
                           "CPATH": str(Path(name) / "include"),
                           "PATH": "/usr/bin:/bin:/usr/sbin:/sbin"}}
        run(["meson", "setup", str(build)], **options)
        expect(not knows_gloo(build), "a build knows Gloo before it is there")
        run(["cc", "-shared", "-o", str(library / "libgloo.so"), "-x", "c", "/dev/null"])
        header.parent.mkdir(parents=True)
        header.write_text("")
        # The functions as written in dev. On machines without MPI this fails after looking for it.
        run(["bash", "-c", 'PYTHON=/usr/bin/python3; fail() { exit 1; }; say() { :; }; '
             'say_release() { :; }; '
             'source <(sed -n "/^quietly()/,/^}/p; /^need_features()/,/^}/p; '
             '/^option_is()/,/^}/p" dev); declare -F need_features option_is '
             'quietly >/dev/null || exit 9; need_features "$0" peers', str(build)],
            check=False, **options)
        expect(knows_gloo(build), "a build does not know Gloo when it is there")


@case()
def a_text_that_users_see_is_compared_and_a_comment_is_not():
    """tests/surface.py finds a text, an option and a field that have changed, anywhere in a file,
    and nothing else.
    """
    files = {
        "tools/a.c": '#include "b.h"\nputs("one " /* here */\n\t"text\\n"); x = \'"\'; // '
                     '"no"\nstatic_assert(1, "no");\n',
        "hostlib/include/fanin/fanin.h": "int x; /* of something */\n",
        "tests/unit/test_a.c": 'puts("no");\n',
    }
    before = surface.surface(files)
    expect_equal(before["names and texts in the code"], ["one text\\n"], "texts")
    moved = {"switch/a.c": 'puts("one text\\n");\n',
             "hostlib/include/fanin/fanin.h": "/* Of anything. */\nint  x;\n"}
    expect_equal(dict(surface.surface(moved)), dict(before),
                 "what users see of the same texts elsewhere")
    for path, text in (("tools/a.c", 'puts("another");\n'),
                       ("hostlib/include/fanin/fanin.h", "long x;\n"), ("docs/man/a.1", "page\n")):
        expect(surface.surface(files | {path: text}) != before, f"a change of {path} was not seen")


@case()
def no_program_gives_its_libraries_a_function():
    """A function with the name of a library's function would replace that one, even for other
    libraries.
    """
    rooms = ("tools", "tools/pktgen", "switch", "manager", "protocols/pa_atp/server", "lab/bench")
    programs = [path for directory in rooms for path in (BUILD_DIR / directory).iterdir()
                if path.is_file() and os.access(path, os.X_OK)]
    expect(len(programs) > 5, f"found {len(programs)} programs in {BUILD_DIR}")
    for path in programs:
        names = [line.split()[2] for line in run(["nm", "-D", "--defined-only",
                                                  str(path)]).stdout.splitlines()
                 if line.split()[1] == "T"]
        expect_equal(names, [], f"functions of {path.name} that libraries call")
