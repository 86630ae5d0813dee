# SPDX-License-Identifier: BSD-3-Clause
"""Clients of the control sockets that try to keep others out: silent ones, those that never read,
many of one user, wrong tokens.
"""

import json
import os
import socket
import threading
import time

from tests.net.support import (Control, Lab, LabError, case, expect, expect_equal, program, run,
                               running_lab, wait_until)
from lab.namespaces import inside
from tests.net.manager_lab import Manager, Refused, control_over_tcp, played, played_manager

PLACES = 256  # of a switch's control socket
CROWD = PLACES + 14
NOBODY = 65534
TOKENS_FREE = 5
TOKENS_HELD = 16
CROWD_OF_TOKENS = 32  # more than half of the manager's places


def dial(path, hello=True):
    """Connects a client that reads only the greeting."""
    client = socket.socket(socket.AF_UNIX)
    # The connection waits in the queue.
    client.connect(str(path))
    client.settimeout(30)
    if hello:
        try:
            client.sendall(b'{"hello":1}\n')
        except BrokenPipeError:
            pass  # the server has refused it already, and told why
    return client


def close_sockets(clients):
    for client in clients:
        client.close()


@case(90)
def silent_clients_of_the_control_socket_keep_nobody_out():
    """Neither clients without a handshake nor those that then stay silent keep others out."""
    with running_lab(1) as lab:
        for hello, counter in ((False, "half_open_dropped"), (True, "idle_dropped")):
            # Greeted clients fill all places except the test's own.
            clients = []
            for _ in range(PLACES - 1 if hello else CROWD):
                clients.append(dial(lab.socket_path, hello))
                expect(b"fanin" in clients[-1].recv(4096), "a client was not greeted")
            lab.control.ask("ping")

            def served():
                return run([program("faninctl"), "-s", str(lab.socket_path), "version"],
                           check=False).returncode == 0
            wait_until(served, 30, f"a switch with silent clients to answer ({counter})")
            expect(lab.control.ask("stats")["control"][counter] > 0,
                   f"no client is counted as {counter}")
            close_sockets(clients)


def ask_without_end(path, until):
    """Clients that send requests with long answers and read none, without end."""
    request = b'{"id":1,"cmd":"stats"}\n' * 200
    clients = []
    while not until.is_set():
        for client in clients:
            try:
                client.send(request, socket.MSG_DONTWAIT)
            except BlockingIOError:
                pass
            except OSError:
                client.close()
        clients = [client for client in clients if client.fileno() >= 0]
        while len(clients) < CROWD and not until.is_set():
            try:
                clients.append(dial(path))
            except OSError:
                break
    close_sockets(clients)


def count_of(lab, name):
    """Returns a count, asked over a connection of its own; -1 if there is no room for it just now.
    """
    try:
        control = Control(lab.socket_path)
    except (OSError, ValueError, KeyError):
        return -1
    try:
        return control.ask("stats")["control"][name]
    except LabError:
        return -1
    finally:
        control.close()


@case(90, long=True)
def clients_that_never_read_keep_the_manager_at_the_switch():
    with Lab(1, "af_packet") as lab:
        lab.overrides = {"control": control_over_tcp(lab)}
        lab.start_switch()
        topology = {"switches": [{"name": "lab", "control": "127.0.0.1:21931",
                                  "token_file": str(lab.directory / "token")}], "hosts": []}
        manager = Manager(lab, topology, heartbeat_ms=500, dead_after_ms=10000).start()
        manager.wait_up("lab")
        until = threading.Event()
        attack = threading.Thread(target=ask_without_end, args=(lab.socket_path, until))
        attack.start()
        try:
            wait_until(lambda: count_of(lab, "stalled") > 20, 60,
                       "clients to be closed as they read nothing")
            lost = manager.ask("stats")["counters"]["switches_lost"]
            told = manager.process.stderr()[-2000:]
            # A manager that was started again connects, too.
            manager.kill()
            manager.start().wait_up("lab")
            wait_until(lambda: count_of(lab, "stalled") > 40, 60, "more clients to be closed")
        finally:
            until.set()
            attack.join()
        expect_equal((lost, manager.ask("stats")["counters"]["switches_lost"]), (0, 0),
                     f"how often the manager has lost the switch: {told}")
        manager.stop()


@case(60)
def one_user_has_half_of_the_connections():
    with running_lab(1) as lab:
        lab.directory.chmod(0o755)
        lab.socket_path.chmod(0o666)
        clients = []
        os.seteuid(NOBODY)
        try:
            greeted = 0
            for _ in range(PLACES // 2 + 8):
                clients.append(dial(lab.socket_path))
                stream = clients[-1].makefile("r", encoding="utf-8")
                answer = json.loads(stream.readline())
                greeted += "fanin" in answer
                if "error" in answer:
                    expect_equal(answer["error"]["message"],
                                 f"found {PLACES // 2} clients of user {NOBODY} connected already, "
                                 "expected fewer: "
                                 "try again later", "why a client is refused")
        finally:
            os.seteuid(0)
        expect(PLACES // 2 <= greeted, f"{greeted} clients of a user were served")
        # Root does not have to wait until one of them is idle.
        others = [Control(lab.socket_path) for _ in range(PLACES // 2 - 2)]
        for other in others:
            other.ask("ping")
            other.close()
        close_sockets(clients)


@case(60)
def wrong_tokens_are_refused_late_and_right_ones_at_once():
    with Lab(1, "af_packet") as lab:
        manager = played_manager(lab, played(lab))
        before = manager.ask("stats")["control"]

        def count(name):
            return manager.ask("stats")["control"][name] - before[name]

        def refuse_one():
            try:
                manager.client(token="wrong")
                expect(False, "a wrong token was taken")
            except Refused as error:
                expect_equal(error.code, "unauthorized", "code of a wrong token")
            return count("token_delayed") > 0
        wait_until(refuse_one, 60, "a wrong token to be refused late")
        # More than may wait: the others are closed without a message.
        clients = [manager.client(hello=False) for _ in range(CROWD_OF_TOKENS)]
        wrong, late = count("token_wrong"), count("token_delayed")
        started = time.monotonic()
        for client in clients:
            client.send({"hello": 1, "token": "wrong"})
        # A client with the right token, from the same address, while they wait.
        wait_until(lambda: count("token_wrong") == wrong + CROWD_OF_TOKENS, 30,
                   "all wrong tokens to be counted")
        at_once = time.monotonic() - started < 0.9
        answers = [client.stream.readline() for client in clients]
        waited = time.monotonic() - started
        expect(waited >= 0.9, f"wrong tokens were refused after {waited:.2f} s")
        expect(all(answer == "" or "unauthorized" in answer for answer in answers),
               f"answers to wrong tokens: {answers}")
        expect(count("token_delayed") > late, f"{count('token_delayed')} were refused late")
        expect_equal(answers.count(""), count("token_unanswered"), "wrong tokens without an answer")
        expect(not at_once or answers.count("") >= CROWD_OF_TOKENS - TOKENS_FREE - TOKENS_HELD,
               f"answers to wrong tokens: {answers}")
        lines = [line for line in manager.process.stderr().splitlines() if "wrong tokens" in line]
        expect_equal(len(lines), 1, f"lines about wrong tokens: {lines}")
        expect("many wrong tokens come from 127.0.0.1: each is refused after 1000 ms" in lines[0],
               lines[0])
        for client in clients:
            client.close()
        with inside(lab.switch_namespace):
            done = run([program("faninctl"), "--manager", "127.0.0.1", "--token-file",
                        str(manager.token_file), "version"])
        expect("m0" in done.stdout, f"faninctl with the right token: {done.stdout}")
        manager.stop()
