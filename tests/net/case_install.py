# SPDX-License-Identifier: BSD-3-Clause
"""The installed files: each path that the man pages name exists."""

import os
import re
import tempfile
from pathlib import Path

from tests.net.support import case, expect, expect_equal, run
from lab.namespaces import BUILD_DIR, SOURCE_DIR

SHARED = re.compile(r"(/[\w/.-]*/share/fanin/[\w/.-]*[\w/])")


def installed(directory):
    """Installs the build below a directory. Returns the paths of all files, as without that
    directory.
    """
    run(["meson", "install", "--no-rebuild", "--quiet", "-C", str(BUILD_DIR)], timeout=60,
        env={**os.environ, "DESTDIR": str(directory)})
    return {"/" + str(path.relative_to(directory)) for path in Path(directory).rglob("*")
            if not path.is_dir()}


@case()
def what_the_man_pages_name_is_installed():
    with tempfile.TemporaryDirectory() as directory:
        files = installed(directory)
        pages = {path for path in files if re.search(r"/man/man[1-8]/", path)}
        expect_equal({Path(path).name for path in pages} ^ {path.name
                                                            for path in (SOURCE_DIR / "docs"
                                                                         / "man").glob("*.[1-8]")},
                     set(), "pages that are not installed, or only that")
        named = set()
        for page in sorted(pages):
            text = Path(directory + page).read_text(encoding="utf-8").replace(r"\-", "-")
            expect("@" not in text or "@datadir@" not in text,
                   f"{page} has a place that is not filled in")
            expect(not re.search(r"(?<![\w/])(packaging|wire|lab|tools)/", text),
                   f"{page} names a place in the source")
            named |= set(SHARED.findall(text))
        expect(len(named) >= 5, f"the pages name {sorted(named)} only")
        for path in named:
            there = path in files or any(file.startswith(path.rstrip("/") + "/") for file in files)
            expect(there, f"the pages name {path}, which is not installed: "
                          f"{sorted(file for file in files if 'share/fanin' in file)}")


@case()
def schemas_examples_and_tools_are_installed_whole():
    with tempfile.TemporaryDirectory() as directory:
        files = installed(directory)
        for source, place in (("packaging/examples/*.json", "configs"), ("wire/*.lua", "wireshark"),
                              ("tools/pktgen/replay/*", "pktgen")):
            for path in SOURCE_DIR.glob(source):
                if path.is_dir():
                    continue
                found = [file for file in files
                         if file.endswith(f"/share/fanin/{place}/{path.name}")]
                expect_equal(len(found), 1, f"installed copies of {path.name}")
                expect_equal(Path(directory + found[0]).read_bytes(), path.read_bytes(),
                             f"content of {found[0]}")
