/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * One slot of one job under exact control, for tests of handlers: the test acts as the pipeline.
 * Packets are those of fake_mbuf.h.
 */
#ifndef FANIN_TESTS_UNIT_HANDLER_RIG_H
#define FANIN_TESTS_UNIT_HANDLER_RIG_H

#include "handlers/handler.h"
#include "tests/unit/fake_mbuf.h"

struct handler_rig {
	const struct fanin_handler *handler;
	struct fanin_job_params job;
	struct fanin_handler_ctx ctx;
	struct fanin_handler_stats stats;
	struct fake_pool pool;
	void *slot;
	uint32_t index; /* of the slot */
};

/* The shape of a contribution. */
struct shape {
	unsigned int dtype;
	unsigned int op;
	uint16_t count; /* elements */
};

/* `op` of a shape: a copy of this rank's data. */
#define COPY_OF(root) (FANIN_WIRE_COPY | (unsigned int)(root) << 8)

/* `op` of a shape: this operator, with an owner. */
#define OWNED_BY(op, owner) ((unsigned int)(op) | (unsigned int)fanin_root_of_owner(owner) << 8)

/* The handler's answer to a contribution. */
struct answer {
	enum fanin_verdict verdict;
	enum fanin_reason reason;
	struct rte_mbuf *mbuf; /* of the contribution */
};

/*
 * Makes a rig with an empty slot, or aborts the test.
 *
 * job: its children, instruction set and order are filled in. index: of the slot. Epoch: 1.
 */
void handler_rig_start(struct handler_rig *rig, const char *handler,
		       const struct fanin_job_params *job, uint32_t index);

/*
 * Sets how many empty mbufs fanin_take has available from now on; after handler_rig_start there are
 * none.
 */
void handler_rig_stock(struct handler_rig *rig, uint16_t n);

/* Carries out the handler's emissions, as if every packet had been sent. */
void handler_rig_flush(struct handler_rig *rig);

/* Releases the slot and checks that every mbuf came back. */
void handler_rig_stop(struct handler_rig *rig);

/*
 * Makes a contribution. elements: shape->count of them, unused if it is empty. The test owns the
 * mbuf until it is offered.
 */
struct rte_mbuf *handler_rig_make(struct handler_rig *rig, uint16_t child, uint32_t block,
				  uint16_t flags, const struct shape *shape, const void *elements);

/*
 * Passes a contribution to the handler. A packet that is neither held nor to be retried is
 * returned.
 */
struct answer handler_rig_offer(struct handler_rig *rig, struct rte_mbuf *mbuf);

/* Makes and offers a contribution. */
struct answer handler_rig_contribute(struct handler_rig *rig, uint16_t child, uint32_t block,
				     uint16_t flags, const struct shape *shape,
				     const void *elements);

/*
 * Returns the one emission that the calls since the last flush made; aborts the test if there are
 * others, or none.
 */
const struct fanin_emission *handler_rig_emission(const struct handler_rig *rig,
						  enum fanin_emission_kind kind, uint64_t children);

/* The headers and elements of a packet. */
static inline struct fanin_headers *
headers_of(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod(mbuf, struct fanin_headers *);
}

static inline void *
elements_of(struct rte_mbuf *mbuf)
{
	return rte_pktmbuf_mtod_offset(mbuf, void *, FANIN_PAYLOAD_OFFSET);
}

#endif
