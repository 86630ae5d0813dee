/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of handlers in this build, in the order of their names. Handlers add themselves before main; from then on it is
 * constant and any thread may read it.
 */
#include <assert.h>
#include <string.h>

#include "handlers/handler.h"

static struct fanin_handler *first;

static void
assert_lists_fit(const struct fanin_handler *handler)
{
	size_t n = 0;

	assert((handler->slots_of == FANIN_SLOTS_NONE) == (fanin_slot_mbufs(handler, 1, 1) == 0));
	assert(handler->slots_of != FANIN_SLOTS_NONE || handler->peek == NULL);
	while (handler->counters != NULL && handler->counters[n].name != NULL)
		n++;
	assert(n <= FANIN_OWN_COUNTERS_MAX);
	for (n = 0; handler->parameters != NULL && handler->parameters[n].name != NULL; n++) {
		const struct fanin_parameter *parameter = &handler->parameters[n];

		assert(parameter->least <= parameter->usual &&
		       parameter->usual <= parameter->most && parameter->most <= INT64_MAX);
		(void)parameter;
	}
	assert(n <= FANIN_PARAMETERS_MAX);
}

void
fanin_handler_register(struct fanin_handler *handler)
{
	struct fanin_handler **link = &first;

	while (*link != NULL && strcmp((*link)->name, handler->name) < 0)
		link = &(*link)->next;
	assert(*link == NULL || strcmp((*link)->name, handler->name) != 0);
	assert_lists_fit(handler);
	for (const uint8_t *type = handler->types; type != NULL && *type != 0; type++)
		handler->takes[*type / 64] |= UINT64_C(1) << (*type % 64);
	handler->next = *link;
	*link = handler;
}

const struct fanin_handler *
fanin_handler_find(const char *name)
{
	const struct fanin_handler *handler = first;

	while (handler != NULL && strcmp(handler->name, name) != 0)
		handler = handler->next;
	return handler;
}

const struct fanin_handler *
fanin_handler_choose(const struct fanin_choice *choice, bool reproducible, uint32_t *buffers)
{
	const struct fanin_handler *handler = first;

	while (handler != NULL &&
	       !(reproducible ? handler->in_order
			      : handler->suits != NULL && handler->suits(choice, buffers)))
		handler = handler->next;
	return handler;
}

const struct fanin_handler *
fanin_handler_first(void)
{
	return first;
}

unsigned int
fanin_handlers_that_share(void)
{
	unsigned int n = 0;

	for (const struct fanin_handler *handler = first; handler != NULL; handler = handler->next)
		n += handler->slots_of == FANIN_SLOTS_SHARED;
	return n;
}
