# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on UDP sockets: without rights, at ordinary MTUs, several on one address, and beside
others.
"""

import json
import signal
import time

from lab.namespaces import HOST_INTERFACE, NOBODY, SWITCH_IP
from tests.net import over_udp
from tests.net.support import (KIB, MIB, CaseFailed, case, expect, expect_equal, expect_exact,
                               expect_unless_repeated, kernel_takes_super_frames, program,
                               reports_of, run, run_exact_job, run_over_udp, running_lab,
                               start_ranks, wait_for_results, wait_until)

FAULTS = {"drop": 0.05, "duplicate": 0.02, "reorder": 0.02, "seed": 3}
# The most that kernels older than 6.18 give a socket without rights, unless configured otherwise.
OLDER_RMEM_MAX = 212992


def super_frames(lab):
    """Returns the counters of super-frames, summed over all ports."""
    ports = json.loads(lab.ctl("-j", "ports").stdout)["ports"]
    return {name: sum(port["super_frames"][name] for port in ports)
            for name in ("rx", "rx_segments", "tx", "tx_segments")}


def spawn_as_nobody(lab, job, host, rank, size, **options):
    options = {"check": True, "bytes": MIB, **options}
    return lab.spawn(host, lab.perf_command(host, job, rank, size, **options), "perf", NOBODY)


def expect_single_packets(lab, reports):
    """Expects the reports of a kernel whose packet sockets take no super-frames of UDP."""
    for report in reports:
        expect("; packets leave one by one: the switch has not got those that were sent to find out" in report["transport_reason"],
               f"this does not say that packets leave one by one: {report['transport_reason']}")
        expect_equal(report["super_frames"]["sent"], 0, "super-frames that were sent")
    expect_equal({port["super_frames"]["made"]
                  for port in json.loads(lab.ctl("-j", "ports").stdout)["ports"]}, {False},
                 "ports make super-frames")


@case()
def hosts_without_rights_have_exact_sums_in_super_frames():
    """If the kernel takes no super-frames, the sums are exact in single packets."""
    for mtu, least in ((1500, 16), (9000, 4)):
        with running_lab(4, "af_packet", mtu) as lab:
            job = lab.create_job()
            # The hosts choose the transport by themselves.
            ranks = [spawn_as_nobody(lab, job, host, host, 4, bytes=4 * MIB, iters=5,
                                     in_place=True) for host in range(4)]
            reports = reports_of(lab, ranks)
            expect_exact(reports, f"MTU {mtu}")
            for report in reports:
                expect_equal(report["transport"], "udp",
                             "the transport of a process without rights")
                expect("no zero-copy AF_XDP" in report["transport_reason"],
                       f"why not another one: {report['transport_reason']}")
            if not kernel_takes_super_frames():
                expect_single_packets(lab, reports)
                continue
            for report in reports:
                counted = report["super_frames"]
                for way in ("sent", "received"):
                    expect(counted[f"{way}_packets"] >= least * counted[way] > 0,
                           f"MTU {mtu}: {counted} of a host")
                expect(counted["sent_packets"] <= report["frames_sent"],
                       f"MTU {mtu}: {counted}, and {report['frames_sent']} packets sent")
                expect("one by one" not in report["transport_reason"],
                       f"packets leave one by one: {report['transport_reason']}")
            found = super_frames(lab)
            expect(found["rx_segments"] >= least * found["rx"] > 0,
                   f"MTU {mtu}: {found} from hosts")
            expect(found["tx_segments"] >= least * found["tx"] > 0, f"MTU {mtu}: {found} to hosts")


@case()
def sums_over_udp_are_exact_under_loss():
    for mtu in (1500, 9000):
        with running_lab(4, "af_packet", mtu, {"faults": FAULTS}) as lab:
            for handler in ("single", "tree"):
                reports = run_exact_job(lab, f"MTU {mtu}, {handler}", handler=handler,
                                        bytes=2 * MIB, iters=2, transport="udp", in_place=True)
                expect(sum(report["retransmits"] for report in reports) > 0,
                       "faults were configured, nothing was resent")
            run_exact_job(lab, f"MTU {mtu}, reduce_scatter", collective="reduce_scatter",
                          transport="udp")
            run_exact_job(lab, f"MTU {mtu}, broadcast", collective="broadcast", transport="udp",
                          recover=True)


@case()
def ranks_of_one_address_have_exact_sums():
    for transport in ("udp", "af_packet"):
        with running_lab(2, "af_packet", 1500, {"faults": {**FAULTS, "drop": 0.01}}) as lab:
            job = lab.create_job(members=[0, 0, 1, 1])
            ranks = [lab.spawn_perf(rank // 2, job, rank, 4, bytes=MIB, iters=3, check=True,
                                    transport=transport) for rank in range(4)]
            expect_exact(reports_of(lab, ranks), f"two ranks on each of two hosts, {transport}")


@case()
def jobs_of_one_address_do_not_disturb_each_other():
    """Each host has three jobs, two over UDP sockets and one over packet sockets."""
    with running_lab(3, "af_packet", 1500) as lab:
        jobs = [(lab.create_job(), transport) for transport in ("udp", "udp", "af_packet")]
        ranks = [lab.spawn_perf(host, job, host, 3, bytes=MIB, iters=20, check=True,
                                transport=transport)
                 for job, transport in jobs for host in range(3)]
        reports = reports_of(lab, ranks)
        expect_exact(reports, "three jobs")
        for report in reports:
            expect_equal(report["invalid"], 0,
                         f"what is not of the job, over {report['transport']}")


@case(90, thorough=True)
def three_jobs_in_two_processes_of_an_address_are_exact():
    """On each host a process has two jobs, with collectives of all kinds, and another process has
    the third, at the same time.
    """
    with running_lab(3, "udp", 1500, {"faults": {**FAULTS, "drop": 0.01}}) as lab:
        third = lab.create_job()
        ranks = start_ranks(lab, third, bytes=256 * KIB, iters=800)
        wait_for_results(lab, third, 50)
        jobs = [lab.create_job(None, "--handler", handler) for handler in ("single", "tree")]
        arguments = [argument for job in jobs for argument in (job["id"], job["key"])]
        both = [lab.spawn(host, [program("two-communicators"), SWITCH_IP, "udp", host, 3,
                                 *arguments], "two", NOBODY) for host in range(3)]
        for job in jobs:
            wait_for_results(lab, job, 20)
        expect(all(rank.running() for rank in ranks),
               "the third job was over before the others ran: give it more iterations")
        for host, process in enumerate(both):
            status = process.wait(60)
            expect(status == 0 and json.loads(process.stdout())["ok"],
                   f"rank {host} of two jobs: {process.stdout()} {process.last_words()}")
        reports = reports_of(lab, ranks)
        expect_exact(reports, "the third job")
        expect_equal([(report["transport"], report["invalid"]) for report in reports],
                     [("udp", 0)] * 3, "transports, and what is not of the job")


def stop_now_and_then(lab, rank, before):
    """Stops a rank for a while, several times: packets sent to it wait in its buffers. before:
    bytes that the switch had received before the job.
    """
    wait_until(lambda: lab.frames()["rx_bytes"] > before + 8 * MIB, 60, "the job to run")
    for _ in range(3):
        rank.popen.send_signal(signal.SIGSTOP)
        time.sleep(0.3)
        rank.popen.send_signal(signal.SIGCONT)
        time.sleep(0.05)


def sixteen_hosts(mtu, handlers):
    """Runs jobs of 16 hosts whose sockets have the buffers of an older kernel; one host stops now
    and then. Returns {handler: reports}.
    """
    found = {}
    with running_lab(16, "udp", mtu) as lab:
        for handler in handlers:
            job = lab.create_job(None, "--handler", handler)
            before = lab.frames()["rx_bytes"]
            options = {"bytes": MIB, "iters": 8, "check": True, "transport": "udp"}
            # The last rank computes for a second with a collective posted, however fast the job is;
            # besides, it is stopped as long as it runs.
            late = {**options, "pause": 1, "pause_at": 2, "pause_busy": True}
            ranks = [lab.spawn(host, ["/usr/bin/env", f"FANIN_RECEIVE_BUFFER={OLDER_RMEM_MAX}",
                                      *lab.perf_command(host, job, host, 16,
                                                        **(late if host == 15 else options))],
                               "perf", NOBODY) for host in range(16)]
            stop_now_and_then(lab, ranks[-1], before)
            found[handler] = reports_of(lab, ranks)
            expect_exact(found[handler], f"MTU {mtu}, {handler}", handler)
            lab.ctl("jobs", "destroy", job["id"])
            sums = {name: sum(report[name] for report in found[handler])
                    for name in ("frames_sent", "retransmits", "queries", "ring_drops")}
            print(f"MTU {mtu}, {handler}: window {found[handler][0]['window']}, "
                  f"{100 * sums['retransmits'] / sums['frames_sent']:.2f} % of "
                  f"{sums['frames_sent']} packets sent again, {sums['queries']} questions, "
                  f"{sums['ring_drops']} found no room at a host")
    return found


@case(120, thorough=True)
def sixteen_hosts_with_small_buffers_are_exact_over_udp():
    """A window bounds the packets on their way to a host, and the host's buffer has room for them.
    """
    for mtu in (1500, 9000):
        for handler, reports in sixteen_hosts(mtu, ("single", "multi", "tree")).items():
            expect_equal([report["ring_drops"] for report in reports], [0] * 16,
                         f"MTU {mtu}, {handler}: what found no room at a host")


@case(120, thorough=True)
def sixteen_hosts_with_small_buffers_send_to_one_and_are_exact_over_udp():
    """The one host's buffer may overflow then: few packets are sent again."""
    for mtu in (1500, 9000):
        for handler in ("push", "pull"):
            # On a busy machine timers are early, and more is sent again than was lost: the case
            # then tries again.
            for left in reversed(range(3)):
                reports = sixteen_hosts(mtu, (handler,))[handler]
                lost, again, sent = (sum(report[name] for report in reports)
                                     for name in ("ring_drops", "retransmits", "frames_sent"))
                expect(lost < 0.05 * sent,
                       f"MTU {mtu}, {handler}: of {sent} packets {lost} found no room")
                if again < 0.05 * sent:
                    break
                expect(left != 0, f"MTU {mtu}, {handler}: of {sent} packets {lost} found no room, "
                                  f"and {again} were sent again, in each of three runs")


@case()
def where_super_frames_do_not_pass_packets_go_one_by_one():
    """The hosts' interfaces take super-frames apart, and the switch's socket gets none: the hosts
    say so, and sums are exact.
    """
    with running_lab(2, "af_packet", 1500) as lab:
        for host in range(2):
            run(["ip", "netns", "exec", lab.host_namespace(host), "ethtool", "-K", HOST_INTERFACE,
                 "tx-udp-segmentation", "off"])

        def claim():
            reports = run_exact_job(lab, "without super-frames", bytes=MIB, iters=3,
                                    transport="udp")
            again = sum(report["retransmits"] for report in reports)
            return [f"{again} packets were sent again"] if again else [], reports
        # All links share the kernel's backlog, which overflows where a core is busy with others.
        expect_unless_repeated(claim)
        run_exact_job(lab, "64 KiB", bytes=64 * KIB, iters=20, transport="udp")


def kernel_state(lab, namespace, user, *arguments):
    """Returns doctor's verdict on the kernel for a user of a namespace."""
    doctor = lab._spawn(namespace, f"doctor-{user}",
                        [program("faninctl"), "-j", "doctor", *arguments], user)
    doctor.wait(60)
    return next(finding["state"] for finding in json.loads(doctor.stdout())["findings"]
                if finding["name"] == "kernel")


@case()
def whether_packets_leave_one_by_one_depends_on_the_kernel_and_is_told():
    """
    Packet sockets before Linux 6.2 take no super-frames of UDP, and drop those that come: hosts
    find this out by themselves.
    """
    takes = kernel_takes_super_frames()
    for faults in ({}, {"faults": FAULTS}):
        with running_lab(2, "af_packet", 1500, faults) as lab:
            job = lab.create_job()
            ranks = [spawn_as_nobody(lab, job, host, host, 2, bytes=256 * KIB, iters=4,
                                     in_place=True) for host in range(2)]
            reports = reports_of(lab, ranks)
            expect_exact(reports, f"on a kernel that {'takes' if takes else 'refuses'} "
                                  f"super-frames, {faults}")
            expect(not faults or any(report["retransmits"] for report in reports),
                   "faults were configured, nothing was resent")
            expect_equal("take no super-frames of UDP" in lab.switch.stderr(), not takes,
                         "the switch's log has it")
            if not takes:
                expect_single_packets(lab, reports)
            elif faults:
                # The faults may drop the packets that test for super-frames.
                continue
            expect_equal({report["transport"] for report in reports}, {"udp"},
                         "the transport of a process without rights")
            expect_equal({port["super_frames"]["made"]
                          for port in json.loads(lab.ctl("-j", "ports").stdout)["ports"]}, {takes},
                         "ports make super-frames")
            expect_equal({report["super_frames"]["sent"] > 0 for report in reports}, {takes},
                         "super-frames were sent")
            for rank in ranks:
                expect_equal("udp: packets leave one by one from now on" in rank.stderr(),
                             not takes, f"the log tells of it: {rank.stderr()}")
            expect_equal(kernel_state(lab, lab.host_namespace(0), NOBODY, "--transport", "udp"),
                         "ok", "the kernel of a host")
            expect_equal(kernel_state(lab, lab.switch_namespace, None, "--driver", "af_packet"),
                         "ok" if takes else "warning", "the switch's kernel")


@case(10)
def cases_over_udp_replace_transports_and_fail_if_there_is_none():
    instead = over_udp.HostsOverUdp()
    for arguments, found in ((["env", "A=1", "/x/fanin-perf", "--multicast", "auto", "--transport",
                               "af_packet"],
                              (["env", "A=1", "/x/fanin-perf", "--multicast", "auto", "--transport",
                                "udp"], NOBODY)),
                             (["/x/two-communicators", "10.77.0.254", "auto", 1],
                              (["/x/two-communicators", "10.77.0.254", "udp", "1"], NOBODY)),
                             (["ping", "auto"], (["ping", "auto"], None))):
        expect_equal(instead.program(arguments, None), found, f"what {arguments} becomes")
    expect_equal((instead.started, instead.network("af_xdp", 9000), instead.network("memif", 9000)),
                 (2, ("udp", 1500), ("memif", 9000)),
                 "programs that were replaced, and networks")
    try:
        run_over_udp(lambda: None)
    except CaseFailed as failure:
        expect("no host has run over UDP sockets" in str(failure), str(failure))
        return
    expect(False, "a case that replaces nothing has not failed")
