/* SPDX-License-Identifier: BSD-3-Clause */
/* See hop_watch.h. */
#include "switch/hop_watch.h"

#include <arpa/inet.h>
#include <inttypes.h>
#include <stdlib.h>

#include "control/clock.h"
#include "pipeline/net/next_hops.h"
#include "switch/log.h"

/* Between two lines about one next hop. */
#define TELL_MS 1000u

struct told {
	uint64_t changes; /* changes that were logged */
	uint64_t at_ms;   /* 0: nothing logged yet */
};

struct hop_watch {
	const struct config *config;
	const struct ports *ports;
	struct pipeline *pipeline;
	uint64_t due_ns;
	struct told told[]; /* by index */
};

struct hop_watch *
hop_watch_create(const struct config *config, const struct ports *ports, struct pipeline *pipeline)
{
	struct hop_watch *watch = calloc(1, sizeof(*watch) + next_hops_count(pipeline->next_hops) *
								     sizeof(watch->told[0]));

	if (watch == NULL)
		return NULL;
	watch->config = config;
	watch->ports = ports;
	watch->pipeline = pipeline;
	return watch;
}

void
hop_watch_free(struct hop_watch *watch)
{
	free(watch);
}

/*
 * Logs a next hop's state if it has changed since the last line about it. Of several changes in a
 * short time, the last one is logged.
 */
static void
tell(void *user, const struct next_hop_info *info)
{
	struct hop_watch *watch = user;
	struct told *told = &watch->told[info->index];
	const char *port = watch->config->ports[info->port].name;
	const uint64_t changes = info->changes - told->changes;
	const uint64_t now_ms = clock_ms();
	char ip[INET_ADDRSTRLEN];

	if (changes == 0 || (told->at_ms != 0 && now_ms - told->at_ms < TELL_MS))
		return;
	told->changes = info->changes;
	told->at_ms = now_ms;
	inet_ntop(AF_INET, &info->ip_be, ip, sizeof(ip));
	if (info->mac == 0)
		log_warning(
			"next hop %s at port \"%s\": does not answer: its flows take other ways (changes since the last line: %" PRIu64
			")",
			ip, port, changes);
	else
		log_info(
			"next hop %s at port \"%s\": answers (changes since the last line: %" PRIu64
			")",
			ip, port, changes);
}

static void
look_at_links(const struct hop_watch *watch)
{
	struct pipeline *pipeline = watch->pipeline;

	for (uint16_t i = 0; i < pipeline->n_ports; i++) {
		if (pipeline->ports[i].routed)
			pipeline_port_set_link(pipeline, i,
					       ports_link_is_up(watch->ports,
								&watch->config->ports[i],
								&pipeline->ports[i], i));
	}
}

int
hop_watch_serve(struct hop_watch *watch, int max_ms)
{
	const uint64_t max_ns = (uint64_t)max_ms * 1000000;
	uint64_t now_ns = pipeline_time_ns(watch->pipeline);

	if (now_ns >= watch->due_ns) {
		look_at_links(watch);
		watch->due_ns = pipeline_watch_next_hops(watch->pipeline);
		next_hops_each(watch->pipeline->next_hops, tell, watch);
		now_ns = pipeline_time_ns(watch->pipeline);
	}
	if (watch->due_ns <= now_ns)
		return 0;
	if (watch->due_ns - now_ns >= max_ns)
		return max_ms;
	return (int)((watch->due_ns - now_ns + 999999) / 1000000);
}
