# SPDX-License-Identifier: BSD-3-Clause
"""Strangers on the very links of a job's members, who know all that the job's packets carry: with
tags no sum changes.
"""

import os
import signal
import struct
import time

from tests.net.case_levels import run_tree_job, running_fabric
from tests.net.case_strangers import expect_counted, forgeries, halted
from tests.net.frames import CONTRIBUTION, KNOWN, RawPort, header, job_key, packet
from tests.net.support import (KIB, MIB, case, expect, expect_exact, job_entry, reports_of,
                               running_lab, start_ranks, wait_for_results)
from lab.fabric import leaf_spine
from lab.namespaces import SWITCH_IP, SWITCH_MAC, LabError

MEMBERS = [0, 1, 2]
HALTED = 2
TAGGED = 8
TAG_LEN = 32
SIZE = 256 * KIB
ITERATIONS = 100


def with_tag(content):
    """Returns the content with the flag, and a tag that is not computed from it."""
    flags = struct.unpack_from("<H", content, 2)[0] | TAGGED
    return content[:2] + struct.pack("<H", flags) + content[4:] + os.urandom(TAG_LEN)


def both(contents):
    for content in contents:
        yield content
        yield with_tag(content)


def lies_upward(job, epoch, first, n):
    """Yields the contributions and known results that the halted rank would send, with other
    values.
    """
    floats = job["payload_bytes"] // 4
    lies = struct.pack("<f", 1e6) * floats
    for packet_type in (CONTRIBUTION, KNOWN):
        for block in range(first, first + n):
            yield header(packet_type, job["id"], job_key(job, packet_type), lies, epoch=epoch,
                         rank=HALTED, block=block, dtype="f32",
                         op="sum", count=floats)


def attack(lab, job, first):
    """Sends forged frames to host 0 on its link, and to the switch on the halted rank's link.
    Returns how many went to the switch.
    """
    epoch = job_entry(lab, job)["epoch"]
    n = min(job["window"], 32)
    sent = 0
    with RawPort(lab.switch_namespace,
                 lab.switch_interface(0)) as link, RawPort(lab.host_namespace(HALTED)) as port:
        for content in both(forgeries(job, epoch, first, n)):
            link.send(packet(content, SWITCH_MAC, SWITCH_IP, dst_mac=lab.host_mac(0),
                             dst_ip=lab.host_ip(0)))
        for content in both(lies_upward(job, epoch, first, n)):
            port.send(packet(content, lab.host_mac(HALTED), lab.host_ip(HALTED)))
            sent += 1
    return sent


def start_job(lab, *options, **ranks):
    # Payloads are short enough for a tag besides.
    job = lab.create_job(MEMBERS, "--payload", 1024, *options)
    return job, start_ranks(lab, job, MEMBERS, bytes=SIZE, iters=ITERATIONS, timeout_ms=20000,
                            **ranks)


def forge_on_links(transport):
    blocks = ITERATIONS * SIZE // 1024
    with running_lab(3, transport) as lab:
        job, ranks = start_job(lab, "--authenticate", authenticate=True)
        expect(job_entry(lab, job)["authenticated"],
               "the job does not say that its packets have tags")
        with halted(lab, job, ranks, blocks) as first:
            before = lab.drops()["tag_wrong"]
            sent = attack(lab, job, first)
            expect_counted(lambda: lab.drops()["tag_wrong"], before, sent,
                           "packets without a valid tag")
            time.sleep(0.3)
        reports = reports_of(lab, ranks)
        expect_exact(reports, "the job beside forgers on its links")
        expect(all(report["authenticated"] for report in reports),
               "a report does not say that packets had tags")
        expect(reports[0]["invalid"] > 0, "rank 0 has not counted what was forged")


@case(120)
def forgers_on_the_links_change_no_sum_of_a_job_with_tags_on_af_packet():
    forge_on_links("af_packet")


@case(120)
def forgers_on_the_links_change_no_sum_of_a_job_with_tags_on_af_xdp():
    forge_on_links("af_xdp")


@case(120, thorough=True)
def forgers_on_the_links_do_change_sums_without_tags():
    """The control case: it shows that the cases with tags prove something."""
    with running_lab(3, "af_packet") as lab:
        job, ranks = start_job(lab)
        with halted(lab, job, ranks, ITERATIONS * SIZE // 1024) as first:
            attack(lab, job, first)
            time.sleep(0.3)
        for rank in ranks:
            try:
                rank.wait(40)
            except LabError:
                continue
        reports = [lab.perf_report(rank) for rank in ranks]
        expect(not all(report["ok"] and report["wrong"] == 0 for report in reports),
               f"all sums were exact: {reports}")


@case(120, also_over_udp=True, long=True)
def tags_hold_on_two_levels_with_losses():
    faults = {"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5}}
    with running_fabric(leaf_spine(2, 1, 2), config=faults) as fabric:
        run_tree_job(fabric, "spine0", "a job with tags on two levels",
                     job_options={"authenticate": True}, authenticate=True,
                     bytes=MIB, iters=10)


@case(120)
def who_does_not_agree_on_tags_is_told():
    with running_lab(2, "af_packet") as lab:
        for options, asked in (((), True), (("--authenticate",), False)):
            job = lab.create_job(None, *options)
            ranks = start_ranks(lab, job, bytes=64 * KIB, authenticate=asked)
            for rank in ranks:
                rank.wait(60)
                error = lab.perf_report(rank)["error"]["message"]
                expect("authenticate" in error,
                       f"found the error '{error}', expected one that names the option")


@case(120, also_over_udp=True)
def ranks_with_tags_go_on_with_a_switch_that_was_started_anew():
    """The new switch has other tags: it refuses packets of its earlier life, so the ranks notice.
    """
    with running_lab(2, "af_packet") as lab:
        job = lab.create_job(None, "--authenticate")
        ranks = start_ranks(lab, job, bytes=MIB, iters=100, recover=True, authenticate=True)
        wait_for_results(lab, job, 2000)
        lab.switch.stop(signal.SIGKILL)
        lab.start_switch()
        lab.create_job(None, "--authenticate", "--id", job["id"], "--key", job["key"])
        reports = reports_of(lab, ranks)
        expect_exact(reports, "the job on two lives of its switch")
        expect(all(report["resumed"] >= 1 for report in reports),
               "a rank did not go on in another run")
