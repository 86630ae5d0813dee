# SPDX-License-Identifier: BSD-3-Clause
"""./dev demo --torch: workers in network namespaces train a small network with PyTorch, over Fanin and over Gloo in turns."""

import argparse
import json
import sys
from pathlib import Path

from fabric import MANAGER_IP, MANAGER_PORT, Fabric, single
import lab as laboratory
from lab import BUILD_DIR, HOST_INTERFACE, Interrupted, LabError

PACKAGE = BUILD_DIR / "torch"
WORKER = Path(__file__).resolve().parent / "train.py"
SECONDS = 300
TOLERANCE = 1e-4  # of the losses of both, which add in another order


def interpreter():
    """The python3 that the extension was built for."""
    path = PACKAGE / "fanin_torch" / "interpreter"
    if not path.exists():
        raise LabError(f"{path} does not exist: this build has no PyTorch backend; meson's summary says why (packages: packages.txt, [torch])")
    return path.read_text().strip()


class TrainingFabric(Fabric):
    """A switch with a manager, and hosts that run a worker each."""

    def environment(self, **more):
        """env and what workers of torch.distributed need to find the network and each other."""
        values = {"PYTHONPATH": PACKAGE, "FANIN_CONF": "/dev/null", "FANIN_MANAGER": f"{MANAGER_IP}:{MANAGER_PORT}",
                  "FANIN_TOKEN": self.token_file.read_text().strip(), "FANIN_INTERFACE": HOST_INTERFACE,
                  "GLOO_SOCKET_IFNAME": HOST_INTERFACE, "MASTER_ADDR": self.host_ip(0), "MASTER_PORT": 29500, "OMP_NUM_THREADS": 1,
                  "PYTHONDONTWRITEBYTECODE": 1, **more}
        return ["/usr/bin/env"] + [f"{key}={value}" for key, value in values.items()]

    def workers(self, program, *arguments, hosts=None, **environment):
        """Starts a worker on each of these hosts; rank = place in the list."""
        hosts = range(self.hosts) if hosts is None else hosts
        return [self.spawn(host, [*self.environment(RANK=rank, WORLD_SIZE=len(hosts), **environment), interpreter(), program, *arguments],
                           "torch") for rank, host in enumerate(hosts)]


def train(fabric, backend, steps):
    """What the workers of one training print."""
    results = []
    for rank, worker in enumerate(fabric.workers(WORKER, backend, steps, FANIN_TORCH_FALLBACK="raise")):
        if worker.wait(SECONDS) != 0:
            raise LabError(f"worker {rank} over {backend} failed: {worker.last_words()}")
        results.append(json.loads(worker.stdout().splitlines()[-1]))
    return results


def show(result):
    lines = [f"{'step':>4} {'loss, fanin':>12} {'loss, gloo':>12} {'ms, fanin':>10} {'ms, gloo':>10}"]
    for step in range(result["steps"]):
        lines.append(f"{step + 1:4} {result['loss']['fanin'][step]:12.6f} {result['loss']['gloo'][step]:12.6f} "
                     f"{result['ms']['fanin'][step]:10.1f} {result['ms']['gloo'][step]:10.1f}")
    lines.append(f"median of a step: {result['median_ms']['fanin']:.1f} ms over Fanin, {result['median_ms']['gloo']:.1f} ms over Gloo")
    lines.append(f"gradients: {result['network_bytes']} bytes of each worker in the network, {result['elsewhere_calls']} collectives elsewhere")
    lines.append(f"parameters are equal on all workers: {'yes' if result['equal'] else 'NO'}; data: {result['data']}")
    return "\n".join(lines)


def median(values):
    values = sorted(values)
    return values[len(values) // 2]


def demonstrate(hosts, steps):
    """Trains over both, and returns what came of it."""
    with TrainingFabric(single(hosts)) as fabric:
        fabric.start()
        fabric.start_manager()
        found = {}
        for backend in ("fanin", "gloo"):
            print(f"training over {backend}: {hosts} workers, {steps} steps", file=sys.stderr)
            found[backend] = train(fabric, backend, steps)
    group = [result["report"][0] for result in found["fanin"]]
    ms = {backend: results[0]["ms"] for backend, results in found.items()}
    loss = {backend: [sum(values) / hosts for values in zip(*(result["loss"] for result in results))] for backend, results in found.items()}
    equal = all(len({result["parameters"] for result in results}) == 1 for results in found.values())
    elsewhere = sum(count["calls"] for report in group for reasons in report["gloo"].values() for count in reasons.values())
    difference = max(abs(a - b) for a, b in zip(loss["fanin"], loss["gloo"]))
    return {"ok": equal and elsewhere == 0 and difference < TOLERANCE and all(report["in_network"] for report in group), "workers": hosts,
            "steps": steps, "data": found["fanin"][0]["data"], "loss": loss, "largest_difference": difference, "ms": ms,
            "median_ms": {backend: median(values) for backend, values in ms.items()}, "equal": equal,
            "network_bytes": group[0]["network"]["allreduce"]["bytes"], "elsewhere_calls": elsewhere, "report": group[0]}


class Parser(argparse.ArgumentParser):
    """One clear line instead of argparse's usage text."""

    def error(self, message):
        print(f"fanin-demo: {message}", file=sys.stderr)
        sys.exit(2)


def number(low, high):
    def parse(text):
        if not text.isdecimal() or not low <= int(text) <= high:
            raise argparse.ArgumentTypeError(f"found '{text}', expected a whole number from {low} to {high}")
        return int(text)
    return parse


def main(arguments):
    parser = Parser(prog="./dev demo --torch", description="Workers train a small network with PyTorch, over Fanin and over Gloo.",
                    formatter_class=argparse.ArgumentDefaultsHelpFormatter, allow_abbrev=False)
    parser.add_argument("--hosts", type=number(2, 8), default=4, metavar="N", help="workers")
    parser.add_argument("--steps", type=number(1, 1000), default=20, metavar="N")
    parser.add_argument("--json", action="store_true", help="the result as JSON")
    options = parser.parse_args(arguments)
    try:
        result = demonstrate(options.hosts, options.steps)
    except Interrupted as error:
        return laboratory.report_interruption(error)
    except (LabError, OSError) as error:
        if options.json:
            print(json.dumps({"ok": False, "workers": options.hosts, "steps": options.steps, "error": str(error)}))
        else:
            print(f"fanin-demo: {error}", file=sys.stderr)
        return 1
    print(json.dumps(result) if options.json else show(result))
    return 0 if result["ok"] else 1
