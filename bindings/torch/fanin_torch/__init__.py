# SPDX-License-Identifier: BSD-3-Clause
"""
Fanin as a backend of torch.distributed.

    import fanin_torch
    torch.distributed.init_process_group("fanin")

Collectives on CPU tensors run in the network; those that can't go to a Gloo group inside, and
report() lists them with the reasons. docs/pytorch.md has the options and recipes.
"""

import atexit
import json
import os
import sys
import warnings
from dataclasses import dataclass
from datetime import timedelta

import torch.distributed as dist

from fanin_torch import _core
from fanin_torch.agree import Agreement, choose
from fanin_torch.groups import HAS_BACKENDS, core_of

__all__ = ["Options", "core_of", "monitored_barrier", "report"]


def _text(name):
    """Returns a variable of the environment, even if Python has more privileges than its user, or
    of fanin.conf; empty if it is not set.
    """
    return os.environ.get(name) or _core.setting(name)


def _setting(name, choices, default):
    value = _text(name) or default
    if value not in choices:
        raise ValueError(f"{name}: found {value!r}, expected one of {', '.join(choices)}")
    return value


def _flag(name):
    return _setting(name, ("0", "1"), "0") == "1"


def _seconds(name, default):
    text = _text(name) or default
    try:
        value = float(text)
    except ValueError:
        value = 0
    if not 0.001 <= value <= 86400:
        raise ValueError(f"{name}: found {text!r}, expected seconds, 0.001 to 86400")
    return value


@dataclass
class Options:
    """
    The options of a group, given as pg_options. Options that are None are read from the environment
    or from fanin.conf. All ranks give the same.
    """

    # if not all ranks can join: "gloo" or "raise"; FANIN_TORCH_FALLBACK, else "gloo". Rank 0's
    # option counts
    fallback: str = None
    manager: str = None  # ADDRESS[:PORT]; FANIN_MANAGER, else fanin.conf
    interface: str = None  # FANIN_INTERFACE, else that of the route
    join_timeout: float = None  # seconds; FANIN_TORCH_JOIN_TIMEOUT, else 30
    # sums of half and bfloat16 in float on the switch; FANIN_TORCH_ACCUMULATE_F32
    accumulate_f32: bool = None
    authenticate: bool = None  # FANIN_TORCH_AUTHENTICATE
    # sums are in the order of ranks, the same bits in every run; FANIN_TORCH_REPRODUCIBLE
    reproducible: bool = None
    # the job's handler; FANIN_TORCH_HANDLER, else "auto". "sparse" for hooks.top_k
    handler: str = None

    def resolved(self):
        """Returns the options with no None left. Raises ValueError for an invalid one."""
        done = Options(
            self.fallback or _setting("FANIN_TORCH_FALLBACK", ("gloo", "raise"), "gloo"),
            self.manager or "",
            self.interface or _text("FANIN_INTERFACE"),
            _seconds("FANIN_TORCH_JOIN_TIMEOUT", "30")
            if self.join_timeout is None else self.join_timeout,
            _flag("FANIN_TORCH_ACCUMULATE_F32")
            if self.accumulate_f32 is None else self.accumulate_f32,
            _flag("FANIN_TORCH_AUTHENTICATE") if self.authenticate is None else self.authenticate,
            _flag("FANIN_TORCH_REPRODUCIBLE") if self.reproducible is None else self.reproducible,
            self.handler or _text("FANIN_TORCH_HANDLER") or "auto")
        if done.fallback not in ("gloo", "raise"):
            raise ValueError(f"fallback: found {done.fallback!r}, expected 'gloo' or 'raise'")
        if done.handler == "ring":
            raise ValueError("handler: found 'ring', expected one of a switch: without one there "
                             "is Gloo")
        if not 0.001 <= done.join_timeout <= 86400:
            raise ValueError(f"join_timeout: found {done.join_timeout!r}, expected seconds, 0.001 "
                             "to 86400")
        return done


def _are_of_another(options):
    """Whether options are those of another backend, which is for the group's other devices."""
    return HAS_BACKENDS and isinstance(options, _core.Group.__base__.Options)


def _create(backend_options, pg_options):
    """Makes a group. Torch calls it at all ranks of the group."""
    options = Options() if pg_options is None or _are_of_another(pg_options) else pg_options
    if not isinstance(options, Options):
        raise TypeError(f"pg_options: found {type(options).__name__}, expected fanin_torch.Options")
    options = options.resolved()
    store = backend_options.store
    rank, size = backend_options.group_rank, backend_options.group_size
    timeout = backend_options.timeout
    timeout = timeout if isinstance(timeout, timedelta) else timedelta(seconds=timeout)
    gloo = dist.ProcessGroupGloo(dist.PrefixStore("gloo", store), rank, size, timeout=timeout)
    group = _core.Group(gloo, dist.PrefixStore("notes", store), rank, size,
                        backend_options.group_id, timeout)
    agreement = Agreement(dist.PrefixStore("fanin", store), rank, size,
                          timedelta(seconds=options.join_timeout))
    reason, fallback = choose(group, agreement, options, timeout)
    if reason and fallback == "raise":
        raise RuntimeError(f"fanin: not in the network: {reason}")
    if reason and rank == 0:
        warnings.warn(f"fanin: the group {backend_options.group_id!r} of {size} ranks runs on "
                      f"Gloo, not in the network: {reason}",
                      RuntimeWarning, stacklevel=2)
    return group


def report():
    """
    Returns where collectives have run: a list with a dictionary for each group that this process
    has made, in that order. "network" has calls and bytes of each collective that ran in the
    network, "gloo" of those that did not, by reason. All values can be written as JSON.
    """
    return _core.report()


def monitored_barrier(group=None, timeout=None, wait_all_ranks=False):
    """Runs a monitored barrier on the Gloo group inside: torch.distributed.monitored_barrier
    accepts only Gloo's groups.
    """
    group = dist.distributed_c10d._get_default_group() if group is None else group
    core_of(group).monitored_barrier(dist.default_pg_timeout if timeout is None else timeout,
                                     wait_all_ranks)


def _at_exit():
    _core.close_all()
    wanted = _text("FANIN_TORCH_REPORT")
    groups = report()
    if groups and (wanted == "all" or (wanted == "1" and groups[0]["rank"] == 0)):
        print(json.dumps({"fanin_torch": groups}), file=sys.stderr, flush=True)


_setting("FANIN_TORCH_REPORT", ("0", "1", "all"), "0")
atexit.register(_at_exit)
dist.Backend.register_backend("fanin", _create, extended_api=True,
                              **({"devices": ["cpu"]} if HAS_BACKENDS else {}))
