/* SPDX-License-Identifier: BSD-3-Clause */
/* See store.h. */
#include "manager/store.h"

#include <errno.h>
#include <limits.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>

#include <sqlite3.h>

#include "control/text.h"

struct store {
	sqlite3 *database;
};

/*
 * FULL: a commit that a power loss takes back would leave a job on a switch that nobody knows, or bring one back that is gone.
 * It costs one fsync for each change of a job, which is rare. The exclusive lock keeps a second manager away.
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

/* The keys of jobs are in these files: a mode that lets others read them, from whoever made them, is taken away. */
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
	snprintf(error, STORE_ERROR_LEN, "database %.200s: %s%s", path,
		 store->database == NULL ? "out of memory" : sqlite3_errmsg(store->database),
		 store->database != NULL && sqlite3_errcode(store->database) == SQLITE_BUSY
			 ? ": is another manager using it?"
			 : "");
	text_make_printable(error);
	store_close(store);
	return -EIO;
}

/*
 * SQLite makes the database with the process's umask, and its log with the database's mode. The umask belongs to all threads: it
 * is changed here only, at the start, when the manager has one.
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
	snprintf(parent, sizeof(parent), "%s", path);
	slash = strrchr(parent, '/');
	if (slash != NULL && slash != parent) {
		*slash = '\0';
		mkdir(parent, 0750); /* if it cannot be made, opening tells */
	}
	ret = close_to_others(path);
	if (ret != 0) {
		snprintf(error, STORE_ERROR_LEN,
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

void
store_close(struct store *store)
{
	if (store == NULL)
		return;
	sqlite3_close(store->database);
	free(store);
}

const char *
store_error(const struct store *store)
{
	return sqlite3_errmsg(store->database);
}

/* One statement with up to two texts, or a text and a number. number < 0: none. */
static int
run(struct store *store, const char *sql, const char *first, const char *second, int64_t number)
{
	sqlite3_stmt *statement;
	int ret;

	if (sqlite3_prepare_v2(store->database, sql, -1, &statement, NULL) != SQLITE_OK)
		return -EIO;
	sqlite3_bind_text(statement, 1, first, -1, SQLITE_STATIC);
	if (second != NULL)
		sqlite3_bind_text(statement, 2, second, -1, SQLITE_STATIC);
	else if (number >= 0)
		sqlite3_bind_int64(statement, 2, number);
	ret = sqlite3_step(statement);
	sqlite3_finalize(statement);
	return ret == SQLITE_DONE ? 0 : -EIO;
}

int
store_put_group(struct store *store, const struct group *group)
{
	json_t *document = group_document(group, true);
	char name[GROUP_KEY_LEN];
	char *text = document == NULL ? NULL : json_dumps(document, JSON_COMPACT);
	int ret = -EIO;

	if (text != NULL)
		ret = run(store, "INSERT OR REPLACE INTO groups (name, document) VALUES (?, ?)",
			  group_key_text(group, name), text, -1);
	free(text);
	json_decref(document);
	return ret;
}

int
store_add_removal(struct store *store, const char *switch_name, uint32_t job)
{
	return run(store, "INSERT OR IGNORE INTO removals (switch, job) VALUES (?, ?)", switch_name,
		   NULL, job);
}

int
store_end_removal(struct store *store, const char *switch_name, uint32_t job)
{
	return run(store, "DELETE FROM removals WHERE switch = ? AND job = ?", switch_name, NULL,
		   job);
}

int
store_drop_damaged(struct store *store, const char *name, const struct group *left)
{
	int ret = 0;

	if (sqlite3_exec(store->database, "BEGIN IMMEDIATE", NULL, NULL, NULL) != SQLITE_OK)
		return -EIO;
	for (uint16_t i = 0; i < left->n_nodes && ret == 0; i++) {
		if (store_node_counts(&left->nodes[i]))
			ret = store_add_removal(store, left->nodes[i].switch_name, left->id);
	}
	if (ret == 0)
		ret = run(store, "DELETE FROM groups WHERE name = ?", name, NULL, -1);
	if (ret == 0 && sqlite3_exec(store->database, "COMMIT", NULL, NULL, NULL) == SQLITE_OK)
		return 0;
	sqlite3_exec(store->database, "ROLLBACK", NULL, NULL, NULL);
	return -EIO;
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
		return -EIO;
	while ((ret = sqlite3_step(statement)) == SQLITE_ROW) {
		document = json_loads(column(statement, 1), 0, NULL);
		reader->group(reader->user, column(statement, 0), document);
		json_decref(document);
	}
	sqlite3_finalize(statement);
	if (ret != SQLITE_DONE ||
	    sqlite3_prepare_v2(store->database, "SELECT switch, job FROM removals", -1, &statement,
			       NULL) != SQLITE_OK)
		return -EIO;
	while ((ret = sqlite3_step(statement)) == SQLITE_ROW)
		reader->removal(reader->user, column(statement, 0),
				(uint32_t)sqlite3_column_int64(statement, 1));
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
		return -EIO;
	sqlite3_bind_text(statement, 1, name, -1, SQLITE_STATIC);
	ret = sqlite3_step(statement);
	if (ret == SQLITE_ROW)
		snprintf(value, size, "%s", column(statement, 0));
	sqlite3_finalize(statement);
	return ret == SQLITE_ROW || ret == SQLITE_DONE ? 0 : -EIO;
}

int
store_put_note(struct store *store, const char *name, const char *value)
{
	return run(store, "INSERT OR REPLACE INTO notes (name, value) VALUES (?, ?)", name, value,
		   -1);
}
