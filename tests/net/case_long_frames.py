# SPDX-License-Identifier: BSD-3-Clause
"""Frames longer than a host's ring accepts, and hosts that are behind one port of the switch."""

from pathlib import Path

from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, reports_of,
                               run_exact_job, running_lab)
from lab.bridged import BridgedLab

LONG_MTU = 61184
FAULTS = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 6}
SLOTS = {"limits": {"slots": 512}}


def behind_one_port(hosts=4, transport="af_packet", mtu=None, config=None):
    """A lab whose hosts are on a bridge with the running switch."""
    return running_lab(hosts, transport, mtu, config, base=BridgedLab)


def expect_queue(reports):
    for report in reports:
        expect("queue for long frames" in report["transport_reason"],
               f"no queue: {report['transport_reason']}")
        expect_equal(report["window"], 8, "the window, of half a megabyte")


@case()
def long_frames_are_exact_under_loss():
    with running_lab(4, "af_packet", LONG_MTU, {**SLOTS, "faults": FAULTS}) as lab:
        reports = run_exact_job(lab, "long frames", bytes=4 * MIB)
        expect_queue(reports)
        reports += run_exact_job(lab, "in place", bytes=4 * MIB, in_place=True)
        # Parts end inside of packets; a rank may keep a part of a packet, or keep a packet for
        # others only.
        for options in ({}, {"recover": True}):
            reports += run_exact_job(lab, f"reduce_scatter {options}", collective="reduce_scatter",
                                     bytes=4 * MIB + 16 * KIB, **options)
        reports += run_exact_job(lab, "broadcast", collective="broadcast", bytes=2 * MIB)
        reports += run_exact_job(lab, "allgather", collective="allgather", bytes=2 * MIB)
        expect(sum(report["retransmits"] for report in reports) > 0,
               "faults were configured, nothing was resent")


@case()
def without_room_for_a_queue_long_frames_go_through_the_ring():
    window = 256
    with running_lab(2, "af_packet", LONG_MTU,
                     {"limits": {"slots": 2 * window, "max_jobs": 1}}) as lab:
        job = lab.create_job()
        # Without CAP_NET_ADMIN a socket gets twice the limit at most.
        has_room = 2 * int(Path("/proc/sys/net/core/rmem_max").read_text()) >= window * LONG_MTU
        ranks = [lab.spawn(host, ["setpriv", "--bounding-set", "-net_admin", "--inh-caps",
                                  "-net_admin", *lab.perf_command(
            host, job, host, 2, bytes=2 * MIB, check=True, transport="af_packet", window=window)],
                           "perf") for host in range(2)]
        reports = reports_of(lab, ranks)
        expect_exact(reports, "without CAP_NET_ADMIN")
        for report in reports:
            expect_equal("queue for long frames" in report["transport_reason"], has_room, "a queue")
            expect_equal(report["window"], window, "the window")


@case()
def hosts_behind_one_port_get_each_result_once():
    for transport, mtu in (("af_packet", LONG_MTU), ("af_packet", 1500), ("af_xdp", 1500)):
        with behind_one_port(4, transport, mtu, SLOTS) as lab:
            before = lab.frames()
            reports = run_exact_job(lab, f"{transport}, MTU {mtu}", bytes=MIB, iters=3)
            after = lab.frames()
            blocks = sum(report["frames_sent"] - report["retransmits"] - report["queries"]
                         for report in reports) // 4
            expect(blocks >= 3 * MIB // mtu, f"{blocks} blocks")
            # Besides results there are answers to JOIN, LEAVE, ARP, queries and repeated packets.
            others = 100 + sum(2 * report["retransmits"] + 2 * report["queries"]
                               for report in reports)
            sent = after["tx"] - before["tx"]
            expect(blocks <= sent <= blocks + others,
                   f"{sent} frames were sent for {blocks} results")


@case()
def sums_of_hosts_behind_one_port_are_exact_under_loss():
    with behind_one_port(4, "af_packet", 9000, {**SLOTS, "faults": FAULTS}) as lab:
        reports = run_exact_job(lab, "2 % faults", bytes=2 * MIB)
        expect(sum(report["retransmits"] for report in reports) > 0,
               "faults were configured, nothing was resent")
        run_exact_job(lab, "2 % faults, tree", bytes=MIB, handler="tree")
