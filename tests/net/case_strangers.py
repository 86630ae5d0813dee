# SPDX-License-Identifier: BSD-3-Clause
"""Strangers at other ports, who have overheard all that a job's results carry, forge packets: no
sum changes, and the switch counts the packets.
"""

import contextlib
import signal
import struct
import time

from tests.net.case_levels import KEY, running_fabric, start as start_tree
from tests.net.frames import (BROADCAST, CONTRIBUTION, JOIN, KNOWN, ANSWER, REFUSED, RESULT,
                              VERSION, RawPort, ethernet, header, job_key, mac_bytes, packet)
from tests.net.support import (KIB, case, expect, expect_equal, expect_exact, job_entry, reports_of,
                               running_lab, start_ranks, wait_until)
from lab.fabric import leaf_spine
from lab.namespaces import SWITCH_IP, SWITCH_MAC, UDP_PORT, ip_in

STRANGER = 3
MEMBERS = [0, 1, 2]
COLLECTIVE_MISMATCH = 29
JOB_UNKNOWN = 18


def expect_counted(count, before, sent, what):
    """Expects most of the sent packets to be counted; some may be lost on their way, where the
    machine is busy.
    """
    wait_until(lambda: count() - before >= sent // 4, 60, f"{what} to be dropped: {sent} were sent")


def group_of(job):
    """Returns the MAC and IPv4 address to which a job's results go."""
    return f"01:00:5e:40:{job >> 8:02x}:{job & 0xff:02x}", f"239.192.{job >> 8}.{job & 0xff}"


def in_vlan_0(frame):
    """Returns the frame with a priority tag, which hosts take for an untagged frame."""
    return frame[:12] + b"\x81\x00\x00\x00" + frame[12:]


def forgeries(job, epoch, first, n):
    """Yields (type, content) of what a switch could say of blocks in flight."""
    key = job_key(job, RESULT)
    floats = job["payload_bytes"] // 4
    lies = struct.pack("<f", 1e6) * floats
    for block in range(first, first + n):
        yield header(RESULT, job["id"], key, lies, epoch=epoch, block=block, dtype="f32", op="sum",
                     count=floats,
                     contributions=len(MEMBERS))
    # The answer claims that all runs have ended, and that all blocks are done.
    yield header(ANSWER, job["id"], key,
                 struct.pack("<QQQ", 0, 2**64 - 1, 2**64 - 1) + b"\xff" * 64
                 + struct.pack("<HB5x", 256, 0),
                 epoch=epoch, block=first, number=1, count=1)
    yield header(REFUSED, job["id"], key, epoch=epoch, block=first, count=COLLECTIVE_MISMATCH)
    yield header(REFUSED, job["id"], key, epoch=epoch, block=first, count=JOB_UNKNOWN)


def frames_of(lab, content, job, source):
    """Yields frames with a content, to the job's group and to each member, as from a source (MAC
    and address).
    """
    for mac, address in [group_of(job["id"]),
                         *((lab.host_mac(host), lab.host_ip(host)) for host in MEMBERS)]:
        yield packet(content, *source, dst_mac=mac, dst_ip=address)


@contextlib.contextmanager
def halted(lab, job, ranks, results):
    """Halts the last rank in the middle of the job, so that blocks stay open; yields the next
    block.
    """
    wait_until(lambda: job_entry(lab, job)["stats"]["results"] > 50, 60, "results")
    ranks[-1].popen.send_signal(signal.SIGSTOP)
    try:
        # By now the others have finished all that they can without the last rank.
        time.sleep(0.3)
        first = job_entry(lab, job)["stats"]["results"]
        expect(first < results, f"the job was over before the attack: {first} results")
        yield first
    finally:
        ranks[-1].popen.send_signal(signal.SIGCONT)


def forge_results(transport):
    stranger = ("02:77:00:00:00:04", "10.77.0.4")
    sources = {"own": stranger, "switch's address": (stranger[0], SWITCH_IP),
               "switch's MAC": (SWITCH_MAC, stranger[1]),
               "switch's addresses": (SWITCH_MAC, SWITCH_IP),
               "switch's address in VLAN 0": (stranger[0], SWITCH_IP)}
    size, iters = 256 * KIB, 400
    with running_lab(4, transport) as lab, RawPort(lab.host_namespace(STRANGER)) as port:
        # Payloads are short enough for a tag besides.
        job = lab.create_job(MEMBERS, "--payload", 1024)
        ranks = start_ranks(lab, job, MEMBERS, bytes=size, iters=iters, timeout_ms=20000)
        blocks = iters * -(-size // job["payload_bytes"])
        with halted(lab, job, ranks, blocks) as first:
            epoch = job_entry(lab, job)["epoch"]
            for name, source in sources.items():
                before = lab.drops()["source_own"]
                sent = 0
                for content in forgeries(job, epoch, first, min(job["window"], 64)):
                    for frame in frames_of(lab, content, job, source):
                        port.send(in_vlan_0(frame) if name.endswith("VLAN 0") else frame)
                        sent += 1
                if name != "own":
                    expect_counted(lambda: lab.drops()["source_own"], before, sent,
                                   f"frames with the {name}")
            time.sleep(0.3)
        reports = reports_of(lab, ranks)
        expect_exact(reports, "the job beside forgers")
        for rank in range(2):
            expect(reports[rank]["invalid"] > 0,
                   f"rank {rank} has not counted what came from the stranger's own address")


@case(120)
def forged_results_change_no_sum_on_af_packet():
    forge_results("af_packet")


@case(120)
def forged_results_change_no_sum_on_af_xdp():
    forge_results("af_xdp")


@case()
def the_key_that_results_carry_does_not_let_anybody_contribute():
    """A result's key does not authorize contributions, not even at a member's own port with all of
    the member's addresses.
    """
    with running_lab(2, "af_packet") as lab, RawPort(lab.host_namespace(0)) as port:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=64 * KIB, iters=1000, timeout_ms=20000)
        heard, _ = port.wait_for(lambda frame: frame[12:14] == b"\x08\x00"
                                 and frame[42:44] == bytes([VERSION, RESULT]))
        key = struct.unpack_from("<Q", heard, 74)[0]
        with halted(lab, job, ranks, 1000 * 64 * KIB // job["payload_bytes"]) as first:
            epoch = job_entry(lab, job)["epoch"]
            before = lab.drops()["key_wrong"]
            for packet_type in (CONTRIBUTION, KNOWN):
                for block in range(first, first + 16):
                    floats = job["payload_bytes"] // 4
                    content = header(packet_type, job["id"], key, struct.pack("<f", 1e6) * floats,
                                     epoch=epoch, block=block,
                                     dtype="f32", op="sum", count=floats, rank=0)
                    port.send(packet(content, lab.host_mac(0), lab.host_ip(0)))
            expect_counted(lambda: lab.drops()["key_wrong"], before, 32,
                           "packets with the key of results")
        expect_exact(reports_of(lab, ranks), "the job beside the packets")


def udp_source(frame):
    """Returns the UDP source port of a JOIN; None for other frames."""
    if frame[12:14] != b"\x08\x00" or frame[36:38] != UDP_PORT.to_bytes(2,
                                                                        "big") or frame[43] != JOIN:
        return None
    return struct.unpack_from("!H", frame, 34)[0]


@case()
def a_forged_refusal_does_not_end_a_join():
    stranger = ("02:77:00:00:00:04", "10.77.0.4")
    with running_lab(4, "af_packet") as lab, RawPort(lab.host_namespace(STRANGER)) as port, \
            RawPort(lab.switch_namespace, lab.switch_interface(0)) as tap:
        job = lab.create_job([0, 1])
        first = lab.spawn_perf(0, job, 0, 2, bytes=64 * KIB, transport="af_packet", check=True)
        join, _ = tap.wait_for(lambda frame: udp_source(frame) is not None)
        before = lab.drops()["source_own"]
        sent = 0
        for source in ((stranger[0], SWITCH_IP), (SWITCH_MAC, SWITCH_IP), stranger):
            for key in (0, int(job["key"], 16), job_key(job, RESULT), job_key(job, JOIN)):
                content = header(REFUSED, job["id"], key, count=JOB_UNKNOWN)
                frame = packet(content, *source, dst_mac=lab.host_mac(0), dst_ip=lab.host_ip(0),
                               dst_port=udp_source(join))
                port.send(frame)
                port.send(in_vlan_0(frame))
                sent += 2 * (source != stranger)
        expect_counted(lambda: lab.drops()["source_own"], before, sent,
                       "refusals with the switch's address")
        time.sleep(0.3)
        expect(first.running(), f"the join has ended: {lab.perf_report(first)['error']}")
        second = lab.spawn_perf(1, job, 1, 2, bytes=64 * KIB, transport="af_packet", check=True)
        expect_exact(reports_of(lab, [first, second]), "the job after forged refusals")


def arp_claim(source_mac, address, target):
    """Returns an ARP reply that tells everybody that an address is at a MAC."""
    message = struct.pack("!HHBBH", 1, 0x0800, 6, 4,
                          2) + mac_bytes(source_mac) + bytes(map(int, address.split("."))) + \
        mac_bytes(BROADCAST) + bytes(map(int, target.split(".")))
    return ethernet(BROADCAST, source_mac, 0x0806, message + bytes(18))


@case()
def nobody_takes_the_switchs_address_by_arp():
    with running_lab(3, "af_packet") as lab, RawPort(lab.host_namespace(2)) as port:
        victim = lab.host_namespace(0)
        lab.spawn(0, ["ping", "-n", "-c", "1", "-W", "2", SWITCH_IP], "ping").wait(60)
        before = lab.drops()["source_own"]
        # The kernel ignores changes within the first second.
        for _ in range(15):
            port.send(arp_claim(lab.host_mac(2), SWITCH_IP, lab.host_ip(0)))
            port.send(in_vlan_0(arp_claim(lab.host_mac(2), SWITCH_IP, SWITCH_IP)))
            time.sleep(0.1)
        expect_counted(lambda: lab.drops()["source_own"], before, 30, "claims")
        shown = ip_in(victim, "neighbor", "show", SWITCH_IP).stdout
        expect(SWITCH_MAC in shown, f"host 0 believes that the switch is elsewhere: {shown}")


def knowledge(job, epoch, first, n, key, floats):
    """Yields KNOWN packets of the lowest rank behind leaf0 about blocks in flight."""
    lies = struct.pack("<f", 1e6) * floats
    for block in range(first, first + n):
        yield header(KNOWN, job, key, lies, epoch=epoch, rank=0, block=block, dtype="f32", op="sum",
                     count=floats, contributions=2)


@case(120)
def a_host_does_not_speak_as_a_switch_to_another():
    """A host at a port of leaf0 has every key of the job, and poses as leaf0, as the other leaf, as
    a spine, and as a host of another leaf.
    """
    with running_fabric(leaf_spine(2, 2, 4)) as fabric, RawPort(fabric.host_namespace(1)) as port:
        fabric.await_next_hops()
        ranks = {0: 0, 2: 1}
        fabric.install(5, KEY, fabric.tree("spine0", ranks), ranks)
        processes = start_tree(fabric, 5, ranks, bytes=64 * KIB, iters=1000, timeout_ms=20000)
        at_spine = lambda: fabric.ask("spine0", "jobs.list")["jobs"][0]  # noqa: E731
        wait_until(lambda: at_spine()["stats"]["results"] > 50, 60, "results")
        processes[1].popen.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        entry = at_spine()
        first = entry["stats"]["results"]
        sources = ["leaf0", "leaf1", "spine0", "spine1"]
        addresses = [fabric.switch_ip(switch) for switch in sources] + [fabric.host_ip(2)]
        secret = int(KEY, 16)
        sent = 0
        for key in (secret, *(job_key({"key": KEY}, packet_type)
                              for packet_type in (KNOWN, RESULT))):
            for content in knowledge(5, entry["epoch"], first, 16, key,
                                     entry["payload_bytes"] // 4):
                for address in addresses:
                    port.send(packet(content, fabric.host_mac(1), address,
                                     dst_mac=fabric.switch_mac("leaf0"),
                                     dst_ip=fabric.switch_ip("spine0")))
                    sent += 1
        try:
            for name, share in (("source_own", 1), ("source_path", len(addresses) - 1)):
                expect_counted(lambda name=name: fabric.drops("leaf0").get(name, 0), 0,
                               sent * share // len(addresses),
                               f"packets as {name}")
        finally:
            processes[1].popen.send_signal(signal.SIGCONT)
        for process in processes:
            process.wait(100)
        expect_exact([fabric.perf_report(process) for process in processes],
                     "the job beside a host that speaks as switches")
        expect_equal(fabric.drops("spine0").get("key_wrong"), None,
                     "packets with wrong keys that have reached the spine")
