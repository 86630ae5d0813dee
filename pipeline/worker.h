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
#include "pipeline/mac_table.h"
#include "pipeline/neighbor.h"
#include "pipeline/pipeline.h"

#define WORKER_TX_BUFFER 64
#define WORKER_TX_WAITING 256 /* frames of a port that wait because its device did not take them */
#define CLUSTER_QUEUE 4096
#define WORKER_RETRIES 512
#define WORKER_GARBAGE 64
#define WORKER_STATION_BITS 6
#define WORKER_ICMP_RATE 100 /* errors that a worker reports in a second */
#define WORKER_NO_PORT UINT16_MAX

/* What is known of frames that a driver refuses while it takes others. */
struct tx_refusal {
	uint64_t next_ns; /* the first frame is not passed by another before */
	uint32_t never_len; /* frames of this length and more are refused, shorter ones taken; 0: none are known */
	uint8_t n_passed; /* frames that have passed the first one */
	bool longer;      /* one of these was not shorter than it */
};

struct tx_buffer {
	uint64_t bytes;
	uint16_t n;
	uint16_t full;      /* n at which they leave: WORKER_TX_BUFFER more than wait */
	uint16_t n_waiting; /* of n, frames that the device has refused before */
	uint16_t ethdev;
	uint16_t queue;
	const struct port_driver *driver; /* NULL: ethdev and queue */
	void *handle;                     /* of the driver's queue */
	uint64_t waiting_since_ns;        /* since when the device has taken nothing */
	struct tx_refusal refusal;        /* with a driver only */
	rte_spinlock_t *lock;             /* NULL if the queue is this worker's alone */
	struct rte_mbuf *mbufs[WORKER_TX_WAITING + WORKER_TX_BUFFER];
};

struct rx_queue {
	uint16_t ethdev;
	uint16_t queue;
	uint16_t port;                    /* index */
	const struct port_driver *driver; /* NULL: ethdev and queue */
	void *handle;                     /* of the driver's queue */
};

/* A packet that found another worker in its slot. */
struct retry {
	struct rte_mbuf *mbuf;
	uint64_t since_ns;
};

/* What the MAC table said of a station in a round, so that its other frames of that round need not ask. */
struct station {
	mac_key key;
	uint64_t round; /* 0: none */
	uint16_t port;
	bool learned; /* in this round */
};

struct worker {
	struct pipeline *pipeline;
	unsigned int index;
	uint64_t now_ns; /* of the current round */
	uint32_t now_seconds;
	struct rx_queue rx_queues[PIPELINE_MAX_PORTS * 4];
	uint16_t n_rx_queues;
	unsigned int cluster;
	/*
	 * A slot with (index & own_mask) == own_slot is this worker's, whatever the state of others. Where bits of the index
	 * don't tell, no slot is like that.
	 */
	uint32_t own_mask;
	uint32_t own_slot;
	struct retry retries[WORKER_RETRIES]; /* in order of arrival */
	uint16_t n_retries;
	uint64_t retrying_since_ns; /* of the packet in work; 0: it is not a retry */
	struct tx_buffer tx[PIPELINE_MAX_PORTS];
	uint16_t n_tx_waiting;                    /* of all ports */
	struct rte_mbuf *garbage[WORKER_GARBAGE]; /* to go back to their pool together */
	struct rte_mempool *garbage_pool;
	uint16_t n_garbage;
	struct station stations[1 << WORKER_STATION_BITS]; /* by a hash of the key */
	struct fanin_handler_ctx handler_ctx;
	uint32_t run; /* epoch of the run that handler_ctx is for; 0: none */
	struct faults faults;
	uint32_t icmp_seconds; /* when the last ICMP error was sent, and how many in that second */
	uint32_t icmp_sent;
	struct counters counters;
} __rte_cache_aligned;

/* tx.c: gives the garbage back to its pool. */
void worker_free_garbage(struct worker *worker);

/* Gives up one reference of an mbuf. The last one of a single segment waits for others of its kind. */
static inline void
worker_free(struct worker *worker, struct rte_mbuf *mbuf)
{
	if (unlikely(rte_mbuf_refcnt_read(mbuf) != 1 || mbuf->nb_segs != 1 || !RTE_MBUF_DIRECT(mbuf))) {
		rte_pktmbuf_free(mbuf);
		return;
	}
	/* Ports may have pools of their own. */
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

/* Is it an address that a host of the switch's own subnet can have? */
static inline bool
is_host_address(const struct pipeline *pipeline, uint32_t ip_be)
{
	const uint32_t mask_be = pipeline->subnet_mask_be;
	const uint32_t host_be = ip_be & ~mask_be;

	if (mask_be == 0 || ((ip_be ^ pipeline->ip_be) & mask_be) != 0 || ip_be == pipeline->ip_be)
		return false;
	/* The network itself and broadcast, which subnets of one or two addresses have none of (RFC 3021). */
	return pipeline->few_hosts || (host_be != 0 && host_be != ~mask_be);
}

/* Why a packet ends here: counts and frees. */
static inline void
worker_drop(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason)
{
	worker->counters.drops[reason]++;
	rte_pktmbuf_free(mbuf);
}

/* Before a burst's handlers run: how many packets the worker has, or could have, taken (Flare's Q). */
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

/* rx.c: sorts a burst into foreign, local and Fanin packets and passes each on. */
void worker_classify(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

/* schedule.c: a valid Fanin packet that is not a member's contribution as its job expects it, or one that was held back. */
void worker_fanin(struct worker *worker, struct rte_mbuf *mbuf);

/* schedule.c: a contribution to the job; to the block's cluster. Returns false if that is this worker's to process, now. */
bool worker_dispatch(struct worker *worker, struct job *job, struct rte_mbuf *mbuf);

/* aggregate.c: contributions that are for this worker, up to a burst. */
void worker_aggregate(struct worker *worker, struct rte_mbuf **mbufs, uint16_t n);

/*
 * aggregate.c: sends a frame to the job's multicast group to children (a bitmap), of which the caller holds one reference for
 * each. It leaves once at each of their ports: what is behind a port hands it to all of the group there.
 */
void worker_send_to_children(struct worker *worker, const struct job *job, uint64_t children,
			     struct rte_mbuf *mbuf);

/* forward.c: a foreign frame: learn, look up, send or flood. */
void worker_forward(struct worker *worker, struct rte_mbuf *mbuf);

/* forward.c: a frame of a station, which mac_key_is_invalid does not rule out, came in on a port (index) that is not routed. */
void worker_learn(struct worker *worker, mac_key station, uint16_t port);

/* forward.c: the port (index) of a station, or -ENOENT. */
int worker_station_port(struct worker *worker, mac_key station);

/* forward.c: sends a frame to all ports that are not routed but the one it came from (index; WORKER_NO_PORT: none). */
void worker_flood(struct worker *worker, struct rte_mbuf *mbuf, uint16_t ingress, bool tagged);

/* arp.c: an ARP message: learns from it, and answers. Returns false if it is not for the switch (the mbuf stays the caller's). */
bool worker_local_arp(struct worker *worker, struct rte_mbuf *mbuf);

/* arp.c: asks for a neighbor's MAC address. */
void worker_ask(struct worker *worker, neighbor_key neighbor);

/* arp.c: asks a station on a port (index) whether it still has its address. */
void worker_ask_station(struct worker *worker, uint32_t ip_be, const uint8_t mac[6], uint16_t port);

/* arp.c: asks for those whose turn it is by neighbor_housekeep. */
void worker_ask_due(struct worker *worker);

/* local.c: an IPv4 packet to the switch's own address that is not Fanin's: answers an ICMP echo, takes answers to probes. */
void worker_local_ip(struct worker *worker, struct rte_mbuf *mbuf);

/* route.c: an IPv4 packet to the switch's MAC but not to its address. At least Ethernet and IPv4 header are there. */
void worker_route(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * icmp.c: a routed packet that ends here: counts it, and tells its sender by an ICMP message (RFC 792) where that is allowed,
 * within WORKER_ICMP_RATE. The packet's headers have been found valid.
 *
 * mtu: of the next hop, for "fragmentation needed" (RFC 1191); else 0.
 */
void worker_unreachable(struct worker *worker, struct rte_mbuf *mbuf, enum fanin_reason reason,
			uint8_t type, uint8_t code, uint16_t mtu);

/* membership.c: a JOIN or LEAVE. */
void worker_membership(struct worker *worker, struct rte_mbuf *mbuf);

/* parent.c: this switch joins the job at its parent, or says it again. */
void worker_ask_parent(struct worker *worker, struct job *job);

/*
 * parent.c: tells children (a bitmap) that the job has no run: others of its ranks were in one and join again, and these may
 * have nothing to send by which they would notice.
 */
void worker_call_children(struct worker *worker, const struct job *job, uint64_t children);

/* parent.c: this switch leaves the parent's run of the job. */
void worker_leave_parent(struct worker *worker, const struct job *job, uint32_t epoch);

/*
 * parent.c: is an IPv4 frame to a group address what the parent of a job on this switch sends to all its children? Then it
 * is a valid Fanin packet. mbuf: at least FANIN_L4_LEN bytes.
 */
bool worker_is_result(const struct worker *worker, const struct rte_mbuf *mbuf);

/* parent.c: a valid Fanin packet of a type that parents send. */
void worker_from_parent(struct worker *worker, struct rte_mbuf *mbuf);

/*
 * parent.c: finds the job of a RESULT and checks that its parent sent it in the current run.
 *
 * Returns FANIN_REASON_NONE and sets *job, or the reason.
 */
enum fanin_reason worker_find_result(const struct worker *worker, const struct rte_mbuf *mbuf,
				     struct job **job);

/*
 * membership.c: finds the job of a packet and checks that it comes from the member that it claims.
 * Returns FANIN_REASON_NONE and sets *job, or the reason; *job is set if the job exists.
 */
enum fanin_reason worker_member_check(const struct pipeline *pipeline, const struct rte_mbuf *mbuf,
				      struct job **job);

/*
 * reply.c: turns a Fanin packet around to its sender with payload_len bytes behind the Fanin
 * header, which the caller has written, and sends it.
 *
 * job: the sender's, by whose tags the answer is told from others'; NULL: the sender is no member, and gets none. dst_port_be:
 * UDP port there.
 */
void worker_reply(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
		  uint32_t payload_len, uint16_t dst_port_be);

/*
 * reply.c: makes a REFUSED of a packet and returns it to its sender.
 *
 * job: the sender's, which the member check has found to be one; NULL: it has not, and gets back the key that it gave.
 */
void worker_refuse(struct worker *worker, struct rte_mbuf *mbuf, const struct job *job,
		   enum fanin_reason reason);

/* tx.c: sends what is queued for a port (index). */
void worker_flush_port(struct worker *worker, uint16_t port);

/* Queues one reference of an mbuf for a port (index); flushes when the buffer is full. */
static inline void
worker_send(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	struct tx_buffer *buffer = &worker->tx[port];

	buffer->bytes += mbuf->pkt_len;
	buffer->mbufs[buffer->n++] = mbuf;
	if (unlikely(buffer->n == buffer->full))
		worker_flush_port(worker, port);
}

/* tx.c: the same through the fault injector. */
void worker_send_faulty(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf);

/* The same for Fanin packets. */
static inline void
worker_send_fanin(struct worker *worker, uint16_t port, struct rte_mbuf *mbuf)
{
	if (likely(!worker->faults.enabled))
		worker_send(worker, port, mbuf);
	else
		worker_send_faulty(worker, port, mbuf);
}

/* schedule.c: packets of the worker's cluster, up to a burst. Returns how many there were. */
uint16_t worker_poll_cluster(struct worker *worker);

/* schedule.c: tries the packets again that found another worker in the way. */
void worker_retry(struct worker *worker);

/* tx.c: frees what waits for devices to take it, as the worker ends. */
void worker_release_unsent(struct worker *worker);

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
