# SPDX-License-Identifier: BSD-3-Clause
"""The traffic generator against the real switch: exact results, figures that add up, errors with
words, a clean end; and its captures, replayed by hand.
"""

import contextlib
import json
import re
import resource
import signal
import struct
import sys
import time

from tests.net.frames import CONTRIBUTION, RESULT, RawPort, job_key, write_pcap
from tests.net.support import (case, dissect, expect, expect_equal, job_entry, run, running_lab,
                               wait_for_results, wait_until)
from lab.namespaces import SOURCE_DIR, SWITCH_MAC, WireLab
from tests.net.pace import Pace

from lab.bench.gathered import Gathered

HEADERS = 96
MTU = 1500
LATENCIES = ("p50", "p99", "p99.9", "max")


def generate(lab, gathered, timeout=60, **options):
    """Runs fanin-pktgen to its end; it makes its own jobs unless the options name one."""
    if "job" not in options:
        options.setdefault("control", str(lab.socket_path))
    process = gathered.spawn_pktgen(**options)
    process.wait(timeout)
    return process


def row_of(process, **expected):
    """Returns the one row of a run that ended well, with these fields."""
    expect_equal(process.popen.returncode, 0, f"exit status ({process.stderr().strip()[-300:]})")
    report = json.loads(process.stdout())
    expect(report["machine"]["cpu"], "the report does not name the CPU")
    expect_equal(len(report["results"]), 1, "rows")
    row = report["results"][0]
    for key, value in expected.items():
        expect_equal(row[key], value, key)
    expect_sane(row)
    return row


def expect_sane(row):
    expect_equal(row["wrong"], 0, "wrong results")
    expect_equal(row["results"], row["contributions"], "results for contributions")
    expect(abs(row["loss"] - row["lost"] / row["contributions"]) < 1e-6,
           f"the loss does not fit the count: {row}")
    expect(0 < row["mpps"] * 1e6 * row["seconds"] <= row["contributions"] * 1.001,
           f"the rate does not fit the count: {row}")
    gbps = row["mpps"] * row["payload"] * 8 / 1e3
    expect(abs(row["gbps"] - gbps) <= 1e-6 * gbps, f"gbps is {row['gbps']}, expected {gbps}")
    for kind in ("block", "own"):
        latency = row["latency_us"][kind]
        expect_equal(latency["samples"], row["results"], f"samples of {kind}")
        values = [latency[name] for name in LATENCIES]
        expect(values[0] > 0 and values == sorted(values), f"latencies from {kind}: {latency}")
    expect(row["latency_us"]["block"]["p50"] <= row["latency_us"]["own"]["p50"],
           f"a block's last contribution is before the own one: {row['latency_us']}")


def expect_error(process, status, words, what):
    expect_equal(process.popen.returncode, status,
                 f"{what}: exit status ({process.stderr().strip()[-300:]})")
    expect(words in process.stderr(),
           f"{what}: '{process.stderr().strip()}' does not say '{words}'")
    expect_equal(process.stdout(), "", f"{what}: output")


@case()
def pktgen_is_exact_on_several_jobs():
    with running_lab(4, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        row = row_of(generate(lab, gathered, json=True, jobs=3, blocks=700, payload=512, window=16,
                              dtype="i16", op="max"),
                     dtype="i16", op="max", payload=512, hosts=4, jobs=3, window=16,
                     contributions=3 * 4 * 700, lost=0,
                     retransmits=0, duplicates=0, port_drops=0)
        expect(row["stagger"], "hosts are not staggered by default")
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs after the run")
        refused = {name: count for name, count in lab.drops().items() if count}
        expect_equal(refused, {}, "packets that the switch had to refuse")
        for dtype, op, more in (("f16", "avg", {}), ("u64", "bxor", {"no_stagger": True}),
                                ("f64", "prod", {"handler": "tree"})):
            row_of(generate(lab, gathered, json=True, blocks=300, window=32, dtype=dtype, op=op,
                            **more),
                   dtype=dtype, op=op, payload=1408, contributions=4 * 300)
        table = generate(lab, gathered, blocks=100)
        expect("Mpps" in table.stdout() and "p99.9" in table.stdout(),
               f"the table: {table.stdout()}")


@case()
def pktgen_hosts_share_ports():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        # The timeouts are long, so a busy machine causes no repeats.
        row_of(generate(lab, Gathered(lab), json=True, hosts=6, blocks=500, payload=256, window=16,
                        timeout_ms=60000, stall_ms=60000),
               hosts=6, contributions=3000, duplicates=0, lost=0)


@case()
def pktgen_counts_what_is_lost_and_goes_on():
    faults = {"faults": {"drop": 0.01, "duplicate": 0.01, "reorder": 0.01, "seed": 5}}
    with running_lab(3, "af_packet", MTU, base=WireLab, config=faults) as lab:
        row = row_of(generate(lab, Gathered(lab), json=True, blocks=2000, window=64, timeout_ms=50),
                     contributions=6000)
        expect(row["lost"] > 0 and row["retransmits"] > 0 and row["duplicates"] > 0,
               f"nothing was lost and doubled: {row}")
        expect(row["latency_us"]["block"]["max"] >= 50000,
               f"a lost result came before its timeout: {row['latency_us']}")


@case(long=True)
def pktgen_keeps_its_rate():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        for interarrival in ("fixed", "exponential"):
            row = row_of(generate(lab, gathered, json=True, rate=2000, seconds=2,
                                  interarrival=interarrival),
                         rate=2000, interarrival=interarrival)
            expect(0.8 < row["mpps"] / 0.002 < 1.2,
                   f"{interarrival}: sent {row['mpps']} Mpps of 0.002")
        report = json.loads(generate(lab, gathered, 90, json=True, search=True,
                                     seconds=0.3).stdout())
        row = report["results"][0]
        expect(report["search"]["trials"] >= 1 and row["rate"] > 0 and row["lost"] == 0,
               f"the search came to {report}")
        expect(row["mpps"] * 1e6 >= 0.995 * row["rate"],
               f"the rate that was found was not held: {row}")


@case()
def pktgen_says_what_is_wrong():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        job = lab.create_job()
        expect_error(generate(lab, gathered, job=f"{job['id']}:0x1234"), 1,
                     "the job key is wrong (key_wrong)", "wrong key")
        expect_error(generate(lab, gathered, job=f"77:{job['key']}"), 1, "job_unknown",
                     "no such job")
        expect_error(generate(lab, gathered, job=f"{job['id']}:{job['key']}", hosts=3), 1,
                     "the switch refused host",
                     "hosts too many")
        expect_error(generate(lab, gathered, job=f"{job['id']}:{job['key']}", payload=2048), 1,
                     "found a payload of 2048 bytes, expected whole f32 up to 1408", "long payload")
        expect_error(generate(lab, gathered, payload=2048), 1, "found payload_bytes 2048",
                     "long payload of a new job")
        expect_error(generate(lab, gathered, control="/nonexistent"), 1, "/nonexistent",
                     "no switch")
        expect_error(generate(lab, gathered, switch_port=["h0", "h9"]), 1, '"h9"',
                     "no such switch port")
        expect_error(generate(lab, gathered, port="net_af_packet,iface=nowhere"), 1,
                     "was not found or did not open", "no such interface")
        for words, options in (("--op band is not defined on f32", {"op": "band"}),
                               ("--window", {"window": 48}),
                               ("--payload", {"payload": 6}), ("--rate", {"rate": "fast"}),
                               ("--hosts", {"hosts": 1}),
                               ("--interarrival", {"interarrival": "odd"}), ("--job", {"job": "1"}),
                               ("either --control or --job", {"job": "1:1", "control": "x"}),
                               ("--dtype", {"dtype": "f8"})):
            expect_error(generate(lab, gathered, **options), 2, words, f"{options}")
        expect_equal([entry["id"] for entry in lab.control.ask("jobs.list")["jobs"]], [job["id"]],
                     "jobs afterwards")
        members = job_entry(lab, job)["members"]
        expect(not any(member["joined"] for member in members),
               f"hosts that failed have not left: {members}")


@case()
def pktgen_gives_up_a_killed_switch():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        job = lab.create_job()
        process = Gathered(lab).spawn_pktgen(job=f"{job['id']}:{job['key']}", seconds=60,
                                             stall_ms=1000)
        wait_for_results(lab, job, 200)
        with Pace() as pace:
            lab.switch.stop(signal.SIGKILL)
            process.wait(60)
            seconds = time.monotonic() - pace.began
        pace.expect_within(seconds, 3, "giving up after 1 s without a result")
        expect_error(process, 1, f"no result of job {job['id']} for ", "a killed switch")
        told = re.search(r" for (\d+\.\d+) s", process.stderr())
        expect(told is not None and float(told[1]) >= 1,
               f"how long there was no result: {process.stderr()}")
        pace.expect_within(float(told[1]), 2, "that there was no result")


@case()
def pktgen_leaves_and_destroys_on_sigint():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        process = Gathered(lab).spawn_pktgen(control=str(lab.socket_path), jobs=2, seconds=60,
                                             window=32)
        wait_until(lambda: any(job["stats"]["results"] > 100
                               for job in lab.control.ask("jobs.list")["jobs"]), 60, "results")
        process.popen.send_signal(signal.SIGINT)
        expect_equal(process.wait(60), 130, "exit status")
        expect_equal(lab.control.ask("jobs.list")["jobs"], [], "jobs after SIGINT")


def frames_of(path):
    """Returns the frames of a capture file, without their times."""
    data, at, frames = path.read_bytes(), 24, []
    expect_equal(struct.unpack_from("<IHH", data), (0xa1b2c3d4, 2, 4), f"head of {path.name}")
    while at < len(data):
        length = struct.unpack_from("<II", data, at + 8)[0]
        frames.append(data[at + 16:at + 16 + length])
        at += 16 + length
    return frames


def block_of(frame):
    return struct.unpack_from("<I", frame, 58)[0]


def sum_of(frames):
    """Returns the payloads' sum in i32."""
    columns = zip(*(struct.unpack(f"<{(len(frame) - HEADERS) // 4}I", frame[HEADERS:])
                    for frame in frames))
    return b"".join(struct.pack("<I", sum(column) & 0xffffffff) for column in columns)


def send_all(gathered, captures):
    """Sends the captures' frames block by block from the hosts' ends and waits for all results.
    Returns each host's results, by block.
    """
    ports = [RawPort(gathered.namespace, end) for end in gathered.ends]
    received = [{} for _ in ports]
    try:
        for frames in zip(*captures):
            for port, frame in zip(ports, frames):
                port.send(frame)
        for host, (port, results) in enumerate(zip(ports, received)):
            wait_until(lambda: results.update((block_of(frame), frame) for _,
                                              frame in port.arrived() if frame[43] == RESULT)
                       or len(results) >= len(captures[0]), 60, f"host {host}'s results")
    finally:
        for port in ports:
            port.socket.close()
    return received


def replay(gathered, captures):
    """Sends the captures' frames and expects every host to get every result."""
    for results in send_all(gathered, captures):
        for frames in zip(*captures):
            expect_equal(results[block_of(frames[0])][HEADERS:], sum_of(frames),
                         f"result of block {block_of(frames[0])}")


@case()
def pktgen_captures_can_be_replayed():
    with running_lab(3, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        job = lab.create_job()
        prefix = lab.directory / "held"
        options = {"job": f"{job['id']}:{job['key']}", "dtype": "i32", "join_only": True,
                   "blocks": 100}
        process = gathered.spawn_pktgen(pcap=str(prefix), **options)
        wait_until(lambda: process.stdout().endswith("\n") or not process.running(), 60,
                   "the hosts to join")
        joined = json.loads(process.stdout())
        expect_equal(joined["jobs"][0]["epoch"], job_entry(lab, job)["epoch"], "epoch")
        entry = joined["jobs"][0]
        expect_equal((entry["key"], int(entry["up_key"], 16), joined["switch"]["mac"]),
                     (job["key"], job_key(job, CONTRIBUTION), SWITCH_MAC), "keys and switch")
        expect_equal([host["ip"] for host in joined["hosts"]],
                     [lab.host_ip(host) for host in range(3)], "hosts")
        captures = [frames_of(lab.directory / f"held-h{host}.pcap") for host in range(3)]
        expect_equal([len(frames) for frames in captures], [100] * 3, "frames in the captures")
        shown = dissect(f"{prefix}-h1.pcap", "-T", "fields", "-e", "fanin.block").split()
        expect_equal(shown, [str(block) for block in range(100)], "blocks that the dissector sees")
        replay(gathered, captures)
        process.popen.send_signal(signal.SIGTERM)
        expect_equal(process.wait(60), 0, "exit status of the one who held the membership")
        expect_equal(job_entry(lab, job)["state"], "waiting", "state after all have left")

        kept = generate(lab, gathered, pcap=str(lab.directory / "kept"), keep=True, **options)
        expect_equal(kept.popen.returncode, 0, f"exit status with --keep ({kept.stderr()})")
        expect_equal(job_entry(lab, job)["state"], "active", "state with --keep")
        replay(gathered, [frames_of(lab.directory / f"kept-h{host}.pcap") for host in range(3)])
        refused = {name: count for name, count in lab.drops().items() if count}
        expect_equal(refused, {}, "packets that the switch had to refuse")


def check_results(prefix, *results):
    """Runs tools/pktgen/replay/check_results.py on files of results. Returns its exit status and
    what it printed.
    """
    checker = run([sys.executable, str(SOURCE_DIR / "tools/pktgen/replay/check_results.py"),
                   "--prefix", str(prefix), *map(str, results)],
                  check=False)
    return checker.returncode, checker.stdout + checker.stderr


@contextlib.contextmanager
def little_address_space():
    """Programs that start have no room for the address space that the EAL wants for hugepages: as
    if others had taken these since they were counted.
    """
    limits = resource.getrlimit(resource.RLIMIT_AS)
    resource.setrlimit(resource.RLIMIT_AS, (20 << 30, limits[1]))
    try:
        yield
    finally:
        resource.setrlimit(resource.RLIMIT_AS, limits)


@case()
def pktgen_that_starts_again_with_normal_pages_has_its_keys():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        job = lab.create_job()
        key = f"{job['id']}:{job['key']}"

        def started_again():
            with little_address_space():
                process = gathered.spawn_pktgen(job=key, blocks=50, json=True)
            process.wait(60)
            row_of(process, results=100)
            # It counts the free hugepages first: other tests may have all.
            return "starting again with normal pages" in process.stderr()
        wait_until(started_again, 60, "a start with hugepages that others take")


@case()
def replayed_results_are_checked():
    with running_lab(2, "af_packet", MTU, base=WireLab) as lab:
        gathered = Gathered(lab)
        for dtype in ("f32", "i16"):
            job = lab.create_job()
            prefix = lab.directory / f"checked-{dtype}"
            kept = generate(lab, gathered, job=f"{job['id']}:{job['key']}", dtype=dtype,
                            join_only=True, keep=True, blocks=50,
                            pcap=str(prefix))
            expect_equal(kept.popen.returncode, 0, f"exit status with --keep ({kept.stderr()})")
            received = send_all(gathered,
                                [frames_of(lab.directory / f"checked-{dtype}-h{host}.pcap")
                                 for host in range(2)])
            right = [[(block / 1000, frame) for block, frame in sorted(results.items())]
                     for results in received]
            paths = [lab.directory / f"results-{dtype}-h{host}.pcap" for host in range(2)]
            write_pcap(paths[0], right[0])
            write_pcap(paths[1], right[1])
            status, words = check_results(prefix, *paths)
            expect_equal(status, 0, f"exit status for right results of {dtype} ({words})")
            expect_equal(words.count("50 of 50 results, 0 missing, 0 wrong, 0 repeated, 1000 per "
                                     "second"), 2, f"words: {words}")
            at, frame = right[1][7]
            for changed, expected in ((right[1][:-1], "49 of 50 results, 1 missing, 0 wrong"),
                                      (right[1][:7] + [(at, frame[:-1] + bytes([frame[-1] ^ 1]))]
                                       + right[1][8:],
                                       "50 of 50 results, 0 missing, 1 wrong")):
                write_pcap(paths[1], changed)
                status, words = check_results(prefix, *paths)
                expect_equal(status, 1, f"exit status for {expected} ({words})")
                expect(expected in words, f"{expected} is not in: {words}")
            expect_equal(check_results(prefix, paths[0])[0], 2,
                         "exit status with one host's results only")
            lab.control.ask("jobs.destroy", id=job["id"])
