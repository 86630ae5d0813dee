# SPDX-License-Identifier: BSD-3-Clause
"""The agreement of a group's ranks, by torch's store and before the first collective, to use the
network: either all ranks use it or none does.
"""

import json
import secrets
import time
from datetime import timedelta

from fanin_torch import _core

# Time for a rank's message to arrive after the others' joins have ended.
SLACK = timedelta(seconds=30)
# Time to fetch a message that is there.
LEAST = timedelta(milliseconds=500)


class Agreement:
    """A few keys in the store of a group."""

    def __init__(self, store, rank, size, patience):
        self.store, self.rank, self.size = store, rank, size
        self.patience = patience + SLACK

    def tell(self, key, value):
        self.store.set(key, json.dumps(value))

    def hear(self, key, patience):
        self.store.wait([key], patience)
        return json.loads(self.store.get(key))

    def hear_of_rank_0(self, key):
        """Returns what rank 0 tells once it has gathered what the others tell."""
        return self.hear(key, 2 * self.patience)

    def gather(self, key, value):
        """Returns all ranks' values at rank 0, with None for a rank without one; else None."""
        self.tell(f"{key}/{self.rank}", value)
        if self.rank != 0:
            return None
        values = []
        until = time.monotonic() + self.patience.total_seconds()
        for rank in range(self.size):
            left = max(LEAST, timedelta(seconds=until - time.monotonic()))
            try:
                values.append(self.hear(f"{key}/{rank}", left))
            except RuntimeError:
                values.append(None)
        return values


def plan(agreement, options):
    """
    Makes the plan at rank 0: {"job": a name that no other group has, "hosts": the host of each
    rank, numbered in the order of their first ranks, "reason": "" or why no rank needs to join,
    "fallback": ..., "silent": ranks that have said nothing}.
    """
    said = agreement.gather("host", _core.host_id())
    numbers = {host: number for number, host in enumerate(dict.fromkeys(said))}
    reason = ""
    if agreement.size == 1:
        reason = "the group has one rank"
    elif len(numbers) == 1:
        reason = "all ranks are on one host"
    return {"job": f"torch-{secrets.token_hex(12)}", "hosts": [numbers[host] for host in said],
            "reason": reason, "fallback": options.fallback, "silent": silent_among(said)}


def silent_among(said):
    """Returns the ranks that have said nothing."""
    return [rank for rank, text in enumerate(said) if text is None]


def refuse_silent(silent):
    """Raises RuntimeError if there are such ranks: Gloo would wait for them, too."""
    if silent:
        raise RuntimeError("fanin: these ranks have not come to make the group: "
                           + ", ".join(map(str, silent)))


def verdict(agreement, status):
    """Makes the verdict at rank 0: {"reason": "" if all have joined, else why not, "silent": ranks
    that have said nothing}.
    """
    said = agreement.gather("joined", status)
    failed = [f"rank {rank}: {text}" for rank, text in enumerate(said) if text]
    return {"reason": "; ".join(failed[:3])
            + (f"; and {len(failed) - 3} more" if len(failed) > 3 else ""),
            "silent": silent_among(said)}


def choose(group, agreement, options, timeout):
    """Joins the job with all ranks, and makes the group use the network or Gloo. Returns why it is
    Gloo, or "", and rank 0's fallback.
    """
    if agreement.rank == 0:
        agreement.tell("plan", plan(agreement, options))
    else:
        agreement.gather("host", _core.host_id())
    agreed = agreement.hear_of_rank_0("plan")
    refuse_silent(agreed["silent"])
    if agreed["reason"]:
        group.use_gloo(agreed["reason"])
        return agreed["reason"], agreed["fallback"]
    join = _core.JoinOptions()
    join.job_name = agreed["job"]
    join.manager, join.interface, join.handler = options.manager, options.interface, options.handler
    join.join_timeout, join.timeout = timedelta(seconds=options.join_timeout), timeout
    join.accumulate_f32, join.authenticate = options.accumulate_f32, options.authenticate
    join.reproducible = options.reproducible
    status = group.join(join, agreed["hosts"])
    if agreement.rank == 0:
        agreement.tell("verdict", verdict(agreement, status))
    else:
        agreement.gather("joined", status)
    decided = agreement.hear_of_rank_0("verdict")
    refuse_silent(decided["silent"])
    reason = decided["reason"]
    if reason:
        group.use_gloo(reason)
    else:
        group.use_network(agreed["fallback"] == "raise")
    return reason, agreed["fallback"]
