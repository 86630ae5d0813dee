# SPDX-License-Identifier: BSD-3-Clause
"""Hosts with two links: the links that a job uses, and how the job goes on over the others when a
leaf, a port or a link fails.
"""

import signal

from tests.net.case_network import demo
from lab.fabric import SECOND_INTERFACE, Fabric, leaf_spine
from lab.namespaces import HOST_INTERFACE, ip_in
from tests.net.manager_lab import Manager, Refused, close_all, played
from tests.net.pace import Pace
from tests.net.support import Lab, MIB, case, expect, expect_equal, expect_exact, wait_until

RANK_SECONDS = 60
FIRST = ["10.77.0.1", "10.77.0.2"]
SECOND = ["10.77.1.1", "10.77.1.2"]


def two_links(switches):
    """Two hosts are at both leaves, and one is at leaf1 alone."""
    hosts = [{"links": [{"ip": f"10.77.{leaf}.{host + 1}", "switch": f"leaf{leaf}",
                         "port": f"h{host}"} for leaf in range(2)]}
             for host in range(2)]
    hosts.append({"ip": "10.77.1.9", "switch": "leaf1", "port": "h1"})
    return {"switches": [{"name": name, "control": str(switch.path)} for name,
                         switch in switches.items()],
            "links": [{"a": "leaf0:u0", "b": "spine0:p0"}, {"a": "leaf1:u0", "b": "spine0:p1"}],
            "hosts": hosts}


def places(results):
    return [(result["ip"], result["switch_ip"]) for result in results]


def at(leaf):
    """Returns the places of both hosts if a job uses them at this leaf."""
    return [(f"10.77.{leaf}.{host + 1}", f"10.77.{leaf}.254") for host in range(2)]


def moved(clients):
    return places([client.wait_event("moved") for client in clients])


@case(60)
def jobs_use_the_better_link_of_each_host():
    with Lab(1, "af_packet") as lab:
        switches = played(lab, spines=1)
        manager = Manager(lab, two_links(switches), heartbeat_ms=50, dead_after_ms=500).start()
        manager.wait_up(*switches)

        def uses(job):
            return [member["uses"] for entry in manager.ask("jobs")["jobs"] if entry["name"] == job
                    for member in entry["members"]]

        # One leaf is enough, and the second job takes the other leaf, whichever addresses the hosts
        # join with.
        first, results = manager.join("first", FIRST)
        expect_equal(places(results), at(0), "where the first job is")
        expect_equal([name for name, switch in switches.items() if switch.jobs], ["leaf0"],
                     "switches that have it")
        second, results = manager.join("second", [FIRST[0], SECOND[1]])
        expect_equal(places(results), at(1), "where the second job is")
        expect_equal(switches["leaf1"].created[0]["members"],
                     [{"port": "h0", "ip": "10.77.1.1", "rank": 0},
                      {"port": "h1", "ip": "10.77.1.2", "rank": 1}], "its members")
        # A host that is at leaf1 only draws the others there.
        third, results = manager.join("third", [FIRST[0], "10.77.1.9", FIRST[1]])
        expect_equal([result["ip"] for result in results], [SECOND[0], "10.77.1.9", SECOND[1]],
                     "addresses of the third job")
        try:
            manager.join("same", [FIRST[0], SECOND[0]])
            expect(False, "two ranks are on one host")
        except Refused as error:
            expect("ranks 0 and 1 are on the same host, at 10.77.0.1 and 10.77.1.1"
                   in error.message, str(error))

        # A port of one host goes down: the job moves as a whole, because one leaf is better than
        # two.
        switches["leaf0"].down = ["h0"]
        expect_equal(moved(first), at(1), "where the first job is without a link")
        expect_equal(uses("first"), SECOND, "links in use")
        wait_until(lambda: not switches["leaf0"].jobs, 60, "leaf0 to be rid of the job")
        # A killed manager knows which links the hosts use; then the other leaf goes, too.
        manager.kill()
        close_all(first + second + third)
        manager.start()
        key = {job: args["key"] for job, args in switches["leaf1"].jobs.items()}
        again = [manager.client() for _ in range(2)]
        number = next(entry["id"] for entry in manager.ask("jobs")["jobs"]
                      if entry["name"] == "first")
        results = [client.ask("reattach", job="first", rank=rank, key=key[number]) for rank,
                   client in enumerate(again)]
        expect_equal(places(results), at(1), "where the first job is after a crash")
        manager.wait_up(*switches)
        switches["leaf1"].stop()
        reason = again[0].wait_event("no_path")["reason"]
        for words in ("port h0 of switch leaf0, a link of rank 0, is down",
                      "switch leaf1 of rank 0 is not reached"):
            expect(words in reason, f"the reason without links: {reason}")
        switches["leaf0"].down = []
        expect_equal(moved(again), at(0), "where the first job is when its link is back")
        # A leaf that has come back is used again.
        switches["leaf1"].listen()
        manager.wait_up("leaf1")
        later, results = manager.join("later", FIRST)
        expect_equal(places(results), at(1), "where the next job is")
        # A host whose only link is down has no better one.
        switches["leaf1"].down = ["h1"]
        alone, results = manager.join("alone", ["10.77.1.9"])
        expect_equal(places(results), [("10.77.1.9", "10.77.1.254")],
                     "where a host is whose only link is down")
        close_all(again + later + alone)
        manager.stop()


def start(fabric, job, **options):
    options = {"bytes": 2 * MIB, "iters": 25, "check": True, "transport": fabric.transport,
               "no_fallback": True, **options}
    return [fabric.spawn_named(host, job, host, fabric.hosts, **options)
            for host in range(fabric.hosts)]


def finish(fabric, ranks):
    for rank in ranks:
        rank.wait(RANK_SECONDS)
    return [fabric.perf_report(rank) for rank in ranks]


def await_results(fabric, switch, count):
    def results():
        jobs = fabric.ask(switch, "jobs.list")["jobs"]
        return jobs[0]["stats"]["results"] if jobs else 0
    wait_until(lambda: results() >= count, 60, f"{count} results at {switch}")


def leaf_of_rank_0(fabric):
    """Returns the leaf of rank 0 of the only job that runs; None as long as there is none."""
    return next((node["switch"] for tree in fabric.ask_manager("trees")["trees"]
                 if tree["state"] == "network"
                 for node in tree["nodes"] if int(node["local"], 16) & 1), None)


@case(250, also_over_udp=True)
def a_host_goes_on_over_its_other_link():
    """Two hosts have two links, two have one."""
    with Fabric(leaf_spine(2, 1, 4, dual_homed=[0, 1])) as fabric:
        fabric.start()
        fabric.start_manager()
        namespace = fabric.host_namespace(0)
        ranks = start(fabric, "link")
        await_results(fabric, "leaf0", 200)
        expect_equal(fabric.port_counters("leaf0")["h0"]["link"], True, "the link that is up")
        ip_in(namespace, "link", "set", HOST_INTERFACE, "down")
        await_results(fabric, "leaf1", 200)
        expect_equal(fabric.port_counters("leaf0")["h0"]["link"], False, "the link that is down")
        reports = finish(fabric, ranks)
        expect_exact(reports, "a link that goes down")
        expect_equal([(report["resumed"], report["transport_reason"].split()[-1])
                      for report in reports],
                     [(1, SECOND_INTERFACE)] * 2 + [(1, HOST_INTERFACE)] * 2, "runs and interfaces")

        # While the link is down, a host that joins with its address is told to use the other link.
        expect_exact(finish(fabric, start(fabric, "elsewhere", iters=1)),
                     "a job that begins without the link")
        ip_in(namespace, "link", "set", HOST_INTERFACE, "up")
        wait_until(lambda: not fabric.ask("leaf0", "ping")["ports_down"], 60,
                   "the link to be up again")

        # Both leaves fail: the error comes in time, and names the reason.
        ranks = start(fabric, "both", timeout_ms=3000, iters=100000)
        used = wait_until(lambda: leaf_of_rank_0(fabric), 60, "the third job's tree")
        await_results(fabric, used, 200)
        for leaf in ("leaf0", "leaf1"):
            fabric.switches[leaf].popen.send_signal(signal.SIGKILL)
            fabric.switches[leaf].popen.wait()
        reports = finish(fabric, ranks)
        for report in reports:
            expect_equal(report["error"]["code"], "timeout", "code without a leaf")
            for words in ("the manager has no other tree: ",
                          "switch leaf0 of rank 0 is not reached",
                          "switch leaf1 of rank 0 is not reached"):
                expect(words in report["error"]["message"], report["error"]["message"])


@case(220, thorough=True)
def the_demo_survives_a_leaf_that_is_killed_or_frozen():
    for options in (["--kill", "leaf0"],
                    ["--freeze", "leaf2", "--hosts", 4, "--transport", "af_xdp", "--dual-homed"]):
        with Pace() as pace:
            result = demo("--topology", "leaf-spine", "--bytes", "4MiB", "--iters", 15, *options)
        expect_equal((result["ok"], result["mismatches"], result["rebuilt"], result["dual_homed"],
                      len(result["switches"])),
                     (True, 0, 1, True, 6), f"the demo with {options}")
        expect(result["outage_seconds"] is not None,
               f"how long there were no results is not told: {result}")
        pace.expect_within(result["outage_seconds"], 3, f"without results with {options}")
        gone = options[1]
        expect(gone in result["trees"][0]["hosts"]
               and gone not in result["trees_after"][0]["parents"],
               f"trees before and after {options}: {result['trees']} {result['trees_after']}")
