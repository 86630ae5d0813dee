# SPDX-License-Identifier: BSD-3-Clause
"""Frames that are not Fanin's are switched as a learning switch does it."""

import re

from frames import BROADCAST, RawPort, ethernet
from support import case, expect, expect_equal, running_lab, wait_until
from lab import SWITCH_IP

LOCAL_EXPERIMENT = 0x88b5  # IEEE 802's EtherType for experiments


def ping(lab, source, address, *options):
    process = lab.spawn(source, ["ping", "-n", "-c", "5", "-i", "0.02", "-W", "2", *options, address], "ping")
    process.wait(20)
    sent, received = map(int, re.search(r"(\d+) packets transmitted, (\d+) received", process.stdout()).groups())
    expect_equal(received, sent, f"replies to ping from host {source} to {address} ({process.last_words()})")


def mac_ports(lab, vlan=None):
    entries = lab.control.ask("mac.list")["entries"]
    return {entry["mac"]: entry["port"] for entry in entries if vlan is None or entry["vlan"] == vlan}


def test_frame(source, destination, text):
    return ethernet(destination, source, LOCAL_EXPERIMENT, text.encode().ljust(46, b"\0"))


def is_test_frame(text):
    return lambda frame: frame[12:14] == LOCAL_EXPERIMENT.to_bytes(2, "big") and frame[14:].startswith(text.encode())


def switches(transport):
    with running_lab(3, transport) as lab:
        ping(lab, 0, lab.host_ip(1))
        ping(lab, 2, lab.host_ip(0), "-M", "do", "-s", lab.mtu - 28)
        ping(lab, 1, SWITCH_IP)
        ports = mac_ports(lab)
        for host in range(3):
            expect_equal(ports.get(lab.host_mac(host)), f"h{host}", f"port of host {host} in the MAC table")
        with RawPort(lab.host_namespace(0)) as sender, RawPort(lab.host_namespace(1)) as known, \
                RawPort(lab.host_namespace(2)) as other:
            sender.send(test_frame(lab.host_mac(0), "02:77:00:00:00:99", "unknown"))
            known.wait_for(is_test_frame("unknown"))
            other.wait_for(is_test_frame("unknown"))
            sender.send(test_frame(lab.host_mac(0), lab.host_mac(1), "unicast"))
            sender.send(test_frame(lab.host_mac(0), BROADCAST, "broadcast"))
            known.wait_for(is_test_frame("broadcast"))
            _, before = other.wait_for(is_test_frame("broadcast"))
            expect(not any(map(is_test_frame("unicast"), before)), "a frame to a known address was flooded")


@case()
def frames_are_switched_on_af_xdp_ports():
    switches("af_xdp")


@case()
def frames_are_switched_on_af_packet_ports():
    switches("af_packet")


@case()
def addresses_age_and_move():
    with running_lab(3, config={"mac_table": {"age_seconds": 1}}) as lab:
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            wanderer = "02:77:00:00:00:77"
            first.send(test_frame(wanderer, BROADCAST, "here"))
            wait_until(lambda: mac_ports(lab).get(wanderer) == "h0", 5, "the address on port h0")
            second.send(test_frame(wanderer, BROADCAST, "there"))
            wait_until(lambda: mac_ports(lab).get(wanderer) == "h1", 5, "the address on port h1")
            wait_until(lambda: wanderer not in mac_ports(lab), 10, "the address to age")


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
                wait_until(lambda name=name, before=before: lab.drops()[name] == before + 1, 5, f"{name} to count")
            sender.send(test_frame(lab.host_mac(0), BROADCAST, "good"))
            _, seen = receiver.wait_for(is_test_frame("good"))
            expect(not any(frame in seen for frame in sends.values()), "an invalid frame was forwarded")
            before = lab.drops()["same_port"]
            sender.send(test_frame("02:77:00:00:00:55", lab.host_mac(0), "to itself"))
            wait_until(lambda: lab.drops()["same_port"] == before + 1, 5, "same_port to count")


def tagged_frame(lab, source, destination, tag, text, size):
    inner = LOCAL_EXPERIMENT.to_bytes(2, "big") + text.encode()
    return ethernet(lab.host_mac(destination), lab.host_mac(source), 0, b"")[:12] + tag + inner.ljust(size + 2, b"\0")


def passes_vlans(transport, tags, room):
    """tags: by VLAN. room: bytes that a port takes beyond an untagged frame of its MTU."""
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
                expect_equal(ports, {lab.host_mac(0): "h0", lab.host_mac(1): "h1"}, f"addresses in VLAN {vlan}")


TAGS = {5: bytes.fromhex("81006005"), 4094: bytes.fromhex("81000ffe"), 8: bytes.fromhex("8100000881000064")}


@case()
def vlan_tags_pass_unchanged_on_af_xdp_ports():
    # A page holds a frame of MTU 3474 to the last byte.
    passes_vlans("af_xdp", {**TAGS, 7: bytes.fromhex("88a8000781000064")}, room=0)


@case()
def vlan_tags_pass_unchanged_on_af_packet_ports():
    passes_vlans("af_packet", TAGS, room=4)
    # A service tag stays one. The hosts' own sockets don't send such frames of full size.
    passes_vlans("af_packet", {7: bytes.fromhex("88a8000781000064")}, room=0)
