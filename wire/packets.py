#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the tables of packet types in wire/fanin.lua and docs/protocol.md from the rows of
wire/packets.h.

usage: packets.py [--check] [--root DIRECTORY]
       --check: writes nothing; names the files that are out of date; exit status 1 if there are any
       --root: the source tree; default: the tree of this file
"""

import argparse
import re
import sys
from collections import namedtuple
from pathlib import Path

# Lengths are in bytes. direction: "up" or "down"; payload: "elements", "shard", "data", "nothing"
# or "body"; count and number: "zero", "any", "nonzero", or for count "elements".
PacketType = namedtuple("PacketType",
                        "name code direction packet_class payload body_len count number text")

ROW = re.compile(
    r'\bX\(\s*(\w+),\s*(\d+),\s*(UP|DOWN),\s*(\w+),\s*(?:(ELEMENTS|SHARD|DATA|NOTHING)|BODY\((\w+)\)),\s*(ZERO|ANY|NONZERO|ELEMENTS),\s*(ZERO|ANY|NONZERO),\s*((?:"[^"\\]*"\s*)+)\)')
BODY_LEN = re.compile(r"static_assert\(sizeof\(struct fanin_(\w+)_body\) == (\d+),")
MARK = "packet types: written by wire/packets.py from wire/packets.h"
USES = {"zero": "0", "any": "any", "nonzero": "not 0", "elements": "elements"}


class PacketsError(Exception):
    """A file does not have the expected contents; the message names it."""


def packet_types(root):
    """Returns the rows of FANIN_WIRE_PACKETS in a source tree, in their order."""
    header = root / "wire" / "packets.h"
    macro = re.search(r"#define FANIN_WIRE_PACKETS\(X\)((?:.*\\\n)+.*)\n", header.read_text())
    if macro is None:
        raise PacketsError(f"{header}: there is no FANIN_WIRE_PACKETS(X)")
    rows = macro.group(1).replace("\\\n", "\n")
    body_len = {name: int(length) for name,
                length in BODY_LEN.findall((root / "wire" / "wire.h").read_text())}
    types = []
    for name, code, direction, packet_class, payload, body, count, number, text in ROW.findall(rows):
        if body and body not in body_len:
            raise PacketsError(f"{header}: the row of {name} has BODY({body}), but wire/wire.h has "
                               f"no static_assert of the size of struct fanin_{body}_body")
        types.append(PacketType(name, int(code), direction.lower(), packet_class.lower(),
                                (payload or "body").lower(),
                                body_len.get(body, 0), count.lower(), number.lower(),
                                "".join(re.findall(r'"([^"]*)"', text))))
    n_rows = len(re.findall(r"\bX\(", rows))
    if len(types) != n_rows or n_rows == 0:
        raise PacketsError(f"{header}: {n_rows} rows, of which {len(types)} are in the form that "
                           "its comment says")
    return types


def lua_row(row):
    fields = [f'name = "{row.name}"', f'direction = "{row.direction}"']
    if row.payload == "elements":
        fields.append("has_elements = true")
    if row.payload == "shard":
        fields.append("has_shard = true")
    if row.payload == "data":
        fields.append("has_data = true")
    if row.payload == "body":
        fields.append(f"body_len = {row.body_len}")
    if row.number != "zero":
        fields.append("has_number = true")
    return f"\t[{row.code}] = {{ {', '.join(fields)} }},"


def lua(types):
    return ["local types = {", *map(lua_row, types), "}"]


def markdown(types):
    payloads = {"elements": "`count` elements; none if EMPTY",
                "shard": "`count` elements and their indices", "data": "any bytes", "nothing": "–"}
    lines = ["| code | type | direction | class | payload | `count` | `number` | what it is |",
             "|---|---|---|---|---|---|---|---|"]
    for row in types:
        payload = payloads.get(row.payload, f"{row.body_len} bytes or more")
        lines.append(f"| {row.code} | {row.name} | {row.direction} | {row.packet_class} | "
                     f"{payload} | {USES[row.count]} | {USES[row.number]} | {row.text} |")
    return lines


# File, start and end of its comments, the function that makes the lines.
TABLES = (("wire/fanin.lua", "-- ", "", lua), ("docs/protocol.md", "<!-- ", " -->", markdown))


def with_table(path, opening, closing, lines):
    """Returns the text of a file with these lines between its two marks."""
    text = path.read_text()
    begin, end = (f"{opening}{word} {MARK}{closing}\n" for word in ("begin", "end"))
    if text.count(begin) != 1 or text.count(end) != 1 or text.index(begin) > text.index(end):
        raise PacketsError(f"{path}: expected a line \"{begin.strip()}\" and after it one "
                           f"\"{end.strip()}\"")
    before, rest = text.split(begin)
    return before + begin + "\n".join(lines) + "\n" + end + rest.split(end)[1]


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--check", action="store_true",
                        help="write nothing; fail if a file is out of date")
    parser.add_argument("--root", type=Path, default=Path(__file__).resolve().parent.parent,
                        help="of the source tree")
    options = parser.parse_args()
    old = []
    try:
        types = packet_types(options.root)
        for name, opening, closing, make in TABLES:
            path = options.root / name
            text = with_table(path, opening, closing, make(types))
            if text == path.read_text():
                continue
            old.append(name)
            if not options.check:
                path.write_text(text)
    except (PacketsError, OSError) as error:
        print(f"packets.py: {error}", file=sys.stderr)
        return 2
    for name in old:
        print(f"{name}: "
              f"{'the table of packet types is out of date: run ./dev fmt' if options.check else 'written'}")
    return 1 if options.check and old else 0


if __name__ == "__main__":
    sys.exit(main())
