/* SPDX-License-Identifier: BSD-3-Clause */
/* The control commands of faninctl. Main thread. */
#include "manager/commands.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "control/args.h"
#include "control/clock.h"
#include "manager/faults.h"
#include "manager/install.h"
#include "manager/leaders.h"
#include "manager/manager.h"
#include "manager/owner.h"
#include "manager/reconcile.h"

static double
seconds_since(uint64_t then_ms)
{
	return (double)(clock_ms() - then_ms) / 1e3;
}

json_t *
command_version(void *user, const json_t *args, struct control_error *error)
{
	const struct manager *manager = user;

	if (args_check_known(args, error) != 0)
		return NULL;
	return json_pack("{s:s, s:s, s:s, s:i, s:i, s:f, s:s}", "version", FANIN_VERSION, "name",
			 manager->config->name, "owner", manager->owner, "protocol",
			 CONTROL_PROTOCOL, "pid", (int)getpid(), "uptime_s",
			 seconds_since(manager->start_ms), "topology",
			 manager->config->topology.hash);
}

/* Describes a switch or a server. */
static json_t *
describe_switch(const struct manager *manager, const struct peer *peer)
{
	const struct group *group;
	const bool up = peer->state == PEER_UP;
	const size_t n_namesakes = json_array_size(peer->namesakes);
	char error[CONTROL_MESSAGE_LEN];
	unsigned int n_groups = 0;

	snprintf(error, sizeof(error), "%s", peer->error);
	if (error[0] == '\0' && n_namesakes > 0)
		snprintf(error, sizeof(error),
			 "has %zu jobs of another manager with this one's name: `jobs` lists them",
			 n_namesakes);
	TAILQ_FOREACH(group, &manager->groups, entry)
		n_groups += group_uses(manager, group, peer->index, NULL);
	return json_pack("{s:s, s:s, s:s, s:f, s:s, s:s, s:i, s:i, s:i, s:i, s:O?, s:s}", "name",
			 peer->about->name, "control", peer->about->control, "state",
			 up                             ? "up"
			 : peer->state >= PEER_LEARNING ? "learning"
							: "down",
			 "since_s", seconds_since(peer->since_ms), "ip", peer->ip, "mac", peer->mac,
			 "trees", (int)n_groups, "jobs", (int)peer->jobs, "max_jobs",
			 (int)peer->max_jobs, "namesake_jobs", (int)n_namesakes, "ports_down",
			 up ? peer->ports_down : NULL, "error", error);
}

/* Returns "leaf0:u0", or only the name of a server whose port is not known yet; a new reference. */
static json_t *
describe_end(const struct manager *manager, const struct topology_end *end)
{
	const char *port = peer_port_of(manager, end);

	return json_sprintf("%s%s%s", manager->config->topology.switches[end->switch_index].name,
			    port[0] == '\0' ? "" : ":", port);
}

/* fault: CONTROL_MESSAGE_LEN bytes, "" unless the state is "wrong" */
static const char *
end_state(const struct manager *manager, const struct topology_end *end, char *fault)
{
	const struct peer *peer = &manager->peers[end->switch_index];

	fault[0] = '\0';
	if (fault_of_end(manager, end, fault))
		return "wrong";
	if (peer->state != PEER_UP)
		return "unknown";
	return peer_end_is_down(manager, end) ? "down" : "up";
}

static json_t *
describe_link(const struct manager *manager, const struct topology_link *link)
{
	char fault[CONTROL_MESSAGE_LEN];
	const char *state = end_state(manager, &link->ends[0], fault);

	if (strcmp(state, "up") == 0)
		state = end_state(manager, &link->ends[1], fault);
	if (fault_of_link(manager, link, fault))
		state = "wrong";
	return json_pack("{s:o, s:o, s:s, s:s}", "a", describe_end(manager, &link->ends[0]), "b",
			 describe_end(manager, &link->ends[1]), "state", state, "error", fault);
}

/* Describes a server like a switch, and adds the end of its link. */
static json_t *
describe_server(const struct manager *manager, uint16_t index)
{
	const struct topology *topology = &manager->config->topology;
	const struct topology_link *link = &topology->links[topology_server_link(topology, index)];
	json_t *server = describe_switch(manager, &manager->peers[index]);

	json_object_set_new(server, "at", describe_end(manager, &link->ends[0]));
	return server;
}

/* Describes a host at a link that the topology lists or that a switch has found. */
static json_t *
describe_host(const struct manager *manager, const struct topology_host *host, bool discovered)
{
	char fault[CONTROL_MESSAGE_LEN];
	const char *state = end_state(manager, &host->at, fault);
	char ip[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &host->ip_be, ip, sizeof(ip));
	return json_pack("{s:s, s:o, s:s, s:b, s:s}", "ip", ip, "at",
			 describe_end(manager, &host->at), "state", state, "discovered", discovered,
			 "error", fault);
}

/* Lists the discovered hosts of all jobs, each host once. */
static void
list_discovered(const struct manager *manager, json_t *list)
{
	json_t *by_ip = json_object();
	const struct group *group;
	const char *ip;
	json_t *host;

	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = group_next_job(group)) {
		for (uint16_t i = 0; i < group->n_members; i++) {
			if (group->members[i].found.ip_be == 0)
				continue;
			host = describe_host(manager, &group->members[i].found, true);
			json_object_set_new(by_ip, json_string_value(json_object_get(host, "ip")),
					    host);
		}
	}
	json_object_foreach(by_ip, ip, host)
		json_array_append(list, host);
	json_decref(by_ip);
}

json_t *
command_topology(void *user, const json_t *args, struct control_error *error)
{
	const struct manager *manager = user;
	const struct topology *topology = &manager->config->topology;
	json_t *switches, *links, *servers, *hosts;

	if (args_check_known(args, error) != 0)
		return NULL;
	switches = json_array();
	links = json_array();
	servers = json_array();
	hosts = json_array();
	for (uint16_t i = 0; i < topology->n_switches; i++)
		json_array_append_new(switches, describe_switch(manager, &manager->peers[i]));
	for (uint16_t i = 0; i < topology_n_links(topology); i++)
		json_array_append_new(links, describe_link(manager, &topology->links[i]));
	for (uint16_t i = topology->n_switches; i < topology_n_peers(topology); i++)
		json_array_append_new(servers, describe_server(manager, i));
	for (uint16_t i = 0; i < topology->n_hosts; i++)
		json_array_append_new(hosts, describe_host(manager, &topology->hosts[i], false));
	list_discovered(manager, hosts);
	return json_pack("{s:o, s:o, s:o, s:o, s:b, s:s}", "switches", switches, "links", links,
			 "servers", servers, "hosts", hosts, "discover_hosts",
			 topology->discover_hosts, "hash", topology->hash);
}

/* The switches that have the job of a group. */
static json_t *
list_switches(const struct group *group)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (group->nodes[i].state == NODE_INSTALLED)
			json_array_append_new(list, json_string(group->nodes[i].switch_name));
	}
	return list;
}

/* Describes a job with all its trees. "numbers": the trees' job numbers on the switches. */
static json_t *
describe_job(const struct manager *manager, const struct group *leader)
{
	json_t *document = group_document(leader, false);
	json_t *numbers = json_array();
	const struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group_job(group) != leader)
			continue;
		if (group->id != 0)
			json_array_append_new(numbers, json_integer((json_int_t)group->id));
		/* While one of the job's trees moves, collectives wait. */
		if (group->state == GROUP_INSTALLING)
			json_object_set_new(document, "state",
					    json_string(group_state_name(group->state)));
		if (group->reason[0] != '\0' && leader->reason[0] == '\0')
			json_object_set_new(document, "reason",
					    json_sprintf("tree %u: %s", group->tree,
							 group->reason));
	}
	json_object_set_new(document, "numbers", numbers);
	if (!group_shape_of(leader)->has_tree)
		json_object_set_new(document, "switches", list_switches(leader));
	json_object_del(document, "nodes");
	json_object_del(document, "tree");
	return document;
}

static json_t *
list_jobs(const struct manager *manager)
{
	const struct group *group;
	json_t *list = json_array();

	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = group_next_job(group))
		json_array_append_new(list, describe_job(manager, group));
	return list;
}

/* Adds to each node of a job without a tree its ports to other switches. */
static void
set_links(const struct manager *manager, const struct group *group, json_t *nodes)
{
	for (uint16_t i = 0; !group_shape_of(group)->has_tree && i < group->n_nodes; i++)
		json_object_set_new(json_array_get(nodes, i), "links",
				    leaders_list_ports(manager, group, &group->nodes[i]));
}

/* Lists all trees, job by job. */
static json_t *
list_trees(const struct manager *manager)
{
	const struct group *leader, *group;
	json_t *list = json_array();

	for (leader = TAILQ_FIRST(&manager->groups); leader != NULL;
	     leader = group_next_job(leader)) {
		TAILQ_FOREACH(group, &manager->groups, entry) {
			json_t *document;

			if (group_job(group) != leader)
				continue;
			document = group_document(group, false);
			json_object_del(document, "members");
			set_links(manager, group, json_object_get(document, "nodes"));
			json_object_set_new(document, "trees", json_integer(leader->n_trees));
			json_array_append_new(list, document);
		}
	}
	return list;
}

json_t *
command_jobs(void *user, const json_t *args, struct control_error *error)
{
	const struct manager *manager = user;
	const struct removal *removal;
	json_t *removals;

	if (args_check_known(args, error) != 0)
		return NULL;
	removals = json_array();
	TAILQ_FOREACH(removal, &manager->removals, entry)
		json_array_append_new(removals,
				      json_pack("{s:s, s:I}", "switch", removal->switch_name, "job",
						(json_int_t)removal->job));
	return json_pack("{s:o, s:o, s:o, s:{s:I}}", "jobs", list_jobs(manager), "removals",
			 removals, "namesakes", owner_list_namesakes(manager), "limits", "jobs",
			 (json_int_t)manager->config->max_jobs);
}

json_t *
command_trees(void *user, const json_t *args, struct control_error *error)
{
	const struct manager *manager = user;

	if (args_check_known(args, error) != 0)
		return NULL;
	return json_pack("{s:o}", "trees", list_trees(manager));
}

json_t *
command_stats(void *user, const json_t *args, struct control_error *error)
{
	const struct manager *manager = user;
	const struct manager_counters *counters = &manager->counters;
	const struct removal *removal;
	unsigned int n_removals = 0;
	json_t *counted;

	if (args_check_known(args, error) != 0)
		return NULL;
	TAILQ_FOREACH(removal, &manager->removals, entry)
		n_removals++;
	counted = json_object();
#define SET_COUNTER(name, text)                                                                    \
	json_object_set_new(counted, #name, json_integer((json_int_t)counters->name));
	MANAGER_COUNTERS(SET_COUNTER)
#undef SET_COUNTER
	return json_pack("{s:f, s:i, s:i, s:o, s:o}", "uptime_s", seconds_since(manager->start_ms),
			 "jobs", manager->n_jobs, "removals_pending", (int)n_removals, "counters",
			 counted, "control", control_counters_json(manager->control));
}

json_t *
command_jobs_destroy(void *user, const json_t *args, struct control_error *error)
{
	struct manager *manager = user;
	struct group *group;
	const char *name;

	if (args_check_known(args, error, "name") != 0 ||
	    args_name(args, "name", GROUP_NAME_LEN - 1, &name, NULL, error) != 0)
		return NULL;
	group = group_find(&manager->groups, name);
	if (group == NULL)
		return control_fail(error, "not_found",
				    "job \"%s\" does not exist: `jobs` lists those that do", name);
	manager->counters.jobs_destroyed++;
	remove_group(manager, group, "an operator destroyed it");
	return json_object();
}
