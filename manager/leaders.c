/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Jobs whose blocks have leaders (Canary sections 3 and 4). Packets take any path that the
 * switches' routes choose, so the job runs on every switch that may be on a path. A switch or link
 * that fails loses packets, which hosts detect and retransmit: the job neither moves nor ends. A
 * switch that lacks the job routes its packets like any others, and gets the job as soon as it can.
 * Main thread only.
 */
#include "manager/leaders.h"

#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "control/log.h"
#include "manager/faults.h"
#include "manager/handlers.h"
#include "manager/install.h"
#include "manager/plan.h"
#include "manager/reconcile.h"

static int
check(const struct manager *manager, const struct group *group, struct control_error *error)
{
	(void)manager;
	if (handlers_check_hosts(group, "a leader for each block", error) != 0)
		return -EINVAL;
	if (group->trees_asked <= 1)
		return 0;
	control_fail(
		error, "invalid",
		"the handler \"%s\" has a leader for each block: found trees %u, expected 1, as each of its packets chooses its own path",
		group->handler, group->trees_asked);
	return -EINVAL;
}

/* Returns a link's end at a switch, or NULL if the link does not lead to another switch. */
static const struct topology_end *
end_at(const struct topology_link *link, uint16_t switch_index)
{
	if (link->ends[0].switch_index == link->ends[1].switch_index)
		return NULL;
	for (unsigned int k = 0; k < 2; k++) {
		if (link->ends[k].switch_index == switch_index)
			return &link->ends[k];
	}
	return NULL;
}

/* Marks all switches that links connect with `from`, whatever the links' state. */
static void
mark_connected(const struct topology *topology, uint16_t from, bool *connected)
{
	bool more = true;

	connected[from] = true;
	while (more) {
		more = false;
		for (uint16_t i = 0; i < topology->n_links; i++) {
			const uint16_t a = topology->links[i].ends[0].switch_index;
			const uint16_t b = topology->links[i].ends[1].switch_index;

			if (connected[a] == connected[b])
				continue;
			connected[a] = connected[b] = true;
			more = true;
		}
	}
}

/* The ranks at a switch. */
static struct fanin_ranks
ranks_at(const struct tree *tree, uint16_t switch_index)
{
	for (uint16_t i = 0; i < tree->n_nodes; i++) {
		if (tree->nodes[i].switch_index == switch_index)
			return tree->nodes[i].local;
	}
	return (struct fanin_ranks){ 0 };
}

/*
 * True if all ranks are at one switch and no host has a link to another one: no other switch sees
 * the job's packets.
 */
static bool
needs_one_switch(const struct manager *manager, const struct group *group, const struct tree *tree)
{
	if (fanin_ranks_count(&tree->nodes[0].local) != group->size)
		return false;
	for (uint16_t rank = 0; rank < group->size; rank++) {
		const struct topology_host *host = group_host_of(group, &manager->config->topology,
								 rank);

		if (host != NULL && topology_host_first(host)->next != NULL)
			return false;
	}
	return true;
}

/*
 * Makes a node of every switch that the topology's links connect with the job's hosts, whatever the
 * switches' state. Lost switches get the job when they come back, full ones when they have room.
 * Only switches with hosts of the job must have it now.
 */
static struct group_node *
make_nodes(const struct manager *manager, const struct group *group, const struct tree *tree,
	   uint16_t *n_nodes)
{
	const struct topology *topology = &manager->config->topology;
	const uint16_t first = tree->nodes[0].switch_index;
	bool connected[TREE_MAX_NODES] = { false };
	struct group_node *made = calloc(topology->n_switches, sizeof(*made));
	uint16_t n = 0;

	if (made == NULL)
		return NULL;
	if (needs_one_switch(manager, group, tree))
		connected[first] = true;
	else
		mark_connected(topology, first, connected);
	for (uint16_t i = 0; i < topology->n_switches; i++) {
		const struct peer *peer = &manager->peers[i];
		struct group_node *node = &made[n];

		node->local = ranks_at(tree, i);
		/*
		 * Skip a switch whose handlers exclude the job for good, unless the job has hosts
		 * there: then the job is refused.
		 */
		if (!connected[i] ||
		    (peer->state == PEER_UP && fanin_ranks_is_empty(&node->local) &&
		     !handlers_has(peer, group->handler)))
			continue;
		node->switch_index = i;
		node->parent = TREE_NO_PARENT;
		node->link = TOPOLOGY_NO_LINK;
		node->ranks = node->local;
		node->udp_port = peer->udp_port;
		memcpy(node->ip, peer->ip, sizeof(node->ip));
		memccpy(node->switch_name, topology->switches[i].name, '\0',
			sizeof(node->switch_name) - 1);
		if (peer->state == PEER_UP && !group_has_room(manager, group, peer))
			node->state = NODE_REFUSED;
		n++;
	}
	*n_nodes = n;
	return made;
}

const char *
leaders_port(const struct manager *manager, const struct group *group,
	     const struct group_node *node, uint16_t link)
{
	const struct topology_link *found = &manager->config->topology.links[link];
	const struct topology_end *end = end_at(found, node->switch_index);
	char fault[CONTROL_MESSAGE_LEN];

	/*
	 * Links that are down count too, since they may come up. The switch behind the link need
	 * not have the job: it passes packets on either way.
	 */
	if (group->n_nodes == 1 || end == NULL || fault_of_link(manager, found, fault))
		return NULL;
	return peer_port_of(manager, end);
}

json_t *
leaders_list_ports(const struct manager *manager, const struct group *group,
		   const struct group_node *node)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < manager->config->topology.n_links; i++) {
		const char *port = leaders_port(manager, group, node, i);

		if (port != NULL)
			json_array_append_new(list, json_string(port));
	}
	return list;
}

/*
 * Adds the hosts whose second link, not the one that they were told to use first, is at this node.
 */
static void
add_second_links(const struct manager *manager, const struct group *group,
		 const struct group_node *node, json_t *list)
{
	for (uint16_t rank = 0; rank < group->size; rank++) {
		const struct topology_host *link =
			group_second_link_of(group, &manager->config->topology, rank);

		if (link != NULL && link->at.switch_index == node->switch_index)
			plan_add_host(list, link, rank);
	}
}

/*
 * Adds the hosts' second links and, in place of a tree, the switch's ports to other switches. Empty
 * lists are left out: a switch refuses them.
 */
static void
add_args(const struct manager *manager, const struct group *group, const struct group_node *node,
	 json_t *args)
{
	json_t *links = leaders_list_ports(manager, group, node);

	add_second_links(manager, group, node, json_object_get(args, "members"));
	if (json_array_size(links) > 0)
		json_object_set(args, "links", links);
	json_decref(links);
	if (json_array_size(json_object_get(args, "members")) == 0)
		json_object_del(args, "members");
}

/* Notes what a host would learn by joining its first switch: these hosts join no switch. */
static void
note_created(struct group *group, const struct peer *peer, const json_t *result)
{
	const uint32_t slots = (uint32_t)json_integer_value(json_object_get(result, "pool_slots"));
	const uint32_t sharing = (uint32_t)json_integer_value(json_object_get(result, "sharing"));

	if (slots != 0 && (group->pool_slots == 0 || slots < group->pool_slots))
		group->pool_slots = slots;
	if (sharing > group->sharing)
		group->sharing = sharing;
	if (group->parameters == NULL)
		group->parameters = handlers_list_parameters(peer, group->handler,
							     json_object_get(result, "parameters"));
}

/* Adds what a switch would tell a host that joins it. */
static void
add_answer(const struct group *group, json_t *result)
{
	json_t *slots = json_pack("{s:I, s:I}", "slots", (json_int_t)group->pool_slots, "sharing",
				  (json_int_t)group->sharing);

	if (group->parameters != NULL)
		json_object_set(slots, "parameters", group->parameters);
	json_object_update_new(result, slots);
}

/*
 * The job can begin without a switch that has none of its hosts: packets pass through the switch
 * all the same.
 */
static bool
can_spare(const struct group *group, struct group_node *node, const char *code)
{
	const bool lost = strcmp(code, "lost") == 0;

	if (!fanin_ranks_is_empty(&node->local) || (!lost && strcmp(code, "no_room") != 0))
		return false;
	/* A lost switch may have created the job. */
	node->state = lost ? NODE_MISSING : NODE_REFUSED;
	log_info("job \"%s\" begins without switch %s, which %s", group->name, node->switch_name,
		 lost ? "is lost" : "has no room");
	return true;
}

static struct group_node *
find_node(const struct manager *manager, uint32_t job, uint16_t switch_index, struct group **found)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->id != job)
			continue;
		for (uint16_t i = 0; i < group->n_nodes; i++) {
			if (group->nodes[i].switch_index != switch_index)
				continue;
			*found = group;
			return &group->nodes[i];
		}
	}
	return NULL;
}

/*
 * Handles a switch's answer to jobs.create for a group that runs. If the group has ended in the
 * meantime, the job is removed from that switch, too.
 */
static void
created(void *user, uint32_t job, struct peer *peer, const json_t *result, const char *code,
	const char *message)
{
	struct manager *manager = user;
	struct group *group = NULL;
	struct group_node *node = find_node(manager, job, peer->index, &group);

	if (node == NULL || node->state != NODE_ASKED)
		return;
	if (result != NULL) {
		node->state = NODE_INSTALLED;
		group->reason[0] = '\0';
		peer->jobs++;
		log_info("job \"%s\", number %u, is on switch %s, too", group->name, group->id,
			 node->switch_name);
		return;
	}
	node->state = strcmp(code, "lost") == 0 ? NODE_MISSING : NODE_REFUSED;
	/* The request is repeated whenever something changes. */
	if (node->state == NODE_REFUSED && strstr(group->reason, message) == NULL) {
		snprintf(group->reason, sizeof(group->reason), "switch %s: %.400s",
			 node->switch_name, message);
		log_warning("job \"%s\" runs without switch %s: %s", group->name, node->switch_name,
			    message);
	}
}

/* True if a switch lacks a group's job and can be asked to create it. */
static bool
may_ask(const struct manager *manager, const struct group *group, const struct group_node *node)
{
	const struct peer *peer;

	if (node->switch_index == TOPOLOGY_NO_SWITCH || node->state == NODE_INSTALLED ||
	    node->state == NODE_ASKED)
		return false;
	peer = &manager->peers[node->switch_index];
	return peer->state == PEER_UP && handlers_has(peer, group->handler) &&
	       peer->jobs < peer->max_jobs &&
	       removal_find(manager, node->switch_name, group->id) == NULL;
}

/* Asks the switches that lack the job of a running group to create it, where they can. */
static void
mend(struct manager *manager, struct group *group, const char *why)
{
	enum node_state before[TREE_MAX_NODES];
	bool asked = false;

	(void)why;
	if (group->doomed)
		return;
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		before[i] = group->nodes[i].state;
		if (!may_ask(manager, group, &group->nodes[i]))
			continue;
		group->nodes[i].state = NODE_ASKED;
		asked = true;
	}
	if (!asked)
		return;
	/* Record in the database what the switches are about to be asked for, before asking. */
	if (store_put_group(manager->store, group) != 0) {
		log_error("database: %s", store_error(manager->store));
		for (uint16_t i = 0; i < group->n_nodes; i++)
			group->nodes[i].state = before[i];
		return;
	}
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		struct group_node *node = &group->nodes[i];
		struct peer *peer;

		if (node->state == before[i])
			continue;
		peer = &manager->peers[node->switch_index];
		memcpy(node->ip, peer->ip, sizeof(node->ip));
		node->udp_port = peer->udp_port;
		if (peer_ask(peer, "jobs.create", plan_create_args(manager, group, i), created,
			     manager, group->id) != 0)
			node->state = before[i];
	}
}

const struct shape leaders_shape = {
	.name = "leaders",
	.has_slots = true,
	.tells_peers = true,
	.check = check,
	.make_nodes = make_nodes,
	.add_args = add_args,
	.note_created = note_created,
	.add_answer = add_answer,
	.can_spare = can_spare,
	.mend = mend,
};
