/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The window protocol for jobs whose handler also takes sparse blocks: these are lanes of the same
 * engine (hostlib/src/engine/shards.c).
 */
#include "sparse.h"

#include "protocols/dense/host/window.h"

static const char *const handlers[] = { "sparse-array", "sparse-hash", "sparse", NULL };

struct fanin_protocol fanin_protocol_sparse = {
	.name = "sparse window",
	.handlers = handlers,
	.has_custom = true,
	.has_tags = true,
	.collectives = FANIN_ENGINE_COLLECTIVES | 1 << FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
	FANIN_WINDOW_FUNCTIONS,
};

FANIN_PROTOCOL_REGISTER(fanin_protocol_sparse)
