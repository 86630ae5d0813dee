/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator of a job whose blocks have leaders: no switch is joined. The manager's answer has
 * the values that a switch would tell. Packets go to the other ranks' addresses by way of the first
 * hop, and the ranks begin the run among themselves.
 */
#include "comm_join.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#define RESOLVE_REPEAT_NS (50 * UINT64_C(1000000))
#define RESOLVE_WAIT_MS 2
/* Maximum wait for the first hop of a second link, which the job does not need. */
#define SECOND_WAIT_NS UINT64_C(1000000000)

int
fanin_comm_leaders_check(const struct fanin_ctx *ctx, const struct fanin_join_opts *options,
			 const char *handler, struct fanin_error *error)
{
	char ignored[FANIN_TEXT_LEN];
	const char *found = NULL;

	if (handler == NULL || !fanin_protocol_of(handler, ignored, sizeof(ignored))->has_leaders)
		return FANIN_OK;
	if (fanin_comm_wants_memif(ctx, options))
		found = "the transport memif, which leads to one switch: expected auto, udp, af_packet or af_xdp";
	else if (options->authenticate)
		found = "authenticate, expected packets without tags";
	else if (options->accumulate_f32)
		found = "accumulate_f32, expected sums in the elements' type";
	else if (options->reproducible)
		found = "reproducible, expected sums in any order";
	else if (options->trees > 1)
		found = "several trees, expected 0 or 1: each packet chooses its own path";
	if (found == NULL)
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_INVALID,
			       "the handler is %s, whose hosts lead blocks: found %s", handler,
			       found);
}

/* Fills in the values that a member learns by joining a switch. */
static int
job_take(struct fanin_comm *comm, const struct fanin_join_opts *options,
	 const struct fanin_manager_answer *answer, struct fanin_error *error)
{
	struct fanin_member *member = &comm->member;

	if (options->window != 0 && options->window < answer->window)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"window is %u, expected 0 or the window %u of job '%s': it is the same on all of its hosts and switches",
			options->window, answer->window, comm->job_name);
	member->config = (struct fanin_member_config){
		.key = options->key,
		.job = options->job,
		.rank = answer->rank,
		.size = answer->size,
		.udp_port = options->udp_port,
	};
	snprintf(member->handler, sizeof(member->handler), "%s", answer->handler);
	comm->window = answer->window;
	comm->payload_bytes = answer->payload_bytes;
	return FANIN_OK;
}

/*
 * Opens a transport over a link, and reserves the job's UDP port and joins the multicast group of
 * results there. A transport with sockets of its own does both itself.
 */
static int
link_open(struct fanin_comm *comm, const struct fanin_join_opts *options,
	  const struct fanin_route *route, const uint8_t *mac, struct fanin_channel *channel,
	  struct fanin_transport **transport, struct fanin_error *error)
{
	const uint32_t group_be = htonl(FANIN_WIRE_GROUPS | options->job);
	struct fanin_channel none = { .data_fd = -1, .udp_port = options->udp_port };
	int status = fanin_comm_transport(comm, route, &none, mac, transport, error);

	if (status != FANIN_OK || (*transport)->ops->has_port)
		return status;
	status = fanin_channel_udp_port(channel, route, options->udp_port, error);
	if (status == FANIN_OK)
		status = fanin_channel_udp_group(channel, group_be, route, error);
	if (status == FANIN_OK)
		return FANIN_OK;
	(*transport)->ops->close(*transport);
	*transport = NULL;
	return status;
}

/* Finds the route to the first hop. */
static int
path_open(struct fanin_comm *comm, const struct fanin_join_opts *options, struct fanin_error *error)
{
	struct fanin_route *route = &comm->route;
	uint32_t first_hop_be;
	int status;

	if (inet_pton(AF_INET, options->switch_address, &first_hop_be) != 1)
		return fanin_error_set(error, FANIN_ERR_MANAGER,
				       "the first hop '%s' is not an IPv4 address",
				       options->switch_address);
	status = fanin_route_find(first_hop_be, options->interface, route, error);
	if (status == FANIN_OK)
		status = fanin_comm_address_check(comm, error);
	if (status == FANIN_OK && comm->payload_bytes > fanin_payload_for_mtu(route->mtu, false))
		status = fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the packets of job '%s' have %u bytes of payload, but with the MTU %u of %s there can be %u",
			comm->job_name, comm->payload_bytes, route->mtu, route->interface,
			fanin_payload_for_mtu(route->mtu, false));
	return status;
}

/*
 * Makes the kernel resolve the first hop's MAC address: this host has exchanged nothing with it
 * yet.
 */
static int
first_hop_resolve(struct fanin_comm *comm, const struct fanin_route *route, uint8_t mac[6],
		  uint64_t deadline_ns, struct fanin_error *error)
{
	const struct fanin_ctx *ctx = comm->ctx;
	uint64_t next_ns = 0;

	for (;;) {
		const uint64_t now_ns = fanin_now_ns(NULL);
		int status = fanin_route_resolve(route, mac, error);

		if (status != FANIN_ERR_NO_ROUTE || now_ns >= deadline_ns)
			return status;
		if (now_ns >= next_ns) {
			fanin_route_ping(route);
			next_ns = now_ns + RESOLVE_REPEAT_NS;
		}
		if (ctx->interrupt != NULL && ctx->interrupt(ctx->interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while joining job '%s'",
					       comm->job_name);
		fanin_manager_poll(comm->manager);
		poll(NULL, 0, RESOLVE_WAIT_MS);
	}
}

/*
 * Opens the second link: finds its first hop's address, opens a transport over it, and makes one
 * transport of both.
 */
static int
second_open(struct fanin_comm *comm, const struct fanin_join_opts *options,
	    const struct fanin_peer *self, struct fanin_error *error)
{
	struct fanin_leaders_link *second = &comm->second;
	struct fanin_transport *parts[2] = { comm->transport, NULL };
	uint32_t ip_be = self->second_ip_be;
	char interface[IF_NAMESIZE];
	int status;

	if (!fanin_interface_find(NULL, &ip_be, interface))
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE, "no interface has its address");
	status = fanin_route_find(self->second_switch_ip_be, interface, &second->route, error);
	if (status == FANIN_OK)
		status = first_hop_resolve(comm, &second->route, second->mac,
					   fanin_now_ns(NULL) + SECOND_WAIT_NS, error);
	if (status == FANIN_OK)
		status = link_open(comm, options, &second->route, second->mac, &second->channel,
				   &parts[1], error);
	if (status != FANIN_OK)
		return status;
	/* The bundle owns both from now on. */
	comm->transport = NULL;
	return fanin_bundle_open(parts, second->route.local_mac, &comm->transport, error);
}

/*
 * Fills in the flow by this host's second link, if the job uses one. If it can't be opened, the job
 * uses the first link only.
 */
static void
second_take(struct fanin_comm *comm, const struct fanin_join_opts *options,
	    const struct fanin_manager_answer *answer, struct fanin_flow *flow)
{
	const struct fanin_peer *self = &answer->trees[0].peers[answer->rank];
	char ip[INET_ADDRSTRLEN];
	struct fanin_error error;

	if (self->second_ip_be == 0)
		return;
	if (second_open(comm, options, self, &error) != FANIN_OK) {
		fanin_log_line(&comm->ctx->log, FANIN_LOG_WARNING,
			       "job '%s' can't use this host's second link, at %s: %s",
			       comm->job_name,
			       inet_ntop(AF_INET, &self->second_ip_be, ip, sizeof(ip)), error.text);
		return;
	}
	memcpy(flow->dst_mac, comm->second.mac, sizeof(flow->dst_mac));
	memcpy(flow->src_mac, comm->second.route.local_mac, sizeof(flow->src_mac));
	flow->src_ip_be = comm->second.route.local_ip_be;
	flow->dst_port = options->udp_port;
}

static int
engine_start(struct fanin_comm *comm, const struct fanin_join_opts *options,
	     const struct fanin_manager_answer *answer, struct fanin_error *error)
{
	struct fanin_protocol_config config = {
		.job = options->job,
		.window = comm->window,
		.payload_bytes = comm->payload_bytes,
		.stagger = !options->no_stagger,
		.slots = answer->slots,
		.sharing_jobs = answer->sharing_jobs,
		.listener = -1,
		.hosts = answer->trees[0].peers,
		.flow = {
			.src_ip_be = comm->route.local_ip_be,
			.dst_port = options->udp_port,
		},
	};

	second_take(comm, options, answer, &config.second_flow);
	if (comm->transport == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	config.transport = comm->transport;
	if (fanin_keys_derive(options->key, &config.keys) != 0)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "out of memory for the keys of job %u", options->job);
	memcpy(config.parameters, answer->parameters, sizeof(config.parameters));
	memcpy(config.flow.src_mac, comm->route.local_mac, sizeof(config.flow.src_mac));
	memcpy(config.flow.dst_mac, comm->switch_mac, sizeof(config.flow.dst_mac));
	return fanin_comm_engine_open(comm, options, &config, error);
}

int
fanin_comm_leaders(struct fanin_comm *comm, const struct fanin_join_opts *options,
		   const struct fanin_manager_answer *answer, uint64_t deadline_ns,
		   struct fanin_error *error)
{
	int status = fanin_comm_leaders_check(comm->ctx, options, answer->handler, error);

	if (status == FANIN_OK)
		status = fanin_protocol_with_leaders(options->job, answer->handler, &comm->protocol,
						     comm->protocol_reason,
						     sizeof(comm->protocol_reason), error);
	if (status == FANIN_OK)
		status = job_take(comm, options, answer, error);
	if (status == FANIN_OK)
		status = path_open(comm, options, error);
	if (status == FANIN_OK)
		status = first_hop_resolve(comm, &comm->route, comm->switch_mac, deadline_ns,
					   error);
	if (status == FANIN_OK)
		status = link_open(comm, options, &comm->route, comm->switch_mac,
				   &comm->member.channel, &comm->transport, error);
	if (status == FANIN_OK)
		status = engine_start(comm, options, answer, error);
	if (status == FANIN_OK)
		status = fanin_comm_ready_wait(comm, options, deadline_ns, error);
	return status;
}
