/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of handlers in this build, in the order of their names. Handlers register themselves
 * before main; from then on the list is constant and any thread may read it.
 */
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "handlers/handler.h"

/* Maximum characters of a name: JOIN_ACK has room for the name and a zero. */
#define HANDLER_NAME_MAX (sizeof(((struct fanin_join_ack_body *)NULL)->handler) - 1)

static struct fanin_handler *first;

static const char *
problem_of_lists(const struct fanin_handler *candidate)
{
	size_t n = 0;

	while (candidate->counters != NULL && candidate->counters[n].name != NULL)
		n++;
	if (n > FANIN_OWN_COUNTERS_MAX)
		return "it has more counters than FANIN_OWN_COUNTERS_MAX";
	for (n = 0; candidate->parameters != NULL && candidate->parameters[n].name != NULL; n++) {
		const struct fanin_parameter *parameter = &candidate->parameters[n];

		if (parameter->least > parameter->usual || parameter->usual > parameter->most ||
		    parameter->most > INT64_MAX)
			return "a parameter's usual value is not within its bounds, or these not within INT64_MAX";
	}
	if (n > FANIN_PARAMETERS_MAX)
		return "it has more parameters than FANIN_PARAMETERS_MAX";
	return NULL;
}

const char *
fanin_handler_problem(const struct fanin_handler *candidate)
{
	const bool has_slots = candidate->slots_of != FANIN_SLOTS_NONE;

	if (candidate->name == NULL || candidate->name[0] == '\0' ||
	    strlen(candidate->name) > HANDLER_NAME_MAX)
		return "its name is missing or has more than 15 characters";
	if (fanin_handler_find(candidate->name) != NULL)
		return "the name is another handler's";
	if (candidate->description == NULL || candidate->contribution == NULL)
		return "description or contribution is missing";
	if ((candidate->types != NULL) != (candidate->other != NULL))
		return "it has one of types and other, expected both or none";
	if ((candidate->values != NULL) != (candidate->tell != NULL))
		return "it has one of values and tell, expected both or none";
	if ((candidate->timeout_ns != NULL) != (candidate->expired != NULL))
		return "it has one of timeout_ns and expired, expected both or none";
	if (has_slots != (fanin_slot_mbufs(candidate, 1, 1, 1) != 0))
		return "slot_mbufs is not what slots_of says: expected 1 at least where there are slots, else 0";
	if (has_slots != ((candidate->slot_bytes != 0) != (candidate->slot_size != NULL)) ||
	    has_slots != (candidate->slot_release != NULL))
		return "slot_bytes or slot_size, and slot_release are not what slots_of says: expected one of the first two and the last where there are slots";
	if (candidate->state_bytes != 0 && candidate->state_size != NULL)
		return "it has both state_bytes and state_size, expected one or none";
	if (!has_slots && candidate->peek != NULL)
		return "it has peek, but no slots";
	return problem_of_lists(candidate);
}

void
fanin_handler_register(struct fanin_handler *handler)
{
	const char *problem = fanin_handler_problem(handler);
	struct fanin_handler **link = &first;
	char owner[sizeof("handler ") + HANDLER_NAME_MAX];

	if (problem != NULL) {
		fprintf(stderr, "handler %s: %s\n",
			handler->name == NULL ? "without a name" : handler->name, problem);
		abort();
	}
	snprintf(owner, sizeof(owner), "handler %s", handler->name);
	fanin_wire_require_types(owner, handler->packets);
	while (*link != NULL && strcmp((*link)->name, handler->name) < 0)
		link = &(*link)->next;
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
