# SPDX-License-Identifier: BSD-3-Clause
"""
Late is not dead: the others wait for a rank that sleeps, is stopped or computes; a rank that is
killed or pulled off the network is named within the timeout. On one switch, on a leaf and a spine,
with and without a manager, and in the ring of the hosts.

FANIN_LATE_SECONDS: how long ranks are late, instead of 12 s, which is more than twice the timeout.
"""

import json
import os
import re
import signal
import time

from tests.net.case_by_name import expect_ring, spawn_by_name
from lab.fabric import MANAGER_IP, MANAGER_PORT, Fabric, leaf_spine, single
from tests.net.fake_manager import FakeManager
from tests.net.frames import QUERY, RawPort, header, job_key, packet
from lab.namespaces import HOST_INTERFACE, ip_in
from tests.net.pace import Pace, threads_without_core, wait_within
from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, job_entry,
                               program, reports_of, running_lab, start_ranks, wait_for_results,
                               wait_until)

LATE_SECONDS = float(os.environ.get("FANIN_LATE_SECONDS", "12"))
MAX_SECONDS = int(240 + 4 * LATE_SECONDS)
TIMEOUT_SECONDS = 5
TIMER_SECONDS = 0.5  # until a timeout is noticed, and told to the others
MAX_FRAMES = 100  # that a rank may send in addition because another one was late
RETRANSMIT = 1
ENDLESS = {"bytes": MIB, "iters": 1000000, "check": False}


def pull(lab, host):
    """Takes the host's end of the cable down; its process notices nothing else."""
    ip_in(lab.host_namespace(host), "link", "set", HOST_INTERFACE, "down")


def stop_for(process, seconds):
    process.popen.send_signal(signal.SIGSTOP)
    try:
        time.sleep(seconds)
    finally:
        process.popen.send_signal(signal.SIGCONT)


def timers_of(lab, ranks):
    """Returns the threads whose timers determine when ranks end, by number: the ranks', and those
    of switches, without whose answers they don't leave.
    """
    switches = lab.switches.values() if hasattr(lab, "switches") else [lab.switch]
    return [*(rank.pid for rank in ranks),
            *(int(thread) for switch in switches for thread in threads_without_core(switch.pid))]


def expect_named(lab, ranks, gone, lose, where, among=None):
    """
    Expects all others to end within the timeout and to name the rank. lose: makes it go, and
    returns when it went; the machine's pace is measured from its call on. among: ranks that may be
    named with it, which the switch can't distinguish.
    """
    others = [rank for number, rank in enumerate(ranks) if number != gone]
    with Pace(timers_of(lab, others)) as pace:
        since = lose()
        reports = reports_of(lab, others)
        seconds = time.monotonic() - since
    told = [report.get("error") or {} for report in reports]
    for report, error in zip(reports, told):
        expect_equal(error.get("code"), "timeout", f"{where}: {report}")
        missing = set(error["missing"])
        expect(gone in missing and missing <= {gone} | set(among or ()),
               f"{where}: rank {gone} is gone, {error} names others; all after {seconds:.2f} s: "
               f"{told}")
    pace.expect_within(seconds, TIMEOUT_SECONDS + TIMER_SECONDS,
                       f"{where}: that the others learn of it")


def lose_rank(lab, ranks, number, killed):
    """Kills a rank, or pulls its host's link; returns the time."""
    since = time.monotonic()
    if killed:
        ranks[number].popen.send_signal(signal.SIGKILL)
    else:
        pull(lab, number)
    return since


# ---- the switch alone

class Asker:
    """Queries the switch, as host 0 and with its address, about the block that waits longest, as
    overdue.
    """

    def __init__(self, lab, job):
        self.lab, self.job, self.number = lab, job, 0
        self.port = RawPort(lab.host_namespace(0))

    def waits(self):
        return self.lab.control.ask("jobs.waits", id=self.job["id"])

    def ask(self):
        blocks = self.waits()["blocks"]
        if not blocks:
            return
        self.number += 1
        content = header(QUERY, self.job["id"], job_key(self.job, QUERY), flags=RETRANSMIT,
                         number=self.number,
                         epoch=job_entry(self.lab, self.job)["epoch"], contributions=0,
                         block=blocks[0]["block"])
        self.port.send(packet(content, self.lab.host_mac(0), self.lab.host_ip(0), src_port=50000))

    def finds(self, **expected):
        """Returns whether the switch, queried once more, has found these ranks ended, or silent."""
        self.ask()
        told = self.waits()
        return {"ended": told["ended"], "silent": told["silent"]} == {"ended": [],
                                                                      "silent": []} | expected


@case(90)
def a_switch_tells_the_late_from_the_gone():
    with running_lab(3, "af_packet") as lab:
        for gone in ("killed", "pulled"):
            job = lab.create_job()
            ranks = start_ranks(lab, job, timeout_ms=600000, **ENDLESS)
            wait_for_results(lab, job, 100)
            ranks[2].popen.send_signal(signal.SIGSTOP)
            asker = Asker(lab, job)
            wait_until(lambda: [block["missing"] for block in asker.waits()["blocks"][:1]] == [[2]],
                       60, "rank 2 to be missing")
            before, since = job_entry(lab, job)["stats"], time.monotonic()
            for _ in range(8):
                expect(asker.finds(), f"a rank that is stopped is not late: {asker.waits()}")
                time.sleep(0.5)
            stats = job_entry(lab, job)["stats"]
            seconds = time.monotonic() - since
            probes, answers = (stats[name] - before[name] for name in ("probes", "probe_answers"))
            # A rank that delayed another one for a moment is also watched for 5 s.
            expect(seconds < probes <= 3 * (2 * seconds + 1),
                   f"found {probes} probes of at most 3 ranks in {seconds:.1f} s, expected two a "
                   "second")
            expect(answers >= probes - 3, f"answers are missing: {stats}")
            expect("late" in lab.ctl("jobs", "waits", job["id"]).stdout,
                   "faninctl does not say that rank 2 is late")
            if gone == "killed":
                ranks[2].popen.send_signal(signal.SIGKILL)
                wait_within(lambda: asker.finds(ended=[2]), 2, "rank 2 to be found ended")
                expect(", ended)" in lab.ctl("jobs", "waits", job["id"]).stdout,
                       "faninctl does not say that rank 2 has ended")
            else:
                pull(lab, 2)
                wait_within(lambda: asker.finds(silent=[2]), 3, "rank 2 to be found silent")
                expect(", silent)" in lab.ctl("jobs", "waits", job["id"]).stdout,
                       "faninctl does not say that rank 2 is silent")
                ip_in(lab.host_namespace(2), "link", "set", HOST_INTERFACE, "up")
                wait_within(asker.finds, 3, "rank 2 to be there again")
            for rank in ranks:
                rank.popen.kill()
                rank.wait(60)
            lab.ctl("jobs", "destroy", job["id"])


# ---- late

WAYS = {"punctual": {}, "asleep": {"pause": int(LATE_SECONDS), "pause_at": 3},
        "busy": {"pause": int(LATE_SECONDS), "pause_at": 3, "pause_busy": True},
        "stopped": {"pause": 2, "pause_at": 3}}  # when it is stopped


def late_ranks(spawn):
    """Starts a job for each way of being late, all at once. spawn(name, rank, options): starts a
    rank. Returns the jobs' ranks by name.
    """
    common = {"bytes": 64 * KIB, "iters": 6, "warmup": 1, "check": True}
    return {name: [spawn(name, rank, common | (options if rank == 2 else {})) for rank in range(4)]
            for name, options in WAYS.items()}


def wait_for_tree(fabric, name):
    """Returns the number that a job of the manager has on the switches, once it is there."""
    found = []

    def there():
        found[:] = [tree["id"] for tree in fabric.ask_manager("trees")["trees"]
                    if (tree["name"], tree["state"]) == (name, "network")]
        return bool(found)
    wait_until(there, 60, f"the tree of {name}")
    return found[0]


def results_at(fabric, switch, number):
    return sum(job["stats"]["results"] for job in fabric.ask(switch, "jobs.list")["jobs"]
               if job["id"] == number)


def expect_waited(lab, jobs, where):
    """Expects all jobs to be exact, and no host to have sent or received much more than without
    late ranks.
    """
    reports = {name: reports_of(lab, ranks, LATE_SECONDS + 180) for name, ranks in jobs.items()}
    frames = {}
    for name, found in reports.items():
        expect_exact(found, f"{where}, {name}")
        frames[name] = [report["frames_sent"] + report["frames_received"] for report in found]
    # Ranks that don't wait send as many frames. A busy machine has made a rank with more of them
    # repeat these.
    repeated = max(frames["punctual"]) - min(frames["punctual"])
    for name, found in frames.items():
        more = [a - b for a, b in zip(found, frames["punctual"])]
        expect(max(more) < MAX_FRAMES + repeated,
               f"{where}, {name}: a late rank cost the ranks {more} packets, expected fewer than "
               f"{MAX_FRAMES} and {repeated} each")


@case(MAX_SECONDS, also_over_udp=True)
def late_ranks_are_waited_for():
    with running_lab(4, "af_packet", config={"limits": {"max_jobs": 8}}) as lab:
        created = {name: lab.create_job() for name in WAYS}
        jobs = late_ranks(lambda name, rank,
                          options: lab.spawn_perf(rank, created[name], rank, 4,
                                                  transport=lab.transport,
                                                                     **options))
        wait_for_results(lab, created["stopped"], 1)
        stop_for(jobs["stopped"][2], LATE_SECONDS)
        expect_waited(lab, jobs, "one switch")


@case(MAX_SECONDS, long=True)
def late_ranks_are_waited_for_on_a_tree_of_the_manager():
    with Fabric(leaf_spine(2, 1, 4), config={"limits": {"max_jobs": 8}}) as fabric:
        fabric.start()
        fabric.start_manager()
        jobs = late_ranks(lambda name, rank,
                          options: fabric.spawn_named(rank, name, rank, 4,
                                                      transport=fabric.transport,
                                                                         **options))
        number = wait_for_tree(fabric, "stopped")
        wait_until(lambda: results_at(fabric, "leaf1", number) > 0, 60,
                   "results of the job to be stopped")
        stop_for(jobs["stopped"][2], LATE_SECONDS)
        expect_waited(fabric, jobs, "leaf and spine")
        expect_equal(fabric.ask_manager("stats")["counters"]["hosts_lost"], 0,
                     "hosts lost, although none was")


def root_of(fabric, name):
    """Returns the spine over which a job of the manager runs, once it runs."""
    wait_for_tree(fabric, name)
    return next(tree["nodes"][0]["switch"] for tree in fabric.ask_manager("trees")["trees"]
                if tree["name"] == name)


def wait_for_many_results(fabric):
    wait_until(lambda: any(job["stats"]["results"] > 100
                           for job in fabric.ask("leaf1", "jobs.list")["jobs"]), 60, "results")


def lose_the_spine(fabric, disturb):
    """Kills the spine of a running job, after disturb(); returns once the job is on another tree.
    """
    wait_for_many_results(fabric)
    spine = root_of(fabric, "train")
    disturb()
    fabric.switches[spine].popen.kill()
    fabric.switches[spine].popen.wait()
    wait_within(lambda: root_of(fabric, "train") != spine, 9, "the job to move")


@case(MAX_SECONDS, thorough=True)
def late_ranks_are_waited_for_while_the_job_moves():
    with Fabric(leaf_spine(2, 2, 4)) as fabric:
        fabric.start()
        fabric.start_manager()
        ranks = [fabric.spawn_named(rank, "train", rank, 4, transport=fabric.transport, bytes=MIB,
                                    iters=400, check=True)
                 for rank in range(4)]

        def frames():
            port = fabric.port_counters("leaf0")["h0"]
            return port["rx_frames"] + port["tx_frames"]
        lose_the_spine(fabric, lambda: ranks[3].popen.send_signal(signal.SIGSTOP))
        time.sleep(1)
        before = frames()
        time.sleep(LATE_SECONDS)
        # A JOIN and its answer each second, later every other second, and the kernels' ARP
        # requests.
        more = frames() - before
        most = min(30 + 3 * LATE_SECONDS, MAX_FRAMES)
        expect(more < most, f"rank 0 sent and received {more} packets in {LATE_SECONDS:.0f} s, "
                            f"expected fewer than {most:g}")
        expect(all(rank.running() for rank in ranks),
               "a rank gave up on one that was stopped while the job moved")
        ranks[3].popen.send_signal(signal.SIGCONT)
        reports = reports_of(fabric, ranks, LATE_SECONDS + 180)
        expect_exact(reports, "moved while a rank was late")
        expect(all(report["resumed"] >= 1 for report in reports),
               f"a rank was never moved: {reports}")


@case(MAX_SECONDS)
def the_wait_for_late_ranks_may_have_a_limit():
    with running_lab(3, "af_packet") as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, wait_limit_ms=8000, **ENDLESS)
        wait_for_results(lab, job, 100)
        with Pace(timers_of(lab, [ranks[0], ranks[2]])) as pace:
            ranks[1].popen.send_signal(signal.SIGSTOP)
            reports = reports_of(lab, [ranks[0], ranks[2]])
            seconds = time.monotonic() - pace.began
        pace.expect_within(seconds, 8 + TIMER_SECONDS, "waiting with a limit of 8 s")
        for report in reports:
            expect_equal((report["error"]["code"], report["error"]["missing"]), ("timeout", [1]),
                         "the error")
            waited = float(re.match(r"no result for (\d+\.\d) s: ", report["error"]["message"])[1])
            expect(waited >= 8, f"a rank waited for {waited} s, its limit is 8 s")
        ranks[1].popen.kill()
        ranks[1].wait(60)


# ---- gone

@case(180)
def a_rank_that_is_gone_is_named_within_the_timeout():
    with running_lab(4, "af_packet") as lab:
        for where in ("killed", "pulled off"):
            job = lab.create_job()
            ranks = start_ranks(lab, job, **ENDLESS)
            wait_for_results(lab, job, 100)
            expect_named(lab, ranks, 2, lambda killed=where == "killed",
                         ranks=ranks: lose_rank(lab, ranks, 2, killed),
                         f"one switch, {where}")
            ranks[2].popen.kill()
            ranks[2].wait(60)
            lab.ctl("jobs", "destroy", job["id"])


@case(240, also_over_udp=True, thorough=True)
def a_rank_that_is_gone_behind_a_spine_is_named_within_the_timeout():
    for named in (False, True):
        for where in ("killed", "pulled off"):
            with Fabric(leaf_spine(2, 1, 4)) as fabric:
                fabric.start()
                job, key = 5, "0x1234"
                if named:
                    fabric.start_manager()
                    ranks = [fabric.spawn_named(rank, "train", rank, 4, transport=fabric.transport,
                                                **ENDLESS) for rank in range(4)]
                else:
                    fabric.await_next_hops()
                    fabric.install(job, key, fabric.tree("spine0", range(4)),
                                   {rank: rank for rank in range(4)})
                    ranks = [fabric.spawn_rank(rank, job, key, rank, 4, **ENDLESS)
                             for rank in range(4)]
                wait_until(lambda: any(entry["stats"]["results"] > 100
                                       for entry in fabric.ask("leaf1", "jobs.list")["jobs"]), 60,
                           "results")
                expect_named(fabric, ranks, 3,
                             lambda killed=where == "killed", fabric=fabric,
                             ranks=ranks: lose_rank(fabric, ranks, 3, killed),
                             f"{where}, {'with' if named else 'without'} a manager", among=(2,))
                ranks[3].popen.kill()
                ranks[3].wait(60)


@case(300, thorough=True)
def a_rank_that_is_gone_while_the_job_moves_is_named_within_the_timeout():
    for late in (False, True):
        for where in ("killed", "pulled off"):
            with Fabric(leaf_spine(2, 2, 4)) as fabric:
                fabric.start()
                fabric.start_manager()
                ranks = [fabric.spawn_named(rank, "train", rank, 4, transport=fabric.transport,
                                            **ENDLESS) for rank in range(4)]
                lost = []

                def lose(killed=where == "killed", fabric=fabric, ranks=ranks, lost=lost):
                    lost.append(lose_rank(fabric, ranks, 3, killed))
                    return lost[0]
                if late:
                    lose_the_spine(fabric,
                                   lambda process=ranks[
                                       3]: process.popen.send_signal(signal.SIGSTOP))
                    time.sleep(TIMEOUT_SECONDS + 2)
                    expect(all(rank.running() for rank in ranks),
                           f"{where}: a rank gave up on one that was stopped")
                else:
                    wait_for_many_results(fabric)

                def lose_while_it_moves(fabric=fabric, lose=lose, lost=lost):
                    lose_the_spine(fabric, lose)
                    return lost[0]
                expect_named(fabric, ranks, 3, lose if late else lose_while_it_moves,
                             f"{where}, {'late before' if late else 'at once'}, while the job moves", among=(2,))
                ranks[3].popen.kill()
                ranks[3].wait(60)


# ---- the ring

def ring_of(lab, manager, **options):
    return [spawn_by_name(lab, rank, manager=manager.address, size=4, rank=rank, **options)
            for rank in range(4)]


@case(MAX_SECONDS, thorough=True)
def late_ranks_are_waited_for_in_a_ring():
    with running_lab(4) as lab, FakeManager(lab, ring="test") as manager:
        # With more data than the kernels' buffers hold: the late rank's window is closed.
        for way, options in (("asleep", {"pause": int(LATE_SECONDS), "pause_at": 3}),
                             ("busy", {"pause": int(LATE_SECONDS), "pause_at": 3,
                                       "pause_busy": True}), ("stopped", {})):
            common = {"bytes": 16 * MIB, "iters": 5 if options else 60}
            already = len(manager.told("heartbeat"))
            ranks = [spawn_by_name(lab, rank, manager=manager.address, size=4, rank=rank,
                                   **common | (options if rank == 2 else {})) for rank in range(4)]
            if way == "stopped":
                # A rank that is stopped before it has joined is late for the join, which has a
                # limit.
                wait_until(lambda least=already + 4: len(manager.told("heartbeat")) >= least, 60,
                           "a ring that runs")
                stop_for(ranks[2], LATE_SECONDS)
            expect_ring(reports_of(lab, ranks, LATE_SECONDS + 180), way, "test")


def expect_gone_is_named_in_a_ring(**options):
    with running_lab(4) as lab, FakeManager(lab, ring="test") as manager:
        for where in ("killed", "killed while it is late", "pulled off",
                      "pulled off while it is late"):
            already = len(manager.told("heartbeat"))
            ranks = ring_of(lab, manager, **ENDLESS | {"bytes": 16 * MIB} | options)
            wait_until(lambda: len(manager.told("heartbeat")) >= already + 4, 60,
                       "heartbeats of all hosts")
            if "late" in where:
                ranks[2].popen.send_signal(signal.SIGSTOP)
                time.sleep(TIMEOUT_SECONDS + 2)
                ended = [rank for rank in ranks if not rank.running()]
                expect(not ended, f"{where}: {len(ended)} ranks gave up on one that was stopped: "
                                  f"{[rank.stdout()[-600:] for rank in ended]}")
            expect_named(lab, ranks, 2, lambda killed="killed" in where,
                         ranks=ranks: lose_rank(lab, ranks, 2, killed),
                         f"ring, {where}")
            ranks[2].popen.kill()
            ranks[2].wait(60)
            ip_in(lab.host_namespace(2), "link", "set", HOST_INTERFACE, "up")


@case(240, long=True)
def a_rank_that_is_gone_is_named_in_a_ring():
    expect_gone_is_named_in_a_ring()


@case(240, thorough=True)
def a_rank_that_is_gone_in_a_sparse_allreduce_is_named_in_a_ring():
    expect_gone_is_named_in_a_ring(sparse=True, density=0.1)


# ---- the manager

@case(90 + int(LATE_SECONDS), thorough=True)
def a_stopped_host_stays_a_member():
    """The manager does not take a process's silence for its end: the process's machine reports the
    end.
    """
    with Fabric(leaf_spine(2, 1, 4)) as fabric:
        fabric.start()
        fabric.start_manager(grace_ms=1000)

        def lost():
            return fabric.ask_manager("stats")["counters"]["hosts_lost"]
        ranks = [fabric.spawn_named(rank, "train", rank, 4, transport=fabric.transport,
                                    timeout_ms=600000, **ENDLESS)
                 for rank in range(4)]
        wait_until(lambda: any(job["stats"]["results"] > 100
                               for job in fabric.ask("leaf1", "jobs.list")["jobs"]), 60, "results")
        stop_for(ranks[3], LATE_SECONDS)
        time.sleep(2)
        expect_equal(lost(), 0, "hosts lost, of which one was stopped")
        # A rank is stopped, and its machine disappears: nothing closes its connection.
        ranks[2].popen.send_signal(signal.SIGSTOP)
        time.sleep(1)
        ip_in(fabric.host_namespace(2), "link", "set", "mgmt0", "down")
        wait_within(lambda: lost() == 1, 11, "the manager to lose the host that does not answer")
        ranks[1].popen.send_signal(signal.SIGKILL)
        wait_within(lambda: lost() == 2, 1, "the manager to lose the host whose process has ended")
        words = fabric.manager.stderr()
        expect("nothing is heard of rank 2 any more" in words and "rank 3" not in words,
               f"the manager says: {words}")
        for rank in ranks:
            rank.popen.kill()
            rank.wait(60)


@case(40)
def a_rank_that_gives_up_fails_what_it_has_not_posted():
    with Fabric(single(3)) as fabric:
        fabric.start()
        fabric.start_manager()
        environment = ["env", f"FANIN_MANAGER={MANAGER_IP}:{MANAGER_PORT}",
                       f"FANIN_TOKEN={fabric.token_file.read_text().strip()}"]
        for round in range(3):
            ranks = [fabric.spawn(host,
                                  [*environment, program("giving-up"), f"round{round}",
                                   fabric.transport, HOST_INTERFACE, host, 3],
                                  "giving-up") for host in range(3)]
            for rank, process in enumerate(ranks):
                expect_equal(process.wait(20), 0, f"exit status of rank {rank}: {process.stderr()}")
                found = json.loads(process.stdout())
                if rank == 1:
                    expect(found["status"] == 0 and found["seconds"] < 1, f"giving up: {found}")
                else:
                    expect(found["status"] < 0,
                           f"round {round}: a barrier of rank {rank} that rank 1 was not in: "
                           f"{found}")
