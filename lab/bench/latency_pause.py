# SPDX-License-Identifier: BSD-3-Clause
"""Measures the first allreduce after silence, in which hosts and the switch's workers sleep, and
compares it with allreduces one after the other.
"""

import os
import statistics

from lab.namespaces import Lab

from lab.bench.allreduce_rows import ALLREDUCE
from lab.bench.allreduce_sides import Task, fanin
from lab.bench.io_forwarding import say
from lab.bench.runs import figure

HOSTS, BYTES = 4, 1024
SETUPS = (("udp", 1500), ("af_packet", 9000), ("af_xdp", 3474))
WORKERS = (1, 2)
STEADY_ITERS = 1000
PAUSES = {10: 60, 100: 20, 1000: 5}  # ms: number of allreduces
MAX_EXTRA_US = 1000


def from_last_begin(reports):
    """Returns the seconds of each allreduce from when the last rank began until the last one was
    done, as ranks that slept do not wake at the same time.
    """
    begins = zip(*(report["begins"] for report in reports), strict=True)
    ends = zip(*([begin + time for begin,
                  time in zip(report["begins"], report["times"], strict=True)]
                 for report in reports), strict=True)
    return [max(end) - max(begin) for begin, end in zip(begins, ends, strict=True)]


def switch_config(workers):
    return {"workers": [{"lcore": lcore, "cpu": lcore % (os.cpu_count() or 1)}
                        for lcore in range(workers)]}


def one_cell(transport, mtu, workers, pauses, samples):
    """Adds to samples: {(transport, mtu, workers, ms): [seconds]}; 0 ms: one after the other."""
    with Lab(HOSTS, transport, mtu, switch_config(workers) if workers > 1 else None) as lab:
        lab.start_switch()
        for ms, iters in {0: STEADY_ITERS, **pauses}.items():
            _, reports = fanin(lab, Task(ALLREDUCE, BYTES, iters), pause_ms=ms or None)
            found = from_last_begin(reports)
            say(f"{transport} {mtu}, {workers} worker{'s' if workers > 1 else ''}, {ms:>4} ms of "
                f"silence: {figure(found) * 1e6:.1f} us, {max(found) * 1e6:.1f} at most")
            samples.setdefault((transport, mtu, workers, ms), []).extend(found)


def rows_of(samples):
    rows = []
    for (transport, mtu, workers, ms), seconds in samples.items():
        if ms == 0:
            continue
        steady = statistics.median(samples[transport, mtu, workers, 0])
        first = statistics.median(seconds)
        extra_us = (first - steady) * 1e6
        rows.append({"part": "pause", "collective": ALLREDUCE, "hosts": HOSTS, "bytes": BYTES,
                     "transport": transport, "mtu": mtu, "workers": workers,
                     "pause_ms": ms, "steady_us": steady * 1e6, "first_us": first * 1e6,
                     "first_max_us": max(seconds) * 1e6, "extra_us": extra_us,
                     "goal": f"less than {MAX_EXTRA_US} us more",
                     "reached": extra_us < MAX_EXTRA_US, "raw": seconds})
    return rows


def lines_of(rows):
    lines = [f"allreduce of {BYTES} bytes of {HOSTS} hosts after silence: median, and the slowest; "
             "us from when the last rank began",
             f"{'transport':<10} {'MTU':>6} {'workers':>8} {'silence':>9} {'steady':>8} "
             f"{'first':>8} {'slowest':>8}  goal"]
    return lines + [f"{row['transport']:<10} {row['mtu']:>6} {row['workers']:>8} "
                    f"{row['pause_ms']:>6} ms {row['steady_us']:8.1f} {row['first_us']:8.1f} "
                    f"{row['first_max_us']:8.1f}  {row['goal']}: "
                    f"{'reached' if row['reached'] else 'MISSED'}" for row in rows]
