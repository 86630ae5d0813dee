# SPDX-License-Identifier: BSD-3-Clause
"""What scenarios of torch_rank.py have in common: comparisons, and a model that they train."""

import contextlib

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel


def same(found, expected, what):
    if not torch.equal(found, expected):
        raise AssertionError(f"{what}: found {found.flatten()[:8]}, expected "
                             f"{expected.flatten()[:8]}")


class Net(torch.nn.Module):
    def __init__(self, unused=False):
        super().__init__()
        self.first = torch.nn.Linear(20, 300)
        self.second = torch.nn.Linear(300, 10)
        self.other = torch.nn.Linear(300, 10) if unused else None

    def forward(self, x, use_other=False):
        hidden = torch.relu(self.first(x))
        return self.other(hidden) if use_other else self.second(hidden)


def train(rank, size, group, unused=False, bucket=25, hook=None, accumulate=1, steps=20,
          losses=None, make_hook=None, dtype=torch.float):
    """Some steps from fixed seeds. Returns the parameters in one tensor. make_hook: of the model,
    returns state and hook.
    """
    torch.manual_seed(7)
    # The first bucket has a size of its own.
    dist._DEFAULT_FIRST_BUCKET_BYTES = min(2 ** 20, int(bucket * 2 ** 20))
    model = DistributedDataParallel(Net(unused).to(dtype), process_group=group,
                                    bucket_cap_mb=bucket, find_unused_parameters=unused)
    if hook is not None:
        model.register_comm_hook(group, hook)
    if make_hook is not None:
        model.register_comm_hook(*make_hook(model))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05, momentum=0.9)
    data = torch.Generator().manual_seed(100 + rank)
    # What there is to learn: whose largest of ten elements it is.
    for step in range(steps):
        optimizer.zero_grad()
        for part in range(accumulate):
            x = torch.randn(16, 20, generator=data)
            y = x[:, :10].argmax(1)
            use_other = unused and step % 2 == 1
            with model.no_sync() if part + 1 < accumulate else contextlib.nullcontext():
                loss = torch.nn.functional.cross_entropy(model(x.to(dtype), use_other)
                                                         if unused else model(x.to(dtype)), y)
                loss.backward()
        optimizer.step()
        if losses is not None:
            mean = loss.detach().float()
            dist.all_reduce(mean, dist.ReduceOp.AVG)
            losses.append(mean.item())
    return torch.cat([value.detach().flatten() for value in model.parameters()])


def equal_everywhere(rank, size, mine, what):
    all_ranks = [torch.zeros_like(mine) for _ in range(size)]
    dist.all_gather(all_ranks, mine)
    for peer, theirs in enumerate(all_ranks):
        same(theirs, mine, f"{what}: parameters of rank {peer} beside those of rank {rank}")
