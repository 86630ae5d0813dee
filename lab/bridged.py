# SPDX-License-Identifier: BSD-3-Clause
"""A laboratory in which the hosts and fanin-switch are stations of one Linux bridge. All hosts are
behind the switch's only port, to which it sends each result once. See namespaces.py.
"""

from pathlib import Path

from lab.namespaces import HOST_INTERFACE, Lab, inside, ip_in

PORT = "net"


def make_bridge(namespace, name, mtu):
    """Makes a bridge that forwards frames without asking the firewall, in a namespace of its own or
    in none.
    """
    ip_in(namespace, "link", "add", "name", name, "mtu", str(mtu), "type", "bridge")
    with inside(namespace):
        for family in ("ip", "ip6", "arp"):
            path = Path(f"/proc/sys/net/bridge/bridge-nf-call-{family}tables")
            if path.exists():
                path.write_text("0")
    ip_in(namespace, "link", "set", name, "up")


class BridgedLab(Lab):
    def __init__(self, *arguments, **options):
        super().__init__(*arguments, **options)
        self.network_namespace = f"{self.prefix}-net"

    def namespaces_wanted(self):
        return [*super().namespaces_wanted(), self.network_namespace]

    def _make_links(self):
        here = self.network_namespace
        make_bridge(here, "br0", self.mtu)
        self._join(here, "switch", self.switch_namespace, PORT)
        for host in range(self.hosts):
            there = self.host_namespace(host)
            self._join(here, f"h{host}", there, HOST_INTERFACE, self.host_mac(host))
            ip_in(there, "address", "add", f"{self.host_ip(host)}/24", "dev", HOST_INTERFACE)
        for link in ("switch", *(f"h{host}" for host in range(self.hosts))):
            ip_in(here, "link", "set", link, "master", "br0")

    @staticmethod
    def switch_interface(_host):
        return PORT

    @staticmethod
    def port_of(_host):
        return PORT

    def ports(self):
        return [self.port(0)]
