/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See mac_table.h. rte_hash maps a key to a position; port and time of the last frame are in an
 * array, which workers write with relaxed stores: the last store wins.
 */
#include <errno.h>
#include <stdio.h>

#include <rte_hash.h>
#include <rte_hash_crc.h>
#include <rte_malloc.h>

#include "pipeline/net/mac_table.h"

struct mac_entry {
	uint32_t port;
	uint32_t seen_seconds;
};

struct mac_table {
	struct rte_hash *hash;
	struct mac_entry *entries; /* by position */
};

struct mac_table *
mac_table_create(uint32_t entries, struct rte_rcu_qsbr *qsbr)
{
	static unsigned int instances;
	char name[RTE_HASH_NAMESIZE];
	struct rte_hash_parameters parameters = {
		.name = name,
		.entries = entries,
		.key_len = sizeof(mac_key),
		.hash_func = rte_hash_crc,
		.socket_id = SOCKET_ID_ANY,
		.extra_flag = RTE_HASH_EXTRA_FLAGS_RW_CONCURRENCY_LF |
			      RTE_HASH_EXTRA_FLAGS_MULTI_WRITER_ADD,
	};
	struct rte_hash_rcu_config rcu = { .v = qsbr, .mode = RTE_HASH_QSBR_MODE_DQ };
	struct mac_table *table = rte_zmalloc("mac_table", sizeof(*table), 0);

	if (table == NULL)
		return NULL;
	snprintf(name, sizeof(name), "mac_table_%u", instances++);
	table->hash = rte_hash_create(&parameters);
	if (table->hash == NULL)
		goto free_table;
	if (rte_hash_rcu_qsbr_add(table->hash, &rcu) != 0)
		goto free_hash;
	table->entries = rte_zmalloc("mac_entries",
				     ((size_t)rte_hash_max_key_id(table->hash) + 1) *
					     sizeof(*table->entries),
				     RTE_CACHE_LINE_SIZE);
	if (table->entries == NULL)
		goto free_hash;
	return table;

free_hash:
	rte_hash_free(table->hash);
free_table:
	rte_free(table);
	return NULL;
}

void
mac_table_free(struct mac_table *table)
{
	if (table == NULL)
		return;
	rte_hash_free(table->hash);
	rte_free(table->entries);
	rte_free(table);
}

int
mac_table_learn(struct mac_table *table, mac_key key, uint16_t port, uint32_t now_seconds)
{
	int32_t position = rte_hash_lookup(table->hash, &key);
	struct mac_entry *entry;

	if (position < 0)
		position = rte_hash_add_key(table->hash, &key);
	if (position < 0)
		return -ENOSPC;
	entry = &table->entries[position];
	/*
	 * The time of a busy station is written once a second only, so readers keep the line in
	 * their caches.
	 */
	if (__atomic_load_n(&entry->port, __ATOMIC_RELAXED) != port)
		__atomic_store_n(&entry->port, port, __ATOMIC_RELAXED);
	if (__atomic_load_n(&entry->seen_seconds, __ATOMIC_RELAXED) != now_seconds)
		__atomic_store_n(&entry->seen_seconds, now_seconds, __ATOMIC_RELAXED);
	return 0;
}

int
mac_table_lookup(const struct mac_table *table, mac_key key)
{
	int32_t position = rte_hash_lookup(table->hash, &key);

	if (position < 0)
		return -ENOENT;
	return (int)__atomic_load_n(&table->entries[position].port, __ATOMIC_RELAXED);
}

unsigned int
mac_table_age(struct mac_table *table, uint32_t now_seconds, uint32_t age_seconds)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	unsigned int removed = 0;
	int32_t position;

	while ((position = rte_hash_iterate(table->hash, &key, &data, &next)) >= 0) {
		uint32_t seen = __atomic_load_n(&table->entries[position].seen_seconds,
						__ATOMIC_RELAXED);

		if ((int32_t)(now_seconds - seen) < (int32_t)age_seconds)
			continue;
		if (rte_hash_del_key(table->hash, key) >= 0)
			removed++;
	}
	return removed;
}

unsigned int
mac_table_count(const struct mac_table *table)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	unsigned int count = 0;

	/* rte_hash_count would count removed stations until every worker has been quiescent. */
	while (rte_hash_iterate(table->hash, &key, &data, &next) >= 0)
		count++;
	return count;
}

void
mac_table_each(const struct mac_table *table,
	       void (*visit)(void *user, mac_key key, uint16_t port, uint32_t seen_seconds),
	       void *user)
{
	const void *key;
	void *data;
	uint32_t next = 0;
	int32_t position;

	while ((position = rte_hash_iterate(table->hash, &key, &data, &next)) >= 0) {
		const struct mac_entry *entry = &table->entries[position];

		visit(user, *(const mac_key *)key,
		      (uint16_t)__atomic_load_n(&entry->port, __ATOMIC_RELAXED),
		      __atomic_load_n(&entry->seen_seconds, __ATOMIC_RELAXED));
	}
}
