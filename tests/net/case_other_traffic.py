# SPDX-License-Identifier: BSD-3-Clause
"""Traffic other than Fanin's between a host behind a packet port and one behind each kind of port,
both ways: TCP, UDP of several flows (UDP_SEGMENT), and fragments, over IPv4 and IPv6, without a tag
and in a VLAN. All traffic arrives whole, and tshark finds no wrong checksum.
"""

import collections
import contextlib
import socket
from typing import NamedTuple

from tests.net.case_packet_ports import port_of
from tests.net.case_super_frames import (DATA, MESSAGE, PORT, SEGMENT, SOL_UDP, TIMEOUT,
                                         UDP_SEGMENT, Mixed, family_of, open_receiver, open_socket,
                                         send_by_tcp, super_frames)
from tests.net.frames import RawPort, write_pcap
from tests.net.support import MIB, Lab, case, expect, expect_equal, run, running_lab, wait_until
from lab.namespaces import BUILD_DIR, HOST_INTERFACE, inside, ip_in

TCP_BYTES = MIB
FLOWS = 4
ROUNDS = 3  # of messages, one of each flow at a time
DATAGRAM = 20000
DATAGRAMS = 5
VLAN_INTERFACE = "vlan"
TAG_PROGRAMS = BUILD_DIR / "tests" / "vlan_tag.bpf.o"
LONGEST = 1518  # an Ethernet frame at MTU 1500, and the tag


class End(NamedTuple):
    """A host with its namespace, interface and addresses."""

    namespace: str
    interface: str
    number: int  # of its addresses

    def addresses(self):
        """Returns its addresses: IPv4 and IPv6, without a tag and in the VLAN."""
        return [f"{net}{self.number}" for net in ("10.77.0.", "fd77::", "10.78.0.", "fd78::")]

    def set_up(self):
        """Gives the host the addresses that it lacks, and an interface in the VLAN, also where the
        kernel has no interfaces of VLANs.
        """
        with inside(self.namespace):
            run(["ip", "link", "add", "link", self.interface, "name", VLAN_INTERFACE, "type",
                 "macvlan", "mode", "private"])
            run(["tc", "qdisc", "add", "dev", VLAN_INTERFACE, "clsact"])
            for hook, section in (("egress", "tag"), ("ingress", "untag")):
                run(["tc", "filter", "add", "dev", VLAN_INTERFACE, hook, "bpf", "direct-action",
                     "object-file", TAG_PROGRAMS, "section", section])
            for interface, addresses in ((self.interface, self.addresses()[:2]),
                                         (VLAN_INTERFACE, self.addresses()[2:])):
                run(["sysctl", "-q", f"net.ipv6.conf.{interface}.disable_ipv6=0"])
                run(["ip", "link", "set", interface, "up"])
                run(["ip", "address", "replace", f"{addresses[0]}/24", "dev", interface])
                run(["ip", "address", "add", f"{addresses[1]}/64", "dev", interface, "nodad"])


class WithMemif(Lab):
    """The second port is memif; behind it is dpdk-testpmd with a TAP device in the namespace of
    host 1.
    """

    INTERFACE = "behind"

    def config(self):
        config = super().config()
        config["ports"][1] = {"name": "h1", "memif": 1, "mtu": self.mtu}
        return config

    def start_switch(self, timeout=60):
        super().start_switch(timeout)
        ip_in(self.host_namespace(1), "link", "set", HOST_INTERFACE, "down")
        ip_in(self.host_namespace(1), "address", "flush", "dev", HOST_INTERFACE)
        self.spawn(1, ["dpdk-testpmd", "--no-huge", "-m", "64", "--no-pci", "--no-telemetry",
                       "--file-prefix", f"{self.prefix}-testpmd",
                       "--lcores", "0@(0-1),1@(0-1)", "--vdev",
                       f"net_memif0,role=client,id=1,socket={self.memif_path},socket-abstract=no",
                       "--vdev", f"net_tap0,iface={self.INTERFACE}", "--", "--nb-cores=1",
                       "--total-num-mbufs=8192", "--stats-period=3600",
                       "--no-lsc-interrupt"], "testpmd")
        wait_until(lambda: port_of(self, "h1")["link"], timeout,
                   "dpdk-testpmd at the port of memif")


def send_flows(source, target, address):
    """Sends a message of each flow at the same time; the kernel sends them as segments."""
    with contextlib.ExitStack() as stack:
        receivers = [open_receiver(stack, target, address, PORT + flow) for flow in range(FLOWS)]
        senders = [stack.enter_context(open_socket(source, family_of(address), socket.SOCK_DGRAM))
                   for _ in receivers]
        for flow, sender in enumerate(senders):
            sender.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT - flow)
            sender.connect((address, PORT + flow))
        for number in range(ROUNDS):
            messages = [DATA[100 * number + flow:][:MESSAGE - 1000 * flow] for flow in range(FLOWS)]
            for sender, message in zip(senders, messages):
                sender.send(message)
            for flow, (receiver, message) in enumerate(zip(receivers, messages)):
                for offset in range(0, len(message), SEGMENT - flow):
                    expect(receiver.recv(65536) == message[offset:offset + SEGMENT - flow],
                           f"flow {flow}, message {number}, segment at {offset} to {address} "
                           "differs")


def send_fragments(source, target, address):
    with contextlib.ExitStack() as stack:
        receiver = open_receiver(stack, target, address)
        sender = stack.enter_context(open_socket(source, family_of(address), socket.SOCK_DGRAM))
        for number in range(DATAGRAMS):
            datagram = DATA[number:number + DATAGRAM]
            sender.sendto(datagram, (address, PORT))
            expect(receiver.recv(65536) == datagram, f"datagram {number} to {address} differs")


def send_all(source, target):
    for address in target.addresses():
        send_by_tcp(source.namespace, target.namespace, address, TCP_BYTES)
        send_flows(source.namespace, target.namespace, address)
        send_fragments(source.namespace, target.namespace, address)


def statuses(lab, frames):
    """Returns tshark's verdicts on the checksums of frames, by kinds of packets. The fragments of a
    packet count as one.
    """
    fields = ("vlan.id", "ip.checksum.status", "ipv6.version", "tcp.checksum.status",
              "udp.checksum.status", "icmpv6.checksum.status")
    names = {"0": "bad", "1": "good", "2": "unverified", "3": "not present"}
    path = lab.directory / "capture.pcap"
    write_pcap(path, frames)
    command = ["tshark", "-r", path, "-T", "fields"]
    for protocol in ("ip", "tcp", "udp"):
        command += ["-o", f"{protocol}.check_checksum:TRUE"]
    for field in fields:
        command += ["-e", field]
    found = collections.defaultdict(collections.Counter)
    for line in run(command).stdout.splitlines():
        vlan, ipv4, ipv6, *transports = line.split("\t")
        where = ("IPv6" if ipv6 else "IPv4") + (" in a VLAN" if vlan else "")
        for protocol, status in zip(("header", "TCP", "UDP", "ICMPv6"), (ipv4, *transports)):
            if status:
                found[f"{protocol}, {where}"][names.get(status, status)] += 1
    return found


def expect_right_checksums(lab, frames, where):
    """Expects right checksums. frames: all frames that send_all sent to one end."""
    found = statuses(lab, frames)
    expect(all(list(counter) == ["good"] for counter in found.values()),
           f"checksums at {where}: {found}")
    for tag in ("", " in a VLAN"):
        least = {f"TCP, {version}{tag}": TCP_BYTES // (LONGEST - 54)
                 for version in ("IPv4", "IPv6")}
        least |= {f"UDP, {version}{tag}": ROUNDS * FLOWS * (MESSAGE // SEGMENT - 3) + DATAGRAMS
                  for version in ("IPv4", "IPv6")}
        for kind, count in least.items():
            expect(found[kind]["good"] >= count,
                   f"{found[kind]} of {kind} came at {where}, expected {count}")
    longest = max(len(frame) for _, frame in frames)
    expect(longest <= LONGEST, f"a frame of {longest} bytes came at {where}")


def cross(lab, there):
    """Sends both ways between host 0 and another end. Frames that arrive at either end left its
    port complete.
    """
    here = End(lab.host_namespace(0), HOST_INTERFACE, 1)
    here.set_up()
    there.set_up()
    for source, target in ((here, there), (there, here)):
        with RawPort(target.namespace, target.interface) as sniffer:
            send_all(source, target)
            expect_right_checksums(lab, sniffer.arrived(), target.namespace)


def expect_no_losses(lab):
    for port in lab.control.ask("ports.list")["ports"]:
        expect_equal([port[key] for key in ("rx_refused", "rx_errors", "tx_errors", "rx_missed")],
                     [0, 0, 0, 0], f"losses at {port['name']}")


@case()
def other_traffic_crosses_packet_ports_whole():
    """Super-frames stay whole, and the kernels at the ends know which checksums are still to be
    made. A switch interface may be unable to make checksums or to take super-frames: then the
    switch's kernel makes both before the frames leave, and tshark sees these frames.
    """
    with running_lab(2, "af_packet", 1500) as lab:
        here, there = (End(lab.host_namespace(host), HOST_INTERFACE, host + 1) for host in range(2))
        here.set_up()
        there.set_up()
        for source, target, port, other in ((here, there, "h1", "h0"), (there, here, "h0", "h1")):
            before, came = super_frames(lab, port), super_frames(lab, other)
            send_all(source, target)
            least = 4 * FLOWS * ROUNDS
            # A frame arrives before the worker that sent it has counted it.
            wait_until(lambda port=port, before=before,
                       least=least: super_frames(lab, port)["tx"] - before["tx"] >= least, TIMEOUT,
                       f"{least} super-frames to {port}")
            after = super_frames(lab, port)
            frames = {name: after[name] - before[name] for name in ("tx", "tx_segments")}
            expect(frames["tx_segments"] >= 5 * frames["tx"], f"to {port}: {frames}")
            expect(super_frames(lab, other)["rx"] - came["rx"] >= frames["tx"],
                   f"sent to {port}: {frames}, others came in")
            expect(after["made"], f"{port} makes no super-frames")
    with running_lab(2, "af_packet", 1500) as lab:
        with inside(lab.switch_namespace):
            for host in range(2):
                run(["ethtool", "-K", lab.switch_interface(host), "tx", "off", "txvlan", "off"])
        cross(lab, End(lab.host_namespace(1), HOST_INTERFACE, 2))
        expect_no_losses(lab)


@case()
def other_traffic_crosses_to_af_xdp_ports():
    with running_lab(2, "af_packet", 1500, base=Mixed) as lab:
        cross(lab, End(lab.host_namespace(1), HOST_INTERFACE, 2))
        expect_equal(super_frames(lab, "h1")["tx"], 0, "super-frames to the port of AF_XDP")
        expect_no_losses(lab)


@case()
def other_traffic_crosses_to_tap_ports():
    with running_lab(2, "af_packet", 1500, base=Mixed) as lab:
        cross(lab, End(lab.switch_namespace, "tap-port", Mixed.TAP_NUMBER))
        expect_equal(super_frames(lab, "tap")["tx"], 0, "super-frames to the TAP port")
        expect_no_losses(lab)


@case(long=True)
def other_traffic_crosses_to_memif_ports():
    with running_lab(2, "af_packet", 1500, base=WithMemif) as lab:
        cross(lab, End(lab.host_namespace(1), WithMemif.INTERFACE, 2))
        expect_equal(super_frames(lab, "h1")["tx"], 0, "super-frames to the memif port")
        expect_no_losses(lab)
