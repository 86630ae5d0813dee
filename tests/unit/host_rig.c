/* SPDX-License-Identifier: BSD-3-Clause */
#include "tests/unit/host_rig.h"
#include "hostlib/src/cc/cc.h"
#include "protocols/dense/host/window.h"

#include <check.h>
#include <stdlib.h>
#include <string.h>

#define STEP_NS 50000
#define TIMEOUT_NS (5 * UINT64_C(1000000000))

static const struct {
	uint16_t n_workers;
	uint16_t cluster_size;
} layouts[HOST_RIG_LAYOUTS] = { { 1, 1 }, { 2, 1 }, { 2, 2 } };

struct host_rig host_rig;

/* ------------------------------------------------------------------ links */

static void
host_put(struct memory_link *link, const void *frame, uint32_t len)
{
	ring_switch_enqueue(&host_rig.sw, ((const struct host *)link)->rank, frame, len);
}

static bool
waiting_take(struct host *host, void *frame, size_t *len)
{
	const struct host_rig_frame *first = &host->waiting[host->waiting_head % HOST_RIG_WAITING];

	if (host->waiting_head == host->waiting_tail)
		return false;
	host->waiting_head++;
	memcpy(frame, first->data, first->len);
	*len = first->len;
	return true;
}

/* Keeps a frame for the host's engine of the frame's job. */
static void
waiting_put(uint16_t rank, const void *frame, size_t len)
{
	for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
		struct host *host = &host_rig.hosts[j][rank];
		struct host_rig_frame *last = &host->waiting[host->waiting_tail % HOST_RIG_WAITING];

		if (((const struct fanin_headers *)frame)->fanin.job != host->job->params.id)
			continue;
		ck_assert_uint_lt(host->waiting_tail - host->waiting_head, HOST_RIG_WAITING);
		host->waiting_tail++;
		last->len = len;
		memcpy(last->data, frame, len);
	}
}

static size_t
host_take(struct memory_link *link, void *frame)
{
	struct host *host = (struct host *)link;
	size_t len;

	if (waiting_take(host, frame, &len))
		return len;
	while ((len = ring_switch_take(&host_rig.sw, host->rank, frame)) != 0) {
		/* The kernel would handle probes. */
		if (((const struct fanin_headers *)frame)->udp.dst_be !=
		    host_rig.sw.pipeline->udp_port_be)
			continue;
		if (((const struct fanin_headers *)frame)->fanin.job == host->job->params.id)
			break;
		waiting_put(host->rank, frame, len);
	}
	return len;
}

/* ------------------------------------------------------------------ opening */

static uint64_t
clock_now(void *arg)
{
	(void)arg;
	return host_rig.now_ns;
}

/*
 * Joins until the run has begun, whatever the injector does. The switch tells whether the job is
 * wide.
 */
static void
join_all(const struct job *job)
{
	static uint8_t answer[MEMORY_LINK_FRAME] __attribute__((aligned(8)));
	const struct fanin_headers *headers = (const struct fanin_headers *)answer;
	const struct fanin_join_ack_body *ack = (const struct fanin_join_ack_body *)(headers + 1);
	bool wide = false;

	for (unsigned int attempt = 0; job->epoch == 0; attempt++) {
		ck_assert_uint_lt(attempt, 1000);
		for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
			if (host_sends_join(&host_rig.sw, h, job->params.id, 1u + h,
					    host_rig.n_hosts,
					    (struct fanin_headers *)answer) != NULL &&
			    headers->fanin.type == FANIN_TYPE_JOIN_ACK)
				wide = (ack->flags & FANIN_JOB_WIDE) != 0;
		}
	}
	ck_assert(wide == host_rig.wide);
	/*
	 * Drops answers that the injector has delayed or doubled, as they are not for the engines.
	 */
	ring_switch_rounds(&host_rig.sw, 4 * FAULTS_MAX_DELAY);
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		while (ring_switch_take(&host_rig.sw, h, answer) != 0)
			;
	}
}

static void
host_open(struct host *host, uint16_t rank, struct job *job)
{
	struct fanin_protocol_config config = {
		.flow = {
			.dst_ip_be = host_rig.sw.pipeline->ip_be,
			.src_ip_be = host_ip_be(rank),
			.dst_port = FANIN_WIRE_DEFAULT_UDP_PORT,
		},
		.keys = job->params.keys,
		.instance = host_rig.sw.pipeline->instance,
		.timeout_ns = TIMEOUT_NS,
		.wait_limit_ns = host_rig.impatient ? TIMEOUT_NS : 0,
		.job = job->params.id,
		.epoch = job->epoch,
		.rank = rank,
		.size = host_rig.n_hosts,
		.window = job->params.window,
		.payload_bytes = job->params.payload_bytes,
		.wide = host_rig.wide,
		.spread = host_rig.sw.pipeline->n_workers > 1,
		.stagger = true,
		.cc = &fanin_cc_fixed,
		.now_ns = clock_now,
	};
	struct fanin_error error = { 0 };

	memcpy(config.flow.dst_mac, host_rig.sw.pipeline->mac, sizeof(config.flow.dst_mac));
	host_mac(rank, config.flow.src_mac);
	memset(host, 0, sizeof(*host));
	host->rank = rank;
	host->job = job;
	if (host_rig.tagger != NULL)
		ck_assert_int_eq(fanin_tagger_create(RING_SWITCH_KEY, &host->tagger), 0);
	config.tagger = host->tagger;
	memory_link_init(&host->link, host_put, host_take);
	host->waiting = calloc(HOST_RIG_WAITING, sizeof(*host->waiting));
	ck_assert_ptr_nonnull(host->waiting);
	config.transport = &host->link.transport;
	ck_assert_int_eq(fanin_engine_open(&fanin_protocol_window, &config, &host->engine, &error),
			 FANIN_OK);
}

void
host_rig_open(const struct host_rig_options *options)
{
	host_rig.n_hosts = options->n_hosts;
	host_rig.n_jobs = options->n_jobs == 0 ? 1 : options->n_jobs;
	host_rig.wide = options->wide;
	host_rig.lossy = options->faults != NULL;
	host_rig.late = options->late;
	host_rig.impatient = options->impatient;
	host_rig.failed = false;
	host_rig.now_ns = 1000000000;
	host_rig.steps = 0;
	ring_switch_eal();
	/*
	 * A handler whose slots keep many packets needs correspondingly more of them. Other
	 * handlers keep about a packet for each child, and manage with fewer slots.
	 */
	ring_switch_slots = options->handler->slot_mbufs.fixed > FANIN_WIRE_MAX_CHILDREN
				    ? 64u * options->handler->slot_mbufs.fixed
				    : 64;
	ring_switch_open_clusters(&host_rig.sw, options->n_hosts,
				  layouts[options->layout].n_workers,
				  layouts[options->layout].cluster_size, options->faults);
	if (options->authenticate)
		ring_switch_authenticate(&host_rig.sw);
	for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
		host_rig.jobs[j] = ring_switch_job_of(&host_rig.sw, options->handler->name,
						      options->n_hosts, 0);
		host_rig.jobs[j]->params.wide = options->wide;
		join_all(host_rig.jobs[j]);
	}
	/* From here on the engines have tags of their own. */
	host_rig.tagger = host_rig.sw.tagger;
	host_rig.sw.tagger = NULL;
	for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
		for (uint16_t h = 0; h < options->n_hosts; h++)
			host_open(&host_rig.hosts[j][h], h, host_rig.jobs[j]);
	}
}

void
host_rig_step(void)
{
	host_rig.now_ns += STEP_NS;
	for (uint16_t i = 0; i < host_rig.n_hosts; i++) {
		for (uint16_t j = 0; j < host_rig.n_jobs; j++)
			fanin_engine_poll(
				host_rig.hosts[j][(host_rig.steps + i) % host_rig.n_hosts].engine);
	}
	ring_switch_rounds(&host_rig.sw, 1);
	host_rig.steps++;
}

/* ------------------------------------------------------------------ closing */

static void
job_check(uint16_t number)
{
	const struct host *hosts = host_rig.hosts[number];
	uint64_t blocks = fanin_engine_stats(hosts[0].engine)->blocks;
	struct fanin_handler_stats stats;

	job_stats(host_rig.jobs[number], &stats);
	ck_assert_uint_eq(stats.results, blocks);
	ck_assert_uint_eq(stats.contributions, blocks * host_rig.n_hosts);
	for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
		const struct fanin_engine_stats *engine = fanin_engine_stats(hosts[h].engine);

		ck_assert_uint_eq(engine->blocks, blocks);
		ck_assert_uint_eq(engine->invalid, 0);
		if (!host_rig.lossy && !host_rig.late)
			ck_assert_uint_eq(engine->frames_sent - engine->queries, blocks);
	}
}

void
host_rig_close(void)
{
	struct counters sum;

	ring_switch_rounds(&host_rig.sw, 4 * FAULTS_MAX_DELAY);
	pipeline_counters(host_rig.sw.pipeline, &sum);
	ck_assert(host_rig.lossy == (sum.drops[FANIN_REASON_FAULT_DROP] != 0));
	ck_assert(host_rig.lossy == (sum.fault_duplicates != 0));
	ck_assert(host_rig.lossy == (sum.fault_reorders != 0));
	ck_assert_uint_eq(sum.drops[FANIN_REASON_TAG], 0);
	for (uint16_t j = 0; j < host_rig.n_jobs; j++) {
		if (!host_rig.failed)
			job_check(j);
		for (uint16_t h = 0; h < host_rig.n_hosts; h++) {
			fanin_engine_close(host_rig.hosts[j][h].engine);
			fanin_tagger_destroy(host_rig.hosts[j][h].tagger);
			free(host_rig.hosts[j][h].waiting);
		}
	}
	fanin_tagger_destroy(host_rig.tagger);
	host_rig.tagger = NULL;
	ring_switch_close(&host_rig.sw);
}

/*
 * True if hosts of the window protocol run its jobs: ranks that know a result tell it by KNOWN. In
 * push jobs home hosts do this, which the suite push_hosts tests.
 */
static bool
is_windowed(const struct fanin_handler *handler)
{
	return fanin_handler_reduces(handler) && fanin_handler_takes(handler, FANIN_TYPE_KNOWN);
}

int
host_rig_handlers(void)
{
	int n = 0;

	for (const struct fanin_handler *h = fanin_handler_first(); h != NULL; h = h->next)
		n += is_windowed(h);
	return n;
}

const struct fanin_handler *
host_rig_handler(int number)
{
	const struct fanin_handler *handler = fanin_handler_first();

	for (;; handler = handler->next) {
		if (is_windowed(handler) && number-- == 0)
			return handler;
	}
}
