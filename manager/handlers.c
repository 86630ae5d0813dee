/* SPDX-License-Identifier: BSD-3-Clause */
/* See handlers.h. */
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include "manager/handlers.h"

/* The order that a switch reports for a handler whose sums follow wire/order.h. */
#define ORDER_OF_RANKS "ranks"

/* Buffers per block, in a job that does not say how many. */
#define BUFFERS 2

/* A switch's description of a handler, or NULL. */
static const json_t *
find(const struct peer *peer, const char *name)
{
	const json_t *handler;
	size_t i;

	json_array_foreach(peer->handlers, i, handler) {
		const char *found = json_string_value(json_object_get(handler, "name"));

		if (found != NULL && strcmp(found, name) == 0)
			return handler;
	}
	return NULL;
}

/*
 * The first handler that a switch uses for a job which names none, or NULL. On a switch of an older
 * version, a handler that is in order may follow another order than that of ranks: handlers_settle
 * names the switch.
 */
static const char *
usual(const struct peer *peer, bool reproducible)
{
	const json_t *handler;
	size_t i;

	json_array_foreach(peer->handlers, i, handler) {
		if (json_is_true(json_object_get(handler, reproducible ? "in_order" : "default")))
			return json_string_value(json_object_get(handler, "name"));
	}
	return NULL;
}

const char *
handlers_resolve(const struct manager *manager, const char *name, bool reproducible)
{
	if (strcmp(name, HANDLERS_AUTO) != 0)
		return name;
	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++) {
		const char *found = usual(&manager->peers[i], reproducible);

		if (found != NULL)
			return found;
	}
	return name;
}

static int
fail_older(const struct peer *peer, struct control_error *error)
{
	control_fail(error, "invalid",
		     "%s %s does not tell what its handlers need: it is of an older version",
		     topology_kind(peer->about), peer->about->name);
	return -EINVAL;
}

static int
fail_unordered(const struct peer *peer, const struct group *group, struct control_error *error)
{
	const char *name = usual(peer, true);

	control_fail(error, "invalid",
		     "found the handler \"%s\" for a reproducible job, "
		     "expected \"%s\" or \"" HANDLERS_AUTO "\"",
		     group->handler, name == NULL ? "" : name);
	return -EINVAL;
}

/*
 * Checks that a switch's handler combines in the order of ranks. Older versions combine in the
 * order of children, and report no order.
 */
static int
check_order(const struct peer *peer, const struct group *group, const json_t *handler,
	    struct control_error *error)
{
	const char *order = json_string_value(json_object_get(handler, "order"));

	if (!json_is_true(json_object_get(handler, "in_order")))
		return fail_unordered(peer, group, error);
	if (order != NULL && strcmp(order, ORDER_OF_RANKS) == 0)
		return 0;
	if (order == NULL)
		control_fail(
			error, "invalid",
			"a reproducible job: %s %s does not tell that its handler \"%s\" combines in the order of ranks: it is of an older version",
			topology_kind(peer->about), peer->about->name, group->handler);
	else
		control_fail(
			error, "invalid",
			"a reproducible job: %s %s tells that its handler \"%s\" combines in the order \"%.40s\", expected \"" ORDER_OF_RANKS
			"\"",
			topology_kind(peer->about), peer->about->name, group->handler, order);
	return -EINVAL;
}

/* Reads the shape of a switch's handler. Switches that report none have reduction trees only. */
static int
read_shape(const struct peer *peer, const json_t *handler, enum group_shape *shape,
	   struct control_error *error)
{
	const json_t *told = json_object_get(handler, "shape");
	const char *name = json_string_value(told);

	if (told == NULL)
		*shape = GROUP_TREE;
	else if (name == NULL || !shape_find(name, shape)) {
		control_fail(
			error, "invalid",
			"%s %s: the handler \"%s\" has the shape \"%.40s\", expected %s, %s, %s or %s: this manager plans no others",
			topology_kind(peer->about), peer->about->name,
			json_string_value(json_object_get(handler, "name")),
			name == NULL ? "" : name, shape_of(GROUP_TREE)->name,
			shape_of(GROUP_MULTICAST)->name, shape_of(GROUP_SERVER)->name,
			shape_of(GROUP_LEADERS)->name);
		return -EINVAL;
	}
	return 0;
}

int
handlers_find_shape(const struct manager *manager, struct group *group, struct control_error *error)
{
	for (uint16_t i = 0; i < topology_n_peers(&manager->config->topology); i++) {
		const json_t *handler = find(&manager->peers[i], group->handler);

		if (handler != NULL)
			return read_shape(&manager->peers[i], handler, &group->shape, error);
	}
	return 0;
}

int
handlers_check_order(const struct manager *manager, const struct group *group,
		     struct control_error *error)
{
	for (uint16_t i = 0; i < topology_n_peers(&manager->config->topology); i++) {
		const json_t *handler = find(&manager->peers[i], group->handler);

		if (handler == NULL)
			continue;
		if (group->reproducible && !json_is_true(json_object_get(handler, "in_order")))
			return fail_unordered(&manager->peers[i], group, error);
		return 0;
	}
	return 0;
}

int
handlers_check_hosts(const struct group *group, const char *has, struct control_error *error)
{
	const char *found = NULL;

	if (group->size > FANIN_SERVER_RANKS_MAX) {
		control_fail(error, "invalid",
			     "the handler \"%s\" has %s: found %u ranks, expected at most %u",
			     group->handler, has, group->size, FANIN_SERVER_RANKS_MAX);
		return -EINVAL;
	}
	if (group->reproducible)
		found = "reproducible, expected sums in any order";
	else if (group->wide)
		found = "accumulate f32, expected native";
	else if (group->authenticate)
		found = "authenticate, expected packets without tags";
	if (found == NULL)
		return 0;
	control_fail(error, "invalid", "the handler \"%s\" has %s: found %s", group->handler, has,
		     found);
	return -EINVAL;
}

/*
 * True unless the node has no hosts of the job and its switch is not reached: that switch is asked
 * when it comes back.
 */
static bool
is_heard(const struct peer *peer, const struct group_node *node)
{
	return peer->state == PEER_UP || !fanin_ranks_is_empty(&node->local);
}

/* Sets the shape of a job, which must be the same on all its switches. */
static int
settle_shape(const struct manager *manager, struct group *group, struct control_error *error)
{
	const struct peer *first = NULL;

	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct peer *peer = &manager->peers[group->nodes[i].switch_index];
		enum group_shape shape;

		if (!is_heard(peer, &group->nodes[i]))
			continue;
		if (read_shape(peer, find(peer, group->handler), &shape, error) != 0)
			return -EINVAL;
		if (first == NULL) {
			first = peer;
			group->shape = shape;
		}
		if (shape == group->shape)
			continue;
		control_fail(
			error, "invalid",
			"the handler \"%s\" has the shape %s on switch %s, but %s on %s %s: expected one",
			group->handler, shape_of(shape)->name, peer->about->name,
			group_shape_of(group)->name, topology_kind(first->about),
			first->about->name);
		return -EINVAL;
	}
	return 0;
}

int
handlers_settle(const struct manager *manager, struct group *group, struct control_error *error)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct peer *peer = &manager->peers[group->nodes[i].switch_index];
		const json_t *handler;

		if (!is_heard(peer, &group->nodes[i]))
			continue;
		if (strcmp(group->handler, HANDLERS_AUTO) == 0) {
			const char *name = usual(peer, group->reproducible);

			if (name == NULL)
				return fail_older(peer, error);
			snprintf(group->handler, sizeof(group->handler), "%s", name);
		}
		handler = find(peer, group->handler);
		if (handler == NULL) {
			control_fail(
				error, "invalid",
				"%s %s has no handler \"%s\": `faninctl version` lists what it has",
				topology_kind(peer->about), peer->about->name, group->handler);
			return -EINVAL;
		}
		if (!json_is_object(json_object_get(handler, "slot_mbufs")))
			return fail_older(peer, error);
		if (group->reproducible && check_order(peer, group, handler, error) != 0)
			return -EINVAL;
	}
	return settle_shape(manager, group, error);
}

static uint32_t
number(const json_t *object, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(object, key));
}

uint32_t
handlers_slot_mbufs(const struct peer *peer, const char *name, uint32_t n_children,
		    uint32_t n_pairs)
{
	const uint32_t buffers = n_children < BUFFERS ? n_children : BUFFERS;
	const json_t *mbufs = json_object_get(find(peer, name), "slot_mbufs");

	return number(mbufs, "fixed") + number(mbufs, "per_buffer") * buffers +
	       number(mbufs, "per_pair") * n_pairs;
}

bool
handlers_has(const struct peer *peer, const char *name)
{
	return find(peer, name) != NULL;
}

json_t *
handlers_list_parameters(const struct peer *peer, const char *name, const json_t *values)
{
	const json_t *declared = json_object_get(find(peer, name), "parameters");
	const json_t *parameter;
	json_t *list = json_array();
	size_t i;

	json_array_foreach(declared, i, parameter) {
		const char *key = json_string_value(json_object_get(parameter, "name"));
		const json_t *value = key == NULL ? NULL : json_object_get(values, key);

		json_array_append_new(list, json_integer(json_integer_value(value)));
	}
	return list;
}

bool
handlers_shape_is(const struct manager *manager, const char *name, enum group_shape shape)
{
	for (uint16_t i = 0; i < topology_n_peers(&manager->config->topology); i++) {
		const struct peer *peer = &manager->peers[i];
		const json_t *handler = find(peer, name);
		struct control_error ignored;
		enum group_shape found;

		if (handler != NULL)
			return read_shape(peer, handler, &found, &ignored) == 0 && found == shape;
	}
	return false;
}
