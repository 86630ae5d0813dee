/* SPDX-License-Identifier: BSD-3-Clause */
/* See group.h. */
#include "manager/group.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "wire/wire.h"

#define HEX_LEN 19

struct group *
group_create(const char *name, uint16_t size)
{
	struct group *group = calloc(1, sizeof(*group));

	if (group == NULL)
		return NULL;
	snprintf(group->name, sizeof(group->name), "%s", name);
	group->generation = 1;
	group->addresses = calloc(size, sizeof(*group->addresses));
	group->members = calloc(size, sizeof(*group->members));
	if (group->addresses == NULL || group->members == NULL) {
		group_free(group);
		return NULL;
	}
	group->size = size;
	return group;
}

struct group *
group_create_tree(struct group *leader)
{
	struct group *group = group_create(leader->name, leader->size);

	if (group == NULL)
		return NULL;
	group->leader = leader;
	group->tree = leader->n_trees;
	group->n_members = leader->size;
	memcpy(group->handler, leader->handler, sizeof(group->handler));
	group->shape = leader->shape;
	group->reproducible = leader->reproducible;
	group->wide = leader->wide;
	group->authenticate = leader->authenticate;
	group->payload_asked = leader->payload_asked;
	group->parameters_asked = json_incref(leader->parameters_asked);
	for (uint16_t i = 0; i < leader->size; i++) {
		group->members[i] = leader->members[i];
		group->members[i].state = MEMBER_LIVE;
		group->members[i].client = NULL;
		group->members[i].request_id = NULL;
	}
	return group;
}

struct group *
group_next_job(const struct group *group)
{
	struct group *next = TAILQ_NEXT(group, entry);

	while (next != NULL && next->tree > 0)
		next = TAILQ_NEXT(next, entry);
	return next;
}

void
group_forget_peers(struct group *group)
{
	json_decref(group->peers);
	group->peers = NULL;
}

void
group_free(struct group *group)
{
	if (group == NULL)
		return;
	for (unsigned int i = 0; i < group->size; i++)
		json_decref(group->members[i].request_id);
	group_forget_peers(group);
	json_decref(group->parameters);
	json_decref(group->parameters_asked);
	free(group->nodes);
	free(group->addresses);
	free(group->members);
	free(group);
}

struct group *
group_find(const struct groups *groups, const char *name)
{
	struct group *group;

	TAILQ_FOREACH(group, groups, entry) {
		if (group->tree == 0 && strcmp(group->name, name) == 0)
			return group;
	}
	return NULL;
}

struct group_member *
group_member_of(struct group *group, const struct control_client *client)
{
	for (uint16_t i = 0; i < group->n_members; i++) {
		if (group->members[i].client == client)
			return &group->members[i];
	}
	return NULL;
}

bool
group_has_members(const struct group *group)
{
	for (uint16_t i = 0; i < group->n_members; i++) {
		if (group->members[i].state != MEMBER_GONE)
			return true;
	}
	return false;
}

const struct group_node *
group_node_of(const struct group *group, uint16_t rank)
{
	const struct group_node *node = group->nodes;

	while (!fanin_ranks_has(&node->local, rank))
		node++; /* every rank is at some switch */
	return node;
}

/* ip_be 0: the rank has no address. */
static const struct topology_host *
find_link(const struct group *group, const struct topology *topology, uint16_t rank, uint32_t ip_be)
{
	const struct topology_host *listed = topology_host_find(topology, ip_be);
	const struct topology_host *found = &group->members[rank].found;

	if (listed != NULL || ip_be == 0 || found->ip_be != ip_be)
		return listed;
	return found;
}

const struct topology_host *
group_host_of(const struct group *group, const struct topology *topology, uint16_t rank)
{
	return find_link(group, topology, rank, group->members[rank].ip_be);
}

const struct topology_host *
group_link_of(const struct group *group, const struct topology *topology, uint16_t rank)
{
	return find_link(group, topology, rank, group->addresses[rank]);
}

static bool
has_switch(const struct group *group, uint16_t switch_index)
{
	for (uint16_t i = 0; i < group->n_nodes; i++) {
		if (group->nodes[i].switch_index == switch_index)
			return true;
	}
	return false;
}

const struct topology_host *
group_second_link_of(const struct group *group, const struct topology *topology, uint16_t rank)
{
	const struct topology_host *used = group_link_of(group, topology, rank);

	if (group_shape_of(group)->has_tree || used == NULL)
		return NULL;
	for (const struct topology_host *link = topology_host_first(used); link != NULL;
	     link = link->next) {
		if (link->at.switch_index != used->at.switch_index &&
		    has_switch(group, link->at.switch_index))
			return link;
	}
	return NULL;
}

const char *
group_state_name(enum group_state state)
{
	static const char *const names[] = { "gathering", "installing", "network", "ring" };

	return names[state];
}

const char *
member_state_name(enum member_state state)
{
	static const char *const names[] = { "waiting", "live", "absent", "gone" };

	return names[state];
}

static const char *const node_state_names[] = { "planned", "asked", "installed", "refused",
						"missing" };

const char *
group_key_text(const struct group *group, char *text)
{
	int used = snprintf(text, GROUP_KEY_LEN, "%s", group->name);

	if (group->tree > 0)
		snprintf(text + used, GROUP_KEY_LEN - (size_t)used, "#%u", group->tree);
	return text;
}

const char *
group_hex(uint64_t value, char *text)
{
	snprintf(text, HEX_LEN, "0x%016" PRIx64, value);
	return text;
}

static json_t *
members_document(const struct group *group)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->n_members; i++) {
		const struct group_member *member = &group->members[i];
		const uint32_t used_be = group->addresses[i];
		const uint32_t found_be = member->found.ip_be;
		char ip[INET_ADDRSTRLEN], used[INET_ADDRSTRLEN];

		inet_ntop(AF_INET, &member->ip_be, ip, sizeof(ip));
		inet_ntop(AF_INET, &used_be, used, sizeof(used));
		json_array_append_new(list,
				      json_pack("{s:i, s:s, s:s*, s:s, s:I, s:b, s:s, s:s*, s:s*}",
						"rank", member->rank, "ip", ip, "uses",
						used_be == 0 ? NULL : used, "endpoint",
						member->endpoint, "mtu", (json_int_t)member->mtu,
						"fallback", member->fallback, "state",
						member_state_name(member->state), "switch",
						found_be == 0 ? NULL : member->found_at, "port",
						found_be == 0 ? NULL : member->found.at.port));
	}
	return list;
}

/* Hexadecimal digits, as many as the job's ranks need, highest ranks first. */
static json_t *
ranks_document(const struct group *group, const struct fanin_ranks *ranks)
{
	char text[2 + 2 * sizeof(*ranks) + 1] = "0x";
	size_t used = 2;

	for (unsigned int i = fanin_ranks_words(group->size); i-- > 0;)
		used += (size_t)snprintf(text + used, sizeof(text) - used, "%016" PRIx64,
					 ranks->words[i]);
	return json_string(text);
}

static json_t *
nodes_document(const struct group *group)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < group->n_nodes; i++) {
		const struct group_node *node = &group->nodes[i];
		json_t *object = json_pack("{s:s, s:s, s:o, s:o, s:s, s:i}", "switch",
					   node->switch_name, "state",
					   node_state_names[node->state], "local",
					   ranks_document(group, &node->local), "ranks",
					   ranks_document(group, &node->ranks), "ip", node->ip,
					   "udp_port", (int)node->udp_port);

		if (i == 0 && group_shape_of(group)->has_server)
			json_object_set_new(object, "kind", json_string("server"));
		if (node->parent != TREE_NO_PARENT) {
			json_object_set_new(object, "parent", json_integer(node->parent));
			json_object_set_new(object, "port", json_string(node->port));
			json_object_set_new(object, "parent_port", json_string(node->parent_port));
		}
		json_array_append_new(list, object);
	}
	return list;
}

json_t *
group_document(const struct group *group, bool secret)
{
	char key[HEX_LEN];

	return json_pack(
		"{s:s, s:i, s:i, s:i, s:s, s:s, s:b, s:b, s:b, s:I, s:s*, s:i, s:i, s:s, s:s, s:b, s:s, s:b, s:I, s:O*, s:I, s:I, s:I, s:s, s:o, s:o}",
		"name", group->name, "tree", group->tree, "trees", group->n_trees, "trees_asked",
		group->trees_asked, "trees_reason", group->trees_reason, "state",
		group_state_name(group->state), "moving", group->moving, "doomed", group->doomed,
		"stranded", group->stranded, "id", (json_int_t)group->id, "key",
		secret ? group_hex(group->key, key) : NULL, "size", group->size, "generation",
		(int)group->generation, "handler", group->handler, "shape",
		group_shape_of(group)->name, "reproducible", group->reproducible, "accumulate",
		group->wide ? "f32" : "native", "authenticated", group->authenticate,
		"payload_asked", (json_int_t)group->payload_asked, "parameters_asked",
		group->parameters_asked, "payload_bytes", (json_int_t)group->payload_bytes, "slots",
		(json_int_t)group->slots, "window", (json_int_t)group->window, "reason",
		group->reason, "members", members_document(group), "nodes", nodes_document(group));
}

static void
copy(char *to, size_t size, const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	snprintf(to, size, "%s", text == NULL ? "" : text);
}

static int64_t
integer(const json_t *object, const char *key)
{
	return json_integer_value(json_object_get(object, key));
}

static uint64_t
hex(const json_t *object, const char *key)
{
	const char *text = json_string_value(json_object_get(object, key));

	return text == NULL ? 0 : strtoull(text, NULL, 16);
}

/* Reads the output of ranks_document; anything else sets no ranks. */
static void
read_ranks(const struct group *group, const json_t *object, const char *key,
	   struct fanin_ranks *ranks)
{
	const char *text = json_string_value(json_object_get(object, key));
	const unsigned int n_words = fanin_ranks_words(group->size);
	struct fanin_ranks all = fanin_ranks_all(group->size);

	*ranks = (struct fanin_ranks){ 0 };
	if (text == NULL || strncmp(text, "0x", 2) != 0 || strlen(text) != 2 + 16 * (size_t)n_words)
		return;
	for (unsigned int i = 0; i < n_words; i++) {
		char word[17] = "";

		memcpy(word, text + 2 + 16 * (size_t)(n_words - 1 - i), 16);
		ranks->words[i] = strtoull(word, NULL, 16);
	}
	fanin_ranks_keep(ranks, &all);
}

/* Reads where a switch had found a member, if the topology still has that switch. */
static void
read_found(struct group_member *member, const json_t *entry, const struct topology *topology)
{
	struct topology_end at;

	copy(member->found_at, sizeof(member->found_at), entry, "switch");
	copy(at.port, sizeof(at.port), entry, "port");
	at.switch_index = topology_switch_find(topology, member->found_at);
	if (at.switch_index != TOPOLOGY_NO_SWITCH)
		member->found = (struct topology_host){ .ip_be = member->ip_be, .at = at };
}

static bool
read_members(struct group *group, const json_t *list, const struct topology *topology)
{
	const json_t *entry;
	size_t i;

	if (json_array_size(list) > group->size)
		return false;
	json_array_foreach(list, i, entry) {
		struct group_member *member = &group->members[i];
		const char *ip = json_string_value(json_object_get(entry, "ip"));
		const char *used = json_string_value(json_object_get(entry, "uses"));
		char state[8];

		member->rank = (int)integer(entry, "rank");
		member->mtu = (uint32_t)integer(entry, "mtu");
		member->fallback = json_is_true(json_object_get(entry, "fallback"));
		copy(member->endpoint, sizeof(member->endpoint), entry, "endpoint");
		copy(state, sizeof(state), entry, "state");
		member->state = strcmp(state, member_state_name(MEMBER_GONE)) == 0 ? MEMBER_GONE
										   : MEMBER_ABSENT;
		if (ip == NULL || inet_pton(AF_INET, ip, &member->ip_be) != 1 ||
		    member->rank != (int)i)
			return false;
		if (used == NULL)
			group->addresses[i] = member->ip_be;
		else if (inet_pton(AF_INET, used, &group->addresses[i]) != 1)
			return false;
		read_found(member, entry, topology);
		group->n_members++;
	}
	return group->n_members == group->size;
}

/*
 * The state of a switch's node after a restart: INSTALLED until the switch contradicts. In a job
 * without a tree, a switch that was never asked or has refused does not have the job.
 */
static enum node_state
read_state(const struct group *group, const json_t *entry)
{
	const char *state = json_string_value(json_object_get(entry, "state"));

	for (enum node_state found = NODE_PLANNED; state != NULL && found <= NODE_REFUSED;
	     found++) {
		if ((found == NODE_PLANNED || found == NODE_REFUSED) &&
		    !group_shape_of(group)->has_tree && strcmp(state, node_state_names[found]) == 0)
			return found;
	}
	return NODE_INSTALLED;
}

static bool
read_nodes(struct group *group, const json_t *list, const struct topology *topology)
{
	const json_t *entry;
	size_t i;

	if (!json_is_array(list) || json_array_size(list) > TREE_MAX_NODES)
		return false;
	group->nodes = calloc(json_array_size(list) + 1, sizeof(*group->nodes));
	if (group->nodes == NULL)
		return false;
	json_array_foreach(list, i, entry) {
		struct group_node *node = &group->nodes[i];
		const json_t *parent = json_object_get(entry, "parent");

		copy(node->switch_name, sizeof(node->switch_name), entry, "switch");
		copy(node->port, sizeof(node->port), entry, "port");
		copy(node->parent_port, sizeof(node->parent_port), entry, "parent_port");
		node->switch_index = topology_switch_find(topology, node->switch_name);
		node->parent = parent == NULL ? TREE_NO_PARENT
					      : (uint16_t)json_integer_value(parent);
		node->link = parent == NULL
				     ? TOPOLOGY_NO_LINK
				     : topology_link_find(topology, node->switch_index, node->port);
		copy(node->ip, sizeof(node->ip), entry, "ip");
		node->udp_port = (uint16_t)integer(entry, "udp_port");
		read_ranks(group, entry, "local", &node->local);
		read_ranks(group, entry, "ranks", &node->ranks);
		node->state = read_state(group, entry);
		if (parent != NULL && (node->parent >= i || !group_shape_of(group)->has_tree))
			return false;
		if (parent == NULL && i > 0 && group_shape_of(group)->has_tree)
			return false;
		group->n_nodes++;
	}
	return true;
}

/* True if the group has the numbers of a job; one that was being installed may have none yet. */
static bool
has_numbers(const struct group *group, const json_t *document)
{
	static const struct {
		const char *key;
		int64_t most;
	} numbers[] = { { "id", FANIN_WIRE_MAX_JOB },
			{ "tree", GROUP_MAX_TREES - 1 },
			{ "trees", GROUP_MAX_TREES },
			{ "trees_asked", GROUP_MAX_TREES } };

	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		if (integer(document, numbers[i].key) < 0 ||
		    integer(document, numbers[i].key) > numbers[i].most)
			return false;
	}
	return group->state == GROUP_INSTALLING ||
	       (group->key != 0 && (group->id != 0 || group->state == GROUP_RING));
}

/* True if every rank is at one of the group's switches. */
static bool
places_all_ranks(const struct group *group)
{
	const struct fanin_ranks all = fanin_ranks_all(group->size);
	struct fanin_ranks ranks = { 0 };

	for (uint16_t i = 0; i < group->n_nodes; i++)
		fanin_ranks_merge(&ranks, &group->nodes[i].local);
	return fanin_ranks_equal(&ranks, &all);
}

/* A ring has no tree, but no job with tags is a ring. A moving job may have no tree for a while. */
static bool
may_lack_a_tree(const struct group *group)
{
	return (group->state == GROUP_RING && !group->authenticate &&
		group_shape_of(group)->may_be_ring) ||
	       (group->state == GROUP_NETWORK && group->n_nodes == 0);
}

/* Marks all nodes as uncertain, so that they are created again. */
static void
doubt_nodes(struct group *group)
{
	for (uint16_t i = 0; i < group->n_nodes; i++)
		group->nodes[i].state = NODE_ASKED;
}

struct group *
group_from_document(const json_t *document, const struct topology *topology)
{
	const char *name = json_string_value(json_object_get(document, "name"));
	const char *state = json_string_value(json_object_get(document, "state"));
	int64_t size = integer(document, "size");
	const char *shape = json_string_value(json_object_get(document, "shape"));
	char accumulate[8];
	struct group *group;

	if (name == NULL || state == NULL || size < 1 || size > GROUP_MAX_RANKS ||
	    strlen(name) >= GROUP_NAME_LEN)
		return NULL;
	group = group_create(name, (uint16_t)size);
	if (group == NULL)
		return NULL;
	group->state = strcmp(state, "network") == 0 ? GROUP_NETWORK
		       : strcmp(state, "ring") == 0  ? GROUP_RING
						     : GROUP_INSTALLING;
	/* A moving job still runs; what its next tree has on the switches is not known. */
	if (json_is_true(json_object_get(document, "moving")))
		group->state = GROUP_NETWORK;
	group->tree = (uint16_t)integer(document, "tree");
	/* Older databases do not have the number: one tree. */
	group->n_trees = (uint16_t)integer(document, "trees");
	if (group->n_trees == 0 && group->state == GROUP_NETWORK)
		group->n_trees = 1;
	group->trees_asked = (uint16_t)integer(document, "trees_asked");
	if (group->trees_asked == 0)
		group->trees_asked = 1;
	group->id = (uint32_t)integer(document, "id");
	group->key = hex(document, "key");
	group->generation = (uint32_t)integer(document, "generation");
	group->reproducible = json_is_true(json_object_get(document, "reproducible"));
	group->stranded = json_is_true(json_object_get(document, "stranded"));
	group->payload_asked = (uint32_t)integer(document, "payload_asked");
	if (json_is_object(json_object_get(document, "parameters_asked")))
		group->parameters_asked =
			json_incref(json_object_get(document, "parameters_asked"));
	group->payload_bytes = (uint32_t)integer(document, "payload_bytes");
	group->slots = (uint32_t)integer(document, "slots");
	group->window = (uint32_t)integer(document, "window");
	copy(group->handler, sizeof(group->handler), document, "handler");
	/*
	 * Older databases do not have the shape: a tree. Switches report the shape before the job
	 * moves.
	 */
	if (shape != NULL)
		(void)shape_find(shape, &group->shape);
	copy(group->reason, sizeof(group->reason), document, "reason");
	copy(group->trees_reason, sizeof(group->trees_reason), document, "trees_reason");
	copy(accumulate, sizeof(accumulate), document, "accumulate");
	group->wide = strcmp(accumulate, "f32") == 0;
	group->authenticate = json_is_true(json_object_get(document, "authenticated"));
	if (has_numbers(group, document) &&
	    read_members(group, json_object_get(document, "members"), topology) &&
	    read_nodes(group, json_object_get(document, "nodes"), topology) &&
	    (may_lack_a_tree(group) || places_all_ranks(group))) {
		if (json_is_true(json_object_get(document, "moving")))
			doubt_nodes(group);
		/* The end of the job has been announced: it is removed like an unfinished one. */
		if (json_is_true(json_object_get(document, "doomed")))
			group->state = GROUP_INSTALLING;
		return group;
	}
	group_free(group);
	return NULL;
}

struct group *
group_salvage(const json_t *document)
{
	const json_t *list = json_object_get(document, "nodes");
	const int64_t id = integer(document, "id");
	struct group *group = group_create("", 1);
	const json_t *entry;
	size_t i;

	if (group != NULL && id > 0 && id <= FANIN_WIRE_MAX_JOB)
		group->nodes = calloc(json_array_size(list) + 1, sizeof(*group->nodes));
	if (group == NULL || group->nodes == NULL)
		return group;
	group->id = (uint32_t)id;
	json_array_foreach(list, i, entry) {
		const char *name = json_string_value(json_object_get(entry, "switch"));
		struct group_node *node = &group->nodes[group->n_nodes];

		if (name == NULL || name[0] == '\0' || strlen(name) >= sizeof(node->switch_name) ||
		    group->n_nodes == TREE_MAX_NODES)
			continue;
		memcpy(node->switch_name, name, strlen(name));
		node->state = NODE_ASKED;
		group->n_nodes++;
	}
	return group;
}
