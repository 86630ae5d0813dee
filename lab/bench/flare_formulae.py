# SPDX-License-Identifier: BSD-3-Clause
"""
Flare's model of scheduling and memory (the paper's sections 4.3, 5 and 6) as functions, without
measurements.

The letters are the paper's: K cores, S cores in a subset, C in a cluster, P packets of a block, tau
the service time of a core, delta the time between packets, delta_c between those of one block, L
the time to aggregate one packet, M buffers of a block. Times may be in any unit, the same in all
arguments. docs/flare-model.md lists the differences from the paper.
"""

import math

HANDLERS = ("single", "multi", "tree")


def spread(delta, blocks, staggered):
    """Returns delta_c: if all hosts send in one order, a block's packets come together; staggered
    hosts spread them as far as possible.
    """
    return delta * (blocks if staggered else 1)


def burst_interarrival(S, K, delta, delta_c):
    """Returns delta_k: the time between packets for one core during a burst."""
    return min(S * delta_c, K * delta)


def queue_length(P, S, K, tau, delta, delta_c):
    """Returns Q: the maximum of packets that wait for one core. None wait if a core is faster than
    its burst.
    """
    return max(0.0, P / S * (1 - burst_interarrival(S, K, delta, delta_c) / tau))


def input_occupancy(P, S, K, tau, delta, delta_c):
    """Returns, by equation 1, the maximum of packets in the switch, waiting or being processed."""
    return (queue_length(P, S, K, tau, delta, delta_c) + 1) * K


def block_latency(P, Q, tau, delta_c):
    """Returns the time from a block's first packet until its last one is processed, in the worst
    case.
    """
    return (P - 1) * delta_c + (Q + 1) * tau


def bandwidth(K, tau, delta):
    """Returns the packets per time that the switch processes: as many as its cores can, or as many
    as come.
    """
    return min(K / tau, 1 / delta)


def working_memory(M, packets_per_time, P, latency):
    """Returns R: the buffers in use, by Little's law."""
    return M * packets_per_time / P * latency


def contended(L, C):
    """Returns the mean service time of C handlers that pass one critical section one after the
    other: L, 2L, ... CL.
    """
    return L * sum(range(1, C + 1)) / C


def service_time(handler, L, P, S, C, delta_c, B=2):
    """Returns tau by sections 6.1 to 6.3: equation 2, and the changes by several buffers or the
    tree.
    """
    if handler == "tree":
        return (P - 1) * L / P
    buffers = B if handler == "multi" else 1
    alone = S == 1 or buffers * delta_c >= L
    # The last handler of a block adds the other buffers: each packet gets a share of this.
    return (L if alone else contended(L, C)) + (buffers - 1) * L / P


def buffers_per_block(handler, P, B=2):
    """Returns M."""
    if handler == "single" or P < 2:
        return 1.0
    return float(B) if handler == "multi" else (P - 1) / math.log2(P)


def least_blocks_without_contention(L, delta, B=1):
    """Returns the minimum of blocks in a message for which staggering keeps a block's packets L
    apart, with B buffers.
    """
    return math.ceil(L / (B * delta))
