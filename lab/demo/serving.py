# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration with parameter servers: options, the counts of switches and servers, and the
expected effects of killing a server.
"""

import argparse
import time

from lab.demo import leaders
from lab.namespaces import LabError

HANDLERS = ("pa-atp",)
DEFAULT_SERVERS = 2
POLL_SECONDS = 0.05
# After a loss that can't be repaired, hosts have to report it within this time.
END_SECONDS = 5
# Counters of switches and of servers that are shown.
SWITCH_COUNTERS = ("gradients", "gacks", "ce", "overflows", "passed", "flushes", "expired", "aacks",
                   "aecn", "repeats", "asks")
SERVER_COUNTERS = ("results", "sums", "partials", "singles", "direct", "known", "duplicates",
                   "queries", "asks", "flushes")


def add_arguments(parser, whole_number):
    parser.add_argument("--servers", type=whole_number(1, 8), default=argparse.SUPPRESS,
                        metavar="N",
                        help=f"parameter servers, with the handler pa-atp: the job has a tree for "
                             f"each (default: {DEFAULT_SERVERS})")
    parser.add_argument("--aggregators", type=whole_number(2, 1 << 20), default=argparse.SUPPRESS,
                        metavar="N",
                        help="slots that all jobs of a switch share, with pa-atp or canary; a "
                             "power of two")


def check_arguments(parser, options):
    """Checks the arguments. To be called first: options.serving says whether there are servers at
    all.
    """
    options.serving = getattr(options, "handler", None) in HANDLERS
    for name, of in (("servers", HANDLERS), ("aggregators", (*HANDLERS, *leaders.HANDLERS))):
        if name in options and getattr(options, "handler", None) not in of:
            parser.error(f"argument --{name}: found it without --handler {' or '.join(of)}, "
                         "expected both or none")
    options.servers = getattr(options, "servers", DEFAULT_SERVERS if options.serving else 0)
    options.aggregators = getattr(options, "aggregators", None)
    if options.aggregators is not None and options.aggregators & (options.aggregators - 1):
        parser.error(f"argument --aggregators: found {options.aggregators}, expected a power of two")
    if not options.serving:
        return
    for name, given in (("--transport memif", options.transport == "memif"),
                        ("--reproducible", options.reproducible),
                        ("--accumulate f32", options.accumulate != "native"),
                        ("--sparse", options.sparse is not None),
                        ("--ring", options.ring), ("--workers", options.workers > 1)):
        if given:
            parser.error(f"argument --handler: found {options.handler} with {name}, expected one "
                         "of them")


def place(topology, options):
    """Puts the servers at the topmost switch of the trees."""
    if not options.serving:
        return topology
    uppermost = [switch for switch in topology.switches if not topology.hosts[switch]
                 and not switch.startswith(("leaf", "agg"))]
    return topology.add_servers(options.servers, uppermost or topology.switches)


def switch_config(options, config):
    if options.aggregators is None:
        return config
    return {**config, "limits": {"max_jobs": 16, "slots": 2048,
                                 "shared_slots": options.aggregators}}


class Watch:
    """
    Counts of the switches and servers over all jobs together, as of the last look, as a job's
    counters are gone with it: the progress of the jobs, and the longest time without a result.

    expected: results. frozen: a switch or a server that will not answer once something is struck.
    """

    def __init__(self, fabric, expected, frozen):
        self.fabric = fabric
        self.expected = expected
        self.frozen = frozen
        self.last = {}
        self.sums = {}
        self.total = 0
        self.next = self.changed = time.monotonic()
        self.since = self.outage = None

    def look(self):
        """Returns approximately the share of the results that exist. Only the switch of a server
        counts them.
        """
        if time.monotonic() >= self.next:
            for name in [*self.fabric.topology.switches, *self.fabric.topology.servers]:
                if name != self.frozen or self.since is None:
                    self._look_at(name)
            self.next = time.monotonic() + POLL_SECONDS
            total = sum(self.sums.get(name, {}).get("aacks", 0)
                        for name in self.fabric.topology.switches)
            if total > self.total:
                if self.since is not None:
                    self.outage = max(self.outage or 0.0, time.monotonic() - self.changed)
                self.total, self.changed = total, time.monotonic()
        return self.total / self.expected

    def _look_at(self, name):
        if not self.fabric.process_of(name).running():
            return
        try:
            jobs = self.fabric.ask(name, "jobs.list")["jobs"]
        except LabError:
            return
        for job in jobs:
            for counter in job["counters"]:
                key = (name, job["id"], counter["name"])
                before = self.last.get(key, 0)
                # A job that was created again counts from 0.
                more = counter["count"] - before if counter["count"] >= before else counter["count"]
                self.last[key] = counter["count"]
                counts = self.sums.setdefault(name, {})
                counts[counter["name"]] = counts.get(counter["name"], 0) + more

    def of(self, names, wanted):
        """Returns {name: {counter: count}} of some switches or servers."""
        return {name: {counter: self.sums.get(name, {}).get(counter, 0) for counter in wanted}
                for name in names}


def told_to_hosts(reports):
    """Returns the hosts' report of their congestion control: each number summed, windows averaged.
    """
    found = [report["congestion"] for report in reports if report.get("congestion")]
    if not found:
        return None
    sums = {key: sum(part[key] for part in found)
            for key in ("gacks", "aacks", "marks", "aecns", "asks_answered")}
    return {"name": found[0]["name"], **sums,
            **{key: round(sum(part[key] for part in found) / len(found), 3)
               for key in ("cwd", "awd")},
            "queries": sum(report.get("queries") or 0 for report in reports)}


def can_go_on(topology, target):
    """True if there is another server, at another switch if a switch is lost, and a path to it."""
    if target in topology.servers:
        return len(topology.servers) > 1
    if target in topology.switch_of:
        return False
    return any(switch != target for switch in topology.servers.values())


def verdict_on_end(result, reports, target, seconds):
    """Judges a run without a necessary server or switch: all hosts have to name it, and soon.
    Completes the result.
    """
    silent = [rank for rank, report in enumerate(reports)
              if target not in ((report.get("error") or {}).get("message") or "")]
    result["end_seconds"] = round(seconds, 3)
    result["ok"] = not silent and seconds <= END_SECONDS
    if silent:
        result["error"] = f"{target} was struck, and {len(silent)} of {len(reports)} hosts do not name it: {result['error']}"
    elif not result["ok"]:
        result["error"] = f"{target} was struck, and the hosts took {seconds:.1f} s to say so, expected {END_SECONDS} at most"
    else:
        result["ended"] = reports[0]["error"]["message"]
        result["error"] = None


def counted(counts, words):
    return ", ".join(f"{counts[key]} {word}" for key, word in words if counts[key]) or "nothing"


def print_serving(result):
    """Prints the lines of a result that only jobs with parameter servers have."""
    for name, server in result["servers"].items():
        counts = counted(server["counters"],
                         (("results", "results"), ("sums", "sums"), ("partials", "partial sums"),
                                              ("singles", "single gradients"), ("asks", "asks"),
                          ("flushes", "flushes asked for")))
        print(f"  server {name} at {server['at']}: {counts}")
    for name, counts in result["aggregation"].items():
        if not counts["gradients"]:
            continue
        print(f"  switch {name}: "
              + counted(counts, (("gradients", "gradients"), ("gacks", "GACKs"),
                                 ("overflows", "overflows"),
                                                      ("flushes", "flushes"),
                                 ("passed", "passed on"), ("aacks", "AACKs"),
                                 ("aecn", "with AECN"))))
    told = result["congestion"]
    if told:
        print(f"  hosts, congestion control {told['name']}: {told['gacks']} GACKs, {told['marks']} "
              f"of them marked, {told['aacks']} AACKs, {told['aecns']} with AECN, "
              f"{told['queries']} queries, {told['asks_answered']} asks answered")
    if result["aggregators"]:
        print(f"  {result['aggregators']} aggregators, a window of {result['window']} blocks")
