# SPDX-License-Identifier: BSD-3-Clause
"""Super-frames of others: a host's kernel hands over one frame (TCP, or UDP by UDP_SEGMENT), which
passes packet ports as one, and other ports as the frames that it stands for; see
docs/architecture.md.
"""

import contextlib
import errno
import hashlib
import socket
import struct
import threading

from tests.net.case_packet_ports import port_of
from tests.net.case_switching import enable_ipv6
from tests.net.frames import (GSO_UDP_L4, RawPort, checksum, ethernet, send_super_frame,
                              sums_are_right)
from tests.net.support import (MIB, Lab, case, expect, expect_equal, kernel_takes_super_frames, run,
                               run_exact_job, running_lab, wait_until)
from lab.fabric import Fabric, leaf_spine
from lab.namespaces import HOST_INTERFACE, inside, ip_in
from lab.pinger import SO_RCVBUFFORCE

SOL_UDP = 17
UDP_SEGMENT = 103
PORT = 7777
TAG = bytes.fromhex("81000005")
TCP_BYTES = 4 * MIB
SEGMENT = 1400
MESSAGE = 65100  # a longer message would be a frame of more than 64 KiB, which no interface takes
MESSAGES = 10
DATA = hashlib.shake_256(b"super-frames").digest(TCP_BYTES)
TIMEOUT = 60


def family_of(address):
    return socket.AF_INET6 if ":" in address else socket.AF_INET


def open_socket(namespace, family, kind):
    with inside(namespace):
        return socket.socket(family, kind)


def receive_all(connection, count, received):
    while len(received) < count:
        data = connection.recv(1 << 20)
        if not data:
            break
        received += data


def send_by_tcp(source, target, address, count=TCP_BYTES):
    """Sends between namespaces, and expects all bytes to arrive. count: of bytes, at most
    TCP_BYTES.
    """
    received = bytearray()
    with open_socket(target, family_of(address), socket.SOCK_STREAM) as listener, \
            open_socket(source, family_of(address), socket.SOCK_STREAM) as sender:
        listener.bind((address, PORT))
        listener.listen()
        sender.settimeout(TIMEOUT)
        sender.connect((address, PORT))
        connection = listener.accept()[0]
        with connection:
            connection.settimeout(TIMEOUT)
            reader = threading.Thread(target=receive_all, args=(connection, count, received))
            reader.start()
            sender.sendall(DATA[:count])
            reader.join(TIMEOUT)
    expect(received == DATA[:count],
           f"{len(received)} bytes came by TCP to {address}, others than were sent")


def open_receiver(stack, namespace, address, port=PORT):
    receiver = stack.enter_context(open_socket(namespace, family_of(address), socket.SOCK_DGRAM))
    receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
    receiver.settimeout(TIMEOUT)
    receiver.bind((address, port))
    return receiver


def send_messages(source, address, receivers):
    """Sends MESSAGES, which the kernel sends as segments; each message arrives before the next is
    sent, because queues on the way hold a few hundred frames.
    """
    with open_socket(source, family_of(address), socket.SOCK_DGRAM) as sender:
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT)
        sender.setsockopt(socket.SOL_SOCKET, socket.SO_BROADCAST, 1)
        sender.connect((address, PORT))
        for number in range(MESSAGES):
            message = DATA[number:number + MESSAGE]
            sender.send(message)
            for receiver in receivers:
                for offset in range(0, MESSAGE, SEGMENT):
                    expect(receiver.recv(65536) == message[offset:offset + SEGMENT],
                           f"message {number}, segment at {offset} to {address} differs")


def send_by_udp(source, target, address):
    with contextlib.ExitStack() as stack:
        send_messages(source, address, [open_receiver(stack, target, address)])


def expect_loss(lab, source, target, address):
    """
    Expects a kernel whose packet sockets take no super-frames of UDP to drop messages that it is to
    send as segments, and the port to count the drops.
    """
    before = port_of(lab, "h0")["rx_missed"]
    with contextlib.ExitStack() as stack:
        receiver = open_receiver(stack, target, address)
        sender = stack.enter_context(open_socket(source, family_of(address), socket.SOCK_DGRAM))
        sender.setsockopt(SOL_UDP, UDP_SEGMENT, SEGMENT)
        sender.connect((address, PORT))
        for number in range(1, 4):
            sender.send(DATA[:MESSAGE])
            wait_until(lambda number=number: port_of(lab, "h0")["rx_missed"] == before + number,
                       TIMEOUT, f"message {number} to {address} to be counted")
        # A single packet passes, and nothing was on its way before it.
        sender.send(DATA[:SEGMENT])
        expect(receiver.recv(65536) == DATA[:SEGMENT],
               f"something else than a single datagram came to {address}")


def udp_super_frame(lab, tags, payload, target=1):
    """Returns a super-frame of UDP from host 0 to another, behind VLAN tags, with a checksum to be
    completed, and its header for packet(7).
    """
    addresses = socket.inet_aton(lab.host_ip(0)) + socket.inet_aton(lab.host_ip(target))
    head = struct.pack("!BBHHHBBH", 0x45, 0, 28 + len(payload), 0, 0x4000, 64, 17, 0) + addresses
    pseudo = addresses + struct.pack("!II", 8 + len(payload), 17)
    udp = struct.pack("!HHHH", PORT, PORT, 8 + len(payload), ~checksum(pseudo) & 0xffff)
    frame = ethernet(lab.host_mac(target), lab.host_mac(0), 0, b"")[:12] + tags + b"\x08\x00" + \
        head[:10] + checksum(head).to_bytes(2, "big") + head[12:] + udp + payload
    at = 34 + len(tags)
    return frame, {"gso_type": GSO_UDP_L4, "header_len": at + 8, "gso_size": SEGMENT,
                   "csum_start": at, "csum_offset": 6}


def addresses_of(lab, host):
    return lab.host_ip(host), enable_ipv6(lab, host)


def super_frames(lab, name):
    return port_of(lab, name)["super_frames"]


@case()
def super_frames_of_others_pass_packet_ports_whole():
    with running_lab(2, "af_packet", 1500) as lab:
        here, there = lab.host_namespace(0), lab.host_namespace(1)
        takes = kernel_takes_super_frames()
        addresses_of(lab, 0)
        addresses = addresses_of(lab, 1)
        for address in addresses:
            for send in (send_by_tcp, *[send_by_udp] * takes):
                before, came = super_frames(lab, "h1"), super_frames(lab, "h0")
                send(here, there, address)
                # A frame arrives before the worker that sent it has counted it.
                wait_until(lambda before=before: super_frames(lab, "h1")["tx"]
                           - before["tx"] >= MESSAGES, TIMEOUT,
                           f"{MESSAGES} super-frames of {send.__name__} to {address} to be counted")
                after = super_frames(lab, "h1")
                frames = {name: after[name] - before[name] for name in ("tx", "tx_segments")}
                expect(frames["tx_segments"] >= 5 * frames["tx"],
                       f"{send.__name__} to {address}: {frames}")
                expect(super_frames(lab, "h0")["rx"] - came["rx"] >= frames["tx"],
                       f"{send.__name__} to {address}: sent {frames}, others came")
        for name in ("h0", "h1"):
            port = port_of(lab, name)
            expect_equal([port[key] for key in ("rx_refused", "rx_errors", "tx_errors",
                                                "rx_missed")], [0, 0, 0, 0], f"losses at {name}")
            expect_equal(port["super_frames"]["made"], takes, f"{name} makes super-frames")
        if not takes:
            for address in addresses:
                expect_loss(lab, here, there, address)


class Mixed(Lab):
    """Host 1 is behind a port of AF_XDP, the others behind packet ports, and the switch's namespace
    itself behind a TAP device.
    """

    TAP_NUMBER = 99
    TAP_IP = f"10.77.0.{TAP_NUMBER}"

    def vdev(self, host):
        return super().vdev(
            host) if host != 1 else f"net_af_xdp,iface={self.switch_interface(host)},busy_budget=0"

    def config(self):
        config = super().config()
        config["ports"].append({"name": "tap", "mtu": 1500, "vdev": "net_tap0,iface=tap-port"})
        return config

    def start_switch(self, timeout=60):
        for namespace, interface in ((self.switch_namespace, self.switch_interface(1)),
                                     (self.host_namespace(1), HOST_INTERFACE)):
            with inside(namespace):
                run(["ethtool", "-K", interface, "tx", "off", "txvlan", "off"])
        super().start_switch(timeout)
        ip_in(self.switch_namespace, "address", "add", f"{self.TAP_IP}/24", "dev", "tap-port")


@case()
def tcp_leaves_other_ports_as_frames_with_right_checksums():
    """This holds with every kernel; case_other_traffic.py has more cases, for kernels that take
    super-frames of UDP.
    """
    with running_lab(2, "af_packet", 1500,
                     base=Mixed) as lab, RawPort(lab.host_namespace(1)) as by_xdp, \
            RawPort(lab.switch_namespace, "tap-port") as by_tap:
        here, there = lab.host_namespace(0), lab.host_namespace(1)
        for target, address, sniffer in ((there, lab.host_ip(1), by_xdp),
                                         (lab.switch_namespace, lab.TAP_IP, by_tap)):
            sniffer.arrived()
            send_by_tcp(here, target, address)
            frames = [frame for _, frame in sniffer.arrived()]
            expect(len(frames) >= 100,
                   f"{len(frames)} frames came to {address}, expected 100 or more")
            expect(all(len(frame) <= 1518 for frame in frames),
                   f"a frame longer than the MTU came to {address}")
            expect(all(map(sums_are_right, frames)), f"a wrong checksum came to {address}")


@case()
def super_frames_of_others_to_everybody_leave_by_all_ports():
    """No port changes a frame because of another port."""
    with running_lab(2, "af_packet", 1500, base=Mixed) as lab, contextlib.ExitStack() as stack:
        here, there = lab.host_namespace(0), lab.host_namespace(1)
        sniffers = {"AF_XDP": stack.enter_context(RawPort(there)),
                    "TAP": stack.enter_context(RawPort(lab.switch_namespace, "tap-port"))}
        receivers = [open_receiver(stack, namespace, "10.77.0.255")
                     for namespace in (there, lab.switch_namespace)]
        # The kernel there sees the frames also where they come in.
        receivers[1].setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"tap-port")
        send_messages(here, "10.77.0.255", receivers)
        for where, sniffer in sniffers.items():
            frames = [frame for _, frame in sniffer.arrived()]
            expect(len(frames) >= MESSAGES * (MESSAGE // SEGMENT),
                   f"{len(frames)} frames came out of the port of {where}")
            expect(all(len(frame) <= 1518 for frame in frames),
                   f"a frame longer than the MTU came out of the port of {where}")
            expect(all(map(sums_are_right, frames)),
                   f"a wrong checksum came out of the port of {where}")
        expect_equal([super_frames(lab, name)["tx"] for name in ("h1", "tap")], [0, 0],
                     "super-frames to ports that take none")


@case()
def super_frames_of_others_are_routed():
    with Fabric(leaf_spine(2, 1, 4), "af_packet") as fabric:
        fabric.start()
        fabric.await_next_hops()
        here, there, address = fabric.host_namespace(0), fabric.host_namespace(2), fabric.host_ip(2)
        wait_until(lambda: fabric.spawn(0, ["ping", "-n", "-c", "1", "-W", "1", address],
                                        "ping").wait(60) == 0, TIMEOUT, "the hosts to be found")
        if kernel_takes_super_frames():
            send_by_udp(here, there, address)
        send_by_tcp(here, there, address)
        ports = fabric.ask("spine0", "ports.list")["ports"]
        expect(sum(port["super_frames"]["tx"] for port in ports) >= MESSAGES,
               f"the spine made frames of super-frames: {ports}")


@case()
def super_frames_with_tags_pass_and_what_cannot_be_passed_on_is_counted():
    """One tag or two stay where they are. Behind three nobody looks for IP; and DPDK has no flags
    for some protocols' checksums.
    """
    takes = kernel_takes_super_frames()
    with running_lab(3, "af_packet", 1500,
                     base=Mixed) as lab, RawPort(lab.host_namespace(1)) as by_xdp, \
            RawPort(lab.host_namespace(2)) as by_packets:
        def send(frame, header):
            send_super_frame(lab.host_namespace(0), frame, **header)
        # The frames teach the switch only where host 0 is: hosts 1 and 2 have none in the VLAN.
        for target, receiver in ((1, by_xdp), (2, by_packets)):
            for tags in (TAG, TAG + TAG) if takes else ():
                for length in (2 * SEGMENT + 100, 40000):
                    receiver.arrived()
                    frame, header = udp_super_frame(lab, tags, DATA[:length], target)
                    send(frame, header)
                    seen = []

                    def payload(tags=tags, seen=seen, receiver=receiver):
                        seen += [frame for _,
                                 frame in receiver.arrived()
                                 if frame[12:14 + len(tags)] == tags + b"\x08\x00"]
                        return b"".join(frame[42 + len(tags):] for frame in seen)
                    wait_until(lambda length=length, payload=payload: len(payload()) >= length,
                               TIMEOUT,
                               f"{length} bytes behind {len(tags)} bytes of tags at host {target}")
                    expect(receiver is by_packets or all(map(sums_are_right, seen)),
                           "a tagged frame has a wrong checksum")
                    expect(payload() == DATA[:length],
                           f"{length} bytes behind {len(tags)} bytes of tags at host {target} "
                           "differ")
        expect_equal(super_frames(lab, "h0")["rx"], 8 * takes, "super-frames received")
        sctp = struct.pack("!BBHHHBBH", 0x45, 0, 60, 0, 0x4000, 64, 132, 0) + bytes(48)
        refused = [udp_super_frame(lab, 3 * TAG, DATA[:length]) for length in (2 * SEGMENT, 40000)]
        if not takes:
            for frame, header in refused:
                try:
                    send(frame, header)
                except OSError as error:
                    expect_equal(error.errno, errno.EINVAL,
                                 "what the kernel says to a super-frame of UDP")
                else:
                    expect(False, "a kernel before Linux 6.2 has taken a super-frame of UDP")
            refused = []
        refused.append((ethernet(lab.host_mac(1), lab.host_mac(0), 0x0800, sctp),
                        {"csum_start": 34, "csum_offset": 8}))
        for number, (frame, header) in enumerate(refused):
            send(frame, header)
            wait_until(lambda number=number: port_of(lab, "h0")["rx_refused"] == number + 1,
                       TIMEOUT, f"frame {number} to be counted")
        told = [place for place in lab.control.ask("drops")["elsewhere"]
                if (place.get("port"), place["name"]) == ("h0", "rx_refused")]
        expect_equal([place["count"] for place in told], [len(refused)], "what `drops` tells")
        expect_equal([port_of(lab, "h0")[key] for key in ("rx_errors", "rx_missed")], [0, 0],
                     "rx_errors and rx_missed")


@case()
def a_port_follows_what_its_interface_takes():
    """Fanin's packets leave one by one as long as the interface takes no super-frames of UDP, and
    the log says so; a job is exact either way.
    """
    with running_lab(2, "af_packet", 1500) as lab:
        takes = kernel_takes_super_frames()

        def made():
            return super_frames(lab, "h1")["made"]

        def sent_by_job():
            before = super_frames(lab, "h1")["tx"]
            run_exact_job(lab, "a job", bytes=MIB, transport="af_packet")
            return super_frames(lab, "h1")["tx"] - before
        expect_equal((made(), sent_by_job() > 0), (takes, takes),
                     "super-frames are made, and were sent")
        # The log names a kernel whose packet sockets take none once, whatever the interface takes.
        for value, words in (("off",
                              'port "h1": the interface "sw-h1" takes no super-frames of UDP'),
                             ("on", 'port "h1": the interface "sw-h1" takes super-frames of UDP now')):
            with inside(lab.switch_namespace):
                run(["ethtool", "-K", lab.switch_interface(1), "tx", value])
            wait_until(lambda value=value: made() == (takes and value == "on"), TIMEOUT,
                       f"the port to see that tx is {value}")
            expect_equal(sent_by_job() > 0, takes and value == "on",
                         f"super-frames made with tx {value}")
            expect_equal(words in lab.switch.stderr(), takes, f"the log says {words}")
