# SPDX-License-Identifier: BSD-3-Clause
"""What the manager reports about itself: metrics that move with what they count."""

from tests.net.support import Lab, case, expect, expect_equal, wait_until
from tests.net.case_observe import Watch
from lab.namespaces import LabError
from tests.net.manager_lab import FOUR, Manager, Refused, close_all, played, played_manager
from tests.net.prometheus import request

LISTEN = "127.0.0.1:9465"

# The reasons why a metric may keep its value.
STILL = {
    "fanin_manager_info": "it is 1 for its labels",
    "fanin_manager_jobs_limit": "configured",
    "fanin_manager_switch_jobs_limit": "configured in the switch",
    "fanin_manager_server_jobs_limit": "configured in the server",
}


class ManagerWatch(Watch):
    """Watches the metrics of a manager with played switches."""

    def __init__(self, manager, switches):
        super().__init__(manager.namespace, LISTEN)
        self.manager, self.switches = manager, switches

    def await_value(self, name, number, what, **labels):
        def reached():
            self.look()
            return self.value(f"fanin_manager_{name}", **labels) == number
        wait_until(reached, 60, f"{what}: {name}{labels or ''} to be {number}")

    def await_idle(self):
        self.manager.wait_idle()
        self.look()


def refused_join(manager, code, **arguments):
    client = manager.client()
    try:
        client.ask("join", **{"job": "refused", "size": 1, "ip": FOUR[0], **arguments})
        expect(False, f"a join with {arguments} was taken")
    except Refused as error:
        expect_equal(error.code, code, f"code for {arguments}")
    finally:
        client.close()


def move_jobs(watch, manager):
    """Makes jobs that gather, run, lose hosts, end and are destroyed."""
    first = manager.client()
    number = first.start("join", job="j", size=2, rank=0, ip=FOUR[0])
    watch.await_value("jobs", 1, "a job that gathers", state="gathering")
    watch.await_value("members", 1, "a member that waits", state="waiting")
    second = manager.client()
    second.ask("join", job="j", size=2, rank=1, ip=FOUR[1])
    first.finish(number)
    watch.await_value("jobs", 1, "a job in the network", state="network")
    watch.await_value("members", 2, "two members", state="live")
    watch.await_value("switch_trees", 1, "the leaf's tree", switch="leaf0")
    watch.await_value("switch_jobs", 1, "the leaf's job", switch="leaf0")
    first.close()
    watch.await_value("members", 1, "a member that is lost", state="gone")
    second.close()
    watch.await_idle()
    others, _ = manager.join("k", FOUR)
    manager.ask("jobs.destroy", name="k")
    close_all(others)
    watch.await_idle()


def move_failures(watch, manager, switches):
    """Makes switches that refuse, a ring, and a job that can't be made."""
    refused_join(manager, "no_path", ip="10.9.9.9")
    refused_join(manager, "invalid", size=4097)
    switches["leaf1"].refuse["jobs.create"] = ("no_room", "limits.max_jobs")
    clients, results = manager.join("r", FOUR, fallback=True, endpoint="10.77.0.1:4000")
    expect_equal(results[0]["mode"], "ring", "mode without room")
    watch.await_value("jobs", 1, "a job that is a ring", state="ring")
    close_all(clients)
    watch.await_idle()
    del switches["leaf1"].refuse["jobs.create"]


def move_switches(watch, manager, switches):
    """A switch has a stray job, another loses a job, and two switches are lost: their job moves as
    long as there is another tree.
    """
    switches["leaf0"].jobs[900] = {"owner": "m0"}
    watch.await_value("strays_removed_total", 1, "the stray job")
    switches["leaf0"].jobs[901] = {"owner": "m0#0123456789abcdef"}
    watch.await_value("switch_namesake_jobs", 1, "another manager's job", switch="leaf0")
    del switches["leaf0"].jobs[901]
    watch.await_value("switch_namesake_jobs", 0, "no other manager's job", switch="leaf0")
    clients, results = manager.join("m", FOUR)
    del switches["leaf0"].jobs[results[0]["job"]]
    watch.await_value("missing_total", 1, "the job that the switch has lost")
    watch.await_value("jobs_moved_total", 1, "the same job, made anew")
    root = next(name for name in ("spine0", "spine1") if switches[name].jobs)
    switches[root].stop()
    watch.await_value("switch_up", 0, "the lost root", switch=root)
    watch.await_value("link_up", 0, "its link", a=f"leaf0:u{root[-1]}", b=f"{root}:p0")
    watch.await_value("link_up", 1, "the other spine's link", a=f"leaf0:u{1 - int(root[-1])}",
                      b=f"spine{1 - int(root[-1])}:p0")
    watch.await_value("jobs_moved_total", 2, "the job without its root")
    watch.await_value("removals_pending", 1, "the removal that waits")
    other = switches[f"spine{1 - int(root[-1])}"]
    other.stop()
    wait_until(lambda: watch.has_moved("fanin_manager_moves_failed_total"), 60,
               "a job without another tree")
    other.listen()
    watch.await_value("switch_up", 1, "the spine that came back", switch=other.name)
    close_all(clients)
    switches[root].listen()
    watch.await_value("switch_up", 1, "the root that came back", switch=root)
    watch.await_value("removals_pending", 0, "the removal that is done")
    watch.await_idle()


def move_servers(watch, manager, switches):
    """A server has a job, which ends when the server is lost, because there is no other."""
    watch.await_value("link_up", 1, "the server's link", a="spine0:s0", b="server0:eth0")
    expect_equal(watch.value("fanin_manager_server_jobs_limit", server="server0"), 64,
                 "jobs that the server may have")
    clients, results = manager.join("s", FOUR, handler="serving")
    expect_equal((results[0]["shape"], results[0]["server"]), ("server", "server0"),
                 "shape and server")
    created = switches["server0"].created[-1]
    expect_equal((len(created["members"]), created["members"][0]["ranks"],
                  created["members"][0]["ip"]), (1, [0, 1, 2, 3], "10.79.0.254"),
                 "the server's one member")
    expect_equal(switches["spine0"].created[-1]["parent"],
                 {"port": "s0", "ip": "10.79.0.201", "mac": switches["server0"].mac,
                  "server": True}, "the spine's parent")
    watch.await_value("server_trees", 1, "the server's tree", server="server0")
    watch.await_value("server_jobs", 1, "the server's job", server="server0")
    switches["server0"].jobs[901] = {"owner": "m0#0123456789abcdef"}
    watch.await_value("server_namesake_jobs", 1, "another manager's job", server="server0")
    del switches["server0"].jobs[901]
    switches["server0"].stop()
    for client in clients:
        reason = client.wait_event("job_destroyed")["reason"]
        expect("server server0 is lost, and there is no other" in reason, reason)
    watch.await_value("server_up", 0, "the lost server", server="server0")
    watch.await_value("servers_lost_total", 1, "the lost server")
    watch.await_value("jobs_lost_total", 1, "its job")
    close_all(clients)
    switches["server0"].listen()
    watch.await_value("server_up", 1, "the server that came back", server="server0")
    watch.await_idle()
    expect_equal(switches["server0"].jobs, {}, "jobs left at the server")


def move_refusals(watch, manager):
    """Makes one failing connection or line of each kind, except those that take long to be refused.
    """
    def kind(name):
        return watch.value("fanin_manager_refusals_total", kind=name)

    def refused(name, *lines, hello=True, **options):
        watch.look()
        before = kind(name)
        try:
            client = manager.client(hello=hello, **options)
        except Refused:
            client = None
        if client is not None:
            for line in lines:
                client.send_line(line)
            expect("error" in client.receive(), f"{name}: the manager took {lines[0][:20]!r}")
            client.close()
        watch.look()
        expect_equal(kind(name), before + 1, f"refusals of the kind {name}")

    refused("token_wrong", token="wrong")
    refused("hello_wrong", "junk", hello=False)
    refused("line_wrong", "junk")
    refused("command_unknown", '{"id":1,"command":"nonsense"}')
    refused("command_failed", '{"id":1,"command":"jobs.destroy","args":{"name":"nobody"}}')
    refused("line_long", "x" * 70000)
    silent = [manager.client(hello=False) for _ in range(40)]
    manager.ask("version")
    watch.look()
    expect(kind("half_open_dropped") > 0, "no connection without a handshake was dropped")
    close_all(silent)
    full = []
    try:
        for _ in range(41):
            full.append(manager.client())
        expect(False, "more connections than allowed")
    except LabError:
        watch.look()
        expect_equal(kind("too_many"), 1, "connections that were too many")
    close_all(full)
    expect_equal({dict(labels)["kind"] for _,
                  labels in watch.last["fanin_manager_refusals_total"].samples},
                 set(manager.ask("stats")["control"]) - {"connections"}, "kinds of refusals")


def check_numbers(watch, manager):
    """The metrics are the same counters that faninctl shows."""
    stats = manager.ask("stats")
    watch.look()
    for name, number in stats["counters"].items():
        expect_equal(watch.value(f"fanin_manager_{name}_total"), number, f"the counter {name}")
    for name, number in stats["control"].items():
        if name != "connections":
            expect_equal(watch.value("fanin_manager_refusals_total", kind=name), number,
                         f"refusals of the kind {name}")
    expect(watch.value("fanin_manager_connections_total") >= stats["control"]["connections"],
           "connections")


@case(120, sanitized=True)
def every_metric_of_the_manager_moves():
    with Lab(1, "af_packet") as lab:
        switches = played(lab, servers=1)
        manager = played_manager(lab, switches, metrics={"listen": LISTEN}, reconcile_ms=300,
                                 limits={"connections": 40, "jobs": 16})
        watch = ManagerWatch(manager, switches)
        move_jobs(watch, manager)
        move_failures(watch, manager, switches)
        move_switches(watch, manager, switches)
        move_servers(watch, manager, switches)
        move_refusals(watch, manager)
        check_numbers(watch, manager)
        expect_equal(sorted(set(watch.last) - watch.moved - set(STILL)),
                     ["fanin_manager_reattached_total"],
                     "metrics that did not move")
        expect_equal(sorted(watch.moved & set(STILL)), [],
                     "metrics that moved although they are constant")
        expect_equal(sorted(set(STILL) - set(watch.last)), [],
                     "constant metrics that there are not")
        # A host comes back to a manager that was killed: the manager's counters start again.
        clients, results = manager.join("b", FOUR[:1])
        manager.kill()
        close_all(clients)
        manager.start()
        watch.look(counters_start_again=True)
        watch.await_value("members", 1, "a member that may come back", state="absent")
        back = manager.client()
        back.ask("reattach", job="b", rank=0, key=results[0]["key"])
        watch.await_value("reattached_total", 1, "the member that came back")
        expect_equal(request(manager.namespace, LISTEN, "GET", "/")[0], 404,
                     "status of another path")
        back.close()
        manager.wait_idle()
        manager.stop()


@case()
def a_manager_without_the_address_of_its_metrics_does_not_start():
    with Lab(1, "af_packet") as lab:
        manager = Manager(lab, {"switches": [{"name": "a", "control": "/nonexistent/a"}]},
                          metrics={"listen": "192.0.2.1:9465"})
        try:
            manager.start()
        except LabError as error:
            expect("192.0.2.1:9465" in manager.process.stderr(),
                   f"'{error}' does not name the address")
            return
        expect(False, "the manager started with an address that it does not have")
