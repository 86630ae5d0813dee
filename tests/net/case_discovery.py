# SPDX-License-Identifier: BSD-3-Clause
"""A manager whose topology lists only switches and links: switches find the hosts."""

import os
import signal
from types import SimpleNamespace

from tests.net.case_two_links import await_results, finish
from lab.fabric import MANAGER_IP, Fabric, leaf_spine
from tests.net.manager_lab import Client, Refused
from tests.net.support import MIB, LabError, case, expect, expect_equal, expect_exact, wait_until

NOWHERE = "10.77.1.77"


def start(fabric, job, **options):
    options = {"bytes": 2 * MIB, "iters": 60, "check": True, "transport": fabric.transport,
               "no_fallback": True, **options}
    return [fabric.spawn_named(host, job, host, fabric.hosts, **options)
            for host in range(fabric.hosts)]


def root_of(fabric):
    """Returns the root of the only job, if all of its switches have it."""
    trees = [tree for tree in fabric.ask_manager("trees")["trees"] if tree["state"] == "network"]
    whole = trees and all(node["state"] == "installed" for node in trees[0]["nodes"])
    return trees[0]["nodes"][0]["switch"] if whole else None


def kill_root(fabric):
    """Kills the root's switch once there are results, and waits for the job to continue with
    another one.
    """
    root = wait_until(lambda: root_of(fabric), 60, "the job's tree")
    await_results(fabric, root, 100)
    os.kill(fabric.switches[root].pid, signal.SIGKILL)
    fabric.switches[root].popen.wait()
    other = wait_until(lambda: root_of(fabric) not in (None, root) and root_of(fabric), 60,
                       "the job to have another root")
    await_results(fabric, other, 100)


def client_of(fabric):
    """Connects a client to the manager that may act as a host."""
    manager = SimpleNamespace(namespace=fabric.management, address=MANAGER_IP)
    return Client(manager, token=fabric.token_file.read_text().strip())


def hosts_of(fabric):
    return sorted((host["ip"], host["at"], host["discovered"])
                  for host in fabric.ask_manager("topology")["hosts"])


@case(120, long=True)
def hosts_are_found_by_their_switches_and_their_job_survives_spines_and_the_manager():
    with Fabric(leaf_spine(2, 3, 4)) as fabric:
        fabric.start()
        fabric.start_manager(discover=True)
        expect_equal(hosts_of(fabric), [], "hosts that are known before there is a job")
        ranks = start(fabric, "j")
        root = wait_until(lambda: root_of(fabric), 60, "the job's tree")
        expect(root.startswith("spine"), f"the root is {root}, expected a spine")
        places = [(fabric.host_ip(host), f"{fabric.topology.switch_of[host]}:h{host}", True)
                  for host in range(4)]
        expect_equal(hosts_of(fabric), places, "hosts that were found")
        expect_equal([line.split()[-1] for line in fabric.ctl_manager("topology").splitlines()
                      if ":h" in line], ["found"] * 4,
                     "the last column of the table")
        kill_root(fabric)
        # As after a crash: the manager knows their places from its database.
        os.kill(fabric.manager.pid, signal.SIGKILL)
        fabric.manager.popen.wait()
        fabric.start_manager()
        expect_equal(hosts_of(fabric), places, "hosts that are known after the manager's restart")
        kill_root(fabric)
        reports = finish(fabric, ranks)
        expect_exact(reports, "the job of found hosts")
        expect_equal([report["resumed"] for report in reports], [2] * 4,
                     "times that the job went on")

        # No host answers for an address of leaf1's subnet. The spines that were killed are still
        # dead.
        words = (f"rank 0: no host of the topology has the address {NOWHERE}",
                 "no answer to ARP at leaf1",
                 "not in the hosts' subnet of leaf0", "not reached: spine")
        client = client_of(fabric)
        try:
            client.ask("join", job="nobody", size=1, ip=NOWHERE)
            expect(False, "a host that is nowhere has a job")
        except Refused as error:
            expect_equal(error.code, "no_path", f"code of {error}")
            for part in words:
                expect(part in error.message,
                       f"found \"{error.message}\", expected \"{part}\" in it")
        result = client.ask("join", job="ring", size=1, ip=NOWHERE, fallback=True,
                            endpoint="192.0.2.1:4000")
        expect_equal(result["mode"], "ring", "what a host that is nowhere gets if it may")
        for part in words:
            expect(part in result["reason"],
                   f"found the reason \"{result['reason']}\", expected \"{part}\" in it")
        client.close()


@case(60, sanitized=True)
def switches_tell_where_their_hosts_are():
    with Fabric(leaf_spine(1, 1, 2)) as fabric:
        fabric.start()

        def find(switch, ip):
            answer, = fabric.ask(switch, "hosts.find", hosts=[{"ip": ip}])["hosts"]
            expect_equal(answer["ip"], ip, "the address that was asked for")
            return answer["port"], answer["asked"]

        # No host has sent a frame yet: the switch asks.
        for host in range(2):
            wait_until(lambda host=host: find("leaf0", fabric.host_ip(host)) == (f"h{host}", False),
                       60, f"host {host} to be found")
        expect_equal(find("leaf0", "10.77.0.77"), (None, True), "an unused address of the subnet")
        for switch, ip in (("spine0", fabric.host_ip(0)), ("leaf0", fabric.switch_ip("spine0")),
                           ("leaf0", "192.0.2.1"),
                           ("leaf0", fabric.switch_ip("leaf0"))):
            expect_equal(find(switch, ip), (None, False), f"{ip} at {switch}")
        # One request has all hosts of the largest job.
        several = fabric.ask("leaf0", "hosts.find",
                             hosts=[{"ip": fabric.host_ip(rank % 2)}
                                    for rank in range(4096)])["hosts"]
        expect_equal([entry["port"] for entry in several], ["h0", "h1"] * 2048,
                     "the ports of 4096 ranks")
        for arguments, words in (({}, "hosts"), ({"hosts": []}, "1 to 4096"),
                                 ({"hosts": [{"ip": "10.77.0.1"}] * 4097}, "1 to 4096"),
                                 ({"hosts": [{"ip": "10.77.0.256"}]}, "args.hosts[0].ip"),
                                 ({"hosts": ["10.77.0.1"]}, "expected an object"),
                                 ({"hosts": [{"ip": "10.77.0.1", "port": "h0"}]},
                                  "args.hosts[0].port")):
            try:
                fabric.ask("leaf0", "hosts.find", **arguments)
                expect(False, f"hosts.find took {str(arguments)[:60]}")
            except LabError as error:
                expect(words in str(error), f"found \"{error}\", expected \"{words}\" in it")
