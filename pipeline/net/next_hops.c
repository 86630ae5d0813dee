/* SPDX-License-Identifier: BSD-3-Clause */
/* See next_hops.h. Main thread. */
#include <rte_malloc.h>

#include "pipeline/base/worker.h"
#include "pipeline/net/neighbor.h"
#include "pipeline/net/next_hops.h"
#include "pipeline/net/route_table.h"

/* A worker's counters at the last check. */
struct worker_mark {
	uint64_t rounds;
	uint64_t frames[PIPELINE_MAX_PORTS]; /* received, by port */
};

struct watched {
	neighbor_key key;
	uint32_t ip_be;
	uint16_t port;
	int32_t position;
	bool asked; /* a request was sent and has not been judged */
	bool up;
	uint64_t asked_ns;   /* when a worker was told to send the request */
	uint64_t requests;   /* sent before this request */
	uint64_t silent_ns;  /* time without an answer, as far as it counts */
	unsigned int misses; /* in a row */
	struct next_hop_info info;
};

struct next_hops {
	struct pipeline *pipeline;
	uint64_t interval_ns;
	unsigned int misses;
	uint64_t looked_ns;        /* 0: never */
	struct worker_mark *marks; /* by worker */
	uint32_t n;
	struct watched each[];
};

static bool
is_watched(const struct next_hops *hops, int32_t position)
{
	for (uint32_t i = 0; i < hops->n; i++) {
		if (hops->each[i].position == position)
			return true;
	}
	return false;
}

/* Several routes may have a next hop in common. */
static void
add_all(struct next_hops *hops, const struct route_table *routes)
{
	for (uint32_t r = 0; r < routes->n_routes; r++) {
		const struct route *route = &routes->routes[r];

		for (uint16_t i = 0; i < route->n_next_hops; i++) {
			const struct next_hop *hop = &route->next_hops[i];

			if (is_watched(hops, hop->neighbor))
				continue;
			hops->each[hops->n] = (struct watched){
				.key = neighbor_key_make(hop->ip_be, NEIGHBOR_ON_PORT(hop->port)),
				.ip_be = hop->ip_be,
				.port = hop->port,
				.position = hop->neighbor,
				.info = { .index = hops->n,
					  .ip_be = hop->ip_be,
					  .port = hop->port },
			};
			hops->n++;
		}
	}
}

struct next_hops *
next_hops_create(struct pipeline *pipeline, uint64_t interval_ns, unsigned int misses)
{
	const struct route_table *routes = pipeline->routes;
	struct next_hops *hops;
	size_t most = 0;

	for (uint32_t r = 0; r < routes->n_routes; r++)
		most += routes->routes[r].n_next_hops;
	hops = rte_zmalloc("next_hops", sizeof(*hops) + most * sizeof(hops->each[0]), 0);
	if (hops == NULL)
		return NULL;
	hops->marks = rte_zmalloc("next_hops", pipeline->n_workers * sizeof(hops->marks[0]), 0);
	if (hops->marks == NULL) {
		rte_free(hops);
		return NULL;
	}
	hops->pipeline = pipeline;
	hops->interval_ns = interval_ns;
	hops->misses = misses;
	add_all(hops, routes);
	return hops;
}

void
next_hops_free(struct next_hops *hops)
{
	if (hops == NULL)
		return;
	rte_free(hops->marks);
	rte_free(hops);
}

static uint64_t
rounds_of(const struct worker *worker)
{
	return __atomic_load_n(&worker->counters.bursts, __ATOMIC_RELAXED) +
	       __atomic_load_n(&worker->counters.empty_polls, __ATOMIC_RELAXED);
}

/* Includes frames that a burst may have left waiting, so that such a burst counts as a full one. */
static uint64_t
frames_of(const struct worker *worker, uint16_t port)
{
	uint64_t n = __atomic_load_n(&worker->counters.ports[port].rx_frames, __ATOMIC_RELAXED);

	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		const struct rx_queue *queue = &worker->rx_queues[i];

		if (queue->port == port && queue->driver != NULL && queue->driver->rx_left != NULL)
			n += queue->driver->rx_left(queue->handle);
	}
	return n;
}

/*
 * Reads frames before rounds; has_emptied reads them in the opposite order. So frames are rather
 * those of too many rounds than of too few.
 */
static void
mark_workers(struct next_hops *hops)
{
	const struct pipeline *pipeline = hops->pipeline;

	for (uint16_t w = 0; w < pipeline->n_workers; w++) {
		for (uint32_t i = 0; i < hops->n; i++) {
			const uint16_t port = hops->each[i].port;

			hops->marks[w].frames[port] = frames_of(pipeline->workers[w], port);
		}
		__atomic_thread_fence(__ATOMIC_ACQUIRE);
		hops->marks[w].rounds = rounds_of(pipeline->workers[w]);
	}
}

static bool
polls(const struct worker *worker, uint16_t port)
{
	for (uint16_t i = 0; i < worker->n_rx_queues; i++) {
		if (worker->rx_queues[i].port == port)
			return true;
	}
	return false;
}

/*
 * Returns true if the worker would have seen an answer that had arrived by this time. If each of
 * its rounds had a full burst, more frames may wait.
 */
static bool
has_emptied(const struct next_hops *hops, uint16_t w, uint16_t port, uint64_t since_ns)
{
	const struct worker *worker = hops->pipeline->workers[w];
	const struct worker_mark *mark = &hops->marks[w];
	const uint64_t rounds = rounds_of(worker) - mark->rounds;

	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return rounds >= 2 && __atomic_load_n(&worker->now_ns, __ATOMIC_RELAXED) >= since_ns &&
	       frames_of(worker, port) - mark->frames[port] < FANIN_BURST * rounds;
}

/* Returns true if the request can be judged now: an answer would have been seen. */
static bool
can_judge(const struct next_hops *hops, const struct watched *hop, const struct neighbor *neighbor,
	  uint64_t now_ns)
{
	const uint64_t requests = __atomic_load_n(&neighbor->requests, __ATOMIC_ACQUIRE);
	uint64_t left_ns = __atomic_load_n(&neighbor->leaves_ns, __ATOMIC_RELAXED);

	/* The round in which it left may have begun before it was asked for. */
	if (left_ns < hop->asked_ns)
		left_ns = hop->asked_ns;
	if (requests == hop->requests || now_ns < left_ns + hops->interval_ns / 4 * 3)
		return false;
	for (uint16_t w = 0; w < hops->pipeline->n_workers; w++) {
		if (polls(hops->pipeline->workers[w], hop->port) &&
		    !has_emptied(hops, w, hop->port, left_ns + hops->interval_ns / 2))
			return false;
	}
	return true;
}

/* Sees everything that a worker had received when can_judge looked at it. */
static bool
has_answered(const struct watched *hop, const struct neighbor *neighbor)
{
	__atomic_thread_fence(__ATOMIC_ACQUIRE);
	return __atomic_load_n(&neighbor->answered_ns, __ATOMIC_RELAXED) >= hop->asked_ns;
}

static void
declare_dead(struct next_hops *hops, struct watched *hop)
{
	if (!hop->up)
		return;
	neighbor_set_dead(hops->pipeline->neighbors, hop->position, true);
	hop->info.lost++;
}

/* Has a worker send a request, also in place of one that got lost on its way to the worker. */
static void
ask(struct next_hops *hops, struct watched *hop, const struct neighbor *neighbor, uint64_t now_ns)
{
	if (neighbor_asks_are_due(hops->pipeline->neighbors) && hop->asked)
		return;
	hop->asked = true;
	hop->asked_ns = now_ns;
	hop->requests = __atomic_load_n(&neighbor->requests, __ATOMIC_RELAXED);
	neighbor_want(hops->pipeline->neighbors, hop->key);
}

static void
judge(struct next_hops *hops, struct watched *hop, const struct neighbor *neighbor, uint64_t now_ns,
      uint64_t passed_ns)
{
	const bool late = passed_ns > 2 * hops->interval_ns;

	hop->silent_ns += late ? 2 * hops->interval_ns : passed_ns;
	if (hop->silent_ns >= NEXT_HOPS_SILENCE_NS)
		declare_dead(hops, hop);
	if (hop->asked && !late && can_judge(hops, hop, neighbor, now_ns) &&
	    !has_answered(hop, neighbor)) {
		hop->asked = false;
		hop->misses++;
		hop->info.missed++;
		if (hop->misses >= hops->misses)
			declare_dead(hops, hop);
	}
	if (!hop->asked || __atomic_load_n(&neighbor->requests, __ATOMIC_RELAXED) == hop->requests)
		ask(hops, hop, neighbor, now_ns);
}

static void
note_state(struct next_hops *hops, struct watched *hop, uint64_t now_ns)
{
	const struct neighbor_table *neighbors = hops->pipeline->neighbors;
	const bool up = neighbor_mac(neighbors, hop->position, hop->ip_be) != 0;

	if (up == hop->up)
		return;
	if (up) {
		/*
		 * The next hop may have become known by a request of its own, after many that it
		 * did not answer.
		 */
		neighbor_set_dead(hops->pipeline->neighbors, hop->position, false);
		hop->misses = 0;
		hop->silent_ns = 0;
	}
	hop->up = up;
	hop->info.since_ns = now_ns;
	hop->info.changes++;
}

static void
look_at(struct next_hops *hops, struct watched *hop, uint64_t now_ns, uint64_t passed_ns)
{
	const struct neighbor *neighbor = &hops->pipeline->neighbors->neighbors[hop->position];
	const bool link = pipeline_port_has_link(hops->pipeline, hop->port);

	note_state(hops, hop, now_ns);
	/* A next hop without a link is not used, and nothing can be learned about it. */
	if (!link || (hop->asked && has_answered(hop, neighbor))) {
		hop->asked = false;
		hop->misses = 0;
		hop->silent_ns = 0;
	}
	if (!link)
		return;
	judge(hops, hop, neighbor, now_ns, passed_ns);
	note_state(hops, hop, now_ns);
}

uint64_t
next_hops_watch(struct next_hops *hops, uint64_t now_ns)
{
	const uint64_t passed_ns = hops->looked_ns == 0 ? hops->interval_ns
							: now_ns - hops->looked_ns;

	if (hops->n == 0)
		return UINT64_MAX;
	if (passed_ns < hops->interval_ns)
		return hops->looked_ns + hops->interval_ns;
	for (uint32_t i = 0; i < hops->n; i++)
		look_at(hops, &hops->each[i], now_ns, passed_ns);
	mark_workers(hops);
	hops->looked_ns = now_ns;
	return now_ns + hops->interval_ns;
}

unsigned int
next_hops_count(const struct next_hops *hops)
{
	return hops->n;
}

void
next_hops_each(const struct next_hops *hops,
	       void (*visit)(void *user, const struct next_hop_info *info), void *user)
{
	for (uint32_t i = 0; i < hops->n; i++) {
		const struct watched *hop = &hops->each[i];
		const struct neighbor_table *neighbors = hops->pipeline->neighbors;
		struct next_hop_info info = hop->info;

		info.mac = neighbor_mac(neighbors, hop->position, hop->ip_be);
		info.link = pipeline_port_has_link(hops->pipeline, hop->port);
		info.requests = __atomic_load_n(&neighbors->neighbors[hop->position].requests,
						__ATOMIC_RELAXED);
		visit(user, &info);
	}
}
