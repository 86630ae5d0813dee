/* SPDX-License-Identifier: BSD-3-Clause */
/* The declarations that the files of the parameter server share. */
#ifndef FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_INTERNAL_H
#define FANIN_PROTOCOLS_PA_ATP_HOST_SERVER_INTERNAL_H

#include <sys/queue.h>

#include "hostlib/src/engine/sums.h"
#include "protocols/pa_atp/host/server.h"
#include "wire/keys.h"

enum server_phase {
	/*
	 * in a new run: nothing has come; `block` is the block that the slot would have had before
	 */
	SERVER_FREE = 0,
	SERVER_OPEN, /* ranks are missing */
	SERVER_DONE, /* the payload is the result */
};

/* One of a job's 2W blocks. */
struct server_entry {
	uint32_t block;
	uint8_t phase;    /* enum server_phase */
	bool ce;          /* a part of the sum came with CE */
	uint32_t flushes; /* sent for it */
	struct fanin_sum sum;
	uint64_t members; /* the ranks in the sum */
	uint64_t begun_ns;
	uint64_t flush_ns; /* when the next FLUSH is due */
	/*
	 * The last ASK, for this block or, before its first data, for the next block of the slot.
	 */
	uint32_t asked_block;
	bool asked;
	uint64_t asked_ns;
	TAILQ_ENTRY(server_entry) waiting; /* if OPEN */
};

TAILQ_HEAD(server_waiting, server_entry);

/* The aggregating switch; corresponds to a member in pipeline/job_run.c. */
struct server_member {
	bool joined;
	bool challenged_twice;
	uint64_t nonce;
	uint64_t taken;  /* the cookie with which it joined */
	uint64_t cookie; /* cookie of the last challenge; 0: none */
	uint64_t asked_nonce;
	uint64_t challenged_ns;
};

struct fanin_server_job {
	struct fanin_server_spec spec;
	struct fanin_keys keys;
	uint64_t all; /* all ranks of the job */
	struct fanin_sums sums;
	uint32_t group_be;
	struct server_member member;
	uint32_t epoch; /* 0: no run */
	uint32_t first_block;
	uint64_t round_trip_ns;
	uint64_t due_ns; /* when the next FLUSH is due; UINT64_MAX: none */
	struct server_entry *entries;
	uint8_t *payloads;
	struct server_waiting waiting; /* oldest first */
	uint32_t n_waiting;
	struct fanin_server_job_stats stats; /* counters only */
	TAILQ_ENTRY(fanin_server_job) entry;
};

TAILQ_HEAD(server_jobs, fanin_server_job);

struct fanin_server_core {
	struct fanin_server_core_options options;
	uint64_t instance;
	uint32_t next_epoch;
	uint32_t n_jobs;
	struct server_jobs jobs;
	struct fanin_server_job **by_id; /* FANIN_WIRE_MAX_JOB + 1 */
	uint64_t drops[FANIN_REASON_COUNT];
};

/* A checked packet of a job's member. */
struct server_packet {
	const struct fanin_headers *headers;
	const void *payload;
	uint32_t payload_len;
	uint64_t now_ns;
};

/* server.c: fills the header of a packet of the current run. */
void server_begin(const struct fanin_server_job *job, enum fanin_type type, struct fanin_hdr *hdr);

/* server.c: sends a packet to the job's switch or to the job's group. */
void server_send(const struct fanin_server_core *core, const struct fanin_server_job *job,
		 const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len,
		 bool lasting);
void server_multicast(const struct fanin_server_core *core, const struct fanin_server_job *job,
		      const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len);

/* server.c: answers a packet at the address and port where its sender takes answers. */
void server_reply(const struct fanin_server_core *core, const struct fanin_headers *to,
		  const struct fanin_hdr *hdr, const void *payload, uint32_t payload_len);

/*
 * server.c: counts the packet, and tells its sender why it was refused. job: NULL if the sender is
 * not the job's member.
 */
void server_refuse(struct fanin_server_core *core, const struct fanin_server_job *job,
		   const struct fanin_headers *headers, const void *payload, uint32_t payload_len,
		   enum fanin_reason reason);

/* server_join.c: handles a JOIN or a LEAVE of the job's member. */
void server_membership(struct fanin_server_core *core, struct fanin_server_job *job,
		       const struct server_packet *packet);

/* server_blocks.c: resets all blocks for a new run. */
void server_blocks_reset(struct fanin_server_job *job);

/*
 * server_blocks.c: handles a packet about a block of the current run. Returns why it is refused, or
 * NONE.
 */
enum fanin_reason server_block(struct fanin_server_core *core, struct fanin_server_job *job,
			       const struct server_packet *packet);

/* server_blocks.c: sends the FLUSHes that are due, and sets when the next one is. */
void server_flush(struct fanin_server_core *core, struct fanin_server_job *job, uint64_t now_ns);

/* Where a block stands to the one that its slot has. */
enum server_place {
	SERVER_STALE,   /* its slot has a later one */
	SERVER_CURRENT, /* OPEN or DONE */
	SERVER_NEXT,    /* nothing of it has come yet, and its slot may be taken */
	SERVER_AHEAD,   /* nobody who keeps to the window can send it */
};

static inline enum server_place
server_place(const struct fanin_server_job *job, uint32_t block, struct server_entry **found)
{
	struct server_entry *entry = &job->entries[block & (job->spec.slots - 1)];

	*found = entry;
	if (block == entry->block)
		return entry->phase == SERVER_FREE ? SERVER_STALE : SERVER_CURRENT;
	if (fanin_block_before(block, entry->block))
		return SERVER_STALE;
	if (entry->phase == SERVER_OPEN || block - entry->block != job->spec.slots)
		return SERVER_AHEAD;
	return SERVER_NEXT;
}

static inline uint8_t *
server_payload(const struct fanin_server_job *job, const struct server_entry *entry)
{
	return job->payloads + (size_t)(entry - job->entries) * job->spec.payload_bytes;
}

/*
 * server_query.c: asks for what the block lacks, unless it was asked for within the last round
 * trip. entry: its slot.
 */
void server_ask(struct fanin_server_core *core, struct fanin_server_job *job,
		struct server_entry *entry, uint32_t block, uint64_t missing, uint64_t now_ns);

/* server_query.c: a QUERY. */
enum fanin_reason server_query(struct fanin_server_core *core, struct fanin_server_job *job,
			       const struct server_packet *packet);

/* server_blocks.c: the header of a result, as RESULT or REPEAT. */
void server_begin_result(const struct fanin_server_job *job, const struct server_entry *entry,
			 enum fanin_type type, struct fanin_hdr *hdr);

#endif
