/* SPDX-License-Identifier: BSD-3-Clause */
/* See placed_rig.h. */
#include "tests/unit/placed_rig.h"

#include <check.h>
#include <string.h>

/* A switch's children: the ranks behind each, and what it contributes. */
struct children {
	struct fanin_ranks ranks[PLACED_RANKS_MAX];
	uint8_t elements[PLACED_RANKS_MAX][FAKE_PAYLOAD_MAX];
	uint16_t n;
};

static void
start_switch(struct handler_rig *rig, const struct children *children, uint16_t n_ranks,
	     bool has_parent)
{
	const struct fanin_job_params job = {
		.id = 1, .n_children = children->n, .window = 1, .payload_bytes = FAKE_PAYLOAD_MAX
	};

	handler_rig_start(rig, "tree", &job, 0);
	rig->job.n_ranks = n_ranks;
	rig->job.has_parent = has_parent;
	rig->ctx.parent_epoch = 1;
	for (uint16_t child = 0; child < children->n; child++)
		rig->job.child_ranks[child] = children->ranks[child];
	(void)fanin_job_params_order(&rig->job);
}

/* Reduces at one switch. Returns false if it refuses. */
static bool
reduce(const struct children *children, uint16_t n_ranks, bool has_parent,
       const struct shape *shape, struct random *random, void *result)
{
	static struct handler_rig rig;
	uint16_t order[PLACED_RANKS_MAX];
	bool is_taken = true;

	start_switch(&rig, children, n_ranks, has_parent);
	for (uint16_t i = 0; i < children->n; i++) {
		const uint32_t k = random_below(random, i + 1u);

		order[i] = order[k];
		order[k] = i;
	}
	for (uint16_t i = 0; i < children->n && is_taken; i++) {
		struct answer answer = handler_rig_contribute(&rig, order[i], 0, 0, shape,
							      children->elements[order[i]]);

		is_taken = answer.verdict != FANIN_VERDICT_DROP;
		if (!is_taken)
			ck_assert_int_eq(answer.reason, FANIN_REASON_OPERATION);
	}
	if (is_taken)
		memcpy(result,
		       elements_of(handler_rig_emission(&rig,
							has_parent ? FANIN_EMIT_PARENT
								   : FANIN_EMIT_CHILDREN,
							has_parent ? 0 : rig.job.children)
					   ->mbuf),
		       shape->count * fanin_dtype_size(shape->dtype));
	handler_rig_stop(&rig);
	return is_taken;
}

/* Adds the ranks at a place as children of their own. */
static void
add_hosts(struct children *children, const char *at, char place, const void *elements, size_t len)
{
	for (uint16_t rank = 0; at[rank] != '\0'; rank++) {
		if (at[rank] != place)
			continue;
		children->ranks[children->n] = fanin_ranks_one(rank);
		memcpy(children->elements[children->n++], (const uint8_t *)elements + rank * len,
		       len);
	}
}

bool
placed_reduce(const char *at, const struct shape *shape, const void *elements,
	      struct random *random, void *result)
{
	const uint16_t n_ranks = (uint16_t)strlen(at);
	const size_t len = shape->count * fanin_dtype_size(shape->dtype);
	static struct children root, leaf;

	ck_assert_uint_le(n_ranks, PLACED_RANKS_MAX);
	root.n = 0;
	add_hosts(&root, at, '*', elements, len);
	for (char place = 'a'; place <= 'z'; place++) {
		leaf.n = 0;
		add_hosts(&leaf, at, place, elements, len);
		if (leaf.n == 0)
			continue;
		root.ranks[root.n] = (struct fanin_ranks){ 0 };
		for (uint16_t child = 0; child < leaf.n; child++)
			fanin_ranks_merge(&root.ranks[root.n], &leaf.ranks[child]);
		if (!reduce(&leaf, n_ranks, true, shape, random, root.elements[root.n++]))
			return false;
	}
	return reduce(&root, n_ranks, false, shape, random, result);
}
