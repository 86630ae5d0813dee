# SPDX-License-Identifier: BSD-3-Clause
"""Multicast over a leaf and a spine of real switches: what any host sends comes to each other one once, over each link once."""

import contextlib
import struct
from pathlib import Path

from case_levels import KEY, running_fabric
from case_packets import join_body
from fabric import leaf_spine
from frames import DELIVERY, HEADER_LEN, JOIN, JOIN_ACK, MULTICAST, VERSION, RawPort, header, job_key, packet
from lab import HOST_INTERFACE, inside
from support import case, expect, expect_equal, wait_until

JOB = 6
PACKETS = 200
DATA_LEN = 1000
FANIN_OFFSET = 42
# ARP of kernels and switches, and probes, which go over links meanwhile.
ASIDE = 60


class Member:
    """A host of the job with a raw socket, joined by hand."""

    def __init__(self, fabric, host, rank, size):
        self.fabric, self.host, self.rank, self.size = fabric, host, rank, size
        self.switch = fabric.topology.switch_of[host]
        self.port = RawPort(fabric.host_namespace(host))
        self.epoch, self.cookie, self.heard = 0, 0, {}

    def make(self, packet_type, payload=b"", **fields):
        fields = {"rank": self.rank, "key": job_key({"key": KEY}, packet_type), **fields}
        return packet(header(packet_type, JOB, fields.pop("key"), payload, **fields), self.fabric.host_mac(self.host),
                      self.fabric.host_ip(self.host), dst_mac=self.fabric.switch_mac(self.switch),
                      dst_ip=self.fabric.switch_ip(self.switch))

    def join(self):
        """Says JOIN once more; True once all are there."""
        self.port.send(self.make(JOIN, join_body(0x99 + self.rank, self.size, self.fabric.mtu, self.cookie)))

    def listen(self):
        for _, frame in self.port.arrived():
            content = frame[FANIN_OFFSET:]
            if frame[12:14] != b"\x08\x00" or len(content) < HEADER_LEN or content[0] != VERSION:
                continue
            if content[1] == JOIN_ACK:
                state, = struct.unpack_from("<H", content, HEADER_LEN + 8)
                self.cookie, = struct.unpack_from("<Q", content, HEADER_LEN + 36)
                if state == 1:
                    self.epoch, = struct.unpack_from("<I", content, 8)
            elif content[1] == DELIVERY:
                origin, = struct.unpack_from("<Q", content, 40)
                block, = struct.unpack_from("<I", content, 16)
                expect_equal(content[HEADER_LEN:], data_of(origin, block), f"data of packet {block} of rank {origin}")
                self.heard[origin, block] = self.heard.get((origin, block), 0) + 1

    def joined(self):
        self.listen()
        if self.epoch == 0:
            self.join()
        return self.epoch != 0

    def send(self, block, **fields):
        fields = {"members": self.rank, "epoch": self.epoch, "block": block, "count": DATA_LEN, **fields}
        self.port.send(self.make(MULTICAST, data_of(self.rank, block), **fields))


def data_of(rank, block):
    return struct.pack("<II", rank, block) * (DATA_LEN // 8)


@contextlib.contextmanager
def members_of(fabric, ranks):
    """Hosts with sockets, all of which have joined. ranks: {host: rank}."""
    parents = fabric.tree("spine0", ranks)
    fabric.install(JOB, KEY, parents, ranks, handler="multicast")
    members = [Member(fabric, host, rank, len(ranks)) for host, rank in ranks.items()]
    try:
        # One after the other, and those that have joined first hear of the last one when they ask again.
        wait_until(lambda: all([member.joined() for member in members]), 60, "all to have joined")
        yield members
    finally:
        for member in members:
            member.port.socket.close()
        fabric.uninstall(JOB, parents)


def link_frames(namespace, interface):
    """(received, sent)"""
    with inside(namespace):
        counters = Path("/proc/net/dev").read_text(encoding="ascii")
    fields = next(line for line in counters.splitlines() if line.strip().startswith(interface + ":")).split(":")[1].split()
    return int(fields[1]), int(fields[9])


def links_of(fabric):
    """{name: (namespace, interface)}: of hosts, and of the switches to the spine that is the root."""
    ends = {f"host {host}": (fabric.host_namespace(host), HOST_INTERFACE) for host in range(fabric.hosts)}
    ends.update({leaf: (fabric.switch_ns(leaf), "to-spine0") for leaf in ("leaf0", "leaf1")})
    return ends


def count_frames(fabric):
    return {name: link_frames(*end) for name, end in links_of(fabric).items()}


@case(120)
def multicast_of_all_hosts_comes_to_each_other_one_once():
    with running_fabric(leaf_spine(2, 2, 8), mtu=1500) as fabric, members_of(fabric, {host: host for host in range(8)}) as members:
        before = count_frames(fabric)
        for block in range(PACKETS):
            for member in members:
                member.send(block)
            for member in members:
                member.listen()

        def all_heard():
            for member in members:
                member.listen()
            return all(len(member.heard) == 7 * PACKETS for member in members)
        wait_until(all_heard, 60, "all packets at all hosts")
        for member in members:
            wrong = {key: times for key, times in member.heard.items() if times != 1}
            expect_equal(wrong, {}, f"packets that came to rank {member.rank} more than once")
            expect(all(origin != member.rank for origin, _ in member.heard), f"rank {member.rank} has its own packets")
        after = count_frames(fabric)
        for name in before:
            received, sent = (now - then for now, then in zip(after[name], before[name]))
            # Four hosts are behind each leaf.
            expected = (7 * PACKETS, PACKETS) if name.startswith("host") else (4 * PACKETS, 4 * PACKETS)
            for what, found, right in (("received", received, expected[0]), ("sent", sent, expected[1])):
                expect(right <= found <= right + ASIDE, f"{name}: {found} frames {what}, expected {right} and {ASIDE} others at most")
        counters = {entry["name"]: entry["count"] for entry in fabric.ask("leaf0", "jobs.list")["jobs"][0]["counters"]}
        expect_equal(counters, {"delivered": 8 * PACKETS, "passed_up": 4 * PACKETS, "no_packet": 0}, "what leaf0 counts")


@case(120)
def multicast_of_strangers_goes_nowhere():
    with running_fabric(leaf_spine(2, 2, 8), mtu=1500) as fabric, members_of(fabric, {host: host for host in range(7)}) as members:
        stranger = Member(fabric, 7, 5, 7)
        stranger.epoch = members[5].epoch

        def drops(name):
            return {entry["name"]: entry["count"] for entry in fabric.ask("leaf1", "drops")["drops"]}[name]
        try:
            for reason, fields in (("port_wrong", {}), ("key_wrong", {"key": 1}), ("rank_unknown", {"rank": 7, "members": 7})):
                stranger.send(0, **fields)
                wait_until(lambda name=reason: drops(name) == 1, 60, f"a packet to be counted as {reason}")
            members[4].send(1, members=6)
            wait_until(lambda: drops("rank_unknown") == 2, 60, "a member that speaks for another one")
        finally:
            stranger.port.socket.close()
        members[4].send(2)
        wait_until(lambda: members[0].listen() or members[0].heard, 60, "a packet of a member")
        for member in members:
            member.listen()
            expect(set(member.heard) <= {(4, 2)}, f"rank {member.rank} has {member.heard}")
