# SPDX-License-Identifier: BSD-3-Clause
"""A switch with a job of PA-ATP, whose hosts and server are raw sockets: its refusals, its
destinations for packets, and its reports on ranks that are behind.
"""

import contextlib
import struct

from tests.net.case_observe import LISTEN, METRICS, PROGRESS, Watch, leaves, sample
from tests.net.frames import (CONTRIBUTION, FLUSH, GACK, JOIN, JOIN_ACK, PARTIAL, RESULT, RawPort,
                              header, job_key, packet)
from lab.namespaces import LabError
from tests.net.prometheus import scrape
from tests.net.support import case, expect, expect_equal, job_entry, running_lab

MEMBERS = [0, 1]
SERVER = 2
SERVER_EPOCH = 50
VALUES = 16
TYPE_AT = 14 + 20 + 8 + 1  # of the packet's type in a frame
PAYLOAD_AT = 96
JOIN_ACK_BODY = "<QHHHHI16sQIQII8QHB5xQ"


def server_option(lab):
    return f"h{SERVER},{lab.host_ip(SERVER)},{lab.host_mac(SERVER)}"


@case()
def jobs_with_a_server_are_shown_and_the_wrong_ones_refused():
    with running_lab(3) as lab:
        handlers = {handler["name"]: handler for handler in lab.control.ask("version")["handlers"]}
        expect_equal([handlers[name]["shape"] for name in ("pa-atp", "single", "multicast")],
                     ["server", "tree", "multicast"], "shapes")
        expect_equal(handlers["pa-atp"]["slots"], "shared", "slots of pa-atp")
        server = server_option(lab)
        members = [word for host in MEMBERS
                   for word in ("--member", f"h{host}:{lab.host_ip(host)}")]
        for options, words in ((["--handler", "pa-atp"], ["pa-atp", "no parent", "server"]),
                               (["--handler", "single", "--server", server],
                                ["single", "server", "expected a switch"]),
                               (["--handler", "pa-atp", "--server", server, "--parent", server],
                                ["--parent", "one --parent or --server"]),
                               (["--handler", "pa-atp", "--server", "h2"],
                                ["--server", "PORT,IP,MAC"]),
                               (["--handler", "pa-atp", "--server", server, "--size", 3],
                                ["rank 2", "the parent is a server"]),
                               (["--handler", "pa-atp", "--server", server, "--accumulate", "f32"],
                                ["pa-atp", "f32"]),
                               (["--handler", "pa-atp", "--server", server, "--authenticate"],
                                ["pa-atp", "authenticate"]),
                               (["--handler", "pa-atp", "--server", server, "--parameter",
                                 "congestion=6"], ["congestion", "0 to 5"])):
            done = lab.ctl("jobs", "create", *members, *options, check=False)
            expect(done.returncode != 0, f"jobs create took {options}")
            for word in words:
                expect(word in done.stderr,
                       f"{options}: '{done.stderr.strip()}' does not name {word}")
        try:
            lab.control.ask("jobs.create", members=[{"port": "h0", "ip": lab.host_ip(0)}],
                            handler="pa-atp",
                            parent={"port": "h2", "ip": lab.host_ip(2), "mac": lab.host_mac(2),
                                    "server": "yes"})
            expect(False, "jobs.create took a server that is neither true nor false")
        except LabError as error:
            expect("args.parent.server" in str(error), str(error))
        job = lab.create_job(MEMBERS, "--handler", "pa-atp", "--server", server, "--slots", 8192,
                             "--parameter", "eta_percent=70")
        entry = job_entry(lab, job)
        expect_equal((entry["parent"]["server"], entry["parent"]["ip"], entry["window"],
                      entry["progress"]),
                     (True, lab.host_ip(SERVER), 4096, None), "a job with a server")
        expect_equal(entry["parameters"],
                     {"congestion": 5, "eta_percent": 70, "bdp": 64, "expire_us": 20000,
                      "p_max_percent": 200,
                                           "fixed_window": 0}, "parameters")
        rows = [line.split() for line in lab.ctl("jobs").stdout.splitlines()]
        expect([str(job["id"]), "server", f"h{SERVER}", lab.host_ip(SERVER), "no",
                lab.host_mac(SERVER)] in rows, f"the table of jobs: {rows}")


class Players:
    """Hosts and server of a job, as raw sockets."""

    def __init__(self, lab, job):
        self.lab, self.job, self.epoch = lab, job, 0
        self.ports = [RawPort(lab.host_namespace(host)) for host in range(3)]

    def close(self):
        for port in self.ports:
            port.__exit__()

    def send(self, host, kind, payload=b"", **fields):
        content = header(kind, self.job["id"], job_key(self.job, kind), payload, **fields)
        self.ports[host].send(packet(content, self.lab.host_mac(host), self.lab.host_ip(host)))

    def wait(self, host, kind):
        """Returns the next packet of a type that a host gets: its header's fields and its payload.
        """
        frame, _ = self.ports[host].wait_for(lambda frame: frame[23:24] == b"\x11"
                                             and frame[TYPE_AT] == kind
                                             and frame[36:38] == b"\x55\xaa")
        fields = struct.unpack_from("<BBHIIHHIBBHHBBIQQIH", frame, 42)
        names = ("version", "type", "flags", "job", "epoch", "rank", "contributions", "block",
                 "dtype", "op", "count", "root", "extension",
                 "extension_len32", "progress", "key", "members", "number", "reserved")
        return dict(zip(names, fields)), frame[PAYLOAD_AT:]

    def join(self, host):
        """Joins, with the cookie that the switch asks back. Returns the state, the epoch and
        (slots, sharing, parameters).
        """
        cookie = 0
        for _ in range(2):
            self.send(host, JOIN, struct.pack("<QHHIQ8x", 100 + host, len(MEMBERS), 21930, 1500,
                                              cookie), rank=host)
            fields, body = self.wait(host, JOIN_ACK)
            ack = struct.unpack_from(JOIN_ACK_BODY, body)
            cookie = ack[7]
        return ack[1], fields["epoch"], (ack[10], ack[11], ack[12:20])

    def start(self):
        for host in MEMBERS:
            self.join(host)
        _, body = self.wait(SERVER, JOIN)
        nonce, = struct.unpack_from("<Q", body)
        ack = struct.pack(JOIN_ACK_BODY, nonce, 1, len(MEMBERS), self.job["window"],
                          self.job["payload_bytes"], 0, b"server", 7, 0, 9,
                          1, 2, *range(8), 8, 0, 3)
        self.send(SERVER, JOIN_ACK, ack, epoch=SERVER_EPOCH, contributions=0)
        state, self.epoch, told = self.join(0)
        expect_equal(state, 1, "state of the job")
        return told

    def contribute(self, host, block):
        """Sends a contribution, and waits for the acknowledgement. Returns the acknowledgement's
        sum of sequence numbers.
        """
        values = struct.pack(f"<{VALUES}i", *[(host + 1) * (block + i) for i in range(VALUES)])
        self.send(host, CONTRIBUTION, values, epoch=self.epoch, rank=host, block=block, dtype="i32",
                  op="sum", count=VALUES)
        fields, _ = self.wait(host, GACK)
        expect_equal((fields["block"], fields["count"], fields["epoch"]), (block, host, self.epoch),
                     "an acknowledgement")
        return fields["members"]

    def take_sum(self, kind, hosts, block):
        fields, payload = self.wait(SERVER, kind)
        expect_equal((fields["block"], fields["contributions"], fields["epoch"]),
                     (block, len(hosts), SERVER_EPOCH), "what goes to the server")
        expect_equal(fields["members"],
                     0 if kind == CONTRIBUTION else sum(1 << host for host in hosts), "ranks in it")
        expect_equal(struct.unpack_from(f"<{VALUES}i", payload),
                     tuple(sum((host + 1) * (block + i) for host in hosts) for i in range(VALUES)),
                     "the sum")


@contextlib.contextmanager
def playing(lab, job):
    players = Players(lab, job)
    try:
        yield players
    finally:
        players.close()


@case()
def who_is_behind_is_told_and_what_the_server_gets():
    config = {"metrics": {"listen": LISTEN}, "limits": {"shared_slots": 4}}
    with running_lab(3, "af_packet", 1500, config=config) as lab:
        job = lab.create_job(MEMBERS, "--handler", "pa-atp", "--server", server_option(lab),
                             "--slots", 64, "--parameter", "expire_us=60000000")
        with playing(lab, job) as players:
            expect_equal(players.start(), (4, 1, (5, 80, 64, 60000000, 200, 0, 0, 0)),
                         "slots, jobs and parameters that a host is told")
            players.contribute(0, 1)
            watch = Watch(lab.switch_namespace)
            players.contribute(0, 2)
            players.contribute(0, 5)
            players.take_sum(PARTIAL, [0], 5)
            expect_equal(players.contribute(1, 1), 8, "sum of sequence numbers")
            players.take_sum(CONTRIBUTION, [0, 1], 1)

            watch.look()
            expect(watch.moved >= PROGRESS,
                   f"of the metrics of progress only {sorted(watch.moved & PROGRESS)} moved")

            told = f"job {job['id']}: 2 of 4 slots in use, 1 overflowed; rank 1 is 4 blocks behind"
            for command in (["jobs"], ["jobs", "waits", job["id"]]):
                text = lab.ctl(*command).stdout
                expect(told in text.splitlines(), f"{command} has no line '{told}':\n{text}")
            waits = lab.control.ask("jobs.waits", id=job["id"])
            expect_equal([(block["block"], block["for"], block["missing"])
                          for block in waits["blocks"]],
                         [(1, "parent", []), (2, "members", [1])], "what blocks wait for")
            answer = lab.control.ask("jobs.list")
            families = scrape(lab.switch_namespace, LISTEN)
            shown = [(path, labels, number) for path, labels,
                     number in leaves(answer, "jobs", {}) if ".progress." in path
                     and path in METRICS]
            expect_equal(len(shown), 5, "numbers about progress")
            for path, labels, number in shown:
                name, suffix, factor = METRICS[path]
                expect_equal(sample(families, name, suffix, labels), number * factor, name)

            players.send(SERVER, FLUSH, epoch=SERVER_EPOCH, block=2, contributions=0)
            players.take_sum(PARTIAL, [0], 2)
            result = struct.pack(f"<{VALUES}i", *range(VALUES))
            for host in MEMBERS:
                players.ports[host].arrived()
            content = header(RESULT, job["id"], job_key(job, RESULT), result, epoch=SERVER_EPOCH,
                             block=5, dtype="i32", op="sum", count=VALUES,
                             contributions=2)
            players.ports[SERVER].send(packet(content, lab.host_mac(SERVER), lab.host_ip(SERVER),
                                              dst_mac=f"01:00:5e:40:00:{job['id']:02x}",
                                              dst_ip=f"239.192.0.{job['id']}"))
            for host in MEMBERS:
                fields, payload = players.wait(host, RESULT)
                expect_equal((fields["block"], fields["epoch"], payload[:len(result)]),
                             (5, players.epoch, result), "the result")
            expect(f"job {job['id']}: 1 of 4 slots in use, 0 overflowed; rank 1 is 4 blocks behind"
                   in lab.ctl("jobs").stdout.splitlines(),
                   f"after the result: {lab.ctl('jobs').stdout}")
            counters = {counter["name"]: counter["count"]
                        for counter in job_entry(lab, job)["counters"]}
            expect_equal({name: counters[name]
                          for name in ("gradients", "gacks", "overflows", "flushes", "aacks",
                                       "no_packet")},
                         {"gradients": 4, "gacks": 4, "overflows": 1, "flushes": 1, "aacks": 1,
                          "no_packet": 0}, "counters")
