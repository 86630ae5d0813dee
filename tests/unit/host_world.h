/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Ranks of jobs in one process and in virtual time: real engines of any protocol around real
 * switches, one or leaves below spines, with links that lose, double and reorder. Jobs have a tree,
 * or are on all switches if the protocol has leaders. What comes of collectives is compared with
 * what it has to be, and all their memory used again at once. An engine that fails has flushed all
 * that it sent. One world at a time.
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

/* What is 0 is as usual. */
struct trial {
	const char *handler; /* its jobs' protocol is the world's */
	uint64_t seed;
	uint16_t n_ranks;  /* of each job */
	uint16_t n_leaves; /* n_ranks is a multiple of it */
	uint16_t n_spines; /* 2 above more than one leaf; jobs with a tree are on the first one */
	uint16_t n_jobs;   /* 1 */
	uint16_t per_port; /* hosts, 1 */
	bool scattered;    /* ranks are at the leaves in turn, else at one after the other */
	/*
	 * Each rank of a job with leaders is linked to two leaves, which n_leaves counts. Its
	 * packets pass none of the hooks.
	 */
	bool has_pairs;
	bool places_unknown;    /* hosts are not told which leaves the ranks are at */
	double faults;          /* chances that a switch loses, doubles or reorders a packet */
	uint64_t host_delay_ns; /* of links of hosts, 2 us */
	uint32_t host_mbit;     /* of links of hosts, 10000 */
	uint32_t up_mbit;       /* of links between switches, as hosts' links */
	uint32_t queue_bytes;   /* of each port of a switch, as many as there are */
	uint32_t bucket_bytes;  /* of each port */
	uint32_t slots; /* of each switch, enough for the jobs if each takes twice what it has */
	uint32_t shared_slots;
	const struct rig_server_ops *servers; /* which make the results; NULL: the root does */

	/* Of the jobs. */
	uint32_t window; /* 64 */
	uint16_t payload_bytes;
	bool wide;
	uint32_t entries, timeout_us, waves, wave_blocks, chains, congestion;
	uint64_t base, bytes;

	/* Of the engines. */
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
	struct fanin_transport transport; /* the first; the rig's, but for what a test does with it
					   */
	struct fanin_transport *inner;
	struct fanin_transport *bundle; /* of a rank with two links, in place of these */
	struct fanin_endpoint *engine;
	struct rig_host *host;
	uint16_t job;
	uint16_t rank;
	struct fanin_request requests[WORLD_REQUESTS];
	struct perf_collective collectives[WORLD_REQUESTS];
	uint8_t *send[WORLD_REQUESTS]; /* whole vectors */
	uint8_t *recv[WORLD_REQUESTS]; /* the same where it is in place */
	bool taken[WORLD_REQUESTS];    /* the result was looked at, and all memory used again */
	uint64_t digest[WORLD_REQUESTS];
	bool is_away;         /* does not poll */
	bool is_gone;         /* the same, and nobody waits for what it has posted */
	bool is_full;         /* has no room for anything to be sent */
	uint32_t n_waiting;   /* packets that are said to wait to leave its host */
	uint32_t n_unflushed; /* frames */
	void *reserved;       /* the frame that is being made */
	struct world_frame *kept;
	uint32_t n_kept;
};

struct world {
	struct trial trial;
	const struct fanin_protocol *protocol;
	struct rig *rig;
	struct rig_leaf_spine network;
	struct rig_job jobs[WORLD_JOBS];         /* with a tree */
	struct rig_leaders leaders[WORLD_JOBS];  /* else */
	uint32_t hosts[WORLD_JOBS][WORLD_RANKS]; /* of each rank */
	uint16_t spine;
	uint16_t payload_bytes;
	uint16_t n_members;
	struct member members[WORLD_JOBS * WORLD_RANKS]; /* one job after the other */
	uint32_t n_requests;                             /* of each member */
	struct random random;
	bool (*loses)(uint16_t rank, const struct fanin_hdr *hdr); /* of what comes to ranks; NULL:
								      nothing */
	bool (*keeps)(uint16_t rank, const struct fanin_hdr *hdr); /* of what ranks send; NULL:
								      nothing */
	uint64_t n_lost;                                           /* by `loses` */
	struct world_frame given[64];
	uint16_t given_to[64]; /* 1 + member; 0: nobody, or it has it already */
	uint32_t n_given;
};

extern struct world world;

/* Makes the network and the jobs, has all ranks join, and opens their engines. */
void world_open(const struct trial *trial);

/* Returns the spec of all jobs; the caller sets the number. */
struct job_spec world_spec(void);

/* Checks that no packet has leaked. */
void world_close(void);

/* ------------------------------------------------------------------ time */

uint64_t world_now(void);
void world_pass(uint64_t ns);

/* Until a condition holds. Returns false if that takes longer. */
bool world_wait(uint64_t max_ns, bool (*condition)(void *user), void *user);

/* ------------------------------------------------------------------ members */

/* Of a number: the rank, where there is one job. */
struct fanin_endpoint *world_engine(uint16_t i);

/* Its engine's error, or "". */
const char *world_error(uint16_t i);
void world_wake(uint16_t i);

/* It stops polling, and is polled again from now on. */
void world_leave(uint16_t i);
void world_return(uint16_t i);

/* It is gone for ever, with its host. */
void world_kill(uint16_t i);

/* Another process takes its place, and is polled once it is woken. */
void world_restart(uint16_t i);

/* The ranks that its engine misses, and those that it knows to be merely late, as bitmaps. */
uint64_t world_missing(uint16_t i);
uint64_t world_late(uint16_t i);

/*
 * All that are not gone have failed as ranks are missing, say that it is this one and no other,
 * and have these words in their errors.
 */
void world_expect_named(uint16_t gone, const char *words);

/* Adds what an engine has counted to a sum: structs of 64-bit numbers. */
void world_add(void *sum, const void *stats, size_t size);

/* ------------------------------------------------------------------ requests */

/*
 * Posts a collective like this one as request r, with iteration r of its data, by their sum every
 * second one in place.
 */
void world_post(uint16_t i, uint32_t r, struct perf_collective like);
void world_post_all(uint32_t r, struct perf_collective like);

/* An allreduce of i32. */
struct perf_collective world_sum(uint64_t count);

/* The same of random f32, whose bits depend on their order. */
struct perf_collective world_float_sum(uint64_t count);

/* Nobody who is not gone has anything in progress, or to post. */
bool world_done(void *user);

/* Until all are done, and rightly so. Returns how long that took. */
uint64_t world_run(void);

/*
 * The n-th of all collectives on a data type, with sums, and of allreduces with all other
 * operators, of 4000 elements. Returns false if there are no more.
 */
bool world_collective(enum fanin_dtype dtype, unsigned int n, struct perf_collective *like);

/* All ranks of a job have the same bits. */
void world_expect_equal_bits(void);

/* Frees all requests, so that others can be posted. */
void world_forget(void);

/* ------------------------------------------------------------------ frames */

/* The whole frame of a header that a hook is called with. */
struct world_frame world_frame_of(const struct fanin_hdr *hdr);

/* Gives a frame to a member before all else that comes. */
void world_give(uint16_t i, const struct world_frame *frame);

/* Sends what a member has kept once more. */
void world_repeat(uint16_t i);

/*
 * Headers of a packet in a member's name, as whoever is behind its port and has the key can send
 * it.
 */
struct fanin_headers world_forge(uint16_t i, enum fanin_type type, uint32_t block,
				 uint32_t payload_len);

/* Sends headers in a member's name with the payload behind them. */
void world_send(uint16_t i, const void *headers);

/*
 * A member contributes to a control block: n numbers that are 0, of 64 at most. A little time
 * passes.
 */
void world_contribute(uint16_t i, uint32_t block, uint16_t n);

/* ------------------------------------------------------------------ switches */

/* Packets that all switches have dropped for a reason. */
uint64_t world_drops(enum fanin_reason reason);

/* The handler's own counter for a job, and of all switches that the first one is on. */
uint64_t world_job_counter(const struct job *job, unsigned int counter);
uint64_t world_counter(unsigned int counter);

/*
 * The first job is taken off its switches. What is on its way reaches hosts for a while, until all
 * ranks join it again, over the next spine if there is one, and go on from the first block that
 * one of them lacks.
 */
void world_lose_run(uint64_t late_ns);

#endif
