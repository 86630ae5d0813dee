# SPDX-License-Identifier: BSD-3-Clause
"""
What others on the machine do to a port's interface while the switch runs: the log, faninctl ports
and the metrics name each way to make a port deaf, and the switch repairs it where that is possible.
"""

import os
import time

from tests.net.frames import RawPort, ethernet
from tests.net.pace import threads_without_core
from tests.net.prometheus import scrape
from tests.net.support import (MIB, Lab, LabError, case, expect, expect_equal, expect_exact,
                               reports_of, run, run_exact_job, running_lab, wait_until)
from lab.namespaces import BUILD_DIR, HOST_INTERFACE, inside, ip_in

LISTEN = "127.0.0.1:9464"
METRICS = {"metrics": {"listen": LISTEN}}
EXPERIMENT = 0x88b5
# From the change of the interface to the line in the log, without the time in which a thread of the
# switch had no core.
MAX_SECONDS = 2
PROGRAM = BUILD_DIR / "hostlib" / "xdp_filter.bpf.o"
SLOW_KERNEL = BUILD_DIR / "tests" / "slow-kernel.so"
SLOW_SECONDS = 6
TWO_MAPS = BUILD_DIR / "tests" / "two_maps.bpf.o"


def port_of(lab, host):
    return next(port for port in lab.control.ask("ports.list")["ports"]
                if port["name"] == lab.port_of(host))


def trouble_of(lab, host, name):
    return next(trouble for trouble in port_of(lab, host)["troubles"] if trouble["name"] == name)


def lines_with(lab, words):
    return [line for line in lab.switch.stderr().splitlines() if words in line]


def link(lab, host, *arguments):
    ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(host), *arguments)


def expect_named(lab, host, name, words, act, *, lasts=True):
    """Does something to a port, and expects the log, faninctl and the metrics to name it in time.
    words: of the line in the log. lasts: the switch does not repair it at once.
    """
    before = trouble_of(lab, host, name)["count"]
    n_lines = len(lines_with(lab, words))
    waited, start = threads_without_core(lab.switch.pid), time.monotonic()
    act()
    wait_until(lambda: len(lines_with(lab, words)) > n_lines, 60, f"a line with '{words}'")
    seconds = time.monotonic() - start
    longest = max(total - waited.get(thread, 0) for thread,
                  total in threads_without_core(lab.switch.pid).items())
    expect(seconds - longest < MAX_SECONDS,
           f"it took {seconds:.1f} s until '{words}' was told, {longest:.1f} s without a core")
    line = lines_with(lab, words)[-1]
    expect(f'port "{lab.port_of(host)}"' in line, f"the line names no port: {line}")
    trouble = trouble_of(lab, host, name)
    expect_equal((trouble["now"], trouble["count"]), (lasts, before + 1),
                 f"what ports.list says: {trouble}")
    shown = lab.ctl("ports").stdout
    expect(f"{lab.port_of(host)}: {name}{'' if lasts else ', no longer'}: " in shown,
           f"faninctl ports shows no {name}:\n{shown}")
    families = scrape(lab.switch_namespace, LISTEN)
    labels = (("port", lab.port_of(host)), ("trouble", name))
    expect_equal(families["fanin_port_trouble"].samples[("", labels)], lasts,
                 f"fanin_port_trouble of {name}")
    expect_equal(families["fanin_port_troubles_total"].samples[("", labels)], before + 1,
                 f"fanin_port_troubles_total of {name}")


def expect_over(lab, host, name):
    wait_until(lambda: not trouble_of(lab, host, name)["now"], 60, f"the end of {name}")


@case()
def an_xdp_program_that_is_taken_off_is_attached_again():
    """`ip link set DEV xdp off` takes the program off, and so do other programs: also in the middle
    of a job, which goes on.
    """
    with running_lab(3, "af_xdp", config=METRICS) as lab:
        job = lab.create_job()
        run_exact_job(lab, "before", job=job, bytes=MIB)
        ranks = [lab.spawn_perf(rank, job, rank, 3, bytes=MIB, iters=30, timeout_ms=30000)
                 for rank in range(3)]
        expect_named(lab, 1, "xdp_program",
                     "was taken off: no frame reaches the switch, the link is down",
                     lambda: link(lab, 1, "xdp", "off"), lasts=False)
        expect_exact(reports_of(lab, ranks), "the job whose port lost its program")
        wait_until(lambda: lines_with(lab, 'port "h1": the XDP program is attached again'), 60,
                   "the line on the end")
        expect(port_of(lab, 1)["link"], "the port whose program was attached again is down")
        # `ip` fails on the program that the switch has attached again.
        done = ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(1), "xdp", "off",
                     check=False)
        expect(done.returncode != 0, "the program that was attached again was taken off by ip")
        run_exact_job(lab, "after", job=job, bytes=MIB)
        for host in (0, 2):
            expect_equal(trouble_of(lab, host, "xdp_program")["count"], 0,
                         f"what is told of port {host}")


@case()
def another_xdp_program_in_a_ports_place_is_named_until_it_goes():
    with running_lab(3, "af_xdp", config=METRICS) as lab:
        job = lab.create_job()

        def replace():
            with inside(lab.switch_namespace):
                run(["ip", "-force", "link", "set", lab.switch_interface(1), "xdp", "obj", PROGRAM,
                     "sec", "xdp"])
        expect_named(lab, 1, "xdp_program", 'another XDP program, "fanin_filter" (id ', replace)
        expect(not port_of(lab, 1)["link"],
               "a port whose frames another program has is told to be up")
        run_exact_job(lab, "on the other two ports", [0, 2], bytes=MIB)
        expect_equal(len(lines_with(lab, "another XDP program")), 1, "lines on the same program")
        link(lab, 1, "xdp", "off")
        expect_over(lab, 1, "xdp_program")
        wait_until(lambda: port_of(lab, 1)["link"], 60, "the port to come up")
        run_exact_job(lab, "when the other one was taken off", job=job, bytes=MIB)


@case()
def a_port_whose_program_has_several_maps_of_sockets_is_not_watched():
    """The switch can't tell which map has the port's sockets: a program that it attached again
    could take all frames away.
    """
    class TwoMaps(Lab):
        def vdev(self, host):
            return f"{super().vdev(host)}{f',xdp_prog={TWO_MAPS}' if host == 1 else ''}"
    with running_lab(2, "af_xdp", base=TwoMaps) as lab:
        expect_equal(len(lines_with(lab,
                                    'port "h1": interface "sw-h1": its XDP programs have 2 maps of '
                                    'AF_XDP sockets, expected one')), 1, "lines on the maps")
        expect_equal(lines_with(lab, 'port "h0": interface'), [],
                     "what is said of a port with one map")
        run_exact_job(lab, "by the second map", bytes=MIB)


@case()
def promiscuous_mode_that_is_taken_off_an_af_xdp_port_is_set_again():
    with running_lab(2, "af_xdp", config=METRICS) as lab:
        def flags():
            return ip_in(lab.switch_namespace, "-d", "link", "show", lab.switch_interface(1)).stdout
        expect("promiscuity 1" in flags(), f"a port is not promiscuous: {flags()}")
        expect_named(lab, 1, "promiscuous",
                     'promiscuous mode of "sw-h1" was taken off: it is set again',
                     lambda: link(lab, 1, "promisc", "off"), lasts=False)
        expect("promiscuity 1" in flags(), f"promiscuous mode was not set again: {flags()}")


@case()
def receive_queues_that_a_port_does_not_serve_are_named():
    class Queues(Lab):
        """The switch's ends could have two receive queues, and have one."""

        def _join(self, here, port, there, interface, mac=None):
            address = ["address", mac] if mac else []
            ip_in(here, "link", "add", "name", port, "mtu", str(self.mtu), "numtxqueues", "2",
                  "numrxqueues", "2", "type", "veth",
                  "peer", "name", interface, *address, "mtu", str(self.mtu), "numtxqueues", "2",
                  "numrxqueues", "2", "netns", there)
            for namespace, device in ((here, port), (there, interface)):
                with inside(namespace):
                    run(["ethtool", "-L", device, "rx", "1", "tx", "1"])
                    run(["ip", "link", "set", device, "up"])
    with running_lab(2, "af_xdp", config=METRICS, base=Queues) as lab:
        def more():
            with inside(lab.switch_namespace):
                run(["ethtool", "-L", lab.switch_interface(1), "rx", "2"])
        expect_named(lab, 1, "queues", 'interface "sw-h1" has 2 receive queues and 1 are served',
                     more)
        with inside(lab.switch_namespace):
            run(["ethtool", "-L", lab.switch_interface(1), "rx", "1"])
        expect_over(lab, 1, "queues")


@case()
def an_mtu_that_is_lowered_at_a_port_is_named():
    for transport in ("af_packet", "af_xdp"):
        with running_lab(2, transport, 3000, config=METRICS) as lab:
            expect_named(lab, 1, "mtu",
                         'the interface "sw-h1" has MTU 1500, expected at least 3000',
                         lambda: link(lab, 1, "mtu", "1500"))
            expect(port_of(lab, 1)["link"], "a port that short frames pass is told to be down")
            link(lab, 1, "mtu", "3000")
            expect_over(lab, 1, "mtu")
            run_exact_job(lab, f"with the MTU as before, {transport}", bytes=MIB)


@case()
def a_link_that_goes_down_is_named_with_its_reason():
    for transport in ("af_packet", "af_xdp"):
        with running_lab(2, transport, 1500, config=METRICS) as lab:
            expect_named(lab, 1, "link", 'the link is down: the interface "sw-h1" is set down',
                         lambda: link(lab, 1, "down"))
            expect(not port_of(lab, 1)["link"], "the port is told to be up")
            link(lab, 1, "up")
            expect_over(lab, 1, "link")
            expect_named(lab, 1, "link", 'the link is down: the interface "sw-h1" has no carrier',
                         lambda: ip_in(lab.host_namespace(1), "link", "set", HOST_INTERFACE,
                                       "down"))
            ip_in(lab.host_namespace(1), "link", "set", HOST_INTERFACE, "up")
            expect_over(lab, 1, "link")
            # A host's interface that was down has lost its routes.
            run_exact_job(lab, f"with the link up again, {transport}", bytes=MIB)


def rename(lab, name):
    interface = lab.switch_interface(1) if name != lab.switch_interface(1) else "other1"
    ip_in(lab.switch_namespace, "link", "set", interface, "down")
    ip_in(lab.switch_namespace, "link", "set", interface, "name", name)
    ip_in(lab.switch_namespace, "link", "set", name, "up")


@case()
def an_interface_that_is_renamed_is_named_and_taken_when_it_has_its_name_again():
    for transport in ("af_packet", "af_xdp"):
        with running_lab(2, transport, 1500, config=METRICS) as lab:
            expect_named(lab, 1, "interface",
                         'the interface "sw-h1" is gone: it is called "other1" now',
                         lambda: rename(lab, "other1"))
            expect(not port_of(lab, 1)["link"], "the port is told to be up")
            rename(lab, "sw-h1")
            expect_over(lab, 1, "interface")
            wait_until(lambda: port_of(lab, 1)["link"], 60, "the port to come up")
            run_exact_job(lab, f"on the interface with its name, {transport}", bytes=MIB)


def move_away_and_back(lab):
    """The interface keeps its number and its name: only the socket notices."""
    interface, there = lab.switch_interface(1), lab.host_namespace(1)
    ip_in(lab.switch_namespace, "link", "set", interface, "netns", there)
    ip_in(there, "link", "set", interface, "netns", lab.switch_namespace)
    link(lab, 1, "up")


@case()
def an_interface_that_leaves_the_namespace_for_a_moment_is_opened_anew_on_af_packet():
    with running_lab(2, "af_packet", 1500, config=METRICS) as lab:
        job = lab.create_job()
        for turn in range(2):
            n_opened = len(lines_with(lab, "opened anew on"))
            move_away_and_back(lab)
            wait_until(lambda n=n_opened: len(lines_with(lab, "opened anew on")) > n, 60,
                       "the port to be opened anew")
            wait_until(lambda: port_of(lab, 1)["link"], 60, "the port to come up")
            run_exact_job(lab, f"after move {turn}", job=job, bytes=MIB)


@case()
def an_interface_that_leaves_the_namespace_is_named():
    with running_lab(2, "af_packet", 1500, config=METRICS) as lab:
        expect_named(lab, 1, "interface", "it was removed, or moved to another network namespace",
                     lambda: ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(1),
                                   "netns", lab.host_namespace(1)))
    with running_lab(2, "af_xdp", 1500, config=METRICS) as lab:
        move_away_and_back(lab)
        wait_until(lambda: lines_with(lab, "restart the switch"), 60,
                   "the switch to say what to do")
        expect(not port_of(lab, 1)["link"],
               "a port whose socket is on no interface is told to be up")


@case()
def a_bridge_that_takes_a_ports_interface_is_named():
    with running_lab(2, "af_packet", 1500, config=METRICS) as lab:
        ip_in(lab.switch_namespace, "link", "add", "bridge0", "type", "bridge")
        expect_named(lab, 1, "master", 'the interface "sw-h1" belongs to "bridge0", expected none',
                     lambda: link(lab, 1, "master", "bridge0"))
        link(lab, 1, "nomaster")
        expect_over(lab, 1, "master")


@case()
def frames_that_are_too_long_for_a_port_are_named():
    class Short(Lab):
        def port(self, host):
            return {**super().port(host), "mtu": 1500}
    with running_lab(2, "af_packet", 9000, base=Short, config=METRICS) as lab:
        with RawPort(lab.host_namespace(1)) as sender:
            expect_named(lab, 1, "frames",
                         "frames come in that are damaged or longer than the port's MTU of 1500",
                         lambda: sender.send(ethernet(lab.host_mac(0), lab.host_mac(1), EXPERIMENT,
                                                      bytes(5000))))
        expect_over(lab, 1, "frames")


class Tap(Lab):
    """Beside the hosts' ports there is one that makes an interface of its own."""

    tap_mtu = 1500

    def config(self):
        config = super().config()
        config["ports"].append({"name": "tap", "mtu": self.tap_mtu,
                                "vdev": "net_tap0,iface=tap-port"})
        return config


@case()
def a_port_whose_device_does_not_take_its_mtu_does_not_start():
    class Long(Tap):
        tap_mtu = 9000
    with running_lab(1, "af_packet", 1500, base=Tap) as lab:
        ip_in(lab.switch_namespace, "link", "set", "tap-port", "mtu", "1400")
        wait_until(lambda: lines_with(lab,
                                      'port "tap": the interface "tap-port" has MTU 1400, expected '
                                      'at least 1500'), 60, "the line on the MTU")
    with Long(1, "af_packet", 1500) as lab:
        try:
            lab.start_switch()
        except LabError as error:
            expect('ports[1].mtu: found 9000 for port "tap", expected at most 15' in str(error),
                   f"why the switch does not start: {error}")
        else:
            expect(False, "the switch started with a tap device that does not take the port's MTU")


class Slow(Lab):
    """While a file exists, the switch's requests that wait for the kernel's lock on interfaces take
    long.
    """

    def start_switch(self, timeout=60):
        self.slow_file = self.directory / "slow"
        self.switch_launcher = ["env", f"LD_PRELOAD={SLOW_KERNEL}",
                                f"SLOW_KERNEL_FILE={self.slow_file}",
                                f"SLOW_KERNEL_MS={1000 * SLOW_SECONDS}",
                                f"ASAN_OPTIONS=verify_asan_link_order=0:{os.environ.get('ASAN_OPTIONS', '')}"]
        return super().start_switch(timeout)


@case(long=True)
def a_kernel_that_is_slow_to_tell_of_interfaces_does_not_stop_the_main_thread():
    """The main thread goes on to probe next hops and to answer on the control socket."""
    with running_lab(2, "af_xdp", config=METRICS, base=Slow) as lab:
        lab.slow_file.touch()
        longest = 0
        told = "the kernel has told nothing of interfaces for 5 s"
        deadline = time.monotonic() + 60
        while not lines_with(lab,
                             told) and longest < SLOW_SECONDS / 2 and time.monotonic() < deadline:
            start = time.monotonic()
            lab.control.ask("ports.list")
            longest = max(longest, time.monotonic() - start)
        expect(longest < SLOW_SECONDS / 2, f"the control socket did not answer for {longest:.1f} s")
        expect_equal(len(lines_with(lab, told)), 1, "lines on a kernel that is slow")
        lab.slow_file.unlink()
        wait_until(lambda: lines_with(lab, "the kernel tells of interfaces again"), 60,
                   "the kernel to tell of interfaces again")
        expect_named(lab, 1, "xdp_program",
                     "was taken off: no frame reaches the switch, the link is down",
                     lambda: link(lab, 1, "xdp", "off"), lasts=False)
