/* SPDX-License-Identifier: BSD-3-Clause */
/* See commands.h. The commands about jobs are in commands_jobs.c. */
#include <arpa/inet.h>
#include <net/if.h>
#include <stdio.h>
#include <stdlib.h>
#include <unistd.h>

#include <rte_ethdev.h>
#include <rte_version.h>

#include "handlers/handler.h"
#include "handlers/operator.h"
#include "pipeline/job.h"
#include "pipeline/net/mac_table.h"
#include "control/args.h"
#include "switch/commands.h"
#include "switch/kernel_counters.h"
#include "switch/ports.h"

json_t *
json_mac(const uint8_t mac[6])
{
	return json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
			    mac[5]);
}

json_t *
json_histogram(const uint64_t *buckets)
{
	json_t *object = json_object();

	for (unsigned int i = 0; i < COUNTERS_HISTOGRAM; i++) {
		unsigned long low = i == 0 ? 0 : 1ul << (i - 1);
		char name[48];

		if (buckets[i] == 0)
			continue;
		if (i < 2)
			snprintf(name, sizeof(name), "%lu", low);
		else if (i == COUNTERS_HISTOGRAM - 1)
			snprintf(name, sizeof(name), "%lu-", low);
		else
			snprintf(name, sizeof(name), "%lu-%lu", low, 2 * low - 1);
		json_object_set_new(object, name, json_integer((json_int_t)buckets[i]));
	}
	return object;
}

json_t *
json_ipv4(uint32_t ip_be)
{
	char text[INET_ADDRSTRLEN];

	inet_ntop(AF_INET, &ip_be, text, sizeof(text));
	return json_string(text);
}

static uint64_t
uptime_seconds(const struct daemon *daemon)
{
	return (pipeline_now_ns() - daemon->start_ns) / 1000000000u;
}

static json_t *
list_counters(const struct fanin_handler *handler)
{
	const struct fanin_counter *counter = handler->counters;
	json_t *list = json_array();

	for (; counter != NULL && counter->name != NULL; counter++)
		json_array_append_new(list, json_pack("{s:s,s:s}", "name", counter->name,
						      "description", counter->text));
	return list;
}

static json_t *
list_parameters(const struct fanin_handler *handler)
{
	const struct fanin_parameter *parameter = handler->parameters;
	json_t *list = json_array();

	for (; parameter != NULL && parameter->name != NULL; parameter++)
		json_array_append_new(list,
				      json_pack("{s:s,s:s,s:I,s:I,s:I}", "name", parameter->name,
						"description", parameter->text, "least",
						(json_int_t)parameter->least, "most",
						(json_int_t)parameter->most, "default",
						(json_int_t)parameter->usual));
	return list;
}

/* Lists the packet types that a handler defines. */
static json_t *
list_packets(const struct fanin_handler *handler)
{
	const struct fanin_packet_type *packet = handler->packets;
	json_t *list = json_array();

	for (; packet != NULL && packet->name != NULL; packet++)
		json_array_append_new(list, json_pack("{s:i,s:s,s:s,s:s}", "code", packet->code,
						      "name", packet->name, "direction",
						      packet->direction == FANIN_UP ? "up" : "down",
						      "description", packet->text));
	return list;
}

/*
 * Lists the handlers. "default": the one that "auto" selects without a message size. Managers plan
 * with that, the order and the buffers of a slot. order: "ranks" is that of wire/order.h. Older
 * switches report in_order alone, and combine in the order of children.
 */
static json_t *
list_handlers(void)
{
	static const char *const slots[] = { [FANIN_SLOTS_PRIVATE] = "private",
					     [FANIN_SLOTS_SHARED] = "shared",
					     [FANIN_SLOTS_NONE] = "none" };
	static const char *const shapes[] = {
		[FANIN_SHAPE_TREE] = "tree",
		[FANIN_SHAPE_MULTICAST] = "multicast",
		[FANIN_SHAPE_SERVER] = "server",
		[FANIN_SHAPE_LEADERS] = "leaders",
	};
	static const char *const admission[] = {
		[FANIN_ADMIT_MEMBERS] = "members", [FANIN_ADMIT_KEY] = "key"
	};
	uint32_t buffers;
	const struct fanin_choice choice = { .message_bytes = 0 };
	const struct fanin_handler *usual = fanin_handler_choose(&choice, false, &buffers);
	json_t *list = json_array();

	for (const struct fanin_handler *handler = fanin_handler_first(); handler != NULL;
	     handler = handler->next)
		json_array_append_new(
			list,
			json_pack("{s:s,s:s,s:b,s:b,s:s*,s:s,s:s,s:s,s:{s:i,s:i,s:i},s:o,s:o,s:o}",
				  "name", handler->name, "description", handler->description,
				  "default", handler == usual, "in_order", (int)handler->in_order,
				  "order", handler->in_order ? "ranks" : NULL, "shape",
				  shapes[handler->shape], "slots", slots[handler->slots_of],
				  "admission", admission[handler->admission], "slot_mbufs", "fixed",
				  handler->slot_mbufs.fixed, "per_buffer",
				  handler->slot_mbufs.per_buffer, "per_pair",
				  handler->slot_mbufs.per_pair, "counters", list_counters(handler),
				  "parameters", list_parameters(handler), "packets",
				  list_packets(handler)));
	return list;
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
	for (unsigned int op = FANIN_WIRE_CUSTOM; op <= FANIN_WIRE_CUSTOM_LAST; op++) {
		const struct fanin_operator *custom = fanin_operator_find(op);

		if (custom != NULL)
			json_array_append_new(list, json_sprintf("%s %s", custom->dtype_name,
								 custom->name));
	}
	return list;
}

static json_t *
command_version(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;

	if (args_check_known(args, error) != 0)
		return NULL;
	return json_pack("{s:s,s:s,s:o,s:o,s:i,s:i,s:i,s:s,s:s,s:s,s:o,s:o,s:i,s:I}", "version",
			 FANIN_VERSION, "name", daemon->config->name, "ip",
			 json_ipv4(daemon->pipeline->ip_be), "mac", json_mac(daemon->pipeline->mac),
			 "udp_port", rte_be_to_cpu_16(daemon->pipeline->udp_port_be), "protocol",
			 CONTROL_PROTOCOL, "packet_version", FANIN_WIRE_VERSION, "isa",
			 fanin_isa_name(fanin_isa_detect()), "dpdk", rte_version(), "dpdk_built",
			 DPDK_BUILT_WITH, "handlers", list_handlers(), "operations",
			 list_operations(), "pid", (int)getpid(), "uptime_s",
			 (json_int_t)uptime_seconds(daemon));
}

/*
 * A cheap command that managers send often: shows that the switch is alive, and which links are
 * down.
 */
static json_t *
command_ping(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	const struct pipeline *pipeline = daemon->pipeline;
	json_t *down;

	if (args_check_known(args, error) != 0)
		return NULL;
	down = json_array();
	for (uint16_t i = 0; i < pipeline->n_ports; i++) {
		const struct pipeline_port *port = &pipeline->ports[i];

		if (!ports_link_is_up(&daemon->ports, &daemon->config->ports[i], port, i))
			json_array_append_new(down, json_string(port->name));
	}
	return json_pack("{s:i,s:o}", "jobs", pipeline->jobs->n_jobs, "ports_down", down);
}

static json_t *
nonzero_drops(const struct counters *sum)
{
	json_t *drops = json_object();

	for (unsigned int i = 1; i < FANIN_REASON_COUNT; i++) {
		if (sum->drops[i] != 0)
			json_object_set_new(drops, fanin_reason_name(i),
					    json_integer((json_int_t)sum->drops[i]));
	}
	return drops;
}

json_t *
command_stats(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	const struct pipeline *pipeline = daemon->pipeline;
	uint32_t pool_size;
	uint32_t pool_free;
	struct counters sum;
	double uptime;

	if (args_check_known(args, error) != 0)
		return NULL;
	uptime = (double)(pipeline_now_ns() - daemon->start_ns) / 1e9;
	pipeline_counters(pipeline, &sum);
	ports_pool_usage(&daemon->ports, &pool_size, &pool_free);
	return json_pack(
		"{s:f,s:o,s:{s:I,s:I,s:I,s:I,s:I},s:i,s:{s:i,s:i},s:o,s:{s:I,s:I},s:{s:I},s:o,s:o}",
		"uptime_s", uptime, "workers", command_list_workers(pipeline, uptime), "switching",
		"forwarded", (json_int_t)sum.forwarded, "flooded", (json_int_t)sum.flooded,
		"routed", (json_int_t)sum.routed, "local", (json_int_t)sum.local, "learn_failed",
		(json_int_t)sum.learn_failed, "mac_entries", (int)mac_table_count(pipeline->macs),
		"mempool", "size", (int)pool_size, "free", (int)pool_free, "memory",
		json_memory(daemon), "faults", "duplicated", (json_int_t)sum.fault_duplicates,
		"reordered", (json_int_t)sum.fault_reorders, "machine", "backlog_dropped",
		(json_int_t)kernel_backlog_drops(), "drops", nonzero_drops(&sum), "control",
		control_counters_json(daemon->control));
}

json_t *
command_drops(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct counters sum;
	json_t *list;

	if (args_check_known(args, error) != 0)
		return NULL;
	pipeline_counters(daemon->pipeline, &sum);
	list = json_array();
	for (unsigned int i = 1; i < FANIN_REASON_COUNT; i++)
		json_array_append_new(list, json_pack("{s:s,s:I,s:s}", "name", fanin_reason_name(i),
						      "count", (json_int_t)sum.drops[i], "text",
						      fanin_reason_text(i)));
	return json_pack("{s:o,s:o}", "drops", list, "elsewhere", command_drops_elsewhere(daemon));
}

struct mac_visit {
	const struct pipeline *pipeline;
	json_t *list;
	uint32_t now_seconds;
};

static void
describe_station(void *user, mac_key key, uint16_t port, uint32_t seen_seconds)
{
	const struct mac_visit *visit = user;
	uint8_t mac[6];

	mac_key_get(key, mac);
	json_array_append_new(visit->list,
			      json_pack("{s:o,s:i,s:s,s:I}", "mac", json_mac(mac), "vlan",
					(int)(key & 0xffff), "port",
					visit->pipeline->ports[port].name, "age_s",
					(json_int_t)(visit->now_seconds - seen_seconds)));
}

static json_t *
command_mac_list(void *user, const json_t *args, struct control_error *error)
{
	const struct daemon *daemon = user;
	struct mac_visit visit = {
		.pipeline = daemon->pipeline,
		.now_seconds = (uint32_t)(pipeline_now_ns() / 1000000000u),
	};

	if (args_check_known(args, error) != 0)
		return NULL;
	visit.list = json_array();
	mac_table_each(daemon->pipeline->macs, describe_station, &visit);
	return json_pack("{s:o}", "entries", visit.list);
}

const struct control_command commands[] = {
	{ .name = "version", .run = command_version },
	{ .name = "ping", .run = command_ping },
	{ .name = "ports.list", .run = command_ports_list },
	{ .name = "jobs.list", .run = command_jobs_list },
	{ .name = "jobs.create", .run = command_jobs_create },
	{ .name = "jobs.destroy", .run = command_jobs_destroy },
	{ .name = "jobs.waits", .run = command_jobs_waits },
	{ .name = "stats", .run = command_stats },
	{ .name = "drops", .run = command_drops },
	{ .name = "mac.list", .run = command_mac_list },
	{ .name = "routes.list", .run = command_routes_list },
	{ .name = "neighbors.list", .run = command_neighbors_list },
	{ .name = "hosts.find", .run = command_hosts_find },
	{ 0 },
};
