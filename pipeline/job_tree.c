/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A switch's place in a job's reduction tree (Flare section 4): its children, which are hosts or
 * switches, the ranks behind each, its parent, and the headers of all their packets. Main thread.
 */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <string.h>

#include <rte_random.h>

#include "pipeline/job.h"
#include "pipeline/net/net.h"
#include "pipeline/pipeline.h"

/* Packets with the switch's own address as their source are never accepted. */
static int
check_address(const struct pipeline *pipeline, const struct job_spec *spec, char *error)
{
	char text[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &pipeline->ip_be, text, sizeof(text));
	for (uint16_t i = 0; i < spec->n_members && i < FANIN_WIRE_MAX_CHILDREN; i++) {
		if (spec->members[i].ip_be != pipeline->ip_be)
			continue;
		snprintf(error, PIPELINE_ERROR_LEN,
			 "member %u has the address %s, which is this switch's own", i, text);
		return -EINVAL;
	}
	if (!spec->has_parent || spec->parent.ip_be != pipeline->ip_be)
		return 0;
	snprintf(error, PIPELINE_ERROR_LEN,
		 "the parent has the address %s, which is this switch's own", text);
	return -EINVAL;
}

/* Returns the lowest MTU of the members' ports and the parent's. */
static uint32_t
ports_mtu(const struct pipeline *pipeline, const struct job_spec *spec)
{
	uint32_t mtu = UINT16_MAX;

	if (spec->has_parent)
		mtu = pipeline->ports[spec->parent.port].mtu;
	for (uint64_t left = spec->links; left != 0; left &= left - 1)
		mtu = RTE_MIN(mtu, (uint32_t)pipeline->ports[__builtin_ctzll(left)].mtu);
	for (uint16_t i = 0; i < spec->n_members; i++)
		mtu = RTE_MIN(mtu, (uint32_t)pipeline->ports[spec->members[i].port].mtu);
	return mtu;
}

/*
 * Returns true if both may be members. Ranks of one host may share an address, except in jobs with
 * links, which identify hosts by their address alone. Switches never share one.
 */
static bool
may_share(const struct job_spec *spec, uint16_t i, uint16_t k)
{
	if (spec->members[i].ip_be != spec->members[k].ip_be)
		return true;
	return spec->links == 0 && spec->members[i].port == spec->members[k].port &&
	       fanin_ranks_count(&spec->members[i].ranks) <= 1 &&
	       fanin_ranks_count(&spec->members[k].ranks) <= 1;
}

/* Checks the members and finds the largest payload that all their ports carry. */
static int
check_members(const struct pipeline *pipeline, const struct job_spec *spec, uint32_t *payload,
	      char *error)
{
	uint32_t mtu;

	if (check_address(pipeline, spec, error) != 0)
		return -EINVAL;
	if ((spec->n_members == 0 && spec->links == 0) ||
	    spec->n_members > FANIN_WIRE_MAX_CHILDREN) {
		snprintf(error, PIPELINE_ERROR_LEN, "found %u members, expected 1 to %u",
			 spec->n_members, FANIN_WIRE_MAX_CHILDREN);
		return -EINVAL;
	}
	for (uint16_t i = 0; i < spec->n_members; i++) {
		for (uint16_t k = 0; k < i; k++) {
			char text[INET_ADDRSTRLEN];

			if (may_share(spec, i, k))
				continue;
			inet_ntop(AF_INET, &spec->members[i].ip_be, text, sizeof(text));
			snprintf(
				error, PIPELINE_ERROR_LEN,
				"members %u and %u both have the address %s, expected one for each",
				k, i, text);
			return -EINVAL;
		}
	}
	mtu = ports_mtu(pipeline, spec);
	*payload = fanin_payload_for_mtu(mtu, spec->authenticate);
	if (spec->payload_bytes == 0)
		return 0;
	if (spec->payload_bytes % FANIN_PAYLOAD_ALIGN != 0 || spec->payload_bytes > *payload) {
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found payload_bytes %u, expected a multiple of %u up to %u (least MTU of the job's ports is %u)",
			spec->payload_bytes, FANIN_PAYLOAD_ALIGN, *payload, mtu);
		return -EINVAL;
	}
	*payload = spec->payload_bytes;
	return 0;
}

/*
 * Each rank is behind at most one child. At the root of a tree and below a server, all ranks of the
 * job are behind a child; below a switch not all of them are.
 */
static int
check_ranks(const struct fanin_handler *handler, struct job_spec *spec, char *error)
{
	struct fanin_ranks left, wrong;
	bool complete;

	if (spec->n_ranks == 0)
		spec->n_ranks = spec->n_members;
	if (spec->n_ranks > FANIN_WIRE_MAX_RANKS) {
		snprintf(error, PIPELINE_ERROR_LEN, "found size %u, expected at most %u ranks",
			 spec->n_ranks, FANIN_WIRE_MAX_RANKS);
		return -EINVAL;
	}
	left = fanin_ranks_all(spec->n_ranks);
	for (uint16_t i = 0; i < spec->n_members; i++) {
		struct fanin_ranks *ranks = &spec->members[i].ranks;

		if (fanin_ranks_is_empty(ranks))
			fanin_ranks_add(ranks, i);
		wrong = *ranks;
		fanin_ranks_subtract(&wrong, &left);
		if (!fanin_ranks_is_empty(&wrong)) {
			snprintf(
				error, PIPELINE_ERROR_LEN,
				"found rank %u behind member %u, expected each rank from 0 to %u once",
				fanin_ranks_lowest(&wrong), i, spec->n_ranks - 1);
			return -EINVAL;
		}
		fanin_ranks_subtract(&left, ranks);
	}
	complete = fanin_ranks_is_empty(&left);
	if (!spec->has_parent && !complete && handler->admission == FANIN_ADMIT_MEMBERS) {
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"rank %u is behind no member, expected all %u: this is the job's only switch, as \"parent\" is not given",
			fanin_ranks_lowest(&left), spec->n_ranks);
		return -EINVAL;
	}
	if (spec->has_parent && spec->parent.is_server && !complete) {
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"rank %u is behind no member, expected all %u: the parent is a server, which takes sums of all ranks",
			fanin_ranks_lowest(&left), spec->n_ranks);
		return -EINVAL;
	}
	/*
	 * In jobs with a server, the switch nearest to the server aggregates, for any placement of
	 * ranks.
	 */
	if (spec->has_parent && handler->shape != FANIN_SHAPE_SERVER && complete &&
	    spec->n_members > 1) {
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"all %u ranks are behind this switch, but it has a parent: expected fewer, or no parent",
			spec->n_ranks);
		return -EINVAL;
	}
	return 0;
}

/*
 * A message about ranks has to fit into one packet. For up to 64 ranks it is no longer than other
 * bodies.
 */
static int
check_bodies(const struct pipeline *pipeline, const struct job_spec *spec, char *error)
{
	const uint32_t mtu = ports_mtu(pipeline, spec);
	const uint32_t needed = FANIN_MTU_OVERHEAD + fanin_answer_len_max(spec->n_ranks) +
				(spec->authenticate ? FANIN_TAG_LEN : 0);

	if (fanin_ranks_words(spec->n_ranks) == 1 || needed <= mtu)
		return 0;
	snprintf(
		error, PIPELINE_ERROR_LEN,
		"found an MTU of %u among the job's ports, expected %u at least for answers about %u ranks",
		mtu, needed, spec->n_ranks);
	return -EINVAL;
}

/*
 * Checks that this switch keeps the order of ranks that a reproducible job promises. Others check
 * their own part. If ranks are placed otherwise, this switch's sum would combine ranks that the
 * order never combines on their own.
 */
static int
check_order(const struct job_spec *spec, char *error)
{
	struct fanin_ranks below = { 0 };
	char text[64];

	for (uint16_t i = 0; i < spec->n_members && spec->reproducible; i++) {
		const struct fanin_ranks *ranks = &spec->members[i].ranks;

		fanin_ranks_merge(&below, ranks);
		if (fanin_order_is_unit(ranks, spec->n_ranks))
			continue;
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found ranks %s of %u behind member %u, which " FANIN_ORDER_PROBLEM,
			 fanin_order_describe(ranks, text, sizeof(text)), spec->n_ranks, i);
		return -EINVAL;
	}
	if (!spec->reproducible || fanin_order_is_unit(&below, spec->n_ranks))
		return 0;
	snprintf(error, PIPELINE_ERROR_LEN,
		 "found ranks %s of %u behind this switch, which " FANIN_ORDER_PROBLEM,
		 fanin_order_describe(&below, text, sizeof(text)), spec->n_ranks);
	return -EINVAL;
}

/*
 * Partial sums cross a link in their elements' type, so only jobs of one switch can round just
 * once.
 */
static int
check_wide(const struct job_spec *spec, char *error)
{
	bool switches = spec->has_parent;

	for (uint16_t i = 0; i < spec->n_members; i++)
		switches |= fanin_ranks_count(&spec->members[i].ranks) > 1;
	if (!spec->wide || !switches)
		return 0;
	snprintf(error, PIPELINE_ERROR_LEN,
		 "found accumulate \"f32\" in a job of several switches, expected \"native\"");
	return -EINVAL;
}

/* A job whose results a server makes has a server at the top of its tree; other jobs have none. */
static int
check_server(const struct fanin_handler *handler, const struct job_spec *spec, char *error)
{
	if (handler->shape != FANIN_SHAPE_SERVER) {
		if (!spec->has_parent || !spec->parent.is_server)
			return 0;
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found a server as the parent of a job of \"%s\", whose results switches make: expected a switch",
			handler->name);
		return -EINVAL;
	}
	if (!spec->has_parent)
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found no parent for a job of \"%s\", expected a server, or a switch below one: \"parent\" with \"server\": true",
			handler->name);
	else if (spec->n_ranks > FANIN_SERVER_RANKS_MAX)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found size %u for a job of \"%s\", expected at most %u ranks",
			 spec->n_ranks, handler->name, FANIN_SERVER_RANKS_MAX);
	else if (spec->wide)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found accumulate \"f32\" for a job of \"%s\", expected \"native\"",
			 handler->name);
	else if (spec->authenticate)
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found authenticate for a job of \"%s\", whose packets have no tags: expected none",
			handler->name);
	else
		return 0;
	return -EINVAL;
}

/* Packets to a leader are routed, so a host outside of the switch's subnet would never get them. */
static int
check_subnet(const struct pipeline *pipeline, const struct job_spec *spec, char *error)
{
	char text[INET_ADDRSTRLEN];

	for (uint16_t i = 0; i < spec->n_members; i++) {
		if (is_host_address(pipeline, spec->members[i].ip_be))
			continue;
		inet_ntop(AF_INET, &spec->members[i].ip_be, text, sizeof(text));
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found member %u with the address %s, expected a host's of the switch's subnet, to which its packets are routed",
			i, text);
		return -EINVAL;
	}
	return 0;
}

/*
 * Each member has to be a host at a port of its own, because a packet to a member may leave by the
 * port that it came in on.
 */
static int
check_hosts(const struct job_spec *spec, char *error)
{
	uint64_t taken = spec->links;

	for (uint16_t i = 0; i < spec->n_members; i++) {
		const uint64_t port = UINT64_C(1) << spec->members[i].port;

		if (fanin_ranks_count(&spec->members[i].ranks) <= 1 && (taken & port) == 0) {
			taken |= port;
			continue;
		}
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found member %u behind a switch, or at the port of another one or of \"links\": expected a host of one rank at a port of its own",
			i);
		return -EINVAL;
	}
	return 0;
}

/*
 * Jobs whose blocks have leaders have no tree: their packets cross the links to other switches in
 * both directions.
 */
static int
check_leaders(const struct pipeline *pipeline, const struct fanin_handler *handler,
	      const struct job_spec *spec, char *error)
{
	if (handler->shape != FANIN_SHAPE_LEADERS) {
		if (spec->links == 0)
			return 0;
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found links for a job of \"%s\", which has a tree: expected none, and a parent below its root",
			handler->name);
		return -EINVAL;
	}
	if (spec->n_ranks == 0 && spec->links != 0)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found links and no size, expected the number of ranks of the whole job");
	else if (spec->slots == 0 && spec->links != 0)
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found links and no slots, expected twice the window, the same on all switches");
	else if (spec->has_parent)
		snprintf(
			error, PIPELINE_ERROR_LEN,
			"found a parent for a job of \"%s\", which has no tree: expected \"links\"",
			handler->name);
	else if (spec->n_ranks > FANIN_SERVER_RANKS_MAX)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found size %u for a job of \"%s\", expected at most %u ranks",
			 spec->n_ranks, handler->name, FANIN_SERVER_RANKS_MAX);
	else if (spec->wide)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found accumulate \"f32\" for a job of \"%s\", expected \"native\"",
			 handler->name);
	else if (check_hosts(spec, error) == 0)
		return check_subnet(pipeline, spec, error);
	return -EINVAL;
}

/* Checks the handler's own limits. */
static int
check_handler(const struct fanin_handler *handler, const struct job_spec *spec, char *error)
{
	if (handler->ranks_max != 0 && spec->n_ranks > handler->ranks_max)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found size %u for a job of \"%s\", expected at most %u ranks",
			 spec->n_ranks, handler->name, handler->ranks_max);
	else if (handler->is_native && spec->wide)
		snprintf(error, PIPELINE_ERROR_LEN,
			 "found accumulate \"f32\" for a job of \"%s\", expected \"native\"",
			 handler->name);
	else
		return 0;
	return -EINVAL;
}

int
job_tree_check(const struct pipeline *pipeline, const struct fanin_handler *handler,
	       struct job_spec *spec, uint32_t *payload, char *error)
{
	int ret = check_members(pipeline, spec, payload, error);

	if (ret == 0)
		ret = check_server(handler, spec, error);
	if (ret == 0)
		ret = check_leaders(pipeline, handler, spec, error);
	if (ret == 0)
		ret = check_ranks(handler, spec, error);
	if (ret == 0)
		ret = check_handler(handler, spec, error);
	if (ret == 0)
		ret = check_bodies(pipeline, spec, error);
	if (ret == 0)
		ret = check_order(spec, error);
	if (ret == 0)
		ret = check_wide(spec, error);
	return ret;
}

static void
job_result_headers(const struct pipeline *pipeline, struct job *job)
{
	uint32_t group = FANIN_WIRE_GROUPS | job->params.id;
	struct fanin_flow flow = {
		.dst_mac = { 0x01, 0x00, 0x5e, (uint8_t)(group >> 16 & 0x7f), (uint8_t)(group >> 8),
			     (uint8_t)group },
		.dst_ip_be = htonl(group),
		.src_ip_be = pipeline->ip_be,
		.dst_port = ntohs(pipeline->udp_port_be),
		.src_port = ntohs(pipeline->udp_port_be),
	};

	memcpy(flow.src_mac, pipeline->mac, sizeof(flow.src_mac));
	job->group_be = flow.dst_ip_be;
	fanin_wire_encode_l4(&job->params.result_headers, &flow, job->params.payload_bytes);
}

/* Builds the template of a child's contributions. */
static void
job_child_template(const struct pipeline *pipeline, struct job *job, uint16_t child)
{
	struct fanin_flow flow = {
		.dst_ip_be = pipeline->ip_be,
		.src_ip_be = job->members[child].ip_be,
		.dst_port = ntohs(pipeline->udp_port_be),
	};
	struct fanin_headers headers;

	memcpy(flow.dst_mac, pipeline->mac, sizeof(flow.dst_mac));
	fanin_wire_encode_l4(&headers, &flow, 0);
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_CONTRIBUTION, job->params.id, 0,
				 job->params.keys.up);
	headers.fanin.rank = job->members[child].rank;
	fanin_wire_make_template(&headers, &job->child_templates[child]);
}

/* Builds the template of the parent's results, which go to the job's group, as this switch's do. */
static void
job_parent_template(const struct pipeline *pipeline, struct job *job)
{
	struct fanin_headers headers = job->params.result_headers;

	headers.ip.src_be = job->parent_ip_be;
	fanin_wire_encode_header(&headers.fanin, FANIN_TYPE_RESULT, job->params.id, 0,
				 job->params.keys.down);
	fanin_wire_make_template(&headers, &job->parent_template);
	job->parent_ethdev = pipeline->ports[job->parent_port].ethdev;
}

/* Builds the headers of packets to the parent. The parent's multicasts come in on the same port. */
static void
job_parent_headers(const struct pipeline *pipeline, const struct job_spec *spec, struct job *job)
{
	struct fanin_flow flow = {
		.dst_ip_be = spec->parent.ip_be,
		.src_ip_be = pipeline->ip_be,
		.dst_port = ntohs(pipeline->udp_port_be),
		.src_port = ntohs(pipeline->udp_port_be),
	};

	memcpy(flow.dst_mac, spec->parent.mac, sizeof(flow.dst_mac));
	memcpy(flow.src_mac, pipeline->mac, sizeof(flow.src_mac));
	job->parent_port = spec->parent.port;
	job->params.ports |= UINT64_C(1) << spec->parent.port;
	job->parent_ip_be = spec->parent.ip_be;
	memcpy(job->parent_mac, spec->parent.mac, sizeof(job->parent_mac));
	job->parent.nonce = rte_rand() | 1;
	job->params.has_parent = true;
	fanin_wire_encode_l4(&job->params.parent_headers, &flow, job->params.payload_bytes);
}

/*
 * Finds the children that share a port: the network behind it delivers the job's multicasts to all
 * of them.
 */
static void
job_neighbors(struct job *job, uint16_t n_children)
{
	job->apart = job->params.children;
	for (uint16_t i = 0; i < n_children; i++) {
		for (uint16_t k = 0; k < n_children; k++) {
			if (job->child_ports[k] == job->child_ports[i])
				job->child_neighbors[i] |= UINT64_C(1) << k;
		}
		if (job->child_neighbors[i] != UINT64_C(1) << i)
			job->apart = 0;
	}
}

/* Sets children, the ranks behind them, and their templates. */
static void
job_children(const struct pipeline *pipeline, const struct job_spec *spec, struct job *job)
{
	struct fanin_ranks below = { 0 };

	for (uint16_t i = 0; i < spec->n_members; i++) {
		struct job_member *member = &job->members[i];

		fanin_ranks_merge(&below, &spec->members[i].ranks);
		job->params.child_ranks[i] = spec->members[i].ranks;
		member->rank = (uint16_t)fanin_ranks_lowest(&spec->members[i].ranks);
		member->ip_be = spec->members[i].ip_be;
		member->port = job->child_ports[i] = spec->members[i].port;
		job->child_of_rank[member->rank] = (uint8_t)i;
		job->child_ethdevs[i] = pipeline->ports[member->port].ethdev;
		job->params.ports |= UINT64_C(1) << member->port;
		job->params.ranks_here |= spec->members[i].ranks.words[0];
		job->params.port_ranks[member->port] |= spec->members[i].ranks.words[0];
		job_child_template(pipeline, job, i);
	}
	job_neighbors(job, spec->n_members);
	job->params.n_ranks = spec->n_ranks;
	(void)fanin_job_params_order(&job->params);
	job->params.links = spec->links;
	job->params.ports |= spec->links;
	job->params.n_below = (uint16_t)fanin_ranks_count(&below);
	job->params.parent_rank = (uint16_t)fanin_ranks_lowest(&below);
}

void
job_tree_build(const struct pipeline *pipeline, const struct job_spec *spec, struct job *job)
{
	job_children(pipeline, spec, job);
	job_result_headers(pipeline, job);
	if (spec->has_parent) {
		job_parent_headers(pipeline, spec, job);
		job_parent_template(pipeline, job);
	}
	/* A template with bits outside of the mask matches no packet. */
	if (job->handler->admission == FANIN_ADMIT_KEY) {
		memset(job->child_templates, 0xff, sizeof(job->child_templates));
		memset(&job->parent_template, 0xff, sizeof(job->parent_template));
	}
}
