# SPDX-License-Identifier: BSD-3-Clause
"""Switches in a leaf-spine network route traffic that is not Fanin's: hosts reach each other over
every spine, and nothing loops.
"""

import contextlib
import json
import os
import re
import signal
import time

from tests.net.case_observe import LISTEN, NEXT_HOPS, Watch
from tests.net.case_switching import is_test_frame, ping, test_frame
from tests.net.frames import BROADCAST, RawPort
from tests.net.pace import wait_within
from tests.net.support import case, expect, expect_equal, wait_until
from lab.fabric import Fabric, leaf_spine
from lab.namespaces import ip_in

# Probes need 0.25 s. On a busy machine the leaves' own threads wait for a core, too.
FAILOVER_SECONDS = 1
LEAVES, SPINES = ("leaf0", "leaf1"), ("spine0", "spine1")


@contextlib.contextmanager
def running_fabric(hosts=4, transport="af_packet", config=None):
    """Runs two leaves and two spines that have found each other."""
    with Fabric(leaf_spine(2, 2, hosts), transport, config=config) as fabric:
        fabric.start()
        fabric.await_next_hops()
        yield fabric


def single_ping(fabric, source, address, *options):
    """Returns what one ping printed."""
    process = fabric.spawn(source, ["ping", "-n", "-c", "1", "-W", "1", *options, address], "ping")
    process.wait(60)
    return process.stdout()


def reach(fabric, source, address):
    """Waits for a first answer: a switch drops packets to a host until it knows the host's MAC
    address.
    """
    wait_until(lambda: " 1 received" in single_ping(fabric, source, address), 60,
               f"{address} to answer host {source}")


def iperf(fabric, source, target, seconds, *options):
    """Runs iperf3 between two hosts and returns the client; the server ends by itself."""
    server = fabric.spawn(target, ["iperf3", "-s", "-1", "--forceflush"], "iperf-server")
    wait_until(lambda: "listening" in server.stdout(), 60, "iperf3's server")
    return fabric.spawn(source,
                        ["iperf3", "-c", fabric.host_ip(target), "-t", seconds, "--json", *options],
                        "iperf")


def received_bytes(client, timeout):
    client.wait(timeout)
    report = json.loads(client.stdout())
    expect("error" not in report, f"iperf3: {report.get('error')}")
    return report["end"]["sum_received"]["bytes"]


def crosses(transport, config=None):
    with running_fabric(transport=transport, config=config) as fabric:
        switches = fabric.topology.switches
        local, remote = fabric.host_ip(1), fabric.host_ip(2)
        whole_packet = ["-M", "do", "-s", fabric.mtu - 28]
        ping(fabric, 0, local)
        for address in map(fabric.switch_ip, switches):
            reach(fabric, 0, address)
            ping(fabric, 0, address)
        for source in range(2):
            for target in range(2, 4):
                reach(fabric, source, fabric.host_ip(target))
                ping(fabric, source, fabric.host_ip(target), *whole_packet)
                ping(fabric, target, fabric.host_ip(source), *whole_packet)
        for ttl in (1, 2, 3):
            words = single_ping(fabric, 0, remote, "-t", ttl)
            expect("Time to live exceeded" in words, f"ping with TTL {ttl}: {words}")
            hops = [fabric.switch_ip(switch)
                    for switch in {1: ["leaf0"], 2: ["spine0", "spine1"], 3: ["leaf1"]}[ttl]]
            expect(any(f"From {hop} " in words for hop in hops),
                   f"TTL {ttl} did not end at one of {hops}: {words}")
        expect(" 1 received" in single_ping(fabric, 0, remote, "-t", "4"),
               "four hops were not enough")
        words = single_ping(fabric, 0, "10.99.0.1")
        expect("Net Unreachable" in words, f"a ping without a route: {words}")
        expect_equal([fabric.drops("leaf0").get(name) for name in ("ttl_exceeded", "no_route")],
                     [1, 1], "drops")
        expect(received_bytes(iperf(fabric, 0, 2, 2, "-P", 4), 30) > 1 << 20, "TCP hardly moved")
        expect(fabric.ask("leaf0", "stats")["switching"]["routed"] > 100,
               "routed packets were not counted")
        routes = json.loads(fabric.ctl("leaf0", "-j", "routes"))["routes"]
        expect(any(route["prefix"] == fabric.subnet("leaf1") and len(route["via"]) == 2
                   for route in routes), f"routes: {routes}")
        shown = fabric.ctl("leaf0", "neighbors")
        wanted = [(fabric.host_ip(host), f"h{host}", fabric.host_mac(host), "host")
                  for host in range(2)] + \
                 [(fabric.switch_ip(spine), f"to-{spine}", fabric.switch_mac(spine), "next hop")
                  for spine in SPINES]
        for words in wanted:
            expect(re.search("^" + " +".join(map(re.escape, (*words, "up"))) + " ", shown,
                             re.MULTILINE),
                   f"{words} is not among the neighbors:\n{shown}")


@case(120, long=True)
def hosts_reach_each_other_across_spines_on_af_packet_with_two_workers():
    cpus = sorted(os.sched_getaffinity(0))
    crosses("af_packet", {"workers": [{"lcore": 0, "cpu": cpus[0]}, {"lcore": 1, "cpu": cpus[-1]}]})


@case(120, long=True)
def hosts_reach_each_other_across_spines_on_af_xdp():
    crosses("af_xdp")


@case(90)
def broadcasts_stay_in_their_leaf_and_flows_use_all_spines():
    with running_fabric() as fabric:
        # DPDK's AF_PACKET driver takes a few frames of other interfaces while it starts: those
        # don't count.
        at_start = {switch: fabric.drops(switch) for switch in fabric.topology.switches}
        reach(fabric, 0, fabric.host_ip(2))
        taps = [RawPort(fabric.switch_ns(switch), f"to-{peer}")
                for switch in fabric.topology.switches
                for peer in fabric.topology.neighbors(switch)]
        with RawPort(fabric.host_namespace(
                0)) as sender, RawPort(fabric.host_namespace(1)) as local, \
                RawPort(fabric.host_namespace(2)) as remote:
            for number in range(100):
                sender.send(test_frame(fabric.host_mac(0), BROADCAST, f"broadcast {number:3}"))
                sender.send(test_frame(fabric.host_mac(0), "02:77:00:00:00:99",
                                       f"unknown {number:3}"))
            sender.send(test_frame(fabric.host_mac(0), BROADCAST, "end"))
            _, seen = local.wait_for(is_test_frame("end"))
            expect_equal(sum(map(is_test_frame("broadcast"), seen)), 100,
                         "broadcasts that the leaf's other host got")
            # Frames that have crossed a link would have arrived before this answer from behind the
            # link.
            ping(fabric, 0, fabric.host_ip(2))
            frames = [frame for tap in (*taps, remote) for _, frame in tap.arrived()]
            for text in ("broadcast", "unknown", "end"):
                expect(not any(map(is_test_frame(text), frames)),
                       f"\"{text}\" frames crossed a link between switches")
            expect(frames, "nothing at all was seen on the links")
        for tap in taps:
            tap.socket.close()
        before = fabric.port_counters("leaf0")
        expect(received_bytes(iperf(fabric, 0, 2, 1, "-P", 32), 30) > 1 << 20, "TCP hardly moved")
        after = fabric.port_counters("leaf0")
        for spine in SPINES:
            sent = after[f"to-{spine}"]["tx_frames"] - before[f"to-{spine}"]["tx_frames"]
            expect(sent > 100, f"{spine} carried {sent} frames of 32 flows")
        for switch in fabric.topology.switches:
            drops = {name: count for name,
                     count in fabric.drops(switch).items()
                     if count != at_start[switch].get(name, 0)}
            expect(set(drops) <= {"neighbor_unresolved", "tx_full"}, f"drops of {switch}: {drops}")


@case(120, thorough=True)
def traffic_goes_on_over_the_other_spine_when_one_is_killed_and_comes_back():
    def carried(spine):
        return fabric.port_counters("leaf1")[f"to-{spine}"]["rx_frames"]

    def carries(spine, frames=1000):
        before = carried(spine)
        wait_until(lambda: carried(spine) > before + frames, 60, f"TCP over {spine}")

    with running_fabric(hosts=2) as fabric:
        reach(fabric, 0, fabric.host_ip(1))
        client = iperf(fabric, 0, 1, 35, "-P", 8)
        for spine in SPINES:
            carries(spine)
        fabric.switches["spine0"].popen.kill()
        for leaf in LEAVES:
            wait_within(lambda leaf=leaf: fabric.next_hops(
                leaf) == {"to-spine0": "silent", "to-spine1": "up"}, FAILOVER_SECONDS,
                        f"{leaf} to see that a spine is gone")
        # From now on every flow has a path, whichever path it had before.
        ping(fabric, 0, fabric.host_ip(1))
        before = carried("spine0")
        carries("spine1")
        expect_equal(carried("spine0"), before, "frames from the dead spine")

        fabric.launch("spine0")
        fabric.await_switch("spine0")
        fabric.await_next_hops()
        carries("spine0")
        client.wait(60)
        report = json.loads(client.stdout())
        expect("error" not in report, f"iperf3: {report.get('error')}")
        for number, stream in enumerate(report["end"]["streams"]):
            moved = sum(interval["streams"][number]["bytes"]
                        for interval in report["intervals"][-5:])
            expect(moved > 0, f"flow {number} of 8 stood still in the last 5 s: {stream}")


@case(150)
def a_frozen_spine_and_a_cut_link_are_avoided_at_once_and_used_again():
    def states(spine0):
        return {"to-spine0": spine0, "to-spine1": "up"}

    def await_state(spine0, leaves=LEAVES):
        for leaf in leaves:
            wait_within(lambda leaf=leaf: fabric.next_hops(leaf) == states(spine0),
                        FAILOVER_SECONDS, f"{leaf} to see spine0 {spine0}")

    def lost(leaf):
        return {hop["port"]: hop["lost"] for hop in fabric.ask(leaf, "routes.list")["next_hops"]}

    with running_fabric(hosts=2, config={"metrics": {"listen": LISTEN}}) as fabric:
        watch = Watch(fabric.switch_ns("leaf0"))
        reach(fabric, 0, fabric.host_ip(1))
        before = lost("leaf0")
        for _ in range(3):
            fabric.switches["spine0"].popen.send_signal(signal.SIGSTOP)
            await_state("silent")
            # Every flow has a path, whichever path it had before.
            ping(fabric, 0, fabric.host_ip(1))
            watch.look()
            fabric.switches["spine0"].popen.send_signal(signal.SIGCONT)
            await_state("up")
        expect_equal(lost("leaf0")["to-spine0"], before["to-spine0"] + 3,
                     "times that the spine was lost")
        expect(re.search(r"to-spine0 .* up +3 +[0-9.]+", fabric.ctl("leaf0", "routes")),
               "faninctl does not tell how often it was lost")
        expect("next hop " in fabric.process_of("leaf0").stderr(),
               "the log does not tell of the next hop")
        expect(watch.has_moved(*NEXT_HOPS),
               f"of the metrics of next hops only {sorted(watch.moved & NEXT_HOPS)} moved")

        ip_in(fabric.switch_ns("spine0"), "link", "set", "to-leaf0", "down")
        await_state("no link", ["leaf0"])
        ip_in(fabric.switch_ns("spine0"), "link", "set", "to-leaf0", "up")
        await_state("up", ["leaf0"])
        expect_equal(lost("leaf0")["to-spine0"], before["to-spine0"] + 3,
                     "times that the spine was lost, without the link's")
        # A switch that was stopped itself declares no neighbor dead.
        before = lost("leaf0")
        for _ in range(3):
            fabric.switches["leaf0"].popen.send_signal(signal.SIGSTOP)
            time.sleep(1)
            fabric.switches["leaf0"].popen.send_signal(signal.SIGCONT)
        expect_equal(fabric.next_hops("leaf0"), states("up"),
                     "next hops after the leaf itself stood still")
        expect_equal(lost("leaf0"), before, "next hops lost by a leaf that stood still")
