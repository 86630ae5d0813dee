# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on UDP sockets beside forgers: at another interface of the host, at another switch with the
same job number, and another user of the host. No host believes forged packets; and packets that it
would believe, if the kernel did not check the sender, have reached the host.
"""

import json
import socket
import struct
import sys
import time
from pathlib import Path

from tests.net import frames
from tests.net.case_levels import KEY, running_fabric
from tests.net.case_strangers import MEMBERS, forgeries, group_of, halted
from tests.net.case_trees import managed_fabric, start
from lab.fabric import SECOND_INTERFACE, leaf_spine
from tests.net.frames import RESULT, RawPort, header, job_key, packet
from lab.namespaces import (HOST_INTERFACE, SWITCH_IP, SWITCH_MAC, UDP_PORT, inside, ip_in, run,
                            wait_until)
from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, job_entry,
                               reports_of, running_lab, start_ranks)

SIZE, ITERATIONS = 256 * KIB, 1000
OUTSIDE = "outside"  # a host's other interface
OUTSIDE_IP, FORGER_IP = "10.88.0.1", "10.88.0.2"
FORGER_MAC = "02:88:00:00:00:02"
NEIGHBOR = Path(__file__).with_name("neighbor.py")
USER = "daemon"
FORGED_BLOCKS = 64
WITNESS_PORT = 4000


def own_ports(lab, host):
    """Returns the ports at which a host takes packets that the switch sends to it alone: those of
    the sockets that are connected to the switch.
    """
    switch = "%08X:%04X" % (struct.unpack("=I", socket.inet_aton(SWITCH_IP))[0], UDP_PORT)
    own = "%08X" % struct.unpack("=I", socket.inet_aton(lab.host_ip(host)))[0]
    with inside(lab.host_namespace(host)):
        rows = [line.split(
            ) for line in Path(
                "/proc/thread-self/net/udp").read_text(encoding="ascii").splitlines()[1:]]
    ports = sorted(int(row[1].split(":")[1], 16) for row in rows if row[2] == switch
                   and row[1].startswith(own))
    expect(ports, f"host {host} has no socket to the switch: {rows}")
    return ports


def beside(forge, **options):
    """Runs a job, and halts its last rank for a while, in which forge(lab, job, contents) sends
    what a switch could say. Returns the reports, and what forge returns.
    """
    with running_lab(4, "udp") as lab:
        job = lab.create_job(MEMBERS, "--payload", 1024)
        ranks = start_ranks(lab, job, MEMBERS, bytes=SIZE, iters=ITERATIONS, timeout_ms=20000,
                            **options)
        with halted(lab, job, ranks, ITERATIONS * SIZE // 1024) as first:
            contents = list(forgeries(job, job_entry(lab, job)["epoch"], first,
                                      min(job["window"], FORGED_BLOCKS)))
            found = forge(lab, job, contents)
            time.sleep(0.3)
        reports = reports_of(lab, ranks)
        expect_exact(reports, "the job beside forgers")
        expect_equal([report["transport"] for report in reports], ["udp"] * len(MEMBERS),
                     "transports")
        return reports, found


def expect_nothing_seen(reports):
    """Expects that the kernel has dropped all forged packets: none has come to the library."""
    expect_equal([report["invalid"] for report in reports], [0] * len(MEMBERS),
                 "packets that ranks have looked at and refused")


def make_outside(lab, host):
    """Makes a link from a host to a namespace of its own, and returns the namespace's name."""
    namespace = f"{lab.prefix}-forger"
    there = lab.host_namespace(host)
    lab.namespaces.append(namespace)
    run(["ip", "netns", "add", namespace])
    ip_in(there, "link", "add", "name", OUTSIDE, "type", "veth", "peer", "name", HOST_INTERFACE,
          "address", FORGER_MAC, "netns", namespace)
    ip_in(there, "address", "add", f"{OUTSIDE_IP}/24", "dev", OUTSIDE)
    ip_in(there, "link", "set", OUTSIDE, "up")
    ip_in(namespace, "link", "set", HOST_INTERFACE, "up")
    # The host believes any source at any interface, as many do.
    with inside(there):
        for name in ("all", OUTSIDE, HOST_INTERFACE):
            Path(f"/proc/sys/net/ipv4/conf/{name}/rp_filter").write_text("0", encoding="ascii")
    return namespace


def mac_of(namespace, interface):
    return json.loads(ip_in(namespace, "-j", "link", "show", interface).stdout)[0]["address"]


class Witness:
    """Sockets of a host that are closed to nobody: a port of its own, and the job's group at an
    interface. They show that forged packets reach the host.
    """

    def __init__(self, namespace, group, interface):
        with inside(namespace):
            self.sockets = [socket.socket(socket.AF_INET, socket.SOCK_DGRAM) for _ in range(2)]
            for sock in self.sockets:
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                sock.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20)
                sock.setblocking(False)
            self.sockets[0].bind(("0.0.0.0", WITNESS_PORT))
            self.sockets[1].bind((group, UDP_PORT))
            self.sockets[1].setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                                       struct.pack("4s4si", socket.inet_aton(group), bytes(4),
                                                   socket.if_nametoindex(interface)))

    def heard(self, source):
        """Returns how many packets with a source have come to the port, and to the group."""
        counts = []
        for sock in self.sockets:
            n = 0
            try:
                while True:
                    n += sock.recvfrom(65536)[1][0] == source
            except BlockingIOError:
                counts.append(n)
        return counts

    def close(self):
        for sock in self.sockets:
            sock.close()


def send_to_host(port, job, contents, source, mac, address, ports):
    """Sends frames with these contents from a source (MAC, address) to the group and to ports of a
    host. Returns how many went to each of these.
    """
    group_mac, group_ip = group_of(job["id"])
    for content in contents:
        port.send(packet(content, *source, dst_mac=group_mac, dst_ip=group_ip))
        for number in ports:
            port.send(packet(content, *source, dst_mac=mac, dst_ip=address, dst_port=number))
        time.sleep(0.0005)
    return len(contents)


def from_another_interface(lab, job, contents):
    """Sends to host 0 from beyond its other interface, with the switch's address."""
    namespace = make_outside(lab, 0)
    there = lab.host_namespace(0)
    witness = Witness(there, group_of(job["id"])[1], OUTSIDE)
    ports = own_ports(lab, 0)
    try:
        with RawPort(namespace) as port:
            sent = sum(send_to_host(port, job, contents, (FORGER_MAC, SWITCH_IP),
                                    mac_of(there, OUTSIDE), address,
                                    [*ports, UDP_PORT, WITNESS_PORT])
                       for address in (lab.host_ip(0), OUTSIDE_IP))
            time.sleep(0.2)
        alone, grouped = witness.heard(SWITCH_IP)
    finally:
        witness.close()
    expect(alone >= sent // 2 and grouped >= sent // 2,
           f"of {sent} forged packets {alone} have come to a port of the host, and {grouped} to "
           "the group there")


@case(90)
def what_comes_in_by_another_interface_is_not_believed_over_udp():
    reports, _ = beside(from_another_interface)
    expect_nothing_seen(reports)


def from_another_address(lab, job, contents):
    """Sends on host 0's own link from any address but the switch's, as another switch would that
    has a job of this number; and some frames as the switch, with a wrong key.
    """
    there = lab.host_namespace(0)
    ports = own_ports(lab, 0)
    witness = Witness(there, group_of(job["id"])[1], HOST_INTERFACE)
    try:
        with RawPort(lab.switch_namespace, lab.switch_interface(0)) as port:
            for source in ("10.77.0.253", lab.host_ip(1), "10.99.0.254"):
                sent = send_to_host(port, job, contents, (SWITCH_MAC, source), lab.host_mac(0),
                                    lab.host_ip(0), [*ports, WITNESS_PORT])
            for frame in (packet(content, SWITCH_MAC, "10.77.0.253", dst_mac=lab.host_mac(0),
                                 dst_ip=lab.host_ip(0), src_port=src_port, dst_port=number)
                          for content in contents for src_port in (UDP_PORT, UDP_PORT + 1)
                          for number in ports):
                port.send(frame)
            time.sleep(0.2)
            alone, grouped = witness.heard("10.99.0.254")
            expect(alone >= sent // 2 and grouped >= sent // 2,
                   f"of {sent} forged packets {alone} have come to the host, and {grouped} to the "
                   "group there")
            wrong = [header(RESULT, job["id"], job_key(job, frames.CONTRIBUTION), block=block)
                     for block in range(10)]
            send_to_host(port, job, wrong, (SWITCH_MAC, SWITCH_IP), lab.host_mac(0), lab.host_ip(0),
                         ports)
    finally:
        witness.close()


@case(90)
def what_another_switch_says_of_a_job_of_this_number_is_not_believed_over_udp():
    reports, _ = beside(from_another_address)
    # The library reads packets with the switch's address, and refuses them for their key: so the
    # path is open.
    expect(0 < reports[0]["invalid"] <= 20,
           f"rank 0 has refused {reports[0]['invalid']} packets, of which 20 were as from the "
           "switch")
    expect_equal([report["invalid"] for report in reports[1:]], [0, 0],
                 "packets that the others have looked at and refused")


@case(90, long=True)
def jobs_of_one_number_and_key_at_two_switches_do_not_mix_over_udp():
    """Two jobs of the same hosts run at the same time, each at the switch of another link: they
    differ in the seeds of their data, and in nothing else.
    """
    with running_fabric(leaf_spine(1, 1, 2, dual_homed=True), transport="udp") as fabric:
        ranks = []
        for leaf in ("leaf0", "leaf1"):
            members = [{"port": f"h{host}", "ip": fabric.host_ip(host, leaf), "rank": host}
                       for host in range(2)]
            fabric.ask(leaf, "jobs.create", id=5, key=KEY, size=2, members=members)
        for seed, leaf in enumerate(("leaf0", "leaf1"), 1):
            ranks.append([fabric.spawn_perf(host, {"id": 5, "key": KEY}, host, 2,
                                            switch=fabric.switch_ip(leaf), transport="udp",
                                            bytes=MIB,
                                            iters=600, check=True, seed=seed) for host in range(2)])

        def results(leaf):
            return fabric.ask(leaf, "jobs.list")["jobs"][0]["stats"]["results"]
        wait_until(lambda: min(results("leaf0"), results("leaf1")) > 100, 60, "results of both")
        expect(all(rank.running() for both in ranks for rank in both),
               "one of the jobs is over before the other one runs: give it more iterations")
        for leaf, both in zip(("leaf0", "leaf1"), ranks):
            reports = reports_of(fabric, both)
            expect_exact(reports, f"the job at {leaf}")
            expect_equal([(report["transport"], report["invalid"]) for report in reports],
                         [("udp", 0)] * 2, f"transport and invalid packets, {leaf}")
            for host in range(2):
                shown = ip_in(fabric.host_namespace(host), "address", "show", "dev",
                              SECOND_INTERFACE if leaf == "leaf1" else HOST_INTERFACE).stdout
                expect(fabric.host_ip(host, leaf) in shown,
                       f"host {host} is at {leaf} by another interface: {shown}")


@case(60)
def a_port_of_leaders_that_is_taken_is_named_over_udp():
    """Any user may have taken the port, which needs no rights."""
    with managed_fabric(leaf_spine(1, 1, 2), transport="udp") as fabric:
        with inside(fabric.host_namespace(0)), socket.socket(socket.AF_INET,
                                                             socket.SOCK_DGRAM) as taken:
            taken.bind((fabric.host_ip(0), UDP_PORT))
            ranks = start(fabric, "leading", None, handler="canary", bytes=KIB)
            status = ranks[0].wait(60)
        error = fabric.perf_report(ranks[0])["error"]
        expect(status != 0 and f"cannot take UDP port {UDP_PORT} of {fabric.host_ip(0)}: " in error[
            "message"], f"exit status {status}, error {error}")


def from_another_user(lab, job, contents):
    path = lab.directory / "told.json"
    path.write_text(json.dumps({"packets": [content.hex() for content in contents],
                                "host": lab.host_ip(0), "switch": SWITCH_IP,
                                "group": group_of(job["id"])[1], "group_port": UDP_PORT,
                                "ports": own_ports(lab, 0)}), encoding="ascii")
    path.chmod(0o644)
    neighbor = lab.spawn(0, [sys.executable, str(NEIGHBOR), str(path)], "neighbor", USER)
    expect_equal(neighbor.wait(60), 0,
                 f"exit status of the other user's program ({neighbor.last_words()})")
    return json.loads(neighbor.stdout())


@case(90)
def another_user_of_a_host_is_not_believed_over_udp():
    reports, found = beside(from_another_user)
    expect_nothing_seen(reports)
    expect(found["sent"] > FORGED_BLOCKS, f"the other user's program could not send: {found}")
    expect(found["heard_own"] >= FORGED_BLOCKS // 2,
           f"what it sent to the group has not come to the host: {found}")
    expect_equal((set(found["ports"]), set(found["any_address"])), ({"EADDRINUSE"}, {"EADDRINUSE"}),
                 f"taking the member's ports: {found}")
    expect_equal(found["switch_address"], "EADDRNOTAVAIL", f"taking the switch's address: {found}")
    expect(found["switch_address_free"] != "done", f"it sends with the switch's address: {found}")
    expect_equal((found["raw"], found["packet"]), ("EPERM", "EPERM"), f"raw sockets: {found}")
