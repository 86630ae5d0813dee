# SPDX-License-Identifier: BSD-3-Clause
"""
One run of ./dev bench busy: an allreduce over a switch in network namespaces, with busy loops and
pings at the same time.

The loops are processes of the hosts' session, as the kernel divides cores by session first; each
has a core of its own, the first one that of the switch's worker.
"""

import functools
import math
import os
import re
import statistics
import time
from pathlib import Path

from lab.namespaces import LabError, program, run, wait_until

PINGS = 200
PING_SECONDS = 2.0  # minimum, for all of them
MAX_PING_SECONDS = 8.0
WARMUP = 1
MIN_ITERATIONS = 3
MAX_ITERATIONS = 5000
MAX_ROUNDS = 6
RUN_SECONDS = 90
LOOK_SECONDS = 1.0  # for which a job that is late is watched
REPLY = re.compile(r"icmp_seq=(\d+) .*time=([\d.]+) ms")
# Sums over all hosts and rounds. A counter is None if a build lacks it.
COUNTERS = ("frames_sent", "retransmits", "spurious", "queries", "duplicates", "ring_drops")


class RunFailed(Exception):
    """A run failed; the text says why. wrong: number of elements that were not exact."""

    def __init__(self, text, wrong=0):
        super().__init__(text)
        self.wrong = wrong


# ---- arithmetic

def percentile(values, share):
    """Returns the smallest value that at least this share of all values does not exceed."""
    return sorted(values)[max(0, math.ceil(share * len(values)) - 1)]


def ping_interval(pace):
    """Returns the seconds between pings that spread them over the minimum of iterations. pace:
    seconds of one.
    """
    return min(max(PING_SECONDS, MIN_ITERATIONS * pace), MAX_PING_SECONDS) / PINGS


def iterations_for(seconds, pace):
    """Returns 1.5 times the number of iterations that take this long: between two rounds pings
    would find the hosts idle.
    """
    return min(max(MIN_ITERATIONS, math.ceil(1.5 * seconds / pace)), MAX_ITERATIONS)


def slowest(reports):
    """Returns each iteration's time on its slowest rank."""
    return [max(times) for times in zip(*(report["times"] for report in reports), strict=True)]


def total(reports, counter):
    """Returns the sum of a counter over all reports; None if they lack it."""
    values = [report.get(counter) for report in reports]
    return None if None in values else sum(values)


def pings_of(text):
    """Returns the results of PINGS requests, from ping's output."""
    times = {}
    for number, milliseconds in REPLY.findall(text):
        times.setdefault(int(number), float(milliseconds))  # the first reply, if there are several
    values = list(times.values())
    return {"sent": PINGS, "received": len(times), "lost": PINGS - len(times),
            "median_ms": statistics.median(values) if values else None,
            "p99_ms": percentile(values, 0.99) if values else None,
            "max_ms": max(values, default=None)}


def figures_of(rounds, size):
    """Returns a run's figures. rounds: [reports of all hosts]."""
    times = [seconds for reports in rounds for seconds in slowest(reports)]
    reports = [report for one_round in rounds for report in one_round]
    blocks = -(-size // reports[0]["payload_bytes"])
    packets = sum(blocks * (WARMUP + report["iters"]) for report in reports)
    found = {counter: total(reports, counter) for counter in COUNTERS}
    return {"goodput_gbps": size * 8 * len(times) / sum(times) / 1e9, "iterations": len(times),
            "rounds": len(rounds),
            "payload_bytes": reports[0]["payload_bytes"], "seconds": sum(times),
            "median_seconds": statistics.median(times),
            "slowest_seconds": max(times), "packets": packets,
            "retransmit_percent": 100 * found["retransmits"] / packets, **found}


# ---- a run

def wait_before(deadline, condition, what):
    """Waits for a condition. Raises RunFailed when the run's time is over."""
    try:
        wait_until(condition, deadline - time.monotonic(), what)
    except LabError as error:
        if time.monotonic() < deadline:
            raise
        raise RunFailed(f"not done after {RUN_SECONDS} s: no sign of {what}") from error


def start_loops(lab, count):
    """Starts processes that only compute, each on a core of its own."""
    cores = sorted(os.sched_getaffinity(0), reverse=True)
    worker = lab.config()["workers"][0]["lcore"]
    cores.sort(key=lambda core: core != worker)
    return [lab.spawn(0, ["taskset", "-c", cores[i % len(cores)], "sh", "-c",
                          "while :; do :; done"], "loop")
            for i in range(count)]


def forget(lab, processes):
    """Kills processes that still run."""
    for process in processes:
        if process.running():
            process.popen.kill()
    for process in processes:
        process.popen.wait()
        lab.processes.remove(process)


def results_of(lab, job):
    """Returns the number of results that the switch has made for a job."""
    return sum(entry["stats"]["results"] for entry in lab.control.ask("jobs.list")["jobs"]
               if entry["id"] == job["id"])


def state_of(process):
    """Returns a process's state, as ps shows it, and its seconds of CPU time so far."""
    try:
        fields = Path("/proc", str(process.pid), "stat").read_text().rpartition(")")[2].split()
    except OSError:
        return "gone", 0.0
    return fields[0], (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def whom_it_waits_for(lab, job):
    """Returns the ranks that a job's oldest block waits for, or that have not joined, and a text
    about them.
    """
    try:
        told = lab.control.ask("jobs.waits", id=job["id"], most=1)
    except LabError:
        return [], "its switch does not tell whom it waits for"
    if told["state"] != "active":
        missing = [member["rank"] for member in told["members"] if not member["joined"]]
        return missing, f"it does not run without ranks {missing}"
    if not told["blocks"]:
        return [], "no block waits"
    block = told["blocks"][0]
    return block["missing"], f"block {block['block']} has waited for ranks {block['missing']} for {block['since_ms'] / 1000:.1f} s"


def standing(lab, job, ranks):
    """Returns the state of a job that is late: whether it makes progress, however slowly, and which
    ranks it waits for.
    """
    results, before = results_of(lab, job), [state_of(rank) for rank in ranks]
    time.sleep(LOOK_SECONDS)
    more, after = results_of(lab, job) - results, [state_of(rank) for rank in ranks]
    missing, words = whom_it_waits_for(lab, job)
    missing = [rank for rank in missing if ranks[rank].running()]
    times = ", ".join(f"rank {rank} {after[rank][1] - before[rank][1]:.2f} s (state "
                      f"{after[rank][0]})" for rank in missing)
    return (f"{sum(rank.running() for rank in ranks)} of {len(ranks)} ranks run, {results + more} "
            f"results, {more} of them in the last {LOOK_SECONDS:g} s; {words}"
            + (f"; CPU time in the last {LOOK_SECONDS:g} s: {times}" if times else ""))


def ended_badly(ranks):
    """Returns the ranks that have failed while others run, with their last lines; empty if there
    are none.
    """
    if not any(rank.running() for rank in ranks):
        return ""
    return "; ".join(f"rank {number} ended with {rank.popen.returncode}: {rank.last_words()}"
                     for number, rank in enumerate(ranks) if rank.popen.poll() not in (None, 0))


def check_reports(reports):
    for rank, report in enumerate(reports):
        if report.get("error"):
            raise RunFailed(f"rank {rank}: {report['error']['message']}")
    wrong = sum(report["mismatches"] for report in reports)
    if wrong:
        raise RunFailed(f"{wrong} elements are wrong", wrong)
    if not all(report["in_network"] for report in reports):
        raise RunFailed("the allreduce did not run in the network")


@functools.cache
def knows_udp(build):
    return re.search(r"--transport NAME.*\budp\b",
                     run([program("fanin-perf", build), "--help"]).stdout) is not None


def hosts_transport(lab):
    """Returns the hosts' transport: in a build without UDP sockets, packet sockets at the same MTU.
    """
    return "af_packet" if lab.transport == "udp" and not knows_udp(lab.build) else lab.transport


def one_round(lab, size, iterations, deadline, when_measured=None):
    """Runs a job of all hosts from its creation to its end, and returns the reports. when_measured:
    called in the first measured iteration.
    """
    job = lab.create_job()
    began = time.monotonic()
    ranks = [lab.spawn_perf(host, job, host, lab.hosts, bytes=size, dtype="f32", op="sum",
                            warmup=WARMUP, iters=iterations,
                            transport=hosts_transport(lab), check_ends=True, times=True)
             for host in range(lab.hosts)]
    try:
        if when_measured is not None:
            # Two barriers and the warm-up come first.
            first = 2 + WARMUP * -(-size // job["payload_bytes"])
            wait_before(deadline, lambda: results_of(lab, job) > first
                        or not all(rank.running() for rank in ranks),
                        "the first results")
            when_measured()
        wait_before(deadline, lambda: not any(rank.running() for rank in ranks)
                    or ended_badly(ranks), "the end of the job")
        if ended_badly(ranks):
            # This waits for ranks that never joined: nothing else reports them.
            raise RunFailed(ended_badly(ranks))
        reports = [lab.perf_report(rank) for rank in ranks]
    except RunFailed as failure:
        raise RunFailed(f"{failure}, {time.monotonic() - began:.1f} s after the job was made; "
                        f"{standing(lab, job, ranks)}") from failure
    finally:
        forget(lab, ranks)
    lab.ctl("jobs", "destroy", job["id"])
    check_reports(reports)
    return reports


class Pings:
    """PINGS requests from the first host to the last one, by ping."""

    def __init__(self, lab, interval):
        self.lab, self.interval, self.process = lab, interval, None

    def first(self):
        """Sends one ping before the others, so that addresses are known; the other hosts send
        frames, too, for the switch's table of addresses.
        """
        process = self.lab.spawn(0,
                                 ["ping", "-n", "-c", 1, "-W", 5,
                                  self.lab.host_ip(self.lab.hosts - 1)], "ping")
        status = process.wait(10)
        self.lab.processes.remove(process)
        if status != 0:
            raise RunFailed("no host answers ping before the job")

    def start(self):
        self.process = self.lab.spawn(0,
                                      ["ping", "-n", "-i", f"{self.interval:.4f}", "-c", PINGS,
                                       "-W", 5,
                                          self.lab.host_ip(self.lab.hosts - 1)], "ping")

    def running(self):
        return self.process is not None and self.process.running()

    def seconds_left(self):
        return max(0, PINGS - len(REPLY.findall(self.process.stdout()))) * self.interval

    def result(self, deadline):
        wait_before(deadline, lambda: not self.process.running(), "the last pings")
        self.lab.processes.remove(self.process)
        if self.process.popen.returncode not in (0, 1):
            raise RunFailed(f"ping: {self.process.last_words()}")
        return pings_of(self.process.stdout())


def job_with_pings(lab, size, pace, deadline):
    """Runs rounds of a job for as long as pings take. Returns the rounds and the pings."""
    pings = Pings(lab, ping_interval(pace))
    pings.first()
    rounds = [one_round(lab, size, iterations_for(PINGS * pings.interval, pace), deadline,
                        pings.start)]
    while pings.running() and len(rounds) < MAX_ROUNDS:
        pace = statistics.median(slowest(rounds[-1]))
        rounds.append(one_round(lab, size, iterations_for(pings.seconds_left() + 0.2, pace),
                                deadline))
    return rounds, {"interval_s": pings.interval, **pings.result(deadline)}


def one_run(lab, cell, size, seed, paces, side):
    """Does one run on a new switch, and returns its figures. paces: {(cell, side): minimum of
    median seconds of an iteration so far}, read and updated.
    """
    lab.overrides = {"faults": {"drop": cell.loss, "seed": seed}} if cell.loss else {}
    loops = []
    lab.start_switch()
    deadline = time.monotonic() + RUN_SECONDS
    try:
        loops = start_loops(lab, cell.loops)
        pace = paces.get((cell.name, side))
        if pace is None:
            pace = statistics.median(slowest(one_round(lab, size, MIN_ITERATIONS, deadline)))
        before, frames = lab.drops(), lab.frames()
        rounds, pings = job_with_pings(lab, size, pace, deadline)
        figures = figures_of(rounds, size)
        paces[(cell.name, side)] = min(pace, figures["median_seconds"])
        after, frames_after = lab.drops(), lab.frames()
    finally:
        forget(lab, loops)
    stop_switch(lab)
    return {**figures, "ping": pings,
            "drops": {name: count - before.get(name, 0) for name, count in after.items()
                                                if count > before.get(name, 0)},
            "ports": {key: frames_after[key] - frames[key] for key in frames}}


def stop_switch(lab):
    while lab.controls:
        lab.controls.pop().close()
    lab.switch.stop()
    lab.processes.remove(lab.switch)
