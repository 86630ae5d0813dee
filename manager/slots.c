/* SPDX-License-Identifier: BSD-3-Clause */
/* See slots.h. */
#include "manager/slots.h"

#include <errno.h>
#include <stdlib.h>

#include "manager/handlers.h"
#include "manager/manager.h"
#include "manager/spread.h"
#include "wire/order.h"

static uint32_t
count_children(const struct group *group, uint16_t node)
{
	uint32_t n = fanin_ranks_count(&group->nodes[node].local);

	for (uint16_t i = 1; i < group->n_nodes; i++)
		n += group->nodes[i].parent == node;
	return n;
}

/* Counts the children of a node, which are no more than a switch may have. */
static struct spread_below
list_children(const struct group *group, uint16_t node)
{
	uint16_t first[FANIN_WIRE_MAX_CHILDREN];
	struct spread_below below = { 0 };
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
check_children(const struct manager *manager, const struct group *group,
	       struct control_error *error)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const uint32_t n_children = count_children(group, i);

		if (n_children <= FANIN_WIRE_MAX_CHILDREN)
			continue;
		control_fail(
			error, "no_room",
			"switch %s would have %u hosts and switches of the job below it, expected at most %u",
			manager->peers[group->nodes[i].switch_index].about->name, n_children,
			FANIN_WIRE_MAX_CHILDREN);
		return -ENOSPC;
	}
	return 0;
}

static void
list_places(const struct manager *manager, const struct group *group, struct spread *spread)
{
	for (uint16_t rank = 0; rank < group->size; rank++) {
		const struct topology_host *link = group_host_of(group, &manager->config->topology,
								 rank);

		for (link = link == NULL ? NULL : topology_host_first(link); link != NULL;
		     link = link->next)
			spread_add_place(spread, rank, link->at.switch_index);
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

static void
list_links(const struct topology *topology, struct spread *spread)
{
	for (uint16_t i = 0; i < topology->n_links; i++) {
		if (!is_parallel(topology, i))
			spread_add_link(spread, topology->links[i].ends[0].switch_index,
					topology->links[i].ends[1].switch_index);
	}
}

/*
 * Sets the most that may be below any switch once the job has moved. Returns false without memory.
 */
static bool
max_moved(const struct manager *manager, const struct group *group, struct spread_below *most)
{
	const struct topology *topology = &manager->config->topology;
	struct spread *spread = malloc(sizeof(*spread));

	if (spread == NULL)
		return false;
	spread_begin(spread, topology->n_switches, group->size, group_keeps_order(group));
	list_places(manager, group, spread);
	list_links(topology, spread);
	*most = spread_max(spread);
	free(spread);
	return true;
}

/*
 * Returns the most slots that a switch gives to a job: slots of some handlers hold several packets.
 * moved: the most that may be below a switch later.
 */
static uint32_t
max_slots(const struct peer *peer, const struct group *group, const struct spread_below *below,
	  const struct spread_below *moved)
{
	const uint32_t n_children = below->n_children > moved->n_children ? below->n_children
									  : moved->n_children;
	const uint32_t n_pairs = below->n_pairs > moved->n_pairs ? below->n_pairs : moved->n_pairs;
	uint32_t packets = handlers_slot_mbufs(peer, group->handler, n_children, n_pairs);

	/* A switch that restarts with another build may lack the handler: count one packet. */
	packets = peer->mbufs_per_job / (packets == 0 ? 1 : packets);
	return packets < peer->slots_per_job ? packets : peer->slots_per_job;
}

int
slots_choose(const struct manager *manager, struct group *group, struct control_error *error)
{
	struct spread_below moved = { 0 };
	uint32_t slots = UINT32_MAX;

	if (check_children(manager, group, error) != 0)
		return -ENOSPC;
	if (!group_shape_of(group)->has_slots) {
		group->slots = 0;
		return 0;
	}
	if (group->shape == GROUP_TREE && !max_moved(manager, group, &moved)) {
		control_fail(error, "internal", "out of memory");
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct peer *peer = &manager->peers[group->nodes[i].switch_index];
		const struct spread_below below = list_children(group, i);
		uint32_t most;

		if (!group_shape_of(group)->has_tree && peer->state != PEER_UP)
			continue; /* the window may be larger than this switch's slots */
		most = max_slots(peer, group, &below, &moved);
		slots = most < slots ? most : slots;
	}
	if (slots < 2) {
		control_fail(
			error, "no_room",
			"the switches have fewer than 2 slots for a job with the handler \"%s\"",
			group->handler);
		return -ENOSPC;
	}
	group->slots = 1u << (31 - (unsigned int)__builtin_clz(slots));
	return 0;
}
