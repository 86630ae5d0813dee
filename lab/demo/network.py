# SPDX-License-Identifier: BSD-3-Clause
"""
The demonstration on several switches: leaves and spines, or three levels, with a network manager
that makes the job. With parameter servers this is also used for a single switch.

A switch, a host, a server or the manager may be killed, or a switch frozen, in the middle of it.
"""

import argparse
import re
import signal
import time

from lab.demo import leaders
from lab.demo import serving
from lab.fabric import Fabric, leaf_spine, single, tree3
from lab.namespaces import LabError, ports_text
from lab.traffic import Traffic, most

TOPOLOGIES = {"leaf-spine": leaf_spine, "tree3": tree3}
DEFAULT_HOSTS = {"leaf-spine": 8, "tree3": 16}
# These sizes let jobs finish in a minute even with packets lost at every hop.
DEFAULT_BYTES = {"leaf-spine": "16MiB", "tree3": "4MiB"}
SERVING_BYTES = "8MiB"
JOB = "demo"
POLL_SECONDS = 0.02
# A slot of a sparse job keeps a result of 64 packets: a window of 32 for a job, and room for
# another job.
SPARSE_LIMITS = {"max_jobs": 2, "slots": 2 * 64 * 65}
# The share of the results after which something is killed.
KILL_AT = 0.4


def add_arguments(parser, whole_number):
    """Adds the options that only several switches have."""
    parser.add_argument("--multicast", action="store_true",
                        help="of a topology: broadcasts and allgathers go by reliable multicast, "
                             "in a second job beside the ranks' own")
    parser.add_argument("--trees", type=whole_number(1, 8), default=argparse.SUPPRESS, metavar="N",
                        help="reduction trees of the job on a topology, each over another spine, "
                             "which its blocks take in turn (default: 1; with pa-atp as many as "
                             "servers)")
    parser.add_argument("--jobs", type=whole_number(1, 4), default=1, metavar="N",
                        help="of a topology, or with pa-atp: so many jobs at once, each on all "
                             "hosts")
    parser.add_argument("--kill", metavar="NAME", default=argparse.SUPPRESS,
                        help="in mid-run, of a topology: a switch like spine0, manager, a host "
                             "like host3 or h3, or a server like s0")
    parser.add_argument("--freeze", metavar="NAME", default=argparse.SUPPRESS,
                        help="the same, stopped as by SIGSTOP: a switch or a server")
    parser.add_argument("--dual-homed", action=argparse.BooleanOptionalAction,
                        default=argparse.SUPPRESS,
                        help="with leaf-spine: pairs of leaves, and hosts linked to both of a pair "
                             "(default: if a leaf is killed or frozen)")
    parser.add_argument("--ring", action="store_true",
                        help="of a topology, for comparison: the switches only forward, and the "
                             "hosts reduce in a ring")


def host_of(target):
    """Returns the number of a host that is named like host3 or h3; None: it is no host."""
    found = re.fullmatch(r"h(?:ost)?(\d+)", target or "")
    return int(found.group(1)) if found else None


def check_arguments(parser, options):
    serving.check_arguments(parser, options)
    leaders.check_arguments(parser, options)
    options.kill = getattr(options, "kill", None)
    options.freeze = getattr(options, "freeze", None)
    options.trees = getattr(options, "trees", max(1, options.servers))
    if options.serving and options.transport == "af_xdp" and options.trees > 1:
        parser.error("argument --transport: found af_xdp, which serves one tree of a host, "
                     "expected --servers 1 or --trees 1 with it")
    struck = options.kill or options.freeze or ""
    if "dual_homed" in options and options.topology != "leaf-spine":
        parser.error(f"argument --dual-homed: found the topology {options.topology}, expected "
                     "leaf-spine")
    options.dual_homed = getattr(options, "dual_homed",
                                 options.topology == "leaf-spine" and struck.startswith("leaf"))
    for name, given in (("--kill and --freeze", struck), ("--trees", options.trees > 1),
                        ("--multicast", options.multicast), ("--ring", options.ring),
                        ("--jobs", options.jobs > 1)):
        if given and options.topology == "single" and not options.serving:
            parser.error(f"argument {name}: found the topology single, expected one of "
                         f"{', '.join(TOPOLOGIES)}")
    if options.kill and options.freeze:
        parser.error("argument --freeze: found --kill with it, expected one of them")
    if options.topology != "single" and options.transport == "memif":
        parser.error(f"argument --transport: found memif for {options.topology}, expected af_xdp, "
                     "af_packet or udp")
    if options.multicast and struck:
        parser.error("argument --multicast: found --kill or --freeze with it, which wait for "
                     "blocks of the job itself: expected one of them")
    if options.ring and (struck or options.trees > 1 or options.reproducible or options.jobs > 1):
        parser.error("argument --ring: found --kill, --freeze, --trees, --jobs or --reproducible "
                     "with it, expected none of them: there is no tree")
    if options.jobs > 1 and (struck or options.transport == "af_xdp"):
        parser.error("argument --jobs: found --kill, --freeze or --transport af_xdp with it, "
                     "expected none of them")


def make_topology(options):
    if options.topology == "single":
        return serving.place(single(options.hosts), options)
    if options.topology != "leaf-spine":
        return serving.place(TOPOLOGIES[options.topology](hosts=options.hosts,
                                                          in_order=options.reproducible), options)
    # The struck switch must be in the job's tree.
    return serving.place(leaf_spine(hosts=options.hosts, dual_homed=bool(options.dual_homed),
                                    first=options.kill or options.freeze,
                                    in_order=options.reproducible), options)


def check_target(topology, hosts, target):
    """Checks that the target can be killed; LabError if there is no such thing."""
    targets = ["manager", *topology.switches, *topology.servers,
               *(f"host{host}" for host in range(hosts))]
    if target not in targets and not (host_of(target) is not None and host_of(target) < hosts):
        raise LabError(f"--kill and --freeze: found '{target}', expected one of "
                       f"{', '.join(targets)}")


class Trees:
    """The manager's view of the job's trees, drawn as text."""

    def __init__(self, fabric):
        self.fabric = fabric
        found = [tree for tree in fabric.ask_manager("trees")["trees"] if tree["state"] == "network"
                 and not tree["name"].endswith(".multicast")]
        self.trees = [self._tree(tree["nodes"]) for tree in found]
        self.names = [tree["name"] for tree in found]

    @staticmethod
    def _tree(nodes):
        """Makes of the manager's list of nodes: {"root", "parents": {switch: parent}, "hosts":
        {switch: its hosts}}.
        """
        names = [node["switch"] for node in nodes]
        parents = {node["switch"]: names[node["parent"]] if "parent" in node else None
                   for node in nodes}
        local = {node["switch"]: int(node["local"], 16) for node in nodes}
        return {"root": next(switch for switch, parent in parents.items() if parent is None),
                "parents": parents,
                "hosts": {switch: [host for host in range(ranks.bit_length()) if ranks >> host & 1]
                          for switch, ranks in local.items() if ranks}}

    def draw(self):
        lines = []
        for number, tree in enumerate(self.trees):
            jobs = f" of {self.names[number]}" if len(set(self.names)) > 1 else ""
            if len(self.trees) > 1:
                lines.append(f"tree {number + 1} of {len(self.trees)}{jobs}")
            children = {}
            for switch, parent in sorted(tree["parents"].items()):
                children.setdefault(parent, []).append(switch)
            lines += self._subtree(tree, children, tree["root"], "", "")
        return "\n".join(lines)

    def _subtree(self, tree, children, switch, first, rest):
        hosts = " ".join(f"h{host}" for host in tree["hosts"].get(switch, []))
        lines = [f"{first}{switch}" + (f"  {hosts}" if hosts else "")]
        below = children.get(switch, [])
        for i, child in enumerate(below):
            last = i == len(below) - 1
            lines += self._subtree(tree, children, child, rest + ("└─ " if last else "├─ "),
                                   rest + ("   " if last else "│  "))
        return lines


class Watch:
    """
    Follows the results at a switch of the job's tree: the progress of the job, and the longest time
    without a result.

    target: the switch that will be struck; another one is asked.
    """

    def __init__(self, fabric, expected, target):
        self.fabric = fabric
        self.expected = expected
        self.switches = [switch for switch in fabric.topology.switches if switch != target]
        self.at = None
        self.total = self.last = 0
        self.changed = time.monotonic()
        self.since = None
        self.outage = None

    def _results(self, switch):
        """Returns how many results the switch has of the job; None if it does not have the job."""
        try:
            jobs = self.fabric.ask(switch, "jobs.list")["jobs"]
        except LabError:
            jobs = []
        return sum(job["stats"]["results"] for job in jobs) if jobs else None

    def _look_elsewhere(self):
        for switch in self.switches:
            results = self._results(switch)
            if results is not None:
                self.at, self.last = switch, results
                return results
        return 0

    def look(self):
        """Returns approximately the share of the results that exist."""
        results = None if self.at is None else self._results(self.at)
        if results is None:
            results = self._look_elsewhere()
        now = time.monotonic()
        if results < self.last:
            self.last = 0  # the job was created again
        if results > self.last:
            self.total += results - self.last
            if self.since is not None:
                self.outage = max(self.outage or 0.0, now - self.changed)
            self.last = results
            self.changed = now
        return self.total / self.expected


def strike(fabric, options, ranks):
    """Kills or freezes the target. Returns this in words."""
    target = options.kill or options.freeze
    if target == "manager":
        process = fabric.manager
    elif host_of(target) is not None:
        process = ranks[host_of(target)]
    else:
        process = fabric.process_of(target)
    if options.freeze:
        process.popen.send_signal(signal.SIGSTOP)
        return f"{target} frozen"
    process.popen.kill()
    process.popen.wait()
    if target == "manager":
        fabric.start_manager()
        return "manager killed and started again"
    return f"{target} killed"


def follow(fabric, options, ranks, watch, before, screen):
    """Waits for all ranks, and strikes in mid-run if asked to. Returns in words what it struck, or
    None, and the trees afterwards.
    """
    deadline = time.monotonic() + options.timeout
    struck, after = None, None
    while any(rank.running() for rank in ranks):
        if time.monotonic() > deadline:
            raise LabError(f"the job is not done after {options.timeout} s")
        part = watch.look()
        screen.progress(part, f"{watch.total} of {watch.expected} blocks")
        if struck is None and (options.kill or options.freeze) and part >= KILL_AT:
            watch.since = time.monotonic()
            struck = strike(fabric, options, ranks)
            screen.say(struck)
        elif struck and after is None and watch.outage is not None:
            trees = trees_of(fabric, options)
            if not options.leaders and len(
                    trees.trees) == len(before.trees) and trees.trees != before.trees:
                after = trees.trees
                screen.say(trees.draw())
        time.sleep(POLL_SECONDS)
    screen.clear()
    return struck, after


def start_ranks(fabric, options, transport, warmup, more, job):
    return [fabric.spawn_named(host, job, host, options.hosts, collective=options.collective,
                               bytes=options.bytes,
                               dtype=options.dtype, op=options.op, data=options.data,
                               seed=options.seed, warmup=warmup,
                               iters=options.iters, check=True, transport=transport,
                               handler=options.handler,
                               reproducible=options.reproducible, no_stagger=options.no_stagger,
                               no_fallback=not options.ring,
                               trees=options.trees,
                               multicast="always" if options.multicast else None,
                               accumulate=None
                               if options.accumulate == "native" else options.accumulate, **more)
            for host in range(options.hosts)]


def trees_of(fabric, options):
    return leaders.Places(fabric) if options.leaders else Trees(fabric)


def first_trees(fabric, options, ranks):
    """Returns the trees of all jobs as soon as these are installed; without trees their switches.
    """
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        trees = trees_of(fabric, options)
        if len(set(trees.names)) == options.jobs:
            return trees
        if not any(rank.running() for rank in ranks):
            break
        time.sleep(POLL_SECONDS)
    ended = [fabric.perf_report(rank)["error"] for rank in ranks if not rank.running()]
    errors = sorted({"a rank has ended without an error" if error is None else error["message"]
                     for error in ended})
    raise LabError("the manager has made no tree for the job: "
                   + "; ".join(errors or ["no rank has ended"]))


def verdict_on_loss(result, reports, victim):
    """Judges a run in which a host was killed: the others have to report it. Completes the result.
    """
    others = [report for rank, report in enumerate(reports) if rank != victim]
    named = [report for report in others if report.get("error")
             and victim in report["error"].get("missing", [])]
    result["ok"] = len(named) == len(others)
    if named:
        result["ended"] = named[0]["error"]["message"]
    result["error"] = None if result["ok"] else (
        f"host {victim} was killed, and {len(others) - len(named)} of {len(others)} others do not "
        f"miss it: {result['error']}")


def drops_of(fabric, but):
    """Returns {reason: packets} of all running switches, except for one that can't be asked."""
    drops = {}
    for switch, process in [*fabric.switches.items(), *fabric.servers.items()]:
        if process.running() and switch != but:
            for name, count in fabric.drops(switch).items():
                drops[name] = drops.get(name, 0) + count
    return {name: count for name, count in drops.items() if count > 0}


def run_tree(fabric, options, ranks, warmup, screen):
    """Runs the job in its trees, and strikes if asked to. Returns the result so far."""
    target = options.kill or options.freeze
    trees = first_trees(fabric, options, ranks)
    screen.say(trees.draw())
    job = fabric.ask(trees.trees[0]["switches"][0] if options.leaders else trees.trees[0]["root"],
                     "jobs.list")["jobs"][0]
    parts = options.hosts if options.collective == "allgather" else 1
    blocks = max(1, parts * -(
        -options.block_bytes // parts // job["payload_bytes"])) * (options.iters
                                                                   + warmup) * options.jobs
    if options.leaders:
        watch = leaders.Watch(fabric, blocks, target, options.freeze)
    else:
        watch = serving.Watch(fabric, blocks,
                              options.freeze) if options.serving else Watch(fabric, blocks, target)
    struck, after = follow(fabric, options, ranks, watch, trees, screen)
    if target and struck is None:
        raise LabError(f"the job was over before {target} could be struck: give it more --bytes or "
                       "--iters")
    told = {"trees": trees.trees, "trees_after": after, "struck": struck,
            "outage_seconds": None if watch.outage is None else round(watch.outage, 3)}
    if options.leaders:
        told.update({"trees": [],
                     "job_switches": sorted({switch for job in trees.trees
                                             for switch in job["switches"]}),
                     "aggregation": watch.of(fabric.topology.switches, leaders.COUNTERS),
                     "aggregators": options.aggregators,
                     "window": job["window"]})
    if options.serving:
        counts = watch.of(fabric.topology.servers, serving.SERVER_COUNTERS)
        told.update({"servers": {name: {"at": switch, "counters": counts[name]} for name,
                                 switch in fabric.topology.servers.items()},
                     "aggregation": watch.of(fabric.topology.switches, serving.SWITCH_COUNTERS),
                     "aggregators": options.aggregators,
                     "window": job["window"],
                     "seconds_after": None
                     if watch.since is None else time.monotonic() - watch.since})
    return told


def run_ring(options, ranks):
    deadline = time.monotonic() + options.timeout
    while any(rank.running() for rank in ranks):
        if time.monotonic() > deadline:
            raise LabError(f"the ring is not done after {options.timeout} s")
        time.sleep(POLL_SECONDS)
    return {"trees": [], "trees_after": None, "struck": None, "outage_seconds": None}


def add_job(result, other, number):
    """Adds the result of a further job."""
    result.setdefault("further_jobs",
                      []).append({key: other[key]
                                  for key in ("ok", "mismatches", "goodput_gbps", "retransmits",
                                              "seconds",
                                                                             "error")})
    result["mismatches"] += other["mismatches"]
    if not other["ok"]:
        result["ok"] = False
        result["error"] = "; ".join(filter(None,
                                           [result["error"], f"job {number}: {other['error']}"]))


def demonstrate(options, screen, config, warmup, summarise, more):
    """
    Runs the demonstration: returns the result, as --json prints it. more: options of fanin-perf.

    Jobs with leaders that continue without the struck switch are run once more with a tree that the
    manager moves: "outage_of_tree" is that tree's outage.
    """
    result = demonstrate_once(options, screen, config, warmup, summarise, more)
    if options.leaders and result["struck"] and result["ok"] and "ended" not in result:
        screen.say("the same once more with a tree that the manager moves")
        moved = demonstrate_once(leaders.with_tree(options), screen, config, warmup, summarise,
                                 more)
        result["outage_of_tree"] = moved["outage_seconds"]
        if not moved["ok"]:
            result["ok"], result["error"] = False, f"with a tree: {moved['error']}"
    return result


def demonstrate_once(options, screen, config, warmup, summarise, more):
    topology = make_topology(options)
    target = options.kill or options.freeze
    if target:
        check_target(topology, options.hosts, target)
    if options.sparse is not None:
        config = {**config, "limits": SPARSE_LIMITS}
    if options.serving or options.leaders:
        config = serving.switch_config(options, config)
    if options.leaders and options.jobs > 1 and options.transport == "auto":
        screen.say("hosts are on packet sockets: on UDP sockets an address takes part in one job "
                   "whose hosts lead blocks")
        options.transport = "af_packet"
    with Fabric(topology, options.transport, options.mtu, config, options.keep_logs) as fabric:
        if options.keep_logs:
            screen.say(f"logs: {fabric.directory}")
        fabric.start()
        # The manager makes no tree for hosts without a place.
        fabric.start_manager(hosts=[] if options.ring else None)
        homes = ", each linked to two leaves" if options.dual_homed else ""
        switches = "one switch" if len(
            topology.switches) == 1 else f"{len(topology.switches)} switches"
        servers = "".join(f", server {name} at {switch}" for name,
                          switch in topology.servers.items())
        screen.say(f"{options.hosts} hosts{homes}, {switches}, a manager, "
                   f"{ports_text(options.transport)}, MTU {fabric.mtu}{servers}")
        if options.reproducible and len(topology.switches) > 1:
            screen.say("hosts at the leaves: "
                       + ", ".join(f"{topology.switch_of.count(leaf)} at {leaf}"
                                   for leaf in topology.switches
                                                           if leaf in topology.switch_of)
                       + ", since the order of ranks of a reproducible sum halves a power of two "
                         "of them")
        if target in topology.switch_of and not options.dual_homed:
            screen.say(f"the hosts of {target} have no other link: the job can't go on without it")
        traffic = Traffic(fabric)
        started = time.monotonic()
        ranks = []
        for number in range(options.jobs):
            ranks += start_ranks(fabric, options, "auto" if options.ring else options.transport,
                                 warmup, more,
                                 JOB if number == 0 else f"{JOB}-{number + 1}")
        told = run_ring(options, ranks) if options.ring else run_tree(fabric, options, ranks,
                                                                      warmup, screen)
        seconds = time.monotonic() - started
        moved = options.bytes * (options.iters + warmup) * options.jobs
        carried = traffic.parts(moved) if options.bytes else None
        reports = [fabric.perf_report(rank) for rank in ranks]
        others = [reports[i:i + options.hosts]
                  for i in range(options.hosts, len(reports), options.hosts)]
        reports = reports[:options.hosts]
        drops = drops_of(fabric, options.freeze)
        if options.freeze:
            fabric.process_of(options.freeze).popen.send_signal(signal.SIGCONT)
        result = summarise(options, reports, {
            "ping": None, "drops": drops,
            "bytes_received": int(sum(back for _, back in carried["hosts"].values()) * moved)
            if carried else None,
            "wall_seconds": round(seconds, 3), "topology": options.topology,
            "switches": topology.switches, "trees_asked": options.trees,
            "trees_reason": next((report["trees_reason"] for report in reports
                                  if report.get("trees_reason")), None),
            "dual_homed": options.dual_homed,
            "rebuilt": max((report.get("resumed") or 0 for report in reports), default=0),
            "traffic": carried, "jobs": options.jobs, **told})
        for number, further in enumerate(others):
            add_job(result, summarise(options, further, {"ping": None, "bytes_received": None}),
                    number + 2)
        if options.serving:
            result["congestion"] = serving.told_to_hosts([report for job in [reports, *others]
                                                          for report in job])
        if target and host_of(target) is not None:
            verdict_on_loss(result, reports, host_of(target))
        elif options.leaders and not leaders.can_go_on(topology, target, options.dual_homed):
            leaders.verdict_on_end(result, reports, topology, target)
        elif options.serving and target not in (None,
                                                "manager") and not serving.can_go_on(topology,
                                                                                     target):
            serving.verdict_on_end(result, reports, target, result["seconds_after"])
        result["mtu"] = fabric.mtu
        return result


def print_network(result):
    """Prints the lines of a result that only several switches have."""
    roots = ", ".join(tree["root"] for tree in result["trees"])
    count = len(result["trees"])
    switches = "one switch" if len(
        result["switches"]) == 1 else f"{len(result['switches'])} switches"
    trees = f"{count} tree{'s' if count != 1 else ''}, root {roots}" if count else "no tree"
    print(f"  {switches}, " + (f"{trees}: a leader for each block, the job on "
                               f"{len(result['job_switches'])} of them"
                               if "job_switches" in result else trees))
    if result["traffic"] and not result["struck"]:
        print(f"  links carried at most {most(result['traffic']['hosts']):.3f} of the vector to or "
              f"from a host, {most(result['traffic']['switches']):.3f} between switches")
    for number, job in enumerate(result.get("further_jobs", [])):
        rates = ", ".join(f"{rate:.3f}" if rate else "-" for rate in job["goodput_gbps"])
        print(f"  job {number + 2} at the same time: {'exact' if job['ok'] else job['error']}, "
              f"{rates} Gbit/s, {job['retransmits']} retransmits")
    if "servers" in result:
        serving.print_serving(result)
    elif "job_switches" in result:
        leaders.print_leaders(result)
    if result["trees"] and count < result["trees_asked"]:
        print(f"  {result['trees_asked']} trees were asked for: {result['trees_reason']}")
    if result["struck"]:
        outage = "" if result[
            "outage_seconds"] is None else f", {result['outage_seconds']:.2f} s without results at most"
        if result.get("outage_of_tree") is not None:
            outage += f"; {result['outage_of_tree']:.2f} s with a tree that the manager moved"
        times = "once" if result["rebuilt"] == 1 else f"{result['rebuilt']} times"
        moved = f"moved to another tree {times}" if result[
            "rebuilt"] else "the job did not have to move"
        if "end_seconds" in result:
            print(f"  {result['struck']}: the hosts ended after {result['end_seconds']:.2f} s: "
                  f"{result['ended']}")
        elif "ended" in result:
            print(f"  {result['struck']}: the others ended: {result['ended']}")
        else:
            print(f"  {result['struck']}: {moved}{outage}")
        if result["trees_after"]:
            print(f"  afterwards the root was "
                  f"{', '.join(tree['root'] for tree in result['trees_after'])}, hosts were at "
                  f"{', '.join(sorted({switch for tree in result['trees_after'] for switch in tree['hosts']}))}")
