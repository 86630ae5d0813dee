/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The list of protocols in this build. They register themselves before main; from then on the list
 * is constant, and any thread may read it.
 */
#include "protocol.h"

#include <assert.h>
#include <stdio.h>
#include <stdlib.h>
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

/* True if a protocol on switches has either all functions of each group or none. */
static bool
groups_are_whole(const struct fanin_switch_ops *ops)
{
	const unsigned int splits = (ops->cut != NULL) + (ops->accepts != NULL);
	const unsigned int recovers = (ops->run_lost != NULL) + (ops->suspect_run != NULL) +
				      (ops->note_rejoin != NULL) + (ops->progress != NULL) +
				      (ops->resume != NULL) + (ops->move != NULL) +
				      (ops->redirect != NULL) + (ops->hint != NULL);

	/*
	 * `abort` belongs to both groups: it ends requests in other trees, and runs that can't be
	 * resumed. It may also be there alone, for jobs that the manager ends.
	 */
	return (splits == 0 || splits == 2) && (recovers == 0 || recovers == 8) &&
	       (recovers == 0 || ops->peers_may_need_results != NULL) &&
	       (ops->abort != NULL || (splits == 0 && recovers == 0));
}

const char *
fanin_protocol_problem(const struct fanin_protocol *candidate)
{
	if (candidate->name == NULL || candidate->name[0] == '\0' || candidate->handlers == NULL)
		return "its name or its handlers are missing";
	if (candidate->open == NULL || candidate->close == NULL || candidate->post == NULL ||
	    candidate->poll == NULL || candidate->idle_ns == NULL || candidate->poll_fds == NULL ||
	    candidate->error == NULL || candidate->missing == NULL || candidate->report == NULL)
		return "one of open, close, post, poll, idle_ns, poll_fds, error, missing and report is missing";
	if (candidate->on_switch != NULL && !groups_are_whole(candidate->on_switch))
		return "of on_switch one of the groups has some functions only, expected all or none";
	for (const struct fanin_protocol *other = first; other != NULL; other = other->next) {
		if (strcmp(other->name, candidate->name) == 0)
			return "the name is another protocol's";
		if (other->is_usual && candidate->is_usual)
			return "another protocol is the usual one";
		if (other->beside != FANIN_BESIDE_NONE && other->beside == candidate->beside)
			return "another protocol is for the same use beside a communicator";
		for (const char *const *name = candidate->handlers; *name != NULL; name++) {
			if (names_handler(other, *name))
				return "another protocol runs the jobs of one of its handlers";
		}
	}
	return NULL;
}

void
fanin_protocol_register(struct fanin_protocol *protocol)
{
	const char *problem = fanin_protocol_problem(protocol);
	char owner[64];

	if (problem != NULL) {
		fprintf(stderr, "protocol %s: %s\n",
			protocol->name == NULL ? "without a name" : protocol->name, problem);
		abort();
	}
	snprintf(owner, sizeof(owner), "protocol %s", protocol->name);
	fanin_wire_require_types(owner, protocol->packets);
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
		 "the job's handler is %s, which no protocol names: this is the usual one",
		 handler);
	return usual;
}

const struct fanin_protocol *
fanin_protocol_beside(enum fanin_beside_use use)
{
	const struct fanin_protocol *protocol = first;

	while (protocol != NULL && protocol->beside != use)
		protocol = protocol->next;
	return protocol;
}

int
fanin_protocol_on_switch(uint32_t job, const char *handler, bool multicast,
			 const struct fanin_protocol **protocol, char *reason, size_t reason_len,
			 struct fanin_error *error)
{
	char why[FANIN_TEXT_LEN];
	const struct fanin_protocol *found = fanin_protocol_of(handler, why, sizeof(why));

	if (found->on_switch == NULL)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"job %u has the handler %s, whose protocol %s runs without a switch", job,
			handler, found->name);
	if (found->has_leaders)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"job %u has the handler %s and is joined at a switch, but in its protocol %s hosts lead blocks and join none",
			job, handler, found->name);
	/* The default protocol is for handlers that reduce. */
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

int
fanin_protocol_with_leaders(uint32_t job, const char *handler,
			    const struct fanin_protocol **protocol, char *reason, size_t reason_len,
			    struct fanin_error *error)
{
	char why[FANIN_TEXT_LEN];
	const struct fanin_protocol *found = fanin_protocol_of(handler, why, sizeof(why));

	if (!found->has_leaders)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"job %u has the handler %s, whose hosts lead blocks: this library has no protocol that does so for it, and %s joins a switch",
			job, handler, found->name);
	*protocol = found;
	snprintf(reason, reason_len, "%s", why);
	return FANIN_OK;
}
