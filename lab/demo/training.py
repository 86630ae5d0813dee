# SPDX-License-Identifier: BSD-3-Clause
"""./dev demo --torch: workers on hosts in network namespaces train a small network with PyTorch as
user nobody, over Fanin and over Gloo, whose TCP has a Linux bridge, in turns, at MTU 1500. Tells
what summing the gradients takes over both.
"""

import argparse
import json
import statistics
import sys
from pathlib import Path

from lab.fabric import MANAGER_IP, MANAGER_PORT, Fabric, single
from lab import namespaces as laboratory
from lab.namespaces import BUILD_DIR, DEFAULT_MTU, HOST_INTERFACE, NOBODY, Interrupted, LabError
from lab.mpi import MANAGEMENT_INTERFACE
from lab.demo.mpi_demo import LIMITS

PACKAGE = BUILD_DIR / "bindings" / "torch"
WORKER = Path(__file__).resolve().parent / "train.py"
SECONDS = 300
# Allowed difference of the losses of both in the first steps, as both add in different orders: it
# grows from step to step.
TOLERANCE, COMPARED = 1e-4, 20
# steps that medians leave out: torch chooses the buckets, and memory is touched for the first time
WARMUP = 2
BOTH = ("fanin", "gloo")


def missing_backend():
    """Returns why this build has no PyTorch backend; empty if it has one, or there is no build."""
    path = PACKAGE / "missing"
    return path.read_text().strip() if path.exists() else ""


def _interpreter():
    """Returns the lines of the file that names the extension's interpreter."""
    path = PACKAGE / "fanin_torch" / "interpreter"
    why = missing_backend()
    if why or not path.exists():
        raise LabError(f"this build has no PyTorch backend: {why or f'{path} does not exist'} "
                       "(packages: packages.txt, [torch])")
    return path.read_text().splitlines()


def interpreter():
    """Returns the python3 that the extension was built for."""
    return _interpreter()[0]


def torch_release():
    """Returns the first two numbers of the version of its torch, such as (1, 13)."""
    return tuple(int(part) for part in _interpreter()[1].split(".")[:2])


class TrainingFabric(Fabric):
    """A switch with a manager, and hosts that run a worker each."""

    def environment(self, **more):
        """Returns env and the variables by which workers of torch.distributed find the network, and
        each other over the management network.
        """
        values = {"PYTHONPATH": PACKAGE, "FANIN_CONF": "/dev/null",
                  "FANIN_MANAGER": f"{MANAGER_IP}:{MANAGER_PORT}",
                  "FANIN_TOKEN": self.token_file.read_text().strip(),
                  "FANIN_INTERFACE": HOST_INTERFACE,
                  "GLOO_SOCKET_IFNAME": MANAGEMENT_INTERFACE, "MASTER_ADDR": self.management_ip(0),
                  "MASTER_PORT": 29500, "OMP_NUM_THREADS": 1,
                  # Debian 13's torch is built without libuv, by which torch's store is by default.
                  "USE_LIBUV": 0,
                  "PYTHONDONTWRITEBYTECODE": 1, **more}
        return ["/usr/bin/env"] + [f"{key}={value}" for key, value in values.items()]

    def workers(self, program, *arguments, hosts=None, user=None, **environment):
        """Starts a worker on each of these hosts; rank = place in the list. user: the workers';
        None: this process's.
        """
        hosts = range(self.hosts) if hosts is None else hosts
        return [self.spawn(host, [*self.environment(RANK=rank, WORLD_SIZE=len(hosts),
                                                    **environment), interpreter(), program,
                                  *arguments],
                           "torch", user) for rank, host in enumerate(hosts)]


def train(fabric, steps, bucket_mb):
    """Trains, and returns the workers' output."""
    results = []
    for rank, worker in enumerate(fabric.workers(WORKER, steps, bucket_mb, user=NOBODY,
                                                 FANIN_TORCH_FALLBACK="raise")):
        if worker.wait(SECONDS) != 0:
            raise LabError(f"worker {rank} failed: {worker.last_words()}")
        results.append(json.loads(worker.stdout().splitlines()[-1]))
    return results


def show(result):
    ratio, medians = result["ratio"], result["medians"]
    lines = [f"{result['workers']} workers, {sum(result['bucket_bytes']) / 1e6:.1f} MB of "
             f"gradients in {len(result['bucket_bytes'])} buckets, MTU {result['mtu']}, user "
             f"{result['user']}; Fanin's hosts are on {result['transport']}, Gloo's TCP has a "
             "Linux bridge", "",
             f"{'step':>4} {'loss, fanin':>12} {'loss, gloo':>12} {'ms, fanin':>10} "
             f"{'ms, gloo':>10}"]
    for step in range(result["steps"]):
        lines.append(f"{step + 1:4} {result['loss']['fanin'][step]:12.6f} "
                     f"{result['loss']['gloo'][step]:12.6f} {result['ms']['fanin'][step]:10.1f} "
                     f"{result['ms']['gloo'][step]:10.1f}")
    lines += ["", f"{'':<50}{'Fanin':>10}{'Gloo':>13}{'Fanin / Gloo':>15}"]
    for name, words in (("step", "a step of training"),
                        ("communication", "  what communication adds to a step without any"),
                        ("sum", "a step's gradients summed, and nothing else")):
        both = medians[name]
        quotient = "-" if ratio[name] is None else f"{ratio[name]:.2f}"
        lines.append(f"{words:<50}{both['fanin']:>7.1f} ms{both['gloo']:>10.1f} ms{quotient:>15}")
    lines += ["", f"medians; a step without any communication takes {medians['step']['none']:.1f} ms",
              f"summed in the network: {result['network_bytes'] / 1e6:.1f} MB of each worker, and "
              f"{result['elsewhere_calls']} collectives elsewhere",
              f"parameters are equal on all workers: {'yes' if result['equal'] else 'NO'}; data: "
              f"{result['data']}"]
    return "\n".join(lines)


def milliseconds(times_of_workers):
    """Returns the milliseconds of each step, or each sum: from when the last worker begins until
    the last one has ended.
    """
    return [1000 * (max(end for _, end in times) - max(begin for begin, _ in times))
            for times in zip(*times_of_workers)]


def median(values):
    return statistics.median(values[WARMUP:] or values)


def ratio_of(both):
    """Returns Fanin's time divided by Gloo's; None if other load on the machine has made a
    difference of two steps negative.
    """
    return both["fanin"] / both["gloo"] if min(both["fanin"], both["gloo"]) > 0 else None


def demonstrate(hosts, steps, bucket_mb):
    """Trains over both, and returns the result."""
    with TrainingFabric(single(hosts), "auto", DEFAULT_MTU["udp"], LIMITS) as fabric:
        fabric.start()
        fabric.start_manager()
        print(f"training over Fanin and over Gloo: {hosts} workers, {steps} steps in turns",
              file=sys.stderr)
        found = train(fabric, steps, bucket_mb)
    sides = {name: [result["sides"][name] for result in found] for name in (*BOTH, "none")}
    group = [result["report"][0] for result in found]
    ms = {name: milliseconds([worker["steps"] for worker in workers]) for name,
          workers in sides.items()}
    communication = {name: [a - b for a, b in zip(ms[name], ms["none"])] for name in BOTH}
    sums = {name: milliseconds([worker["sums"] for worker in sides[name]]) for name in BOTH}
    medians = {name: {side: median(values) for side, values in times.items()}
               for name, times in (("step", ms), ("communication", communication), ("sum", sums))}
    loss = {name: [statistics.mean(values)
                   for values in zip(*(worker["loss"] for worker in sides[name]))] for name in BOTH}
    equal = all(len({worker["parameters"] for worker in sides[name]}) == 1 for name in BOTH)
    elsewhere = sum(count["calls"] for report in group for reasons in report["gloo"].values()
                    for count in reasons.values())
    difference = max(abs(a - b) for a, b in list(zip(loss["fanin"], loss["gloo"]))[:COMPARED])
    return {"ok": equal and elsewhere == 0 and difference < TOLERANCE
            and all(report["in_network"] for report in group), "workers": hosts,
            "steps": steps, "data": found[0]["data"], "user": NOBODY, "mtu": fabric.mtu,
            "transport": group[0]["transport"],
            "bucket_bytes": found[0]["bucket_bytes"], "loss": loss,
            "largest_difference": difference, "ms": ms, "median_ms": medians["step"],
            "communication_ms": communication, "sum_ms": sums, "medians": medians,
            "ratio": {name: ratio_of(both) for name, both in medians.items()}, "equal": equal,
            "network_bytes": group[0]["network"]["allreduce"]["bytes"],
            "elsewhere_calls": elsewhere, "report": group[0]}


class Parser(argparse.ArgumentParser):
    """Prints one clear line instead of argparse's usage text."""

    def error(self, message):
        print(f"fanin-demo: {message}", file=sys.stderr)
        sys.exit(2)


def number(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from {low} "
                                             f"to {high}")
        return int(text)
    return parse


def main(arguments):
    parser = Parser(prog="./dev demo --torch", description=__doc__,
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False)
    parser.add_argument("--hosts", type=number(2, 8), default=4, metavar="N", help="workers")
    parser.add_argument("--steps", type=number(1, 1000), default=20, metavar="N")
    parser.add_argument("--bucket-mb", type=number(1, 25), default=1, metavar="MB",
                        help="DistributedDataParallel's bucket_cap_mb; torch's own default is 25, "
                             "which puts all but the last layers of this small network into one "
                             "bucket")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    options = parser.parse_args(arguments)
    try:
        result = demonstrate(options.hosts, options.steps, options.bucket_mb)
    except Interrupted as error:
        return laboratory.report_interruption(error)
    except (LabError, OSError) as error:
        if options.json:
            print(json.dumps({"ok": False, "workers": options.hosts, "steps": options.steps,
                              "error": str(error)}))
        else:
            print(f"fanin-demo: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result) if options.json else show(result))
    return 0 if result["ok"] else 1
