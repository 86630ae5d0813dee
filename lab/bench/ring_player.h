/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A ring allreduce as packets, over leaves and spines: the baseline without aggregation of `./dev
 * bench congestion`. Rank r sends to r + 1 the packets of the ring's 2(n - 1) steps, each as soon
 * as the same packet of the step before has come, so that long vectors are pipelined. Each
 * connection sends by DCTCP and repeats lost packets. Packets have no data: nothing is reduced. One
 * thread.
 */
#ifndef FANIN_LAB_BENCH_RING_PLAYER_H
#define FANIN_LAB_BENCH_RING_PLAYER_H

#include "lab/rig/leaf_spine.h"

struct ring_player;

struct ring_player_stats {
	uint64_t sent; /* packets, including repeated ones */
	uint64_t packets;
	uint64_t timeouts;
};

/*
 * Makes the ranks on these hosts, which the player owns from now on. seed: of the connections'
 * ports. Returns NULL without memory.
 */
struct ring_player *ring_player_create(const struct rig_leaf_spine *network, const uint32_t *hosts,
				       uint16_t n_ranks, uint64_t seed);

void ring_player_destroy(struct ring_player *player);

/* Begins an allreduce of this many bytes. The one before must be done. Returns 0 or -ENOMEM. */
int ring_player_begin(struct ring_player *player, uint64_t bytes);

/* True once each rank has received all packets. */
bool ring_player_is_done(const struct ring_player *player);

void ring_player_stats(const struct ring_player *player, struct ring_player_stats *stats);

#endif
