#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Checks the results of a replay: every host has to get every block, and every element has to be
the operator's.

    check_results.py --prefix /tmp/job /tmp/result-h0.pcap /tmp/result-h1.pcap

PREFIX-hN.pcap are the captures that fanin-pktgen --pcap wrote; the other files contain what host 0,
host 1 and so on received. The contributions name the data type; the operator has to be sum. Exits
with 1 if a result is missing or wrong.
"""

import argparse
import struct
import sys
from pathlib import Path

MAGICS = {0xa1b2c3d4: 1e-6, 0xa1b23c4d: 1e-9}  # of the pcap format, with the unit of its times
HEADERS, FANIN = 96, 42  # the payload's and Fanin's header's offsets in a frame
VERSION, CONTRIBUTION, RESULT, SUM = 3, 1, 2, 1
FORMATS = {1: "b", 2: "h", 3: "i", 4: "q", 5: "B", 6: "H", 7: "I", 8: "Q", 9: "e", 11: "f", 12: "d"}


class Bad(Exception):
    """An error in a file, described in one line."""


def frames(path):
    """Yields (seconds, frame) of a capture file."""
    with open(path, "rb") as file:
        head = file.read(24)
        unit = MAGICS.get(struct.unpack_from("<I", head)[0]) if len(head) == 24 else None
        if unit is None:
            raise Bad(f"{path}: not a little-endian pcap file")
        while len(head := file.read(16)) == 16:
            seconds, fraction, captured, length = struct.unpack("<4I", head)
            frame = file.read(captured)
            if len(frame) < captured:
                return  # the writer was stopped within a frame
            if captured < length:
                raise Bad(f"{path}: frames are cut off after {captured} of {length} bytes")
            yield seconds + fraction * unit, frame


def fields(frame):
    """Returns (job, epoch), block, (dtype, op, count) of a frame's Fanin header."""
    job, epoch, _, _, block, dtype, op, count = struct.unpack_from("<IIHHIBBH", frame, FANIN + 4)
    return (job, epoch), block, (dtype, op, count)


def is_fanin(frame, kind):
    return len(frame) >= HEADERS and frame[
        12:14] == b"\x08\x00" and frame[23] == 17 and tuple(frame[FANIN:FANIN + 2]) == (VERSION,
                                                                                        kind)


class Expected:
    """The results expected from a job's captures."""

    def __init__(self, prefix):
        self.contributions = []  # of each host: payload by block
        self.run = self.what = None
        self.sums = {}
        self.payloads = {}
        while (path := Path(f"{prefix}-h{len(self.contributions)}.pcap")).exists():
            self.contributions.append(self._read(path))
        if not self.contributions:
            raise Bad(f"{prefix}-h0.pcap does not exist")
        self.blocks = set(self.contributions[0])
        if any(set(host) != self.blocks for host in self.contributions):
            raise Bad(f"{prefix}-h*.pcap: the hosts' captures are not of the same blocks")
        if self.what[0] not in FORMATS or self.what[1] != SUM:
            raise Bad(f"{prefix}-h0.pcap: found data type {self.what[0]} and operator "
                      f"{self.what[1]}, expected sums of i8 to f64")

    def _read(self, path):
        host = {}
        for _, frame in frames(path):
            if not is_fanin(frame, CONTRIBUTION):
                raise Bad(f"{path}: a frame is not a contribution")
            run, block, what = fields(frame)
            if (self.run or run, self.what or what) != (run, what):
                raise Bad(f"{path}: block {block} is of another run or data type than the first one")
            self.run, self.what = run, what
            # Payloads repeat: each is kept once.
            host[block] = self.payloads.setdefault(frame[HEADERS:], frame[HEADERS:])
        return host

    def result(self, block):
        """Returns the payload that the block's result must have."""
        parts = tuple(host[block] for host in self.contributions)
        key = tuple(map(id, parts))
        if key not in self.sums:
            dtype, _, count = self.what
            layout = f"<{count}{FORMATS[dtype]}"
            columns = [sum(column) for column in zip(*(struct.unpack_from(layout, part)
                                                       for part in parts))]
            if FORMATS[dtype] not in "efd":
                size = struct.calcsize(layout) // count
                self.sums[key] = b"".join((value % (1 << 8 * size)).to_bytes(size, "little")
                                          for value in columns)
            else:
                self.sums[key] = struct.pack(layout, *columns)
        return self.sums[key]


def check_host(expected, path):
    """Prints a summary of a host's results. Returns True if all are there and right."""
    seen, wrong, repeated, times = set(), set(), 0, []
    for seconds, frame in frames(path):
        if not is_fanin(frame, RESULT) or fields(frame)[0] != expected.run:
            continue
        block = fields(frame)[1]
        if block not in expected.blocks or frame[HEADERS:] != expected.result(block):
            wrong.add(block)
        repeated += block in seen
        seen.add(block)
        times.append(seconds)
    missing = len(expected.blocks - seen)
    seconds = max(times) - min(times) if times else 0
    rate = f", {(len(times) - 1) / seconds:.0f} per second" if seconds > 0 else ""
    print(f"{path}: {len(seen)} of {len(expected.blocks)} results, {missing} missing, {len(wrong)} "
          f"wrong, {repeated} repeated{rate}")
    return not missing and not wrong


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n\n", maxsplit=1)[0])
    parser.add_argument("--prefix", required=True, help="what fanin-pktgen --pcap was given")
    parser.add_argument("results", nargs="+",
                        help="pcap file with what a host received, one for each host")
    options = parser.parse_args()
    try:
        expected = Expected(options.prefix)
        if len(options.results) != len(expected.contributions):
            raise Bad(f"found {len(options.results)} files of results, expected one for each of "
                      f"the {len(expected.contributions)} hosts")
        return 0 if all([check_host(expected, path) for path in options.results]) else 1
    except (Bad, OSError) as error:
        print(f"check_results.py: {error}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main())
