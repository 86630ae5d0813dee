# SPDX-License-Identifier: BSD-3-Clause
"""The network manager with played switches, which refuse and vanish as a case wants: trees, all or
none, and everybody who should not be there.
"""

import os
import random
import sys
import time

from tests.net.support import Lab, case, expect, expect_equal, wait_until
from lab.fabric import Fabric, leaf_spine as real_leaf_spine
from lab.namespaces import LabError, ip_in
from tests.net.manager_lab import FOUR, TOKEN, Manager, Refused, close_all, played, played_manager

# A long run makes more jobs: FANIN_JOBS=1000 tests/net/cases.py
# a_hundred_jobs_and_a_manager_that_is_killed_leave_nothing
JOBS = int(os.environ.get("FANIN_JOBS", "100"))


@case(60)
def a_job_over_leaves_and_spines_has_its_tree_on_every_switch():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        switches["spine0"].mtu = 1500
        switches["leaf1"].slots_per_job = 100
        manager = played_manager(lab, switches)
        roots = []
        for number in range(4):
            clients, results = manager.join(f"job{number}", FOUR)
            job = results[0]["job"]
            tree = next(tree for tree in manager.ask("trees")["trees"] if tree["id"] == job)
            root = tree["nodes"][0]["switch"]
            roots.append(root)
            spine = int(root[-1])
            expect_equal(sorted(name for name, switch in switches.items() if job in switch.jobs),
                         sorted(["leaf0", "leaf1", root]), "switches that have the job")
            top = switches[root].jobs[job]
            expect_equal(top["members"], [{"port": "p0", "ip": "10.77.0.254", "ranks": [0, 2]},
                                          {"port": "p1", "ip": "10.77.1.254", "ranks": [1, 3]}],
                         "children of the root")
            expect("parent" not in top, "the root has a parent")
            for leaf in (0, 1):
                args = switches[f"leaf{leaf}"].jobs[job]
                expect_equal((args["key"], args["size"], args["slots"], args["payload_bytes"]),
                             (results[0]["key"], 4, 64, top["payload_bytes"]),
                             "what is equal everywhere")
                expect_equal(args["members"],
                             [{"port": "h0", "ip": f"10.77.{leaf}.1", "rank": leaf},
                                               {"port": "h1", "ip": f"10.77.{leaf}.2",
                                                "rank": leaf + 2}], "hosts of a leaf")
                expect_equal((args["parent"]["port"], args["parent"]["ip"]),
                             (f"u{spine}", f"10.79.{spine}.254"), "parent")
            expect_equal(top["payload_bytes"], 1408 if spine == 0 else 8896,
                         "payload of the least MTU on the path")
            expect_equal([result["switch_ip"] for result in results],
                         ["10.77.0.254", "10.77.1.254"] * 2, "hosts' switches")
            expect_equal(results[0]["window"], 32, "window")
        expect_equal(sorted(roots), ["spine0", "spine0", "spine1", "spine1"], "roots of four jobs")
        manager.stop()


@case(120)
def a_thousand_hosts_join_a_job_behind_full_leaves():
    leaves, full = 16, 64
    with Lab(1, "af_packet") as lab:
        switches = played(lab, leaves, 1, full + 1)
        manager = played_manager(lab, switches, leaves, 1, full + 1, limits={"connections": 2048})
        began = time.monotonic()
        clients, results = manager.join("big",
                                        [f"10.77.{leaf}.{host + 1}" for leaf in range(leaves)
                                         for host in range(full)])
        sys.stderr.write(f"{leaves * full} hosts have joined in {time.monotonic() - began:.2f} s\n")
        expect_equal([result["rank"] for result in results], list(range(leaves * full)), "ranks")
        expect_equal([result["switch_ip"] for result in results],
                     [f"10.77.{leaf}.254" for leaf in range(leaves) for _ in range(full)],
                     "switches of the hosts")
        job = results[0]["job"]
        root = switches["spine0"].jobs[job]
        expect_equal([member["ranks"] for member in root["members"]],
                     [list(range(full * leaf, full * leaf + full)) for leaf in range(leaves)],
                     "ranks behind the root's children")
        for leaf in range(leaves):
            args = switches[f"leaf{leaf}"].jobs[job]
            expect_equal((args["size"], [member["rank"] for member in args["members"]]),
                         (leaves * full, list(range(full * leaf, full * leaf + full))),
                         f"size, and hosts of leaf{leaf}")
        # The database has the job unchanged, and the manager names each lost rank.
        manager.kill()
        manager.start()
        back = [manager.client() for _ in range(2)]
        for client, rank in zip(back, (0, 1000)):
            client.ask("reattach", job="big", rank=rank, key=results[0]["key"])
        back[1].close()
        expect_equal(back[0].wait_event("member_lost")["rank"], 1000, "the rank that is lost")
        # One host more than a switch has room for, with or without a ring.
        wide = [f"10.77.0.{host + 1}" for host in range(full + 1)]
        for options, words in (({}, "leaf0 would have 65 hosts and switches"),
                               ({"fallback": True, "endpoint": "10.77.0.1:4000"},
                                "a ring of its hosts would have 65 ranks")):
            try:
                manager.join("wide", wide, **options)
                expect(False, "65 hosts have joined a job at one leaf")
            except Refused as refused:
                expect(refused.code == "no_room" and words in refused.message,
                       f"the refusal of 65 at a leaf: {refused}")
        close_all(clients + back[:1])
        manager.stop()


@case(60, sanitized=True)
def a_job_is_on_all_its_switches_or_on_none():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches)

        def nothing_left():
            manager.wait_idle()
            for switch in switches.values():
                expect_equal(switch.jobs, {}, f"jobs left on {switch.name}")

        # A spine has no room: the tree goes over the other one.
        switches["spine0"].refuse["jobs.create"] = ("no_room", "2 jobs exist")
        for number in range(2):
            clients, _ = manager.join(f"a{number}", FOUR)
            expect_equal((len(switches["spine0"].jobs), len(switches["spine1"].jobs)), (0, 1),
                         "jobs on the spines")
            close_all(clients)
            nothing_left()
        # A leaf has no room: the job becomes a ring if all members take one, else each gets an
        # error.
        switches["leaf1"].refuse["jobs.create"] = ("no_room", "limits.max_jobs")
        clients, results = manager.join("b", FOUR, fallback=True, endpoint="10.77.0.1:4000")
        expect_equal((results[1]["mode"], results[1]["endpoints"], results[1]["rank"]),
                     ("ring", ["10.77.0.1:4000"] * 4, 1), "ring")
        expect("limits.max_jobs" in results[1]["reason"],
               f"the reason '{results[1]['reason']}' is not the switch's")
        close_all(clients)
        nothing_left()
        try:
            manager.join("c", FOUR)
            expect(False, "a job without a tree was made")
        except Refused as error:
            expect_equal(error.code, "no_room", "code without room")
        nothing_left()
        del switches["leaf1"].refuse["jobs.create"], switches["spine0"].refuse["jobs.create"]
        # The manager skips job numbers that somebody else's jobs use on some switch.
        clients, results = manager.join("f", FOUR)
        taken = range(results[0]["job"] + 1, results[0]["job"] + 4)
        for number in taken:
            switches["leaf1"].jobs[number] = {"owner": ""}
        others, results = manager.join("g", FOUR)
        expect(results[0]["job"] not in taken, f"number {results[0]['job']} is another's")
        for number in taken:
            del switches["leaf1"].jobs[number]
        close_all(clients + others)
        nothing_left()
        # A spine that is lost while a job is made delays the job's removal until it is back.
        for spine in ("spine0", "spine1"):
            switches[spine].hang_up_on = "jobs.create"
        try:
            manager.join("d", FOUR)
            expect(False, "a job was made without its spine")
        except Refused as error:
            expect_equal(error.code, "no_path", "code without spines")
        for spine in ("spine0", "spine1"):
            switches[spine].hang_up_on = None
        manager.wait_up(*switches)
        nothing_left()
        # A switch that cannot be reached when the job ends loses the job later, even after a crash
        # of the manager.
        clients, results = manager.join("e", FOUR)
        root = next(name for name in ("spine0", "spine1") if switches[name].jobs)
        switches[root].stop()
        wait_until(lambda: manager.switch_state(root) == "down", 60, "the root to be lost")
        close_all(clients)
        wait_until(lambda: manager.ask(
            "jobs")["removals"] == [{"switch": root, "job": results[0]["job"]}], 60,
                   "the pending removal")
        manager.kill()
        manager.start()
        expect_equal(manager.ask("jobs")["removals"], [{"switch": root, "job": results[0]["job"]}],
                     "removal after the crash")
        switches[root].listen()
        nothing_left()
        manager.stop()


def trees_of(manager, name):
    return [tree for tree in manager.ask("trees")["trees"] if tree["name"] == name]


def begin_second_tree(manager, switches):
    """Four hosts join a job of two trees; the spine that is asked for the second tree does not
    answer. Returns (the hosts' requests, spine).
    """
    load, _ = manager.join("load", FOUR)
    spine = trees_of(manager, "load")[0]["nodes"][0]["switch"]
    switches[spine].silent_on = "jobs.create"
    clients = [manager.client() for _ in FOUR]
    requests = [(client, client.start("join", job="j", size=4, ip=ip, rank=rank, trees=2))
                for rank, (client, ip) in enumerate(zip(clients, FOUR))]
    wait_until(lambda: len(trees_of(manager, "j")) == 2, 60, "the second tree to be asked for")
    expect_equal([tree["state"] for tree in trees_of(manager, "j")], ["installing"] * 2,
                 "states before all are there")
    expect_equal(trees_of(manager, "j")[0]["nodes"][0]["switch"] == spine, False,
                 "the first tree's root is the loaded spine")
    close_all(load)
    return requests, spine


@case(60, sanitized=True)
def a_job_has_all_trees_that_can_be_had_and_none_half_made():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches, heartbeat_ms=50, dead_after_ms=400,
                                 reconcile_ms=300, grace_ms=2000)

        def nothing_left():
            manager.wait_up(*switches)
            manager.wait_idle()
            for switch in switches.values():
                wait_until(lambda: not switch.jobs, 60,
                           f"jobs of {switch.name} to go: {switch.jobs}")

        clients, results = manager.join("two", FOUR, trees=2)
        expect_equal([(result["trees"], result["trees_asked"], result["trees_reason"])
                      for result in results], [(2, 2, "")] * 4, "trees")
        numbers = {(result["job"], result["key"]) for result in results}
        more = {(tree["job"], tree["key"]) for result in results for tree in result["more_trees"]}
        expect_equal((len(numbers), len(more), len(numbers | more)), (1, 1, 2),
                     "numbers and keys of two trees")
        expect_equal([result["more_trees"][0]["switch_ip"] for result in results],
                     ["10.77.0.254", "10.77.1.254"] * 2, "hosts' switches")
        expect_equal(sorted(len(switch.jobs) for switch in switches.values()), [1, 1, 2, 2],
                     "jobs on spines and leaves")
        # After a crash both trees are there, and a host that comes back hears of both.
        manager.kill()
        manager.start()
        again = manager.client()
        back = again.ask("reattach", job="two", rank=2, key=results[2]["key"])
        expect_equal((back["trees"], back["more_trees"]), (2, results[2]["more_trees"]),
                     "trees after the crash")
        manager.ask("jobs.destroy", name="two")
        close_all([*clients, again])
        nothing_left()
        # Only one spine has room.
        switches["spine1"].refuse["jobs.create"] = ("no_room", "2 jobs exist")
        clients, results = manager.join("one", FOUR, trees=2)
        expect_equal([result["trees"] for result in results], [1] * 4, "trees without room")
        expect("switch spine1: 2 jobs exist" in results[0]["trees_reason"],
               results[0]["trees_reason"])
        # The hosts are answered before the leaves have confirmed that the second tree is gone.
        wait_until(lambda: not manager.ask("jobs")["removals"], 60,
                   "the second tree to be gone from the leaves")
        expect_equal((len(switches["spine0"].jobs), len(switches["leaf0"].jobs)), (1, 1),
                     "jobs on the spine with room and a leaf")
        close_all(clients)
        nothing_left()
        del switches["spine1"].refuse["jobs.create"]
        # The second tree's spine is lost while it is asked: the job goes on with the first.
        requests, spine = begin_second_tree(manager, switches)
        for client, request in requests:
            expect_equal(client.finish(request, "join")["trees"], 1, "trees when a spine is lost")
        switches[spine].silent_on = None
        close_all([client for client, _ in requests])
        nothing_left()
        # While the spine is asked the hosts leave, somebody destroys the job, or the manager is
        # killed.
        requests, spine = begin_second_tree(manager, switches)
        close_all([client for client, _ in requests])
        switches[spine].silent_on = None
        nothing_left()
        requests, spine = begin_second_tree(manager, switches)
        manager.ask("jobs.destroy", name="j")
        try:
            requests[0][0].finish(requests[0][1], "join")
            expect(False, "a host joined a job that was destroyed while it was made")
        except Refused as error:
            expect_equal(error.code, "not_found", f"code of {error}")
        switches[spine].silent_on = None
        close_all([client for client, _ in requests])
        nothing_left()
        requests, spine = begin_second_tree(manager, switches)
        manager.kill()
        switches[spine].silent_on = None
        close_all([client for client, _ in requests])
        manager.start()
        nothing_left()
        manager.stop()


@case(60, sanitized=True)
def who_should_not_join_is_told_why():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches, limits={"connections": 40, "jobs": 4})

        def refused(code, words=(), token=TOKEN, **arguments):
            try:
                client = manager.client(token=token)
                try:
                    client.ask("join", **{"job": "j", "size": 2, "ip": FOUR[0], **arguments})
                finally:
                    client.close()
            except Refused as error:
                expect_equal(error.code, code, f"code for {str(arguments)[:60]}")
                for word in words:
                    expect(word in error.message, f"'{error.message}' does not name {word}")
                return
            expect(False, f"a join with {str(arguments)[:60]} was taken")

        refused("unauthorized", token="wrong")
        refused("unauthorized", token=None)
        refused("invalid", ["job", "63"], job="x" * 10240)
        refused("invalid", ["job"], job="a b")
        refused("invalid", ["job"], job="")
        refused("invalid", ["size"], size=4097)
        refused("invalid", ["size"], size=0)
        refused("invalid", ["rank"], rank=2)
        refused("invalid", ["ip"], ip="127.0.0.1")
        refused("invalid", ["endpoint"], endpoint="somewhere")
        refused("invalid", ["accumulate"], accumulate="f64")
        refused("invalid", ["authenticate"], authenticate="yes")
        refused("invalid", ["colour"], colour="red")
        refused("no_path", ["10.9.9.9"], size=1, ip="10.9.9.9")
        refused("invalid", ["payload_bytes", "100"], size=1, payload_bytes=100)

        first = manager.client()
        number = first.start("join", job="j", size=2, rank=1, ip=FOUR[0])
        wait_until(lambda: manager.ask("jobs")["jobs"], 60, "the first member")
        refused("size_mismatch", ["2", "3"], size=3, ip=FOUR[1])
        refused("name_in_use", ["rank 1"], rank=1, ip=FOUR[1])
        refused("invalid", ["single"], handler="tree", ip=FOUR[1])
        refused("invalid", ["authenticate true", "false"], authenticate=True, ip=FOUR[1])
        try:
            first.ask("join", job="k", size=1, ip=FOUR[0])
            expect(False, "a connection is a member twice")
        except Refused as error:
            expect_equal(error.code, "invalid", "code for a second membership")
        second = manager.client()
        expect_equal(second.ask("join", job="j", size=2, ip=FOUR[1])["rank"], 0,
                     "rank that was left")
        expect_equal(first.finish(number)["rank"], 1, "rank that was asked for")
        refused("name_in_use", ["j"], ip=FOUR[2])
        first.close()
        expect_equal(second.wait_event("member_lost")["rank"], 1, "rank of the event")
        # Silent connections can't keep others out.
        silent = [manager.client(hello=False) for _ in range(100)]
        expect_equal(second.ask("heartbeat"), {}, "the live member's heartbeat")
        others, _ = manager.join("k", FOUR)
        stats = manager.ask("stats")["control"]
        expect(stats["half_open_dropped"] >= 60,
               f"half-open connections that were dropped: {stats}")
        expect_equal(stats["token_wrong"], 2, "wrong tokens")
        close_all(silent + others + [second])
        manager.wait_idle()
        # Junk of any kind ends only its own connection.
        for junk in ("", "junk", "{}", "[1]", '{"hello":2}', '{"hello":1}' * 1000, "\0" * 5000,
                     '{"hello":1,"token":{}}'):
            client = manager.client(hello=False)
            client.send_line(junk)
            expect("error" in client.receive(), f"the manager took {junk[:20]!r} for a handshake")
            client.close()
        manager.ask("version")
        manager.stop()


@case(60)
def a_network_that_fails_for_a_while_ends_no_job():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches, socket=str(lab.directory / "manager.sock"))
        clients, results = manager.join("j", FOUR[:2])
        person = manager.client(path=lab.directory / "manager.sock")

        def states():
            return [member["state"] for member in person.ask("jobs")["jobs"][0]["members"]]

        ip_in(lab.switch_namespace, "link", "set", "lo", "down")
        wait_until(lambda: states() == ["absent", "absent"], 60, "the hosts to be missed")
        ip_in(lab.switch_namespace, "link", "set", "lo", "up")
        again = [manager.client() for _ in clients]
        for rank, client in enumerate(again):
            expect_equal(client.ask("reattach", job="j", rank=rank, key=results[0]["key"])["job"],
                         results[0]["job"], "number")
        expect_equal(states(), ["live", "live"], "members after the network came back")
        close_all(clients + again)
        manager.wait_idle()
        manager.stop()


@case()
def a_job_that_must_be_whole_goes_with_the_first_host_that_is_lost():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches, on_host_loss="destroy")
        clients, _ = manager.join("j", FOUR)
        clients[2].close()
        expect_equal(clients[0].wait_event("member_lost")["rank"], 2, "rank of the event")
        expect_equal(clients[0].wait_event("job_destroyed")["job"], "j", "job of the event")
        manager.wait_idle()
        # A host that leaves is not lost.
        others, _ = manager.join("k", FOUR)
        others[0].ask("leave")
        expect_equal(len(manager.ask("jobs")["jobs"]), 1, "jobs after a host has left")
        close_all(clients + others)
        manager.wait_idle()
        manager.stop()


@case(60)
def a_job_whose_next_tree_cannot_be_made_is_tried_again():
    """The job's old tree is gone by then; hosts that come back meanwhile are told, and the manager
    goes on.
    """
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches, reconcile_ms=300, heartbeat_ms=50,
                                 dead_after_ms=500)
        clients, results = manager.join("j", FOUR)
        root = manager.ask("trees")["trees"][0]["nodes"][0]["switch"]
        other = "spine1" if root == "spine0" else "spine0"
        switches[other].refuse["jobs.create"] = ("invalid", "not today")
        switches[root].stop()
        expect("not today" in clients[0].wait_event("no_path")["reason"], "the reason of the event")
        clients[0].close()
        clients[1].wait_event("member_lost")
        again = manager.client()
        back = again.ask("reattach", job="j", rank=0, key=results[0]["key"])
        expect("not today" in back["stranded"] and "switch_ip" not in back,
               f"found the answer {back} without a tree")
        del switches[other].refuse["jobs.create"]
        for client in (clients[1], again):
            expect_equal(client.wait_event("moved")["job"], "j", "job that moved in the end")
        expect_equal(manager.ask("trees")["trees"][0]["nodes"][0]["switch"], other, "its new root")
        expect(manager.process.running(), "the manager has ended")
        close_all([*clients[1:], again])
        switches[root].listen()
        manager.wait_idle()
        manager.stop()


def job_that_moves(lab):
    """A job of two leaves whose spine is gone; the other spine does not answer. Returns the state
    with which a case goes on.
    """
    switches = played(lab)
    manager = played_manager(lab, switches, reconcile_ms=300, heartbeat_ms=50, dead_after_ms=500)
    clients, results = manager.join("j", FOUR)
    root = manager.ask("trees")["trees"][0]["nodes"][0]["switch"]
    return switches, manager, clients, results, switches[
        root], switches["spine1" if root == "spine0" else "spine0"]


def come_back(manager, results):
    """Reconnects a job's hosts to a manager that has started again."""
    clients = [manager.client() for _ in results]
    for rank, client in enumerate(clients):
        client.ask("reattach", job="j", rank=rank, key=results[rank]["key"])
    return clients


def has_moved(manager, root):
    tree = manager.ask("trees")["trees"][0]
    return tree["nodes"] and tree[
        "nodes"][0]["switch"] == root.name and all(node["state"] == "installed"
                                                   for node in tree["nodes"])


@case(60)
def a_manager_that_is_killed_while_a_job_moves_goes_on_with_that():
    with Lab(1, "af_packet") as lab:
        switches, manager, clients, results, root, other = job_that_moves(lab)
        other.silent_on = "jobs.create"
        root.stop()
        wait_until(lambda: manager.ask("jobs")["jobs"][0]["state"] == "installing", 60,
                   "the job to be on its way")
        manager.kill()
        close_all(clients)
        other.silent_on = None
        manager.start()
        clients = come_back(manager, results)
        wait_until(lambda: has_moved(manager, other), 60, "the job to have its other tree")
        job = results[0]["job"]
        expect_equal(sorted(name for name, switch in switches.items() if job in switch.jobs),
                     sorted(["leaf0", "leaf1", other.name, root.name]),
                     "switches that have the job")
        root.listen()
        wait_until(lambda: job not in root.jobs, 60, "the old root to be rid of the job")
        close_all(clients)
        manager.wait_idle()
        expect_equal([switch.jobs for switch in switches.values()], [{}] * 4, "jobs that are left")
        manager.stop()


@case(60)
def a_manager_that_is_killed_after_a_move_has_failed_tries_again():
    """The job has no tree then, on no switch and not in the database."""
    with Lab(1, "af_packet") as lab:
        switches, manager, clients, results, root, other = job_that_moves(lab)
        other.refuse["jobs.create"] = ("invalid", "not today")
        root.stop()
        clients[0].wait_event("no_path")
        manager.kill()
        close_all(clients)
        manager.start()
        manager.wait_up("leaf0", "leaf1", other.name)
        expect_equal([(job["name"], job["id"]) for job in manager.ask("jobs")["jobs"]],
                     [("j", results[0]["job"])],
                     "jobs after the crash")
        wait_until(lambda: manager.ask("stats")["counters"]["moves_failed"] > 0, 60,
                   "another attempt")
        del other.refuse["jobs.create"]
        clients = come_back(manager, results)
        wait_until(lambda: has_moved(manager, other), 60, "the job to have its other tree")
        expect_equal(switches["leaf0"].jobs[results[0]["job"]]["key"], results[0]["key"], "its key")
        close_all(clients)
        root.listen()
        manager.wait_idle()
        expect_equal([switch.jobs for switch in switches.values()], [{}] * 4, "jobs that are left")
        manager.stop()


def make_and_kill(manager, switches, addresses, jobs, seed):
    """Makes jobs one after the other, whose hosts come and go; kills the manager in the middle of
    many of them.
    """
    chance = random.Random(seed)
    kills = 0
    for number in range(jobs):
        ips = chance.sample(addresses, chance.randint(1, len(addresses)))
        clients = []
        try:
            clients = [manager.client() for _ in ips]
            trees = chance.randint(1, 3)
            requests = [client.start("join", job=f"j{number}", size=len(ips), ip=ip, trees=trees)
                        for client, ip in zip(clients, ips)]
            if chance.random() < 0.2:
                # The last join has begun: the answers of some requests have come, others have not.
                for _ in range(chance.randint(0, 3)):
                    manager.ask("version")
                kills += 1
                manager.kill()
            for client, request in zip(clients, requests):
                client.finish(request, "join")
        except (LabError, OSError) as error:
            expect(not manager.process.running(), f"job {number} of seed {seed} failed: {error}")
        close_all(clients)
        if not manager.process.running():
            manager.start()
            manager.wait_up(*switches)
    expect(kills >= jobs / 10, f"only {kills} kills with seed {seed}")
    manager.wait_idle()


@case(max(120, JOBS), thorough=True)
def a_hundred_jobs_and_a_manager_that_is_killed_leave_nothing():
    with Lab(1, "af_packet") as lab:
        switches = played(lab, max_jobs=200)
        manager = played_manager(lab, switches, grace_ms=0, reconcile_ms=300, heartbeat_ms=50,
                                 dead_after_ms=1000)
        make_and_kill(manager, switches, FOUR, JOBS, seed=7)
        expect(sum(len(switch.created) for switch in switches.values()) > JOBS,
               "hardly a job was made")
        for switch in switches.values():
            wait_until(lambda: not switch.jobs, 60, f"jobs of {switch.name} to go: {switch.jobs}")
        manager.stop()


def held(fabric, switch):
    """Returns what jobs could leave on a switch: themselves, memory of their slots, routes."""
    return (fabric.ask(switch, "jobs.list")["jobs"], fabric.ask(switch, "stats")["memory"]["slots"],
            fabric.ask(switch, "routes.list")["routes"])


@case(max(120, JOBS))
def jobs_leave_nothing_on_real_switches_when_the_manager_is_killed():
    with Fabric(real_leaf_spine(2, 2, 4)) as fabric:
        fabric.start()
        fabric.switch_namespace = fabric.switch_ns("leaf0")
        before = {switch: held(fabric, switch) for switch in fabric.topology.switches}
        manager = Manager(fabric, fabric.manager_topology(), grace_ms=0, reconcile_ms=300,
                          heartbeat_ms=50).start()
        manager.wait_up(*fabric.topology.switches)
        make_and_kill(manager, fabric.topology.switches,
                      [fabric.host_ip(host) for host in range(4)], JOBS, seed=8)
        for switch in fabric.topology.switches:
            wait_until(lambda: not fabric.ask(switch, "jobs.list")["jobs"], 60,
                       f"the jobs of {switch} to go")
            expect_equal(held(fabric, switch), before[switch], f"what {switch} holds")
        manager.stop()
