/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Installs jobs on switches, all or none, and removes them. The database records a request before
 * it is sent, so that nothing is left over after a crash at any moment, and keeps a removal until
 * the switch has confirmed it. Main thread.
 */
#include "manager/install.h"

#include <assert.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>
#include <sys/random.h>

#include "control/log.h"
#include "manager/handlers.h"
#include "manager/host.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "manager/owner.h"
#include "manager/plan.h"
#include "manager/reconcile.h"
#include "manager/trees.h"
#include "wire/wire.h"

#define MAX_ATTEMPTS 8

/* ---- removals */

struct removal *
removal_find(const struct manager *manager, const char *switch_name, uint32_t job)
{
	struct removal *removal;

	TAILQ_FOREACH(removal, &manager->removals, entry) {
		if (removal->job == job && strcmp(removal->switch_name, switch_name) == 0)
			return removal;
	}
	return NULL;
}

void
removal_add(struct manager *manager, const char *switch_name, uint32_t job)
{
	struct removal *removal;

	if (removal_find(manager, switch_name, job) != NULL)
		return;
	removal = calloc(1, sizeof(*removal));
	if (removal == NULL)
		return; /* the database keeps it for the next start */
	memccpy(removal->switch_name, switch_name, '\0', sizeof(removal->switch_name) - 1);
	removal->job = job;
	TAILQ_INSERT_TAIL(&manager->removals, removal, entry);
}

static bool
has_group(const struct manager *manager, uint32_t id)
{
	const struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->id == id)
			return true;
	}
	return false;
}

static void
removal_answered(void *user, uint32_t job, struct peer *peer, const json_t *result,
		 const char *code, const char *message)
{
	struct manager *manager = user;
	struct removal *removal = removal_find(manager, peer->about->name, job);

	if (removal == NULL)
		return;
	removal->asked = false;
	if (result == NULL && strcmp(code, "not_found") != 0) {
		if (strcmp(code, "lost") != 0)
			log_warning("job %u stays on switch %s for now: %s", removal->job,
				    peer->about->name, message);
		return;
	}
	if (store_end_removal(manager->store, removal->switch_name, removal->job) != 0)
		log_error("database: %s", store_error(manager->store));
	manager->counters.removals++;
	TAILQ_REMOVE(&manager->removals, removal, entry);
	free(removal);
	owner_forget(peer, job);
	if (result == NULL || peer->jobs == 0)
		return;
	/* A job that continues will use its place again. */
	if (has_group(manager, job))
		peer->jobs--;
	else
		peer_note_jobs(manager, peer, peer->jobs - 1);
}

void
removals_go_on(struct manager *manager)
{
	struct removal *removal;

	TAILQ_FOREACH(removal, &manager->removals, entry) {
		uint16_t at = topology_switch_find(&manager->config->topology,
						   removal->switch_name);

		/*
		 * Until the switch has listed its jobs, the mark that this job carries there is not
		 * known.
		 */
		if (removal->asked || at == TOPOLOGY_NO_SWITCH ||
		    manager->peers[at].state != PEER_UP)
			continue;
		removal->asked = peer_ask(&manager->peers[at], "jobs.destroy",
					  json_pack("{s:I, s:s}", "id", (json_int_t)removal->job,
						    "owner",
						    owner_of_job(manager, &manager->peers[at],
								 removal->job)),
					  removal_answered, manager, removal->job) == 0;
	}
}

void
removals_note(struct manager *manager, const struct group *group, const struct group_node *nodes,
	      uint16_t n_nodes)
{
	for (uint16_t i = 0; i < n_nodes; i++) {
		if (!store_node_counts(&nodes[i]))
			continue;
		if (store_add_removal(manager->store, nodes[i].switch_name, group->id) != 0)
			log_error("database: %s", store_error(manager->store));
		removal_add(manager, nodes[i].switch_name, group->id);
	}
	removals_go_on(manager);
}

static void
free_nodes(struct group *group)
{
	group_forget_peers(group);
	free(group->nodes);
	group->nodes = NULL;
	group->n_nodes = 0;
}

/*
 * Moves a group from the database's groups to its removals, in one transaction. A moving group
 * stays, without a tree, since its hosts are at work on it.
 */
void
install_withdraw(struct manager *manager, struct group *group)
{
	if (group->moving && !group_job(group)->doomed) {
		removals_note(manager, group, group->nodes, group->n_nodes);
		free_nodes(group);
		if (store_put_group(manager->store, group) != 0)
			log_error("database: %s", store_error(manager->store));
		return;
	}
	if (store_drop_group(manager->store, group) != 0)
		log_error("database: job \"%s\" is not dropped yet: %s", group->name,
			  store_error(manager->store));
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (store_node_counts(&group->nodes[i]))
			removal_add(manager, group->nodes[i].switch_name, group->id);
	}
	removals_go_on(manager);
	free_nodes(group);
	if (!group->moving)
		group->id = 0;
}

void
remove_group(struct manager *manager, struct group *group, const char *reason)
{
	struct group *leader = group_leader(group);

	if (trees_are_asked(manager, leader)) {
		leader->doomed = true; /* the last answer ends the job */
		leader->doom = reason;
		if (store_put_group(manager->store, leader) != 0)
			log_error("database: job \"%s\" is not dropped: %s", leader->name,
				  store_error(manager->store));
		return;
	}
	/*
	 * The first tree goes first: if the manager is killed in between, trees without it belong
	 * to no job and are removed.
	 */
	if (leader->state != GROUP_GATHERING)
		install_withdraw(manager, leader);
	trees_withdraw(manager, leader);
	manager_forget_group(manager, leader, reason);
}

/* ---- ids */

static bool
id_is_taken(const struct manager *manager, uint32_t id)
{
	const struct removal *removal;

	if ((manager->foreign_ids[id / 8] >> id % 8 & 1) != 0 || has_group(manager, id))
		return true;
	TAILQ_FOREACH(removal, &manager->removals, entry) {
		if (removal->job == id)
			return true;
	}
	return false;
}

/*
 * Chooses a number that no switch is known to have. Numbers are used in turn, so that a late packet
 * finds no job. 0: none is left.
 */
static uint32_t
choose_id(struct manager *manager)
{
	for (uint32_t i = 0; i < FANIN_WIRE_MAX_JOB; i++) {
		manager->last_id = manager->last_id % FANIN_WIRE_MAX_JOB + 1;
		if (!id_is_taken(manager, manager->last_id))
			return manager->last_id;
	}
	/*
	 * Other managers' jobs may be gone by now: a switch that still has one refuses its number.
	 */
	memset(manager->foreign_ids, 0, sizeof(manager->foreign_ids));
	return 0;
}

static int
choose_identity(struct manager *manager, struct group *group, struct control_error *error)
{
	group->id = choose_id(manager);
	group->key = 0;
	while (group->key == 0) {
		if (getrandom(&group->key, sizeof(group->key), 0) != sizeof(group->key)) {
			control_fail(error, "internal", "the kernel gives no random key");
			return -EIO;
		}
	}
	if (group->id != 0)
		return 0;
	control_fail(error, "no_room", "all numbers of jobs are taken");
	return -ENOSPC;
}

/* ---- installing */

/* Answers the members whose joins wait. Members that have gone in the meantime are skipped. */
static void
answer_members(const struct manager *manager, struct group *group)
{
	for (uint16_t i = 0; i < group->n_members; i++) {
		struct group_member *member = &group->members[i];

		if (member->state != MEMBER_WAITING)
			continue;
		member->state = MEMBER_LIVE;
		control_answer(member->client, member->request_id, host_result(manager, group, i));
		json_decref(member->request_id);
		member->request_id = NULL;
	}
}

/*
 * True if the group can run as a ring. error: why there is no tree; if the hosts accept a ring, but
 * it could not do what the job asks for, that is added.
 */
static bool
may_be_ring(const struct group *group, struct control_error *error)
{
	const struct control_error reason = *error;

	if (strcmp(error->code, "no_path") != 0 && strcmp(error->code, "no_room") != 0)
		return false;
	for (uint16_t i = 0; i < group->n_members; i++) {
		if (!group->members[i].fallback || group->members[i].endpoint[0] == '\0')
			return false;
	}
	if (!group_shape_of(group)->may_be_ring) {
		control_fail(
			error, reason.code,
			"%.350s; no ring of its hosts does what the handler \"%s\" does, which has the shape %s",
			reason.message, group->handler, group_shape_of(group)->name);
		return false;
	}
	if (group->size > GROUP_RING_RANKS) {
		control_fail(error, reason.code,
			     "%.380s; a ring of its hosts would have %u ranks, and can have %u",
			     reason.message, group->size, GROUP_RING_RANKS);
		return false;
	}
	if (group->authenticate)
		control_fail(
			error, reason.code,
			"%.380s; a ring of its hosts would not authenticate its packets, as the job asks",
			reason.message);
	else if (group->reproducible)
		control_fail(
			error, reason.code,
			"%.380s; a ring of its hosts would sum in another order than a reproducible job has",
			reason.message);
	return !group->authenticate && !group->reproducible;
}

/* The group runs as a ring, or its joins are refused. */
void
install_failed(struct manager *manager, struct group *group, const struct control_error *error)
{
	struct control_error reason = *error;

	if (group->moving) {
		move_failed(manager, group, error);
		return;
	}
	if (group->leader != NULL) {
		trees_end_at(manager, group, error);
		return;
	}
	if (may_be_ring(group, &reason) && getrandom(&group->key, sizeof(group->key), 0) > 0) {
		group->state = GROUP_RING;
		memcpy(group->reason, reason.message, sizeof(group->reason));
		if (store_put_group(manager->store, group) == 0) {
			log_info("job \"%s\" runs as a ring of %u: %s", group->name, group->size,
				 reason.message);
			manager->counters.jobs_ring++;
			answer_members(manager, group);
			host_tell_gone(manager, group);
			return;
		}
		control_fail(&reason, "internal", "database: %s", store_error(manager->store));
	}
	log_warning("job \"%s\" of %u ranks cannot be made: %s", group->name, group->size,
		    reason.message);
	manager->counters.jobs_failed++;
	for (uint16_t i = 0; i < group->n_members; i++) {
		struct group_member *member = &group->members[i];

		if (member->state == MEMBER_WAITING)
			control_refuse(member->client, member->request_id, &reason);
	}
	manager_forget_group(manager, group, NULL);
}

static unsigned int
count_installed(const struct group *group)
{
	unsigned int n = 0;

	for (uint16_t i = 0; i < group->n_nodes; i++)
		n += group->nodes[i].state == NODE_INSTALLED;
	return n;
}

bool
install_note_network(struct manager *manager, struct group *group)
{
	const bool moving = group->moving;

	group->state = GROUP_NETWORK;
	group->moving = false;
	group->stranded = false;
	group->reason[0] = '\0';
	if (store_put_group(manager->store, group) != 0) {
		/*
		 * The database still lists the job as being installed, and it would be removed
		 * after a crash. So it is removed now.
		 */
		control_fail(&group->failure, "internal", "database: %s",
			     store_error(manager->store));
		group->moving = moving;
		return false;
	}
	if (!group_shape_of(group)->has_tree)
		log_info("job \"%s\" of %u ranks is number %u on %u switches, which have no tree",
			 group->name, group->size, group->id, count_installed(group));
	else
		log_info("job \"%s\" of %u ranks is number %u on %u switches, root %s%s",
			 group->name, group->size, group->id,
			 group->n_nodes - group_shape_of(group)->has_server,
			 group_shape_of(group)->has_server ? "server " : "",
			 group->nodes[0].switch_name);
	return true;
}

void
install_finished(struct manager *manager, struct group *group)
{
	manager->counters.jobs_installed++;
	answer_members(manager, group);
}

/* All switches have created the job. */
static void
install_succeeded(struct manager *manager, struct group *group)
{
	if (!group->moving) {
		trees_go_on(manager, group_leader(group));
	} else if (install_note_network(manager, group)) {
		move_succeeded(manager, group);
	} else {
		install_withdraw(manager, group);
		install_failed(manager, group, &group->failure);
	}
}

static void
install_answered_by_all(struct manager *manager, struct group *group)
{
	const char *code = group->failure.code;

	if (group_leader(group)->doomed) {
		remove_group(manager, group, group_leader(group)->doom);
		return;
	}
	if (code == NULL) {
		install_succeeded(manager, group);
		return;
	}
	manager->counters.installs_undone++;
	log_info("job \"%s\" is removed again after attempt %u: %s", group->name, group->attempts,
		 group->failure.message);
	install_withdraw(manager, group);
	if (strcmp(code, "invalid") == 0 || strcmp(code, "internal") == 0)
		install_failed(manager, group, &group->failure);
	else
		install_group(manager, group);
}

static void
note_failure(struct manager *manager, struct group *group, struct group_node *node,
	     const char *code, const char *message)
{
	static const char *const known[] = { "invalid", "no_room",   "exists",
					     "lost",    "not_found", "unsupported" };
	const struct shape *shape = group_shape_of(group);
	const char *kept = "internal";

	if (shape->can_spare != NULL && shape->can_spare(group, node, code))
		return;
	for (size_t i = 0; i < sizeof(known) / sizeof(known[0]); i++) {
		if (strcmp(known[i], code) == 0)
			kept = known[i];
	}
	if (strcmp(kept, "lost") != 0)
		node->state = NODE_REFUSED;
	if (strcmp(kept, "exists") == 0)
		manager->foreign_ids[group->id / 8] |= (uint8_t)(1u << group->id % 8);
	/*
	 * A moving job keeps its number, which its hosts know: it avoids switches where another job
	 * has it.
	 */
	if (strcmp(kept, "exists") != 0 || group->moving)
		group->excluded[node->switch_index] = true;
	if (strcmp(kept, "no_room") == 0)
		group->out_of_room = true;
	/* A switch with hosts has no replacement: report its reason. */
	if (group->failure.code == NULL || !fanin_ranks_is_empty(&node->local))
		control_fail(&group->failure, kept, "%s %s: %.400s",
			     topology_kind(manager->peers[node->switch_index].about),
			     node->switch_name, message);
}

static void
create_answered(void *user, uint32_t index, struct peer *peer, const json_t *result,
		const char *code, const char *message)
{
	struct manager *manager = peer->events->user;
	struct group *group = user; /* valid until all its nodes have answered */
	const struct shape *shape = group_shape_of(group);
	struct group_node *node = &group->nodes[index];

	if (result != NULL) {
		node->state = NODE_INSTALLED;
		group->window = (uint32_t)json_integer_value(json_object_get(result, "window"));
		group->slots = shape->has_slots ? 2 * group->window : 0;
		if (shape->note_created != NULL && !fanin_ranks_is_empty(&node->local))
			shape->note_created(group, peer, result);
		peer->jobs++;
	} else {
		note_failure(manager, group, node, code, message);
	}
	if (--group->n_unanswered == 0)
		install_answered_by_all(manager, group);
}

void
install_group(struct manager *manager, struct group *group)
{
	struct control_error error;
	int ret;

	group->state = GROUP_INSTALLING;
	group->attempts++;
	ret = group->moving ? move_plan(manager, group, &error)
			    : plan_group(manager, group, &error);
	if (ret == 0 && !group->moving)
		ret = choose_identity(manager, group, &error);
	if (ret == 0 && group->attempts > MAX_ATTEMPTS) {
		control_fail(&error, "no_path", "%d attempts failed, the last one: %.400s",
			     MAX_ATTEMPTS, group->failure.message);
		ret = -EHOSTUNREACH;
	}
	if (ret == 0)
		ret = install_nodes(manager, group, &error);
	if (ret == 0)
		return;
	group->failure.code = NULL;
	free_nodes(group);
	if (!group->moving)
		group->id = 0;
	install_failed(manager, group, &error);
}

/*
 * True if a node's switch is asked now. A job without a tree can begin before all of its switches
 * are reached.
 */
static bool
is_asked(const struct manager *manager, const struct group *group, const struct group_node *node)
{
	return group_shape_of(group)->has_tree ||
	       (node->state == NODE_PLANNED && manager->peers[node->switch_index].state == PEER_UP);
}

int
install_nodes(struct manager *manager, struct group *group, struct control_error *error)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (is_asked(manager, group, &group->nodes[i]))
			group->nodes[i].state = NODE_ASKED;
	}
	if (store_put_group(manager->store, group) != 0) {
		control_fail(error, "internal", "database: %s", store_error(manager->store));
		free_nodes(group); /* no switch was asked */
		return -EIO;
	}
	group->failure.code = NULL;
	assert(group->nodes != NULL); /* made by the plan */
	group->n_unanswered = 0;
	for (uint16_t i = 0; i < group->n_nodes; i++)
		group->n_unanswered += group->nodes[i].state == NODE_ASKED;
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		struct group_node *node = &group->nodes[i];

		if (node->state != NODE_ASKED)
			continue;
		if (peer_ask(&manager->peers[node->switch_index], "jobs.create",
			     plan_create_args(manager, group, i), create_answered, group, i) == 0)
			continue;
		note_failure(manager, group, node, "lost", "it is not reached");
		node->state = NODE_REFUSED;
		group->n_unanswered--;
	}
	/* Switches answer later, never from within peer_ask. */
	if (group->n_unanswered == 0)
		install_answered_by_all(manager, group);
	return 0;
}
