# SPDX-License-Identifier: BSD-3-Clause
"""fanin-switch --check: it reports obstacles to starting a switch on this machine before the start,
in the start's words.
"""

import json

from tests.net.support import (Lab, LabError, case, expect, expect_equal, ip_in, program, run,
                               running_lab)
from lab.namespaces import HOST_INTERFACE, inside

ELSEWHERE = "192.0.2.1"


def write_config(lab, **changes):
    path = lab.directory / "checked.json"
    path.write_text(json.dumps({**lab.config(), **changes}))
    return path


def told_before_the_start(lab, words, **changes):
    """Expects --check, faninctl and the start itself to print the same line, with these words."""
    path = str(write_config(lab, **changes))
    with inside(lab.switch_namespace):
        checked = run([program("fanin-switch"), "--config", path, "--check"], check=False)
        started = run([program("fanin-switch"), "--config", path], check=False)
        by_ctl = run([program("faninctl"), "check", path], check=False)
    expect_equal((checked.returncode, started.returncode, by_ctl.returncode), (2, 2, 1),
                 f"exit statuses ({checked.stderr})")
    lines = [done.stderr.strip().splitlines() for done in (checked, started, by_ctl)]
    expect_equal([len(found) for found in lines], [1, 1, 1], f"lines on standard error: {lines}")
    expect_equal(lines[1], lines[0], "line of the start")
    expect_equal(lines[2][0].partition(": ")[2], lines[0][0].partition(": ")[2], "line of faninctl")
    for word in words:
        expect(word in lines[0][0], f"'{lines[0][0]}' does not say '{word}'")


def ports(lab, **changes):
    return [lab.port(0), {**lab.port(1), **changes}]


@case()
def a_missing_token_file_is_found_by_check():
    with Lab(2) as lab:
        token = lab.directory / "token"
        control = {"socket": str(lab.socket_path), "listen": "127.0.0.1:21931",
                   "token_file": str(token)}
        told_before_the_start(lab, ["control: ", str(token), "No such file"], control=control)
        token.write_text("secret\n")
        token.chmod(0o644)
        told_before_the_start(lab, [str(token), "found the mode 0644"], control=control)
        token.chmod(0o600)
        for key, name in (("certificate", "c.pem"), ("key", "k.pem")):
            (lab.directory / name).write_text("nothing\n")
        (lab.directory / "k.pem").chmod(0o644)
        tls = {"certificate": str(lab.directory / "c.pem"), "key": str(lab.directory / "k.pem")}
        told_before_the_start(lab, ["control: ", "k.pem", "found the mode 0644"],
                              control={**control, "tls": tls})
        (lab.directory / "k.pem").chmod(0o600)
        told_before_the_start(lab, ["control: ", "c.pem"], control={**control, "tls": tls})


@case()
def an_mtu_that_af_xdp_cannot_take_is_found_by_check():
    with Lab(2, "af_xdp", mtu=9000) as lab:
        told_before_the_start(lab,
                              ["ports[0].mtu", "found 9000", 'port "h0"', "at most 3474",
                               "net_af_xdp"])


@case()
def an_mtu_above_the_interfaces_is_found_by_check():
    """The error is not about memory, although such long frames would take more memory than there
    is.
    """
    for transport in ("af_packet", "af_xdp"):
        with Lab(2, transport, mtu=1500) as lab:
            mtu = 61184 if transport == "af_packet" else 3000
            told_before_the_start(lab,
                                  ["ports[1].mtu", f"found {mtu}", 'port "h1"',
                                   'interface "sw-h1" has MTU 1500'],
                                  ports=ports(lab, mtu=mtu),
                                  memory={"megabytes": 64, "hugepages": "never"})


@case()
def an_unknown_driver_is_found_by_check():
    with Lab(2) as lab:
        for vdev in ("net_nosuch0,iface=sw-h1", "net_a"):
            told_before_the_start(lab,
                                  ["ports[1].vdev", vdev.partition(",")[0], 'port "h1"',
                                   "expected one of DPDK's"],
                                  ports=ports(lab, vdev=vdev))
        for driver in ("net_af_xdp", "net_af_packet"):
            told_before_the_start(lab, ["ports[1].vdev", driver, 'port "h1"', "expected iface="],
                                  ports=ports(lab, vdev=driver))


@case()
def an_address_of_another_machine_is_found_by_check():
    with Lab(2) as lab:
        token = lab.directory / "token"
        token.write_text("secret\n")
        token.chmod(0o600)
        told_before_the_start(lab, ["control: ", f"{ELSEWHERE}:21931", "Cannot assign"], control={
            "socket": str(lab.socket_path), "listen": f"{ELSEWHERE}:21931",
            "token_file": str(token)})
        told_before_the_start(lab, ["metrics.listen: ", f"{ELSEWHERE}:9464", "Cannot assign"],
                              metrics={"listen": f"{ELSEWHERE}:9464"})


@case()
def a_running_switch_is_not_in_the_way_of_its_check():
    for transport in ("af_xdp", "af_packet", "memif"):
        with running_lab(2, transport, config={"metrics": {"listen": "127.0.0.1:9464"}}) as lab:
            path = write_config(lab, control={"socket": str(lab.socket_path),
                                              "listen": "127.0.0.1:21931"})
            with inside(lab.switch_namespace):
                done = run([program("fanin-switch"), "--config", str(path), "--check"], check=False)
            expect_equal((done.returncode, done.stdout), (0, f"{path}: ok\n"),
                         f"the check beside it ({done.stderr})")


@case()
def drivers_that_are_there_pass_the_check():
    with Lab(1) as lab:
        for vdev in ("net_null", "net_null1,size=64", "net_tap0,iface=none", "net_ring0",
                     "net_pcap0,iface=sw-h0",
                     "net_af_packet7,iface=sw-h0", "net_af_xdp3,iface=sw-h0,busy_budget=0"):
            path = write_config(lab, ports=[{"name": "p", "vdev": vdev, "mtu": 1500}])
            with inside(lab.switch_namespace):
                done = run([program("fanin-switch"), "--config", str(path), "--check"], check=False)
            expect_equal(done.returncode, 0, f"exit status with {vdev} ({done.stderr.strip()})")


@case()
def an_mtu_of_the_other_end_that_xdp_refuses_is_named_at_start():
    with Lab(1, "af_xdp", mtu=3000) as lab:
        ip_in(lab.host_namespace(0), "link", "set", HOST_INTERFACE, "mtu", "9000")
        try:
            lab.start_switch()
        except LabError as error:
            expect('port "h0"' in str(error) and "MTU of at most 3506" in str(error),
                   f"'{error}' does not name the MTU")
            return
        expect(False, "the switch started although the kernel refuses XDP for that MTU")
