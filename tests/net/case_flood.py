# SPDX-License-Identifier: BSD-3-Clause
"""Ten thousand connections to a control port that never complete a handshake, while hosts come, run
and go.
"""

import contextlib
import os
import resource
import socket
import ssl
import threading
import time
from pathlib import Path

from tests.net.fake_manager import certificate
from lab.namespaces import inside
from tests.net.manager_lab import MANAGER_PORT, SWITCH_PORT, TOKEN, Manager, control_over_tcp
from tests.net.support import (KIB, Lab, case, expect, expect_equal, expect_exact, program,
                               reports_of, run, wait_until)

FLOOD = 10000
SPARE_FILES = 500
# For a daemon that holds half of 1024 connections: each has its socket, its buffer and, with TLS,
# the state of its peer.
MEMORY_MIB = 64
SILENCE = b""
HALF_A_LINE = b'{"hello":1,"tok'


def client_hello():
    """Returns the first message of a TLS handshake."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    out = ssl.MemoryBIO()
    with contextlib.suppress(ssl.SSLWantReadError):
        context.wrap_bio(ssl.MemoryBIO(), out).do_handshake()
    return out.read()


class Flood:
    """Opens connections one after the other in a thread and keeps all; each sends one of `words`,
    in turns.
    """

    def __init__(self, namespace, address, words):
        self.namespace, self.address, self.words = namespace, address, words
        self.sockets = []
        self.failure = None
        self.thread = threading.Thread(target=self._open, daemon=True)

    def __enter__(self):
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        wanted = FLOOD + SPARE_FILES
        resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), max(hard, wanted)))
        self.thread.start()
        return self

    def _open(self):
        try:
            with inside(self.namespace):
                for number in range(FLOOD):
                    connection = socket.create_connection(self.address, 30)
                    self.sockets.append(connection)
                    # A connection that was closed already has received the reason.
                    with contextlib.suppress(ConnectionError):
                        connection.sendall(self.words[number % len(self.words)])
        except OSError as error:
            self.failure = error

    def wait(self, seconds):
        self.thread.join(seconds)
        expect(not self.thread.is_alive() and self.failure is None,
               f"{len(self.sockets)} of {FLOOD} connections were opened: "
               f"{self.failure or 'no error'}")

    def __exit__(self, *_):
        self.thread.join()
        for connection in self.sockets:
            connection.close()


@contextlib.contextmanager
def few_files():
    """Processes that are started meanwhile must raise the limit of open files themselves."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (256, hard))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def open_files(pid):
    return len(os.listdir(f"/proc/{pid}/fd"))


def memory_mib(pid):
    line = next(line for line in Path(f"/proc/{pid}/status").read_text().splitlines()
                if line.startswith("VmRSS"))
    return int(line.split()[1]) / 1024


def cpu_seconds(pid):
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def survives_a_flood(words, tls=False):
    """One job runs from before the flood until after it; others come and go in the middle of it and
    while all connections are held.
    """
    with Lab(4, "af_packet") as lab:
        lab.start_switch()
        hosts = [{"ip": lab.host_ip(host), "switch": "lab", "port": f"h{host}"}
                 for host in range(3)]
        topology = {"switches": [{"name": "lab", "control": str(lab.socket_path)}], "hosts": hosts}
        socket_path = lab.directory / "manager.sock"
        (lab.directory / "fanin.conf").write_text(f"manager = {lab.host_ip(3)}\n")
        config = {"socket": str(socket_path)}
        if tls:
            pem, key = certificate(lab.directory, "manager", lab.host_ip(3))
            config["tls"] = {"certificate": str(pem), "key": str(key)}
            (lab.directory / "fanin.conf").write_text(f"manager = {lab.host_ip(3)}\ntls = yes\nca "
                                                      f"= {pem}\n")
        with few_files():
            manager = Manager(lab, topology, host=3, **config).start(wait=False)
        wait_until(socket_path.exists, 60, "the manager's socket")

        def ask(command):
            client = manager.client(path=socket_path)
            try:
                return client.ask(command)
            finally:
                client.close()
        wait_until(lambda: ask("topology")["switches"][0]["state"] == "up", 60,
                   "the switch to be up")

        def start(job, members, **options):
            arguments = ["/usr/bin/env", f"FANIN_CONF={lab.directory}/fanin.conf",
                         f"FANIN_TOKEN={TOKEN}",
                         program("fanin-perf"), "--job-name", job, "--size", len(members),
                         "--transport", "af_packet", "--check",
                         "--json", "--no-progress", "--no-fallback"]
            options = {"bytes": 256 * KIB, **options}
            for name, value in options.items():
                arguments += ["--" + name.replace("_", "-"), value]
            return [lab.spawn(host, arguments, job) for host in members]

        pid = manager.process.pid
        files, memory = open_files(pid), memory_mib(pid)
        lasting = start("lasting", [0, 1], iters=1000000)
        wait_until(lambda: [job["state"] for job in ask("jobs")["jobs"]] == ["network"], 60,
                   "the job that lasts")
        with Flood(lab.host_namespace(3), (lab.host_ip(3), MANAGER_PORT), words) as flood:
            wait_until(lambda: len(flood.sockets) > FLOOD // 10 or flood.failure, 60, "the flood")
            expect_exact(reports_of(lab, start("amid", [1, 2])), "a job while connections pour in")
            flood.wait(60)
            expect_exact(reports_of(lab, start("held", [0, 2])),
                         "a job while all connections are held")
            counted = ask("stats")
            control = counted["control"]
            expect(control["half_open_dropped"] + control["hello_late"]
                   + control["hello_wrong"] >= FLOOD - 512 - 10,
                   f"connections that were closed: {control}")
            expect_equal((control["too_many"], counted["counters"]["hosts_lost"],
                          counted["counters"]["joins"]), (0, 0, 6),
                         f"nobody was kept out: {control}")
            expect(open_files(pid) <= files + 512 + 20,
                   f"{open_files(pid)} files are open, {files} were before")
            grown = memory_mib(pid) - memory
            expect(grown < MEMORY_MIB,
                   f"the manager has grown by {grown:.1f} MiB, expected less than {MEMORY_MIB}")
            worked = cpu_seconds(pid)
        wait_until(lambda: open_files(pid) <= files + 2, 60,
                   "the manager to let go of the connections")
        print(f"{FLOOD} connections: {control['half_open_dropped']} dropped, {grown:.1f} MiB more, "
              f"{worked:.1f} s of a core")
        # Nothing is left to do: a second of the job that continues costs the manager next to
        # nothing.
        worked, answered, began = cpu_seconds(pid), ask("stats")["uptime_s"], time.monotonic()
        wait_until(lambda: ask("stats")["uptime_s"] > answered + 1, 60, "a second to pass")
        worked, passed = cpu_seconds(pid) - worked, time.monotonic() - began
        expect(worked < 0.15 * passed, f"the manager was busy for {worked:.2f} s of {passed:.2f}")
        for rank in lasting:
            expect(rank.running(), f"the job that lasts has ended: {rank.stdout()[-300:]} "
                                   f"{rank.last_words()}")
            expect_equal(rank.stderr().count("the manager"), 0,
                         f"what it says of the manager: {rank.stderr()[-300:]}")
            rank.popen.terminate()
        for rank in lasting:
            rank.wait(60)
        wait_until(lambda: not ask("jobs")["jobs"], 60, "all jobs to be gone")
        manager.stop()


@case(200, thorough=True)
def ten_thousand_half_open_connections_keep_nobody_out():
    survives_a_flood([SILENCE, HALF_A_LINE])


@case(200, thorough=True)
def ten_thousand_half_tls_handshakes_keep_nobody_out():
    hello = client_hello()
    # Few handshakes are complete: each costs the attacker nothing, and the manager a signature.
    survives_a_flood([hello] + 9 * [hello[:100]], tls=True)


@case(150, thorough=True)
def ten_thousand_half_open_connections_to_a_switch_keep_nobody_out():
    with Lab(2, "af_packet") as lab:
        lab.overrides = {"control": control_over_tcp(lab)}
        lab.start_switch()
        files = open_files(lab.switch.pid)

        def answers():
            # On a busy machine the client may be too slow for its turn.
            with inside(lab.switch_namespace):
                return run([program("faninctl"), "-s", f"127.0.0.1:{SWITCH_PORT}", "--token-file",
                            lab.directory / "token", "-j",
                            "version"], check=False).returncode == 0
        with Flood(lab.switch_namespace, ("127.0.0.1", SWITCH_PORT),
                   [SILENCE, HALF_A_LINE]) as flood:
            wait_until(lambda: len(flood.sockets) > FLOOD // 10 or flood.failure, 60, "the flood")
            wait_until(answers, 60, "an answer amid the flood")
            flood.wait(60)
            wait_until(answers, 60, "an answer while all is held")
            control = lab.control.ask("stats")["control"]
            expect(control["half_open_dropped"] >= FLOOD - 128,
                   f"connections that were dropped: {control}")
            expect(open_files(lab.switch.pid) <= files + 129,
                   f"{open_files(lab.switch.pid)} files are open, {files} were before")
        wait_until(lambda: open_files(lab.switch.pid) <= files, 60,
                   "the switch to let go of the connections")
