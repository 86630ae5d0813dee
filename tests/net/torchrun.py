# SPDX-License-Identifier: BSD-3-Clause
"""torchrun where torch is built without libuv, as docs/pytorch.md has it."""

import functools

import torch.distributed as dist

dist.TCPStore = functools.partial(dist.TCPStore, use_libuv=False)

from torch.distributed.run import main

main()
