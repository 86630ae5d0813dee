/* SPDX-License-Identifier: BSD-3-Clause */
/* See congestion_network.h. */
#include "lab/bench/congestion_network.h"

#include <errno.h>
#include <stdio.h>

#include "lab/bench/datagram.h"
#include "pipeline/base/egress.h"
#include "pipeline/base/worker.h"
#include "lab/reference/random.h"

#define MTU 1500u
/* Packets that leave at once after a pause: a link sends no longer burst than one packet. */
#define BUCKET_BYTES 1u
#define SETTLE_NS UINT64_C(1000000000)
#define GREET_PORT 9 /* the discard service */

const char *const congestion_tiers[CONGESTION_TIERS] = { "host_up", "host_down", "leaf_up",
							 "leaf_down" };

/* ------------------------------------------------------------------ placement */

/* Draws which hosts are ranks: each set of n_ranks hosts is equally likely. */
static void
placement_draw(struct congestion_network *network, struct random *random)
{
	const uint32_t n_hosts = network->leaf_spine.n_hosts;
	uint32_t wanted = network->options.n_ranks;
	uint16_t n_ranks = 0;

	network->n_others = 0;
	for (uint32_t host = 0; host < n_hosts; host++) {
		if (random_below(random, n_hosts - host) < wanted) {
			network->ranks[n_ranks++] = host;
			wanted--;
		} else {
			network->others[network->n_others++] = host;
		}
	}
}

static bool
is_at_each_leaf(const struct congestion_network *network, const uint32_t *hosts, uint16_t n)
{
	uint64_t leaves = 0;

	for (uint16_t i = 0; i < n; i++)
		leaves |= UINT64_C(1) << hosts[i] / network->options.hosts_per_leaf;
	return leaves == (UINT64_C(1) << network->options.n_leaves) - 1;
}

static void
place(struct congestion_network *network)
{
	struct random random = random_seed(network->options.seed);

	do {
		placement_draw(network, &random);
	} while (network->options.mixed &&
		 !(is_at_each_leaf(network, network->ranks, network->options.n_ranks) &&
		   is_at_each_leaf(network, network->others, network->n_others)));
}

/* ------------------------------------------------------------------ building */

static int
problem(const struct congestion_options *options, char *error)
{
	const uint32_t n_hosts = (uint32_t)options->n_leaves * options->hosts_per_leaf;
	const uint32_t n_links = 2 * (n_hosts + (uint32_t)options->n_leaves * options->n_spines);

	if (n_hosts > CONGESTION_MAX_HOSTS || n_links > CONGESTION_MAX_LINKS) {
		snprintf(error, RIG_ERROR_LEN,
			 "found %u hosts and %u links, expected %u and %u at most", n_hosts,
			 n_links, CONGESTION_MAX_HOSTS, CONGESTION_MAX_LINKS);
		return -EINVAL;
	}
	if (options->n_ranks > n_hosts ||
	    (options->mixed && (options->n_ranks < options->n_leaves ||
				n_hosts - options->n_ranks < options->n_leaves))) {
		snprintf(error, RIG_ERROR_LEN,
			 "%u ranks on %u hosts behind %u leaves can't be placed so",
			 options->n_ranks, n_hosts, options->n_leaves);
		return -EINVAL;
	}
	return 0;
}

/*
 * Sends a datagram from each host to the next. A switch drops the first datagram to a host whose
 * MAC address it does not know, and asks for the address.
 */
static void
greet(const struct rig_leaf_spine *leaf_spine)
{
	for (uint32_t from = 0; from < leaf_spine->n_hosts; from++) {
		const uint32_t to = (from + 1) % leaf_spine->n_hosts;
		const struct datagram_way way = {
			.src_mac = rig_host_mac(leaf_spine->hosts[from]),
			.dst_mac = rig_switch_pipeline(rig_leaf_of(leaf_spine, from))->mac,
			.src_ip_be = rig_host_ip_be(leaf_spine, from),
			.dst_ip_be = rig_host_ip_be(leaf_spine, to),
			.src_port = GREET_PORT,
			.dst_port = GREET_PORT,
		};
		union {
			struct datagram_headers headers;
			uint8_t bytes[DATAGRAM_SHORTEST_FRAME];
		} frame = { 0 };

		datagram_fill(&frame.headers, &way, 0, sizeof(frame));
		rig_host_send(leaf_spine->hosts[from], &frame, sizeof(frame));
	}
}

int
congestion_network_open(struct congestion_network *network,
			const struct congestion_options *options, char *error)
{
	const struct rig_end end = { .egress = { .rate_mbit = options->rate_mbit,
						 .bucket_bytes = BUCKET_BYTES,
						 .queue_bytes = options->queue_bytes,
						 .ecn_bytes = options->ecn_bytes,
						 .detour_bytes = options->detour_bytes },
				     .delay_ns = options->delay_ns };
	const struct rig_leaf_spine_options built = {
		.faults = { .drop = options->loss, .seed = options->seed },
		.n_leaves = options->n_leaves,
		.hosts_per_leaf = options->hosts_per_leaf,
		.n_spines = options->n_spines,
		.host_end = end,
		.up_end = end,
		.max_jobs = options->max_jobs,
		.slots = options->slots,
		.shared_slots = options->shared_slots,
	};
	const struct rig_options rig_options = { .seed = options->seed,
						 .n_packets = options->n_packets,
						 .mtu = MTU };
	int ret;

	*network = (struct congestion_network){ .options = *options };
	ret = problem(options, error);
	if (ret != 0)
		return ret;
	network->rig = rig_create(&rig_options, error);
	if (network->rig == NULL)
		return -ENOMEM;
	ret = rig_leaf_spine_build(network->rig, &built, &network->leaf_spine, error);
	if (ret != 0)
		return ret;
	place(network);
	rig_run(network->rig, rig_now_ns(network->rig) + SETTLE_NS, NULL, NULL);
	greet(&network->leaf_spine);
	rig_run(network->rig, rig_now_ns(network->rig) + SETTLE_NS, NULL, NULL);
	return 0;
}

unsigned int
congestion_network_close(struct congestion_network *network)
{
	rig_leaf_spine_free(&network->leaf_spine);
	return rig_destroy(network->rig);
}

/* ------------------------------------------------------------------ links */

static void
port_read(struct congestion_links *links, struct congestion_link link, const struct rig_switch *sw,
	  uint16_t port)
{
	const struct pipeline *pipeline = rig_switch_pipeline(sw);
	const struct worker *worker = pipeline->workers[0];

	link.bytes = rig_switch_traffic(sw, port).bytes;
	link.dropped = worker->counters.ports[port].tx_dropped;
	link.marked = worker->counters.ports[port].ecn_marked;
	link.waiting = egress_backlog(pipeline, port, NULL);
	links->links[links->n++] = link;
}

static void
host_links_read(const struct rig_leaf_spine *leaf_spine, uint32_t host,
		struct congestion_links *links)
{
	struct congestion_link link = { .tier = CONGESTION_HOST_UP,
					.leaf = (uint16_t)(host /
							   leaf_spine->options.hosts_per_leaf),
					.other = (uint16_t)host,
					.bytes = rig_host_traffic(leaf_spine->hosts[host]).bytes };

	links->links[links->n++] = link;
	link.tier = CONGESTION_HOST_DOWN;
	port_read(links, link, rig_leaf_of(leaf_spine, host), rig_host_port(leaf_spine, host));
}

void
congestion_links_read(const struct congestion_network *network, struct congestion_links *links)
{
	const struct rig_leaf_spine *leaf_spine = &network->leaf_spine;

	links->n = 0;
	for (uint32_t host = 0; host < leaf_spine->n_hosts; host++)
		host_links_read(leaf_spine, host, links);
	for (uint16_t leaf = 0; leaf < leaf_spine->options.n_leaves; leaf++) {
		for (uint16_t spine = 0; spine < leaf_spine->options.n_spines; spine++) {
			struct congestion_link link = { .tier = CONGESTION_LEAF_UP,
							.leaf = leaf,
							.other = spine };

			port_read(links, link, leaf_spine->leaves[leaf],
				  rig_up_port(leaf_spine, spine));
			link.tier = CONGESTION_LEAF_DOWN;
			port_read(links, link, leaf_spine->spines[spine], leaf);
		}
	}
}
