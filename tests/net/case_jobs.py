# SPDX-License-Identifier: BSD-3-Clause
"""Jobs are exact: in every size, type and operator, under loss, beside other traffic, and after
hosts have died.
"""

import json
import signal
import statistics
import time

from tests.net.frames import HEADER_LEN, RESULT, RawPort, header, packet
from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, job_entry,
                               reports_of, run_exact_job, running_lab, start_ranks,
                               wait_for_results, wait_until)
from lab.namespaces import SWITCH_IP, SWITCH_MAC, Lab
from tests.net.pace import Pace


@case(also_over_udp=True)
def odd_sizes_are_exact():
    with running_lab(3) as lab:
        payload = lab.create_job()["payload_bytes"]
        for size in (4, 60, 64, 68, payload - 4, payload, payload + 4, 7 * payload + 12, MIB + 4):
            run_exact_job(lab, f"{size} bytes", bytes=size)


@case()
def any_mtu_is_exact_on_af_packet():
    """Up to the maximum of a port, also with repeated packets; the switch chooses the ports' rings
    itself.
    """
    for mtu, drop in ((1280, 0), (1793, 0), (9000, 0), (61184, 0), (61184, 0.02)):
        config = {"limits": {"slots": 512}, "faults": {"drop": drop, "duplicate": drop, "seed": 3}}
        with running_lab(3, "af_packet", mtu, config) as lab:
            reports = run_exact_job(lab, f"MTU {mtu}, loss {drop}", bytes=3 * MIB + 4,
                                    transport="af_packet")
            payload = reports[0]["payload_bytes"]
            expect(mtu - 82 - 64 < payload <= mtu - 82, f"payload of {payload} bytes at MTU {mtu}")


@case(180, thorough=True)
def every_type_and_operator_is_exact_with_every_handler():
    """All pairs that the switch offers, in jobs of all kinds at the same time; the others are
    refused by name.
    """
    kinds = [["--handler", handler] for handler in ("single", "multi", "tree", "auto")]
    kinds += [["--handler", handler, "--reproducible"] for handler in ("tree", "auto")]
    with running_lab(2, "af_packet") as lab:
        offered = lab.control.ask("version")["operations"]
        expect_equal(offered[12 * 11 - 4 * 6:], ["complex-f32 prod"], "custom operators")
        jobs = [lab.create_job(None, *kind) for kind in kinds]
        for operation in offered:
            dtype, op = operation.split()
            ranks = [start_ranks(lab, job, bytes=20000, dtype=dtype, op=op) for job in jobs]
            for job, kind, started in zip(jobs, kinds, ranks):
                expect_exact(reports_of(lab, started), f"{operation} with {' '.join(kind)}",
                             job["handler"])
        rank = lab.spawn_perf(0, jobs[0], 0, 2, bytes=KIB, dtype="f32", op="bxor")
        expect_equal(rank.wait(60), 2, "exit status for bxor of f32")


@case(also_over_udp=True)
def a_custom_operator_is_exact_with_every_handler():
    with running_lab(4, config={"faults": {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02,
                                           "seed": 1}}) as lab:
        for handler in ("single", "multi", "tree"):
            run_exact_job(lab, f"complex products by {handler}", handler=handler, bytes=MIB + 8,
                          iters=2,
                          dtype="complex-f32", op="prod")
        job = lab.create_job()
        rank = lab.spawn_perf(0, job, 0, 4, bytes=KIB, dtype="complex-f32", op="sum")
        expect_equal(rank.wait(60), 2, "exit status for the sum of complex numbers")
        rank = lab.spawn_perf(0, job, 0, 4, bytes=KIB + 4, dtype="complex-f32", op="prod")
        expect_equal(rank.wait(60), 2, "exit status for half a complex number")


@case()
def collectives_in_a_row_are_exact():
    with running_lab(4) as lab:
        run_exact_job(lab, "200 times 20000 bytes", bytes=20000, iters=200)


@case(also_over_udp=True)
def a_job_can_be_run_again_by_new_processes():
    with running_lab(3) as lab:
        job = lab.create_job()
        for turn in range(3):
            run_exact_job(lab, f"run {turn}", job=job, bytes=100 * KIB)


def survives_loss(seed):
    faults = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02, "seed": seed}
    for hosts in (2, 4, 8):
        with running_lab(hosts, config={"faults": faults}) as lab:
            reports = run_exact_job(lab, f"{hosts} hosts, seed {seed}", bytes=2 * MIB)
            expect(sum(report["retransmits"] for report in reports) > 0,
                   "faults were configured, nothing was resent")
            expect(lab.drops()["fault_drop"] > 0, "faults were configured, nothing was dropped")


@case(120)
def sum_is_exact_under_loss_seed_1():
    survives_loss(1)


@case(120, thorough=True)
def sum_is_exact_under_loss_seed_2():
    survives_loss(2)


@case(120, thorough=True)
def sum_is_exact_under_loss_seed_3():
    survives_loss(3)


@case(sanitized=True, family=True)
def sum_is_exact_under_loss_on_af_packet():
    faults = {"drop": 0.05, "duplicate": 0.05, "reorder": 0.05, "seed": 4}
    with running_lab(4, "af_packet", config={"faults": faults}) as lab:
        run_exact_job(lab, "5 % faults", bytes=2 * MIB)


@case()
def hosts_with_different_transports_share_a_job():
    with running_lab(3) as lab:
        job = lab.create_job()
        ranks = [lab.spawn_perf(host, job, host, 3, bytes=4 * MIB, check=True, transport=transport)
                 for host, transport in enumerate(("af_xdp", "af_packet", "auto"))]
        reports = reports_of(lab, ranks)
        expect_exact(reports, "mixed transports")
        expect_equal([report["transport"] for report in reports[:2]], ["af_xdp", "af_packet"],
                     "transports")
        for report in reports:
            expect_equal(report["ring_drops"], 0,
                         f"frames that {report['transport']} dropped on the host")
            expect(report["spurious"] <= report["retransmits"],
                   f"more was needlessly resent than resent: {report}")
        expect(all(report.get("transport_reason") for report in reports),
               "a transport was chosen without a reason")


@case()
def two_workers_are_exact():
    with running_lab(4, config={"workers": [{"lcore": 0}, {"lcore": 1}]}) as lab:
        run_exact_job(lab, "two workers", bytes=16 * MIB)
        workers = lab.control.ask("stats")["workers"]
        expect_equal(len(workers), 2, "workers")
        expect(all(worker["packets"] > 0 for worker in workers),
               f"a worker saw no packets: {workers}")


@case()
def the_switch_runs_without_hugepages():
    with running_lab(2, config={"memory": {"hugepages": "never", "megabytes": 256}}) as lab:
        run_exact_job(lab, "ordinary pages", bytes=4 * MIB)


class HugepagesTaken(Lab):
    """The switch sees free hugepages and gets none: the EAL makes them files in memory, which can't
    be as large as a page here.
    """
    switch_launcher = ("prlimit", f"--fsize={MIB}", "env", "--ignore-signal=XFSZ")


@case()
def hugepages_that_are_taken_at_the_start_are_done_without():
    """This also holds if the first attempt has made sockets."""
    for transport in ("af_xdp", "memif"):
        with running_lab(2, transport, base=HugepagesTaken,
                         config={"memory": {"hugepages": "auto", "megabytes": 256}}) as lab:
            words = lab.switch.stderr()
            # A machine without hugepages does not get that far.
            expect("starting again with normal pages" in words or ": using normal pages" in words,
                   f"the switch says: {words}")
            run_exact_job(lab, f"normal pages, {transport}", bytes=4 * MIB)


@case(120)
def frames_that_a_host_has_no_room_for_are_in_its_report():
    """For the library's sockets of both transports, for frames in the ring and for those in the
    queue.
    """
    for transport, mtu in (("af_xdp", 1500), ("af_packet", 1500), ("af_packet", 61184)):
        with running_lab(2, transport, mtu, {"limits": {"slots": 64, "max_jobs": 1}}) as lab:
            job = lab.create_job()
            ranks = start_ranks(lab, job, bytes=2 * MIB, iters=20)
            wait_for_results(lab, job, 10)
            # They are for the job, but not for its run: the host's filter lets them pass, and no
            # process reads them.
            frame = packet(header(RESULT, job["id"], int(job["key"], 16),
                                  bytes(mtu - 28 - HEADER_LEN)), SWITCH_MAC, SWITCH_IP,
                           lab.host_mac(1), lab.host_ip(1))
            ranks[1].popen.send_signal(signal.SIGSTOP)
            with RawPort(lab.switch_namespace, lab.switch_interface(1)) as port:
                for _ in range(3000):
                    port.send(frame)
            ranks[1].popen.send_signal(signal.SIGCONT)
            reports = reports_of(lab, ranks)
            expect_exact(reports, f"a job beside a flood, {transport}, MTU {mtu}")
            expect(reports[1]["ring_drops"] > 500,
                   f"{transport}, MTU {mtu}: {reports[1]['ring_drops']} frames were dropped")


@case()
def two_jobs_at_once_are_exact():
    with running_lab(4) as lab:
        jobs = [(lab.create_job(members), members) for members in ([0, 1], [3, 2])]
        ranks = [start_ranks(lab, job, members, bytes=4 * MIB, iters=3) for job, members in jobs]
        for (job, _), started in zip(jobs, ranks):
            expect_exact(reports_of(lab, started), f"job {job['id']}")


@case(long=True)
def tcp_passes_while_jobs_run():
    with running_lab(4) as lab:
        server = lab.spawn(1, ["iperf3", "--server", "--one-off", "--forceflush"], "iperf-server")
        wait_until(lambda: "Server listening" in server.stdout(), 60, "the iperf3 server")
        client = lab.spawn(0, ["iperf3", "--client", lab.host_ip(1), "--time", 3, "--json"],
                           "iperf-client")
        rounds = 0
        while client.running():
            run_exact_job(lab, f"job {rounds} beside TCP", bytes=4 * MIB, iters=4)
            rounds += 1
        expect_equal(client.wait(60), 0, f"exit status of iperf3 ({client.stdout()[-300:]})")
        received = json.loads(client.stdout())["end"]["sum_received"]["bytes"]
        expect(received > MIB, f"found {received} bytes of TCP received in 3 s, expected more than "
                               "1 MiB")
        expect(rounds > 0, "no job ran beside the TCP connection")


@case(also_over_udp=True, sanitized=True)
def a_killed_host_is_named_and_the_switch_goes_on():
    timeout_ms = 2000
    with running_lab(4) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=timeout_ms)
        wait_for_results(lab, job, 1000)
        expect(all(rank.running() for rank in ranks), "a rank ended before its time")
        survivors = [ranks[0], ranks[1], ranks[3]]
        with Pace() as pace:
            ranks[2].popen.send_signal(signal.SIGKILL)
            for rank in survivors:
                rank.wait(60)
            seconds = time.monotonic() - pace.began
        for rank in survivors:
            report = lab.perf_report(rank)
            error = report.get("error") or {}
            expect(not report["ok"] and error, f"{rank.name} reports no error: {report}")
            expect_equal(error.get("missing"), [2],
                         f"missing ranks in the error of {rank.name}: {error}")
            expect("2" in error["message"], f"the message does not name rank 2: {error['message']}")
        pace.expect_within(seconds, timeout_ms / 1000 + 0.5, "that the others learn of it")
        run_exact_job(lab, "a new job on the same hosts", bytes=MIB)
        run_exact_job(lab, "the same job again", job=job, bytes=MIB)


@case(300, thorough=True)
def a_dead_host_of_one_job_does_not_slow_another_down():
    """On the same hosts, ports and worker the other job takes no longer than while all hosts of the
    first one run.
    """
    rounds = 5
    alive, dead = [], []
    with running_lab(4, "af_packet") as lab:
        def seconds_of_other(where):
            reports = run_exact_job(lab, where, job=other, bytes=MIB, iters=20, warmup=1)
            return max(report["seconds"] for report in reports)

        other = lab.create_job()
        started = time.monotonic()
        seconds_of_other("alone")
        # The survivors must wait for longer than the other job needs, even on a busy machine.
        timeout_ms = max(3000, int(5000 * (time.monotonic() - started)))
        for turn in range(rounds):
            job = lab.create_job()
            ranks = start_ranks(lab, job, bytes=MIB, iters=100000, timeout_ms=timeout_ms)
            wait_for_results(lab, job, 1000)
            alive.append(seconds_of_other(f"round {turn}, all hosts alive"))
            expect(all(rank.running() for rank in ranks), "a rank ended before its time")
            ranks[2].popen.send_signal(signal.SIGKILL)
            survivors = ranks[:2] + ranks[3:]
            dead.append(seconds_of_other(f"round {turn}, one host dead"))
            expect(all(rank.running() for rank in survivors),
                   "the survivors gave up before the other job was done")
            for report in reports_of(lab, survivors, timeout_ms / 1000 + 60):
                expect_equal((report.get("error") or {}).get("missing"), [2],
                             f"missing ranks in {report}")
            lab.ctl("jobs", "destroy", job["id"])
    ratio = statistics.median(dead) / statistics.median(alive)
    expect(ratio <= 1.25, f"the other job took {ratio:.2f} times as long with a dead host, "
                          f"expected at most 1.25 times: {[round(t, 3) for t in dead]} s beside "
                          f"{[round(t, 3) for t in alive]} s")


@case(also_over_udp=True)
def a_destroyed_job_is_reported_to_its_hosts():
    with running_lab(2) as lab:
        job = lab.create_job()
        ranks = start_ranks(lab, job, bytes=MIB, iters=100000)
        wait_for_results(lab, job, 1000)
        lab.ctl("jobs", "destroy", job["id"])
        for report in reports_of(lab, ranks, 60):
            expect(report.get("error"), f"a rank of a destroyed job reports no error: {report}")
        expect_equal(job_entry(lab, job), None, "the job in jobs.list")
        run_exact_job(lab, "a new job", bytes=MIB)


@case()
def a_host_that_never_joins_is_named():
    with running_lab(3) as lab:
        job = lab.create_job()
        # Rank 2 gives up first, and leaves: then rank 0 misses both.
        ranks = [lab.spawn_perf(rank, job, rank, 3, bytes=KIB, join_timeout_ms=timeout_ms,
                                transport=lab.transport)
                 for rank, timeout_ms in ((0, 9000), (2, 4000))]
        missing = [(report.get("error") or {}).get("missing")
                   for report in reports_of(lab, ranks, 60)]
        expect_equal(missing, [[1, 2], [1]], "missing ranks")


@case()
def a_wrong_key_is_refused_with_its_reason():
    with running_lab(2) as lab:
        job = lab.create_job()
        stranger = lab.spawn_perf(0, {**job, "key": "0x1"}, 0, 2, bytes=KIB,
                                  transport=lab.transport)
        report = reports_of(lab, [stranger], 60)[0]
        expect(report.get("error"), f"a host with a wrong key reports no error: {report}")
        expect("key" in report["error"]["message"],
               f"the message does not speak of the key: {report['error']}")
        expect(lab.drops()["key_wrong"] > 0, "key_wrong was not counted")


@case()
def a_job_with_leaders_is_made_and_refused_by_hosts():
    """Hosts that lead blocks join no switch: without the manager they refuse the job."""
    with running_lab(3) as lab:
        job = lab.create_job([0, 1], "--handler", "canary", "--link", lab.port_of(2), "--size", 2,
                             "--slots", 16)
        entry = job_entry(lab, job)
        expect_equal((entry["links"], entry["window"]), ([lab.port_of(2)], 8), "links and window")
        ranks = [lab.spawn_perf(rank, job, rank, 2, bytes=KIB, transport=lab.transport)
                 for rank in range(2)]
        for report in reports_of(lab, ranks, 60):
            words = (report.get("error") or {}).get("message", "")
            expect('"canary", whose hosts lead blocks' in words, f"a host says: {words or report}")
        for options, words in ((("--link", lab.port_of(2), "--slots", 16), "args.size"),
                               (("--link", lab.port_of(2), "--size", 4), "no slots")):
            arguments = ["jobs", "create", "--handler", "canary", "--member",
                         f"{lab.port_of(0)}:{lab.host_ip(0)}", *options]
            done = lab.ctl(*map(str, arguments), check=False)
            expect(done.returncode != 0 and words in done.stderr,
                   f"faninctl {arguments}: {done.returncode}, {done.stderr}")
