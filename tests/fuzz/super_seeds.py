#!/usr/bin/env python3
# SPDX-License-Identifier: BSD-3-Clause
"""Writes the seeds of fuzz-super into corpus/super: what kernels hand over, of others and of
Fanin's, and frames that leave together.
"""

import pathlib
import struct

from tests.fuzz.seeds import checksum, contribution, frame

NEEDS_CSUM = 1
TCPV4, TCPV6, UDP_L4, ECN = 1, 4, 5, 128
FOREIGN, FANIN, TOGETHER, SHIFTED = 0, 1, 2, 129  # the first one with a tag put in: 129 % 3 == 0
MACS = b"\2\xfa\0\0\0\xfe\2\0\0\0\0\1"


def vnet(gso_type=0, header_len=0, gso_size=0, start=0, offset=0, flags=NEEDS_CSUM):
    return struct.pack("<BBHHHH", flags, gso_type, header_len, gso_size, start, offset)


def foreign(protocol, size, payload, v6=False, tags=b"", more=0):
    """A super-frame of TCP or UDP, or a frame without a checksum if size is 0."""
    tcp = protocol == 6
    transport = struct.pack("!HHIIBBHHH", 7, 8, 9, 10, 5 << 4, 0x19, 100, 0,
                            0) if tcp else struct.pack("!HHHH", 7, 8, 8 + len(payload), 0)
    content = transport + payload
    if v6:
        ip = struct.pack("!IHBB", 6 << 28, len(content), protocol, 64) + bytes(32)
    else:
        ip = struct.pack("!BBHHHBBHII", 0x45, 0, 20 + len(content), 1, 0x4000, 64, protocol, 0, 1,
                         2)
        ip = ip[:10] + struct.pack("!H", checksum(ip)) + ip[12:]
    ethertype = b"\x86\xdd" if v6 else b"\x08\0"
    start = 14 + len(tags) + len(ip)
    kind = 0 if size == 0 else (TCPV6 if v6 else TCPV4) | more if tcp else UDP_L4
    return vnet(kind, start + len(transport), size, start,
                16 if tcp else 6) + MACS + tags + ethertype + ip + content


def fanin(size, *payloads):
    """A super-frame of Fanin's whose segments are these, behind the headers of the first one."""
    content = b"".join(payloads)
    head = frame(1)[:42]
    return vnet(UDP_L4, 42, size, 34,
                6) + head[:16] + struct.pack("!H",
                                             28
                                             + len(content)) + head[
                                                 18:38] + struct.pack("!H", 8 + len(content)) + \
        head[40:42] + content


def together(*frames):
    return b"".join(struct.pack("<H", len(f)) + f for f in frames)


TAG = b"\x81\0\0\5"
packets = [contribution(rank, block)[42:] for block in range(3) for rank in range(3)]
seeds = {
    "tcp": (FOREIGN, foreign(6, 500, bytes(1700))),
    "tcp6": (FOREIGN, foreign(6, 400, bytes(1300), True, more=ECN)),
    "udp": (FOREIGN, foreign(17, 300, bytes(901))),
    "udp6-tagged": (FOREIGN, foreign(17, 300, bytes(901), True, TAG)),
    "two-tags": (FOREIGN, foreign(17, 300, bytes(500), False, TAG + TAG)),
    "checksum": (FOREIGN, foreign(6, 0, bytes(100))),
    "tag-put-in": (SHIFTED, foreign(17, 300, bytes(500))[:10] + MACS + TAG
                   + foreign(17, 300, bytes(500))[22:]),
    "fanin": (FANIN, fanin(len(packets[0]), *packets)),
    "fanin-shorter": (FANIN, fanin(len(packets[0]), *packets, packets[0][:54])),
    "fanin-half": (FANIN, fanin(len(packets[0]), *packets, packets[0][:30])),
    "together": (TOGETHER, together(*(contribution(rank, block) for block in range(4)
                                      for rank in range(3)))),
    "together-mixed": (TOGETHER,
                       together(*(contribution(0, block, tuple(range(block % 3 + 1)))
                                  for block in range(9)), frame(5, bytes(24)), b"", bytes(60))),
}

if __name__ == "__main__":
    directory = pathlib.Path(__file__).parent / "corpus" / "super"
    directory.mkdir(parents=True, exist_ok=True)
    for name, (kind, content) in seeds.items():
        (directory / name).write_bytes(bytes([kind]) + content)
