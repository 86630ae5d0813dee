#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""
What abidiff finds between tests/abi/older/fanin/fanin.h and the host library's header: nothing but
what is added at the end of structs and of enumerations. Exit status 77 if there is no abidiff.
"""

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
OLDER = HERE / "older"
NEWER = HERE.parent.parent / "hostlib" / "include"
SKIPPED = 77


def functions(header):
    return re.findall(r"^FANIN_API .*?\b(fanin_\w+)\(", header.read_text(), re.MULTILINE)


def enumerations(header):
    return re.findall(r"^enum (\w+) \{", header.read_text(), re.MULTILINE)


def library(include, directory, name):
    """A library with the header's types, whose table of its functions makes all of them known to
    the debug information.
    """
    source = directory / f"{name}.c"
    names = functions(include / "fanin" / "fanin.h")
    # Weak ones, as they are defined nowhere.
    source.write_text("#include <fanin/fanin.h>\n" +
                      "".join(f"enum {enumeration} uses_{enumeration};\n"
                              for enumeration in enumerations(include / "fanin" / "fanin.h")) +
                      "".join(f"extern __typeof__({symbol}) {symbol} __attribute__((weak));\n"
                              f"__typeof__({symbol}) *const uses_{symbol} = {symbol};\n"
                              for symbol in names))
    path = directory / f"{name}.so"
    subprocess.run([os.environ.get("CC", "cc"), "-g", "-shared", "-fPIC", "-I", include, source,
                    "-o", path], check=True)
    return path


def faults(report):
    """What in abidiff's report is more than an addition behind the end of what was there."""
    found = []
    older_bits = None
    for line in report.splitlines():
        line = line.strip()
        size = re.fullmatch(r"type size changed from (\d+) to (\d+) \(in bits\)", line)
        inserted = re.fullmatch(r"'.*\b(\w+)(?:\[\d+\])?', at offset (\d+) \(in bits\).*", line)
        if line.startswith("'struct "):
            # of the struct that follows: its size is the same unless a line says so
            older_bits = None
        elif size:
            older_bits = int(size.group(1))
        elif inserted:
            # Padding becomes reserved bytes, nothing else.
            name, offset = inserted.group(1), int(inserted.group(2))
            if name != "reserved" and (older_bits is None or offset < older_bits):
                found.append(f"{line}: within what older callers have")
        elif re.search(r"(member|enumerator|parameter)s? (change|deletion)|[1-9]\d* "
                       r"Removed|(offset|return type) changed|changed to|from value", line):
            found.append(line)
    return found


def main():
    abidiff = os.environ.get("ABIDIFF") or shutil.which("abidiff")
    if abidiff is None:
        print("abidiff: SKIPPED: abidiff is not installed (Debian package abigail-tools): the "
              "header was not compared")
        return SKIPPED
    with tempfile.TemporaryDirectory() as directory:
        directory = Path(directory)
        command = [abidiff, "--leaf-changes-only", library(OLDER, directory, "older"),
                   library(NEWER, directory, "newer")]
        report = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT,
                                text=True, check=False)
    # Bits of the status: 1 an error, 2 wrong usage, 4 a change, 8 one that is surely incompatible.
    found = faults(report.stdout)
    if report.returncode & ~4:
        found.append(f"status {report.returncode}")
    if not found:
        print("abidiff: the header differs from the older one by additions at the end only")
        return 0
    print("abidiff: the header breaks callers of the older one:", *found, sep="\n  ")
    print(report.stdout)
    return 1


if __name__ == "__main__":
    sys.exit(main())
