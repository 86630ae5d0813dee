/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of the version before, by which others try to join, or a parent answers: each side is
 * told that versions differ. Worker only.
 */
#ifndef FANIN_PIPELINE_VERSION_H
#define FANIN_PIPELINE_VERSION_H

#include "pipeline/base/worker.h"

/*
 * A frame to the switch that validation has found to have another version. A JOIN of the one before
 * is refused, and an answer of the parent's noted. Returns false if it is anything else, which
 * stays the caller's.
 */
bool version_take(struct worker *worker, struct rte_mbuf *mbuf);

#endif
