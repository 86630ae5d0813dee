#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Finds the files of protocols that are not part of this tree (docs/adding-a-protocol.md), for
meson's option `protocols`.

usage: outside.py handlers|protocols DIRECTORY...

Prints the absolute path of each C file of DIRECTORY/switch (handlers), which goes into the switch,
or of DIRECTORY/host (protocols), which goes into the host library, a line each. C files in
DIRECTORY itself are taken for a mistake. Exit status: 0 all right, 1 a directory is not as it has
to be, 2 wrong usage.
"""
import os
import sys

KINDS = {'handlers': 'switch', 'protocols': 'host'}
EXPECTED = 'C files in switch/ for the switch or in host/ for the host library'


class DirectoryError(Exception):
    """A directory can't be used; the text is one line for people."""


def c_files(directory):
    """The names of C files in a directory; none if it is not there."""
    try:
        return sorted(name for name in os.listdir(directory) if name.endswith('.c'))
    except FileNotFoundError:
        return []


def files_of(directory):
    """The C files of a protocol's directory by their kind."""
    try:
        strange = sorted(name for name in os.listdir(directory) if name.endswith('.c'))
        found = {kind: [os.path.join(directory, side, name)
                        for name in c_files(os.path.join(directory, side))]
                 for kind, side in KINDS.items()}
    except OSError as error:
        raise DirectoryError(f'{error.filename}: {error.strerror}, expected a directory with '
                             f'{EXPECTED}') from error
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
        found = [path for directory in dict.fromkeys(map(os.path.realpath, arguments[1:]))
                 for path in files_of(directory)[arguments[0]]]
    except DirectoryError as error:
        print(f'protocols: {error}', file=sys.stderr)
        return 1
    for path in found:
        print(path)
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
