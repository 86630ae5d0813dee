/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Logs hosts and switches whose packets have another version, one line for each child and parent of
 * a job. Main thread.
 */
#ifndef FANIN_SWITCH_VERSION_WATCH_H
#define FANIN_SWITCH_VERSION_WATCH_H

#include "pipeline/pipeline.h"

/* Call this now and then: logs what has come up since the last call. */
void version_watch_serve(struct pipeline *pipeline);

#endif
