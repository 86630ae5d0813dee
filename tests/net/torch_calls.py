# SPDX-License-Identifier: BSD-3-Clause
"""Scenarios of torch_rank.py: calls by which sharded models are trained, operators with a factor,
timeouts, and groups that end in the middle of something.
"""

import os
import signal
import time
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

from fanin_torch.groups import HAS_BACKENDS, core_of
from torch_model import Net, equal_everywhere, same, train

FLOATS = (torch.half, torch.bfloat16, torch.float, torch.double)


def rows_of(rank, size, salt, dtype=torch.float, n=50):
    """A row for each rank; the same at all ranks that ask for it: small whole numbers."""
    generator = torch.Generator().manual_seed(100 * salt + rank)
    return torch.randint(-3, 4, (size, n), generator=generator).to(dtype)


def sums_of(size, salt, **options):
    return sum(rows_of(rank, size, salt, **options).double() for rank in range(size))


def coalesced(rank, size):
    """Several tensors by one call, as sharded models use them, by the functions of the process
    group and by those that compiled programs call.
    """
    group = dist.group.WORLD
    lengths = (1, 50, 0, 3000)
    inputs = [rows_of(rank, size, salt, n=n) for salt, n in enumerate(lengths)]
    outputs = [torch.zeros(n) for n in lengths]
    options = dist.ReduceScatterOptions()
    options.reduceOp = dist.ReduceOp.SUM
    group.reduce_scatter_tensor_coalesced(outputs, inputs, options).wait()
    for salt, (output, n) in enumerate(zip(outputs, lengths)):
        same(output.double(), sums_of(size, salt, n=n)[rank],
             f"reduce_scatter_tensor_coalesced, {n}")
    gathered = [torch.zeros(size, n) for n in lengths]
    group.allgather_into_tensor_coalesced(gathered, outputs).wait()
    for salt, (output, n) in enumerate(zip(gathered, lengths)):
        same(output.double(), sums_of(size, salt, n=n), f"allgather_into_tensor_coalesced, {n}")
    with dist.distributed_c10d._coalescing_manager(async_ops=True) as works:
        for output, value in zip(gathered, outputs):
            dist.all_gather_into_tensor(output.zero_(), value)
    works.wait()
    same(gathered[3].double(), sums_of(size, 3, n=3000), "all_gather_into_tensor, coalesced")
    from torch.distributed import _functional_collectives as functional

    found = functional.all_reduce(torch.full((7,), float(rank)), "avg", group)
    same(found + 0, torch.full((7,), (size - 1) / 2), "a functional all_reduce")
    found = functional.all_gather_into_tensor_coalesced([torch.full((2,), float(rank))] * 3, group)
    same(found[2] + 0, torch.arange(size).float().repeat_interleave(2),
         "functional all_gather_into_tensor_coalesced")
    found = functional.reduce_scatter_tensor_coalesced([torch.arange(2 * size).float()] * 2, "sum",
                                                       [0, 0], group)
    same(found[1] + 0, size * torch.tensor([2.0 * rank, 2.0 * rank + 1]),
         "functional reduce_scatter_tensor_coalesced")
    for inputs, outputs in ((1, []), (1, [torch.zeros(3)] * 2), (1, [torch.zeros(3)]),
                            (2, [torch.zeros(2 * size), torch.zeros(1).expand(2 * size)])):
        try:
            group.allgather_into_tensor_coalesced(outputs, [torch.zeros(2)] * inputs)
        except RuntimeError as error:
            if "allgather_into_tensor_coalesced: found" in str(error):
                continue
        raise AssertionError(f"{len(outputs)} outputs for {inputs} inputs did not raise")


def premultiplied(rank, size):
    """Sums of elements that each rank multiplies by its own factor first."""
    make = torch._C._distributed_c10d._make_nccl_premul_sum
    for dtype in FLOATS:
        values = [rows_of(one, 1, 9, dtype, 70)[0] for one in range(size)]
        for kind in (float, torch.tensor if HAS_BACKENDS else lambda one: [torch.tensor(one)]):
            def factor(one, kind=kind):
                return kind(0.5 * (one + 1))
            total = sum(value * (0.5 * (one + 1)) for one, value in enumerate(values))
            tensor = values[rank].clone()
            dist.all_reduce(tensor, make(factor(rank)))
            same(tensor, total, f"all_reduce of {dtype}, premultiplied")
            output = torch.zeros(70 // size, dtype=dtype)
            dist.reduce_scatter_tensor(output, values[rank][:70 // size * size].clone(),
                                       make(factor(rank)))
            same(output, total[rank * (70 // size):(rank + 1) * (70 // size)],
                 f"reduce_scatter_tensor of {dtype}, premultiplied")
    try:
        dist.all_reduce(torch.ones(3, dtype=torch.int32), make(2.0))
    except RuntimeError as error:
        if "expected floating-point numbers" in str(error):
            return
    raise AssertionError("PREMUL_SUM of integers did not raise")


def factors(rank, size):
    """Torch 1.13 takes a list of factors, of any size."""
    for factor in ([torch.full((20,), 2.0)], [torch.ones(0)]):
        memory = torch.ones(20)
        try:
            dist.all_reduce(memory[:1], torch._C._distributed_c10d._make_nccl_premul_sum(factor))
        except (RuntimeError, TypeError):
            same(memory, torch.ones(20), "memory beside the elements")
            continue
        raise AssertionError(f"the factor {factor} did not raise")
    tensor = torch.full((3,), float(rank))
    dist.all_reduce(tensor, torch._C._distributed_c10d._make_nccl_premul_sum([torch.tensor(2.0)]))
    same(tensor, torch.full((3,), 2.0 * sum(range(size))), "premultiplied")


def devices(rank, size):
    """A group with a backend for each type of device."""
    tensor = torch.full((5000,), float(rank))
    dist.all_reduce(tensor)
    same(tensor, torch.full((5000,), float(sum(range(size)))), "all_reduce")
    both = dist.distributed_c10d.BackendConfig("cpu:fanin,cuda:nccl").get_device_backend_map()
    if both != {"cpu": "fanin", "cuda": "nccl"}:
        raise AssertionError(f"cpu:fanin,cuda:nccl: {both}")
    # Options of another backend are for that one.
    other = dist.ProcessGroupGloo._Options() if hasattr(dist.ProcessGroupGloo, "_Options") else None
    pair = dist.new_group(backend="cpu:fanin,cuda:gloo", pg_options=other)
    dist.all_reduce(tensor, group=pair)
    same(tensor, torch.full((5000,), float(size * sum(range(size)))), "all_reduce of another group")
    objects = [None] * size
    dist.all_gather_object(objects, {"rank": rank})
    if objects != [{"rank": one} for one in range(size)]:
        raise AssertionError(f"all_gather_object: {objects}")
    return {"name": dist.get_backend()}


class Sharded:
    """A model of which each rank keeps a part of the parameters, by the calls of fully_shard: it
    gathers all of them in one call for a step, and each rank gets its part of the gradients.
    """

    def __init__(self, rank, size, gather, scatter):
        torch.manual_seed(7)
        self.model, self.rank, self.size = Net(), rank, size
        self.gather, self.scatter = gather, scatter
        self.lengths = [-(-value.numel() // size) for value in self.model.parameters()]
        self.parts = [self.padded(value.detach(), length)[rank].clone()
                      for value, length in zip(self.model.parameters(), self.lengths)]

    def padded(self, value, length):
        rows = torch.zeros(self.size * length)
        rows[:value.numel()] = value.flatten()
        return rows.view(self.size, length)

    def fill(self):
        for value, rows in zip(self.model.parameters(), self.gather(self.parts)):
            value.data.copy_(rows.flatten()[:value.numel()].view(value.shape))

    def step(self, x, y):
        self.fill()
        self.model.zero_grad()
        torch.nn.functional.cross_entropy(self.model(x), y).backward()
        gradients = self.scatter([self.padded(value.grad, length) for value,
                                  length in zip(self.model.parameters(), self.lengths)])
        for part, gradient in zip(self.parts, gradients):
            part -= 0.05 * gradient

    def parameters(self):
        self.fill()
        return torch.cat([value.detach().flatten() for value in self.model.parameters()])


def sharded(rank, size):
    """Sharded training over the network and over Gloo, which has no averages and no coalesced
    calls. Then FullyShardedDataParallel of torch itself over both.
    """
    world = dist.group.WORLD
    gloo = dist.new_group(backend="gloo")

    def gather(parts):
        rows = [torch.zeros(size, len(part)) for part in parts]
        world.allgather_into_tensor_coalesced(rows, parts).wait()
        return rows

    def scatter(rows):
        options = dist.ReduceScatterOptions()
        options.reduceOp = dist.ReduceOp.AVG
        parts = [torch.zeros(row.shape[1]) for row in rows]
        world.reduce_scatter_tensor_coalesced(parts, rows, options).wait()
        return parts

    def gather_by_gloo(parts):
        rows = [torch.zeros(size * len(part)) for part in parts]
        for row, part in zip(rows, parts):
            dist.all_gather_into_tensor(row, part, group=gloo)
        return [row.view(size, -1) for row in rows]

    def scatter_by_gloo(rows):
        rows = [row.clone() for row in rows]
        for row in rows:
            dist.all_reduce(row, group=gloo)
        return [row[rank] / size for row in rows]
    found = []
    for way in ((gather, scatter), (gather_by_gloo, scatter_by_gloo)):
        model = Sharded(rank, size, *way)
        data = torch.Generator().manual_seed(100 + rank)
        for _ in range(20):
            x = torch.randn(16, 20, generator=data)
            model.step(x, x[:, :10].argmax(1))
        found.append(model.parameters())
        equal_everywhere(rank, size, found[-1], "sharded")
    differences = {"calls": (found[0] - found[1]).abs().max().item()}
    found = [fully_sharded(rank, group) for group in (world, gloo)]
    for one in found:
        equal_everywhere(rank, size, one, "FullyShardedDataParallel")
    differences["fsdp"] = (found[0] - found[1]).abs().max().item()
    return {"difference": differences}


def fully_sharded(rank, group):
    """Trains with torch's own FullyShardedDataParallel. Returns all parameters in one tensor."""
    from torch.distributed.fsdp import FullyShardedDataParallel

    torch.manual_seed(7)
    model = FullyShardedDataParallel(Net(), process_group=group, device_id=torch.device("cpu"))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.05)
    data = torch.Generator().manual_seed(100 + rank)
    for _ in range(20):
        x = torch.randn(16, 20, generator=data)
        optimizer.zero_grad()
        torch.nn.functional.cross_entropy(model(x), x[:, :10].argmax(1)).backward()
        optimizer.step()
    with FullyShardedDataParallel.summon_full_params(model):
        return torch.cat([value.detach().flatten() for value in model.parameters()])


def timeouts(rank, size):
    """A call has a shorter timeout than its group, and rank 1 is late."""
    group = dist.new_group()
    options = dist.AllreduceOptions()
    options.timeout = timedelta(seconds=2)
    text, began = "", time.monotonic()
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        # It is late until the others have been told.
        store.wait([f"told/{other}" for other in range(size) if other != rank])
    for step in range(3 if rank != 1 else 0):
        # Works that were posted before and after it fail with it.
        works = [core_of(group).allreduce([torch.ones(5)]) for _ in range(2)]
        works[1:1] = [core_of(group).allreduce([torch.ones(5)], options)]
        texts = []
        for work in works:
            try:
                work.wait()
            except RuntimeError as error:
                texts.append(str(error))
        text = texts[0]
        if len(texts) != 3 or not all(one == text for one in texts):
            raise AssertionError(f"step {step}: {texts}")
        if step == 0:
            seconds = time.monotonic() - began
    store.set(f"told/{rank}", "")
    dist.barrier()
    # The call did not have to wait.
    late = dist.new_group()
    core_of(late).allreduce([torch.ones(5)], options).wait()
    # Calls that wait behind others, which are done one after the other, have all the time.
    options.timeout = timedelta(milliseconds=500)
    works = [core_of(late).allreduce([torch.ones(1 << 18)], options) for _ in range(150)]
    for work in works:
        work.wait()
    return {"error": text, "seconds": seconds if rank != 1 else 0}


def aborted(rank, size):
    """A rank aborts a group in which it has calls that others have not made. These may be done: the
    network has the rank's data already.
    """
    group = dist.new_group()
    text, began = "", time.monotonic()
    works = [dist.all_reduce(torch.ones(5), group=group, async_op=True)
             for _ in range(3 if rank == 0 else 0)]
    if rank == 0:
        time.sleep(0.5)
        core_of(group).abort()
    for work in works:
        try:
            work.wait()
        except RuntimeError as error:
            text = str(error)
    seconds = time.monotonic() - began
    dist.barrier()
    if rank == 0:
        # Nor does it go to Gloo.
        try:
            dist.all_to_all_single(torch.zeros(size), torch.zeros(size), group=group)
        except RuntimeError as error:
            if "was aborted" not in str(error):
                raise
        else:
            raise AssertionError("an all_to_all in an aborted group did not raise")
    try:
        for _ in range(len(works) + 1 if rank == 0 else 4):
            dist.all_reduce(torch.ones(5), group=group)
    except RuntimeError as error:
        text = text or str(error)
    else:
        raise AssertionError("a call in an aborted group did not raise")
    other = dist.new_group()
    dist.all_reduce(torch.ones(5), group=other)
    core_of(other).shutdown()
    try:
        dist.all_reduce(torch.ones(5), group=other)
    except RuntimeError as error:
        if "the process group is closed" not in str(error):
            raise
    else:
        raise AssertionError("a call in a group that was shut down did not raise")
    return {"error": text, "seconds": seconds}


def many(rank, size):
    """Groups that are made and destroyed, one after the other."""
    for number in range(50):
        group = dist.new_group()
        tensor = torch.full((1000,), float(rank + number))
        dist.all_reduce(tensor, group=group)
        same(tensor, torch.full((1000,), float(sum(range(size)) + size * number)),
             f"in group {number}")
        dist.destroy_process_group(group)
    return {"descriptors": len(os.listdir("/proc/self/fd")),
            "threads": len(os.listdir("/proc/self/task"))}


def pending(rank, size):
    """Rank 2 ends, and the others destroy their groups with calls that it never makes."""
    group = dist.new_group(timeout=timedelta(seconds=15))
    dist.all_reduce(torch.ones(5), group=group)
    dist.barrier()
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    works = [dist.all_reduce(torch.ones(100000), group=group, async_op=True) for _ in range(3)]
    began = time.monotonic()
    dist.destroy_process_group(group)
    del group
    errors = []
    for work in works:
        try:
            work.wait()
        except RuntimeError as error:
            errors.append(str(error))
    return {"seconds": time.monotonic() - began, "errors": errors}


def ends(rank, size):
    """A forward step of a model with parameters that it does not use, and the program ends."""
    model = DistributedDataParallel(Net(unused=True), find_unused_parameters=True)
    model(torch.randn(16, 20))
    return {"ended": time.monotonic()}


def tensors(rank, size):
    """Each call with tensors of many kinds: right, or an error at every rank."""
    found = {}
    for name, make in (("bool", lambda: torch.ones(7, dtype=torch.bool)),
                       ("complex", lambda: torch.full((7,), complex(rank, 1))),
                       ("half", lambda: torch.full((7,), float(rank), dtype=torch.half)),
                       ("empty", lambda: torch.zeros(0)),
                       ("strided", lambda: torch.full((7, 2), float(rank))[:, 0]),
                       ("sparse", lambda: torch.eye(7).to_sparse())):
        for call in (dist.all_reduce, lambda tensor: dist.broadcast(tensor, 1),
                     lambda tensor: dist.reduce(tensor, 1)):
            tensor = make()
            try:
                call(tensor)
            except RuntimeError as error:
                found.setdefault(name, []).append(type(error).__name__)
                continue
            found.setdefault(name, []).append(True)
        dist.barrier()
    tensor = torch.full((7,), complex(rank, 1))
    dist.broadcast(tensor, 1)
    same(tensor, torch.full((7,), complex(1, 1)), "a broadcast of complex numbers")
    return {"found": found}


def checkpoint(rank, size):
    """A distributed checkpoint, whose barriers and objects go through the group."""
    from torch.distributed import checkpoint as dcp

    group = dist.new_group()
    mine = train(rank, size, group, steps=3)
    path = os.environ["TEST_DIRECTORY"]
    state = {"parameters": mine.clone()}
    dcp.save(state, checkpoint_id=path, process_group=group)
    state["parameters"].zero_()
    dcp.load(state, checkpoint_id=path, process_group=group)
    same(state["parameters"], mine, "a checkpoint")
