/* SPDX-License-Identifier: BSD-3-Clause */
/* See commands.h. Those that concern jobs are in commands_jobs.c. */
#include "protocols/pa_atp/server/commands.h"

#include <string.h>
#include <unistd.h>

#include "control/args.h"
#include "control/clock.h"
#include "control/process.h"
#include "handlers/kernels/kernels.h"
#include "wire/wire.h"

void
server_stats(const struct daemon *daemon, struct fanin_server_stats *stats)
{
	*stats = (struct fanin_server_stats){ .sz = sizeof(*stats) };
	fanin_server_stats(daemon->server, stats);
}

static json_t *
json_mac(const uint8_t mac[6])
{
	return json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
			    mac[5]);
}

static json_t *
list_parameters(void)
{
	json_t *list = json_array();
	const struct server_parameter *parameter;

	for (size_t i = 0; (parameter = server_parameter(i)) != NULL; i++)
		json_array_append_new(list,
				      json_pack("{s:s,s:s,s:I,s:I,s:I}", "name", parameter->name,
						"description", parameter->text, "least",
						(json_int_t)parameter->least, "most",
						(json_int_t)parameter->most, "default",
						(json_int_t)parameter->usual));
	return list;
}

/* The shape of a switch's answer, which a manager needs for planning. */
static json_t *
list_handlers(void)
{
	return json_pack(
		"[{s:s,s:s,s:b,s:b,s:s,s:s,s:s,s:{s:i,s:i,s:i},s:o,s:o,s:[]}]", "name",
		SERVER_HANDLER, "description",
		"the parameter server of such jobs: what switches could not combine is combined here",
		"default", 1, "in_order", 0, "shape", "server", "slots", "private", "admission",
		"members", "slot_mbufs", "fixed", 1, "per_buffer", 0, "per_pair", 0, "counters",
		server_list_counters(), "parameters", list_parameters(), "packets");
}

static json_t *
list_operations(void)
{
	enum fanin_isa isa = fanin_isa_detect();
	json_t *list = json_array();

	for (unsigned int dtype = 1; dtype < FANIN_WIRE_DTYPE_COUNT; dtype++) {
		for (unsigned int op = 1; op < FANIN_WIRE_OP_COUNT; op++) {
			if (fanin_kernel(isa, dtype, op) != NULL)
				json_array_append_new(list,
						      json_sprintf("%s %s", fanin_dtype_name(dtype),
								   fanin_op_name(op)));
		}
	}
	return list;
}

static json_t *
json_limits(const struct fanin_server_stats *stats)
{
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "max_jobs", (json_int_t)stats->max_jobs,
			 "memory_bytes", (json_int_t)stats->memory_limit_bytes, "job_bytes",
			 (json_int_t)stats->job_memory_bytes, "payload_bytes",
			 (json_int_t)fanin_payload_for_mtu(stats->mtu, false), "ranks",
			 (json_int_t)FANIN_SERVER_RANKS_MAX);
}

static json_t *
command_version(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct fanin_server_stats stats;

	if (args_check_known(args, error) != 0)
		return NULL;
	server_stats(daemon, &stats);
	return json_pack(
		"{s:s,s:s,s:s,s:s,s:s,s:s,s:o,s:i,s:s,s:i,s:i,s:s,s:o,s:o,s:o,s:o,s:i,s:I}",
		"version", FANIN_VERSION, "libfanin", fanin_version(), "libfanin_built",
		FANIN_HEADER_VERSION, "kind", "server", "name", daemon->config->name, "ip",
		daemon->config->ip, "mac", json_mac(stats.mac), "udp_port", stats.udp_port, "port",
		stats.interface, "protocol", CONTROL_PROTOCOL, "packet_version", FANIN_WIRE_VERSION,
		"isa", fanin_isa_name(fanin_isa_detect()), "instance",
		json_sprintf("0x%016lx", (unsigned long)stats.instance), "limits",
		json_limits(&stats), "handlers", list_handlers(), "operations", list_operations(),
		"pid", (int)getpid(), "uptime_s",
		(json_int_t)((clock_ns() - daemon->start_ns) / 1000000000u));
}

/* The values that a manager asks for often. */
static json_t *
command_ping(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct fanin_server_stats stats;
	json_t *down;

	if (args_check_known(args, error) != 0)
		return NULL;
	server_stats(daemon, &stats);
	down = json_array();
	if (!stats.link)
		json_array_append_new(down, json_string(stats.interface));
	return json_pack("{s:I,s:o}", "jobs", (json_int_t)stats.jobs, "ports_down", down);
}

/*
 * The interface of the server's address, in the form of a switch's port. It has no egress queue
 * limits.
 */
static json_t *
describe_port(const struct fanin_server_stats *stats)
{
	return json_pack(
		"{s:s,s:s,s:s,s:I,s:o,s:b,s:b,s:i,s:I,s:I,s:I,s:i,s:I,s:I,s:I,s:i,s:i,s:i,s:i,"
		"s:{s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i,s:i}}",
		"name", stats->interface, "device", stats->interface, "driver", "udp", "mtu",
		(json_int_t)stats->mtu, "mac", json_mac(stats->mac), "link", (int)stats->link,
		"routed", 0, "queues", 1, "rx_frames", (json_int_t)stats->rx_packets, "rx_bytes",
		(json_int_t)stats->rx_bytes, "rx_missed", (json_int_t)stats->rx_missed, "rx_errors",
		0, "tx_frames", (json_int_t)stats->tx_packets, "tx_bytes",
		(json_int_t)stats->tx_bytes, "tx_dropped", (json_int_t)stats->tx_dropped,
		"tx_errors", 0, "tx_delayed", 0, "link_rx_dropped", 0, "link_tx_dropped", 0,
		"egress", "rate_mbit", 0, "bucket_bytes", 0, "queue_bytes", 0, "ecn_bytes", 0,
		"detour_bytes", 0, "queue_frames", 0, "backlog_bytes", 0, "backlog_frames", 0,
		"ecn_marked", 0);
}

json_t *
command_ports_list(void *user, const json_t *args, struct control_error *error)
{
	struct fanin_server_stats stats;

	if (args_check_known(args, error) != 0)
		return NULL;
	server_stats(user, &stats);
	return json_pack("{s:[o]}", "ports", describe_port(&stats));
}

/* A host does not route for others. */
static json_t *
command_routes_list(void *user, const json_t *args, struct control_error *error)
{
	(void)user;
	return args_check_known(args, error) != 0 ? NULL : json_pack("{s:[]}", "routes");
}

static json_t *
nonzero_drops(const fanin_server *server)
{
	json_t *drops = json_object();
	struct fanin_server_drop drop;

	for (unsigned int i = 0; fanin_server_drops(server, i, &drop) == FANIN_OK; i++) {
		if (drop.count != 0)
			json_object_set_new(drops, drop.name, json_integer((json_int_t)drop.count));
	}
	return drops;
}

json_t *
command_stats(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct fanin_server_stats stats;

	if (args_check_known(args, error) != 0)
		return NULL;
	server_stats(daemon, &stats);
	return json_pack("{s:f,s:I,s:I,s:I,s:{s:I,s:I,s:I},s:o,s:o}", "uptime_s",
			 (double)(clock_ns() - daemon->start_ns) / 1e9, "rounds",
			 (json_int_t)stats.rounds, "packets", (json_int_t)stats.rx_packets,
			 "receive_buffer_bytes", (json_int_t)stats.receive_buffer_bytes, "memory",
			 "rss", (json_int_t)process_status_bytes("VmRSS: %lu kB"), "jobs",
			 (json_int_t)stats.memory_bytes, "limit",
			 (json_int_t)stats.memory_limit_bytes, "drops",
			 nonzero_drops(daemon->server), "control",
			 control_counters_json(daemon->control));
}

json_t *
command_drops(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct fanin_server_stats stats;
	struct fanin_server_drop drop;
	json_t *list;

	if (args_check_known(args, error) != 0)
		return NULL;
	server_stats(daemon, &stats);
	list = json_array();
	for (unsigned int i = 0; fanin_server_drops(daemon->server, i, &drop) == FANIN_OK; i++)
		json_array_append_new(list, json_pack("{s:s,s:I,s:s}", "name", drop.name, "count",
						      (json_int_t)drop.count, "text", drop.text));
	return json_pack("{s:o,s:[{s:s,s:s,s:I,s:s}]}", "drops", list, "elsewhere", "port",
			 stats.interface, "name", "rx_missed", "count", (json_int_t)stats.rx_missed,
			 "text", "the server's socket was full: it did not take packets in time");
}

const struct control_command commands[] = {
	{ .name = "version", .run = command_version },
	{ .name = "ping", .run = command_ping },
	{ .name = "ports.list", .run = command_ports_list },
	{ .name = "routes.list", .run = command_routes_list },
	{ .name = "jobs.list", .run = command_jobs_list },
	{ .name = "jobs.create", .run = command_jobs_create },
	{ .name = "jobs.destroy", .run = command_jobs_destroy },
	{ .name = "jobs.waits", .run = command_jobs_waits },
	{ .name = "stats", .run = command_stats },
	{ .name = "drops", .run = command_drops },
	{ 0 },
};
