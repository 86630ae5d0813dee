/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The commands of hosts: join a group, come back to it after the manager's restart, leave it. A
 * host's connection is its membership, one at a time. Main thread.
 */
#include "manager/host.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "control/address.h"
#include "control/args.h"
#include "control/clock.h"
#include "control/log.h"
#include "control/secret.h"
#include "manager/discover.h"
#include "manager/handlers.h"
#include "manager/install.h"
#include "manager/manager.h"
#include "manager/order.h"
#include "manager/plan.h"
#include "manager/reconcile.h"
#include "wire/wire.h"

/* The arguments of a join. */
struct join {
	const char *name;
	int64_t size;
	int64_t rank;
	int64_t mtu;
	int64_t payload;
	int64_t trees;
	uint32_t ip_be;
	const char *endpoint;
	const char *handler;
	json_t *parameters; /* part of the arguments; NULL: none */
	const char *accumulate;
	const char *beside_key; /* key of the job that this one is made beside; NULL: not given */
	bool reproducible;
	bool authenticate;
	bool fallback;
};

void
host_notify(const struct group *group, const struct group_member *except, json_t *event)
{
	/* Any tree stands for its job: only the first one's members have connections. */
	group = group_job(group);
	for (uint16_t i = 0; i < group->n_members; i++) {
		const struct group_member *member = &group->members[i];

		if (member != except && member->state == MEMBER_LIVE && member->client != NULL)
			control_notify(member->client, json_incref(event));
	}
	json_decref(event);
}

static json_t *
list_endpoints(const struct group *group)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->size; i++)
		json_array_append_new(list, json_string(group->members[i].endpoint));
	return list;
}

/* Lists the ranks of a tree with the addresses of each one's host and of its switch. */
static json_t *
list_peers(const struct manager *manager, const struct group *group)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->size; i++) {
		char ip[INET_ADDRSTRLEN];

		const struct topology_host *second =
			group_second_link_of(group, &manager->config->topology, i);
		json_t *peer;

		inet_ntop(AF_INET, &group->addresses[i], ip, sizeof(ip));
		peer = json_pack("{s:i, s:s, s:s}", "rank", i, "ip", ip, "switch_ip",
				 group_node_of(group, i)->ip);
		if (second != NULL) {
			inet_ntop(AF_INET, &second->ip_be, ip, sizeof(ip));
			json_object_update_new(
				peer, json_pack("{s:s, s:s}", "second_ip", ip, "second_switch_ip",
						manager->peers[second->at.switch_index].ip));
		}
		json_array_append_new(list, peer);
	}
	return list;
}

/*
 * Describes where a rank sends in one tree, and with which number and key, or why it can't. A group
 * without nodes has no place until it has moved.
 */
static json_t *
describe_tree(const struct manager *manager, struct group *group, uint16_t rank)
{
	char ip[INET_ADDRSTRLEN];
	char key[20];
	json_t *tree = json_pack("{s:I, s:s, s:I, s:s*}", "job", (json_int_t)group->id, "key",
				 group_hex(group->key, key), "generation",
				 (json_int_t)group->generation, "stranded",
				 group->stranded ? group->reason : NULL);
	const struct group_node *node;

	if (group->n_nodes == 0)
		return tree;
	node = group_node_of(group, rank);
	inet_ntop(AF_INET, &group->addresses[rank], ip, sizeof(ip));
	json_object_update_new(tree, json_pack("{s:s, s:s, s:i}", "ip", ip, "switch_ip", node->ip,
					       "udp_port", (int)node->udp_port));
	if (group_shape_of(group)->has_server)
		json_object_set_new(tree, "server", json_string(group->nodes[0].switch_name));
	if (group_shape_of(group)->tells_peers) {
		/* The list is the same for all ranks. */
		if (group->peers == NULL)
			group->peers = list_peers(manager, group);
		json_object_set(tree, "peers", group->peers);
	}
	return tree;
}

static json_t *
list_more_trees(const struct manager *manager, const struct group *leader, uint16_t rank)
{
	struct group *group;
	json_t *list = json_array();

	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->leader == leader)
			json_array_append_new(list, describe_tree(manager, group, rank));
	}
	return list;
}

static json_t *
list_ranks(const struct fanin_ranks *ranks)
{
	json_t *list = json_array();
	unsigned int rank;

	FANIN_RANKS_EACH(rank, ranks)
	json_array_append_new(list, json_integer(rank));
	return list;
}

/* True if all links of a member's host are down. Switches that can't be asked count as up. */
static bool
is_unplugged(const struct manager *manager, const struct group *group, uint16_t rank)
{
	const struct topology_host *link = group_host_of(group, &manager->config->topology, rank);

	if (link == NULL)
		return false;
	for (link = topology_host_first(link); link != NULL; link = link->next) {
		const struct peer *peer = &manager->peers[link->at.switch_index];

		if (peer->state != PEER_UP || !peer_port_is_down(peer, link->at.port))
			return false;
	}
	return true;
}

/* Returns the members that have not left, but are silent or reached by no switch. */
static struct fanin_ranks
silent_ranks(const struct manager *manager, const struct group *group)
{
	struct fanin_ranks silent = { 0 };

	for (uint16_t i = 0; i < group->n_members; i++) {
		const struct group_member *member = &group->members[i];

		if (member->state != MEMBER_GONE &&
		    (member->unheard || is_unplugged(manager, group, i)))
			fanin_ranks_add(&silent, i);
	}
	return silent;
}

void
host_tell_silent(struct manager *manager)
{
	struct group *group;

	manager->silent_changed = false;
	TAILQ_FOREACH(group, &manager->groups, entry) {
		struct fanin_ranks silent;

		if (group->leader != NULL || group->state == GROUP_RING || !group_has_begun(group))
			continue;
		silent = silent_ranks(manager, group);
		if (fanin_ranks_equal(&silent, &group->silent))
			continue;
		group->silent = silent;
		host_notify(group, NULL,
			    json_pack("{s:s, s:s, s:o}", "event", "members_silent", "job",
				      group->name, "ranks", list_ranks(&silent)));
	}
}

void
host_tell_changes(struct manager *manager)
{
	if (manager->silent_changed)
		host_tell_silent(manager);
}

/* Adds the members that are gone or silent: this member may have missed the events about them. */
static void
describe_others(const struct manager *manager, const struct group *group, uint16_t rank,
		json_t *result)
{
	struct fanin_ranks silent = group->silent;
	struct fanin_ranks gone = { 0 };

	/* The others learn at the end of the turn that this member is back. */
	if (!group->members[rank].unheard && !is_unplugged(manager, group, rank))
		fanin_ranks_remove(&silent, rank);

	for (uint16_t i = 0; i < group->n_members; i++) {
		if (group->members[i].state == MEMBER_GONE)
			fanin_ranks_add(&gone, i);
	}
	if (!fanin_ranks_is_empty(&gone))
		json_object_set_new(result, "gone", list_ranks(&gone));
	if (!fanin_ranks_is_empty(&silent))
		json_object_set_new(result, "silent", list_ranks(&silent));
}

json_t *
host_result(const struct manager *manager, struct group *group, uint16_t rank)
{
	json_t *result;
	char key[20];

	group_hex(group->key, key);
	if (group->state == GROUP_RING)
		return json_pack("{s:i, s:i, s:s, s:s, s:o, s:s, s:i}", "rank", rank, "size",
				 group->size, "mode", "ring", "reason", group->reason, "endpoints",
				 list_endpoints(group), "key", key, "generation",
				 (int)group->generation);
	result = json_pack("{s:i, s:i, s:s, s:i, s:i, s:s, s:I, s:I, s:s, s:s, s:b, s:s, s:b}",
			   "rank", rank, "size", group->size, "mode", "network", "trees",
			   group->n_trees, "trees_asked", group->trees_asked, "trees_reason",
			   group->trees_reason, "window", (json_int_t)group->window,
			   "payload_bytes", (json_int_t)group->payload_bytes, "handler",
			   group->handler, "shape", group_shape_of(group)->name, "reproducible",
			   group->reproducible, "accumulate", group->wide ? "f32" : "native",
			   "authenticated", group->authenticate);
	json_object_update_new(result, describe_tree(manager, group, rank));
	if (group_shape_of(group)->add_answer != NULL)
		group_shape_of(group)->add_answer(group, result);
	if (group->n_trees > 1)
		json_object_set_new(result, "more_trees", list_more_trees(manager, group, rank));
	describe_others(manager, group, rank, result);
	return result;
}

/* Reads args.parameters: numbers by name. Switches check the names. */
static int
read_parameters(const json_t *args, struct join *join, struct control_error *error)
{
	json_t *parameters = json_object_get(args, "parameters");
	const char *name;
	json_t *value;

	if (parameters == NULL)
		return 0;
	if (!json_is_object(parameters) || json_object_size(parameters) > FANIN_WIRE_PARAMETERS) {
		control_fail(error, "invalid",
			     "args.parameters: expected an object with %u numbers at most",
			     FANIN_WIRE_PARAMETERS);
		return -1;
	}
	json_object_foreach(parameters, name, value) {
		if (!json_is_integer(value) || json_integer_value(value) < 0) {
			control_fail(error, "invalid",
				     "args.parameters.%.64s: expected an integer of 0 or more",
				     name);
			return -1;
		}
	}
	if (json_object_size(parameters) != 0)
		join->parameters = parameters;
	return 0;
}

static int
read_join(const json_t *args, struct join *join, struct control_error *error)
{
	char message[ADDRESS_ERROR_LEN];
	struct address address;
	bool present;

	join->rank = GROUP_NO_RANK;
	join->endpoint = "";
	join->handler = HANDLERS_AUTO;
	join->accumulate = "native";
	join->trees = 1;
	if (args_check_known(args, error, "job", "size", "rank", "ip", "endpoint", "mtu", "handler",
			     "reproducible", "accumulate", "authenticate", "payload_bytes",
			     "fallback", "trees", "parameters", "beside_key") != 0 ||
	    args_string(args, "beside_key", 18, &join->beside_key, &present, error) != 0 ||
	    read_parameters(args, join, error) != 0 ||
	    args_name(args, "job", GROUP_NAME_LEN - 1, &join->name, NULL, error) != 0 ||
	    args_integer(args, "size", 1, GROUP_MAX_RANKS, &join->size, NULL, error) != 0 ||
	    args_integer(args, "rank", 0, join->size - 1, &join->rank, &present, error) != 0 ||
	    args_ipv4(args, "ip", &join->ip_be, NULL, error) != 0 ||
	    args_string(args, "endpoint", GROUP_ENDPOINT_LEN - 1, &join->endpoint, &present,
			error) != 0 ||
	    args_integer(args, "mtu", 0, UINT16_MAX, &join->mtu, &present, error) != 0 ||
	    args_name(args, "handler", GROUP_HANDLER_LEN - 1, &join->handler, &present, error) !=
		    0 ||
	    args_boolean(args, "reproducible", &join->reproducible, &present, error) != 0 ||
	    args_boolean(args, "authenticate", &join->authenticate, &present, error) != 0 ||
	    args_name(args, "accumulate", 16, &join->accumulate, &present, error) != 0 ||
	    args_integer(args, "payload_bytes", 0, UINT16_MAX, &join->payload, &present, error) !=
		    0 ||
	    args_boolean(args, "fallback", &join->fallback, &present, error) != 0 ||
	    args_integer(args, "trees", 0, GROUP_MAX_TREES, &join->trees, &present, error) != 0)
		return -1;
	if (strcmp(join->accumulate, "native") != 0 && strcmp(join->accumulate, "f32") != 0) {
		control_fail(error, "invalid",
			     "args.accumulate: found \"%s\", expected \"native\" or \"f32\"",
			     join->accumulate);
		return -1;
	}
	if (join->endpoint[0] != '\0' &&
	    address_parse(join->endpoint, 0, false, &address, message) != 0) {
		control_fail(error, "invalid", "args.endpoint: %.400s", message);
		return -1;
	}
	return 0;
}

static struct group *
begin_group(struct manager *manager, const struct join *join, struct control_error *error)
{
	struct group *group;

	if (manager->n_jobs >= manager->config->max_jobs) {
		control_fail(error, "no_room",
			     "%u jobs exist, limits.jobs is %" JSON_INTEGER_FORMAT, manager->n_jobs,
			     (json_int_t)manager->config->max_jobs);
		return NULL;
	}
	group = group_create(join->name, (uint16_t)join->size);
	if (group == NULL) {
		control_fail(error, "internal", "out of memory");
		return NULL;
	}
	memccpy(group->handler, join->handler, '\0', sizeof(group->handler) - 1);
	group->reproducible = join->reproducible;
	group->wide = strcmp(join->accumulate, "f32") == 0;
	group->authenticate = join->authenticate;
	group->payload_asked = (uint32_t)join->payload;
	group->parameters_asked = json_incref(join->parameters);
	group->trees_asked = (uint16_t)join->trees;
	if (plan_check_shape(manager, group, error) != 0) {
		group_free(group);
		return NULL;
	}
	TAILQ_INSERT_TAIL(&manager->groups, group, entry);
	manager->n_jobs++;
	return group;
}

/* Checks that a join asks for the same handler's parameters as the other members. */
static bool
check_parameters(const struct group *group, const struct join *join, struct control_error *error)
{
	char *found, *expected;

	if (join->parameters == NULL ? group->parameters_asked == NULL
				     : json_equal(join->parameters, group->parameters_asked))
		return true;
	found = json_dumps(join->parameters, JSON_COMPACT | JSON_SORT_KEYS);
	expected = json_dumps(group->parameters_asked, JSON_COMPACT | JSON_SORT_KEYS);
	control_fail(error, "invalid",
		     "job \"%s\": found parameters %.200s, the others asked for %.200s",
		     group->name, found == NULL ? "none" : found,
		     expected == NULL ? "none" : expected);
	free(found);
	free(expected);
	return false;
}

/* Checks that a join fits what the group's first member asked for. */
static bool
check_fit(const struct manager *manager, const struct group *group, const struct join *join,
	  struct control_error *error)
{
	const char *handler = handlers_resolve(manager, group->handler, group->reproducible);

	if (join->size != group->size) {
		control_fail(error, "size_mismatch",
			     "job \"%s\": found the size %" JSON_INTEGER_FORMAT
			     ", the others asked for %u",
			     group->name, (json_int_t)join->size, group->size);
		return false;
	}
	if (group->state != GROUP_GATHERING || group->n_members == group->size) {
		control_fail(error, "name_in_use", "job \"%s\" has all its %u ranks already",
			     group->name, group->size);
		return false;
	}
	if (join->trees != group->trees_asked) {
		control_fail(error, "trees_mismatch",
			     "job \"%s\": found %" JSON_INTEGER_FORMAT
			     " trees, the others asked for %u",
			     group->name, (json_int_t)join->trees, group->trees_asked);
		return false;
	}
	for (uint16_t i = 0; i < group->n_members && join->rank != GROUP_NO_RANK; i++) {
		if (group->members[i].rank != join->rank)
			continue;
		control_fail(error, "name_in_use", "job \"%s\" has a live rank %d already",
			     group->name, (int)join->rank);
		return false;
	}
	if (join->authenticate != group->authenticate) {
		control_fail(error, "invalid",
			     "job \"%s\": found authenticate %s, the others asked for %s",
			     group->name, join->authenticate ? "true" : "false",
			     group->authenticate ? "true" : "false");
		return false;
	}
	if (!check_parameters(group, join, error))
		return false;
	if (strcmp(handlers_resolve(manager, join->handler, join->reproducible), handler) == 0 &&
	    join->reproducible == group->reproducible &&
	    (strcmp(join->accumulate, "f32") == 0) == group->wide &&
	    join->payload == (int64_t)group->payload_asked)
		return true;
	control_fail(
		error, "invalid",
		"job \"%s\": the others asked for handler %s, reproducible %s, accumulate %s, payload_bytes %u",
		group->name, handler, group->reproducible ? "true" : "false",
		group->wide ? "f32" : "native", group->payload_asked);
	return false;
}

/*
 * Returns the length of the name of the job that a job with this name is made beside, as libraries
 * name such jobs; 0: it is a job of its own.
 */
static size_t
beside_len(const char *name)
{
	static const char *const endings[] = { ".multicast", ".push", ".pull", ".region" };
	const size_t len = strlen(name);
	size_t digits = 0;

	while (digits < len && strchr("0123456789", name[len - 1 - digits]) != NULL)
		digits++;
	for (size_t i = 0; i < sizeof(endings) / sizeof(endings[0]); i++) {
		const bool numbered = strcmp(endings[i], ".region") == 0;
		const size_t ending = strlen(endings[i]);
		const size_t kept = len - (numbered ? digits : 0);

		if (numbered != (digits > 0) || kept <= ending ||
		    strncmp(name + kept - ending, endings[i], ending) != 0)
			continue;
		return kept - ending;
	}
	return 0;
}

/* Checks that a job may have its name: only members of a job may create the jobs beside it. */
static bool
check_name(const struct manager *manager, const struct join *join, struct control_error *error)
{
	const size_t len = beside_len(join->name);
	char name[GROUP_NAME_LEN], expected[20];
	const struct group *group;

	if (len == 0 && join->beside_key == NULL)
		return true;
	snprintf(name, sizeof(name), "%.*s", (int)len, join->name);
	if (join->beside_key == NULL || len == 0) {
		control_fail(
			error, "invalid",
			"args.job: found \"%s\"%s: names that end in .multicast, .push, .pull, or .region and a number are for jobs that the library makes beside a job, and for no others",
			join->name, len == 0 ? " with args.beside_key" : "");
		return false;
	}
	group = group_find(&manager->groups, name);
	if (group == NULL || !group_has_begun(group) || group->doomed)
		control_fail(error, "not_found",
			     "job \"%s\" does not run, beside which \"%s\" was to be", name,
			     join->name);
	else if (!secret_equal(join->beside_key, group_hex(group->key, expected)))
		control_fail(error, "unauthorized",
			     "args.beside_key: found another one than that of job \"%s\"", name);
	else if (join->size != group->size)
		control_fail(error, "size_mismatch",
			     "job \"%s\": found the size %" JSON_INTEGER_FORMAT
			     ", job \"%s\" has %u ranks",
			     join->name, (json_int_t)join->size, name, group->size);
	else
		return true;
	return false;
}

static bool
is_member_already(const struct control_client *client, struct control_error *error)
{
	const struct group *group = control_client_data(client);

	if (group == NULL)
		return false;
	control_fail(
		error, "invalid",
		"this connection is a member of job \"%s\" already: leave it, or use another one",
		group->name);
	return true;
}

/* Checks the version of a host's packets, which switches and other hosts must understand. */
static bool
check_version(const struct control_client *client, struct control_error *error)
{
	const int64_t version = peer_packet_version(control_client_packet_version(client));

	if (version == FANIN_WIRE_VERSION)
		return true;
	control_fail(
		error, "unsupported",
		"this host's packets have version %lld, those of the manager's network %d: use the same release everywhere",
		(long long)version, FANIN_WIRE_VERSION);
	return false;
}

json_t *
host_join(void *user, struct control_client *client, json_t *id, const json_t *args,
	  struct control_error *error)
{
	struct manager *manager = user;
	struct join join = { 0 };
	struct group_member *member;
	struct group *group;

	manager->counters.joins_refused++;
	if (!check_version(client, error) || read_join(args, &join, error) != 0 ||
	    is_member_already(client, error) || !check_name(manager, &join, error))
		return NULL;
	if (join.trees == 0)
		join.trees = handlers_shape_is(manager, join.handler, GROUP_LEADERS)
				     ? 1
				     : manager->config->trees;
	group = group_find(&manager->groups, join.name);
	if (group == NULL)
		group = begin_group(manager, &join, error);
	else if (!check_fit(manager, group, &join, error))
		return NULL;
	if (group == NULL)
		return NULL;
	manager->counters.joins_refused--;
	manager->counters.joins++;
	member = &group->members[group->n_members++];
	*member = (struct group_member){ .state = MEMBER_WAITING,
					 .rank = (int)join.rank,
					 .ip_be = join.ip_be,
					 .mtu = (uint32_t)join.mtu,
					 .fallback = join.fallback,
					 .client = client,
					 .request_id = json_incref(id) };
	snprintf(member->endpoint, sizeof(member->endpoint), "%s", join.endpoint);
	control_client_set_data(client, group);
	if (group->n_members == group->size) {
		order_settle(group);
		discover_and_install(manager, group);
	}
	return control_later(error);
}

json_t *
host_reattach(void *user, struct control_client *client, json_t *id, const json_t *args,
	      struct control_error *error)
{
	struct manager *manager = user;
	struct group_member *member;
	const char *name, *key;
	struct group *group;
	char expected[20];
	int64_t rank;

	(void)id;
	if (!check_version(client, error) ||
	    args_check_known(args, error, "job", "rank", "key") != 0 ||
	    args_name(args, "job", GROUP_NAME_LEN - 1, &name, NULL, error) != 0 ||
	    args_integer(args, "rank", 0, GROUP_MAX_RANKS - 1, &rank, NULL, error) != 0 ||
	    args_string(args, "key", 18, &key, NULL, error) != 0 ||
	    is_member_already(client, error))
		return NULL;
	group = group_find(&manager->groups, name);
	if (group == NULL || !group_has_begun(group) || group->doomed)
		return control_fail(error, "not_found", "job \"%s\" does not exist any more", name);
	if (!secret_equal(key, group_hex(group->key, expected)))
		return control_fail(error, "unauthorized",
				    "args.key: found another one than that of job \"%s\"", name);
	if (rank >= group->size)
		return control_fail(error, "invalid", "args.rank: found %d, job \"%s\" has %u",
				    (int)rank, name, group->size);
	member = &group->members[rank];
	if (member->client != NULL)
		return control_fail(error, "name_in_use", "job \"%s\" has a live rank %d already",
				    name, (int)rank);
	if (member->state == MEMBER_GONE)
		host_notify(group, member,
			    json_pack("{s:s, s:s, s:i}", "event", "member_back", "job", group->name,
				      "rank", member->rank));
	member->state = MEMBER_LIVE;
	member->unheard = false;
	member->client = client;
	control_client_set_data(client, group);
	manager->counters.reattached++;
	manager->silent_changed = true;
	return host_result(manager, group, (uint16_t)rank);
}

json_t *
host_heartbeat(void *user, struct control_client *client, json_t *id, const json_t *args,
	       struct control_error *error)
{
	(void)user;
	(void)client;
	(void)id;
	return args_check_known(args, error) != 0 ? NULL : json_object();
}

/* Ends a membership; the job ends with its last member. */
static void
end_membership(struct manager *manager, struct group *group, struct group_member *member)
{
	uint16_t at = (uint16_t)(member - group->members);

	control_client_set_data(member->client, NULL);
	member->client = NULL;
	json_decref(member->request_id);
	member->request_id = NULL;
	member->state = MEMBER_GONE;
	if (group->state == GROUP_GATHERING) {
		/* Later members move up in the array; this member's rank is free again. */
		discover_end(manager, group);
		memmove(member, member + 1, (size_t)(--group->n_members - at) * sizeof(*member));
		group->members[group->n_members] = (struct group_member){ 0 };
		order_unsettle(group);
		if (group->n_members == 0)
			manager_forget_group(manager, group, NULL);
		return;
	}
	if (group_has_members(group)) {
		/* Saves that this member has left: after a restart it must not count as lost. */
		if (manager->config->destroy_on_host_loss && group_has_begun(group) &&
		    store_put_group(manager->store, group) != 0)
			log_error("database: %s", store_error(manager->store));
		return;
	}
	manager->counters.jobs_ended++;
	log_info("job \"%s\" has ended: its last host has gone", group->name);
	remove_group(manager, group, NULL);
}

json_t *
host_leave(void *user, struct control_client *client, json_t *id, const json_t *args,
	   struct control_error *error)
{
	struct group *group = control_client_data(client);
	struct group_member *member;

	(void)id;
	if (args_check_known(args, error) != 0)
		return NULL;
	if (group == NULL)
		return control_fail(error, "not_found", "this connection is a member of no job");
	member = group_member_of(group, client);
	if (group_has_begun(group))
		host_notify(group, member,
			    json_pack("{s:s, s:s, s:i}", "event", "member_left", "job", group->name,
				      "rank", member->rank));
	end_membership(user, group, member);
	return json_object();
}

/* Reports a lost member of a job that continues. */
static void
tell_lost(const struct group *group, const struct group_member *member)
{
	log_warning("job \"%s\" has lost its rank %d", group->name, member->rank);
	host_notify(group, member,
		    json_pack("{s:s, s:s, s:i}", "event", "member_lost", "job", group->name, "rank",
			      member->rank));
}

/* Destroys a job that must not continue after the loss of a host. */
static void
destroy_group(struct manager *manager, struct group *group)
{
	manager->counters.jobs_destroyed++;
	remove_group(manager, group, "it has lost a host");
}

void
host_tell_gone(struct manager *manager, struct group *group)
{
	bool lost = false;

	for (uint16_t i = 0; i < group->n_members; i++) {
		if (group->members[i].state != MEMBER_GONE)
			continue;
		tell_lost(group, &group->members[i]);
		lost = true;
	}
	if (lost && manager->config->destroy_on_host_loss)
		destroy_group(manager, group);
}

void
host_closed(void *user, struct control_client *client, void *data)
{
	struct manager *manager = user;
	struct group *group = data;
	struct group_member *member = group_member_of(group, client);
	const bool started = group_has_begun(group);

	if (started && control_client_is_silent(client)) {
		/* Perhaps only the network has failed: the process may live and come back. */
		log_warning("job \"%s\": nothing is heard of rank %d any more", group->name,
			    member->rank);
		member->state = MEMBER_ABSENT;
		member->unheard = true;
		member->client = NULL;
		manager->silent_changed = true;
		group->grace_ends_ms = clock_ms() + (uint64_t)manager->config->grace_ms;
		return;
	}
	manager->counters.hosts_lost++;
	if (started)
		tell_lost(group, member);
	if (started && manager->config->destroy_on_host_loss) {
		control_client_set_data(client, NULL);
		member->client = NULL;
		destroy_group(manager, group);
		return;
	}
	end_membership(manager, group, member);
}

void
host_end_grace(struct manager *manager, uint64_t now_ms)
{
	struct group *group, *next;

	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = next) {
		unsigned int absent = 0;

		next = group_next_job(group); /* the job's further trees are freed with it */
		if (group->grace_ends_ms == 0 || now_ms < group->grace_ends_ms)
			continue;
		group->grace_ends_ms = 0;
		for (uint16_t i = 0; i < group->n_members; i++) {
			if (group->members[i].state != MEMBER_ABSENT)
				continue;
			group->members[i].state = MEMBER_GONE;
			tell_lost(group, &group->members[i]);
			absent++;
		}
		if (absent == 0)
			continue;
		manager->counters.hosts_lost += absent;
		log_warning("job \"%s\": %u hosts have not come back", group->name, absent);
		if (group_has_members(group) && !manager->config->destroy_on_host_loss)
			continue;
		manager->counters.jobs_ended++;
		remove_group(manager, group, "it has lost a host");
	}
}
