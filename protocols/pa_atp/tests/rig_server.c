/* SPDX-License-Identifier: BSD-3-Clause */
/* See rig_server.h. */
#include "protocols/pa_atp/tests/rig_server.h"

#include "pipeline/job.h"

#include <arpa/inet.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#define FRAME_MAX (FANIN_PAYLOAD_OFFSET + 9000)

struct rig_server {
	struct rig *rig;
	struct rig_host *host;
	struct rig_server_options options;
	struct fanin_server_core *core; /* NULL: dead */
	uint8_t switch_mac[6];          /* that the last packet came from */
	uint64_t random;
	uint8_t frame[FRAME_MAX]; /* being made */
};

/* A number of SplitMix64. */
static uint64_t
random_next(struct rig_server *server)
{
	uint64_t z = server->random += UINT64_C(0x9e3779b97f4a7c15);

	z = (z ^ z >> 30) * UINT64_C(0xbf58476d1ce4e5b9);
	z = (z ^ z >> 27) * UINT64_C(0x94d049bb133111eb);
	return z ^ z >> 31;
}

static uint64_t
core_random(void *arg)
{
	return random_next(arg);
}

static void
wake(struct rig_server *server)
{
	const uint64_t due_ns = fanin_server_core_due(server->core);

	if (due_ns != UINT64_MAX)
		rig_host_wake(server->host, due_ns);
}

static void
core_send(void *arg, const struct fanin_server_emission *emission)
{
	struct rig_server *server = arg;
	struct fanin_headers *headers = (struct fanin_headers *)server->frame;
	struct fanin_flow flow = { .dst_ip_be = emission->dst_ip_be,
				   .src_ip_be = server->options.ip_be,
				   .dst_port = emission->dst_port,
				   .src_port = FANIN_WIRE_DEFAULT_UDP_PORT };

	memcpy(flow.dst_mac, server->switch_mac, sizeof(flow.dst_mac));
	memcpy(flow.src_mac, rig_host_mac(server->host), sizeof(flow.src_mac));
	if (IN_MULTICAST(ntohl(emission->dst_ip_be))) {
		const uint32_t group = ntohl(emission->dst_ip_be);
		const uint8_t mac[6] = { 0x01,
					 0x00,
					 0x5e,
					 (uint8_t)(group >> 16 & 0x7f),
					 (uint8_t)(group >> 8),
					 (uint8_t)group };

		memcpy(flow.dst_mac, mac, sizeof(mac));
	}
	fanin_wire_encode_l4(headers, &flow, emission->payload_len);
	headers->fanin = *emission->hdr;
	if (emission->payload_len != 0)
		memcpy(headers + 1, emission->payload, emission->payload_len);
	rig_host_send(server->host, headers, FANIN_PAYLOAD_OFFSET + emission->payload_len);
}

/* As rig_host_set_take has it. */
static void
server_take(struct rig_host *host, const void *frame, uint32_t len, void *user)
{
	const struct fanin_headers *headers = frame;
	struct rig_server *server = user;

	(void)host;
	if (server->core == NULL || len < sizeof(*headers) || headers->ip.protocol != IPPROTO_UDP ||
	    headers->ip.dst_be != server->options.ip_be)
		return;
	memcpy(server->switch_mac, headers->eth.src, sizeof(server->switch_mac));
	fanin_server_core_receive(server->core, headers, len, headers + 1, rig_now_ns(server->rig));
	wake(server);
}

static void
server_poll(struct rig_host *host, void *user)
{
	struct rig_server *server = user;

	(void)host;
	if (server->core == NULL)
		return;
	fanin_server_core_timers(server->core, rig_now_ns(server->rig));
	wake(server);
}

static int
core_open(struct rig_server *server)
{
	const struct fanin_server_core_options options = {
		.send = core_send,
		.random = core_random,
		.arg = server,
		.udp_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		.isa = fanin_isa_detect(),
		.max_jobs = server->options.max_jobs,
		.memory_bytes = server->options.memory_bytes,
		.round_trip_ns = server->options.round_trip_ns,
	};

	return fanin_server_core_create(&options, &server->core);
}

static struct rig_server *
server_attach(struct rig_switch *sw, uint16_t port, const struct rig_server_options *options)
{
	struct rig_server *server = calloc(1, sizeof(*server));

	if (server == NULL)
		return NULL;
	server->rig = rig_of(sw);
	server->options = *options;
	server->random = options->seed;
	server->host = rig_attach(sw, port, options->ip_be, &options->end);
	if (core_open(server) != FANIN_OK) {
		free(server);
		return NULL;
	}
	rig_host_set_take(server->host, server_take, server);
	rig_host_set_poll(server->host, server_poll, server);
	return server;
}

static void
server_kill(struct rig_server *server)
{
	fanin_server_core_free(server->core);
	server->core = NULL;
}

static void
server_restart(struct rig_server *server)
{
	server_kill(server);
	if (core_open(server) != FANIN_OK) {
		fprintf(stderr, "rig: no memory for a server\n");
		abort();
	}
}

static void
server_free(struct rig_server *server)
{
	if (server == NULL)
		return;
	rig_host_set_take(server->host, NULL, NULL);
	rig_host_set_poll(server->host, NULL, NULL);
	fanin_server_core_free(server->core);
	free(server);
}

struct fanin_server_core *
rig_server_core(const struct rig_server *server)
{
	return server->core;
}

static uint32_t
server_ip_be(const struct rig_server *server)
{
	return server->options.ip_be;
}

static const uint8_t *
server_mac(const struct rig_server *server)
{
	return rig_host_mac(server->host);
}

static int
server_serve(struct rig_server *server, const struct rig_service *service)
{
	const struct job *root = service->root;
	struct fanin_server_spec spec = {
		.id = service->id,
		.key = service->key,
		.member_ip_be = service->member_ip_be,
		.n_ranks = service->n_ranks,
		.payload_bytes = (uint16_t)root->params.payload_bytes,
		.slots = 2u * root->params.window,
	};
	struct fanin_error error = { 0 };

	memcpy(spec.parameters, root->params.parameters, sizeof(spec.parameters));
	snprintf(spec.handler, sizeof(spec.handler), "%s", root->handler->name);
	return fanin_server_core_add(server->core, &spec, &error);
}

static bool
server_is_alive(const struct rig_server *server)
{
	return server->core != NULL;
}

const struct rig_server_ops rig_parameter_server = {
	.attach = server_attach,
	.free = server_free,
	.ip_be = server_ip_be,
	.mac = server_mac,
	.serve = server_serve,
	.kill = server_kill,
	.restart = server_restart,
	.is_alive = server_is_alive,
};
