/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Whose the jobs on the switches are: each carries its manager's name and the id of that manager's
 * database. Another id under the same name is another manager, a namesake: by mistake, as names
 * should differ, so people are told. Main thread.
 */
#ifndef FANIN_MANAGER_OWNER_H
#define FANIN_MANAGER_OWNER_H

#include <stdbool.h>
#include <stdint.h>

#include <jansson.h>

struct manager;
struct peer;

/*
 * True if a job, an entry of a switch's jobs.list, is this manager's. One without an id, from
 * before there were ids, is.
 */
bool owner_is_ours(const struct manager *manager, const json_t *job);

/*
 * What a job on a switch is marked with, as far as its last list tells: what it has to be destroyed
 * by.
 */
const char *owner_of_job(const struct manager *manager, const struct peer *peer, uint32_t job);

/* A job is gone from a switch: the next one of that number carries the id. */
void owner_forget(struct peer *peer, uint32_t job);

/*
 * Takes over a switch's list of jobs: those without an id, and those of namesakes, of which the log
 * is told.
 */
void owner_note_jobs(const struct manager *manager, struct peer *peer, const json_t *jobs);

/* The jobs of namesakes on all switches: a list of {"switch", "job", "owner"}, a new reference. */
json_t *owner_list_namesakes(const struct manager *manager);

#endif
