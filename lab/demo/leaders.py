# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration of jobs whose blocks have leaders: they have no tree, and continue around a
failure as long as their hosts have a path.
"""

import argparse
import time

from lab.namespaces import LabError

HANDLERS = ("canary",)
POLL_SECONDS = 0.05
# Counters of switches that are shown.
COUNTERS = ("reduces", "merged", "sums", "complete", "stragglers", "collisions", "overlaps",
            "direct", "passed", "restored", "given_up")


def check_arguments(parser, options):
    """Checks the arguments. To be called first: options.leaders says whether blocks have leaders at
    all.
    """
    options.leaders = getattr(options, "handler", None) in HANDLERS
    if not options.leaders:
        return
    for name, given in (("--transport memif", options.transport == "memif"),
                        ("--reproducible", options.reproducible),
                        ("--accumulate f32", options.accumulate != "native"),
                        ("--sparse", options.sparse is not None),
                        ("--ring", options.ring), ("--trees", getattr(options, "trees", 1) > 1),
                        ("--topology single", options.topology == "single")):
        if given:
            parser.error(f"argument --handler: found {options.handler} with {name}, expected one "
                         "of them")


def with_tree(options):
    """Runs the same demonstration with a job that has a tree."""
    return argparse.Namespace(**{**vars(options), "handler": "single", "leaders": False,
                                 "aggregators": None})


class Places:
    """The switches that have the jobs, as the manager says, in place of their trees."""

    def __init__(self, fabric):
        self.trees = [{"switches": sorted(job["switches"])}
                      for job in fabric.ask_manager("jobs")["jobs"] if job["state"] == "network"]
        self.names = list(range(len(self.trees)))
        self.topology = fabric.topology

    def draw(self):
        lines = []
        for switch in sorted({switch for job in self.trees for switch in job["switches"]}):
            hosts = " ".join(f"h{host}" for host,
                             at in enumerate(self.topology.switch_of) if at == switch)
            lines.append(f"{switch}  {hosts}" if hosts else switch)
        return "\n".join(lines)


class Watch:
    """
    Counts of the switches over all jobs together, as of the last look: the progress of the jobs,
    and the longest time without a result.

    expected: results. target: the switch or host that will be struck; frozen: it will not answer
    then.
    """

    def __init__(self, fabric, expected, target, frozen):
        self.fabric = fabric
        self.expected = expected
        self.target = target
        self.frozen = frozen
        self.counts = {}
        self.total = 0
        self.next = self.changed = time.monotonic()
        self.since = self.outage = None

    def look(self):
        """Returns approximately the share of the results that exist: all of them pass the leaves of
        the hosts.
        """
        if time.monotonic() < self.next:
            return self.total / self.expected
        for switch in self.fabric.topology.switches:
            if switch != self.frozen or self.since is None:
                self._look_at(switch)
        self.next = time.monotonic() + POLL_SECONDS
        total = max((sum(counts["results"] for counts in self._of(switch))
                     for switch in set(self.fabric.topology.switch_of) - {self.target}),
                    default=0)
        if total > self.total:
            if self.since is not None:
                self.outage = max(self.outage or 0.0, time.monotonic() - self.changed)
            self.total, self.changed = total, time.monotonic()
        return self.total / self.expected

    def _of(self, switch):
        return [counts for (name, _), counts in self.counts.items() if name == switch]

    def _look_at(self, switch):
        if not self.fabric.process_of(switch).running():
            return
        try:
            jobs = self.fabric.ask(switch, "jobs.list")["jobs"]
        except LabError:
            return
        for job in jobs:
            counts = {counter["name"]: counter["count"] for counter in job["counters"]}
            # If a switch had no slot for the block, the leader sends the result to ports by name.
            self.counts[switch, job["id"]] = {**counts,
                                              "results": job["stats"]["results"]
                                              + counts["restored"]}

    def of(self, switches, wanted):
        """Returns {switch: {counter: count}}."""
        return {switch: {counter: sum(counts[counter] for counts in self._of(switch))
                         for counter in wanted} for switch in switches}


def reached(topology, host, target):
    """Returns the switches that a host reaches without the target."""
    queue = [topology.switch_of[host]] if topology.switch_of[host] != target else []
    for switch in queue:
        queue += [peer for peer in topology.neighbors(switch) if peer != target
                  and peer not in queue]
    return set(queue)


def lost_to(topology, host, target):
    """Returns the ranks that a host has no path to without the target."""
    switches = reached(topology, host, target)
    return {other for other, at in enumerate(topology.switch_of) if other != host
            and at not in switches}


def can_go_on(topology, target, dual_homed):
    """True if all hosts have a path to all others without the target, or if it is no switch."""
    return dual_homed or target not in topology.switches or not any(
        lost_to(topology, host, target) for host in range(len(topology.switch_of)))


def verdict_on_end(result, reports, topology, target):
    """Judges a run in which some hosts have no path to others: each has to end, and to name some
    that it does not reach. Completes the result.
    """
    wrong = []
    for host, report in enumerate(reports):
        missing = set((report.get("error") or {}).get("missing", []))
        if not missing & lost_to(topology, host, target):
            wrong.append(host)
    result["ok"] = not wrong
    if wrong:
        result["error"] = f"{target} was struck, and hosts {', '.join(map(str, wrong))} name none that they do not reach: {result['error']}"
    else:
        result["ended"] = reports[0]["error"]["message"]
        result["error"] = None


def counted(counts, words):
    return ", ".join(f"{counts[key]} {word}" for key, word in words if counts[key]) or "nothing"


def print_leaders(result):
    """Prints the lines of a result that only jobs whose blocks have leaders have."""
    for name, counts in result["aggregation"].items():
        print(f"  switch {name}: "
              + counted(counts, (("reduces", "packets"), ("merged", "merged"),
                                 ("sums", "sums sent on"),
                                                      ("stragglers", "stragglers"),
                                 ("collisions", "collisions"), ("direct", "direct"),
                                                      ("restored", "results restored"))))
    print(f"  a window of {result['window']} blocks"
          + (f", {result['aggregators']} slots" if result["aggregators"] else ""))
