# SPDX-License-Identifier: BSD-3-Clause
"""./dev demo --mpi: an MPI program that knows nothing of Fanin, started by mpirun on hosts in
network namespaces as user nobody, at MTU 1500: by MPI alone, with the library to preload, and with
Open MPI's component. Every element is checked, and the reports say where the collectives ran.
"""

import argparse
import json
import statistics
import sys

from lab import namespaces as laboratory
from lab.fabric import Fabric, single
from lab.namespaces import BUILD_DIR, DEFAULT_MTU, NOBODY, Interrupted, LabError
from lab.mpi import MpiHosts, component_is_built

PROGRAM = "collective-mpi"
WARMUP = 2
MAX_HOSTS, MAX_RANKS_PER_HOST = 16, 4
RUN_SECONDS = 120
LIMITS = {"limits": {}}  # as a switch has them by default


def parse(arguments, byte_count, whole_number, parser_class):
    parser = parser_class(prog="./dev demo --mpi", description=__doc__, allow_abbrev=False,
                          formatter_class=argparse.ArgumentDefaultsHelpFormatter)
    parser.add_argument("--mpi", action="store_true", required=True, help="this demonstration")
    parser.add_argument("--hosts", type=whole_number(2, MAX_HOSTS), default=4, metavar="N")
    parser.add_argument("--ranks-per-host", type=whole_number(1, MAX_RANKS_PER_HOST), default=1,
                        metavar="N")
    parser.add_argument("--bytes", type=byte_count, default=1 << 20, metavar="B",
                        help="of the vector of f32 that is summed")
    parser.add_argument("--iters", type=whole_number(1, 10000), default=50, metavar="N")
    parser.add_argument("--json", action="store_true", help="print one JSON object")
    return parser.parse_args(arguments)


def summary(printed):
    """Returns the measurements of a run of the program."""
    found = json.loads(printed.splitlines()[-1])
    return {"mismatches": found["mismatches"], "seconds": statistics.median(found["times"])}


def bytes_in_network(report):
    return sum(entry["bytes"] for entry in report["collectives"] if entry["in_network"])


def demonstrate(options):
    program = BUILD_DIR / "lab" / "bench" / "peers" / PROGRAM
    if not program.exists():
        raise LabError(f"{program} does not exist: Open MPI was missing when the build was "
                       f"configured; meson setup --reconfigure {BUILD_DIR} looks again")
    with Fabric(single(options.hosts), "auto", DEFAULT_MTU["udp"], LIMITS) as fabric:
        fabric.start()
        fabric.start_manager()
        hosts = MpiHosts(fabric)
        arguments = ("allreduce", options.bytes, options.iters, WARMUP)
        more = {"ranks_per_host": options.ranks_per_host, "timeout": RUN_SECONDS}
        plain = summary(hosts.run("openmpi", program, *arguments, preload=False, **more))
        printed, report = hosts.run_reported("openmpi", program, *arguments, **more)
        preloaded = summary(printed)
        component = None
        if component_is_built(fabric):
            printed, component_report = hosts.run_reported("component", program, *arguments, **more)
            component = {**summary(printed), "report": component_report}
        frames = fabric.port_counters("switch0")
    in_network = bytes_in_network(report)
    runs = [plain, preloaded, *([component] if component else [])]
    wrong = sum(run["mismatches"] for run in runs)
    ok = wrong == 0 and in_network != 0 and (component is None
                                             or bytes_in_network(component["report"]) != 0)
    return {"ok": ok, "hosts": options.hosts, "ranks_per_host": options.ranks_per_host,
            "bytes": options.bytes, "iters": options.iters,
            "mtu": fabric.mtu, "mpi": plain, "fanin": preloaded, "component": component,
            "ratio": plain["seconds"] / preloaded["seconds"], "in_network_bytes": in_network,
            "report": report, "switch_rx_bytes": sum(port["rx_bytes"] for port in frames.values()),
            "switch_rx_super_frames": sum(port["super_frames"]["rx"] for port in frames.values()),
            "error": None if ok else f"{wrong} elements are wrong"
            if wrong else "nothing went into the network"}


def print_table(result):
    print(f"MPI_Allreduce of {result['bytes']} bytes of f32 by "
          f"{result['hosts'] * result['ranks_per_host']} ranks on {result['hosts']} hosts, "
          f"{result['iters']} times, by Open MPI's mpirun; hosts without rights (user {NOBODY}), "
          f"MTU {result['mtu']}\n")
    print(f"  {'':<24}{'median time':>14}{'goodput':>18}{'mismatches':>13}")
    for name, key in (("Open MPI", "mpi"), ("with Fanin preloaded", "fanin"),
                      ("with Fanin's component", "component")):
        run = result[key]
        if run is None:
            print(f"  {name:<24} not built: libopenmpi-dev has no headers of components")
            continue
        print(f"  {name:<24}{run['seconds'] * 1e6:>11.0f} "
              f"us{result['bytes'] * 8 / run['seconds'] / 1e9:>11.3f} Gbit/s{run['mismatches']:>13}")
    print("\n  where its collectives went when preloaded, of all ranks:")
    for entry in result["report"]["collectives"]:
        way = entry["reason"] if entry["in_network"] else f"MPI: {entry['reason']}"
        print(f"    {entry['call']:<22}{entry['calls']:>8} calls {entry['bytes']:>14} bytes  {way}")
    print("\n  the same program, not compiled anew: every element is right"
          if result["ok"] else f"\n  FAILED: {result['error']}")


def main(arguments, byte_count, whole_number, parser_class):
    options = parse(arguments, byte_count, whole_number, parser_class)
    try:
        result = demonstrate(options)
    except Interrupted as error:
        return laboratory.report_interruption(error)
    except (LabError, OSError) as error:
        if options.json:
            print(json.dumps({"ok": False, "hosts": options.hosts, "bytes": options.bytes,
                              "error": str(error)}))
        else:
            print(f"fanin-demo: {error}", file=sys.stderr)
        return 1
    if options.json:
        print(json.dumps(result))
    else:
        print_table(result)
    return 0 if result["ok"] else 1
