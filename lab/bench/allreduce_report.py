# SPDX-License-Identifier: BSD-3-Clause
"""The table of ./dev bench allreduce."""

from lab.namespaces import NOBODY

from lab.bench.allreduce_rows import IN_PLACE, MIN_BARE_SHARE, SETUPS
from lab.bench.cpu_times import BUSY_CORES
from lab.bench.sizes import human_bytes
from lab.bench.stamp import words


def cpu_text(seconds_per_mib):
    return "-" if seconds_per_mib is None else f"{seconds_per_mib * 1e3:.2f}"


def goal_text(row):
    if row["goal"] is None:
        return ""
    return f"{row['goal']}: {'MISSED' if not row['reached'] else 'both reached' if row.get('wanted') else 'reached'}"


def in_place_line(row):
    """A line of hosts on UDP sockets. The bare exchange has only allreduces."""
    bare, same = row.get("bare"), row["same_mtu"]
    beside = f"{'-':>7} {'-':>7} {'-':>6} "
    if bare is not None:
        beside = f"{bare['gbps']:7.3f} {cpu_text(bare['cpu_seconds_per_mib']):>7} {bare['share']:6.2f}{' ' if bare['reached'] else '!'}"
    return (f"{human_bytes(row['bytes']):>9}{'*' if row['busy_runs'] else ' '} {row['setup']:<10} "
            f"{row['gbps']:7.3f} {row['latency_us']:10.1f} "
            f"{cpu_text(row['cpu_seconds_per_mib']):>7}  {beside} {same['gbps']:8.3f} "
            f"{same['ratio']:6.2f}  {row['peer_setup']:<10} {row['peer_gbps']:7.3f} "
            f"{row['peer_latency_us']:10.1f} {cpu_text(row['peer_cpu_seconds_per_mib']):>7} "
            f"{row['ratio']:6.2f}  {goal_text(row)}").rstrip()


IN_PLACE_HEADER = (f"{'bytes':>9}  {'Fanin with':<10} {'Gbit/s':>7} {'us':>10} {'CPU':>7}  "
                   f"{'bare':>7} {'CPU':>7} {'share':>6}  {'same MTU':>8} {'ratio':>6}  "
                   f"{'best of it':<10} {'Gbit/s':>7} {'us':>10} {'CPU':>7} {'ratio':>6}  goal")


def plain_line(row):
    return (f"{human_bytes(row['bytes']):>9}{'*' if row['busy_runs'] else ' '} {row['setup']:<22} "
            f"{row['gbps']:8.3f} {row['latency_us']:10.1f} "
            f"{cpu_text(row['cpu_seconds_per_mib']):>7}  {row['peer_setup']:<14} "
            f"{row['peer_gbps']:8.3f} {row['peer_latency_us']:10.1f} "
            f"{cpu_text(row['peer_cpu_seconds_per_mib']):>7}  {row['ratio']:6.2f}  {goal_text(row)}").rstrip()


def table(result):
    rows = result["results"]
    lines = [words(result["stamp"]),
             "sums of f32 and other collectives; goodput per host in Gbit/s, time of one "
             "collective in us, CPU of all processes in ms per MiB; "
             f"medians of {result['rounds']} rounds",
             f"load average {result['machine']['load_after'][0]:.1f} after; net.core.rmem_max "
             f"{result['machine']['rmem_max']}"]
    head = None
    for row in rows:
        what = f"{row['collective']}, {row['hosts']} hosts"
        if (what, row["peer"], SETUPS[row["setup"]].group) != head:
            head = what, row["peer"], SETUPS[row["setup"]].group
            if row["peer"] == IN_PLACE:
                lines += ["", f"{what} on UDP sockets as user {NOBODY}, in place; the bare "
                              "exchange; Open MPI's TCP in place", IN_PLACE_HEADER]
            else:
                lines += ["", what, f"{'bytes':>9}  {'Fanin with':<22} {'Gbit/s':>8} {'us':>10} "
                                    f"{'CPU':>7}  {row['peer']:<14} {'Gbit/s':>8} {'us':>10} "
                                    f"{'CPU':>7}  {'ratio':>6}  goal"]
        lines.append(in_place_line(row) if row["peer"] == IN_PLACE else plain_line(row))
    if any(row["busy_runs"] for row in rows):
        lines += ["", f"* a run of this row had more than {BUSY_CORES:g} cores of other load "
                      "beside it"]
    if any(not row["bare"]["reached"] for row in rows if "bare" in row):
        lines += ["", f"! less than {MIN_BARE_SHARE:g} of the bare exchange"]
    return "\n".join(lines)
