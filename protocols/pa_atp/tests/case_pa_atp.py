# SPDX-License-Identifier: BSD-3-Clause
"""Jobs with parameter servers, made by the network manager: exact with packets lost and few
aggregators, and their fate when a server, a worker or a switch is killed.
"""

import signal

from tests.net.support import KIB, MIB, case, expect, expect_equal, wait_until
from tests.net.manager_lab import Refused
from protocols.multicast.tests.case_multicast import hosts_of
from tests.net.case_network import demo
from tests.net.case_trees import finish, managed_fabric, start
from lab.fabric import Fabric, single

# These jobs are long enough for a failure in the middle.
LONG = ("--bytes", MIB, "--iters", 200)
# The state of hosts whose job has ended with an error, as it had to.
ENDED = {"in_network": False, "handler": ""}


def serving(*arguments, servers=2, **expected):
    """Runs the demo with parameter servers. Returns what it printed, which is exact unless
    something else is expected.
    """
    result = demo("--handler", "pa-atp", "--servers", servers, *arguments)
    expected = {"ok": True, "mismatches": 0, "in_network": True, "handler": "pa-atp", "error": None,
                **expected}
    for key, value in expected.items():
        expect_equal(result[key], value, f"{key} of the demo with {arguments}")
    return result


def counters_of(result, counter):
    """Returns the sum of a counter over all switches."""
    return sum(counts[counter] for counts in result["aggregation"].values())


class Paced(Fabric):
    """The links to the hosts are so slow that a job takes some time, on any machine."""

    def switch_config(self, switch):
        config = super().switch_config(switch)
        for port in config["ports"]:
            if port["name"].startswith("h"):
                port["rate_mbit"] = 300
        return config


def roots(fabric):
    """Returns the roots of the trees of the only job, in the trees' order; none while one of them
    moves.
    """
    trees = fabric.ask_manager("trees")["trees"]
    running = all(tree["state"] == "network" and not tree["stranded"] for tree in trees)
    return [tree["nodes"][0]["switch"] for tree in trees] if running else []


def results_of(fabric, server):
    return sum(job["stats"]["results"] for job in fabric.ask(server, "jobs.list")["jobs"])


def expect_shared(result):
    """Expects each server to have made results, at most twice as many as any other."""
    made = [server["counters"]["results"] for server in result["servers"].values()]
    expect(min(made) > 0 and max(made) <= 2 * min(made),
           f"results of the servers: {result['servers']}")


@case(120)
def servers_share_the_blocks_and_no_worker_repeats_anything_without_loss():
    """On a busy machine timers are early: the case then tries again. Hosts on packet sockets leave
    slowly enough for a last look at the counters.
    """
    for left in reversed(range(8)):
        result = serving("--bytes", 256 * KIB, "--transport", "af_packet")
        expect_shared(result)
        expect_equal(sorted(tree["root"] for tree in result["trees"]), ["s0", "s1"],
                     "roots of the trees")
        told = result["congestion"]
        expect_equal((told["name"], counters_of(result, "overflows")), ("pa-atp", 0),
                     f"congestion control and overflows: {told}")
        expect(told["gacks"] > 0 and told["aacks"] > 0, f"acknowledgments: {told}")
        if result["retransmits"] == 0:
            return
        expect(left != 0, f"{result['retransmits']} retransmits, though nothing was lost")


@case(90, also_over_udp=True)
def sums_with_servers_are_exact_under_loss():
    result = serving("--bytes", MIB, "--loss", "0.02")
    expect_shared(result)
    expect(result["retransmits"] > 0 and result["drops"].get("fault_drop", 0) > 0,
           f"nothing was lost: {result['drops']}")


@case(90, also_over_udp=True)
def blocks_without_an_aggregator_go_to_the_server_unmerged():
    """There are half as many aggregators as the window of all trees together: every second block
    finds its place taken.
    """
    result = serving("--bytes", MIB, "--aggregators", 32)
    expect(counters_of(result, "overflows") > 0, f"nothing has overflowed: {result['aggregation']}")
    result = serving("--bytes", MIB, "--aggregators", 32, "--loss", "0.02")
    expect(counters_of(result, "overflows") > 0,
           f"nothing has overflowed under loss: {result['aggregation']}")


@case(90, also_over_udp=True)
def two_jobs_with_servers_share_the_aggregators():
    result = serving("--bytes", MIB, "--jobs", 2, "--aggregators", 64, "--loss", "0.01")
    expect_equal([(job["ok"], job["mismatches"]) for job in result["further_jobs"]], [(True, 0)],
                 "the second job")
    expect_equal(len(result["trees"]), 4, "trees of both jobs")


@case(120, also_over_udp=True, long=True)
def sums_with_servers_are_exact_over_several_levels():
    """The switch of the server aggregates; the switches below it pass packets on."""
    for arguments, hosts, roots in ((("--topology", "leaf-spine", "--bytes", MIB), 8, ["s0", "s1"]),
                                    (("--topology", "tree3", "--bytes", 300 * KIB), 16,
                                     ["s0", "s1"])):
        result = serving(*arguments, "--loss", "0.01", hosts=hosts)
        expect_equal(sorted(tree["root"] for tree in result["trees"]), roots,
                     f"roots with {arguments}")


@case(90, also_over_udp=True)
def other_collectives_run_with_servers():
    for collective in ("reduce", "broadcast", "allgather", "barrier"):
        serving("--bytes", 256 * KIB, "--collective", collective, "--loss", "0.01", servers=1,
                collective=collective)


@case(90, also_over_udp=True, long=True)
def a_worker_that_is_killed_is_named_by_the_others():
    result = serving(*LONG, "--kill", "h1", **ENDED)
    expect_equal(result["struck"], "h1 killed", "what was done")


@case(90, also_over_udp=True, long=True)
def a_job_goes_on_when_one_of_two_servers_is_killed():
    result = serving(*LONG, "--kill", "s0")
    expect_equal([tree["root"] for tree in result["trees_after"]], ["s1", "s1"], "roots afterwards")
    expect(result["rebuilt"] >= 1, "no host has begun another run")


@case(90, also_over_udp=True)
def without_its_only_server_a_job_ends_by_name():
    result = serving(*LONG, "--kill", "s0", servers=1, **ENDED)
    expect("server s0 is lost, and there is no other" in result["ended"], result["ended"])
    expect(result["end_seconds"] <= 5, f"the hosts took {result['end_seconds']} s to say so")


@case(90, also_over_udp=True, long=True)
def servers_may_fail_in_turns_and_be_frozen():
    """Each time the other server has both trees, until its own turn comes; sums that were known
    before come again unchanged.
    """
    with Paced(single(3).add_servers(2, ["switch0"])) as fabric:
        fabric.start()
        fabric.start_manager()
        # The links make the job last 7 s at least; where many programs want the cores, a sum takes
        # 0.15 s.
        ranks = start(fabric, "job", 2, handler="pa-atp", iters=500, bytes=512 * KIB,
                      timeout_ms=20000)
        wait_until(lambda: roots(fabric) == ["s0", "s1"], 60, "the job's trees")
        for number, (victim, other) in enumerate((("s1", "s0"), ("s0", "s1"), ("s1", "s0"))):
            before = results_of(fabric, victim)
            wait_until(lambda victim=victim,
                       before=before: results_of(fabric, victim) >= before + 200, 60,
                       f"results of {victim}")
            process = fabric.servers[victim]
            process.popen.send_signal(signal.SIGSTOP if number == 1 else signal.SIGKILL)
            wait_until(lambda other=other: roots(fabric) == [other, other], 60,
                       f"both trees at {other}")
            if number == 1:
                process.popen.send_signal(signal.SIGCONT)
            else:
                process.popen.wait()
                fabric.launch_server(victim)
                fabric.await_switch(victim)
            wait_until(lambda: all(server["state"] == "up"
                                   for server in fabric.ask_manager("topology")["servers"]), 60,
                       "both servers")
        for rank, report in enumerate(finish(fabric, ranks)):
            expect(report.get("ok") and report["mismatches"] == 0,
                   f"rank {rank}: {report.get('error') or report}")
            expect(report["resumed"] >= 3,
                   f"rank {rank} has begun another run {report['resumed']} times, expected 3 at "
                   "least")
        wait_until(lambda: not fabric.ask_manager("jobs")["removals"], 60,
                   "what the servers had of the job to be gone")


@case(150, also_over_udp=True, thorough=True)
def a_job_leaves_the_switch_of_its_server_or_ends_by_name():
    result = serving(*LONG, "--topology", "leaf-spine", "--hosts", 4, "--kill", "spine0")
    expect_equal([tree["root"] for tree in result["trees_after"]], ["s1", "s1"], "roots afterwards")
    result = serving(*LONG, "--kill", "switch0", **ENDED)
    expect("switch switch0 is lost, and there is no other" in result["ended"], result["ended"])


@case(60)
def what_servers_do_not_do_is_refused_by_name_before_anything_is_made():
    with managed_fabric(single(2).add_servers(1, ["switch0"])) as fabric:
        clients = hosts_of(fabric)
        for options, words in (({"size": 65}, "found 65 ranks, expected at most 64"),
                               ({"size": 2, "reproducible": True}, "found reproducible"),
                               ({"size": 2, "accumulate": "f32"}, "found accumulate f32"),
                               ({"size": 2, "authenticate": True}, "found authenticate")):
            try:
                clients[0].ask("join", job="refused", rank=0, ip=fabric.host_ip(0),
                               handler="pa-atp", **options)
                expect(False, f"a job with {options} was not refused")
            except Refused as error:
                expect_equal(error.code, "invalid", f"code with {options}")
                expect('the handler "pa-atp" has a parameter server' in error.message
                       and words in error.message, error.message)
        for client in clients:
            client.close()


@case(60)
def the_manager_shows_servers_and_their_jobs():
    with managed_fabric(single(2).add_servers(2, ["switch0"])) as fabric:
        topology = fabric.ask_manager("topology")
        expect_equal([(server["name"], server["state"], server["ip"], server["at"])
                      for server in topology["servers"]],
                     [(name, "up", fabric.server_ip(name), f"switch0:{name}")
                      for name in ("s0", "s1")], "servers")
        expect_equal([link["state"] for link in topology["links"]], ["up", "up"],
                     "links of the servers")
        shown = fabric.ctl_manager("topology")
        for words in ("SERVER", "s0", "s1", "switch0:s1"):
            expect(words in shown, f"'{words}' is not in:\n{shown}")
        ranks = start(fabric, "job", 2, handler="pa-atp", iters=1000000, check=False,
                      bytes=64 * KIB)
        wait_until(lambda: [tree["state"]
                            for tree in fabric.ask_manager("trees")["trees"]] == ["network"] * 2,
                   60, "the job's trees")
        trees = fabric.ask_manager("trees")["trees"]
        expect_equal([[node["switch"] for node in tree["nodes"]] for tree in trees],
                     [["s0", "switch0"], ["s1", "switch0"]], "trees")
        expect_equal([server["trees"] for server in fabric.ask_manager("topology")["servers"]],
                     [1, 1], "trees of the servers")
        for server in ("s0", "s1"):
            wait_until(lambda server=server: fabric.ask(server,
                                                        "jobs.list")["jobs"][
                                                            0]["stats"]["results"] > 0, 60,
                       f"results of {server}")
        waits = fabric.ask_manager("waits")["jobs"]
        expect_equal([(job["name"], job["tree"], job["unreached"]) for job in waits],
                     [("job", 0, []), ("job", 1, [])], "who waits")
        for rank in ranks:
            rank.popen.kill()
            rank.wait(60)
        for name in ("s0", "s1", "switch0"):
            wait_until(lambda name=name: not fabric.ask(name, "jobs.list")["jobs"], 60,
                       f"the job to be gone from {name}")
