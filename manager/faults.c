/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds differences between the topology and the network: ports that do not exist, and links that
 * lead to another switch. A switch knows where a routed port leads by the MAC address that answers
 * at its next hops. A faulty link carries no job, and is named in the log, in `topology`, and to
 * hosts that cannot have a tree. Main thread.
 */
#include "manager/faults.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <strings.h>

#include "control/log.h"
#include "manager/manager.h"

#define MAX_TOLD 4 /* faults in one error */

bool
fault_of_end(const struct manager *manager, const struct topology_end *end, char *text)
{
	const struct peer *peer = &manager->peers[end->switch_index];

	/*
	 * The ports are those of the switch's last answer. A server's end of a link names no port.
	 */
	if (end->port[0] == '\0' || peer->ports == NULL ||
	    json_object_get(peer->ports, end->port) != NULL)
		return false;
	snprintf(text, CONTROL_MESSAGE_LEN, "switch %s has no port \"%s\"", peer->about->name,
		 end->port);
	return true;
}

/* The switch with a MAC address, NULL if there is none. */
static const struct peer *
find_station(const struct manager *manager, const char *mac)
{
	for (uint16_t i = 0; i < manager->config->topology.n_switches; i++) {
		const struct peer *peer = &manager->peers[i];

		if (peer->mac[0] != '\0' && strcasecmp(peer->mac, mac) == 0)
			return peer;
	}
	return NULL;
}

/*
 * Returns the switch that a port leads to instead of the expected one. NULL: the port leads to the
 * expected one, perhaps among others, or it is not known where it leads.
 */
static const struct peer *
find_other(const struct manager *manager, const struct topology_end *end,
	   const struct peer *expected)
{
	const struct peer *peer = &manager->peers[end->switch_index];
	const struct peer *found = NULL;
	const json_t *hop;
	size_t i;

	if (expected->mac[0] == '\0')
		return NULL;
	json_array_foreach(peer->next_hops, i, hop) {
		const char *port = json_string_value(json_object_get(hop, "port"));
		const char *mac = json_string_value(json_object_get(hop, "mac"));

		if (port == NULL || mac == NULL || strcmp(port, end->port) != 0)
			continue;
		if (strcasecmp(mac, expected->mac) == 0)
			return NULL;
		if (found == NULL)
			found = find_station(manager, mac);
	}
	return found;
}

bool
fault_of_link(const struct manager *manager, const struct topology_link *link, char *text)
{
	for (unsigned int i = 0; i < 2; i++) {
		const struct topology_end *far = &link->ends[1 - i];
		size_t used;

		if (!fault_of_end(manager, &link->ends[i], text))
			continue;
		used = strlen(text);
		snprintf(text + used, CONTROL_MESSAGE_LEN - used, " for its link to %s%s%s",
			 manager->peers[far->switch_index].about->name,
			 far->port[0] == '\0' ? "" : ":", far->port);
		return true;
	}
	for (unsigned int i = 0; i < 2; i++) {
		const struct topology_end *end = &link->ends[i];
		const struct topology_end *far = &link->ends[1 - i];
		const struct peer *expected = &manager->peers[far->switch_index];
		const struct peer *found = find_other(manager, end, expected);

		if (found == NULL)
			continue;
		snprintf(text, CONTROL_MESSAGE_LEN,
			 "%s:%s is connected to switch %s, expected %s:%s",
			 manager->peers[end->switch_index].about->name, end->port,
			 found->about->name, expected->about->name, far->port);
		return true;
	}
	return false;
}

/* Writes "link leaf0:u0 - spine0:p0", or "link leaf0:p0 - s0" for a server's. */
static void
name_link(const struct manager *manager, const struct topology_link *link, char *name, size_t size)
{
	const struct topology_switch *switches = manager->config->topology.switches;

	snprintf(name, size, "link %s:%s - %s%s%s", switches[link->ends[0].switch_index].name,
		 link->ends[0].port, switches[link->ends[1].switch_index].name,
		 link->ends[1].port[0] == '\0' ? "" : ":", link->ends[1].port);
}

/*
 * Logs that a fault has come or gone, unless the log has that already. told: the fault that the log
 * has, or NULL; owned by the manager. Returns true if it has logged.
 */
static bool
note(char **told, const char *name, const char *fault)
{
	if (*told != NULL && fault != NULL && strcmp(*told, fault) == 0)
		return false;
	if (*told == NULL && fault == NULL)
		return false;
	free(*told);
	*told = fault == NULL ? NULL : strdup(fault);
	if (fault == NULL)
		log_info("%s is as the topology says", name);
	else
		log_warning("%s cannot be used: %s", name, fault);
	return true;
}

int
faults_begin(struct manager *manager)
{
	const struct topology *topology = &manager->config->topology;

	manager->told_faults = calloc((size_t)topology_n_links(topology) + topology->n_hosts + 1u,
				      sizeof(*manager->told_faults));
	return manager->told_faults == NULL ? -ENOMEM : 0;
}

void
faults_end(struct manager *manager)
{
	const struct topology *topology = &manager->config->topology;

	if (manager->told_faults == NULL)
		return;
	for (size_t i = 0; i < (size_t)topology_n_links(topology) + topology->n_hosts; i++)
		free(manager->told_faults[i]);
	free(manager->told_faults);
}

bool
faults_note(struct manager *manager)
{
	const struct topology *topology = &manager->config->topology;
	char fault[CONTROL_MESSAGE_LEN];
	char name[4 * TOPOLOGY_NAME_LEN + 16];
	bool changed = false;

	for (uint16_t i = 0; i < topology_n_links(topology); i++) {
		const bool found = fault_of_link(manager, &topology->links[i], fault);

		name_link(manager, &topology->links[i], name, sizeof(name));
		changed |= note(&manager->told_faults[i], name, found ? fault : NULL);
	}
	for (uint16_t i = 0; i < topology->n_hosts; i++) {
		const struct topology_host *host = &topology->hosts[i];
		const bool found = fault_of_end(manager, &host->at, fault);

		snprintf(name, sizeof(name), "a host's link at %s:%s",
			 topology->switches[host->at.switch_index].name, host->at.port);
		changed |= note(&manager->told_faults[topology_n_links(topology) + i], name,
				found ? fault : NULL);
	}
	return changed;
}

/*
 * Appends "; TEXT", or ": TEXT" the first time, to a text with room for it and fewer than MAX_TOLD
 * faults.
 */
static void
append(char *text, size_t size, unsigned int *n, const char *what)
{
	const size_t used = strlen(text);

	if ((*n)++ < MAX_TOLD && used + 1 < size)
		snprintf(text + used, size - used, "%s %s", used == 0 ? ":" : ";", what);
}

void
faults_describe(const struct manager *manager, char *text, size_t size)
{
	const struct topology *topology = &manager->config->topology;
	char fault[CONTROL_MESSAGE_LEN];
	char line[CONTROL_MESSAGE_LEN + TOPOLOGY_NAME_LEN + 32];
	unsigned int n = 0;

	text[0] = '\0';
	for (uint16_t i = 0; i < topology->n_links; i++) {
		if (fault_of_link(manager, &topology->links[i], fault))
			append(text, size, &n, fault);
	}
	for (uint16_t i = 0; i < topology->n_switches; i++) {
		const struct peer *peer = &manager->peers[i];

		if (peer->state == PEER_UP)
			continue;
		snprintf(line, sizeof(line), "switch %s is not reached: %s", peer->about->name,
			 peer->error);
		append(text, size, &n, line);
	}
	if (n > MAX_TOLD && strlen(text) + 1 < size)
		snprintf(text + strlen(text), size - strlen(text), "; and %u more, see `topology`",
			 n - MAX_TOLD);
}
