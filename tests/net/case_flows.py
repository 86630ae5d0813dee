# SPDX-License-Identifier: BSD-3-Clause
"""Packets that form super-frames: the table in docs/performance.md holds for every handler, over
UDP sockets at MTU 1500.
"""

import re
import socket
import struct

from tests.net.case_trees import finish, managed_fabric, start
from lab.fabric import MANAGER_IP, leaf_spine, single
from tests.net.frames import (ETH_P_ALL, GSO_UDP_L4, PACKET_OUTGOING, PACKET_VNET_HDR, SOL_PACKET,
                              TYPES)
from lab.namespaces import HOST_INTERFACE, NOBODY, SOURCE_DIR, UDP_PORT, inside, program
from lab.pinger import SO_RCVBUFFORCE
from tests.net.support import (MIB, CaseFailed, case, expect, expect_equal, run_exact_job,
                               running_lab)

PACKET_STATISTICS = 6
VNET_LEN, L4_LEN = 10, 42
# Fewer packets of a type than this prove nothing.
MIN_PACKETS = 100
# Types that may be missing: repairs, queries, and blocks that home hosts have to complete, with
# random numbers at a time.
BY_CHANCE = {"QUERY", "ANSWER", "REPEAT", "RESTORE", "ASK", "HERE", "UNICAST", "UNICAST_DELIVERY",
             "EVICTED", "MULTICAST", "DELIVERY"}
LIMITS = {"limits": {"max_jobs": 1, "slots": 2080}}
OPTIONS = {"bytes": MIB, "iters": 3, "transport": "udp"}
NAMES = {row.code: row.name for row in TYPES}


class Tap:
    """A host's whole traffic in its kernel: for each type of packets how many are in super-frames
    and how many are single.
    """

    def __init__(self, namespace):
        with inside(namespace):
            self.socket = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, 0)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 256 << 20)
        self.socket.setsockopt(SOL_PACKET, PACKET_VNET_HDR, 1)
        self.socket.bind((HOST_INTERFACE, ETH_P_ALL))
        self.socket.setblocking(False)

    def counted(self):
        """Returns {(way, type): (in super-frames, all)}; way is "up" or "down". Ends the tap."""
        counts = {}
        with self.socket:
            while True:
                try:
                    data, address = self.socket.recvfrom(70000)
                except BlockingIOError:
                    break
                kind, size = struct.unpack_from("=xBxxH", data)
                frame, payload = data[VNET_LEN:], data[VNET_LEN + L4_LEN:]
                if frame[12:14] != b"\x08\x00" or frame[
                        23] != 17 or UDP_PORT not in struct.unpack_from("!HH", frame, 34):
                    continue
                size = size if kind == GSO_UDP_L4 else len(payload)
                for at in range(0, len(payload), size):
                    key = "up" if address[2] == PACKET_OUTGOING else "down", NAMES[payload[at + 1]]
                    together, all_ = counts.get(key, (0, 0))
                    counts[key] = together + (len(payload) > size), all_ + 1
            lost = struct.unpack("=II", self.socket.getsockopt(SOL_PACKET, PACKET_STATISTICS, 8))[1]
        expect_equal(lost, 0, "packets that were not seen")
        return counts


def table():
    """Returns {handler: {(way, type): whether it forms super-frames}}, from docs/performance.md."""
    text = (SOURCE_DIR / "docs" / "performance.md").read_text()
    section = text.split("## Which packets form super-frames\n")[1].split("\n## ")[0]
    rows = {}
    for line in re.findall(r"^\| `.*\|$", section.split("\n\n")[1], re.MULTILINE):
        handlers, *columns = line.strip("|").split("|")
        says = {}
        for way, forms, column in zip(("up", "down", "up"), (True, True, False), columns):
            says |= {(way, name): forms for name in re.findall(r"\b[A-Z][A-Z_]{3,}\b", column)}
        rows |= dict.fromkeys(re.findall(r"`([a-z-]+)`", handlers), says)
    return rows


def expect_as_told(handler, counts):
    says = table()[handler]
    for (way, name), (together, all_) in counts.items():
        if all_ >= MIN_PACKETS and ((way, name) in says or name not in BY_CHANCE):
            expect_equal(says.get((way, name)), together * 2 > all_,
                         f"{handler}: docs/performance.md on {name} {way}, of which {together} of "
                         f"{all_} are in super-frames")
    for key in says:
        expect(counts.get(key, (0, 0))[1] >= MIN_PACKETS,
               f"{handler}: few packets {key} have been seen: {counts}")


def expect_of_a_run(handler, namespace, run):
    """Checks a handler's packets at a host in a run. The packets that are due at the same time
    differ between runs: in one of four runs they must be as documented.
    """
    for left in reversed(range(4)):
        tap = Tap(namespace)
        run()
        counts = tap.counted()
        try:
            return expect_as_told(handler, counts)
        except CaseFailed:
            if left == 0:
                raise


@case(120)
def packets_of_one_switch_form_super_frames_as_told():
    with running_lab(4, "af_packet", 1500, LIMITS) as lab:
        for handler, options in {"single": {}, "multi": {}, "tree": {},
                                 "sparse": {"sparse": True, "density": 0.05},
                                 "sparse-array": {"sparse": True, "density": 0.05},
                                 "sparse-hash": {"sparse": True, "density": 0.05},
                                 "pull": {}, "push": {}}.items():
            expect_of_a_run(handler, lab.host_namespace(1),
                            lambda handler=handler,
                            options=options: run_exact_job(lab, handler, handler=handler, **OPTIONS,
                                                           **options))


def fabric_job(fabric, name, **options):
    def run():
        for report in finish(fabric,
                             start(fabric, name, None if name == "canary" else 1,
                                   **{**OPTIONS, **options})):
            expect(report.get("ok"), f"{name}: {report}")
    expect_of_a_run(name, fabric.host_namespace(1), run)


@case(120)
def packets_of_managed_jobs_form_super_frames_as_told():
    with managed_fabric(leaf_spine(hosts=4), transport="udp", config=LIMITS) as fabric:
        fabric_job(fabric, "canary", handler="canary")
    with managed_fabric(single(4).add_servers(1, ["switch0"]), transport="udp") as fabric:
        fabric_job(fabric, "pa-atp", handler="pa-atp")
    with managed_fabric(leaf_spine(1, 1, 4), transport="udp") as fabric:
        fabric_job(fabric, "broadcast", collective="allgather", multicast="always")
        command = ["/usr/bin/env", f"FANIN_TOKEN={fabric.token_file.read_text().strip()}",
                   program("regions"), MANAGER_IP, "train"]

        def regions():
            for rank in [fabric.spawn(host, [*command, fabric.host_ip(host), host, 4, 3], "regions",
                                      NOBODY) for host in range(4)]:
                expect_equal(rank.wait(60), 0, "exit status of a rank with regions")
        expect_of_a_run("region", fabric.host_namespace(1), regions)
