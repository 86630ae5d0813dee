/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The learning switch's table (IEEE 802.1Q section 8.8): which port a station of a VLAN was last
 * seen on. Workers look up and learn without locks for stations that are known; the main thread
 * ages. Built on rte_hash with RCU reclamation.
 */
#ifndef FANIN_PIPELINE_NET_MAC_TABLE_H
#define FANIN_PIPELINE_NET_MAC_TABLE_H

#include <stdbool.h>
#include <stdint.h>
#include <string.h>

#include <rte_byteorder.h>
#include <rte_rcu_qsbr.h>

struct mac_table;

/* MAC address in the upper 48 bits as it is on the wire, VLAN id (0: untagged) in the lower 16. */
typedef uint64_t mac_key;

static inline mac_key
mac_key_make(const uint8_t mac[6], uint16_t vlan)
{
	rte_be32_t high;
	rte_be16_t low;

	memcpy(&high, mac, sizeof(high));
	memcpy(&low, mac + sizeof(high), sizeof(low));
	return (uint64_t)rte_be_to_cpu_32(high) << 32 | (uint64_t)rte_be_to_cpu_16(low) << 16 | vlan;
}

/* The MAC address of a key. */
static inline void
mac_key_get(mac_key key, uint8_t mac[6])
{
	const rte_be64_t wire = rte_cpu_to_be_64(key);

	memcpy(mac, &wire, 6);
}

/* No station's: a group address, or zero. */
static inline bool
mac_key_is_invalid(mac_key key)
{
	return (key >> 56 & 1) != 0 || key >> 16 == 0;
}

/*
 * qsbr: that of the workers; borrowed. Returns NULL without memory.
 */
struct mac_table *mac_table_create(uint32_t entries, struct rte_rcu_qsbr *qsbr);

void mac_table_free(struct mac_table *table);

/*
 * Notes that a station was seen on a port at a time. Any worker.
 * Returns 0, or -ENOSPC if the table is full (the station stays unknown and its frames are flooded).
 */
int mac_table_learn(struct mac_table *table, mac_key key, uint16_t port, uint32_t now_seconds);

/* The port of a station, or -ENOENT. Any worker. */
int mac_table_lookup(const struct mac_table *table, mac_key key);

/* Removes stations not seen for age_seconds. Main thread. Returns how many. */
unsigned int mac_table_age(struct mac_table *table, uint32_t now_seconds, uint32_t age_seconds);

/* Number of stations. Main thread. */
unsigned int mac_table_count(const struct mac_table *table);

/*
 * Calls visit for each station. Main thread.
 */
void mac_table_each(const struct mac_table *table,
		    void (*visit)(void *user, mac_key key, uint16_t port, uint32_t seen_seconds),
		    void *user);

#endif
