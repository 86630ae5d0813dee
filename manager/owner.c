/* SPDX-License-Identifier: BSD-3-Clause */
/* See owner.h. */
#include "manager/owner.h"

#include <string.h>

#include "control/clock.h"
#include "control/log.h"
#include "manager/manager.h"

/* Between two lines about the namesakes of a switch, whose jobs may come and go. */
#define TELL_AGAIN_MS 60000u

static const char *
mark_of(const json_t *job)
{
	const char *owner = json_string_value(json_object_get(job, "owner"));

	return owner == NULL ? "" : owner;
}

/* True if a job carries this manager's name without an id. */
static bool
is_unnumbered(const struct manager *manager, const json_t *job)
{
	return strcmp(mark_of(job), manager->config->name) == 0;
}

bool
owner_is_ours(const struct manager *manager, const json_t *job)
{
	return strcmp(mark_of(job), manager->owner) == 0 || is_unnumbered(manager, job);
}

/* True if a job carries this manager's name with another id. */
static bool
is_namesakes(const struct manager *manager, const json_t *job)
{
	const size_t len = strlen(manager->config->name);

	return strncmp(mark_of(job), manager->config->name, len) == 0 &&
	       mark_of(job)[len] == OWNER_SEPARATOR && !owner_is_ours(manager, job);
}

const char *
owner_of_job(const struct manager *manager, const struct peer *peer, uint32_t job)
{
	const json_t *number;
	size_t i;

	json_array_foreach(peer->unnumbered, i, number) {
		if (json_integer_value(number) == (json_int_t)job)
			return manager->config->name;
	}
	return manager->owner;
}

void
owner_forget(struct peer *peer, uint32_t job)
{
	for (size_t i = json_array_size(peer->unnumbered); i-- > 0;) {
		if (json_integer_value(json_array_get(peer->unnumbered, i)) == (json_int_t)job)
			json_array_remove(peer->unnumbered, i);
	}
}

/*
 * Logs namesakes' jobs that have changed. namesakes: the new list; peer->namesakes is the old one.
 */
static void
tell(const struct manager *manager, struct peer *peer, const json_t *namesakes)
{
	const json_t *first = json_array_get(namesakes, 0);
	const uint64_t now_ms = clock_ms();

	if (first == NULL || json_equal(namesakes, peer->namesakes) ||
	    (peer->namesakes_told_ms != 0 && now_ms < peer->namesakes_told_ms + TELL_AGAIN_MS))
		return;
	peer->namesakes_told_ms = now_ms;
	log_error(
		"%s %s has %zu jobs of another manager with the name \"%s\", "
		"such as %" JSON_INTEGER_FORMAT
		" of %s; this one is %s: give each manager a name of its own. These jobs stay until `faninctl jobs destroy ID` at the %s",
		topology_kind(peer->about), peer->about->name, json_array_size(namesakes),
		manager->config->name, json_integer_value(json_object_get(first, "id")),
		mark_of(first), manager->owner, topology_kind(peer->about));
}

void
owner_note_jobs(const struct manager *manager, struct peer *peer, const json_t *jobs)
{
	json_t *namesakes = json_array();
	json_t *unnumbered = json_array();
	json_t *job;
	size_t i;

	json_array_foreach(jobs, i, job) {
		if (is_unnumbered(manager, job))
			json_array_append(unnumbered, json_object_get(job, "id"));
		else if (is_namesakes(manager, job))
			json_array_append_new(namesakes,
					      json_pack("{s:O, s:O}", "id",
							json_object_get(job, "id"), "owner",
							json_object_get(job, "owner")));
	}
	tell(manager, peer, namesakes);
	json_decref(peer->unnumbered);
	json_decref(peer->namesakes);
	peer->unnumbered = unnumbered;
	peer->namesakes = namesakes;
}

json_t *
owner_list_namesakes(const struct manager *manager)
{
	json_t *list = json_array();

	for (uint16_t k = 0; k < topology_n_peers(&manager->config->topology); k++) {
		const struct peer *peer = &manager->peers[k];
		const json_t *job;
		size_t i;

		json_array_foreach(peer->namesakes, i, job)
			json_array_append_new(list, json_pack("{s:s, s:O, s:O}", "switch",
							      peer->about->name, "job",
							      json_object_get(job, "id"), "owner",
							      json_object_get(job, "owner")));
	}
	return list;
}
