/* SPDX-License-Identifier: BSD-3-Clause */
/* Batches of the rig, see core_rig.h: the steps that every worker does for its own share. */
#include <string.h>

#include <rte_cycles.h>
#include <rte_launch.h>
#include <rte_lcore.h>

#include "lab/bench/core_rig.h"
#include "pipeline/worker.h"

/* Rounds of 64 additions each: some 20 us. */
#define CALIBRATION_ROUNDS 6144

/* Takes part in the current call, once all workers are there. */
static void
take_part(struct rig *rig, unsigned int worker)
{
	struct rig_call *call = &rig->call;

	__atomic_sub_fetch(&call->waiting, 1, __ATOMIC_ACQ_REL);
	while (__atomic_load_n(&call->waiting, __ATOMIC_ACQUIRE) != 0)
		rte_pause();
	call->cycles[worker] = call->fn(rig, worker, call->argument);
	__atomic_sub_fetch(&call->running, 1, __ATOMIC_RELEASE);
}

/*
 * A worker spins between two calls. When workers slept, two of them were hardly faster than one: a
 * virtual core that has slept continues with cold caches, or on another physical core.
 */
static int
serve(void *argument)
{
	struct rig *rig = argument;
	const unsigned int worker = rte_lcore_id();
	uint32_t number = 0;

	for (;;) {
		while (__atomic_load_n(&rig->call.number, __ATOMIC_ACQUIRE) == number)
			rte_pause();
		number++;
		if (rig->call.fn == NULL)
			return 0;
		take_part(rig, worker);
	}
}

void
rig_start_workers(struct rig *rig)
{
	for (uint16_t w = 1; w < rig->options.n_workers; w++) {
		if (rte_eal_remote_launch(serve, rig, w) != 0)
			rig_die("worker %u does not start", w);
	}
}

void
rig_stop_workers(struct rig *rig)
{
	rig->call.fn = NULL;
	__atomic_add_fetch(&rig->call.number, 1, __ATOMIC_RELEASE);
	for (uint16_t w = 1; w < rig->options.n_workers; w++)
		rte_eal_wait_lcore(w);
}

uint64_t
rig_on_workers(struct rig *rig, rig_fn fn, void *argument)
{
	const uint16_t n = rig->options.n_workers;
	struct rig_call *call = &rig->call;
	uint64_t cycles = 0;

	call->fn = fn;
	call->argument = argument;
	call->waiting = n;
	call->running = n;
	__atomic_add_fetch(&call->number, 1, __ATOMIC_RELEASE);
	take_part(rig, 0);
	while (__atomic_load_n(&call->running, __ATOMIC_ACQUIRE) != 0)
		rte_pause();
	for (uint16_t w = 0; w < n; w++)
		cycles = RTE_MAX(cycles, call->cycles[w]);
	return cycles;
}

/* Returns the number of the i-th block of a worker's share. */
static uint32_t
block_number(const struct rig *rig, uint32_t i, unsigned int worker)
{
	return rig->next_block + i / rig->options.jobs * rig->options.n_workers + worker;
}

/*
 * Prepares a worker's share. Hosts send in step: a worker finds a burst of each host in turn.
 * Packets are in the array in the order in which the worker takes them.
 */
static uint64_t
prepare_share(struct rig *rig, unsigned int worker, void *argument)
{
	const uint16_t n_workers = rig->options.n_workers;
	const uint16_t n_jobs = rig->options.jobs;
	const uint32_t blocks = rig->n_blocks / n_workers;
	const uint32_t burst = RTE_MIN((uint32_t)FANIN_BURST, blocks);
	struct rte_mbuf **mbufs = rig_mbufs(rig, worker);
	uint32_t n = 0;

	(void)argument;
	if (rte_pktmbuf_alloc_bulk(rig->pools[worker], mbufs, rig_share(rig)) != 0)
		rig_die("the pool has less than %u packets left", rig_share(rig));
	for (uint32_t first = 0; first < blocks; first += burst) {
		for (uint32_t i = 0; i < rig->options.hosts * burst; i++) {
			const uint32_t h = i / burst;
			const uint32_t block = first + i % burst;
			struct rte_mbuf *mbuf = mbufs[n++];
			struct fanin_headers *headers = rte_pktmbuf_mtod(mbuf,
									 struct fanin_headers *);

			*headers = rig->headers[h];
			headers->fanin.job = rig->jobs[block % n_jobs]->params.id;
			headers->fanin.epoch = rig->jobs[block % n_jobs]->epoch;
			hosts_headers_set_block(headers, block_number(rig, block, worker));
			memcpy(headers + 1, hosts_contribution(&rig->data, h, headers->fanin.block),
			       rig->options.payload);
			mbuf->data_len = (uint16_t)(sizeof(*headers) + rig->options.payload);
			mbuf->pkt_len = mbuf->data_len;
			mbuf->port = rig->ethdevs[h];
			if (rig->leaders)
				rig_leaders_packet(rig, mbuf, (uint16_t)h);
		}
	}
	return 0;
}

void
rig_prepare(struct rig *rig)
{
	rig_on_workers(rig, prepare_share, NULL);
}

static uint64_t
discard_share(struct rig *rig, unsigned int worker, void *argument)
{
	(void)argument;
	rte_pktmbuf_free_bulk(rig_mbufs(rig, worker), rig_share(rig));
	return 0;
}

void
rig_discard(struct rig *rig)
{
	rig_on_workers(rig, discard_share, NULL);
}

static uint64_t
offer_share(struct rig *rig, unsigned int worker, void *argument)
{
	struct rte_mbuf **mbufs = rig_mbufs(rig, worker);

	(void)argument;
	for (uint32_t i = 0; i < rig_share(rig); i++) {
		uint16_t h = rte_pktmbuf_mtod(mbufs[i], struct fanin_headers *)->fanin.rank;

		if (!rig_leaders_waits(rig, mbufs[i]) &&
		    rte_ring_enqueue(rig->rx[h][worker], mbufs[i]) != 0)
			rig_die("a port takes no more packets");
	}
	return 0;
}

void
rig_offer(struct rig *rig)
{
	rig_on_workers(rig, offer_share, NULL);
}

static uint64_t
run_share(struct rig *rig, unsigned int worker, void *argument)
{
	struct worker *state = rig->pipeline->workers[worker];
	const uint32_t expected = *(const uint32_t *)argument;
	uint64_t start = rte_rdtsc();
	uint32_t done = 0;

	while (done < expected)
		done += worker_round(state);
	return rte_rdtsc() - start;
}

/*
 * Adds numbers in eight chains that do not depend on each other: their speed shows how much of the
 * core is left for this thread.
 */
static uint64_t
add(struct rig *rig, unsigned int worker, void *argument)
{
	uint64_t sums[8] = { 0 };
	uint64_t start = rte_rdtsc();

	(void)rig;
	(void)worker;
	(void)argument;
	for (unsigned int i = 0; i < CALIBRATION_ROUNDS; i++) {
#pragma GCC unroll 64
		for (unsigned int k = 0; k < 64; k++) {
			sums[k % RTE_DIM(sums)]++;
			/* This keeps the compiler from vectorising or joining the additions. */
			__asm__ volatile("" : "+r"(sums[k % RTE_DIM(sums)]));
		}
	}
	return rte_rdtsc() - start;
}

uint64_t
rig_calibrate(struct rig *rig)
{
	return rig_on_workers(rig, add, NULL);
}

uint64_t
rig_run(struct rig *rig)
{
	const uint32_t results = rig->n_blocks / rig->options.n_workers;
	/* The leaders' results come in the second turn. */
	const uint32_t contributions = rig_share(rig) - (rig->leaders ? results : 0);
	uint64_t cycles = rig_on_workers(rig, run_share, (void *)(uintptr_t)&contributions);

	if (!rig->options.parent && !rig->leaders)
		return cycles;
	rig_on_workers(rig, rig->leaders ? rig_leaders_answer : rig_parent_answer, NULL);
	return cycles + rig_on_workers(rig, run_share, (void *)(uintptr_t)&results);
}

/*
 * Returns the number of results that a worker sends to host h: one for each of its blocks; with
 * leaders without the blocks that h leads.
 */
static uint32_t
results_of(const struct rig *rig, unsigned int worker, uint16_t h)
{
	const uint32_t blocks = rig->n_blocks / rig->options.n_workers;
	uint32_t n = blocks;

	for (uint32_t i = 0; i < blocks; i++)
		n -= rig_leaders_leads(rig, h, block_number(rig, i, worker));
	return n;
}

static uint64_t
collect_share(struct rig *rig, unsigned int worker, void *argument)
{
	(void)argument;
	for (uint16_t h = 0; h < rig->options.hosts; h++) {
		struct rte_mbuf *mbuf;
		uint32_t n = 0;

		for (; rte_ring_dequeue(rig->tx[h][worker], (void **)&mbuf) == 0; n++) {
			const struct fanin_headers *headers =
				rte_pktmbuf_mtod(mbuf, struct fanin_headers *);

			/*
			 * The content is checked at one host: all get the same packet. The leader
			 * of a block gets none.
			 */
			if (headers->fanin.type != FANIN_TYPE_RESULT ||
			    headers->fanin.contributions != rig->jobs[0]->params.n_ranks ||
			    (h == (rig_leaders_leads(rig, 0, headers->fanin.block) ? 1 : 0) &&
			     memcmp(headers + 1, hosts_result(&rig->data, headers->fanin.block),
				    rig->options.payload) != 0))
				rig_die("wrong result of block %u", headers->fanin.block);
			rte_pktmbuf_free(mbuf);
		}
		if (n != results_of(rig, worker, h))
			rig_die("host %u got %u results, expected %u", h, n,
				results_of(rig, worker, h));
	}
	return 0;
}

void
rig_collect(struct rig *rig)
{
	rig_on_workers(rig, collect_share, NULL);
	rig->next_block += rig->n_blocks / rig->options.jobs;
}
