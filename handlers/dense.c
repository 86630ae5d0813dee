/* SPDX-License-Identifier: BSD-3-Clause */
/* See dense.h. */
#include "handlers/dense.h"

#include "handlers/operator.h"

/*
 * Adds a reference to an mbuf. rte_mbuf_refcnt_update would not do: it takes a short cut if there is one
 * reference only, but all workers that are in the slot may add to the one that the slot has.
 */
static void
hold(struct rte_mbuf *mbuf)
{
	__atomic_fetch_add(&mbuf->refcnt, 1, __ATOMIC_RELAXED);
}

void
fanin_dense_release(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	if (dense->result != NULL)
		fanin_release(ctx, dense->result);
	dense->result = NULL;
}

void
fanin_dense_finish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
	struct fanin_hdr *hdr = &headers->fanin;
	uint32_t payload_len = dense->window.count * fanin_dtype_size(dense->window.dtype);
	void *payload = fanin_dense_payload(mbuf);

	if (dense->window.op == FANIN_WIRE_AVG)
		fanin_kernel_finish(job->isa,
				    dense->wide != NULL ? FANIN_WIRE_F32 : dense->window.dtype,
				    FANIN_WIRE_AVG)(payload, job->n_children, dense->window.count);
	if (dense->wide != NULL)
		dense->wide->narrow(payload, payload, dense->window.count);

	/* The frame is complete before anyone can see that the block is done and repeat it. */
	*headers = job->result_headers;
	if (fanin_wire_payload_len(headers) != payload_len)
		fanin_wire_set_payload_len(headers, payload_len);
	fanin_wire_encode_header(hdr, FANIN_TYPE_RESULT, job->id, ctx->epoch, job->key);
	hdr->contributions = job->n_children;
	hdr->block = fanin_window_block(&dense->window);
	memcpy(&hdr->dtype, &dense->window.shape, sizeof(dense->window.shape));
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	mbuf->ol_flags = 0;

	/* One reference for each child; the one that the mbuf came with, the only one so far, stays with the slot. */
	rte_mbuf_refcnt_set(mbuf, (uint16_t)(job->n_children + 1));
	dense->result = mbuf;
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, job->children, payload_len);
	ctx->stats->results++;
	/* Of workers that share a block, the last one's round may have begun before the first one's. */
	if (ctx->now_ns > dense->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - dense->begun_ns;
}

/*
 * The child is in already and the block is incomplete. If the child asks, it learns who is missing,
 * by its own packet turned into the answer. The network's duplicates get none: they would double
 * the traffic.
 */
static enum fanin_verdict
answer_pending(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
	       const struct fanin_packet *packet)
{
	struct fanin_hdr *hdr = &packet->headers->fanin;
	uint32_t block = hdr->block;

	ctx->stats->duplicates++;
	if ((hdr->flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;

	fanin_wire_encode_header(hdr, FANIN_TYPE_PENDING, ctx->job->id, ctx->epoch, ctx->job->key);
	hdr->rank = packet->child;
	hdr->block = block;
	hdr->members = __atomic_load_n(&dense->window.present, __ATOMIC_RELAXED);
	fanin_emit(ctx, FANIN_EMIT_REPLY, packet->mbuf, UINT64_C(1) << packet->child, 0);
	ctx->stats->pendings++;
	return FANIN_VERDICT_HELD;
}

/*
 * The block is finished: its result goes to the child that asks again, unmodified, as a NIC may
 * still be reading it.
 */
static enum fanin_verdict
repeat_result(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	      const struct fanin_packet *packet)
{
	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;

	hold(dense->result);
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, dense->result, UINT64_C(1) << packet->child,
		   packet->payload_len);
	ctx->stats->repeats++;
	return FANIN_VERDICT_FREE;
}

static enum fanin_verdict
drop(enum fanin_reason *reason, enum fanin_reason why)
{
	*reason = why;
	return FANIN_VERDICT_DROP;
}

/* Of partial results, which are f32 if `wide`. Returns NULL if the job can't reduce this. */
static fanin_kernel_fn
kernel_of(const struct fanin_job_params *job, const struct fanin_hdr *hdr, bool wide)
{
	const struct fanin_operator *custom;

	if (wide)
		return fanin_kernel(job->isa, FANIN_WIRE_F32, hdr->op);
	if (!fanin_op_is_custom(hdr->op))
		return fanin_kernel(job->isa, hdr->dtype, hdr->op);
	custom = fanin_operator_find(hdr->op);
	if (custom == NULL || custom->dtype != hdr->dtype || (custom->ordered && !job->in_order))
		return NULL;
	return custom->combine;
}

/* More than the job's packets may carry? What has the shape of an open block is as long as its first contribution. */
static bool
is_too_long(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	return packet->payload_len >
	       fanin_payload_limit(job->payload_bytes, job->wide, hdr->dtype, hdr->op);
}

/*
 * In SETUP: makes the block the slot's, with its first contribution's place claimed, or gives the slot back if the
 * operation is not supported. Most blocks have the kernel of the slot's last one.
 */
static bool
begin_block(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_job_params *job = ctx->job;

	if (is_too_long(job, packet)) {
		fanin_window_abandon(&dense->window, ctx, hdr->block);
		*reason = FANIN_REASON_PAYLOAD;
		return false;
	}
	if (dense->kernel == NULL || hdr->dtype != dense->window.dtype ||
	    hdr->op != dense->window.op) {
		bool wide = job->wide && fanin_operation_widens(hdr->dtype, hdr->op);
		fanin_kernel_fn kernel = kernel_of(job, hdr, wide);

		if (kernel == NULL) {
			fanin_window_abandon(&dense->window, ctx, hdr->block);
			*reason = FANIN_REASON_OPERATION;
			return false;
		}
		dense->kernel = kernel;
		dense->wide = wide ? fanin_kernel_wide(job->isa, hdr->dtype) : NULL;
	}
	fanin_dense_release(ctx, dense);
	dense->begun_ns = ctx->now_ns;
	ctx->stats->blocks++;
	fanin_window_open(&dense->window, hdr, packet->child);
	return true;
}

/*
 * Entered, and the block is open or done. A child's place that is taken stays so: claiming it once more changes
 * nothing.
 */
static bool
admit_entered(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	      const struct fanin_packet *packet, bool finished, enum fanin_verdict *verdict,
	      enum fanin_reason *reason)
{
	const bool shared = ctx->job->shared;

	if (!fanin_window_matches(&dense->window, &packet->headers->fanin))
		*verdict = drop(reason, is_too_long(ctx->job, packet) ? FANIN_REASON_PAYLOAD
								      : FANIN_REASON_MISMATCH);
	else if (finished)
		*verdict = repeat_result(ctx, dense, packet);
	else if (fanin_window_claim(&dense->window, shared, packet->child))
		return true;
	else
		*verdict = answer_pending(ctx, dense, packet);
	fanin_window_leave(&dense->window, shared);
	return false;
}

bool
fanin_dense_admit_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
			const struct fanin_packet *packet, enum fanin_window_class class,
			bool exclusive, fanin_dense_reset_fn reset, enum fanin_verdict *verdict,
			enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	if (__builtin_expect(class == FANIN_WINDOW_RESET, 0)) {
		fanin_dense_release(ctx, dense);
		if (reset != NULL)
			reset(ctx, dense);
		fanin_window_reset(&dense->window, ctx, index);
		class = fanin_window_enter(&dense->window, ctx, hdr->block, exclusive);
	}
	switch (class) {
	case FANIN_WINDOW_CURRENT:
		return admit_entered(ctx, dense, packet, false, verdict, reason);
	case FANIN_WINDOW_FINISHED:
		return admit_entered(ctx, dense, packet, true, verdict, reason);
	case FANIN_WINDOW_NEW:
		if (begin_block(ctx, dense, packet, reason))
			return true;
		*verdict = FANIN_VERDICT_DROP;
		return false;
	case FANIN_WINDOW_RESET:
	case FANIN_WINDOW_BUSY:
		*verdict = FANIN_VERDICT_RETRY;
		return false;
	case FANIN_WINDOW_STALE:
		*verdict = drop(reason, FANIN_REASON_BLOCK_STALE);
		return false;
	case FANIN_WINDOW_AHEAD:
		*verdict = drop(reason, FANIN_REASON_BLOCK_WINDOW);
		return false;
	case FANIN_WINDOW_OLD_RUN:
		*verdict = drop(reason, FANIN_REASON_EPOCH);
		return false;
	}
	return false;
}
