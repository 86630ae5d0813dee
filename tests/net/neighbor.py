# SPDX-License-Identifier: BSD-3-Clause
"""Another user of a host, without rights, beside a member of a job: sends forged packets to the
member's ports and to the job's group, and tries to take what the member has. Prints what came of it
as one JSON object.

usage: neighbor.py FILE: JSON with `packets` (hex), `host`, `switch`, `group` (addresses),
`group_port` and `ports` of the member
"""

import errno
import json
import socket
import sys
import time

IP_FREEBIND = 15
LISTEN_SECONDS = 0.5


def udp_socket(*options):
    sock = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
    for level, name, value in options:
        sock.setsockopt(level, name, value)
    return sock


def outcome(attempt):
    """The name of the error that an attempt ended with; "done" if it did not."""
    try:
        attempt()
    except OSError as error:
        return errno.errorcode.get(error.errno, str(error))
    return "done"


def take_port(address, port):
    def attempt():
        udp_socket((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
                   (socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)).bind((address, port))
    return outcome(attempt)


def as_the_switch(told, options=()):
    """With the switch's address as its own."""
    def attempt():
        sock = udp_socket(*options)
        sock.bind((told["switch"], told["group_port"]))
        sock.sendto(bytes.fromhex(told["packets"][0]), (told["host"], told["ports"][0]))
    return outcome(attempt)


def group_socket(told):
    """In the job's group, as a member's own socket is, and also for what comes from anywhere."""
    sock = udp_socket((socket.SOL_SOCKET, socket.SO_REUSEADDR, 1),
                      (socket.SOL_SOCKET, socket.SO_RCVBUF, 4 << 20))
    sock.bind((told["group"], told["group_port"]))
    sock.setsockopt(socket.IPPROTO_IP, socket.IP_ADD_MEMBERSHIP,
                    socket.inet_aton(told["group"]) + socket.inet_aton(told["host"]))
    sock.settimeout(LISTEN_SECONDS)
    return sock


def hear(sock, told):
    """How many packets have come from this host, which are forged, and from others."""
    own = others = 0
    end = time.monotonic() + 10
    try:
        while time.monotonic() < end:
            _, source = sock.recvfrom(65536)
            own += source[0] == told["host"]
            others += source[0] != told["host"]
    except TimeoutError:
        pass
    return own, others


def main():
    with open(sys.argv[1], encoding="ascii") as file:
        told = json.load(file)
    listener = group_socket(told)
    sender = udp_socket((socket.IPPROTO_IP, socket.IP_MULTICAST_LOOP, 1),
                        (socket.IPPROTO_IP, socket.IP_MULTICAST_IF, socket.inet_aton(told["host"])))
    sender.bind((told["host"], 0))
    sent = refused = 0
    for content in map(bytes.fromhex, told["packets"]):
        for target in [(told["group"], told["group_port"]),
                       *((told["host"], port) for port in told["ports"])]:
            # A connected socket's port is closed to others: they are told so at their next packet.
            if outcome(lambda content=content,
                       target=target: sender.sendto(content, target)) == "done":
                sent += 1
            else:
                refused += 1
        if sent % 50 == 0:
            time.sleep(0.01)
    own, others = hear(listener, told)
    print(json.dumps({"sent": sent, "refused": refused, "heard_own": own, "heard_others": others,
                      "ports": [take_port(told["host"], port) for port in told["ports"]],
                      "any_address": [take_port("0.0.0.0", port) for port in told["ports"]],
                      "switch_address": as_the_switch(told),
                      "switch_address_free": as_the_switch(told,
                                                           ((socket.IPPROTO_IP, IP_FREEBIND, 1),)),
                      "raw": outcome(lambda: socket.socket(socket.AF_INET, socket.SOCK_RAW,
                                                           socket.IPPROTO_UDP)),
                      "packet": outcome(lambda: socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                                              3))}))


if __name__ == "__main__":
    main()
