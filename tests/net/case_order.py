# SPDX-License-Identifier: BSD-3-Clause
"""The order of ranks of reproducible jobs: one digest wherever ranks are, after moves and over
several trees, or a refusal that names the ranks.
"""

import signal

from tests.net.case_two_links import two_links
from lab.fabric import Fabric, leaf_spine, tree3
from lab.namespaces import HOST_INTERFACE, ip_in
from tests.net.manager_lab import FOUR, Manager, Refused, close_all, played, played_manager
from tests.net.support import KIB, MIB, Lab, case, expect, expect_equal, wait_until

RANK_SECONDS = 120
RING = {"fallback": True, "endpoint": "10.77.0.1:4000"}


def start(fabric, where, trees=1, **options):
    """Starts a job, and returns the ranks' processes. where: a letter for each rank, "a" for the
    first leaf; the rank runs on the next host there.
    """
    leaves = [switch for switch in fabric.topology.switches if switch.startswith("leaf")]
    left = {leaf: [host for host, switch in enumerate(fabric.topology.switch_of) if switch == leaf]
            for leaf in leaves}
    options = {"bytes": 64 * KIB, "dtype": "f32", "data": "random", "check": True,
               "reproducible": True, "transport": fabric.transport,
               "trees": trees, "no_fallback": True, **options}
    return [fabric.spawn_named(left[leaves[ord(letter) - ord("a")]].pop(0), "job", rank, len(where),
                               **options)
            for rank, letter in enumerate(where)]


def finish(fabric, ranks):
    for rank in ranks:
        rank.wait(RANK_SECONDS)
    wait_until(lambda: not fabric.ask_manager("jobs")["jobs"], 60, "the job to be gone")
    return [fabric.perf_report(rank) for rank in ranks]


def digest_of(reports, where):
    """Returns the one digest of all ranks, whose sums have to be those of the order."""
    for rank, report in enumerate(reports):
        expect_equal((report["ok"], report["error"], report["mismatches"], report["in_network"]),
                     (True, None, 0, True), f"{where}: rank {rank}")
    digests = {report["digest"] for report in reports}
    expect_equal(len(digests), 1, f"{where}: digests of the ranks {digests}")
    return digests.pop()


def expect_refused(reports, where, *words):
    for report in reports:
        expect(not report["ok"], f"{where}: the job has run")
        for word in words:
            expect(word in report["error"]["message"],
                   f"{where}: found {report['error']['message']}, expected {word}")
        expect(len(report["error"]["message"]) < 500,
               f"{where}: a message of {len(report['error']['message'])} characters")


# Placements of ranks: on one leaf, in a row, reversed, and with a leaf at the root whose ranks are
# no row. Each comes with the words that refuse it, or "".
PLACEMENTS = (
    (("aaaa", ""), ("aabb", ""), ("bbaa", ""), ("abab", "ranks 0, 2 at leaf0, 1, 3 at leaf1")),
    (("aaaaa", ""), ("aaaab", ""), ("aabbb", ""),
     ("ababa", "ranks 0, 2, 4 at leaf0, 1, 3 at leaf1")),
    (("aaaaaa", ""), ("aaaabb", ""), ("bbbbaa", ""),
     ("aaabbb", "ranks 0-2 at leaf0, 3-5 at leaf1")),
    (("aaaaaaaa", ""), ("aaaabbbb", ""), ("bbbbaaaa", ""),
     ("aaabbbbb", "ranks 0-2 at leaf0, 3-7 at leaf1")),
)


@case(240, thorough=True)
def reproducible_sums_have_one_digest_on_any_leaves_and_trees_or_are_refused_by_name():
    with Fabric(leaf_spine(2, 2, 16)) as fabric:
        fabric.start()
        fabric.start_manager()
        for placements in PLACEMENTS:
            digests = set()
            for where, words in placements:
                reports = finish(fabric,
                                 start(fabric, where, trees=2 if where.startswith("aa") else 1))
                if words:
                    expect_refused(reports, where,
                                   f"a reproducible job of {len(where)} ranks: found {words}")
                else:
                    digests.add(digest_of(reports, where))
            expect_equal(len(digests), 1, f"digests of {placements}: {digests}")
        # The job uses both spines, one of which is killed.
        ranks = start(fabric, "aaaabbbb", trees=2, bytes=2 * MIB, iters=30)
        wait_until(lambda: all(job["stats"]["results"] > 200 for spine in ("spine0", "spine1")
                               for job in fabric.ask(spine, "jobs.list")["jobs"]
                               or [{"stats": {"results": 0}}]), 60, "results of both")
        fabric.switches["spine1"].popen.send_signal(signal.SIGKILL)
        fabric.switches["spine1"].popen.wait()
        reports = finish(fabric, ranks)
        moved = digest_of(reports, "a spine killed")
        expect_equal({report["resumed"] for report in reports}, {1}, "runs taken up again")
        expect_equal(digest_of(finish(fabric, start(fabric, "bbbbaaaa", bytes=2 * MIB, iters=30)),
                               "one spine"), moved, "digest without a move")


@case(120, also_over_udp=True, long=True)
def three_levels_have_the_digest_of_one_switch():
    with Fabric(tree3(16)) as fabric:
        fabric.start()
        fabric.start_manager()
        digests = {digest_of(finish(fabric, start(fabric, where)), where)
                   for where in ("aabbccdd", "ddccaabb", "aaaacccc", "aaaabbcc")}
        expect_equal(len(digests), 1, f"digests of 8 ranks: {digests}")
        expect_refused(finish(fabric, start(fabric, "aaccbbdd")), "leaves of two switches in turns",
                       "ranks 0-1, 4-5 at agg0, 2-3, 6-7 at agg1")
        # A leaf has only four hosts, so 4 ranks compare one switch with two.
        one = digest_of(finish(fabric, start(fabric, "aaaa")), "one switch")
        expect_equal(digest_of(finish(fabric, start(fabric, "aacc")), "two switches"), one,
                     "digest of 4 ranks")


def await_results(fabric, switch, count):
    def results():
        jobs = fabric.ask(switch, "jobs.list")["jobs"]
        return jobs[0]["stats"]["results"] if jobs else 0
    wait_until(lambda: results() >= count, 60, f"{count} results at {switch}")


@case(180, long=True)
def a_host_that_moves_keeps_the_order_or_the_job_ends():
    """Rank 1 has a second link. Without the first link it is alone at its leaf, so the ranks at
    leaf0 are no row any more.
    """
    many = {"bytes": 2 * MIB, "iters": 25}
    with Fabric(leaf_spine(2, 1, 5, dual_homed=[1], in_order=True)) as fabric:
        fabric.start()
        fabric.start_manager()
        expected = digest_of(finish(fabric, start(fabric, "aaaa", **many)), "one switch")
        # Four ranks: leaf0 becomes the root above the other leaf.
        ranks = start(fabric, "aaaa", **many)
        await_results(fabric, "leaf0", 200)
        ip_in(fabric.host_namespace(1), "link", "set", HOST_INTERFACE, "down")
        reports = finish(fabric, ranks)
        expect_equal(digest_of(reports, "a link that goes down"), expected, "digest after the move")
        expect_equal({report["resumed"] for report in reports}, {1}, "runs taken up again")
        ip_in(fabric.host_namespace(1), "link", "set", HOST_INTERFACE, "up")
        wait_until(lambda: not any(switch.get("ports_down")
                                   for switch in fabric.ask_manager("topology")["switches"]), 60,
                   "the link to be up again, as the manager has heard")
        # Five ranks: ranks 1 and 4 would be behind one spine.
        ranks = start(fabric, "aaaac", bytes=2 * MIB, iters=100000)
        await_results(fabric, "leaf0", 200)
        ip_in(fabric.host_namespace(1), "link", "set", HOST_INTERFACE, "down")
        for report in finish(fabric, ranks):
            for words in ("its only other trees would change the order of its sums",
                          "a reproducible job of 5 ranks"):
                expect(not report["ok"] and words in report["error"]["message"],
                       f"the end of the job: {report['error']}")
        expect_equal(fabric.ask_manager("stats")["counters"]["jobs_lost"], 1, "jobs that ended")


def refused(manager, switches, code, words, ips=tuple(FOUR), **options):
    """Expects a refusal before any switch is asked, with the same words for every host."""
    clients = [manager.client() for _ in ips]
    numbers = [client.start("join", job="refused", size=len(ips), rank=rank, ip=ip, **options)
               for rank, (client, ip) in enumerate(zip(clients, ips))]
    for client, number in zip(clients, numbers):
        try:
            client.finish(number, "join")
            expect(False, f"{options}: the job was made")
        except Refused as error:
            expect_equal(error.code, code, f"code of {error}")
            expect(all(word in error.message for word in words), f"found {error}, expected {words}")
            expect(len(error.message) < 400, f"{len(error.message)} characters: {error.message}")
    close_all(clients)
    manager.wait_idle()


@case(60)
def what_a_job_promises_is_refused_before_a_switch_is_asked():
    with Lab(1, "af_packet") as lab:
        switches = played(lab, hosts=4)
        manager = played_manager(lab, switches, hosts=4)
        order = ["found ranks 0, 2 at leaf0, 1, 3 at leaf1",
                 "the order of ranks never sums up by themselves"]
        refused(manager, switches, "order", order, reproducible=True)
        refused(manager, switches, "order", order, reproducible=True, trees=2, **RING)
        # The first host that asks for it gets its answer at once.
        refused(manager, switches, "invalid", ['"single"', 'expected "tree" or "auto"'],
                reproducible=True, handler="single")
        refused(manager, switches, "invalid",
                ['accumulate "f32"', "leaf0 and leaf1", "at one switch"], accumulate="f32")
        refused(manager, switches, "invalid", ['accumulate "f32"'], accumulate="f32", **RING)
        refused(manager, switches, "no_path", ["a ring of its hosts would sum in another order"],
                reproducible=True, handler="ring", **RING)
        expect_equal([name for name, switch in switches.items() if switch.created], [],
                     "switches that were asked")
        # Jobs in a row, and on one switch.
        row = ["10.77.0.1", "10.77.0.2", "10.77.1.1", "10.77.1.2"]
        for options in ({"reproducible": True}, {"reproducible": True, "trees": 2}):
            clients, results = manager.join("row", row, **options)
            expect_equal((results[0]["handler"], results[0]["reproducible"], results[0]["trees"]),
                         ("tree", True, options.get("trees", 1)), f"the job with {options}")
            close_all(clients)
            manager.wait_idle()
        clients, results = manager.join("one", [f"10.77.0.{host + 1}" for host in range(4)],
                                        accumulate="f32")
        expect_equal(results[0]["accumulate"], "f32", "accumulation on one switch")
        close_all(clients)
        manager.wait_idle()
        # Without room for a tree there is no ring, either.
        switches["leaf1"].refuse["jobs.create"] = ("no_room", "limits.max_jobs")
        refused(manager, switches, "no_room", ["a ring of its hosts would sum in another order"],
                ips=row, reproducible=True, **RING)
        manager.stop()


@case(60)
def ranks_that_nobody_asks_for_follow_leaves_and_addresses():
    """The order of arrival does not matter; the leaf with four ranks comes before the one with two.
    """
    ips = ["10.77.0.1", "10.77.0.2", "10.77.1.1", "10.77.1.2", "10.77.1.3", "10.77.1.4"]
    with Lab(1, "af_packet") as lab:
        switches = played(lab, hosts=4)
        manager = played_manager(lab, switches, hosts=4)
        for order in ((0, 1, 2, 3, 4, 5), (5, 4, 3, 2, 1, 0), (2, 0, 4, 1, 5, 3)):
            clients = {}
            for host in order:
                client = manager.client()
                clients[host] = (client,
                                 client.start("join", job="j", size=6, ip=ips[host],
                                              reproducible=True))
            ranks = [clients[host][0].finish(clients[host][1])["rank"] for host in range(6)]
            expect_equal(ranks, [4, 5, 0, 1, 2, 3], f"ranks of hosts that came as {order}")
            close_all([client for client, _ in clients.values()])
            manager.wait_idle()
        manager.stop()


@case(60)
def a_reproducible_job_moves_where_a_plain_one_can():
    """Two hosts are at each leaf, and then all four at one: a slot of the job holds more packets
    there.
    """
    with Lab(1, "af_packet") as lab:
        switches = played(lab, spines=1, hosts=4)
        topology = two_links(switches)
        topology["hosts"] = [{"ip": f"10.77.0.{host + 1}", "switch": "leaf0", "port": f"h{host}"}
                             for host in range(2)]
        topology["hosts"] += [{"links": [{"ip": f"10.77.{leaf}.{host + 1}", "switch": f"leaf{leaf}",
                                          "port": f"h{host}"}
                                         for leaf in (1, 0)]} for host in (2, 3)]
        switches["leaf0"].down = ["h2", "h3"]
        manager = Manager(lab, topology, heartbeat_ms=50, dead_after_ms=500).start()
        manager.wait_up(*switches)
        clients, results = manager.join("job", ["10.77.0.1", "10.77.0.2", "10.77.1.3", "10.77.1.4"],
                                        reproducible=True)
        expect_equal([result["switch_ip"] for result in results],
                     ["10.77.0.254"] * 2 + ["10.77.1.254"] * 2, "where the job begins")
        switches["leaf0"].down = []
        switches["leaf1"].down = ["h2", "h3"]
        expect_equal([client.wait_event("moved")["switch_ip"] for client in clients],
                     ["10.77.0.254"] * 4, "where it goes on")
        expect_equal({args["slots"] for switch in switches.values() for args in switch.created},
                     {2 * results[0]["window"]}, "slots")
        close_all(clients)
        manager.stop()


@case(60)
def a_job_goes_on_if_other_links_of_its_hosts_keep_its_order():
    """Four hosts are at leaf0, and the last one loses its link there: the third host has to move
    with it, and the second one to stay.
    """
    with Lab(1, "af_packet") as lab:
        switches = played(lab, leaves=3, spines=1, hosts=4)
        topology = two_links(switches)
        topology["links"].append({"a": "leaf2:u0", "b": "spine0:p2"})
        topology["hosts"] = [{"ip": "10.77.0.1", "switch": "leaf0", "port": "h0"}]
        topology["hosts"] += [{"links": [{"ip": f"10.77.{leaf}.{host + 1}", "switch": f"leaf{leaf}",
                                          "port": f"h{host}"}
                                         for leaf in (0, 1)]} for host in (1, 2, 3)]
        topology["hosts"] += [{"ip": f"10.77.2.{host + 1}", "switch": "leaf2", "port": f"h{host}"}
                              for host in range(4)]
        manager = Manager(lab, topology, heartbeat_ms=50, dead_after_ms=500).start()
        manager.wait_up(*switches)
        ips = [f"10.77.{leaf}.{host + 1}" for leaf in (0, 2) for host in range(4)]
        clients, results = manager.join("job", ips, reproducible=True)
        expect_equal([result["switch_ip"] for result in results],
                     ["10.77.0.254"] * 4 + ["10.77.2.254"] * 4, "where the job begins")
        switches["leaf0"].down = ["h3"]
        expect_equal([client.wait_event("moved")["switch_ip"] for client in clients],
                     ["10.77.0.254"] * 2 + ["10.77.1.254"] * 2 + ["10.77.2.254"] * 4,
                     "where it goes on")
        expect_equal(manager.ask("stats")["counters"]["jobs_lost"], 0, "jobs that ended")
        close_all(clients)
        manager.stop()


def moves_with_its_slots(lab, switches, topology, ips, begins, losses, ends):
    """
    A reproducible job moves with the slots that it has. begins and ends: the leaf of each rank, as
    digits; losses: a switch and its port that goes down, for each move.
    """
    manager = Manager(lab, topology, heartbeat_ms=50, dead_after_ms=500).start()
    manager.wait_up(*switches)
    clients, results = manager.join("job", ips, reproducible=True)
    places = [result["switch_ip"] for result in results]
    expect_equal(places, [f"10.77.{leaf}.254" for leaf in begins], "where the job begins")
    for name, port in losses:
        switches[name].down = [port]
        places = [client.wait_event("moved")["switch_ip"] for client in clients]
    expect_equal(places, [f"10.77.{leaf}.254" for leaf in ends], "where it goes on")
    expect_equal(len({args["slots"] for switch in switches.values() for args in switch.created}), 1,
                 "numbers of slots")
    close_all(clients)
    manager.wait_idle()
    manager.stop()


@case(60)
def slots_suffice_for_rows_of_different_lengths():
    """4, 2 and 2 ranks are at three leaves, then 4, 2, 1 and 1 at four: three sums may wait for
    each other at the spine.
    """
    with Lab(1, "af_packet") as lab:
        switches = played(lab, leaves=4, spines=1, hosts=4)
        topology = two_links(switches)
        topology["links"] += [{"a": f"leaf{leaf}:u0", "b": f"spine0:p{leaf}"} for leaf in (2, 3)]
        topology["hosts"] = [{"ip": f"10.77.{leaf}.{host + 1}", "switch": f"leaf{leaf}",
                              "port": f"h{host}"}
                             for leaf, host in ((0, 0), (0, 1), (0, 2), (0, 3), (1, 0), (1, 1),
                                                (2, 0))]
        topology["hosts"].append({"links": [{"ip": f"10.77.{leaf}.2", "switch": f"leaf{leaf}",
                                             "port": "h1"} for leaf in (2, 3)]})
        ips = [f"10.77.0.{host + 1}" for host in range(4)] + [f"10.77.{leaf}.{host + 1}"
                                                              for leaf in (1, 2)
                                                              for host in range(2)]
        moves_with_its_slots(lab, switches, topology, ips, "00001122", [("leaf2", "h1")],
                             "00001123")


@case(60)
def slots_suffice_for_a_leaf_above_spines():
    """No spine is left that reaches all leaves, so the first leaf becomes the root, with two spines
    below it beside its hosts.
    """
    with Lab(1, "af_packet") as lab:
        switches = played(lab, leaves=3, spines=2, hosts=4)
        topology = two_links(switches)
        topology["links"] = [{"a": f"leaf{leaf}:u{spine}", "b": f"spine{spine}:p{leaf}"}
                             for leaf in range(3) for spine in range(2)]
        ips = [f"10.77.{leaf}.{host + 1}" for leaf, n in enumerate((4, 2, 2)) for host in range(n)]
        topology["hosts"] = [{"ip": ip, "switch": f"leaf{ip.split('.')[2]}",
                              "port": f"h{int(ip.split('.')[3]) - 1}"} for ip in ips]
        moves_with_its_slots(lab, switches, topology, ips, "00001122",
                             [("leaf1", "u0"), ("leaf2", "u1")], "00001122")
        expect("parent" not in switches["leaf0"].created[-1], "leaf0 is not the root")
