# SPDX-License-Identifier: BSD-3-Clause
"""Hosts on UDP sockets in containers, and obstacles between results and hosts: sums are exact where
packets pass, and an error names the cause where they don't.
"""

from pathlib import Path

from tests.net import firewall
from tests.net.case_udp import super_frames
from lab.namespaces import HOST_INTERFACE, inside, ip_in
from tests.net.support import (MIB, Lab, case, expect, expect_equal, expect_exact, reports_of, run,
                               running_lab, start_ranks)


def outcomes(lab, transport="udp", timeout_ms=2000, **options):
    """Returns the reports of a job of all hosts, which may fail."""
    return reports_of(lab, start_ranks(lab, lab.create_job(), transport=transport,
                                       timeout_ms=timeout_ms, **options))


def expect_cause(report, code, *words):
    error = report.get("error") or {}
    expect_equal(error.get("code"), code, f"how a host fails that hears nothing: {report}")
    for part in words:
        expect(part in error["message"], f"{part!r} is not in {error['message']!r}")


@case()
def a_firewall_that_drops_the_groups_packets_is_named():
    with running_lab(2, "af_packet", 1500) as lab:
        firewall.drop_groups(lab.host_namespace(1))
        expect_cause(outcomes(lab)[1], "timeout",
                     "nothing of the job's multicast group is received", "a firewall here drops it",
                     "has to accept UDP from the switch")
        expect_exact(outcomes(lab, "af_packet", 30000),
                     "with packet sockets, which have frames before the firewall")


class BehindBridge(Lab):
    """The last host is behind a bridge, in the switch's namespace, which forwards multicast only if
    somebody behind it has asked for the group.
    """

    BRIDGE = "snooper"

    def _make_link(self, host):
        super()._make_link(host)
        if host != self.hosts - 1:
            return
        here, port = self.switch_namespace, self.switch_interface(host)
        for words in (["link", "set", port, "name", "to-host"],
                      ["link", "add", "name", port, "mtu", str(self.mtu), "type", "veth", "peer",
                       "name", "to-switch", "mtu", str(self.mtu)],
                      ["link", "add", "name", self.BRIDGE, "type", "bridge"],
                      ["link", "set", "to-host", "master", self.BRIDGE],
                      ["link", "set", "to-switch", "master", self.BRIDGE],
                      *(["link", "set", name, "up"]
                        for name in (port, "to-switch", "to-host", self.BRIDGE))):
            ip_in(here, *words)


@case()
def a_bridge_that_keeps_the_group_away_is_named():
    with running_lab(2, "af_packet", 1500, base=BehindBridge) as lab:
        # The bridge snoops, but it floods as long as it knows of nobody who asks for members.
        expect_exact(outcomes(lab, timeout_ms=30000), "behind a bridge that floods")
        ip_in(lab.switch_namespace, "link", "set", "to-host", "type", "bridge_slave", "mcast_flood",
              "off")
        expect_cause(outcomes(lab)[1], "timeout",
                     "nothing of the job's multicast group is received", "nor other multicast",
                     "IGMP snooping")


@case(100)
def rp_filter_that_drops_the_switchs_packets_is_named():
    with running_lab(2, "af_packet", 1500) as lab, inside(lab.host_namespace(1)):
        run(["ip", "link", "add", "other", "type", "veth", "peer", "name", "end"])
        for name in ("other", "end"):
            run(["ip", "link", "set", name, "up"])
        run(["ip", "route", "add", "10.77.0.254/32", "dev", "other"])
        Path(f"/proc/sys/net/ipv4/conf/{HOST_INTERFACE}/rp_filter").write_text("1",
                                                                               encoding="ascii")
        expect_cause(outcomes(lab, interface=HOST_INTERFACE, join_timeout_ms=3000)[1],
                     "join_timeout", "rp_filter of this host has dropped packets")


class Containers(Lab):
    """Hosts 0 and 1 are containers of a machine, which is behind port h0; host 2 is a machine of
    its own.
    """

    LINK = "eth0"

    def machine(self):
        return f"{self.prefix}-machine"

    def namespaces_wanted(self):
        return [*super().namespaces_wanted(), self.machine()]

    @staticmethod
    def port_of(host):
        return "h2" if host == 2 else "h0"

    def ports(self):
        return [self.port(0), self.port(2)]

    def _make_links(self):
        super()._make_link(2)
        self._join(self.switch_namespace, self.switch_interface(0), self.machine(), self.LINK,
                   "02:77:00:00:00:64")
        ip_in(self.machine(), "address", "add", "10.77.0.100/24", "dev", self.LINK)
        for host in (0, 1):
            self.make_container(host)

    def make_container(self, host):
        """Makes a container like `docker network create -d macvlan -o parent=eth0`."""
        there = self.host_namespace(host)
        ip_in(self.machine(), "link", "add", "link", self.LINK, "name", f"c{host}", "address",
              self.host_mac(host), "type", "macvlan", "mode", "bridge")
        ip_in(self.machine(), "link", "set", f"c{host}", "netns", there, "name", HOST_INTERFACE)
        ip_in(there, "address", "add", f"{self.host_ip(host)}/24", "dev", HOST_INTERFACE)
        ip_in(there, "link", "set", HOST_INTERFACE, "up")


class RoutedContainers(Containers):
    """The containers have a subnet of their own behind a bridge; the machine forwards, and hands
    the groups' packets to the bridge.
    """

    BRIDGE = "br0"
    BRIDGE_IP = "10.88.0.254"

    @staticmethod
    def host_ip(host):
        return Lab.host_ip(host) if host == 2 else f"10.88.0.{host + 1}"

    def _make_links(self):
        with inside(self.machine()):
            for words in (["link", "add", "name", self.BRIDGE, "type", "bridge"],
                          ["link", "set", self.BRIDGE, "up"],
                          ["address", "add", f"{self.BRIDGE_IP}/24", "dev", self.BRIDGE]):
                run(["ip", *words])
            Path("/proc/sys/net/ipv4/ip_forward").write_text("1", encoding="ascii")
        super()._make_links()

    def make_container(self, host):
        there = self.host_namespace(host)
        self._join(self.machine(), f"c{host}", there, HOST_INTERFACE, self.host_mac(host))
        ip_in(self.machine(), "link", "set", f"c{host}", "master", self.BRIDGE)
        ip_in(there, "address", "add", f"{self.host_ip(host)}/24", "dev", HOST_INTERFACE)
        ip_in(there, "route", "add", "default", "via", self.BRIDGE_IP)

    def pass_groups_on(self):
        with inside(self.machine()):
            run(["tc", "qdisc", "add", "dev", self.LINK, "ingress"])
            run(["tc", "filter", "add", "dev", self.LINK, "parent", "ffff:", "protocol", "ip",
                 "u32", "match", "ip", "dst", "239.192.0.0/16",
                 "action", "mirred", "egress", "mirror", "dev", self.BRIDGE])


def expect_super_frames_between(lab, **options):
    expect_exact(reports_of(lab,
                            start_ranks(lab, lab.create_job(), transport="udp", bytes=4 * MIB,
                                        iters=3, in_place=True, **options)),
                 "containers")
    found = super_frames(lab)
    expect(found["rx_segments"] >= 8 * found["rx"] > 0
           and found["tx_segments"] >= 8 * found["tx"] > 0, f"super-frames of containers: {found}")


@case()
def containers_with_macvlan_have_exact_sums():
    with running_lab(3, "af_packet", 1500, base=Containers) as lab:
        expect_super_frames_between(lab)


@case()
def containers_behind_a_routed_bridge_have_exact_sums():
    """The machine has to forward the groups' packets; if it does not, the error says so."""
    with running_lab(3, "af_packet", 1500, base=RoutedContainers) as lab:
        reports = outcomes(lab)
        expect_cause(reports[0], "timeout", "nothing of the job's multicast group is received",
                     "nor other multicast")
        lab.pass_groups_on()
        expect_super_frames_between(lab)


@case()
def address_translation_is_refused_with_the_address_that_was_seen():
    with running_lab(3, "af_packet", 1500, base=RoutedContainers) as lab:
        firewall.translate_sources(lab.machine())
        lab.pass_groups_on()
        report = outcomes(lab, join_timeout_ms=3000)[0]
        expect_cause(report, "join_refused",
                     "it saw the address 10.77.0.100, this host has 10.88.0.1", "NAT")
