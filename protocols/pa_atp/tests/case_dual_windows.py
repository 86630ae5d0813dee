# SPDX-License-Identifier: BSD-3-Clause
"""Hosts of jobs with a parameter server (PA-ATP), over real links: their reports on their windows,
their trace, and their refusals.
"""

import json

from protocols.pa_atp.tests.case_server import Server
from lab.namespaces import SWITCH_IP
from tests.net.support import (KIB, MIB, case, expect, expect_equal, expect_exact, reports_of,
                               running_lab, start_ranks)

CONTROLS = ("sync", "atp", "straw", "straw+progress", "straw+limit", "pa-atp")
TRACE_KEYS = {"time", "rank", "iteration", "cwd", "awd", "in_flight", "alpha", "beta", "p",
              "goodput_gbps"}


def serve(lab, server, hosts, *options):
    """Makes a job of these hosts, with the server that is on another host."""
    version = server.control.ask("version")
    job = lab.create_job(hosts, "--handler", "pa-atp", "--server",
                         f"{lab.port_of(server.host)},{version['ip']},{version['mac']}", *options)
    server.control.ask("jobs.create", id=job["id"], key=job["key"], size=len(hosts),
                       slots=job["slots"], payload_bytes=job["payload_bytes"],
                       members=[{"ip": SWITCH_IP, "ranks": list(range(len(hosts)))}])
    return job


@case()
def hosts_with_a_server_report_and_trace_their_windows():
    with running_lab(3, "af_packet", config={"limits": {"shared_slots": 256}}) as lab:
        server = Server(lab, host=2).start()
        for number, control in enumerate(CONTROLS):
            job = serve(lab, server, [0, 1], "--slots", 128, "--parameter", f"congestion={number}")
            trace = lab.directory / f"trace-{number}"
            ranks = [lab.spawn_perf(host, job, host, 2, bytes=4 * MIB, iters=3,
                                    transport="af_packet", check=True,
                                    trace=trace if host == 0 else None) for host in (0, 1)]
            reports = reports_of(lab, ranks)
            expect_exact(reports, control, "pa-atp")
            for report in reports:
                found = report["congestion"]
                expect_equal((report["protocol"], found["name"]), ("pa-atp", control),
                             "protocol and congestion control")
                expect(found["cwd"] >= 1 and found["awd"] >= 1, f"windows: {found}")
                expect(found["gacks"] >= found["aacks"] - report["retransmits"] > 0,
                       f"acknowledgments: {found}")
            lines = [json.loads(line) for line in trace.read_text().splitlines()]
            expect(len(lines) >= 2, f"{len(lines)} lines of a trace")
            for line in lines:
                expect_equal(set(line), TRACE_KEYS, "what a line of the trace has")
            times = [line["time"] for line in lines]
            expect_equal(times, sorted(times), "the order of lines")
            expect(any(line["goodput_gbps"] > 0 for line in lines), "no goodput in the trace")
            lab.ctl("jobs", "destroy", job["id"])
            server.control.ask("jobs.destroy", id=job["id"])
        server.stop()


@case(family=True)
def sums_with_a_server_are_exact_when_packets_are_lost():
    faults = {"drop": 0.02, "duplicate": 0.02, "reorder": 0.02}
    with running_lab(4, "af_packet",
                     config={"limits": {"shared_slots": 32}, "faults": faults}) as lab:
        server = Server(lab, host=3).start()
        job = serve(lab, server, [0, 1, 2], "--slots", 128)
        for options in ({"bytes": 2 * MIB},
                        {"collective": "broadcast", "bytes": MIB, "dtype": "u8"},
                        {"collective": "reduce_scatter", "bytes": 384 * KIB},
                        {"collective": "allgather", "bytes": 384 * KIB, "dtype": "f64"},
                        {"collective": "barrier", "bytes": 0}):
            expect_exact(reports_of(lab, start_ranks(lab, job, [0, 1, 2], **options)), str(options),
                         "pa-atp")
        server.stop()


@case()
def what_jobs_with_a_server_do_not_have_is_refused_by_name():
    with running_lab(3, "af_packet", config={"limits": {"shared_slots": 64}}) as lab:
        server = Server(lab, host=2).start()
        job = serve(lab, server, [0, 1], "--slots", 64)
        for options, words in (({"sparse": True, "bytes": MIB}, ["pa-atp", "allreduce_sparse"]),
                               ({"dtype": "complex-f32", "op": "prod"},
                                ["custom operator", "protocol pa-atp"])):
            report = reports_of(lab, start_ranks(lab, job, [0, 1], **options))[0]
            expect_equal((report["ok"], report["error"]["code"]), (False, "unsupported"),
                         f"{options}")
            for word in words:
                expect(word in report["error"]["message"],
                       f"'{report['error']['message']}' does not have '{word}'")
        # Dense vectors with a hint are sent as they are.
        expect_exact(reports_of(lab,
                                start_ranks(lab, job, [0, 1], maybe_sparse=True, bytes=MIB,
                                            density=0.01)), "a hint", "pa-atp")
        # A trace needs such a job, too.
        single = lab.create_job([0])
        report = reports_of(lab, start_ranks(lab, single, [0], trace=lab.directory / "none"))[0]
        expect("handler single" in report["error"]["message"],
               f"'{report['error']['message']}' does not name the handler")
        server.stop()
