# SPDX-License-Identifier: BSD-3-Clause
"""A job with a parameter server and DCTCP share a link: the marks of real queues slow both down."""

import contextlib
import signal
import time

from tests.net.case_egress import BUCKET_BYTES, QUEUE_BYTES
from lab.fabric import Fabric, Topology
from lab.namespaces import BUILD_DIR, inside
from tests.net.pace import without_core
from tests.net.support import KIB, MIB, case, expect, expect_equal, run, wait_until

RATE_MBIT = 100
ECN_BYTES = 50_000
MTU = 1500
SECONDS = 6
FLOWS = 3  # of two workers, and one of TCP
SENDER, RECEIVER = 2, 3
MIN_SHARE = 0.7
TRIES = 3


class Narrow(Fabric):
    """The link from leaf0 to leaf1 has 100 Mbit/s."""

    def switch_config(self, switch):
        config = super().switch_config(switch)
        for port in config["ports"]:
            if switch == "leaf0" and port["name"] == "to-leaf1":
                port.update(rate_mbit=RATE_MBIT, queue_bytes=QUEUE_BYTES, bucket_bytes=BUCKET_BYTES,
                            ecn_bytes=ECN_BYTES)
        return config


@contextlib.contextmanager
def dctcp(fabric):
    """Provides the congestion control fanin_dctcp in the block."""
    loader = fabric.spawn(SENDER,
                          [BUILD_DIR / "tests" / "dctcp-load", BUILD_DIR / "tests" / "dctcp.bpf.o"],
                          "dctcp")
    try:
        wait_until(lambda: "ready" in loader.stdout() or not loader.running(), 60,
                   "the congestion control")
        expect(loader.running(), f"no congestion control: {loader.last_words()}")
        yield
    finally:
        loader.stop(signal.SIGTERM, 60)


def sent_by_ports(fabric):
    """Returns bytes into leaf0 from each host, bytes out of it on the narrow link, marks there, and
    the time.
    """
    ports = fabric.port_counters("leaf0")
    narrow = ports["to-leaf1"]
    return ([ports[f"h{host}"]["rx_bytes"] for host in range(FLOWS)], narrow["tx_bytes"],
            narrow["egress"]["ecn_marked"],
            time.monotonic())


def measure(fabric):
    """Runs TCP beside the job. Returns each host's share of the link in Mbit/s, the link's use,
    marks, and how long processes had no core.
    """
    server = fabric.spawn(RECEIVER, ["iperf3", "--server", "--one-off", "--forceflush"],
                          "iperf-server")
    wait_until(lambda: "Server listening" in server.stdout(), 60, "the iperf3 server")
    client = fabric.spawn(SENDER,
                          ["iperf3", "--client", fabric.host_ip(RECEIVER), "--time", SECONDS + 3,
                           "--congestion",
                                   "fanin_dctcp", "--json"], "iperf-client")
    before = sent_by_ports(fabric)[0][SENDER]
    wait_until(lambda: sent_by_ports(fabric)[0][SENDER] > before + MIB, 60,
               "the flow to be under way")
    pids = [process.pid for process in [*fabric.switch_processes(), server, client]]
    waited = -without_core(pids)
    first = sent_by_ports(fabric)
    time.sleep(SECONDS)
    last = sent_by_ports(fabric)
    waited += without_core(pids)
    expect_equal(client.wait(60), 0, f"exit status of iperf3 ({client.stdout()[-300:]})")
    seconds = last[3] - first[3]
    flows = [(after - before) * 8e-6 / seconds for before, after in zip(first[0], last[0])]
    return flows, (last[1] - first[1]) * 8e-6 / seconds, last[2] - first[2], waited / seconds


def share_link(fabric):
    for host in (SENDER, RECEIVER):
        with inside(fabric.host_namespace(host)):
            run(["sysctl", "-qw", "net.ipv4.tcp_ecn=1"])
    ranks = [fabric.spawn_named(rank, "job", rank, 2, handler="pa-atp", iters=1000000,
                                bytes=256 * KIB, transport=fabric.transport,
                                no_fallback=True) for rank in range(2)]
    wait_until(lambda: any(tree["state"] == "network"
                           for tree in fabric.ask_manager("trees")["trees"]), 60, "the job's tree")
    for left in reversed(range(TRIES)):
        flows, used, marks, waited = measure(fabric)
        share = flows[SENDER] / (RATE_MBIT / FLOWS)
        words = (f"workers {flows[0]:.1f} and {flows[1]:.1f}, DCTCP {flows[SENDER]:.1f} of "
                 f"{RATE_MBIT} Mbit/s: {share:.2f} of its fair share; the link carried {used:.1f}, "
                 f"{marks} marks; no core for {waited:.2f} of the time")
        print(words)
        expect(marks > 0, f"nothing was marked: {words}")
        if share >= MIN_SHARE and min(flows) > 0 and used > 0.8 * RATE_MBIT:
            break
        # A sender or a switch that is away for milliseconds leaves the link to the others.
        expect(waited > 0.05 and left > 0,
               f"{words}; expected {MIN_SHARE} at least, and a link in use")
    for rank in ranks:
        rank.popen.kill()
        rank.wait(60)


@case(150)
def dctcp_beside_a_job_with_a_server_has_its_fair_share():
    topology = Topology("two", {"leaf0": 3, "leaf1": 1},
                        [("leaf0", "leaf1")]).add_servers(1, ["leaf1"])
    with Narrow(topology, mtu=MTU) as fabric:
        fabric.start()
        fabric.start_manager()
        with dctcp(fabric):
            share_link(fabric)
