# SPDX-License-Identifier: BSD-3-Clause
"""Forged packets of the protocols in which hosts send packets to each other: from a stranger's port
with all keys of the job, and from a member's port as other ranks. Sums stay exact, and dropped
packets are counted. The others wait for a member that is stopped meanwhile.
"""

import random
import signal
import struct
import time

from tests.net import frames
from tests.net.frames import RawPort, header, job_key, packet
from lab.namespaces import SWITCH_IP, SWITCH_MAC
from tests.net.support import (KIB, MIB, case, expect, expect_equal, job_entry, reports_of,
                               running_lab, start_ranks, wait_until)

STRANGER = 3
MEMBERS = [0, 1, 2]
NEWER = ["MULTICAST", "DELIVERY", "PARTIAL", "UNICAST", "UNICAST_DELIVERY", "EVICTED", "PULL",
         "PULL_DELIVERY", "RESPONSE", "RESPONSE_DELIVERY",
         "WRITE", "WRITE_DELIVERY", "REWRITE", "REWRITE_DELIVERY"]
# A packet of a host with one of these types names the rank, or ranks, that it is from.
SAYS_RANK = ["MULTICAST", "UNICAST", "RESPONSE"]
ROUNDS = 2000


def forgery(chance, job, epoch, name, members):
    """Makes a packet of a type about a block that may be in flight, with wrong content. Most are
    well formed.
    """
    packet_type = getattr(frames, name)
    has_elements = name in ("PARTIAL", "EVICTED", "RESPONSE", "RESPONSE_DELIVERY")
    floats = job["payload_bytes"] // 4
    n = floats if has_elements else chance.choice((0, 1, floats)) if "PULL" not in name else 0
    kind = chance.randrange(9) | chance.choice((0, 1 << 8)) | 11 << 16 | 1 << 24
    return header(packet_type, job["id"], job_key(job, packet_type), struct.pack("<f", 1e6) * n,
                  epoch=epoch,
                  block=chance.choice((0, 1, 2**32 - 1, chance.randrange(40000))),
                  dtype="f32" if has_elements else "none", op="sum" if has_elements else "none",
                  count=n if has_elements else chance.randrange(3),
                  contributions=chance.randrange(4) if name == "EVICTED" else 1, members=members,
                  number=0 if has_elements
                  and name != "EVICTED" else chance.choice((kind, chance.randrange(4))),
                  progress=chance.choice((0, 1, n, chance.randrange(2**32))))


def attack(handler, forge, **options):
    """Runs a job, and stops its last rank for a while, in which forge(lab, job, epoch) sends
    packets. Returns the ranks' reports, and the drops.
    """
    with running_lab(4, "af_packet") as lab:
        job = lab.create_job(MEMBERS, "--handler", handler, "--payload", 1024)
        ranks = start_ranks(lab, job, MEMBERS, timeout_ms=15000, **options)
        wait_until(lambda: job_entry(lab, job)["stats"]["results"] > 50, 60, "the job to run")
        ranks[-1].popen.send_signal(signal.SIGSTOP)
        try:
            time.sleep(0.3)
            forge(lab, job, job_entry(lab, job)["epoch"])
            time.sleep(6)
        finally:
            ranks[-1].popen.send_signal(signal.SIGCONT)
        return reports_of(lab, ranks), lab.drops()


def expect_right(reports, where):
    for rank, report in enumerate(reports):
        expect(report["ok"] and report["mismatches"] == 0, f"{where}: rank {rank}: {report}")


def expect_dropped(drops, *names):
    expect(sum(drops.get(name, 0) for name in names) >= ROUNDS // 8,
           f"drops: {drops}, expected {ROUNDS // 8} or more of {names}")


def from_a_strangers_port(lab, job, epoch):
    chance = random.Random(7)
    targets = [(SWITCH_MAC, SWITCH_IP),
               (f"01:00:5e:40:{job['id'] >> 8:02x}:{job['id'] & 0xff:02x}",
                f"239.192.{job['id'] >> 8}.{job['id'] & 0xff}"),
               *((lab.host_mac(host), lab.host_ip(host)) for host in MEMBERS)]
    sources = [(lab.host_mac(STRANGER), lab.host_ip(STRANGER)), (lab.host_mac(0), lab.host_ip(0)),
               (lab.host_mac(STRANGER), SWITCH_IP)]
    with RawPort(lab.host_namespace(STRANGER)) as port:
        for _ in range(ROUNDS):
            content = forgery(chance, job, epoch, chance.choice(NEWER),
                              chance.choice((0, 1, 2, 3, 7, chance.randrange(2**64))))
            mac, address = chance.choice(targets)
            port.send(packet(content, *chance.choice(sources), dst_mac=mac, dst_ip=address))


def from_a_members_port(lab, job, epoch):
    """As ranks other than its own, which is 0."""
    chance = random.Random(8)
    with RawPort(lab.host_namespace(0)) as port:
        for _ in range(ROUNDS):
            content = forgery(chance, job, epoch, chance.choice(SAYS_RANK),
                              chance.choice((1, 2, 3, 6, 2**63)))
            port.send(packet(content, lab.host_mac(0), lab.host_ip(0)))


def stranger_is_harmless(handler, **options):
    reports, drops = attack(handler, from_a_strangers_port, **options)
    expect_right(reports, f"{handler} beside forgers")
    expect_dropped(drops, "port_wrong", "source_own", "source_path", "source_wrong")


def member_harms_itself_only(handler, **options):
    """The switch refuses packets from its host. The others wait for it, name it, and get no wrong
    result.
    """
    reports, drops = attack(handler, from_a_members_port, **options)
    expect_dropped(drops, "rank_unknown")
    if reports[0]["ok"]:
        expect_right(reports, f"{handler} beside a member that forges")
        return
    expect_equal(reports[0]["error"]["code"], "refused", f"rank 0: {reports[0]}")
    # The rank that waits longest may find that another one, which makes a block's result, has ended
    # because rank 0 was missing.
    missing = [report["error"]["missing"] for report in reports[1:]]
    for rank, report in enumerate(reports[1:], 1):
        expect(report["error"]["code"] == "timeout" and report["error"]["missing"]
               and rank not in report["error"]["missing"], f"rank {rank}: {report}")
    expect([0] in missing, f"nobody names rank 0: {missing}")


@case(120, also_over_udp=True)
def forged_packets_change_no_sum_of_push():
    stranger_is_harmless("push", bytes=256 * KIB, iters=200)


@case(120, also_over_udp=True)
def forged_packets_change_no_sum_of_pull():
    stranger_is_harmless("pull", bytes=256 * KIB, iters=200)


@case(120, also_over_udp=True, long=True)
def forged_packets_change_no_allgather():
    stranger_is_harmless("broadcast", bytes=768 * KIB, iters=600, collective="allgather")


@case(120, also_over_udp=True)
def a_member_does_not_push_as_another_rank():
    member_harms_itself_only("push", bytes=256 * KIB, iters=200)


@case(120, also_over_udp=True, thorough=True)
def a_member_does_not_pull_as_another_rank():
    member_harms_itself_only("pull", bytes=256 * KIB, iters=200)


@case(120, also_over_udp=True, thorough=True)
def a_member_does_not_broadcast_as_another_rank():
    member_harms_itself_only("broadcast", bytes=768 * KIB, iters=600, collective="allgather")


def lab_is_at_rest(lab, job):
    """True once the job has had no result for half a second."""
    for _ in range(60):
        before = job_entry(lab, job)["stats"]["results"]
        time.sleep(0.5)
        if job_entry(lab, job)["stats"]["results"] == before:
            return True
    return False


def contribute_ahead(lab, job, host, rank):
    """Makes a member contribute to control blocks that no rank has begun, of operations and rounds
    that it has no part in yet, as far as the switch accepts them.
    """
    entry = job_entry(lab, job)
    with RawPort(lab.host_namespace(host)) as port:
        for block in range(entry["stats"]["blocks"], entry["stats"]["results"] + entry["slots"]):
            content = header(frames.CONTRIBUTION, job["id"], job_key(job, frames.CONTRIBUTION),
                             bytes(16), epoch=entry["epoch"], rank=rank,
                             block=block, dtype=8, op="max", count=2)
            port.send(packet(content, lab.host_mac(host), lab.host_ip(host)))


@case(120, also_over_udp=True)
def a_member_that_contributes_ahead_is_waited_for_while_it_lives_and_named_once_it_is_killed():
    timeout_ms = 3000
    victim = 2
    with running_lab(3, "af_packet") as lab:
        job = lab.create_job(range(3), "--handler", "pull")
        ranks = start_ranks(lab, job, range(3), bytes=8 * MIB, iters=10000, check=False,
                            timeout_ms=timeout_ms)
        wait_until(lambda: job_entry(lab, job)["stats"]["results"] > 50, 60, "the job to run")
        ranks[victim].popen.send_signal(signal.SIGSTOP)
        try:
            # A job without new results has nothing more to send.
            expect(lab_is_at_rest(lab, job), "the others wait for the rank that is stopped")
            contribute_ahead(lab, job, victim, victim)
            time.sleep(2.5 * timeout_ms / 1000)
            expect_equal([rank.popen.poll() for rank in ranks[:victim]], [None, None],
                         "ranks that have given up on one that is stopped")
        finally:
            ranks[victim].popen.kill()
        killed = time.monotonic()
        for rank in ranks[:victim]:
            expect(rank.wait(60) != 0, "the others fail")
        expect(time.monotonic() - killed < 3 * timeout_ms / 1000,
               f"{time.monotonic() - killed:.1f} s until the others fail")
        for rank, report in enumerate(lab.perf_report(rank) for rank in ranks[:victim]):
            expect_equal((report["error"]["code"], report["error"]["missing"]),
                         ("timeout", [victim]), f"rank {rank}: {report}")
