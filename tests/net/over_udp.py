# SPDX-License-Identifier: BSD-3-Clause
"""Cases with hosts on UDP sockets in place of what they ask for: as user nobody, without rights, at
the MTU of ordinary links.
"""

from pathlib import Path

from lab.namespaces import DEFAULT_MTU, NOBODY, Lab

TRANSPORT = "udp"
OTHERS = ("auto", "af_packet", "af_xdp")
# Programs of hosts, and what stands before a transport's name on their command lines; None:
# nothing.
PROGRAMS = {"fanin-perf": "--transport", "regions": None, "gathering": None,
            "two-communicators": None, "computing": None}


class HostsOverUdp:
    """While a case runs, what its laboratories have instead: see Lab.instead."""

    def __init__(self):
        self.started = 0  # hosts' programs, or demonstrations

    @staticmethod
    def network(transport, mtu):
        """The transport and the MTU of a laboratory."""
        return (TRANSPORT, DEFAULT_MTU[TRANSPORT]) if transport in OTHERS else (transport, mtu)

    def program(self, arguments, user):
        """A program's command line, and as whom it runs. Those that are no host's stay as they are.
        """
        arguments = list(map(str, arguments))
        option = next((option for name,
                       option in PROGRAMS.items()
                       if any(Path(word).name == name for word in arguments)), "")
        if option == "":
            return arguments, user
        self.started += 1
        named = [i for i, word in enumerate(arguments) if word in OTHERS
                 and option in (None, arguments[i - 1])]
        for i in named:
            arguments[i] = TRANSPORT
        return arguments, NOBODY

    def demo(self):
        """Options of a demonstration, behind its own."""
        self.started += 1
        return ["--transport", TRANSPORT, "--mtu", str(DEFAULT_MTU[TRANSPORT])]


def run(case):
    """Runs a case so. Returns how many hosts' programs ran over UDP sockets instead."""
    Lab.instead = HostsOverUdp()
    try:
        case()
        return Lab.instead.started
    finally:
        Lab.instead = None
