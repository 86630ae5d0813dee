/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The owners of jobs on switches: each job carries its manager's name and the id of that manager's
 * database. Another id under the same name is another manager, a namesake. That is a mistake, since
 * names should differ, and is reported. Main thread.
 */
#ifndef FANIN_MANAGER_OWNER_H
#define FANIN_MANAGER_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct manager;
struct peer;

/*
 * True if a job, an entry of a switch's jobs.list, is this manager's. A job of an older version,
 * which has no id, counts as this manager's.
 */
bool owner_is_ours(const struct manager *manager, const json_t *job);

/* The mark of a job on a switch, by the switch's last list; jobs.destroy has to name it. */
const char *owner_of_job(const struct manager *manager, const struct peer *peer, uint32_t job);

/* Forgets a job that is gone from a switch: the next one with that number carries the id. */
void owner_forget(struct peer *peer, uint32_t job);

/*
 * Keeps, from a switch's list of jobs, those without an id and those of namesakes. Logs the latter.
 */
void owner_note_jobs(const struct manager *manager, struct peer *peer, const json_t *jobs);

/*
 * Returns the jobs of namesakes on all switches: a list of {"switch", "job", "owner"}, a new
 * reference.
 */
json_t *owner_list_namesakes(const struct manager *manager);

#endif
