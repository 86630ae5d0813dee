# SPDX-License-Identifier: BSD-3-Clause
"""fanin-perf --profile and the workers' part of `faninctl stats`, beside what strace, the kernel
and the switch's ports have counted of the same.
"""

import math
import os
import re
import signal
import socket
import sys
import threading
import time
from pathlib import Path

from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact,
                               expect_unless_repeated, reports_of, running_lab, start_ranks,
                               wait_for_results, wait_until)

from lab.bench.cpu_times import process_seconds

STRACE = "/usr/bin/strace"
# The calls ask how much waits to be sent, and now and then, by a socket of their own, for the
# switch's MAC address.
ASKS = {"ioctl", "socket", "close"}
# The system calls behind each count of the profile. With memif a write of an eventfd wakes the
# switch or this rank itself.
CALLS = {
    "udp": {"send_calls": {"sendmsg"}, "receive_calls": {"recvmsg"}, "other_calls": ASKS},
    "af_packet": {"send_calls": {"sendmsg"}, "receive_calls": {"recvmsg", "recvfrom"},
                  "other_calls": ASKS},
    "af_xdp": {"send_calls": {"sendto"}, "receive_calls": {"recvfrom"}, "other_calls": ASKS},
    "memif": {"receive_calls": {"read"}},
}
WAITS = {"sleeps": {"ppoll"}, "yields": {"sched_yield"}}
# The last call before a measured collective, and the first one after it.
BEGINS, ENDS = "getrusage(RUSAGE_SELF", "clock_gettime(CLOCK_THREAD_CPUTIME_ID"


def calls_in_collectives(text, collectives):
    """Returns the system calls by name, from a log of strace, that were made in the measured
    collectives.
    """
    counts = {}
    windows = 0
    measures = False
    for line in text.splitlines():
        if line.startswith(ENDS):
            measures = False
        found = re.match(r"(\w+)\(", line)
        if measures and found:
            counts[found[1]] = counts.get(found[1], 0) + 1
        # The same call comes after a collective, too, once the clocks have been read.
        if line.startswith(BEGINS):
            windows += 1
            measures = windows % 2 == 1
    expect_equal(windows, 2 * collectives, "readings before and after collectives in strace's log")
    return counts


def profile_beside_strace(lab, transport, **options):
    """Runs a job of two ranks, the first of which strace observes. Returns its report, and the
    calls that strace has seen.
    """
    job = lab.create_job()
    log = lab.directory / f"strace-{job['id']}"
    options = {"transport": transport, "check": True, "bytes": MIB, "warmup": 2, "iters": 5,
               "profile": True, "timeout_ms": 60000, **options}
    # strace makes the first rank so slow that results may always be there before it looks; the rank
    # has to wait for a second one that computes.
    late = {**options, "pause": 1, "pause_at": options["warmup"], "pause_busy": True}
    commands = [lab.perf_command(0, job, 0, 2, **options), lab.perf_command(1, job, 1, 2, **late)]
    ranks = [lab.spawn(0, [STRACE, "-o", log, *commands[0]], "perf"),
             lab.spawn(1, commands[1], "perf")]
    reports = reports_of(lab, ranks)
    expect_exact(reports, f"a profile beside strace, {transport}")
    lab.ctl("jobs", "destroy", job["id"])
    return reports[0], calls_in_collectives(log.read_text(), options["iters"])


@case(120, long=True)
def a_profile_counts_every_system_call_that_strace_sees():
    """The profile has the calls of the measured collectives alone: it misses none, and has none of
    the warm-up, barriers and checks.
    """
    for transport in CALLS:
        with running_lab(2, "af_packet" if transport == "udp" else transport, 1500) as lab:
            for _ in range(4):
                report, seen = profile_beside_strace(lab, transport)
                totals = report["profile"]["totals"]
                # A first rank that has no core while the second rank computes finds all results
                # there.
                if totals["sleeps"] + totals["yields"] > 0:
                    break
            for name, calls in {**CALLS[transport], **WAITS}.items():
                expect_equal(totals[name], sum(seen.get(call, 0) for call in calls),
                             f"{transport}: {name} beside {seen}")
            expect_equal(totals["system_calls"], sum(seen.values()),
                         f"{transport}: all system calls beside {seen}")
            expect(totals["sleeps"] + totals["yields"] > 0, f"{transport}: a rank never waited")
            expect_equal(report["profile"]["mib"], 5, f"{transport}: MiB of the measured vectors")
            expect(math.isclose(report["profile"]["per_mib"]["system_calls"],
                                totals["system_calls"] / 5), f"{transport}: system calls per MiB")


@case(120)
def a_profile_counts_packets_and_copies():
    """The counts agree with the vector's length, the payload and the switch's ports."""
    for transport in ("udp", "af_packet", "memif"):
        with running_lab(2, "af_packet" if transport == "udp" else transport, 1500) as lab:
            def claim(lab=lab, transport=transport):
                before = super_frames_of(lab, "h0")
                job = lab.create_job()
                reports = reports_of(lab,
                                     start_ranks(lab, job, bytes=4 * MIB, iters=6, warmup=1,
                                                 profile=True, transport=transport))
                expect_exact(reports, f"a profile of packets, {transport}")
                lab.ctl("jobs", "destroy", job["id"])
                return wrong_packets(reports[0], before, super_frames_of(lab, "h0")), reports
            expect_unless_repeated(claim)


def super_frames_of(lab, name):
    return next(port for port in lab.control.ask("ports.list")["ports"]
                if port["name"] == name)["super_frames"]


def wrong_packets(report, before, after):
    """Returns what is wrong in a profile of six allreduces of 4 MiB."""
    totals = report["profile"]["totals"]
    vectors = 6 * 4 * MIB
    blocks = 6 * math.ceil(4 * MIB / report["payload_bytes"])
    wrong = []
    if not blocks <= totals["frames_sent"] <= blocks + totals["retransmits"] + report["queries"]:
        wrong.append(f"{totals['frames_sent']} packets sent for {blocks} blocks, "
                     f"{totals['retransmits']} of them again")
    if totals["frames_received"] < blocks:
        wrong.append(f"{totals['frames_received']} packets received for {blocks} blocks")
    # memif's packets are built in shared memory; the kernel copies the others out of the vector.
    out = vectors if report["transport"] == "memif" else 0
    if not out <= totals["bytes_copied_out"] <= out + (totals["retransmits"]
                                                       * report["payload_bytes"]
                                                       if out else 64 * report["queries"]):
        wrong.append(f"{totals['bytes_copied_out']} bytes copied into packets, {out} expected")
    if not vectors <= totals["bytes_copied_in"] <= vectors * 1.01:
        wrong.append(f"{totals['bytes_copied_in']} bytes copied out of packets, {vectors} expected")
    # The port's counters cover the whole run, with its seventh allreduce.
    passed = after["rx_segments"] - before["rx_segments"]
    if report["transport"] == "udp":
        if not totals["super_frame_packets_sent"] <= passed <= totals[
                "super_frame_packets_sent"] * 7 / 6 * 1.05:
            wrong.append(f"{totals['super_frame_packets_sent']} packets sent in super-frames, of "
                         f"which the port has seen {passed}")
        if not 0.9 * blocks <= totals["super_frame_packets_sent"] <= totals["frames_sent"]:
            wrong.append(f"{totals['super_frame_packets_sent']} of {totals['frames_sent']} packets "
                         "sent in super-frames")
    elif totals["super_frame_packets_sent"] != 0:
        wrong.append(f"{totals['super_frame_packets_sent']} packets sent in super-frames over "
                     f"{report['transport']}")
    return wrong


class Marks:
    """Listens for fanin-perf's marks (--mark), and reads the CPU time of processes at each."""

    def __init__(self, path):
        self.path = path
        self.processes = []
        self.moments = []
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.listener.bind(str(path))
        self.listener.listen()
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self):
        for _ in range(2):
            connection, _ = self.listener.accept()
            with connection:
                self.moments.append([process_seconds(str(process.pid))
                                     for process in self.processes])


@case(120)
def a_profile_has_the_cpu_time_that_the_kernel_counts():
    """The case reads the ranks' times from outside at two marks, between which lie all measured
    allreduces except the last.
    """
    with running_lab(2, "af_packet", 1500) as lab:
        for transport in ("udp", "af_packet"):
            job = lab.create_job()
            marks = Marks(lab.directory / f"marks-{transport}")
            options = {"transport": transport, "check_ends": True, "bytes": 8 * MIB, "warmup": 2,
                       "iters": 24, "profile": True, "mark": marks.path}
            # The first rank begins last, so that both processes are known when it reaches its
            # marks.
            second = lab.spawn(1, lab.perf_command(1, job, 1, 2, **options), "perf")
            first = lab.spawn(0, lab.perf_command(0, job, 0, 2, **options), "perf")
            marks.processes = [first, second]
            reports = reports_of(lab, [first, second])
            expect_exact(reports, f"a profile of CPU time, {transport}")
            expect_equal(len(marks.moments), 2, "marks")
            for rank, report in enumerate(reports):
                check_times(report["profile"], marks.moments[1][rank] - marks.moments[0][rank],
                            f"{transport}, rank {rank}")


def check_times(profile, outside, where):
    """Checks a profile's times. outside: CPU seconds of all profiled collectives except the last,
    and of the barriers and readings in between.
    """
    totals, shares = profile["totals"], profile["shares"]
    inside = totals["cpu_seconds"] * (profile["collectives"] - 1) / profile["collectives"]
    print(f"{where}: {inside:.4f} s of CPU time, {outside:.4f} s with barriers and readings; "
          f"{profile['shares']}, {profile['verdicts']}")
    expect(0.75 * outside < inside < 1.1 * outside,
           f"{where}: {inside:.4f} s of CPU time in the profile, {outside:.4f} s from outside")
    parts = totals["user_seconds"] + totals["system_seconds"]
    expect(math.isclose(parts, totals["cpu_seconds"], rel_tol=0.1, abs_tol=0.01),
           f"{where}: {totals['cpu_seconds']:.4f} s of CPU time of {parts:.4f} s in its parts")
    expect(math.isclose(sum(shares.values()), 1, abs_tol=1e-4), f"{where}: shares {shares}")
    expect(math.isclose(shares["computing"] * profile["seconds"], totals["cpu_seconds"],
                        rel_tol=0.1), f"{where}: the only thread computes for "
                                      f"{shares['computing']:.0%}")
    # Each time on a core ends by one switch to another thread.
    switches = totals["voluntary_switches"] + totals["involuntary_switches"]
    expect(abs(totals["slices"] - switches) <= 3 * profile["collectives"],
           f"{where}: {totals['slices']:.0f} times on a core, {switches:.0f} times off it")


def names_of(report):
    return {verdict["name"] for verdict in report["profile"]["verdicts"]}


def text_of(report, name):
    return next(verdict["text"] for verdict in report["profile"]["verdicts"]
                if verdict["name"] == name)


def profiles(lab, **options):
    job = lab.create_job()
    reports = reports_of(lab,
                         start_ranks(lab, job,
                                     **{"bytes": MIB, "iters": 10, "warmup": 1, "profile": True,
                                        **options}))
    expect_exact(reports, f"a profile with {options}")
    lab.ctl("jobs", "destroy", job["id"])
    return reports


@case(120)
def a_profile_says_what_stands_out():
    with running_lab(2, "af_packet", 1500) as lab:
        for transport, wanted, unwanted in (("udp", set(),
                                             {"sent_one_by_one", "sent_again", "dropped"}),
                                            ("af_packet", {"sent_one_by_one"},
                                             {"received_one_by_one", "sent_again", "dropped"})):
            # On a busy machine timers are early, and packets are looked at one by one.
            for left in reversed(range(6)):
                found = [names_of(report) for report in profiles(lab, transport=transport)]
                if all(wanted <= names and not names & unwanted for names in found):
                    break
                expect(left != 0, f"what stands out in jobs without faults over {transport}, six "
                                  f"times: {found}")
        job = lab.create_job()
        # The second rank is late for most of the time that the collectives take: at most a window
        # of packets waits when it posts.
        late = {"iters": 2, "bytes": 8 * MIB, "profile": True, "transport": "udp"}
        ranks = [lab.spawn_perf(0, job, 0, 2, **late),
                 lab.spawn_perf(1, job, 1, 2, **late, pause=2, pause_busy=True)]
        waiting, busy = reports_of(lab, ranks)
        # In its own profile the second rank computes with the collective posted.
        expect("asleep" in names_of(waiting),
               f"of a rank that waits for another: {waiting['profile']}")
        expect(busy["profile"]["shares"]["asleep"] < 0.5 and "asleep" not in names_of(busy),
               f"of the rank that it waits for: {busy['profile']}")
    with running_lab(2, "af_packet", 1500, {"faults": {"drop": 0.05, "seed": 3}}) as lab:
        for report in profiles(lab, transport="udp", bytes=4 * MIB):
            expect("sent_again" in names_of(report), f"with loss: {report['profile']}")
            totals = report["profile"]["totals"]
            expect(f"{100 * totals['retransmits'] / totals['frames_sent']:.1f} %" in text_of(
                report, "sent_again"), f"with loss: {report['profile']['verdicts']}")


@case(120)
def a_profile_says_that_others_have_the_core():
    """Three programs that never sleep share the core of one of two ranks: this rank waits for the
    core while it could go on, and the other rank waits for this one.
    """
    with running_lab(2, "af_packet", 1500) as lab:
        core = min(os.sched_getaffinity(0))
        others = [lab.spawn(0, ["/usr/bin/taskset", "-c", core, sys.executable, "-c",
                                "while True: pass"], "busy") for _ in range(3)]
        options = {"bytes": 4 * MIB, "iters": 6, "profile": True, "transport": "udp"}
        for left in reversed(range(5)):
            job = lab.create_job()
            ranks = [lab.spawn(0, ["/usr/bin/taskset", "-c", core,
                                   *lab.perf_command(0, job, 0, 2, **options)], "perf"),
                     lab.spawn(1, lab.perf_command(1, job, 1, 2, **options), "perf")]
            first = reports_of(lab, ranks)[0]
            lab.ctl("jobs", "destroy", job["id"])
            # If the other rank and the switch have no core either, the first rank sleeps.
            if "run_queue" in names_of(first):
                break
            expect(left != 0, f"of a rank whose core others have, five times: {first['profile']}")
        for other in others:
            other.stop(signal.SIGKILL)
        totals = first["profile"]["totals"]
        expect(math.isclose(totals["run_queue_seconds"],
                            first["profile"]["shares"]["run_queue"] * first["profile"]["seconds"],
                            rel_tol=0.1),
               f"the only thread's waits: {first['profile']}")


@case()
def a_profile_is_printed_for_people():
    with running_lab(2, "af_packet", 1500) as lab:
        job = lab.create_job()
        options = {"bytes": MIB, "iters": 3, "transport": "af_packet", "profile": True}
        ranks = [lab.spawn(host, [word for word in lab.perf_command(host, job, host, 2, **options)
                                  if word != "--json"], "perf") for host in range(2)]
        for rank in ranks:
            expect_equal(rank.wait(60), 0, "exit status")
            text = rank.stdout()
            expect(re.search(r"^3 collectives of 1\.00 MiB in \d+\.\d+ s: computing \d+ %, waiting "
                             r"for a core \d+ %, asleep \d+ %$", text, re.MULTILINE),
                   f"where the time went in:\n{text}")
            expect(re.search(r"^packets sent +\d+\.\d +\d+\.0$", text, re.MULTILINE),
                   f"packets in:\n{text}")
            expect(re.search(r"^- packets leave one by one: af_packet sends no super-frames", text,
                             re.MULTILINE), f"what stands out in:\n{text}")
        # Without vectors the profile has nothing per MiB, and without the option there is no
        # profile.
        for options, wanted in (({"collective": "barrier", "profile": True}, None),
                                ({"bytes": 64 * KIB}, "none")):
            job = lab.create_job()
            report = reports_of(lab, start_ranks(lab, job, transport="udp", iters=3,
                                                 **options))[0] if wanted else \
                reports_of(lab, [lab.spawn_perf(host, job, host, 2, iters=3, transport="udp",
                                                **options) for host in range(2)])[0]
            expect(report["ok"], f"a job with {options}: {report}")
            if wanted:
                expect_equal(report["profile"], None, "the profile without --profile")
            else:
                expect_equal((report["profile"]["per_mib"], report["profile"]["collectives"]),
                             (None, 3), "the profile of barriers")


def worker_of(lab):
    return lab.control.ask("stats")["workers"][0]


def cpu_share(lab):
    """Returns the worker's share of a core since the switch began, in percent."""
    stats = lab.control.ask("stats")
    return stats["workers"][0]["cpu_us"] / 1e4 / stats["uptime_s"]


def worker_thread(lab):
    """Returns the directory in which the kernel describes the thread of the switch's only worker.
    """
    threads = [path for path in Path("/proc", str(lab.switch.pid), "task").iterdir()
               if "worker" in (path / "comm").read_text()]
    expect_equal(len(threads), 1, "threads of workers")
    return threads[0]


def schedstat_us(thread):
    ran, waited, slices = map(int, (thread / "schedstat").read_text().split())
    return ran / 1e3, waited / 1e3, slices


@case()
def stats_have_the_times_of_a_workers_thread():
    with running_lab(2, "af_packet", 1500, {"idle": {"policy": "sleep"}}) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=200, check=False, transport="udp")
        wait_for_results(lab, job, 1000)
        before = schedstat_us(worker_thread(lab))
        told = worker_of(lab)
        after = schedstat_us(worker_thread(lab))
        for name, least, most in zip(("cpu_us", "run_queue_us", "slices"), before, after):
            expect(0 < least - 0.01 <= told[name] <= most + 0.01,
                   f"{name}: found {told[name]}, the kernel says {least} to {most}")
        expect_exact(reports_of(lab, ranks), "a job beside stats")
        before = worker_of(lab)
        # The worker only sleeps now; a ping wakes it, unless others have its core.
        wait_until(lambda: worker_of(lab)["sleeps"] > before["sleeps"] + 10, 10,
                   "the worker to sleep")
        wakes = worker_of(lab)["wakes"]

        def woken():
            lab.spawn(0, ["/usr/bin/ping", "-c", "20", "-i", "0.05", lab.host_ip(1)],
                      "ping").wait(60)
            return worker_of(lab)["wakes"] >= wakes + 15
        wait_until(woken, 60, "15 frames that wake the worker")
        now = worker_of(lab)
        expect(now["wakes"] <= now["sleeps"],
               f"{now['wakes']} of {now['sleeps']} sleeps ended by a frame")
        shares = [cpu_share(lab)]
        table = lab.ctl("stats").stdout
        shares.append(cpu_share(lab))
        for header in ("PER BURST", "RUN QUEUE", "WOKEN", "LONGEST ROUND", "LONG ROUNDS", "RX SEGS",
                       "TX SEGS"):
            expect(header in table, f"{header} is not in:\n{table}")
        share = re.search(r"^ *LCORE +CPU .*\n *\d+ +(\d+\.\d) % ", table, re.MULTILINE)
        expect(share and min(shares) - 2 < float(share[1]) < max(shares) + 2,
               f"CPU of the worker, {shares} %, in:\n{table}")


@case()
def stats_tell_how_long_a_worker_was_away_from_its_ports():
    """A worker that was stopped did not look at its ports; one that sleeps is not away."""
    for policy, stopped in (("yield", True), ("sleep", False)):
        with running_lab(2, "af_packet", 1500, {"idle": {"policy": policy}}) as lab:
            before = worker_of(lab)
            if stopped:
                lab.switch.popen.send_signal(signal.SIGSTOP)
                time.sleep(0.4)
                lab.switch.popen.send_signal(signal.SIGCONT)

                def told(before=before, lab=lab):
                    now = worker_of(lab)
                    return (now["longest_round_us"] >= 390000
                            and now["long_rounds"] > before["long_rounds"]
                            and f"{now['longest_round_us']:.0f} us" in lab.ctl("stats").stdout)
                wait_until(told, 60, "a worker that was stopped for 0.4 s to say so, and the table")
            else:
                wait_until(lambda before=before,
                           lab=lab: worker_of(lab)["sleeps"] > before["sleeps"] + 200, 60,
                           "a worker that sleeps")
                now = worker_of(lab)
                expect(now["long_rounds"]
                       - before["long_rounds"] < (now["sleeps"] - before["sleeps"]) / 4,
                       f"sleep counts as away: {before}, {now}")
