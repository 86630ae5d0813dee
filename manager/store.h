/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager's persistent state: an SQLite database with the groups that have been begun, and the
 * jobs that are still to be removed from switches. Each call is one transaction, on the disk when
 * it returns. The end of a job is never forgotten: if it can't be written, the call fails, and
 * store_retry or the next write writes it first. Main thread only.
 */
#ifndef FANIN_MANAGER_STORE_H
#define FANIN_MANAGER_STORE_H

#include <stdint.h>

#include "manager/group.h"

#define STORE_ERROR_LEN 512
#define STORE_ID_LEN 17 /* 16 hexadecimal digits */

struct store;

/* Callbacks of store_load. */
struct store_reader {
	void *user;
	void (*group)(void *user, const char *name, const json_t *document); /* borrowed */
	void (*removal)(void *user, const char *switch_name, uint32_t job);
};

/*
 * Opens the database; creates it and its directory if they are missing. Only one process can have
 * it open.
 *
 * error: STORE_ERROR_LEN bytes. Returns 0 and sets *store, or -EIO with the error filled.
 */
int store_open(const char *path, struct store **store, char *error);

/*
 * Retries pending writes once a second. Returns when to be called next, in milliseconds of
 * clock_ms, or UINT64_MAX if nothing is pending.
 */
uint64_t store_retry(struct store *store, uint64_t now_ms);

/* Retries pending writes a last time, and closes the database. store may be NULL. */
void store_close(struct store *store);

/* Reads all groups and removals. Returns 0 or -EIO. */
int store_load(struct store *store, const struct store_reader *reader);

/* Saves a group as it is now under its group_key_text. Returns 0 or -EIO. */
int store_put_group(struct store *store, const struct group *group);

/*
 * Deletes a group, and adds a removal of its job for each of its nodes whose switch may have it.
 * Returns 0 or -EIO.
 */
int store_drop_group(struct store *store, const struct group *group);

/*
 * The same for a damaged entry. name: its key. left: its remains, from group_salvage. Returns 0 or
 * -EIO.
 */
int store_drop_damaged(struct store *store, const char *name, const struct group *left);

/* Adds a removal of a job from a switch. Returns 0 or -EIO. */
int store_add_removal(struct store *store, const char *switch_name, uint32_t job);

/* Deletes a removal that is done. Returns 0 or -EIO. */
int store_end_removal(struct store *store, const char *switch_name, uint32_t job);

/*
 * Reads or saves a short text by name, such as the topology's hash. value: size bytes, empty if
 * there is none. Returns 0 or -EIO.
 */
int store_get_note(struct store *store, const char *name, char *value, size_t size);
int store_put_note(struct store *store, const char *name, const char *value);

/*
 * Reads the database's id, a random number; creates and saves one if there is none. A copy of the
 * file has the same id. id: STORE_ID_LEN bytes. Returns 0 or -EIO.
 */
int store_get_id(struct store *store, char *id);

/* Returns the reason of the last call that failed. */
const char *store_error(const struct store *store);

/* True if a node's switch may have the job. */
static inline bool
store_node_counts(const struct group_node *node)
{
	return node->state != NODE_REFUSED && node->state != NODE_PLANNED;
}

#endif
