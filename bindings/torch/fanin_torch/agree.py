# SPDX-License-Identifier: BSD-3-Clause
"""The agreement of a group's ranks, by torch's store and before the first collective, to use the
network: either all ranks use it or none does.
"""

import json
import os
import secrets
from datetime import timedelta
from pathlib import Path

from fanin_torch import _core

# Time for a rank's message to arrive after the others' joins have ended.
SLACK = timedelta(seconds=30)


def host_id():
    """Returns the same for processes that share a network stack: in a job they are one host."""
    return f"{Path('/proc/sys/kernel/random/boot_id').read_text().strip()} {os.readlink('/proc/self/ns/net')}"


class Agreement:
    """A few keys in the store of a group."""

    def __init__(self, store, rank, size, patience):
        self.store, self.rank, self.size = store, rank, size
        # Twice: the ranks of a host meet first, and then their leader joins.
        self.patience = 2 * patience + SLACK

    def tell(self, key, value):
        self.store.set(key, json.dumps(value))

    def hear(self, key):
        self.store.wait([key], self.patience)
        return json.loads(self.store.get(key))

    def gather(self, key, value):
        """Returns all ranks' values at rank 0, with None for a rank without one; else None."""
        self.tell(f"{key}/{self.rank}", value)
        if self.rank != 0:
            return None
        values = []
        for rank in range(self.size):
            try:
                values.append(self.hear(f"{key}/{rank}"))
            except RuntimeError:
                values.append(None)
        return values


def plan(agreement, options):
    """
    Makes the plan at rank 0: {"job": a name that no other group has, "hosts": the ranks of each
    host, in the order of their first ranks, which lead the others, "reason": "" or why no rank
    needs to join, "fallback": ...}.
    """
    hosts = {}
    for rank, host in enumerate(agreement.gather("host", host_id())):
        hosts.setdefault(host, []).append(rank)
    reason = ""
    if agreement.size == 1:
        reason = "the group has one rank"
    elif len(hosts) == 1:
        reason = "all ranks are on one host"
    if None in hosts:
        reason = f"rank {hosts[None][0]} has not said on which host it is"
    return {"job": f"torch-{secrets.token_hex(12)}", "hosts": list(hosts.values()),
            "reason": reason,
            "fallback": options.fallback}


def verdict(group, agreement, status):
    """Makes the verdict at rank 0: {"reason": "" if all have joined, else why not, "handler",
    "accumulates_f32": of the job}.
    """
    texts = ["it has not said whether it has joined" if text is None else text
             for text in agreement.gather("joined", status)]
    failed = [f"rank {rank}: {text}" for rank, text in enumerate(texts) if text]
    return {"reason": "; ".join(failed[:3])
            + (f"; and {len(failed) - 3} more" if len(failed) > 3 else ""),
            "handler": group.handler(), "accumulates_f32": group.accumulates_f32()}


def choose(group, agreement, options, timeout):
    """Joins the job with all ranks, and makes the group use the network or Gloo. Returns why it is
    Gloo, or "", and rank 0's fallback.
    """
    if agreement.rank == 0:
        agreement.tell("plan", plan(agreement, options))
    else:
        agreement.gather("host", host_id())
    agreed = agreement.hear("plan")
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
        agreement.tell("verdict", verdict(group, agreement, status))
    else:
        agreement.gather("joined", status)
    done = agreement.hear("verdict")
    if done["reason"]:
        group.use_gloo(done["reason"])
    else:
        group.use_network(done["handler"], done["accumulates_f32"], agreed["fallback"] == "raise")
    return done["reason"], agreed["fallback"]
