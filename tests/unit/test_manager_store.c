/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Tests of the manager's database: stored groups are read back unchanged; a process that is killed
 * at any moment leaves each job either stored or to be removed, never half; also tests of reading
 * the topology and the configuration.
 */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/resource.h>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>

#include <check.h>
#include <jansson.h>

#include "control/clock.h"
#include "control/log.h"
#include "control/settings.h"
#include "manager/config.h"
#include "manager/store.h"
#include "lab/reference/random.h"
#include "tests/unit/suites.h"

#define N_NODES 3

static char directory[] = "/tmp/fanin-store-XXXXXX";
static char path[64];
static struct topology topology;
static const char *const switch_names[N_NODES] = { "spine0", "leaf0", "leaf1" };

/* Arguments of store_load's callbacks. */
static json_t *groups;
static json_t *removals;

static void
take_group(void *user, const char *name, const json_t *document)
{
	(void)user;
	ck_assert(json_is_object(document));
	json_object_set_new(groups, name, json_deep_copy(document));
}

static void
take_removal(void *user, const char *switch_name, uint32_t job)
{
	char key[64];

	(void)user;
	snprintf(key, sizeof(key), "%s %u", switch_name, job);
	json_object_set_new(removals, key, json_true());
}

static struct store *
open_store(void)
{
	char error[STORE_ERROR_LEN] = "";
	struct store *store;

	ck_assert_msg(store_open(path, &store, error) == 0, "%s", error);
	return store;
}

static void
load(struct store *store)
{
	const struct store_reader reader = { NULL, take_group, take_removal };

	json_decref(groups);
	json_decref(removals);
	groups = json_object();
	removals = json_object();
	ck_assert_int_eq(store_load(store, &reader), 0);
}

static bool
has_removal(const char *switch_name, uint32_t job)
{
	char key[64];

	snprintf(key, sizeof(key), "%s %u", switch_name, job);
	return json_object_get(removals, key) != NULL;
}

/*
 * Makes a job on a spine and two leaves, which have its first two ranks; the caller places the
 * others.
 */
static struct group *
make_group_of(const char *name, uint32_t id, uint16_t size)
{
	struct group *group = group_create(name, size);

	ck_assert_ptr_nonnull(group);
	group->state = GROUP_NETWORK;
	group->id = id;
	group->n_trees = 1;
	group->trees_asked = 2;
	memcpy(group->trees_reason, "why", sizeof("why"));
	group->key = 0x123456789abcdef0;
	group->window = 32;
	group->slots = 64;
	group->payload_bytes = 1408;
	memcpy(group->handler, "single", sizeof("single"));
	group->nodes = calloc(N_NODES, sizeof(*group->nodes));
	group->n_nodes = N_NODES;
	for (uint16_t i = 0; i < N_NODES; i++) {
		struct group_node *node = &group->nodes[i];

		node->state = NODE_INSTALLED;
		node->udp_port = 21930;
		snprintf(node->ip, sizeof(node->ip), "10.77.%u.254", i);
		node->switch_index = topology_switch_find(&topology, switch_names[i]);
		node->parent = i == 0 ? TREE_NO_PARENT : 0;
		node->local = fanin_ranks_of_word(i == 0 ? 0 : 1u << (i - 1));
		node->ranks = i == 0 ? fanin_ranks_of_word(3) : node->local;
		snprintf(node->switch_name, sizeof(node->switch_name), "%s", switch_names[i]);
		if (i > 0)
			snprintf(node->port, sizeof(node->port), "u0");
		if (i > 0)
			snprintf(node->parent_port, sizeof(node->parent_port), "p%d", i - 1);
	}
	group->n_members = 2;
	for (int i = 0; i < 2; i++)
		group->members[i] =
			(struct group_member){ .state = MEMBER_ABSENT,
					       .rank = i,
					       .ip_be = htonl(0x0a4d0001u + (uint32_t)i),
					       .mtu = 1500,
					       .endpoint = "10.77.0.1:4000" };
	/* Rank 1 is at its host's second link. */
	group->addresses[0] = htonl(0x0a4d0001u);
	group->addresses[1] = htonl(0x0a4d0103u);
	return group;
}

/* Makes such a job of two ranks. */
static struct group *
make_group(const char *name, uint32_t id)
{
	return make_group_of(name, id, 2);
}

static void
make_world(void)
{
	struct control_error error;

	ck_assert_ptr_nonnull(mkdtemp(directory));
	snprintf(path, sizeof(path), "%s/db/manager.db", directory);
	ck_assert_msg(topology_load(FANIN_SOURCE_DIR "/packaging/examples/topology-leaf-spine.json",
				    &topology, &error) == 0,
		      "%s", error.message);
}

static void
remove_world(void)
{
	char name[96];

	for (int i = 0; i < 3; i++) {
		snprintf(name, sizeof(name), "%s%s", path, i == 0 ? "" : i == 1 ? "-wal" : "-shm");
		unlink(name);
	}
	snprintf(name, sizeof(name), "%s/db", directory);
	rmdir(name);
	ck_assert_int_eq(rmdir(directory), 0);
	topology_free(&topology);
	json_decref(groups);
	json_decref(removals);
}

START_TEST(each_tree_of_a_job_is_kept_and_removed_by_itself)
{
	struct group *leader = make_group("training", 17);
	struct group *further = group_create_tree(leader);
	struct store *store = open_store();
	struct group *after;

	ck_assert_ptr_nonnull(further);
	further->state = GROUP_NETWORK;
	further->id = 18;
	further->key = 0xfeed;
	further->n_nodes = leader->n_nodes;
	further->nodes = calloc(N_NODES, sizeof(*further->nodes));
	memcpy(further->nodes, leader->nodes, N_NODES * sizeof(*further->nodes));
	ck_assert_int_eq(store_put_group(store, leader), 0);
	ck_assert_int_eq(store_put_group(store, further), 0);
	load(store);
	ck_assert_uint_eq(json_object_size(groups), 2);
	after = group_from_document(json_object_get(groups, "training#1"), &topology);
	ck_assert_ptr_nonnull(after);
	ck_assert_str_eq(after->name, "training");
	ck_assert_uint_eq(after->tree, 1);
	ck_assert_uint_eq(after->members[1].ip_be, leader->members[1].ip_be);
	ck_assert_int_eq(store_drop_group(store, further), 0);
	load(store);
	ck_assert_uint_eq(json_object_size(groups), 1);
	ck_assert_ptr_nonnull(json_object_get(groups, "training"));
	ck_assert(has_removal("leaf0", 18) && !has_removal("leaf0", 17));
	group_free(after);
	group_free(further);
	group_free(leader);
	store_close(store);
}
END_TEST

/* Sets of ranks behind each leaf take several words. */
START_TEST(a_job_of_many_ranks_comes_back_as_it_was)
{
	static const unsigned int sizes[] = { 65, 128, 1000, GROUP_MAX_RANKS };
	const unsigned int size = sizes[_i];
	struct group *group = make_group_of("training", 17, (uint16_t)size);
	struct store *store = open_store();
	struct group *after;

	group->n_members = group->size;
	group->nodes[0].ranks = fanin_ranks_all(size);
	for (int i = 1; i < N_NODES; i++) {
		group->nodes[i].local = (struct fanin_ranks){ 0 };
		for (unsigned int rank = (unsigned int)i - 1; rank < size; rank += N_NODES - 1)
			fanin_ranks_add(&group->nodes[i].local, rank);
		group->nodes[i].ranks = group->nodes[i].local;
	}
	for (unsigned int rank = 0; rank < size; rank++) {
		group->members[rank] = (struct group_member){ .state = MEMBER_ABSENT,
							      .rank = (int)rank,
							      .ip_be = htonl(0x0a500000u + rank) };
		group->addresses[rank] = group->members[rank].ip_be;
	}
	ck_assert_int_eq(store_put_group(store, group), 0);
	load(store);
	after = group_from_document(json_object_get(groups, "training"), &topology);
	ck_assert_ptr_nonnull(after);
	ck_assert_uint_eq(after->n_members, size);
	for (int i = 0; i < N_NODES; i++) {
		ck_assert(fanin_ranks_equal(&after->nodes[i].local, &group->nodes[i].local));
		ck_assert(fanin_ranks_equal(&after->nodes[i].ranks, &group->nodes[i].ranks));
	}
	ck_assert_ptr_eq(group_node_of(after, (uint16_t)(size - 1)),
			 &after->nodes[1 + (size - 1) % (N_NODES - 1)]);
	group_free(after);
	/* A job whose rank has no place is invalid. */
	fanin_ranks_remove(&group->nodes[1 + (size - 1) % (N_NODES - 1)].local, size - 1);
	ck_assert_int_eq(store_put_group(store, group), 0);
	load(store);
	ck_assert_ptr_null(group_from_document(json_object_get(groups, "training"), &topology));
	group_free(group);
	store_close(store);
}
END_TEST

START_TEST(a_document_with_more_members_than_its_size_makes_no_job)
{
	struct group *group = make_group("training", 17);
	json_t *document = group_document(group, true);
	json_t *members = json_object_get(document, "members");
	json_t *third = json_deep_copy(json_array_get(members, 1));

	json_object_set_new(third, "rank", json_integer(2));
	json_array_append_new(members, third);
	ck_assert_ptr_null(group_from_document(document, &topology));
	json_decref(document);
	group_free(group);
}
END_TEST

START_TEST(a_job_of_a_database_without_several_trees_has_one)
{
	struct group *group = make_group("training", 17);
	json_t *document = group_document(group, true);
	struct group *after;

	json_object_del(document, "tree");
	json_object_del(document, "trees");
	json_object_del(document, "trees_asked");
	json_object_del(document, "trees_reason");
	after = group_from_document(document, &topology);
	ck_assert_ptr_nonnull(after);
	ck_assert_uint_eq(after->tree, 0);
	ck_assert_uint_eq(after->n_trees, 1);
	ck_assert_uint_eq(after->trees_asked, 1);
	ck_assert_str_eq(after->trees_reason, "");
	json_decref(document);
	group_free(after);
	group_free(group);
}
END_TEST

START_TEST(a_group_comes_back_as_it_was)
{
	struct group *group = make_group("training", 17);
	json_t *before = group_document(group, true);
	struct store *store = open_store();
	struct group *after;
	json_t *document;

	ck_assert_int_eq(store_put_group(store, group), 0);
	ck_assert_int_eq(store_put_note(store, "topology", topology.hash), 0);
	store_close(store);
	store = open_store();
	load(store);
	after = group_from_document(json_object_get(groups, "training"), &topology);
	ck_assert_ptr_nonnull(after);
	document = group_document(after, true);
	ck_assert(json_equal(before, document));
	ck_assert_uint_eq(after->nodes[2].switch_index, topology_switch_find(&topology, "leaf1"));
	ck_assert_uint_eq(after->nodes[2].link,
			  topology_link_find(&topology, after->nodes[2].switch_index, "u0"));
	ck_assert_ptr_eq(group_link_of(after, &topology, 1),
			 topology_host_find(&topology, inet_addr("10.77.1.3")));
	json_decref(document);
	json_decref(before);
	group_free(after);
	group_free(group);
	store_close(store);
}
END_TEST

START_TEST(a_group_that_moved_runs_and_has_to_be_made_anew)
{
	struct group *group = make_group("training", 17);
	struct group *after;
	json_t *document;

	group->state = GROUP_INSTALLING;
	group->moving = true;
	document = group_document(group, true);
	after = group_from_document(document, &topology);
	ck_assert_ptr_nonnull(after);
	ck_assert_int_eq(after->state, GROUP_NETWORK);
	ck_assert(!after->moving);
	for (uint16_t i = 0; i < N_NODES; i++)
		ck_assert_int_eq(after->nodes[i].state, NODE_ASKED);
	group_free(after);
	/* The next tree could not be made, or was not planned yet. */
	json_array_clear(json_object_get(document, "nodes"));
	after = group_from_document(document, &topology);
	ck_assert_ptr_nonnull(after);
	ck_assert_int_eq(after->state, GROUP_NETWORK);
	ck_assert_uint_eq(after->n_nodes, 0);
	group_free(after);
	/* A tree that was being made for the first time has no running ranks. */
	json_object_del(document, "moving");
	ck_assert_ptr_null(group_from_document(document, &topology));
	json_decref(document);
	group_free(group);
}
END_TEST

START_TEST(no_document_that_is_damaged_becomes_a_group)
{
	static const char *const keys[] = { "name", "state", "size", "members", "nodes" };
	static const char *const numbers[] = { "id", "tree", "trees", "trees_asked" };
	struct group *group = make_group("training", 17);
	json_t *document = group_document(group, true);

	for (size_t i = 0; i < sizeof(keys) / sizeof(keys[0]); i++) {
		json_t *damaged = json_deep_copy(document);

		json_object_del(damaged, keys[i]);
		ck_assert_ptr_null(group_from_document(damaged, &topology));
		json_object_set_new(damaged, keys[i], json_integer(-7));
		ck_assert_ptr_null(group_from_document(damaged, &topology));
		json_decref(damaged);
	}
	for (size_t i = 0; i < sizeof(numbers) / sizeof(numbers[0]); i++) {
		json_t *damaged = json_deep_copy(document);

		json_object_set_new(damaged, numbers[i], json_integer(65536));
		ck_assert_ptr_null(group_from_document(damaged, &topology));
		json_object_del(damaged, numbers[i]);
		json_object_set_new(damaged, "key", json_string("none"));
		ck_assert_ptr_null(group_from_document(damaged, &topology));
		json_decref(damaged);
	}
	ck_assert_ptr_null(group_from_document(NULL, &topology));
	json_array_append_new(json_object_get(document, "nodes"), json_pack("{s:i}", "parent", 9));
	ck_assert_ptr_null(group_from_document(document, &topology));
	/* There is a second root. */
	json_object_del(json_array_get(json_object_get(document, "nodes"),
				       json_array_size(json_object_get(document, "nodes")) - 1),
			"parent");
	ck_assert_ptr_null(group_from_document(document, &topology));
	json_decref(document);
	group_free(group);
}
END_TEST

START_TEST(a_dropped_group_leaves_a_removal_for_each_switch_that_may_have_it)
{
	struct group *group = make_group("training", 17);
	struct store *store = open_store();

	ck_assert_int_eq(store_put_group(store, group), 0);
	group->nodes[0].state = NODE_REFUSED;
	group->nodes[1].state = NODE_ASKED;
	ck_assert_int_eq(store_drop_group(store, group), 0);
	load(store);
	ck_assert_uint_eq(json_object_size(groups), 0);
	ck_assert_uint_eq(json_object_size(removals), 2);
	ck_assert(has_removal("leaf0", 17) && has_removal("leaf1", 17));
	ck_assert_int_eq(store_end_removal(store, "leaf0", 17), 0);
	ck_assert_int_eq(store_add_removal(store, "leaf1", 17), 0);
	load(store);
	ck_assert_uint_eq(json_object_size(removals), 1);
	group_free(group);
	store_close(store);
}
END_TEST

START_TEST(a_second_manager_and_a_file_of_another_kind_are_refused)
{
	struct store *store = open_store();
	char error[STORE_ERROR_LEN] = "";
	struct store *second;
	FILE *file;

	ck_assert_int_lt(store_open(path, &second, error), 0);
	ck_assert_msg(strstr(error, "another process has it open") != NULL, "%s", error);
	store_close(store);
	unlink(path);
	file = fopen(path, "w");
	ck_assert_ptr_nonnull(file);
	for (int i = 0; i < 1000; i++)
		fputs("This is not a database. ", file);
	fclose(file);
	ck_assert_int_lt(store_open(path, &second, error), 0);
	ck_assert_msg(strstr(error, path) != NULL, "%s", error);
	ck_assert_int_lt(store_open("/nonexistent/a/b.db", &second, error), 0);
}
END_TEST

/* Returns the number of files in the database's directory; no other user may read or write them. */
static unsigned int
check_modes(void)
{
	char parent[96];
	struct dirent *entry;
	unsigned int n = 0;
	DIR *files;

	snprintf(parent, sizeof(parent), "%s/db", directory);
	files = opendir(parent);
	ck_assert_ptr_nonnull(files);
	while ((entry = readdir(files)) != NULL) {
		struct stat status;

		if (entry->d_name[0] == '.')
			continue;
		ck_assert_int_eq(fstatat(dirfd(files), entry->d_name, &status, 0), 0);
		ck_assert_msg((status.st_mode & 07777) == 0600, "%s has mode %o", entry->d_name,
			      status.st_mode & 07777);
		n++;
	}
	closedir(files);
	return n;
}

static void
chmod_file(const char *suffix, mode_t mode)
{
	char name[96];

	snprintf(name, sizeof(name), "%s%s", path, suffix);
	ck_assert_int_eq(chmod(name, mode), 0);
}

START_TEST(nobody_else_can_read_any_file_of_the_database)
{
	struct group *group = make_group("train", 17);
	struct store *store;
	pid_t child;
	int status;

	umask(022);
	store = open_store();
	ck_assert_int_eq(umask(022), 022);
	ck_assert_uint_ge(check_modes(), 2);
	ck_assert_int_eq(store_put_group(store, group), 0);
	ck_assert_uint_ge(check_modes(), 2);
	store_close(store);
	ck_assert_uint_eq(check_modes(), 1);

	/* Files that a killed manager has left, with the modes of former releases. */
	child = fork();
	if (child == 0) {
		store = open_store();
		_exit(store_put_group(store, group) == 0 ? 0 : 1);
	}
	ck_assert_int_eq(waitpid(child, &status, 0), child);
	ck_assert_int_eq(status, 0);
	chmod_file("", 0644);
	chmod_file("-wal", 0644);
	store = open_store();
	ck_assert_uint_ge(check_modes(), 2);
	ck_assert_int_eq(store_put_group(store, group), 0);
	ck_assert_uint_ge(check_modes(), 2);
	store_close(store);
	ck_assert_uint_eq(check_modes(), 1);
	group_free(group);
}
END_TEST

/* Makes all writes fail, as on a full disk, or succeed again. */
static void
set_disk_full(bool full)
{
	static struct rlimit before;
	struct rlimit none;

	if (before.rlim_max == 0)
		ck_assert_int_eq(getrlimit(RLIMIT_FSIZE, &before), 0);
	none = (struct rlimit){ 0, before.rlim_max };
	ck_assert_int_eq(setrlimit(RLIMIT_FSIZE, full ? &none : &before), 0);
}

START_TEST(failed_writes_are_told_and_written_later)
{
	struct group *old = make_group("old", 17);
	struct group *new = make_group("new", 18);
	struct group *again = make_group("old", 19);
	struct store *store = open_store();
	uint64_t now_ms = clock_ms();

	signal(SIGXFSZ, SIG_IGN);
	log_init("manager-store", LOG_LEVEL_ERROR);
	ck_assert_int_eq(store_put_group(store, old), 0);
	ck_assert_int_eq(store_add_removal(store, "leaf0", 5), 0);
	ck_assert_uint_eq(store_retry(store, now_ms), UINT64_MAX);
	set_disk_full(true);
	ck_assert_int_eq(store_drop_group(store, old), -EIO);
	/* The error is the cause, not the failed rollback. */
	ck_assert_msg(strstr(store_error(store), "disk") != NULL &&
			      strstr(store_error(store), "rollback") == NULL,
		      "%s", store_error(store));
	ck_assert_int_eq(store_end_removal(store, "leaf0", 5), -EIO);
	ck_assert_int_eq(store_add_removal(store, "leaf0", 6), -EIO);
	ck_assert_int_eq(store_end_removal(store, "leaf0", 6), -EIO);
	ck_assert_int_eq(store_add_removal(store, "leaf0", 6), -EIO);
	/* Nothing new is begun before the retry. */
	ck_assert_int_eq(store_put_group(store, new), -EIO);
	ck_assert_uint_eq(store_retry(store, now_ms + 5000), now_ms + 6000);
	load(store);
	ck_assert_ptr_nonnull(json_object_get(groups, "old"));
	set_disk_full(false);
	ck_assert_uint_eq(store_retry(store, now_ms + 5500), now_ms + 6000);
	ck_assert_uint_eq(store_retry(store, now_ms + 6000), UINT64_MAX);
	load(store);
	ck_assert_uint_eq(json_object_size(groups), 0);
	ck_assert_uint_eq(json_object_size(removals), N_NODES + 1);
	ck_assert(has_removal("spine0", 17) && has_removal("leaf1", 17) &&
		  has_removal("leaf0", 17));
	ck_assert(has_removal("leaf0", 6));

	/*
	 * The order is kept: a new job with the name of an ended one is not dropped in its place.
	 */
	ck_assert_int_eq(store_put_group(store, old), 0);
	set_disk_full(true);
	ck_assert_int_eq(store_drop_group(store, old), -EIO);
	set_disk_full(false);
	ck_assert_int_eq(store_put_group(store, again), 0);
	ck_assert_uint_eq(store_retry(store, now_ms + 9000), UINT64_MAX);
	load(store);
	ck_assert_int_eq(json_integer_value(json_object_get(json_object_get(groups, "old"), "id")),
			 19);

	/* The latest time is the manager's stop. */
	set_disk_full(true);
	ck_assert_int_eq(store_drop_group(store, again), -EIO);
	set_disk_full(false);
	store_close(store);
	store = open_store();
	load(store);
	ck_assert_uint_eq(json_object_size(groups), 0);
	store_close(store);
	group_free(old);
	group_free(new);
	group_free(again);
}
END_TEST

/*
 * Creates and drops jobs without end, and reports each with a byte; it drops jobs that it created
 * before.
 */
static void
churn(uint64_t seed, int fd)
{
	struct random random = random_seed(seed);
	struct store *store = open_store();

	for (uint32_t id = 1;; id++) {
		char name[16];
		struct group *group;

		snprintf(name, sizeof(name), "j%u", id);
		group = make_group(name, id);
		if (store_put_group(store, group) != 0)
			_exit(3);
		if (random_below(&random, 4) != 0 && store_drop_group(store, group) != 0)
			_exit(4);
		group_free(group);
		if (write(fd, "", 1) != 1)
			_exit(5);
	}
}

START_TEST(a_process_that_is_killed_leaves_each_job_there_or_to_be_removed)
{
	unsigned int most = 0;

	for (unsigned int round = 0; round < 8; round++) {
		struct store *store;
		unsigned int n = 0;
		int status, fds[2];
		char byte;
		pid_t pid;

		ck_assert_int_eq(pipe(fds), 0);
		pid = fork();
		ck_assert_int_ge(pid, 0);
		if (pid == 0)
			churn(round + 8u * (unsigned int)_i, fds[1]);
		/* Kills it at a random point after some jobs. */
		for (unsigned int i = 0; i < 1 + 3 * round; i++)
			ck_assert_int_eq(read(fds[0], &byte, 1), 1);
		kill(pid, SIGKILL);
		close(fds[0]);
		close(fds[1]);
		ck_assert_int_eq(waitpid(pid, &status, 0), pid);
		ck_assert(WIFSIGNALED(status));
		store = open_store();
		load(store);
		for (uint32_t id = 1;; id++, n++) {
			char name[16];
			unsigned int there;

			snprintf(name, sizeof(name), "j%u", id);
			there = has_removal("spine0", id) + has_removal("leaf0", id) +
				has_removal("leaf1", id);
			if (json_object_get(groups, name) == NULL && there == 0)
				break;
			ck_assert_msg(there == (json_object_get(groups, name) == NULL ? 3 : 0),
				      "job %u: %u removals, group %s", id, there,
				      json_object_get(groups, name) == NULL ? "gone" : "there");
			if (there == 0)
				group_free(group_from_document(json_object_get(groups, name),
							       &topology));
		}
		/* There is nothing after the first gap. */
		ck_assert_uint_eq(n, json_object_size(groups) + json_object_size(removals) / 3);
		most = n > most ? n : most;
		store_close(store);
		unlink(path);
	}
	ck_assert_uint_ge(most, 22);
}
END_TEST

static void compare_keys(const json_t *schema, const json_t *example, const char *where);

/*
 * Compares an array's items: the first item shows all keys, or the first items show one kind each.
 */
static void
compare_items(const json_t *schema, const json_t *items, const char *where)
{
	const json_t *kinds = json_object_get(schema, "oneOf");
	const json_t *kind;
	size_t i;

	if (kinds == NULL)
		compare_keys(schema, json_array_get(items, 0), where);
	json_array_foreach(kinds, i, kind)
		compare_keys(kind, json_array_get(items, i), where);
}

/* Checks that every property of a schema occurs in the example for it, and vice versa. */
static void
compare_keys(const json_t *schema, const json_t *example, const char *where)
{
	const json_t *properties = json_object_get(schema, "properties");
	const json_t *item;
	const char *key;
	json_t *value;

	ck_assert(json_is_false(json_object_get(schema, "additionalProperties")));
	json_object_foreach((json_t *)(uintptr_t)properties, key, value) {
		item = json_object_get(example, key);
		ck_assert_msg(item != NULL || strcmp(key, "$schema") == 0, "%s lacks %s", where,
			      key);
		if (json_is_object(item))
			compare_keys(value, item, key);
		if (json_is_array(item))
			compare_items(json_object_get(value, "items"), item, key);
	}
	json_object_foreach((json_t *)(uintptr_t)example, key, value)
		ck_assert_msg(json_object_get(properties, key) != NULL, "the schema of %s lacks %s",
			      where, key);
}

START_TEST(the_examples_load_and_the_schemas_know_their_keys)
{
	static const char *const pairs[][2] = { { "manager-schema.json", "manager.json" },
						{ "topology-schema.json",
						  "topology-leaf-spine.json" } };
	struct manager_config config;
	struct control_error error;
	char name[512];

	for (size_t i = 0; i < 2; i++) {
		json_t *files[2];

		for (size_t k = 0; k < 2; k++) {
			snprintf(name, sizeof(name), FANIN_SOURCE_DIR "/packaging/examples/%s",
				 pairs[i][k]);
			files[k] = settings_load(name, &error);
			ck_assert_msg(files[k] != NULL, "%s", error.message);
		}
		compare_keys(files[0], files[1], pairs[i][1]);
		json_decref(files[0]);
		json_decref(files[1]);
	}
	ck_assert_msg(manager_config_load(FANIN_SOURCE_DIR "/packaging/examples/manager.json",
					  &config, &error) == 0,
		      "%s", error.message);
	ck_assert_str_eq(config.topology.hash, topology.hash);
	ck_assert_uint_eq(config.topology.n_switches, 4);
	ck_assert_uint_eq(config.topology.n_links, 4);
	ck_assert_uint_eq(config.topology.n_servers, 2);
	ck_assert_ptr_nonnull(topology_host_find(&config.topology, inet_addr("10.77.1.2")));
	ck_assert_ptr_null(topology_host_find(&config.topology, inet_addr("10.77.1.9")));
	manager_config_free(&config);
}
END_TEST

/* Reads a topology of two switches with these hosts. Returns its error, or "". */
static const char *
read_hosts(const char *hosts, struct topology *read)
{
	static struct control_error error;
	char text[1024];
	json_t *root;

	snprintf(
		text, sizeof(text),
		"{\"switches\": [{\"name\": \"a\", \"control\": \"/a\"}, {\"name\": \"b\", \"control\": \"/b\"}], "
		"\"links\": [{\"a\": \"a:up\", \"b\": \"b:up\"}], \"hosts\": [%s]}",
		hosts);
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(root != NULL, "%s", text);
	error.message[0] = '\0';
	if (topology_read(root, "t", read, &error) == 0)
		error.message[0] = '\0';
	json_decref(root);
	return error.message;
}

START_TEST(a_host_may_have_several_links)
{
#define AT(ip, name, port) "{\"ip\": \"" ip "\", \"switch\": \"" name "\", \"port\": \"" port "\"}"
#define LINKS(list) "{\"links\": [" list "]}"
	static const struct {
		const char *hosts;
		const char *error;
	} wrong[] = {
		{ LINKS(""),
		  "t: hosts[0].links: found 0 entries, expected an array of 1 to 4 objects" },
		{ LINKS(AT("10.0.0.1", "a", "h0") "," AT("10.0.0.2", "a", "h0")),
		  "t: hosts[0].links[1]: the host has another link at the port \"h0\"" },
		{ LINKS(AT("10.0.0.1", "a", "h0") "," AT("10.0.0.1", "b", "h0")),
		  "t: hosts: two of them have the address \"10.0.0.1\"" },
		{ LINKS(AT("10.0.0.1", "a", "up")),
		  "t: hosts[0].links[0]: a link has the port already: \"up\"" },
		{ LINKS(AT("10.0.0.1", "c", "h0")),
		  "t: hosts[0].links[0]: no switch has the name \"c\"" },
		{ "{\"links\": [" AT("10.0.0.1", "a", "h0") "], \"ip\": \"10.0.0.2\"}",
		  "t: hosts[0].ip: unknown argument" },
		{ "{\"links\": 7}",
		  "t: hosts[0].links: found 7, expected an array of 1 to 4 objects" },
	};
	const struct topology_host *link;
	struct topology read;

	ck_assert_str_eq(read_hosts(AT("10.0.0.9", "a", "h9") "," LINKS(
					    AT("10.0.1.1", "b",
					       "h0") "," AT("10.0.0.1", "a",
							    "h0") "," AT("10.0.0.5", "a", "h1")),
				    &read),
			 "");
	ck_assert_uint_eq(read.n_hosts, 4);
	link = topology_host_find(&read, inet_addr("10.0.0.9"));
	ck_assert_ptr_eq(topology_host_first(link), link);
	ck_assert_ptr_null(link->next);
	link = topology_host_find(&read, inet_addr("10.0.0.5"));
	ck_assert_ptr_null(link->next);
	/* Links are in the order of the file, not of the addresses. */
	link = topology_host_first(link);
	ck_assert_uint_eq(link->ip_be, inet_addr("10.0.1.1"));
	ck_assert_uint_eq(link->at.switch_index, 1);
	link = link->next;
	ck_assert_uint_eq(link->ip_be, inet_addr("10.0.0.1"));
	ck_assert_uint_eq(link->next->ip_be, inet_addr("10.0.0.5"));
	topology_free(&read);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++)
		ck_assert_str_eq(read_hosts(wrong[i].hosts, &read), wrong[i].error);
}
END_TEST

/*
 * Reads a topology of two switches, a link, a host at a:h0 and these servers. Returns its error, or
 * "".
 */
static const char *
read_servers(const char *servers, struct topology *read)
{
	static struct control_error error;
	char text[1024];
	json_t *root;

	snprintf(
		text, sizeof(text),
		"{\"switches\": [{\"name\": \"a\", \"control\": \"/a\"}, {\"name\": \"b\", \"control\": \"/b\"}], "
		"\"links\": [{\"a\": \"a:up\", \"b\": \"b:up\"}], \"servers\": [%s], "
		"\"hosts\": [{\"ip\": \"10.0.0.1\", \"switch\": \"a\", \"port\": \"h0\"}]}",
		servers);
	root = json_loads(text, JSON_REJECT_DUPLICATES, NULL);
	ck_assert_msg(root != NULL, "%s", text);
	error.message[0] = '\0';
	if (topology_read(root, "t", read, &error) == 0)
		error.message[0] = '\0';
	json_decref(root);
	return error.message;
}

START_TEST(servers_stand_behind_the_switches_each_with_a_link)
{
#define SERVER(name, at, port)                                                                     \
	"{\"name\": \"" name "\", \"control\": \"/c\", \"switch\": \"" at "\", \"port\": \"" port  \
	"\"}"
	static const struct {
		const char *servers;
		const char *error;
	} wrong[] = {
		{ SERVER("b", "a", "s0"),
		  "t: servers[0]: two switches or servers have the name \"b\"" },
		{ SERVER("s", "a", "s0") "," SERVER("s", "b", "s0"),
		  "t: servers[1]: two switches or servers have the name \"s\"" },
		{ SERVER("s", "c", "s0"), "t: servers[0]: no switch has the name \"c\"" },
		{ SERVER("s", "a", "s0") "," SERVER("t", "s", "s0"),
		  "t: servers[1]: no switch has the name \"s\"" },
		{ SERVER("s", "a", "up"), "t: servers[0]: a link has the port already: \"up\"" },
		{ SERVER("s", "a", "h0"), "t: servers[0]: a host has the port already: \"h0\"" },
		{ SERVER("s", "a", "s0") "," SERVER("t", "a", "s0"),
		  "t: servers[1]: a link has the port already: \"s0\"" },
		{ "{\"name\": \"s\", \"control\": \"/c\", \"switch\": \"a\"}",
		  "t: servers[0].port: missing" },
		{ "{\"name\": \"s\", \"control\": \"/c\", \"switch\": \"a\", \"port\": \"p\", \"ip\": \"10.0.0.2\"}",
		  "t: servers[0].ip: unknown argument" },
		{ "{\"name\": \"s\", \"control\": \"here\", \"switch\": \"a\", \"port\": \"p\"}",
		  "t: servers[0].control: " },
	};
	const struct topology_link *link;
	struct topology read;
	uint16_t index;

	ck_assert_str_eq(read_servers(SERVER("s", "b", "s0") "," SERVER("t", "a", "s0"), &read),
			 "");
	ck_assert_uint_eq(read.n_switches, 2);
	ck_assert_uint_eq(read.n_links, 1);
	ck_assert_uint_eq(read.n_servers, 2);
	index = topology_switch_find(&read, "t");
	ck_assert_uint_eq(index, 3);
	ck_assert(topology_is_server(&read, index) && !topology_is_server(&read, 1));
	ck_assert_str_eq(topology_kind(&read.switches[index]), "server");
	ck_assert_str_eq(topology_kind(&read.switches[1]), "switch");
	link = &read.links[topology_server_link(&read, index)];
	ck_assert_uint_eq(link->ends[0].switch_index, 0);
	ck_assert_str_eq(link->ends[0].port, "s0");
	ck_assert_uint_eq(link->ends[1].switch_index, index);
	ck_assert_uint_eq(topology_link_find(&read, 1, "s0"), topology_server_link(&read, 2));
	topology_free(&read);
	ck_assert_str_eq(read_servers("", &read), "");
	ck_assert_uint_eq(topology_n_peers(&read), 2);
	topology_free(&read);
	for (size_t i = 0; i < sizeof(wrong) / sizeof(wrong[0]); i++) {
		const char *found = read_servers(wrong[i].servers, &read);

		ck_assert_msg(strncmp(found, wrong[i].error, strlen(wrong[i].error)) == 0,
			      "found \"%s\", expected \"%s\"", found, wrong[i].error);
	}
}
END_TEST

Suite *
suite_manager_store(void)
{
	Suite *suite = suite_create("manager_store");
	TCase *tcase = tcase_create("store");

	tcase_add_checked_fixture(tcase, make_world, remove_world);
	tcase_set_timeout(tcase, 300);
	tcase_add_test(tcase, a_group_comes_back_as_it_was);
	tcase_add_test(tcase, a_group_that_moved_runs_and_has_to_be_made_anew);
	tcase_add_test(tcase, each_tree_of_a_job_is_kept_and_removed_by_itself);
	tcase_add_loop_test(tcase, a_job_of_many_ranks_comes_back_as_it_was, 0, 4);
	tcase_add_test(tcase, a_document_with_more_members_than_its_size_makes_no_job);
	tcase_add_test(tcase, a_job_of_a_database_without_several_trees_has_one);
	tcase_add_test(tcase, no_document_that_is_damaged_becomes_a_group);
	tcase_add_test(tcase, a_dropped_group_leaves_a_removal_for_each_switch_that_may_have_it);
	tcase_add_test(tcase, nobody_else_can_read_any_file_of_the_database);
	tcase_add_test(tcase, failed_writes_are_told_and_written_later);
	tcase_add_test(tcase, a_second_manager_and_a_file_of_another_kind_are_refused);
	tcase_add_loop_test(tcase, a_process_that_is_killed_leaves_each_job_there_or_to_be_removed,
			    0, 3);
	tcase_add_test(tcase, a_host_may_have_several_links);
	tcase_add_test(tcase, servers_stand_behind_the_switches_each_with_a_link);
	tcase_add_test(tcase, the_examples_load_and_the_schemas_know_their_keys);
	suite_add_tcase(suite, tcase);
	return suite;
}
