/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Blocks of a parameter server's job. The data of a block is merged by the sets of ranks in it
 * (engine/sums.h). If a sum is dropped because it overlaps, the missing ranks are asked for their
 * own contributions. A block's result is computed once and kept until a later block takes the slot.
 * That block proves that all ranks have the result: a job has 2W slots, and a rank sends block b
 * only with all results up to b - W (docs/protocol.md).
 */
#include "server_internal.h"

#include <string.h>

#define TOS_ECN 3u
#define TOS_CE 3u
#define MAX_DOUBLINGS 11u /* from the shortest round trip to a second */

static_assert(FANIN_SERVER_MIN_ROUND_TRIP_NS << MAX_DOUBLINGS >= FANIN_SERVER_MAX_FLUSH_WAIT_NS,
	      "waits between FLUSHes");

void
server_blocks_reset(struct fanin_server_job *job)
{
	TAILQ_INIT(&job->waiting);
	job->n_waiting = 0;
	job->due_ns = UINT64_MAX;
	for (uint32_t i = 0; i < job->spec.slots; i++)
		job->entries[i] = (struct server_entry){ .block = i - job->spec.slots };
}

static enum fanin_reason
check_operation(const struct fanin_server_core *core, const struct fanin_server_job *job,
		const struct fanin_hdr *hdr)
{
	/*
	 * True if the elements exceed the job's packets. This counts for an empty packet, too:
	 * other ranks send the elements that it leaves out.
	 */
	if (hdr->count * fanin_dtype_size(hdr->dtype) > job->spec.payload_bytes)
		return FANIN_REASON_PAYLOAD;
	if (!fanin_op_is_copy(hdr->op) &&
	    fanin_kernel(core->options.isa, hdr->dtype, hdr->op) == NULL)
		return FANIN_REASON_OPERATION;
	return FANIN_REASON_NONE;
}

static void
wait_begin(struct fanin_server_job *job, struct server_entry *entry)
{
	TAILQ_INSERT_TAIL(&job->waiting, entry, waiting);
	if (++job->n_waiting <= FANIN_SERVER_FLUSH_BLOCKS && entry->flush_ns < job->due_ns)
		job->due_ns = entry->flush_ns;
}

static void
wait_end(struct fanin_server_job *job, struct server_entry *entry, uint64_t now_ns)
{
	TAILQ_REMOVE(&job->waiting, entry, waiting);
	/* Another block is now among the oldest; the scan finds when its FLUSH is due. */
	if (--job->n_waiting >= FANIN_SERVER_FLUSH_BLOCKS)
		job->due_ns = now_ns;
	else if (job->n_waiting == 0)
		job->due_ns = UINT64_MAX;
}

/* The block takes the slot, without data so far. */
static void
entry_open(struct fanin_server_job *job, struct server_entry *entry, const struct fanin_hdr *hdr,
	   uint64_t now_ns)
{
	entry->block = hdr->block;
	entry->phase = SERVER_OPEN;
	fanin_sum_begin(&job->sums, &entry->sum, &entry->members, server_payload(job, entry),
			fanin_wire_shape(hdr));
	entry->ce = false;
	entry->flushes = 0;
	entry->begun_ns = now_ns;
	entry->flush_ns = now_ns + job->round_trip_ns;
	job->stats.blocks++;
}

void
server_begin_result(const struct fanin_server_job *job, const struct server_entry *entry,
		    enum fanin_type type, struct fanin_hdr *hdr)
{
	server_begin(job, type, hdr);
	hdr->flags = (uint16_t)((entry->sum.empty ? FANIN_FLAG_EMPTY : 0) |
				(entry->ce ? FANIN_FLAG_CE : 0));
	hdr->contributions = job->spec.n_ranks;
	hdr->block = entry->block;
	fanin_wire_set_shape(hdr, entry->sum.shape);
}

/* Returns the payload, or NULL if the packet carries no data. */
static const void *
elements_of(const struct server_packet *packet)
{
	return fanin_wire_is_empty(&packet->headers->fanin) ? NULL : packet->payload;
}

/* The payload is the result and does not change from now on. */
static void
publish(struct fanin_server_core *core, struct fanin_server_job *job, struct server_entry *entry,
	uint64_t now_ns)
{
	struct fanin_hdr hdr;

	entry->phase = SERVER_DONE;
	job->stats.results++;
	job->stats.block_ns += now_ns - entry->begun_ns;
	server_begin_result(job, entry, FANIN_TYPE_RESULT, &hdr);
	server_multicast(core, job, &hdr, server_payload(job, entry), fanin_sum_len(&entry->sum));
}

/* Adds a sum of the ranks in `members` to an open block. Returns false if it changes nothing. */
static bool
combine(struct fanin_server_core *core, struct fanin_server_job *job, struct server_entry *entry,
	const struct server_packet *packet, uint64_t members)
{
	const struct fanin_sum_part part = { .ranks = &members,
					     .hdr = &packet->headers->fanin,
					     .payload = elements_of(packet) };

	switch (fanin_sum_add(&job->sums, &entry->sum, &part)) {
	case FANIN_SUM_MERGED:
		break;
	case FANIN_SUM_REPLACED:
		job->stats.replaced++;
		break;
	case FANIN_SUM_DUPLICATE:
		job->stats.duplicates++;
		return false;
	case FANIN_SUM_OVERLAP:
	case FANIN_SUM_MISMATCH: /* refused before */
		job->stats.overlaps++;
		server_ask(core, job, entry, entry->block, job->all & ~entry->members,
			   packet->now_ns);
		return false;
	}
	job->stats.bytes_reduced += packet->payload_len;
	return true;
}

static void
count(struct fanin_server_job *job, const struct fanin_headers *headers, uint64_t members, bool ce)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	job->stats.ce += ce;
	if (hdr->type == FANIN_TYPE_CONTRIBUTION)
		job->stats.sums++;
	else if (hdr->type == FANIN_TYPE_KNOWN)
		job->stats.known++;
	else if ((members & (members - 1)) == 0)
		job->stats.singles++;
	else
		job->stats.partials++;
	job->stats.direct += (hdr->flags & FANIN_FLAG_DIRECT) != 0;
}

/* Finds the ranks in the packet. */
static enum fanin_reason
find_members(const struct fanin_server_job *job, const struct fanin_hdr *hdr, uint64_t *members)
{
	*members = job->all;
	if (hdr->type != FANIN_TYPE_PARTIAL)
		return hdr->contributions == job->spec.n_ranks ? FANIN_REASON_NONE
							       : FANIN_REASON_SIZE;
	*members = hdr->members;
	if (hdr->members == 0 || (hdr->members & ~job->all) != 0)
		return FANIN_REASON_RANK;
	return hdr->contributions == (unsigned int)__builtin_popcountll(hdr->members)
		       ? FANIN_REASON_NONE
		       : FANIN_REASON_SIZE;
}

/* Handles a sum of some or all ranks, or a result that a rank knew already. */
static enum fanin_reason
take_sum(struct fanin_server_core *core, struct fanin_server_job *job,
	 const struct server_packet *packet)
{
	const struct fanin_headers *headers = packet->headers;
	const struct fanin_hdr *hdr = &headers->fanin;
	const bool ce = (hdr->flags & FANIN_FLAG_CE) != 0 || (headers->ip.tos & TOS_ECN) == TOS_CE;
	struct server_entry *entry;
	enum fanin_reason reason;
	enum server_place place;
	uint64_t members;

	reason = find_members(job, hdr, &members);
	if (reason == FANIN_REASON_NONE)
		reason = check_operation(core, job, hdr);
	if (reason != FANIN_REASON_NONE)
		return reason;
	place = server_place(job, hdr->block, &entry);
	/*
	 * No rank that keeps to the window has sent this block. REFUSED would go to all ranks, so
	 * the packet is dropped.
	 */
	if (place == SERVER_AHEAD) {
		core->drops[FANIN_REASON_BLOCK_WINDOW]++;
		return FANIN_REASON_NONE;
	}
	/* The packet was on its way for long; no rank waits for it. */
	if (place == SERVER_STALE) {
		job->stats.stale++;
		core->drops[FANIN_REASON_BLOCK_STALE]++;
		return FANIN_REASON_NONE;
	}
	if (place == SERVER_CURRENT && fanin_wire_shape(hdr) != entry->sum.shape)
		return FANIN_REASON_MISMATCH;
	count(job, headers, members, ce);
	if (place == SERVER_NEXT)
		entry_open(job, entry, hdr, packet->now_ns);
	if (entry->phase == SERVER_DONE) {
		job->stats.duplicates++;
		return FANIN_REASON_NONE;
	}
	entry->ce = entry->ce || ce;
	if (hdr->type == FANIN_TYPE_KNOWN)
		fanin_sum_put(&job->sums, &entry->sum, hdr, elements_of(packet));
	else if (!combine(core, job, entry, packet, members))
		return FANIN_REASON_NONE;
	if (!fanin_sum_is_whole(&job->sums, &entry->sum, NULL)) {
		if (place == SERVER_NEXT)
			wait_begin(job, entry);
		return FANIN_REASON_NONE;
	}
	if (place != SERVER_NEXT)
		wait_end(job, entry, packet->now_ns);
	if (hdr->type != FANIN_TYPE_KNOWN)
		fanin_sum_finish(&job->sums, &entry->sum);
	publish(core, job, entry, packet->now_ns);
	return FANIN_REASON_NONE;
}

enum fanin_reason
server_block(struct fanin_server_core *core, struct fanin_server_job *job,
	     const struct server_packet *packet)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_CONTRIBUTION:
	case FANIN_TYPE_PARTIAL:
	case FANIN_TYPE_KNOWN:
		return take_sum(core, job, packet);
	case FANIN_TYPE_QUERY:
		return server_query(core, job, packet);
	default:
		return FANIN_REASON_TYPE;
	}
}

/*
 * Returns the wait after a block's FLUSHes so far: two round trips, then four, and so on. The first
 * FLUSH makes the switch pass on all later data, so further FLUSHes only help if the first was
 * lost; they get nothing from a rank that is late for long.
 */
static uint64_t
flush_wait_ns(const struct fanin_server_job *job, uint32_t n_flushes)
{
	const uint32_t doublings = n_flushes < MAX_DOUBLINGS ? n_flushes : MAX_DOUBLINGS;
	const uint64_t wait_ns = job->round_trip_ns << doublings;
	uint64_t max_ns = FANIN_SERVER_MAX_FLUSH_WAIT_NS;

	if (max_ns < 2 * job->round_trip_ns)
		max_ns = 2 * job->round_trip_ns;
	return wait_ns < max_ns ? wait_ns : max_ns;
}

void
server_flush(struct fanin_server_core *core, struct fanin_server_job *job, uint64_t now_ns)
{
	struct server_entry *entry;
	uint64_t due_ns = UINT64_MAX;
	unsigned int n = 0;

	TAILQ_FOREACH(entry, &job->waiting, waiting) {
		if (n++ == FANIN_SERVER_FLUSH_BLOCKS)
			break;
		if (entry->flush_ns <= now_ns) {
			struct fanin_hdr hdr;

			server_begin(job, FANIN_TYPE_FLUSH, &hdr);
			hdr.block = entry->block;
			server_send(core, job, &hdr, NULL, 0, false);
			job->stats.flushes++;
			entry->flushes++;
			entry->flush_ns = now_ns + flush_wait_ns(job, entry->flushes);
		}
		if (entry->flush_ns < due_ns)
			due_ns = entry->flush_ns;
	}
	job->due_ns = due_ns;
}
