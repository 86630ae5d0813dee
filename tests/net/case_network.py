# SPDX-License-Identifier: BSD-3-Clause
"""Networks with a manager: the demonstrations, and switches, managers and hosts that fail at any
moment while a job runs.
"""

import json
import os
import random
import signal
import time

from tests.net.support import KIB, MIB, case, expect, expect_equal, expect_exact, wait_until
from lab.fabric import Fabric, leaf_spine
from lab.namespaces import HOST_INTERFACE, Lab, ip_in, module, run
from tests.net.pace import Pace

RANK_SECONDS = 180
DEMO_SECONDS = 100
# A long run makes more failures: FANIN_FAILURES=100 tests/net/cases.py failures_at_random_moments
FAILURES = int(os.environ.get("FANIN_FAILURES", "6"))
KINDS = ("kill root", "freeze leaf", "manager", "link", "kill leaf", "freeze root")


def demo(*arguments, status=0):
    instead = [] if Lab.instead is None else Lab.instead.demo()
    done = run([*module("lab.demo"), "--json", *map(str, arguments), *instead], check=False,
               timeout=DEMO_SECONDS)
    expect_equal(done.returncode, status,
                 f"exit status of the demo with {arguments}: {done.stdout[-600:]} "
                 f"{done.stderr[-300:]}")
    return json.loads(done.stdout)


@case(220, thorough=True)
def the_demos_on_several_switches_are_exact_under_loss():
    for topology, hosts, size, switches in (("leaf-spine", 8, MIB, 4), ("tree3", 16, 300 * KIB, 7)):
        result = demo("--topology", topology, "--bytes", size, "--loss", "0.02")
        expect_equal((result["ok"], result["mismatches"], result["hosts"], result["in_network"],
                      result["rebuilt"]),
                     (True, 0, hosts, True, 0), f"the demo on {topology}")
        expect_equal((len(result["switches"]), len(result["trees"])), (switches, 1),
                     f"switches and trees of {topology}")
        expect(result["drops"].get("fault_drop", 0) > 0,
               f"{topology}: no packet was dropped: {result['drops']}")
    result = demo("--topology", "leaf-spine", "--bytes", MIB, "--loss", "0.02", "--trees", 3)
    expect_equal((result["ok"], result["mismatches"],
                  sorted(tree["root"] for tree in result["trees"]), result["trees_asked"]),
                 (True, 0, ["spine0", "spine1"], 3),
                 "the demo with as many trees as there are spines")
    expect("all links between the switches of its hosts" in result["trees_reason"],
           result["trees_reason"])


@case(90)
def the_demo_deals_hosts_to_leaves_such_that_their_order_comes_out():
    """Three hosts at each of two leaves would be refused."""
    random_data = ("--hosts", 6, "--reproducible", "--data", "random", "--bytes", MIB)
    leaves = demo("--topology", "leaf-spine", *random_data)
    expect_equal((leaves["ok"], leaves["mismatches"], leaves["trees"][0]["hosts"]),
                 (True, 0, {"leaf0": [0, 1, 2, 3], "leaf1": [4, 5]}),
                 "the demo on two leaves")
    expect_equal(leaves["digest"], demo(*random_data)["digest"],
                 "digests of two leaves and of one switch")


@case(60, thorough=True)
def the_demo_tells_what_links_carry_and_compares_it_with_a_ring():
    for arguments, low, high in (((), 1, 1.1), (("--ring",), 1.75, 2)):
        result = demo("--topology", "leaf-spine", "--bytes", "16MiB", *arguments)
        expect_equal((result["ok"], result["in_network"], len(result["trees"])),
                     (True, not arguments, 0 if arguments else 1),
                     f"the demo with {arguments}")
        used = {kind: [part for both in links.values() for part in both if part > 0.1] for kind,
                links in result["traffic"].items()}
        expect_equal(len(used["hosts"]), 16,
                     f"ways of links to hosts that carry something, with {arguments}")
        expect(used["switches"] and all(part <= high for part in used["switches"]),
               f"with {arguments}: {result['traffic']}")
        expect(all(low <= part <= high for part in used["hosts"]),
               f"with {arguments}: {result['traffic']}")


@case(150, long=True)
def the_demo_survives_what_it_kills():
    with Pace() as pace:
        result = demo("--topology", "leaf-spine", "--bytes", "8MiB", "--iters", 15, "--kill",
                      "spine0")
    expect_equal((result["ok"], result["mismatches"], result["rebuilt"]), (True, 0, 1),
                 "the demo whose spine is killed")
    expect(result["outage_seconds"] is not None,
           f"how long there were no results is not told: {result}")
    pace.expect_within(result["outage_seconds"], 3, "without results")


@case(220, thorough=True)
def hosts_of_a_lost_switch_without_another_path_are_told_of_it():
    result = demo("--topology", "leaf-spine", "--bytes", "8MiB", "--iters", 15, "--kill", "leaf1",
                  "--no-dual-homed", status=1)
    expect_equal(result["ok"], False, "the demo without a path")
    expect(result["error"].count("the manager has no other tree: switch leaf1 of rank 4 is not "
                                 "reached") >= 4, result["error"])
    result = demo("--topology", "leaf-spine", "--bytes", "8MiB", "--iters", 15, "--kill", "host5")
    expect_equal(result["ok"], True, "that the others miss a killed host")


def start(fabric, job, **options):
    options = {"bytes": 2 * MIB, "iters": 12, "check": True, "transport": fabric.transport,
               "no_fallback": True, **options}
    return [fabric.spawn_named(host, job, host, fabric.hosts, **options)
            for host in range(fabric.hosts)]


def finish(fabric, where, ranks):
    for rank in ranks:
        rank.wait(RANK_SECONDS)
    reports = [fabric.perf_report(rank) for rank in ranks]
    expect_exact(reports, where)
    return reports


def root_of(fabric):
    trees = [tree for tree in fabric.ask_manager("trees")["trees"] if tree["state"] == "network"]
    return trees[0]["nodes"][0]["switch"] if trees else None


def revive(fabric, switch, frozen):
    if frozen:
        fabric.switches[switch].popen.send_signal(signal.SIGCONT)
    else:
        fabric.launch(switch)
        fabric.await_switch(switch)


def all_up(fabric):
    topology = fabric.ask_manager("topology")
    return all(entry["state"] == "up" for kind in ("switches", "hosts") for entry in topology[kind])


def jobs_left(fabric):
    return {switch: len(fabric.ask(switch, "jobs.list")["jobs"])
            for switch in fabric.topology.switches}


def leaf_of(fabric, host):
    """Returns the leaf at which the job has a host."""
    trees = [tree for tree in fabric.ask_manager("trees")["trees"] if tree["state"] == "network"]
    return next((node["switch"] for tree in trees for node in tree["nodes"]
                 if int(node["local"], 16) >> host & 1), None)


def strike(fabric, kind, host):
    """Makes something fail that the job uses. Returns the function that repairs it."""
    if kind == "manager":
        fabric.manager.popen.kill()
        fabric.manager.popen.wait()
        fabric.start_manager()
        return lambda: None
    if kind == "link":
        namespace = fabric.host_namespace(host)
        ip_in(namespace, "link", "set", HOST_INTERFACE, "down")
        return lambda: ip_in(namespace, "link", "set", HOST_INTERFACE, "up")
    target = root_of(fabric) if kind.endswith("root") else leaf_of(fabric, host)
    if target is None:
        return lambda: None  # the job is over
    process = fabric.switches[target].popen
    if kind.startswith("freeze"):
        process.send_signal(signal.SIGSTOP)
    else:
        process.kill()
        process.wait()
    return lambda: revive(fabric, target, kind.startswith("freeze"))


def fail_once(fabric, rng, number, kind, trees, within):
    """Runs one job, in which something that it uses, or the manager, fails in the first seconds;
    all is well again afterwards.
    """
    ranks = start(fabric, f"job{number}", op=rng.choice(("sum", "max")),
                  dtype=rng.choice(("f32", "i32")), trees=trees)
    wait_until(lambda: root_of(fabric) or not all(rank.running() for rank in ranks), 60,
               "the job's trees")
    time.sleep(rng.uniform(0, within))
    undo = strike(fabric, kind, rng.randrange(fabric.hosts))
    try:
        reports = finish(fabric, f"failure {number}: {kind}", ranks)
    finally:
        undo()
    wait_until(lambda: all_up(fabric), 60, "all switches to be up again")
    wait_until(lambda: not any(jobs_left(fabric).values()), 60,
               "the job to be gone from all switches")
    return max(report["resumed"] for report in reports)


def await_results(fabric, switch, ranks, n):
    """Returns as soon as the switch has n results, or all ranks have ended. Unlike wait_until it
    asks without a pause.
    """
    while any(rank.running() for rank in ranks):
        if sum(job["stats"]["results"] for job in fabric.ask(switch, "jobs.list")["jobs"]) >= n:
            break


@case(90, also_over_udp=True, thorough=True)
def the_last_result_reaches_those_who_lost_it_with_its_switch():
    """A rank with the last result stays until all ranks have it. One of five packets is lost, so
    only some ranks have the result when the leaf dies.
    """
    with Fabric(leaf_spine(2, 2, 4, dual_homed=True), mtu=9000,
                config={"faults": {"drop": 0.2, "seed": 4}}) as fabric:
        fabric.start()
        fabric.start_manager()
        for number in range(2):
            ranks = start(fabric, f"last{number}", bytes=4 * KIB, iters=1, warmup=0, timeout=20000)
            wait_until(lambda: root_of(fabric), 60, "the job's tree")
            leaf = leaf_of(fabric, 0)
            # the barrier's result before the collective, and the last one
            await_results(fabric, leaf, ranks, 2)
            fabric.switches[leaf].popen.kill()
            fabric.switches[leaf].popen.wait()
            finish(fabric, f"job {number}", ranks)
            revive(fabric, leaf, False)
            wait_until(lambda: all_up(fabric), 60, "all switches to be up again")


@case(90, also_over_udp=True, long=True)
def trees_that_fail_while_hosts_join_them():
    """When a tree moves, one host may have joined it and wait in the next tree, while others still
    wait for that host in the first.
    """
    rng = random.Random(1)
    with Fabric(leaf_spine(2, 2, 4, dual_homed=True), mtu=9000) as fabric:
        fabric.start()
        fabric.start_manager()
        for number in range(4):
            fail_once(fabric, rng, number, ("kill leaf", "kill root")[number % 2], 2, 0.1)


@case(60 + 12 * FAILURES, thorough=True, also_over_udp=True)
def failures_at_random_moments():
    """Some failures come before the first result or after the last: then nothing has to move. Each
    host has two leaves.
    """
    rng = random.Random(4)
    seen = {}
    with Fabric(leaf_spine(2, 2, 4, dual_homed=True), mtu=9000) as fabric:
        fabric.start()
        fabric.start_manager()
        for number in range(FAILURES):
            kind = KINDS[number % len(KINDS)]
            resumed = fail_once(fabric, rng, number, kind, rng.choice((1, 2)), 0.8)
            seen.setdefault(kind, []).append(resumed)
        for switch in fabric.topology.switches:
            expect_equal(fabric.ask(switch, "jobs.list")["jobs"], [], f"jobs left on {switch}")
    expect(any(resumed > 0 for kind in KINDS if kind != "manager"
               for resumed in seen.get(kind, [])), f"nothing ever moved: {seen}")
