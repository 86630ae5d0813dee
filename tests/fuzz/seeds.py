#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the seeds of fuzz-wire into corpus/wire: lists of frames, each behind its length in two
bytes.

The layout of a frame stands here a second time, apart from wire/wire.h: seeds that stop being valid
show a change of the format.
"""

import pathlib
import struct

(CONTRIBUTION, RESULT, ANSWER, REFUSED, JOIN, JOIN_ACK, LEAVE, LEAVE_ACK, KNOWN, QUERY, PROBE,
 PROBE_ACK, MULTICAST, DELIVERY, SPARSE, SPARSE_RESULT, SPARSE_KNOWN, PARTIAL, GACK, REPEAT, FLUSH,
 ASK) = range(1, 23)
UNICAST, UNICAST_DELIVERY, EVICTED = range(29, 32)
PULL, PULL_DELIVERY, RESPONSE, RESPONSE_DELIVERY = range(35, 39)
DTYPES = range(1, 13)
I32, F16, BF16, F32 = 3, 9, 10, 11
FORMATS = dict(zip(DTYPES, "bhiqBHIQe fd"))
OPS = range(1, 12)
SUM, PROD, MIN, MAX, BXOR, AVG = 1, 2, 3, 4, 10, 11
OPAQUE = 128
COPY = 64
UNICAST, UNICAST_DELIVERY, WRITE, WRITE_DELIVERY, REWRITE, REWRITE_DELIVERY = 29, 30, 39, 40, 41, 42
OWNER = 0x8000  # with a rank: the root of a block whose result is this rank's
RETRANSMIT, DIRECT, EMPTY, CE, AECN = 1, 2, 4, 16, 32


def checksum(header):
    total = sum(struct.unpack("!%dH" % (len(header) // 2), header))
    while total > 0xFFFF:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


def frame(kind, payload=b"", rank=0, block=0, dtype=0, op=0, count=0, flags=0, members=0, number=0,
          root=0, progress=0, version=3):
    fanin = struct.pack("<BBHIIHHIBBHHBBIQQI2x", version, kind, flags, 1, 1, rank, 1, block, dtype,
                        op, count, root, 0, 0, progress, 1,
                        members, number)
    udp_len = 8 + len(fanin) + len(payload)
    ip = struct.pack("!BBHHHBBH4s4s", 0x45, 0, 20 + udp_len, 0, 0x4000, 64, 17, 0, b"\x0a\x4d\0\1",
                     b"\x0a\x4d\0\xfe")
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    udp = struct.pack("!HHHH", 40000, 21930, udp_len, 0)
    ethernet = b"\2\xfa\0\0\0\xfe" + b"\2\0\0\0\0\1" + b"\x08\0"
    return ethernet + ip + udp + fanin + payload


def contribution(rank, block, values=(1, 2, 3), dtype=I32, op=SUM, flags=0, root=0):
    if dtype == BF16:  # the upper half of f32
        payload = b"".join(struct.pack("<f", value)[2:] for value in values)
    else:
        payload = struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values)
    return frame(CONTRIBUTION, payload, rank, block, dtype, op, len(values), flags, root=root)


def block(number, **shape):
    return [contribution(rank, number, **shape) for rank in range(3)]


def result(number, values=(6, 6, 6), dtype=I32, op=SUM, kind=RESULT, rank=0, root=0):
    """What a parent sends, or a child knows; the handlers run as part of a tree, too."""
    payload = struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values)
    return frame(kind, payload, rank, number, dtype, op, len(values), root=root)


def empty(rank, block, count=3, dtype=I32, op=SUM, flags=0, root=0):
    return frame(CONTRIBUTION, b"", rank, block, dtype, op, count, flags | EMPTY, root=root)


def query(rank, block, overdue=False, number=7, way=0):
    return frame(QUERY, b"", rank, block, count=4, flags=RETRANSMIT if overdue else 0, members=way,
                 number=number)


def answer(block, state, child=0, number=7):
    """What a parent says of a block that a child asked for; the way back has six bits for it, under
    a 1.
    """
    body = struct.pack("<64sHB5xQQ", bytes([state]), 1, 0, 2, 0)
    return frame(ANSWER, body, 0, block, count=state, members=0x40 | child, number=number)


def shard(rank, block, values, number=0, total=1, span=1000, dtype=I32, op=SUM, kind=SPARSE,
          flags=0, whole=0):
    """A list: values is a dictionary by index."""
    payload = struct.pack("<%d%s" % (len(values), FORMATS[dtype]), *values.values())
    payload += struct.pack("<%d%s" % (len(values), "H" if span <= 65536 else "I"), *values)
    return frame(kind, payload, rank, block, dtype, op, len(values), flags,
                 whole << 56 | total << 40 | number << 32 | span)


def bitmap(rank, block, words, first=0, number=0, total=1, span=1000, kind=SPARSE):
    """All values are 7."""
    count = sum(bin(word).count("1") for word in words)
    payload = struct.pack("<%di%dQI" % (count, len(words)), *[7] * count, *words, first)
    return frame(kind, payload, rank, block, I32, SUM, count, 0,
                 1 << 48 | total << 40 | number << 32 | span)


def sparse_block(number, **shape):
    return [shard(rank, number, {5 * rank: 1, 900: 2}, **shape) for rank in range(3)]


def copy(number, root):
    return [contribution(rank, number, op=COPY, root=root)
            if rank == root else empty(rank, number, op=COPY, root=root)
            for rank in range(3)]


def routed(protocol=6, fragment=0, options=b"", ttl=64, source=b"\x0a\x4d\0\1",
           data=bytes(range(20)), padding=b""):
    """A frame to the switch's MAC address for a host of another subnet."""
    ihl = 5 + len(options) // 4
    ip = struct.pack("!BBHHHBBH4s4s", 0x40 + ihl, 0, 4 * ihl + len(data), 7, fragment, ttl,
                     protocol, 0, source,
                     b"\x0a\x4d\1\1") + options
    ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    return b"\2\xfa\0\0\0\xfe" + b"\2\0\0\0\0\1" + b"\x08\0" + ip + data + padding


join_ack = struct.pack("<QHHHHI16sQIQ80x", 7, 1, 3, 2, 256, 0, b"single", 8, 0, 9)
seeds = {
    "one-block": block(0),
    "slots-reused": [f for n in range(12) for f in block(n)],
    "barrier": block(0, values=()),
    "not-numbers": block(0, dtype=F32, op=MIN, values=(float("nan"), float("inf"), -0.0)),
    "pending": [contribution(1, 0), contribution(1, 0), contribution(1, 0, flags=RETRANSMIT)],
    "repeat": block(0) + [contribution(2, 0, flags=RETRANSMIT)],
    "stale": block(0) + block(4) + [contribution(0, 0, flags=RETRANSMIT)],
    "ahead": [contribution(0, 0), contribution(0, 4), contribution(0, 9)],
    "mismatch": [contribution(0, 0), contribution(1, 0, op=MAX), contribution(1, 0, values=(1, 2))],
    "unsupported": [contribution(0, 0, dtype=F32, op=BXOR)],
    "too-long": [contribution(0, 0, values=tuple(range(65)))],
    "half-packet": [contribution(0, n, dtype=dtype, op=op, values=(1,) * count) for n,
                    (dtype, op, count) in
                    enumerate([(F16, SUM, 64), (F16, AVG, 65), (BF16, AVG, 64), (BF16, MAX, 128)])],
    "control": [frame(JOIN, struct.pack("<QHHIQ8x", 7, 3, 5000, 1500, 8)),
                frame(JOIN, struct.pack("<QHHIQ", 7, 3, 5000, 1500, 0), version=2),
                frame(JOIN_ACK, join_ack), frame(LEAVE),
                frame(LEAVE_ACK), answer(0, 1), frame(ANSWER), frame(REFUSED, count=9), query(0, 0),
                query(0, 0, number=0),
                frame(PROBE), frame(PROBE_ACK, bytes(16)), frame(PROBE_ACK),
                frame(RESULT, b"abcd", 0, 0, I32, SUM, 1)],
    "levels": [f for n in range(6)
               for f in [*block(n), contribution(1, n, flags=RETRANSMIT), result(n), result(n)]] +
              [result(9), *block(6), result(6, op=MAX), *block(10), result(6),
               contribution(0, 6, flags=RETRANSMIT)],
    "queries": [query(1, 0), query(1, 0, True), contribution(1, 0), query(1, 0), query(0, 0, True),
                *block(0)[::2],
                query(1, 0), query(1, 0, True), query(2, 0, True), result(0), query(1, 0),
                query(1, 0, True),
                *block(4), query(0, 0), query(0, 0, True), query(0, 8), query(0, 0xFFFFFFFF)],
    "answers": [*block(0), query(1, 0, True), answer(0, 0, 1), answer(0, 0, 1), query(2, 0, True),
                answer(0, 1, 2),
                answer(0, 3, 63), frame(ANSWER, bytes(96), 0, 0, number=7),
                answer(0, 0, 1, number=0), answer(1, 0, 1),
                result(0), answer(0, 0, 1)],
    "known": [result(0, kind=KNOWN), contribution(1, 0), contribution(1, 0), contribution(0, 1),
              result(1, kind=KNOWN),
              *block(2), result(2, kind=KNOWN), result(2), result(4, kind=KNOWN),
              result(9, kind=KNOWN),
              result(3, op=MAX, kind=KNOWN), contribution(2, 3)],
    "owners": [f for n in range(3)
               for f in [*block(n, root=OWNER + n),
                         contribution(1, n, flags=RETRANSMIT, root=OWNER + n), query(2, n, True)]] +
              [contribution(0, 3, root=OWNER + 3), contribution(0, 3, root=OWNER + 0xFFF),
               contribution(0, 3, op=COPY, root=OWNER),
               result(3, kind=KNOWN, rank=1, root=OWNER), result(3, kind=KNOWN, root=OWNER),
               contribution(1, 3, root=OWNER), result(0, root=OWNER),
               frame(RESULT, b"", 0, 1, I32, SUM, 3, EMPTY, root=OWNER + 1),
               result(1, root=OWNER + 1), query(0, 1, True), empty(0, 4, count=0, root=OWNER)],
    "padded": [frame(LEAVE) + bytes(18)],
    "copies": [f for n in range(6) for f in copy(n, n % 3)]
    + [empty(0, 5, op=COPY + 2, flags=RETRANSMIT)],
    "empty": [empty(rank, n, op=op) for n,
              op in enumerate((SUM, AVG, COPY)) for rank in (2, 0, 1)] +
             [empty(0, 0, flags=RETRANSMIT)],
    "partly-empty": [contribution(0, 0, dtype=F16, op=AVG), empty(1, 0, dtype=F16, op=AVG),
                     contribution(2, 0, dtype=F16, op=AVG), empty(0, 1), contribution(1, 1),
                     contribution(2, 1)],
    "not-empty": [frame(CONTRIBUTION, bytes(12), 0, 0, I32, SUM, 3, EMPTY), empty(1, 0, count=0),
                  empty(1, 0, count=65),
                  frame(JOIN, bytes(32), flags=EMPTY),
                  frame(RESULT, b"", 0, 0, I32, SUM, 3, EMPTY)],
    "cut": [contribution(0, 0)[:-1], contribution(0, 0)[:95], contribution(0, 0)[:20], b""],
}
seeds["sparse"] = [*sparse_block(0), shard(0, 0, {1: 1}, flags=RETRANSMIT),
                   *sparse_block(1, span=70000), *sparse_block(2, dtype=F16, op=MAX),
                   *block(3), *[shard(rank, 4, {}) for rank in range(3)], query(0, 4, True),
                   *block(8, op=PROD), *sparse_block(5)]
seeds["shards"] = [shard(0, 0, {3: 1, 4: 2}, 1, 2), shard(0, 0, {3: 1}, 0, 0),
                   shard(0, 0, {3: 1}, 2, 0), shard(1, 0, {1000: 1}),
                   bitmap(1, 0, [0x8001, 1 << 40], 64), bitmap(2, 0, [1 << 41], 896),
                   bitmap(2, 0, [1], 960), query(2, 0), query(2, 0, True),
                   shard(0, 1, {1: 1}, op=AVG), shard(0, 1, {1: 1}, span=0),
                   shard(0, 1, {1: 1}, 63, 64), contribution(0, 1)]
seeds["shards-down"] = [shard(0, 0, {7: 1}, 0, 0, kind=SPARSE_RESULT), *sparse_block(0),
                        query(1, 0, True), answer(0, 0, 1),
                        shard(0, 0, {8: 1}, 1, 2, kind=SPARSE_RESULT),
                        shard(0, 0, {8: 1}, 1, 2, kind=SPARSE_RESULT), query(1, 0, True),
                        bitmap(0, 1, [3], kind=SPARSE_RESULT), *sparse_block(1), result(1),
                        *sparse_block(4), *block(2), query(0, 2)]
seeds["shards-known"] = [shard(0, 0, {7: 1}, 0, 0, kind=SPARSE_KNOWN), shard(1, 0, {7: 1}),
                         shard(2, 0, {7: 1}, 0, 0, kind=SPARSE_KNOWN), query(1, 0, True),
                         shard(2, 0, {8: 1}, 1, 2, kind=SPARSE_KNOWN), query(1, 0, True),
                         answer(0, 0, 1), shard(0, 0, {7: 1}, 0, 0, kind=SPARSE_RESULT),
                         shard(0, 0, {8: 1}, 1, 2, kind=SPARSE_RESULT),
                         shard(1, 1, {1: 1}, whole=1), bitmap(0, 1, [3], kind=SPARSE_RESULT),
                         shard(0, 1, {5: 1}, 2, 3, kind=SPARSE_KNOWN),
                         shard(0, 2, {5: 1}, whole=1, kind=SPARSE_KNOWN), *sparse_block(2)]
# Full bitmaps: tables of three children become arrays.
seeds["shards-dense"] = [bitmap(rank, 0, [2 ** 64 - 1] * 3, 192 * n, n, n + 1 if n == 4 else 0,
                                span=960) for n in range(5) for rank in range(3)]


def part(rank, block, members, flags=0, progress=0, values=(1, 2, 3)):
    """What a leaf makes of a contribution, and a host of one that a server asked for."""
    return frame(PARTIAL, struct.pack("<%di" % len(values), *values), rank, block, I32, SUM,
                 len(values), flags, members, progress=progress)


def gradient(rank, block, progress=0, flags=0):
    return frame(CONTRIBUTION, struct.pack("<3i", 1, 2, 3), rank, block, I32, SUM, 3, flags,
                 progress=progress)


def of_server(kind, block, **fields):
    return frame(kind, block=block, **fields)


def repeated(block, child=1):
    return frame(REPEAT, struct.pack("<3i", 6, 6, 6), 0, block, I32, SUM, 3, CE, 0x40 | child)


def pull(rank, place, kind=PULL, owner=None, count=0):
    return frame(kind, b"", rank, place, count=count, members=rank if owner is None else owner,
                 progress=0)


def response(rank, place, members=0, op=SUM, operation=0, flags=0, kind=RESPONSE):
    return frame(kind, b"" if flags & EMPTY else struct.pack("<3i", 1, 2, 3), rank, place, I32, op,
                 3, flags, members or 1 << rank, progress=operation)


# Windows of 2 blocks and 4 slots: 8 is in the place of 0.
seeds["gradients"] = [f for n in range(9)
                      for f in [*[gradient(rank, n, n, CE if rank == 1 else 0)
                                  for rank in range(3)], gradient(2, n, n, RETRANSMIT),
                                                    *([result(n)] if n % 3 else [repeated(n)])]]
seeds["split"] = [gradient(0, 0), of_server(FLUSH, 0), gradient(1, 0), gradient(1, 0),
                  gradient(1, 0, flags=RETRANSMIT), part(2, 0, 4, DIRECT),
                  of_server(FLUSH, 1), gradient(0, 1), query(1, 1, True), result(0), gradient(0, 0),
                  gradient(0, 2, 1), gradient(0, 2, 1, RETRANSMIT),
                  gradient(1, 2, 1, EMPTY), gradient(2, 4, 4), gradient(1, 5, 4), gradient(0, 8, 8),
                  query(0, 8, True), result(8), result(4)]
seeds["sets"] = [part(0, 0, 1), part(1, 0, 2), part(1, 0, 3), part(1, 0, 0), part(2, 0, 8),
                 part(2, 0, 4), part(0, 1, 1, RETRANSMIT | CE), part(0, 9, 1, progress=1),
                 result(1, kind=KNOWN)]
seeds["server"] = [of_server(ASK, 0, members=5), of_server(ASK, 0, members=8),
                   of_server(GACK, 0, count=1, members=77), of_server(GACK, 0, count=9),
                   repeated(0), repeated(0, 40), answer(0, 1, 2), gradient(0, 1), gradient(1, 1),
                   gradient(2, 1), of_server(FLUSH, 1), of_server(FLUSH, 1)]


def evicted(block, members, home, values=(1, 2, 3)):
    """What leaves the root's table of a push job."""
    return frame(EVICTED, struct.pack("<%di" % len(values), *values), 0, block, I32, SUM,
                 len(values), 0, members, home)


def home_query(block):
    return frame(QUERY, b"", block % 3, block, count=1, flags=RETRANSMIT | DIRECT, number=7)


# Tables of two entries: the third block evicts the first.
seeds["push"] = [*block(0), *[contribution(rank, n) for n in range(1, 4) for rank in range(2)],
                 *[contribution(2, n) for n in range(1, 4)],
                 contribution(0, 1), *block(8), contribution(1, 0), contribution(0, 5),
                 home_query(5), contribution(1, 5), contribution(2, 5), home_query(5),
                 home_query(6), *block(6), home_query(0), query(1, 5)]
seeds["push-tree"] = [part(0, 0, 1), part(1, 0, 2), part(1, 0, 3), part(2, 0, 4), evicted(0, 3, 0),
                      evicted(1, 5, 1), evicted(1, 5, 9), evicted(2, 0, 2),
                      result(0), result(1), empty(0, 2), empty(1, 2), contribution(2, 2),
                      contribution(0, 3, op=AVG), contribution(1, 3, op=AVG),
                      contribution(2, 3, op=AVG), contribution(0, 4), contribution(1, 4, op=MAX),
                      home_query(4), answer(4, 1, 1), answer(4, 3, 2)]
# ASK, DATA, HERE and a result of a home host, then some that are not well-formed.
seeds["push-hosts"] = [frame(UNICAST, b"", 0, 0, count=1, members=0, number=1),
                       frame(UNICAST, bytes(12), 1, 0, count=0, members=1, number=0x01030002,
                             progress=3),
                       frame(UNICAST, bytes(24), 0, 0, count=2, members=0, number=3),
                       frame(MULTICAST, bytes(12), 0, 0, members=0, number=0x01030006, progress=3),
                       frame(DELIVERY, bytes(12), 0, 0, members=2, number=0x01030006, progress=3),
                       frame(UNICAST, b"", 0, 0, count=7, members=0),
                       frame(UNICAST_DELIVERY, b"", 0, 0, count=1, members=2, number=5),
                       frame(UNICAST, b"", 0, 0, count=1, members=2)]
# Owner 0 pulls places 0, 3 and 6; ranks 1 and 2 answer, twice, together, too early and too late;
# then as part of a tree, and as a leaf of others' packets.
seeds["pulls"] = [pull(0, 0), response(1, 0), response(1, 0), response(2, 0), pull(0, 3),
                  pull(0, 3), response(2, 3), pull(0, 6), response(1, 6, 6), response(2, 6),
                  pull(1, 1), response(0, 1, 1, op=MAX), response(2, 1), pull(0, 24),
                  response(1, 0, operation=1), response(1, 24, flags=EMPTY), pull(1, 0),
                  response(0, 0)]
seeds["pulls-down"] = [pull(0, 5, kind=PULL_DELIVERY, owner=2), pull(0, 0),
                       response(0, 0, 8, kind=RESPONSE_DELIVERY), response(1, 0), response(2, 0),
                       pull(0, 4, kind=PULL_DELIVERY, count=1),
                       pull(0, 7, kind=PULL_DELIVERY, owner=3), response(0, 7), response(1, 7),
                       response(2, 7)]
seeds["routed"] = [routed(), routed(fragment=100), routed(17, options=bytes(8)), routed(ttl=1),
                   routed(ttl=0),
                   routed(data=b"", padding=bytes(26)), routed(source=b"\xe0\0\0\1"),
                   routed(data=b"\0\7\0")]
# A region of 4 KiB from 0x1000 on: within, at its ends, outside, in another rank's name, for a rank
# that there is not.
seeds["writes"] = [*(frame(WRITE, bytes(100), rank, 5, count=rank, members=0x1000 + 100 * rank,
                           number=rank % 2, progress=3) for rank in range(3)),
                   *(frame(kind, bytes(64), 1, 6, count=1, members=address, number=2)
                     for kind in (WRITE, WRITE_DELIVERY, REWRITE, REWRITE_DELIVERY)
                     for address in (0x1000, 0x1fc0, 0xfff, 0x1fc1, 2**64 - 64, 0)),
                   frame(WRITE, b"", 1, 7, count=1, members=0x1000),
                   frame(WRITE, bytes(8), 1, 7, count=2, members=0x1000),
                   frame(WRITE_DELIVERY, bytes(8), 0, 7, count=9, members=0x1000),
                   frame(REWRITE, bytes(8), 1, 7, count=1, members=0x1000, number=9),
                   frame(REWRITE, bytes(8), 1, 7, count=1, members=0x1000, number=65536 + 2),
                   *(frame(kind, bytes(16), 2, 0, count=to, members=2, number=kind_of)
                     for kind in (UNICAST, UNICAST_DELIVERY) for to in (0, 1, 9)
                     for kind_of in (1, 2, 3)), *block(0), query(1, 0, True)]
# The complex product, then an unregistered code and elements of another size.
seeds["custom"] = [frame(CONTRIBUTION, struct.pack("<4f", 1, 2, 3, rank), rank, block, dtype, op,
                         16 // (dtype - OPAQUE))
                   for block, (dtype, op) in enumerate([(OPAQUE + 8, 128), (OPAQUE + 8, 255),
                                                        (OPAQUE + 4, 128)])
                   for rank in range(3)]
for dtype in DTYPES:
    ops = OPS if dtype <= 8 else (SUM, PROD, MIN, MAX, AVG)
    seeds["kernels-%d" % dtype] = [f for n,
                                   op in enumerate(ops) for f in block(n, dtype=dtype, op=op)]

if __name__ == "__main__":
    directory = pathlib.Path(__file__).parent / "corpus" / "wire"
    directory.mkdir(parents=True, exist_ok=True)
    for name, frames in seeds.items():
        (directory / name).write_bytes(b"".join(struct.pack("<H", len(f)) + f for f in frames))
