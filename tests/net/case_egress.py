# SPDX-License-Identifier: BSD-3-Clause
"""Egress queues: a port with a rate behaves like a link of that speed, and TCP sees its marks and
its losses.
"""

import contextlib
import json
import signal
import threading
import time

from lab.namespaces import BUILD_DIR, Control, inside
from tests.net.pace import without_core
from tests.net.support import (Lab, MIB, case, expect, expect_equal, expect_exact, reports_of, run,
                               run_exact_job, running_lab, start_ranks, wait_until)

RATE_MBIT = 200
ECN_BYTES = 100_000
QUEUE_BYTES = 1_000_000
BUCKET_BYTES = 100_000
MTU = 9000
SECONDS = 4
TRIES = 3
RECEIVER = 1


class Limited(Lab):
    """The receiver's port is a link of 200 Mbit/s."""

    ecn = True

    def port(self, host):
        if host != RECEIVER:
            return super().port(host)
        limits = {"rate_mbit": RATE_MBIT, "queue_bytes": QUEUE_BYTES, "bucket_bytes": BUCKET_BYTES}
        return {**super().port(host), **limits, **({"ecn_bytes": ECN_BYTES} if self.ecn else {})}


class Unmarked(Limited):
    ecn = False


def receiver_port(control):
    return next(port for port in control.ask("ports.list")["ports"]
                if port["name"] == Lab.port_of(RECEIVER))


def port_of(lab):
    return receiver_port(lab.control)


class Watch:
    """Watches the receiver's port during the block."""

    def __init__(self, lab):
        self.control = Control(lab.socket_path)
        self.backlogs = []
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._look, daemon=True)

    def _look(self):
        while not self._ended.wait(0.005):
            self.backlogs.append(receiver_port(self.control)["egress"]["backlog_bytes"])

    def __enter__(self):
        self.first = receiver_port(self.control)
        self.began = time.monotonic()
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._ended.set()
        self._thread.join()
        self.last = receiver_port(self.control)
        self.seconds = time.monotonic() - self.began
        self.control.close()

    def grown(self, *path):
        values = []
        for port in (self.first, self.last):
            for name in path:
                port = port[name]
            values.append(port)
        return values[1] - values[0]

    @property
    def mean_backlog(self):
        return sum(self.backlogs) / len(self.backlogs)


def flow(lab, congestion, watch_after=1):
    """
    Runs TCP from hosts 0 and 2 to the receiver. Returns the counts of its port in the middle, how
    long the switch and iperf3 had no core meanwhile, and how many segments were sent again.
    """
    ports = {0: 5201, 2: 5202}
    servers = [lab.spawn(RECEIVER,
                         ["iperf3", "--server", "--one-off", "--forceflush", "--port", port],
                         "iperf-server")
               for port in ports.values()]
    for server in servers:
        wait_until(lambda s=server: "Server listening" in s.stdout(), 60, "an iperf3 server")
    clients = [lab.spawn(host,
                         ["iperf3", "--client", lab.host_ip(RECEIVER), "--port", port, "--time",
                          SECONDS + watch_after + 1,
                                "--congestion", congestion, "--json"], "iperf-client") for host,
               port in ports.items()]
    time.sleep(watch_after)
    pids = [lab.switch.pid, *(process.pid for process in servers + clients)]
    waited = -without_core(pids)
    with Watch(lab) as watch:
        time.sleep(SECONDS)
        waited += without_core(pids)
    again = 0
    for client in clients:
        expect_equal(client.wait(60), 0, f"exit status of iperf3 ({client.stdout()[-300:]})")
        again += json.loads(client.stdout())["end"]["sum_sent"]["retransmits"]
    return watch, waited, again


def expect_rate(watch, waited):
    """Expects at most the rate and the allowed burst, and at least 95 % of the rate while the
    processes had cores.
    """
    sent = watch.grown("tx_bytes")
    most = RATE_MBIT * 125_000 * watch.seconds + BUCKET_BYTES + MTU
    expect(sent <= most, f"{sent} bytes left in {watch.seconds:.3f} s, expected {most:.0f} at most")
    least = 0.95 * RATE_MBIT * 125_000 * max(watch.seconds - waited, 0)
    print(f"{sent * 8 / watch.seconds / 1e6:.1f} Mbit/s of {RATE_MBIT}, no core for {waited:.3f} s "
          f"of {watch.seconds:.3f} s")
    expect(sent >= least, f"{sent} bytes left in {watch.seconds:.3f} s, in which processes had no "
                          f"core for {waited:.3f} s; expected {least:.0f} at least")


@contextlib.contextmanager
def dctcp(lab):
    """Provides the congestion control fanin_dctcp in the block."""
    loader = lab.spawn(0, [BUILD_DIR / "tests" / "dctcp-load", BUILD_DIR / "tests" / "dctcp.bpf.o"],
                       "dctcp")
    try:
        wait_until(lambda: "ready" in loader.stdout() or not loader.running(), 60,
                   "the congestion control")
        expect(loader.running(), f"no congestion control: {loader.last_words()}")
        yield
    finally:
        loader.stop(signal.SIGTERM, 60)


def ecn_in(lab):
    for host in range(lab.hosts):
        with inside(lab.host_namespace(host)):
            run(["sysctl", "-qw", "net.ipv4.tcp_ecn=1"])


def expect_no_loss(lab, watch, waited, again):
    expect_equal(watch.grown("tx_dropped"), 0, "frames dropped at the port")
    # A sender's timer may expire because an answer had no core; it then repeats segments that are
    # not lost.
    expect(again == 0 or waited > 0.05 * watch.seconds,
           f"{again} segments sent again, with no core for {waited:.2f} s")
    expect(watch.grown("egress", "ecn_marked") > 0, "nothing was marked")
    expect_equal(lab.drops()["tx_full"], 0, "tx_full")


@case(120)
def tcp_with_ecn_slows_down_by_marks_and_loses_nothing():
    with running_lab(3, "af_packet", MTU, base=Limited) as lab:
        ecn_in(lab)
        watch, waited, again = flow(lab, "cubic")
        expect_no_loss(lab, watch, waited, again)
        expect_rate(watch, waited)
        expect(max(watch.backlogs) <= QUEUE_BYTES, f"{max(watch.backlogs)} bytes waited")


@case(180)
def dctcp_keeps_the_queue_at_the_threshold():
    with running_lab(3, "af_packet", MTU, base=Limited) as lab, dctcp(lab):
        ecn_in(lab)
        for left in reversed(range(TRIES)):
            watch, waited, again = flow(lab, "fanin_dctcp")
            expect_no_loss(lab, watch, waited, again)
            expect_rate(watch, waited)
            share = watch.mean_backlog / ECN_BYTES
            if 0.3 <= share <= 1.5:
                print(f"mean backlog {share:.2f} of the threshold")
                return
            # A sender or a worker that is away for milliseconds empties or fills a queue of 4 ms.
            words = f"mean backlog {share:.2f} of the threshold, expected 0.3 to 1.5; no core for {waited:.2f} s of {watch.seconds:.2f} s"
            expect(waited > 0.05 * watch.seconds, words)
            print(words + (": once more" if left else ": this machine is too busy to tell"))


@case(180)
def tcp_without_ecn_fills_the_queue_and_loses_by_tail_drop():
    with running_lab(3, "af_packet", MTU, base=Unmarked) as lab:
        for _ in range(TRIES):
            watch, waited, again = flow(lab, "cubic", watch_after=0)
            port = port_of(lab)
            # A sender that has no core does not fill a queue.
            if port["tx_dropped"] > 0 or waited <= 0.05 * watch.seconds:
                break
        expect(port["tx_dropped"] > 0, "nothing was dropped")
        expect(again > 0, "nothing was sent again")
        expect_equal(lab.drops()["tx_full"], port["tx_dropped"], "tx_full beside tx_dropped")
        expect_equal(port["egress"]["ecn_marked"], 0, "marks")
        expect(max(watch.backlogs) > QUEUE_BYTES * 0.8,
               f"at most {max(watch.backlogs)} bytes waited")
        expect(max(watch.backlogs) <= QUEUE_BYTES, f"{max(watch.backlogs)} bytes waited")
        expect_rate(watch, waited)


@case(120)
def a_job_is_exact_over_a_link_with_a_rate():
    """Its windows are larger than the queue, and a UDP flow beside it is faster than the link."""
    with running_lab(3, "af_packet", MTU, base=Limited) as lab:
        run_exact_job(lab, "a job", bytes=4 * MIB, iters=3)
        server = lab.spawn(RECEIVER, ["iperf3", "--server", "--one-off", "--forceflush"],
                           "iperf-server")
        wait_until(lambda: "Server listening" in server.stdout(), 60, "the iperf3 server")
        client = lab.spawn(2, ["iperf3", "--client", lab.host_ip(RECEIVER), "--udp", "--bitrate",
                               f"{RATE_MBIT * 3 // 2}M",
                               "--length", 1400, "--time", SECONDS, "--json"], "iperf-client")
        job = lab.create_job()
        expect_exact(reports_of(lab, start_ranks(lab, job, bytes=MIB, iters=5)),
                     "a job beside a flood")
        expect_equal(client.wait(60), 0, f"exit status of iperf3 ({client.stdout()[-300:]})")
        expect(lab.drops()["tx_full"] > 0, "the flood was not bounded")


@case()
def what_a_queue_may_be_is_checked():
    wrong = (({"queue_bytes": 9000},
              "ports[0].queue_bytes: found 9000, expected room for a frame of the port's MTU, 9014"),
             ({"queue_bytes": 100000, "ecn_bytes": 100000},
              "ports[0].ecn_bytes: found 100000, expected less than queue_bytes, 100000"),
             ({"bucket_bytes": 10}, "ports[0].bucket_bytes: found without rate_mbit, which it "
                                    "belongs to"),
             ({"rate_mbit": 0}, "ports[0].rate_mbit: found 0, expected an integer from 1 to 400000"))
    for limits, words in wrong:
        base = type("Wrong", (Lab,),
                    {"port": lambda self, host, more=limits: {**Lab.port(self, host), **more}})
        with base(1, "af_packet", MTU) as lab:
            path = lab.directory / "switch.json"
            path.write_text(json.dumps(lab.config()))
            done = run([BUILD_DIR / "tools" / "faninctl", "check", str(path)], check=False)
            expect(words in done.stderr, f"'{done.stderr}' does not say '{words}'")
