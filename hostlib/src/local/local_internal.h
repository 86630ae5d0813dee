/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The endpoint of a rank whose host has several: the protocol (local.c), the steps of chunks
 * (moves.c) with what ranks do alike in them (calls.c) and the counters by which they tell each
 * other (counters.c), and failures with late and lost ranks (lost.c).
 */
#ifndef FANIN_HOSTLIB_LOCAL_LOCAL_INTERNAL_H
#define FANIN_HOSTLIB_LOCAL_LOCAL_INTERNAL_H

#include "local.h"
#include "gather.h"
#include "steps.h"

/* A place in the chunks of all requests. */
struct fanin_local_cursor {
	struct fanin_request *request; /* NULL: all that is posted is behind it */
	uint32_t index;                /* of the request's chunks */
	uint64_t chunk;                /* the chunk's number */
	struct fanin_local_plan plan;
};

struct fanin_local {
	struct fanin_endpoint endpoint;
	struct fanin_local_config config;
	struct fanin_local_facts facts;
	struct fanin_request_list requests; /* not done at this rank */
	struct fanin_local_cursor fill, reduce, post, finish, take;
	uint64_t seen[3]; /* the least counter of each step, as it was seen */
	struct fanin_request hosts[FANIN_LOCAL_DEPTH]; /* leader: of the chunk at each place */
	struct fanin_local_sparse sparse;              /* of the sparse request on its way */
	bool has_slept;                                /* what woke this rank is to be read */
	uint64_t listened_ns; /* when the connections were last looked at */
	uint64_t moved_ns;    /* when a chunk was last moved, or the first request was posted */
	uint64_t polled_ns;
	uint64_t bytes;        /* of this rank's data, in all requests */
	uint64_t shared_bytes; /* copied into and out of the memory */
	uint64_t n_chunks;
	int status; /* FANIN_OK, or the failure */
	struct fanin_error error;
};

static inline bool
fanin_local_leads(const struct fanin_local *local)
{
	return local->config.meeting.place == 0;
}

static inline struct fanin_local_member *
fanin_local_own(const struct fanin_local *local)
{
	return &local->config.meeting.memory.members[local->config.meeting.place];
}

/* Returns the chunks that have their result. */
static inline uint64_t
fanin_local_ready(const struct fanin_local *local)
{
	return __atomic_load_n(&local->config.meeting.memory.head->ready, __ATOMIC_ACQUIRE);
}

/* counters.c */

/* Wakes the ranks that wait for one of these steps, at the leader. */
void fanin_local_wake_waiting(struct fanin_local *local, unsigned int steps);

/* True if all ranks of the host have done this many chunks in a step. */
bool fanin_local_all_have(struct fanin_local *local, enum fanin_local_step step, uint64_t chunks);

/* True if the place of a chunk is free, as far as all ranks are done with it in a step. */
bool fanin_local_is_free(struct fanin_local *local, enum fanin_local_step step, uint64_t chunk);

/* Tells that this rank has done so many chunks in a step, and wakes who waits for that. */
void fanin_local_publish(struct fanin_local *local, enum fanin_local_step step, uint64_t chunks);

/* calls.c */

/* Returns what this rank does in a request. */
struct fanin_local_call fanin_local_call_of(const struct fanin_local *local,
					    const struct fanin_request *request);

/* Compares what the ranks do in a chunk. Returns false, having failed, if they differ. */
bool fanin_local_calls_compare(struct fanin_local *local, uint64_t chunk);

/* moves.c */

/* Enters a request that was posted. */
void fanin_local_enter(struct fanin_local *local, struct fanin_request *request);

/* Moves one chunk in each step that can. Returns how many have moved. */
int fanin_local_move(struct fanin_local *local);

/*
 * Finds the steps of others that this rank waits for (enum fanin_local_step). Returns false if it
 * can move itself.
 */
bool fanin_local_waits(struct fanin_local *local, unsigned int *steps);

/* Leaves all requests behind. */
void fanin_local_drop(struct fanin_local *local);

/* lost.c */

/* Fails the endpoint with local->error, tells the ranks of the host, and fails the job of hosts. */
void fanin_local_fail(struct fanin_local *local, int status);

/* Fails it with the error of the job of hosts. */
void fanin_local_fail_by_network(struct fanin_local *local, int status);

/* Fills in the ranks that the oldest chunk waits for, as far as they are known. */
void fanin_local_late(struct fanin_local *local, struct fanin_ranks *ranks);

/* Looks at the connections and the clock: a rank may be lost, or too late. */
void fanin_local_look_around(struct fanin_local *local, uint64_t now_ns);

#endif
