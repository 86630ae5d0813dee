# SPDX-License-Identifier: BSD-3-Clause
"""Where a process group of torch has its fanin_torch._core.Group."""

import torch
import torch.distributed as dist

from fanin_torch import _core

# From 2.0 on a process group has a backend for each type of device.
HAS_BACKENDS = not issubclass(_core.Group, dist.ProcessGroup)


def find_core_of(group):
    """Returns the part of a process group that runs in the network, or None."""
    if HAS_BACKENDS and isinstance(group, dist.ProcessGroup):
        try:
            group = group._get_backend(torch.device("cpu"))
        except RuntimeError:
            return None
        # TORCH_DISTRIBUTED_DEBUG=DETAIL puts a wrapper around each backend.
        group = getattr(group, "wrapped_pg", group)
    return group if isinstance(group, _core.Group) else None


def core_of(group):
    """Does the same. Raises TypeError if the group is not one of this backend."""
    found = find_core_of(group)
    if found is None:
        raise TypeError(f"group: found {type(group).__name__} {group!r}, expected one of the "
                        "backend fanin")
    return found
