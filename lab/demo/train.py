# SPDX-License-Identifier: BSD-3-Clause
"""
A worker of ./dev demo --torch: train.py STEPS BUCKET_MB, with torch's environment. Trains three
copies of a small network in turns, a step of each: over Fanin, over Gloo, and without any
communication. Then it sums vectors as large as the gradients, over Fanin and over Gloo in turns.
The images are of Fashion-MNIST, of Debian's package dataset-fashion-mnist, or of the same shape and
made here. Prints a JSON object; times are in seconds of the machine's monotonic clock, which all
workers share.
"""

import gzip
import hashlib
import json
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import fanin_torch

DATASET = Path("/usr/share/datasets/fashion-mnist")
BATCH = 8
EXAMPLES = 20000


def examples():
    """Returns images, labels, and where they are from."""
    images, labels = DATASET / "train-images-idx3-ubyte.gz", DATASET / "train-labels-idx1-ubyte.gz"
    if images.exists() and labels.exists():
        with gzip.open(images) as file:
            pixels = torch.frombuffer(bytearray(file.read(16 + EXAMPLES * 784)),
                                      dtype=torch.uint8)[16:]
        with gzip.open(labels) as file:
            classes = torch.frombuffer(bytearray(file.read(8 + EXAMPLES)), dtype=torch.uint8)[8:]
        return pixels.view(-1, 784).float() / 255, classes.long(), "Fashion-MNIST"
    generator = torch.Generator().manual_seed(3)
    centers = torch.rand(10, 784, generator=generator)
    classes = torch.randint(0, 10, (EXAMPLES,), generator=generator)
    return centers[classes] + 0.3 * torch.randn(EXAMPLES, 784,
                                                generator=generator), classes, "made by the demo"


def network():
    """Makes the network, the same at all workers and for all sides."""
    torch.manual_seed(1)
    layers = [torch.nn.Linear(784, 512), torch.nn.ReLU()]
    for _ in range(3):
        layers += [torch.nn.Linear(512, 512), torch.nn.ReLU()]
    for layer in layers[::2]:
        torch.nn.init.kaiming_normal_(layer.weight, nonlinearity="relu")
    return torch.nn.Sequential(*layers, torch.nn.Linear(512, 10))


class Side:
    """A copy of the network, trained over a process group; None: each worker trains for itself."""

    def __init__(self, group, bucket_mb):
        self.group = group
        self.model = network()
        # Gradients are views of their buckets: otherwise torch copies them there and back, which is
        # not communication.
        if group is not None:
            self.model = DistributedDataParallel(self.model, process_group=group,
                                                 bucket_cap_mb=bucket_mb,
                                                 gradient_as_bucket_view=True)
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.02)
        self.losses, self.steps, self.sums = [], [], []

    def step(self, images, classes):
        began = time.monotonic()
        self.optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(self.model(images), classes)
        loss.backward()
        self.optimizer.step()
        self.steps.append((began, time.monotonic()))
        self.losses.append(loss.item())

    def bucket_bytes(self):
        """Returns the sizes of the buckets in which DistributedDataParallel sums the gradients,
        which it chooses again once a step is done.
        """
        found = self.model._get_ddp_logging_data()
        return [int(size) for size in (found.get("rebuilt_bucket_sizes")
                                       or found["bucket_sizes"]).split(",")]

    def sum(self, buckets):
        began = time.monotonic()
        for work in [dist.all_reduce(bucket, group=self.group, async_op=True)
                     for bucket in buckets]:
            work.wait()
        self.sums.append((began, time.monotonic()))

    def digest(self):
        parameters = torch.cat([value.detach().flatten() for value in self.model.parameters()])
        return hashlib.sha256(parameters.numpy().tobytes()).hexdigest()

    def found(self):
        return {"loss": self.losses, "steps": self.steps, "sums": self.sums,
                "parameters": self.digest()}


def train(sides, steps, meet):
    """Trains all sides. meet: a barrier, before each step."""
    rank, size = dist.get_rank(), dist.get_world_size()
    images, classes, source = examples()
    for step in range(steps):
        first = (step * size + rank) * BATCH % (EXAMPLES - BATCH + 1)
        for side in sides.values():
            meet()
            side.step(images[first:first + BATCH], classes[first:first + BATCH])
    return source


def sum_gradients(sides, steps, meet):
    """Sums vectors by each side that has a process group. Every element is checked."""
    rank, size = dist.get_rank(), dist.get_world_size()
    buckets = [torch.empty(count // 4) for count in sides[0].bucket_bytes()]
    for _ in range(steps):
        for side in sides:
            for bucket in buckets:
                bucket.fill_(rank + 1)
            meet()
            side.sum(buckets)
            if any((bucket != size * (size + 1) / 2).any() for bucket in buckets):
                sys.exit(f"rank {rank}: a sum of the group {side.group} is wrong")


def main():
    steps, bucket_mb = map(int, sys.argv[1:])
    torch.set_num_threads(1)
    dist.init_process_group("fanin")
    gloo = dist.new_group(backend="gloo")
    sides = {name: Side(group, bucket_mb) for name,
             group in (("fanin", dist.group.WORLD), ("gloo", gloo), ("none", None))}

    def meet():
        dist.barrier(group=gloo)
    source = train(sides, steps, meet)
    sum_gradients([sides["fanin"], sides["gloo"]], steps, meet)
    print(json.dumps({"data": source, "bucket_bytes": sides["fanin"].bucket_bytes(),
                      "report": fanin_torch.report(),
                      "sides": {name: side.found() for name, side in sides.items()}}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
