/* SPDX-License-Identifier: BSD-3-Clause */
/* See injection.h. */
#include "lab/bench/injection.h"

#include <arpa/inet.h>

#include "lab/bench/datagram.h"
#include "lab/bench/flow_sizes.h"
#include "pipeline/base/ipv4.h"

#define PORT 9 /* the discard service */
#define FIRST_SOURCE_PORT 20000u
#define SOURCE_PORTS 20000u
#define FRAME_BYTES (FLOW_SEGMENT + FLOW_OVERHEAD)
/*
 * Generators whose seeds differ by a small number stay apart by a constant. This one is separate,
 * so that a placement with the same seed does not correlate with a permutation.
 */
#define PERMUTATION_SEED UINT64_C(0x9e3779b97f4a7c15)

struct frame {
	struct datagram_headers headers;
	uint8_t data[FRAME_BYTES - sizeof(struct datagram_headers)];
} __attribute__((packed));

static const uint8_t *
first_hop_mac(const struct injection_source *source)
{
	return rig_switch_pipeline(rig_leaf_of(source->injection->network, source->number))->mac;
}

static void
frame_fill(const struct injection_source *source, struct frame *frame)
{
	const struct datagram_way way = {
		.src_mac = rig_host_mac(source->host),
		.dst_mac = first_hop_mac(source),
		.src_ip_be = rig_host_ip_be(source->injection->network, source->number),
		.dst_ip_be = rig_host_ip_be(source->injection->network, source->to),
		.src_port = source->src_port,
		.dst_port = PORT,
	};

	datagram_fill(&frame->headers, &way, 0, sizeof(*frame));
}

static uint32_t
message_frames(const struct injection *injection)
{
	return RTE_MAX(injection->options.message_bytes / FRAME_BYTES, 1u);
}

/* Draws another host as destination, and a port, by which switches spread messages. */
static void
message_begin(struct injection_source *source)
{
	struct injection *injection = source->injection;
	const uint16_t self = (uint16_t)(source - injection->sources);
	uint32_t other = random_below(&injection->random, injection->n - 1u);

	other += other >= self;
	source->to = injection->sources[other].number;
	source->src_port =
		(uint16_t)(FIRST_SOURCE_PORT + random_below(&injection->random, SOURCE_PORTS));
	source->left = message_frames(injection);
}

static void
source_poll(struct rig_host *host, void *user)
{
	struct injection_source *source = user;
	struct injection *injection = source->injection;
	const uint64_t now_ns = rig_now_ns(injection->network->rig);
	struct frame frame = { 0 };

	while (source->next_ns <= now_ns) {
		if (source->left == 0)
			message_begin(source);
		frame_fill(source, &frame);
		rig_host_send(host, &frame, sizeof(frame));
		injection->sent += sizeof(frame);
		if (source->left != UINT32_MAX)
			source->left--;
		source->next_ns += (uint64_t)FRAME_BYTES * 8000 / injection->options.rate_mbit;
	}
	rig_host_wake(host, source->next_ns);
}

static struct injection_source *
source_add(struct injection *injection, uint32_t number)
{
	struct injection_source *source = &injection->sources[injection->n++];

	*source = (struct injection_source){ .injection = injection,
					     .host = injection->network->hosts[number],
					     .number = number };
	return source;
}

/*
 * Sources begin at random times within a message, so they do not all change destinations at once.
 */
static void
sources_begin(struct injection *injection)
{
	const uint64_t interval_ns = (uint64_t)FRAME_BYTES * 8000 / injection->options.rate_mbit;

	for (uint16_t i = 0; i < injection->n; i++) {
		struct injection_source *source = &injection->sources[i];

		source->next_ns = rig_now_ns(injection->network->rig) +
				  random_below(&injection->random,
					       (uint32_t)interval_ns * message_frames(injection));
		rig_host_set_poll(source->host, source_poll, source);
		rig_host_wake(source->host, source->next_ns);
	}
}

static void
init(struct injection *injection, const struct rig_leaf_spine *network,
     const struct injection_options *options)
{
	*injection = (struct injection){ .options = *options,
					 .network = network,
					 .random = random_seed(options->seed) };
}

void
injection_uniform(struct injection *injection, const struct rig_leaf_spine *network,
		  const struct injection_options *options, const uint32_t *hosts, uint16_t n)
{
	init(injection, network, options);
	/* A single host has no destination. */
	for (uint16_t i = 0; i < n && n > 1; i++)
		source_add(injection, hosts[i]);
	sources_begin(injection);
}

/* Returns a source port for which the leaf's hash chooses this spine. */
static uint16_t
port_over(struct injection_source *source, uint16_t spine)
{
	const struct rig_leaf_spine *network = source->injection->network;
	const uint32_t seed = rig_switch_pipeline(rig_leaf_of(network, source->number))->ip_be;
	struct frame frame = { 0 };

	for (source->src_port = FIRST_SOURCE_PORT;; source->src_port++) {
		frame_fill(source, &frame);
		if (ipv4_flow_hash((const struct fanin_headers *)&frame, seed) %
			    network->options.n_spines ==
		    spine)
			return source->src_port;
	}
}

void
injection_over_spine(struct injection *injection, const struct rig_leaf_spine *network,
		     const struct injection_options *options, const uint32_t *hosts, uint16_t n,
		     uint16_t spine)
{
	init(injection, network, options);
	for (uint16_t i = 0; i < n; i++) {
		if (i == 0 || hosts[i] / network->options.hosts_per_leaf !=
				      hosts[i - 1] / network->options.hosts_per_leaf)
			source_add(injection, hosts[i]);
	}
	for (uint16_t i = 0; i < injection->n; i++) {
		struct injection_source *source = &injection->sources[i];

		source->to = injection->sources[(i + 1) % injection->n].number;
		source->src_port = port_over(source, spine);
		source->left = UINT32_MAX;
	}
	sources_begin(injection);
}

/* Draws a permutation without fixed points, all equally likely. n: two at least. */
static void
permutation_draw(struct random *random, uint16_t *to, uint16_t n)
{
	bool has_fixed_point;

	do {
		for (uint16_t i = 0; i < n; i++)
			to[i] = i;
		for (uint16_t i = (uint16_t)(n - 1); i > 0; i--) {
			const uint32_t other = random_below(random, i + 1u);

			RTE_SWAP(to[i], to[other]);
		}
		has_fixed_point = false;
		for (uint16_t i = 0; i < n; i++)
			has_fixed_point = has_fixed_point || to[i] == i;
	} while (has_fixed_point);
}

void
injection_permutation(struct injection *injection, const struct rig_leaf_spine *network,
		      const struct injection_options *options, const uint32_t *hosts, uint16_t n)
{
	uint16_t to[INJECTION_MAX_HOSTS];

	init(injection, network, options);
	injection->random = random_seed((options->seed + 1) * PERMUTATION_SEED);
	/*
	 * Spines are drawn for all hosts, so that a destination's spine does not depend on the
	 * other hosts that send.
	 */
	for (uint32_t host = 0; host < network->n_hosts; host++)
		injection->spines[host] = (uint16_t)random_below(&injection->random,
								 network->options.n_spines);
	if (n < 2)
		return;
	permutation_draw(&injection->random, to, n);
	for (uint16_t i = 0; i < n; i++) {
		struct injection_source *source = source_add(injection, hosts[i]);

		source->to = hosts[to[i]];
		source->src_port = port_over(source, injection->spines[source->to]);
		source->left = UINT32_MAX;
	}
	sources_begin(injection);
}

void
injection_end(struct injection *injection)
{
	for (uint16_t i = 0; i < injection->n; i++)
		rig_host_set_poll(injection->sources[i].host, NULL, NULL);
	injection->n = 0;
}

uint64_t
injection_delivered(const struct injection *injection)
{
	uint64_t frames = 0;

	for (uint16_t i = 0; i < injection->n; i++)
		frames += rig_host_others(injection->sources[i].host);
	return frames * FRAME_BYTES;
}
