/* SPDX-License-Identifier: BSD-3-Clause */
/* The manager's metrics. Main thread. */
#ifndef FANIN_MANAGER_METRICS_H
#define FANIN_MANAGER_METRICS_H

#include <jansson.h>

#include "control/metrics/metrics.h"

/*
 * The manager's metrics, and the values for them: the answers to people's commands, and counts by
 * kind or state. user: struct manager. Returns a new reference, or NULL without memory.
 */
extern const struct metrics_family manager_metrics[];
json_t *manager_metrics_values(void *user);

#endif
