#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Finds the files of protocols that are not part of this tree (docs/adding-a-protocol.md), for meson's option `protocols`.

usage: outside.py handlers|protocols DIRECTORY...

Prints the absolute path of each file that goes into the switch (handlers: handler*.c), or into the host library (protocols:
protocol*.c), a line each. Files with other names are left alone, but for C files, which are taken for a mistake unless they begin with
"test". Exit status: 0 all right, 1 a directory is not as it has to be, 2 wrong usage.
"""
import os
import re
import sys

KINDS = {'handlers': re.compile(r'handler.*\.c'), 'protocols': re.compile(r'protocol.*\.c')}
EXPECTED = 'handler*.c for the switch or protocol*.c for the host library'


class DirectoryError(Exception):
    """A directory can't be used; the text is one line for people."""


def files_of(directory):
    """The file names in a directory by their kind."""
    try:
        names = sorted(os.listdir(directory))
    except OSError as error:
        raise DirectoryError(f'{directory}: {error.strerror}, expected a directory with {EXPECTED}') from error
    found = {kind: [name for name in names if pattern.fullmatch(name)] for kind, pattern in KINDS.items()}
    strange = [name for name in names if name.endswith('.c') and not name.startswith('test') and
               not any(name in files for files in found.values())]
    if strange:
        raise DirectoryError(f'{directory}: found {", ".join(strange)}, expected {EXPECTED}')
    if not any(found.values()):
        raise DirectoryError(f'{directory}: found no {EXPECTED}')
    return found


def main(arguments):
    """Returns the exit status."""
    if not arguments or arguments[0] not in KINDS:
        print(__doc__.split('\n\n')[1], file=sys.stderr)
        return 2
    try:
        found = [os.path.join(directory, name) for directory in dict.fromkeys(map(os.path.realpath, arguments[1:]))
                 for name in files_of(directory)[arguments[0]]]
    except DirectoryError as error:
        print(f'protocols: {error}', file=sys.stderr)
        return 1
    for path in found:
        print(path)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
