# SPDX-License-Identifier: BSD-3-Clause
"""A fanin-manager in a laboratory: its configuration, its life, clients that play hosts, and
switches that are played, too.
"""

import json
import os
import signal
import socket
import threading

from tests.net.support import LabError, expect, program, wait_until
from lab.namespaces import inside

MANAGER_PORT = 21932
SWITCH_PORT = 21931
TOKEN = "correct-horse-battery"


class Refused(LabError):
    """The manager's answer is an error."""

    def __init__(self, command, error):
        super().__init__(f"{command}: {error['code']}: {error['message']}")
        self.code = error["code"]
        self.message = error["message"]


class Client:
    """A connection to the manager: a host's, or a person's. Events are kept aside."""

    def __init__(self, manager, token=TOKEN, timeout=60, hello=True, path=None):
        if path is not None:
            self.socket = socket.socket(socket.AF_UNIX)
            self.socket.settimeout(timeout)
            self.socket.connect(str(path))
        else:
            with inside(manager.namespace):
                self.socket = socket.create_connection((manager.address, MANAGER_PORT), timeout)
        # What is read ahead is lost if the same file object writes.
        self.stream = self.socket.makefile("r", encoding="utf-8", newline="\n")
        self.last_id = 0
        self.events = []
        self.answers = {}
        if hello:
            self.send({"hello": 1, "packet_version": 3, "token": token})
            self.greeting = self.receive()
            if "error" in self.greeting:
                raise Refused("hello", self.greeting["error"])

    def send(self, message):
        self.send_line(json.dumps(message))

    def send_line(self, text):
        self.socket.sendall(text.encode() + b"\n")

    def receive(self):
        line = self.stream.readline()
        if not line:
            raise LabError("the manager closed the connection")
        return json.loads(line)

    def start(self, command, **arguments):
        """Sends a request and returns its number."""
        self.last_id += 1
        self.send({"id": self.last_id, "command": command, "args": arguments})
        return self.last_id

    def finish(self, number, command="request"):
        """The result of a request that was sent; Refused if it is an error."""
        while number not in self.answers:
            message = self.receive()
            if "event" in message:
                self.events.append(message)
            else:
                self.answers[message["id"]] = message
        answer = self.answers.pop(number)
        if not answer["ok"]:
            raise Refused(command, answer["error"])
        return answer["result"]

    def ask(self, command, **arguments):
        return self.finish(self.start(command, **arguments), command)

    def wait_event(self, name):
        """The next event of that name."""
        while True:
            for event in self.events:
                if event["event"] == name:
                    self.events.remove(event)
                    return event
            message = self.receive()
            expect("event" in message, f"found {message}, expected the event {name}")
            self.events.append(message)

    def close(self):
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.stream.close()
        self.socket.close()


def name_number(name):
    """Another number for each name that the tests give to switches."""
    return sum(name.encode()) % 256


class FakeSwitch:
    """Plays the control side of a switch on a Unix socket, in threads: records what it is asked,
    refuses what it is told to.
    """

    def __init__(self, lab, name, ip, ports, mtu=9000, max_jobs=64, slots_per_job=256, jobs=None):
        self.name, self.ip, self.ports, self.mtu = name, ip, ports, mtu
        self.max_jobs, self.slots_per_job = max_jobs, slots_per_job
        self.path = lab.directory / f"{name}.sock"
        self.jobs = {} if jobs is None else jobs
        self.created = []
        self.refuse = {}  # command: (code, message)
        self.hang_up_on = None  # a command: the connection ends instead of an answer
        # a command after which nothing is answered any more over that connection
        self.silent_on = None
        self.down = []  # ports without a link
        self.mac = f"02:fa:00:00:00:{name_number(name):02x}"
        self.beside = {}  # port: MAC address of the next hop there
        self.waiting = []  # blocks that wait, in each of its jobs
        self.lock = threading.Lock()
        self.connections = []
        self.server = None
        self.listen()

    def listen(self):
        self.path.unlink(missing_ok=True)
        self.server = socket.socket(socket.AF_UNIX)
        self.server.bind(str(self.path))
        self.server.listen()
        threading.Thread(target=self._accept, args=(self.server,), daemon=True).start()

    def stop(self):
        """Nobody can reach it until listen()."""
        self.path.unlink(missing_ok=True)
        try:
            self.server.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass
        self.server.close()
        with self.lock:
            for connection in self.connections:
                try:
                    connection.shutdown(socket.SHUT_RDWR)
                except OSError:
                    pass
            self.connections = []

    def _accept(self, server):
        while True:
            try:
                connection, _ = server.accept()
            except OSError:
                return
            with self.lock:
                self.connections.append(connection)
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            stream = connection.makefile("r", encoding="utf-8", newline="\n")
            self._write(connection, {"fanin": "switch", "protocol": 1, "version": "fake",
                                     "name": self.name})
            stream.readline()
            for line in stream:
                request = json.loads(line)
                if request["cmd"] == self.hang_up_on:
                    break
                if request["cmd"] == self.silent_on:
                    for _ in stream:
                        pass
                    break
                self._write(connection, {"id": request["id"],
                                         **self._answer(request["cmd"], request.get("args", {}))})
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    @staticmethod
    def _write(connection, message):
        connection.sendall(json.dumps(message).encode() + b"\n")

    def _answer(self, command, args):
        with self.lock:
            if command in self.refuse:
                code, message = self.refuse[command]
                return {"ok": False, "error": {"code": code, "message": message}}
            result = getattr(self, "_" + command.replace(".", "_"))(args)
        if isinstance(result, str):
            return {"ok": False, "error": {"code": result, "message": f"{command}: {result}"}}
        return {"ok": True, "result": result}

    def _version(self, _):
        handlers = [{"name": "single", "default": True, "in_order": False,
                     "slot_mbufs": {"fixed": 1}},
                    {"name": "tree", "default": False, "in_order": True, "order": "ranks",
                     "slot_mbufs": {"per_pair": 1}},
                    {"name": "serving", "default": False, "in_order": False, "shape": "server",
                     "slot_mbufs": {"fixed": 1}}]
        return {"version": "fake", "ip": self.ip, "mac": self.mac, "udp_port": 21930,
                "packet_version": 3, "handlers": handlers}

    def _ports_list(self, _):
        return {"ports": [{"name": port, "mtu": self.mtu, "link": port not in self.down}
                          for port in self.ports]}

    def _routes_list(self, _):
        return {"routes": [{"prefix": "10.0.0.0/8",
                            "via": [{"port": port, "ip": "10.0.0.1", "mac": mac, "state": "up"}
                                                            for port, mac in self.beside.items()]}]}

    def _ping(self, _):
        return {"jobs": len(self.jobs), "ports_down": list(self.down)}

    def _jobs_list(self, _):
        return {"jobs": [{"id": job, "owner": args["owner"]} for job, args in self.jobs.items()],
                "limits": {"max_jobs": self.max_jobs, "slots_per_job": self.slots_per_job}}

    def _jobs_create(self, args):
        if len(self.jobs) >= self.max_jobs:
            return "no_room"
        if args["id"] in self.jobs:
            return "exists"
        self.jobs[args["id"]] = args
        self.created.append(args)
        return {"id": args["id"], "key": args["key"],
                "window": args.get("slots", self.slots_per_job) // 2}

    def _jobs_waits(self, args):
        if args["id"] not in self.jobs:
            return "not_found"
        return {"id": args["id"], "state": "active", "waiting": len(self.waiting),
                "blocks": self.waiting, "members": [],
                "parent": None}

    def _jobs_destroy(self, args):
        if args["id"] not in self.jobs or self.jobs[args["id"]]["owner"] != args["owner"]:
            return "not_found"
        del self.jobs[args["id"]]
        return {}


class FakeServer(FakeSwitch):
    """Plays the control side of a parameter server."""

    def __init__(self, lab, name, ip, **options):
        super().__init__(lab, name, ip, ["eth0"], **options)

    def _version(self, args):
        told = super()._version(args)
        return {**told, "kind": "server",
                "handlers": [handler for handler in told["handlers"]
                             if handler["name"] == "serving"]}


class Manager:
    """fanin-manager in the switch's namespace of a laboratory, or on one of its hosts."""

    def __init__(self, lab, topology, host=None, **config):
        self.lab = lab
        self.namespace = lab.switch_namespace if host is None else lab.host_namespace(host)
        self.address = "127.0.0.1" if host is None else lab.host_ip(host)
        self.process = None
        self.starts = 0
        self.token_file = write_token(lab)
        (lab.directory / "topology.json").write_text(json.dumps(topology))
        self.config = {"name": "m0", "listen": f"{self.address}:{MANAGER_PORT}",
                       "token_file": str(self.token_file),
                       "database": "manager.db", "topology": "topology.json", "heartbeat_ms": 100,
                       "dead_after_ms": 2000, "grace_ms": 20000, **config}
        self.path = lab.directory / "manager.json"
        self.path.write_text(json.dumps(self.config))

    def start(self, wait=True):
        self.starts += 1
        self.process = self.lab._spawn(self.namespace, f"manager-{self.starts}",
                                       [program("fanin-manager"), "--config", str(self.path)])
        if wait:
            wait_until(self._answers, 60, "the manager to answer")
        return self

    def _answers(self):
        if not self.process.running():
            raise LabError(f"fanin-manager did not start: {self.process.last_words()}")
        try:
            self.client().close()
        except (OSError, LabError):
            return False
        return True

    def kill(self):
        """As a crash: nothing is said to anyone."""
        os.kill(self.process.pid, signal.SIGKILL)
        self.process.popen.wait()

    def stop(self):
        """Ends it as its service manager would; it must have nothing to complain about, sanitizers
        neither.
        """
        self.process.popen.terminate()
        status = self.process.wait(60)
        expect(status == 0, f"fanin-manager ended with status {status}: "
                            f"{self.process.stderr()[-2000:]}")

    def client(self, **options):
        return Client(self, **options)

    def ask(self, command, **arguments):
        client = self.client()
        try:
            return client.ask(command, **arguments)
        finally:
            client.close()

    def switch_state(self, name):
        topology = self.ask("topology")
        return next(entry for entry in topology["switches"] + topology["servers"]
                    if entry["name"] == name)["state"]

    def wait_up(self, *names):
        for name in names:
            wait_until(lambda: self.switch_state(name) == "up", 60, f"switch {name} to be up")

    def join(self, job, ips, **options):
        """Hosts at these addresses join as rank 0 and on; returns their clients and results in that
        order.
        """
        clients = [self.client() for _ in ips]
        numbers = [client.start("join", job=job, size=len(ips), rank=rank, ip=ip, **options)
                   for rank, (client, ip) in enumerate(zip(clients, ips))]
        return clients, [client.finish(number, "join") for client, number in zip(clients, numbers)]

    def wait_idle(self, timeout=60):
        """No job and no removal is left."""
        def idle():
            jobs = self.ask("jobs")
            return not jobs["jobs"] and not jobs["removals"]
        wait_until(idle, timeout, "all jobs of the manager to be gone")


def write_token(lab):
    path = lab.directory / "token"
    path.write_text(TOKEN + "\n")
    path.chmod(0o600)
    return path


def control_over_tcp(lab, port=SWITCH_PORT):
    """The control section of a switch that a manager can reach."""
    return {"socket": str(lab.socket_path), "listen": f"127.0.0.1:{port}",
            "token_file": str(write_token(lab))}


def leaf_spine(leaves, spines, hosts_per_leaf, sockets):
    """A topology of played switches, with a server at each spine that has one. sockets: by name,
    where to reach each.
    """
    servers = [{"name": name, "control": str(path), "switch": name.replace("server", "spine"),
                "port": "s0"}
               for name, path in sockets.items() if name.startswith("server")]
    sockets = {name: path for name, path in sockets.items() if not name.startswith("server")}
    switches = [{"name": name, "control": str(path)} for name, path in sockets.items()]
    links = [{"a": f"leaf{leaf}:u{spine}", "b": f"spine{spine}:p{leaf}"}
             for leaf in range(leaves) for spine in range(spines)]
    hosts = [{"ip": f"10.77.{leaf}.{host + 1}", "switch": f"leaf{leaf}", "port": f"h{host}"}
             for leaf in range(leaves) for host in range(hosts_per_leaf)]
    return {"switches": switches, "links": links, "servers": servers, "hosts": hosts}


def close_all(clients):
    for client in clients:
        client.close()


def played(lab, leaves=2, spines=2, hosts=2, servers=0, **options):
    """Switches, and at the first spines servers, by name."""
    switches = {}
    for leaf in range(leaves):
        switches[f"leaf{leaf}"] = FakeSwitch(lab, f"leaf{leaf}", f"10.77.{leaf}.254",
                                             [f"h{host}" for host in range(hosts)]
                                             + [f"u{spine}" for spine in range(spines)],
                                             **options)
    for spine in range(spines):
        switches[f"spine{spine}"] = FakeSwitch(lab, f"spine{spine}", f"10.79.{spine}.254",
                                               [f"p{leaf}" for leaf in range(leaves)] + ["s0"],
                                               **options)
    for server in range(servers):
        switches[f"server{server}"] = FakeServer(lab, f"server{server}", f"10.79.{server}.201",
                                                 **options)
    return switches


# Hosts of both leaves in turns.
FOUR = ["10.77.0.1", "10.77.1.1", "10.77.0.2", "10.77.1.2"]


def played_manager(lab, switches, leaves=2, spines=2, hosts=2, **config):
    topology = leaf_spine(leaves, spines, hosts,
                          {name: switch.path for name, switch in switches.items()})
    manager = Manager(lab, topology, **config).start()
    manager.wait_up(*switches)
    return manager
