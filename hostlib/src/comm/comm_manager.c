/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The communicator's part in getting its job from the network manager: the host's report of itself,
 * and the use of the answer.
 */
#include "comm_join.h"

#include <arpa/inet.h>
#include <errno.h>
#include <ifaddrs.h>
#include <stdio.h>
#include <string.h>
#include <sys/ioctl.h>
#include <unistd.h>

#include "hostlib/src/transport/memif.h"

/* Returns the transport that can serve only one job of a host; NULL if none is asked for. */
static const char *
single_transport(const struct fanin_ctx *ctx, const struct fanin_join_opts *options)
{
	if (fanin_comm_wants_memif(ctx, options))
		return "memif";
	return strcmp(ctx->transport, "af_xdp") == 0 ? "af_xdp" : NULL;
}

/* Checks the options of a job by name. */
static int
options_check(const struct fanin_ctx *ctx, const struct fanin_join_opts *options,
	      struct fanin_error *error)
{
	static const char allowed[] =
		"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-";
	size_t len;

	if (options->job_name == NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "manager is given, but job_name is missing");
	if (options->switch_address != NULL || options->job != 0 || options->key != 0)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"both job_name and %s are given, expected one way to the job",
			options->switch_address != NULL ? "switch_address"
			: options->job != 0             ? "job"
							: "key");
	len = strlen(options->job_name);
	if (len == 0 || len > FANIN_JOB_NAME_MAX || strspn(options->job_name, allowed) != len)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"job_name is '%.80s', expected 1 to %u letters, digits, '.', '_' and '-'",
			options->job_name, FANIN_JOB_NAME_MAX);
	if (options->size == 0 || options->size > FANIN_WIRE_MAX_RANKS)
		return fanin_error_set(error, FANIN_ERR_INVALID, "size is %u, expected 1 to %u",
				       options->size, FANIN_WIRE_MAX_RANKS);
	if (options->fixed_rank && options->rank >= options->size)
		return fanin_error_set(error, FANIN_ERR_INVALID, "rank is %u, expected 0 to %u",
				       options->rank, options->size - 1);
	if (options->trees > FANIN_MAX_TREES)
		return fanin_error_set(error, FANIN_ERR_INVALID, "trees is %u, expected 0 to %u",
				       options->trees, FANIN_MAX_TREES);
	if (options->trees > 1 && single_transport(ctx, options) != NULL)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"trees is %u, but %s serves one tree of a host: expected the transport auto, af_packet or udp",
			options->trees, single_transport(ctx, options));
	return FANIN_OK;
}

bool
fanin_interface_find(const char *wanted, uint32_t *ip_be, char *name)
{
	struct ifaddrs *list;
	bool found = false;

	if (getifaddrs(&list) != 0)
		return false;
	for (const struct ifaddrs *entry = list; entry != NULL && !found; entry = entry->ifa_next) {
		struct sockaddr_in address;

		if (entry->ifa_addr == NULL || entry->ifa_addr->sa_family != AF_INET)
			continue;
		memcpy(&address, entry->ifa_addr, sizeof(address));
		if (wanted != NULL ? strcmp(wanted, entry->ifa_name) != 0
				   : address.sin_addr.s_addr != *ip_be)
			continue;
		*ip_be = address.sin_addr.s_addr;
		snprintf(name, IF_NAMESIZE, "%s", entry->ifa_name);
		found = true;
	}
	freeifaddrs(list);
	return found;
}

/* Returns an interface's MTU; 0 if it is unknown. */
static uint32_t
mtu_of(const char *interface)
{
	struct ifreq query = { 0 };
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool told;

	snprintf(query.ifr_name, sizeof(query.ifr_name), "%s", interface);
	told = fd >= 0 && ioctl(fd, SIOCGIFMTU, &query) == 0;
	if (fd >= 0)
		close(fd);
	return told ? (uint32_t)query.ifr_mtu : 0;
}

/* Finds this host's address in the job, and fills its interface and MTU into the route. */
static int
local_address_find(struct fanin_comm *comm, const struct fanin_join_opts *options, uint32_t *ip_be,
		   struct fanin_error *error)
{
	struct fanin_route *route = &comm->route;

	*ip_be = fanin_manager_local_ip(comm->manager);
	if (options->address != NULL && inet_pton(AF_INET, options->address, ip_be) != 1)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "address '%.64s' is not an IPv4 address", options->address);
	if (fanin_comm_wants_memif(comm->ctx, options)) {
		route->mtu = FANIN_MEMIF_MTU;
		return FANIN_OK;
	}
	if (options->address == NULL && options->interface == NULL &&
	    ntohl(*ip_be) >> IN_CLASSA_NSHIFT == IN_LOOPBACKNET)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"the manager %s is on this host, so that the route to it does not show this host's "
			"address in the job: give address or interface",
			fanin_manager_address(comm->manager));
	if (options->address == NULL && options->interface != NULL &&
	    !fanin_interface_find(options->interface, ip_be, route->interface))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "there is no interface '%.32s' with an IPv4 address",
				       options->interface);
	if (!fanin_interface_find(NULL, ip_be, route->interface))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "address is %s, which no interface of this host has",
				       options->address);
	route->mtu = mtu_of(route->interface);
	/* Loopback's MTU is larger than any packet. */
	if (route->mtu > UINT16_MAX)
		route->mtu = UINT16_MAX;
	return FANIN_OK;
}

/* Opens the listener of the protocol without a switch, if that is allowed. *listener: -1 if not. */
static int
peers_listen(const struct fanin_comm *comm, const struct fanin_join_opts *options,
	     const struct fanin_protocol *protocol, uint32_t ip_be, int *listener,
	     struct sockaddr_in *endpoint, struct fanin_error *error)
{
	*listener = -1;
	if (options->no_fallback)
		return FANIN_OK;
	/* With memif the kernel does not know the host's address. */
	if (fanin_comm_wants_memif(comm->ctx, options))
		ip_be = fanin_manager_local_ip(comm->manager);
	*listener = protocol->listen(ip_be, endpoint, error);
	return *listener < 0 ? *listener : FANIN_OK;
}

/*
 * Sets the interface and address of the link that the manager has chosen, which may be another one
 * than the host has joined with.
 */
static int
link_take(struct fanin_comm *comm, struct fanin_join_opts *options, struct fanin_manager_tree *tree,
	  struct fanin_error *error)
{
	uint32_t ip_be = tree->home.ip_be;
	char ip[INET_ADDRSTRLEN];

	if (ip_be == 0 || ip_be == comm->registered_ip_be)
		return FANIN_OK;
	inet_ntop(AF_INET, &ip_be, ip, sizeof(ip));
	if (fanin_comm_wants_memif(comm->ctx, options) ||
	    !fanin_interface_find(NULL, &ip_be, tree->interface))
		return fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager %s says that the job uses this host's link with the address %s, "
			"which no interface has: is its topology right?",
			fanin_manager_address(comm->manager), ip);
	comm->registered_ip_be = ip_be;
	if (options->interface != NULL)
		options->interface = tree->interface;
	return FANIN_OK;
}

int
fanin_comm_tree_options(struct fanin_comm *comm, struct fanin_join_opts *options,
			struct fanin_manager_answer *answer, uint16_t tree,
			struct fanin_error *error)
{
	options->switch_address = answer->trees[tree].switch_ip;
	options->job = answer->trees[tree].job;
	options->key = answer->trees[tree].key;
	options->udp_port = answer->trees[tree].home.udp_port;
	comm->recovery.generation = answer->trees[tree].home.generation;
	options->rank = answer->rank;
	/*
	 * The manager makes the job again over other switches when one of them has failed. With
	 * memif there are no others.
	 */
	options->recover = options->memif_socket == NULL;
	return link_take(comm, options, &answer->trees[tree], error);
}

/* Checks the answer against `authenticate`: either all ranks of a job have tags or none. */
static int
tags_take(const struct fanin_comm *comm, struct fanin_join_opts *options,
	  const struct fanin_manager_answer *answer, struct fanin_error *error)
{
	if (options->authenticate && !answer->authenticated)
		return fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager %s made job '%s' without authentication, which this host asks for",
			fanin_manager_address(comm->manager), comm->job_name);
	options->authenticate = answer->authenticated;
	return FANIN_OK;
}

int
fanin_comm_manager(struct fanin_comm *comm, struct fanin_join_opts *options,
		   const struct fanin_beside *beside, struct fanin_manager_answer *answer,
		   struct fanin_error *error)
{
	const struct fanin_ctx *ctx = comm->ctx;
	const struct fanin_protocol *without_switch =
		fanin_protocol_of(FANIN_HANDLER_WITHOUT_SWITCH, comm->protocol_reason,
				  sizeof(comm->protocol_reason));
	uint64_t timeout_ns = options->join_timeout_ms * 1000000ull;
	const struct fanin_manager_options manager_options = {
		.manager = options->manager,
		.token = options->token,
		.deadline_ns = fanin_now_ns(NULL) + timeout_ns,
		.timeout_ns = timeout_ns,
		.interrupt = ctx->interrupt,
		.interrupt_arg = ctx->interrupt_arg,
		.log = &ctx->log,
	};
	struct fanin_manager_join join = {
		.job = options->job_name,
		.size = options->size,
		.rank = options->fixed_rank ? options->rank : -1,
		.handler = options->handler != NULL ? options->handler : "auto",
		.reproducible = options->reproducible,
		.wide = options->accumulate_f32,
		.authenticate = options->authenticate,
		.parameters = beside->parameters,
		.n_parameters = beside->n_parameters,
		.beside_key = beside->owner != NULL ? fanin_manager_key(beside->owner->manager) : 0,
		.trees = options->trees == 0 && single_transport(ctx, options) != NULL
				 ? 1
				 : options->trees,
	};
	struct sockaddr_in endpoint;
	int listener = -1;
	int status;

	status = options_check(ctx, options, error);
	if (status == FANIN_OK)
		status = fanin_comm_leaders_check(ctx, options, options->handler, error);
	if (status == FANIN_OK)
		status = fanin_manager_open(&manager_options, &comm->manager, error);
	if (status == FANIN_OK)
		status = local_address_find(comm, options, &join.ip_be, error);
	if (status == FANIN_OK)
		status = peers_listen(comm, options, without_switch, join.ip_be, &listener,
				      &endpoint, error);
	if (status != FANIN_OK)
		return status;
	snprintf(comm->job_name, sizeof(comm->job_name), "%s", options->job_name);
	join.mtu = comm->route.mtu;
	comm->registered_ip_be = join.ip_be;
	join.endpoint = listener >= 0 ? &endpoint : NULL;
	status = fanin_manager_join(comm->manager, &join, answer, error);
	if (status == FANIN_OK && answer->ring && listener < 0)
		status = fanin_error_set(
			error, FANIN_ERR_MANAGER,
			"the manager %s answered with a ring, which this host forbids: %s",
			fanin_manager_address(comm->manager), answer->reason);
	if (status == FANIN_OK && answer->ring) {
		comm->trees.n_asked = options->trees > 1 ? options->trees : 1;
		snprintf(comm->mode_reason, sizeof(comm->mode_reason), "%s", answer->reason);
		snprintf(comm->protocol_reason, sizeof(comm->protocol_reason),
			 "the job has no reduction tree: %.300s", answer->reason);
		comm->protocol = without_switch;
		return fanin_comm_peers(comm, options, answer, listener,
					manager_options.deadline_ns, error);
	}
	if (listener >= 0)
		close(listener);
	if (status == FANIN_OK)
		status = tags_take(comm, options, answer, error);
	if (status != FANIN_OK)
		return status;
	snprintf(comm->mode_reason, sizeof(comm->mode_reason),
		 answer->has_leaders   ? "the manager has found switches between the hosts"
		 : answer->n_trees > 1 ? "the manager has found reduction trees"
				       : "the manager has found a reduction tree");
	comm->trees.n = answer->n_trees;
	comm->trees.n_asked = answer->trees_asked;
	memcpy(comm->trees.reason, answer->trees_reason, sizeof(comm->trees.reason));
	if (answer->n_trees < answer->trees_asked)
		fanin_log_line(&ctx->log, FANIN_LOG_WARNING,
			       "job '%s' has %u of the %u trees that it asked for: %s",
			       comm->job_name, answer->n_trees, answer->trees_asked,
			       comm->trees.reason);
	return answer->n_trees > 1 ? FANIN_OK
				   : fanin_comm_tree_options(comm, options, answer, 0, error);
}
