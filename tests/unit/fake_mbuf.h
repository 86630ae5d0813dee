/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Mbufs in plain memory, for tests of handlers without an EAL. fake_put replaces rte_pktmbuf_free,
 * which must not be called on them: they have no mempool.
 */
#ifndef FANIN_TESTS_UNIT_FAKE_MBUF_H
#define FANIN_TESTS_UNIT_FAKE_MBUF_H

#include <assert.h>
#include <stdint.h>
#include <stdlib.h>
#include <string.h>

#include <rte_mbuf.h>

#include "wire/wire.h"

#define FAKE_PAYLOAD_MAX 1408
/* Puts the payload on a 64-byte boundary. */
#define FAKE_HEADROOM 32

struct fake_mbuf {
	struct rte_mbuf mbuf;
	uint8_t room[FAKE_HEADROOM + FANIN_PAYLOAD_OFFSET + FAKE_PAYLOAD_MAX] __rte_aligned(64);
};

struct fake_pool {
	struct fake_mbuf *mbufs;
	struct rte_mbuf **unused; /* a stack */
	unsigned int n_unused;
	unsigned int size;
};

static inline void
fake_pool_init(struct fake_pool *pool, unsigned int size)
{
	pool->mbufs = aligned_alloc(64, size * sizeof(*pool->mbufs));
	pool->unused = calloc(size, sizeof(*pool->unused));
	assert(pool->mbufs != NULL && pool->unused != NULL);
	memset(pool->mbufs, 0, size * sizeof(*pool->mbufs));
	pool->size = size;
	pool->n_unused = 0;
	for (unsigned int i = 0; i < size; i++)
		pool->unused[pool->n_unused++] = &pool->mbufs[i].mbuf;
}

static inline void
fake_pool_fini(struct fake_pool *pool)
{
	free(pool->unused);
	free(pool->mbufs);
}

static inline unsigned int
fake_pool_in_use(const struct fake_pool *pool)
{
	return pool->size - pool->n_unused;
}

/*
 * Returns an mbuf with one reference whose frame has payload_len bytes after the headers, with
 * undefined content.
 */
static inline struct rte_mbuf *
fake_get(struct fake_pool *pool, uint32_t payload_len)
{
	struct rte_mbuf *mbuf;

	assert(pool->n_unused > 0 && payload_len <= FAKE_PAYLOAD_MAX);
	mbuf = pool->unused[--pool->n_unused];
	mbuf->buf_addr = container_of(mbuf, struct fake_mbuf, mbuf)->room;
	mbuf->buf_len = sizeof(pool->mbufs->room);
	mbuf->data_off = FAKE_HEADROOM;
	mbuf->nb_segs = 1;
	mbuf->pool = NULL;
	mbuf->next = NULL;
	mbuf->data_len = (uint16_t)(FANIN_PAYLOAD_OFFSET + payload_len);
	mbuf->pkt_len = mbuf->data_len;
	rte_mbuf_refcnt_set(mbuf, 1);
	memset(mbuf->buf_addr, 0xa5, mbuf->buf_len);
	return mbuf;
}

/*
 * Gives up one reference. The last one returns the mbuf, with its content spoilt, so that late
 * readers are noticed.
 */
static inline void
fake_put(struct fake_pool *pool, struct rte_mbuf *mbuf)
{
	assert(rte_mbuf_refcnt_read(mbuf) > 0);
	if (rte_mbuf_refcnt_update(mbuf, -1) != 0)
		return;
	memset(mbuf->buf_addr, 0x5a, mbuf->buf_len);
	assert(pool->n_unused < pool->size);
	pool->unused[pool->n_unused++] = mbuf;
}

#endif
