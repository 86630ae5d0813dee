/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The learning switch's table (IEEE 802.1Q section 8.8): the port at which a station of a VLAN was
 * last seen. Workers look up and learn without locks for stations that are known; the main thread
 * ages. Built on rte_hash with RCU reclamation.
 */
#ifndef FANIN_PIPELINE_NET_MAC_TABLE_H
#define FANIN_PIPELINE_NET_MAC_TABLE_H

#include <stdint.h>

#include <rte_rcu_qsbr.h>

#include "pipeline/base/mac_key.h"

struct mac_table;

/*
 * qsbr: that of the workers; borrowed. Returns NULL without memory.
 */
struct mac_table *mac_table_create(uint32_t entries, struct rte_rcu_qsbr *qsbr);

void mac_table_free(struct mac_table *table);

/*
 * Notes that a station was seen on a port at a time. Any worker.
 * Returns 0, or -ENOSPC if the table is full (the station stays unknown and its frames are
 * flooded).
 */
int mac_table_learn(struct mac_table *table, mac_key key, uint16_t port, uint32_t now_seconds);

/* Returns the port of a station, or -ENOENT. Any worker. */
int mac_table_lookup(const struct mac_table *table, mac_key key);

/* Removes stations not seen for age_seconds. Returns their number. Main thread. */
unsigned int mac_table_age(struct mac_table *table, uint32_t now_seconds, uint32_t age_seconds);

/* Returns the number of stations. Main thread. */
unsigned int mac_table_count(const struct mac_table *table);

/*
 * Calls visit for each station. Main thread.
 */
void mac_table_each(const struct mac_table *table,
		    void (*visit)(void *user, mac_key key, uint16_t port, uint32_t seen_seconds),
		    void *user);

#endif
