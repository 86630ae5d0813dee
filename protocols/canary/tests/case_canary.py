# SPDX-License-Identifier: BSD-3-Clause
"""Jobs whose blocks have leaders, made by the network manager: they are on all switches between
their hosts, exact with packets lost, and the manager does not touch them when a switch is killed.
"""

import os
import signal
import struct
import time
from random import Random

from tests.net.frames import (ANSWER, ASK, HEADER_LEN, HERE, QUERY, REDUCE, REPEAT, RESTORE, RESULT,
                              UPWARD, RawPort, header, packet)
from tests.net.support import KIB, MIB, case, expect, expect_equal, wait_until
from tests.net.manager_lab import Refused
from protocols.multicast.tests.case_multicast import hosts_of
from tests.net.case_network import demo
from tests.net.case_strangers import in_vlan_0
from tests.net.case_levels import LOSS
from tests.net.case_trees import finish, jobs_left, managed_fabric, start
from lab.fabric import Fabric, leaf_spine

SWITCHES = ["leaf0", "leaf1", "spine0", "spine1"]
HANDLER = "canary"


class Paced(Fabric):
    """The links to the hosts are so slow that a job takes some time, on any machine."""

    def switch_config(self, switch):
        config = super().switch_config(switch)
        for port in config["ports"]:
            if port["name"].startswith("h"):
                port["rate_mbit"] = 100
        return config


def job_of(fabric):
    """Returns the manager's state of the only job once it runs; None before."""
    jobs = fabric.ask_manager("jobs")["jobs"]
    return jobs[0] if jobs and jobs[0]["state"] == "network" else None


def counted(fabric, switch, name):
    """Returns a counter of the only job at a switch; 0 if the switch does not have the job."""
    jobs = fabric.ask(switch, "jobs.list")["jobs"]
    return next((counter["count"] for job in jobs for counter in job["counters"]
                 if counter["name"] == name), 0)


def expect_exact(reports, where):
    for rank, report in enumerate(reports):
        expect(report.get("ok") and report["mismatches"] == 0,
               f"{where}: rank {rank}: {report.get('error') or report}")
        expect_equal((report["handler"], report["protocol"], report["mode"]),
                     (HANDLER, HANDLER, "network"), f"{where}: rank {rank}")


def expect_gone(fabric):
    wait_until(lambda: not any(jobs_left(fabric).values()), 60,
               "the job to be gone from all switches")
    wait_until(lambda: not fabric.ask_manager("jobs")["jobs"], 60,
               "the job to be gone from the manager")


@case(120, also_over_udp=True, family=True, thorough=True)
def a_job_with_leaders_is_on_all_switches_and_exact():
    with managed_fabric(leaf_spine(hosts=4)) as fabric:
        ranks = start(fabric, "job", None, handler=HANDLER, bytes=256 * KIB, iters=1000)
        wait_until(lambda: job_of(fabric), 60, "the job")
        job = job_of(fabric)
        expect_equal((job["shape"], sorted(job["switches"])), ("leaders", SWITCHES),
                     "shape and switches")
        expect_equal(jobs_left(fabric), dict.fromkeys(SWITCHES, 1), "jobs while it runs")
        for switch in SWITCHES:
            entry = fabric.ask(switch, "jobs.list")["jobs"][0]
            expect_equal((entry["id"], entry["window"], len(entry["links"])),
                         (job["numbers"][0], job["window"], 2), f"{switch}'s part")
        shown = fabric.ctl_manager("trees")
        expect("to-spine0,to-spine1" in shown, f"the leaves' links are not in:\n{shown}")
        expect_exact(finish(fabric, ranks), "a job with leaders")
        expect_gone(fabric)


@case(120, also_over_udp=True, long=True)
def the_manager_leaves_a_job_with_leaders_alone_when_a_spine_is_killed():
    with Paced(leaf_spine(hosts=4)) as fabric:
        fabric.start()
        fabric.start_manager()
        ranks = start(fabric, "job", None, handler=HANDLER, bytes=MIB, iters=60)
        wait_until(lambda: job_of(fabric), 60, "the job")
        number = job_of(fabric)["numbers"]
        spine = fabric.switches["spine0"]
        wait_until(lambda: counted(fabric, "spine0", "reduces") > 100, 60, "packets over a spine")
        spine.popen.kill()
        spine.popen.wait()
        wait_until(lambda: "down" in [entry["state"]
                                      for entry in fabric.ask_manager("topology")["switches"]], 60,
                   "the loss to be noticed")
        expect_equal((job_of(fabric)["state"], job_of(fabric)["numbers"]), ("network", number),
                     "the job after the loss")
        # The spine comes back, and has the job again.
        fabric.launch("spine0")
        fabric.await_switch("spine0")
        wait_until(lambda: jobs_left(fabric)["spine0"] == 1, 60,
                   "the job at the spine that is back")
        expect(all(rank.running() for rank in ranks),
               "the job was over before its spine was back: give it more iterations")
        expect_exact(finish(fabric, ranks), "a job that has lost a spine")
        counters = fabric.ask_manager("stats")["counters"]
        expect_equal((counters["jobs_moved"], counters["moves_failed"], counters["jobs_lost"]),
                     (0, 0, 0), "what the manager did")
        expect_gone(fabric)


@case(60, also_over_udp=True)
def a_job_with_leaders_that_is_destroyed_ends_at_its_hosts():
    """Ranks could go on without the job, because switches that lack it pass its packets on."""
    with managed_fabric(leaf_spine(hosts=4)) as fabric:
        ranks = start(fabric, "job", None, handler=HANDLER, iters=1000000, check=False,
                      bytes=64 * KIB)
        wait_until(lambda: job_of(fabric), 60, "the job")
        wait_until(lambda: counted(fabric, "leaf0", "reduces") > 100, 60, "packets")
        fabric.ctl_manager("jobs", "destroy", "job")
        for rank, report in enumerate(finish(fabric, ranks)):
            words = (report.get("error") or {}).get("message", "")
            expect("has ended the job" in words, f"rank {rank}: {words or report}")
        expect_gone(fabric)


@case(60)
def what_jobs_with_leaders_do_not_have_is_refused_by_name():
    with managed_fabric(leaf_spine(hosts=2)) as fabric:
        clients = hosts_of(fabric)
        for options, words in (({"size": 65}, "found 65 ranks, expected at most 64"),
                               ({"size": 2, "reproducible": True}, "found reproducible"),
                               ({"size": 2, "accumulate": "f32"}, "found accumulate f32"),
                               ({"size": 2, "trees": 2}, "found trees 2"),
                               ({"size": 2, "authenticate": True}, "found authenticate")):
            try:
                clients[0].ask("join", job="refused", rank=0, ip=fabric.host_ip(0), handler=HANDLER,
                               **options)
                expect(False, f"a job with {options} was not refused")
            except Refused as error:
                expect_equal(error.code, "invalid", f"code with {options}")
                expect(words in error.message, error.message)
        for client in clients:
            client.close()
        # The library refuses without asking the manager.
        ranks = start(fabric, "refused", 2, handler=HANDLER)
        for report in finish(fabric, ranks):
            expect("whose hosts lead blocks: found several trees" in (
                report.get("error") or {}).get("message", ""), f"{report}")


def leading(*arguments, **expected):
    """Runs the demo with leaders. Returns what it printed, which is exact unless something else is
    expected.
    """
    result = demo("--handler", HANDLER, *arguments)
    expected = {"ok": True, "mismatches": 0, "in_network": True, "handler": HANDLER, "error": None,
                "trees": [], **expected}
    for key, value in expected.items():
        expect_equal(result[key], value, f"{key} of the demo with {arguments}")
    return result


def counts_of(result, counter):
    return sum(counts[counter] for counts in result["aggregation"].values())


@case(200, also_over_udp=True, thorough=True)
def the_demos_with_leaders_are_exact_under_loss():
    for topology, hosts, size, switches in (("leaf-spine", 8, 4 * MIB, 4), ("tree3", 16, MIB, 7)):
        result = leading("--topology", topology, "--bytes", size, "--loss", "0.02", hosts=hosts)
        expect_equal(len(result["job_switches"]), switches,
                     f"switches that have the job on {topology}")
        expect(result["drops"].get("fault_drop", 0) > 0,
               f"{topology}: no packet was dropped: {result['drops']}")
        expect(counts_of(result, "merged") > 0,
               f"{topology}: nothing was merged: {result['aggregation']}")


@case(200, also_over_udp=True)
def jobs_with_leaders_share_few_slots_and_are_exact():
    result = leading("--topology", "leaf-spine", "--bytes", 4 * MIB, "--aggregators", 16, "--loss",
                     "0.01")
    expect(counts_of(result, "collisions") > 0 and counts_of(result, "restored") > 0,
           f"no collisions: {result['aggregation']}")


@case(120, long=True)
def jobs_with_leaders_run_side_by_side():
    # The jobs are long enough to be looked at before they are over.
    result = leading("--topology", "leaf-spine", "--bytes", 4 * MIB, "--iters", 4, "--jobs", 4)
    expect_equal([(job["ok"], job["mismatches"]) for job in result["further_jobs"]],
                 [(True, 0)] * 3, "the further jobs")


@case(200, also_over_udp=True, long=True)
def jobs_with_leaders_go_on_around_a_spine_or_end_by_name():
    for strike, target in (("--kill", "spine0"), ("--freeze", "spine1")):
        result = leading("--topology", "leaf-spine", strike, target)
        expect_equal((result["struck"].split()[0], result["rebuilt"]), (target, 0),
                     "what was struck, and runs that were begun anew")
    ended = {"in_network": False, "handler": ""}
    for strike in (("leaf1", "--no-dual-homed"), ("host3",)):
        result = leading("--topology", "leaf-spine", "--kill", *strike, **ended)
        expect("ended" in result, f"the hosts did not end: {result}")


@case(200, also_over_udp=True, thorough=True)
def hosts_with_two_links_lead_on_without_a_leaf():
    result = leading("--topology", "leaf-spine", "--kill", "leaf1")
    expect(result["dual_homed"], f"the hosts have one link each: {result}")
    expect_equal((result["struck"].split()[0], result["mismatches"]), ("leaf1", 0),
                 "what was struck, and wrong elements")


def strike(fabric, switch, random):
    """Kills a switch and starts it again, or stops it for a while."""
    process = fabric.switches[switch].popen
    if random.random() < 0.3:
        process.send_signal(signal.SIGSTOP)
        time.sleep(random.uniform(0.1, 1.5))
        process.send_signal(signal.SIGCONT)
        return
    process.kill()
    process.wait()
    time.sleep(random.uniform(0, 0.5))
    fabric.launch(switch)
    fabric.await_switch(switch)


@case(600, also_over_udp=True, thorough=True)
def failures_at_random_moments_cost_time_only():
    """Switches fail one after the other; hosts with two links need none of them. FANIN_FAILURES:
    the number of failures.
    """
    wanted, seed = int(os.environ.get("FANIN_FAILURES", "12")), int(os.environ.get("FANIN_SEED",
                                                                                   "1"))
    random = Random(seed)
    struck = 0
    with Paced(leaf_spine(hosts=4, dual_homed=True)) as fabric:
        fabric.start()
        fabric.start_manager()
        while struck < wanted:
            ranks = start(fabric, "job", None, handler=HANDLER, bytes=MIB, iters=100)
            wait_until(lambda: job_of(fabric), 60, "the job")
            wait_until(lambda: counted(fabric, "spine0", "reduces")
                       + counted(fabric, "spine1", "reduces") > 20, 60, "packets over spines")
            while struck < wanted and all(rank.running() for rank in ranks):
                switch = random.choice(list(fabric.topology.switches))
                strike(fabric, switch, random)
                struck += 1
                wait_until(lambda: jobs_left(fabric)[switch] == 1 or not job_of(fabric), 60,
                           f"the job at {switch} after failure {struck}")
                time.sleep(random.uniform(0.2, 0.8))
            expect_exact(finish(fabric, ranks), f"seed {seed}, after {struck} failures")
            expect_gone(fabric)


@case(120, also_over_udp=True, thorough=True)
def leaders_answer_while_their_applications_compute():
    """Rank 1 computes for 20 s, longer than all timeouts, with its last collective posted: the
    others get their results meanwhile, whatever is lost.
    """
    with managed_fabric(leaf_spine(hosts=4), config=LOSS) as fabric:
        others = [fabric.spawn_named(rank, "job", rank, 4, bytes=MIB, iters=10, check=True,
                                     handler=HANDLER, transport=fabric.transport,
                                     no_fallback=True,
                                     **({"pause": 20, "pause_at": 9, "pause_busy": True}
                                        if rank == 1 else {})) for rank in range(4)]
        computing = others.pop(1)
        began = time.monotonic()
        reports = finish(fabric, others)
        expect(computing.running(),
               f"rank 1 did not compute for so long: {time.monotonic() - began:.1f} s")
        expect_exact(reports[:1] + finish(fabric, [computing]) + reports[1:], "one rank computes")


class Forger:
    """
    A host that knows a rank's behaviour and the job's keys, and sends packets that only leaders of
    other blocks, or other ranks, may send.

    watched: a RawPort of the rank, which shows the job's packets. port: the forger's own.
    """

    LIE = struct.pack("<f", 1e6)

    def __init__(self, fabric, host, watched, port):
        self.fabric, self.host, self.watched, self.port = fabric, host, watched, port
        self.switch = fabric.topology.switch_of[host]
        self.keys, self.block, self.count, self.epoch = {}, 0, 0, 0
        self.sent = {"forged": 0, "tagged": 0}

    def learn(self):
        """Returns true if the forger knows all that packets contain."""
        for _, frame in self.watched.arrived():
            if len(frame) < 42 + HEADER_LEN or frame[23] != 17:
                continue
            fields = struct.unpack_from("<BBHIIHHIBBHHBBIQ", frame, 42)
            kind, job, epoch, block, count, key = (fields[i] for i in (1, 3, 4, 7, 10, 15))
            if kind not in (RESULT, REDUCE):
                continue
            self.keys[kind in UPWARD] = key
            self.job, self.epoch, self.block, self.count = job, epoch, max(
                block, self.block), max(count, self.count)
        return len(self.keys) == 2 and self.block > 50

    def send(self, what, content, address, mac=None):
        frame = packet(content, self.fabric.host_mac(self.host), self.fabric.host_ip(self.host),
                       mac or self.fabric.switch_mac(self.switch), address)
        self.port.send(in_vlan_0(frame) if what == "tagged" else frame)
        self.sent[what] += 1

    def make(self, kind, block, payload=b"", **fields):
        return header(kind, self.job, self.keys[kind in UPWARD], payload, epoch=self.epoch,
                      block=block, **fields)

    def forge(self, rank, hosts):
        """Sends lies about the blocks that are on their way and led by another rank. hosts: by
        rank.
        """
        sets = struct.pack("<QQQ", 0, 2**64 - 1, 2**64 - 1)
        elements = {"payload": self.LIE * self.count, "dtype": "f32", "op": "sum",
                    "count": self.count}
        for block in range(self.block - 2, self.block + 6):
            leader = block % len(hosts)
            all_others = (1 << len(hosts)) - 1 & ~(1 << leader)
            members = [0, all_others, all_others & ~(1 << rank), 2**64 - 1, 1 << 40 | 1 << rank]
            for flags in (0, 2):  # DIRECT
                for ranks in members if leader != rank else [1 << rank, *members[2:]]:
                    self.send("forged", self.make(REDUCE, block, flags=flags, members=ranks,
                                                  contributions=ranks.bit_count(),
                                                  number=0xfe004d0a, **elements),
                              self.fabric.host_ip(hosts[leader]))
            if leader == rank:
                continue
            for switch in self.fabric.topology.switches:
                self.send("forged", self.make(RESTORE, block, members=2**64 - 1, **elements),
                          self.fabric.switch_ip(switch))
            for other in hosts:
                address, mac = self.fabric.host_ip(other), self.fabric.host_mac(other)
                for kind in (RESULT, REPEAT):
                    lie = self.make(kind, block, contributions=len(hosts), **elements)
                    self.send("forged", lie, address)
                    if other != self.host:
                        self.send("forged", lie, address, mac)
                        self.send("tagged", lie, address, mac)
                self.send("forged", self.make(ANSWER, block, sets + b"\xff" * 72, rank=leader,
                                              count=1, number=1), address)
                self.send("forged", self.make(ASK, block, rank=leader, members=all_others), address)


def forge_beside_a_job(host, dropped):
    """Runs a job of four ranks on six hosts, one of which forges until the job ends. dropped: the
    reason for which its leaf drops packets without a tag.
    """
    hosts = [0, 1, 3, 4]
    with Paced(leaf_spine(hosts=6)) as fabric:
        fabric.start()
        fabric.start_manager()
        ranks = [fabric.spawn_named(at, "job", rank, len(hosts), bytes=MIB, iters=40, check=True,
                                    handler=HANDLER, transport=fabric.transport,
                                    no_fallback=True) for rank, at in enumerate(hosts)]
        with RawPort(fabric.host_namespace(
                1)) as watched, RawPort(fabric.host_namespace(host)) as port:
            forger = Forger(fabric, host, watched, port)
            wait_until(forger.learn, 60, "packets that show how the job's look")
            while all(rank.running() for rank in ranks):
                forger.learn()
                forger.forge(1, hosts)
                time.sleep(0.03)
        drops = fabric.drops("leaf0")
        expect_exact(finish(fabric, ranks), f"beside what host {host} forges")
        expect(forger.sent["forged"] > 1000 and forger.sent["tagged"] > 100,
               f"little was forged: {forger.sent}")
        for reason, what in ((dropped, "forged"), ("vlan_tagged", "tagged")):
            expect(drops.get(reason, 0) > forger.sent[what] // 2,
                   f"of {forger.sent} there were dropped: {drops}")
        expect_gone(fabric)


@case(120, long=True)
def what_only_others_may_say_of_a_block_changes_no_sum():
    """A member forges results and queries of blocks that another rank leads, and data of other
    ranks, also behind a VLAN tag, which hosts do not see.
    """
    forge_beside_a_job(1, "rank_unknown")


@case(120, long=True)
def a_stranger_with_the_key_changes_no_sum_of_a_job_with_leaders():
    forge_beside_a_job(2, "port_wrong")


@case(120)
def a_member_that_speaks_for_a_rank_that_is_gone_keeps_nobody_waiting():
    """Rank 3 is killed, and the host of rank 1 claims that rank 3 is there, and asks in its name.
    """
    hosts = [0, 1, 3, 4]
    with Paced(leaf_spine(hosts=6)) as fabric:
        fabric.start()
        fabric.start_manager()
        ranks = [fabric.spawn_named(at, "job", rank, len(hosts), bytes=MIB, iters=10000, check=True,
                                    handler=HANDLER, transport=fabric.transport,
                                    no_fallback=True, timeout_ms=3000) for rank,
                 at in enumerate(hosts)]
        with RawPort(fabric.host_namespace(1)) as port:
            forger = Forger(fabric, 1, port, port)
            wait_until(forger.learn, 60, "packets that show how the job's look")
            ranks[3].popen.kill()
            deadline = time.monotonic() + 30
            while any(rank.running() for rank in ranks[:3]):
                expect(time.monotonic() < deadline, "the ranks wait for one that is gone")
                forger.learn()
                for block in range(max(0, forger.block - 130), forger.block + 130):
                    if block % 4 in (0, 2):
                        for kind, number in ((HERE, 0), (QUERY, 7)):
                            forger.send("forged", forger.make(kind, block, rank=3, number=number),
                                        fabric.host_ip(hosts[block % 4]))
                time.sleep(0.2)
        for rank, report in enumerate(finish(fabric, ranks[:3])):
            expect_equal((report["error"]["code"], report["error"]["missing"]), ("timeout", [3]),
                         f"why rank {rank} ended: {report['error']}")
        drops = fabric.drops("leaf0").get("rank_unknown", 0)
        expect(drops > forger.sent["forged"] // 2, f"of {forger.sent} there were dropped: {drops}")
