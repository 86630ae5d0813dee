/* SPDX-License-Identifier: BSD-3-Clause */
/* The main thread's part of timers.h. */
#include <errno.h>

#include <rte_malloc.h>

#include "pipeline/timers.h"

/*
 * Timers that one round can arm before its end, when the FIFO is trimmed. Doubled because injected
 * faults duplicate packets.
 */
static uint32_t
armed_in_round(const struct worker *worker)
{
	const uint32_t packets = FANIN_BURST * (worker->n_rx_queues + 1u) + WORKER_RETRIES +
				 FAULTS_HELD;

	return 2 * packets * FANIN_MAX_ARMS_PER_CALL;
}

static struct fanin_timer_fifo *
make_fifo(const struct pipeline *pipeline, struct worker *worker, uint64_t timeout_ns)
{
	const uint32_t room = rte_align32pow2(pipeline->timers_max + armed_in_round(worker));
	struct fanin_timer_fifo *fifo =
		rte_zmalloc_socket("timers", sizeof(*fifo) + room * sizeof(fifo->timers[0]),
				   RTE_CACHE_LINE_SIZE,
				   (int)rte_lcore_to_socket_id(pipeline->lcores[worker->index]));

	if (fifo == NULL)
		return NULL;
	fifo->timeout_ns = timeout_ns;
	fifo->earliest_ns = &worker->timers_due_ns;
	fifo->most = pipeline->timers_max;
	fifo->mask = room - 1;
	return fifo;
}

/* Takes a timeout's FIFOs from the workers, which may still be reading them. */
static void
withdraw(struct pipeline *pipeline, int timeout, struct fanin_timer_fifo **fifos)
{
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		struct worker *worker = pipeline->workers[i];

		/* Some workers may be missing if the pipeline could not be created. */
		fifos[i] = worker == NULL ? NULL
					  : __atomic_exchange_n(&worker->timers[timeout], NULL,
								__ATOMIC_ACQ_REL);
	}
}

static void
free_fifos(const struct pipeline *pipeline, struct fanin_timer_fifo **fifos)
{
	for (uint16_t i = 0; i < pipeline->n_workers; i++)
		rte_free(fifos[i]);
}

/* Makes the FIFOs of the shorter timeout point to those of the longer one, which exist. */
static void
link_longer(struct pipeline *pipeline, int shorter, int longer)
{
	for (uint16_t i = 0; i < pipeline->n_workers && shorter >= 0; i++) {
		struct worker *worker = pipeline->workers[i];

		__atomic_store_n(&worker->timers[shorter]->longer, worker->timers[longer],
				 __ATOMIC_RELEASE);
	}
}

/* Removes all pointers to FIFOs that were withdrawn. */
static void
unlink_longer(struct pipeline *pipeline, struct fanin_timer_fifo *const *withdrawn)
{
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		for (int k = 0; k < PIPELINE_TIMERS; k++) {
			struct fanin_timer_fifo *fifo = pipeline->workers[i]->timers[k];

			if (fifo != NULL && fifo->longer == withdrawn[i])
				__atomic_store_n(&fifo->longer, NULL, __ATOMIC_RELEASE);
		}
	}
}

static int
find_timeout(const struct pipeline *pipeline, uint64_t timeout_ns)
{
	for (int i = 0; i < PIPELINE_TIMERS; i++) {
		if (pipeline->timeouts[i].n_jobs != 0 && pipeline->timeouts[i].ns == timeout_ns)
			return i;
	}
	return -1;
}

/* Longer timeouts have entries of their own, behind those of the jobs' own timeouts. */
static int
find_unused(const struct pipeline *pipeline, bool is_longer)
{
	const int end = is_longer ? PIPELINE_TIMERS : PIPELINE_TIMEOUTS;

	for (int i = is_longer ? PIPELINE_TIMEOUTS : 0; i < end; i++) {
		if (pipeline->timeouts[i].n_jobs == 0)
			return i;
	}
	return -ENOSPC;
}

int
timers_use(struct pipeline *pipeline, uint64_t timeout_ns, int shorter)
{
	struct fanin_timer_fifo *fifos[PIPELINE_MAX_WORKERS] = { 0 };
	const int there = find_timeout(pipeline, timeout_ns);
	const int unused = find_unused(pipeline, shorter >= 0);

	if (there >= 0) {
		pipeline->timeouts[there].n_jobs++;
		link_longer(pipeline, shorter, there);
		return there;
	}
	if (unused < 0)
		return unused;
	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		fifos[i] = make_fifo(pipeline, pipeline->workers[i], timeout_ns);
		if (fifos[i] == NULL) {
			free_fifos(pipeline, fifos);
			return -ENOMEM;
		}
	}
	for (uint16_t i = 0; i < pipeline->n_workers; i++)
		__atomic_store_n(&pipeline->workers[i]->timers[unused], fifos[i], __ATOMIC_RELEASE);
	pipeline->timeouts[unused] = (struct pipeline_timeout){ .ns = timeout_ns, .n_jobs = 1 };
	if ((uint32_t)unused >= pipeline->timeouts_end)
		__atomic_store_n(&pipeline->timeouts_end, (uint32_t)unused + 1, __ATOMIC_RELAXED);
	link_longer(pipeline, shorter, unused);
	return unused;
}

void
timers_unuse(struct pipeline *pipeline, int timeout)
{
	struct fanin_timer_fifo *fifos[PIPELINE_MAX_WORKERS];

	if (--pipeline->timeouts[timeout].n_jobs != 0)
		return;
	withdraw(pipeline, timeout, fifos);
	unlink_longer(pipeline, fifos);
	rte_rcu_qsbr_synchronize(pipeline->qsbr, RTE_QSBR_THRID_INVALID);
	free_fifos(pipeline, fifos);
}

void
timers_free(struct pipeline *pipeline)
{
	struct fanin_timer_fifo *fifos[PIPELINE_MAX_WORKERS];

	for (int i = 0; i < PIPELINE_TIMERS; i++) {
		withdraw(pipeline, i, fifos);
		free_fifos(pipeline, fifos);
	}
}
