# SPDX-License-Identifier: BSD-3-Clause
"""The demonstration itself: its figures, its options, and that it leaves nothing behind, however it
ends.
"""

import json
import os
import signal
import subprocess
from pathlib import Path

from tests.net.support import case, expect, expect_equal, run, wait_until
from lab.namespaces import NETNS_DIR, module

DEMO = module("lab.demo")


def traces(pid):
    """Returns the remains of a demo with this process id: namespaces, directories, processes, links
    of the root namespace.
    """
    prefix = f"fanin-{pid}-"
    found = [name for name in (os.listdir(NETNS_DIR) if NETNS_DIR.exists() else [])
             if name.startswith(prefix)]
    found += [str(path) for path in Path("/tmp").glob(prefix + "*")]
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if prefix in os.readlink(process / "cwd"):
                found.append(f"process {process.name}")
        except OSError:
            continue
    return found


def root_links():
    return sorted(link["ifname"] for link in json.loads(run(["ip", "-j", "link"]).stdout))


def hugepage_files():
    """Returns the files that keep hugepages after their process is gone. Other pages are freed with
    it.
    """
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    return sorted(str(path) for mount in mounts if mount[2] == "hugetlbfs"
                  for path in Path(mount[1]).iterdir())


def bpf_pins():
    return sorted(str(path) for path in Path("/sys/fs/bpf").rglob("*"))


class Before:
    """The machine's state before a test, to be compared with the state afterwards."""

    def __init__(self):
        self.links, self.pages, self.pins = root_links(), hugepage_files(), bpf_pins()

    def expect_restored(self, pid):
        expect_equal(traces(pid), [], "left over")
        expect_equal(root_links(), self.links, "interfaces")
        expect_equal(bpf_pins(), self.pins, "BPF pins")
        expect_equal(hugepage_files(), self.pages, "files in hugepages")


def start_demo(*arguments):
    return subprocess.Popen(DEMO + list(map(str, arguments)), stdin=subprocess.DEVNULL,
                            stdout=subprocess.PIPE,
                            stderr=subprocess.PIPE, text=True)


def demo_is_exact(*arguments, timeout=100, handler="single"):
    """Runs the demo with --json, checks its figures, expects a clean machine afterwards, and
    returns its output.
    """
    before = Before()
    demo = start_demo("--json", *arguments)
    try:
        out, err = demo.communicate(timeout=timeout)
    except subprocess.TimeoutExpired:
        demo.terminate()
        out, err = demo.communicate(timeout=60)
    expect_equal(demo.returncode, 0, f"exit status of the demo ({out.strip()} {err.strip()})")
    expect_equal(out.count("\n"), 1, f"lines of --json ({out!r})")
    result = json.loads(out)
    for key, value in {"ok": True, "mismatches": 0, "in_network": True, "handler": handler,
                       "error": None}.items():
        expect_equal(result[key], value, key)
    expect_equal(len(result["goodput_gbps"]), result["hosts"], "goodputs")
    expect(all(goodput > 0 for goodput in result["goodput_gbps"]),
           f"goodput: {result['goodput_gbps']}")
    if result["transport"] == "memif":
        expect_equal(result["ping"], None, "ping between hosts without interfaces")
    else:
        expect(result["ping"]["received"] > 0, "no ping was answered")
        expect_equal(result["ping"]["received"], result["ping"]["sent"], "pings answered")
    before.expect_restored(demo.pid)
    return result


@case(120)
def sum_is_exact_on_af_xdp():
    result = demo_is_exact("--transport", "af_xdp")
    expect_equal((result["hosts"], result["bytes"], result["transport"]), (4, 64 << 20, "af_xdp"),
                 "defaults")


@case(120)
def sum_is_exact_on_af_packet():
    result = demo_is_exact("--transport", "af_packet")
    expect_equal((result["hosts"], result["bytes"], result["transport"]),
                 (4, 64 << 20, "af_packet"), "defaults")


@case(120)
def sum_is_exact_on_udp():
    result = demo_is_exact("--transport", "udp")
    expect_equal((result["hosts"], result["mtu"], result["transport"]), (4, 1500, "udp"),
                 "defaults")


@case(120)
def sum_is_exact_on_memif():
    result = demo_is_exact("--transport", "memif")
    expect_equal((result["hosts"], result["bytes"], result["transport"]), (4, 64 << 20, "memif"),
                 "defaults")


@case(150, long=True)
def sixteen_hosts_are_exact_on_memif():
    result = demo_is_exact("--transport", "memif", "--hosts", 16, "--bytes", "8MiB", "--loss",
                           "0.02", timeout=130)
    expect_equal((result["hosts"], result["transport"]), (16, "memif"), "hosts and transport")
    expect(result["retransmits"] > 0, "nothing was resent")


@case(150)
def sixteen_hosts_are_exact():
    expect_equal(demo_is_exact("--hosts", 16, "--bytes", "8MiB", timeout=130)["hosts"], 16, "hosts")


@case(150)
def the_demo_is_exact_with_loss():
    result = demo_is_exact("--loss", "0.02", "--bytes", "16MiB", timeout=130)
    expect(result["retransmits"] > 0, "nothing was resent")
    expect(result["drops"]["fault_drop"] > 0, "nothing was dropped")


@case(150)
def the_demo_accumulates_in_f32_with_loss():
    result = demo_is_exact("--accumulate", "f32", "--dtype", "f16", "--loss", "0.02", "--bytes",
                           "4MiB", timeout=130)
    expect_equal(result["accumulate"], "f32", "accumulation")
    expect(result["retransmits"] > 0, "nothing was resent")
    payload = (result["mtu"] - 82) // 64 * 64
    blocks = -(-result["bytes"] // (payload // 2)) * result["hosts"]
    expect(result["switch"]["rx"] >= 2 * blocks,
           f"{result['switch']['rx']} frames, expected {blocks} in both allreduces at least, half "
           f"of {payload} bytes in each")


@case()
def the_demo_is_exact_without_staggering():
    expect_equal(demo_is_exact("--no-stagger", "--bytes", "8MiB")["stagger"], False, "stagger")
    expect_equal(demo_is_exact("--bytes", "1MiB")["stagger"], True, "stagger")


@case()
def the_table_shows_what_the_json_shows():
    done = run(DEMO + ["--hosts", "2", "--bytes", "1MiB"], timeout=60)
    for words in ("h0", "h1", "Gbit/s", "mismatches", "in the network: yes, handler single", "ping",
                  "exact"):
        expect(words in done.stdout, f"'{words}' is not in the table:\n{done.stdout}")


def expect_sparse(result, density):
    """Checks densities and bytes: those of values with their indices, and those of the packets
    around them.
    """
    sparse, hosts = result["sparse"], result["hosts"]
    expect_equal(sparse["dense_bytes"], 2 * hosts * result["bytes"],
                 "bytes of two dense allreduces")
    expect_equal(sparse["density"], density, "density")
    expect(0.9 * density < sparse["density_in"] < 1.1 * density, f"density in: {sparse}")
    union = 1 - (1 - density) ** hosts
    expect(0.9 * union < sparse["density_out"] < 1.1 * union,
           f"density out: {sparse}, expected {union}")
    # Of 4 bytes a value; indices have 2 or 4.
    for key, part in (("bytes_sent", density), ("bytes_received", union)):
        expect(1.4 * part * sparse["dense_bytes"] < sparse[key] < 2.4 * part
               * sparse["dense_bytes"], f"{key}: {sparse}")


@case(120)
def the_sparse_demo_is_exact_and_shows_what_it_saves():
    expect_sparse(demo_is_exact("--sparse", "0.01", "--bytes", "16MiB", handler="sparse"), 0.01)
    result = demo_is_exact("--sparse", "0.05", "--bytes", "4MiB", "--hosts", 3, "--handler",
                           "sparse-hash", "--loss", "0.02",
                           handler="sparse-hash")
    expect(result["retransmits"] > 0, "nothing was resent")
    expect_equal(demo_is_exact("--bytes", "1MiB")["sparse"], None, "sparse without --sparse")
    table = run(DEMO + ["--sparse", "0.02", "--bytes", "1MiB"], timeout=100).stdout
    expect(table.startswith("sparse allreduce sum of 1 MiB of f32 on 4 hosts"),
           f"the table: {table}")
    for words in ("handler sparse", " % of the indices of each host, at ", "the hosts sent 0.",
                  " times less; they received ", "exact"):
        expect(words in table, f"'{words}' is not in the table:\n{table}")


@case(120, long=True)
def the_sparse_demo_is_exact_on_leaves_and_spines():
    """The job is made by the manager, at two levels."""
    done = run(DEMO + ["--sparse", "0.01", "--bytes", "4MiB", "--topology", "leaf-spine", "--json"],
               timeout=100)
    result = json.loads(done.stdout)
    expect_equal((result["ok"], result["mismatches"], result["handler"]), (True, 0, "sparse"),
                 f"the result ({result})")
    expect_sparse(result, 0.01)
    # A host's values go up, and those of all hosts come down.
    expect(max(part for both in result["traffic"]["switches"].values() for part in both) < 0.16,
           f"traffic: {result['traffic']}")


@case(150, thorough=True)
def the_sparse_demo_goes_over_rings_and_several_trees_and_survives_a_spine():
    for more, trees in ((["--ring"], 0), (["--trees", "2"], 2),
                        (["--kill", "spine0", "--iters", "40"], 1)):
        done = run(DEMO + ["--sparse", "0.01", "--bytes", "4MiB", "--topology", "leaf-spine",
                           "--json", *more], timeout=100)
        result = json.loads(done.stdout)
        expect_equal((result["ok"], result["mismatches"], len(result["trees"])), (True, 0, trees),
                     f"the result with {more} ({result})")
        expect(result["sparse"]["bytes_sent"] * 8 < result["sparse"]["dense_bytes"],
               f"{more}: {result['sparse']}")


@case()
def bad_options_of_the_demo_are_refused_in_one_line():
    for arguments in (["--hosts", "1"], ["--hosts", "17"], ["--hosts", "x"], ["--bytes", "0"],
                      ["--bytes", "-4"],
                      ["--bytes", "7"], ["--bytes", "1TiB"], ["--bytes", "lots"], ["--dtype", "f8"],
                      ["--op", "nand"],
                      ["--data", "random"], ["--data", "random", "--reproducible", "--op", "max"],
                      ["--accumulate", "f16"], ["--accumulate", "f32"],
                      ["--accumulate", "f32", "--dtype", "f16", "--op", "max"],
                      ["--transport", "pigeon"], ["--mtu", "100"],
                      ["--mtu", "9000", "--transport", "af_xdp"],
                      ["--loss", "-0.1"], ["--loss", "1"], ["--loss", "x"], ["--workers", "0"],
                      ["--collective", "gather"], ["--collective", "allgather", "--bytes", "24"],
                      ["--collective", "broadcast", "--data", "random", "--reproducible"],
                      ["--collective", "barrier", "--accumulate", "f32", "--dtype", "f16"],
                      ["--bogus"], ["extra"],
                      ["--dual-homed"], ["--topology", "tree3", "--dual-homed"], ["--ring"],
                      ["--trees", "2"], ["--kill", "spine0"],
                      ["--topology", "leaf-spine", "--ring", "--trees", "2"],
                      ["--topology", "leaf-spine", "--ring", "--kill", "leaf0"],
                      ["--topology", "leaf-spine", "--kill", "leaf0", "--freeze", "leaf0"],
                      ["--topology", "leaf-spine", "--transport", "memif"],
                      ["--topology", "leaf-spine", "--dtype", "bf16", "--accumulate", "f32"]):
        done = run(DEMO + arguments, check=False)
        expect_equal(done.returncode, 2, f"exit status with {arguments}")
        expect_equal(done.stdout, "", f"standard output with {arguments}")
        lines = done.stderr.strip().splitlines()
        expect(len(lines) == 1 and any(word in lines[0]
                                       for word in ("found", "unrecognized", "invalid choice")),
               f"{arguments}: {done.stderr!r}")


DTYPES = ("i8", "i16", "i32", "i64", "u8", "u16", "u32", "u64", "f16", "bf16", "f32", "f64",
          "complex-f32")
OPS = ("sum", "prod", "min", "max", "avg", "land", "lor", "lxor", "band", "bor", "bxor")


def is_defined(dtype, op):
    """Returns whether a pair is defined in docs/operators.md."""
    if dtype == "complex-f32":
        return op == "prod"
    return "f" not in dtype or op in OPS[:5]


@case(120, thorough=True)
def every_undefined_pair_and_every_handler_without_an_order_is_refused():
    """The error is one line that names what would work, before anything is set up."""
    refused = [(["--dtype", dtype, "--op", op],
                f"argument --op: found {op} for {dtype}, expected one of ")
               for dtype in DTYPES for op in OPS if not is_defined(dtype, op)]
    expect_equal(len(refused), 4 * 6 + 10, "undefined pairs")
    refused += [(["--dtype", dtype, "--op", "prod", f"--handler={handler}", "--reproducible"],
                 f"argument --reproducible: found the handler {handler}, expected tree or auto")
                for dtype in DTYPES for handler in ("single", "multi")]
    for arguments, words in refused:
        demo = start_demo(*arguments)
        out, err = demo.communicate(timeout=60)
        expect_equal((demo.returncode, out, err.count("\n")), (2, "", 1),
                     f"exit status, output and lines with {arguments}")
        expect(words in err, f"{arguments}: found {err!r}, expected '{words}'")


@case(120, thorough=True)
def the_demo_runs_every_collective():
    for collective in ("reduce", "reduce_scatter", "broadcast", "allgather"):
        result = demo_is_exact("--collective", collective, "--hosts", 3, "--loss", "0.02")
        expect_equal(result["collective"], collective, "collective")
        size = 64 << 20 if collective in ("reduce", "broadcast") else (64 << 20) - (64 << 20) % 12
        expect_equal(result["bytes"], size, f"bytes of the {collective}")
    table = run(DEMO + ["--collective", "broadcast", "--bytes", "1MiB"], timeout=100).stdout
    expect(table.startswith("broadcast of 1 MiB of f32 on 4 hosts"), f"the table: {table}")
    table = run(DEMO + ["--collective", "barrier"], timeout=100).stdout
    expect(table.startswith("barrier on 4 hosts") and "passed by every host" in table,
           f"the table: {table}")


@case(120)
def the_demo_runs_every_kind_of_reduction():
    for dtype, op, handler, reproducible, used in (("complex-f32", "prod", "multi", False, "multi"),
                                                   ("complex-f32", "prod", None, True, "tree"),
                                                   ("u16", "bxor", "auto", True, "tree"),
                                                   ("bf16", "avg", "tree", True, "tree"),
                                                   ("i64", "land", "auto", False, "multi")):
        result = demo_is_exact("--bytes", "256KiB", "--hosts", 3, "--dtype", dtype, "--op", op,
                               *(["--handler", handler] if handler else []),
                               *(["--reproducible"] if reproducible else []), handler=used)
        expect_equal((result["dtype"], result["op"], result["reproducible"]),
                     (dtype, op, reproducible), "reduction")


@case(120, thorough=True)
def reproducible_demos_have_the_same_digest():
    """This holds for any number of workers and with loss; another seed gives another digest."""
    def digest(*arguments):
        return demo_is_exact("--reproducible", "--data", "random", "--bytes", "1MiB", *arguments,
                             handler="tree")["digest"]
    first = digest()
    expect_equal(digest("--workers", 4, "--cluster-size", 2, "--transport", "af_packet"), first,
                 "digest of another run")
    expect(digest("--seed", 2) != first, "another seed has the same digest")
    expect(digest("--dtype", "bf16") != digest("--dtype", "bf16", "--accumulate", "f32"),
           "sums in f32 have the same digest as those in bf16")


def wait_for_the_job(demo):
    """Waits until the demo's hosts were started."""
    def started():
        expect(demo.poll() is None, f"the demo ended by itself with {demo.returncode}")
        return any(trace.startswith("/tmp/") and list(Path(trace).glob("perf-*"))
                   for trace in traces(demo.pid))
    wait_until(started, 60, "the job to run")


def ends_cleanly(signum):
    before = Before()
    demo = start_demo("--bytes", "1MiB", "--iters", "10000")
    try:
        wait_for_the_job(demo)
        demo.send_signal(signum)
        demo.communicate(timeout=60)
    finally:
        demo.kill()
    expect_equal(demo.returncode, 128 + signum, "exit status")
    before.expect_restored(demo.pid)


@case()
def nothing_is_left_after_ctrl_c():
    ends_cleanly(signal.SIGINT)


@case()
def nothing_is_left_after_sigterm():
    ends_cleanly(signal.SIGTERM)


@case()
def nothing_is_left_after_sighup():
    ends_cleanly(signal.SIGHUP)


@case()
def the_next_run_removes_what_a_killed_one_left():
    before = Before()
    demo = start_demo("--bytes", "1MiB", "--iters", "10000")
    try:
        wait_for_the_job(demo)
    finally:
        demo.kill()
        demo.communicate()
    wait_until(lambda: not any("process" in trace for trace in traces(demo.pid)), 60,
               "the killed demo's programs to end")
    run(DEMO + ["--hosts", "2", "--bytes", "64KiB", "--json"], timeout=60)
    before.expect_restored(demo.pid)
