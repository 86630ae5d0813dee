# SPDX-License-Identifier: BSD-3-Clause
"""Two hosts of a job behind one interface: a host and a macvlan on its interface, as a container
has.
"""

import json

from tests.net.case_defaults import ZERO_COPY
from lab.namespaces import HOST_INTERFACE, ip_in
from tests.net.support import MIB, case, expect, expect_equal, expect_exact, reports_of, running_lab

MACVLAN_MAC = "02:77:00:00:02:01"


def share_link(lab):
    """Puts host 1 on a macvlan of host 0's interface, and returns a job of both, which are behind
    one port then.
    """
    here, there = lab.host_namespace(0), lab.host_namespace(1)
    ip_in(there, "link", "set", HOST_INTERFACE, "down")
    ip_in(there, "address", "flush", "dev", HOST_INTERFACE)
    ip_in(here, "link", "add", "link", HOST_INTERFACE, "name", "mv0", "address", MACVLAN_MAC,
          "type", "macvlan", "mode", "bridge")
    ip_in(here, "link", "set", "mv0", "netns", there)
    ip_in(there, "address", "add", f"{lab.host_ip(1)}/24", "dev", "mv0")
    ip_in(there, "link", "set", "mv0", "up")
    port = lab.port_of(0)
    return json.loads(lab.ctl("-j", "jobs", "create", "--member", f"{port}:{lab.host_ip(0)}",
                              "--member",
                              f"{port}:{lab.host_ip(1)}").stdout)


@case(120)
def an_interface_and_its_macvlan_are_exact_in_one_job():
    with running_lab(2) as lab:
        job = share_link(lab)
        for attempt in range(5):
            # The rule would choose AF_XDP on the parent interface.
            reports = reports_of(lab,
                                 [lab.spawn(host,
                                            [*launcher,
                                             *lab.perf_command(
                                                 host, job, host, 2, bytes=2 * MIB, check=True,
                                                 transport="auto")], "perf")
                                       for host, launcher in enumerate((ZERO_COPY, []))])
            expect_exact(reports, f"attempt {attempt}")
            expect_equal(reports[0]["transport"], "udp", "transport of the parent")
            expect(MACVLAN_MAC in reports[0]["transport_reason"],
                   f"found the reason {reports[0]['transport_reason']}")


@case()
def af_xdp_refuses_an_interface_that_is_shared():
    with running_lab(2) as lab:
        job = share_link(lab)
        ranks = [lab.spawn_perf(host, job, host, 2, bytes=MIB, transport=transport,
                                join_timeout_ms=3000)
                 for host, transport in enumerate(("af_xdp", "af_packet"))]
        error = reports_of(lab, ranks)[0]["error"]
        expect_equal(error["code"], "transport", f"code of {error}")
        expect(f"another host, {MACVLAN_MAC}, shares {HOST_INTERFACE}" in error["message"]
               and "af_packet" in error["message"],
               f"found the error {error}")


@case()
def an_interface_that_is_not_shared_has_af_xdp():
    with running_lab(2) as lab:
        job = lab.create_job()
        reports = reports_of(lab,
                             [lab.spawn_perf(host, job, host, 2, bytes=MIB, check=True,
                                             transport="af_xdp")
                                   for host in range(2)])
        expect_exact(reports, "two hosts on interfaces of their own")
        expect_equal([report["transport"] for report in reports], ["af_xdp"] * 2, "transports")
