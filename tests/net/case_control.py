# SPDX-License-Identifier: BSD-3-Clause
"""Operators of the switch: configuration files, faninctl's verbs, starting and stopping. Bad input
gets one clear line.
"""

import copy
import json
import random
import signal
import socket
import time

from tests.net.support import (KIB, MIB, Control, Lab, LabError, case, expect, expect_equal,
                               expect_exact, job_entry, program, reports_of, run, run_exact_job,
                               running_lab, start_ranks, wait_for_results, wait_until)
from lab.namespaces import inside


def check_config(lab, text):
    path = lab.directory / "checked.json"
    path.write_text(text)
    with inside(lab.switch_namespace):
        return run([program("fanin-switch"), "--config", str(path), "--check"], check=False)


def changed(config, path, value):
    """Returns a copy of a configuration with the key at the path set."""
    config = copy.deepcopy(config)
    at = config
    for key in path[:-1]:
        at = at.setdefault(key, {}) if isinstance(at, dict) else at[key]
    at[path[-1]] = value
    return config


def bad_configs(good):
    """Yields (words that the error must contain, configuration)."""
    first = good["ports"][0]
    return [
        (["colour", "unknown"], changed(good, ["colour"], "red")),
        (["ports[1].speed", "unknown"], changed(good, ["ports", 1, "speed"], 100)),
        (["address.ip"], changed(good, ["address", "ip"], "10.77.0")),
        (["address.ip"], changed(good, ["address", "ip"], 7)),
        (["address.mac"], changed(good, ["address", "mac"], "02:fa")),
        (["address.udp_port", "70000"], changed(good, ["address", "udp_port"], 70000)),
        (["workers"], changed(good, ["workers"], [])),
        (["workers"], changed(good, ["workers"], [{"lcore": 0}, {"lcore": 0}])),
        (["workers"], changed(good, ["workers"], [{"lcore": 99}])),
        (["mempool.mbufs", "7"], changed(good, ["mempool"], {"mbufs": 7})),
        (["idle.policy", "rest"], changed(good, ["idle"], {"policy": "rest"})),
        (["limits.slots"], changed(good, ["limits"], {"slots": -2})),
        (["limits.shared_slots", "power of two"], changed(good, ["limits"], {"shared_slots": 96})),
        (["limits.key_rate"], changed(good, ["limits"], {"key_rate": 1})),
        (["faults.drop", "1.5"], changed(good, ["faults"], {"drop": 1.5})),
        (["log_level", "loud"], changed(good, ["log_level"], "loud")),
        (["ports[1].mtu", "70000"], changed(good, ["ports", 1, "mtu"], 70000)),
        (["ports[1].mtu", '"big"'], changed(good, ["ports", 1, "mtu"], "big")),
        (["ports[1].name", "h0"], changed(good, ["ports", 1, "name"], "h0")),
        (["ports[1].vdev"], changed(good, ["ports", 1, "vdev"], first["vdev"])),
        (["ports[1]"], changed(good, ["ports", 1], {"name": "h1", "mtu": 1500})),
        (["no-such-if", "ports[1].vdev"],
         changed(good, ["ports", 1, "vdev"], "net_af_xdp,iface=no-such-if")),
        (["ports"], changed(good, ["ports"], [])),
        (["ports"], {key: value for key, value in good.items() if key != "ports"}),
    ]


def expect_one_line(done, words, what):
    expect_equal(done.returncode, 2, f"{what}: exit status ({done.stderr.strip()})")
    lines = done.stderr.strip().splitlines()
    expect_equal(len(lines), 1, f"{what}: lines on standard error {lines}")
    for word in words:
        expect(word in lines[0], f"{what}: '{lines[0]}' does not name {word}")


@case()
def bad_configs_are_refused_in_one_line():
    with Lab(2) as lab:
        good = lab.config()
        done = check_config(lab, json.dumps(good))
        expect_equal(done.returncode, 0,
                     f"exit status of a good configuration's check ({done.stderr})")
        for words, config in bad_configs(good):
            expect_one_line(check_config(lab, json.dumps(config)), words,
                            f"configuration with bad {words[0]}")
        for text in ("", "{", "[]", "{\"ports\": nul}", json.dumps(good)[:-20], "\0\1\2"):
            expect_one_line(check_config(lab, text), ["checked.json"],
                            f"configuration {text[:12]!r}")
        with inside(lab.switch_namespace):
            done = run([program("fanin-switch"), "--config", str(lab.directory / "none.json"),
                        "--check"], check=False)
            expect_one_line(done, ["none.json"], "missing file")
            done = run([program("fanin-switch"), "--config", str(lab.directory), "--check"],
                       check=False)
            expect_one_line(done, [str(lab.directory)], "a directory")


@case()
def a_missing_interface_stops_the_start():
    with Lab(2) as lab:
        lab.overrides["ports"] = changed(lab.config(), ["ports", 1, "vdev"],
                                         "net_af_xdp,iface=no-such-if")["ports"]
        try:
            lab.start_switch()
        except LabError as error:
            expect("no-such-if" in str(error), f"'{error}' does not name the interface")
            return
        expect(False, "the switch started on an interface that does not exist")


@case()
def frames_beyond_a_packet_buffer_stop_the_start():
    with Lab(1) as lab:
        lab.overrides["ports"] = [{"name": "h0", "vdev": "net_null0"},
                                  {"name": "h1", "vdev": "net_null1,framesz=65536"}]
        try:
            lab.start_switch()
        except LabError as error:
            for word in ("framesz", "65407"):
                expect(word in str(error), f"'{error}' does not name {word}")
            return
        expect(False, "the switch started with frames that no packet buffer holds")


def expect_refused(lab, arguments, words):
    done = lab.ctl(*arguments, check=False)
    shown = " ".join(map(str, arguments))
    expect(done.returncode not in (0, None) and done.returncode > 0,
           f"faninctl {shown}: exit status {done.returncode}, expected an error")
    lines = done.stderr.strip().splitlines()
    expect(len(lines) >= 1, f"faninctl {shown}: no word on standard error")
    for word in words:
        expect(word in done.stderr,
               f"faninctl {shown}: '{done.stderr.strip()}' does not name {word}")


@case()
def bad_jobs_are_refused_in_one_line():
    with running_lab(3) as lab:
        members = ["--member", "h0:10.77.0.1", "--member", "h1:10.77.0.2"]
        create = ["jobs", "create"]
        expect_refused(lab, create, [])
        expect_refused(lab, create + ["--member", "h9:10.77.0.1"] + members[:2], ["h9"])
        expect_refused(lab, create + ["--member", "h0:10.77.0.1", "--member", "h1:10.77.0.1"], [])
        expect_refused(lab, create + ["--member", "h0:10.77.0"] + members[2:], [])
        expect_refused(lab, create + ["--member", "h0"] + members[2:], [])
        expect_refused(lab, create + members + ["--slots", 1000000], ["slots"])
        expect_refused(lab, create + members + ["--slots", 3], ["slots"])
        expect_refused(lab, create + members + ["--payload", 100], ["payload"])
        expect_refused(lab, create + members + ["--payload", 60000], ["payload"])
        expect_refused(lab, create + members + ["--handler", "magic"], ["magic"])
        expect_refused(lab, create + members + ["--accumulate", "bf16"],
                       ["accumulate", "bf16", "native", "f32"])
        expect_refused(lab, create + members + ["--authenticate=yes"], ["authenticate"])
        expect_refused(lab, create + members + ["--id", 0], [])
        for arguments in (
                {"members": [{"port": "h0", "ip": "10.77.0.1", "rank": 0},
                             {"port": "h1", "ip": "10.77.0.2", "rank": 0}]},
                {"members": [{"port": "h0", "ip": "10.77.0.1", "rank": 5},
                             {"port": "h1", "ip": "10.77.0.2", "rank": 0}]},
                {"members": [{"port": "h0", "ip": "10.77.0.1"}], "accumulate": 32},
                {"members": [{"port": "h0", "ip": "10.77.0.1"}], "accumulate": ""},
                {"members": [{"port": "h0", "ip": "10.77.0.1"}], "authenticate": "true"},
                {"members": [{"port": "h0", "ip": "10.77.0.1"}], "authenticate": 1},
                {"members": "h0"}, {"members": []}, {"members": [7]}, {}, {"members": [{}]}):
            try:
                lab.control.ask("jobs.create", **arguments)
            except LabError:
                continue
            expect(False, f"jobs.create accepted {arguments}")
        member = {"port": "h0", "ip": "10.77.0.1"}
        for arguments, path in (
                ({"members": [member | {"port": "h9"}]}, "args.members[0].port"),
                ({"members": [member], "size": 2, "links": ["h9"]}, "args.links"),
                ({"members": [member], "parent": {"port": "h9", "ip": "10.77.0.9",
                                                  "mac": "02:fa:00:00:00:fe"}},
                 "args.parent.port")):
            try:
                lab.control.ask("jobs.create", **arguments)
            except LabError as error:
                expect(f"{path}: found \"h9\"" in str(error), f"'{error}' does not begin with {path}")
                continue
            expect(False, f"jobs.create accepted {arguments}")
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs after refused ones")
        job = lab.create_job()
        expect_refused(lab, create + members + ["--id", job["id"]], [str(job["id"])])
        run_exact_job(lab, "a good job", job=job, bytes=64 * KIB)


@case()
def jobs_with_authentication_are_shown_and_hold_less_per_packet():
    with running_lab(2, mtu=1500) as lab:
        plain = lab.create_job()
        job = lab.create_job(None, "--authenticate")
        expect_equal([(found["authenticated"], job_entry(lab, found)["authenticated"],
                       found["payload_bytes"])
                      for found in (plain, job)], [(False, False, 1408), (True, True, 1344)],
                     "authentication and payload of a job without, and of one with it")
        header, *rows = [line.split() for line in lab.ctl("jobs").stdout.splitlines() if line]
        column = header.index("AUTHENTICATED")
        expect_equal([row[column] for row in rows[:2]], ["no", "yes"], "the table of jobs")
        lab.control.ask("jobs.destroy", id=job["id"])
        asked = lab.control.ask("jobs.create", members=[{"port": "h0", "ip": "10.77.0.1"}],
                                authenticate=False)
        expect_equal(asked["authenticated"], False, "asked for without it")
        member = ["--member", f"h0:{lab.host_ip(0)}"]
        printed = [lab.ctl("jobs", "create", *member, *more).stdout
                   for more in ([], ["--authenticate"])]
        expect_equal([text.count("authenticated") for text in printed], [0, 1],
                     f"jobs create printed {printed}")


@case()
def jobs_that_do_not_fit_are_refused_with_the_amounts():
    with running_lab(2, config={"limits": {"max_jobs": 2, "slots": 64}}) as lab:
        members = ["--member", "h0:10.77.0.1", "--member", "h1:10.77.0.2"]
        jobs = [lab.create_job(), lab.create_job()]
        expect_equal(sorted({job["id"] for job in jobs}), [1, 2], "ids")
        expect_refused(lab, ["jobs", "create"] + members, ["2"])
        lab.ctl("jobs", "destroy", jobs[0]["id"])
        run_exact_job(lab, "a job in the room of another", bytes=256 * KIB)


@case(90)
def thirty_two_jobs_of_sixteen_hosts_fit_into_a_gibibyte():
    config = {"limits": {"max_jobs": 32, "slots": 4096}}
    with running_lab(16, "memif", config=config) as lab:
        idle = lab.control.ask("stats")["memory"]
        jobs = [lab.create_job() for _ in range(32)]
        for job in (jobs[0], jobs[31]):
            run_exact_job(lab, f"job {job['id']} of 32", job=job, bytes=256 * KIB)
        memory = lab.control.ask("stats")["memory"]
        expect(memory["rss"] + memory["hugepages"] < 1 << 30,
               f"the switch takes more than 1 GiB: {memory}")
        expect(idle["slots"] < memory["slots"] < 64 * MIB, f"slots take {memory['slots']} bytes")
        expect(memory["packets"] + memory["slots"] <= memory["limit"],
               f"more than memory.megabytes: {memory}")
        for job in jobs:
            lab.ctl("jobs", "destroy", job["id"])
        expect_equal(lab.control.ask("stats")["memory"]["slots"], 0, "bytes of slots without jobs")


@case(sanitized=True)
def every_verb_of_faninctl_answers():
    with running_lab(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=30)
        wait_for_results(lab, job, 10)
        for verb in (["version"], ["ports"], ["jobs"], ["jobs", "list"], ["stats"], ["drops"],
                     ["mac"], ["routes"],
                     ["neighbors"]):
            plain = lab.ctl(*verb)
            expect(plain.stdout.strip(), f"faninctl {' '.join(verb)} printed nothing")
            json.loads(lab.ctl("-j", *verb).stdout)
        for verb in (["nonsense"], ["jobs", "nonsense"], ["jobs", "destroy"],
                     ["jobs", "destroy", "x"],
                     ["jobs", "destroy", "-1"], ["jobs", "destroy", "99999999999999999999"],
                     ["jobs", "destroy", "77"],
                     ["ports", "extra"], ["version", "--bogus"], ["stats", "--watch", "x"], [""],
                     ["drops", "\x01"]):
            expect_refused(lab, verb, [])
        expect_refused(lab, ["-s", "/nonexistent/socket", "version"], ["/nonexistent/socket"])
        expect_exact(reports_of(lab, ranks), "the job beside faninctl")
        stats = lab.control.ask("stats")
        expect(stats["workers"][0]["packets"] > 0, "the worker's packets were not counted")
        ports = lab.control.ask("ports.list")["ports"]
        expect(all(port["rx_frames"] > 0 and port["tx_frames"] > 0 and port["link"]
                   for port in ports),
               f"ports without frames or link: {ports}")
        lab.ctl("jobs", "destroy", job["id"])
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs")


@case()
def junk_on_the_control_socket_does_no_harm():
    junk = [b"\n", b"{\n", b"[]\n", b"7\n", b"\0\0\0\n", b'{"hello":2}\n',
            b'{"hello":1}\n{"id":1}\n',
            b'{"hello":1}\n{"id":1,"cmd":"nonsense"}\n',
            b'{"hello":1}\n{"id":1,"cmd":7,"args":[]}\n',
            b'{"hello":1}\n{"id":{},"cmd":"version","args":"x"}\n',
            b'{"hello":1}\n' + b"x" * (2 << 20), b"\xff" * 4096]
    with running_lab(2) as lab:
        for data in junk:
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as client:
                client.settimeout(60)
                client.connect(str(lab.socket_path))
                try:
                    client.sendall(data)
                    client.shutdown(socket.SHUT_WR)
                    while client.recv(65536):
                        pass
                except (BrokenPipeError, ConnectionResetError):
                    pass
        silent = [socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) for _ in range(40)]
        try:
            for client in silent:
                client.settimeout(5)
                try:
                    client.connect(str(lab.socket_path))
                except OSError:
                    pass
        finally:
            for client in silent:
                client.close()
        wait_until(lambda: answers(lab), 60, "the control socket to answer again")
        run_exact_job(lab, "a job after junk", bytes=64 * KIB)


def answers(lab):
    try:
        control = Control(lab.socket_path)
    except (OSError, ValueError):
        return False
    try:
        return control.ask("version")["protocol"] == 1
    except (LabError, OSError, ValueError):
        return False
    finally:
        control.close()


def stops_cleanly(signum):
    with running_lab(2) as lab:
        run_exact_job(lab, "a job", bytes=64 * KIB)
        lab.control.close()
        lab.switch.popen.send_signal(signum)
        expect_equal(lab.switch.wait(60), 0, f"exit status after {signal.Signals(signum).name}")
        printed = lab.switch.stdout() + lab.switch.stderr()
        expect("rx" in printed and "h0" in printed and "h1" in printed,
               f"no counters were printed:\n{printed[-600:]}")
        expect(not lab.socket_path.exists(), "the control socket's file was left")


@case()
def the_switch_stops_cleanly_on_sigterm():
    stops_cleanly(signal.SIGTERM)


@case()
def the_switch_stops_cleanly_on_sigint():
    stops_cleanly(signal.SIGINT)


@case(sanitized=True)
def the_switch_stops_cleanly_while_a_job_runs():
    with running_lab(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=1500)
        wait_for_results(lab, job, 500)
        lab.switch.popen.send_signal(signal.SIGTERM)
        expect_equal(lab.switch.wait(60), 0, "exit status")
        for report in reports_of(lab, ranks, 60):
            expect(report.get("error"), f"a rank without a switch reports no error: {report}")


@case(120, long=True)
def switches_of_one_name_start_and_end_at_the_same_time():
    """DPDK has a directory for each name, which one switch makes while another removes it."""
    with running_lab(1) as lab:
        def start(number):
            directory = lab.directory / f"switch{number}"
            directory.mkdir(exist_ok=True)
            config = {**lab.config(), "name": "twins",
                      "control": {"socket": str(directory / "control.sock")},
                      "memory": {"megabytes": 64},
                      "memif": {"socket": str(directory / "memif.sock")},
                      "mempool": {"mbufs": 1024}, "limits": {"slots": 64},
                      "ports": [{"name": "n0", "vdev": f"net_ring{number}", "mtu": 1500}]}
            (directory / "switch.json").write_text(json.dumps(config))
            return directory, lab.spawn(0,
                                        [program("fanin-switch"), "--config",
                                         str(directory / "switch.json")], f"switch{number}")

        def answers(started, turn):
            directory, process = started
            wait_until(lambda: not process.running() or (directory / "control.sock").exists(), 60,
                       "a switch to start")
            expect(process.running(), f"the switch of turn {turn}: {process.last_words()}")

        moments = random.Random(5)
        old = start(0)
        answers(old, 0)
        for turn in range(1, 25):
            old[1].popen.send_signal(signal.SIGTERM)
            time.sleep(moments.uniform(0, 0.3))  # when the other one is about to end
            new = start(turn % 2)
            answers(new, turn)
            expect_equal(old[1].wait(60), 0,
                         f"exit status of the switch before turn {turn}: {old[1].last_words()}")
            old = new
        run_exact_job(lab, "a job beside them", bytes=64 * KIB)


@case()
def a_second_switch_does_not_take_the_socket():
    with running_lab(2) as lab:
        with inside(lab.switch_namespace):
            config = changed(lab.config(), ["ports"],
                             [{"name": "n0", "vdev": "net_null0", "mtu": 1500}])
            path = lab.directory / "second.json"
            path.write_text(json.dumps(config))
            done = run([program("fanin-switch"), "--config", str(path)], check=False)
        expect(done.returncode > 0,
               f"a second switch on the same socket ended with {done.returncode}")
        expect(str(lab.socket_path) in done.stderr,
               f"the error does not name the socket: {done.stderr[-300:]}")
        run_exact_job(lab, "a job on the first", bytes=64 * KIB)
