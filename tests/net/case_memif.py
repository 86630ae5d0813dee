# SPDX-License-Identifier: BSD-3-Clause
"""Hosts that share memory with the switch: exact like all others, and free to come, go and be
killed.
"""

import concurrent.futures
import fcntl
import os
import pathlib
import signal
import socket
import struct
import threading
import time

from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, job_entry,
                               program, reports_of, run, run_exact_job, running_lab, start_ranks,
                               wait_for_results, wait_until)
from tests.net.manager_lab import TOKEN, Manager
from tests.net.pace import Pace, wait_within

ACK, HELLO, INIT, DISCONNECT = 1, 2, 3, 8
HOLDERS = 8


def links(lab):
    return {port["name"]: port["link"] for port in lab.control.ask("ports.list")["ports"]}


def lab_of(hosts, **options):
    return running_lab(hosts, "memif", **options)


@case()
def a_job_by_name_runs_over_memif():
    with running_lab(3, "memif") as lab:
        hosts = [{"ip": lab.host_ip(host), "switch": "lab", "port": f"h{host}"}
                 for host in range(3)]
        manager = Manager(lab, {"switches": [{"name": "lab", "control": str(lab.socket_path)}],
                                "hosts": hosts}).start()
        manager.wait_up("lab")
        # The window has as many slots as fit the caches: there is no link to fill.
        clients, results = manager.join("slots", [host["ip"] for host in hosts])
        made = lab.create_job()
        expect_equal(results[0]["window"], made["window"],
                     "the window, beside that of a job without a manager")
        expect(2 * made["window"] < lab.control.ask("jobs.list")["limits"]["slots_per_job"],
               f"window {made['window']} is the most")
        lab.control.ask("jobs.destroy", id=made["id"])
        for client in clients:
            client.close()
        manager.wait_idle()
        expect_exact(reports_of(lab, [lab.spawn(host, [
            "/usr/bin/env", f"FANIN_TOKEN={TOKEN}", program("fanin-perf"), "--manager",
            manager.address, "--job-name", "job",
            "--size", 3, "--memif", f"{lab.memif_path}:{host}", "--address", lab.host_ip(host),
            "--bytes", 256 * KIB, "--check",
            "--json", "--no-progress"], "by-name") for host in range(3)]),
                     "a job by name over memif")
        manager.wait_idle()
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs left on the switch")
        manager.stop()


@case(120)
def every_type_is_exact_on_memif():
    with lab_of(3) as lab:
        job = lab.create_job()
        expect(job["payload_bytes"] >= 8 * KIB,
               f"payload at MTU 9000: {job['payload_bytes']} bytes")
        for dtype in ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32",
                      "f64"):
            run_exact_job(lab, dtype, job=job, bytes=200 * KIB, dtype=dtype)
        for size in (0, 64, job["payload_bytes"] + 64, MIB + 4):
            run_exact_job(lab, f"{size} bytes", job=job, bytes=size)


@case()
def any_mtu_is_exact_on_memif():
    for mtu in (1500, 9702, 61184):
        with lab_of(2, mtu=mtu) as lab:
            run_exact_job(lab, f"MTU {mtu}", bytes=MIB)


@case(sanitized=True)
def sum_is_exact_under_loss_on_memif():
    faults = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 5}
    with lab_of(4, config={"faults": faults}) as lab:
        reports = run_exact_job(lab, "2 % faults", bytes=2 * MIB)
        expect(sum(report["retransmits"] for report in reports) > 0,
               "faults were configured, nothing was resent")


@case()
def two_workers_share_memif_ports():
    config = {"workers": [{"lcore": 0, "cpu": 0}, {"lcore": 1, "cpu": 1}],
              "memory": {"hugepages": "never", "megabytes": 256}}
    with lab_of(4, config=config) as lab:
        run_exact_job(lab, "two workers without hugepages", bytes=8 * MIB)


@case()
def a_killed_memif_host_is_named_and_a_new_one_takes_its_port():
    timeout_ms = 2000
    with lab_of(4) as lab:
        expect_equal(set(links(lab).values()), {False}, "links before anyone connects")
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=timeout_ms)
        wait_for_results(lab, job, 1000)
        expect_equal(set(links(lab).values()), {True}, "links of hosts that are connected")
        with Pace() as pace:
            ranks[2].popen.send_signal(signal.SIGKILL)
            reports = reports_of(lab, [ranks[0], ranks[1], ranks[3]])
            seconds = time.monotonic() - pace.began
        for report in reports:
            expect_equal((report.get("error") or {}).get("missing"), [2],
                         f"missing ranks in {report}")
        pace.expect_within(seconds, timeout_ms / 1000 + 1, "that the others learn of it")
        wait_within(lambda: not any(links(lab).values()), 4, "the links to go down")
        run_exact_job(lab, "new processes on the same ports", job=job, bytes=MIB)


@case(120, sanitized=True, long=True)
def memif_hosts_killed_under_load_never_harm_the_switch():
    """Each turn kills a host that is in the middle of its frames, while two others go on, and
    connects a new one.
    """
    with lab_of(4) as lab:
        lasting = lab.create_job([0, 1])
        pair = start_ranks(lab, lasting, [0, 1], bytes=MIB, iters=100000)
        wait_for_results(lab, lasting, 100)
        for turn in range(12):
            job = lab.create_job([2, 3])
            ranks = start_ranks(lab, job, [2, 3], bytes=16 * MIB, iters=1000, timeout_ms=1000)
            wait_for_results(lab, job, 200)
            ranks[turn % 2].popen.send_signal(signal.SIGKILL)
            reports_of(lab, [ranks[1 - turn % 2]], 60)
            expect(lab.switch.running(), f"turn {turn}: the switch died: {lab.switch.last_words()}")
            lab.ctl("jobs", "destroy", job["id"])
        before = job_entry(lab, lasting)["stats"]["results"]
        wait_for_results(lab, lasting, before + 100)
        expect(all(rank.running() for rank in pair), "a rank of the other job ended")


@case()
def frames_to_a_memif_port_without_a_host_are_counted():
    with lab_of(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=KIB, iters=1000000, timeout_ms=1000)
        wait_for_results(lab, job, 100)
        ranks[1].popen.send_signal(signal.SIGKILL)
        wait_until(lambda: not links(lab)["h1"], 60, "the link to go down")
        ranks[0].wait(60)
        # The new rank sends an ARP request for an unused address, which the switch floods.
        stranger = lab.spawn(0, [program("fanin-perf"), "--switch", "10.77.0.99", "--job", 1,
                                 "--key", 1, "--rank", 0,
                                 "--size", 1, "--memif", f"{lab.memif_path}:0", "--address",
                                 lab.host_ip(0),
                                 "--join-timeout-ms", 500])
        expect_equal(stranger.wait(60), 1, "exit status")
        expect("10.77.0.99" in stranger.stderr() + stranger.stdout(),
               f"its words: {stranger.last_words()}")
        expect(lab.drops()["port_down"] > 0, "nothing was counted as port_down")


@case()
def a_killed_switch_is_reported_in_time_on_memif():
    with lab_of(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=1500)
        wait_for_results(lab, job, 100)
        with Pace() as pace:
            lab.switch.popen.kill()
            reports = reports_of(lab, ranks)
            seconds = time.monotonic() - pace.began
        for report in reports:
            error = report.get("error") or {}
            expect_equal(error.get("code"), "timeout",
                         f"error of a host whose switch is gone: {report}")
            expect("sending fails" in error["message"],
                   f"the message does not speak of the link: {error['message']}")
        # The rank's LEAVE, which nobody answers, is given up after 1 s.
        pace.expect_within(seconds, 1.5 + 1 + 0.5, "that hosts learn that their switch is gone")
        # The killed switch's leftovers do not keep the next one from starting.
        lab.start_switch()
        run_exact_job(lab, "on a new switch", bytes=MIB)


def refusal(lab, host, **options):
    """Returns the error of a single rank that must not get in."""
    job = {"id": 1, "key": "0x1"}
    report = reports_of(lab, [lab.spawn_perf(host, job, 0, 1, bytes=KIB, join_timeout_ms=3000,
                                             **options)], 60)[0]
    expect(report.get("error"), f"no error in {report}")
    return report["error"]


@case()
def memif_refusals_say_why():
    with lab_of(2) as lab:
        job = lab.create_job([0])
        rank = start_ranks(lab, job, [0], bytes=KIB, iters=10000000)[0]
        wait_for_results(lab, job, 10)
        for words, options in (("already connected", {}),
                               ("memif id 9", {"memif": f"{lab.memif_path}:9"}),
                               ("no switch serves", {"memif": f"{lab.directory}/none.sock:0"})):
            error = refusal(lab, 0, **options)
            expect_equal(error["code"], "transport", f"code of {error}")
            expect(words in error["message"], f"'{error['message']}' does not say '{words}'")
        for words, options in (("unicast", {"address": "224.0.0.1"}),
                               ("transport is to be", {"transport": "af_xdp"}),
                               ("expected one of them", {"interface": "lo"})):
            error = refusal(lab, 1, **options)
            expect_equal(error["code"], "invalid", f"code of {error}")
            expect(words in error["message"], f"'{error['message']}' does not say '{words}'")
        expect(rank.running(), "the host that was connected has ended")
        lab.control.ask("version")


def connect(lab):
    client = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    client.settimeout(60)
    client.connect(str(lab.memif_path))
    return client


def message(kind, body=b""):
    return struct.pack("<H", kind) + body.ljust(126, b"\0")


@case()
def junk_on_the_memif_socket_does_no_harm():
    good = struct.pack("<HIB", 0x0200, 1, 0)
    junk = [b"", b"x", message(INIT)[:64], message(0), message(99), message(ACK), message(5),
            message(6),
            message(INIT, struct.pack("<HIB", 0x0300, 1, 0)),
            message(INIT, struct.pack("<HIB", 0x0200, 77, 0)),
            message(INIT, struct.pack("<HIB", 0x0200, 1, 1)), message(DISCONNECT),
            bytes(range(128)), b"\xff" * 4096]
    followers = [message(INIT, good), message(4), message(5), message(6), message(7), message(2),
                 b"\xff" * 128]
    with lab_of(2) as lab:
        silent = [connect(lab) for _ in range(20)]
        for first in junk:
            with connect(lab) as client:
                expect_equal(struct.unpack_from("<H", client.recv(4096))[0], HELLO,
                             "the first message")
                client.send(first)
        for second in followers:
            with connect(lab) as client:
                client.recv(4096)
                client.send(message(INIT, good))
                answer = client.recv(4096)
                # The last client's port may still be on its way down.
                if struct.unpack_from("<H", answer)[0] == ACK:
                    client.send(second)
                    expect_equal(struct.unpack_from("<H", client.recv(4096))[0], DISCONNECT,
                                 f"answer to {second[:8]}")
        run_exact_job(lab, "beside silent clients", bytes=MIB)
        for client in silent:
            client.close()
        expect(lab.switch.running(), "the switch died")


def is_open(client):
    """Reads what the switch has sent. Returns true if the switch still holds the client's
    connection.
    """
    client.setblocking(False)
    try:
        while client.recv(4096):
            pass
        return False
    except BlockingIOError:
        return True
    except ConnectionResetError:
        return False
    finally:
        client.settimeout(60)


@case()
def silent_clients_keep_no_place_on_the_memif_socket():
    """A silent client keeps its place only until a newcomer needs it or the time for a handshake is
    over, and keeps no port that it has named.
    """
    good = struct.pack("<HIB", 0x0200, 0, 0)
    with lab_of(2) as lab:
        job = lab.create_job()
        holder = connect(lab)
        holder.recv(4096)
        holder.send(message(INIT, good))
        expect_equal(struct.unpack_from("<H", holder.recv(4096))[0], ACK,
                     "answer to the first INIT")
        started = time.monotonic()
        silent = []
        for _ in range(170):
            silent.append(connect(lab))
            # The switch has greeted the client, so the gate has it.
            silent[-1].recv(4096)
        expect(not is_open(holder) and not any(map(is_open, silent[:30])),
               "the oldest of 171 silent clients were kept")
        expect(all(map(is_open, silent[-100:])), "the newest of 171 silent clients were let go")
        run_exact_job(lab, "beside silent clients in all places", job=job, bytes=MIB)
        wait_until(lambda: not any(map(is_open, silent)), 60, "the silent clients to be let go")
        expect(time.monotonic() - started > 4.5, "clients were let go before they had 5 s")
        late = connect(lab)
        late.recv(4096)
        named = time.monotonic()
        late.send(message(INIT, good))
        late.settimeout(60)
        expect_equal(struct.unpack_from("<H", late.recv(4096))[0], ACK, "answer to an INIT")
        with Pace() as pace:
            words = late.recv(4096)
            seconds = time.monotonic() - named
        expect_equal(struct.unpack_from("<H", words)[0], DISCONNECT,
                     "what a client hears that does not go on")
        expect(b"handshake" in words and seconds > 4.5, f"{words[:64]} after {seconds:.1f} s")
        pace.expect_within(seconds, 7, "that a client which does not go on hears so")
        run_exact_job(lab, "on the port that a silent client had named", job=job, bytes=MIB)


def hold(lab, number, stop, answers):
    """Names a port again and again, and says nothing more, until stop is set. answers: receives the
    switch's answers.
    """
    while not stop.is_set():
        with connect(lab) as client:
            client.recv(4096)
            client.send(message(INIT, struct.pack("<HIB", 0x0200, number, 0)))
            client.settimeout(0.1)
            while not stop.is_set():
                try:
                    answer = client.recv(4096)
                except TimeoutError:
                    continue
                except ConnectionResetError:
                    break
                answers.append(struct.unpack_from("<H", answer.ljust(2, b"\0"))[0])
                if answers[-1] != ACK:
                    break


ADD_REGION = 4
REGIONS = 16  # of a client, at most


@case()
def memif_clients_that_send_memory_and_no_more_take_no_more_descriptors_than_there_are():
    def open_files():
        return len(list(pathlib.Path(f"/proc/{lab.switch.pid}/fd").iterdir()))
    with lab_of(2) as lab:
        before = open_files()
        memory = os.memfd_create("memory", os.MFD_ALLOW_SEALING)
        os.truncate(memory, 4096)
        fcntl.fcntl(memory, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
        clients = []
        for _ in range(40):
            clients.append(connect(lab))
            clients[-1].recv(4096)
            clients[-1].send(message(INIT, struct.pack("<HIB", 0x0200, 0, 0)))
            clients[-1].recv(4096)
            for region in range(REGIONS):
                socket.send_fds(clients[-1],
                                [message(ADD_REGION, struct.pack("<HQ", region, 4096))], [memory])
                expect_equal(struct.unpack_from("<H", clients[-1].recv(4096))[0], ACK,
                             f"answer to region {region} of client {len(clients)}")
        os.close(memory)
        # Two connections for each client, and 256 descriptors.
        most = before + 2 * len(clients) + 256
        expect(open_files() <= most, f"{open_files()} open files, expected at most {most}")
        expect(not is_open(clients[0]) and is_open(clients[-1]),
               "the oldest client was kept, or the newest let go")
        run_exact_job(lab, "beside clients with much memory", bytes=MIB)


@case()
def a_memif_port_is_the_first_hosts_that_says_all():
    """Clients that name the port and say nothing more delay nobody, however many there are and
    however often they come.
    """
    with lab_of(2) as lab, concurrent.futures.ThreadPoolExecutor(HOLDERS) as pool:
        job, stop, answers = lab.create_job(), threading.Event(), []
        holders = [pool.submit(hold, lab, number % 2, stop, answers) for number in range(HOLDERS)]
        try:
            wait_until(lambda: len(answers) >= HOLDERS, 60, "answers to those who name ports")
            with Pace() as pace:
                began = time.monotonic()
                run_exact_job(lab, "beside those who name its ports only", job=job, bytes=MIB)
                seconds = time.monotonic() - began
            pace.expect_within(seconds, 4, "that hosts whose ports others have named are through")
        finally:
            stop.set()
        for holder in holders:
            holder.result(60)
        expect(answers.count(ACK) >= HOLDERS,
               f"what those were answered who named ports: {answers}")


@case()
def the_memif_sockets_go_with_the_switch():
    with lab_of(2) as lab:
        expect_equal(lab.memif_path.stat().st_mode & 0o777, 0o660, "mode of the socket")
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=500)
        wait_for_results(lab, job, 100)
        lab.switch.popen.send_signal(signal.SIGTERM)
        expect_equal(lab.switch.wait(60), 0,
                     f"exit status of the switch ({lab.switch.last_words()})")
        expect_equal(sorted(path.name for path in lab.directory.glob("memif*")), [],
                     "socket files left")
        reports_of(lab, ranks, 60)
        second = lab.config()
        expect_equal(second["ports"][0]["memif"], 0, "the port of the first host")
        expect("error" not in lab.switch.stderr(), f"errors of the switch: {lab.switch.stderr()}")


@case()
def a_second_switch_on_the_same_memif_socket_is_refused():
    with lab_of(1) as lab:
        path = lab.directory / "switch.json"
        done = run([program("fanin-switch"), "--config", str(path)], check=False)
        expect_equal(done.returncode, 1, f"exit status of a second switch ({done.stderr})")
        expect("memif.sock" in done.stderr and "another process listens" in done.stderr,
               f"its words: {done.stderr}")
        run_exact_job(lab, "on the first", bytes=MIB)
