#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the seeds of fuzz-server into corpus/server: records of a header and a payload, each
behind its length in a byte. A key, run or cookie of 1 is what is right. The layout stands here a
second time, apart from wire/wire.h, as in seeds.py.
"""

import pathlib
import struct

CONTRIBUTION, JOIN, LEAVE, KNOWN, QUERY, PARTIAL = 1, 5, 7, 9, 10, 18
I32, F32 = 3, 11
SUM, MAX, AVG, COPY = 1, 4, 11, 64
RETRANSMIT, DIRECT, EMPTY, CE = 1, 2, 4, 16
N_RANKS = 5
ALL = (1 << N_RANKS) - 1


def record(kind, payload=b"", block=0, dtype=0, op=0, count=0, flags=0, members=0, number=0,
           contributions=0, epoch=1, root=0, version=3):
    return struct.pack("<BBHIIHHIBBHHBBIQQI2x", version, kind, flags, 1, epoch, 0, contributions,
                       block, dtype, op, count, root, 0, 0, 0, 1,
                       members, number) + payload


def join(nonce=3, cookie=1):
    return record(JOIN, struct.pack("<QHHIQ8x", nonce, N_RANKS, 0, 1500, cookie),
                  contributions=N_RANKS, epoch=0)


def begin(nonce=3):
    return [join(nonce, 0), join(nonce)]


def partial(block, members, value=1, flags=0, kind=PARTIAL, dtype=I32, op=SUM):
    payload = struct.pack("<4f" if dtype == F32 else "<4i", *[value] * 4)
    return record(kind, payload, block, dtype, op, 4, flags, members if kind == PARTIAL else 0,
                  contributions=members.bit_count() if kind == PARTIAL else N_RANKS)


def total(block, **shape):
    return partial(block, ALL, kind=CONTRIBUTION, **shape)


def empty(block, members, op=SUM, root=0):
    return record(PARTIAL, b"", block, I32, op, 4, EMPTY, members,
                  contributions=members.bit_count(), root=root)


def query(block, way=0x41):
    return record(QUERY, b"", block, flags=RETRANSMIT, members=way, number=9)


def pause(steps):
    return bytes(steps)


seeds = {
    "sums": [*begin(), *[total(n) for n in range(20)], total(19, flags=RETRANSMIT), total(3),
             total(40), query(19), query(11), query(20)],
    "parts": [*begin(), partial(0, 1), partial(0, 1), partial(0, 3), partial(0, 6),
              partial(0, 4, flags=DIRECT), partial(0, 24, flags=CE), query(0)],
    "averages": [*begin(), partial(0, 7, dtype=F32, op=AVG), partial(0, 24, dtype=F32, op=AVG),
                 query(0), partial(1, 1, kind=KNOWN, op=AVG)],
    "known": [*begin(), partial(0, 1), partial(0, 1, kind=KNOWN), partial(1, 1, kind=KNOWN),
              query(1)],
    "empty": [*begin(), empty(0, 7), empty(0, 24), empty(1, 1, COPY, 3), partial(1, 8, op=COPY),
              query(0), empty(2, 3), partial(2, 28)],
    "flush": [*begin(), partial(2, 1), pause(6), pause(20), pause(53), partial(5, 1), pause(30),
              partial(2, 30), pause(53)],
    "asked": [*begin(), query(3), query(3), pause(6), query(3), partial(3, 1), query(3), pause(50),
              query(3), query(9)],
    "runs": [total(0), *begin(), total(0), join(), *begin(4), total(0), record(LEAVE), total(1),
             record(LEAVE), join(4), *begin(5), total(0)],
    "mismatch": [*begin(), partial(0, 1), partial(0, 2, op=MAX), partial(0, 32),
                 record(PARTIAL, bytes(16), 0, I32, SUM, 4, 0, 3, contributions=1),
                 record(PARTIAL, bytes(68), 0, I32, SUM, 17, 0, 1, contributions=1),
                 partial(0, 2, op=128)],
}

if __name__ == "__main__":
    directory = pathlib.Path(__file__).parent / "corpus" / "server"
    directory.mkdir(parents=True, exist_ok=True)
    for name, records in seeds.items():
        (directory / name).write_bytes(b"".join(bytes([len(item)]) + item for item in records))
