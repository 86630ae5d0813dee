# SPDX-License-Identifier: BSD-3-Clause
"""
`./dev bench stragglers --part reasons`: explains the differences between members of the family,
from traces of single runs.

A rank is ahead by the blocks that the switch has and whose results have not come. A job's straggler
is the rank that is least ahead; a rank that is LEADS blocks or more ahead of it leads. Shares are
of a path's rate, and means over the time in which all jobs run.
"""

import statistics

BIN_MS = 20
PATH_MBIT = 100
LEADS = 20
# A smaller share of a path's rate in a bin counts as not sending.
IDLE = 0.003
SEEDS = 6


def lines(quick):
    """Returns (question, label, options of the run without its seed), in the order of the tables.
    """
    found = []
    for load in ((0.8,) if quick else (0.6, 0.8)):
        for member in ("sync", "atp", "straw", "pa-atp"):
            found.append(("paths", f"load {load}", {"member": member, "load": load}))
    # Job A on paths 0 and 1, job B on 1 and 2, flows on path 0 only: A's leader shares a path with
    # B, which has no other.
    for member in ("straw", "pa-atp"):
        found.append(("roles", "A on 0 and 1, B on 1 and 2, flows on 0", {
            "member": member, "load": 0.8, "ranks": 2, "paths": 3, "loaded_paths": 1,
            "worker_paths": "0112", "iterations": 5}))
    for udp in ({}, {"udp": True}):
        for window in (64, 512):
            found.append(("sync", f"{'UDP, 0.6' if udp else 'DCTCP, 0.8'}, window {window}", {
                "member": "sync", "load": 0.6 if udp else 0.8, "fixed_window": window, **udp}))
    few = {"load": 0.5, "aggregators": 256}
    memory = [("servers of 100 Mbit/s", {**few, "jobs": 4}),
              ("servers of 25 Mbit/s", {**few, "jobs": 4, "server_mbit": 25}),
              ("2 jobs of 8 on 8 paths",
               {**few, "jobs": 2, "ranks": 8, "paths": 8, "loaded_paths": 8})]
    for label, options in memory:
        for member in ("straw", "straw+progress", "straw+limit", "pa-atp"):
            found.append(("memory", label, {"member": member, **options}))
    return found


def runs(quick):
    """Returns the options of all runs, each with the question and the label of its line."""
    found = []
    for question, label, options in lines(quick):
        # Runs of 16 ranks take longest.
        seeds = 2 if quick else SEEDS // 2 if options.get("ranks", 0) > 3 else SEEDS
        found += [(question, label, {"iterations": 3, **options, "seed": seed, "trace_ms": BIN_MS})
                  for seed in range(1, seeds + 1)]
    return found


def bins_of(found):
    """Returns the trace's bins until the first job ends."""
    end = min(job["begin"] + job["seconds"] for job in found["jobs"])
    trace = found["trace"]
    return trace["bins"][:max(1, int(end / trace["bin_seconds"]))]


def ranks_of(found):
    """Returns the numbers of each job's workers."""
    ranks, first = [], 0
    for job in found["jobs"]:
        ranks.append(range(first, first + len(job["ranks"])))
        first += len(job["ranks"])
    return ranks


def measure_stragglers(found, bins):
    """Measures the traffic on the stragglers' paths. Only bins in which a job has a leading rank
    count; without such a bin there are no values.
    """
    paths = [rank["path"] for job in found["jobs"] for rank in job["ranks"]]
    ranks = ranks_of(found)
    sums = dict.fromkeys(("straggler_path", "straggler_background", "straggler_own",
                          "straggler_others", "straggler_leaders",
                          "straggler_cwd", "straggler_alpha", "same_path", "leaders_idle",
                          "leaders_ahead"), 0)
    count = leaders = 0
    for at in bins:
        ahead, sent = at["ahead"], [mbit / PATH_MBIT for mbit in at["sent_mbit"]]
        straggler = [min(own, key=lambda rank: ahead[rank]) for own in ranks]
        leads = [[rank for rank in own if ahead[rank] >= ahead[straggler[job]] + LEADS] for job,
                 own in enumerate(ranks)]
        waits = [job for job in range(len(ranks)) if leads[job]]
        for job in waits:
            path = paths[straggler[job]]
            others = [rank for other,
                      own in enumerate(ranks) if other != job for rank in own
                      if paths[rank] == path]
            count += 1
            sums["straggler_path"] += at["path_mbit"][path] / PATH_MBIT
            sums["straggler_background"] += at["background_mbit"][path] / PATH_MBIT
            sums["straggler_own"] += sum(sent[rank] for rank in ranks[job] if paths[rank] == path)
            sums["straggler_others"] += sum(sent[rank] for rank in others)
            sums["straggler_leaders"] += sum(sent[rank] for rank in others
                                             if any(rank in one for one in leads))
            sums["straggler_cwd"] += at["cwd"][straggler[job]]
            sums["straggler_alpha"] += at["alpha"][straggler[job]]
            sums["same_path"] += any(paths[straggler[other]] == path for other in waits
                                     if other != job)
            leaders += len(leads[job])
            sums["leaders_idle"] += sum(sent[rank] < IDLE for rank in leads[job])
            sums["leaders_ahead"] += sum(ahead[rank] for rank in leads[job])
    per_leader = ("leaders_idle", "leaders_ahead")
    measured = {name: total / (leaders if name in per_leader else count) if count else None
                for name, total in sums.items()}
    return {**measured, "waiting": count / len(bins) / len(ranks)}


def measure(found, options):
    bins = bins_of(found)
    n_paths = len(found["paths"])
    server_mbit = options.get("server_mbit", PATH_MBIT)
    gradients = sum(job["switch"]["gradients"] for job in found["jobs"])
    return {
        "busiest_path": max(statistics.mean(at["path_mbit"][path] for at in bins)
                            for path in range(n_paths)) / PATH_MBIT,
        "busiest_server": max(statistics.mean(at["server_mbit"][job] for at in bins)
                              for job in range(len(found["jobs"]))) / server_mbit,
        "overflow_share": sum(job["switch"]["overflows"] for job in found["jobs"]) / gradients,
        "server_drops": sum(job["server_dropped"] for job in found["jobs"]),
        **measure_stragglers(found, bins),
    }


TITLES = {
    "paths": "what the path of a job's straggler carries, while another rank of the job leads",
    "roles": "one job's leader beside the other job's straggler",
    "sync": "the fixed window, and what sets its pace",
    "memory": "256 aggregators, and the links to the servers",
}
COLUMNS = {
    "paths": (("busiest", "busiest_path"), ("path", "straggler_path"),
              ("flows", "straggler_background"), ("own", "straggler_own"),
              ("others", "straggler_others"), ("leaders", "straggler_leaders"),
              ("same", "same_path"), ("idle", "leaders_idle"),
              ("ahead", "leaders_ahead"), ("cwd", "straggler_cwd"), ("alpha", "straggler_alpha"),
              ("marks", "marks"),
              ("arrived", "delivered_load"), ("waiting", "waiting")),
    "sync": (("load", "offered_load"), ("arrived", "delivered_load"), ("busiest", "busiest_path"),
             ("marks", "marks"), ("dropped", "dropped"),
             ("retrans", "retransmits"), ("queries", "queries")),
    "memory": (("overflow", "overflow_share"), ("server", "busiest_server"),
               ("lost", "server_drops"), ("busiest", "busiest_path"),
               ("own", "straggler_own"), ("leaders", "straggler_leaders"),
               ("retrans", "retransmits"), ("queries", "queries"), ("AECN", "aecns")),
}
COLUMNS["roles"] = COLUMNS["paths"]


def summarise(rows):
    """Returns one line for each question, label and member: means over seeds, except for seconds,
    which have a median and quartiles.
    """
    groups = {}
    for row in rows:
        groups.setdefault((row["question"], row["label"], row["member"]), []).append(row)
    found = []
    for (question, label, member), group in groups.items():
        seconds = [row["seconds"] for row in group]
        spread = statistics.quantiles(seconds, n=4,
                                      method="inclusive") if len(seconds) > 1 else seconds * 3
        line = {"question": question, "label": label, "member": member, "runs": len(group),
                "seconds": statistics.median(seconds),
                "quartiles": (spread[0], spread[2])}
        for name in (name for _, name in COLUMNS[question]):
            values = [row[name] for row in group if row[name] is not None]
            line[name] = statistics.mean(values) if values else None
        found.append(line)
    return found


def text(value):
    if value is None:
        return f"{'-':>8}"
    return f"{value:8.0f}" if value > 20 else f"{value:8.3f}"


def show(rows):
    found = summarise(rows)
    for question, title in TITLES.items():
        columns = COLUMNS[question]
        print(f"reasons: {title}")
        print(f"  {'':38} {'member':15} {'s':>6} {'quartiles':>13} "
              + " ".join(f"{name:>8}" for name, _ in columns))
        for line in (line for line in found if line["question"] == question):
            values = " ".join(text(line[field]) for _, field in columns)
            print(f"  {line['label']:38} {line['member']:15} {line['seconds']:6.3f} "
                  f"{line['quartiles'][0]:6.3f} {line['quartiles'][1]:6.3f} {values}")
