/* SPDX-License-Identifier: BSD-3-Clause */
/* See slots.h. */
#include "manager/slots.h"

#include <errno.h>

#include "manager/handlers.h"
#include "manager/manager.h"
#include "wire/order.h"

/* What is below a switch of the job. */
struct below {
	uint32_t n_children;
	uint32_t n_pairs; /* as fanin_order_build counts them */
};

static uint32_t
count_children(const struct group *group, uint16_t node)
{
	uint32_t n = fanin_ranks_count(&group->nodes[node].local);

	for (uint16_t i = 1; i < group->n_nodes; i++)
		n += group->nodes[i].parent == node;
	return n;
}

/* The children of a node, of which there are no more than a switch may have. */
static struct below
list_children(const struct group *group, uint16_t node)
{
	uint16_t first[FANIN_WIRE_MAX_CHILDREN];
	struct below below = { 0 };
	unsigned int rank;

	FANIN_RANKS_EACH(rank, &group->nodes[node].local)
	first[below.n_children++] = (uint16_t)rank;
	for (uint16_t i = 1; i < group->n_nodes; i++) {
		if (group->nodes[i].parent == node)
			first[below.n_children++] =
				(uint16_t)fanin_ranks_lowest(&group->nodes[i].ranks);
	}
	below.n_pairs = fanin_order_build(NULL, first, below.n_children);
	return below;
}

static int
check_children(const struct manager *manager, const struct group *group, struct control_error *error)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const uint32_t n_children = count_children(group, i);

		if (n_children <= FANIN_WIRE_MAX_CHILDREN)
			continue;
		control_fail(error, "no_room",
			     "switch %s would have %u hosts and switches of the job below it, expected at most %u",
			     manager->peers[group->nodes[i].switch_index].about->name, n_children,
			     FANIN_WIRE_MAX_CHILDREN);
		return -ENOSPC;
	}
	return 0;
}

/* The hosts of the job that have a link to each switch. */
static void
count_takers(const struct manager *manager, const struct group *group, uint16_t *takers)
{
	for (uint16_t rank = 0; rank < group->size; rank++) {
		const struct topology_host *link = group_host_of(group, &manager->config->topology,
								 rank);

		for (link = link == NULL ? NULL : topology_host_first(link); link != NULL;
		     link = link->next)
			takers[link->at.switch_index]++;
	}
}

/* True if an earlier link of the topology connects the same two switches. */
static bool
is_parallel(const struct topology *topology, uint16_t index)
{
	const struct topology_end *ends = topology->links[index].ends;

	for (uint16_t i = 0; i < index; i++) {
		const struct topology_end *others = topology->links[i].ends;
		const unsigned int same = others[0].switch_index != ends[0].switch_index;

		if (others[same].switch_index == ends[0].switch_index &&
		    others[1 - same].switch_index == ends[1].switch_index)
			return true;
	}
	return false;
}

/*
 * The most children that a switch may have once the job has moved: the hosts with a link to it, and the switches beside it that such
 * hosts have links to.
 */
static uint32_t
most_children(const struct manager *manager, const struct group *group)
{
	const struct topology *topology = &manager->config->topology;
	uint16_t takers[TREE_MAX_SWITCHES] = { 0 };
	uint16_t beside[TREE_MAX_SWITCHES] = { 0 };
	uint32_t most = 0;

	count_takers(manager, group, takers);
	for (uint16_t i = 0; i < topology->n_links; i++) {
		const uint16_t a = topology->links[i].ends[0].switch_index;
		const uint16_t b = topology->links[i].ends[1].switch_index;

		if (is_parallel(topology, i))
			continue;
		beside[a] = (uint16_t)(beside[a] + (takers[b] != 0));
		beside[b] = (uint16_t)(beside[b] + (takers[a] != 0));
	}
	for (uint16_t i = 0; i < topology->n_switches; i++) {
		const uint32_t n = takers[i] + beside[i];

		most = n > most ? n : most;
	}
	most = most > group->size ? group->size : most;
	return most > FANIN_WIRE_MAX_CHILDREN ? FANIN_WIRE_MAX_CHILDREN : most;
}

/* The most that a switch gives: a slot of some handlers holds several packets. */
static uint32_t
most_slots(const struct peer *peer, const struct group *group, const struct below *below,
	   uint32_t n_moved)
{
	const uint32_t n_children = below->n_children > n_moved ? below->n_children : n_moved;
	const uint32_t n_pairs = (n_moved + 1) / 2;
	uint32_t packets = handlers_slot_mbufs(peer, group->handler, n_children,
					       below->n_pairs > n_pairs ? below->n_pairs : n_pairs);

	/* A switch that is lost and comes back as another build may have no such handler any more. */
	packets = peer->mbufs_per_job / (packets == 0 ? 1 : packets);
	return packets < peer->slots_per_job ? packets : peer->slots_per_job;
}

int
slots_choose(const struct manager *manager, struct group *group, struct control_error *error)
{
	const uint32_t n_moved = group->shape == GROUP_TREE ? most_children(manager, group) : 0;
	uint32_t slots = UINT32_MAX;

	if (check_children(manager, group, error) != 0)
		return -ENOSPC;
	if (!group_has_slots(group)) {
		group->slots = 0;
		return 0;
	}
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct peer *peer = &manager->peers[group->nodes[i].switch_index];
		const struct below below = list_children(group, i);
		uint32_t most;

		if (group_has_leaders(group) && peer->state != PEER_UP)
			continue; /* the window may be larger than what it has */
		most = most_slots(peer, group, &below, n_moved);
		slots = most < slots ? most : slots;
	}
	if (slots < 2) {
		control_fail(error, "no_room",
			     "the switches have fewer than 2 slots for a job with the handler \"%s\"",
			     group->handler);
		return -ENOSPC;
	}
	group->slots = 1u << (31 - (unsigned int)__builtin_clz(slots));
	return 0;
}
