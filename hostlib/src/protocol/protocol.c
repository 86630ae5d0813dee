/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of protocols in this build. They add themselves before main; from then on it is constant and any thread may read it.
 */
#include "protocol.h"

#include <assert.h>
#include <stdio.h>
#include <string.h>

static struct fanin_protocol *first;

static bool
names_handler(const struct fanin_protocol *protocol, const char *handler)
{
	for (const char *const *name = protocol->handlers; *name != NULL; name++) {
		if (strcmp(*name, handler) == 0)
			return true;
	}
	return false;
}

void
fanin_protocol_register(struct fanin_protocol *protocol)
{
	for (const struct fanin_protocol *other = first; other != NULL; other = other->next) {
		assert(strcmp(other->name, protocol->name) != 0);
		assert(!(other->is_usual && protocol->is_usual));
		for (const char *const *name = protocol->handlers; *name != NULL; name++)
			assert(!names_handler(other, *name));
	}
	protocol->next = first;
	first = protocol;
}

const struct fanin_protocol *
fanin_protocol_of(const char *handler, char *reason, size_t reason_len)
{
	const struct fanin_protocol *usual = NULL;

	for (const struct fanin_protocol *protocol = first; protocol != NULL;
	     protocol = protocol->next) {
		if (names_handler(protocol, handler)) {
			snprintf(reason, reason_len, "the job's handler is %s", handler);
			return protocol;
		}
		if (protocol->is_usual)
			usual = protocol;
	}
	assert(usual != NULL);
	snprintf(reason, reason_len,
		 "the job's handler is %s, which no protocol names: this is the usual one", handler);
	return usual;
}

int
fanin_protocol_on_switch(uint32_t job, const char *handler, bool multicast,
			 const struct fanin_protocol **protocol, char *reason, size_t reason_len,
			 struct fanin_error *error)
{
	char why[FANIN_TEXT_LEN];
	const struct fanin_protocol *found = fanin_protocol_of(handler, why, sizeof(why));

	if (found->on_switch == NULL)
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "job %u has the handler %s, whose protocol %s runs without a switch",
				       job, handler, found->name);
	/* The usual one is for handlers that reduce. */
	if (multicast && found->is_usual)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"job %u is a multicast job: its handler %s sends packets of each rank to all others and "
			"reduces nothing. Collectives need a job whose handler reduces, as single does, or a "
			"protocol for the handler %s, which this library has not",
			job, handler, handler);
	*protocol = found;
	snprintf(reason, reason_len, "%s", why);
	return FANIN_OK;
}
