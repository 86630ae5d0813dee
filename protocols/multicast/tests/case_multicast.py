# SPDX-License-Identifier: BSD-3-Clause
"""Multicast over a leaf and a spine of real switches: every packet of a host reaches each other
host once, over each link once; and with the network manager, over trees that move.
"""

import contextlib
import json
import os
import signal
import struct
import types
from pathlib import Path

from tests.net.case_levels import KEY, running_fabric
from tests.net.case_packets import join_body
from lab.fabric import MANAGER_IP, Fabric, leaf_spine
from tests.net.frames import (DELIVERY, HEADER_LEN, JOIN, JOIN_ACK, MULTICAST, VERSION, RawPort,
                              header, job_key, packet)
from lab.namespaces import HOST_INTERFACE, inside
from tests.net.manager_lab import Client, Refused, close_all
from tests.net.support import case, expect, expect_equal, program, wait_until

JOB = 6
PACKETS = 200
DATA_LEN = 1000
FANIN_OFFSET = 42
# ARP frames of kernels and switches, and probes, which pass links meanwhile: with FEW_PROBES as
# many in a minute.
ASIDE = 60
FEW_PROBES = {"routing": {"probe_ms": 1000}}


class WireFabric(Fabric):
    """The interfaces count each packet by itself."""

    offloads = False


class Member:
    """A host of the job with a raw socket, joined by hand."""

    def __init__(self, fabric, host, rank, size, job=JOB, key=KEY):
        self.fabric, self.host, self.rank, self.size = fabric, host, rank, size
        self.job, self.key = job, key
        self.switch = fabric.topology.switch_of[host]
        self.port = RawPort(fabric.host_namespace(host))
        self.epoch, self.cookie, self.heard = 0, 0, {}

    def make(self, packet_type, payload=b"", **fields):
        fields = {"rank": self.rank, "key": job_key({"key": self.key}, packet_type), **fields}
        return packet(header(packet_type, self.job, fields.pop("key"), payload, **fields),
                      self.fabric.host_mac(self.host),
                      self.fabric.host_ip(self.host), dst_mac=self.fabric.switch_mac(self.switch),
                      dst_ip=self.fabric.switch_ip(self.switch))

    def join(self):
        """Sends JOIN once more."""
        self.port.send(self.make(JOIN,
                                 join_body(0x99 + self.rank, self.size, self.fabric.mtu,
                                           self.cookie)))

    def arrived(self):
        """Yields the content after the UDP header of each packet: a super-frame has several
        contents, all of them deliveries.
        """
        for _, frame in self.port.arrived():
            content = frame[FANIN_OFFSET:]
            if frame[12:14] != b"\x08\x00" or len(content) < HEADER_LEN or content[0] != VERSION:
                continue
            if content[1] != DELIVERY:
                yield content
                continue
            for at in range(0, len(content), HEADER_LEN + DATA_LEN):
                yield content[at:at + HEADER_LEN + DATA_LEN]

    def listen(self):
        for content in self.arrived():
            if struct.unpack_from("<I", content, 4)[0] != self.job:
                continue
            if content[1] == JOIN_ACK:
                state, = struct.unpack_from("<H", content, HEADER_LEN + 8)
                self.cookie, = struct.unpack_from("<Q", content, HEADER_LEN + 36)
                if state == 1:
                    self.epoch, = struct.unpack_from("<I", content, 8)
            elif content[1] == DELIVERY:
                origin, = struct.unpack_from("<Q", content, 40)
                block, = struct.unpack_from("<I", content, 16)
                expect_equal(content[HEADER_LEN:], data_of(origin, block),
                             f"data of packet {block} of rank {origin}")
                self.heard[origin, block] = self.heard.get((origin, block), 0) + 1

    def joined(self):
        self.listen()
        if self.epoch == 0:
            self.join()
        return self.epoch != 0

    def send(self, block, **fields):
        fields = {"members": self.rank, "epoch": self.epoch, "block": block, "count": DATA_LEN,
                  **fields}
        self.port.send(self.make(MULTICAST, data_of(self.rank, block), **fields))


def data_of(rank, block):
    return struct.pack("<II", rank, block) * (DATA_LEN // 8)


@contextlib.contextmanager
def members_of(fabric, ranks):
    """Yields hosts with sockets, all of which have joined. ranks: {host: rank}."""
    parents = fabric.tree("spine0", ranks)
    fabric.install(JOB, KEY, parents, ranks, handler="multicast")
    members = [Member(fabric, host, rank, len(ranks)) for host, rank in ranks.items()]
    try:
        # Members join one after the other; those that have joined first learn of the last one when
        # they ask again.
        wait_until(lambda: all([member.joined() for member in members]), 60, "all to have joined")
        yield members
    finally:
        for member in members:
            member.port.socket.close()
        fabric.uninstall(JOB, parents)


def link_frames(namespace, interface):
    """Returns the frames (received, sent) of an interface."""
    with inside(namespace):
        counters = Path("/proc/net/dev").read_text(encoding="ascii")
    fields = next(line for line in counters.splitlines()
                  if line.strip().startswith(interface + ":")).split(":")[1].split()
    return int(fields[1]), int(fields[9])


def links_of(fabric):
    """Returns {name: (namespace, interface)} of the hosts' links, and of the leaves' links to the
    spine that is the root.
    """
    ends = {f"host {host}": (fabric.host_namespace(host), HOST_INTERFACE)
            for host in range(fabric.hosts)}
    ends.update({leaf: (fabric.switch_ns(leaf), "to-spine0") for leaf in ("leaf0", "leaf1")})
    return ends


def count_frames(fabric):
    return {name: link_frames(*end) for name, end in links_of(fabric).items()}


@case(120, family=True)
def multicast_of_all_hosts_comes_to_each_other_one_once():
    with running_fabric(leaf_spine(2, 2, 8), mtu=1500, base=WireFabric, config=FEW_PROBES) as \
            fabric, members_of(fabric, {host: host for host in range(8)}) as members:
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
            expect(all(origin != member.rank for origin, _ in member.heard),
                   f"rank {member.rank} has its own packets")
        after = count_frames(fabric)
        for name in before:
            received, sent = (now - then for now, then in zip(after[name], before[name]))
            # Four hosts are behind each leaf.
            expected = (7 * PACKETS, PACKETS) if name.startswith("host") else (4 * PACKETS,
                                                                               4 * PACKETS)
            for what, found, right in (("received", received, expected[0]),
                                       ("sent", sent, expected[1])):
                expect(right <= found <= right + ASIDE,
                       f"{name}: {found} frames {what}, expected {right} and {ASIDE} others at most")
        counters = {entry["name"]: entry["count"]
                    for entry in fabric.ask("leaf0", "jobs.list")["jobs"][0]["counters"]}
        expect_equal(counters, {"delivered": 8 * PACKETS, "passed_up": 4 * PACKETS, "no_packet": 0},
                     "what leaf0 counts")


@case(120)
def multicast_of_strangers_goes_nowhere():
    with running_fabric(leaf_spine(2, 2, 8),
                        mtu=1500) as fabric, members_of(fabric,
                                                        {host: host
                                                         for host in range(7)}) as members:
        stranger = Member(fabric, 7, 5, 7)
        stranger.epoch = members[5].epoch

        def drops(name):
            return {entry["name"]: entry["count"]
                    for entry in fabric.ask("leaf1", "drops")["drops"]}[name]
        try:
            for reason, fields in (("port_wrong", {}), ("key_wrong", {"key": 1}),
                                   ("rank_unknown", {"rank": 7, "members": 7})):
                stranger.send(0, **fields)
                wait_until(lambda name=reason: drops(name) == 1, 60,
                           f"a packet to be counted as {reason}")
            members[4].send(1, members=6)
            wait_until(lambda: drops("rank_unknown") == 2, 60,
                       "a member that speaks for another one")
        finally:
            stranger.port.socket.close()
        members[4].send(2)
        wait_until(lambda: members[0].listen() or members[0].heard, 60, "a packet of a member")
        for member in members:
            member.listen()
            expect(set(member.heard) <= {(4, 2)}, f"rank {member.rank} has {member.heard}")


def start_manager(fabric):
    """Starts the manager, and waits for all links: a switch that was started before its neighbor
    takes a moment to see the neighbor.
    """
    fabric.start_manager()
    wait_until(lambda: all(link["state"] == "up"
                           for link in fabric.ask_manager("topology")["links"]), 60,
               "all links to be up")


def hosts_of(fabric):
    """Returns a connection of each host to the network manager."""
    manager = types.SimpleNamespace(namespace=fabric.management, address=MANAGER_IP)
    return [Client(manager, token=fabric.token_file.read_text().strip())
            for _ in range(fabric.hosts)]


def ask_for(fabric, clients, **options):
    """All hosts ask for the job "cast"; returns the numbers of their requests."""
    return [client.start("join", job="cast", size=fabric.hosts, rank=host, ip=fabric.host_ip(host),
                         **options)
            for host, client in enumerate(clients)]


def members_by_manager(fabric, results):
    """Returns a list for each of the job's trees: its members, all of which have joined."""
    trees = []
    for tree in range(results[0]["trees"]):
        told = [result if tree == 0 else result["more_trees"][tree - 1] for result in results]
        trees.append([Member(fabric, host, host, fabric.hosts, entry["job"], entry["key"]) for host,
                      entry in enumerate(told)])
        await_members(trees[-1])
    return trees


def await_members(members):
    wait_until(lambda: all([member.joined() for member in members]), 60, "all to have joined")


def send_all(members, first, count):
    """Each member sends packets of these numbers, and receives each packet of all others once."""
    before = [dict(member.heard) for member in members]
    for block in range(first, first + count):
        for member in members:
            member.send(block)
        for member in members:
            member.listen()
    expected = [{(other.rank, block): 1 for other in members if other is not member
                 for block in range(first, first + count)}
                for member in members]

    def all_heard():
        for member in members:
            member.listen()
        return all(len(member.heard) >= len(then) + len(right) for member, then,
                   right in zip(members, before, expected))
    wait_until(all_heard, 60, "all packets at all hosts")
    for member, then, right in zip(members, before, expected):
        expect_equal({key: times for key, times in member.heard.items() if key not in then}, right,
                     f"packets that came to rank {member.rank}, and how often")


def roots(fabric):
    """Returns the switch at the root of each tree of the only job, in the trees' order."""
    trees = sorted(fabric.ask_manager("trees")["trees"], key=lambda tree: tree["tree"])
    return [tree["nodes"][0]["switch"] for tree in trees if tree["nodes"]]


@case(180)
def multicast_by_the_manager_goes_on_when_its_spine_dies():
    """The job has two subgroups, one over each spine."""
    with running_fabric(leaf_spine(2, 2, 4), mtu=1500) as fabric:
        start_manager(fabric)
        clients = hosts_of(fabric)
        results = [client.finish(number, "join") for client, number in
                   zip(clients, ask_for(fabric, clients, handler="multicast", trees=2))]
        for rank, result in enumerate(results):
            expect_equal((result["rank"], result["mode"], result["shape"], result["handler"],
                          result["trees"]),
                         (rank, "network", "multicast", "multicast", 2), "what a host is told")
            expect_equal(result["peers"], [{"rank": host, "ip": fabric.host_ip(host),
                                            "switch_ip": fabric.switch_ip(
                                                fabric.topology.switch_of[host])}
                                           for host in range(4)],
                         "the other hosts")
        before = roots(fabric)
        expect_equal(sorted(before), ["spine0", "spine1"], "roots of the subgroups")
        trees = members_by_manager(fabric, results)
        for members in trees:
            send_all(members, 0, 50)
        # A subgroup's packets take its tree, so the other subgroup loses none.
        os.kill(fabric.switches[before[0]].pid, signal.SIGKILL)
        for client in clients:
            expect_equal(client.wait_event("moved")["tree"], 0, "the tree that moves")
        send_all(trees[1], 50, 50)
        for member in trees[0]:
            member.epoch = member.cookie = 0
        await_members(trees[0])
        expect_equal(roots(fabric), [before[1]] * 2, "roots after the spine has died")
        send_all(trees[0], 50, 50)
        for member in trees[0] + trees[1]:
            member.port.socket.close()
        close_all(clients)
        for switch in ("leaf0", "leaf1", before[1]):
            wait_until(lambda switch=switch: not fabric.ask(switch, "jobs.list")["jobs"], 60,
                       f"the jobs of {switch} to go")


@case(120)
def no_ring_takes_the_place_of_multicast_without_a_spine():
    with running_fabric(leaf_spine(2, 1, 2), mtu=1500) as fabric:
        start_manager(fabric)
        os.kill(fabric.switches["spine0"].pid, signal.SIGKILL)
        clients = hosts_of(fabric)
        options = {"fallback": True, "endpoint": "10.9.9.9:4711"}
        for number, client in zip(ask_for(fabric, clients, handler="multicast", **options),
                                  clients):
            try:
                client.finish(number, "join")
                expect(False, "a host has a multicast job without a spine")
            except Refused as error:
                expect_equal(error.code, "no_path", "code of the refusal")
                expect('no ring of its hosts does what the handler "multicast" does'
                       in error.message, error.message)
        results = [client.finish(number, "join") for client,
                   number in zip(clients, ask_for(fabric, clients, **options))]
        expect_equal([result["mode"] for result in results], ["ring", "ring"],
                     "what hosts that reduce get")
        close_all(clients)


def refusals(processes):
    """Returns the errors of ranks whose join fails."""
    errors = []
    for process in processes:
        expect(process.wait(60) != 0, f"{process.name} runs collectives on a multicast job")
        errors.append(json.loads(process.stdout())["error"])
    return errors


@case(120)
def collectives_do_not_join_a_multicast_job():
    """The switch gives the multicast job, or the manager gives it, which need not allow a ring for
    that.
    """
    with running_fabric(leaf_spine(2, 1, 2), mtu=1500) as fabric:
        parents = fabric.tree("spine0", range(2))
        ranks = {host: host for host in range(2)}
        fabric.install(JOB, KEY, parents, ranks, handler="multicast")
        errors = refusals([fabric.spawn_rank(host, JOB, KEY, host, 2, transport="af_packet")
                           for host in ranks])
        # No member stays behind that would be in a new process's way.
        for leaf in ("leaf0", "leaf1"):
            members = fabric.ask(leaf, "jobs.list")["jobs"][0]["members"]
            expect_equal([member["joined"] for member in members], [False],
                         f"members that have joined at {leaf}")
        fabric.uninstall(JOB, parents)
        start_manager(fabric)
        errors += refusals([fabric.spawn_named(host, "cast", host, 2, handler="multicast",
                                               transport="af_packet") for host in ranks])
        for error in errors:
            expect_equal(error["code"], "unsupported", f"code of the error, {error['message']}")
            for words in ("is a multicast job",
                          "sends packets of each rank to all others and reduces nothing",
                          "a protocol for the handler multicast"):
                expect(words in error["message"], f"'{words}' is not in: {error['message']}")


@case(120)
def a_protocol_that_takes_multicast_runs_on_it_and_knows_its_peers():
    with running_fabric(leaf_spine(2, 1, 4), mtu=1500) as fabric:
        start_manager(fabric)
        token = fabric.token_file.read_text().strip()
        ranks = [fabric.spawn(host,
                              ["env", f"FANIN_TOKEN={token}", program("multicast-rank"), MANAGER_IP,
                               "gather",
                                     fabric.host_ip(host), host, 4, 100], "multicast")
                 for host in range(4)]
        for process in ranks:
            process.wait(60)
        hosts = [[fabric.host_ip(host), fabric.switch_ip(fabric.topology.switch_of[host])]
                 for host in range(4)]
        expected = {"ok": True, "wrong": 0, "rounds": 100, "protocol": "gather", "mode": "network",
                    "handler": "multicast",
                    "hosts": hosts}
        for process in ranks:
            expect(process.stdout(), f"a rank said nothing: {process.last_words()}")
            expect_equal(json.loads(process.stdout()), expected, "what a rank found")
