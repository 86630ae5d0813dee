/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fault injection for Fanin packets, each way: seeded shares of them are dropped, sent twice, or
 * held back for a few rounds so that later ones overtake them. Off unless configured. While it is
 * off, it costs one comparison per burst.
 */
#ifndef FANIN_PIPELINE_FAULTS_H
#define FANIN_PIPELINE_FAULTS_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_mbuf.h>

#define FAULTS_HELD 64
#define FAULTS_MAX_DELAY 16 /* rounds of the worker's loop */
#define FAULTS_INGRESS UINT16_MAX
/* Egress: the port that worker_route_fanin chooses. */
#define FAULTS_ROUTE (UINT16_MAX - 1)
#define FAULTS_ROUTE_BY_BACKLOG (UINT16_MAX - 2)

struct pipeline_faults;

struct faults_held {
	struct rte_mbuf *mbuf;
	uint16_t port;   /* egress index, or one of FAULTS_* */
	uint16_t rounds; /* left to wait */
};

struct faults {
	bool enabled;
	uint64_t state; /* of the random number generator */
	uint64_t drop;  /* thresholds on 32 random bits */
	uint64_t duplicate;
	uint64_t reorder;
	struct faults_held held[FAULTS_HELD];
	uint16_t n_held;
};

enum fault {
	FAULT_NONE,
	FAULT_DROP,
	FAULT_DUPLICATE,
	FAULT_REORDER,
};

void faults_init(struct faults *faults, const struct pipeline_faults *options, unsigned int worker);

/* Draws the fate of one packet. */
enum fault faults_draw(struct faults *faults);

/* Holds an mbuf back. Returns false if there is no room; the mbuf then stays the caller's. */
bool faults_hold(struct faults *faults, struct rte_mbuf *mbuf, uint16_t port);

/*
 * Moves an mbuf that is due out of the injector. After each round of the loop, the caller calls
 * this until it returns false, with `first` on the round's first call.
 */
bool faults_due(struct faults *faults, bool first, struct rte_mbuf **mbuf, uint16_t *port);

#endif
