# SPDX-License-Identifier: BSD-3-Clause
"""The defaults that switch and hosts choose; see control/interface/interface.h and
docs/operations.md.
"""

from lab.namespaces import BUILD_DIR, HOST_INTERFACE, LabError, inside, ip_in
from tests.net.support import (MIB, CaseFailed, Lab, case, expect, expect_equal, expect_exact,
                               reports_of, run, running_lab, start_ranks)

ZERO_COPY = ["env", f"LD_PRELOAD={BUILD_DIR / 'tests' / 'zero-copy-kernel.so'}"]


def ports_of(lab):
    return lab.control.ask("ports.list")["ports"]


def expect_way(reports, transport, words):
    expect_exact(reports, f"hosts that choose {transport}")
    for report in reports:
        expect_equal(report["transport"], transport, "what a host chose")
        expect(words in report["transport_reason"],
               f"{words!r} is not in {report['transport_reason']!r}")


def join(lab, user_transport, launcher=()):
    """Returns the reports of a job whose hosts choose. user_transport: "auto" for hosts without
    rights, None for those of root.
    """
    job = lab.create_job()
    options = {"bytes": MIB, "check": True,
               **({"transport": user_transport} if user_transport else {})}
    if not launcher:
        return reports_of(lab, start_ranks(lab, job, **options))
    return reports_of(lab, [lab.spawn(host,
                                      [*launcher,
                                       *lab.perf_command(host, job, host, lab.hosts, **options)],
                                      "perf")
                            for host in range(lab.hosts)])


@case()
def a_veth_gets_packet_sockets_and_its_hosts_udp():
    with running_lab(2, "auto") as lab:
        for port in ports_of(lab):
            interface = port["name"].replace("h", "sw-h")
            expect_equal((port["driver"], port["device"], port["why"]),
                         ("af_packet", f"net_af_packet,iface={interface}",
                          f"{interface}'s driver veth has no zero-copy AF_XDP"), "what a port is")
        expect('port "h0": packet sockets: sw-h0\'s driver veth has no zero-copy AF_XDP'
               in lab.switch.stderr(), "the log does not say why")
        for user_transport in ("auto", None):
            expect_way(join(lab, user_transport), "udp",
                       f"{HOST_INTERFACE}'s driver veth has no zero-copy AF_XDP")
        with inside(lab.host_namespace(0)):
            found = run([BUILD_DIR / "tools" / "faninctl", "doctor", HOST_INTERFACE],
                        check=False).stdout
        expect(f"packet sockets, hosts on udp, by default: {HOST_INTERFACE}'s driver veth has no "
               "zero-copy AF_XDP" in found,
               f"doctor does not tell the default: {found}")
        expect("on at ports on packet sockets" not in found,
               f"doctor finds fault with the offloads that such a port wants: {found}")


class TwoNames(Lab):
    """The second port is on the first one's interface, by another name of it."""

    def config(self):
        config = super().config()
        config["ports"][1]["interface"] = "alternative"
        return config

    def _make_links(self):
        super()._make_links()
        ip_in(self.switch_namespace, "link", "property", "add", "dev", self.switch_interface(0),
              "altname", "alternative")


@case()
def an_interface_with_two_names_is_one_port():
    with TwoNames(2, "auto") as lab:
        try:
            lab.start_switch()
        except LabError as error:
            expect('interface "alternative" is "sw-h0", that of ports[0] already: mend '
                   'ports[1].interface' in str(error), f"how the switch fails: {error}")
        else:
            raise CaseFailed("a switch starts with two ports on one interface")


class ZeroCopy(Lab):
    """Links whose driver claims to be that of a network card."""

    offloads = False
    switch_launcher = ZERO_COPY


@case()
def a_card_with_zero_copy_gets_af_xdp():
    with running_lab(2, "auto", 1500, base=ZeroCopy) as lab:
        for port in ports_of(lab):
            expect_equal(port["driver"], "net_af_xdp", "what a port is")
            expect("queue_count=1" in port["device"]
                   and "driver ice has zero-copy AF_XDP" in port["why"],
                   f"how it was chosen: {port}")
        expect_way(join(lab, None, ZERO_COPY), "af_xdp",
                   f"{HOST_INTERFACE}'s driver ice has zero-copy AF_XDP")
        # Without rights, and with a truthful driver.
        expect_way(join(lab, "auto"), "udp", "has no zero-copy AF_XDP")


@case()
def an_mtu_that_af_xdp_does_not_take_gets_packet_sockets():
    with running_lab(2, "auto", 9000, base=ZeroCopy) as lab:
        for port in ports_of(lab):
            expect_equal(port["driver"], "af_packet", "what a port is")
            expect("MTU of 9000 is more than AF_XDP's 3474" in port["why"],
                   f"how it was chosen: {port}")
        expect_way(join(lab, None, ZERO_COPY), "udp", "MTU of 9000 is more than AF_XDP's 3474")
