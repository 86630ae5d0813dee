# SPDX-License-Identifier: BSD-3-Clause
"""
A worker of ./dev demo --torch: train.py BACKEND STEPS, with torch's environment. Trains a small network on Fashion-MNIST, of Debian's
package dataset-fashion-mnist, or on data of the same shape made here. Prints a JSON object.
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
BATCH = 64
EXAMPLES = 20000


def examples():
    """Images, labels, and where they are from."""
    images, labels = DATASET / "train-images-idx3-ubyte.gz", DATASET / "train-labels-idx1-ubyte.gz"
    if images.exists() and labels.exists():
        with gzip.open(images) as file:
            pixels = torch.frombuffer(bytearray(file.read(16 + EXAMPLES * 784)), dtype=torch.uint8)[16:]
        with gzip.open(labels) as file:
            classes = torch.frombuffer(bytearray(file.read(8 + EXAMPLES)), dtype=torch.uint8)[8:]
        return pixels.view(-1, 784).float() / 255, classes.long(), "Fashion-MNIST"
    generator = torch.Generator().manual_seed(3)
    centers = torch.rand(10, 784, generator=generator)
    classes = torch.randint(0, 10, (EXAMPLES,), generator=generator)
    return centers[classes] + 0.3 * torch.randn(EXAMPLES, 784, generator=generator), classes, "made by the demo"


def main():
    backend, steps = sys.argv[1], int(sys.argv[2])
    torch.set_num_threads(1)
    dist.init_process_group(backend)
    rank, size = dist.get_rank(), dist.get_world_size()
    images, classes, source = examples()
    torch.manual_seed(1)
    model = DistributedDataParallel(torch.nn.Sequential(torch.nn.Linear(784, 512), torch.nn.ReLU(), torch.nn.Linear(512, 10)))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9)
    losses, ms = [], []
    for step in range(steps):
        first = (step * size + rank) * BATCH % (EXAMPLES - BATCH + 1)
        began = time.perf_counter()
        optimizer.zero_grad()
        loss = torch.nn.functional.cross_entropy(model(images[first:first + BATCH]), classes[first:first + BATCH])
        loss.backward()
        optimizer.step()
        ms.append(1000 * (time.perf_counter() - began))
        losses.append(loss.item())
    parameters = torch.cat([value.detach().flatten() for value in model.parameters()])
    print(json.dumps({"loss": losses, "ms": ms, "data": source, "parameters": hashlib.sha256(parameters.numpy().tobytes()).hexdigest(),
                      "report": fanin_torch.report()}), flush=True)
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
