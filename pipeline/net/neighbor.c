/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See neighbor.h. rte_hash maps a key to a position in an array of neighbors, which is written with
 * relaxed stores.
 */
#include <errno.h>
#include <stdio.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>
#include <rte_ring_elem.h>

#include "pipeline/net/neighbor.h"

/* Requests that wait for workers; those that find no room are made a second later. */
#define ASKS 1024

struct neighbor_table *
neighbor_table_create(uint32_t entries, struct rte_rcu_qsbr *qsbr)
{
	static unsigned int instances;
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = entries,
		.key_len = sizeof(neighbor_key),
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF |
			      RTE_HASH_EXTRA_FLAGS_MULTI_WRITER_ADD,
	};
	struct rte_hash_rcu_config rcu = { .v = qsbr, .mode = RTE_HASH_QSBR_MODE_DQ };
	struct neighbor_table *table = rte_zmalloc("neighbor_table", sizeof(*table), 0);

	if (table == NULL)
		return NULL;
	snprintf(name, sizeof(name), "neighbors_%u", instances++);
	table->hash = rte_hash_create(&parameters);
	if (table->hash == NULL)
		goto free_table;
	if (rte_hash_rcu_qsbr_add(table->hash, &rcu) != 0)
		goto free_table;
	table->neighbors = rte_zmalloc("neighbors",
				       ((size_t)rte_hash_max_key_id(table->hash) + 1) *
					       sizeof(*table->neighbors),
				       RTE_CACHE_LINE_SIZE);
	if (table->neighbors == NULL)
		goto free_table;
	table->asks = rte_ring_create_elem(name, sizeof(neighbor_key), ASKS, SOCKET_ID_ANY,
					   RING_F_SP_ENQ | RING_F_MC_RTS_DEQ);
	if (table->asks == NULL)
		goto free_table;
	return table;

free_table:
	neighbor_table_free(table);
	return NULL;
}

void
neighbor_table_free(struct neighbor_table *table)
{
	if (table == NULL)
		return;
	rte_ring_free(table->asks);
	rte_free(table->neighbors);
	rte_hash_free(table->hash);
	rte_free(table);
}

int32_t
neighbor_add_next_hop(struct neighbor_table *table, neighbor_key key)
{
	int32_t position = rte_hash_add_key(table->hash, &key);

	if (position < 0)
		return -ENOSPC;
	if (!table->neighbors[position].next_hop)
		rte_ring_enqueue_elem(table->asks, &key, sizeof(key));
	table->neighbors[position].next_hop = true;
	return position;
}

int32_t
neighbor_find(const struct neighbor_table *table, neighbor_key key)
{
	int32_t position = rte_hash_lookup(table->hash, &key);

	return position < 0 ? -ENOENT : position;
}

int32_t
neighbor_find_or_add(struct neighbor_table *table, neighbor_key key)
{
	int32_t position = rte_hash_lookup(table->hash, &key);

	if (position < 0)
		position = rte_hash_add_key(table->hash, &key);
	return position < 0 ? -ENOSPC : position;
}

void
neighbor_confirm(struct neighbor_table *table, int32_t position, uint32_t ip_be, mac_key mac,
		 uint32_t now_seconds)
{
	struct neighbor *neighbor = &table->neighbors[position];

	__atomic_store_n(&neighbor->seen_seconds, now_seconds, __ATOMIC_RELAXED);
	/* A thread that sees the address sees the time, too. */
	__atomic_store_n(&neighbor->mac_and_ip, mac | (uint16_t)(ip_be >> 16), __ATOMIC_RELEASE);
}

void
neighbor_note_request(struct neighbor_table *table, int32_t position, uint64_t leaves_ns)
{
	struct neighbor *neighbor = &table->neighbors[position];

	__atomic_store_n(&neighbor->leaves_ns, leaves_ns, __ATOMIC_RELAXED);
	__atomic_fetch_add(&neighbor->requests, 1, __ATOMIC_RELEASE);
}

void
neighbor_note_answer(struct neighbor_table *table, int32_t position, uint64_t now_ns)
{
	__atomic_store_n(&table->neighbors[position].answered_ns, now_ns, __ATOMIC_RELAXED);
}

void
neighbor_set_dead(struct neighbor_table *table, int32_t position, bool dead)
{
	struct neighbor *neighbor = &table->neighbors[position];

	__atomic_store_n(&neighbor->dead, dead, __ATOMIC_RELAXED);
	if (dead)
		__atomic_store_n(&neighbor->mac_and_ip, 0, __ATOMIC_RELAXED);
}

bool
neighbor_may_ask(struct neighbor_table *table, int32_t position, uint32_t now_seconds)
{
	struct neighbor *neighbor = &table->neighbors[position];
	uint32_t asked = __atomic_load_n(&neighbor->asked_seconds, __ATOMIC_RELAXED);

	return asked != now_seconds &&
	       __atomic_compare_exchange_n(&neighbor->asked_seconds, &asked, now_seconds, false,
					   __ATOMIC_RELAXED, __ATOMIC_RELAXED);
}

void
neighbor_want(struct neighbor_table *table, neighbor_key key)
{
	/* No room: the caller retries. */
	rte_ring_enqueue_elem(table->asks, &key, sizeof(key));
}

/* Removes a host that is gone, or that never answered. */
static void
forget(struct neighbor_table *table, const void *key, struct neighbor *neighbor)
{
	__atomic_store_n(&neighbor->mac_and_ip, 0, __ATOMIC_RELAXED);
	rte_hash_del_key(table->hash, key);
}

/* One neighbor's part of neighbor_housekeep. Returns true if it has to be asked for. */
static bool
look_after(struct neighbor_table *table, const void *key, struct neighbor *neighbor,
	   uint32_t now_seconds)
{
	uint64_t word = __atomic_load_n(&neighbor->mac_and_ip, __ATOMIC_ACQUIRE);
	uint32_t seen = __atomic_load_n(&neighbor->seen_seconds, __ATOMIC_RELAXED);
	uint32_t asked = __atomic_load_n(&neighbor->asked_seconds, __ATOMIC_RELAXED);
	/* Workers' clocks may be a little ahead. */
	int32_t silent = (int32_t)(now_seconds - seen);

	if (neighbor->next_hop)
		return word == 0;
	if (word == 0) {
		if ((int32_t)(now_seconds - asked) > NEIGHBOR_PATIENCE)
			forget(table, key, neighbor);
		return false; /* the next packet to it triggers a request */
	}
	if (silent > NEIGHBOR_REFRESH_HOST + NEIGHBOR_PATIENCE) {
		forget(table, key, neighbor);
		return false;
	}
	return silent >= NEIGHBOR_REFRESH_HOST;
}

void
neighbor_housekeep(struct neighbor_table *table, uint32_t now_seconds)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	int32_t position;

	while ((position = rte_hash_iterate(table->hash, &key, &data, &next)) >= 0) {
		struct neighbor *neighbor = &table->neighbors[position];
		/* A copy: what is forgotten may be overwritten. */
		neighbor_key copy = *(const neighbor_key *)key;

		if (look_after(table, &copy, neighbor, now_seconds) &&
		    __atomic_load_n(&neighbor->asked_seconds, __ATOMIC_RELAXED) != now_seconds)
			rte_ring_enqueue_elem(table->asks, &copy, sizeof(copy));
	}
}

void
neighbor_each(const struct neighbor_table *table,
	      void (*visit)(void *user, const struct neighbor_info *info), void *user)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	int32_t position;

	while ((position = rte_hash_iterate(table->hash, &key, &data, &next)) >= 0) {
		const struct neighbor *neighbor = &table->neighbors[position];
		struct neighbor_info info = {
			.key = *(const neighbor_key *)key,
			.next_hop = neighbor->next_hop,
		};

		info.mac = neighbor_mac(table, position, neighbor_key_ip_be(info.key));
		info.seen_seconds = __atomic_load_n(&neighbor->seen_seconds, __ATOMIC_RELAXED);
		visit(user, &info);
	}
}
