#!/usr/bin/python3
# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration: hosts sum a vector, or run another collective, through one fanin-switch, and
every element is checked.

Progress goes to standard error, the result to standard output. Exit status: 0 all exact, 1
something failed, 2 usage.
"""

import argparse
import json
import os
import re
import signal
import sys
import time

from lab import namespaces as laboratory
from lab.demo import leaders
from lab.demo import mpi_demo
from lab.demo import network
from lab.demo import serving
from lab.demo import training
from lab.namespaces import Interrupted, Lab, LabError, wait_until

BYTE_UNITS = {"": 1, "B": 1, "K": 1 << 10, "KIB": 1 << 10, "M": 1 << 20, "MIB": 1 << 20,
              "G": 1 << 30,
              "GIB": 1 << 30, "KB": 10**3, "MB": 10**6, "GB": 10**9}
DTYPE_BYTES = {"i8": 1, "i16": 2, "i32": 4, "i64": 8, "u8": 1, "u16": 2, "u32": 4, "u64": 8,
               "f16": 2, "bf16": 2,
               "f32": 4, "f64": 8, "complex-f32": 8}
OPS = ("sum", "prod", "min", "max", "land", "lor", "lxor", "band", "bor", "bxor", "avg")
# Collectives that combine elements; those in which each host has a part of its own.
COMBINING = ("allreduce", "reduce", "reduce_scatter")
IN_PARTS = ("reduce_scatter", "allgather")
COLLECTIVES = (*COMBINING, "broadcast", "allgather", "barrier")
SPARSE_HANDLERS = ("sparse", "sparse-array", "sparse-hash")
# Data types for which --accumulate f32 makes a difference.
WIDE_DTYPES = ("f16", "bf16")
WIDE_OPS = ("sum", "avg")
FLOATS = ("f16", "bf16", "f32", "f64")
INTEGER_OPS = ("land", "lor", "lxor", "band", "bor", "bxor")
# Custom operators, by their data types.
CUSTOM_OPS = {"complex-f32": ("prod",)}
MAX_BYTES = 4 << 30
MAX_XDP_MTU = 3474
# Allreduces before the measured ones: in the first one the hosts touch their memory for the first
# time. They are checked like all others.
WARMUP = 1


def byte_count(text):
    match = re.fullmatch(r"(\d+)\s*([A-Za-z]*)", text)
    if match is None or match.group(2).upper() not in BYTE_UNITS:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a number of bytes like 65536, "
                                         "64KiB or 64MiB")
    count = int(match.group(1)) * BYTE_UNITS[match.group(2).upper()]
    if not 0 < count <= MAX_BYTES:
        raise argparse.ArgumentTypeError(f"found '{text}', expected 1 byte to 4GiB")
    return count


def whole_number(low, high):
    def parse(text):
        if not re.fullmatch(r"\d+", text) or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from {low} "
                                             f"to {high}")
        return int(text)
    return parse


def share(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 0.5:
        raise argparse.ArgumentTypeError(f"found '{text}', expected a share from 0 to 0.5")
    return value


def density(text):
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= 1:
        raise argparse.ArgumentTypeError(
            f"found '{text}', expected a number above 0, and 1 at most")
    return value


def ops_of(dtype):
    """Returns the operators that are defined on a data type."""
    return CUSTOM_OPS.get(dtype) or [op for op in OPS if dtype not in FLOATS
                                     or op not in INTEGER_OPS]


def check_sparse(parser, options):
    """Checks that the other options allow sparse vectors."""
    if options.sparse is None:
        if options.handler in SPARSE_HANDLERS:
            parser.error(f"argument --handler: found {options.handler}, expected --sparse with it")
        return
    if options.handler not in SPARSE_HANDLERS:
        parser.error(f"argument --handler: found {options.handler} with --sparse, expected one of "
                     f"{', '.join(SPARSE_HANDLERS)}")
    if options.op == "avg" or options.dtype in CUSTOM_OPS:
        parser.error(f"argument --sparse: found {options.op} of {options.dtype}, expected another "
                     "operator: this one is not defined on "
                     "sparse vectors")
    for name, given, why in (("--collective", options.collective != "allreduce",
                              "other collectives have dense vectors only"),
                             ("--reproducible", options.reproducible,
                              "sparse sums have no fixed order"),
                             ("--accumulate", options.accumulate != "native",
                              "sparse sums are those of the data type")):
        if given:
            parser.error(f"argument --sparse: found {name} with it, expected it to be left out: "
                         f"{why}")


class Parser(argparse.ArgumentParser):
    """Prints one clear line instead of argparse's usage text."""

    def error(self, message):
        print(f"fanin-demo: {message}", file=sys.stderr)
        sys.exit(2)


def parse_arguments(arguments):
    parser = Parser(prog="./dev demo",
                    description="Hosts in network namespaces, or with memif as processes beside "
                                "it, sum a vector through one switch.",
                    epilog="With --torch workers train a small network with PyTorch instead, over "
                           "Fanin and over Gloo in turns: ./dev demo --torch --help.",
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False)
    parser.add_argument("--topology", choices=["single", *network.TOPOLOGIES], default="single",
                        help="several switches, with a network manager: leaves below spines, or "
                             "three levels")
    parser.add_argument("--hosts", type=whole_number(2, laboratory.MAX_HOSTS),
                        default=argparse.SUPPRESS, metavar="N",
                        help="(default: 4; 8 with leaf-spine, 16 with tree3)")
    network.add_arguments(parser, whole_number)
    serving.add_arguments(parser, whole_number)
    parser.add_argument("--mpi", action="store_true",
                        help="another demonstration: an MPI program as it is, by mpirun; --mpi "
                             "--help lists its options")
    parser.add_argument("--collective", choices=COLLECTIVES, default="allreduce")
    parser.add_argument("--bytes", type=byte_count, default=argparse.SUPPRESS, metavar="B",
                        help="of the vector; with reduce_scatter and allgather of all hosts' parts "
                             "together (default: 64MiB; 16MiB with leaf-spine, 4MiB with tree3)")
    parser.add_argument("--dtype", choices=sorted(DTYPE_BYTES), default="f32")
    parser.add_argument("--op", choices=OPS, default="sum",
                        help="integers have all, floating-point numbers none of "
                        + ", ".join(INTEGER_OPS) +
                             "; complex-f32 is a custom operator's type and has prod only")
    parser.add_argument("--sparse", type=density, default=None, metavar="D",
                        help="allreduce of sparse vectors: each host has values at this part of "
                             "the indices, like 0.01")
    parser.add_argument("--transport", choices=["auto", "af_xdp", "af_packet", "udp", "memif"],
                        default="auto",
                        help="auto: as switch and hosts choose by themselves; udp: hosts are on "
                             "UDP sockets, and the switch's ports are af_packet; in both hosts are "
                             "user nobody; memif: hosts are processes that share memory with the "
                             "switch")
    parser.add_argument("--mtu", type=whole_number(1280, 9000), metavar="BYTES",
                        help="of all links; 3474 with af_xdp, 1500 with udp, 9000 with the others "
                             "if not given")
    parser.add_argument("--loss", type=share, default=0.0, metavar="P",
                        help="share of packets that the switch drops, as many it duplicates, as "
                             "many it reorders")
    parser.add_argument("--data", choices=["exact", "random"], default="exact",
                        help="random: floating-point numbers whose sum depends on the order; needs "
                             "--reproducible")
    parser.add_argument("--seed", type=whole_number(0, 2**32 - 1), default=1,
                        help="of --loss and --data")
    parser.add_argument("--workers", type=whole_number(1, 8), default=1,
                        help="threads of the switch")
    parser.add_argument("--cluster-size", type=whole_number(1, 8), default=1, metavar="S",
                        help="threads that may share a block")
    parser.add_argument("--handler",
                        choices=["auto", "single", "multi", "tree", "broadcast", "pull", "push",
                                 *SPARSE_HANDLERS, *serving.HANDLERS, *leaders.HANDLERS],
                        default=argparse.SUPPRESS,
                        help="how the switch aggregates; auto chooses by --bytes, push has a small "
                             "table, pa-atp works with parameter servers, canary without a tree "
                             "(default: single, auto with --reproducible, sparse with --sparse)")
    parser.add_argument("--buffers", type=whole_number(2, 8), default=2, metavar="B",
                        help="per block, with multi")
    parser.add_argument("--reproducible", action="store_true",
                        help="floating-point sums in a fixed order: needs the handler tree or auto")
    parser.add_argument("--accumulate", choices=["native", "f32"], default="native",
                        help="f32: f16 and bf16 sums and averages in f32, rounded once")
    parser.add_argument("--no-stagger", action="store_true",
                        help="hosts send in order instead of rotated by rank")
    parser.add_argument("--iters", type=whole_number(1, 10000), default=1,
                        help="collectives in a row")
    parser.add_argument("--timeout", type=whole_number(1, 3600), default=300, metavar="S",
                        help="for the whole job")
    parser.add_argument("--json", action="store_true",
                        help="print one JSON object and nothing else")
    parser.add_argument("--keep-logs", action="store_true",
                        help="leave the programs' output in a directory")
    options = parser.parse_args(arguments)
    options.hosts = getattr(options, "hosts", None) or network.DEFAULT_HOSTS.get(options.topology,
                                                                                 4)
    bytes_given = "bytes" in options
    network.check_arguments(parser, options)
    if not bytes_given:
        options.bytes = byte_count(network.DEFAULT_BYTES.get(options.topology,
                                                             network.SERVING_BYTES
                                                             if options.serving else "64MiB"))
    if options.op not in ops_of(options.dtype):
        parser.error(f"argument --op: found {options.op} for {options.dtype}, expected one of "
                     f"{', '.join(ops_of(options.dtype))}")
    if options.accumulate == "f32" and (options.dtype not in WIDE_DTYPES
                                        or options.op not in WIDE_OPS):
        parser.error(f"argument --accumulate: found f32 for {options.op} of {options.dtype}, "
                     f"expected --op {' or '.join(WIDE_OPS)} and --dtype "
                     f"{' or '.join(WIDE_DTYPES)}: it changes nothing else")
    if options.accumulate == "f32" and options.topology != "single":
        parser.error(f"argument --accumulate: found f32 with the topology {options.topology}, "
                     "whose hosts are at several switches, expected "
                     "native, or --topology single: sums between switches are in the data type")
    if options.accumulate == "f32" and options.collective not in COMBINING:
        parser.error(f"argument --accumulate: found f32 for {options.collective}, expected one of "
                     f"{', '.join(COMBINING)}")
    if options.data == "random" and options.collective != "allreduce":
        parser.error(f"argument --data: found random for {options.collective}, expected "
                     "--collective allreduce, whose results "
                     "are the same on all hosts")
    size = DTYPE_BYTES[options.dtype]
    if options.collective == "barrier":
        options.bytes = 0
    if options.collective in IN_PARTS and options.bytes % (size * options.hosts) != 0:
        if bytes_given:
            parser.error(f"argument --bytes: found {options.bytes}, expected a multiple of "
                         f"{size * options.hosts}, one {options.dtype} on each host")
        options.bytes -= options.bytes % (size * options.hosts)
    if options.bytes % size != 0:
        parser.error(f"argument --bytes: found {options.bytes}, expected a multiple of {size}, "
                     f"the size of one {options.dtype}")
    if options.mtu is not None and options.transport == "af_xdp" and options.mtu > MAX_XDP_MTU:
        parser.error(f"argument --mtu: found {options.mtu}, expected at most {MAX_XDP_MTU}: AF_XDP "
                     "keeps a frame and "
                     "its book-keeping in one page")
    if options.workers % options.cluster_size != 0:
        parser.error(f"argument --cluster-size: found {options.cluster_size}, expected a divisor "
                     f"of --workers, {options.workers}")
    if "handler" not in options:
        options.handler = "sparse" if options.sparse else "auto" if options.reproducible else "single"
    check_sparse(parser, options)
    if options.accumulate == "f32" and options.handler == "push":
        parser.error("argument --accumulate: found f32 with the handler push, expected native: its "
                     "sums are those of the data type")
    if options.reproducible and options.handler not in ("auto", "tree"):
        parser.error(f"argument --reproducible: found the handler {options.handler}, expected tree "
                     "or auto")
    if options.data == "random" and (options.op != "sum" or options.dtype not in FLOATS):
        parser.error(f"argument --data: found random for {options.op} of {options.dtype}, expected "
                     f"the sum of one of {', '.join(FLOATS)}")
    # For the progress: the number of sparse blocks is about the number of packets that values and
    # indices fill.
    options.block_bytes = options.bytes if options.sparse is None else int(
        min(1, 1.7 * options.sparse) * options.bytes)
    if options.data == "random" and not options.reproducible:
        parser.error("argument --data: found random, whose sum can be checked in a fixed order "
                     "only, expected --reproducible with it")
    return options


class Screen:
    """The output for a person while the job runs, on standard error: whole lines, or one that is
    rewritten on a terminal.
    """

    def __init__(self, quiet=False):
        self.terminal = sys.stderr.isatty() and not quiet
        self.quiet = quiet
        self.drawn = False

    def say(self, text):
        self.clear()
        if not self.quiet:
            print(text, file=sys.stderr, flush=True)

    def progress(self, part, text):
        if not self.terminal:
            return
        width = 32
        filled = int(width * min(part, 1.0))
        print(f"\r\033[K[{'#' * filled}{'.' * (width - filled)}] {100 * min(part, 1.0):3.0f} %  "
              f"{text}", end="",
              file=sys.stderr, flush=True)
        self.drawn = True

    def clear(self):
        if self.drawn:
            print("\r\033[K", end="", file=sys.stderr, flush=True)
            self.drawn = False


class Ping:
    """ping from one host to another for as long as something else runs."""

    REPLY = re.compile(r"icmp_seq=(\d+) .*time=")

    def __init__(self, lab, source=0, target=1, interval=0.05):
        self.process = lab.spawn(source, ["ping", "-n", "-i", interval, lab.host_ip(target)],
                                 "ping")
        wait_until(self._answered, 10,
                   f"the first reply to ping from host {source} to host {target}")

    def _answered(self):
        if not self.process.running():
            raise LabError(f"ping: {self.process.last_words()}")
        return self.replies()

    def replies(self):
        return [int(number) for number in self.REPLY.findall(self.process.stdout())]

    def stop(self):
        """Ends ping and returns its result. Requests after the last reply are left out: they are
        still under way.
        """
        before = max(self.replies())
        try:
            wait_until(lambda: max(self.replies()) > before, 5, "one more reply")
            silent = False
        except LabError:
            silent = True
        self.process.stop(signal.SIGINT)
        text = self.process.stdout()
        replies = set(self.replies())
        sent = int(re.search(r"(\d+) packets transmitted",
                             text).group(1)) if silent else max(replies)
        average = re.search(r"= [\d.]+/([\d.]+)/", text)
        return {"sent": sent, "received": len(replies),
                "rtt_ms_avg": float(average.group(1)) if average else None}


def switch_config(options):
    config = {}
    if options.loss > 0:
        config["faults"] = {"drop": options.loss, "duplicate": options.loss,
                            "reorder": options.loss,
                            "seed": options.seed}
    if options.workers > 1:
        cpus = os.cpu_count() or 1
        config["workers"] = [{"lcore": lcore, "cpu": lcore % cpus}
                             for lcore in range(options.workers)]
        config["scheduling"] = {"cluster_size": options.cluster_size}
    return config


def lab_for(options):
    return Lab(options.hosts, options.transport, options.mtu, switch_config(options),
               options.keep_logs)


def watch(lab, job, ranks, options, screen):
    """Waits for all ranks; LabError if the job takes too long or the switch dies."""
    # Sums in f32 take half a packet.
    payload = job["payload_bytes"] // (2 if options.accumulate == "f32" else 1)
    parts = options.hosts if options.collective == "allgather" else 1
    expected = max(1, parts * -(-options.block_bytes // parts // payload)) * (options.iters
                                                                              + WARMUP)
    deadline = time.monotonic() + options.timeout
    while any(rank.running() for rank in ranks):
        if time.monotonic() > deadline:
            raise LabError(f"the job is not done after {options.timeout} s")
        if not lab.switch.running():
            raise LabError(f"fanin-switch ended: {lab.switch.last_words()}")
        if screen.terminal:
            jobs = [entry for entry in lab.control.ask("jobs.list")["jobs"]
                    if entry["id"] == job["id"]]
            results = jobs[0]["stats"]["results"] if jobs else 0
            screen.progress(results / expected, f"{results} of {expected} blocks")
            time.sleep(0.1)
        else:
            time.sleep(0.02)
    screen.clear()


def sparse_arguments(options):
    """Returns fanin-perf's arguments for a sparse allreduce."""
    return {} if options.sparse is None else {"sparse": True, "density": options.sparse}


def sparse_summary(options, reports, received):
    """
    Returns the savings of a sparse allreduce: payload that all hosts have sent, bytes that they
    received, and the payload of a dense allreduce, which is the same in both directions. received:
    bytes of frames, including headers; None: unknown.
    """
    found = [report["sparse"] for report in reports if report.get("sparse")]
    if options.sparse is None or not found:
        return None
    return {"density": options.sparse,
            "density_in": sum(part["density_in"] for part in found) / len(found),
            "density_out": max(part["density_out"] for part in found),
            "bytes_sent": sum(part["bytes_sent"] for part in found),
            "bytes_received": received,
            "dense_bytes": sum(part["dense_bytes"] for part in found)}


def run_job(lab, options, transport, screen):
    """Runs one job on a running switch, and returns the report, as --json prints it."""
    job = lab.create_job(None, "--handler", options.handler, "--buffers", options.buffers,
                         "--message-bytes",
                         max(options.bytes, 1), "--accumulate", options.accumulate,
                         *(["--reproducible"] if options.reproducible else []))
    # Hosts that share memory with the switch have no kernel interface to ping from.
    ping = None if transport == "memif" else Ping(lab)
    before = lab.frames()
    started = time.monotonic()
    ranks = [lab.spawn_perf(host, job, host, options.hosts, collective=options.collective,
                            bytes=options.bytes,
                            dtype=options.dtype, op=options.op,
                            data=options.data, seed=options.seed, warmup=WARMUP,
                            iters=options.iters, check=True,
                            transport=transport, no_stagger=options.no_stagger,
                            **sparse_arguments(options))
             for host in range(options.hosts)]
    watch(lab, job, ranks, options, screen)
    seconds = time.monotonic() - started
    pings = ping.stop() if ping else None
    after = lab.frames()
    drops = {name: count for name, count in lab.drops().items() if count > 0}
    lab.ctl("jobs", "destroy", job["id"])
    return summarise(options, [lab.perf_report(rank) for rank in ranks], {
        "ping": pings, "drops": drops, "wall_seconds": round(seconds, 3),
        "bytes_received": after["tx_bytes"] - before["tx_bytes"],
        "switch": {key: after[key] - before[key] for key in after}})


def one_of(values):
    """Returns the value that all share, or all of them joined."""
    return "+".join(sorted({str(value) for value in values}))


def summarise(options, reports, extra):
    failed = [f"host {host}: {report['error']['message']}" for host, report in enumerate(reports)
              if report.get("error")]
    done = [report for report in reports if not report.get("error")]
    mismatches = sum(report.get("mismatches") or 0 for report in done)
    pings = extra["ping"]
    result = {
        "ok": False,
        "hosts": options.hosts,
        "collective": options.collective,
        "bytes": options.bytes,
        "dtype": options.dtype,
        "op": options.op,
        "iters": options.iters,
        "data": options.data,
        "reproducible": options.reproducible,
        "mismatches": mismatches,
        # A barrier has no operator.
        "goodput_gbps": [report.get("goodput_gbps") if options.bytes > 0 else None
                         for report in reports],
        "transport": one_of(report["transport"] for report in done),
        "transport_reason": one_of(report.get("transport_reason") for report in done),
        "in_network": len(done) == len(reports)
        and all(report.get("in_network") for report in done),
        "handler": one_of(report.get("handler") for report in done),
        "accumulate": one_of(report.get("accumulate") for report in done),
        "sparse": sparse_summary(options, done, extra.pop("bytes_received")),
        "seconds": max((report.get("seconds") or 0 for report in done), default=0),
        "retransmits": sum(report.get("retransmits") or 0 for report in done),
        "spurious_retransmits": sum(report.get("spurious") or 0 for report in done),
        "ring_drops": sum(report.get("ring_drops") or 0 for report in done),
        "retransmits_per_host": [report.get("retransmits") for report in reports],
        "mismatches_per_host": [report.get("mismatches") for report in reports],
        "transport_per_host": [report.get("transport") for report in reports],
        "digest": one_of(report["digest"] for report in done if report.get("digest")) or None,
        "loss": options.loss,
        "stagger": not options.no_stagger,
        **extra,
    }
    problems = failed[:]
    if mismatches > 0:
        problems.append(f"{mismatches} elements differ from the reference")
    if not failed and not all(report.get("ok") for report in reports):
        problems.append("a host did not report success")
    if not failed and result["accumulate"] != options.accumulate:
        problems.append(f"accumulation was {result['accumulate']}, expected {options.accumulate}")
    if len({report.get("digest") for report in done}) > 1:
        problems.append(f"the hosts' results have different bits, digests {result['digest']}")
    if not failed and result["in_network"] == options.ring:
        problems.append("the collective did not run in "
                        + ("a ring of hosts" if options.ring else "the network"))
    if pings and (pings["received"] == 0 or pings["received"] < pings["sent"]):
        problems.append(f"ping: {pings['sent'] - pings['received']} of {pings['sent']} requests "
                        "got no reply")
    result["ok"] = not problems
    result["error"] = "; ".join(problems) or None
    return result


def demonstrate(options, screen):
    """Runs the demonstration on the requested transport, or on the one that switch and hosts
    choose.
    """
    with lab_for(options) as lab:
        if options.keep_logs:
            screen.say(f"logs: {lab.directory}")
        lab.start_switch()
        screen.say(f"{options.hosts} hosts, one switch, "
                   f"{laboratory.ports_text(options.transport)}, MTU {lab.mtu}")
        result = run_job(lab, options, options.transport, screen)
        result["mtu"] = lab.mtu
        return result


def human_bytes(count):
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count % size == 0:
            return f"{count // size} {unit}"
    return f"{count} bytes"


def cell(value, pattern="{}"):
    return "-" if value is None else pattern.format(value)


def percent(part):
    return f"{100 * part:.3g} %"


def print_sparse(sparse):
    def less(count):
        if not count:
            return "no bytes"
        return f"{count / 1e6:.1f} MB, {sparse['dense_bytes'] / count:.1f} times less"
    print(f"  sparse: values at {percent(sparse['density_in'])} of the indices of each host, at "
          f"{percent(sparse['density_out'])} of the result's")
    received = "" if sparse[
        "bytes_received"] is None else f"; they received {less(sparse['bytes_received'])}"
    print(f"  dense vectors take {sparse['dense_bytes'] / 1e6:.1f} MB each way; the hosts sent "
          f"{less(sparse['bytes_sent'])}{received}")


def print_table(result):
    rounds = "" if result["iters"] == 1 else f", {result['iters']} times"
    operator = f" {result['op']}" if result["collective"] in COMBINING else ""
    kind = "sparse " if result["sparse"] else ""
    vector = "" if result[
        "collective"] == "barrier" else f" of {human_bytes(result['bytes'])} of {result['dtype']}"
    print(f"{kind}{result['collective']}{operator}{vector} on {result['hosts']} hosts{rounds}")
    print()
    print(f"  {'host':<6}{'goodput':>14}{'retransmits':>14}{'transport':>12}{'mismatches':>13}")
    for host in range(result["hosts"]):
        goodput = cell(result["goodput_gbps"][host], "{:.3f} Gbit/s")
        print(f"  {'h' + str(host):<6}{goodput:>14}{cell(result['retransmits_per_host'][host]):>14}"
              f"{cell(result['transport_per_host'][host]):>12}{cell(result['mismatches_per_host'][host]):>13}")
    print()
    if result["in_network"]:
        wide = ", accumulated in f32" if result["accumulate"] == "f32" else ""
        print(f"  in the network: yes, handler {result['handler']}{wide}")
    elif "ended" not in result:
        print("  in the network: no, a ring of the hosts")
    if result["sparse"]:
        print_sparse(result["sparse"])
    if result["reproducible"] and result["ok"]:
        digest = f", digest {result['digest']}" if result["digest"] else ""
        print(f"  reproducible: sums in the order of ranks, the same bits in every run{digest}")
    if result["transport"]:
        print(f"  transport: {result['transport']} "
              f"({result['transport_reason'].removeprefix(result['transport'] + ': ')})")
    frames = result.get("switch")
    if frames:
        print(f"  switch: {frames['rx']} frames in, {frames['tx']} frames out")
    else:
        network.print_network(result)
    ping = result["ping"]
    if ping is None and not frames:
        pass
    elif ping is None:
        print("  ping: none, the hosts have no network interface with memif")
    else:
        average = cell(ping["rtt_ms_avg"], ", {:.2f} ms on average")
        print(f"  ping h0 to h1 meanwhile: {ping['received']} of {ping['sent']} answered{average}")
    if result["loss"] > 0:
        print(f"  faults: {result['loss']:g} of the packets dropped, as many duplicated, as many "
              "reordered")
    if result["drops"]:
        print("  drops: " + ", ".join(f"{name} {count}" for name, count in result["drops"].items()))
    print()
    right = "exact: every element of every host's result is right"
    if "ended" in result:
        right = "ended as it should"
    if result["collective"] == "barrier":
        right = "passed by every host"
    print(f"  {right}, in {result['seconds']:.2f} s" if result["ok"]
          else f"  FAILED: {result['error']}")


def main():
    # Other demonstrations, with options of their own.
    if "--mpi" in sys.argv[1:]:
        return mpi_demo.main(sys.argv[1:], byte_count, whole_number, Parser)
    if "--torch" in sys.argv[1:]:
        return training.main([argument for argument in sys.argv[1:] if argument != "--torch"])
    options = parse_arguments(sys.argv[1:])
    screen = Screen(quiet=options.json and not sys.stderr.isatty())
    try:
        if options.topology == "single" and not options.serving:
            result = demonstrate(options, screen)
        else:
            result = network.demonstrate(options, screen, switch_config(options), WARMUP, summarise,
                                         sparse_arguments(options))
    except Interrupted as error:
        screen.clear()
        return laboratory.report_interruption(error)
    except KeyboardInterrupt:
        return 128 + signal.SIGINT
    except (LabError, OSError) as error:
        screen.clear()
        if options.json:
            print(json.dumps({"ok": False, "hosts": options.hosts, "bytes": options.bytes,
                              "mismatches": None,
                              "goodput_gbps": [], "transport": None, "in_network": False,
                              "retransmits": None,
                              "error": str(error)}))
        else:
            print(f"fanin-demo: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result))
    else:
        print_table(result)
    return 0 if result["ok"] else 1


if __name__ == "__main__":
    sys.exit(main())
