# SPDX-License-Identifier: BSD-3-Clause
"""A network manager for tests of the host library: it says what the test wants, right or wrong, and
keeps what it was told.
"""

import json
import os
import socket
import ssl
import threading

from lab.namespaces import SWITCH_IP, UDP_PORT, inside

PORT = 21932


class FakeManager:
    """Listens on one of a laboratory's hosts. Threads serve the connections; kill() is what the
    kernel does to a dead process.

    token: that it asks for. hello: what it answers a handshake with. refusal: (code, message) for
    every join. ring: the reason why there is no tree; else it creates the job on the laboratory's
    switch. tls: an SSLContext. change: edits each answer to a join. reattached: the answer to a
    host that comes back. mute: accepts and says nothing.
    """

    def __init__(self, lab, host=0, token=None, hello=None, refusal=None, ring=None, tls=None,
                 change=None, mute=False,
                 address=None):
        self.lab, self.host, self.token, self.tls, self.mute = lab, host, token, tls, mute
        self.address = address or lab.host_ip(host)
        self.hello = hello or {"hello": 1, "version": "0.1.0", "name": "fake", "packet_version": 3}
        self.refusal, self.ring, self.change = refusal, ring, change
        self.reattached = {}
        self.hosts = None  # a job's, by rank; else as their addresses say
        self.lock = threading.Lock()
        self.jobs = {}
        self.commands = []
        self.connections = []
        self.listener = None
        self.start()

    def start(self):
        with inside(self.lab.host_namespace(self.host)):
            self.listener = socket.create_server((self.address, PORT))
        threading.Thread(target=self._accept, args=(self.listener,), daemon=True).start()

    def kill(self):
        listener, self.listener = self.listener, None
        if listener is not None:
            listener.shutdown(socket.SHUT_RDWR)
            listener.close()
        with self.lock:
            connections, self.connections = self.connections, []
        for connection in connections:
            try:
                connection.shutdown(socket.SHUT_RDWR)
            except OSError:
                pass

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.kill()

    def tell(self, event):
        """Sends an event to everybody."""
        with self.lock:
            for connection in self.connections:
                connection.sendall((json.dumps(event) + "\n").encode())

    def told(self, command):
        """The arguments of all commands of that name so far."""
        with self.lock:
            return [args for name, args in self.commands if name == command]

    def _accept(self, listener):
        while True:
            try:
                connection = listener.accept()[0]
            except OSError:
                return
            threading.Thread(target=self._serve, args=(connection,), daemon=True).start()

    def _serve(self, connection):
        try:
            if self.tls is not None:
                connection = self.tls.wrap_socket(connection, server_side=True)
            with self.lock:
                self.connections.append(connection)
            # A stream for both directions would lose what it has read ahead whenever it writes.
            with connection.makefile("r", encoding="utf-8", newline="\n") as lines, \
                    connection.makefile("w", encoding="utf-8", newline="\n") as stream:
                self._talk(lines, stream)
        except (OSError, ValueError):
            pass
        finally:
            connection.close()

    def _talk(self, lines, stream):
        hello = json.loads(lines.readline())
        if self.mute:
            lines.readline()
            return
        if self.token is not None and hello.get("token") != self.token:
            self._send(stream, {"id": None, "ok": False, "error": {
                "code": "unauthorized", "message": "found another token than the manager's"}})
            return
        self._send(stream, self.hello)
        for line in lines:
            self._command(stream, json.loads(line))

    @staticmethod
    def _send(stream, message):
        stream.write((message if isinstance(message, str) else json.dumps(message)) + "\n")
        stream.flush()

    def _command(self, stream, request):
        name, args = request["command"], request["args"]
        with self.lock:
            self.commands.append((name, args))
        if name == "join":
            self._join(stream, request["id"], args)
        else:
            self._send(stream, {"id": request["id"], "ok": True,
                                "result": self.reattached if name == "reattach" else {}})

    def _join(self, stream, number, args):
        if self.refusal is not None:
            self._send(stream, {"id": number, "ok": False,
                                "error": dict(zip(("code", "message"), self.refusal))})
            return
        with self.lock:
            members = self.jobs.setdefault(args["job"], [])
            members.append((stream, number, args))
            if len(members) < args["size"]:
                return
            del self.jobs[args["job"]]
        given = {args["rank"]: member for member in members for args in [member[2]]
                 if "rank" in args}
        arrived = iter([member for member in members if "rank" not in member[2]])
        ranks = [given[rank] if rank in given else next(arrived) for rank in range(len(members))]
        answers = self._ring(ranks) if self.ring is not None else self._network(ranks)
        for rank, (member, number, _) in enumerate(ranks):
            result = answers | {"rank": rank, "size": len(ranks)}
            if self.change is not None:
                self.change(result)
            self._send(member, {"event": "news", "of": "no interest"})
            self._send(member, {"id": number, "ok": True, "result": result})

    def _ring(self, ranks):
        return {"mode": "ring", "reason": self.ring, "key": "0x" + os.urandom(8).hex(),
                "endpoints": [args.get("endpoint", "10.0.0.1:1") for _, _, args in ranks]}

    def _network(self, ranks):
        hosts = self.hosts or [int(args["ip"].split(".")[3]) - 1 for _, _, args in ranks]
        job = self.lab.create_job(hosts)
        return {"mode": "network", "switch_ip": SWITCH_IP, "udp_port": UDP_PORT, "job": job["id"],
                "key": job["key"],
                "trees": 1, "window": job["window"], "payload_bytes": job["payload_bytes"],
                "handler": job["handler"],
                "generation": 1}


def certificate(directory, name, address):
    """Makes a certificate that signs itself; returns the paths of it and of its key."""
    from lab.namespaces import run
    paths = directory / f"{name}.pem", directory / f"{name}.key"
    run(["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1",
         "-nodes", "-days", "2",
         "-subj", f"/CN={name}", "-addext", f"subjectAltName=IP:{address}", "-out", paths[0],
         "-keyout", paths[1]])
    return paths


def server_context(paths):
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*paths)
    return context
