/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * How a communicator reaches a switch on the same machine. memif has neither interface nor
 * neighbour table, so the route is made from the options instead of the kernel's tables.
 */
#include "comm_join.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "hostlib/src/transport/memif.h"

/* Start of a locally administered MAC address; the IP address makes it unique. */
#define MAC_PREFIX 0x02, 0xfb

bool
fanin_comm_wants_memif(const struct fanin_ctx *ctx, const struct fanin_join_opts *options)
{
	return options->memif_socket != NULL || strcmp(ctx->transport, fanin_memif_ops.name) == 0;
}

static int
options_check(const struct fanin_ctx *ctx, const struct fanin_join_opts *options,
	      uint32_t *local_ip_be, struct fanin_error *error)
{
	if (options->memif_socket == NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"the transport memif needs memif_socket, the path of the switch's socket");
	if (strcmp(ctx->transport, "auto") != 0 &&
	    strcmp(ctx->transport, fanin_memif_ops.name) != 0)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "memif_socket is given, but the transport is to be %s",
				       ctx->transport);
	if (options->interface != NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"both memif_socket and interface are given, expected one of them");
	if (options->address == NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"memif needs address, this host's IPv4 address as a member of the job");
	if (inet_pton(AF_INET, options->address, local_ip_be) != 1 || *local_ip_be == 0 ||
	    IN_MULTICAST(ntohl(*local_ip_be)) || *local_ip_be == INADDR_BROADCAST)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "address '%s' is not a unicast IPv4 address",
				       options->address);
	return FANIN_OK;
}

int
fanin_comm_memif(struct fanin_comm *comm, const struct fanin_join_opts *options,
		 uint32_t switch_ip_be, uint64_t deadline_ns, struct fanin_channel *channel,
		 struct fanin_error *error)
{
	struct fanin_memif_options memif = {
		.socket = options->memif_socket,
		.id = options->memif_id,
		.local_mac = { MAC_PREFIX },
	};
	struct fanin_route *route = &comm->route;
	struct fanin_flow flow;
	int status;

	status = options_check(comm->ctx, options, &memif.local_ip_be, error);
	if (status != FANIN_OK)
		return status;
	memcpy(memif.local_mac + 2, &memif.local_ip_be, sizeof(memif.local_ip_be));
	*route = (struct fanin_route){
		.mtu = FANIN_MEMIF_MTU,
		.switch_ip_be = switch_ip_be,
		.local_ip_be = memif.local_ip_be,
		.next_hop_be = switch_ip_be,
	};
	snprintf(route->interface, sizeof(route->interface), "memif%u", memif.id);
	memcpy(route->local_mac, memif.local_mac, sizeof(route->local_mac));

	status = fanin_memif_open(&memif, &comm->transport, error);
	if (status != FANIN_OK)
		return status;
	fanin_log_line(&comm->ctx->log, FANIN_LOG_INFO, "transport: %s", comm->transport->reason);
	status = fanin_memif_resolve(comm->transport, switch_ip_be, deadline_ns,
				     comm->ctx->interrupt, comm->ctx->interrupt_arg,
				     comm->switch_mac, error);
	if (status != FANIN_OK)
		return status;
	fanin_memif_filter(comm->transport, options->job, options->udp_port);
	flow = (struct fanin_flow){
		.dst_ip_be = switch_ip_be,
		.src_ip_be = route->local_ip_be,
		.dst_port = options->udp_port,
		.src_port = options->udp_port,
	};
	memcpy(flow.dst_mac, comm->switch_mac, sizeof(flow.dst_mac));
	memcpy(flow.src_mac, route->local_mac, sizeof(flow.src_mac));
	fanin_channel_frames(channel, comm->transport, &flow);
	return FANIN_OK;
}
