/* SPDX-License-Identifier: BSD-3-Clause */
/* See dumbbell.h. */
#include "lab/bench/dumbbell.h"

#include <arpa/inet.h>
#include <errno.h>
#include <stdio.h>

#include "pipeline/base/worker.h"

/* Addresses are 10.77.GROUP.NUMBER in one subnet. */
#define PREFIX_LEN 16
#define WORKERS 1u
#define SERVERS 2u
#define SOURCES 3u
#define SINKS 4u
#define SWITCHES 5u
#define FAR 255u

/* A near switch's ports: the path, its source, its workers. */
#define NEAR_UP 0
#define NEAR_SOURCE 1
#define NEAR_WORKERS 2

/* Packets that leave at once after a pause: a link sends no longer burst than these. */
#define BUCKET_BYTES 3028u
#define SETTLE_NS UINT64_C(1000000000)

static uint32_t
address(uint32_t group, uint32_t number)
{
	return htonl(0x0a4d0000u | group << 8 | number);
}

static struct rig_end
rated_end(const struct dumbbell_options *options, uint32_t rate_mbit)
{
	return (struct rig_end){ .egress = { .rate_mbit = rate_mbit,
					     .bucket_bytes = BUCKET_BYTES,
					     .queue_bytes = options->queue_bytes,
					     .ecn_bytes = options->ecn_bytes },
				 .delay_ns = options->delay_ns };
}

/* Returns the ends of a host's link; a host has a rate only. */
static struct rig_end
host_end(const struct dumbbell_options *options)
{
	return (struct rig_end){ .egress = { .rate_mbit = options->host_rate_mbit },
				 .delay_ns = options->delay_ns };
}

static struct rig_end
free_end(const struct dumbbell_options *options)
{
	return (struct rig_end){ .delay_ns = options->delay_ns };
}

static uint16_t
workers_of(const struct dumbbell_options *options, uint16_t path)
{
	uint16_t n = 0;

	for (uint16_t w = 0; w < options->n_workers; w++)
		n = (uint16_t)(n + (options->path_of_worker[w] == path));
	return n;
}

static int
far_open(struct dumbbell *dumbbell, char *error)
{
	const struct dumbbell_options *options = &dumbbell->options;
	struct rig_end ends[2 * DUMBBELL_MAX_PATHS + DUMBBELL_MAX_SERVERS];
	const struct rig_switch_options made = {
		.ip_be = dumbbell->far_ip_be,
		.prefix_len = PREFIX_LEN,
		.n_ports = (uint16_t)(2 * options->n_paths + options->n_servers),
		.ends = ends,
		.max_jobs = options->max_jobs,
		.slots = 64,
		.shared_slots = options->aggregators,
	};

	/* Ports are in the order of paths, servers, sinks. */
	for (uint16_t p = 0; p < made.n_ports; p++) {
		if (p < options->n_paths)
			ends[p] = rated_end(options, options->back_rate_mbit);
		else if (p < options->n_paths + options->n_servers)
			ends[p] = rated_end(options, options->server_rate_mbit != 0
							     ? options->server_rate_mbit
							     : options->rate_mbit);
		else
			ends[p] = free_end(options);
	}
	dumbbell->far = rig_switch_add(dumbbell->rig, &made, error);
	return dumbbell->far == NULL ? -ENOMEM : 0;
}

static int
near_open(struct dumbbell *dumbbell, uint16_t path, char *error)
{
	const struct dumbbell_options *options = &dumbbell->options;
	struct rig_end ends[NEAR_WORKERS + DUMBBELL_MAX_WORKERS];
	const struct rig_switch_options made = {
		.ip_be = address(SWITCHES, path + 1u),
		.prefix_len = PREFIX_LEN,
		.n_ports = (uint16_t)(NEAR_WORKERS + workers_of(options, path)),
		.ends = ends,
		.max_jobs = 1,
		.slots = 2,
	};

	for (uint16_t p = 0; p < made.n_ports; p++)
		ends[p] = p == NEAR_UP       ? rated_end(options, options->rate_mbit)
			  : p == NEAR_SOURCE ? free_end(options)
					     : host_end(options);
	dumbbell->near[path] = rig_switch_add(dumbbell->rig, &made, error);
	if (dumbbell->near[path] == NULL)
		return -ENOMEM;
	rig_link(dumbbell->near[path], NEAR_UP, dumbbell->far, path);
	return 0;
}

static bool
background_attach(struct dumbbell *dumbbell, uint16_t path)
{
	const struct dumbbell_options *options = &dumbbell->options;
	const struct rig_end end = free_end(options);
	struct background_path *made = &dumbbell->paths[path];

	made->source_ip_be = address(SOURCES, path + 1u);
	made->sink_ip_be = address(SINKS, path + 1u);
	made->source = rig_attach(dumbbell->near[path], NEAR_SOURCE, made->source_ip_be, &end);
	made->sink = rig_attach(dumbbell->far,
				(uint16_t)(options->n_paths + options->n_servers + path),
				made->sink_ip_be, &end);
	return made->source != NULL && made->sink != NULL;
}

static bool
hosts_attach(struct dumbbell *dumbbell)
{
	const struct dumbbell_options *options = &dumbbell->options;
	const struct rig_end end = host_end(options);
	uint16_t taken[DUMBBELL_MAX_PATHS] = { 0 };

	for (uint16_t w = 0; w < options->n_workers; w++) {
		const uint16_t path = options->path_of_worker[w];

		dumbbell->workers[w] = (struct dumbbell_worker){ .ip_be = address(WORKERS, w + 1u),
								 .far_port = path };
		dumbbell->workers[w].host = rig_attach(dumbbell->near[path],
						       (uint16_t)(NEAR_WORKERS + taken[path]++),
						       dumbbell->workers[w].ip_be, &end);
		if (dumbbell->workers[w].host == NULL)
			return false;
	}
	for (uint16_t s = 0; s < options->n_servers; s++) {
		const struct rig_server_options server = {
			.ip_be = address(SERVERS, s + 1u),
			.max_jobs = 1,
			.memory_bytes = options->server_bytes,
			.seed = options->seed + s,
			.end = end,
		};

		dumbbell->servers[s] =
			rig_parameter_server.attach(dumbbell->far,
						    dumbbell_server_port(dumbbell, s), &server);
		if (dumbbell->servers[s] == NULL)
			return false;
	}
	for (uint16_t path = 0; path < options->n_paths; path++) {
		if (!background_attach(dumbbell, path))
			return false;
	}
	return true;
}

int
dumbbell_open(struct dumbbell *dumbbell, const struct dumbbell_options *options, char *error)
{
	const struct rig_options rig = { .seed = options->seed,
					 .n_packets = options->n_packets,
					 .mtu = 1500 };

	*dumbbell = (struct dumbbell){ .options = *options,
				       .far_ip_be = address(SWITCHES, FAR - 1u) };
	if (options->n_paths > DUMBBELL_MAX_PATHS || options->n_workers > DUMBBELL_MAX_WORKERS ||
	    options->n_servers > DUMBBELL_MAX_SERVERS) {
		snprintf(error, RIG_ERROR_LEN, "%u paths, %u workers and %u servers are too many",
			 options->n_paths, options->n_workers, options->n_servers);
		return -EINVAL;
	}
	dumbbell->rig = rig_create(&rig, error);
	if (dumbbell->rig == NULL || far_open(dumbbell, error) != 0)
		return -ENOMEM;
	for (uint16_t path = 0; path < options->n_paths; path++) {
		if (near_open(dumbbell, path, error) != 0)
			return -ENOMEM;
	}
	if (!hosts_attach(dumbbell)) {
		snprintf(error, RIG_ERROR_LEN, "no memory for hosts");
		return -ENOMEM;
	}
	rig_run(dumbbell->rig, rig_now_ns(dumbbell->rig) + SETTLE_NS, NULL, NULL);
	return 0;
}

unsigned int
dumbbell_close(struct dumbbell *dumbbell)
{
	unsigned int lost;

	for (uint16_t s = 0; s < dumbbell->options.n_servers; s++)
		rig_parameter_server.free(dumbbell->servers[s]);
	lost = rig_destroy(dumbbell->rig);
	dumbbell->rig = NULL;
	return lost;
}

uint16_t
dumbbell_server_port(const struct dumbbell *dumbbell, uint16_t server)
{
	return (uint16_t)(dumbbell->options.n_paths + server);
}

struct rig_traffic
dumbbell_path_traffic(const struct dumbbell *dumbbell, uint16_t path)
{
	return rig_switch_traffic(dumbbell->near[path], NEAR_UP);
}

struct rig_traffic
dumbbell_server_traffic(const struct dumbbell *dumbbell, uint16_t server)
{
	return rig_switch_traffic(dumbbell->far, dumbbell_server_port(dumbbell, server));
}

uint64_t
dumbbell_server_drops(const struct dumbbell *dumbbell, uint16_t server)
{
	const struct worker *worker = rig_switch_pipeline(dumbbell->far)->workers[0];

	return worker->counters.ports[dumbbell_server_port(dumbbell, server)].tx_dropped;
}
