/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The MAC addresses of IPv4 neighbors, learned by ARP (RFC 826): hosts of the switch's own subnet,
 * wherever in the switched network they are, and next hops on routed ports. Workers look up, add
 * and confirm without locks. The main thread ages entries and decides which addresses are asked for
 * again. Built on rte_hash with RCU reclamation, as mac_table.h is.
 */
#ifndef FANIN_PIPELINE_NET_NEIGHBOR_H
#define FANIN_PIPELINE_NET_NEIGHBOR_H

#include <stdbool.h>
#include <stdint.h>

#include <rte_rcu_qsbr.h>
#include <rte_ring.h>

#include "pipeline/net/mac_table.h"

/* Seconds after which a host that has not been heard is asked again, once a second. */
#define NEIGHBOR_REFRESH_HOST 30
/* Seconds without an answer after which a host is forgotten. Next hops are probed: next_hops.h. */
#define NEIGHBOR_PATIENCE 3

/* The place of a neighbor: the ports that are not routed, or the routed port of an index. */
#define NEIGHBOR_HOSTS 0u
#define NEIGHBOR_ON_PORT(port) ((uint32_t)(port) + 1)

/* IPv4 address in network order in the upper 32 bits, where it is in the lower. */
typedef uint64_t neighbor_key;

struct neighbor {
	/*
	 * MAC address as in a mac_key; below it the last two bytes of the IPv4 address that it is
	 * of. 0: unknown.
	 */
	uint64_t mac_and_ip;    // workers: rw, main: rw
	uint32_t seen_seconds;  // workers: w, main: r
	uint32_t asked_seconds; // workers: rw, main: r
	bool next_hop;          // stays for good; constant once workers run
	bool dead;              // a next hop: only an answer brings it back. main: w, workers: r
	/* Of a next hop, for next_hops.h. */
	uint64_t answered_ns; // workers: w, main: r: the round of the last answer
	uint64_t leaves_ns;   // workers: w, main: r: when the last request leaves, or has left
	uint64_t requests;    // workers: rw, main: r: counted once leaves_ns is set
};

struct neighbor_table {
	struct rte_hash *hash;
	struct neighbor *neighbors; /* by position */
	struct rte_ring *asks;      /* keys that workers have to ask for; main: w, workers: r */
};

static inline neighbor_key
neighbor_key_make(uint32_t ip_be, uint32_t where)
{
	return (uint64_t)ip_be << 32 | where;
}

static inline uint32_t
neighbor_key_ip_be(neighbor_key key)
{
	return (uint32_t)(key >> 32);
}

static inline uint32_t
neighbor_key_where(neighbor_key key)
{
	return (uint32_t)key;
}

/*
 * entries: neighbors that it has room for at least. qsbr: that of the workers; borrowed. Returns
 * NULL without memory.
 */
struct neighbor_table *neighbor_table_create(uint32_t entries, struct rte_rcu_qsbr *qsbr);

/* May be NULL. */
void neighbor_table_free(struct neighbor_table *table);

/*
 * Adds a next hop, which stays as long as the table, and is asked for at once. Before the workers
 * start. Returns its position, also if it is there already, or -ENOSPC.
 */
int32_t neighbor_add_next_hop(struct neighbor_table *table, neighbor_key key);

/*
 * Returns the position of a neighbor, or -ENOENT. Any worker; valid until its next quiescent state,
 * for a next hop always.
 */
int32_t neighbor_find(const struct neighbor_table *table, neighbor_key key);

/*
 * Like neighbor_find, but adds a neighbor that is not in the table, with an unknown MAC address.
 * Returns -ENOSPC if the table is full.
 */
int32_t neighbor_find_or_add(struct neighbor_table *table, neighbor_key key);

/*
 * Notes that a neighbor was heard.
 *
 * mac: a station's, VLAN 0. Any worker.
 */
void neighbor_confirm(struct neighbor_table *table, int32_t position, uint32_t ip_be, mac_key mac,
		      uint32_t now_seconds);

/* Notes that a worker sends a request to a next hop, which leaves at this time. Any worker. */
void neighbor_note_request(struct neighbor_table *table, int32_t position, uint64_t leaves_ns);

/* Notes that a next hop has answered, in the round that began at this time. Any worker. */
void neighbor_note_answer(struct neighbor_table *table, int32_t position, uint64_t now_ns);

/*
 * Marks a next hop as dead: its MAC address is not used until an answer confirms it. Main thread.
 */
void neighbor_set_dead(struct neighbor_table *table, int32_t position, bool dead);

/* Returns true if the neighbor is a next hop that has been found dead. Any worker. */
static inline bool
neighbor_is_dead(const struct neighbor_table *table, int32_t position)
{
	return __atomic_load_n(&table->neighbors[position].dead, __ATOMIC_RELAXED);
}

/*
 * Has a worker ask for a neighbor in the table, or announce the own address, soon and at most once
 * a second. Main thread.
 */
void neighbor_want(struct neighbor_table *table, neighbor_key key);

/* Returns true to one worker per second, which then asks for the neighbor's MAC address. */
bool neighbor_may_ask(struct neighbor_table *table, int32_t position, uint32_t now_seconds);

/*
 * Forgets hosts that don't answer, and has workers ask for hosts whose turn it is and for next hops
 * that are not known. About once a second; more often does no harm. Main thread.
 */
void neighbor_housekeep(struct neighbor_table *table, uint32_t now_seconds);

/* A neighbor, as neighbor_each reports it. */
struct neighbor_info {
	neighbor_key key;
	mac_key mac; /* 0: unknown */
	uint32_t seen_seconds;
	bool next_hop;
};

/* Calls visit for each neighbor. Main thread. */
void neighbor_each(const struct neighbor_table *table,
		   void (*visit)(void *user, const struct neighbor_info *info), void *user);

/* Returns the neighbor's MAC address with VLAN 0, or 0 if it is unknown. Any thread. */
static inline mac_key
neighbor_mac(const struct neighbor_table *table, int32_t position, uint32_t ip_be)
{
	uint64_t word = __atomic_load_n(&table->neighbors[position].mac_and_ip, __ATOMIC_RELAXED);

	/* The position may be new to this address, and still hold what was known of another one. */
	if (unlikely((uint16_t)word != (uint16_t)(ip_be >> 16)))
		return 0;
	return word & ~(uint64_t)UINT16_MAX;
}

static inline bool
neighbor_asks_are_due(const struct neighbor_table *table)
{
	return !rte_ring_empty(table->asks);
}

#endif
