#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks that the names of a protocol stay in its folder, so that it can be left out.

usage: names.py [ROOT]

ROOT: the tree, by default the one that this file is in. Of each protocol NAME that can be left out
(the choices of the option `without` in meson_options.txt) C files outside of protocols/NAME, tests,
laboratory, examples and public headers may not have fanin_NAME_..., FANIN_NAME_..., the string
"NAME", or an include of NAME.h or NAME_*.h, but for public names and what EXEMPT lists.

Prints each as FILE:LINE: found ... of protocols/NAME. Exit status: 0 all right, 1 something was
found, 2 wrong usage.
"""
import os
import re
import sys

from sources import protocols_of, root_of, tree_files

SUFFIXES = ('.c', '.h', '.cc', '.hh')
PUBLIC = 'hostlib/include/'
ELSEWHERE = re.compile(r'tests/|lab/|examples/|hostlib/include/|protocols/\w+/tests/')
# Strings that are the name of something else as well.
EXEMPT = {
    'broadcast': 'a collective, and an address of IPv4',
    'multicast': 'a use of jobs beside others, a shape of jobs in switch and manager, an option, a '
                 'type of packets of firewalls',
    'sparse': 'an option of fanin-perf, and the beginning of handlers with sparse blocks for '
              'PyTorch',
}
# protocols/pull stands on protocols/broadcast.
STANDS_ON = {'pull': 'broadcast'}


def read(root, path):
    """A file's text."""
    with open(os.path.join(root, path), encoding='utf-8') as file:
        return file.read()


def patterns_of(name):
    """What a name of the protocol looks like."""
    patterns = [rf'\bfanin_{name}_\w+', rf'\bFANIN_{name.upper()}_\w+',
                rf'#\s*include\s+"(?:[^"]*/)?{name}(?:_\w+)?\.h"']
    if name not in EXEMPT:
        patterns.append('"' + name.replace('_', '-') + '"')
    return re.compile('|'.join(patterns))


def problems(root):
    """Yields what is wrong."""
    texts = {path: read(root, path) for path in sorted(tree_files(root))
             if path.endswith(SUFFIXES)}
    public = {word for path, text in texts.items() if path.startswith(PUBLIC)
              for word in re.findall(r'\b(?:fanin|FANIN)_\w+', text)}
    for name in protocols_of(root):
        pattern = patterns_of(name)
        for path, text in texts.items():
            owner = re.match(r'protocols/(\w+)/', path)
            if ELSEWHERE.match(
                    path) or owner is not None and name in (owner.group(1),
                                                            STANDS_ON.get(owner.group(1))):
                continue
            for found in pattern.finditer(text):
                # What is the room's own is no protocol's, as handlers/kernels/sparse.h.
                header = re.search(r'"([^"]+\.h)"', found.group(0))
                if found.group(0) in public or header is not None and os.path.dirname(
                        header.group(1)) not in ('', f'protocols/{name}') \
                        and not header.group(1).startswith(f'protocols/{name}/'):
                    continue
                line = text.count('\n', 0, found.start()) + 1
                yield f'{path}:{line}: found {found.group(0)} of protocols/{name}'


def main(arguments):
    """Returns the exit status."""
    root = root_of(arguments, 'names.py')
    found = list(problems(root))
    for problem in found:
        print(problem)
    if found:
        return 1
    print(f'names: {len(protocols_of(root))} protocols, clean')
    return 0


if __name__ == '__main__':
    sys.exit(main(sys.argv[1:]))
