# SPDX-License-Identifier: BSD-3-Clause
"""Flare's model of scheduling and memory (the paper's sections 4.3, 5 and 6) as functions, without
anything measured.

The letters are the paper's: K cores, S cores in a subset, C in a cluster, P packets of a block, tau
the service time of a core, delta the time between packets, delta_c between those of one block, L
the time to aggregate one packet, M buffers of a block. Times may be in any unit, the same in all
arguments. docs/flare-model.md says where and how this differs from the paper.
"""

import math

HANDLERS = ("single", "multi", "tree")


def spread(delta, blocks, staggered):
    """delta_c: hosts that all send in one order bring a block's packets together; staggered ones as
    far apart as can be.
    """
    return delta * (blocks if staggered else 1)


def burst_interarrival(S, K, delta, delta_c):
    """delta_k: between packets for one core during a burst."""
    return min(S * delta_c, K * delta)


def queue_length(P, S, K, tau, delta, delta_c):
    """Q: most packets that wait for one core. None wait if a core is faster than its burst."""
    return max(0.0, P / S * (1 - burst_interarrival(S, K, delta, delta_c) / tau))


def input_occupancy(P, S, K, tau, delta, delta_c):
    """Equation 1: most packets in the switch, waiting or in work."""
    return (queue_length(P, S, K, tau, delta, delta_c) + 1) * K


def block_latency(P, Q, tau, delta_c):
    """From a block's first packet until its last one is processed, in the worst case."""
    return (P - 1) * delta_c + (Q + 1) * tau


def bandwidth(K, tau, delta):
    """Packets per time that the switch processes: what its cores can, or what comes."""
    return min(K / tau, 1 / delta)


def working_memory(M, packets_per_time, P, latency):
    """R: buffers in use, by Little's law."""
    return M * packets_per_time / P * latency


def contended(L, C):
    """Mean service time of C handlers that pass one critical section one after the other: L, 2L,
    ... CL.
    """
    return L * sum(range(1, C + 1)) / C


def service_time(handler, L, P, S, C, delta_c, B=2):
    """tau by sections 6.1 to 6.3: equation 2, and what several buffers or the tree change."""
    if handler == "tree":
        return (P - 1) * L / P
    buffers = B if handler == "multi" else 1
    alone = S == 1 or buffers * delta_c >= L
    # The last handler of a block adds up the other buffers: a share of that falls on each packet.
    return (L if alone else contended(L, C)) + (buffers - 1) * L / P


def buffers_per_block(handler, P, B=2):
    """M."""
    if handler == "single" or P < 2:
        return 1.0
    return float(B) if handler == "multi" else (P - 1) / math.log2(P)


def least_blocks_without_contention(L, delta, B=1):
    """The blocks that a message must have so that staggering keeps a block's packets L apart, with
    B buffers.
    """
    return math.ceil(L / (B * delta))
