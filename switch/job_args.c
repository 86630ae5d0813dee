/* SPDX-License-Identifier: BSD-3-Clause */
/* See job_args.h. */
#include "switch/job_args.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_ether.h>

#include "control/args.h"

const char *const job_accumulate_names[] = { "native", "f32" };

/*
 * Finds a port by its name. argument: the path of the argument that has the name. Returns -ENOENT
 * with *error filled if there is no such port.
 */
static int
find_port(const struct pipeline *pipeline, const char *argument, const char *name,
	  struct control_error *error)
{
	int port = pipeline_port_find(pipeline, name);

	if (port < 0)
		control_fail(error, "not_found",
			     "%s: found \"%s\", expected the name of a port that `ports` lists",
			     argument, name);
	return port;
}

/*
 * Reads entry.ranks: the ranks behind a switch. Without it, entry.rank or the member's index is the
 * rank of a host.
 */
static int
read_ranks(const char *where, const json_t *entry, size_t index, uint16_t n_ranks,
	   struct fanin_ranks *ranks, struct control_error *error)
{
	const json_t *list = json_object_get(entry, "ranks");
	int64_t rank = (int64_t)index;
	bool present;
	size_t i;

	if (args_integer_at(where, entry, "rank", 0, n_ranks - 1, &rank, &present, error) != 0)
		return -EINVAL;
	*ranks = (struct fanin_ranks){ 0 };
	if (list == NULL) {
		fanin_ranks_add(ranks, (unsigned int)rank);
		if (rank < n_ranks)
			return 0;
		control_fail(error, "invalid", "%s.rank: not given, expected 0 to %u", where,
			     n_ranks - 1);
		return -EINVAL;
	}
	for (i = 0; i < json_array_size(list); i++) {
		const json_t *item = json_array_get(list, i);

		if (!json_is_integer(item) || json_integer_value(item) < 0 ||
		    json_integer_value(item) >= n_ranks)
			break;
		fanin_ranks_add(ranks, (unsigned int)json_integer_value(item));
	}
	if (!present && i != 0 && i == json_array_size(list))
		return 0;
	control_fail(
		error, "invalid",
		"%s.ranks: expected a list of the ranks behind a switch, each 0 to %u, and no \"rank\" beside it",
		where, n_ranks - 1);
	return -EINVAL;
}

static int
read_member(const struct pipeline *pipeline, const json_t *entry, size_t index,
	    struct job_spec *spec, struct control_error *error)
{
	static const char *const known[] = { "port", "ip", "rank", "ranks", NULL };
	const char *port_name;
	char where[48], argument[64];
	uint32_t ip_be;
	struct fanin_ranks ranks;
	int port;

	snprintf(where, sizeof(where), "args.members[%zu]", index);
	if (args_check_known_at(where, entry, known, error) != 0 ||
	    args_string_at(where, entry, "port", PIPELINE_NAME_LEN, &port_name, NULL, error) != 0 ||
	    args_ipv4_at(where, entry, "ip", &ip_be, NULL, error) != 0 ||
	    read_ranks(where, entry, index, spec->n_ranks, &ranks, error) != 0)
		return -EINVAL;
	snprintf(argument, sizeof(argument), "%s.port", where);
	port = find_port(pipeline, argument, port_name, error);
	if (port < 0)
		return port;
	for (size_t i = 0; i < index; i++) {
		struct fanin_ranks both = spec->members[i].ranks;

		fanin_ranks_keep(&both, &ranks);
		if (fanin_ranks_is_empty(&both))
			continue;
		control_fail(error, "invalid",
			     "%s: found rank %u again, expected each rank from 0 to %d once", where,
			     fanin_ranks_lowest(&both), spec->n_ranks - 1);
		return -EINVAL;
	}
	spec->members[index].port = (uint16_t)port;
	spec->members[index].ip_be = ip_be;
	spec->members[index].ranks = ranks;
	return 0;
}

/*
 * Sorts the members by their lowest ranks, however they are listed: they become the job's children
 * in that order.
 */
static void
sort_members(struct job_spec *spec)
{
	for (uint16_t i = 1; i < spec->n_members; i++) {
		for (uint16_t k = i; k > 0; k--) {
			if (fanin_ranks_lowest(&spec->members[k - 1].ranks) <
			    fanin_ranks_lowest(&spec->members[k].ranks))
				break;
			RTE_SWAP(spec->members[k - 1], spec->members[k]);
		}
	}
}

static int
read_members(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
	     struct control_error *error)
{
	const json_t *members;
	const json_t *entry;
	size_t index;

	/* A switch between others has no members. */
	if (spec->links != 0 && json_object_get(args, "members") == NULL)
		return 0;
	if (args_objects(args, "members", 1, FANIN_WIRE_MAX_CHILDREN, &members, NULL, error) != 0)
		return -EINVAL;
	spec->n_members = (uint16_t)json_array_size(members);
	if (spec->n_ranks == 0)
		spec->n_ranks = spec->n_members;
	json_array_foreach(members, index, entry) {
		int ret = read_member(pipeline, entry, index, spec, error);

		if (ret != 0)
			return ret;
	}
	sort_members(spec);
	return 0;
}

/* Reads args.links: names of the ports that lead to other switches, for jobs that have no tree. */
static int
read_links(const struct pipeline *pipeline, const json_t *args, uint64_t *links,
	   struct control_error *error)
{
	const json_t *names = json_object_get(args, "links");
	const json_t *name;
	size_t i;

	if (names == NULL)
		return 0;
	json_array_foreach(names, i, name) {
		int port;

		if (!json_is_string(name))
			break;
		port = find_port(pipeline, "args.links", json_string_value(name), error);
		if (port < 0)
			return port;
		*links |= UINT64_C(1) << port;
	}
	if (i != 0 && i == json_array_size(names))
		return 0;
	control_fail(error, "invalid",
		     "args.links: expected a list of names of ports that lead to other switches");
	return -EINVAL;
}

/*
 * Checks that the number of ranks is given for a job with links: other switches have members, too.
 */
static int
check_size(const struct job_spec *spec, struct control_error *error)
{
	if (spec->links == 0 || spec->n_ranks != 0)
		return 0;
	control_fail(
		error, "invalid",
		"args.size: not given beside links, expected the number of ranks of the whole job");
	return -EINVAL;
}

/*
 * Reads args.parent: the switch or server that this switch sends its sums to; absent at the root.
 */
static int
read_parent(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
	    struct control_error *error)
{
	static const char *const known[] = { "port", "ip", "mac", "server", NULL };
	const char *const where = "args.parent";
	const json_t *parent = json_object_get(args, "parent");
	struct rte_ether_addr mac;
	const char *port_name;
	const char *mac_text;
	bool present; /* not read: that it is passed makes the argument optional */
	int port;

	if (parent == NULL)
		return 0;
	if (!json_is_object(parent)) {
		control_fail(error, "invalid", "%s: expected an object with port, ip and mac",
			     where);
		return -EINVAL;
	}
	if (args_check_known_at(where, parent, known, error) != 0 ||
	    args_string_at(where, parent, "port", PIPELINE_NAME_LEN, &port_name, NULL, error) !=
		    0 ||
	    args_ipv4_at(where, parent, "ip", &spec->parent.ip_be, NULL, error) != 0 ||
	    args_string_at(where, parent, "mac", RTE_ETHER_ADDR_FMT_SIZE - 1, &mac_text, NULL,
			   error) != 0 ||
	    args_boolean_at(where, parent, "server", &spec->parent.is_server, &present, error) != 0)
		return -EINVAL;
	if (rte_ether_unformat_addr(mac_text, &mac) != 0 ||
	    !rte_is_valid_assigned_ether_addr(&mac)) {
		control_fail(
			error, "invalid",
			"%s.mac: found \"%s\", expected a unicast address like \"02:fa:00:00:00:fe\"",
			where, mac_text);
		return -EINVAL;
	}
	port = find_port(pipeline, "args.parent.port", port_name, error);
	if (port < 0)
		return port;
	memcpy(spec->parent.mac, mac.addr_bytes, sizeof(spec->parent.mac));
	spec->parent.port = (uint16_t)port;
	spec->has_parent = true;
	return 0;
}

static int
read_accumulate(const json_t *args, bool *wide, struct control_error *error)
{
	const char *name = job_accumulate_names[false];
	bool present; /* not read: that it is passed makes the argument optional */

	if (args_string(args, "accumulate", PIPELINE_NAME_LEN, &name, &present, error) != 0)
		return -EINVAL;
	*wide = strcmp(name, job_accumulate_names[true]) == 0;
	if (*wide || strcmp(name, job_accumulate_names[false]) == 0)
		return 0;
	control_fail(error, "invalid", "args.accumulate: found \"%s\", expected \"%s\" or \"%s\"",
		     name, job_accumulate_names[false], job_accumulate_names[true]);
	return -EINVAL;
}

/* Reads args.parameters: numbers by name. The handler checks the names. */
static int
read_parameters(const json_t *args, struct job_spec *spec, struct control_error *error)
{
	json_t *parameters = json_object_get(args, "parameters");
	const char *name;
	json_t *value;

	if (parameters == NULL)
		return 0;
	if (!json_is_object(parameters) || json_object_size(parameters) > FANIN_PARAMETERS_MAX) {
		control_fail(error, "invalid",
			     "args.parameters: expected an object with %u numbers at most",
			     FANIN_PARAMETERS_MAX);
		return -EINVAL;
	}
	json_object_foreach(parameters, name, value) {
		struct job_parameter *parameter = &spec->parameters[spec->n_parameters++];

		if (!json_is_integer(value) || json_integer_value(value) < 0) {
			control_fail(error, "invalid",
				     "args.parameters.%.64s: expected an integer of 0 or more",
				     name);
			return -EINVAL;
		}
		parameter->name = name;
		parameter->value = (uint64_t)json_integer_value(value);
	}
	return 0;
}

int
job_args_read(const struct pipeline *pipeline, const json_t *args, struct job_spec *spec,
	      struct control_error *error)
{
	int64_t slots = 0;
	int64_t payload = 0;
	int64_t id = 0;
	int64_t buffers = 0;
	int64_t message_bytes = 0;
	int64_t size = 0;
	bool present; /* not read: that it is passed makes the arguments optional */

	spec->handler = "single";
	if (args_check_known(args, error, "id", "members", "key", "handler", "slots",
			     "payload_bytes", "buffers", "message_bytes", "reproducible",
			     "accumulate", "authenticate", "size", "parent", "owner", "parameters",
			     "links") != 0 ||
	    args_string(args, "owner", JOB_OWNER_LEN - 1, &spec->owner, &present, error) != 0 ||
	    args_integer(args, "id", 1, FANIN_WIRE_MAX_JOB, &id, &present, error) != 0 ||
	    args_hex64(args, "key", &spec->key, &present, error) != 0 ||
	    args_string(args, "handler", PIPELINE_NAME_LEN, &spec->handler, &present, error) != 0 ||
	    args_integer(args, "slots", 2, 1 << 20, &slots, &present, error) != 0 ||
	    args_integer(args, "payload_bytes", 1, UINT16_MAX, &payload, &present, error) != 0 ||
	    args_integer(args, "buffers", 2, FANIN_MAX_BUFFERS, &buffers, &present, error) != 0 ||
	    args_integer(args, "message_bytes", 1, INT64_MAX, &message_bytes, &present, error) !=
		    0 ||
	    args_integer(args, "size", 1, FANIN_WIRE_MAX_RANKS, &size, &present, error) != 0 ||
	    args_boolean(args, "reproducible", &spec->reproducible, &present, error) != 0 ||
	    args_boolean(args, "authenticate", &spec->authenticate, &present, error) != 0 ||
	    read_accumulate(args, &spec->wide, error) != 0)
		return -EINVAL;
	spec->buffers = (uint32_t)buffers;
	spec->message_bytes = (uint64_t)message_bytes;
	spec->id = (uint32_t)id;
	spec->slots = (uint32_t)slots;
	spec->payload_bytes = (uint32_t)payload;
	spec->n_ranks = (uint16_t)size;
	if (read_parameters(args, spec, error) != 0 ||
	    read_links(pipeline, args, &spec->links, error) != 0 || check_size(spec, error) != 0 ||
	    read_members(pipeline, args, spec, error) != 0)
		return -EINVAL;
	return read_parent(pipeline, args, spec, error);
}
