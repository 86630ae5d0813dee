/* SPDX-License-Identifier: BSD-3-Clause */
/* See dense.h. */
#include "protocols/dense/switch/dense.h"

#include <rte_common.h>

#include "handlers/operator.h"

void
fanin_dense_release(struct fanin_handler_ctx *ctx, struct fanin_dense *dense)
{
	struct rte_mbuf *result = dense->result;

	dense->result = NULL;
	if (result != NULL)
		fanin_release(ctx, result);
}

/*
 * Fills in the frame of a block's packet around its payload; the caller sets the fields that depend
 * on the type. The frame is EMPTY if the mbuf is: its header still is that of a contribution, or of
 * the parent's result.
 */
static inline struct fanin_hdr *
make_frame(const struct fanin_handler_ctx *ctx, const struct fanin_dense *dense, bool down,
	   enum fanin_type type, uint32_t block, struct rte_mbuf *mbuf)
{
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	uint16_t flags = FANIN_FLAG_EMPTY;
	uint32_t payload_len = 0;

	if (__builtin_expect(!fanin_wire_is_empty(hdr), 1)) {
		flags = 0;
		payload_len = dense->state.count * fanin_dtype_size(dense->state.dtype);
	}
	hdr = fanin_frame_make_to(ctx, down, type, block, payload_len, mbuf);
	hdr->flags = flags;
	fanin_wire_set_shape(hdr, dense->state.shape);
	return hdr;
}

/* Returns the child that leads to a block's owner, as a bit; 0 if none does. */
static uint64_t
owners_child(const struct fanin_job_params *job, uint16_t root)
{
	return fanin_child_with(job, fanin_root_rank(root));
}

/*
 * Sends the result without its elements to children that do not lead to the block's owner. If no
 * mbuf is free, the packet is lost.
 */
static void
emit_empty(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense, uint32_t block,
	   uint64_t children)
{
	struct rte_mbuf *mbuf = fanin_take(ctx);

	if (mbuf == NULL)
		return;
	rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin.flags = FANIN_FLAG_EMPTY;
	make_frame(ctx, dense, true, FANIN_TYPE_RESULT, block, mbuf)->contributions =
		ctx->job->n_ranks;
	fanin_frame_send_down(ctx, mbuf, children);
}

/* Keeps the block's result in the mbuf and sends it to these n_children children. */
static __rte_always_inline void
publish_to(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t block,
	   struct rte_mbuf *mbuf, uint64_t children, uint16_t n_children)
{
	make_frame(ctx, dense, true, FANIN_TYPE_RESULT, block, mbuf)->contributions =
		ctx->job->n_ranks;
	fanin_seal(ctx, FANIN_TAG_DOWN, mbuf);
	/*
	 * One reference for each child. The only reference so far, which came with the mbuf, stays
	 * with the slot.
	 */
	rte_mbuf_refcnt_set(mbuf, (uint16_t)(n_children + 1));
	dense->result = mbuf;
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, mbuf, children, mbuf->pkt_len - FANIN_PAYLOAD_OFFSET);
	ctx->stats->results++;
	/*
	 * Workers share a block: this worker's round may have begun before the round of the worker
	 * that began the block.
	 */
	if (ctx->now_ns > dense->begun_ns)
		ctx->stats->block_ns += ctx->now_ns - dense->begun_ns;
}

/*
 * As publish_to, for a block with an owner. If the owner is not below this switch, the kept result
 * has no elements. Otherwise the elements go to the owner's child, and headers to all others.
 */
static __rte_noinline void
publish_to_owner(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t block,
		 struct rte_mbuf *mbuf)
{
	struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, struct fanin_headers *)->fanin;
	const struct fanin_job_params *job = ctx->job;
	const uint64_t owner = owners_child(job, dense->state.root);

	if (owner == 0)
		hdr->flags |= FANIN_FLAG_EMPTY;
	if (owner == job->children || fanin_wire_is_empty(hdr)) {
		publish_to(ctx, dense, block, mbuf, job->children, job->n_children);
		return;
	}
	emit_empty(ctx, dense, block, job->children & ~owner);
	publish_to(ctx, dense, block, mbuf, owner, 1);
}

/*
 * Keeps the block's result in the mbuf and sends it to all children. If the block has an owner,
 * only the child that leads to it gets the elements.
 */
static void
publish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t block,
	struct rte_mbuf *mbuf)
{
	if (__builtin_expect(fanin_root_is_owner(dense->state.root), 0)) {
		publish_to_owner(ctx, dense, block, mbuf);
		return;
	}
	publish_to(ctx, dense, block, mbuf, ctx->job->children, ctx->job->n_children);
}

/*
 * Keeps the sum of all children, or a result that one of them knew, and sends it to the parent. The
 * flag RETRANSMIT is set from the start, because the same mbuf is sent again if a child asks.
 */
static void
send_up(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t block,
	enum fanin_type type, struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	struct fanin_hdr *hdr = make_frame(ctx, dense, false, type, block, mbuf);

	hdr->flags |= FANIN_FLAG_RETRANSMIT;
	hdr->contributions = type == FANIN_TYPE_KNOWN ? job->n_ranks : job->n_below;
	fanin_seal(ctx, FANIN_TAG_UP, mbuf);
	rte_mbuf_refcnt_set(mbuf, 2);
	dense->result = mbuf;
	fanin_emit(ctx, FANIN_EMIT_PARENT, mbuf, 0, 0);
	ctx->stats->upward++;
}

void
fanin_dense_finish(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, struct rte_mbuf *mbuf)
{
	const struct fanin_job_params *job = ctx->job;
	const uint32_t block = fanin_dense_state_block(&dense->state);
	const struct fanin_hdr *hdr = &rte_pktmbuf_mtod(mbuf, const struct fanin_headers *)->fanin;
	void *payload = fanin_dense_payload(mbuf);

	/* The frame must be complete before others can see that the block is done and repeat it. */
	if (__builtin_expect(job->has_parent, 0)) {
		send_up(ctx, dense, block, FANIN_TYPE_CONTRIBUTION, mbuf);
		fanin_dense_state_finish(&dense->state, job->shared, FANIN_PHASE_SENT);
		return;
	}
	if (__builtin_expect(!fanin_wire_is_empty(hdr), 1)) {
		if (dense->state.op == FANIN_WIRE_AVG)
			fanin_kernel_finish(job->isa,
					    dense->state.wide != 0 ? FANIN_WIRE_F32
								   : dense->state.dtype,
					    FANIN_WIRE_AVG)(payload, job->n_ranks,
							    dense->state.count);
		if (dense->state.wide != 0)
			fanin_dense_wide(dense)->narrow(payload, payload, dense->state.count);
	}
	publish(ctx, dense, block, mbuf);
	fanin_dense_state_finish(&dense->state, job->shared, FANIN_PHASE_DONE);
}

static enum fanin_verdict
take_result(struct fanin_handler_ctx *ctx, void *slot, struct fanin_packet *packet,
	    enum fanin_reason *reason)
{
	struct fanin_dense *dense = slot;
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const uint32_t block = hdr->block;

	switch (fanin_dense_state_enter_result(&dense->state, ctx, block, FANIN_PHASE_SENT)) {
	case FANIN_RESULT_AWAITED:
		break;
	case FANIN_RESULT_BUSY:
		return FANIN_VERDICT_RETRY;
	case FANIN_RESULT_OTHER:
		ctx->stats->duplicates++;
		return FANIN_VERDICT_FREE;
	}
	if (!fanin_dense_state_matches(&dense->state, hdr)) {
		fanin_dense_state_settle(&dense->state, block, FANIN_PHASE_SENT);
		return fanin_drop(reason, FANIN_REASON_MISMATCH);
	}
	/* For another switch behind the same port of the parent: the owner is below this switch. */
	if (fanin_root_is_owner(hdr->root) && fanin_wire_is_empty(hdr) &&
	    owners_child(ctx->job, hdr->root) != 0) {
		fanin_dense_state_settle(&dense->state, block, FANIN_PHASE_SENT);
		return FANIN_VERDICT_FREE;
	}
	fanin_dense_release(ctx, dense);
	publish(ctx, dense, block, packet->mbuf);
	fanin_dense_state_settle(&dense->state, block, FANIN_PHASE_DONE);
	return FANIN_VERDICT_HELD;
}

void
fanin_dense_repeat_result(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
			  unsigned int child)
{
	const uint64_t to = UINT64_C(1) << child;

	if (__builtin_expect(fanin_root_is_owner(dense->state.root), 0) &&
	    !fanin_wire_is_empty(
		    &rte_pktmbuf_mtod(dense->result, const struct fanin_headers *)->fanin) &&
	    owners_child(ctx->job, dense->state.root) != to) {
		emit_empty(ctx, dense, fanin_dense_state_block(&dense->state), to);
		ctx->stats->repeats++;
		return;
	}
	/* The result is not modified, because a NIC may still be reading it. */
	fanin_frame_hold(dense->result);
	fanin_emit(ctx, FANIN_EMIT_CHILDREN, dense->result, to,
		   dense->result->data_len - FANIN_PAYLOAD_OFFSET);
	ctx->stats->repeats++;
}

void
fanin_dense_repeat_upward(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense)
{
	fanin_frame_hold(dense->result);
	fanin_emit(ctx, FANIN_EMIT_PARENT, dense->result, 0, 0);
	ctx->stats->upward_repeats++;
}

/*
 * Answers a child that has already contributed to a block that is open or was sent up. A child that
 * retransmits learns that its contribution was not lost. Duplicates of the network get no answer,
 * because answers would double the traffic.
 */
static enum fanin_verdict
answer_duplicate(struct fanin_handler_ctx *ctx, const struct fanin_dense *dense,
		 const struct fanin_packet *packet, enum fanin_block_state state)
{
	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) == 0)
		return FANIN_VERDICT_FREE;
	fanin_dense_answer_duplicate(ctx, dense, packet, state);
	return FANIN_VERDICT_HELD;
}

/*
 * Sends the result of a finished block to a child that retransmits its contribution. If another
 * child knew the result, this may also be the child's first contribution.
 */
static enum fanin_verdict
answer_finished(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
		const struct fanin_packet *packet)
{
	ctx->stats->duplicates++;
	if ((packet->headers->fanin.flags & FANIN_FLAG_RETRANSMIT) != 0 ||
	    fanin_dense_state_claim(&dense->state, ctx->job->shared, packet->child))
		fanin_dense_repeat_result(ctx, dense, packet->child);
	return FANIN_VERDICT_FREE;
}

/*
 * For operators that copy: only one contribution of a block has data. If a host sent a second one,
 * the first would stay as it is.
 */
static void
keep_first(void *acc, const void *in, size_t count)
{
	(void)acc;
	(void)in;
	(void)count;
}

/*
 * Returns the kernel for a block's `add`, or NULL if the job cannot reduce the operation. wide:
 * partial results are f32.
 */
static fanin_kernel_fn
kernel_of(const struct fanin_job_params *job, const struct fanin_hdr *hdr, bool wide)
{
	const struct fanin_operator *custom;

	if (wide)
		return job->in_order ? fanin_kernel(job->isa, FANIN_WIRE_F32, hdr->op)
				     : fanin_kernel_wide(job->isa, hdr->dtype)->accumulate;
	if (fanin_op_is_copy(hdr->op))
		return keep_first;
	if (!fanin_op_is_custom(hdr->op))
		return fanin_kernel(job->isa, hdr->dtype, hdr->op);
	custom = fanin_operator_find(hdr->op);
	if (custom == NULL || custom->dtype != hdr->dtype ||
	    (custom->ordered && !(job->in_order && job->has_units)))
		return NULL;
	return custom->combine;
}

/*
 * Returns whether the packet exceeds the job's payload limit. An empty contribution counts with the
 * length of its elements, which others bring.
 */
static bool
is_too_long(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	uint32_t len = packet->payload_len;

	if (__builtin_expect(fanin_dense_is_empty(packet), 0))
		len = hdr->count * fanin_dtype_size(hdr->dtype);
	return len > fanin_payload_limit(job->payload_bytes, job->wide, hdr->dtype, hdr->op);
}

/*
 * In SETUP: prepares the slot for the block, or gives the slot back if the operation is not
 * supported. Most blocks use the kernel of the slot's last block.
 */
static inline bool
prepare_block(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	      const struct fanin_packet *packet, enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const struct fanin_job_params *job = ctx->job;

	if (is_too_long(job, packet)) {
		fanin_dense_state_abandon(&dense->state, ctx, hdr->block);
		*reason = FANIN_REASON_PAYLOAD;
		return false;
	}
	if (__builtin_expect(fanin_root_is_owner(hdr->root) &&
				     fanin_root_rank(hdr->root) >= job->n_ranks,
			     0)) {
		fanin_dense_state_abandon(&dense->state, ctx, hdr->block);
		*reason = FANIN_REASON_OPERATION;
		return false;
	}
	if (dense->add == NULL || hdr->dtype != dense->state.dtype || hdr->op != dense->state.op) {
		bool wide = job->wide && fanin_operation_widens(hdr->dtype, hdr->op);
		fanin_kernel_fn add = kernel_of(job, hdr, wide);

		if (add == NULL) {
			fanin_dense_state_abandon(&dense->state, ctx, hdr->block);
			*reason = FANIN_REASON_OPERATION;
			return false;
		}
		dense->add = add;
		dense->state.wide = wide ? (uint8_t)(job->isa + 1u) : 0;
	}
	fanin_dense_release(ctx, dense);
	__atomic_store_n(&dense->begun_ns, ctx->now_ns, __ATOMIC_RELEASE);
	ctx->stats->blocks++;
	return true;
}

/*
 * In SETUP: begins the block and claims the place of its first contribution. Returns false if the
 * block cannot begin.
 */
static bool
begin_block(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	    const struct fanin_packet *packet, enum fanin_reason *reason)
{
	if (!prepare_block(ctx, dense, packet, reason))
		return false;
	fanin_dense_state_open(&dense->state, &packet->headers->fanin, packet->child);
	return true;
}

/*
 * The caller has entered, and the block is open, sent or done. A place that is taken stays taken
 * when it is claimed again.
 */
static bool
admit_entered(struct fanin_handler_ctx *ctx, struct fanin_dense *dense,
	      const struct fanin_packet *packet, enum fanin_dense_class class,
	      enum fanin_verdict *verdict, enum fanin_reason *reason)
{
	const bool shared = ctx->job->shared;

	if (!fanin_dense_state_matches(&dense->state, &packet->headers->fanin)) {
		*verdict = fanin_drop(reason, is_too_long(ctx->job, packet)
						      ? FANIN_REASON_PAYLOAD
						      : FANIN_REASON_MISMATCH);
		ctx->expected = dense->state.shape;
	} else if (class == FANIN_DENSE_FINISHED)
		*verdict = answer_finished(ctx, dense, packet);
	else if (class == FANIN_DENSE_SENT)
		*verdict = answer_duplicate(ctx, dense, packet, FANIN_BLOCK_SENT);
	else if (fanin_dense_state_claim(&dense->state, shared, packet->child))
		return true;
	else
		*verdict = answer_duplicate(ctx, dense, packet, FANIN_BLOCK_OPEN);
	fanin_dense_state_leave(&dense->state, shared);
	return false;
}

bool
fanin_dense_admit_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
			const struct fanin_packet *packet, enum fanin_dense_class class,
			bool exclusive, fanin_dense_reset_fn reset, enum fanin_verdict *verdict,
			enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	if (__builtin_expect(class == FANIN_DENSE_RESET, 0)) {
		fanin_dense_release(ctx, dense);
		if (reset != NULL)
			reset(ctx, dense);
		fanin_dense_state_reset(&dense->state, ctx, index);
		class = fanin_dense_state_enter(&dense->state, ctx, hdr->block, exclusive);
	}
	switch (class) {
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
	case FANIN_DENSE_FINISHED:
		return admit_entered(ctx, dense, packet, class, verdict, reason);
	case FANIN_DENSE_NEW:
		if (begin_block(ctx, dense, packet, reason))
			return true;
		*verdict = FANIN_VERDICT_DROP;
		return false;
	case FANIN_DENSE_RESET:
	case FANIN_DENSE_BUSY:
		*verdict = FANIN_VERDICT_RETRY;
		return false;
	case FANIN_DENSE_STALE:
		*verdict = fanin_drop(reason, FANIN_REASON_BLOCK_STALE);
		return false;
	case FANIN_DENSE_AHEAD:
		*verdict = fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
		return false;
	case FANIN_DENSE_OLD_RUN:
		*verdict = fanin_drop(reason, FANIN_REASON_EPOCH);
		return false;
	}
	return false;
}

/* In SETUP, alone: takes a packet with the block's result. */
static enum fanin_verdict
take_known(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, struct fanin_packet *packet)
{
	const uint32_t block = packet->headers->fanin.block;

	fanin_dense_state_claim(&dense->state, ctx->job->shared, packet->child);
	ctx->stats->known++;
	if (ctx->job->has_parent) {
		send_up(ctx, dense, block, FANIN_TYPE_KNOWN, packet->mbuf);
		fanin_dense_state_settle(&dense->state, block, FANIN_PHASE_SENT);
	} else {
		publish(ctx, dense, block, packet->mbuf);
		fanin_dense_state_settle(&dense->state, block, FANIN_PHASE_DONE);
	}
	return FANIN_VERDICT_HELD;
}

/* Takes a known result of a block that was neither open nor sent at the last look. */
static enum fanin_verdict
known_of_another_phase(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
		       struct fanin_packet *packet, fanin_dense_reset_fn reset,
		       enum fanin_reason *reason)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;
	const bool shared = ctx->job->shared;
	enum fanin_dense_class class = fanin_dense_state_enter(&dense->state, ctx, hdr->block,
							       true);
	enum fanin_verdict verdict = FANIN_VERDICT_RETRY;

	if (class == FANIN_DENSE_RESET) {
		fanin_dense_release(ctx, dense);
		reset(ctx, dense);
		fanin_dense_state_reset(&dense->state, ctx, index);
		class = fanin_dense_state_enter(&dense->state, ctx, hdr->block, true);
	}
	switch (class) {
	case FANIN_DENSE_NEW:
		if (!prepare_block(ctx, dense, packet, reason))
			return FANIN_VERDICT_DROP;
		__atomic_store_n(&dense->state.present, 0, __ATOMIC_RELEASE);
		dense->state.shape = fanin_wire_shape(hdr);
		return take_known(ctx, dense, packet);
	case FANIN_DENSE_FINISHED:
		verdict = fanin_dense_state_matches(&dense->state, hdr)
				  ? answer_finished(ctx, dense, packet)
				  : fanin_drop(reason, FANIN_REASON_MISMATCH);
		fanin_dense_state_leave(&dense->state, shared);
		return verdict;
	case FANIN_DENSE_CURRENT:
	case FANIN_DENSE_SENT:
		fanin_dense_state_leave(&dense->state, shared);
		return verdict;
	case FANIN_DENSE_RESET:
	case FANIN_DENSE_BUSY:
		return verdict;
	case FANIN_DENSE_STALE:
		return fanin_drop(reason, FANIN_REASON_BLOCK_STALE);
	case FANIN_DENSE_AHEAD:
		return fanin_drop(reason, FANIN_REASON_BLOCK_WINDOW);
	case FANIN_DENSE_OLD_RUN:
		return fanin_drop(reason, FANIN_REASON_EPOCH);
	}
	return verdict;
}

/*
 * Returns whether the child can know the result. If the block has an owner, only the owner's child
 * has the elements, and an empty result is none.
 */
static bool
may_know(const struct fanin_job_params *job, const struct fanin_packet *packet)
{
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	return !fanin_root_is_owner(hdr->root) ||
	       (!fanin_wire_is_empty(hdr) &&
		owners_child(job, hdr->root) == UINT64_C(1) << packet->child);
}

static enum fanin_verdict
known(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
      struct fanin_packet *packet, fanin_dense_reset_fn reset, enum fanin_reason *reason)
{
	static const enum fanin_dense_phase phases[] = { FANIN_PHASE_OPEN, FANIN_PHASE_SENT };
	const struct fanin_hdr *hdr = &packet->headers->fanin;

	if (!may_know(ctx->job, packet))
		return fanin_drop(reason, FANIN_REASON_MISMATCH);
	for (size_t i = 0; i < RTE_DIM(phases); i++) {
		switch (fanin_dense_state_enter_result(&dense->state, ctx, hdr->block, phases[i])) {
		case FANIN_RESULT_OTHER:
			continue;
		case FANIN_RESULT_BUSY:
			return FANIN_VERDICT_RETRY;
		case FANIN_RESULT_AWAITED:
			break;
		}
		if (!fanin_dense_state_matches(&dense->state, hdr)) {
			fanin_dense_state_settle(&dense->state, hdr->block, phases[i]);
			return fanin_drop(reason, FANIN_REASON_MISMATCH);
		}
		/* The result replaces the sum so far, or the packet that went up. */
		fanin_dense_release(ctx, dense);
		reset(ctx, dense);
		return take_known(ctx, dense, packet);
	}
	return known_of_another_phase(ctx, dense, index, packet, reset, reason);
}

const uint8_t fanin_dense_types[] = { FANIN_TYPE_RESULT, FANIN_TYPE_KNOWN, FANIN_TYPE_QUERY,
				      FANIN_TYPE_ANSWER, 0 };

enum fanin_verdict
fanin_dense_other(struct fanin_handler_ctx *ctx, struct fanin_dense *dense, uint32_t index,
		  struct fanin_packet *packet, fanin_dense_reset_fn reset,
		  enum fanin_reason *reason)
{
	switch (packet->headers->fanin.type) {
	case FANIN_TYPE_RESULT:
		return take_result(ctx, dense, packet, reason);
	case FANIN_TYPE_QUERY:
		return fanin_dense_query(ctx, dense, packet, reason);
	case FANIN_TYPE_ANSWER:
		return fanin_dense_answer(ctx, dense, packet, reason);
	default:
		return known(ctx, dense, index, packet, reset, reason);
	}
}
