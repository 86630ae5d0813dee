/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Moves a communicator whose first hop has changed: the manager tells the switch at which the job
 * now begins for this host, and the host's address there (docs/protocol.md, "Going on with another
 * tree"). Route, control channel and transport are opened again; comm_recover.c resumes the blocks
 * in flight. Nothing here waits for the network.
 */
#include "comm_join.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <string.h>

#include "hostlib/src/transport/memif.h"

#define RETRY_NS (100 * 1000000ull)
#define FOLLOW_NS (250 * 1000000ull)

/* True if the first hop is still the same. */
static bool
is_here(const struct fanin_comm *comm, const struct fanin_manager_home *home)
{
	return home->switch_ip_be == comm->route.switch_ip_be &&
	       home->ip_be == comm->route.local_ip_be &&
	       home->udp_port == comm->member.config.udp_port;
}

bool
fanin_comm_is_elsewhere(const struct fanin_comm *comm)
{
	const struct fanin_manager_home *home =
		comm->manager == NULL ? NULL : fanin_manager_home(comm->manager, comm->trees.index);

	return home != NULL && !is_here(comm, home);
}

/* Finds the route to the switch over the interface that has the address. */
static int
route_find(const struct fanin_manager_home *home, struct fanin_route *route,
	   struct fanin_error *error)
{
	char interface[IF_NAMESIZE];
	char ip[INET_ADDRSTRLEN], found[INET_ADDRSTRLEN];
	uint32_t ip_be = home->ip_be;
	int status;

	inet_ntop(AF_INET, &ip_be, ip, sizeof(ip));
	if (!fanin_interface_find(NULL, &ip_be, interface))
		return fanin_error_set(error, FANIN_ERR_NO_ROUTE,
				       "no interface of this host has the address %s", ip);
	status = fanin_route_find(home->switch_ip_be, interface, route, error);
	if (status != FANIN_OK || route->local_ip_be == home->ip_be)
		return status;
	inet_ntop(AF_INET, &route->local_ip_be, found, sizeof(found));
	return fanin_error_set(error, FANIN_ERR_NO_ROUTE,
			       "the route to the switch over %s has the address %s, expected %s",
			       interface, found, ip);
}

/* Opens the new route, channel and transport, and only then closes the old ones. */
static int
path_change(struct fanin_comm *comm, const struct fanin_manager_home *home,
	    struct fanin_error *error)
{
	struct fanin_transport *transport;
	struct fanin_channel channel;
	struct fanin_route route;
	int status = route_find(home, &route, error);

	if (status == FANIN_OK)
		status = fanin_channel_udp(&channel, &route, home->udp_port, comm->recovery.bound,
					   error);
	if (status != FANIN_OK)
		return status;
	status = fanin_comm_transport(comm, &route, &channel, comm->switch_mac, &transport, error);
	if (status != FANIN_OK) {
		channel.ops->close(&channel);
		return status;
	}
	comm->protocol->on_switch->move(comm->endpoint, transport);
	comm->recovery.ring_drops += comm->transport->ops->ring_drops(comm->transport);
	fanin_transport_counts_add(comm->transport, &comm->recovery.counts);
	comm->transport->ops->close(comm->transport);
	comm->transport = transport;
	comm->route = route;
	comm->registered_ip_be = home->ip_be;
	fanin_member_move(&comm->member, &route, home->udp_port, &channel);
	comm->recovery.rejoining = false;
	comm->recovery.moved = true;
	return FANIN_OK;
}

void
fanin_comm_move(struct fanin_comm *comm, const struct fanin_manager_home *home)
{
	const struct fanin_log *log = &comm->ctx->log;
	struct fanin_error error = { 0 };
	char ip[INET_ADDRSTRLEN];
	uint64_t now_ns;
	int status;

	if (is_here(comm, home)) {
		comm->recovery.path_problem[0] = '\0';
		return;
	}
	now_ns = fanin_now_ns(NULL);
	if (now_ns < comm->recovery.next_move_ns)
		return;
	comm->recovery.next_move_ns = now_ns + RETRY_NS;
	inet_ntop(AF_INET, &home->switch_ip_be, ip, sizeof(ip));
	if (comm->transport->ops == &fanin_memif_ops)
		status = fanin_error_set(&error, FANIN_ERR_TRANSPORT,
					 "this host shares memory with another switch");
	else
		status = path_change(comm, home, &error);
	if (status == FANIN_OK) {
		comm->recovery.path_problem[0] = '\0';
		fanin_log_line(log, FANIN_LOG_WARNING,
			       "job %u moves to the switch %s over the interface %s",
			       comm->member.config.job, ip, comm->route.interface);
		return;
	}
	/* Moving is retried, but logged once. */
	if (comm->recovery.path_problem[0] == '\0')
		fanin_log_line(log, FANIN_LOG_WARNING, "can't go to the switch %s yet: %s", ip,
			       error.text);
	snprintf(comm->recovery.path_problem, sizeof(comm->recovery.path_problem),
		 "can't go to the switch %s: %.300s", ip, error.text);
}

/* Points the engine at the current MAC address of the switch's address, if it has changed. */
static int
redirect(struct fanin_comm *comm, struct fanin_error *error)
{
	struct fanin_flow flow = {
		.dst_ip_be = comm->route.switch_ip_be,
		.src_ip_be = comm->route.local_ip_be,
		.dst_port = comm->member.config.udp_port,
		.src_port = comm->member.channel.data_port,
	};
	int status = fanin_route_resolve(&comm->route, flow.dst_mac, error);

	if (status != FANIN_OK || (!comm->recovery.moved && memcmp(flow.dst_mac, comm->switch_mac,
								   sizeof(flow.dst_mac)) == 0))
		return status;
	memcpy(flow.src_mac, comm->route.local_mac, sizeof(flow.src_mac));
	memcpy(comm->switch_mac, flow.dst_mac, sizeof(comm->switch_mac));
	comm->protocol->on_switch->redirect(comm->endpoint, &flow);
	return FANIN_OK;
}

int
fanin_comm_move_end(struct fanin_comm *comm, struct fanin_error *error)
{
	int status;

	/* Shared memory leads to one switch only. */
	if (comm->transport->ops == &fanin_memif_ops)
		return FANIN_OK;
	status = redirect(comm, error);
	if (status == FANIN_OK && comm->recovery.moved)
		status = fanin_channel_udp_group(&comm->member.channel, comm->member.group_be,
						 &comm->route, error);
	if (status == FANIN_OK && comm->recovery.moved)
		fanin_comm_path(comm);
	if (status == FANIN_OK)
		comm->recovery.moved = false;
	return status;
}

void
fanin_comm_follow(struct fanin_comm *comm)
{
	struct fanin_error error = { 0 };
	uint64_t now_ns = fanin_now_ns(NULL);

	if (now_ns < comm->recovery.next_follow_ns || comm->recovery.rejoining ||
	    comm->recovery.moved || comm->transport->ops == &fanin_memif_ops)
		return;
	comm->recovery.next_follow_ns = now_ns + FOLLOW_NS;
	/* The calls open a socket, query, and close it. */
	comm->transport->counts.other_calls += 3;
	/*
	 * If the kernel does not know the address it will ask for it; the engine's timeout limits
	 * the wait.
	 */
	redirect(comm, &error);
}
