/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The state of a pipeline: the data that its workers read, its ports and its tables, and which
 * thread accesses each. pipeline/pipeline.h has its creation and the functions for the daemon.
 */
#ifndef FANIN_PIPELINE_STATE_H
#define FANIN_PIPELINE_STATE_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include <rte_mempool.h>
#include <rte_rcu_qsbr.h>
#include <rte_spinlock.h>

#include "handlers/kernels/kernels.h"
#include "pipeline/base/counters.h"
#include "pipeline/base/port_driver.h"

#define PIPELINE_NAME_LEN 32
#define PIPELINE_MAX_WORKERS 16

struct job_table;
struct mac_table;
struct neighbor_table;
struct next_hops;
struct route_table;
struct worker;

/*
 * Frames that a worker keeps because devices did not take them, over all ports without limits of
 * their own (egress.h). Pools have that many more mbufs.
 */
#define PIPELINE_TX_WAITING 512u

/*
 * A frame's payload is 64-byte aligned if its start is 32 modulo 64: the private area shifts the
 * data by this much.
 */
#define PIPELINE_MBUF_PRIV_SIZE 32

enum pipeline_idle {
	PIPELINE_IDLE_YIELD, /* give the core away after empty polls */
	PIPELINE_IDLE_SPIN,  /* never */
	PIPELINE_IDLE_SLEEP, /* yield, and sleep after many more empty polls */
};

/* Limits of a port's egress queue (egress.h). 0: the default. */
struct pipeline_egress {
	uint32_t rate_mbit;    /* of the frames' bytes, Mbit/s; 0: as fast as the device */
	uint32_t bucket_bytes; /* bytes that may leave at once after a pause, above the rate */
	uint32_t queue_bytes;  /* bytes that may wait; frames beyond them are dropped */
	uint32_t ecn_bytes;    /* waiting bytes from which on frames are marked; 0: none are */
	uint32_t detour_bytes; /* waiting bytes from which on packets that may choose their route
				  take another one */
};

/* A port's egress, of all workers. */
struct egress {
	struct pipeline_egress options;
	uint16_t frames;     /* that may wait */
	uint16_t own_frames; /* `frames` if the room is this port's own; 0: it is shared with other
				ports */
	rte_spinlock_t lock; /* of the bucket, and of the device's queue, where workers share the
				port */
	uint64_t credit_ns;  /* when the bucket was filled last */
	int64_t credit;      /* what is in it, thousandths of bits; negative: owed */
} __rte_cache_aligned;

struct pipeline_port {
	char name[PIPELINE_NAME_LEN];
	uint16_t ethdev; /* DPDK's port id, configured and started; with a driver its number, from
			    PORT_DRIVER_FIRST on */
	const struct port_driver *driver; /* NULL: the port is a DPDK device */
	void *handle;                     /* the driver's */
	unsigned int ifindex; /* of the kernel interface that it was opened on; 0: none. control: rw
			       */
	uint16_t mtu;         /* bytes */
	uint16_t n_queues;    /* rx queues; as many tx queues */
	bool shared; /* its host shares memory with the switch: the way there has no length */
	bool udp_checksums; /* the device completes those of UDP, and so do all others that may get
			       the same packet */
	struct pipeline_egress egress;
	bool routed;  /* leads to another switch: nothing is learned from it or flooded to it */
	bool no_link; /* of a routed port. control: w, workers: r; relaxed atomic */
	bool down;    /* neither polled nor sent to. control: w, workers: r; relaxed atomic */
};

/*
 * The rule that chooses a block's cluster, the workers that may share the block (Flare section 5).
 */
enum pipeline_policy {
	/* A new block goes to the cluster with the shortest queue, in FCFS order inside. */
	PIPELINE_POLICY_DISPATCH,
	/* Slot modulo workers: a NIC's RSS on the UDP source port brings blocks there unaided. */
	PIPELINE_POLICY_RSS,
};

/*
 * Different timeouts that jobs may have (pipeline/timers.h), and further ones for parts of longer
 * waits.
 */
#define PIPELINE_TIMEOUTS 16
#define PIPELINE_TIMERS (2 * PIPELINE_TIMEOUTS)

struct pipeline_timeout {
	uint64_t ns;         /* 0: not in use */
	unsigned int n_jobs; /* that have it */
};

struct pipeline_faults {
	double drop; /* shares of Fanin packets, each way; 0 to 1 */
	double duplicate;
	double reorder;
	uint64_t seed;
};

/* A clock: monotonic, nanoseconds. user: pipeline_options' clock_user. Any worker. */
typedef uint64_t (*pipeline_clock)(void *user);

struct pipeline {
	pipeline_clock clock; /* NULL: pipeline_now_ns */
	void *clock_user;
	uint32_t ip_be;
	uint32_t subnet_mask_be; /* of the hosts' subnet; 0: there is none */
	bool few_hosts;          /* that is of one or two addresses */
	uint8_t mac[6];
	uint64_t mac_word; /* the MAC address as it is loaded from a frame's first eight bytes, the
			      last two zero */
	uint16_t udp_port_be;
	enum pipeline_idle idle;
	uint32_t idle_empty_polls;
	uint32_t idle_sleep_us;
	uint32_t mac_age_seconds;
	struct pipeline_faults faults;
	struct rte_mempool *pool;
	struct pipeline_port ports[PIPELINE_MAX_PORTS];
	struct egress egress[PIPELINE_MAX_PORTS];                        /* as ports */
	uint16_t port_of_ethdev[PORT_DRIVER_FIRST + PIPELINE_MAX_PORTS]; /* index in ports,
									    UINT16_MAX: none */
	uint16_t n_ports;
	uint16_t n_workers;
	enum pipeline_policy policy;
	uint16_t cluster_size;
	uint16_t n_clusters;
	int nodes[PIPELINE_MAX_WORKERS];             /* NUMA nodes that have workers */
	uint8_t cluster_nodes[PIPELINE_MAX_WORKERS]; /* of a cluster's first worker; index in nodes
						      */
	uint16_t n_nodes;
	uint64_t tree_up_to;
	uint64_t multi2_up_to;
	uint64_t multi4_up_to;
	enum fanin_isa isa;
	bool workers_share_slots; /* several workers may come upon the same slot */
	/* By cluster: packets for its workers; NULL with one worker. */
	struct rte_ring *queues[PIPELINE_MAX_WORKERS];
	struct worker *workers[PIPELINE_MAX_WORKERS];
	unsigned int lcores[PIPELINE_MAX_WORKERS];
	struct job_table *jobs;
	uint64_t instance;        /* random: another start of the switch has another one */
	uint32_t n_authenticated; /* jobs with tags. Control: w, workers: r; relaxed atomic */
	uint32_t n_by_key;        /* jobs that admit by key; likewise */
	uint64_t key_interval_ns; /* between packets that a port may bring to them; 0: none */
	uint64_t key_burst_ns;    /* that these may be early */
	struct mac_table *macs;
	struct neighbor_table *neighbors;
	struct route_table *routes;
	struct next_hops *next_hops; /* main thread */
	struct rte_rcu_qsbr *qsbr;
	void *tx_locks;                                    /* of tx queues that workers share */
	struct pipeline_timeout timeouts[PIPELINE_TIMERS]; /* of jobs' timers. Main thread */
	uint32_t timeouts_end;  /* behind the last one that was ever used. Main: w, workers: r;
				   relaxed atomic */
	uint32_t timers_max;    /* timers of a FIFO that need not expire early */
	uint64_t probes_due_ns; /* when children are to be probed (probe.h); UINT64_MAX: none is.
				   Workers: rw, atomic */
	bool running;
	bool stop; /* control: w, workers: r; relaxed atomic */
};

/* Returns true if routed packets may leave by the port (index). Any thread. */
static inline bool
pipeline_port_has_link(const struct pipeline *pipeline, uint16_t port)
{
	return !__atomic_load_n(&pipeline->ports[port].down, __ATOMIC_ACQUIRE) &&
	       !__atomic_load_n(&pipeline->ports[port].no_link, __ATOMIC_RELAXED);
}

#endif
