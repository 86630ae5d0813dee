# SPDX-License-Identifier: BSD-3-Clause
"""
One rank of the tests of fanin_torch, started by case_torch.py: torch_rank.py SCENARIO, with torch's
environment. Prints a JSON object.
"""

import atexit
import ctypes
import io
import json
import os
import select
import signal
import sys
import threading
import time
import warnings
from datetime import timedelta

import torch
import torch.distributed as dist
from torch.distributed.algorithms.ddp_comm_hooks import (default_hooks, post_localSGD_hook,
                                                         powerSGD_hook)
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

ENDS = []  # when the program came to its end


def _tell_exit():
    if ENDS:
        print(json.dumps({"exit_seconds": time.monotonic() - ENDS[0]}), flush=True)


# Runs after what the package has registered.
atexit.register(_tell_exit)

import fanin_torch
import fanin_torch.hooks
import torch_calls
from fanin_torch.groups import core_of
from torch_model import Net, equal_everywhere, same, train

DTYPES = (torch.bool, torch.uint8, torch.int8, torch.int16, torch.int32, torch.int64, torch.half,
          torch.bfloat16, torch.float, torch.double)
OPS = {dist.ReduceOp.SUM: "SUM", dist.ReduceOp.PRODUCT: "PRODUCT", dist.ReduceOp.MIN: "MIN",
       dist.ReduceOp.MAX: "MAX",
       dist.ReduceOp.BAND: "BAND", dist.ReduceOp.BOR: "BOR", dist.ReduceOp.BXOR: "BXOR",
       dist.ReduceOp.AVG: "AVG"}
SHAPES = ((), (0,), (1,), (7, 3), (5000,))


def tensor_of(rank, dtype, shape, salt=0):
    """The same at all ranks that ask for it: small whole numbers, whose sums and products are exact
    in every type.
    """
    torch.manual_seed(1000 * salt + rank)
    values = torch.randint(0, 3, shape)
    return values % 2 == 1 if dtype == torch.bool else values.to(dtype)


def expected_of(inputs, op):
    """The reduction in int64 (whole numbers), or double for averages."""
    dtype = inputs[0].dtype
    wide = torch.stack([value.to(torch.int64) for value in inputs])
    name = OPS[op]
    if name == "SUM":
        result = wide.sum(0)
    elif name == "PRODUCT":
        result = wide.prod(0)
    elif name == "MIN":
        result = wide.amin(0)
    elif name == "MAX":
        result = wide.amax(0)
    elif name == "AVG":
        total = wide.sum(0)
        result = total.double(
            ) / len(inputs) if dtype.is_floating_point else total.div(len(inputs),
                                                                      rounding_mode="trunc")
    else:
        result = wide[0].clone()
        for value in wide[1:]:
            result = {"BAND": torch.bitwise_and, "BOR": torch.bitwise_or,
                      "BXOR": torch.bitwise_xor}[name](result, value)
    return result.to(dtype)


def has(dtype, op):
    """Whether the network has it: averages of bool, and bits of floating point numbers, it has not.
    """
    name = OPS[op]
    if name.startswith("B"):
        return not dtype.is_floating_point
    return name != "AVG" or dtype != torch.bool


def strided(tensor):
    """The same elements, not contiguous if there are several."""
    wide = torch.zeros(tensor.shape + (2,), dtype=tensor.dtype)
    view = wide[..., 0]
    view.copy_(tensor)
    return view


def reductions(rank, size):
    for dtype in DTYPES:
        for op in OPS:
            if not has(dtype, op):
                continue
            for number, shape in enumerate(SHAPES):
                what = f"{dtype} {OPS[op]} {shape}"
                inputs = [tensor_of(i, dtype, shape, number) for i in range(size)]
                expected = expected_of(inputs, op)
                tensor = inputs[rank].clone()
                dist.all_reduce(tensor, op)
                same(tensor, expected, f"allreduce {what}")
                tensor = strided(inputs[rank])
                work = dist.all_reduce(tensor, op, async_op=True)
                work.wait()
                same(tensor, expected, f"allreduce, not contiguous, {what}")
                tensor = inputs[rank].clone()
                dist.reduce(tensor, 2, op)
                same(tensor, expected if rank == 2 else inputs[rank], f"reduce {what}")
                parts = [[tensor_of(i * size + k, dtype, shape, 50 + number) for k in range(size)]
                         for i in range(size)]
                expected = expected_of([parts[i][rank] for i in range(size)], op)
                output = strided(torch.zeros_like(expected))
                dist.reduce_scatter(output, [part.clone() for part in parts[rank]], op)
                same(output, expected, f"reduce_scatter {what}")
                output = torch.zeros_like(expected)
                dist._reduce_scatter_base(output, torch.stack(parts[rank]), op)
                same(output, expected, f"_reduce_scatter_base {what}")


def copies(rank, size):
    for dtype in DTYPES + (torch.complex64,):
        for number, shape in enumerate(SHAPES):
            what = f"{dtype} {shape}"
            inputs = [tensor_of(i, dtype, shape, 90 + number) for i in range(size)]
            for make in (torch.clone, strided):
                tensor = make(inputs[rank])
                dist.broadcast(tensor, 1)
                same(tensor, inputs[1], f"broadcast {what}")
                outputs = [make(torch.zeros_like(value)) for value in inputs]
                dist.all_gather(outputs, make(inputs[rank]))
                for found, expected in zip(outputs, inputs):
                    same(found, expected, f"allgather {what}")
                output = make(torch.zeros((size,) + shape, dtype=dtype))
                dist._all_gather_base(output, make(inputs[rank]))
                same(output, torch.stack(inputs), f"_allgather_base {what}")


def by_gloo(rank, size):
    """What is not in the library."""
    tensor = torch.full((3,), float(rank))
    if rank == 0:
        dist.send(tensor, 1)
    elif rank == 1:
        dist.recv(tensor, 0)
        same(tensor, torch.zeros(3), "recv")
    tensor = torch.full((3,), float(rank))
    outputs = [torch.zeros(3) for _ in range(size)] if rank == 1 else None
    dist.gather(tensor, outputs, 1)
    if rank == 1:
        same(torch.stack(outputs)[:, 0], torch.arange(size).float(), "gather")
    inputs = [torch.full((2,), 10.0 + i) for i in range(size)] if rank == 0 else None
    output = torch.zeros(2)
    dist.scatter(output, inputs, 0)
    same(output, torch.full((2,), 10.0 + rank), "scatter")
    output = torch.zeros(size)
    dist.all_to_all_single(output, torch.arange(size).float() + 100 * rank)
    same(output, 100.0 * torch.arange(size) + rank, "all_to_all_single")
    outputs = [torch.zeros(2) for _ in range(size)]
    dist.all_to_all(outputs, [torch.full((2,), 100.0 * rank + i) for i in range(size)])
    same(torch.stack(outputs)[:, 1], 100.0 * torch.arange(size) + rank, "all_to_all")
    fanin_torch.monitored_barrier(timeout=timedelta(seconds=30), wait_all_ranks=True)


GUARD = 77


class Guarded:
    """A view of larger memory, whose other elements must keep what they have. layout: of memory, by
    names.
    """

    LAYOUTS = ("step", "transposed", "channels_last", "offset", "reversed_dims")

    def __init__(self, value, layout):
        dims, dtype = value.dim(), value.dtype
        self.memory = torch.full((16 * max(1, value.numel()) + 64,),
                                 GUARD % 2 if dtype == torch.bool else GUARD).to(dtype)
        strides = [0] * dims
        # From the innermost dimension in memory to the outermost one.
        order = {"transposed": [0] + list(range(dims - 1, 0, -1)),
                 "channels_last": [1] + list(range(dims - 1, 1, -1)) + [0],
                 "reversed_dims": list(range(dims))}.get(layout, list(range(dims - 1, -1, -1)))
        step = 3 if layout == "step" else 1
        for dim in order:
            strides[dim] = step
            step *= value.shape[dim] + (1 if layout in ("step", "transposed") else 0)
        self.view = self.memory.as_strided(value.shape, strides, 7 if layout == "offset" else 5)
        self.view.copy_(value)
        self.before = self.memory.clone()

    def check(self, expected, what):
        """expected: None: unchanged."""
        if expected is not None:
            same(self.view.contiguous(), expected, what)
            self.before.as_strided(self.view.shape, self.view.stride(),
                                   self.view.storage_offset()).copy_(expected)
        same(self.memory, self.before, f"{what}: memory beside the elements")


def strides_of(rank, size, dtype, layout, number):
    """Each call once, with every tensor in this layout."""
    shape = (2, 3, 4, 2)
    what = f"{layout} {dtype}"
    values = [tensor_of(i, dtype, shape, 200 + number) for i in range(size)]
    total = expected_of(values, dist.ReduceOp.SUM)
    empty = torch.zeros_like(values[0])

    def guarded(value):
        return Guarded(value, layout)
    one = guarded(values[rank])
    dist.all_reduce(one.view)
    one.check(total, f"allreduce {what}")
    two = [guarded(values[rank]), guarded(values[(rank + 1) % size])]
    dist.all_reduce_coalesced([each.view for each in two])
    for each in two:
        each.check(total, f"allreduce_coalesced {what}")
    one = guarded(values[rank])
    dist.reduce(one.view, 1)
    one.check(total if rank == 1 else None, f"reduce {what}")
    one = guarded(values[rank])
    dist.broadcast(one.view, 2)
    one.check(values[2], f"broadcast {what}")
    outputs, given = [guarded(empty) for _ in range(size)], guarded(values[rank])
    dist.all_gather([each.view for each in outputs], given.view)
    for each, expected in zip(outputs, values):
        each.check(expected, f"allgather {what}")
    lists = [[guarded(empty), guarded(empty)] for _ in range(size)]
    dist.all_gather_coalesced([[each.view for each in pair] for pair in lists],
                              [given.view, guarded(values[(rank + 1) % size]).view])
    for i, (first, second) in enumerate(lists):
        first.check(values[i], f"allgather_coalesced {what}")
        second.check(values[(i + 1) % size], f"allgather_coalesced {what}")
    output = guarded(torch.zeros((size,) + shape[1:], dtype=dtype))
    part = guarded(values[rank][0])
    dist._all_gather_base(output.view, part.view)
    output.check(torch.stack([value[0] for value in values]), f"_allgather_base {what}")
    parts = [[tensor_of(i * size + k, dtype, shape, 300 + number) for k in range(size)]
             for i in range(size)]
    mine = expected_of([parts[i][rank] for i in range(size)], dist.ReduceOp.SUM)
    output = guarded(empty)
    dist.reduce_scatter(output.view, [guarded(part).view for part in parts[rank]])
    output.check(mine, f"reduce_scatter {what}")
    output = guarded(empty)
    dist._reduce_scatter_base(output.view, guarded(torch.cat(parts[rank])).view)
    output.check(mine, f"_reduce_scatter_base {what}")
    outputs = [guarded(empty) for _ in range(size)] if rank == 1 else None
    dist.gather(given.view, [each.view for each in outputs] if rank == 1 else None, 1)
    for i in range(size if rank == 1 else 0):
        outputs[i].check(values[i], f"gather {what}")
    output = guarded(empty)
    dist.scatter(output.view, [guarded(part).view for part in parts[2]] if rank == 2 else None, 2)
    output.check(parts[2][rank], f"scatter {what}")
    outputs = [guarded(empty) for _ in range(size)]
    dist.all_to_all([each.view for each in outputs], [guarded(part).view for part in parts[rank]])
    for i in range(size):
        outputs[i].check(parts[i][rank], f"alltoall {what}")
    output = guarded(torch.zeros((2 * size,) + shape[1:], dtype=dtype))
    dist.all_to_all_single(output.view, guarded(torch.cat(parts[rank])).view)
    output.check(torch.cat([parts[i][rank] for i in range(size)]), f"alltoall_base {what}")
    # Rank i sends k rows to rank k.
    sent = torch.cat([torch.cat([parts[rank][k]] * 2)[:k] for k in range(size)])
    output = guarded(torch.zeros((rank * size,) + shape[1:], dtype=dtype))
    dist.all_to_all_single(output.view, guarded(sent).view, [rank] * size, list(range(size)))
    output.check(torch.cat([torch.cat([parts[i][rank]] * 2)[:rank] for i in range(size)]),
                 f"alltoall_base with splits {what}")
    given.check(None, f"what was only sent {what}")
    output = guarded(empty)
    if rank == 0:
        dist.send(given.view, 1)
        dist.send(given.view, 2)
    elif rank == 1:
        dist.recv(output.view, 0)
        output.check(values[0], f"recv {what}")
    elif rank == 2:
        if dist.recv(output.view) != 0:
            raise AssertionError("recv from any did not say whom from")
        output.check(values[0], f"recv from any {what}")


def strides(rank, size):
    for number, layout in enumerate(Guarded.LAYOUTS):
        for dtype in (torch.float,
                      torch.bfloat16) if number == 0 else ((torch.double, torch.int64, torch.half,
                                                            torch.bool)[number % 4],):
            strides_of(rank, size, dtype, layout, number)
    # Memory holds other numbers than those that the tensor stands for. (Torch itself gives backends
    # a copy of one for results.)
    values = [tensor_of(i, torch.float, (6,)) for i in range(size)]
    total = expected_of(values, dist.ReduceOp.SUM)
    outputs = [torch.zeros(6) for _ in range(size)] if rank == 0 else None
    dist.gather(torch._neg_view(-values[rank]), outputs, 0)
    if rank == 0:
        same(torch.stack(outputs), torch.stack(values), "gather of views of negatives")
    with torch.inference_mode():
        tensor = values[rank].clone().view(2, 3).t()
        dist.all_reduce(tensor)
        same(tensor, total.view(2, 3).t(), "allreduce in inference mode")
    # An expanded tensor can be sent, but not hold a result.
    value = torch.full((1,), float(rank))
    outputs = [torch.zeros(3) for _ in range(size)]
    dist.all_gather(outputs, value.expand(3))
    same(torch.stack(outputs)[:, 2], torch.arange(size).float(), "allgather of an expanded tensor")
    for name, call in (("allreduce", lambda: dist.all_reduce(value.expand(3))),
                       ("scatter", lambda: dist.scatter(value.expand(3),
                                                        [torch.zeros(3)] * size
                                                        if rank == 0 else None, 0)),
                       ("recv", lambda: dist.recv(value.expand(3), (rank + 1) % size)),
                       ("allgather", lambda: dist.all_gather([value.expand(3)] * size,
                                                             torch.zeros(3)))):
        try:
            call()
        except RuntimeError as error:
            if f"{name}: found a tensor of size [3] and strides [0] for results" in str(error):
                continue
        raise AssertionError(f"{name}: an expanded tensor for results did not raise as it should")
    # Windows that share elements are refused, too, and strides that only look so are not.
    try:
        dist.all_reduce(torch.zeros(5).as_strided((3, 3), (1, 1)))
    except RuntimeError as error:
        assert "found a tensor of size [3, 3] and strides [1, 1] for results" in str(error), error
    else:
        raise AssertionError("allreduce: windows that share elements did not raise as they should")
    tensor = torch.full((8,), float(rank))
    dist.all_reduce(tensor.as_strided((3, 2), (2, 3)))
    places = torch.tensor([0, 2, 3, 4, 5, 7])
    same(tensor[places], torch.full((6,), float(sum(range(size)))), "allreduce of interleaved rows")
    same(tensor[[1, 6]], torch.full((2,), float(rank)), "memory between interleaved rows")


def groups(rank, size):
    pairs = [dist.new_group([0, 1]), dist.new_group([2, 3])]
    world = dist.new_group(pg_options=fanin_torch.Options(accumulate_f32=True))
    single = [dist.new_group([i]) for i in range(size)][rank]
    pair = pairs[rank // 2]
    # Works of several groups in flight at once, waited for in other orders at each rank.
    works, tensors = [], []
    for number in range(20):
        for group in (pair, world, None):
            tensor = torch.full((1000,), float(rank + number))
            works.append(dist.all_reduce(tensor, group=group, async_op=True))
            tensors.append(tensor)
    for work in works if rank % 2 == 0 else reversed(works):
        work.wait()
    for number in range(20):
        for group, members in enumerate((range(rank // 2 * 2, rank // 2 * 2 + 2), range(size),
                                         range(size))):
            expected = torch.full((1000,), float(sum(member + number for member in members)))
            same(tensors[3 * number + group], expected, f"round {number} of group {group}")
    tensor = torch.ones(3)
    dist.all_reduce(tensor, group=single)
    same(tensor, torch.ones(3), "a group of one rank")
    tensors = [torch.full((n,), rank + 1, dtype=dtype) for n,
               dtype in ((3, torch.float), (0, torch.float), (5000, torch.float))]
    dist.all_reduce_coalesced(tensors)
    for tensor in tensors:
        same(tensor, torch.full_like(tensor, 10), "allreduce_coalesced")
    # A Work that nobody keeps still runs, on tensors that nobody keeps either.
    for _ in range(10):
        dist.all_reduce(torch.ones(100000), async_op=True)
    kept = torch.ones(4)
    future = dist.all_reduce(kept, async_op=True).get_future()
    seen = future.then(lambda done: done.value()[0] * 2)
    same(seen.wait(), torch.full((4,), 8.0), "what a callback of the future gives")
    # The sum of 256 and three ones is 259, but 256 in bfloat16 each time.
    value = torch.tensor([256.0 if rank == 0 else 1.0], dtype=torch.bfloat16)
    dist.all_reduce(value, group=world)
    same(value, torch.tensor([259.0]).to(torch.bfloat16), "a sum of bfloat16 accumulated in float")
    dist.barrier()
    dist.barrier(group=pair)


def wrong(rank, size):
    """What is not valid raises at once, and harms nothing."""
    for call in (lambda: dist._all_gather_base(torch.zeros(3), torch.zeros(2)),
                 lambda: dist._reduce_scatter_base(torch.zeros(2), torch.zeros(3)),
                 lambda: dist.new_group(pg_options="x")):
        try:
            call()
        except (RuntimeError, TypeError):
            continue
        raise AssertionError("what is not valid did not raise")


def training(rank, size):
    gloo = dist.new_group(backend="gloo")
    found = {}
    for name, options in (("plain", {}), ("small buckets", {"bucket": 0.001}),
                          ("unused parameters", {"unused": True}),
                          ("no_sync", {"accumulate": 2})):
        group = dist.new_group()
        mine, other = train(rank, size, group, **options), train(rank, size, gloo, **options)
        equal_everywhere(rank, size, mine, name)
        found[name] = (mine - other).abs().max().item()
    group = dist.new_group(pg_options=fanin_torch.Options(accumulate_f32=True))
    mine, other = train(rank, size, group, hook=fanin_torch.hooks.bf16), train(rank, size, gloo)
    found["bf16"] = (mine - other).abs().max().item()
    return {"difference": found}


def sparse_sums(rank, size, group):
    """The call below the hook: n, most, and what the rank brings."""
    for dtype in (torch.float, torch.double):
        for n, most, count in ((1, 1, 1), (1000, 10, 10), (100000, 1000, 1000 - 300 * rank),
                               (5000, 5000, 5000), (64, 8, 0), (7, 0, 0)):
            chance = torch.Generator().manual_seed(n + 10 * rank)
            indices = torch.randperm(n, generator=chance)[:count].sort().values
            values = torch.randint(1, 9, (count,), generator=chance).to(dtype)
            mine = torch.zeros(n, dtype=dtype)
            mine[indices] = values
            dense = torch.full((n,), -1, dtype=dtype)
            core_of(group).allreduce_vectors(dense, indices, values, most).wait()
            dist.all_reduce(mine)
            same(dense, mine, f"a sparse sum of {count} values, {n} at most {most}, {dtype}")
    for indices in ([3, 2], [2, 2], [-1, 2], [2, 100]):
        try:
            core_of(group).allreduce_vectors(torch.zeros(100), torch.tensor(indices),
                                             torch.ones(2), 2)
        except RuntimeError as error:
            if "expected ascending ones below 100" in str(error):
                continue
        raise AssertionError(f"indices {indices} did not raise")


class Watched(fanin_torch.hooks.TopK):
    """Checks that what is sent and what is kept are, element by element, what there was to send."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.kept, self.layouts, self.buckets = {}, set(), 0

    def hook(self, bucket):
        names = [self._name_of[id(parameter)] for parameter in bucket.parameters()]
        wide = torch.double if bucket.buffer().dtype == torch.double else torch.float
        total = torch.cat([self.kept.get(name, torch.zeros(gradient.shape, dtype=wide)).flatten()
                           + gradient.flatten()
                           for name, gradient in zip(names, bucket.gradients())])
        sent = []
        plain = fanin_torch.hooks.compress

        def compress(*arguments):
            sent.append(plain(*arguments))
            return sent[0]
        fanin_torch.hooks.compress = compress
        try:
            future = fanin_torch.hooks.top_k(self, bucket)
        finally:
            fanin_torch.hooks.compress = plain
        indices, values, most = sent[0]
        residual = self.residual_of(bucket).clone()
        same(residual[indices], torch.zeros_like(values), "the residual where something was sent")
        if len(indices) != most or most != max(1, round(self.fraction * total.numel())):
            raise AssertionError(f"{len(indices)} values of {most} sent, of {total.numel()}")
        if residual.abs().max() > values.abs().min():
            raise AssertionError("what was kept is larger than what was sent")
        residual[indices] = values
        same(residual, total, "what is sent and what is kept")
        self.kept = {**self.kept, **{name: self._residuals[name].clone() for name in names}}
        self.layouts.add(tuple(names))
        self.buckets += 1
        return future


def largest_ones():
    """Found by a sample or not: those that torch finds."""
    for n, most in ((1, 1), (5000, 4096), (300000, 4096), (300000, 6000), (300000, 299999),
                    (2 ** 20, 2 ** 14)):
        for zeros in (0, n // 2):
            values = torch.randn(n, generator=torch.Generator().manual_seed(n)).abs()
            values[:zeros] = 0
            found = fanin_torch.hooks.largest(values, most)
            same(found, found.unique(), f"ascending indices of {most} of {n}")
            same(values[found].sort().values, values.topk(most).values.flip(0),
                 f"the largest {most} of {n}")
    values = torch.zeros(300000)
    values[7] = float("nan")
    if 7 not in fanin_torch.hooks.largest(values, 5000):
        raise AssertionError("a NaN is left out")


def sparse(rank, size):
    """The hook top_k, and what is below it."""
    if rank == 0:
        largest_ones()
    group = dist.new_group(pg_options=fanin_torch.Options(handler="sparse"))
    sparse_sums(rank, size, group)
    losses, states = {}, []

    def watched(model):
        states.append(Watched(model, 0.02))
        return states[-1], lambda state, bucket: state.hook(bucket)
    dense = train(rank, size, group, bucket=0.01, steps=60, losses=losses.setdefault("dense", []))
    found = train(rank, size, group, bucket=0.01, steps=60, losses=losses.setdefault("top_k", []),
                  make_hook=watched)
    equal_everywhere(rank, size, found, "top_k")
    half = train(rank, size, group, bucket=0.01, dtype=torch.bfloat16, make_hook=watched)
    equal_everywhere(rank, size, half, "top_k of bfloat16")
    # A checkpoint, of a state and by a file.
    state = states[0]
    file = io.BytesIO()
    torch.save(state.state_dict(), file)
    file.seek(0)
    fresh = Watched(DistributedDataParallel(Net(), process_group=group), 0.5)
    fresh.load_state_dict(torch.load(file))
    if fresh.fraction != 0.02 or not any(value.abs().max() > 0
                                         for value in fresh.state_dict()["residuals"].values()):
        raise AssertionError("the checkpoint has no residual")
    for name, value in state.state_dict()["residuals"].items():
        same(fresh.state_dict()["residuals"][name], value, f"the checkpoint's residual of {name}")
    try:
        fresh.load_state_dict({"fraction": 0.1, "residuals": {"first.weight": torch.zeros(3)}})
    except ValueError:
        pass
    else:
        raise AssertionError("the state of another model was loaded")
    # A job without sparse vectors.
    other = dist.new_group()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        by_gloo = train(rank, size, other, make_hook=watched)
    equal_everywhere(rank, size, by_gloo, "top_k by Gloo")
    strict = dist.new_group(pg_options=fanin_torch.Options(fallback="raise"))
    try:
        train(rank, size, strict, make_hook=watched)
    except RuntimeError as error:
        raised = str(error)
    return {"losses": losses, "layouts": [len(state.layouts) for state in states],
            "buckets": [state.buckets for state in states],
            "distance": (found - dense).abs().max().item(),
            "hook_warnings": [str(warning.message) for warning in caught], "raised": raised}


def hook_costs(rank, size):
    """Bytes that this host sends, and time, for a step with 2^22 gradients."""
    counter = f"/sys/class/net/{os.environ['FANIN_INTERFACE']}/statistics/tx_bytes"
    group = dist.new_group(pg_options=fanin_torch.Options(handler="sparse", accumulate_f32=True))
    costs = {}
    for name in ("dense", "bf16", "top_k"):
        model = DistributedDataParallel(torch.nn.Linear(2 ** 12, 2 ** 10, bias=False),
                                        process_group=group)
        if name == "bf16":
            model.register_comm_hook(group, fanin_torch.hooks.bf16)
        elif name == "top_k":
            model.register_comm_hook(fanin_torch.hooks.TopK(model, 0.01), fanin_torch.hooks.top_k)
        x = torch.randn(1, 2 ** 12)
        seconds, sent = [], 0
        for step in range(13):
            if step == 3:
                with open(counter) as file:
                    sent = -int(file.read())
            dist.barrier()
            began = time.monotonic()
            model(x).square().mean().backward()
            seconds.append(time.monotonic() - began)
        with open(counter) as file:
            sent += int(file.read())
        costs[name] = {"bytes": sent // 10, "ms": 1000 * sorted(seconds[3:])[5]}
    return {"costs": costs}


def options(rank, size):
    """Jobs with authentication codes, and with sums in a fixed order."""
    authenticated = dist.new_group(pg_options=fanin_torch.Options(authenticate=True))
    reproducible = dist.new_group(pg_options=fanin_torch.Options(reproducible=True))
    values = [torch.randn(20000, generator=torch.Generator().manual_seed(i)) for i in range(size)]
    dist.all_reduce(torch.ones(5000))
    tensor = torch.full((5000,), float(rank))
    dist.all_reduce(tensor, group=authenticated)
    same(tensor, torch.full((5000,), 6.0), "with authentication codes")
    tensor = values[rank].clone()
    dist.all_reduce(tensor, group=reproducible)
    same(tensor, (values[0] + values[1]) + (values[2] + values[3]), "a reproducible sum")
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        dist.new_group(pg_options=fanin_torch.Options(reproducible=True, handler="sparse"))
    for bad in ({"handler": "ring"}, {"fallback": "never"}, {"join_timeout": 0}):
        try:
            fanin_torch.Options(**bad).resolved()
        except ValueError:
            continue
        raise AssertionError(f"{bad} did not raise")


def slow(rank, size):
    """A group waits for rank 1, whose collectives in other groups go on."""
    waiting, others = dist.new_group(), dist.new_group()
    tensor = torch.ones(1000)
    if rank != 1:
        work = dist.all_reduce(tensor, group=waiting, async_op=True)
    for _ in range(10):
        dist.all_reduce(torch.ones(100000), group=others)
        dist.all_reduce(torch.ones(10))
    waited = rank == 1 or not work.is_completed()
    dist.barrier()
    if rank == 1:
        work = dist.all_reduce(tensor, group=waiting, async_op=True)
    work.wait()
    same(tensor, torch.full((1000,), 4.0), "the slow one")
    # A group whose last owner is a callback, which its own thread frees.
    last = dist.new_group()
    ended = []
    tensor = torch.ones(10)

    def end(done, group=last):
        ended.append(group.size())
        return done.value()[0]
    future = dist.all_reduce(tensor, group=last, async_op=True).get_future().then(end)
    dist.destroy_process_group(last)
    del last, end
    future.wait()
    same(tensor, torch.full((10,), 4.0), "in a group that nobody has any more")
    return {"waited": waited}


def disagreeing(rank, size):
    """Rank 3 calls another collective than the rest."""
    dist.all_reduce(torch.ones(10))
    try:
        dist.all_reduce(torch.ones(11 if rank == 3 else 10))
    except RuntimeError as error:
        return {"error": str(error)}
    raise AssertionError("no exception")


def killed(rank, size):
    """One rank ends in the middle, without a word. A child of it may live on, as those that load
    data do for a while.
    """
    if rank == int(os.environ.get("PARENT_RANK", "-1")) and os.fork() == 0:
        time.sleep(30)
        os._exit(0)
    try:
        for step in range(100000):
            dist.all_reduce(torch.ones(10000))
            if rank == int(os.environ.get("KILLED_RANK", "2")) and step == 50:
                os.kill(os.getpid(), signal.SIGKILL)
    except RuntimeError as error:
        try:
            dist.all_reduce(torch.ones(1))
        except RuntimeError:
            return {"error": str(error)}
    raise AssertionError("no exception")


def late(rank, size):
    """Rank 1 is later than the group's timeout: it does nothing until all others have an exception.
    Rank 0 has the store until then.
    """
    group = dist.new_group(timeout=timedelta(seconds=3))
    store = dist.distributed_c10d._get_default_store()
    if rank == 1:
        for other in range(size):
            if other != rank:
                store.get(f"told/{other}")
        store.set("late/told", "all")
        return {}
    began = time.monotonic()
    try:
        dist.all_reduce(torch.ones(10), group=group)
    except RuntimeError as error:
        result = {"error": str(error), "seconds": time.monotonic() - began}
    else:
        raise AssertionError("no exception")
    store.set(f"told/{rank}", "told")
    if rank == 0:
        store.get("late/told")
    return result


def restarted(rank, size):
    """Under torchrun: rank 1 of the first attempt is killed in the middle of training."""
    first = os.environ["TORCHELASTIC_RESTART_COUNT"] == "0"
    for step in range(30):
        tensor = torch.ones(1000)
        dist.all_reduce(tensor)
        same(tensor, torch.full((1000,), float(size)), f"step {step}")
        if first and rank == 1 and step == 10:
            os.kill(os.getpid(), signal.SIGKILL)
    return {"restarts": int(os.environ["TORCHELASTIC_RESTART_COUNT"])}


def nested(rank, size, group, depth):
    """A future of a sum whose callback makes the next one and waits for it, `depth` deep."""
    tensor = torch.full((10,), float(depth + rank))
    future = dist.all_reduce(tensor, group=group, async_op=True).get_future()
    if depth == 0:
        return future.then(lambda done: done.value()[0])

    def callback(done):
        inner = nested(rank, size, group, depth - 1).wait()
        return done.value()[0] + inner
    return future.then(callback)


class Held:
    """Holds up the callbacks of these groups: what is registered meanwhile is registered before any
    of it runs, at all ranks.
    """

    count = 0

    def __init__(self, rank, size, *groups):
        self.rank, self.size, self.groups = rank, size, groups

    def hold(self, group):
        """Whether a callback runs now, on a thread of its own, until `go`: `then` runs it at once
        where the sum is there already.
        """
        def holds(done):
            if threading.current_thread() is not threading.main_thread() and not self.go.wait(60):
                raise AssertionError("the program has not come to its callbacks")
        future = dist.all_reduce(torch.ones(500000), group=group,
                                 async_op=True).get_future().then(holds)
        return not future.done()

    def __enter__(self):
        store = dist.distributed_c10d._get_default_store()
        for _ in range(100):
            self.go = threading.Event()
            holds = all([self.hold(group) for group in self.groups])
            Held.count += 1
            store.set(f"held/{Held.count}/{self.rank}", str(int(holds)))
            if all([store.get(f"held/{Held.count}/{rank}") == b"1" for rank in range(self.size)]):
                return self
            self.go.set()
        raise AssertionError("sums are always there at once")

    def __exit__(self, *_):
        self.go.set()


def needs_of_callbacks(rank, size, other):
    """Callbacks that need later ones, not by a wait of their own alone; what they need passes them,
    and nothing else does.
    """
    def futures(n, group=None, length=5):
        return [work.get_future()
                for work in [dist.all_reduce(torch.ones(length), group=group, async_op=True)
                             for _ in range(n)]]

    def value(done):
        return done.value()[0][:5] if isinstance(done.value(), list) else done.value()

    def sums(name, number):
        """A callback with a collective of its own, whose place among the others' tells."""
        def callback(done):
            tensor = torch.full((5,), number)
            dist.all_reduce(tensor)
            steps.append(name)
            return tensor
        return callback

    def expect(what, future, number):
        same(future.wait(), torch.full((5,), float(number * size)), what)
    # It chains on a later one, by a callback of its own, which it does not wait for.
    steps, later = [], {}

    def chains(done):
        steps.append("first")
        later["chained"] = later["second"].then(lambda done: steps.append("chained")
                                                or 100 * value(done))
        return value(done)
    one, two, three = futures(3)
    with Held(rank, size, None):
        first, later["second"], third = one.then(
            chains), two.then(sums("second", 10.0)), three.then(sums("third", 2.0))
    expect("a callback that has chained on a later one", first, 1)
    expect("a callback that is chained on a later one", later["chained"], 1000)
    expect("a callback after those", third, 2)
    if steps != ["first", "second", "chained", "third"]:
        raise AssertionError(f"the order of callbacks: {steps}")
    # A callback of its own waits for the later one.
    steps = []

    def nests(done):
        inner = futures(1, length=500000)[0].then(lambda done: later["second"].wait() + value(done))
        return inner.wait() + sums("first", 1000.0)(done)
    one, two, three = futures(3)
    with Held(rank, size, None):
        first, later["second"], third = one.then(
            nests), two.then(sums("second", 10.0)), three.then(sums("third", 2.0))
    expect("a callback whose own callback waits for a later one", first, 1011)
    expect("a callback after those", third, 2)
    if steps != ["second", "first", "third"]:
        raise AssertionError(f"the order of callbacks: {steps}")
    # By way of a callback of another group, which waits for the later one.
    one, two = futures(2)
    three, = futures(1, other)
    with Held(rank, size, None, other):
        first = one.then(lambda done: later["elsewhere"].wait() + value(done))
        later["elsewhere"] = three.then(lambda done: later["second"].wait() + value(done))
        later["second"] = two.then(sums("second", 10.0))
    expect("a callback that needs a later one by another group's", first, 12)


def waits_in_callbacks(rank, size):
    other = dist.new_group()
    ranks = sum(range(size))
    for group in (None, other):
        same(nested(rank, size, group, 3).wait(),
             torch.full((10,), 4.0 * ranks + size * (3 + 2 + 1)), "callbacks, four deep")
    # Many that make collectives, in the order of the program at each rank, however late their sums
    # are. Numbers tell them apart.
    futures, results = [], []
    for number in range(12):
        def callback(done, number=number):
            time.sleep(0.01 * ((rank + number) % 3))
            inner = torch.full((5,), float(1000 * number))
            dist.all_reduce(inner)
            return inner
        futures.append(dist.all_reduce(torch.ones(5), async_op=True).get_future().then(callback))
        outer = torch.full((5,), float(number))
        dist.all_reduce(outer)
        results.append(outer)
    for number, (future, outer) in enumerate(zip(futures, results)):
        same(future.wait(), torch.full((5,), 1000.0 * number * size),
             f"a sum made in callback {number}")
        same(outer, torch.full((5,), float(number * size)), f"the sum after callback {number}")
    # Callbacks that are registered together, of which the first waits for the last.
    works = [dist.all_reduce(torch.ones(5), async_op=True) for _ in range(3)]
    last = []
    with Held(rank, size, None):
        first = works[0].get_future().then(lambda done: last[0].wait() + done.value()[0])
        middle = works[1].get_future().then(lambda done: 10 * done.value()[0])
        last.append(middle.then(lambda done: works[2].wait() and 10 * done.value()))
    same(first.wait(), torch.full((5,), 101.0 * size), "a callback that waits for later ones")
    needs_of_callbacks(rank, size, other)
    # Of another group's Work, by a callback that also says that it is done.
    works = [dist.all_reduce(torch.ones(5), group=group, async_op=True) for group in (None, other)]
    same(works[0].get_future().then(lambda done: works[1].wait() and works[1].result()[0]).wait(),
         torch.full((5,), float(size)),
         "what another group's Work gives")
    if not (works[0].is_completed() and works[0].get_future().done()):
        raise AssertionError("a Work that was waited for is not completed")
    called = []
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future()
    future.add_done_callback(lambda done: called.append(dist.all_reduce(torch.ones(1))))
    # What runs on Gloo, too.
    outputs = [torch.zeros(2) for _ in range(size)]
    work = dist.all_to_all(outputs, [torch.full((2,), float(rank))] * size, async_op=True)

    def more(done):
        dist.all_to_all(outputs, [torch.full((2,), 10.0 + rank)] * size)
        return outputs[2].clone()
    same(work.get_future().then(more).wait(), torch.full((2,), 12.0),
         "a callback of what runs on Gloo")
    if len(called) != 1:
        raise AssertionError("what add_done_callback was given has not run before what follows it")
    # Exceptions, and one whose callback has the last reference to its group.

    def fails(done):
        raise ValueError("of a callback")
    future = dist.all_reduce(torch.ones(5), async_op=True).get_future().then(fails)
    try:
        future.then(lambda done: done.value()).wait()
    except RuntimeError as error:
        if "of a callback" not in str(error):
            raise
    else:
        raise AssertionError("the exception of a callback was lost")
    ended = [dist.new_group()]

    def destroys(done):
        dist.destroy_process_group(ended[0])
        dist.all_reduce(torch.ones(5), group=ended[0])
        ended.clear()
        return done.value()[0]
    future = dist.all_reduce(torch.ones(5), group=ended[0],
                             async_op=True).get_future().then(destroys)
    same(future.wait(), torch.full((5,), float(size)), "a callback that destroys its group")


def no_more_threads(size=1 << 47):
    """No thread can be made from now on: its stack would be larger than memory can be. It holds for
    root, too. Returns the size before.
    """
    libc = ctypes.CDLL(None)
    attributes, before = ctypes.create_string_buffer(256), ctypes.c_size_t()
    libc.pthread_getattr_default_np(attributes)
    libc.pthread_attr_getstacksize(attributes, ctypes.byref(before))
    libc.pthread_attr_setstacksize(attributes, ctypes.c_size_t(size))
    if libc.pthread_setattr_default_np(attributes) != 0:
        raise AssertionError("pthread_setattr_default_np")
    return before.value


def without_threads(rank, size):
    """No callback has run before, so that none has left its thread."""
    alone = [dist.new_group([one]) for one in range(size)][rank]
    dist.all_reduce(torch.ones(5))
    before = no_more_threads()
    told = []

    def sums(done):
        try:
            dist.all_reduce(torch.ones(5), group=alone)
        except RuntimeError as error:
            told.append(str(error))
        return done.value()[0][:5]
    try:
        threading.Thread().start()
    except RuntimeError:
        pass
    else:
        raise AssertionError("a thread could be made")
    same(dist.all_reduce(torch.ones(5), async_op=True).get_future().wait()[0],
         torch.full((5,), float(size)), "a future without threads")
    for step in range(20):
        work = dist.all_reduce(torch.ones(500000), async_op=True)
        future = work.get_future().then(sums)
        # Also for the future of a work whose callbacks run.
        future = future.then(lambda done,
                             work=work: 10 * done.value() if work.get_future().done() else None)
        same(future.wait(), torch.full((5,), 10.0 * size), f"callbacks without threads, {step}")
    no_more_threads(before)
    same(nested(rank, size, None, 2).wait(),
         torch.full((10,), 3.0 * sum(range(size)) + size * (2 + 1)), "callbacks with threads again")
    return {"told": told}


def forks(rank, size):
    """Children of a process that has threads for callbacks, of which one runs a callback and one
    has nothing to do.
    """
    with Held(rank, size, None):
        for ends in (lambda: None, begins_anew):
            child = os.fork()
            if child == 0:
                ends()
                sys.exit(0)
            ended, _, _ = select.select([os.pidfd_open(child)], [], [], 30)
            if not ended:
                os.kill(child, signal.SIGKILL)
            status = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
            if status != 0:
                raise AssertionError(f"exit status of a child: {status}")
        loaded = torch.cat(list(DataLoader(torch.arange(8), 2, num_workers=2,
                                           multiprocessing_context="fork", timeout=30)))
        same(loaded, torch.arange(8), "what children have loaded")
    dist.all_reduce(torch.ones(5))


def begins_anew():
    """A child leaves its parent's groups alone, which it can't use, and has one of its own."""
    try:
        dist.all_reduce(torch.ones(5))
    except RuntimeError as error:
        if "another process" not in str(error):
            raise
    else:
        raise AssertionError("a child has used its parent's group")
    dist.destroy_process_group()
    dist.init_process_group("fanin", store=dist.HashStore(), rank=0, world_size=1)
    futures = [dist.all_reduce(torch.ones(500000), async_op=True).get_future() for _ in range(2)]
    for future in [future.then(lambda done: dist.all_reduce(done.value()[0]) or done.value()[0])
                   for future in futures]:
        same(future.wait(), torch.ones(500000), "callbacks of a child")
    if [group["size"] for group in fanin_torch.report()] != [1]:
        raise AssertionError(f"groups of a child: {fanin_torch.report()}")
    dist.destroy_process_group()


def waiting(hook):
    """The same hook, but a bucket waits for the one before it: what its collectives give can't
    depend on their order.
    """
    def wrapped(state, bucket):
        future = hook(state, bucket)
        future.wait()
        return future
    return wrapped


def hooks_of_torch(rank, size):
    """Torch's hooks for DistributedDataParallel, with several buckets, which must be as when
    buckets wait for each other.
    """
    group = dist.new_group()
    found = {}

    def power(hook):
        return lambda model: (powerSGD_hook.PowerSGDState(group, matrix_approximation_rank=2,
                                                          start_powerSGD_iter=3,
                                                          min_compression_rate=0.5), hook)

    def local(hook):
        return lambda model: (post_localSGD_hook.PostLocalSGDState(group, group, 3), hook)

    def default(hook):
        return lambda model: (group, hook)
    for name, make, hook, steps in (("powerSGD", power, powerSGD_hook.powerSGD_hook, 30),
                                    ("fp16", default, default_hooks.fp16_compress_hook, 8),
                                    ("allreduce", default, default_hooks.allreduce_hook, 8),
                                    ("post_localSGD", local, post_localSGD_hook.post_localSGD_hook,
                                     8)):
        losses = found.setdefault(name, [])
        mine = train(rank, size, group, bucket=0.001, steps=steps, losses=losses,
                     make_hook=make(hook), dtype=torch.double)
        equal_everywhere(rank, size, mine, name)
        if make is power:
            other = train(rank, size, group, bucket=0.001, steps=steps,
                          make_hook=make(waiting(hook)), dtype=torch.double)
            if not torch.allclose(mine, other, rtol=1e-6, atol=1e-9):
                raise AssertionError(f"{name}: {(mine - other).abs().max()} from where buckets "
                                     "wait for each other")
    return found


def leaves(rank, size):
    """Rank 1 destroys a group in which others have more collectives."""
    group = dist.new_group(timeout=timedelta(seconds=10))
    dist.all_reduce(torch.ones(10), group=group)
    text = ""
    if rank != 1:
        try:
            dist.all_reduce(torch.ones(10), group=group)
        except RuntimeError as error:
            text = str(error)
        else:
            raise AssertionError("no exception")
    # Torch names groups by how many there are: all ranks destroy it, and it is closed then.
    dist.destroy_process_group(group)
    return text


def callbacks(rank, size):
    """And an exit with many groups and callbacks, none of which has been told that it ends."""
    waits_in_callbacks(rank, size)
    result = {"losses": hooks_of_torch(rank, size), "left": leaves(rank, size)}
    kept = [dist.new_group() for _ in range(9)]
    for group in kept:
        dist.all_reduce(torch.ones(10), group=group)
    globals()["kept"] = kept
    dist.barrier()

    def late(done):
        time.sleep(0.3)
        return done.value()[0]
    for group in kept[:3]:
        dist.all_reduce(torch.ones(10), group=group, async_op=True).get_future().then(late)
    return result


def collectives(rank, size):
    reductions(rank, size)
    copies(rank, size)
    strides(rank, size)
    by_gloo(rank, size)
    wrong(rank, size)


def fallen_back(rank, size):
    """The same program, without a network."""
    reductions(rank, size)
    copies(rank, size)
    strides(rank, size)
    waits_in_callbacks(rank, size)
    tensor = torch.full((5,), float(rank))
    dist.all_reduce(tensor)
    same(tensor, torch.full((5,), 6.0), "allreduce")
    output = torch.zeros(2)
    dist.reduce_scatter(output, [torch.full((2,), float(rank + i)) for i in range(size)])
    same(output, torch.full((2,), 6.0 + 4 * rank), "reduce_scatter")
    output = torch.zeros(size, 2)
    dist._all_gather_base(output, torch.full((2,), float(rank)))
    same(output[:, 0], torch.arange(size).float(), "_allgather_base")
    output = torch.zeros(2)
    dist._reduce_scatter_base(output, torch.arange(2 * size).float())
    same(output, size * torch.tensor([2.0 * rank, 2.0 * rank + 1]), "_reduce_scatter_base")
    dist.barrier()


def main():
    torch.set_num_threads(1)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        dist.init_process_group(os.environ.get("TEST_BACKEND", "fanin"),
                                timeout=timedelta(seconds=60))
    rank, size = dist.get_rank(), dist.get_world_size()
    result = {**vars(torch_calls), **globals()}[sys.argv[1]](rank, size) or {}
    result.update(report=fanin_torch.report(),
                  warnings=[str(warning.message) for warning in caught])
    # In one piece: ranks of a host may share their output.
    os.write(1, (json.dumps(result) + "\n").encode())
    if sys.argv[1] == "callbacks":
        ENDS.append(time.monotonic())
    elif sys.argv[1] not in ("killed", "late", "ends"):
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
