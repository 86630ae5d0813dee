/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Lines in the log about hosts and switches whose packets have another version, one for each child
 * and parent of a job. Main thread.
 */
#ifndef FANIN_SWITCH_VERSION_WATCH_H
#define FANIN_SWITCH_VERSION_WATCH_H

#include "pipeline/pipeline.h"

/* To be called now and then: logs what has come up since. */
void version_watch_serve(struct pipeline *pipeline);

#endif
