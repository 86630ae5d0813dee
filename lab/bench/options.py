# SPDX-License-Identifier: BSD-3-Clause
"""Options that several benches have, with the same words in each."""

import argparse
import os

from lab.bench.sizes import byte_count

ROUNDS = 3


def bench_parser(name, about):
    """A parser with --json. name: as in `./dev bench name`; about: the module's docstring."""
    parser = argparse.ArgumentParser(prog=f"./dev bench {name}", allow_abbrev=False,
                                     description=about.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object and nothing else")
    return parser


def add_repeated(parser, option, help_text, **more):
    """An option with a list of values: several behind one option, or one behind each of several."""
    if "metavar" not in more:
        more["metavar"] = "NAME"
        help_text += ": " + ", ".join(more["choices"])
    parser.add_argument(option, action="extend", nargs="+", help=f"{help_text}; may be repeated",
                        **more)


def add_part(parser, parts):
    """--part, some of the bench's parts."""
    add_repeated(parser, "--part", "this part only", choices=parts)


def add_hosts(parser, default):
    """--hosts, numbers of hosts. default: words."""
    add_repeated(parser, "--hosts", f"2 to 16 (default: {default})", type=int, choices=range(2, 17),
                 metavar="N")


def add_bytes(parser, of):
    """--bytes, sizes. of: words on what has this size."""
    add_repeated(parser, "--bytes", of, type=byte_count, metavar="B")


def add_rounds(parser, quick):
    """--quick and --rounds. quick: words on what the first one leaves out."""
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--rounds", type=int, choices=range(1, 21), metavar="N",
                        help=f"1 to 20 (default: {ROUNDS}, with --quick 1)")


def parse_rounds(parser):
    """Returns the options of the command line, with the default of rounds."""
    options = parser.parse_args()
    options.rounds = options.rounds or (1 if options.quick else ROUNDS)
    return options


def add_processes(parser):
    """--processes, for benches in virtual time."""
    parser.add_argument("--processes", type=int, default=os.cpu_count() or 1, metavar="N",
                        help="runs at a time (default: %(default)s); time in them is virtual")
