# SPDX-License-Identifier: BSD-3-Clause
"""Jobs by name: hosts find them at the network manager, run in the network or in a ring, and report
what is wrong if they can't.
"""

import signal
import time

from tests.net.fake_manager import PORT, FakeManager, certificate, server_context
from lab.namespaces import inside
from tests.net.pace import Pace
from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, program,
                               reports_of, run, running_lab, wait_until)


def spawn_by_name(lab, host, name="job", environment=None, **options):
    """Starts fanin-perf as one rank of a job of that name."""
    arguments = ["/usr/bin/env", "FANIN_CONF=/dev/null"] + [f"{key}={value}" for key,
                                                            value in (environment or {}).items()]
    arguments += [program("fanin-perf"), "--job-name", name, "--json", "--no-progress"]
    options = {"transport": lab.transport, "bytes": MIB, "check": True} | options
    for option, value in options.items():
        if value is None or value is False:
            continue
        arguments.append("--" + option.replace("_", "-"))
        if value is not True:
            arguments.append(value)
    return lab.spawn(host, arguments, "by-name")


def run_by_name(lab, manager, hosts, **options):
    return reports_of(lab, [spawn_by_name(lab, host, manager=manager.address, size=len(hosts),
                                          **options) for host in hosts])


def expect_ring(reports, where, reason):
    for rank, report in enumerate(reports):
        expect(not report.get("error"), f"{where}: rank {rank} failed: {report.get('error')}")
        expect_equal((report["ok"], report["mismatches"]), (True, 0), f"{where}: rank {rank}")
        expect_equal((report["in_network"], report["mode"], report["mode_reason"],
                      report["transport"], report["handler"]),
                     (False, "ring", reason, "tcp ring", "ring"), f"{where}: how rank {rank} ran")
        expect_equal((report["protocol"], report["protocol_reason"]),
                     ("ring", f"the job has no reduction tree: {reason}"),
                     f"{where}: what rank {rank} ran")


@case()
def a_job_by_name_runs_in_the_network():
    with running_lab(3) as lab, FakeManager(lab, token="secret") as manager:
        (lab.directory / "token").touch(mode=0o600)
        (lab.directory / "token").write_text("secret\n")
        (lab.directory / "fanin.conf").write_text(
            f"# how hosts find it\nmanager = {manager.address}:{PORT}\n\ntoken_file = "
            f"{lab.directory}/token\n")
        environment = {"FANIN_CONF": lab.directory / "fanin.conf"}
        reports = reports_of(lab,
                             [spawn_by_name(lab, host, environment=environment, size=3, iters=5)
                              for host in range(3)])
        expect_exact(reports, "by the file")
        expect_equal(sorted(report["rank"] for report in reports), [0, 1, 2], "ranks")
        for report in reports:
            expect_equal((report["mode"], report["manager"], report["job_name"],
                          report["manager_problem"]),
                         ("network", f"{manager.address}:{PORT}", "job", ""), "the report")
        expect_equal(len(manager.told("leave")), 3, "hosts that said that they leave")
        join = manager.told("join")[0]
        expect_equal((join["job"], join["size"], join["handler"], join["mtu"], join["fallback"]),
                     ("job", 3, "auto", lab.mtu, True), "what a host asks for")
        expect_equal(sorted(args["ip"] for args in manager.told("join")),
                     [lab.host_ip(host) for host in range(3)],
                     "addresses")
        environment = {"FANIN_MANAGER": manager.address, "FANIN_TOKEN": "secret"}
        ranks = [spawn_by_name(lab, host, environment=environment, size=3, rank=2 - host)
                 for host in range(3)]
        reports = reports_of(lab, ranks)
        expect_exact(reports, "by the environment")
        expect_equal([report["rank"] for report in reports], [2, 1, 0], "ranks as given")


@case(90, sanitized=True)
def without_a_tree_hosts_form_a_ring():
    reason = "no switch has room"
    with running_lab(4) as lab, FakeManager(lab, ring=reason) as manager:
        for options in ({"bytes": 8 * MIB + 4}, {"bytes": 0, "iters": 50},
                        {"bytes": 4, "iters": 100},
                        {"dtype": "u8", "op": "bxor", "bytes": MIB + 1},
                        {"dtype": "f16", "op": "avg"},
                        {"dtype": "f16", "op": "sum", "accumulate": "f32"},
                        {"collective": "broadcast", "root": 2},
                        {"collective": "reduce_scatter", "dtype": "f16", "op": "avg",
                         "accumulate": "f32"},
                        {"collective": "reduce", "root": 1, "dtype": "bf16", "accumulate": "f32"},
                        {"collective": "reduce_scatter"}, {"collective": "allgather"},
                        {"collective": "barrier", "bytes": None, "check": None},
                        {"collective": "reduce", "root": 3, "in_place": True}):
            reports = run_by_name(lab, manager, range(4), **options)
            expect_ring(reports, f"ring, {options}", reason)
        rank = [spawn_by_name(lab, host, manager=manager.address, size=2, bytes=KIB)
                for host in range(2)][0]
        reports_of(lab, [rank])
        expect("does not run in the network but in a ring of its hosts: " + reason in rank.stderr(),
               f"the warning: {rank.stderr()}")
        reports = run_by_name(lab, manager, range(2), dtype="complex-f32", op="prod", bytes=KIB)
        for report in reports:
            expect_equal(report["error"]["code"], "unsupported", "code for a custom operator")
            expect("this job runs without one: " + reason in report["error"]["message"],
                   report["error"]["message"])


@case()
def a_host_that_authenticates_takes_no_job_without_it():
    with running_lab(2) as lab:
        for ring, words in ((None,
                             "made job 'job' without authentication, which this host asks for"),
                            ("no room", "a ring for job 'job', which has no authentication, as "
                                        "this host asks for: no room")):
            with FakeManager(lab, ring=ring) as manager:
                for report in run_by_name(lab, manager, range(2), authenticate=True):
                    expect_equal(report["error"]["code"], "manager", f"code: {report['error']}")
                    expect(words in report["error"]["message"], report["error"]["message"])
                for report in run_by_name(lab, manager, range(2), bytes=KIB):
                    expect_equal((report["error"], report["authenticated"]), (None, False),
                                 "a host that does not ask")
                expect_equal([args.get("authenticate") for args in manager.told("join")],
                             [True, True, None, None],
                             "what the hosts ask for")


@case()
def a_ring_connection_needs_the_key():
    with running_lab(3) as lab:
        def change(result):
            if result["rank"] == 1:
                result["key"] = "0x1"
        with FakeManager(lab, ring="test", change=change) as manager:
            reports = run_by_name(lab, manager, range(3), join_timeout_ms=8000)
            for report in reports:
                expect_equal(report["error"]["code"], "join_timeout", "code")
            named = {tuple(report["error"]["missing"]) for report in reports}
            expect((1,) in named, f"nobody names rank 1: {reports}")


@case()
def a_host_killed_in_a_ring_is_named():
    with running_lab(4) as lab, FakeManager(lab, ring="test") as manager:
        ranks = [spawn_by_name(lab, host, manager=manager.address, size=4, rank=host, iters=100000,
                               check=False)
                 for host in range(4)]
        wait_until(lambda: len(manager.told("heartbeat")) >= 4, 60, "heartbeats of all hosts")
        with Pace() as pace:
            ranks[2].popen.send_signal(signal.SIGKILL)
            reports = reports_of(lab, [ranks[rank] for rank in (0, 1, 3)])
            seconds = time.monotonic() - pace.began
        pace.expect_within(seconds, 2, "that the others learn of it, without the timeout")
        for report in reports:
            expect_equal((report["error"]["code"], report["error"]["missing"]), ("timeout", [2]),
                         f"error: {report['error']}")
            expect("its process has ended" in report["error"]["message"],
                   report["error"]["message"])


def survives_the_managers_death(ring):
    with running_lab(3) as lab, FakeManager(lab, ring=ring) as manager:
        ranks = [spawn_by_name(lab, host, manager=manager.address, size=3, iters=100000,
                               bytes=256 * KIB, check_ends=True)
                 for host in range(3)]
        wait_until(lambda: len(manager.told("heartbeat")) >= 3, 60, "heartbeats of all hosts")
        manager.kill()
        wait_until(lambda: all("the job goes on, connecting again" in rank.stderr()
                               for rank in ranks), 60,
                   "warnings that the manager is gone")
        manager.start()
        wait_until(lambda: len(manager.told("reattach")) == 3, 60, "hosts that come back")
        before = len(manager.told("heartbeat"))
        wait_until(lambda: len(manager.told("heartbeat")) >= before + 3, 60,
                   "heartbeats to the new manager")
        for args in manager.told("reattach"):
            expect_equal((args["job"], args["rank"] in range(3), args["key"][:2]),
                         ("job", True, "0x"), "reattach")
        for rank in ranks:
            expect(rank.running(), f"a rank has ended: {rank.last_words()}")
            rank.popen.send_signal(signal.SIGTERM)
        for report in reports_of(lab, ranks, 60):
            expect_equal(report["mismatches"], 0, "mismatches")
            expect_equal((report["manager_reconnects"], report["manager_problem"]), (1, ""),
                         "the report")
            expect(report["iters"] > 0, "no collective was run")
        expect_equal(len(manager.told("leave")), 3, "hosts that said that they leave")


@case()
def the_manager_may_die_while_a_job_runs_in_the_network():
    survives_the_managers_death(None)


@case()
def the_manager_may_die_while_a_ring_runs():
    survives_the_managers_death("test")


@case()
def hosts_hear_what_became_of_their_tree_while_the_manager_was_away():
    """The first time the tree is gone meanwhile, the second time it is there again."""
    with running_lab(2) as lab:
        for gone in (True, False):
            with FakeManager(lab) as manager:
                ranks = [spawn_by_name(lab, host, manager=manager.address, size=2, rank=host,
                                       iters=1000000, check=False,
                                       bytes=KIB, timeout_ms=1500) for host in range(2)]
                wait_until(lambda: len(manager.told("heartbeat")) >= 2, 60,
                           "heartbeats of both hosts")
                if not gone:
                    manager.tell({"event": "no_path", "job": "job", "tree": 0,
                                  "reason": "as a test says"})
                    wait_until(lambda: all(
                        'says: job "job": no path: as a test says' in rank.stderr()
                        for rank in ranks), 60, "that hosts have heard it")
                manager.kill()
                manager.reattached = {"stranded": "as a test says"} if gone else {}
                manager.start()
                wait_until(lambda: len(manager.told("reattach")) == 2, 60, "hosts that come back")
                before = len(manager.told("heartbeat"))
                wait_until(lambda: len(manager.told("heartbeat")) >= before + 2, 60,
                           "heartbeats to the new manager")
                ranks[1].popen.send_signal(signal.SIGKILL)
                error = reports_of(lab, ranks[:1], 60)[0]["error"]
                expect_equal(error["code"], "timeout", f"error: {error}")
                expect_equal("the manager has no other tree: as a test says" in error["message"],
                             gone,
                             f"whether the tree is gone, in: {error['message']}")


@case()
def a_job_that_the_manager_has_ended_fails_at_once_and_says_why():
    with running_lab(2) as lab, FakeManager(lab) as manager:
        ranks = [spawn_by_name(lab, host, manager=manager.address, size=2, rank=host, iters=1000000,
                               check=False, bytes=KIB,
                               timeout_ms=600000) for host in range(2)]
        wait_until(lambda: len(manager.told("heartbeat")) >= 2, 60, "heartbeats of both hosts")
        manager.tell({"event": "job_destroyed", "job": "job", "reason": "server s0 is lost"})
        for report in reports_of(lab, ranks, 30):
            expect_equal(report["error"]["code"], "manager", f"code of {report['error']}")
            expect("has ended the job: server s0 is lost" in report["error"]["message"],
                   report["error"]["message"])


@case(120)
def who_has_left_after_others_were_away_is_not_blamed():
    """The rank may have given up because of the others a moment before they would have."""
    kept = {}
    with running_lab(3) as lab, FakeManager(lab, change=kept.update) as manager:
        ranks = [spawn_by_name(lab, host, manager=manager.address, size=3, rank=host, iters=1000000,
                               check=False, bytes=KIB)
                 for host in range(3)]
        wait_until(lambda: len(manager.told("heartbeat")) >= 3, 60, "heartbeats of all hosts")
        for rank in ranks[1:]:
            rank.popen.send_signal(signal.SIGSTOP)
        # The run is lost, and two ranks do not join again.
        lab.ctl("jobs", "destroy", kept["job"])
        lab.create_job(None, "--id", kept["job"], "--key", kept["key"])
        wait_until(lambda: "joining again" in ranks[0].stderr(), 60, "rank 0 to join again")
        manager.tell({"event": "member_left", "job": "job", "rank": 1})
        manager.tell({"event": "members_silent", "job": "job", "ranks": [2]})
        error = reports_of(lab, ranks[:1])[0]["error"]
        expect_equal((error["code"], error["missing"]), ("timeout", [2]), f"error: {error}")
        for rank in ranks[1:]:
            rank.popen.kill()
            rank.wait(60)


def expect_error(lab, where, code, words, environment=None, **options):
    """Expects one rank of two to fail with this code and these words."""
    rank = spawn_by_name(lab, 1, environment=environment,
                         **({"size": 2, "join_timeout_ms": 60000} | options))
    report = reports_of(lab, [rank])[0]
    expect(report.get("error") is not None, f"{where}: there was no error: {report}")
    message = report["error"]["message"]
    expect_equal(report["error"]["code"], code, f"{where}: code ({message})")
    expect(words in message, f"{where}: found '{message}', expected it to have '{words}'")


@case()
def waiting_for_other_ranks_can_be_interrupted():
    with running_lab(2) as lab, FakeManager(lab) as manager:
        rank = spawn_by_name(lab, 1, manager=manager.address, size=2)
        wait_until(lambda: manager.told("join"), 60, "the join")
        rank.popen.send_signal(signal.SIGINT)
        expect_equal(rank.wait(60), 130, "exit status")
        expect("interrupted while waiting for the manager" in lab.perf_report(
            rank)["error"]["message"], rank.stdout())


@case()
def an_address_that_the_switch_does_not_see_is_told():
    with running_lab(2) as lab, FakeManager(lab) as manager:
        with inside(lab.host_namespace(1)):
            run(["ip", "address", "add", "10.77.0.77/32", "dev", "fanin0"])
        manager.hosts = [1]
        expect_error(lab, "another address", "invalid",
                     "the manager knows this host as 10.77.0.77, but the route to the "
                     f"switch has the address {lab.host_ip(1)}", manager=manager.address, size=1,
                     address="10.77.0.77")


@case(90, sanitized=True)
def whatever_is_wrong_with_joining_by_name_is_told():
    with running_lab(2, config={"limits": {"max_jobs": 16}}) as lab:
        here = lab.host_ip(0)
        conf = lab.directory / "wrong.conf"
        expect_error(lab, "nothing is configured", "invalid", "no manager is configured")
        expect_error(lab, "no such file", "invalid",
                     "cannot read /nonexistent, which FANIN_CONF names",
                     {"FANIN_CONF": "/nonexistent"})
        for text, words in (("manger = x\n",
                             "line 1: found 'manger', expected manager, token_file, tls or ca"),
                            ("\nmanager 10.0.0.1\n",
                             "line 2: found 'manager 10.0.0.1', expected key = value"),
                            ("tls = maybe\n", "tls is 'maybe', expected yes or no"),
                            ("manager =\n", "manager has 0 characters"),
                            (f"manager = {here}\ntoken_file = /nonexistent\n",
                             "cannot read the token file /nonexistent")):
            conf.write_text(text)
            expect_error(lab, text, "invalid", words, {"FANIN_CONF": conf})
        expect_error(lab, "port", "invalid", "expected ADDRESS or ADDRESS:PORT",
                     manager=f"{here}:x")
        expect_error(lab, "name", "invalid", "letters, digits", manager=here, name="a b")
        expect_error(lab, "trees on AF_XDP", "invalid", "af_xdp serves one tree of a host",
                     manager=here, trees=2,
                     transport="af_xdp")
        expect_error(lab, "nobody listens", "manager",
                     f"cannot connect to the manager {here}:{PORT}: Connection refused",
                     manager=here)
        with FakeManager(lab, token="right"):
            expect_error(lab, "no token", "join_refused", "unauthorized", manager=here)
            expect_error(lab, "wrong token", "join_refused",
                         f"the manager {here}:{PORT} refused the handshake",
                         {"FANIN_TOKEN": "wrong"}, manager=here)
            expect_error(lab, "empty token", "invalid",
                         "the token from FANIN_TOKEN has 0 characters", {"FANIN_TOKEN": ""},
                         manager=here)
            expect_error(lab, "the other rank doesn't come", "join_timeout",
                         "not all ranks have come",
                         {"FANIN_TOKEN": "right"}, manager=here, join_timeout_ms=1000)
        for hello, words in (({"hello": 2}, "protocol 2, expected 1"),
                             ({}, "protocol nothing, expected 1"),
                             ({"hello": 1}, "have version 2, those of this library 3"),
                             ({"hello": 1, "packet_version": 4},
                              "have version 4, those of this library 3"),
                             ("SSH-2.0-OpenSSH",
                              "expected an object in JSON: is that a manager's address?")):
            with FakeManager(lab, hello=hello or {"x": 1}):
                expect_error(lab, f"hello {hello}", "manager", words, manager=here)
        with FakeManager(lab, mute=True):
            expect_error(lab, "mute", "join_timeout", "did not answer within 1.0 s", manager=here,
                         join_timeout_ms=1000)
        for code in ("size_mismatch", "trees_mismatch", "name_in_use", "no_path", "no_room",
                     "invalid"):
            with FakeManager(lab, refusal=(code, "words of the manager's")):
                expect_error(lab, code, "join_refused",
                             f"refused job 'job': words of the manager's ({code})", manager=here)
        for name, value, words in (("mode", "tree", 'mode "tree", expected "network" or "ring"'),
                                   ("size", 3, "size 3, expected that of this host"),
                                   ("rank", 1, "rank 1, expected one below the size"),
                                   ("key", 17, "key 17, expected a string"),
                                   ("switch_ip", "x", 'switch_ip "x"'),
                                   ("job", 0, "job 0, expected a job's number"),
                                   ("udp_port", None, "udp_port null, expected 1 to 65535"),
                                   ("more_trees", 7, "more_trees 7, expected a short list"),
                                   ("more_trees", [{}] * 8, "expected a short list"),
                                   ("more_trees", ["x"],
                                    "switch_ip nothing, expected an IPv4 address"),
                                   ("more_trees",
                                    [{"switch_ip": "10.0.0.1", "job": 1, "udp_port": 1}],
                                    "key nothing, expected a string"),
                                   ("peers", {},
                                    "peers {}, expected a list with one for each rank"),
                                   ("peers", [], "expected a list with one for each rank"),
                                   ("peers",
                                    [{"rank": 1, "ip": "10.0.0.1", "switch_ip": "10.0.0.2"}],
                                    "rank, ip and switch_ip"),
                                   ("peers", [{"rank": 0, "ip": "10.0.0.1"}],
                                    "rank, ip and switch_ip")):
            with FakeManager(lab, change=lambda result, name=name,
                             value=value: result.update({name: value})):
                expect_error(lab, f"{name} {value}", "manager", words, manager=here, size=1)
        for endpoints, words in (([], "a list with one for each rank"), (["x"], "strings like")):
            with FakeManager(lab, ring="x", change=lambda result,
                             value=endpoints: result.update(endpoints=value)):
                expect_error(lab, f"endpoints {endpoints}", "manager", words, manager=here, size=1)
        with FakeManager(lab, ring="there is none"):
            expect_error(lab, "no fallback", "manager",
                         "answered with a ring, which this host forbids: there is none",
                         manager=here, size=1, no_fallback=True)
        with FakeManager(lab):
            expect_error(lab, "address of somebody else", "invalid",
                         "which no interface of this host has", manager=here,
                         address="10.1.2.3")


@case()
def the_manager_is_spoken_to_by_tls():
    with running_lab(2) as lab:
        right, wrong = (certificate(lab.directory, name, lab.host_ip(0))
                        for name in ("right", "wrong"))
        elsewhere = certificate(lab.directory, "elsewhere", "10.1.2.3")
        conf = lab.directory / "fanin.conf"
        conf.write_text(f"manager = {lab.host_ip(0)}\ntls = yes\nca = {right[0]}\n")
        environment = {"FANIN_CONF": conf}
        with FakeManager(lab, tls=server_context(right), token="secret"):
            ranks = [spawn_by_name(lab, host, environment=environment | {"FANIN_TOKEN": "secret"},
                                   size=2) for host in range(2)]
            expect_exact(reports_of(lab, ranks), "by TLS")
        with FakeManager(lab, tls=server_context(wrong)):
            expect_error(lab, "another certificate", "manager",
                         f"TLS with the manager {lab.host_ip(0)}:{PORT}: failed: ",
                         environment)
        with FakeManager(lab):
            expect_error(lab, "no TLS there", "manager", "TLS with the manager", environment)
        conf.write_text(f"manager = {lab.host_ip(0)}\ntls = yes\nca = {elsewhere[0]}\n")
        with FakeManager(lab, tls=server_context(elsewhere)):
            expect_error(lab, "another host's certificate", "manager", "IP address mismatch",
                         environment)
        conf.write_text(f"manager = {lab.host_ip(0)}\ntls = yes\nca = /nonexistent\n")
        expect_error(lab, "no such certificate", "manager", "/nonexistent", environment)


@case()
def a_manager_on_the_same_host_does_not_show_the_address():
    with running_lab(1) as lab, FakeManager(lab, ring="test", address="127.0.0.1") as manager:
        report = reports_of(lab, [spawn_by_name(lab, 0, manager="127.0.0.1", size=1)], 60)[0]
        expect("give address or interface" in report["error"]["message"],
               report["error"]["message"])
        report = reports_of(lab, [spawn_by_name(lab, 0, manager="127.0.0.1", size=1,
                                                interface="fanin0")], 60)[0]
        expect_ring([report], "by the interface", "test")
        expect_equal(manager.told("join")[-1]["ip"], lab.host_ip(0), "address by the interface")
