/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Follows the switches and servers: their properties and jobs when they connect, whether they are
 * alive, which of their ports are down, and whether their jobs are those that the manager knows.
 * Main thread.
 */
#include "manager/reconcile.h"

#include <stdio.h>
#include <string.h>

#include "control/clock.h"
#include "control/log.h"
#include "manager/faults.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/leaders.h"
#include "manager/manager.h"
#include "manager/move.h"
#include "manager/owner.h"
#include "wire/wire.h"

#define ROUTES_MS 1000 /* between requests for next hops that are not known yet */

/* True if a port of a node leads to another switch, in a job without a tree. */
static bool
has_link_at(const struct manager *manager, const struct group *group, const struct group_node *node,
	    const char *port)
{
	for (uint16_t i = 0;
	     !group_shape_of(group)->has_tree && i < manager->config->topology.n_links; i++) {
		const char *found = leaders_port(manager, group, node, i);

		if (found != NULL && strcmp(found, port) == 0)
			return true;
	}
	return false;
}

bool
group_uses(const struct manager *manager, const struct group *group, uint16_t switch_index,
	   const char *port)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];

		if (node->switch_index == switch_index &&
		    (port == NULL || (i > 0 && strcmp(node->port, port) == 0) ||
		     has_link_at(manager, group, node, port)))
			return true;
		if (port != NULL && node->parent != TREE_NO_PARENT &&
		    group->nodes[node->parent].switch_index == switch_index &&
		    strcmp(node->parent_port, port) == 0)
			return true;
	}
	for (uint16_t i = 0; port != NULL && i < group->n_members && group->n_nodes > 0; i++) {
		const struct topology_host *host = group_link_of(group, &manager->config->topology,
								 i);

		if (host != NULL && host->at.switch_index == switch_index &&
		    strcmp(host->at.port, port) == 0)
			return true;
	}
	return false;
}

/* True if the group is known to have a place at a switch, and its removal is not pending. */
static bool
has_place(const struct manager *manager, const struct group *group, const struct peer *peer)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];

		if (node->switch_index == peer->index && node->state != NODE_MISSING)
			return removal_find(manager, peer->about->name, group->id) == NULL;
	}
	return false;
}

bool
group_has_room(const struct manager *manager, const struct group *group, const struct peer *peer)
{
	const struct removal *removal;
	uint32_t going = has_place(manager, group, peer);

	if (peer->jobs < peer->max_jobs + going)
		return true;
	TAILQ_FOREACH(removal, &manager->removals, entry)
		going += removal->asked && strcmp(removal->switch_name, peer->about->name) == 0;
	return peer->jobs < peer->max_jobs + going;
}

void
peer_note_jobs(struct manager *manager, struct peer *peer, uint32_t n_jobs)
{
	const bool was_full = peer->jobs >= peer->max_jobs;

	peer->jobs = n_jobs;
	if (was_full && n_jobs < peer->max_jobs)
		moves_go_on(manager, "a switch has room again");
}

bool
peer_port_is_down(const struct peer *peer, const char *port)
{
	const json_t *name;
	size_t i;

	json_array_foreach(peer->ports_down, i, name) {
		if (strcmp(json_string_value(name), port) == 0)
			return true;
	}
	return false;
}

const char *
peer_port_of(const struct manager *manager, const struct topology_end *end)
{
	const void *first = json_object_iter(manager->peers[end->switch_index].ports);

	if (end->port[0] != '\0')
		return end->port;
	return first == NULL ? "" : json_object_iter_key((void *)(uintptr_t)first);
}

bool
peer_end_is_down(const struct manager *manager, const struct topology_end *end)
{
	return peer_port_is_down(&manager->peers[end->switch_index], peer_port_of(manager, end));
}

/* True if one of a job's trees uses a switch, or a port of it. */
static bool
job_uses(const struct manager *manager, const struct group *leader, const struct peer *peer,
	 const char *port)
{
	const struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group_job(group) == leader && group_uses(manager, group, peer->index, port))
			return true;
	}
	return false;
}

/*
 * Reports a failure to the members of all jobs that it concerns. Returns the number of these jobs.
 * port: NULL for the whole switch.
 */
static unsigned int
tell_users(struct manager *manager, const struct peer *peer, const char *port, const char *event)
{
	const struct group *group;
	unsigned int n = 0;

	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = group_next_job(group)) {
		if (!job_uses(manager, group, peer, port))
			continue;
		n++;
		host_notify(group, NULL,
			    json_pack("{s:s, s:s, s:s, s:s*}", "event", event, "job", group->name,
				      topology_kind(peer->about), peer->about->name, "port", port));
	}
	return n;
}

void
reconcile_lost(void *user, struct peer *peer)
{
	struct manager *manager = user;
	const bool is_server = peer->about->is_server;
	const unsigned int users = tell_users(manager, peer, NULL,
					      is_server ? "server_lost" : "switch_lost");

	if (is_server)
		manager->counters.servers_lost++;
	else
		manager->counters.switches_lost++;
	/* Attempts to connect come twice a second: log each reason once. */
	if (strcmp(peer->told, peer->error) != 0)
		log_warning("%s %s is lost, %u jobs use it: %s", topology_kind(peer->about),
			    peer->about->name, users, peer->error);
	snprintf(peer->told, sizeof(peer->told), "%s", peer->error);
	moves_go_on(manager, is_server ? "a server is lost" : "a switch is lost");
	host_tell_silent(manager);
}

static void
text_of(char *to, size_t size, const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(to, size, "%s", text == NULL ? "" : text);
}

/*
 * True if the topology lists a server as a switch, or a switch as a server. Switches report no
 * kind.
 */
static bool
is_other_kind(const struct peer *peer, const json_t *version)
{
	const char *kind = json_string_value(json_object_get(version, "kind"));

	return (kind != NULL && strcmp(kind, "server") == 0) != peer->about->is_server;
}

static void
version_answered(void *user, uint32_t which, struct peer *peer, const json_t *result,
		 const char *code, const char *message)
{
	char why[CONTROL_MESSAGE_LEN];
	int64_t version;

	(void)user;
	(void)which;
	if (result == NULL) {
		if (strcmp(code, "lost") != 0)
			peer_lose(peer, message);
		return;
	}
	if (is_other_kind(peer, result)) {
		peer_lose(peer, peer->about->is_server ? "it is no parameter server"
						       : "it is a parameter server, and no switch");
		return;
	}
	version =
		peer_packet_version(json_integer_value(json_object_get(result, "packet_version")));
	if (version != FANIN_WIRE_VERSION) {
		snprintf(
			why, sizeof(why),
			"its packets have version %lld, expected %d: use the same release everywhere",
			(long long)version, FANIN_WIRE_VERSION);
		peer_lose(peer, why);
		return;
	}
	text_of(peer->ip, sizeof(peer->ip), result, "ip");
	text_of(peer->mac, sizeof(peer->mac), result, "mac");
	peer->udp_port = (uint16_t)json_integer_value(json_object_get(result, "udp_port"));
	json_decref(peer->handlers);
	peer->handlers = json_deep_copy(json_object_get(result, "handlers"));
}

/* Moves jobs if differences from the topology have come or gone. */
static void
check_faults(struct manager *manager)
{
	if (faults_note(manager))
		moves_go_on(manager, "a link is not as the topology says, or is so again");
}

static void
ports_answered(void *user, uint32_t which, struct peer *peer, const json_t *result,
	       const char *code, const char *message)
{
	const json_t *entry;
	size_t i;

	(void)which;
	(void)code;
	(void)message;
	if (result == NULL)
		return;
	json_decref(peer->ports);
	json_decref(peer->ports_down);
	peer->ports = json_object();
	peer->ports_down = json_array();
	json_array_foreach(json_object_get(result, "ports"), i, entry) {
		const char *name = json_string_value(json_object_get(entry, "name"));

		if (name == NULL)
			continue;
		json_object_set(peer->ports, name, json_object_get(entry, "mtu"));
		if (json_is_false(json_object_get(entry, "link")))
			json_array_append_new(peer->ports_down, json_string(name));
	}
	check_faults(user);
}

static void
routes_answered(void *user, uint32_t which, struct peer *peer, const json_t *result,
		const char *code, const char *message)
{
	const json_t *route;
	size_t i;

	(void)which;
	(void)code;
	(void)message;
	if (result == NULL)
		return; /* an older switch */
	json_decref(peer->next_hops);
	peer->next_hops = json_array();
	json_array_foreach(json_object_get(result, "routes"), i, route)
		json_array_extend(peer->next_hops, json_object_get(route, "via"));
	check_faults(user);
}

/* True if a switch knows the MAC addresses of all its next hops. */
static bool
knows_next_hops(const struct peer *peer)
{
	const json_t *hop;
	size_t i;

	json_array_foreach(peer->next_hops, i, hop) {
		if (!json_is_string(json_object_get(hop, "mac")))
			return false;
	}
	return true;
}

/* Finds the node, at this switch, of a group with this number; NULL if there is none. */
static struct group_node *
find_node(const struct manager *manager, const struct peer *peer, uint32_t job,
	  struct group **found)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->id != job)
			continue;
		for (uint16_t i = 0; i < group->n_nodes; i++) {
			if (group->nodes[i].switch_index == peer->index) {
				*found = group;
				return &group->nodes[i];
			}
		}
	}
	return NULL;
}

/* Notes another manager's job; removes a job of this manager that this manager does not know. */
static void
compare_job(struct manager *manager, struct peer *peer, const json_t *entry)
{
	uint32_t job = (uint32_t)json_integer_value(json_object_get(entry, "id"));
	struct group *group;

	if (!owner_is_ours(manager, entry)) {
		if (job < sizeof(manager->foreign_ids) * 8)
			manager->foreign_ids[job / 8] |= (uint8_t)(1u << job % 8);
		return;
	}
	if (find_node(manager, peer, job, &group) != NULL ||
	    removal_find(manager, peer->about->name, job) != NULL)
		return;
	log_warning("%s %s has job %u of this manager, which is not in the database: removing it",
		    topology_kind(peer->about), peer->about->name, job);
	manager->counters.strays_removed++;
	if (store_add_removal(manager->store, peer->about->name, job) != 0)
		log_error("database: %s", store_error(manager->store));
	removal_add(manager, peer->about->name, job);
}

static bool
list_has(const json_t *jobs, const struct manager *manager, uint32_t id)
{
	const json_t *entry;
	size_t i;

	json_array_foreach(jobs, i, entry) {
		if (json_integer_value(json_object_get(entry, "id")) == (json_int_t)id)
			return owner_is_ours(manager, entry);
	}
	return false;
}

/*
 * True if a node was not known to have a job that its switch reports: the switch was lost before it
 * could answer.
 */
static bool
has_after_all(const struct group *group, const struct group_node *node)
{
	return !group_shape_of(group)->has_tree && group->state == GROUP_NETWORK &&
	       node->state != NODE_INSTALLED && node->state != NODE_ASKED;
}

/* Reports jobs that the switch has lost. */
static void
find_missing(struct manager *manager, const struct peer *peer, const json_t *jobs)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		for (uint16_t i = 0; i < group->n_nodes; i++) {
			struct group_node *node = &group->nodes[i];
			const bool has = list_has(jobs, manager, group->id);

			if (node->switch_index == peer->index && has && has_after_all(group, node))
				node->state = NODE_INSTALLED;
			if (node->switch_index != peer->index || node->state != NODE_INSTALLED ||
			    has)
				continue;
			node->state = NODE_MISSING;
			manager->counters.missing++;
			log_warning("%s %s has lost job %u (\"%s\"): has it restarted?",
				    topology_kind(peer->about), peer->about->name, group->id,
				    group->name);
			host_notify(group, NULL,
				    json_pack("{s:s, s:s, s:s}", "event", "job_missing", "job",
					      group->name, topology_kind(peer->about),
					      peer->about->name));
		}
	}
}

static void
jobs_answered(void *user, uint32_t which, struct peer *peer, const json_t *result, const char *code,
	      const char *message)
{
	const json_t *limits = json_object_get(result, "limits");
	const json_t *jobs = json_object_get(result, "jobs");
	struct manager *manager = user;
	const json_t *entry;
	size_t i;

	(void)which;
	if (result == NULL) {
		if (strcmp(code, "lost") != 0)
			peer_lose(peer, message);
		return;
	}
	peer->jobs = (uint32_t)json_array_size(jobs);
	peer->max_jobs = (uint32_t)json_integer_value(json_object_get(limits, "max_jobs"));
	peer->slots_per_job =
		(uint32_t)json_integer_value(json_object_get(limits, "slots_per_job"));
	owner_note_jobs(manager, peer, jobs);
	peer->mbufs_per_job =
		(uint32_t)json_integer_value(json_object_get(limits, "mbufs_per_job"));
	if (peer->mbufs_per_job == 0) /* an older version */
		peer->mbufs_per_job = peer->slots_per_job;
	json_array_foreach(jobs, i, entry)
		compare_job(manager, peer, entry);
	find_missing(manager, peer, jobs);
	if (peer->state == PEER_LEARNING && peer->ip[0] == '\0') {
		peer_lose(peer, "it does not tell its address: it is of an older version");
		return;
	}
	if (peer->state == PEER_LEARNING) {
		peer->state = PEER_UP;
		peer->error[0] = '\0';
		peer->since_ms = clock_ms();
		peer->told[0] = '\0';
		log_info("%s %s is up: %s, %u of %u jobs", topology_kind(peer->about),
			 peer->about->name, peer->ip, peer->jobs, peer->max_jobs);
	}
	removals_go_on(manager);
	moves_go_on(manager, "a switch has come or has lost a job");
	host_tell_silent(manager);
}

void
reconcile_ready(void *user, struct peer *peer)
{
	struct manager *manager = user;
	uint64_t now = clock_ms();

	peer->ping_ms = now + (uint64_t)manager->config->heartbeat_ms;
	peer->reconcile_ms = now + (uint64_t)manager->config->reconcile_ms;
	peer->routes_ms = now + ROUTES_MS;
	peer->ip[0] = '\0';
	/* The answers come in this order, before that of any later request. */
	peer_ask(peer, "version", NULL, version_answered, manager, 0);
	peer_ask(peer, "ports.list", NULL, ports_answered, manager, 0);
	peer_ask(peer, "routes.list", NULL, routes_answered, manager, 0);
	peer_ask(peer, "jobs.list", NULL, jobs_answered, manager, 0);
}

/* Replaces the list of ports that are down, and reports changes. */
static void
compare_ports(struct manager *manager, struct peer *peer, json_t *down)
{
	json_t *before = peer->ports_down;
	const json_t *name;
	size_t i;

	if (!json_is_array(down) || json_equal(before, down))
		return;
	peer->ports_down = json_incref(down);
	json_array_foreach(down, i, name) {
		const struct peer old = { .ports_down = before };
		const char *port = json_string_value(name);

		if (!peer_port_is_down(&old, port))
			log_warning("port %s of %s %s is down, %u jobs use it", port,
				    topology_kind(peer->about), peer->about->name,
				    tell_users(manager, peer, port, "link_lost"));
	}
	json_array_foreach(before, i, name) {
		if (!peer_port_is_down(peer, json_string_value(name)))
			log_info("port %s of %s %s is up", json_string_value(name),
				 topology_kind(peer->about), peer->about->name);
	}
	json_decref(before);
	moves_go_on(manager, "a port went up or down");
	host_tell_silent(manager);
}

static void
ping_answered(void *user, uint32_t which, struct peer *peer, const json_t *result, const char *code,
	      const char *message)
{
	(void)which;
	(void)code;
	(void)message;
	peer->pinging = false;
	if (result == NULL)
		return;
	peer_note_jobs(user, peer, (uint32_t)json_integer_value(json_object_get(result, "jobs")));
	compare_ports(user, peer, json_object_get(result, "ports_down"));
}

void
reconcile_tick(struct manager *manager, struct peer *peer, uint64_t now_ms)
{
	if (peer->state != PEER_UP)
		return;
	if (now_ms >= peer->ping_ms && !peer->pinging) {
		peer->ping_ms = now_ms + (uint64_t)manager->config->heartbeat_ms;
		peer->pinging = peer_ask(peer, "ping", NULL, ping_answered, manager, 0) == 0;
	}
	if (now_ms >= peer->reconcile_ms) {
		peer->reconcile_ms = now_ms + (uint64_t)manager->config->reconcile_ms;
		peer_ask(peer, "jobs.list", NULL, jobs_answered, manager, 0);
	}
	/*
	 * A switch learns next hops a little after its start, and links may be reconnected later.
	 */
	if (now_ms >= peer->routes_ms) {
		const uint64_t pause_ms = (uint64_t)manager->config->reconcile_ms;

		peer->routes_ms = now_ms + (knows_next_hops(peer) || pause_ms < ROUTES_MS
						    ? pause_ms
						    : ROUTES_MS);
		peer_ask(peer, "routes.list", NULL, routes_answered, manager, 0);
	}
}

uint64_t
reconcile_due(const struct peer *peer)
{
	uint64_t due_ms;

	if (peer->state != PEER_UP)
		return UINT64_MAX;
	due_ms = peer->routes_ms < peer->reconcile_ms ? peer->routes_ms : peer->reconcile_ms;
	return peer->pinging || due_ms < peer->ping_ms ? due_ms : peer->ping_ms;
}
