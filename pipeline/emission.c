/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * What handlers ask for, carried out: one reference of a frame per child or port, whichever are fewer, the rest to the parent or back.
 */
#include "pipeline/emission.h"

#include "pipeline/reply.h"
#include "pipeline/tx.h"

#include "pipeline/fastpath.h"

void __rte_noinline
emission_to_children(struct worker *worker, const struct job *job, uint64_t children,
		     struct rte_mbuf *mbuf)
{
	while (children != 0) {
		unsigned int child = (unsigned int)__builtin_ctzll(children);
		uint64_t served = children & job->child_neighbors[child];
		int spare = __builtin_popcountll(served) - 1;

		/* The reference for this port is still there, so this is never the last one. */
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

void
emission_drain(struct worker *worker)
{
	struct fanin_handler_ctx *ctx = &worker->handler_ctx;

	for (uint16_t i = 0; i < ctx->n_emissions; i++) {
		const struct fanin_emission *emission = &ctx->emissions[i];

		switch (emission->kind) {
		case FANIN_EMIT_CHILDREN:
			send_to_children(worker, emission);
			break;
		case FANIN_EMIT_PARENT:
			send_to_parent(worker, emission);
			break;
		case FANIN_EMIT_REPLY:
			worker_reply(worker, emission->mbuf,
				     container_of(emission->job, struct job, params),
				     emission->payload_len, worker->pipeline->udp_port_be);
			break;
		}
	}
	ctx->n_emissions = 0;
	for (uint16_t i = 0; i < ctx->n_frees; i++)
		worker_free(worker, ctx->frees[i]);
	ctx->n_frees = 0;
}
