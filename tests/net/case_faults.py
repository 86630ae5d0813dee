# SPDX-License-Identifier: BSD-3-Clause
"""A network that differs from the manager's topology: the log, `topology`, and the hosts' errors
name the difference.
"""

import socket

from lab.fabric import Fabric, leaf_spine as real_leaf_spine
from lab.namespaces import inside
from tests.net.manager_lab import (FOUR, MANAGER_PORT, Manager, Refused, close_all, leaf_spine,
                                   played)
from tests.net.support import KIB, Lab, case, expect, expect_equal, program, run, wait_until

RING = {"fallback": True, "endpoint": "10.77.0.1:4000"}


def start_manager(lab, switches, change=None):
    topology = leaf_spine(2, 2, 2, {name: switch.path for name, switch in switches.items()})
    if change is not None:
        change(topology)
    return Manager(lab, topology, reconcile_ms=300).start()


def rename_ends(topology, names):
    for link in topology["links"]:
        for end in ("a", "b"):
            link[end] = names.get(link[end], link[end])


def told_once(process, *words):
    lines = [line for line in process.stderr().splitlines() if all(word in line for word in words)
             and "job \"" not in line]
    expect_equal(len(lines), 1, f"lines of the log with {words}: {lines}")


def table(lab, manager):
    with inside(lab.switch_namespace):
        return run([program("faninctl"), "--manager", f"127.0.0.1:{MANAGER_PORT}", "--token-file",
                    str(manager.token_file),
                    "topology"]).stdout


def links_of(answer):
    return {(link["a"], link["b"]): (link["state"], link["error"]) for link in answer["links"]}


def expect_refused(manager, job, words):
    """Expects hosts that may not be a ring to get these words, and others to run as a ring with
    this reason.
    """
    try:
        manager.join(f"{job}-network", FOUR)
        expect(False, "a job without a tree was made")
    except Refused as error:
        expect_equal(error.code, "no_path", "code")
        for word in words:
            expect(word in error.message, f"found '{error.message}', expected '{word}' in it")
    clients, results = manager.join(f"{job}-ring", FOUR, **RING)
    expect_equal([result["mode"] for result in results], ["ring"] * 4, "modes")
    for word in words:
        expect(word in results[0]["reason"],
               f"found the reason '{results[0]['reason']}', expected '{word}' in it")
    close_all(clients)
    manager.wait_idle()


@case(60)
def links_at_ports_that_do_not_exist_are_named_and_not_used():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        # One of leaf1's uplinks is affected: the other one carries the jobs.
        manager = start_manager(lab, switches,
                                lambda topology: rename_ends(topology, {"leaf1:u0": "leaf1:up0"}))
        manager.wait_up(*switches)
        fault = "switch leaf1 has no port \"up0\" for its link to spine0:p1"
        expect_equal(links_of(manager.ask("topology")),
                     {("leaf0:u0", "spine0:p0"): ("up", ""), ("leaf0:u1", "spine1:p0"): ("up", ""),
                      ("leaf1:up0", "spine0:p1"): ("wrong", fault),
                      ("leaf1:u1", "spine1:p1"): ("up", "")}, "links")
        line = next(line for line in table(lab, manager).splitlines() if "leaf1:up0" in line)
        expect("wrong" in line and fault in line,
               f"found '{line}' in the table of links, expected {fault}")
        for number in range(3):
            clients, results = manager.join(f"j{number}", FOUR)
            expect_equal((results[0]["mode"], len(switches["spine0"].jobs),
                          len(switches["spine1"].jobs)), ("network", 0, 1),
                         "the job's way")
            close_all(clients)
            manager.wait_idle()
        # A switch that comes back reports its ports again.
        switches["leaf1"].stop()
        wait_until(lambda: manager.switch_state("leaf1") == "down", 60, "leaf1 to be down")
        switches["leaf1"].listen()
        manager.wait_up("leaf1")
        told_once(manager.process, "link leaf1:up0 - spine0:p1", fault)
        manager.stop()


@case(60)
def hosts_are_told_which_links_there_are_not():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        names = {"leaf1:u0": "leaf1:up0", "spine1:p1": "spine1:port1"}
        manager = start_manager(lab, switches, lambda topology: rename_ends(topology, names))
        manager.wait_up(*switches)
        expect_refused(manager, "links",
                       ("switch leaf1 has no port \"up0\" for its link to spine0:p1",
                                          "switch spine1 has no port \"port1\" for its link to "
                                          "leaf1:u1"))
        # The port appears: a switch with another configuration.
        switches["leaf1"].stop()
        switches["leaf1"].ports.append("up0")
        wait_until(lambda: manager.switch_state("leaf1") == "down", 60, "leaf1 to be down")
        switches["leaf1"].listen()
        manager.wait_up(*switches)
        clients, results = manager.join("again", FOUR)
        expect_equal(results[0]["mode"], "network", "mode with the port")
        close_all(clients)
        manager.stop()


@case(60)
def a_host_at_a_port_that_does_not_exist_is_told_so():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)

        def change(topology):
            topology["hosts"][0]["port"] = "host0"
        manager = start_manager(lab, switches, change)
        manager.wait_up(*switches)
        fault = "switch leaf0 has no port \"host0\""
        host = manager.ask("topology")["hosts"][0]
        expect_equal((host["at"], host["state"], host["error"]), ("leaf0:host0", "wrong", fault),
                     "the host")
        expect(fault in table(lab, manager), f"the table of hosts does not show {fault}")
        expect_refused(manager, "host", ("a link of rank 0: " + fault,))
        told_once(manager.process, "leaf0:host0", fault)
        manager.stop()


@case(60)
def switches_with_another_name_or_that_refuse_connections_are_named():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        switches["spine0"].name = "spine7"
        switches["spine1"].stop()
        # There is a socket, but no listener.
        with socket.socket(socket.AF_UNIX) as deaf:
            deaf.bind(str(switches["spine1"].path))
            manager = start_manager(lab, switches)
            manager.wait_up("leaf0", "leaf1")
            named = "calls itself \"spine7\", expected \"spine0\""
            refused = f"Connection refused ({switches['spine1'].path})"
            wait_until(lambda: all(word in str(manager.ask("topology")["switches"])
                                   for word in ("spine7", "refused")), 60,
                       "both errors in the topology")
            shown = {entry["name"]: entry for entry in manager.ask("topology")["switches"]}
            expect(shown["spine0"]["state"] == "down" and named in shown["spine0"]["error"],
                   f"found {shown['spine0']}")
            expect_equal((shown["spine1"]["state"], shown["spine1"]["error"]), ("down", refused),
                         "spine1")
            text = table(lab, manager)
            expect(named in text and refused in text, f"the table does not show both: {text}")
            expect_refused(manager, "spines",
                           ("switch spine0 is not reached", named, "switch spine1 is not reached",
                            refused))
            # The manager has tried several times meanwhile.
            told_once(manager.process, "spine0", named)
            told_once(manager.process, "spine1", "Connection refused")
            manager.stop()


class Crossed(Fabric):
    """The manager's topology has the uplinks of leaf0 the other way round."""

    def manager_topology(self):
        topology = super().manager_topology()
        rename_ends(topology, {"leaf0:to-spine0": "leaf0:to-spine1",
                               "leaf0:to-spine1": "leaf0:to-spine0"})
        return topology


@case(120)
def crossed_links_are_named_and_not_used():
    with Crossed(real_leaf_spine(2, 2, 2)) as fabric:
        fabric.start()
        fabric.await_next_hops()
        fabric.start_manager(reconcile_ms=300)
        faults = {("leaf0:to-spine1", "spine0:to-leaf0"): "leaf0:to-spine1 is connected to switch "
                                                          "spine1, expected spine0:to-leaf0",
                  ("leaf0:to-spine0", "spine1:to-leaf0"): "leaf0:to-spine0 is connected to switch "
                                                          "spine0, expected spine1:to-leaf0"}
        expected = {**{names: ("wrong", fault) for names, fault in faults.items()},
                    ("leaf1:to-spine0", "spine0:to-leaf1"): ("up", ""),
                    ("leaf1:to-spine1", "spine1:to-leaf1"): ("up", "")}
        wait_until(lambda: links_of(fabric.ask_manager("topology")) == expected, 60,
                   f"the links to be {expected}")
        text = fabric.ctl_manager("topology")
        options = {"bytes": 64 * KIB, "check": True, "transport": "af_packet"}
        ranks = [fabric.spawn_named(host, "ring", host, 2, **options) for host in range(2)]
        for rank in ranks:
            rank.wait(60)
        reports = [fabric.perf_report(rank) for rank in ranks]
        refused = [fabric.spawn_named(host, "network", host, 2, no_fallback=True, **options)
                   for host in range(2)]
        for rank in refused:
            rank.wait(60)
        for (a, b), fault in faults.items():
            expect(fault in text, f"the table of links does not show {fault}: {text}")
            told_once(fabric.manager, f"link {a} - {b}", fault)
        for report in reports:
            expect_equal((report["ok"], report["mode"]), (True, "ring"), "how a rank ran")
            expect(all(fault in report["mode_reason"] for fault in faults.values()),
                   f"found the reason '{report['mode_reason']}', expected {faults}")
        for rank in refused:
            said = rank.stdout() + rank.stderr()
            expect(all(fault in said for fault in faults.values()),
                   f"found the error '{said}', expected {faults}")
