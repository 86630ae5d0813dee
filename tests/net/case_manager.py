# SPDX-License-Identifier: BSD-3-Clause
"""The network manager with real switches, as its operators see it: jobs that run, crashes,
faninctl, configurations.
"""

import json
import os
import signal
import socket
from pathlib import Path

from tests.net.support import (KIB, Lab, case, expect, expect_equal, expect_exact, job_entry,
                               program, reports_of, run, wait_until)
from lab.fabric import Fabric, leaf_spine as real_leaf_spine
from lab.namespaces import SOURCE_DIR, Control, LabError, inside
from tests.net.manager_lab import (FOUR, MANAGER_PORT, SWITCH_PORT, TOKEN, Manager, Refused,
                                   close_all, control_over_tcp, played, played_manager, write_token)


class TwoSwitches(Lab):
    """The laboratory's switch with its hosts, reached over TCP, and a second switch whose ports
    lead nowhere.
    """

    def __init__(self, hosts=4, max_jobs=16, **options):
        super().__init__(hosts, "af_packet", **options)
        self.max_jobs = max_jobs
        self.second = None

    def __enter__(self):
        super().__enter__()
        try:
            self.overrides = {"control": control_over_tcp(self),
                              "limits": {"max_jobs": self.max_jobs, "slots": 2048}}
            self.start_switch()
            self.start_second()
        except BaseException:
            self.close()
            raise
        return self

    def start_second(self):
        path = self.directory / "second.json"
        socket_path = self.directory / "second.sock"
        path.write_text(json.dumps({
            "name": "second", "address": {"ip": "10.78.0.254"}, "workers": [{"lcore": 0}],
            "control": {"socket": str(socket_path), "listen": f"127.0.0.1:{SWITCH_PORT + 20}",
                        "token_file": str(write_token(self))},
            "limits": {"max_jobs": self.max_jobs, "slots": 2048},
            "memory": {"hugepages": "never", "megabytes": 128}, "mempool": {"mbufs": 8191},
            "ports": [{"name": f"h{port}", "vdev": f"net_null{port}"} for port in range(4)]}))
        self.second = self._spawn(self.switch_namespace, "second",
                                  [program("fanin-switch"), "--config", str(path)])
        wait_until(lambda: self._second_answers(socket_path), 60, "the second switch")

    def _second_answers(self, path):
        if not self.second.running():
            raise LabError(f"the second switch did not start: {self.second.last_words()}")
        try:
            self.controls.insert(0, Control(path))
        except OSError:
            return False
        return True

    @property
    def second_control(self):
        return self.controls[0]

    def topology(self):
        hosts = [{"ip": self.host_ip(host), "switch": "lab", "port": f"h{host}"}
                 for host in range(self.hosts)]
        hosts += [{"ip": f"10.78.0.{port + 1}", "switch": "second", "port": f"h{port}"}
                  for port in range(4)]
        token = str(write_token(self))
        return {"switches": [{"name": "lab", "control": f"127.0.0.1:{SWITCH_PORT}",
                              "token_file": token},
                             {"name": "second", "control": f"127.0.0.1:{SWITCH_PORT + 20}",
                              "token_file": token}],
                "hosts": hosts}


def jobs_of(control):
    return {job["id"]: job for job in control.ask("jobs.list")["jobs"]}


@case(90)
def hosts_join_by_name_and_the_job_runs_on_their_switch():
    with TwoSwitches() as lab:
        manager = Manager(lab, lab.topology()).start()
        manager.wait_up("lab", "second")
        ips = [lab.host_ip(host) for host in range(4)]
        clients, results = manager.join("training", ips)
        first = results[0]
        expect_equal([result["rank"] for result in results], [0, 1, 2, 3], "ranks")
        expect_equal((first["mode"], first["switch_ip"], first["udp_port"], first["size"]),
                     ("network", "10.77.0.254", 21930, 4), "what the hosts are told")
        job = job_entry(lab, {"id": first["job"]})
        expect(job["owner"].startswith("m0#"),
               f"owner of the job: found {job['owner']}, expected m0 and an id")
        expect_equal((job["window"], job["payload_bytes"], job["size"]),
                     (first["window"], first["payload_bytes"], 4), "the job on the switch")
        expect_equal([member["ip"] for member in job["members"]], ips, "members on the switch")
        expect_equal(jobs_of(lab.second_control), {}, "jobs on the other switch")
        ranks = [lab.spawn_perf(host, {"id": first["job"], "key": first["key"]}, host, 4,
                                bytes=256 * KIB, check=True,
                                transport="af_packet") for host in range(4)]
        expect_exact(reports_of(lab, ranks), "the job that the manager made")

        others, results = manager.join("other", ["10.78.0.2", "10.78.0.1"], reproducible=True,
                                       authenticate=True)
        expect_equal((results[0]["switch_ip"], results[0]["handler"]), ("10.78.0.254", "tree"),
                     "the second job")
        expect(results[0]["job"] != first["job"] and results[0]["key"] != first["key"],
               "number or key was given twice")
        expect_equal([job["authenticated"] for job in jobs_of(lab.second_control).values()], [True],
                     "authentication of the jobs on the second switch")
        expect_equal((job["authenticated"], results[0]["authenticated"]), (False, True),
                     "authentication of both jobs")
        expect_equal({entry["name"]: entry["authenticated"]
                      for entry in manager.ask("jobs")["jobs"]},
                     {"training": False, "other": True}, "authentication as the manager lists it")

        for client in clients[:3]:
            client.ask("leave")
        expect(job_entry(lab, {"id": first["job"]}) is not None,
               "the job went before its last host")
        clients[3].close()
        wait_until(lambda: job_entry(lab, {"id": first["job"]}) is None, 60,
                   "the job to go with its last host")
        expect_equal(len(jobs_of(lab.second_control)), 1, "jobs on the second switch")
        close_all(others)
        manager.wait_idle()
        expect_equal(jobs_of(lab.second_control), {}, "jobs on the second switch at the end")
        manager.stop()


@case()
def a_switch_that_refuses_the_manager_is_told_of_once():
    with TwoSwitches() as lab:
        topology = lab.topology()
        del topology["switches"][0]["token_file"]
        manager = Manager(lab, topology).start()
        manager.wait_up("second")
        wait_until(lambda: manager.ask("stats")["counters"]["switches_lost"] >= 4, 60,
                   "some attempts")
        warnings = [line for line in manager.process.stderr().splitlines()
                    if "switch lab is lost" in line]
        expect(len(warnings) == 1 and "token" in warnings[0],
               f"warnings of a switch that refuses the manager: {warnings}")
        manager.stop()


@case(90, sanitized=True)
def a_killed_manager_takes_its_jobs_up_again():
    with TwoSwitches() as lab:
        manager = Manager(lab, lab.topology(), grace_ms=4000).start()
        manager.wait_up("lab", "second")
        clients, results = manager.join("kept", [lab.host_ip(0), lab.host_ip(1)])
        lost, lost_results = manager.join("lost", ["10.78.0.1", "10.78.0.2"])
        job = job_entry(lab, {"id": results[0]["job"]})
        half = manager.client()
        half.start("join", job="never", size=2, ip=lab.host_ip(2))
        manager.kill()
        close_all(clients + lost + [half])
        manager.start()
        expect_equal(sorted(job["name"] for job in manager.ask("jobs")["jobs"]), ["kept", "lost"],
                     "jobs after the crash")
        for wrong in ({"key": "0x0000000000000001"}, {"key": lost_results[0]["key"]}):
            client = manager.client()
            try:
                client.ask("reattach", **{"job": "kept", "rank": 0, "key": results[0]["key"],
                                          **wrong})
                expect(False, f"a host came back with {wrong}")
            except Refused as error:
                expect_equal(error.code, "unauthorized", "code for a wrong key")
            client.close()
        clients = [manager.client() for _ in range(2)]
        again = [client.ask("reattach", job="kept", rank=rank, key=results[0]["key"]) for rank,
                 client in enumerate(clients)]
        manager.wait_up("lab", "second")
        expect_equal(again, results, "what the hosts are told when they come back")
        thief = manager.client()
        try:
            thief.ask("reattach", job="kept", rank=0, key=results[0]["key"])
            expect(False, "a rank that is live came back once more")
        except Refused as error:
            expect_equal(error.code, "name_in_use", "code for a live rank")
        wait_until(lambda: not jobs_of(lab.second_control), 60,
                   "the job to go whose hosts did not come back")
        after = job_entry(lab, {"id": results[0]["job"]})
        expect(after is not None, "the job whose hosts came back is gone")
        expect_equal(after["members"], job["members"], "members after the crash")
        ranks = [lab.spawn_perf(host, {"id": again[0]["job"], "key": again[0]["key"]}, host, 2,
                                bytes=64 * KIB, check=True,
                                transport="af_packet") for host in range(2)]
        expect_exact(reports_of(lab, ranks), "the job after the crash")
        close_all(clients)
        manager.wait_idle()
        manager.stop()


@case(90)
def a_switch_that_restarts_or_stands_still_is_noticed():
    with TwoSwitches() as lab:
        manager = Manager(lab, lab.topology(), reconcile_ms=300).start()
        manager.wait_up("lab", "second")
        clients, results = manager.join("j", ["10.78.0.1"])
        os.kill(lab.second.pid, signal.SIGSTOP)
        try:
            wait_until(lambda: manager.switch_state("second") == "down", 60,
                       "the stopped switch to be found dead")
            expect_equal(clients[0].wait_event("switch_lost")["switch"], "second",
                         "switch of the event")
        finally:
            os.kill(lab.second.pid, signal.SIGCONT)
        manager.wait_up("second")
        expect_equal(list(jobs_of(lab.second_control)), [results[0]["job"]],
                     "jobs after it went on")
        # The manager removes a job that carries its mark and that it does not know; others' jobs
        # stay.
        members = [{"port": "h3", "ip": "10.78.0.9"}]
        lab.second_control.ask("jobs.create", id=900, owner="m0", members=members)
        lab.second_control.ask("jobs.create", id=901, owner="m1", members=members)
        lab.second_control.ask("jobs.create", id=902, members=members)
        lab.second_control.ask("jobs.create", id=903, owner="m0#0123456789abcdef", members=members)
        wait_until(lambda: 900 not in jobs_of(lab.second_control), 60, "the stray job to go")
        expect_equal(sorted(jobs_of(lab.second_control)), [results[0]["job"], 901, 902, 903],
                     "jobs that stay")

        lab.controls.pop(0).close()
        lab.second.popen.kill()
        lab.second.popen.wait()
        lab.start_second()
        expect_equal(clients[0].wait_event("job_missing")["job"], "j", "job of the event")
        expect_equal(clients[0].wait_event("moved")["job"], "j", "job of the event that follows")
        expect_equal(manager.ask("trees")["trees"][0]["nodes"][0]["state"], "installed",
                     "state of the node")
        expect_equal(list(jobs_of(lab.second_control)), [results[0]["job"]],
                     "jobs after the restart")
        close_all(clients)
        manager.wait_idle()
        manager.stop()


@case(90)
def programs_that_know_only_a_name_run_in_the_network_or_as_a_ring():
    with Lab(4, "af_packet") as lab:
        lab.start_switch()
        hosts = [{"ip": lab.host_ip(host), "switch": "lab", "port": f"h{host}"}
                 for host in range(3)]
        manager = Manager(lab, {"switches": [{"name": "lab", "control": str(lab.socket_path)}],
                                "hosts": hosts}, host=3).start()
        manager.wait_up("lab")

        def by_name(members, *options):
            reports = reports_of(lab, [lab.spawn(host, [
                "/usr/bin/env", f"FANIN_TOKEN={TOKEN}", program("fanin-perf"), "--manager",
                manager.address, "--job-name", "job",
                "--size", len(members), "--transport", "af_packet", "--bytes", 256 * KIB, "--check",
                "--json",
                "--no-progress", *options], "by-name") for host in members])
            manager.wait_idle()
            return reports

        expect_exact(by_name([0, 1, 2]), "three hosts by name")
        for report in by_name([0, 1, 2], "--handler", "ring"):
            expect_equal((report.get("error"), report["mode"], report["mismatches"]),
                         (None, "ring", 0), f"a ring that is asked for: {report}")
            expect("its hosts ask for the handler" in report["mode_reason"], report["mode_reason"])
        # The fourth host is not in the topology.
        for report in by_name([0, 3]):
            expect_equal((report.get("error"), report["mode"], report["mismatches"]),
                         (None, "ring", 0), f"a ring: {report}")
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs left on the switch")
        manager.stop()


def fabric_topology(fabric):
    """The manager's topology of a fabric: its switches, links and hosts."""
    return {"switches": [{"name": name, "control": str(fabric.socket_of(name))}
                         for name in fabric.topology.switches],
            "links": [{"a": f"{a}:to-{b}", "b": f"{b}:to-{a}"} for a, b in fabric.topology.links],
            "hosts": [{"ip": fabric.host_ip(host), "switch": switch, "port": f"h{host}"}
                      for host, switch in enumerate(fabric.topology.switch_of)]}


@case(150)
def jobs_over_real_leaves_and_spines_are_exact():
    with Fabric(real_leaf_spine(2, 2, 8), config={"faults": {"drop": 0.01, "seed": 3}}) as fabric:
        fabric.start()
        fabric.switch_namespace = fabric.switch_ns("leaf0")
        manager = Manager(fabric, fabric_topology(fabric)).start()
        manager.wait_up(*fabric.topology.switches)
        # Two jobs at a time, each with hosts of both leaves: their roots are different spines.
        jobs = [[0, 1, 4, 5], [2, 3, 6, 7]]
        joined = [manager.join(f"job{number}", [fabric.host_ip(host) for host in hosts],
                               reproducible=number == 1)
                  for number, hosts in enumerate(jobs)]
        roots = [tree["nodes"][0]["switch"] for tree in manager.ask("trees")["trees"]]
        expect_equal(sorted(roots), ["spine0", "spine1"], "roots of two jobs")

        def run_both(where):
            started = [fabric.spawn_perf(host, {"id": result["job"], "key": result["key"]},
                                         result["rank"], 4,
                                         switch=result["switch_ip"], bytes=256 * KIB, check=True,
                                         transport="af_packet")
                       for hosts, (_, results) in zip(jobs, joined) for host,
                       result in zip(hosts, results)]
            reports = reports_of(fabric, started)
            expect_exact(reports[:4], where)
            expect_exact(reports[4:], where, "tree")

        run_both("two jobs of the manager")
        # The manager is killed and comes back; the jobs have not noticed.
        manager.kill()
        run_both("two jobs without a manager")
        manager.start()
        for clients, results in joined:
            close_all(clients)
            for rank in range(4):
                clients[rank] = manager.client()
                clients[rank].ask("reattach", job=f"job{joined.index((clients, results))}",
                                  rank=rank, key=results[0]["key"])
        manager.wait_up(*fabric.topology.switches)
        # Trees avoid a spine that is dead; its job's removal waits.
        fabric.switches["spine0"].popen.kill()
        fabric.switches["spine0"].popen.wait()
        wait_until(lambda: manager.switch_state("spine0") == "down", 60,
                   "the spine to be found dead")
        close_all(joined[roots.index("spine0")][0])
        clients, results = manager.join("after", [fabric.host_ip(host) for host in jobs[0]])
        tree = next(tree for tree in manager.ask("trees")["trees"] if tree["name"] == "after")
        expect_equal(tree["nodes"][0]["switch"], "spine1", "root without spine0")
        close_all(clients + joined[roots.index("spine1")][0])
        wait_until(lambda: not manager.ask("jobs")["jobs"], 60, "the jobs to end")
        wait_until(lambda: [removal["switch"]
                            for removal in manager.ask("jobs")["removals"]] == ["spine0"], 60,
                   "no removal to wait but that of the dead spine")
        fabric.launch("spine0")
        fabric.await_switch("spine0")
        manager.wait_idle()
        for switch in fabric.topology.switches:
            expect_equal(fabric.ask(switch, "jobs.list")["jobs"], [], f"jobs left on {switch}")
        manager.stop()


@case(60)
def every_verb_of_faninctl_answers_for_a_manager():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        manager = played_manager(lab, switches)
        clients, results = manager.join("shown", FOUR)

        def ctl(*arguments, check=True):
            with inside(lab.switch_namespace):
                return run([program("faninctl"), "--manager", f"127.0.0.1:{MANAGER_PORT}",
                            "--token-file",
                            str(manager.token_file), *map(str, arguments)], check=check)

        for verb, words in ((["version"], ["m0"]),
                            (["topology"], ["leaf0", "up", "10.79.0.254", "leaf1:u1", "10.77.1.2"]),
                            (["jobs"], ["shown", "network", "AUTHENTICATED"]),
                            (["trees"], ["shown", "spine", "leaf1", "installed"]),
                            (["stats"], ["jobs_installed", "half_open_dropped"])):
            plain = ctl(*verb).stdout
            for word in words:
                expect(word in plain, f"faninctl {verb}: '{plain}' does not show {word}")
            expect(isinstance(json.loads(ctl("-j", *verb).stdout), dict),
                   f"faninctl -j {verb} prints no object")
            expect_equal(ctl(*verb, "junk", check=False).returncode, 2,
                         f"exit status of faninctl {verb} junk")
        for name, whom in (("spine0", [1]), ("spine1", [1]), ("leaf0", []), ("leaf1", [3])):
            switches[name].waiting = [{"block": 812, "since_ms": 1200,
                                       "for": "members" if whom else "parent", "missing": whom}]
        for job in ([], ["shown"]):
            expect_equal(ctl("waits", *job).stdout,
                         "block 812 of job shown waits for rank 3 behind leaf1 (late) since 1.2 s\n", "waits")
        expect_equal(ctl("waits", "nobody", check=False).returncode, 1,
                     "exit status of waits for an unknown job")
        expect_equal(ctl("waits", "shown", "junk", check=False).returncode, 2,
                     "exit status of waits with junk")
        expect_equal(ctl("jobs", "destroy", "nobody", check=False).returncode, 1,
                     "exit status for an unknown job")
        ctl("jobs", "destroy", "shown")
        expect_equal(clients[0].wait_event("job_destroyed")["job"], "shown", "job of the event")
        manager.wait_idle()
        expect_equal([switch.jobs for switch in switches.values()], [{}] * 4,
                     "jobs on the switches")
        with inside(lab.switch_namespace):
            done = run([program("faninctl"), "--manager", "127.0.0.1", "version"], check=False)
        expect("unauthorized" in done.stderr, f"without a token: {done.stderr}")
        close_all(clients)
        manager.stop()


@case()
def daemons_tell_the_service_manager_when_they_are_ready():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as notices:
            notices.bind(str(lab.directory / "notify"))
            notices.settimeout(60)
            os.environ["NOTIFY_SOCKET"] = str(lab.directory / "notify")
            try:
                lab.start_switch()
                expect_equal(notices.recv(100), b"READY=1", "what the switch said")
                manager = played_manager(lab, switches)
                expect_equal(notices.recv(100), b"READY=1", "what the manager said")
            finally:
                del os.environ["NOTIFY_SOCKET"]
            for process in (manager.process, lab.switch):
                process.popen.terminate()
                expect_equal(process.wait(60), 0, f"exit status of {process.name}")
                expect_equal(notices.recv(100), b"STOPPING=1",
                             f"what {process.name} said at its end")


@case()
def two_managers_of_one_name_leave_each_others_jobs_alone_and_say_so():
    with Lab(1, "af_packet") as lab:
        switches = played(lab)
        # The second manager runs on a host, with a database of its own.
        managers = [played_manager(lab, switches, reconcile_ms=100)]
        managers.append(Manager(lab, json.loads((lab.directory / "topology.json").read_text()),
                                host=0, database="other.db",
                                reconcile_ms=100))
        managers[1].starts = 1  # the first manager's log has this one
        managers[1].start().wait_up(*switches)
        clients, numbers = [], []
        for manager, name in zip(managers, ("a", "b")):
            members, results = manager.join(name, FOUR)
            clients += members
            numbers.append(results[0]["job"])
        expect(numbers[0] != numbers[1], f"both jobs have the number {numbers[0]}")
        owners = [manager.ask("version")["owner"] for manager in managers]
        for manager, other, owner in zip(managers, reversed(numbers), reversed(owners)):
            wait_until(lambda: {entry["job"]
                                for entry in manager.ask("jobs")["namesakes"]} == {other}, 60,
                       "the other's job to be listed")
            expect_equal({entry["owner"] for entry in manager.ask("jobs")["namesakes"]}, {owner},
                         "its owner")
            expect_equal(manager.ask("stats")["counters"]["strays_removed"], 0,
                         "jobs that were removed as strays")
        leaf = switches["leaf0"]
        expect_equal(set(leaf.jobs), set(numbers), "jobs on a leaf")

        def told(manager):
            return [line for line in manager.process.stderr().splitlines()
                    if "switch leaf0 has" in line]
        for manager, other in zip(managers, reversed(numbers)):
            expect_equal(len(told(manager)), 1, f"lines about leaf0: {told(manager)}")
            for word in ("error", "another manager with the name \"m0\"", f"such as {other} of",
                         "faninctl jobs destroy"):
                expect(word in told(manager)[0], f"'{told(manager)[0]}' does not say {word}")

        def ctl(*arguments):
            with inside(lab.switch_namespace):
                return run([program("faninctl"), "--manager", f"127.0.0.1:{MANAGER_PORT}",
                            "--token-file",
                            str(managers[0].token_file), *arguments]).stdout
        for verb, words in (("version", owners[0]),
                            ("topology", "has 1 jobs of another manager with this one's name"),
                            ("jobs", f"number {numbers[1]} on leaf0 is of another manager with "
                                     f"this one's name ({owners[1]})")):
            expect(words in ctl(verb), f"faninctl {verb} does not show '{words}': {ctl(verb)}")
        # An operator does this at each switch.
        managers[1].kill()
        for switch in switches.values():
            with switch.lock:
                switch.jobs.pop(numbers[1], None)
        wait_until(lambda: not managers[0].ask("jobs")["namesakes"], 60,
                   "no namesake's job to be listed")
        close_all(clients)
        managers[0].wait_idle()
        managers[0].stop()


@case()
def a_second_manager_on_the_same_database_does_not_start():
    """Other paths to the same database and other addresses change nothing; the first manager goes
    on.
    """
    with Lab(1, "af_packet") as lab:
        topology = {"switches": [{"name": "lab", "control": str(lab.socket_path)}], "links": [],
                    "hosts": []}
        first = Manager(lab, topology).start()
        (lab.directory / "link.db").symlink_to(lab.directory / "manager.db")
        for name, database in (("m0", "manager.db"), ("m1", "manager.db"), ("m0", "link.db")):
            path = lab.directory / "second.json"
            path.write_text(json.dumps({**first.config, "name": name,
                                        "listen": f"127.0.0.1:{MANAGER_PORT + 1}",
                                        "database": database}))
            with inside(lab.switch_namespace):
                done = run([program("fanin-manager"), "--config", str(path)], check=False)
            expect_equal(done.returncode, 1,
                         f"exit status of a second manager on {database} ({done.stderr})")
            expect_equal(done.stderr,
                         f"fanin-manager: error: database {lab.directory / database}: another "
                         "process has it open, "
                         "perhaps another manager: stop that one, or name another file\n",
                         "its words")
        expect_equal(first.ask("topology")["switches"][0]["name"], "lab",
                     "what the first one answers")
        # The lock of a killed process is gone with the process.
        first.kill()
        first.start().stop()


def verify_unit(lab, unit, change=lambda text: text):
    """Returns systemd's complaints about a unit, as if its program were installed where it was
    built.
    """
    text = (SOURCE_DIR / "packaging" / "systemd" / f"{unit}.service").read_text()
    path = lab.directory / f"{unit}.service"
    path.write_text(change(text.replace(f"@sbindir@/{unit}", str(program(unit)))))
    done = run(["systemd-analyze", "verify", "--man=no", path], check=False)
    return done.returncode, (done.stdout + done.stderr).strip()


@case()
def the_units_are_what_systemd_understands():
    with Lab(1, "af_packet") as lab:
        for unit in ("fanin-switch", "fanin-manager", "fanin-server"):
            expect_equal(unit_keys(unit)["LimitCORE"], ["0"], f"LimitCORE of {unit}")
            expect_equal(verify_unit(lab, unit), (0, ""), f"what systemd says of {unit}")
            _, words = verify_unit(lab, unit, lambda text: text.replace("Restart=", "Restrat="))
            expect("Restrat" in words, f"nothing is said of a wrong key in {unit}: {words}")


def unit_keys(unit):
    """Returns {key: [values]} of a unit's section Service."""
    keys = {}
    section = None
    for line in (SOURCE_DIR / "packaging" / "systemd" / f"{unit}.service").read_text().splitlines():
        if line.startswith("["):
            section = line
        elif section == "[Service]" and "=" in line and not line.startswith("#"):
            key, _, value = line.partition("=")
            keys.setdefault(key, []).append(value)
    return keys


def writable_directories(unit):
    """Returns the directories in which a unit's program may make files."""
    keys = unit_keys(unit)
    expect_equal(keys["ProtectSystem"], ["strict"], f"ProtectSystem of {unit}")
    paths = [path.lstrip("-") for value in keys.get("ReadWritePaths", []) for path in value.split()]
    for key, root in (("RuntimeDirectory", "/run"), ("StateDirectory", "/var/lib")):
        paths += [f"{root}/{name}" for value in keys.get(key, []) for name in value.split()]
    return set(paths)


@case()
def units_let_the_programs_make_what_the_configurations_name():
    """Programs may make the sockets and the database that the example configurations name, and
    those that they use if a configuration names none.
    """
    configs = SOURCE_DIR / "packaging" / "examples"
    schema = json.loads((configs / "schema.json").read_text())["properties"]
    defaults = {name: schema[name]["properties"]["socket"]["default"]
                for name in ("control", "memif")}
    paths = {"fanin-switch": set(defaults.values()), "fanin-manager": {"/var/lib/fanin/manager.db"}}
    for path in configs.glob("*.json"):
        config = json.loads(path.read_text())
        if "ports" in config:
            paths["fanin-switch"] |= {config.get(name, {}).get("socket", default) for name,
                                      default in defaults.items()}
        elif "topology" in config:
            paths["fanin-manager"] |= {config[key] for key in ("socket", "database")
                                       if key in config}
    expect(any(path.endswith(".sock") for path in paths["fanin-manager"]),
           "no example has a socket of the manager")
    for unit, files in paths.items():
        allowed = writable_directories(unit)
        for file in files:
            expect(str(Path(file).parent) in allowed,
                   f"{unit} may write in {sorted(allowed)}, not beside {file}")
    # A directory belongs to the user of the unit that was started last: no two users may share one.
    users = {unit: unit_keys(unit).get("User") for unit in paths}
    runtime = [set(unit_keys(unit)["RuntimeDirectory"]) for unit in paths]
    expect(users["fanin-switch"] != users["fanin-manager"] and not runtime[0] & runtime[1],
           f"shared directories: {runtime}")
    # The manager's user may use the socket of a switch on its machine: the socket's group may.
    expect_equal(unit_keys("fanin-switch")["Group"], unit_keys("fanin-manager")["Group"], "groups")
    group = (SOURCE_DIR / "packaging" / "sysusers.d" / "fanin.conf").read_text()
    expect(f"\nu {unit_keys('fanin-manager')['User'][0]} " in group,
           f"the user is not made: {group}")


@case(60)
def bad_manager_configs_are_refused_in_one_line():
    with Lab(1, "af_packet") as lab:
        manager = Manager(lab, {"switches": [{"name": "a", "control": "/a"},
                                             {"name": "b", "control": "/b"}],
                                "links": [{"a": "a:u0", "b": "b:p0"}],
                                "hosts": [{"ip": "10.0.0.1", "switch": "a", "port": "h0"}]})
        topology_path = lab.directory / "topology.json"
        good = json.loads(topology_path.read_text())

        def check(words, config=None, topology=None):
            manager.path.write_text(json.dumps({**manager.config, **(config or {})}))
            topology_path.write_text(json.dumps({**good, **(topology or {})}))
            done = run([program("fanin-manager"), "--config", str(manager.path), "--check"],
                       check=False)
            if not words:
                expect_equal(done.returncode, 0,
                             f"exit status of good configurations' check ({done.stderr})")
                return
            expect_equal(done.returncode, 2, f"exit status with bad {words[0]}")
            expect_equal(len(done.stderr.strip().splitlines()), 1,
                         f"lines for bad {words[0]}: {done.stderr}")
            for word in words:
                expect(word in done.stderr, f"'{done.stderr.strip()}' does not name {word}")

        check([])
        check(["colour", "unknown"], {"colour": "red"})
        check(["heartbeat_ms", "5"], {"heartbeat_ms": 5})
        check(["dead_after_ms", "150"], {"dead_after_ms": 150})
        check(["listen", "7"], {"listen": 7})
        check(["nowhere:1"], {"listen": "nowhere:1"})
        check(["on_host_loss", "panic"], {"on_host_loss": "panic"})
        check(["log_level", "loud"], {"log_level": "loud"})
        check(["metrics", "object"], {"metrics": 9465})
        check(["metrics", "port"], {"metrics": {"port": 9465}})
        check(["metrics.listen", "9465", "127.0.0.1:9465"], {"metrics": {"listen": ":9465"}})
        check(["metrics.listen", "localhost:9465"], {"metrics": {"listen": "localhost:9465"}})
        check([], {"metrics": {"listen": "[::1]:9465"}})
        check(["topology.jsn"], {"topology": "topology.jsn"})
        check(["tls.key"], {"tls": {"certificate": "x"}})
        check(["switches", "0 entries"], topology={"switches": []})
        check(["switches[1]", '"a"'], topology={"switches": [{"name": "a", "control": "/a"}] * 2})
        check(["switches[0].control", "localhost"],
              topology={"switches": [{"name": "a", "control": "localhost:1"}]})
        check(["links[0].b", "nobody"], topology={"links": [{"a": "a:u0", "b": "nobody:p0"}]})
        check(["links[0].a", "a-u0"], topology={"links": [{"a": "a-u0", "b": "b:p0"}]})
        check(["links[1]", "u0"],
              topology={"links": [{"a": "a:u0", "b": "b:p0"}, {"a": "a:u0", "b": "b:p1"}]})
        check(["links[0]", "both ends"], topology={"links": [{"a": "a:u0", "b": "a:u1"}]})
        check(["hosts", "10.0.0.1"],
              topology={"hosts": [{"ip": "10.0.0.1", "switch": "a", "port": f"h{port}"}
                                  for port in (0, 1)]})
        check(["hosts[0]", "u0"],
              topology={"hosts": [{"ip": "10.0.0.1", "switch": "a", "port": "u0"}]})
        # A manager without a token listens on this machine's addresses only.
        del manager.config["token_file"]
        check(["0.0.0.0:1", "token"], {"listen": "0.0.0.0:1"})
        check([], {"listen": "127.0.0.1:1"})
