# SPDX-License-Identifier: BSD-3-Clause
"""Frames that are not Fanin's are switched as a learning switch does it."""

import hashlib
import re
import socket
import sys
from pathlib import Path

from tests.net.frames import BROADCAST, RawPort, ethernet
from tests.net.support import (KIB, case, expect, expect_equal, expect_exact, reports_of, run,
                               running_lab, start_ranks, wait_for_results, wait_until)
from lab.namespaces import HOST_INTERFACE, SWITCH_IP, SWITCH_MAC, UDP_PORT, inside

LOCAL_EXPERIMENT = 0x88b5  # IEEE 802's EtherType for experiments


def ping(lab, source, address, *options):
    """Runs five pings of one request each: once it has had a reply, ping waits for missing replies
    no longer than two round trips.
    """
    for _ in range(5):
        process = lab.spawn(source, ["ping", "-n", "-c", "1", "-W", "60", *options, address],
                            "ping")
        process.wait(90)
        sent, received = map(int,
                             re.search(r"(\d+) packets transmitted, (\d+) received",
                                       process.stdout()).groups())
        expect_equal((sent, received), (1, 1),
                     f"requests and replies from host {source} to {address} "
                     f"({process.last_words()})")


def mac_ports(lab, vlan=None):
    entries = lab.control.ask("mac.list")["entries"]
    return {entry["mac"]: entry["port"] for entry in entries if vlan is None
            or entry["vlan"] == vlan}


def test_frame(source, destination, text):
    return ethernet(destination, source, LOCAL_EXPERIMENT, text.encode().ljust(46, b"\0"))


def is_test_frame(text):
    return lambda frame: frame[
        12:14] == LOCAL_EXPERIMENT.to_bytes(2, "big") and frame[14:].startswith(text.encode())


def switches(transport):
    with running_lab(3, transport) as lab:
        ping(lab, 0, lab.host_ip(1))
        ping(lab, 2, lab.host_ip(0), "-M", "do", "-s", lab.mtu - 28)
        ping(lab, 1, SWITCH_IP)
        ports = mac_ports(lab)
        for host in range(3):
            expect_equal(ports.get(lab.host_mac(host)), f"h{host}",
                         f"port of host {host} in the MAC table")
        with RawPort(lab.host_namespace(0)) as sender, RawPort(lab.host_namespace(1)) as known, \
                RawPort(lab.host_namespace(2)) as other:
            sender.send(test_frame(lab.host_mac(0), "02:77:00:00:00:99", "unknown"))
            known.wait_for(is_test_frame("unknown"))
            other.wait_for(is_test_frame("unknown"))
            sender.send(test_frame(lab.host_mac(0), lab.host_mac(1), "unicast"))
            sender.send(test_frame(lab.host_mac(0), BROADCAST, "broadcast"))
            known.wait_for(is_test_frame("broadcast"))
            _, before = other.wait_for(is_test_frame("broadcast"))
            expect(not any(map(is_test_frame("unicast"), before)),
                   "a frame to a known address was flooded")


@case()
def frames_are_switched_on_af_xdp_ports():
    switches("af_xdp")


@case()
def frames_are_switched_on_af_packet_ports():
    switches("af_packet")


ETHERTYPE_IPV6 = 0x86dd


def enable_ipv6(lab, host):
    """Gives a host the address fd77::N, and returns the address."""
    address = f"fd77::{host + 1}"
    with inside(lab.host_namespace(host)):
        Path(f"/proc/sys/net/ipv6/conf/{HOST_INTERFACE}/disable_ipv6").write_text("0")
        run(["ip", "address", "add", f"{address}/64", "dev", HOST_INTERFACE, "nodad"])
    return address


def receive_by_tcp(lab, host, address, size):
    """Receives what a program on another host sends of `size` bytes; returns the bytes and the port
    of the listener.
    """
    code = ("import hashlib, socket\n"
            f"listener = socket.create_server(('{address}', 7777), family=socket.AF_INET6)\n"
            "print('ready', flush=True)\n"
            "connection = listener.accept()[0]\n"
            "digest, count = hashlib.sha256(), 0\n"
            f"while count < {size}:\n"
            "    data = connection.recv(1 << 20)\n"
            "    if not data:\n"
            "        break\n"
            "    digest.update(data)\n"
            "    count += len(data)\n"
            "print(count, digest.hexdigest(), flush=True)\n")
    process = lab.spawn(host, [sys.executable, "-c", code], "receiver")
    wait_until(lambda: "ready" in process.stdout(), 60, "the receiver to listen")
    return process


def passes_ipv6(transport):
    """Passes neighbor discovery by groups, packets of full size, TCP, and packets that look like
    Fanin's except for the version of IP.
    """
    with running_lab(3, transport) as lab:
        addresses = [enable_ipv6(lab, host) for host in range(3)]
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=64 * KIB, iters=1000)
        wait_for_results(lab, job, 100)
        ping(lab, 0, addresses[1])
        ping(lab, 2, addresses[0], "-M", "do", "-s", lab.mtu - 48)
        data = bytes(range(256)) * 16384
        receiver = receive_by_tcp(lab, 1, addresses[1], len(data))
        with inside(lab.host_namespace(0)), socket.create_connection((addresses[1], 7777),
                                                                     60) as connection:
            connection.sendall(data)
        receiver.wait(60)
        expect_equal(receiver.stdout().split()[1:],
                     [str(len(data)), hashlib.sha256(data).hexdigest()], "what came by TCP")
        with inside(lab.host_namespace(2)):
            listener = socket.socket(socket.AF_INET6, socket.SOCK_DGRAM)
        with listener:
            listener.settimeout(60)
            listener.bind((addresses[2], UDP_PORT))
            with inside(lab.host_namespace(0)), socket.socket(socket.AF_INET6,
                                                              socket.SOCK_DGRAM) as sender:
                sender.sendto(b"not Fanin's", (addresses[2], UDP_PORT))
            expect_equal(listener.recv(100), b"not Fanin's", "a datagram to Fanin's port over IPv6")
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second, \
                RawPort(lab.host_namespace(2)) as third:
            # The hosts handle headers that end too early or make no sense.
            for content in (b"", b"\x60", b"\x60" + 38 * b"\0", bytes(range(200)),
                            b"\x45" + bytes(59)):
                frame = ethernet(lab.host_mac(1), lab.host_mac(0), ETHERTYPE_IPV6,
                                 content).ljust(60, b"\0")
                first.send(frame)
                second.wait_for(lambda seen, frame=frame: seen == frame)
            # The frame is for the switch itself, which has no IPv6, and for nobody else.
            before = lab.drops()["local_unhandled"]
            frame = ethernet(SWITCH_MAC, lab.host_mac(0), ETHERTYPE_IPV6, b"\x60" + bytes(59))
            first.send(frame)
            wait_until(lambda: lab.drops()["local_unhandled"] == before + 1, 60,
                       "the packet for the switch to be counted")
            first.send(test_frame(lab.host_mac(0), BROADCAST, "last"))
            for port in (second, third):
                _, seen = port.wait_for(is_test_frame("last"))
                expect(frame not in seen, "an IPv6 packet for the switch was sent to others")
        expect_exact(reports_of(lab, ranks), "beside IPv6")


@case(90)
def ipv6_is_switched_on_af_packet_ports():
    passes_ipv6("af_packet")


@case(90)
def ipv6_is_switched_on_af_xdp_ports():
    passes_ipv6("af_xdp")


@case()
def addresses_age_and_move():
    with running_lab(3, config={"mac_table": {"age_seconds": 1}}) as lab:
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            wanderer = "02:77:00:00:00:77"
            first.send(test_frame(wanderer, BROADCAST, "here"))
            wait_until(lambda: mac_ports(lab).get(wanderer) == "h0", 60, "the address on port h0")
            second.send(test_frame(wanderer, BROADCAST, "there"))
            wait_until(lambda: mac_ports(lab).get(wanderer) == "h1", 60, "the address on port h1")
            wait_until(lambda: wanderer not in mac_ports(lab), 60, "the address to age")


@case()
def invalid_addresses_are_dropped_and_counted():
    with running_lab(2) as lab:
        sends = {
            "source_mac_invalid": test_frame("03:77:00:00:00:01", BROADCAST, "group source"),
            "reserved_mac": test_frame(lab.host_mac(0), "01:80:c2:00:00:00", "spanning tree"),
        }
        with RawPort(lab.host_namespace(0)) as sender, RawPort(lab.host_namespace(1)) as receiver:
            for name, frame in sends.items():
                before = lab.drops()[name]
                sender.send(frame)
                wait_until(lambda name=name, before=before: lab.drops()[name] == before + 1, 60,
                           f"{name} to count")
            sender.send(test_frame(lab.host_mac(0), BROADCAST, "good"))
            _, seen = receiver.wait_for(is_test_frame("good"))
            expect(not any(frame in seen for frame in sends.values()),
                   "an invalid frame was forwarded")
            before = lab.drops()["same_port"]
            sender.send(test_frame("02:77:00:00:00:55", lab.host_mac(0), "to itself"))
            wait_until(lambda: lab.drops()["same_port"] == before + 1, 60, "same_port to count")


def tagged_frame(lab, source, destination, tag, text, size):
    inner = LOCAL_EXPERIMENT.to_bytes(2, "big") + text.encode()
    return ethernet(lab.host_mac(destination), lab.host_mac(source), 0,
                    b"")[:12] + tag + inner.ljust(size + 2, b"\0")


def passes_vlans(transport, tags, room):
    """Passes frames with tags. tags: by VLAN. room: bytes that a port takes beyond an untagged
    frame of its MTU.
    """
    with running_lab(3, transport) as lab:
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            for vlan, tag in tags.items():
                for size in (46, lab.mtu - len(tag) + room):
                    there = tagged_frame(lab, 0, 1, tag, f"there {size}", size)
                    first.send(there)
                    second.wait_for(lambda frame, there=there: frame == there)
                    back = tagged_frame(lab, 1, 0, tag, f"back {size}", size)
                    second.send(back)
                    first.wait_for(lambda frame, back=back: frame == back)
                ports = mac_ports(lab, vlan)
                expect_equal(ports, {lab.host_mac(0): "h0", lab.host_mac(1): "h1"},
                             f"addresses in VLAN {vlan}")


TAGS = {5: bytes.fromhex("81006005"), 4094: bytes.fromhex("81000ffe"),
        8: bytes.fromhex("8100000881000064")}


@case()
def vlan_tags_pass_unchanged_on_af_xdp_ports():
    # A page holds a frame of MTU 3474 to the last byte.
    passes_vlans("af_xdp", {**TAGS, 7: bytes.fromhex("88a8000781000064")}, room=0)


@case()
def vlan_tags_pass_unchanged_on_af_packet_ports():
    passes_vlans("af_packet", TAGS, room=4)
    # A service tag stays a service tag. The hosts' own sockets don't send such frames of full size.
    passes_vlans("af_packet", {7: bytes.fromhex("88a8000781000064")}, room=0)
