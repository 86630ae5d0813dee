/* SPDX-License-Identifier: BSD-3-Clause */
/* Closes a communicator whose ranks may need each other's results: they leave together. */
#include "comm.h"
#include "hostlib/src/local/local.h"

void
fanin_comm_close_begin(struct fanin_comm *comm)
{
	if (comm->closing.has_begun)
		return;
	comm->closing.has_begun = true;
	/* Collectives under way would go on in the job of hosts, behind its last block. */
	if (comm->is_local)
		fanin_local_end(comm->endpoint);
	for (uint16_t i = 0; i < comm->trees.n; i++) {
		struct fanin_comm *part = comm->ops->part(comm, i);

		if (part->protocol->on_switch->peers_may_need_results == NULL ||
		    !part->protocol->on_switch->peers_may_need_results(part->endpoint))
			continue;
		part->closing.has_begun = true;
		part->closing.request.collective = FANIN_COLLECTIVE_ALLREDUCE;
		part->closing.request.dtype = FANIN_U8;
		part->closing.request.op = FANIN_BOR;
		/*
		 * If it can't be posted, its status stays FANIN_OK: there is nothing to wait for.
		 */
		(void)part->protocol->post(part->endpoint, &part->closing.request, 0);
	}
}

void
fanin_comm_close_wait(struct fanin_comm *comm)
{
	const uint64_t deadline_ns = fanin_now_ns(NULL) + comm->closing.timeout_ns;

	for (uint16_t i = 0; i < comm->trees.n; i++) {
		struct fanin_comm *part = comm->ops->part(comm, i);
		int status = fanin_ctx_wait(comm->ctx, &part->closing.request, deadline_ns);

		if (status == FANIN_OK)
			continue;
		fanin_log_line(&comm->ctx->log, FANIN_LOG_WARNING,
			       "leaving before it is known that all ranks have all results: %s",
			       status == FANIN_ERR_INTERRUPTED ? "interrupted"
			       : status == FANIN_IN_PROGRESS
				       ? "others are late"
				       : part->protocol->error(part->endpoint)->text);
		return;
	}
}

void
fanin_comm_close_skip(struct fanin_comm *comm)
{
	comm->closing.has_begun = true;
	if (comm->network != NULL)
		fanin_comm_close_skip(comm->network);
	for (unsigned int use = 0; use < FANIN_BESIDE_USES; use++) {
		if (comm->beside[use] != NULL)
			comm->beside[use]->closing.has_begun = true;
	}
	for (struct fanin_region *region = comm->regions.first; region != NULL;
	     region = region->next)
		region->comm->closing.has_begun = true;
}
