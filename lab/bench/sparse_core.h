/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * sparse-bench: sparse blocks from memory through the pipeline on one core, by arrays and by hash
 * tables, and the same vectors as dense blocks, each compared with its bare loop. The rig is
 * core_rig.h's; its own job has the dense blocks.
 */
#ifndef FANIN_LAB_BENCH_SPARSE_CORE_H
#define FANIN_LAB_BENCH_SPARSE_CORE_H

#include "lab/bench/core_batches.h"
#include "lab/bench/core_rig.h"
#include "lab/bench/sparse_bare.h"
#include "lab/bench/sparse_data.h"

enum sparse_kind {
	SPARSE_KIND_ARRAY,
	SPARSE_KIND_HASH,
	SPARSE_KIND_DENSE,
	SPARSE_KINDS
};

#define SPARSE_MAX_BATCHES 4096

struct sparse_options {
	double density; /* 0 to 1 */
	uint32_t mtu;
	uint32_t blocks; /* in a batch, a power of two: each host sends a burst of them in turn */
	uint32_t batches;
	uint32_t seconds; /* maximum time while there are too few undisturbed batches */
	uint16_t hosts;
	enum fanin_isa isa;
};

/* One kind's job, and its counts. */
struct sparse_lane {
	struct job *job;
	uint32_t next_block; /* first block of the next batch */
	struct bare bare;    /* for sparse kinds */
	struct batch batches[SPARSE_MAX_BATCHES];

	/* Totals over all batches. */
	uint64_t n_blocks;
	uint64_t n_packets;
	uint64_t n_bytes;      /* of payload, received */
	uint64_t n_values;     /* received */
	uint64_t n_distinct;   /* of the results */
	uint64_t n_values_out; /* in the results' packets */
	uint64_t n_packets_out;
	uint64_t n_bytes_out;     /* of payload */
	uint64_t n_bytes_touched; /* of slots, of sampled blocks */
	uint64_t n_sampled;
};

struct sparse_bench {
	struct sparse_options options;
	struct sparse_data data;
	struct rig rig;
	struct sparse_lane lanes[SPARSE_KINDS];
	uint8_t *accumulators;   /* for the dense bare loop */
	struct rte_mbuf **mbufs; /* the batch's packets, in the order of arrival */
	uint32_t n_mbufs;
	struct rte_mbuf **stock; /* for the sparse bare loops */
	uint32_t n_stock;
	struct sparse_seen *seen; /* for each block of a batch */
};

/* sparse_rig.c: opens the rig and the jobs. Exits with an explanation if it can't. */
void sparse_bench_open(struct sparse_bench *bench, const struct sparse_options *options);

/* Frees everything, and exits with an explanation if an mbuf is missing. */
void sparse_bench_close(struct sparse_bench *bench);

/*
 * sparse_batch.c: runs one batch through the bare loop, and the same one through the pipeline;
 * checks all results. Exits if one is wrong.
 */
struct batch sparse_batch(struct sparse_bench *bench, enum sparse_kind kind);

#endif
