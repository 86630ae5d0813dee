/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator over several reduction trees: one communicator on a switch for each tree, and
 * requests that are split over them (split.h). Each tree joins, loses and resumes its runs by
 * itself; the network manager's membership is shared.
 */
#include "comm_join.h"

#include <stdlib.h>
#include <string.h>

#include "hostlib/src/base/report.h"
#include "hostlib/src/protocol/split.h"
#include "hostlib/src/vector/vector.h"

struct fanin_trees {
	struct fanin_split split;
	/* One for each tree; members with ops have begun to join. */
	struct fanin_comm members[FANIN_MAX_TREES];
};

/* Joins the job of one tree. A block has the same length in all trees, as the manager says. */
static int
tree_join(struct fanin_comm *comm, const struct fanin_join_opts *common,
	  struct fanin_manager_answer *answer, uint16_t tree, uint64_t deadline_ns,
	  struct fanin_error *error)
{
	struct fanin_comm *member = &comm->trees.all->members[tree];
	struct fanin_join_opts options = *common;
	int status;

	member->ctx = comm->ctx;
	member->manager = comm->manager;
	member->registered_ip_be = comm->registered_ip_be;
	member->trees.n = answer->n_trees;
	member->trees.index = tree;
	member->trees.siblings = comm->trees.all;
	status = fanin_comm_tree_options(member, &options, answer, tree, error);
	if (status != FANIN_OK)
		return status;
	/* The caller's limit of blocks in flight is for all trees together. */
	if (options.window != 0)
		options.window = options.window > answer->n_trees ? options.window / answer->n_trees
								  : 1;
	return fanin_comm_switch_join(member, &options, answer->trees[tree].peers,
				      answer->payload_bytes, deadline_ns, error);
}

/*
 * Checks that all trees cut vectors alike; otherwise the blocks of two trees would overlap in the
 * vector.
 */
static int
members_check(const struct fanin_trees *trees, uint16_t n_trees, struct fanin_error *error)
{
	if (!fanin_protocol_splits(trees->members[0].protocol))
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job has %u trees, but the protocol %s of its handler %s runs on one",
			n_trees, trees->members[0].protocol->name,
			trees->members[0].member.handler);
	for (uint16_t i = 1; i < n_trees; i++) {
		uint16_t found = trees->members[i].payload_bytes;
		uint16_t expected = trees->members[0].payload_bytes;

		if (found != expected)
			return fanin_error_set(
				error, FANIN_ERR_MANAGER,
				"packets carry %u bytes in tree %u, but %u in tree 0", found, i,
				expected);
		if (trees->members[i].protocol != trees->members[0].protocol)
			return fanin_error_set(error, FANIN_ERR_MANAGER,
					       "tree %u runs the protocol %s, but tree 0 %s", i,
					       trees->members[i].protocol->name,
					       trees->members[0].protocol->name);
	}
	return FANIN_OK;
}

int
fanin_comm_trees_join(struct fanin_comm *comm, const struct fanin_join_opts *options,
		      struct fanin_manager_answer *answer, uint64_t deadline_ns,
		      struct fanin_error *error)
{
	struct fanin_trees *trees = calloc(1, sizeof(*trees));
	int status = FANIN_OK;

	if (trees == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	comm->trees.all = trees;
	comm->ops = &fanin_comm_trees_ops;
	/* All ranks join the trees in the same order, as each join waits for all ranks. */
	for (uint16_t i = 0; i < answer->n_trees && status == FANIN_OK; i++)
		status = tree_join(comm, options, answer, i, deadline_ns, error);
	if (status == FANIN_OK)
		status = members_check(trees, answer->n_trees, error);
	if (status != FANIN_OK)
		return status;
	for (uint16_t i = 0; i < answer->n_trees; i++)
		trees->split.endpoints[i] = trees->members[i].endpoint;
	trees->split.n_endpoints = answer->n_trees;
	trees->split.protocol = trees->members[0].protocol;
	comm->protocol = trees->members[0].protocol;
	memcpy(comm->protocol_reason, trees->members[0].protocol_reason,
	       sizeof(comm->protocol_reason));
	comm->member.config.rank = answer->rank;
	comm->member.config.size = answer->size;
	comm->member.wide = trees->members[0].member.wide;
	memcpy(comm->member.handler, trees->members[0].member.handler,
	       sizeof(comm->member.handler));
	return FANIN_OK;
}

void
fanin_comm_trees_poll_joined(struct fanin_trees *trees)
{
	for (uint16_t i = 0; i < FANIN_MAX_TREES; i++) {
		if (trees->members[i].endpoint != NULL)
			fanin_comm_recover_poll(&trees->members[i]);
	}
}

int
fanin_comm_trees_post(struct fanin_trees *trees, struct fanin_request *request, uint64_t count)
{
	/* The number of a sparse vector's blocks is known once it is laid out. */
	if (request->sparse != NULL && request->sparse->n_blocks == 0) {
		int status = fanin_vector_layout(request->sparse, trees->members[0].payload_bytes);

		if (status != FANIN_OK)
			return status;
	}
	return fanin_split_post(&trees->split, request, count);
}

void
fanin_comm_trees_abort(struct fanin_trees *trees, int status, const struct fanin_error *error)
{
	fanin_split_abort(&trees->split, status, error);
}

static int
trees_post(struct fanin_comm *comm, struct fanin_request *request, uint64_t count)
{
	if (comm->agreement.is_open || fanin_comm_must_agree(comm, request))
		return fanin_comm_hold(comm, request, count);
	return fanin_comm_trees_post(comm->trees.all, request, count);
}

static int
members_poll(struct fanin_comm *comm)
{
	struct fanin_trees *trees = comm->trees.all;
	int status;
	int n = 0;

	for (uint16_t i = 0; i < comm->trees.n; i++) {
		int frames = fanin_comm_recover_poll(&trees->members[i]);

		n += frames > 0 ? frames : 0;
	}
	status = fanin_split_settle(&trees->split);
	for (uint16_t i = 0; status != FANIN_OK && i < comm->trees.n; i++)
		fanin_comm_give_up(&trees->members[i]);
	return status != FANIN_OK ? status : n;
}

static int
trees_poll(struct fanin_comm *comm)
{
	int status = members_poll(comm);

	/* Requests that were held back are sent at once. */
	if (__builtin_expect(comm->agreement.is_open, 0) && fanin_comm_agree(comm))
		members_poll(comm);
	return status;
}

static uint64_t
trees_idle_ns(const struct fanin_comm *comm)
{
	uint64_t min_ns = UINT64_MAX;

	for (uint16_t i = 0; i < comm->trees.n; i++) {
		uint64_t idle_ns = comm->protocol->idle_ns(comm->trees.all->members[i].endpoint);

		if (idle_ns < min_ns)
			min_ns = idle_ns;
	}
	return min_ns;
}

static unsigned int
trees_poll_fds(struct fanin_comm *comm, struct pollfd *fds)
{
	unsigned int n = 0;

	for (uint16_t i = 0; i < comm->trees.n; i++)
		n += comm->protocol->poll_fds(comm->trees.all->members[i].endpoint, fds + n);
	return n;
}

static const struct fanin_error *
trees_error(const struct fanin_comm *comm)
{
	return &comm->trees.all->split.error;
}

static void
trees_missing(const struct fanin_comm *comm, struct fanin_ranks *ranks)
{
	*ranks = (struct fanin_ranks){ 0 };
	if (comm->trees.all->split.status != FANIN_OK) {
		*ranks = comm->trees.all->split.error.missing;
		return;
	}
	for (uint16_t i = 0; i < comm->trees.n; i++) {
		struct fanin_ranks missing;

		comm->protocol->missing(comm->trees.all->members[i].endpoint, &missing);
		fanin_ranks_merge(ranks, &missing);
	}
}

#define ADD_SUM(field) report->field += part.field;
#define ADD_MAX(field) report->field = part.field > report->field ? part.field : report->field;
#define ADD_ANY(field) report->field |= part.field;
#define ADD_SAME(field) report->field = part.field != 0 ? part.field : report->field;
#define ADD_OWN(field)
#define ADD(field, trees) ADD_##trees(field)

static void
trees_report(const struct fanin_comm *comm, struct fanin_report *report)
{
	for (uint16_t i = 0; i < comm->trees.n; i++) {
		const struct fanin_comm *member = &comm->trees.all->members[i];
		struct fanin_report part = { 0 };

		member->ops->report(member, &part);
		FANIN_REPORT_FIELDS(ADD)
	}
	report->transport_reason = comm->trees.all->members[0].transport->reason;
}

static struct fanin_comm *
trees_part(struct fanin_comm *comm, uint16_t tree)
{
	return &comm->trees.all->members[tree];
}

static int
trees_leave(struct fanin_comm *comm, struct fanin_error *error)
{
	struct fanin_trees *trees = comm->trees.all;
	int status = FANIN_OK;

	for (uint16_t i = 0; i < FANIN_MAX_TREES && trees->members[i].ops != NULL; i++) {
		int left = trees->members[i].ops->leave(&trees->members[i], error);

		status = status == FANIN_OK ? left : status;
	}
	fanin_split_free(&comm->agreement.request);
	free(trees);
	return status;
}

const struct fanin_comm_ops fanin_comm_trees_ops = {
	.post = trees_post,
	.poll = trees_poll,
	.idle_ns = trees_idle_ns,
	.poll_fds = trees_poll_fds,
	.error = trees_error,
	.missing = trees_missing,
	.report = trees_report,
	.part = trees_part,
	.leave = trees_leave,
};
