# SPDX-License-Identifier: BSD-3-Clause
"""A firewall of a network namespace, made without nft or iptables: messages to the kernel's
nf_tables over netlink.
"""

import socket
import struct

from lab.namespaces import inside

NETLINK_NETFILTER = 12
NFPROTO_IPV4 = 2
BATCH_BEGIN, BATCH_END, NEW_TABLE, NEW_CHAIN, NEW_RULE = 0x10, 0x11, 0xA00, 0xA03, 0xA06
REQUEST, ACK, CREATE, APPEND = 0x1, 0x4, 0x400, 0x800
NESTED = 0x8000
HOOK_INPUT, HOOK_POSTROUTING = 1, 4
ACCEPT, DROP = 1, 0
NETWORK_HEADER = 1
REGISTER_VERDICT, REGISTER = 0, 1
EQUAL = 0
TABLE, CHAIN = b"fanin\0", b"chain\0"


def attribute(kind, value):
    if isinstance(value, int):
        value = struct.pack("!I", value)
    return struct.pack("=HH", 4 + len(value), kind) + value + bytes(-len(value) % 4)


def nested(kind, *parts):
    return attribute(kind | NESTED, b"".join(parts))


def message(number, kind, flags, body=b"", family=NFPROTO_IPV4, resource=0):
    body = struct.pack("!BBH", family, 0, resource) + body
    return struct.pack("=IHHII", 16 + len(body), kind, REQUEST | flags, number, 0) + body


def expression(name, *parts):
    return nested(1, attribute(1, name + b"\0"), nested(2, *parts))


def add_rule(namespace, kind, hook, priority, *expressions):
    """A chain of that kind at a hook, which accepts what this rule does not stop."""
    batch = [
        message(1, BATCH_BEGIN, 0, family=0, resource=10),
        message(2, NEW_TABLE, CREATE | ACK, attribute(1, TABLE)),
        message(3, NEW_CHAIN, CREATE | ACK, attribute(1, TABLE) + attribute(3, CHAIN) +
                nested(4, attribute(1, hook), attribute(2, priority)) + attribute(5, ACCEPT)
                + attribute(7, kind + b"\0")),
        message(4, NEW_RULE, CREATE | APPEND | ACK,
                attribute(1, TABLE) + attribute(2, CHAIN) + nested(4, *expressions)),
        message(5, BATCH_END, 0, family=0, resource=10),
    ]
    with inside(namespace), socket.socket(socket.AF_NETLINK, socket.SOCK_RAW,
                                          NETLINK_NETFILTER) as kernel:
        kernel.bind((0, 0))
        kernel.settimeout(10)
        kernel.send(b"".join(batch))
        for _ in range(3):
            error = struct.unpack_from("=i", kernel.recv(65536), 16)[0]
            if error != 0:
                raise OSError(-error, "the kernel refuses the firewall's rule")


def drop_groups(namespace):
    """Drops what comes for the jobs' multicast groups, 239.192.0.0/16."""
    add_rule(namespace, b"filter", HOOK_INPUT, 0,
             expression(b"payload", attribute(1, REGISTER), attribute(2, NETWORK_HEADER),
                        attribute(3, 16), attribute(4, 2)),
             expression(b"cmp", attribute(1, REGISTER), attribute(2, EQUAL),
                        nested(3, attribute(1, bytes([239, 192])))),
             expression(b"immediate", attribute(1, REGISTER_VERDICT),
                        nested(2, nested(2, attribute(1, DROP)))))


def translate_sources(namespace):
    """What leaves has the address of the interface that it leaves by (masquerade)."""
    add_rule(namespace, b"nat", HOOK_POSTROUTING, 100, expression(b"masq"))
