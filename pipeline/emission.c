/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sends what handlers emit: one reference of a frame per child or per port, whichever are fewer;
 * other emissions go to the parent, back to the sender, or along routes.
 */
#include "pipeline/emission.h"

#include "pipeline/net/net.h"
#include "pipeline/reply.h"
#include "pipeline/base/tx.h"

#include "pipeline/base/fastpath.h"

void __rte_noinline
emission_to_children(struct worker *worker, const struct job *job, uint64_t children,
		     struct rte_mbuf *mbuf)
{
	while (children != 0) {
		unsigned int child = (unsigned int)__builtin_ctzll(children);
		uint64_t served = children & job->child_neighbors[child];
		int spare = __builtin_popcountll(served) - 1;

		/*
		 * The reference for this port is still held, so the last reference is never given
		 * up here.
		 */
		if (spare != 0)
			rte_mbuf_refcnt_update(mbuf, (int16_t)-spare);
		children &= ~served;
		worker_send_fanin(worker, job->child_ports[child], mbuf);
	}
}

static void
send_to_children(struct worker *worker, const struct fanin_emission *emission)
{
	const struct job *job = container_of(emission->job, struct job, params);
	struct rte_mbuf *mbuf = emission->mbuf;

	if (likely(emission->children == job->apart && !worker->faults.enabled)) {
		for (uint16_t i = 0; i < job->params.n_children; i++)
			worker_send(worker, job->child_ports[i], mbuf);
		return;
	}
	emission_to_children(worker, job, emission->children, mbuf);
}

static void
send_to_parent(struct worker *worker, const struct fanin_emission *emission)
{
	const struct job *job = container_of(emission->job, struct job, params);

	worker_send_fanin(worker, job->parent_port, emission->mbuf);
}

static void __rte_noinline
send_to_ports(struct worker *worker, const struct fanin_emission *emission)
{
	for (uint64_t left = emission->ports; left != 0; left &= left - 1) {
		const uint16_t port = (uint16_t)__builtin_ctzll(left);

		if (likely(port < worker->pipeline->n_ports))
			worker_send_fanin(worker, port, emission->mbuf);
		else
			worker_drop(worker, emission->mbuf, FANIN_REASON_PORT_DOWN);
	}
}

/*
 * Sends through the fault injector, which decides before the destination's port is known. A packet
 * that is held is later routed by its own flow.
 */
static void
route_faulty(struct worker *worker, struct rte_mbuf *mbuf, bool by_backlog, const uint32_t *flow)
{
	struct rte_mbuf *copy;

	switch (faults_draw(&worker->faults)) {
	case FAULT_DROP:
		worker_drop(worker, mbuf, FANIN_REASON_FAULT_DROP);
		return;
	case FAULT_DUPLICATE:
		copy = rte_pktmbuf_copy(mbuf, mbuf->pool, 0, UINT32_MAX);
		if (copy != NULL) {
			worker->counters.fault_duplicates++;
			worker_route_fanin(worker, copy, by_backlog, flow);
		}
		break;
	case FAULT_REORDER:
		if (faults_hold(&worker->faults, mbuf,
				by_backlog ? FAULTS_ROUTE_BY_BACKLOG : FAULTS_ROUTE)) {
			worker->counters.fault_reorders++;
			return;
		}
		break;
	case FAULT_NONE:
		break;
	}
	worker_route_fanin(worker, mbuf, by_backlog, flow);
}

static void __rte_noinline
send_by_route(struct worker *worker, const struct fanin_emission *emission)
{
	const uint32_t *flow = emission->route.has_flow ? &emission->route.flow : NULL;

	if (unlikely(worker->faults.enabled))
		route_faulty(worker, emission->mbuf, emission->route.by_backlog, flow);
	else
		worker_route_fanin(worker, emission->mbuf, emission->route.by_backlog, flow);
}

void
emission_drain_ctx(struct fanin_handler_ctx *ctx)
{
	emission_drain(container_of(ctx, struct worker, handler_ctx));
}

/*
 * Sends emissions of the kinds that few handlers use. Not inline, to keep the path of most
 * emissions short.
 */
static void __rte_noinline
send_elsewhere(struct worker *worker, const struct fanin_emission *emission)
{
	switch (emission->kind) {
	case FANIN_EMIT_CHILDREN:
	case FANIN_EMIT_PARENT:
		break;
	case FANIN_EMIT_REPLY:
		worker_reply(worker, emission->mbuf,
			     container_of(emission->job, struct job, params),
			     emission->payload_len);
		break;
	case FANIN_EMIT_PORTS:
		send_to_ports(worker, emission);
		break;
	case FANIN_EMIT_ROUTE:
		send_by_route(worker, emission);
		break;
	}
}

void
emission_drain(struct worker *worker)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	for (uint16_t i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];

		if (likely(emission->kind == FANIN_EMIT_CHILDREN))
			send_to_children(worker, emission);
		else if (emission->kind == FANIN_EMIT_PARENT)
			send_to_parent(worker, emission);
		else
			send_elsewhere(worker, emission);
	}
	ctx->n_emissions = 0;
	for (uint16_t i = 0; i < ctx->n_frees; i++)
		worker_free(worker, ctx->frees[i]);
	ctx->n_frees = 0;
}
