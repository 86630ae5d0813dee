/* SPDX-License-Identifier: BSD-3-Clause */
/* See leaf_spine.h. */
#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "lab/rig/leaf_spine.h"
#include "wire/keys.h"

#define SECRET UINT64_C(0x5eed5eed5eed5eed)
#define JOIN_SOURCE_PORT 50000
#define JOIN_AGAIN_NS UINT64_C(100000000)
#define GATEWAY 254u

/* 10.77.LEAF.x for leaves and their hosts, 10.78.SPINE.254 for spines. */
static uint32_t
leaf_ip_be(uint16_t leaf, uint32_t host)
{
	return htonl(0x0a4d0000u | (uint32_t)leaf << 8 | host);
}

static uint32_t
spine_ip_be(uint16_t spine)
{
	return htonl(0x0a4e0000u | (uint32_t)spine << 8 | GATEWAY);
}

/* Returns the port of a leaf that leads to this host. */
static uint16_t
port_of_host(const struct rig_leaf_spine_options *options, uint32_t host)
{
	return (uint16_t)(host / RTE_MAX(options->hosts_per_port, 1));
}

/* Returns the first port that leads to a spine, behind those of the hosts. */
static uint16_t
first_up_port(const struct rig_leaf_spine_options *options)
{
	return (uint16_t)(port_of_host(options, options->hosts_per_leaf - 1u) + 1u);
}

/* Hosts of a leaf are numbered from the start: none has this address. */
#define SERVER 253u

/* Returns a server's port, the last one, if there are servers. */
static uint16_t
server_port_of_leaf(const struct rig_leaf_spine_options *options)
{
	return (uint16_t)(first_up_port(options) + options->n_spines);
}

static int
server_attach(const struct rig_leaf_spine *network, struct rig_switch *sw, uint16_t port,
	      uint32_t ip_be, struct rig_server **server)
{
	struct rig_server_options options = network->options.server;

	options.ip_be = ip_be;
	options.seed += ip_be;
	*server = network->options.servers->attach(sw, port, &options);
	return *server == NULL ? -ENOMEM : 0;
}

static int
leaf_build(struct rig_leaf_spine *network, uint16_t leaf, char *error)
{
	const struct rig_leaf_spine_options *options = &network->options;
	const uint16_t n_hosts = first_up_port(options);
	struct rig_end ends[PIPELINE_MAX_PORTS];
	struct route_spec up = { .prefix_be = htonl(0x0a4d0000u),
				 .prefix_len = 16,
				 .n_next_hops = options->n_spines };
	const struct rig_switch_options made = {
		.ip_be = leaf_ip_be(leaf, GATEWAY),
		.prefix_len = 24,
		.n_ports = (uint16_t)(n_hosts + options->n_spines + (options->servers != NULL)),
		.routed = options->n_spines == 0
				  ? 0
				  : ((UINT64_C(1) << options->n_spines) - 1) << n_hosts,
		.routes = &up,
		.n_routes = options->n_spines != 0,
		.ends = ends,
		.faults = options->faults,
		.max_jobs = options->max_jobs,
		.slots = options->slots,
		.shared_slots = options->shared_slots,
	};

	for (uint16_t p = 0; p < made.n_ports; p++)
		ends[p] = p < n_hosts                       ? options->host_end
			  : p < n_hosts + options->n_spines ? options->up_end
							    : options->server.end;
	for (uint16_t s = 0; s < options->n_spines; s++)
		up.next_hops[s] = (struct next_hop_spec){ spine_ip_be(s), (uint16_t)(n_hosts + s) };
	network->leaves[leaf] = rig_switch_add(network->rig, &made, error);
	if (network->leaves[leaf] == NULL)
		return -ENOMEM;
	return options->servers != NULL
		       ? server_attach(network, network->leaves[leaf], server_port_of_leaf(options),
				       leaf_ip_be(leaf, SERVER), &network->leaf_servers[leaf])
		       : 0;
}

static int
spine_build(struct rig_leaf_spine *network, uint16_t spine, char *error)
{
	const struct rig_leaf_spine_options *options = &network->options;
	struct route_spec routes[RIG_MAX_LEAVES];
	struct rig_end ends[RIG_MAX_LEAVES + 1];
	const struct rig_switch_options made = {
		.ip_be = spine_ip_be(spine),
		.prefix_len = 24,
		.n_ports = (uint16_t)(options->n_leaves + (options->servers != NULL)),
		.routed = UINT64_MAX >> (64 - options->n_leaves),
		.routes = routes,
		.n_routes = options->n_leaves,
		.ends = ends,
		.faults = options->faults,
		.max_jobs = options->max_jobs,
		.slots = options->slots,
		.shared_slots = options->shared_slots,
	};

	for (uint16_t leaf = 0; leaf < options->n_leaves; leaf++) {
		ends[leaf] = options->up_end;
		routes[leaf] =
			(struct route_spec){ .prefix_be = leaf_ip_be(leaf, 0),
					     .prefix_len = 24,
					     .n_next_hops = 1,
					     .next_hops = { { leaf_ip_be(leaf, GATEWAY), leaf } } };
	}
	ends[options->n_leaves] = options->server.end;
	network->spines[spine] = rig_switch_add(network->rig, &made, error);
	if (network->spines[spine] == NULL)
		return -ENOMEM;
	for (uint16_t leaf = 0; leaf < options->n_leaves; leaf++)
		rig_link(network->leaves[leaf], (uint16_t)(first_up_port(options) + spine),
			 network->spines[spine], leaf);
	return options->servers != NULL
		       ? server_attach(network, network->spines[spine], options->n_leaves,
				       spine_ip_be(spine) - htonl(GATEWAY - SERVER),
				       &network->spine_servers[spine])
		       : 0;
}

int
rig_leaf_spine_build(struct rig *rig, const struct rig_leaf_spine_options *options,
		     struct rig_leaf_spine *network, char *error)
{
	const uint16_t per_leaf = options->hosts_per_leaf;
	int ret = 0;

	*network = (struct rig_leaf_spine){ .rig = rig, .options = *options };
	if (options->n_leaves > RIG_MAX_LEAVES || options->n_spines > RIG_MAX_SPINES ||
	    per_leaf == 0 || per_leaf >= SERVER ||
	    first_up_port(options) + options->n_spines + (options->servers != NULL) >
		    PIPELINE_MAX_PORTS ||
	    options->n_leaves + (options->servers != NULL) > PIPELINE_MAX_PORTS) {
		snprintf(error, RIG_ERROR_LEN, "%u leaves of %u hosts and %u spines are too many",
			 options->n_leaves, per_leaf, options->n_spines);
		return -EINVAL;
	}
	network->n_hosts = (uint32_t)options->n_leaves * per_leaf;
	network->hosts = calloc(network->n_hosts, sizeof(network->hosts[0]));
	if (network->hosts == NULL)
		return -ENOMEM;
	for (uint16_t leaf = 0; leaf < options->n_leaves && ret == 0; leaf++)
		ret = leaf_build(network, leaf, error);
	for (uint16_t spine = 0; spine < options->n_spines && ret == 0; spine++)
		ret = spine_build(network, spine, error);
	for (uint32_t host = 0; host < network->n_hosts && ret == 0; host++)
		network->hosts[host] =
			rig_attach(network->leaves[host / per_leaf],
				   port_of_host(options, host % per_leaf),
				   leaf_ip_be((uint16_t)(host / per_leaf), 1 + host % per_leaf),
				   &options->host_end);
	return ret;
}

static void
free_server(const struct rig_leaf_spine *network, struct rig_server *server)
{
	if (server != NULL)
		network->options.servers->free(server);
}

void
rig_leaf_spine_free(struct rig_leaf_spine *network)
{
	for (uint16_t leaf = 0; leaf < network->options.n_leaves; leaf++)
		free_server(network, network->leaf_servers[leaf]);
	for (uint16_t spine = 0; spine < network->options.n_spines; spine++)
		free_server(network, network->spine_servers[spine]);
	free(network->hosts);
	network->hosts = NULL;
}

uint32_t
rig_host_ip_be(const struct rig_leaf_spine *network, uint32_t host)
{
	const uint16_t per_leaf = network->options.hosts_per_leaf;

	return leaf_ip_be((uint16_t)(host / per_leaf), 1u + host % per_leaf);
}

uint32_t
rig_leaf_ip_be(uint16_t leaf)
{
	return leaf_ip_be(leaf, GATEWAY);
}

uint32_t
rig_spine_ip_be(uint16_t spine)
{
	return spine_ip_be(spine);
}

uint16_t
rig_host_port(const struct rig_leaf_spine *network, uint32_t host)
{
	return port_of_host(&network->options, host % network->options.hosts_per_leaf);
}

uint16_t
rig_up_port(const struct rig_leaf_spine *network, uint16_t spine)
{
	return (uint16_t)(first_up_port(&network->options) + spine);
}

struct fanin_flow
rig_host_flow(const struct rig_leaf_spine *network, uint32_t host)
{
	const uint16_t leaf = (uint16_t)(host / network->options.hosts_per_leaf);
	struct fanin_flow flow = { .dst_ip_be = leaf_ip_be(leaf, GATEWAY),
				   .src_ip_be = rig_host_ip_be(network, host),
				   .dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
				   .src_port = JOIN_SOURCE_PORT };

	memcpy(flow.dst_mac, rig_switch_pipeline(network->leaves[leaf])->mac, 6);
	memcpy(flow.src_mac, rig_host_mac(network->hosts[host]), 6);
	return flow;
}

struct rig_switch *
rig_leaf_of(const struct rig_leaf_spine *network, uint32_t host)
{
	return network->leaves[host / network->options.hosts_per_leaf];
}

/* ------------------------------------------------------------------ jobs */

static uint32_t
host_of(const struct rig_job *job, uint16_t rank)
{
	return job->hosts == NULL ? rank : job->hosts[rank];
}

struct rig_host *
rig_job_host(const struct rig_job *job, uint16_t rank)
{
	return job->network->hosts[host_of(job, rank)];
}

static uint16_t
leaf_of_rank(const struct rig_job *job, uint16_t rank)
{
	return (uint16_t)(host_of(job, rank) / job->network->options.hosts_per_leaf);
}

/* Leaves are in the order of their first ranks. */
static void
leaves_fill(struct rig_job *job)
{
	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		const uint16_t leaf = leaf_of_rank(job, rank);
		uint16_t i = 0;

		while (i < job->n_leaves && job->leaves[i] != leaf)
			i++;
		if (i == job->n_leaves)
			job->leaves[job->n_leaves++] = leaf;
		fanin_ranks_add(&job->leaf_ranks[i], rank);
	}
}

/* The root's parent, if the job has a server. */
static void
server_fill(struct job_spec *spec, const struct rig_server_ops *ops,
	    const struct rig_server *server, uint16_t port)
{
	spec->has_parent = true;
	spec->parent.port = port;
	spec->parent.ip_be = ops->ip_be(server);
	memcpy(spec->parent.mac, ops->mac(server), sizeof(spec->parent.mac));
}

int
rig_job_serve(const struct rig_job *job)
{
	const struct rig_service service = {
		.id = job->id,
		.key = job->secret,
		.member_ip_be = job->n_leaves > 1 ? spine_ip_be(job->spine)
						  : leaf_ip_be(job->leaves[0], GATEWAY),
		.n_ranks = job->n_ranks,
		.root = job->jobs[job->n_leaves > 1 ? job->n_leaves : 0],
	};

	return job->network->options.servers->serve(rig_job_server(job), &service);
}

struct rig_server *
rig_job_server(const struct rig_job *job)
{
	return job->n_leaves > 1 ? job->network->spine_servers[job->spine]
				 : job->network->leaf_servers[job->leaves[0]];
}

/* On the i-th of the job's leaves. */
static int
leaf_job_create(struct rig_job *job, struct job_spec spec, uint16_t i, uint16_t spine, char *error)
{
	const struct rig_leaf_spine *network = job->network;
	const uint16_t leaf = job->leaves[i];
	const char *code;
	unsigned int rank;

	spec.n_members = 0;
	FANIN_RANKS_EACH(rank, &job->leaf_ranks[i])
	{
		const uint32_t host = host_of(job, (uint16_t)rank);
		const uint16_t m = spec.n_members++;

		spec.members[m].port = rig_host_port(network, host);
		spec.members[m].ip_be = rig_host_ip_be(network, host);
		spec.members[m].ranks = fanin_ranks_one(rank);
	}
	spec.has_parent = job->n_leaves > 1;
	if (spec.parent.is_server && !spec.has_parent)
		server_fill(&spec, network->options.servers, network->leaf_servers[leaf],
			    server_port_of_leaf(&network->options));
	else if (spec.has_parent) {
		spec.parent.is_server = false;
		spec.parent.port = rig_up_port(network, spine);
		spec.parent.ip_be = spine_ip_be(spine);
		memcpy(spec.parent.mac, rig_switch_pipeline(network->spines[spine])->mac, 6);
	}
	return job_create(rig_switch_pipeline(network->leaves[leaf]), &spec, &job->jobs[i], &code,
			  error);
}

static int
spine_job_create(struct rig_job *job, struct job_spec spec, uint16_t spine, char *error)
{
	const struct rig_leaf_spine *network = job->network;
	const char *code;

	spec.n_members = job->n_leaves;
	for (uint16_t i = 0; i < job->n_leaves; i++) {
		spec.members[i].port = job->leaves[i];
		spec.members[i].ip_be = leaf_ip_be(job->leaves[i], GATEWAY);
		spec.members[i].ranks = job->leaf_ranks[i];
	}
	if (spec.parent.is_server)
		server_fill(&spec, network->options.servers, network->spine_servers[spine],
			    network->options.n_leaves);
	return job_create(rig_switch_pipeline(network->spines[spine]), &spec,
			  &job->jobs[job->n_leaves], &code, error);
}

int
rig_job_create_on(struct rig_leaf_spine *network, const struct job_spec *spec,
		  const uint32_t *hosts, uint16_t n_ranks, uint16_t spine, struct rig_job *job,
		  char *error)
{
	static uint32_t last_id;
	struct job_spec made = *spec;
	int ret = 0;

	*job = (struct rig_job){ .network = network,
				 .id = spec->id != 0 ? spec->id : ++last_id,
				 .secret = spec->key != 0 ? spec->key : SECRET,
				 .hosts = hosts,
				 .n_ranks = n_ranks,
				 .spine = spine };
	leaves_fill(job);
	made.id = job->id;
	made.key = job->secret;
	made.n_ranks = n_ranks;
	/* The root comes first, as with the manager. */
	if (job->n_leaves > 1)
		ret = spine_job_create(job, made, spine, error);
	for (uint16_t i = 0; i < job->n_leaves && ret == 0; i++)
		ret = leaf_job_create(job, made, i, spine, error);
	if (ret == 0 && spec->parent.is_server && rig_job_serve(job) != FANIN_OK) {
		snprintf(error, PIPELINE_ERROR_LEN, "the server does not take the job");
		ret = -EINVAL;
	}
	return ret;
}

int
rig_job_create(struct rig_leaf_spine *network, const struct job_spec *spec, uint16_t n_ranks,
	       uint16_t spine, struct rig_job *job, char *error)
{
	return rig_job_create_on(network, spec, NULL, n_ranks, spine, job, error);
}

void
rig_job_remove(struct rig_switch *sw, uint32_t id)
{
	rig_switch_away(sw, true);
	job_destroy(rig_switch_pipeline(sw), id);
	rig_switch_away(sw, false);
}

void
rig_job_destroy(struct rig_job *job)
{
	const struct rig_leaf_spine *network = job->network;

	for (uint16_t i = 0; i < job->n_leaves; i++)
		rig_job_remove(network->leaves[job->leaves[i]], job->id);
	for (uint16_t spine = 0; spine < network->options.n_spines; spine++)
		rig_job_remove(network->spines[spine], job->id);
	free(job->joining);
	job->joining = NULL;
}

/* ------------------------------------------------------------------ joining */

static void
join_send(const struct rig_joining *joining)
{
	const struct rig_job *job = joining->job;
	struct {
		struct fanin_headers headers;
		struct fanin_join_body body;
	} __attribute__((packed)) frame = { 0 };
	struct fanin_flow flow;
	struct fanin_keys keys;

	if (fanin_keys_derive(job->secret, &keys) != 0)
		return;
	flow = rig_host_flow(job->network, host_of(job, joining->rank));
	fanin_wire_encode_l4(&frame.headers, &flow, sizeof(frame.body));
	fanin_wire_encode_header(&frame.headers.fanin, FANIN_TYPE_JOIN, job->id, 0, keys.up);
	frame.headers.fanin.rank = joining->rank;
	frame.headers.fanin.contributions = 1;
	frame.body = (struct fanin_join_body){ .nonce = 1u + joining->rank,
					       .size = job->n_ranks,
					       .udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
					       .mtu = rig_mtu(job->network->rig),
					       .cookie = joining->cookie };
	rig_host_send(rig_job_host(job, joining->rank), &frame, sizeof(frame));
}

static void
join_hear(struct rig_joining *joining, const struct fanin_frame *frame)
{
	const struct fanin_headers *headers = frame->data;

	if (headers->fanin.type != FANIN_TYPE_JOIN_ACK || headers->fanin.job != joining->job->id ||
	    frame->len < sizeof(*headers) + sizeof(joining->ack))
		return;
	joining->headers = *headers;
	memcpy(&joining->ack, headers + 1, sizeof(joining->ack));
	if (joining->ack.state == FANIN_JOIN_CHALLENGE) {
		joining->cookie = joining->ack.cookie;
		join_send(joining);
	}
	joining->active = joining->ack.state == FANIN_JOIN_ACTIVE;
}

static void
join_poll(struct rig_host *host, void *user)
{
	struct fanin_transport *transport = rig_host_transport(host);
	struct rig_joining *joining = user;
	struct fanin_frame frames[16];
	unsigned int n;

	while ((n = transport->ops->rx_burst(transport, frames, RTE_DIM(frames))) != 0) {
		for (unsigned int i = 0; i < n; i++)
			join_hear(joining, &frames[i]);
		transport->ops->rx_release(transport, frames, n);
	}
}

static bool
all_are_active(void *user)
{
	const struct rig_job *job = user;

	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		if (!job->joining[rank].active)
			return false;
	}
	return true;
}

int
rig_job_join(struct rig_job *job, uint64_t max_ns)
{
	struct rig *rig = job->network->rig;
	const uint64_t end_ns = rig_now_ns(rig) + max_ns;

	job->joining = calloc(job->n_ranks, sizeof(job->joining[0]));
	if (job->joining == NULL)
		return -ENOMEM;
	for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
		job->joining[rank] = (struct rig_joining){ .job = job, .rank = rank };
		rig_host_set_poll(rig_job_host(job, rank), join_poll, &job->joining[rank]);
	}
	while (rig_now_ns(rig) < end_ns) {
		for (uint16_t rank = 0; rank < job->n_ranks; rank++) {
			if (!job->joining[rank].active)
				join_send(&job->joining[rank]);
		}
		if (rig_run(rig, rig_now_ns(rig) + JOIN_AGAIN_NS, all_are_active, job))
			return 0;
	}
	return -ETIMEDOUT;
}

void
rig_protocol_config(const struct rig_job *job, uint16_t rank, struct fanin_protocol_config *config)
{
	const struct rig_joining *joining = &job->joining[rank];
	const struct fanin_join_ack_body *ack = &joining->ack;

	config->flow = rig_host_flow(job->network, host_of(job, rank));
	fanin_keys_derive(job->secret, &config->keys);
	config->instance = ack->instance;
	config->job = job->id;
	config->epoch = joining->headers.fanin.epoch;
	config->rank = rank;
	config->size = job->n_ranks;
	config->window = ack->window;
	config->payload_bytes = ack->payload_bytes;
	config->wide = (ack->flags & FANIN_JOB_WIDE) != 0;
	config->spread = (ack->flags & FANIN_JOB_SPREAD) != 0;
	config->stagger = true;
	config->now_ns = rig_clock;
	config->now_arg = job->network->rig;
	config->slots = ack->slots;
	config->sharing_jobs = ack->sharing;
	memcpy(config->parameters, ack->parameters, sizeof(config->parameters));
	config->transport = rig_host_transport(rig_job_host(job, rank));
}
