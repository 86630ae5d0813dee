# SPDX-License-Identifier: BSD-3-Clause
"""No line of the sources is wider than 100 columns, unless a string reaches over the edge.

usage: python3 tests/widths.py [FILE...]; without names: all files that git
knows or would add
"""

import os
import re
import subprocess
import sys
from pathlib import Path

SOURCE_DIR = Path(__file__).resolve().parent.parent
WIDTH = 100
TAB = 8
SUFFIXES = (".c", ".h", ".cc", ".py", ".sh", ".build", ".lua", ".pml")
SCRIPTS = ("dev", ".ci/run")
STRING = re.compile(r'"(?:\\.|[^"\\])*"' r"|'(?:\\.|[^'\\])*'")


def is_too_wide(line):
    line = re.sub(r"\s*\\?$", "", line.expandtabs(TAB))  # a macro's backslash stands where it may
    if len(line) <= WIDTH:
        return False
    rest = line[WIDTH:].strip("();,]}: ")
    return rest != "" and not any(match.start() < WIDTH <= match.end()
                                  for match in STRING.finditer(line))


def tree_files():
    """The sources that git knows or would add; all of them where there is no git."""
    if (SOURCE_DIR / ".git").exists():
        listed = subprocess.run(["git", "-c", f"safe.directory={SOURCE_DIR}", "ls-files", "-co",
                                 "--exclude-standard"], cwd=SOURCE_DIR, capture_output=True,
                                text=True, check=True).stdout.splitlines()
    else:
        listed = []
        for directory, below, names in os.walk(SOURCE_DIR):
            below[:] = [name for name in below
                        if not (Path(directory) / name / "build.ninja").exists()]
            listed += [os.path.relpath(Path(directory) / name, SOURCE_DIR) for name in names]
    return sorted(name for name in set(listed)
                  if (name.endswith(SUFFIXES) or name in SCRIPTS)
                  and (SOURCE_DIR / name).is_file())


def main(names):
    if not names:
        names = tree_files()
    wide = 0
    for name in names:
        lines = (SOURCE_DIR / name).read_text(encoding="utf-8").split("\n")
        for number, line in enumerate(lines, 1):
            if is_too_wide(line):
                print(f"{name}:{number}: found {len(line.expandtabs(TAB))} columns, expected at "
                      f"most {WIDTH}")
                wide += 1
    print(f"widths: {len(names)} files, " + (f"{wide} lines too wide" if wide else "clean"))
    return 1 if wide else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
