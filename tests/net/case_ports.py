# SPDX-License-Identifier: BSD-3-Clause
"""Ports whose interface is removed, and made anew under the same name."""

from support import MIB, case, expect, expect_equal, ip_in, run_exact_job, running_lab, wait_until


def link_of(lab, host):
    return next(port["link"] for port in lab.control.ask("ports.list")["ports"] if port["name"] == lab.port_of(host))


def remove_interface(lab, host):
    ip_in(lab.switch_namespace, "link", "delete", lab.switch_interface(host))


def lines_with(lab, words):
    return [line for line in lab.switch.stderr().splitlines() if words in line]


@case()
def an_interface_that_is_made_anew_is_opened_anew_on_af_packet():
    """While the switch runs and other ports are at work; also if it was away for no moment that anybody looked."""
    with running_lab(3, "af_packet") as lab:
        job = lab.create_job()
        run_exact_job(lab, "before", job=job, bytes=MIB)
        remove_interface(lab, 1)
        wait_until(lambda: not link_of(lab, 1), 5, "the port to go down")
        run_exact_job(lab, "on the other two ports", [0, 2], bytes=MIB)
        lab._make_link(1)
        wait_until(lambda: link_of(lab, 1), 5, "the port to come up")
        run_exact_job(lab, "on the new interface", job=job, bytes=MIB)
        for turn in range(3):
            remove_interface(lab, 1)
            lab._make_link(1)
            expect(not link_of(lab, 1) or len(lines_with(lab, "opened anew on")) == turn + 2,
                   "the port is told to be up although nobody has opened the new interface")
            wait_until(lambda: len(lines_with(lab, "opened anew on")) == turn + 2, 5, "the port to be opened anew")
            expect(link_of(lab, 1), "the port that was opened anew is down")
            run_exact_job(lab, f"on new interface {turn}", job=job, bytes=MIB)
        expect_equal(len(lines_with(lab, 'port "h1": the interface "sw-h1" is gone')), 4, "lines on the interface that is gone")


@case()
def an_interface_that_is_too_small_is_told_once_and_opened_when_it_fits():
    with running_lab(2, "af_packet", 4000) as lab:
        job = lab.create_job()
        remove_interface(lab, 1)
        lab.mtu = 1500
        lab._make_link(1)
        wait_until(lambda: lines_with(lab, "cannot be opened anew yet"), 5, "the switch to say why the port stays down")
        expect(not link_of(lab, 1), "a port without a socket is told to be up")
        expect("found 4000, but interface" in lines_with(lab, "cannot be opened anew yet")[0],
               f"the reason: {lines_with(lab, 'cannot be opened')}")
        for namespace, device in ((lab.switch_namespace, "sw-h1"), (lab.host_namespace(1), "fanin0")):
            ip_in(namespace, "link", "set", device, "mtu", "4000")
        wait_until(lambda: link_of(lab, 1), 5, "the port to come up")
        expect_equal(len(lines_with(lab, "cannot be opened anew yet")), 1, "lines on the same reason")
        run_exact_job(lab, "on the interface that fits", job=job, bytes=MIB)


@case()
def an_interface_that_is_made_anew_is_reported_down_on_af_xdp():
    """Its driver can't be opened anew: the port stays down until the switch is restarted, which it says once."""
    with running_lab(3, "af_xdp") as lab:
        remove_interface(lab, 1)
        lab._make_link(1)
        expect(not link_of(lab, 1), "a port whose socket is on an interface that is gone is told to be up")
        wait_until(lambda: lines_with(lab, "restart the switch"), 5, "the switch to say what to do")
        shown = next(line for line in lab.ctl("ports").stdout.splitlines() if line.startswith("h1 "))
        expect(" down " in shown, f"faninctl ports shows {shown!r}")
        run_exact_job(lab, "on the other two ports", [0, 2], bytes=MIB)
        expect_equal(len(lines_with(lab, "restart the switch")), 1, "lines that say what to do")
        expect(not link_of(lab, 1), "the port came up by itself")
        lab.switch.stop()
        lab.start_switch()
        run_exact_job(lab, "after a restart", bytes=MIB)
