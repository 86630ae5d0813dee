# SPDX-License-Identifier: BSD-3-Clause
"""Frames made by hand, good and bad, and raw sockets to send and see them. Follows
docs/protocol.md, not the C code, but for the types of packets: their codes and directions are read
from wire/packets.h.
"""

import hashlib
import hmac
import socket
import struct
import time

from tests.net.support import LabError
from lab.namespaces import HOST_INTERFACE, SOURCE_DIR, SWITCH_IP, SWITCH_MAC, UDP_PORT, inside
from lab.pinger import SO_RCVBUFFORCE

from wire.packets import packet_types

TYPES = packet_types(SOURCE_DIR)
# CONTRIBUTION, RESULT and so on: the codes by their names.
globals().update({row.name: row.code for row in TYPES})
UPWARD = {row.code for row in TYPES if row.direction == "up"}
DTYPES = {"none": 0, "i8": 1, "i32": 3, "f32": 11, "f64": 12}
OPS = {"none": 0, "sum": 1, "prod": 2, "min": 3, "max": 4, "band": 8, "copy": 64}
HEADER_LEN = 54
VERSION = 3
ETH_P_ALL = 0x0003
PACKET_OUTGOING = 4
SOL_PACKET = 263
PACKET_AUXDATA = 8
PACKET_VNET_HDR = 15
GSO_UDP_L4 = 5
TP_STATUS_VLAN_VALID = 0x10
BROADCAST = "ff:ff:ff:ff:ff:ff"


def mac_bytes(text):
    return bytes.fromhex(text.replace(":", ""))


def checksum(data):
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


def ethernet(dst, src, ethertype, payload):
    return mac_bytes(dst) + mac_bytes(src) + struct.pack("!H", ethertype) + payload


def job_key(job, packet_type):
    """The key that packets of a type carry in a job, as jobs.create answered it: derived from its
    secret for each direction.
    """
    label = b"fanin up" if packet_type in UPWARD else b"fanin down"
    secret = struct.pack("<Q", int(job["key"], 16))
    return struct.unpack("<Q", hmac.new(secret, label, hashlib.sha256).digest()[:8])[0]


def header(packet_type, job, key, payload=b"", version=VERSION, flags=0, epoch=0, rank=0,
           contributions=1, block=0,
           dtype="none", op="none", count=0, root=0, extension=0, extension_len32=0, progress=0,
           members=0,
           number=0, port=0):
    """A Fanin header with its payload. dtype and op are names, or codes."""
    return struct.pack("<BBHIIHHIBBHHBBIQQIH", version, packet_type, flags, job, epoch, rank,
                       contributions, block,
                       DTYPES.get(dtype, dtype), OPS.get(op, op), count, root, extension,
                       extension_len32,
                       progress, key, members, number, port) + payload


def packet(content, src_mac, src_ip, dst_mac=SWITCH_MAC, dst_ip=SWITCH_IP, src_port=UDP_PORT,
           dst_port=UDP_PORT,
           version_ihl=0x45, options=b"", fragment=0x4000, protocol=17, udp_len=None,
           total_len=None, bad_checksum=0):
    """A frame with IPv4 and UDP around some content; what is given overrides what would be right.
    """
    udp_len = 8 + len(content) if udp_len is None else udp_len
    total_len = 20 + len(options) + 8 + len(content) if total_len is None else total_len

    def ip(check):
        return struct.pack("!BBHHHBBH4s4s", version_ihl, 0, total_len, 0, fragment, 64, protocol,
                           check,
                           socket.inet_aton(src_ip), socket.inet_aton(dst_ip)) + options
    udp = struct.pack("!HHHH", src_port, dst_port, udp_len, 0)
    return ethernet(dst_mac, src_mac, 0x0800, ip(checksum(ip(0)) ^ bad_checksum) + udp + content)


def sums_are_right(frame):
    """Are the checksums of IP, and of TCP or UDP in it, as a link carries them? Of a frame with
    tags or without.
    """
    at = 12
    while frame[at:at + 2] in (b"\x81\x00", b"\x88\xa8"):
        at += 4
    ip = frame[at + 2:]
    if frame[at:at + 2] == b"\x08\x00":
        header_len, protocol = (ip[0] & 15) * 4, ip[9]
        content, addresses = ip[header_len:struct.unpack_from("!H", ip, 2)[0]], ip[12:20]
        if checksum(ip[:header_len]) != 0:
            return False
    elif frame[at:at + 2] == b"\x86\xdd":
        protocol, content, addresses = ip[6], ip[40:40
                                                 + struct.unpack_from("!H", ip, 4)[0]], ip[8:40]
    else:
        return True
    if protocol not in (6, 17):
        return True
    pseudo = addresses + struct.pack("!II", len(content), protocol)
    return (protocol == 6 or content[6:8] != b"\0\0") and checksum(pseudo + content
                                                                   + bytes(len(content) % 2)) == 0


def send_super_frame(namespace, frame, flags=1, gso_type=0, header_len=0, gso_size=0, csum_start=0,
                     csum_offset=0, interface=HOST_INTERFACE):
    """Sends a frame with what is left to be done on it (packet(7), PACKET_VNET_HDR). gso_type: of
    linux/virtio_net.h.
    """
    with inside(namespace), socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0) as sender:
        sender.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        sender.bind((interface, ETH_P_ALL))
        sender.send(struct.pack("=BBHHHH", flags, gso_type, header_len, gso_size, csum_start,
                                csum_offset) + frame)


def with_tag(frame, auxiliary):
    """The frame as it was on the link, with the VLAN tag that the kernel took out of it."""
    for level, kind, data in auxiliary:
        if level == SOL_PACKET and kind == PACKET_AUXDATA:
            status, _, _, _, _, tci, tpid = struct.unpack_from("=IIIHHHH", data)
            if status & TP_STATUS_VLAN_VALID:
                return frame[:12] + struct.pack("!HH", tpid, tci) + frame[12:]
    return frame


class RawPort:
    """A raw socket on an interface of a namespace: sends frames as they are and sees those that
    arrive.
    """

    def __init__(self, namespace, interface=HOST_INTERFACE):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(ETH_P_ALL))
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 64 << 20)
        # The kernel takes the VLAN tag out of what it hands over and tells it in auxiliary data.
        self.socket.setsockopt(SOL_PACKET, PACKET_AUXDATA, 1)
        self.socket.bind((interface, ETH_P_ALL))
        self.socket.setblocking(False)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def send(self, frame):
        self.socket.send(frame)

    def arrived(self):
        """The frames that came in and were not read yet, as (seconds, frame)."""
        frames = []
        while True:
            try:
                frame, auxiliary, _, address = self.socket.recvmsg(65536, 256)
            except BlockingIOError:
                return frames
            if address[2] != PACKET_OUTGOING:
                frames.append((time.time(), with_tag(frame, auxiliary)))

    def wait_for(self, wanted, timeout=60):
        """Waits for a frame for which wanted(frame) is true; returns it and all that came before
        it.
        """
        seen = []
        deadline = time.monotonic() + timeout
        while time.monotonic() < deadline:
            for _, frame in self.arrived():
                if wanted(frame):
                    return frame, seen
                seen.append(frame)
            time.sleep(0.002)
        raise LabError(f"no frame matched within {timeout:g} s; {len(seen)} others came")


def write_pcap(path, frames, snap_len=65535):
    """Writes (seconds, frame) pairs into a capture file, in the order of their times, and of each
    at most snap_len bytes.
    """
    with open(path, "wb") as file:
        file.write(struct.pack("<IHHiIII", 0xa1b2c3d4, 2, 4, 0, 0, snap_len, 1))
        for seconds, frame in sorted(frames, key=lambda pair: pair[0]):
            kept = frame[:snap_len]
            file.write(struct.pack("<IIII", int(seconds), int(seconds % 1 * 1e6), len(kept),
                                   len(frame)) + kept)
