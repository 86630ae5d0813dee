/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Packets of the previous version: JOINs of members and answers of a parent. Both sides learn that
 * versions differ. Worker only.
 */
#ifndef FANIN_PIPELINE_VERSION_H
#define FANIN_PIPELINE_VERSION_H

#include "pipeline/base/worker.h"

/*
 * Takes a frame to the switch that validation found to have another version. A JOIN of the previous
 * version is refused, and an answer of the parent is noted. Returns false if it is anything else:
 * then the caller keeps it.
 */
bool version_take(struct worker *worker, struct rte_mbuf *mbuf);

#endif
