/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Reports which ranks blocks wait for. Asks all switches of a job's tree, and answers the client
 * once the last switch has answered or is lost. The question keeps a copy of the groups that it is
 * about, since jobs may end or change their trees meanwhile. Main thread only.
 */
#include "manager/waits.h"

#include <stdlib.h>
#include <string.h>

#include "control/args.h"
#include "manager/manager.h"
#include "manager/waits_tree.h"

#define MAX_QUESTIONS 16 /* open at the same time */
#define MAX_BLOCKS 1024  /* that one switch reports at most */
#define NODE_BITS 16     /* for the node's index in the number that identifies an answer */

/* One tree of a job, or a job without a tree. */
struct waits_job {
	char name[GROUP_NAME_LEN];
	enum group_state state;
	uint16_t tree;
	uint16_t n_trees;
	uint16_t size;
	uint16_t n_members;
	struct waits_node *nodes; /* NULL unless the job runs in the network with a tree */
	uint16_t n_nodes;
};

struct waits {
	TAILQ_ENTRY(waits) entry;
	struct control_client *client;
	uint64_t client_number; /* tells whether `client` still is the client that asked */
	json_t *id;
	struct waits_job *jobs;
	uint16_t n_jobs;
	unsigned int n_unanswered;
};

static void
forget(struct manager *manager, struct waits *waits)
{
	TAILQ_REMOVE(&manager->waits, waits, entry);
	for (uint16_t i = 0; i < waits->n_jobs; i++) {
		for (uint16_t k = 0; k < waits->jobs[i].n_nodes; k++)
			free(waits->jobs[i].nodes[k].blocks);
		free(waits->jobs[i].nodes);
	}
	free(waits->jobs);
	json_decref(waits->id);
	free(waits);
}

void
waits_end(struct manager *manager)
{
	while (!TAILQ_EMPTY(&manager->waits))
		forget(manager, TAILQ_FIRST(&manager->waits));
}

/* Returns the answer for the client, a new reference. All switches have answered. */
static json_t *
describe(const struct waits *waits)
{
	json_t *jobs = json_array();

	for (uint16_t i = 0; i < waits->n_jobs; i++) {
		const struct waits_job *job = &waits->jobs[i];
		json_t *object = json_pack("{s:s, s:i, s:i, s:s, s:i, s:i}", "name", job->name,
					   "tree", job->tree, "trees", job->n_trees, "state",
					   group_state_name(job->state), "size", job->size, "came",
					   job->n_members);

		waits_tree_describe(job->nodes, job->n_nodes, object);
		json_array_append_new(jobs, object);
	}
	return json_pack("{s:o}", "jobs", jobs);
}

static void
switch_answered(void *user, uint32_t which, struct peer *peer, const json_t *result,
		const char *code, const char *message)
{
	struct manager *manager = peer->events->user;
	struct waits *waits = user;
	struct waits_node *node =
		&waits->jobs[which >> NODE_BITS].nodes[which & ((1u << NODE_BITS) - 1)];

	(void)code;
	if (result != NULL)
		waits_node_take(node, result);
	else
		memccpy(node->error, message, '\0', sizeof(node->error) - 1);
	if (--waits->n_unanswered > 0)
		return;
	if (control_client_number(waits->client) == waits->client_number)
		control_answer(waits->client, waits->id, describe(waits));
	forget(manager, waits);
}

/* Copies what is needed of a group. Returns false if memory runs out. */
static bool
copy_group(struct waits_job *job, const struct group *group)
{
	*job = (struct waits_job){ .state = group->state,
				   .tree = group->tree,
				   .n_trees = group_job(group)->n_trees,
				   .size = group->size,
				   .n_members = group->n_members };
	memcpy(job->name, group->name, sizeof(job->name));
	/* Without a tree there is nothing to trace: a block's leader knows the missing ranks. */
	if (group->state != GROUP_NETWORK || !group_shape_of(group)->has_tree)
		return true;
	job->nodes = calloc(group->n_nodes + 1u, sizeof(*job->nodes));
	if (job->nodes == NULL)
		return false;
	job->n_nodes = group->n_nodes;
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];

		job->nodes[i].is_server = i == 0 && group_shape_of(group)->has_server;
		job->nodes[i].parent = node->parent;
		job->nodes[i].local = node->local;
		job->nodes[i].ranks = node->ranks;
		memcpy(job->nodes[i].switch_name, node->switch_name, sizeof(node->switch_name));
	}
	return true;
}

/* Asks the switches of one group, which copy_group has copied. */
static void
ask_switches(struct manager *manager, struct waits *waits, uint16_t index,
	     const struct group *group)
{
	struct waits_job *job = &waits->jobs[index];

	for (uint16_t i = 0; i < job->n_nodes; i++) {
		static const char *const words = "it is not connected";
		uint16_t at = group->nodes[i].switch_index;

		if (at != TOPOLOGY_NO_SWITCH &&
		    peer_ask(&manager->peers[at], "jobs.waits",
			     json_pack("{s:I, s:i}", "id", (json_int_t)group->id, "most",
				       MAX_BLOCKS),
			     switch_answered, waits, (uint32_t)index << NODE_BITS | i) == 0)
			waits->n_unanswered++;
		else
			memcpy(job->nodes[i].error, words, strlen(words) + 1);
	}
}

/*
 * Copies the groups that the question is about: the trees of one job, or all if group is NULL.
 * Returns false if memory runs out.
 */
static bool
copy_groups(const struct manager *manager, struct waits *waits, const struct group *group)
{
	const struct group *each;
	size_t n = 0;

	TAILQ_FOREACH(each, &manager->groups, entry)
		n++;
	waits->jobs = calloc(n + 1, sizeof(*waits->jobs));
	if (waits->jobs == NULL)
		return false;
	TAILQ_FOREACH(each, &manager->groups, entry) {
		if ((group == NULL || group == group_job(each)) &&
		    !copy_group(&waits->jobs[waits->n_jobs++], each))
			return false;
	}
	return true;
}

static bool
has_room(const struct manager *manager)
{
	const struct waits *waits;
	unsigned int n = 0;

	TAILQ_FOREACH(waits, &manager->waits, entry)
		n++;
	return n < MAX_QUESTIONS;
}

json_t *
command_waits(void *user, struct control_client *client, json_t *id, const json_t *args,
	      struct control_error *error)
{
	struct manager *manager = user;
	const struct group *group = NULL, *each;
	const char *name = NULL;
	struct waits *waits;
	uint16_t index = 0;
	json_t *answer;
	bool present;

	if (args_check_known(args, error, "job") != 0 ||
	    args_name(args, "job", GROUP_NAME_LEN - 1, &name, &present, error) != 0)
		return NULL;
	if (present)
		group = group_find(&manager->groups, name);
	if (present && group == NULL)
		return control_fail(error, "not_found",
				    "job \"%s\" does not exist: `jobs` lists those that do", name);
	if (!has_room(manager))
		return control_fail(error, "no_room",
				    "%d such questions wait for switches: ask again later",
				    MAX_QUESTIONS);
	waits = calloc(1, sizeof(*waits));
	if (waits == NULL)
		return control_fail(error, "internal", "out of memory");
	TAILQ_INSERT_TAIL(&manager->waits, waits, entry);
	if (!copy_groups(manager, waits, group)) {
		forget(manager, waits);
		return control_fail(error, "internal", "out of memory");
	}
	TAILQ_FOREACH(each, &manager->groups, entry) {
		if (group == NULL || group == group_job(each))
			ask_switches(manager, waits, index++, each);
	}
	if (waits->n_unanswered > 0) {
		/* Switches answer later, never from within peer_ask. */
		waits->client = client;
		waits->client_number = control_client_number(client);
		waits->id = json_incref(id);
		return control_later(error);
	}
	answer = describe(waits);
	forget(manager, waits);
	return answer;
}
