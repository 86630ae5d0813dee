/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The inside of the pipeline: a worker's state and the stages that a packet passes. Everything here
 * runs on the worker's lcore and touches only its own state, tables that are read-only or made for
 * concurrent readers, and rings.
 */
#ifndef FANIN_PIPELINE_WORKER_H
#define FANIN_PIPELINE_WORKER_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_spinlock.h>

#include "handlers/handler.h"
#include "pipeline/counters.h"
#include "pipeline/faults.h"
#include "pipeline/job.h"
#include "pipeline/pipeline.h"

#define WORKER_TX_BUFFER 64
#define CLUSTER_QUEUE 4096
#define WORKER_RETRIES 512

struct tx_buffer {
	struct rte_mbuf *mbufs[WORKER_TX_BUFFER];
	uint16_t n;
	uint16_t ethdev;
	uint16_t queue;
	rte_spinlock_t *lock; /* NULL if the queue is this worker's alone */
};

struct rx_queue {
	uint16_t ethdev;
	uint16_t queue;
	uint16_t port; /* index */
};

/* A packet that found another worker in its slot. */
struct retry {
	struct rte_mbuf *mbuf;
	uint64_t since_ns;
};

struct worker {
	struct pipeline *pipeline;
	unsigned int index;
	uint64_t now_ns; /* of the current round */
	uint32_t now_seconds;
	struct rx_queue rx_queues[PIPELINE_MAX_PORTS * 4];
	uint16_t n_rx_queues;
	unsigned int cluster;
	struct retry retries[WORKER_RETRIES]; /* in order of arrival */
	uint16_t n_retries;
	uint64_t retrying_since_ns; /* of the packet in work; 0: it is not a retry */
	struct tx_buffer tx[PIPELINE_MAX_PORTS];
	struct fanin_handler_ctx handler_ctx;
	struct faults faults;
	struct counters counters;
} __rte_cache_aligned;

/* Why a packet ends here: counts and frees. */
static inline void
worker_drop(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason)
{
	worker->counters.drops[reason]++;
	rte_pktmbuf_free(mbuf);
}

/* Index in pipeline->ports of the port that a packet came in on. */
static inline uint16_t
ingress_port(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	return pipeline->port_of_ethdev[mbuf->port];
}

/* rx.c: sorts a burst into foreign, local and Fanin packets and passes each on. */
void worker_classify(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

/* aggregate.c: Fanin data packets that are valid; looks up job and slot, runs handlers, carries out emissions. */
void worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

/* schedule.c: valid Fanin packets from a port or the fault injector: control ones are answered, others dispatched. */
void worker_fanin(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

/* forward.c: a foreign frame: learn, look up, send or flood. */
void worker_forward(struct worker *worker, struct rte_mbuf *mbuf);

/* local.c: an ARP request or ICMP echo for the switch itself. Returns false if it is neither (the mbuf stays the caller's). */
bool worker_local_arp(struct worker *worker, struct rte_mbuf *mbuf);
void worker_local_ip(struct worker *worker, struct rte_mbuf *mbuf);

/* membership.c: a JOIN or LEAVE. */
void worker_membership(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * membership.c: finds the job of a packet and checks that it comes from the member that it claims.
 * Returns FANIN_REASON_NONE and sets *job, or the reason; *job is set if the job exists.
 */
enum fanin_reason worker_member_check(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				      struct job **job);

/*
 * reply.c: turns a Fanin packet around to its sender with payload_len bytes behind the Fanin
 * header, which the caller has written, and sends it. dst_port_be: UDP port there.
 */
void worker_reply(struct worker *worker, struct rte_mbuf *mbuf, uint32_t payload_len,
		  uint16_t dst_port_be);

/* reply.c: makes a REFUSED of a packet and returns it to its sender. */
void worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason);

/* tx.c: queues one reference of an mbuf for a port (index); flushes when the buffer is full. */
void worker_send(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf);

/* tx.c: the same for Fanin packets, which pass the fault injector. */
void worker_send_fanin(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf);

/* schedule.c: packets of the worker's cluster, up to a burst. Returns how many there were. */
uint16_t worker_poll_cluster(struct worker *worker);

/* schedule.c: tries the packets again that found another worker in the way. */
void worker_retry(struct worker *worker);

/* tx.c: sends what is queued. */
void worker_flush(struct worker *worker);

/*
 * worker.c: one round: polls every queue once, processes to completion, and flushes.
 * The caller's thread is the worker's for RCU. Returns how many packets there were.
 */
uint16_t worker_round(struct worker *worker);

/* worker.c: an lcore's main function: rounds until the pipeline stops. */
int worker_main(void *worker);

#endif
