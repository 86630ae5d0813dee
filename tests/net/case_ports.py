# SPDX-License-Identifier: BSD-3-Clause
"""Ports whose interface is removed, and made anew under the same name."""

import ctypes
import json
import os
import pathlib
import re
import signal
import socket
import struct
import time

from tests.net.frames import BROADCAST, RawPort, mac_bytes
from tests.net.support import (MIB, case, expect, expect_equal, expect_exact, ip_in, job_entry,
                               reports_of, run_exact_job, running_lab, start_ranks,
                               wait_for_results, wait_until)
from lab.namespaces import HOST_INTERFACE, SWITCH_IP


def link_of(lab, host):
    return next(port["link"] for port in lab.control.ask("ports.list")["ports"]
                if port["name"] == lab.port_of(host))


def remove_interface(lab, host):
    ip_in(lab.switch_namespace, "link", "delete", lab.switch_interface(host))


def lines_with(lab, words):
    return [line for line in lab.switch.stderr().splitlines() if words in line]


@case(sanitized=True)
def an_interface_that_is_made_anew_is_opened_anew_on_af_packet():
    """The switch runs and other ports are at work meanwhile. The absence of the interface may be
    too short for anybody to see.
    """
    with running_lab(3, "af_packet") as lab:
        job = lab.create_job()
        run_exact_job(lab, "before", job=job, bytes=MIB)
        remove_interface(lab, 1)
        wait_until(lambda: not link_of(lab, 1), 60, "the port to go down")
        run_exact_job(lab, "on the other two ports", [0, 2], bytes=MIB)
        lab._make_link(1)
        wait_until(lambda: link_of(lab, 1), 60, "the port to come up")
        run_exact_job(lab, "on the new interface", job=job, bytes=MIB)
        for turn in range(3):
            remove_interface(lab, 1)
            lab._make_link(1)
            expect(not link_of(lab, 1) or len(lines_with(lab, "opened anew on")) == turn + 2,
                   "the port is reported up although the switch has not opened the new interface")
            wait_until(lambda: len(lines_with(lab, "opened anew on")) == turn + 2, 60,
                       "the port to be opened anew")
            expect(link_of(lab, 1), "the port that was opened anew is down")
            run_exact_job(lab, f"on new interface {turn}", job=job, bytes=MIB)
        expect_equal(len(lines_with(lab, 'port "h1": the interface "sw-h1" is gone')), 4,
                     "lines on the interface that is gone")


@case()
def an_interface_that_is_too_small_is_told_once_and_opened_when_it_fits():
    with running_lab(2, "af_packet", 4000) as lab:
        job = lab.create_job()
        remove_interface(lab, 1)
        lab.mtu = 1500
        lab._make_link(1)
        wait_until(lambda: lines_with(lab, "cannot be opened anew yet"), 60,
                   "the switch to say why the port stays down")
        expect(not link_of(lab, 1), "a port without a socket is told to be up")
        expect('found 4000 for port "h1", but interface' in lines_with(lab, "cannot be opened anew "
                                                                            "yet")[0],
               f"the reason: {lines_with(lab, 'cannot be opened')}")
        for namespace, device in ((lab.switch_namespace, "sw-h1"),
                                  (lab.host_namespace(1), "fanin0")):
            ip_in(namespace, "link", "set", device, "mtu", "4000")
        wait_until(lambda: link_of(lab, 1), 60, "the port to come up")
        expect_equal(len(lines_with(lab, "cannot be opened anew yet")), 1,
                     "lines on the same reason")
        run_exact_job(lab, "on the interface that fits", job=job, bytes=MIB)


@case()
def an_interface_that_is_made_anew_is_reported_down_on_af_xdp():
    """The driver can't open the port anew: the port stays down until the switch is restarted, and
    the switch says so once.
    """
    with running_lab(3, "af_xdp") as lab:
        remove_interface(lab, 1)
        lab._make_link(1)
        expect(not link_of(lab, 1),
               "a port whose socket is on an interface that is gone is told to be up")
        wait_until(lambda: lines_with(lab, "restart the switch"), 60,
                   "the switch to say what to do")
        shown = next(line for line in lab.ctl("ports").stdout.splitlines()
                     if line.startswith("h1 "))
        expect(" down " in shown, f"faninctl ports shows {shown!r}")
        run_exact_job(lab, "on the other two ports", [0, 2], bytes=MIB)
        expect_equal(len(lines_with(lab, "restart the switch")), 1, "lines that say what to do")
        expect(not link_of(lab, 1), "the port came up by itself")
        lab.switch.stop()
        lab.start_switch()
        run_exact_job(lab, "after a restart", bytes=MIB)


def neighbor_mac(lab, host):
    """Returns the MAC address that a host's kernel has for the switch's address."""
    found = json.loads(ip_in(lab.host_namespace(host), "-j", "neighbor", "show", SWITCH_IP, "dev",
                             HOST_INTERFACE).stdout)
    return found[0].get("lladdr") if found else None


@case()
def a_switch_with_another_mac_address_takes_the_place_of_one():
    """Hosts in the middle of a job go on with the new switch, at the block that they had reached.
    """
    address = {"ip": SWITCH_IP, "udp_port": 21930}
    with running_lab(3, "af_packet",
                     config={"address": {**address, "mac": "02:fa:00:00:00:11"}}) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100, recover=True, transport="af_packet")
        wait_for_results(lab, job, 2000)
        lab.switch.stop(signal.SIGKILL)
        lab.overrides["address"]["mac"] = "02:fa:00:00:00:22"
        lab.start_switch()
        lab.create_job(None, "--id", job["id"], "--key", job["key"])
        reports = reports_of(lab, ranks)
        expect_exact(reports, "beyond the change of the switch")
        for rank, report in enumerate(reports):
            expect(report["resumed"] >= 1, f"rank {rank} did not go on at another switch: {report}")


@case()
def a_switch_announces_its_address_when_a_port_comes_up():
    """The switch announces its address at its start and whenever a port comes up: the hosts'
    kernels learn its MAC address at once.
    """
    address = {"ip": SWITCH_IP, "udp_port": 21930}
    with running_lab(2, "af_packet",
                     config={"address": {**address, "mac": "02:fa:00:00:00:11"}}) as lab:
        run_exact_job(lab, "first", bytes=MIB, transport="af_packet")
        expect_equal(neighbor_mac(lab, 0), "02:fa:00:00:00:11", "the switch's MAC address")
        lab.switch.stop()
        lab.overrides["address"]["mac"] = "02:fa:00:00:00:22"
        lab.start_switch()
        wait_until(lambda: neighbor_mac(lab, 0) == "02:fa:00:00:00:22", 60,
                   "host 0 to learn the new MAC address")
        announcement = struct.pack("!HHHBBH", 0x0806, 1, 0x0800, 6, 4,
                                   1) + mac_bytes("02:fa:00:00:00:22")
        with RawPort(lab.host_namespace(1)) as port:
            ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(1), "down")
            wait_until(lambda: lines_with(lab, 'port "h1": the link is down'), 60,
                       "the switch to notice the link")
            port.arrived()
            ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(1), "up")
            frame, _ = port.wait_for(lambda frame: announcement in frame)
        wanted = mac_bytes(BROADCAST) + mac_bytes("02:fa:00:00:00:22") + announcement
        wanted += socket.inet_aton(SWITCH_IP) + bytes(6) + socket.inet_aton(SWITCH_IP)
        expect_equal(frame[:len(wanted)], wanted, "the announcement")


@case()
def an_mtu_that_was_lowered_is_named_in_the_error():
    """The host can't send its packets any more: the error must not read as if the switch were
    silent.
    """
    with running_lab(2, "af_packet", 9000) as lab:
        job = lab.create_job()
        # The MTU is lowered while host 0 sleeps: otherwise results on their way to it would be
        # lost, too.
        pauses = {"pause": 8, "pause_at": 2}
        ranks = [lab.spawn_perf(rank, job, rank, 2, bytes=MIB, iters=100000, timeout_ms=1500,
                                transport="af_packet",
                                **(pauses if rank == 0 else {})) for rank in range(2)]

        def stands():
            before = job_entry(lab, job)["stats"]["results"]
            time.sleep(0.5)
            return before > 0 and job_entry(lab, job)["stats"]["results"] == before
        wait_until(stands, 60, "host 0 to sleep")
        ip_in(lab.host_namespace(0), "link", "set", HOST_INTERFACE, "mtu", "1500")
        error = reports_of(lab, ranks, 60)[0].get("error") or {}
        expect("sending fails: Message too long: the interface's MTU is less" in error.get("message", ""),
               f"the error of the host whose MTU was lowered: {error}")


LIBC = ctypes.CDLL(None, use_errno=True)
# Commands of bpf(2).
BPF_LINK_GET_FD_BY_ID, BPF_LINK_DETACH = 30, 34
SYS_BPF = 321  # x86-64


def bpf(command, number):
    attribute = ctypes.create_string_buffer(struct.pack("I", number), 128)
    found = LIBC.syscall(SYS_BPF, command, attribute, len(attribute))
    expect(found >= 0, f"bpf({command}): {os.strerror(ctypes.get_errno())}")
    return found


def detach_xdp(process):
    """Detaches what a program has attached as a link, as `bpftool link detach` does."""
    infos = [path.read_text() for path in pathlib.Path(f"/proc/{process.pid}/fdinfo").iterdir()]
    links = [int(match[1]) for info in infos if "link_type:\txdp" in info
             and (match := re.search(r"^link_id:\s*(\d+)", info, re.MULTILINE))]
    expect_equal(len(links), 1, "XDP programs that the process has attached")
    link = bpf(BPF_LINK_GET_FD_BY_ID, links[0])
    bpf(BPF_LINK_DETACH, link)
    os.close(link)


@case()
def a_hosts_xdp_program_is_not_taken_off_by_ip_and_named_if_its_link_is_detached():
    with running_lab(2, "af_xdp") as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=2000, transport="af_xdp")
        wait_for_results(lab, job, 100)
        for mode in ("xdp", "xdpdrv"):
            done = ip_in(lab.host_namespace(1), "link", "set", HOST_INTERFACE, mode, "off",
                         check=False)
            expect(done.returncode != 0, f"ip took the program off: {mode}")
        wait_for_results(lab, job, job_entry(lab, job)["stats"]["results"] + 100)
        detach_xdp(ranks[1])
        error = reports_of(lab, ranks, 60)[1].get("error") or {}
        expect("nothing is received: the XDP program is not at the interface any more"
               in error.get("message", ""),
               f"the error of the host that has no program any more: {error}")


@case()
def an_mtu_that_was_lowered_at_the_switch_is_named_at_the_host_behind_it():
    """The host's packets don't arrive while its queries do: it does not hear that it is late
    itself, and all others name it.
    """
    for transport, mtu in (("af_packet", 9000), ("af_xdp", 3000)):
        with running_lab(3, transport, mtu) as lab:
            job = lab.create_job()
            ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=3000,
                                transport=transport)
            wait_for_results(lab, job, 1000)
            ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(1), "mtu", "1500")
            reports = reports_of(lab, ranks, 60)
            error = reports[1].get("error") or {}
            expect(re.search(
                r"do packets of [0-9]{4} bytes pass|takes no packets of [0-9]{4} bytes",
                error.get("message", "")),
                   f"the error of the host behind the port, {transport}: {error}")
            expect("rank 1" not in error["message"] and 1 not in error["missing"],
                   f"a rank is told that itself is missing: {error}")
            for rank in (0, 2):
                error = reports[rank].get("error") or {}
                expect_equal(error.get("missing"), [1],
                             f"whom rank {rank} misses, {transport} ({error})")
            wait_until(lambda: lines_with(lab, 'port "h1": the interface "sw-h1" has MTU 1500'), 60,
                       "the line on the MTU")
