# SPDX-License-Identifier: BSD-3-Clause
"""The results of a measured loop's ranks: fanin-perf's, or those of a program of bench/peers. Each
rank times every collective separately and checks the first and the last one.
"""

import json
import statistics

from lab.namespaces import LabError

RUN_SECONDS = 180


def slowest(times_of_ranks):
    """Returns each collective's time on its slowest rank."""
    return [max(times) for times in zip(*times_of_ranks, strict=True)]


def times_of(name, report):
    """Returns the seconds of each collective of a run; LabError if an element was wrong."""
    if report["mismatches"] != 0:
        raise LabError(f"{name}: {report['mismatches']} elements are wrong")
    return report["times"]


def figure(times):
    """Returns a run's figure."""
    return statistics.median(times)


def perf_run(lab, ranks, name="fanin-perf"):
    """Waits for fanin-perf's ranks. Returns (seconds of each collective, reports); LabError with
    their output if one fails.
    """
    for rank in ranks:
        rank.wait(RUN_SECONDS)
        lab.processes.remove(rank)
    reports = [lab.perf_report(rank) for rank in ranks]
    for report in reports:
        if report.get("error"):
            raise LabError(f"{name}: {report['error']['message']}")
    return times_of(name, {"mismatches": sum(report["mismatches"] for report in reports),
                           "times": slowest([report["times"] for report in reports])}), reports


def peer_run(lab, processes, name):
    """Waits for a peer's processes, the first of which reports. Returns the seconds of each
    collective; LabError with their output if one fails.
    """
    for process in processes:
        if process.wait(RUN_SECONDS) != 0:
            raise LabError(f"{process.name}: {process.last_words()}")
        lab.processes.remove(process)
    return times_of(name, json.loads(processes[0].stdout()))
