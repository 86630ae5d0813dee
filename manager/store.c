/* SPDX-License-Identifier: BSD-3-Clause */
/* See store.h. */
#include "manager/store.h"

#include <errno.h>
#include <inttypes.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/queue.h>
#include <sys/random.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "control/clock.h"
#include "control/log.h"
#include "control/text.h"

#define RETRY_MS 1000u
#define ID_NOTE "id"

/* An SQL statement with one or two texts, or a text and a number. */
struct change {
	TAILQ_ENTRY(change) entry;
	const char *sql;
	char *first;
	char *second;   /* NULL: none */
	int64_t number; /* < 0: none */
};

struct store {
	sqlite3 *database;
	/*
	 * Changes that are not on the disk yet, in their order. They are written before any other.
	 */
	TAILQ_HEAD(changes, change) pending;
	uint64_t retry_ms;
	char error[STORE_ERROR_LEN];
};

/*
 * FULL: if a power loss took a commit back, a job would stay on a switch without an entry, or a
 * removed one would come back. FULL costs one fsync for each change of a job, which is rare. The
 * exclusive lock keeps a second manager away.
 */
static const char schema[] =
	"PRAGMA locking_mode = EXCLUSIVE;"
	"PRAGMA journal_mode = WAL;"
	"PRAGMA synchronous = FULL;"
	"BEGIN IMMEDIATE;"
	"CREATE TABLE IF NOT EXISTS notes (name TEXT PRIMARY KEY, value TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS groups (name TEXT PRIMARY KEY, document TEXT NOT NULL);"
	"CREATE TABLE IF NOT EXISTS removals (switch TEXT NOT NULL, job INTEGER NOT NULL,"
	" PRIMARY KEY (switch, job));"
	"COMMIT;";

/*
 * Removes other users' access to the files, which contain the keys of jobs, whoever created them.
 */
static int
close_to_others(const char *path)
{
	static const char *const suffixes[] = { "", "-wal", "-shm", "-journal" };
	char name[PATH_MAX];
	struct stat status;

	for (size_t i = 0; i < sizeof(suffixes) / sizeof(suffixes[0]); i++) {
		snprintf(name, sizeof(name), "%s%s", path, suffixes[i]);
		if (stat(name, &status) != 0 || !S_ISREG(status.st_mode) ||
		    (status.st_mode & (S_IRWXG | S_IRWXO)) == 0)
			continue;
		if (chmod(name, S_IRUSR | S_IWUSR) != 0)
			return -errno;
	}
	return 0;
}

static int
open_fail(struct store *store, const char *path, char *error)
{
	if (store->database != NULL && sqlite3_errcode(store->database) == SQLITE_BUSY)
		snprintf(
			error, STORE_ERROR_LEN,
			"database %.200s: another process has it open, perhaps another manager: stop that one, or name another file",
			path);
	else
		snprintf(error, STORE_ERROR_LEN, "database %.200s: %s", path,
			 store->database == NULL ? "out of memory"
						 : sqlite3_errmsg(store->database));
	text_make_printable(error);
	store_close(store);
	return -EIO;
}

/*
 * SQLite creates the database with the process's umask, and its log with the database's mode. The
 * umask belongs to all threads: it is changed only here, at the start, when the manager has one
 * thread.
 */
static int
open_database(struct store *store, const char *path)
{
	const mode_t before = umask(S_IRWXG | S_IRWXO);
	int ret = sqlite3_open_v2(path, &store->database,
				  SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, NULL);

	if (ret == SQLITE_OK)
		ret = sqlite3_exec(store->database, schema, NULL, NULL, NULL);
	umask(before);
	return ret;
}

int
store_open(const char *path, struct store **store, char *error)
{
	struct store *opened = calloc(1, sizeof(*opened));
	char parent[PATH_MAX];
	char *slash;
	int ret;

	if (opened == NULL) {
		snprintf(error, STORE_ERROR_LEN, "database: out of memory");
		return -EIO;
	}
	TAILQ_INIT(&opened->pending);
	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash != NULL && slash != parent) {
		*slash = '\0';
		mkdir(parent, 0750); /* if this fails, opening reports it */
	}
	ret = close_to_others(path);
	if (ret != 0) {
		snprintf(
			error, STORE_ERROR_LEN,
			"database %.200s: others may read the keys of jobs in it, and its mode cannot be changed: %s",
			path, strerror(-ret));
		text_make_printable(error);
		store_close(opened);
		return -EIO;
	}
	ret = open_database(opened, path);
	if (ret != SQLITE_OK)
		return open_fail(opened, path, error);
	*store = opened;
	return 0;
}

const char *
store_error(const struct store *store)
{
	return store->error;
}

/* Saves the database's error. Call it before any other request, which would replace the error. */
static int
note_error(struct store *store)
{
	snprintf(store->error, sizeof(store->error), "%s", sqlite3_errmsg(store->database));
	return -EIO;
}

static int
execute(struct store *store, const char *sql)
{
	return sqlite3_exec(store->database, sql, NULL, NULL, NULL) == SQLITE_OK
		       ? 0
		       : note_error(store);
}

static int
apply(struct store *store, const struct change *change)
{
	sqlite3_stmt *statement;
	int ret = 0;

	if (sqlite3_prepare_v2(store->database, change->sql, -1, &statement, NULL) != SQLITE_OK)
		return note_error(store);
	sqlite3_bind_text(statement, 1, change->first, -1, SQLITE_STATIC);
	if (change->second != NULL)
		sqlite3_bind_text(statement, 2, change->second, -1, SQLITE_STATIC);
	else if (change->number >= 0)
		sqlite3_bind_int64(statement, 2, change->number);
	if (sqlite3_step(statement) != SQLITE_DONE)
		ret = note_error(store);
	sqlite3_finalize(statement);
	return ret;
}

static void
drop_pending(struct store *store)
{
	struct change *change;

	while ((change = TAILQ_FIRST(&store->pending)) != NULL) {
		TAILQ_REMOVE(&store->pending, change, entry);
		free(change->first);
		free(change->second);
		free(change);
	}
}

/* Writes pending changes and then `last`, which may be NULL, in one transaction. */
static int
commit(struct store *store, const struct change *last)
{
	const struct change *change;
	int ret = execute(store, "BEGIN IMMEDIATE");

	if (ret != 0)
		return ret;
	TAILQ_FOREACH(change, &store->pending, entry) {
		ret = apply(store, change);
		if (ret != 0)
			break;
	}
	if (ret == 0 && last != NULL)
		ret = apply(store, last);
	if (ret == 0)
		ret = execute(store, "COMMIT");
	/* An error may have ended the transaction already. */
	if (ret != 0 && sqlite3_get_autocommit(store->database) == 0)
		sqlite3_exec(store->database, "ROLLBACK", NULL, NULL, NULL);
	if (ret != 0)
		return ret;
	if (store->retry_ms != 0)
		log_info("database: the pending writes have succeeded");
	store->retry_ms = 0;
	drop_pending(store);
	return 0;
}

/* True if the last pending change with the same arguments is the same statement. */
static bool
is_pending(const struct store *store, const struct change *wanted)
{
	const struct change *change;

	TAILQ_FOREACH_REVERSE(change, &store->pending, changes, entry)
	{
		if (strcmp(change->first, wanted->first) == 0 && change->number == wanted->number)
			return strcmp(change->sql, wanted->sql) == 0;
	}
	return false;
}

/* Queues a change that must not be lost, for the next commit. */
static int
add_pending(struct store *store, const char *sql, const char *first, int64_t number)
{
	struct change *change = calloc(1, sizeof(*change));

	if (change == NULL)
		goto no_memory;
	change->sql = sql;
	change->number = number;
	change->first = strdup(first);
	if (change->first == NULL)
		goto no_memory;
	if (!is_pending(store, change)) {
		TAILQ_INSERT_TAIL(&store->pending, change, entry);
		return 0;
	}
	free(change->first);
	free(change);
	return 0;

no_memory:
	free(change);
	snprintf(store->error, sizeof(store->error), "out of memory");
	return -EIO;
}

/* Writes pending changes. If that fails, store_retry or the next change retries. */
static int
commit_pending(struct store *store)
{
	int ret = commit(store, NULL);

	if (ret != 0 && store->retry_ms == 0)
		store->retry_ms = clock_ms() + RETRY_MS;
	return ret;
}

uint64_t
store_retry(struct store *store, uint64_t now_ms)
{
	if (store->retry_ms == 0)
		return UINT64_MAX;
	if (now_ms >= store->retry_ms && commit(store, NULL) != 0)
		store->retry_ms = now_ms + RETRY_MS;
	return store->retry_ms == 0 ? UINT64_MAX : store->retry_ms;
}

void
store_close(struct store *store)
{
	if (store == NULL)
		return;
	if (!TAILQ_EMPTY(&store->pending) && commit(store, NULL) != 0)
		log_error(
			"database: jobs that have ended may come back at the next start, until their hosts' time to come back "
			"is over: %s",
			store->error);
	drop_pending(store);
	sqlite3_close(store->database);
	free(store);
}

int
store_put_group(struct store *store, const struct group *group)
{
	json_t *document = group_document(group, true);
	char name[GROUP_KEY_LEN];
	struct change put = {
		.sql = "INSERT OR REPLACE INTO groups (name, document) VALUES (?, ?)",
		.first = (char *)(uintptr_t)group_key_text(group, name),
		.second = document == NULL ? NULL : json_dumps(document, JSON_COMPACT),
		.number = -1,
	};
	int ret = -EIO;

	if (put.second != NULL)
		ret = commit(store, &put);
	else
		snprintf(store->error, sizeof(store->error), "out of memory");
	free(put.second);
	json_decref(document);
	return ret;
}

static const char insert_removal[] = "INSERT OR IGNORE INTO removals (switch, job) VALUES (?, ?)";

int
store_add_removal(struct store *store, const char *switch_name, uint32_t job)
{
	int ret = add_pending(store, insert_removal, switch_name, job);

	return ret == 0 ? commit_pending(store) : ret;
}

int
store_end_removal(struct store *store, const char *switch_name, uint32_t job)
{
	int ret = add_pending(store, "DELETE FROM removals WHERE switch = ? AND job = ?",
			      switch_name, job);

	return ret == 0 ? commit_pending(store) : ret;
}

int
store_drop_damaged(struct store *store, const char *name, const struct group *left)
{
	int ret = 0;

	for (uint16_t i = 0; i < left->n_nodes && ret == 0; i++) {
		if (store_node_counts(&left->nodes[i]))
			ret = add_pending(store, insert_removal, left->nodes[i].switch_name,
					  left->id);
	}
	if (ret == 0)
		ret = add_pending(store, "DELETE FROM groups WHERE name = ?", name, -1);
	return ret == 0 ? commit_pending(store) : ret;
}

int
store_drop_group(struct store *store, const struct group *group)
{
	char name[GROUP_KEY_LEN];

	return store_drop_damaged(store, group_key_text(group, name), group);
}

static const char *
column(sqlite3_stmt *statement, int index)
{
	const char *text = (const char *)sqlite3_column_text(statement, index);

	return text == NULL ? "" : text;
}

int
store_load(struct store *store, const struct store_reader *reader)
{
	sqlite3_stmt *statement;
	json_t *document;
	int ret;

	if (sqlite3_prepare_v2(store->database, "SELECT name, document FROM groups ORDER BY name",
			       -1, &statement, NULL) != SQLITE_OK)
		return note_error(store);
	while ((ret = sqlite3_step(statement)) == SQLITE_ROW) {
		document = json_loads(column(statement, 1), 0, NULL);
		reader->group(reader->user, column(statement, 0), document);
		json_decref(document);
	}
	if (ret != SQLITE_DONE)
		note_error(store);
	sqlite3_finalize(statement);
	if (ret != SQLITE_DONE)
		return -EIO;
	if (sqlite3_prepare_v2(store->database, "SELECT switch, job FROM removals", -1, &statement,
			       NULL) != SQLITE_OK)
		return note_error(store);
	while ((ret = sqlite3_step(statement)) == SQLITE_ROW)
		reader->removal(reader->user, column(statement, 0),
				(uint32_t)sqlite3_column_int64(statement, 1));
	if (ret != SQLITE_DONE)
		note_error(store);
	sqlite3_finalize(statement);
	return ret == SQLITE_DONE ? 0 : -EIO;
}

int
store_get_note(struct store *store, const char *name, char *value, size_t size)
{
	sqlite3_stmt *statement;
	int ret;

	value[0] = '\0';
	if (sqlite3_prepare_v2(store->database, "SELECT value FROM notes WHERE name = ?", -1,
			       &statement, NULL) != SQLITE_OK)
		return note_error(store);
	sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	ret = sqlite3_step(statement);
	if (ret == SQLITE_ROW)
		snprintf(value, size, "%s", column(statement, 0));
	else if (ret != SQLITE_DONE)
		note_error(store);
	sqlite3_finalize(statement);
	return ret == SQLITE_ROW || ret == SQLITE_DONE ? 0 : -EIO;
}

int
store_put_note(struct store *store, const char *name, const char *value)
{
	const struct change put = {
		.sql = "INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)",
		.first = (char *)(uintptr_t)name,
		.second = (char *)(uintptr_t)value,
		.number = -1,
	};

	return commit(store, &put);
}

int
store_get_id(struct store *store, char *id)
{
	uint64_t number;
	int ret = store_get_note(store, ID_NOTE, id, STORE_ID_LEN);

	if (ret != 0 || id[0] != '\0')
		return ret;
	if (getrandom(&number, sizeof(number), 0) != sizeof(number)) {
		snprintf(store->error, sizeof(store->error), "no random numbers: %s",
			 strerror(errno));
		return -EIO;
	}
	snprintf(id, STORE_ID_LEN, "%016" PRIx64, number);
	return store_put_note(store, ID_NOTE, id);
}
