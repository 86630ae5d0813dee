/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator on a switch: joining puts route, membership, transport and the protocol's engine
 * together. The transport is opened as soon as the switch has told the job's parameters, before the
 * other ranks can cause results.
 */
#include "comm_join.h"

#include <arpa/inet.h>
#include <string.h>

#include "hostlib/src/transport/memif.h"

/*
 * Packets longer than this occur only on virtual links. There the data in flight must fit the
 * core's cache: with 61 KB per packet and 64 of them in flight instead of 8, sums of 16 MiB take
 * some 15 % longer.
 */
#define LONG_PAYLOAD (32 * 1024u)
#define LONG_IN_FLIGHT (512 * 1024u)

/* Checks the options and fills in the defaults. */
static int
options_check(struct fanin_join_opts *options, uint32_t *switch_ip_be, struct fanin_error *error)
{
	if (options->switch_address == NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID, "switch_address is missing");
	if (inet_pton(AF_INET, options->switch_address, switch_ip_be) != 1)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "switch_address '%s' is not an IPv4 address",
				       options->switch_address);
	if (options->job == 0 || options->job > FANIN_WIRE_MAX_JOB)
		return fanin_error_set(error, FANIN_ERR_INVALID, "job is %u, expected 1 to %u",
				       options->job, FANIN_WIRE_MAX_JOB);
	if (options->size == 0 || options->size > FANIN_WIRE_MAX_RANKS)
		return fanin_error_set(error, FANIN_ERR_INVALID, "size is %u, expected 1 to %u",
				       options->size, FANIN_WIRE_MAX_RANKS);
	if (options->rank >= options->size)
		return fanin_error_set(error, FANIN_ERR_INVALID, "rank is %u, expected 0 to %u",
				       options->rank, options->size - 1);
	if (options->recover && options->memif_socket != NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "recover is not available with memif");
	if (options->udp_port == 0)
		options->udp_port = FANIN_WIRE_DEFAULT_UDP_PORT;
	return FANIN_OK;
}

/*
 * Returns the maximum length of a frame, sent or received, in bytes. Answers may be longer than
 * packets with elements.
 */
static uint32_t
frame_len_max(const struct fanin_comm *comm)
{
	const uint32_t answer_len = fanin_answer_len_max(comm->member.config.size);

	return FANIN_PAYLOAD_OFFSET +
	       (comm->payload_bytes > answer_len ? comm->payload_bytes : answer_len) +
	       (comm->member.config.authenticate ? FANIN_TAG_LEN : 0);
}

/* Returns how many frames may be under way to this rank. */
static uint16_t
in_flight_max(const struct fanin_comm *comm)
{
	uint32_t most = comm->window, found;

	if (comm->protocol->in_flight == NULL)
		return (uint16_t)most;
	found = comm->protocol->in_flight(comm->member.config.size, comm->payload_bytes);
	if (found > most)
		most = found;
	return (uint16_t)most;
}

int
fanin_comm_transport(const struct fanin_comm *comm, const struct fanin_route *route,
		     struct fanin_channel *channel, const uint8_t *switch_mac,
		     struct fanin_transport **transport, struct fanin_error *error)
{
	const struct fanin_transport_config config = {
		.interface = route->interface,
		.ifindex = route->ifindex,
		.local_mac = route->local_mac,
		.rx_queues = route->rx_queues,
		.local_ip_be = route->local_ip_be,
		.switch_ip_be = route->switch_ip_be,
		.switch_mac = switch_mac,
		.group_be = htonl(FANIN_WIRE_GROUPS | comm->member.config.job),
		.mtu = route->mtu,
		.job = comm->member.config.job,
		.udp_port = channel->udp_port,
		.data_port = channel->data_port,
		.data_fd = channel->data_fd,
		/* An AF_XDP program serves one job per interface. */
		.shares_interface = comm->trees.n > 1,
		.window = in_flight_max(comm),
		.frame_len = frame_len_max(comm),
		.receive_buffer = comm->ctx->receive_buffer,
		.log = &comm->ctx->log,
	};

	const char *name = comm->ctx->transport;
	int status;

	if (config.shares_interface && strcmp(name, "af_xdp") == 0)
		name = "af_packet";
	status = fanin_transport_open(&config, name, transport, error);
	/* The transport has it from now on. */
	if (status == FANIN_OK)
		channel->data_fd = -1;
	return status;
}

/*
 * Bounds the window by the transport's receive room: more frames would be lost whenever this rank
 * is away.
 */
static void
window_bound(struct fanin_comm *comm)
{
	const struct fanin_transport_ops *ops = comm->transport->ops;
	const uint32_t room = ops->rx_room == NULL ? comm->window : ops->rx_room(comm->transport);

	while (comm->window > 1 && comm->window > room)
		comm->window /= 2;
}

/* Opens the transport, or prepares the open one, with the job's parameters from the switch. */
static int
transport_open(struct fanin_comm *comm, struct fanin_error *error)
{
	const uint32_t frame_len = frame_len_max(comm);
	int status;

	if (comm->transport == NULL) {
		status = fanin_comm_transport(comm, &comm->route, &comm->member.channel,
					      comm->switch_mac, &comm->transport, error);
		if (status == FANIN_OK)
			window_bound(comm);
		return status;
	}
	if (frame_len > FANIN_ETH_LEN + comm->route.mtu)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "the job's packets have %u bytes, memif's buffers hold %u",
				       frame_len, FANIN_ETH_LEN + comm->route.mtu);
	fanin_memif_expect(comm->transport, in_flight_max(comm));
	return FANIN_OK;
}

/* Finds the route to the switch and opens the channel for control packets. */
static int
channel_open(struct fanin_comm *comm, const struct fanin_join_opts *options, uint32_t switch_ip_be,
	     uint64_t deadline_ns, struct fanin_channel *channel, struct fanin_error *error)
{
	int status;

	if (fanin_comm_wants_memif(comm->ctx, options))
		return fanin_comm_memif(comm, options, switch_ip_be, deadline_ns, channel, error);
	status = fanin_route_find(switch_ip_be, options->interface, &comm->route, error);
	if (status != FANIN_OK)
		return status;
	return fanin_channel_udp(channel, &comm->route, options->udp_port,
				 options->interface != NULL, error);
}

int
fanin_comm_address_check(const struct fanin_comm *comm, struct fanin_error *error)
{
	char told[INET_ADDRSTRLEN];
	char used[INET_ADDRSTRLEN];

	if (comm->registered_ip_be == 0 || comm->registered_ip_be == comm->route.local_ip_be)
		return FANIN_OK;
	inet_ntop(AF_INET, &comm->registered_ip_be, told, sizeof(told));
	inet_ntop(AF_INET, &comm->route.local_ip_be, used, sizeof(used));
	return fanin_error_set(
		error, FANIN_ERR_INVALID,
		"the manager knows this host as %s, but the route to the switch has the "
		"address %s: give that one as address",
		told, used);
}

/*
 * Called while a join waits: true if the user wants to end it, or the manager has moved this host
 * to another switch.
 */
static bool
join_should_stop(void *arg)
{
	const struct fanin_comm *comm = arg;
	const struct fanin_ctx *ctx = comm->ctx;

	if (ctx->interrupt != NULL && ctx->interrupt(ctx->interrupt_arg))
		return true;
	if (comm->manager == NULL)
		return false;
	fanin_manager_poll(comm->manager);
	if (comm->trees.siblings != NULL)
		fanin_comm_trees_poll_joined(comm->trees.siblings);
	return fanin_comm_is_elsewhere(comm);
}

/* Returns the window: the job's or less, always a power of two. */
static uint16_t
window_choose(const struct fanin_comm *comm, const struct fanin_join_opts *options)
{
	uint32_t most = options->window;
	uint16_t window = comm->member.window;

	if (most == 0 && comm->payload_bytes > LONG_PAYLOAD)
		most = LONG_IN_FLIGHT / comm->payload_bytes;
	while (most != 0 && window > most)
		window /= 2;
	return window;
}

static uint16_t
payload_choose(const struct fanin_comm *comm, uint16_t most)
{
	uint16_t payload_bytes = comm->member.payload_bytes;

	if (most != 0 && payload_bytes > most)
		payload_bytes = most;
	return payload_bytes / FANIN_PAYLOAD_ALIGN * FANIN_PAYLOAD_ALIGN;
}

/* True if the transport may be one that sends super-frames: JOIN then asks whether they pass. */
static bool
wants_path(const struct fanin_ctx *ctx)
{
	return strcmp(ctx->transport, "udp") == 0 || strcmp(ctx->transport, "auto") == 0;
}

void
fanin_comm_path(struct fanin_comm *comm)
{
	const struct fanin_transport_ops *ops = comm->transport->ops;
	const struct fanin_member *member = &comm->member;

	if (ops->path == NULL)
		return;
	ops->path(comm->transport, member->super_frames,
		  member->pair_errnum != 0
			  ? strerror(member->pair_errnum)
			  : "the switch has not got those that were sent to find out");
}

static int
member_join(struct fanin_comm *comm, const struct fanin_join_opts *options, uint16_t max_payload,
	    uint32_t switch_ip_be, uint64_t deadline_ns, struct fanin_error *error)
{
	const struct fanin_member_config member_config = {
		.key = options->key,
		.job = options->job,
		.rank = options->rank,
		.size = options->size,
		.udp_port = options->udp_port,
		.wants_path = wants_path(comm->ctx),
		.authenticate = options->authenticate,
		.awaits_new_job = options->recover,
		.timeout_ns = options->timeout_ms * 1000000ull,
		.interrupt = join_should_stop,
		.interrupt_arg = comm,
	};
	uint64_t timeout_ns = options->join_timeout_ms * 1000000ull;
	struct fanin_channel channel;
	int status;

	status = channel_open(comm, options, switch_ip_be, deadline_ns, &channel, error);
	if (status != FANIN_OK)
		return status;
	status = fanin_member_open(&comm->member, &member_config, &comm->route, &channel, error);
	if (status == FANIN_OK)
		status = fanin_comm_address_check(comm, error);
	if (status == FANIN_OK)
		status = fanin_member_join(&comm->member, FANIN_JOIN_UNTIL_ACKNOWLEDGED,
					   deadline_ns, timeout_ns, error);
	/* This must be known before the other ranks wait for this one. */
	if (status == FANIN_OK)
		status = fanin_protocol_on_switch(options->job, comm->member.handler,
						  comm->member.multicast, &comm->protocol,
						  comm->protocol_reason,
						  sizeof(comm->protocol_reason), error);
	if (status == FANIN_OK && comm->transport == NULL)
		status = fanin_channel_udp_group(&comm->member.channel, comm->member.group_be,
						 &comm->route, error);
	if (status != FANIN_OK)
		return status;

	comm->payload_bytes = payload_choose(comm, max_payload);
	comm->window = window_choose(comm, options);
	status = transport_open(comm, error);
	if (status == FANIN_OK)
		status = fanin_member_join(&comm->member, FANIN_JOIN_UNTIL_ACTIVE, deadline_ns,
					   timeout_ns, error);
	if (status == FANIN_OK) {
		if (comm->transport->ops->path != NULL)
			fanin_member_try_path(&comm->member);
		fanin_comm_path(comm);
	}
	return status;
}

static int
engine_start(struct fanin_comm *comm, const struct fanin_join_opts *options,
	     const struct fanin_peer *peers, struct fanin_error *error)
{
	struct fanin_protocol_config config = {
		.keys = comm->member.keys,
		.transport = comm->transport,
		.tagger = comm->member.tagger,
		.instance = comm->member.instance,
		.job = options->job,
		.epoch = comm->member.epoch,
		.window = comm->window,
		.payload_bytes = comm->payload_bytes,
		.spread = comm->member.spread,
		.port_shift = comm->member.port_shift,
		.stagger = !options->no_stagger,
		.recover = options->recover,
		.slots = comm->member.slots,
		.sharing_jobs = comm->member.sharing_jobs,
		.listener = -1,
		.hosts = peers,
		.flow = {
			.dst_ip_be = comm->route.switch_ip_be,
			.src_ip_be = comm->route.local_ip_be,
			.dst_port = options->udp_port,
			/* The port for answers. Packets about blocks have other source ports. */
			.src_port = comm->member.channel.data_port,
		},
	};
	int status;

	if (config.tagger != NULL && !comm->protocol->has_tags)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the packets of job %u have tags, which the protocol %s of its handler %s cannot make",
			options->job, comm->protocol->name, comm->member.handler);
	memcpy(config.parameters, comm->member.parameters, sizeof(config.parameters));
	memcpy(config.flow.src_mac, comm->route.local_mac, sizeof(config.flow.src_mac));
	if (!fanin_comm_wants_memif(comm->ctx, options)) {
		status = fanin_route_resolve(&comm->route, comm->switch_mac, error);
		if (status != FANIN_OK)
			return status;
	}
	memcpy(config.flow.dst_mac, comm->switch_mac, sizeof(config.flow.dst_mac));
	return fanin_comm_engine_open(comm, options, &config, error);
}

/*
 * Prepares to join another switch: the first one failed before all ranks had joined, the job is
 * created again, and this host has to join it elsewhere.
 *
 * interface: IF_NAMESIZE bytes for the options' new interface, if they name one. Returns the
 * address of the new switch.
 */
static uint32_t
way_give_up(struct fanin_comm *comm, struct fanin_join_opts *options, char *interface)
{
	const struct fanin_manager_home *home = fanin_manager_home(comm->manager,
								   comm->trees.index);
	uint32_t ip_be = home->ip_be;

	fanin_member_close(&comm->member);
	if (comm->transport != NULL)
		comm->transport->ops->close(comm->transport);
	comm->transport = NULL;
	comm->registered_ip_be = home->ip_be;
	comm->recovery.generation = home->generation;
	options->udp_port = home->udp_port;
	/*
	 * If there is no such interface, the route's address will not match, and the check of the
	 * route reports this.
	 */
	if (options->interface != NULL && fanin_interface_find(NULL, &ip_be, interface))
		options->interface = interface;
	return home->switch_ip_be;
}

int
fanin_comm_switch_join(struct fanin_comm *comm, struct fanin_join_opts *options,
		       const struct fanin_peer *peers, uint16_t max_payload, uint64_t deadline_ns,
		       struct fanin_error *error)
{
	char interface[IF_NAMESIZE];
	uint32_t switch_ip_be;
	int status;

	comm->ops = &fanin_comm_single_ops;
	comm->recovery.bound = options->interface != NULL;
	status = options_check(options, &switch_ip_be, error);
	if (status == FANIN_OK)
		status = member_join(comm, options, max_payload, switch_ip_be, deadline_ns, error);
	while (status == FANIN_ERR_INTERRUPTED && fanin_comm_is_elsewhere(comm)) {
		switch_ip_be = way_give_up(comm, options, interface);
		status = member_join(comm, options, max_payload, switch_ip_be, deadline_ns, error);
	}
	/* The scope of the interface's name ends here. */
	if (options->interface == interface)
		options->interface = comm->route.interface;
	return status != FANIN_OK ? status : engine_start(comm, options, peers, error);
}

void
fanin_comm_give_up(struct fanin_comm *comm)
{
	if (!comm->gave_up) {
		fanin_member_give_up(&comm->member);
		fanin_manager_give_up(comm->manager);
	}
	comm->gave_up = true;
}
