/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A worker's state, and the functions that all its parts need. They run on the worker's lcore and
 * access only the worker's own state, tables that are read-only or made for concurrent readers, and
 * rings.
 */
#ifndef FANIN_PIPELINE_WORKER_H
#define FANIN_PIPELINE_WORKER_H

#include <stdbool.h>
#include <stdint.h>
#include <sys/types.h>

#include <rte_mbuf.h>
#include <rte_ring.h>
#include <rte_spinlock.h>

#include "handlers/handler.h"
#include "pipeline/base/counters.h"
#include "pipeline/base/faults.h"
#include "pipeline/base/mac_key.h"
#include "pipeline/base/state.h"

#define WORKER_TX_BUFFER 192
#define CLUSTER_QUEUE 4096
#define WORKER_RETRIES 512
#define WORKER_GARBAGE 64
#define WORKER_STATION_BITS 6
#define WORKER_ICMP_RATE 100 /* errors that a worker reports in a second */
#define WORKER_NO_PORT UINT16_MAX
#define WORKER_LONG_ROUND_NS UINT64_C(1000000)

/* State about frames that a driver refuses while it accepts others. */
struct tx_refusal {
	uint64_t since_ns; /* round in which the first frame became the first, or was last passed by
			      another */
	uint64_t next_ns;  /* no frame may pass the first one earlier; 0: set in the first round
			      after since_ns */
	uint32_t never_len; /* frames of this length and longer are refused, shorter ones accepted;
			       0: no such length is known */
	uint8_t n_passed;   /* frames that have passed the first one */
	bool longer;        /* one of these was not shorter than the first one */
};

/* A worker's queue to a port: first the frames that wait, in order, then those of this round. */
struct tx_buffer {
	struct rte_mbuf **mbufs; /* within `room`: moves on as the first ones leave */
	uint64_t bytes;
	uint16_t n;
	uint16_t full; /* value of n at which the frames are sent: WORKER_TX_BUFFER above n_waiting
			*/
	uint16_t n_waiting; /* frames among n that are left from earlier rounds. Others: r (relaxed)
			     */
	uint16_t n_held; /* frames that the port's rate held back when they were last to be sent */
	uint16_t ethdev;
	uint16_t queue;
	const struct port_driver *driver; /* NULL: ethdev and queue */
	void *handle;                     /* of the driver's queue */
	uint64_t waiting_since_ns;        /* since when the device has taken nothing */
	struct tx_refusal refusal;        /* with a driver only */
	rte_spinlock_t *lock;             /* NULL if the queue is this worker's alone */
	struct egress *egress;            /* the port's */
	uint64_t waiting_bytes;           /* of the frames that wait. Others: r (relaxed) */
	struct rte_mbuf **room;           /* for twice as many as there can be */
	uint16_t port;                    /* index */
	uint16_t checksum_port_be; /* UDP port of packets whose checksums the device completes; 0:
				      of none */
	bool rated;                /* the port has a rate */
	bool counts; /* count the bytes of each frame that leaves: the port has a rate, or frames
			have waited */
};

struct rx_queue {
	uint16_t ethdev;
	uint16_t queue;
	uint16_t port;                    /* index */
	const struct port_driver *driver; /* NULL: ethdev and queue */
	void *handle;                     /* of the driver's queue */
};

/* A packet whose slot another worker held. */
struct retry {
	struct rte_mbuf *mbuf;
	uint64_t since_ns;
};

/* The MAC table's answer about a station in this round, so that its other frames need no lookup. */
struct station {
	mac_key key;
	uint64_t round; /* 0: none */
	uint16_t port;
	bool learned; /* in this round */
};

struct worker {
	struct pipeline *pipeline;
	unsigned int index;
	pid_t thread; /* by the kernel's number; 0: it does not run yet. Others: r (relaxed) */
	uint64_t looked_ns; /* when the last round began, or the sleep after it ended */
	/* The longest time between two polls of the ports, without sleep. Others: r (relaxed). */
	uint64_t longest_round_ns;
	uint64_t now_ns; /* of the current round */
	uint32_t now_seconds;
	struct rx_queue rx_queues[PIPELINE_MAX_PORTS * 4];
	uint16_t n_rx_queues;
	bool wakeable; /* by frames, while it sleeps */
	bool woken;    /* by one that it has not found yet */
	unsigned int cluster;
	/*
	 * A slot with (index & own_mask) == own_slot belongs to this worker, in any state of the
	 * others. If the bits of the index don't determine the worker, no slot matches.
	 */
	uint32_t own_mask;
	uint32_t own_slot;
	struct retry retries[WORKER_RETRIES]; /* in order of arrival */
	uint16_t n_retries;
	uint64_t retrying_since_ns; /* of the packet in work; 0: it is not a retry */
	struct tx_buffer tx[PIPELINE_MAX_PORTS];
	uint16_t n_tx_waiting;  /* of all ports that have no room of their own for frames that wait
				 */
	uint32_t n_tx_reserved; /* of all others */
	struct rte_mbuf *garbage[WORKER_GARBAGE]; /* mbufs that are to return to their pool together
						   */
	struct rte_mempool *garbage_pool;
	uint16_t n_garbage;
	struct station stations[1 << WORKER_STATION_BITS]; /* by a hash of the key */
	struct fanin_handler_ctx handler_ctx;
	uint32_t run;           /* epoch of the run that handler_ctx is for; 0: none */
	uint64_t timers_due_ns; /* when the first timer of all FIFOs expires; UINT64_MAX: there is
				   none */
	struct fanin_timer_fifo *timers[PIPELINE_TIMERS]; /* as pipeline->timeouts. Control: w
							     (release), worker: r (acquire) */
	struct faults faults;
	uint64_t key_due_ns[PIPELINE_MAX_PORTS]; /* when each port's next packet for a job that
						    admits by key is due */
	uint32_t icmp_seconds; /* when the last ICMP error was sent, and how many in that second */
	uint32_t icmp_sent;
	struct counters counters;
} __rte_cache_aligned;

/* tx.c: returns the garbage to its pool. */
void worker_free_garbage(struct worker *worker);

/*
 * Gives up one reference of an mbuf. The last one of a single segment waits for others of its kind.
 */
static inline void
worker_free(struct worker *worker, struct rte_mbuf *mbuf)
{
	if (unlikely(rte_mbuf_refcnt_read(mbuf) != 1 || mbuf->nb_segs != 1 ||
		     !RTE_MBUF_DIRECT(mbuf))) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	/* A port may have a pool of its own. */
	if (unlikely(worker->n_garbage == WORKER_GARBAGE || mbuf->pool != worker->garbage_pool)) {
		worker_free_garbage(worker);
		worker->garbage_pool = mbuf->pool;
	}
	worker->garbage[worker->n_garbage++] = mbuf;
}

static inline bool
port_is_down(const struct pipeline *pipeline, uint16_t port)
{
	return __atomic_load_n(&pipeline->ports[port].down, __ATOMIC_ACQUIRE);
}

/* Drops a packet: counts the reason and frees the mbuf. */
static inline void
worker_drop(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason)
{
	worker->counters.drops[reason]++;
	rte_pktmbuf_free(mbuf);
}

/*
 * Called before a burst's handlers run: counts how many packets the worker has taken, or could have
 * (Flare's Q).
 */
static inline void
worker_count_input(struct worker *worker, unsigned int packets)
{
	packets += worker->n_retries;
	worker->counters.input_occupancy[histogram_bucket(packets)]++;
	worker->counters.input_sum += packets;
}

/* Index in pipeline->ports of the port that a packet came in on. */
static inline uint16_t
ingress_port(const struct pipeline *pipeline, const struct rte_mbuf *mbuf)
{
	return pipeline->port_of_ethdev[mbuf->port];
}

#endif
