/* SPDX-License-Identifier: BSD-3-Clause */
/* See handlers.h. */
#include <string.h>

#include "manager/handlers.h"

/* Per block, of a job that does not say how many. */
#define BUFFERS 2

/* The first handler of a switch of which a property holds, or NULL. */
static const char *
find(const struct peer *peer, const char *property)
{
	const json_t *handler;
	size_t i;

	json_array_foreach(peer->handlers, i, handler) {
		if (json_is_true(json_object_get(handler, property)))
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
		const char *found = find(&manager->peers[i], reproducible ? "in_order" : "default");

		if (found != NULL)
			return found;
	}
	return name;
}

static uint32_t
number(const json_t *object, const char *key)
{
	return (uint32_t)json_integer_value(json_object_get(object, key));
}

uint32_t
handlers_slot_mbufs(const struct peer *peer, const char *name, uint32_t n_children)
{
	const uint32_t buffers = n_children < BUFFERS ? n_children : BUFFERS;
	const json_t *handler;
	size_t i;

	json_array_foreach(peer->handlers, i, handler) {
		const char *found = json_string_value(json_object_get(handler, "name"));
		const json_t *mbufs = json_object_get(handler, "slot_mbufs");
		uint32_t n;

		if (found == NULL || strcmp(found, name) != 0)
			continue;
		n = number(mbufs, "fixed") + number(mbufs, "per_buffer") * buffers +
		    number(mbufs, "per_pair") * ((n_children + 1) / 2);
		return n == 0 ? 1 : n;
	}
	return 0;
}
