# SPDX-License-Identifier: BSD-3-Clause
"""What the switch reports about itself: metrics that move with what they count, and DPDK's
telemetry.
"""

import json
import os
import re
import signal
import socket
import time
from pathlib import Path

from tests.net import backlog
from tests.net.case_packets import FLOATS, Liar, join_body, join_by_hand
from tests.net.case_super_frames import TAG, send_by_tcp, udp_super_frame
from tests.net.case_switching import ping
from tests.net.frames import BROADCAST, JOIN, KNOWN, RawPort, ethernet, send_super_frame
from tests.net.prometheus import request, scrape
from tests.net.support import (KIB, MIB, Lab, LabError, case, expect, expect_equal, expect_exact,
                               job_entry, program, reports_of, run_exact_job, running_lab,
                               start_ranks, wait_for_results, wait_until)
from lab.fabric import Fabric, leaf_spine
from lab.namespaces import HOST_INTERFACE, ip_in

LISTEN = "127.0.0.1:9464"
RUNTIME_DIR = Path("/var/run/dpdk")

# The manager has the same counters, and case_observe_manager.py moves them.
CONTROL_REFUSALS = ("too_many", "half_open_dropped", "idle_dropped", "hello_late", "hello_wrong",
                    "token_wrong", "token_delayed",
                    "token_unanswered", "line_long", "line_wrong", "command_unknown",
                    "command_failed", "stalled")

# The reasons why a metric may keep its value.
STILL = {
    **{f"fanin_control_{name}_total": "nobody makes such a mistake here"
       for name in CONTROL_REFUSALS},
    "fanin_switch_info": "it is 1 for its labels",
    "fanin_job_info": "it is 1 for its labels",
    "fanin_worker_timers_total": "no job here has a handler with timers",
    "fanin_worker_timers_early_total": "no job here has a handler with timers",
    "fanin_port_mtu_bytes": "configured",
    "fanin_port_queues": "configured",
    **{f"fanin_port_{name}": "as the port is configured" for name in ("queue_bytes", "rate_mbit")},
    "fanin_port_routed": "as the port is configured",
    "fanin_switching_routed_total": "this network is one subnet",
    "fanin_mempool_packets": "made at start",
    "fanin_memory_packets_bytes": "made at start",
    "fanin_memory_hugepages_bytes": "taken at start",
    "fanin_memory_limit_bytes": "configured",
    "fanin_jobs_limit": "configured",
    "fanin_jobs_slots_limit": "configured",
    "fanin_jobs_slot_packets_limit": "configured",
    "fanin_job_progress_slots": "configured",
}

# Metrics of jobs whose handler reports values: jobs_with_leaders_tell_their_timeouts_and_slots sees
# them.
VALUES = {f"fanin_job_value_{name}" for name in ("min", "median", "max")}

# Metrics of switches with next hops: case_routing.py has some, and sees the metrics move.
NEXT_HOPS = {"fanin_next_hop_up",
             *(f"fanin_next_hop_{name}_total" for name in ("probes", "missed", "lost"))}

# Metrics of jobs whose hosts need not be in step: case_pa_atp_switch.py has one, and sees them
# move.
PROGRESS = {"fanin_job_progress_slots_used", "fanin_job_progress_overflowed",
            "fanin_job_progress_behind"}

# Metrics of ports that others on the machine make deaf: case_port_troubles.py does so, and sees
# them move.
TROUBLES = {"fanin_port_trouble", "fanin_port_troubles_total"}

# Members of the control commands' answers that are no metrics.
NO_METRICS = {
    r"stats\.workers\[\]\.(lcore|cluster)": "what the worker is",
    r"stats\.workers\[\]\.busy_share": "busy_us over the uptime",
    r"stats\.drops\..*": "shown by drops",
    r"ports\.ports\[\]\.tx_errors": "in tx_dropped",
    r"ports\.ports\[\]\.egress\.(bucket_bytes|ecn_bytes|detour_bytes|queue_frames)": "configured",
    r"ports\.ports\[\]\.super_frames\.made": "as the port's interface and the kernel are",
    r"drops\.elsewhere\[\]\.count": "the ports' and the machine's",
    r"jobs\.jobs\[\]\.(id|epoch|members\[\]\.rank|parent\.epoch)": "what the job, run or member is",
    r"jobs\.jobs\[\]\.(members\[\]\.ranks|parent\.joined_ranks)\[\]": "who is behind the member, "
                                                                      "or has joined elsewhere",
    r"jobs\.jobs\[\]\.(reproducible|authenticated)": "a label",
    r"jobs\.jobs\[\]\.parent\.server": "what the job was made with",
    r"jobs\.jobs\[\]\.progress\.ranks\[\]\.(rank|block)": "who the rank is, and what `behind` "
                                                          "follows from",
    r"jobs\.jobs\[\]\.parameters\..*": "what the job was made with",
}

# Path of a value in the answers: metric, suffix, factor.
METRICS = {
    "ports.ports[].link": ("fanin_port_up", "", 1),
    "ports.ports[].troubles[].now": ("fanin_port_trouble", "", 1),
    "ports.ports[].troubles[].count": ("fanin_port_troubles_total", "", 1),
    "ports.ports[].mtu": ("fanin_port_mtu_bytes", "", 1),
    "ports.ports[].queues": ("fanin_port_queues", "", 1),
    "ports.ports[].routed": ("fanin_port_routed", "", 1),
    **{f"ports.ports[].egress.{name}": (f"fanin_port_{name}", "", 1)
       for name in ("backlog_bytes", "backlog_frames", "queue_bytes", "rate_mbit")},
    "ports.ports[].egress.ecn_marked": ("fanin_port_ecn_marked_total", "", 1),
    **{f"ports.ports[].{name}": (f"fanin_port_{name}_total", "", 1)
       for name in ("rx_frames", "rx_bytes", "rx_missed", "tx_frames", "tx_bytes", "tx_dropped",
                    "link_rx_dropped",
                    "link_tx_dropped", "rx_errors", "rx_refused", "tx_delayed")},
    **{f"ports.ports[].super_frames.{name}": (f"fanin_port_{way}_super_{what}_total", "", 1)
       for name, way, what in (("rx", "rx", "frames"), ("rx_segments", "rx", "segments"),
                               ("tx", "tx", "frames"), ("tx_segments", "tx", "segments"))},
    "stats.uptime_s": ("fanin_uptime_seconds", "", 1),
    **{f"stats.workers[].{name}": (f"fanin_worker_{name}_total", "", 1)
       for name in ("bursts", "empty_polls", "packets", "handed_over", "retries", "timers",
                    "timers_early", "yields", "sleeps", "wakes",
                    "long_rounds", "slices")},
    **{f"stats.workers[].{name}_us": (f"fanin_worker_{name}_seconds_total", "", 1e-6)
       for name in ("cpu", "run_queue")},
    "stats.workers[].longest_round_us": ("fanin_worker_longest_round_seconds", "", 1e-6),
    "stats.workers[].retry_wait_us": ("fanin_worker_retry_wait_seconds_total", "", 1e-6),
    "stats.workers[].busy_us": ("fanin_worker_busy_seconds_total", "", 1e-6),
    "stats.workers[].input_sum": ("fanin_worker_input_occupancy", "_sum", 1),
    "stats.workers[].queue_sum": ("fanin_worker_queue_length", "_sum", 1),
    "stats.workers[].queue_lengths": ("fanin_worker_queue_length", "_count", 1),
    "stats.workers[].input_occupancy": ("fanin_worker_input_occupancy", "_count", 1),
    **{f"stats.switching.{name}": (f"fanin_switching_{name}_total", "", 1)
       for name in ("forwarded", "routed", "flooded", "local", "learn_failed")},
    **{f"stats.control.{name}": (f"fanin_control_{name}_total", "", 1)
       for name in ("connections", *CONTROL_REFUSALS)},
    "stats.mac_entries": ("fanin_mac_entries", "", 1),
    "stats.mempool.size": ("fanin_mempool_packets", "", 1),
    "stats.mempool.free": ("fanin_mempool_free_packets", "", 1),
    "stats.memory.rss": ("fanin_memory_resident_bytes", "", 1),
    **{f"stats.memory.{name}": (f"fanin_memory_{name}_bytes", "", 1)
       for name in ("hugepages", "packets", "slots", "limit")},
    **{f"stats.faults.{name}": (f"fanin_faults_{name}_total", "", 1)
       for name in ("duplicated", "reordered")},
    "stats.machine.backlog_dropped": ("fanin_machine_backlog_dropped_total", "", 1),
    "drops.drops[].count": ("fanin_drops_total", "", 1),
    "jobs.jobs[].counters[].count": ("fanin_job_counter_total", "", 1),
    "jobs.limits.max_jobs": ("fanin_jobs_limit", "", 1),
    "jobs.limits.jobs_free": ("fanin_jobs_free", "", 1),
    "jobs.limits.slots_per_job": ("fanin_jobs_slots_limit", "", 1),
    "jobs.limits.mbufs_per_job": ("fanin_jobs_slot_packets_limit", "", 1),
    **{f"jobs.jobs[].{name}": (f"fanin_job_{name}", "", 1)
       for name in ("size", "buffers", "slots", "slot_bytes", "payload_bytes")},
    "jobs.jobs[].window": ("fanin_job_window_packets", "", 1),
    "jobs.jobs[].members[].joined": ("fanin_job_member_joined", "", 1),
    **{f"jobs.jobs[].stats.{name}": (f"fanin_job_{name}_total", "", 1)
       for name in ("contributions", "duplicates", "results", "repeats", "upward", "upward_repeats",
                    "known", "pendings",
                    "blocks", "queries", "upward_queries", "probes", "probe_answers")},
    **{f"jobs.jobs[].progress.{name}": (f"fanin_job_progress_{name}", "", 1)
       for name in ("slots_used", "slots", "overflowed")},
    "jobs.jobs[].progress.ranks[].behind": ("fanin_job_progress_behind", "", 1),
    "jobs.jobs[].parent.joined": ("fanin_job_parent_joined", "", 1),
    "jobs.jobs[].stats.block_ns": ("fanin_job_block_seconds_total", "", 1e-9),
    "jobs.jobs[].occupancy_sum": ("fanin_job_occupancy", "_sum", 1),
    "jobs.jobs[].occupancy": ("fanin_job_occupancy", "_count", 1),
}

LABELS = {"counters": {"name": "counter"}, "ports": {"name": "port"},
          "workers": {"lcore": "worker"}, "drops": {"name": "reason"},
          "elsewhere": {"name": "counter"}, "jobs": {"id": "fanin_job"},
          "members": {"rank": "rank", "port": "port"},
          "ranks": {"rank": "rank"}, "troubles": {"name": "trouble"}}


def leaves(value, path, labels):
    """Returns (path, labels, number) of all numbers in an answer; a histogram counts as the sum of
    its counts.
    """
    if isinstance(value, (bool, int, float)):
        yield path, frozenset(labels.items()), float(value)
    elif isinstance(value, dict) and METRICS.get(path, ("", "", 0))[1] == "_count":
        yield path, frozenset(labels.items()), float(sum(value.values()))
    elif isinstance(value, dict):
        for key, member in value.items():
            yield from leaves(member, f"{path}.{key}", labels)
    elif isinstance(value, list):
        for entry in value:
            if not isinstance(entry, dict):
                yield from leaves(entry, f"{path}[]", labels)
                continue
            own = {label: str(entry[key]) for key, label in LABELS[path.rsplit(".", 1)[-1]].items()}
            yield from leaves(entry, f"{path}[]", {**labels, **own})


def sample(families, name, suffix, labels):
    expect(name in families, f"there is no metric {name}")
    found = [number for (own_suffix, own_labels), number in families[name].samples.items()
             if own_suffix == suffix and frozenset(own_labels) == labels]
    expect_equal(len(found), 1, f"samples of {name}{suffix} with {sorted(labels)}")
    return found[0]


@case()
def metrics_say_what_faninctl_says():
    with running_lab(3, config={"metrics": {"listen": LISTEN},
                                "workers": [{"lcore": 0}, {"lcore": 1}]}) as lab:
        job = lab.create_job([0, 1], "--handler", "multi")
        ranks = start_ranks(lab, job, [0, 1], bytes=4 * MIB)
        wait_for_results(lab, job, 10)
        expect_exact(reports_of(lab, ranks), "a job", "multi")
        lab.create_job([1, 2], "--accumulate", "f32")
        lab.control.ask("jobs.create", size=2,
                        members=[{"port": "h0", "ip": lab.host_ip(0), "rank": 0}],
                        parent={"port": "h2", "ip": lab.host_ip(2), "mac": lab.host_mac(2)})
        before = scrape(lab.switch_namespace, LISTEN)
        answers = {"ports": lab.control.ask("ports.list"), "stats": lab.control.ask("stats"),
                   "drops": lab.control.ask("drops"), "jobs": lab.control.ask("jobs.list")}
        after = scrape(lab.switch_namespace, LISTEN)
        seen = set()
        for command, answer in answers.items():
            for path, labels, number in leaves(answer, command, {}):
                if any(re.fullmatch(pattern, path) for pattern in NO_METRICS):
                    continue
                expect(path in METRICS, f"{path} of faninctl is no metric")
                name, suffix, factor = METRICS[path]
                seen.add(name)
                around = sorted((sample(before, name, suffix, labels),
                                 sample(after, name, suffix, labels)))
                number *= factor
                expect(around[0] - 1e-6 <= number <= around[1] + 1e-6,
                       f"{name}{suffix}{sorted(labels)}: {around}, faninctl has {number}")
        # No job here reports progress, and the switch has no next hops.
        progress = PROGRESS | {"fanin_job_progress_slots"}
        others = progress | NEXT_HOPS | VALUES
        expect_equal({name for name in others if after[name].samples}, set(),
                     "metrics of progress, next hops and values")
        expect_equal(sorted(set(after) - seen - others),
                     ["fanin_job_active", "fanin_job_info", "fanin_switch_info"],
                     "metrics that are not among faninctl's numbers")
        expect_equal({dict(labels)["handler"] for _, labels in after["fanin_job_info"].samples},
                     {"multi", "single"},
                     "handlers of the jobs")
        expect_equal(after["fanin_switch_info"].samples.popitem()[0][1][0], ("name", "lab"),
                     "the switch's name")


class Watch:
    """Reads the metrics again and again and remembers which of them have moved."""

    def __init__(self, namespace, listen=LISTEN):
        self.namespace, self.listen, self.moved = namespace, listen, set()
        self.last = scrape(namespace, listen)

    def look(self, counters_start_again=False):
        families = scrape(self.namespace, self.listen)
        for name, family in families.items():
            before = self.last[name].samples
            for key, number in family.samples.items():
                if number != before.get(key, number):
                    self.moved.add(name)
                expect(family.type == "gauge" or counters_start_again
                       or number >= before.get(key, 0),
                       f"{name}{key} fell from {before.get(key)} to {number}")
        self.last = families

    def has_moved(self, *names):
        self.look()
        return self.moved.issuperset(names)

    def value(self, name, **labels):
        return sample(self.last, name, "", frozenset(labels.items()))


def run_until_moved(lab, watch, job, names, **options):
    """Runs a job again and again until faults and collisions have raised these counters."""
    for _ in range(20):
        ranks = start_ranks(lab, job, [0, 1, 2], bytes=4 * MIB, iters=4, **options)
        wait_until(lambda: job_entry(lab, job)["epoch"] != 0, 60, "the run")
        watch.look()
        expect_exact(reports_of(lab, ranks), "the job beside scrapes", job["handler"])
        if watch.has_moved(*names):
            return
    raise LabError(f"{sorted(set(names) - watch.moved)} did not move in 20 runs")


def flood_stopped_host(lab, watch, host):
    """Sends a memif host that does not run more frames than its ring takes."""
    frame = ethernet(BROADCAST, lab.host_mac(0), 0x88b5, bytes(46))
    host.popen.send_signal(signal.SIGSTOP)
    try:
        with RawPort(lab.host_namespace(0)) as port:
            def dropped():
                for _ in range(2000):
                    port.send(frame)
                return watch.has_moved("fanin_port_tx_dropped_total") and watch.value(
                    "fanin_drops_total", reason="tx_full") > 0
            wait_until(dropped, 60, "frames that the host did not take")
    finally:
        host.popen.send_signal(signal.SIGCONT)


def flood_stopped_switch(lab, watch):
    """Sends the switch, while it is stopped, more frames than the socket of a port takes."""
    frame = ethernet(lab.host_mac(1), lab.host_mac(0), 0x88b5, bytes(46))
    lab.switch.popen.send_signal(signal.SIGSTOP)
    try:
        with RawPort(lab.host_namespace(0)) as port:
            for _ in range(12000):
                port.send(frame)
    finally:
        lab.switch.popen.send_signal(signal.SIGCONT)
    wait_until(lambda: watch.has_moved("fanin_port_rx_missed_total"), 60,
               "frames that the stopped switch did not take")


def overflow_backlog(lab, watch):
    backlog.build(lab.host_namespace(2), lab.directory)

    def dropped():
        backlog.overflow(lab.host_namespace(2))
        return watch.has_moved("fanin_machine_backlog_dropped_total")
    wait_until(dropped, 60, "frames that a backlog did not take")


def send_to_cut_link(lab, watch, host):
    """Sends frames to a host whose end of the link is down."""
    frame = ethernet(BROADCAST, lab.host_mac(0), 0x88b5, bytes(46))
    ip_in(lab.host_namespace(host), "link", "set", HOST_INTERFACE, "down")
    with RawPort(lab.host_namespace(0)) as port:
        def dropped():
            port.send(frame)
            return watch.has_moved("fanin_port_link_tx_dropped_total")
        wait_until(dropped, 60, "frames that the link did not take")
    ip_in(lab.host_namespace(host), "link", "set", HOST_INTERFACE, "up")


def refuse_packets(lab, watch, job):
    """Sends some packets that are dropped, each counted under its reason; case_packets.py sends the
    others.
    """
    liar = Liar(lab, job, 0, 0)
    with RawPort(lab.host_namespace(0)) as port:
        for reason, frame in (("job_unknown", liar.contribution(job=4711)),
                              ("key_wrong", liar.contribution(key=1)),
                              ("job_not_active", liar.contribution(epoch=1)),
                              ("version_unsupported", liar.contribution(version=9)),
                              ("size_mismatch", liar.make(JOIN, join_body(1, 63, lab.mtu)))):
            before = watch.value("fanin_drops_total", reason=reason)

            def counted():
                port.send(frame)  # the switch's faults may have taken the one before
                watch.look()
                return watch.value("fanin_drops_total", reason=reason) > before
            wait_until(counted, 60, f"a drop for {reason}")


def fill_mac_table(lab, watch):
    with RawPort(lab.host_namespace(1)) as port:
        for number in range(4000):
            source = "02:77:00:00:" + f"{number:04x}"[:2] + ":" + f"{number:04x}"[2:]
            port.send(ethernet(lab.host_mac(0), source, 0x88b5, bytes(46)))
    wait_until(lambda: watch.has_moved("fanin_switching_learn_failed_total", "fanin_mac_entries"),
               60,
               "a full MAC table")


class MixedLab(Lab):
    """Hosts on veth, one behind a packet socket, and a port for a host on memif. The faults are in
    both directions.
    """

    def port(self, host):
        return super().port(host) if host != 1 else {"name": "h1", "mtu": 1500,
                                                     "vdev": f"net_af_packet,iface={self.switch_interface(1)},qdisc_bypass=1"}

    def config(self):
        config = super().config()
        config["ports"].append({"name": "m0", "memif": 0, "mtu": self.mtu})
        config.update(metrics={"listen": LISTEN}, mac_table={"entries": 64},
                      faults={"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 6},
                      workers=[{"lcore": 0, "cpu": 0},
                               {"lcore": 1, "cpu": (os.cpu_count() or 1) - 1}],
                      scheduling={"policy": "dispatch", "cluster_size": 2})
        return config


def start_memif_host(lab, timeout_ms):
    """Starts a host that waits on memif for a run that never begins."""
    members = ["--member", "m0:10.77.0.90", "--member", f"h0:{lab.host_ip(0)}"]
    job = json.loads(lab.ctl("-j", "jobs", "create", *members).stdout)
    return job, lab.spawn_perf(0, job, 0, 2, memif=f"{lab.memif_path}:0", address="10.77.0.90",
                               bytes=KIB,
                               join_timeout_ms=timeout_ms)


def moved_below_a_parent():
    """Returns the metrics that move at a switch that sends sums up."""
    faults = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": 6}
    ranks = {0: 0, 1: 1}
    names = {"fanin_job_upward_total", "fanin_job_upward_repeats_total",
             "fanin_job_upward_queries_total",
             "fanin_job_parent_joined"}
    with Fabric(leaf_spine(2, 1, 2),
                config={"metrics": {"listen": LISTEN}, "faults": faults}) as fabric:
        fabric.start()
        fabric.install(5, "0x5eed", fabric.tree("spine0", ranks), ranks)
        watch = Watch(fabric.switch_ns("leaf0"))
        for _ in range(20):
            processes = [fabric.spawn_rank(host, 5, "0x5eed", rank, 2, bytes=4 * MIB,
                                           transport=fabric.transport, check=True)
                         for host, rank in ranks.items()]
            wait_until(lambda: watch.has_moved("fanin_job_parent_joined"), 60, "the run")
            for process in processes:
                process.wait(60)
            expect_exact([fabric.perf_report(process) for process in processes],
                         "a job over two levels")
            if watch.has_moved(*names):
                return names
        raise LabError(f"{sorted(names - watch.moved)} did not move in 20 runs")


def moved_by_hand():
    """Moves the metrics of members that have lost their tree, one of which reports that it has a
    result, and the metrics that a handler counts itself.
    """
    with running_lab(2, config={"metrics": {"listen": LISTEN}}) as lab:
        job = lab.create_job()
        liars = [Liar(lab, job, host, host) for host in range(2)]
        with RawPort(lab.host_namespace(0)) as first, RawPort(lab.host_namespace(1)) as second:
            join_by_hand(lab, job, first, liars[0], 2)
            join_by_hand(lab, job, second, liars[1], 2)
            epoch = join_by_hand(lab, job, first, liars[0], 2)
            watch = Watch(lab.switch_namespace)
            first.send(liars[0].make(KNOWN, FLOATS, dtype="f32", op="sum", count=len(FLOATS) // 4,
                                     contributions=2,
                                     epoch=epoch))
            wait_until(lambda: watch.has_moved("fanin_job_known_total"), 60,
                       "a result that was known")
            expect_equal(watch.value("fanin_job_known_total", fanin_job=str(job["id"])), 1,
                         "results that were known")
        tree = lab.create_job([0, 1], "--handler", "tree")
        watch.look()
        run_exact_job(lab, "a job that counts", job=tree, bytes=64 * KIB)
        wait_until(lambda: watch.has_moved("fanin_job_counter_total"), 60, "what a tree counts")
        entry = job_entry(lab, tree)
        expect_equal(entry["counters"], [{"name": "waited", "count": entry["stats"]["blocks"]}],
                     "of two contributions to a block, one waits")
        words = lab.ctl("jobs").stdout
        expect(f"job {tree['id']}, tree: waited {entry['stats']['blocks']}\n" in words,
               f"faninctl does not show it: {words}")
    return {"fanin_job_known_total", "fanin_job_counter_total"}


class RatedLab(Lab):
    def port(self, host):
        return {**super().port(host), **({"rate_mbit": 1, "ecn_bytes": 2000} if host == 1 else {})}


def moved_by_a_rate():
    """Moves the metrics of frames that wait, and are marked, at a port of 1 Mbit/s, where 30 frames
    take 0.3 s.
    """
    names = {"fanin_port_backlog_bytes", "fanin_port_backlog_frames", "fanin_port_ecn_marked_total"}
    with RatedLab(2, "af_packet", 1500, config={"metrics": {"listen": LISTEN}}) as lab:
        lab.start_switch()
        watch = Watch(lab.switch_namespace)
        ect = bytes([0x45, 0x02]) + bytes(1200)
        with RawPort(lab.host_namespace(0)) as port:
            def fill():
                for _ in range(30):
                    port.send(ethernet(lab.host_mac(1), lab.host_mac(0), 0x0800, ect))
                return watch.has_moved(*names)
            wait_until(fill, 60, "marks and a backlog")
        wait_until(lambda: lab.control.ask(
            "ports.list")["ports"][1]["egress"]["backlog_bytes"] == 0, 60, "an empty queue")
        expect_equal(watch.value("fanin_port_rate_mbit", port="h1"), 1, "rate")
    return names


def moved_by_super_frames():
    names = {"fanin_port_rx_refused_total",
             *(f"fanin_port_{way}_super_{what}_total" for way in ("rx", "tx")
               for what in ("frames", "segments"))}
    with running_lab(2, "af_packet", 1500, config={"metrics": {"listen": LISTEN}}) as lab:
        watch = Watch(lab.switch_namespace)
        send_by_tcp(lab.host_namespace(0), lab.host_namespace(1), lab.host_ip(1))
        for tags in (1, 3):
            frame, header = udp_super_frame(lab, tags * TAG, bytes(4000))
            send_super_frame(lab.host_namespace(0), frame, **header)
        wait_until(lambda: watch.has_moved(*names), 60, "super-frames")
    return names


def moved_by_sleep():
    names = {"fanin_worker_sleeps_total", "fanin_worker_wakes_total"}
    with running_lab(2, "af_packet", 1500,
                     config={"metrics": {"listen": LISTEN}, "idle": {"policy": "sleep"}}) as lab:
        watch = Watch(lab.switch_namespace)

        def woken():
            time.sleep(0.05)
            ping(lab, 0, lab.host_ip(1))
            return watch.has_moved(*names)
        wait_until(woken, 60, "frames that wake a worker")
    return names


@case(150, sanitized=True)
def every_metric_moves():
    elsewhere = moved_below_a_parent(
        ) | moved_by_hand() | moved_by_a_rate() | moved_by_super_frames() | moved_by_sleep()
    with MixedLab(3) as lab:
        lab.start_switch()
        watch = Watch(lab.switch_namespace)
        for reason in ("fault_drop", "tx_full", "port_down"):
            expect_equal(watch.value("fanin_drops_total", reason=reason), 0,
                         f"{reason} of a new switch")
        job = lab.create_job([0, 1, 2])
        watch.look()
        run_until_moved(lab, watch, job, (
            "fanin_job_repeats_total", "fanin_job_pendings_total", "fanin_job_duplicates_total",
            "fanin_job_queries_total",
            "fanin_job_probes_total", "fanin_job_probe_answers_total",
            "fanin_faults_duplicated_total", "fanin_faults_reordered_total",
            "fanin_worker_retries_total", "fanin_worker_retry_wait_seconds_total",
            "fanin_job_active", "fanin_job_member_joined"))
        ping(lab, 0, lab.host_ip(1))
        refuse_packets(lab, watch, job)
        idle, host = start_memif_host(lab, 60000)
        wait_until(lambda: watch.has_moved("fanin_port_up"), 60, "the memif host")
        flood_stopped_host(lab, watch, host)
        host.popen.kill()
        host.wait(60)
        flood_stopped_switch(lab, watch)
        with RawPort(lab.host_namespace(1)) as port:
            port.send(ethernet(lab.host_mac(0), lab.host_mac(1), 0x88b5, bytes(3000)))
        wait_until(lambda: watch.has_moved("fanin_port_rx_errors_total"), 60,
                   "a frame that is too long")
        send_to_cut_link(lab, watch, 2)
        overflow_backlog(lab, watch)
        fill_mac_table(lab, watch)
        for reason in ("fault_drop", "tx_full", "port_down"):
            expect(watch.value("fanin_drops_total", reason=reason) > 0, f"{reason} did not move")
        # Another job has the same number: values that are constant within a job change.
        for number in (idle["id"], job["id"]):
            lab.ctl("jobs", "destroy", number)
        lab.create_job([0, 1], "--id", job["id"], "--handler", "multi", "--buffers", 3, "--slots",
                       16, "--payload", 1024)
        watch.look(counters_start_again=True)
        expect_equal(sorted(set(watch.last) - watch.moved - set(STILL) - elsewhere - PROGRESS
                            - NEXT_HOPS - VALUES - TROUBLES), [], "metrics that did not move")
        expect_equal(sorted(watch.moved & set(STILL)), [],
                     "metrics that moved although they are constant")
        expect_equal(sorted(set(STILL) - set(watch.last)), [],
                     "constant metrics that there are not")


@case()
def jobs_with_leaders_tell_their_timeouts_and_slots():
    with running_lab(2, config={"metrics": {"listen": LISTEN}}) as lab:
        job = lab.create_job([0, 1], "--handler", "canary", "--parameter", "least_us=30")
        told = {value["name"]: value for value in job_entry(lab, job)["values"]}
        # The leader's leaf waits three times as long.
        expect_equal(told["timeout_us"],
                     {"name": "timeout_us", "by": "leader", "each": [90, 90], "min": 90,
                      "median": 90, "max": 90},
                     "timeouts by leader")
        for name in ("slots_used", "slots_percent"):
            expect_equal(told[name], {"name": name, "by": None, "each": [], "min": 0, "median": 0,
                                      "max": 0}, name)
        families = scrape(lab.switch_namespace, LISTEN)
        for name in VALUES:
            for value, number in (("timeout_us", 90), ("slots_used", 0), ("slots_percent", 0)):
                labels = frozenset({"fanin_job": str(job["id"]), "value": value}.items())
                expect_equal(sample(families, name, "", labels), number, f"{name} of {value}")
        words = lab.ctl("jobs").stdout
        expect("  timeout_us by leader: min 90, median 90, max 90\n  slots_used: 0\n" in words,
               f"faninctl does not show it: {words}")


@case()
def only_metrics_are_served():
    with running_lab(2, config={"metrics": {"listen": LISTEN}}) as lab:
        for method, path, expected in (("GET", "/", 404), ("GET", "/metrics/x", 404),
                                       ("POST", "/metrics", 405),
                                       ("DELETE", "/metrics", 405), ("HEAD", "/metrics", 200)):
            expect_equal(request(lab.switch_namespace, LISTEN, method, path)[0], expected,
                         f"status of {method} {path}")
        run_exact_job(lab, "a job after refusals", bytes=64 * KIB)
    with Lab(1, config={"metrics": {"listen": "192.0.2.1:9464"}}) as lab:
        try:
            lab.start_switch()
        except LabError:
            words = lab.switch.stderr()
            expect("192.0.2.1:9464" in words, f"'{words}' does not name the address")
            return
        expect(False, "the switch started with an address that it does not have")


class Telemetry:
    """A client of DPDK's telemetry socket, like dpdk-telemetry.py."""

    def __init__(self, path):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self.socket.settimeout(60)
        self.socket.connect(str(path))
        self.info = json.loads(self.socket.recv(1024))

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self.socket.close()

    def ask(self, command):
        self.socket.send(command.encode())
        answer = json.loads(self.socket.recv(self.info["max_output_len"]))
        name, value = answer.popitem()
        expect_equal(name, command.split(",")[0], "command in the answer")
        return value


def expect_same(first, second, what):
    """Expects the same answer by two ways; asks again if a frame of the hosts' kernels passed
    between the two.
    """
    for _ in range(10):
        before, found, after = second(), first(), second()
        if before == after:
            break
        time.sleep(0.1)
    expect_equal(found, before, what)


def as_telemetry_has_it(value):
    """A list of objects is an object there, whose keys are the objects' numbers."""
    if isinstance(value, dict):
        return {key: as_telemetry_has_it(member) for key, member in value.items()}
    if isinstance(value, list):
        return {str(number): as_telemetry_has_it(entry) for number, entry in enumerate(value)}
    return value


def check_telemetry(lab, client, job):
    expect_equal(client.info["pid"], lab.switch.pid, "process behind the socket")
    expect(set(client.ask("/")) >= {f"/fanin/{name}"
                                    for name in ("drops", "jobs", "ports", "stats", "workers")},
           "commands of telemetry")
    expect_equal(client.ask("/fanin/ports"), ["h0", "h1"], "ports")
    expect_same(lambda: {**client.ask("/fanin/ports,h1"), "link": True},
                lambda: as_telemetry_has_it(next(port
                                                 for port in lab.control.ask("ports.list")["ports"]
                                                 if port["name"] == "h1")), "port h1")
    expect_equal(client.ask("/fanin/ports,h2"), None, "a port that there is not")
    expect_equal(client.ask("/fanin/jobs"), [str(job["id"])], "jobs")
    told, entry = client.ask(f"/fanin/jobs,{job['id']}"), job_entry(lab, job)
    expect_equal(told["stats"], entry["stats"], "the job's counters")
    member = told["members"]["1"]
    expect_equal((member["ip"], member["ranks"]), (lab.host_ip(1), [1]),
                 "address and ranks of rank 1")
    expect_equal(sum(told["occupancy"].values()), sum(entry["occupancy"].values()),
                 "samples of the job's occupancy")
    expect_equal(client.ask("/fanin/jobs,77"), None, "a job that there is not")
    expect_same(lambda: client.ask("/fanin/drops"), lab.drops, "drops")
    worker = lab.control.ask("stats")["workers"][0]
    expect_equal(client.ask("/fanin/workers"), [str(worker["lcore"])], "workers")
    expect_equal(client.ask(f"/fanin/workers,{worker['lcore']}")["packets"], worker["packets"],
                 "packets of the worker")
    expect_same(lambda: client.ask("/fanin/stats")["switching"],
                lambda: lab.control.ask("stats")["switching"], "switching")
    expect_equal(client.ask("/fanin/stats")["mempool"]["size"],
                 lab.control.ask("stats")["mempool"]["size"], "packet buffers")


def start_second_switch(lab, name):
    """Starts a switch of the same name on the same machine."""
    path, control = lab.directory / "second.json", lab.directory / "second.sock"
    path.write_text(json.dumps({
        "name": name, "address": {"ip": "10.77.0.253"}, "control": {"socket": str(control)},
        "memory": {"megabytes": 64, "hugepages": "never"}, "mempool": {"mbufs": 4095},
        "limits": {"slots": 64},
        "idle": {"policy": "sleep"}, "ports": [{"name": "n0", "vdev": "net_null0,no-rx=1"}]}))
    process = lab.spawn(0, [program("fanin-switch"), "--config", path], "second")
    wait_until(lambda: control.exists() or not process.running(), 60, "the second switch")
    expect(process.running(), f"the second switch did not start: {process.last_words()}")
    return process


@case()
def telemetry_says_what_faninctl_says():
    for memory in ({"hugepages": "auto"}, {"hugepages": "never", "megabytes": 128}):
        name = f"lab-{os.getpid()}"
        directory = RUNTIME_DIR / f"fanin-{name}"
        with running_lab(2, config={"name": name, "memory": memory}) as lab:
            job = lab.create_job()
            expect_exact(reports_of(lab, start_ranks(lab, job, bytes=MIB)), "a job")
            other = start_second_switch(lab, name)
            with Telemetry(directory / "dpdk_telemetry.v2") as client, \
                    Telemetry(directory / "dpdk_telemetry.v2:1") as second:
                check_telemetry(lab, client, job)
                expect_equal(second.info["pid"], other.pid, "process behind the second socket")
                expect_equal(second.ask("/fanin/jobs"), [], "jobs of the second switch")
                expect_equal(other.stop(), 0, "exit status of the second switch")
                expect_equal(client.ask("/fanin/jobs"), ["1"],
                             "jobs after the second switch has gone")
                # A client is still connected when the switch stops.
                expect_equal(lab.switch.stop(), 0, "exit status")
        expect(not directory.exists(), f"{directory} was left with {list(directory.glob('*'))}")


@case(sanitized=True)
def telemetry_is_safe_while_jobs_come_and_go():
    name = f"lab-{os.getpid()}"
    with running_lab(2, config={"name": name}) as lab:
        path = RUNTIME_DIR / f"fanin-{name}" / "dpdk_telemetry.v2"
        kept = lab.create_job()
        ranks = start_ranks(lab, kept, bytes=MIB, iters=100)
        with Telemetry(path) as first, Telemetry(path) as second:
            for _ in range(60):
                job = lab.create_job(None, "--slots", 4)
                for client in (first, second):
                    client.socket.send(f"/fanin/jobs,{job['id']}".encode())
                lab.control.ask("jobs.destroy", id=job["id"])
                for client in (first, second):
                    told = json.loads(client.socket.recv(1 << 14))["/fanin/jobs"]
                    expect(told is None or told["id"] == job["id"],
                           f"job {job['id']} is told as {told}")
        expect_exact(reports_of(lab, ranks), "the job beside telemetry")
