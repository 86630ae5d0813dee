# SPDX-License-Identifier: BSD-3-Clause
"""Communication hooks for DistributedDataParallel: model.register_comm_hook(group, fanin_torch.hooks.bf16)."""

import torch
import torch.distributed as dist

from fanin_torch import _core


def bf16(group, bucket):
    """
    Averages gradients as bfloat16, which the switch accumulates in float and rounds once. group: the model's process group, None for the
    default one; it was made with Options(accumulate_f32=True).
    """
    group = dist.group.WORLD if group is None else group
    if isinstance(group, _core.Group) and not group.accumulates_f32():
        raise ValueError("the group accumulates bfloat16 in bfloat16: make it with fanin_torch.Options(accumulate_f32=True)")
    gradients = bucket.buffer()
    sent = gradients.to(torch.bfloat16).div_(group.size())
    future = dist.all_reduce(sent, group=group, async_op=True).get_future()

    def back(done):
        return gradients.copy_(done.value()[0])

    return future.then(back)
