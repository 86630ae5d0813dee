# SPDX-License-Identifier: BSD-3-Clause
"""Ports on packet sockets: fragments, several queues and switches, and frames that the kernel
refuses for a moment.
"""

import contextlib
import json
import socket
import statistics
import threading
import time
from pathlib import Path

from tests.net.frames import ETH_P_ALL, SOL_PACKET, RawPort, ethernet
from tests.net.support import (MIB, Lab, case, expect, expect_equal, expect_exact, program,
                               reports_of, run, run_exact_job, running_lab, start_ranks,
                               wait_for_results, wait_until)
from lab.namespaces import HOST_INTERFACE, SWITCH_IP, Control, inside, ip_in
from tests.net.pace import threads_without_core
from lab.pinger import SO_RCVBUFFORCE, ping_all

EXPERIMENT = 0x88b5
PACKET_FANOUT = 18


class PacketLab(Lab):
    """Ports of the packet driver with these arguments after the interface's name."""

    arguments = "qdisc_bypass=1"

    def vdev(self, host):
        return f"net_af_packet,iface={self.switch_interface(host)},{self.arguments}"


class TwoQueues(PacketLab):
    arguments = "qpairs=2,qdisc_bypass=1"


class Queued(PacketLab):
    """Frames leave through the queue disciplines of the interfaces."""

    arguments = "qdisc_bypass=0"


def port_of(lab, name):
    return next(port for port in lab.control.ask("ports.list")["ports"] if port["name"] == name)


def answered(lab, source, address, **options):
    return ping_all(lab, [(source, address)], **options)["received"]


def fragments_pass(base, **options):
    with running_lab(2, "af_packet", 1500, base=base, **options) as lab:
        expect_equal(answered(lab, 0, lab.host_ip(1)), 10, "answers to short pings")
        for size in (1473, 4000, 20000):
            expect_equal(answered(lab, 0, lab.host_ip(1), size=size), 10,
                         f"answers to pings of {size} bytes")
        expect_equal(lab.frames()["rx_missed"], 0, "frames missed")
        run_exact_job(lab, "a job", bytes=MIB, transport="af_packet")


@case()
def fragments_pass_packet_ports():
    fragments_pass(PacketLab)


@case()
def fragments_pass_packet_ports_with_two_queues():
    fragments_pass(TwoQueues, config={"workers": [{"lcore": 0, "cpu": 0}, {"lcore": 1, "cpu": 1}]})


@case()
def several_switches_share_a_namespace():
    """Each switch has the packet ports of its own hosts, with one queue and with several."""
    for arguments in ("qdisc_bypass=1", "qpairs=2"):
        with running_lab(6, "af_packet", 1500, base=PacketLab) as lab:
            controls = []
            for number in range(2):
                hosts = (2 + 2 * number, 3 + 2 * number)
                config = {**lab.config(), "name": f"other{number}",
                          "memif": {"socket": str(lab.directory / f"memif{number}")},
                          "control": {"socket": str(lab.directory / f"other{number}.sock")},
                          "address": {"ip": f"10.77.0.{250 + number}",
                                      "mac": f"02:fa:00:00:00:{number:02x}"},
                          "memory": {"hugepages": "never", "megabytes": 128},
                          "limits": {"slots": 256, "max_jobs": 1},
                          "ports": [{"name": f"h{host}", "mtu": lab.mtu,
                                     "vdev": f"net_af_packet,iface={lab.switch_interface(host)},{arguments}"} for host in hosts]}
                path = lab.directory / f"other{number}.json"
                path.write_text(json.dumps(config))
                process = lab._spawn(lab.switch_namespace, f"other{number}",
                                     [program("fanin-switch"), "--config", path])
                control = lab.directory / f"other{number}.sock"
                wait_until(lambda p=process, c=control: c.exists() or not p.running(), 60,
                           "another switch")
                expect(process.running(),
                       f"switch {number + 2} did not start: {process.last_words()}")
                controls.append(Control(control))
                expect_equal(answered(lab, hosts[0], lab.host_ip(hosts[1])), 10,
                             f"answers between {hosts}")
                expect_equal(answered(lab, hosts[0], f"10.77.0.{250 + number}"), 10,
                             "answers of the switch")
            for control in controls:
                control.close()


@case()
def groups_of_sockets_of_others_are_no_obstacle():
    """A switch that numbered its sockets' groups by process and interface would find its number
    taken here.
    """
    for base in (PacketLab, TwoQueues):
        with base(1, "af_packet", 1500) as lab, contextlib.ExitStack() as stack:
            path, go = lab.directory / "switch.json", lab.directory / "go"
            path.write_text(json.dumps(lab.config()))
            lab.switch = lab._spawn(lab.switch_namespace, "switch", [
                "/bin/sh", "-c", 'while [ ! -e "$0" ]; do sleep 0.01; done; exec "$@"', go,
                program("fanin-switch"), "--config", path])
            with inside(lab.switch_namespace):
                number = (lab.switch.pid ^ socket.if_nametoindex(lab.switch_interface(0))) & 0xffff
                other = stack.enter_context(socket.socket(socket.AF_PACKET, socket.SOCK_RAW,
                                                          socket.htons(ETH_P_ALL)))
                other.bind(("lo", ETH_P_ALL))
                other.setsockopt(SOL_PACKET, PACKET_FANOUT, number)
            go.touch()
            wait_until(lab._switch_answers, 60, "the switch")
            expect_equal(answered(lab, 0, SWITCH_IP), 10, "answers of the switch")


@case()
def a_packet_port_starts_with_right_arguments_only():
    for arguments, words in (("qpairs=0", "qpairs=0, expected a number from 1"),
                             ("qpairs=x", "qpairs=x"), ("framesz=70000", "framesz=70000"),
                             ("bogus=1", "expected arguments among iface"),
                             ("qdisc_bypass=2", "qdisc_bypass=2")):
        base = type("Wrong", (PacketLab,), {"arguments": arguments})
        with base(1, "af_packet", 1500) as lab:
            path = lab.directory / "switch.json"
            path.write_text(json.dumps(lab.config()))
            process = lab._spawn(lab.switch_namespace, "wrong",
                                 [program("fanin-switch"), "--config", path])
            expect_equal(process.wait(60), 2, f"exit status with {arguments}")
            expect(words in process.stderr(), f"'{process.last_words()}' does not say {words}")
            with inside(lab.switch_namespace):
                done = run([program("fanin-switch"), "--config", str(path), "--check"], check=False)
            expect_equal((done.returncode, done.stderr), (2, process.stderr()),
                         f"what --check says to {arguments}")


@case()
def frames_that_the_kernel_refuses_wait_and_arrive():
    """The port's queue discipline takes few frames at a time: the port offers refused frames again,
    and nothing is lost.
    """
    with running_lab(2, "af_packet", 1500, base=Queued) as lab:
        answered(lab, 0, lab.host_ip(1))
        with inside(lab.switch_namespace):
            run(["tc", "qdisc", "add", "dev", lab.switch_interface(1), "root", "tbf", "rate",
                 "4mbit", "burst", "3000", "limit", "6000"])
        # 100 pings at once are 20 times as much as the discipline holds.
        expect_equal(answered(lab, 0, lab.host_ip(1), count=100, size=1000, interval=0), 100,
                     "pings through a full queue discipline")
        port = port_of(lab, "h1")
        expect(port["tx_delayed"] > 10, f"{port['tx_delayed']} frames waited")
        expect_equal(port["tx_dropped"], 0, "frames that were not taken")
        expect_equal(lab.drops()["tx_full"], 0, "tx_full")
        # Frames beyond the limit of waiting frames are lost, and counted once.
        frame = ethernet(lab.host_mac(1), lab.host_mac(0), EXPERIMENT, bytes(1400))
        before = lab.frames()
        with RawPort(lab.host_namespace(0)) as sender:
            for _ in range(1000):
                sender.send(frame)
        wait_until(lambda: lab.frames()["rx"] + lab.frames()["rx_missed"] >= before["rx"]
                   + before["rx_missed"] + 1000, 60, "1000 frames")

        def all_out():
            frames = lab.frames()
            return frames["tx"] + frames["tx_dropped"] >= before["tx"] + 1000
        wait_until(all_out, 60, "1000 frames to be sent or dropped")
        expect(port_of(lab, "h1")["tx_dropped"] > 0, "nothing was dropped")
        expect_equal(lab.drops()["tx_full"], port_of(lab, "h1")["tx_dropped"],
                     "tx_full beside tx_dropped")


@case()
def frames_that_a_packet_port_does_not_take_are_counted():
    class Short(PacketLab):
        def port(self, host):
            return {**super().port(host), "mtu": 1500 if host == 0 else self.mtu}
    with running_lab(2, "af_packet", 9000, base=Short) as lab:
        with RawPort(lab.host_namespace(0)) as sender:
            sender.send(ethernet(lab.host_mac(1), lab.host_mac(0), EXPERIMENT, bytes(5000)))
            wait_until(lambda: port_of(lab, "h0")["rx_errors"] == 1, 60, "a frame that is too long")
            expect_equal(port_of(lab, "h0")["rx_frames"], 0, "frames received")


SMALL_PINGS = 50
LONG_FRAMES = 400


def seconds_of_pings(lab, source, host):
    """Returns the seconds that pings take, one after the other, less the time without a core of the
    thread that waited longest for one; each ping has an answer.
    """
    start, waited = time.monotonic(), threads_without_core(lab.switch.pid)
    for number in range(SMALL_PINGS):
        expect_equal(answered(lab, source, lab.host_ip(host), count=1, interval=0), 1,
                     f"answers to ping {number}")
    seconds = time.monotonic() - start
    longest = max(total - waited.get(thread, 0) for thread,
                  total in threads_without_core(lab.switch.pid).items())
    return max(seconds - longest, 0)


def worker_seconds(lab):
    """Returns the CPU seconds that the switch's threads have had."""
    return sum(int(path.read_text().split()[0])
               for path in Path("/proc", str(lab.switch.pid), "task").glob("*/schedstat")) / 1e9


def ping_times(lab):
    times = []
    for _ in range(20):
        time.sleep(0.03)
        start = time.monotonic()
        expect_equal(answered(lab, 0, lab.host_ip(1), count=1, interval=0), 1, "answers to a ping")
        times.append(time.monotonic() - start)
    return times


@case(120)
def frames_wake_a_worker_that_sleeps():
    """While nothing arrives the worker sleeps long and hardly runs; it passes pings at once."""
    with running_lab(2, "af_packet", 1500,
                     config={"idle": {"policy": "sleep", "empty_polls": 1,
                                      "sleep_us": 100000}}) as lab:
        # A worker that frames don't wake takes 0.1 s each time; one that they wake may have to wait
        # for a core for a while.
        medians = []
        while len(medians) < 3 and min(medians, default=1) >= 0.02:
            medians.append(statistics.median(ping_times(lab)))
        expect(min(medians) < 0.02,
               f"pings took {medians} s through a worker that sleeps for 0.1 s")
    with running_lab(2, "af_packet", 1500, config={"idle": {"policy": "sleep"}}) as lab:
        for state in ("up", "down"):
            ip_in(lab.switch_namespace, "link", "set", lab.switch_interface(0), state)
            time.sleep(1)
            before = worker_seconds(lab)
            time.sleep(2)
            ran = worker_seconds(lab) - before
            expect(ran < 0.2, f"a switch without frames, an interface of which is {state}, ran for "
                              f"{ran:.3f} s of 2 s")


def set_host_mtu(lab, host, mtu):
    with inside(lab.host_namespace(host)):
        run(["ip", "link", "set", HOST_INTERFACE, "mtu", str(mtu)])


def a_lower_mtu_of_a_host_delays_no_others(base):
    """A rank's host stops taking frames as long as results, and takes them again later: short
    frames pass, and the job goes on.
    """
    with running_lab(4, "af_packet", 1500, base=base) as lab:
        job = lab.create_job([0, 1, 2])
        ranks = start_ranks(lab, job, [0, 1, 2], bytes=MIB, iters=60, timeout_ms=30000)
        wait_for_results(lab, job, 1000)
        before = seconds_of_pings(lab, 3, 2)
        set_host_mtu(lab, 2, 600)
        # One port carries answers to the queries of rank 2, pings, and frames of other hosts, long
        # and short.
        frame = ethernet(lab.host_mac(2), lab.host_mac(1), EXPERIMENT, bytes(1400))
        with RawPort(lab.host_namespace(1)) as sender:
            stop = threading.Event()

            def send_long_frames():
                for _ in range(LONG_FRAMES):
                    sender.send(frame)
                    stop.wait(0.005)
            thread = threading.Thread(target=send_long_frames)
            thread.start()
            try:
                seconds = seconds_of_pings(lab, 3, 2)
            finally:
                thread.join()
        expect(seconds < 5 * before + 0.1,
               f"pings took {seconds:.3f} s beside frames that a host does not take, {before:.3f} "
               "s without")
        port, drops = port_of(lab, "h2"), lab.drops()
        expect(drops["tx_refused"] >= LONG_FRAMES / 2, f"{drops['tx_refused']} frames were refused")
        # A window of results and the frames that come before the first is given up may be more than
        # may wait.
        expect(drops["tx_refused"] + drops["tx_full"] >= LONG_FRAMES,
               f"not all of {LONG_FRAMES} frames are counted: {drops}")
        expect_equal(port["tx_dropped"], drops["tx_refused"] + drops["tx_full"],
                     "tx_dropped beside the reasons")
        set_host_mtu(lab, 2, 1500)
        reports = reports_of(lab, ranks)
        expect_exact(reports, "a job whose host's MTU was lowered for a while")
        expect(all(report["queries"] < 20000 for report in reports),
               f"queries: {[report['queries'] for report in reports]}")


@case(120)
def a_lower_mtu_of_a_host_delays_no_others_at_its_port():
    a_lower_mtu_of_a_host_delays_no_others(PacketLab)


@case(120)
def a_lower_mtu_of_a_host_delays_no_others_in_a_queue_discipline():
    a_lower_mtu_of_a_host_delays_no_others(Queued)


DATAGRAMS = 200


def datagrams_arrived(lab, size):
    """Returns how many of DATAGRAMS large datagrams from host 0 arrive whole at host 1, with a
    pause between two.
    """
    with inside(lab.host_namespace(1)), socket.socket(socket.AF_INET,
                                                      socket.SOCK_DGRAM) as receiver:
        receiver.setsockopt(socket.SOL_SOCKET, SO_RCVBUFFORCE, 16 << 20)
        receiver.bind((lab.host_ip(1), 5001))
        with inside(lab.host_namespace(0)), socket.socket(socket.AF_INET,
                                                          socket.SOCK_DGRAM) as sender:
            for number in range(DATAGRAMS):
                sender.sendto(number.to_bytes(4, "big") * (size // 4), (lab.host_ip(1), 5001))
                time.sleep(0.005)
        receiver.settimeout(1)
        arrived = set()
        try:
            while len(arrived) < DATAGRAMS:
                data = receiver.recv(65536)
                expect(data == data[:4] * (size // 4),
                       f"a datagram of {len(data)} bytes arrived with other content")
                arrived.add(data[:4])
        except TimeoutError:
            pass
    return len(arrived)


def fragments_pass_beside_a_job(transport):
    with running_lab(4, transport, 1500) as lab:
        job = lab.create_job([2, 3])
        ranks = start_ranks(lab, job, [2, 3], bytes=MIB, iters=100000)
        wait_for_results(lab, job, 1000)
        for size in (1473, 4000, 20000):
            expect_equal(answered(lab, 0, lab.host_ip(1), size=size), 10,
                         f"answers to pings of {size} bytes")
        expect_equal(datagrams_arrived(lab, 8000), DATAGRAMS, "datagrams of 8000 bytes")
        expect(all(rank.running() for rank in ranks), "the job was over before")


@case()
def fragments_pass_beside_a_job_on_af_packet():
    fragments_pass_beside_a_job("af_packet")


@case()
def fragments_pass_beside_a_job_on_af_xdp():
    fragments_pass_beside_a_job("af_xdp")
