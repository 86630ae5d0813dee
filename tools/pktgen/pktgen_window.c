/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A member's contributions and results by the window protocol. There is one lane for each block of
 * the window: it sends block b, waits for the result, and continues with block b + W. Lanes that
 * may send are in a queue, in the order in which they became free, at first rotated by rank (Flare
 * section 5). See pktgen_host.h.
 */
#include <errno.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "tools/pktgen/pktgen_internal.h"

/* Number of checks for late results within the timeout. */
#define SCANS_PER_TIMEOUT 8

void
pktgen_job_fail(struct pktgen_job *job, const char *format, ...)
{
	const bool first = job->error[0] == '\0';
	va_list arguments;

	va_start(arguments, format);
	vsnprintf(job->error, first ? sizeof(job->error) : 0, format, arguments);
	va_end(arguments);
}

int
pktgen_job_start(struct pktgen_job *job)
{
	const unsigned int size = fanin_dtype_size(job->dtype);
	const bool widens = job->wide && fanin_operation_widens(job->dtype, job->op);
	const uint32_t most = (widens ? job->payload_limit / 2u : job->payload_limit) / size * size;

	if (job->payload == 0)
		job->payload = most;
	if (job->payload > most || job->payload % size != 0) {
		pktgen_job_fail(job,
				"found a payload of %u bytes, expected whole %s up to %u (job %u)",
				job->payload, fanin_dtype_name(job->dtype), most, job->id);
		return -EINVAL;
	}
	job->blocks = calloc(2u * job->window, sizeof(*job->blocks));
	if (job->blocks == NULL || hosts_data_make(&job->data, job->dtype, job->op, job->wide,
						   job->size, job->payload, job->id) != 0) {
		pktgen_job_fail(job, "no memory for the data of job %u", job->id);
		return -ENOMEM;
	}
	return 0;
}

void
pktgen_job_free(struct pktgen_job *job)
{
	hosts_data_free(&job->data);
	free(job->blocks);
	job->blocks = NULL;
}

int
pktgen_member_start(struct pktgen_member *member)
{
	struct pktgen_job *job = member->job;
	const struct hosts_member sender = {
		.key = job->keys.up,
		.job = job->id,
		.epoch = job->epoch,
		.bytes = job->payload,
		.rank = member->rank,
		.dtype = job->dtype,
		.op = job->op,
	};
	struct fanin_flow flow;

	member->lanes = calloc(job->window, sizeof(*member->lanes));
	member->queue = calloc(job->window, sizeof(*member->queue));
	if (member->lanes == NULL || member->queue == NULL) {
		pktgen_job_fail(job, "no memory for a window of %u blocks", job->window);
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < job->window; i++)
		member->lanes[i].block = i;
	pktgen_member_flow(member, &flow);
	hosts_headers(&member->headers, &flow, &sender);
	return 0;
}

void
pktgen_member_free(struct pktgen_member *member)
{
	free(member->lanes);
	free(member->queue);
	member->lanes = NULL;
	member->queue = NULL;
}

void
pktgen_job_limit(struct pktgen_job *job, uint64_t limit, uint64_t now_ns)
{
	job->limit = limit;
	job->progress_ns = now_ns;
}

static void
queue_push(struct pktgen_member *member, struct pktgen_lane *lane)
{
	const uint16_t mask = (uint16_t)(member->job->window - 1);

	if (lane->queued)
		return;
	lane->queued = true;
	member->queue[(member->queue_head + member->queue_len++) & mask] =
		(uint16_t)(lane - member->lanes);
}

static struct pktgen_lane *
queue_first(const struct pktgen_member *member)
{
	return &member->lanes[member->queue[member->queue_head]];
}

static void
queue_pop(struct pktgen_member *member)
{
	queue_first(member)->queued = false;
	member->queue_head = (uint16_t)((member->queue_head + 1) & (member->job->window - 1));
	member->queue_len--;
}

void
pktgen_member_resume(struct pktgen_member *member)
{
	const struct pktgen_job *job = member->job;
	const uint32_t window = job->window;
	const uint32_t shift = job->stagger ? member->rank * window / job->size : 0;

	for (uint32_t i = 0; i < window; i++)
		queue_push(member, &member->lanes[(member->oldest + shift + i) & (window - 1)]);
}

bool
pktgen_member_done(const struct pktgen_member *member)
{
	return member->in_flight == 0 && member->oldest >= member->job->limit;
}

void
pktgen_member_scan(struct pktgen_member *member, uint64_t now_ns)
{
	struct pktgen_job *job = member->job;

	if (member->state != PKTGEN_RUN || member->lanes == NULL || now_ns < member->next_scan_ns)
		return;
	member->next_scan_ns = now_ns + job->timeout_ns / SCANS_PER_TIMEOUT;
	for (uint32_t i = 0; i < job->window; i++) {
		struct pktgen_lane *lane = &member->lanes[i];
		const struct pktgen_block *block =
			&job->blocks[lane->block & (2u * job->window - 1)];

		/* A result can be late only after the last host's contribution. */
		if (!lane->sent || block->n_sent < job->size ||
		    now_ns - lane->last_ns < job->timeout_ns ||
		    now_ns - block->last_ns < job->timeout_ns)
			continue;
		if (!lane->late)
			job->stats->lost++;
		lane->late = true;
		if (now_ns - block->last_ns > job->stall_ns &&
		    now_ns - job->progress_ns > job->stall_ns) {
			pktgen_job_fail(
				job,
				"no result of job %u for %.1f s: host %u waits for block %llu, to which all %u hosts have contributed",
				job->id, (double)(now_ns - job->progress_ns) / 1e9, member->rank,
				(unsigned long long)lane->block, job->size);
			return;
		}
		queue_push(member, lane);
	}
}

bool
pktgen_member_ready(struct pktgen_member *member)
{
	if (member->state != PKTGEN_RUN || member->lanes == NULL)
		return false;
	/* Lanes at or above the limit leave the queue until it is raised. */
	while (member->queue_len != 0 && !queue_first(member)->sent &&
	       queue_first(member)->block >= member->job->limit)
		queue_pop(member);
	return member->queue_len != 0;
}

static void
note_first(struct pktgen_job *job, uint64_t number, uint64_t now_ns)
{
	struct pktgen_block *block = &job->blocks[number & (2u * job->window - 1)];

	if (block->block != number)
		*block = (struct pktgen_block){ .block = number };
	block->last_ns = now_ns;
	block->n_sent++;
	if (number >= job->next_block)
		job->next_block = number + 1;
	job->stats->contributions++;
}

size_t
pktgen_member_contribution(struct pktgen_member *member, uint64_t now_ns, void *frame)
{
	struct pktgen_job *job = member->job;
	struct pktgen_lane *lane = queue_first(member);
	struct fanin_headers *headers = &member->headers;

	queue_pop(member);
	headers->fanin.flags = lane->sent ? FANIN_FLAG_RETRANSMIT : 0;
	headers->fanin.progress = (uint32_t)member->oldest;
	hosts_headers_set_block(headers, (uint32_t)lane->block);
	memcpy(frame, headers, sizeof(*headers));
	memcpy((uint8_t *)frame + sizeof(*headers),
	       hosts_contribution(&job->data, member->rank, (uint32_t)lane->block), job->payload);
	lane->last_ns = now_ns;
	if (lane->sent) {
		job->stats->retransmits++;
	} else {
		lane->sent = true;
		lane->late = false;
		lane->first_ns = now_ns;
		member->in_flight++;
		note_first(job, lane->block, now_ns);
	}
	return sizeof(*headers) + job->payload;
}

static bool
is_right(const struct pktgen_job *job, const struct fanin_headers *headers)
{
	const struct fanin_hdr *hdr = &headers->fanin;

	return hdr->key == job->keys.down && hdr->contributions == job->size &&
	       hdr->dtype == job->dtype && hdr->op == job->op &&
	       fanin_wire_payload_len(headers) == job->payload &&
	       memcmp(headers + 1, hosts_result(&job->data, hdr->block), job->payload) == 0;
}

static struct pktgen_lane *
lane_of(const struct pktgen_member *member, uint32_t block)
{
	return &member->lanes[block & (member->job->window - 1u)];
}

bool
pktgen_member_result(struct pktgen_member *member, const struct fanin_headers *headers,
		     uint64_t now_ns)
{
	struct pktgen_job *job = member->job;
	struct pktgen_lane *lane;

	if (member->lanes == NULL || headers->fanin.epoch != job->epoch)
		return false;
	lane = lane_of(member, headers->fanin.block);
	if (!lane->sent || (uint32_t)lane->block != headers->fanin.block)
		return false;
	if (!is_right(job, headers))
		job->stats->wrong++;
	job->stats->results++;
	job->progress_ns = now_ns;
	histogram_add(&job->stats->own, now_ns - lane->first_ns);
	histogram_add(&job->stats->block,
		      now_ns - job->blocks[lane->block & (2u * job->window - 1)].last_ns);
	lane->sent = false;
	lane->block += job->window;
	member->in_flight--;
	while (lane_of(member, (uint32_t)member->oldest)->block > member->oldest)
		member->oldest++;
	queue_push(member, lane);
	return true;
}

void
pktgen_job_unclaimed(struct pktgen_job *job, const struct pktgen_member *member,
		     const struct fanin_headers *headers)
{
	const uint32_t block = headers->fanin.block;

	if (member->lanes == NULL || headers->fanin.epoch != job->epoch ||
	    headers->fanin.key != job->keys.down)
		job->stats->foreign++;
	else if (!is_right(job, headers) ||
		 !fanin_block_before(block, (uint32_t)lane_of(member, block)->block))
		job->stats->wrong++;
	else
		job->stats->duplicates++;
}
