# SPDX-License-Identifier: BSD-3-Clause
"""
Communication hooks for DistributedDataParallel:

    model.register_comm_hook(group, fanin_torch.hooks.bf16)
    model.register_comm_hook(fanin_torch.hooks.TopK(model, 0.01), fanin_torch.hooks.top_k)
"""

import warnings

import torch
import torch.distributed as dist

from fanin_torch.groups import core_of, find_core_of

# A callback that makes no collectives need not come before the next bucket's.
_then = torch._C.Future.then


def bf16(group, bucket):
    """
    Averages gradients as bfloat16, which the switch accumulates in float and rounds once. group:
    the model's process group, None for the default one; it was made with
    Options(accumulate_f32=True).
    """
    group = dist.group.WORLD if group is None else group
    core = find_core_of(group)
    if core is not None and not core.accumulates_f32():
        raise ValueError("the group accumulates bfloat16 in bfloat16: make it with "
                         "fanin_torch.Options(accumulate_f32=True)")
    gradients = bucket.buffer()
    sent = gradients.to(torch.bfloat16).div_(group.size())
    future = dist.all_reduce(sent, group=group, async_op=True).get_future()

    def back(done):
        return gradients.copy_(done.value()[0])

    return _then(future, back)


class TopK:
    """
    The state of top_k for a model in DistributedDataParallel: the residual of each parameter, the
    part of its gradients that this worker has not sent yet.

    fraction: of each bucket's elements, those with the largest magnitudes, that a worker sends in a
    step; at least one element. group: made with Options(handler="sparse"); None: the model's.

    A residual belongs to a parameter, whatever bucket that is in, and to this rank: state_dict()
    has this rank's residuals, and a checkpoint that continues exactly needs those of all ranks.
    """

    def __init__(self, model, fraction, group=None):
        if not 0 < fraction <= 1:
            raise ValueError(f"fraction: found {fraction!r}, expected more than 0, 1 at most")
        self.fraction = fraction
        self.group = model.process_group if group is None else group
        self.core = core_of(self.group)
        self._parameters = dict(model.module.named_parameters())
        self._name_of = {id(parameter): name for name, parameter in self._parameters.items()}
        self._residuals = {}  # of each parameter, by name: a view of its bucket's
        self._flat = {}  # of each bucket, by the names of its parameters
        self._warned = set()

    def residual_of(self, bucket):
        """Returns the residual of a bucket in one tensor. After DistributedDataParallel has made
        other buckets it is put together from the old ones.
        """
        names = tuple(self._name_of[id(parameter)] for parameter in bucket.parameters())
        if names not in self._flat:
            dtype = torch.double if bucket.buffer().dtype == torch.double else torch.float
            parts = [self._residuals[name].reshape(-1).to(dtype) if name in self._residuals
                     else torch.zeros(self._parameters[name].numel(), dtype=dtype)
                     for name in names]
            flat = torch.cat(parts)
            if flat.numel() != bucket.buffer().numel():
                raise RuntimeError(f"bucket {bucket.index()}: found {bucket.buffer().numel()} "
                                   f"elements, expected {flat.numel()}")
            for others in [others for others in self._flat if set(others) & set(names)]:
                del self._flat[others]
            self._flat[names] = flat
            for name, view in zip(names, flat.split([part.numel() for part in parts])):
                self._residuals[name] = view.view(self._parameters[name].shape)
        return self._flat[names]

    def tell(self, reason):
        """Warns once, at rank 0, why something is not in the network."""
        if reason and reason not in self._warned:
            self._warned.add(reason)
            if self.group.rank() == 0:
                warnings.warn(f"fanin: top_k runs on Gloo, not in the network: {reason}",
                              RuntimeWarning, stacklevel=2)

    def state_dict(self):
        """Returns the fraction, and copies of this rank's residuals by the names of the model's
        parameters.
        """
        return {"fraction": self.fraction,
                "residuals": {name: value.clone() for name, value in self._residuals.items()}}

    def load_state_dict(self, state):
        """Continues with a saved state. Raises ValueError for a state of another model."""
        for name, value in state["residuals"].items():
            if name not in self._parameters or self._parameters[name].shape != value.shape:
                raise ValueError(f"residuals: found {name!r} of size {tuple(value.shape)}, which "
                                 "the model does not have")
        self.fraction = state["fraction"]
        self._flat = {}
        self._residuals = {name: value.clone() for name, value in state["residuals"].items()}


def largest(magnitudes, most):
    """
    Returns the indices of the largest magnitudes, ascending. A NaN counts as the largest. If there
    are many elements, a sample shows which are too small: 4 M elements take 31 ms on a core of 2.3
    GHz, in place of 123 ms by topk.
    """
    sample = magnitudes[::64]
    enough = 1 + most * 5 // (4 * 64)
    if enough < sample.numel() // 2 and most >= 4096:
        candidates = (magnitudes <= torch.kthvalue(sample,
                                                   sample.numel()
                                                   - enough).values).logical_not_(
                                                       ).nonzero().flatten()
        if candidates.numel() >= most:
            found = torch.topk(magnitudes[candidates], most, sorted=False).indices
            return candidates[found].sort().values
    return torch.topk(magnitudes, most, sorted=False).indices.sort().values


def compress(total, fraction):
    """
    Moves the elements with the largest magnitudes out of `total`, which has zeros in their place.
    Returns their indices, ascending, their values, and the maximum of their number at any rank. The
    values and the rest of `total` together are the former `total`, bit by bit.
    """
    most = min(total.numel(), max(1, round(fraction * total.numel())))
    indices = largest(total.abs(), most)
    values = total[indices]
    total[indices] = 0
    return indices, values, most


def top_k(state, bucket):
    """
    Averages only the largest elements of each bucket, as sparse vectors. A worker adds the others
    to the gradients of its next step (error feedback: Stich, Cordonnier, Jaggi, "Sparsified SGD
    with memory"). Half and bfloat16 are kept, sent and summed in float. state: a TopK.
    """
    gradients = bucket.buffer()
    residual = state.residual_of(bucket)
    state.tell(state.core.why_not_sparse(residual))
    indices, values, most = compress(residual.add_(gradients), state.fraction)
    total = gradients if gradients.dtype == residual.dtype else torch.empty_like(residual)
    future = state.core.allreduce_vectors(total, indices, values, most).get_future()
    size = state.group.size()

    def back(done):
        return gradients.copy_(done.value()[0].div_(size))

    return _then(future, back)
