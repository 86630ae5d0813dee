# SPDX-License-Identifier: BSD-3-Clause
"""
Shows where each microsecond of a loop of small allreduces goes: which processes had a core, waited
for one, and were woken; compared with the bare exchange.

A step of the loop is a barrier and an allreduce. Times are the kernel's
(/proc/PID/task/TID/schedstat, nanoseconds), taken while all ranks wait at both ends of the loop.
System calls are counted in a separate run, as counting makes each of them slower.
"""

import os
import signal
import statistics
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

from lab.namespaces import LabError

from lab.bench.cpu_times import Marks, free_seconds

ATTACH_SECONDS = 0.4
GROUPS = {"fanin-perf": "hosts", "exchange-host": "hosts", "fanin-switch": "middle",
          "exchange-middle": "middle"}


class Thread(NamedTuple):
    """The kernel's counters of a thread, or of several together, since they began."""

    cpu_ns: int = 0
    wait_ns: int = 0  # runnable, while another thread had the core
    turns: int = 0  # on a core
    asleep: int = 0  # gave the core away to wait (voluntary)
    pushed: int = 0  # lost it, or yielded (involuntary)

    def plus(self, other, sign=1):
        return Thread(*(mine + sign * its for mine, its in zip(self, other, strict=True)))


class Ends(NamedTuple):
    seconds: float
    free: float
    groups: dict  # name: Thread


def thread_of(directory):
    cpu_ns, wait_ns, turns = map(int, (directory / "schedstat").read_text().split())
    status = dict(line.split(":", 1) for line in (directory / "status").read_text().splitlines()
                  if "ctxt_switches" in line)
    return Thread(cpu_ns, wait_ns, turns, int(status["voluntary_ctxt_switches"]),
                  int(status["nonvoluntary_ctxt_switches"]))


def group_of(pid, namespaces):
    """Returns the group: hosts, the middle (the switch, or what replaces it), ksoftirqd; None: none
    of these.
    """
    comm = Path("/proc", pid, "comm").read_text().strip()
    if comm.startswith("ksoftirqd/"):
        return "ksoftirqd"
    if os.stat(f"/proc/{pid}/ns/net").st_ino not in namespaces:
        return None
    return GROUPS.get(comm)


def pids_of(namespaces):
    """Returns {group: [PID]} of the current processes."""
    found = {}
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            group = group_of(pid, namespaces)
        except OSError:
            continue
        if group is not None:
            found.setdefault(group, []).append(pid)
    return found


class ThreadMarks(Marks):
    """Takes the times of each group's threads at both ends of the loop."""

    def take(self):
        groups = {}
        for group, pids in pids_of(self.namespaces).items():
            groups[group] = Thread()
            for thread in (thread for pid in pids
                           for thread in Path("/proc", pid, "task").iterdir()):
                groups[group] = groups[group].plus(thread_of(thread))
        return Ends(time.monotonic(), free_seconds(), groups)


class CallMarks(Marks):
    """Counts each group's system calls between both ends of the loop. Needs perf and its
    tracepoints.
    """

    def __enter__(self):
        self.counters = {}
        return super().__enter__()

    def take(self):
        if self.counters:
            return {group: counted(counter) for group, counter in self.counters.items()}
        for group, pids in pids_of(self.namespaces).items():
            if group != "ksoftirqd":
                command = ["perf", "stat", "-x", ",", "-e", "raw_syscalls:sys_enter", "-p",
                           ",".join(pids)]
                self.counters[group] = subprocess.Popen(command, stdin=subprocess.DEVNULL,
                                                        stdout=subprocess.DEVNULL,
                                                        stderr=subprocess.PIPE, text=True)
        time.sleep(ATTACH_SECONDS)
        return {}

    def calls(self):
        """Returns {group: system calls}; None: perf can't count here."""
        self.counters = {}
        return self.ends()[1]


def counted(counter):
    """Returns the counts of a perf stat until now; None if it could not count."""
    counter.send_signal(signal.SIGINT)
    words = counter.communicate(timeout=10)[1]
    fields = [line.split(",") for line in words.splitlines() if "raw_syscalls" in line]
    return int(fields[0][0]) if fields and fields[0][0].isdigit() else None


def can_count():
    try:
        done = subprocess.run(["perf", "stat", "-e", "raw_syscalls:sys_enter", "true"],
                              stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, timeout=60, check=False)
    except OSError:
        return False
    return done.returncode == 0


def share_of(begin, end, steps, hosts, cores):
    """Returns the cost of a step: {"wall_us", "idle_us" of all cores, "other_us", groups'
    {"cpu_us", ...} all together}.
    """
    wall = end.seconds - begin.seconds
    groups = {}
    for name, last in end.groups.items():
        spent = last.plus(begin.groups.get(name, Thread()), -1)
        groups[name] = {"cpu_us": spent.cpu_ns / steps / 1e3,
                        "wait_us": spent.wait_ns / steps / 1e3, "turns": spent.turns / steps,
                        "asleep": spent.asleep / steps, "pushed": spent.pushed / steps}
    cpu_us = sum(group["cpu_us"] for group in groups.values())
    idle_us = (end.free - begin.free) / steps * 1e6
    return {"wall_us": wall / steps * 1e6, "cpu_us": cpu_us, "idle_us": idle_us,
            "least_us": cpu_us / cores,
            "other_us": max(0.0, cores * wall / steps * 1e6 - cpu_us - idle_us), "hosts": hosts,
            "groups": groups}


def add_calls(share, calls, steps):
    for name, count in calls.items():
        if name in share["groups"]:
            share["groups"][name]["calls"] = None if count is None else count / steps


def row_of(part, size, fanin_shares, bare_shares):
    """Returns the medians of the rounds of both."""
    return {"part": "where", "hosts": part.hosts, "bytes": size, "fanin": middle_of(fanin_shares),
            "bare": middle_of(bare_shares)}


def middle_of(shares):
    """Returns the median of each number separately."""
    first = shares[0]
    if isinstance(first, dict):
        return {key: middle_of([share[key] for share in shares if key in share]) for key in first}
    return None if None in shares else statistics.median(shares)


def measured(lab, marks_class, run, task):
    """Runs a loop with marks, of a given class at its end, and returns the marks."""
    with marks_class(*lab) as marks:
        run(task._replace(mark=marks.path))
        marks.path.unlink()
        return marks


def share_and_calls(labs, run, task, hosts, with_calls):
    """Returns the share of a step in a loop, with the system calls of another loop."""
    steps = task.iters - 1
    share = share_of(*measured(labs, ThreadMarks, run, task).ends(), steps, hosts, os.cpu_count())
    for group in ("hosts", "middle"):
        if not share["groups"].get(group):
            raise LabError(f"where: found no process of the group {group} at the marks, expected "
                           "some")
    if with_calls:
        add_calls(share, measured(labs, CallMarks, run, task).calls(), steps)
    return share


# ---- printing

def text(value):
    return "-" if value is None else f"{value:.1f}"


def lines_of(row):
    what = f"{row['bytes']} bytes, {row['hosts']} hosts on UDP sockets: microseconds of a step, which is a barrier and an allreduce"
    lines = [what, f"{'':<24} {'CPU':>8} {'waits':>8} {'turns':>7} {'sleeps':>7} {'pushed':>7} "
                   f"{'calls':>7}"]
    for side, name in (("bare", "bare exchange"), ("fanin", "Fanin")):
        share = row[side]
        lines.append(f"{name}: {share['wall_us']:.1f} us; CPU of all {share['cpu_us']:.1f}, so "
                     f"{share['least_us']:.1f} at least on these cores; idle "
                     f"{share['idle_us']:.1f}, others {share['other_us']:.1f}")
        for group, label in (("hosts", "all hosts"),
                             ("middle", "switch" if side == "fanin" else "middle"),
                             ("ksoftirqd", "ksoftirqd")):
            found = share["groups"].get(group)
            if found is not None:
                lines.append(f"  {label:<22} {found['cpu_us']:8.1f} {found['wait_us']:8.1f} "
                             f"{found['turns']:7.2f} {found['asleep']:7.2f} {found['pushed']:7.2f} "
                             f"{text(found.get('calls')):>7}")
    fanin, bare = row["fanin"], row["bare"]
    added = {group: fanin["groups"][group]["cpu_us"] - bare["groups"][group]["cpu_us"]
             for group in ("hosts", "middle")}
    lines.append(f"Fanin adds {fanin['wall_us'] - bare['wall_us']:.1f} us; of CPU, on all cores "
                 f"together, {added['hosts']:.1f} us in the hosts' library and "
                 f"{added['middle']:.1f} us in the switch")
    return lines
