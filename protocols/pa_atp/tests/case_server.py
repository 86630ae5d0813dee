# SPDX-License-Identifier: BSD-3-Clause
"""The parameter server's operators, and a job over real links: the switch between them is a real
one, which knows nothing of the job; the case plays its aggregating switch.
"""

import json
import os
import signal
import socket
import struct
import sys

from tests.net.case_control import changed, expect_one_line
from tests.net.case_unit import mode
from tests.net.case_observe import Watch
from tests.net.frames import (ANSWER, ASK, CONTRIBUTION, FLUSH, HEADER_LEN, JOIN, JOIN_ACK, LEAVE,
                              LEAVE_ACK, PARTIAL, QUERY, REFUSED, REPEAT, RESULT, VERSION, RawPort,
                              header, job_key)
from tests.net.manager_lab import TOKEN, write_token
from tests.net.support import (MIB, Control, Lab, LabError, case, expect, expect_equal,
                               expect_exact, program, reports_of, run, running_lab, start_ranks,
                               wait_until)
from lab.namespaces import HOST_INTERFACE, SOURCE_DIR, SWITCH_IP, UDP_PORT, inside

UNIT = SOURCE_DIR / "packaging" / "systemd" / "fanin-server.service"
RESTRICTED = SOURCE_DIR / "tests" / "net" / "restricted.py"
CONTROL_PORT = 21931
METRICS = "127.0.0.1:9466"
GROUPS = 0xefc00000
HEADER = "<BBHIIHHIBBHHBBIQQIH"
FLAG_RETRANSMIT, FLAG_CE = 1, 16


class Server:
    """fanin-server on a host of a laboratory."""

    def __init__(self, lab, host=0, **config):
        self.lab, self.host = lab, host
        self.namespace = lab.host_namespace(host)
        self.socket_path = lab.directory / "server.sock"
        self.path = lab.directory / "server.json"
        self.config = {"name": "ps0", "address": {"ip": lab.host_ip(host)},
                       "control": {"socket": str(self.socket_path)},
                       "metrics": {"listen": METRICS}, **config}
        self.process = self.control = None
        self.starts = 0

    def check(self, config=None, text=None):
        path = self.lab.directory / "checked.json"
        path.write_text(json.dumps(config) if text is None else text)
        with inside(self.namespace):
            return run([program("fanin-server"), "--config", str(path), "--check"], check=False)

    def start(self, unit=None):
        self.starts += 1
        self.path.write_text(json.dumps(self.config))
        words = [program("fanin-server"), "--config", self.path]
        if unit is not None:
            words = [sys.executable, RESTRICTED, unit, *words]
        self.process = self.lab.spawn(self.host, words, "server")
        wait_until(self._answers, 60, "the server's control socket")
        return self

    def _answers(self):
        if not self.process.running():
            raise LabError(f"fanin-server did not start: {self.process.last_words()}")
        try:
            self.control = Control(self.socket_path)
        except OSError:
            return False
        self.lab.controls.append(self.control)
        return True

    def kill(self):
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.popen.wait()

    def stop(self):
        self.process.popen.terminate()
        expect_equal(self.process.wait(60), 0,
                     f"exit status of fanin-server ({self.process.stderr()[-500:]})")

    def ctl(self, *arguments, check=True):
        return run([program("faninctl"), "-s", str(self.socket_path), *map(str, arguments)],
                   check=check)

    def job(self, number):
        return next(job for job in self.control.ask("jobs.list")["jobs"] if job["id"] == number)

    def create(self, size, host=1, **options):
        """Makes a job whose switch is this host."""
        return self.control.ask("jobs.create",
                                members=[{"ip": self.lab.host_ip(host),
                                          "ranks": list(range(size))}], **options)


class Switch:
    """Plays a job's aggregating switch on a host: an ordinary socket, and one in the job's group.
    """

    def __init__(self, lab, job, host=1, server=0):
        self.job, self.epoch = job, 0
        self.to = (lab.host_ip(server), UDP_PORT)
        with inside(lab.host_namespace(host)):
            self.own = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            self.own.bind((lab.host_ip(host), UDP_PORT))
            self.group = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
            address = socket.inet_ntoa(struct.pack("!I", GROUPS | job["id"]))
            self.group.bind((address, UDP_PORT))
            self.group.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                                  struct.pack("4s4si", socket.inet_aton(address), bytes(4),
                                              socket.if_nametoindex(HOST_INTERFACE)))
        for sock in (self.own, self.group):
            sock.settimeout(60)

    def send(self, packet_type, payload=b"", **fields):
        fields = {"epoch": self.epoch, "contributions": 0, **fields}
        self.own.sendto(header(packet_type, self.job["id"], job_key(self.job, packet_type), payload,
                               **fields), self.to)

    def receive(self, sock=None):
        """Returns the type, the fields and the payload of the next packet."""
        data, source = (sock or self.own).recvfrom(65536)
        expect_equal(source, self.to, "who a packet is from")
        names = ("version", "type", "flags", "job", "epoch", "rank", "contributions", "block",
                 "dtype", "op", "count", "root",
                 "extension", "extension_len32", "progress", "key", "members", "number", "reserved")
        fields = dict(zip(names, struct.unpack(HEADER, data[:HEADER_LEN])))
        return fields["type"], fields, data[HEADER_LEN:]

    def expect(self, packet_type, sock=None):
        """The next packet, or the one behind FLUSHes, which the server repeats to a switch that
        takes its time: it has to be of this type.
        """
        found, fields, payload = self.receive(sock)
        while found == FLUSH != packet_type:
            found, fields, payload = self.receive(sock)
        expect_equal(found, packet_type, f"type of a packet with {fields}")
        return fields, payload

    def join(self, size, nonce=7):
        cookie = 0
        for _ in range(2):
            self.send(JOIN, struct.pack("<QHHIQ8x", nonce, size, 0, 1500, cookie),
                      contributions=size, epoch=0)
            fields, payload = self.expect(JOIN_ACK)
            _, state, self.size, self.window, self.payload_bytes, _, _, cookie = struct.unpack_from(
                "<QHHHHI16sQ", payload)
        expect_equal(state, 1, "state of a JOIN with the cookie")
        self.epoch = fields["epoch"]

    def sum(self, block, members, value, packet_type=PARTIAL, contributions=None, **fields):
        payload = struct.pack("<256i", *[value] * 256)
        self.send(packet_type, payload, block=block,
                  members=members if packet_type == PARTIAL else 0, dtype="i32", op="sum",
                  count=256, contributions=contributions or members.bit_count(), **fields)

    def result(self):
        """Returns block and value of the next result, whose elements have to be equal."""
        fields, payload = self.expect(RESULT, self.group)
        values = struct.unpack("<256i", payload)
        expect_equal(len(set(values)), 1, "different elements of a result")
        return fields["block"], values[0]

    def close(self):
        self.own.close()
        self.group.close()


def bad_configs(good):
    """Returns (words that the error has to contain, configuration)."""
    return [
        (["colour", "unknown"], changed(good, ["colour"], "red")),
        (["address", "missing"], {key: value for key, value in good.items() if key != "address"}),
        (["address.ip", "missing"], changed(good, ["address"], {})),
        (["address.ip", '"10.77"'], changed(good, ["address", "ip"], "10.77")),
        (["address.udp_port", "70000", "1024 to 65535"],
         changed(good, ["address", "udp_port"], 70000)),
        (["address.upd_port", "udp_port"], changed(good, ["address", "upd_port"], 1)),
        (["control.socket", "7"], changed(good, ["control", "socket"], 7)),
        (["control", "token"], changed(good, ["control", "listen"], "0.0.0.0:21931")),
        (["control.tls.key", "missing"], changed(good, ["control", "tls"], {"certificate": "/a"})),
        (["control: expected an object"], changed(good, ["control"], 3)),
        (["metrics.listen", "here"], changed(good, ["metrics", "listen"], "here")),
        (["log_level", "loud"], changed(good, ["log_level"], "loud")),
        (["limits.max_jobs", "0"], changed(good, ["limits"], {"max_jobs": 0})),
        (["limits.megabytes", '"all"'], changed(good, ["limits"], {"megabytes": "all"})),
        (["receive_buffer_kilobytes", "1"], changed(good, ["receive_buffer_kilobytes"], 1)),
        (["round_trip_us", "-1"], changed(good, ["round_trip_us"], -1)),
        (["name"], changed(good, ["name"], "a b")),
    ]


@case()
def bad_configs_of_a_server_are_refused_in_one_line():
    with Lab(1, "af_packet") as lab:
        server = Server(lab)
        done = server.check(server.config)
        expect_equal(done.returncode, 0,
                     f"exit status of a good configuration's check ({done.stderr})")
        for words, config in bad_configs(server.config):
            expect_one_line(server.check(config), words, f"configuration with bad {words[0]}")
        for text in ("", "{", "[]", "{\"name\": nul}", "\0\1\2"):
            expect_one_line(server.check(text=text), ["checked.json"],
                            f"configuration {text[:12]!r}")
        # The server finds at its start what the machine does not have.
        server.config["address"]["ip"] = "10.99.0.1"
        try:
            server.start()
        except LabError as error:
            expect("10.99.0.1" in str(error), f"'{error}' does not name the address")
            return
        expect(False, "the server started with an address that no interface has")


@case()
def a_server_completes_the_sums_of_a_job():
    """Sums follow every rule once, over links: merged, contained, replaced, flushed, asked,
    repeated; and a switch forwards the results to listeners.
    """
    with running_lab(2, "af_packet") as lab:
        server = Server(lab).start()
        job = server.create(4, id=9, slots=64, payload_bytes=1024)
        switch = Switch(lab, job)
        switch.join(4)
        expect_equal((switch.size, switch.window, switch.payload_bytes), (4, 32, 1024),
                     "the job as JOIN_ACK has it")
        for block in range(300):
            switch.sum(block, 0xf, block, CONTRIBUTION)
            expect_equal(switch.result(), (block, block), "a complete sum's result")
        switch.sum(300, 0x1, 1)
        switch.sum(300, 0x1, 1)
        switch.sum(300, 0x3, 12)
        switch.expect(FLUSH)
        switch.sum(300, 0x6, 99)
        fields, _ = switch.expect(ASK)
        expect_equal((fields["block"], fields["members"]), (300, 0xc), "who is asked for")
        switch.sum(300, 0x4, 30)
        switch.sum(300, 0x8, 400)
        expect_equal(switch.result(), (300, 442), "a result of parts")
        switch.send(QUERY, block=300, flags=FLAG_RETRANSMIT, number=5, members=0x41)
        fields, payload = switch.expect(REPEAT)
        expect_equal((fields["block"], fields["members"], payload[:4]),
                     (300, 0x41, struct.pack("<i", 442)), "a repeated result")
        counters = {counter["name"]: counter["count"] for counter in server.job(9)["counters"]}
        expect_equal({name: counters[name]
                      for name in ("results", "sums", "replaced", "duplicates", "overlaps", "asks",
                                   "repeats")},
                     {"results": 301, "sums": 300, "replaced": 1, "duplicates": 1, "overlaps": 1,
                      "asks": 1, "repeats": 1}, "counters")
        switch.sum(301, 0x3, 5)
        wait_until(lambda: server.control.ask("jobs.waits", id=9)["waiting"] == 1, 60,
                   "a block that waits")
        waits = server.control.ask("jobs.waits", id=9)
        expect_equal((waits["blocks"][0]["block"], waits["blocks"][0]["missing"]), (301, [2, 3]),
                     "what waits for whom")
        expect(server.ctl("jobs", "waits",
                          9).stdout.startswith("block 301 waits for ranks 2, 3 since "),
               "faninctl jobs waits")
        for verb in (["version"], ["ports"], ["stats"], ["jobs"], ["drops", "--all"]):
            expect(len(server.ctl(*verb).stdout.splitlines()) > 1,
                   f"faninctl {' '.join(verb)} says next to nothing")
        expect("server" in server.ctl("version").stdout.splitlines()[0],
               "faninctl version does not say that it is a server")
        switch.send(LEAVE)
        switch.expect(LEAVE_ACK)
        expect_equal(server.job(9)["state"], "waiting", "state of a job whose switch has left")
        switch.close()
        server.stop()
        expect(not server.socket_path.exists(), "the control socket is left behind")


@case()
def a_switch_joins_a_server_as_its_parent():
    """The switch checks a parent's packets by itself: with one rank its sums are complete with any
    handler.
    """
    with running_lab(2, "af_packet") as lab:
        server = Server(lab, host=1).start()
        port = RawPort(lab.host_namespace(1))
        version = server.control.ask("version")
        job = lab.create_job([0], "--parent", f"{lab.port_of(1)},{version['ip']},{version['mac']}",
                             "--slots", 64)
        server.control.ask("jobs.create", id=job["id"], key=job["key"], size=1, slots=64,
                           payload_bytes=job["payload_bytes"],
                           members=[{"ip": SWITCH_IP, "ranks": [0]}])
        for dtype, op in (("f32", "sum"), ("i32", "avg"), ("bf16", "max"), ("u64", "band")):
            reports = reports_of(lab, start_ranks(lab, job, [0], bytes=4 * MIB, dtype=dtype, op=op))
            expect_exact(reports, f"{dtype} {op} by way of a server")
            expect_equal(reports[0]["retransmits"], 0,
                         "packets that were repeated although nothing is lost")
        entry = server.job(job["id"])
        counters = {counter["name"]: counter["count"] for counter in entry["counters"]}
        expect_equal((counters["runs"], counters["sums"], counters["duplicates"]),
                     (4, counters["results"], 0), "what the server counts")
        expect(counters["results"] >= 16 * MIB // job["payload_bytes"],
               f"results: {counters['results']}")
        expect_equal(entry["state"], "waiting", "state after the last LEAVE")
        expect(0 < entry["round_trip_us"] < 1000000, f"round trip: {entry['round_trip_us']} us")
        # A switch that has waited asks, and the server answers with REPEAT, which only handler
        # pa-atp knows.
        dropped = {name: count for name, count in lab.drops().items()
                   if count and name not in ("local_unhandled", "tx_full")}
        expect_equal(dropped.pop("type_unknown", 0), counters["repeats"], "REPEATs")
        expect_equal(dropped, {}, "what the switch has dropped")
        # A switch that waits for its parent's first answer sends JOINs in the version before, too.
        older = sum(1 for _, frame in port.arrived() if frame[42:44] == bytes((VERSION - 1, JOIN)))
        refused = server.control.ask("stats")["drops"]
        expect_equal(refused.pop("version_unsupported", 0), older, "JOINs of the version before")
        expect_equal(refused, {}, "what the server has dropped")
        port.socket.close()
        server.stop()


@case()
def a_server_that_is_killed_refuses_the_run_when_it_is_back():
    with running_lab(2, "af_packet") as lab:
        server = Server(lab).start()
        first = server.control.ask("version")["instance"]
        job = server.create(2, id=9, slots=64, payload_bytes=1024)
        switch = Switch(lab, job)
        switch.join(2)
        switch.sum(0, 0x3, 5, CONTRIBUTION)
        expect_equal(switch.result(), (0, 5), "a result")
        server.kill()
        server.start()
        expect(server.control.ask("version")["instance"] != first,
               "a restarted server has the same instance")
        switch.sum(1, 0x3, 5, CONTRIBUTION)
        fields, _ = switch.expect(REFUSED)
        # job_unknown
        expect_equal((fields["count"], fields["epoch"]), (18, switch.epoch),
                     "why it is refused, and which run")
        server.create(2, id=9, key=job["key"], slots=64, payload_bytes=1024)
        switch.sum(1, 0x3, 5, CONTRIBUTION)
        fields, _ = switch.expect(REFUSED)
        # job_not_active
        expect_equal(fields["count"], 26, "why it is refused by the job that was made anew")
        before = switch.epoch
        switch.join(2, nonce=8)
        expect(switch.epoch != before, "the new run has the old one's number")
        switch.sum(0, 0x3, 6, CONTRIBUTION)
        expect_equal(switch.result(), (0, 6), "a result of the new run")
        switch.close()
        server.stop()


REFUSED_JOBS = [
    ("invalid", "args.memmbers", {"memmbers": []}),
    ("invalid", "args.members", {"members": []}),
    ("invalid", "args.members", {"members": [{"ip": "10.77.0.2"}, {"ip": "10.77.0.3"}]}),
    ("invalid", "args.members[0].ip", {"members": [{"ip": "224.0.0.1"}]}),
    ("invalid", "args.members[0].ranks", {"members": [{"ip": "10.77.0.2", "ranks": [0, 2]}]}),
    ("invalid", "args.members[0].ranks",
     {"members": [{"ip": "10.77.0.2", "ranks": [0, 1]}], "size": 3}),
    ("not_found", "args.members[0].port", {"members": [{"ip": "10.77.0.2", "port": "eth9"}]}),
    ("invalid", "own address", {"members": [{"ip": "10.77.0.1"}]}),
    ("invalid", "args.id", {"id": 65536}),
    ("invalid", "args.key", {"key": "secret"}),
    ("unsupported", "args.handler", {"handler": "single"}),
    ("unsupported", "args.parent", {"parent": {}}),
    ("unsupported", "args.buffers", {"buffers": 4}),
    ("unsupported", "args.reproducible", {"reproducible": True}),
    ("unsupported", "args.authenticate", {"authenticate": True}),
    ("unsupported", "args.accumulate", {"accumulate": "f32"}),
    ("invalid", "args.accumulate", {"accumulate": "f128"}),
    ("unsupported", "at most 64",
     {"size": 65, "members": [{"ip": "10.77.0.2", "ranks": list(range(64))}]}),
    ("invalid", "args.size", {"size": 0}),
    ("invalid", "args.slots", {"slots": 1}),
    ("invalid", "power of two", {"slots": 100}),
    ("no_room", "8192 are available", {"slots": 16384}),
    ("no_room", "are available to each job", {"slots": 8192, "payload_bytes": 8896}),
    ("invalid", "payload_bytes", {"payload_bytes": 100}),
    ("invalid", "payload_bytes", {"payload_bytes": 9024}),
    ("invalid", "args.parameters.eta", {"parameters": {"eta": 1}}),
    ("invalid", "args.parameters.eta_percent", {"parameters": {"eta_percent": 101}}),
    ("invalid", "args.parameters.congestion", {"parameters": {"congestion": "sync"}}),
    ("invalid", "args.parameters", {"parameters": 3}),
]


def refusal(server, command, **arguments):
    """Returns code and message of a command's error."""
    control = server.control
    control.last_id += 1
    control._send({"id": control.last_id, "cmd": command, "args": arguments})
    reply = json.loads(control.stream.readline())
    expect(not reply["ok"], f"{command} with {arguments} was taken: {reply}")
    return reply["error"]["code"], reply["error"]["message"]


@case()
def commands_to_a_server_are_those_to_a_switch():
    with Lab(2, "af_packet") as lab:
        server = Server(lab, limits={"max_jobs": 2, "megabytes": 16}).start()
        expect_equal(server.control.greeting["fanin"], "server", "service in the greeting")
        version = server.control.ask("version")
        expect_equal((version["kind"], version["ip"], version["mac"], version["udp_port"],
                      version["port"]),
                     ("server", lab.host_ip(0), lab.host_mac(0), UDP_PORT, HOST_INTERFACE),
                     "who the server is")
        expect_equal([(handler["name"], handler["shape"]) for handler in version["handlers"]],
                     [("pa-atp", "server")], "handlers")
        expect("f32 sum" in version["operations"] and "bf16 avg" in version["operations"],
               "operations")
        ports = server.control.ask("ports.list")["ports"]
        expect_equal([(port["name"], port["mtu"], port["link"]) for port in ports],
                     [(HOST_INTERFACE, lab.mtu, True)], "ports")
        expect_equal(server.control.ask("routes.list"), {"routes": []}, "routes")
        expect_equal(server.control.ask("ping"), {"jobs": 0, "ports_down": []}, "answer to a ping")

        good = {"members": [{"ip": "10.77.0.2"}]}
        for code, word, arguments in REFUSED_JOBS:
            found, message = refusal(server, "jobs.create", **{**good, **arguments})
            expect_equal(found, code, f"code for {arguments} ({message})")
            expect(word in message, f"'{message}' for {arguments} does not have '{word}'")
        expect_equal(server.control.ask("jobs.list")["jobs"], [], "jobs after refusals")

        made = server.control.ask("jobs.create", **good, owner="m0", parameters={"congestion": 1})
        expect_equal((made["id"], made["size"], made["handler"], made["slots"]),
                     (1, 1, "pa-atp", 2 * made["window"]), "a job")
        expect(len(made["key"]) == 18, f"key {made['key']}")
        job = server.job(1)
        expect_equal((job["owner"], job["parameters"]["congestion"],
                      job["parameters"]["eta_percent"], job["state"]),
                     ("m0", 1, 80, "waiting"), "the job as it is listed")
        expect_equal(refusal(server, "jobs.create", **good, id=1)[0], "exists",
                     "code for a number that is taken")
        server.create(4, slots=64, payload_bytes=1024, id=500, accumulate="native",
                      reproducible=False, message_bytes=1)
        expect_equal(server.job(500)["members"][0]["ranks"], [0, 1, 2, 3], "ranks")
        expect_equal(refusal(server, "jobs.create", **good)[0], "no_room",
                     "code for one job too many")
        limits = server.control.ask("jobs.list")["limits"]
        expect_equal((limits["max_jobs"], limits["jobs_free"]), (2, 0), "limits")
        expect_equal(refusal(server, "jobs.destroy", id=1, owner="m1")[0], "not_found",
                     "code for another's job")
        expect_equal(refusal(server, "jobs.destroy")[0], "invalid", "code for no number")
        expect_equal(server.control.ask("jobs.destroy", id=1, owner="m0"), {},
                     "answer to jobs.destroy")
        expect_equal(refusal(server, "jobs.destroy", id=1)[0], "not_found",
                     "code for a job that is gone")
        expect_equal(refusal(server, "jobs.waits", id=1)[0], "not_found",
                     "code for waits of a job that is gone")
        expect_equal(refusal(server, "jobs.waits", id=500, most=0)[0], "invalid",
                     "code for no waits")
        for command in ("version", "ping", "ports.list", "routes.list", "jobs.list", "stats",
                        "drops"):
            expect_equal(refusal(server, command, junk=1)[0], "invalid",
                         f"code for {command} with an argument that it does not have")
        expect_equal(server.ctl("jobs", "destroy", "7", check=False).returncode, 1,
                     "exit status of faninctl")
        key = lab.directory / "job.key"
        key.write_text("0x1234\n")
        key.chmod(0o600)
        server.ctl("jobs", "create", "--member", f"{HOST_INTERFACE}:{lab.host_ip(1)}=0-3", "--size",
                   4, "--handler", "pa-atp", "--id", 7,
                   "--key-file", key, "--parameter", "eta_percent=70")
        made = server.job(7)
        expect_equal((made["size"], made["members"][0]["ip"], made["parameters"]["eta_percent"]),
                     (4, lab.host_ip(1), 70), "a job by faninctl")
        server.ctl("jobs", "destroy", 7)
        server.stop()


@case()
def a_server_is_controlled_over_tcp_with_a_token():
    with Lab(1, "af_packet") as lab:
        token = write_token(lab)
        server = Server(lab, control={"socket": str(lab.directory / "server.sock"),
                                      "listen": f"127.0.0.1:{CONTROL_PORT}",
                                      "token_file": str(token)}).start()
        for given, works in ((None, False), ("wrong", False), (TOKEN, True)):
            with inside(server.namespace):
                sock = socket.create_connection(("127.0.0.1", CONTROL_PORT), 60)
            stream = sock.makefile("rw", encoding="utf-8", newline="\n")
            greeting = json.loads(stream.readline())
            expect_equal(greeting["fanin"], "server", "service in the greeting over TCP")
            stream.write(json.dumps({"hello": 1, **({} if given is None else {"token": given})})
                         + "\n")
            stream.write(json.dumps({"id": 1, "cmd": "ping"}) + "\n")
            stream.flush()
            answers = [json.loads(line)
                       for line in iter(stream.readline,
                                        "")] if not works else [json.loads(stream.readline())]
            expect_equal(any(answer.get("ok") and answer.get("id") == 1 for answer in answers),
                         works, f"answers with token {given}: {answers}")
            sock.close()
        server.stop()


@case()
def a_server_works_under_its_unit():
    with running_lab(2, "af_packet") as lab:
        server = Server(lab).start(unit=UNIT)
        expect_equal(oct(mode(server.socket_path)), "0o660", "mode of the control socket")
        switch = Switch(lab, server.create(2, id=3, payload_bytes=1024, slots=64))
        switch.join(2)
        for block in range(100):
            switch.sum(block, 0x1, 3)
            switch.sum(block, 0x2, 4)
            expect_equal(switch.result(), (block, 7), "a result")
        for verb in (["ports"], ["stats"], ["jobs"], ["drops"]):
            server.ctl(*verb)
        watch = Watch(server.namespace, METRICS)
        watch.look()
        switch.close()
        server.stop()


@case()
def the_unit_of_a_server_leaves_little_to_attack():
    with Lab(1, "af_packet") as lab:
        path = lab.directory / "fanin-server.service"
        path.write_text(UNIT.read_text().replace("@sbindir@/fanin-server", program("fanin-server")))
        done = run(["systemd-analyze", "security", "--offline=true", "--threshold=30", "--no-pager",
                    path], check=False)
        last = (done.stdout.strip() or done.stderr.strip()).splitlines()[-1]
        expect_equal(done.returncode, 0,
                     f"exit status of systemd-analyze security, which says: {last}")


@case()
def metrics_of_a_server_move_with_what_they_count():
    with running_lab(2, "af_packet") as lab:
        server = Server(lab).start()
        watch = Watch(server.namespace, METRICS)
        watch.look()
        expect_equal(watch.value("fanin_server_jobs_free"), 16, "free jobs")
        switch = Switch(lab, server.create(3, id=3, payload_bytes=1024, slots=64))
        watch.look()
        expect_equal((watch.value("fanin_server_jobs_free"),
                      watch.value("fanin_server_job_active", fanin_job="3")), (15, 0),
                     "free, active")
        memory = watch.value("fanin_server_memory_jobs_bytes")
        expect(memory > 64 * 1024, f"memory of the job: {memory}")
        expect_equal(watch.value("fanin_server_job_memory_bytes", fanin_job="3"), memory,
                     "memory of the only job")
        switch.join(3)
        switch.sum(0, 0x7, 3, CONTRIBUTION, flags=FLAG_CE)
        switch.result()
        switch.sum(1, 0x3, 3)
        switch.expect(FLUSH)
        switch.send(QUERY, block=1, flags=FLAG_RETRANSMIT, number=5, members=0x41)
        switch.send(JOIN, b"short", epoch=0)
        found = set()
        while not {ASK, ANSWER} <= found:
            found.add(switch.receive()[0])
        wait_until(lambda: server.control.ask("stats")["drops"].get("body_invalid") == 1, 60,
                   "a drop")
        watch.look()

        def counter(name):
            return watch.value("fanin_server_job_counter_total", fanin_job="3", counter=name)
        expect_equal({name: counter(name)
                      for name in ("runs", "results", "sums", "partials", "queries", "asks",
                                   "answers", "ce", "blocks")},
                     {"runs": 1, "results": 1, "sums": 1, "partials": 1, "queries": 1, "asks": 1,
                      "answers": 1, "ce": 1, "blocks": 2}, "counters")
        expect(counter("flushes") >= 1, "no FLUSH is counted")
        for name, number in (("job_active", 1), ("job_size", 3), ("job_slots", 64),
                             ("job_window_packets", 32), ("job_payload_bytes", 1024),
                             ("job_waiting_blocks", 1)):
            expect_equal(watch.value(f"fanin_server_{name}", fanin_job="3"), number, name)
        expect(0 < watch.value("fanin_server_job_round_trip_seconds", fanin_job="3") < 60,
               "round trip")
        expect_equal(watch.value("fanin_server_job_bytes_reduced_total", fanin_job="3"), 2 * 1024,
                     "bytes")
        expect_equal(watch.value("fanin_server_drops_total", reason="body_invalid"), 1, "drops")
        port = {"port": HOST_INTERFACE}
        expect_equal((watch.value("fanin_server_port_up", **port),
                      watch.value("fanin_server_port_mtu_bytes", **port)), (1, lab.mtu), "port")
        expect_equal(watch.value("fanin_server_port_rx_frames_total", **port), 6,
                     "packets received")
        expect(watch.value("fanin_server_port_tx_frames_total", **port) >= 6, "packets sent")
        expect(watch.value("fanin_server_control_connections_total") >= 1, "control connections")
        server.control.ask("jobs.destroy", id=3)
        watch.look()
        expect_equal((watch.value("fanin_server_jobs_free"),
                      watch.value("fanin_server_memory_jobs_bytes")), (16, 0), "after the job")
        switch.close()
        server.stop()
