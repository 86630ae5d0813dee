# SPDX-License-Identifier: BSD-3-Clause
"""Pings between hosts of a laboratory; every answer counts. ping(8) waits two round trips for its
last answers. That is too short for a process that does not get a core in time, so ping reports
losses that never happened.
"""

import os
import selectors
import socket
import struct
import time

from lab.namespaces import inside

ECHO_REPLY, ECHO_REQUEST = 0, 8
HEADER = struct.Struct("!BBHHH")
IP_HEADER_LEN = 20
SO_RCVBUFFORCE = 33
RECEIVE_BUFFER = 8 << 20


def checksum(data):
    data += b"\0" * (len(data) % 2)
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total > 0xffff:
        total = (total & 0xffff) + (total >> 16)
    return ~total & 0xffff


class Pinger:
    """One host that pings an address: count requests with size bytes of data each."""

    def __init__(self, lab, host, address, count, size, number):
        with inside(lab.host_namespace(host)):
            self.socket = socket.socket(socket.AF_INET, socket.SOCK_RAW, socket.IPPROTO_ICMP)
        self.socket.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, RECEIVE_BUFFER)
        self.socket.setblocking(False)
        self.address, self.count, self.size = address, count, size
        self.identity = (os.getpid() + number) & 0xffff
        self.sent, self.answers = 0, set()

    def send(self):
        request = HEADER.pack(ECHO_REQUEST, 0, 0, self.identity, self.sent) + bytes(self.size)
        request = HEADER.pack(ECHO_REQUEST, 0, checksum(request), self.identity,
                              self.sent) + bytes(self.size)
        try:
            self.socket.sendto(request, (self.address, 0))
        except BlockingIOError:
            return
        self.sent += 1

    def receive(self):
        while True:
            try:
                packet = self.socket.recv(65535)
            except BlockingIOError:
                return
            kind, _, _, identity, sequence = HEADER.unpack_from(packet, IP_HEADER_LEN)
            if kind == ECHO_REPLY and identity == self.identity:
                self.answers.add(sequence)

    def done(self):
        return len(self.answers) == self.count


class Pings:
    """Pings between hosts, given as pairs, all at the same time. Made in the main thread, run in
    any.
    """

    def __init__(self, lab, pairs, count, size, interval):
        self.count, self.interval = count, interval
        self.pingers = [Pinger(lab, host, address, count, size, number) for number,
                        (host, address) in enumerate(pairs)]

    def run(self, patience=5.0):
        """Waits for answers for up to `patience` after the last request. Returns {"sent",
        "received", "lost"} of all together.
        """
        with selectors.DefaultSelector() as selector:
            for pinger in self.pingers:
                selector.register(pinger.socket, selectors.EVENT_READ, pinger)
            self._exchange(selector, patience)
        sent = sum(pinger.sent for pinger in self.pingers)
        received = sum(len(pinger.answers) for pinger in self.pingers)
        for pinger in self.pingers:
            pinger.socket.close()
        return {"sent": sent, "received": received, "lost": sent - received}

    def _exchange(self, selector, patience):
        deadline = next_at = time.monotonic()
        while not all(pinger.done() for pinger in self.pingers):
            now = time.monotonic()
            waiting = [pinger for pinger in self.pingers if pinger.sent < self.count]
            if waiting and now >= next_at:
                for pinger in waiting:
                    pinger.send()
                next_at = now + self.interval
                deadline = now + patience
            elif not waiting and now > deadline:
                break
            for key, _ in selector.select(max(0.0,
                                              (next_at if waiting else deadline)
                                              - time.monotonic())):
                key.data.receive()


def ping_all(lab, pairs, count=10, size=56, interval=0.02):
    """Runs Pings."""
    return Pings(lab, pairs, count, size, interval).run()
