/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of jobs in one process and in virtual time: real engines of any protocol around real
 * switches, a single one or leaves below spines, with links that lose, duplicate and reorder. Jobs
 * have a tree, or are on all switches if the protocol has leaders. Results of collectives are
 * compared with the expected ones, and all their memory is reused at once. An engine that fails has
 * flushed everything that it sent. One world at a time.
 */
#ifndef FANIN_TESTS_UNIT_HOST_WORLD_H
#define FANIN_TESTS_UNIT_HOST_WORLD_H

#include "hostlib/src/engine/engine_internal.h"
#include "lab/reference/perf_collective.h"
#include "lab/reference/random.h"
#include "lab/rig/leaders.h"

#define MS UINT64_C(1000000)
#define SECOND (1000 * MS)
#define WORLD_RANKS 64
#define WORLD_JOBS 2
#define WORLD_REQUESTS 8
#define WORLD_TIMEOUT (5 * SECOND)

/* Fields that are 0 get their default. */
struct trial {
	const char *handler; /* of the jobs; their protocol is the world's */
	uint64_t seed;
	uint16_t n_ranks;  /* of each job */
	uint16_t n_leaves; /* n_ranks is a multiple of it */
	uint16_t n_spines; /* 2 above more than one leaf; jobs with a tree are on the first one */
	uint16_t n_jobs;   /* 1 */
	uint16_t per_port; /* hosts, 1 */
	bool scattered; /* ranks are dealt to the leaves in turn; else leaves are filled one by one
			 */
	/*
	 * Each rank of a job with leaders is linked to two leaves, which n_leaves counts. The hooks
	 * don't see its packets.
	 */
	bool has_pairs;
	bool places_unknown;    /* hosts are not told the ranks' leaves */
	double faults;          /* chances that a switch loses, doubles or reorders a packet */
	uint64_t host_delay_ns; /* of links of hosts, 2 us */
	uint32_t host_mbit;     /* of links of hosts, 10000 */
	uint32_t up_mbit;       /* of links between switches, default: as hosts' links */
	uint32_t queue_bytes;   /* of each port of a switch, default: the ports' own */
	uint32_t bucket_bytes;  /* of each port */
	uint32_t slots; /* of each switch, default: enough if each job takes twice its slots */
	uint32_t shared_slots;
	const struct rig_server_ops *servers; /* that make the results; NULL: the root does */

	/* For the jobs. */
	uint32_t window; /* 64 */
	uint16_t payload_bytes;
	bool wide;
	uint32_t entries, timeout_us, waves, wave_blocks, chains, congestion;
	uint64_t base, bytes;

	/* For the engines. */
	const struct fanin_cc_type *cc;
	uint64_t timeout_ns; /* WORLD_TIMEOUT */
	bool no_recovery;    /* a lost run is an error */
};

struct world_frame {
	uint32_t len;
	uint8_t bytes[2048] __attribute__((aligned(8)));
};

/* A rank of a job. */
struct member {
	struct fanin_transport transport; /* first; the rig's, except for functions that a test
					     replaces */
	struct fanin_transport *inner;
	struct fanin_transport *bundle; /* for a rank with two links, in place of these */
	struct fanin_endpoint *engine;
	struct rig_host *host;
	uint16_t job;
	uint16_t rank;
	struct fanin_request requests[WORLD_REQUESTS];
	struct perf_collective collectives[WORLD_REQUESTS];
	uint8_t *send[WORLD_REQUESTS]; /* whole vectors */
	uint8_t *recv[WORLD_REQUESTS]; /* the same as send, if in place */
	bool taken[WORLD_REQUESTS];    /* the result was checked, and all memory reused */
	uint64_t digest[WORLD_REQUESTS];
	bool is_away;         /* does not poll */
	bool is_gone;         /* does not poll, and no rank waits for its collectives */
	bool is_full;         /* has no room for packets to be sent */
	uint32_t n_waiting;   /* packets that are reported to wait in its host */
	uint32_t n_unflushed; /* in frames */
	void *reserved;       /* the frame that is being built */
	struct world_frame *kept;
	uint32_t n_kept;
};

struct world {
	struct trial trial;
	const struct fanin_protocol *protocol;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job jobs[WORLD_JOBS];         /* for jobs with a tree */
	struct rig_leaders leaders[WORLD_JOBS];  /* for other jobs */
	uint32_t hosts[WORLD_JOBS][WORLD_RANKS]; /* of each rank */
	uint16_t spine;
	uint16_t payload_bytes;
	uint16_t n_members;
	struct member members[WORLD_JOBS * WORLD_RANKS]; /* ordered by job */
	uint32_t n_requests;                             /* of each member */
	struct random random;
	bool (*loses)(uint16_t rank, const struct fanin_hdr *hdr); /* drops packets to ranks; NULL:
								      none */
	bool (*keeps)(uint16_t rank, const struct fanin_hdr *hdr); /* drops packets from ranks;
								      NULL: none */
	uint64_t n_lost;                                           /* by `loses` */
	struct world_frame given[64];
	uint16_t given_to[64]; /* 1 + member that the frame is given to; 0: none, or it has it */
	uint32_t n_given;
};

extern struct world world;

/* Makes the network and the jobs, makes all ranks join, and opens their engines. */
void world_open(const struct trial *trial);

/* Returns the spec of all jobs; the caller sets the number. */
struct job_spec world_spec(void);

/* Closes the world, and checks that no packet has leaked. */
void world_close(void);

/* ------------------------------------------------------------------ time */

uint64_t world_now(void);
void world_pass(uint64_t ns);

/* Runs until a condition holds. Returns false if this takes longer. */
bool world_wait(uint64_t max_ns, bool (*condition)(void *user), void *user);

/* ------------------------------------------------------------------ members */

/* Functions about a member. i: its number, which is its rank if there is one job. */
struct fanin_endpoint *world_engine(uint16_t i);

/* Returns the error of its engine, or "". */
const char *world_error(uint16_t i);
void world_wake(uint16_t i);

/* Makes it stop polling, and poll again. */
void world_leave(uint16_t i);
void world_return(uint16_t i);

/* Makes it disappear for ever, together with its host. */
void world_kill(uint16_t i);

/* Replaces it by another process, which is polled once it is woken. */
void world_restart(uint16_t i);

/*
 * Return the ranks that its engine misses, and those that it knows to be merely late, as bitmaps.
 */
uint64_t world_missing(uint16_t i);
uint64_t world_late(uint16_t i);

/*
 * Checks that all members that are not gone have failed because of missing ranks, name this rank
 * and no other, and have these words in their errors.
 */
void world_expect_named(uint16_t gone, const char *words);

/* Adds an engine's counters to a sum; both are structs of 64-bit numbers. */
void world_add(void *sum, const void *stats, size_t size);

/* ------------------------------------------------------------------ requests */

/*
 * Posts such a collective as request r, with data of iteration r. It is in place if the sum of the
 * rank and r is even.
 */
void world_post(uint16_t i, uint32_t r, struct perf_collective like);
void world_post_all(uint32_t r, struct perf_collective like);

/* Returns an allreduce of i32. */
struct perf_collective world_sum(uint64_t count);

/* Returns an allreduce of random f32, whose bits depend on the order. */
struct perf_collective world_float_sum(uint64_t count);

/* True if no member that is not gone has anything in progress, or left to post. */
bool world_done(void *user);

/* Runs until all members are done, and checks the results. Returns how long it took. */
uint64_t world_run(void);

/*
 * Makes the n-th one of all collectives on a data type with sums, and of allreduces with all other
 * operators, of 4000 elements. Returns false if there are no more.
 */
bool world_collective(enum fanin_dtype dtype, unsigned int n, struct perf_collective *like);

/* Checks that all ranks of a job have the same bits. */
void world_expect_equal_bits(void);

/* Frees all requests, so that new ones can be posted. */
void world_forget(void);

/* ------------------------------------------------------------------ frames */

/* Returns the whole frame of a header that a hook is called with. */
struct world_frame world_frame_of(const struct fanin_hdr *hdr);

/* Gives a frame to a member before all other received frames. */
void world_give(uint16_t i, const struct world_frame *frame);

/* Makes a member send once more the frames that it has kept. */
void world_repeat(uint16_t i);

/*
 * Returns headers of a packet in a member's name, as anybody behind its port with the key can send
 * it.
 */
struct fanin_headers world_forge(uint16_t i, enum fanin_type type, uint32_t block,
				 uint32_t payload_len);

/* Sends headers in a member's name, followed by their payload. */
void world_send(uint16_t i, const void *headers);

/* Makes a member contribute n zeros, at most 64, to a control block. A little time passes. */
void world_contribute(uint16_t i, uint32_t block, uint16_t n);

/* ------------------------------------------------------------------ switches */

/* Returns the packets that all switches have dropped for a reason. */
uint64_t world_drops(enum fanin_reason reason);

/* The handler's own counter for a job, and summed over all switches that the first job is on. */
uint64_t world_job_counter(const struct job *job, unsigned int counter);
uint64_t world_counter(unsigned int counter);

/*
 * Removes the first job from its switches. Packets in flight reach hosts for a while, until all
 * ranks join the job again, over the next spine if there is one, and continue with the first block
 * that any of them lacks.
 */
void world_lose_run(uint64_t late_ns);

#endif
