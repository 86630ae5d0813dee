#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks every #include "..." of the C files against the table of rooms in docs/architecture.md.

usage: rooms.py [ROOT]

ROOT: the tree, by default the one that this file is in. The table is the one under the heading
"Rooms": a row names a room, a directory, in its first column, and in its last one the rooms that it
may include, each in backquotes; "all rooms" are all. A file is in the room with the longest path
that holds it. A room may always include itself. `*` in a path is any name, and the same one in all
of a row; rows without it come first.

Prints each include that the table forbids as FILE:LINE: room A may not include room B (HEADER), and
each directory with C files that the table does not name. Exit status: 0 all right, 1 something is
forbidden, 2 the table can't be read.
"""
import os
import re
import sys

from sources import root_of, tree_files

TABLE = 'docs/architecture.md'
HEADING = '## Rooms'
ALL = 'all rooms'
# A header that may stand in <> although it is ours: what users of the library write.
PUBLIC = 'hostlib/include'
INCLUDE = re.compile(r'^[ \t]*#[ \t]*include[ \t]*(?:"([^"]+)"|<(fanin/[^>]+)>)', re.M)
# A room, in backquotes: a path that ends with "/".
ROOM = re.compile(r'`([a-z0-9_./*-]+)/`')
SUFFIXES = ('.c', '.h', '.cc')


class TableError(Exception):
    """The table of rooms can't be read."""


def table_rows(text):
    """Yields the cells of each row of the table under HEADING, without its header, with line
    numbers.
    """
    lines = text.splitlines()
    if HEADING not in lines:
        raise TableError(f'{TABLE}: found no heading "{HEADING}"')
    n_rows = 0
    for number, line in enumerate(lines[lines.index(HEADING) + 1:], lines.index(HEADING) + 2):
        if line.startswith('#'):
            break
        if not line.startswith('|'):
            if n_rows != 0 and line.strip() == '':
                break
            continue
        n_rows += 1
        if n_rows > 2:
            yield number, [cell.strip() for cell in line.strip('|').split('|')]


def read_table(text):
    """Returns what each room may include, by its path."""
    rows = list(table_rows(text))
    allowed = {}
    for number, cells in rows:
        names = ROOM.findall(cells[0])
        if len(cells) != 3 or len(names) != 1:
            raise TableError(f'{TABLE}:{number}: found {len(cells)} columns and {len(names)} rooms '
                             'in the first, '
                             'expected 3 and 1')
        if names[0] in allowed:
            raise TableError(f'{TABLE}:{number}: the room {names[0]} stands in the table twice')
        allowed[names[0]] = set(ROOM.findall(cells[2])) if cells[2] != ALL else None
    if not allowed:
        raise TableError(f'{TABLE}: found no rooms under "{HEADING}"')
    for number, cells in rows:
        for name in ROOM.findall(cells[2]):
            if name not in allowed and not any(re.fullmatch(room.replace('*', '[^/]+'), name)
                                               for room in allowed):
                raise TableError(f'{TABLE}:{number}: found {name}, expected a room of the first '
                                 'column')
    return allowed


def expand(allowed, directories):
    """The table with a row for each directory that a row with `*` is of."""
    found = {name: others for name, others in allowed.items() if '*' not in name}
    for pattern, others in allowed.items():
        if '*' not in pattern:
            continue
        before, after = pattern.split('*')
        for directory in directories:
            match = re.fullmatch(re.escape(before) + '([^/]+)' + re.escape(after), directory)
            if match is not None and directory not in found:
                found[directory] = None if others is None else {other.replace('*', match.group(1))
                                                                for other in others}
    return {name: set(found) if others is None else others for name, others in found.items()}


def above(path):
    """The directories that a file is in."""
    while (path := os.path.dirname(path)) != '':
        yield path


def room_of(path, rooms):
    """The room of a file, or None."""
    directory = os.path.dirname(path)
    while directory != '' and directory not in rooms:
        directory = os.path.dirname(directory)
    return directory or None


def is_generated(root, path, files):
    """True if the meson.build of the header's directory, or of one above it, names the header: it
    is made by the build.
    """
    name = f"'{os.path.basename(path)}'"
    directory = os.path.dirname(path)
    while directory != '':
        build = os.path.join(directory, 'meson.build')
        if build in files:
            with open(os.path.join(root, build), encoding='utf-8') as file:
                if name in file.read():
                    return True
        directory = os.path.dirname(directory)
    return False


def find_header(root, path, name, files):
    """Where the compiler finds a header that a file includes: beside the file, in the tree, or
    among the public ones.
    """
    places = [os.path.normpath(os.path.join(directory, name))
              for directory in (os.path.dirname(path), '', PUBLIC)]
    for place in places:
        if place in files:
            return place
    for place in places:
        if is_generated(root, place, files):
            return place
    return None


def check_file(root, path, files, allowed):
    """Yields what is wrong with the includes of one file."""
    room = room_of(path, allowed)
    if room is None:
        yield f'{path}:1: found a file in no room, expected one of the table in {TABLE}'
        return
    with open(os.path.join(root, path), encoding='utf-8') as file:
        text = file.read()
    for include in INCLUDE.finditer(text):
        name = include.group(1) or include.group(2)
        line = text.count('\n', 0, include.start()) + 1
        header = find_header(root, path, name, files)
        if header is None:
            yield f'{path}:{line}: found {name} nowhere in the tree'
            continue
        other = room_of(header, allowed)
        if other is None:
            yield f'{path}:{line}: found {header} in no room of the table in {TABLE}'
        elif other != room and other not in allowed[room]:
            yield f'{path}:{line}: room {room} may not include room {other} ({name})'


def main(arguments):
    """Returns the exit status."""
    root = root_of(arguments, 'rooms.py')
    try:
        with open(os.path.join(root, TABLE), encoding='utf-8') as file:
            allowed = read_table(file.read())
    except (OSError, TableError) as error:
        print(f'rooms: {error}', file=sys.stderr)
        return 2
    files = tree_files(root)
    directories = {directory for path in files for directory in above(path)}
    allowed = expand(allowed, sorted(directories))
    sources = sorted(path for path in files if path.endswith(SUFFIXES))
    problems = [problem for path in sources for problem in check_file(root, path, files, allowed)]
    for problem in problems:
        print(problem)
    if problems:
        return 1
    print(f'rooms: {len(sources)} files in {len(allowed)} rooms, clean')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
