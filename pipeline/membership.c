/* SPDX-License-Identifier: BSD-3-Clause */
/* Handles JOIN and LEAVE of members, and answers them. */
#include <string.h>

#include "handlers/frame.h"
#include "pipeline/admission.h"
#include "pipeline/mismatch.h"
#include "pipeline/membership.h"
#include "pipeline/parent.h"
#include "pipeline/reply.h"

#include "pipeline/base/fastpath.h"

/*
 * Returns true if the JOIN is of the level of the tree that this child is on. Its tag does not name
 * the switch that it is for, so an attacker could send a host's JOIN to a switch further up. If a
 * child there has the same number of ranks below it, the sum is the same.
 */
static bool
is_of_child(const struct job *job, const struct fanin_hdr *hdr)
{
	return job->taggers == NULL ||
	       hdr->contributions ==
		       fanin_ranks_count(&job->params.child_ranks[job_child_of(job, hdr->rank)]);
}

/* Fills in the information about the slots and the job's handler that hosts need. */
static void
describe_slots(const struct job *job, struct fanin_join_ack_body *ack)
{
	memcpy(ack->parameters, job->params.parameters, sizeof(ack->parameters));
	/* A leaf keeps nothing: the slots are those of the aggregating switch. */
	if (job->handler->shape == FANIN_SHAPE_SERVER && !job->params.parent_is_server) {
		ack->slots = __atomic_load_n(&job->parent.slots, __ATOMIC_RELAXED);
		ack->sharing = __atomic_load_n(&job->parent.sharing, __ATOMIC_RELAXED);
	} else if (job->pool != NULL) {
		ack->slots = job->pool->mask + 1;
		ack->sharing = __atomic_load_n(&job->pool->n_jobs, __ATOMIC_RELAXED);
	}
}

/*
 * Chosen so that neighboring blocks share super-frames, while a window has a port for each worker.
 */
static uint16_t
port_blocks(const struct pipeline *pipeline, const struct job *job)
{
	const uint32_t len = job->params.payload_bytes +
			     (job->taggers != NULL ? (uint32_t)FANIN_TAG_LEN : 0);
	const uint32_t most = pipeline->n_workers == 1
				      ? UINT32_MAX
				      : RTE_MAX(job->params.window / pipeline->n_workers, 1);

	return fanin_wire_port_blocks(len, most);
}

/*
 * Returns true if the JOIN came from the address that its sender states. Addresses may be
 * translated on the way.
 */
static bool
is_from_its_address(const struct fanin_headers *headers, const struct fanin_join_body *join)
{
	return (join->address_be == 0 || join->address_be == headers->ip.src_be) &&
	       (headers->fanin.port == 0 ||
		headers->fanin.port == rte_be_to_cpu_16(headers->udp.src_be));
}

static void
answer_join(struct worker *worker, struct rte_mbuf *mbuf, struct job *job)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct fanin_join_body join;
	struct fanin_join_ack_body ack = { .group_be = job->group_be };
	struct job_join_answer answer = { 0 };
	enum fanin_reason reason;

	memcpy(&join, headers + 1, sizeof(join));
	if (join.path == FANIN_PATH_FIRST) {
		worker_free(worker, mbuf);
		return;
	}
	if (!is_from_its_address(headers, &join)) {
		worker_refuse(worker, mbuf, NULL, FANIN_REASON_SOURCE);
		return;
	}
	reason = FANIN_REASON_RANK;
	if (is_of_child(job, &headers->fanin))
		reason = job_join(worker->pipeline->jobs, job,
				  job_child_of(job, headers->fanin.rank), headers, &join, &answer);
	if (answer.ask_parent)
		worker_ask_parent(worker, job);
	if (reason != FANIN_REASON_NONE) {
		worker_refuse(worker, mbuf, job, reason);
		return;
	}
	worker_call_children(worker, job, answer.call);
	ack.nonce = join.nonce;
	ack.state = (uint16_t)answer.state;
	ack.cookie = answer.cookie;
	ack.size = job->params.n_ranks;
	ack.window = job->params.window;
	ack.payload_bytes = job->params.payload_bytes;
	ack.flags = (job->params.wide ? FANIN_JOB_WIDE : 0) |
		    (worker->pipeline->n_workers > 1 ? FANIN_JOB_SPREAD : 0) |
		    (job->taggers != NULL ? FANIN_JOB_TAGGED : 0) |
		    (job->handler->shape == FANIN_SHAPE_MULTICAST ? FANIN_JOB_MULTICAST : 0) |
		    (job->handler->shape == FANIN_SHAPE_LEADERS ? FANIN_JOB_LEADERS : 0);
	ack.instance = worker->pipeline->instance;
	ack.port_blocks = port_blocks(worker->pipeline, job);
	ack.path = join.path;
	strncpy(ack.handler, job->handler->name, sizeof(ack.handler) - 1);
	describe_slots(job, &ack);
	fanin_frame_answer_to(headers);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_JOIN_ACK, job->params.id, answer.epoch,
				 job->params.keys.down);
	headers->fanin.progress = answer.first_block;
	memcpy(headers + 1, &ack, sizeof(ack));
	fanin_ranks_write((uint8_t *)(headers + 1) + sizeof(ack), &answer.joined,
			  job->params.n_ranks);
	worker_reply(worker, mbuf, job, fanin_join_ack_len(job->params.n_ranks));
}

static void
answer_leave(struct worker *worker, struct rte_mbuf *mbuf, struct job *job)
{
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	uint32_t parent_epoch;

	if (job_leave(job, job_child_of(job, headers->fanin.rank), headers->fanin.epoch,
		      &parent_epoch)) {
		/* A switch that has left is not probed any more, so the parent is told before. */
		mismatch_tell_parent(worker, job, parent_epoch);
		worker_leave_parent(worker, job, parent_epoch);
	}
	fanin_frame_answer_to(headers);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_LEAVE_ACK, job->params.id,
				 headers->fanin.epoch, job->params.keys.down);
	worker_reply(worker, mbuf, job, 0);
}

void
worker_membership(struct worker *worker, struct rte_mbuf *mbuf)
{
	const struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, const struct fanin_headers *);
	struct job *job = admission_job(worker->pipeline, mbuf);
	const enum fanin_reason reason = admission_member(worker->pipeline, mbuf, job);

	worker->counters.local++;
	/* A process that wants to join waits for an answer, so it always gets a refusal. */
	if (reason != FANIN_REASON_NONE)
		worker_refuse(worker, mbuf, NULL, reason);
	else if (headers->fanin.type == FANIN_TYPE_JOIN)
		answer_join(worker, mbuf, job);
	else
		answer_leave(worker, mbuf, job);
}
