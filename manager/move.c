/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves a job whose tree has lost a switch, a server or a link to another tree, under the same
 * number and key, while its hosts wait: the old tree's rest is removed, then the new tree is made.
 * Hosts notice by themselves that their run is over, and begin another one where they were
 * (docs/protocol.md, "Going on with another tree"). Without another tree a job stays as it is,
 * since what is lost may come back; it is tried again when a switch or a link comes back. Two kinds
 * of jobs end instead: a job whose parameter server, or the switch of that server, is lost, because
 * the server alone has the results that some of its hosts wait for; and a reproducible job all of
 * whose other trees would combine its ranks in another order. Main thread.
 */
#include "manager/move.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/clock.h"
#include "control/log.h"
#include "manager/faults.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/manager.h"
#include "manager/plan.h"
#include "manager/reconcile.h"

int
move_plan(struct manager *manager, struct group *group, struct control_error *error)
{
	const uint32_t slots = group->slots;
	const uint32_t asked = group->payload_asked;
	int ret;

	/* The packets' length and the number of packets in flight must not change. */
	group->payload_asked = group->payload_bytes;
	ret = plan_group(manager, group, error);
	group->payload_asked = asked;
	if (ret == 0 && group->slots < slots) {
		control_fail(error, "no_room",
			     "the other switches have %u slots for it, the job has %u",
			     group->slots, slots);
		ret = -ENOSPC;
	}
	group->slots = slots;
	return ret;
}

static void
tell(const struct group *group, const char *event, const char *reason)
{
	host_notify(group, NULL,
		    json_pack("{s:s, s:s, s:i, s:I, s:s}", "event", event, "job", group->name,
			      "tree", group->tree, "generation", (json_int_t)group->generation,
			      "reason", reason));
}

/*
 * Tells each member where to send from now on: a host of a dead switch learns it from nobody else.
 */
static void
tell_moved(const struct group *group)
{
	const struct group *job = group_job(group);

	for (uint16_t i = 0; i < job->n_members; i++) {
		const struct group_member *member = &job->members[i];
		const struct group_node *node = group_node_of(group, i);
		char ip[INET_ADDRSTRLEN];

		if (member->state != MEMBER_LIVE || member->client == NULL)
			continue;
		inet_ntop(AF_INET, &group->addresses[i], ip, sizeof(ip));
		control_notify(member->client,
			       json_pack("{s:s, s:s, s:i, s:I, s:s, s:s, s:i}", "event", "moved",
					 "job", group->name, "tree", group->tree, "generation",
					 (json_int_t)group->generation, "ip", ip, "switch_ip",
					 node->ip, "udp_port", (int)node->udp_port));
	}
}

/*
 * Returns the group's server, or the switch of that server, if it is lost. NULL: both are there, or
 * the group has no server.
 */
static const struct group_node *
find_lost(const struct manager *manager, const struct group *group)
{
	for (uint16_t i = 0; i < 2 && i < group->n_nodes && group_shape_of(group)->has_server;
	     i++) {
		const uint16_t index = group->nodes[i].switch_index;

		if (index == TOPOLOGY_NO_SWITCH || manager->peers[index].state != PEER_UP)
			return &group->nodes[i];
	}
	return NULL;
}

/* Sets the reason why a group's job ends, if it does. error: why the group has no other tree. */
static void
note_end(const struct manager *manager, struct group *group, const struct control_error *error)
{
	const struct group_node *lost = find_lost(manager, group);

	if (group_job(group)->doomed)
		return; /* the job ends already, perhaps for this reason */
	group->ending[0] = '\0';
	if (lost != NULL)
		snprintf(group->ending, sizeof(group->ending),
			 "%s %s is lost, and there is no other: %.400s",
			 lost->parent == TREE_NO_PARENT ? "server" : "switch", lost->switch_name,
			 error->message);
	else if (strcmp(error->code, PLAN_ORDER) == 0)
		snprintf(group->ending, sizeof(group->ending),
			 "its only other trees would change the order of its sums: %.400s",
			 error->message);
	else if (group_shape_of(group)->has_server && group->n_nodes == 0 &&
		 strcmp(error->code, "internal") != 0)
		snprintf(group->ending, sizeof(group->ending), "%s", error->message);
}

/* The first group that ends its job. NULL: none, or their jobs are doomed already. */
static struct group *
find_ending(const struct manager *manager)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->ending[0] != '\0' && !group_job(group)->doomed)
			return group;
	}
	return NULL;
}

void
moves_end_jobs(struct manager *manager)
{
	struct group *group;

	while ((group = find_ending(manager)) != NULL) {
		log_warning("job \"%s\" ends: %s", group->name, group->ending);
		manager->counters.jobs_lost++;
		remove_group(manager, group, group->ending);
	}
}

void
move_failed(struct manager *manager, struct group *group, const struct control_error *error)
{
	const bool torn_down = group->moving;

	note_end(manager, group, error);
	group->state = GROUP_NETWORK;
	group->moving = false;
	manager->counters.moves_failed++;
	if (!torn_down && group->stranded && strcmp(group->reason, error->message) == 0)
		return; /* already reported */
	group->stranded = true;
	memcpy(group->reason, error->message, sizeof(group->reason));
	if (store_put_group(manager->store, group) != 0)
		log_error("database: %s", store_error(manager->store));
	log_warning("job \"%s\" has no other tree: %s", group->name, group->reason);
	tell(group, "no_path", group->reason);
}

static void
move_group(struct manager *manager, struct group *group, const char *why)
{
	const uint16_t n_nodes = group->n_nodes;
	struct group_node *nodes;
	uint32_t *addresses;
	struct control_error error;
	int ret;

	if (group_job(group)->doomed)
		return;
	nodes = calloc(n_nodes + 1u, sizeof(*nodes));
	addresses = calloc(group->size, sizeof(*addresses));
	if (nodes == NULL || addresses == NULL)
		goto free_copies; /* the move is tried again later */
	if (n_nodes > 0)
		memcpy(nodes, group->nodes, n_nodes * sizeof(*nodes));
	memcpy(addresses, group->addresses, group->size * sizeof(*addresses));
	group->failure.code = NULL;
	group->out_of_room = false;
	memset(group->excluded, 0, sizeof(group->excluded));
	ret = move_plan(manager, group, &error);
	if (ret != 0) {
		group_forget_peers(group);
		free(group->nodes);
		free(group->addresses);
		group->nodes = nodes;
		group->n_nodes = n_nodes;
		group->addresses = addresses;
		move_failed(manager, group, &error);
		return;
	}
	log_info("job \"%s\" moves to another tree, root %s: %s", group->name,
		 group->nodes[0].switch_name, why);
	group->ending[0] = '\0';
	/* On switches that are in both trees, the old node has to go before the new one comes. */
	removals_note(manager, group, nodes, n_nodes);
	group->generation++;
	group->moving = true;
	group->attempts = 1;
	group->state = GROUP_INSTALLING;
	if (install_nodes(manager, group, &error) != 0)
		move_failed(manager, group, &error);

free_copies:
	free(nodes);
	free(addresses);
}

/*
 * True if the link that a rank's host uses is down, and another one is up, to which the job can
 * move.
 */
static bool
has_better_link(const struct manager *manager, const struct group *group, uint16_t rank)
{
	const struct topology *topology = &manager->config->topology;
	const struct topology_host *link = group_link_of(group, topology, rank);

	if (link == NULL ||
	    !peer_port_is_down(&manager->peers[link->at.switch_index], link->at.port))
		return false;
	for (link = topology_host_first(link); link != NULL; link = link->next) {
		const struct peer *peer = &manager->peers[link->at.switch_index];

		if (peer->state == PEER_UP && group_has_room(manager, group, peer) &&
		    !peer_port_is_down(peer, link->at.port))
			return true;
	}
	return false;
}

/* True if the group's tree is known to be broken. */
static bool
is_broken(const struct manager *manager, const struct group *group)
{
	char fault[CONTROL_MESSAGE_LEN];

	if (group->n_nodes == 0)
		return true;
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];
		const struct peer *peer;

		if (node->switch_index == TOPOLOGY_NO_SWITCH || node->state != NODE_INSTALLED)
			return true;
		peer = &manager->peers[node->switch_index];
		if (peer->state != PEER_UP)
			return true;
		if (node->parent == TREE_NO_PARENT)
			continue;
		if (node->link != TOPOLOGY_NO_LINK &&
		    fault_of_link(manager, &manager->config->topology.links[node->link], fault))
			return true;
		if (peer_port_is_down(peer, node->port) ||
		    peer_port_is_down(&manager->peers[group->nodes[node->parent].switch_index],
				      node->parent_port))
			return true;
	}
	for (uint16_t i = 0; i < group->size; i++) {
		if (has_better_link(manager, group, i))
			return true;
	}
	return false;
}

/* Ends the state "stranded": what the tree had lost has come back. */
static void
restore(const struct manager *manager, struct group *group)
{
	group->stranded = false;
	group->reason[0] = '\0';
	if (!group_job(group)->doomed)
		group->ending[0] = '\0';
	if (store_put_group(manager->store, group) != 0)
		log_error("database: %s", store_error(manager->store));
	log_info("job \"%s\" has its tree back", group->name);
	tell(group, "restored", "");
}

void
move_tree_if_broken(struct manager *manager, struct group *group, const char *why)
{
	if (is_broken(manager, group))
		move_group(manager, group, why);
	else if (group->stranded)
		restore(manager, group);
}

void
move_if_broken(struct manager *manager, struct group *group, const char *why)
{
	if (group->state == GROUP_NETWORK)
		group_shape_of(group)->mend(manager, group, why);
}

void
move_succeeded(struct manager *manager, struct group *group)
{
	manager->counters.jobs_moved++;
	tell_moved(group);
	move_if_broken(manager, group, "a switch or a link was lost while it moved");
}

void
moves_go_on(struct manager *manager, const char *why)
{
	struct group *group, *next;

	/*
	 * After a start the switches connect one by one: a switch that has not connected yet is not
	 * lost.
	 */
	if (clock_ms() < manager->moves_from_ms)
		return;
	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = next) {
		next = TAILQ_NEXT(group, entry);
		move_if_broken(manager, group, why);
	}
}
