# SPDX-License-Identifier: BSD-3-Clause
"""Traffic on the links of a network, by the kernel's byte counters of the interfaces at their ends,
headers included.
"""

from pathlib import Path

from lab.fabric import SECOND_INTERFACE
from lab.namespaces import HOST_INTERFACE, inside


def link_bytes(namespace, interface):
    """Returns (received, sent) of a link's end."""
    with inside(namespace):
        counters = Path("/proc/net/dev").read_text(encoding="ascii")
    fields = next(line for line in counters.splitlines()
                  if line.strip().startswith(interface + ":")).split(":")[1].split()
    return int(fields[0]), int(fields[8])


class Traffic:
    """Traffic on the links between switches and on those to hosts, since this was made."""

    def __init__(self, fabric):
        interfaces = {}
        for host in range(fabric.hosts):
            for number, switch in enumerate(fabric.topology.switches_of(host)):
                name = HOST_INTERFACE if number == 0 else SECOND_INTERFACE
                interfaces["hosts", f"h{host}-{switch}"] = (fabric.host_namespace(host), name)
        for a, b in fabric.topology.links:
            interfaces["switches", f"{a}-{b}"] = (fabric.switch_ns(a), f"to-{b}")
        self.interfaces = interfaces
        self.before = {link: link_bytes(*end) for link, end in interfaces.items()}

    def parts(self, size):
        """Returns {"hosts": {link: [forward, backward]}, "switches": ...} in multiples of size;
        forward: from the first end in a link's name.
        """
        carried = {"hosts": {}, "switches": {}}
        for (kind, link), end in self.interfaces.items():
            received, sent = (after - before for after,
                              before in zip(link_bytes(*end), self.before[kind, link]))
            carried[kind][link] = [round(sent / size, 3), round(received / size, 3)]
        return carried


def most(links):
    """Returns the largest traffic of any of these links in either direction."""
    return max((part for both in links.values() for part in both), default=0)
