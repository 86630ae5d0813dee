# SPDX-License-Identifier: BSD-3-Clause
"""Checks that no line is wider than 100 columns: of the sources, unless a string reaches over the
edge; of documents, unless it is of a table or of code, or has a link.

usage: widths.py [ROOT]

ROOT: the tree, by default the one that this file is in. Prints each line that is too wide as
FILE:LINE: found ... Exit status: 0 all right, 1 something was found, 2 wrong usage.
"""

import os
import re
import sys

from sources import root_of, tree_files

WIDTH = 100
TAB = 8
SUFFIXES = (".c", ".h", ".cc", ".hh", ".py", ".sh", ".build", ".lua", ".pml", ".md")
SCRIPTS = ("dev", ".ci/run")
STRING = re.compile(r'"(?:\\.|[^"\\])*"' r"|'(?:\\.|[^'\\])*'")


def is_too_wide(line):
    line = re.sub(r"\s*\\?$", "", line.expandtabs(TAB))  # a macro's backslash stands where it may
    if len(line) <= WIDTH:
        return False
    rest = line[WIDTH:].strip("();,]}: ")
    return rest != "" and not any(match.start() < WIDTH <= match.end()
                                  for match in STRING.finditer(line))


def is_prose(line):
    """False for a line of a table, indented code, and lines with links."""
    return not line.lstrip().startswith("|") and not line.startswith("    ") and "](" not in line \
        and "://" not in line


def wide_lines(path, lines):
    """The numbers of the lines that are too wide."""
    fenced = False
    for number, line in enumerate(lines, 1):
        if not path.endswith(".md"):
            if is_too_wide(line):
                yield number
            continue
        fenced ^= line.lstrip().startswith("```")
        if not fenced and is_prose(line) and len(line) > WIDTH:
            yield number


def problems(root, paths):
    for path in paths:
        with open(os.path.join(root, path), encoding="utf-8") as file:
            lines = file.read().splitlines()
        for number in wide_lines(path, lines):
            width = len(lines[number - 1].expandtabs(TAB))
            yield f"{path}:{number}: found {width} columns, expected at most {WIDTH}"


def main(arguments):
    """Returns the exit status."""
    root = root_of(arguments, "widths.py")
    paths = sorted(path for path in tree_files(root)
                   if path.endswith(SUFFIXES) or path in SCRIPTS)
    found = list(problems(root, paths))
    for problem in found:
        print(problem)
    if found:
        return 1
    print(f"widths: {len(paths)} files, clean")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
