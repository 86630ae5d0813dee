/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager's lifetime: opens what it needs, resumes the jobs in the database, and runs its poll
 * loop. See manager.h.
 */
#include "manager/manager.h"

#include <assert.h>
#include <errno.h>
#include <malloc.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <unistd.h>

#include "control/clock.h"
#include "control/files.h"
#include "control/log.h"
#include "manager/commands.h"
#include "manager/discover.h"
#include "manager/faults.h"
#include "manager/host.h"
#include "manager/install.h"
#include "manager/metrics.h"
#include "manager/move.h"
#include "manager/reconcile.h"
#include "manager/trees.h"
#include "manager/waits.h"

static_assert(CONTROL_MESSAGE_LEN >= METRICS_ERROR_LEN, "buffers");

#define LINE_MAX_BYTES 65536 /* of a request */
#define EVENTS_PER_ROUND 64
#define OTHER_FILES 64  /* open besides connections to clients and switches */
#define METRICS_MS 1000 /* at most, between checks for metrics clients that hang */
#define TRIM_MS 1000    /* between the end of a job and giving memory back */
#define TOPOLOGY_NOTE "topology"
#define NAME_NOTE "name"

static const struct control_command commands[] = {
	{ .name = "join", .run_for = host_join },
	{ .name = "reattach", .run_for = host_reattach },
	{ .name = "heartbeat", .run_for = host_heartbeat },
	{ .name = "leave", .run_for = host_leave },
	{ .name = "version", .run = command_version },
	{ .name = "topology", .run = command_topology },
	{ .name = "jobs", .run = command_jobs },
	{ .name = "jobs.destroy", .run = command_jobs_destroy },
	{ .name = "trees", .run = command_trees },
	{ .name = "stats", .run = command_stats },
	{ .name = "waits", .run_for = command_waits },
	{ 0 },
};

void
manager_forget_group(struct manager *manager, struct group *group, const char *reason)
{
	for (uint16_t i = 0; i < group->n_members; i++) {
		struct group_member *member = &group->members[i];
		struct control_error error;

		if (member->client == NULL)
			continue;
		control_client_set_data(member->client, NULL);
		if (reason == NULL)
			continue;
		if (member->state == MEMBER_WAITING) {
			control_fail(&error, "not_found", "job \"%s\" is gone: %s", group->name,
				     reason);
			control_refuse(member->client, member->request_id, &error);
		} else {
			control_notify(member->client,
				       json_pack("{s:s, s:s, s:s}", "event", "job_destroyed", "job",
						 group->name, "reason", reason));
		}
	}
	if (group->tree == 0) {
		trees_forget(manager, group);
		manager->n_jobs--;
	}
	discover_end(manager, group);
	TAILQ_REMOVE(&manager->groups, group, entry);
	group_free(group);
	if (manager->trim_ms == 0)
		manager->trim_ms = clock_ms() + TRIM_MS;
}

/* Context of reading the database. */
struct taken {
	struct manager *manager;
	json_t *damaged; /* entries by name */
};

/*
 * Resumes a group of the database. end_unfinished removes those whose installation was not
 * finished: no host waits for them any more.
 */
static void
take_group_up(void *user, const char *name, const json_t *document)
{
	const struct taken *taken = user;
	struct manager *manager = taken->manager;
	struct group *group = group_from_document(document, &manager->config->topology);
	char key[GROUP_KEY_LEN];

	if (group == NULL || strcmp(group_key_text(group, key), name) != 0) {
		group_free(group);
		json_object_set_new_nocheck(taken->damaged, name,
					    document == NULL ? json_null()
							     : json_deep_copy(document));
		return;
	}
	TAILQ_INSERT_TAIL(&manager->groups, group, entry);
	manager->n_jobs += group->tree == 0;
	if (group->id > manager->last_id)
		manager->last_id = group->id;
	if (group->tree == 0)
		group->grace_ends_ms = manager->start_ms + (uint64_t)manager->config->grace_ms;
}

static void
take_removal_up(void *user, const char *switch_name, uint32_t job)
{
	const struct taken *taken = user;
	struct manager *manager = taken->manager;

	if (topology_switch_find(&manager->config->topology, switch_name) == TOPOLOGY_NO_SWITCH)
		log_warning(
			"job %u is to be removed from switch %s, which the topology does not have",
			job, switch_name);
	removal_add(manager, switch_name, job);
}

/*
 * Reports and deletes a damaged entry: its job is removed from the switches that it names. On other
 * switches the job is found by the manager's mark. If an undamaged job has the same number, the
 * entry does not tell where its own job is.
 */
static void
drop_damaged(struct manager *manager, const char *name, const json_t *document)
{
	struct group *left = group_salvage(document);
	const struct group *group;

	if (left == NULL)
		return; /* the next start reports it */
	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->id == left->id)
			left->n_nodes = 0;
	}
	log_error(
		"database: the entry of job \"%s\" is damaged: it is deleted, and its job is removed from the %u switches "
		"that it names, and from others where it is found",
		name, left->n_nodes);
	if (store_drop_damaged(manager->store, name, left) != 0)
		log_error("database: %s", store_error(manager->store));
	for (uint16_t i = 0; i < left->n_nodes; i++)
		removal_add(manager, left->nodes[i].switch_name, left->id);
	group_free(left);
}

static void
end_unfinished(struct manager *manager)
{
	struct group *group, *next;

	trees_take_up(manager);
	/* The first group is a first tree: groups are in the order of their keys. */
	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = next) {
		next = group_next_job(group);
		if (!trees_are_whole(manager, group))
			remove_group(manager, group, NULL);
	}
}

/*
 * Checks the manager's name, which marks its jobs on the switches and must not change while there
 * are any. Warns of a changed topology.
 */
static int
check_notes(struct manager *manager, char *error)
{
	const struct manager_config *config = manager->config;
	char name[MANAGER_NAME_LEN];
	char hash[TOPOLOGY_HASH_LEN];
	char id[STORE_ID_LEN];

	if (store_get_note(manager->store, NAME_NOTE, name, sizeof(name)) != 0 ||
	    store_get_note(manager->store, TOPOLOGY_NOTE, hash, sizeof(hash)) != 0)
		goto failed;
	if (name[0] != '\0' && strcmp(name, config->name) != 0) {
		snprintf(
			error, CONTROL_MESSAGE_LEN,
			"database %.200s: found that of the manager \"%s\", expected \"%s\": use its name or another file",
			config->database, name, config->name);
		return -EINVAL;
	}
	if (hash[0] != '\0' && strcmp(hash, config->topology.hash) != 0)
		log_warning("the topology has changed since the last start");
	if (store_put_note(manager->store, NAME_NOTE, config->name) == 0 &&
	    store_put_note(manager->store, TOPOLOGY_NOTE, config->topology.hash) == 0 &&
	    store_get_id(manager->store, id) == 0) {
		snprintf(manager->owner, sizeof(manager->owner), "%s%c%s", config->name,
			 OWNER_SEPARATOR, id);
		return 0;
	}

failed:
	snprintf(error, CONTROL_MESSAGE_LEN, "database: %.400s", store_error(manager->store));
	return -EIO;
}

/*
 * Marks nodes with a pending removal as missing: their groups were about to move, and their jobs
 * have to be created again.
 */
static void
miss_what_goes(struct manager *manager)
{
	struct group *group;

	TAILQ_FOREACH(group, &manager->groups, entry) {
		for (uint16_t i = 0; i < group->n_nodes; i++) {
			if (removal_find(manager, group->nodes[i].switch_name, group->id) != NULL)
				group->nodes[i].state = NODE_MISSING;
		}
	}
}

static int
take_up(struct manager *manager, char *error)
{
	struct taken taken = { manager, json_object() };
	const struct store_reader reader = { &taken, take_group_up, take_removal_up };
	int ret = check_notes(manager, error);
	const json_t *document;
	const char *name;

	if (ret == 0 && store_load(manager->store, &reader) != 0) {
		snprintf(error, CONTROL_MESSAGE_LEN, "database: %.400s",
			 store_error(manager->store));
		ret = -EIO;
	}
	if (ret == 0) {
		/* Entries can't be deleted while the table is read. */
		json_object_foreach(taken.damaged, name, document)
			drop_damaged(manager, name, document);
	}
	json_decref(taken.damaged);
	if (ret != 0)
		return ret;
	end_unfinished(manager);
	miss_what_goes(manager);
	if (manager->n_jobs > 0)
		log_info("%u jobs are resumed; their hosts have %" JSON_INTEGER_FORMAT
			 " ms to come back",
			 manager->n_jobs, (json_int_t)manager->config->grace_ms);
	return 0;
}

static int
open_peers(struct manager *manager, char *error)
{
	const struct topology *topology = &manager->config->topology;

	manager->events = (struct peer_events){ manager, .ready = reconcile_ready,
						.lost = reconcile_lost };
	manager->peers = calloc(topology_n_peers(topology), sizeof(*manager->peers));
	if (manager->peers == NULL) {
		snprintf(error, CONTROL_MESSAGE_LEN, "out of memory");
		return -ENOMEM;
	}
	for (uint16_t i = 0; i < topology_n_peers(topology); i++) {
		struct peer *peer = &manager->peers[i];
		int ret = peer_begin(peer, &topology->switches[i], i, &manager->events,
				     manager->epoll_fd, error);

		if (ret != 0)
			return ret;
		peer->dead_after_ms = (uint64_t)manager->config->dead_after_ms;
		peer->retry_after_ms = (uint64_t)manager->config->heartbeat_ms;
	}
	return 0;
}

static int
open_metrics(struct manager *manager, char *error)
{
	struct epoll_event event = { .events = EPOLLIN };
	int ret = metrics_server_open(manager->config->metrics_listen, manager_metrics,
				      manager_metrics_values, manager, &manager->metrics, error);

	if (ret != 0 || manager->metrics == NULL)
		return ret;
	event.data.fd = metrics_server_fd(manager->metrics);
	if (epoll_ctl(manager->epoll_fd, EPOLL_CTL_ADD, event.data.fd, &event) == 0)
		return 0;
	ret = -errno;
	snprintf(error, CONTROL_MESSAGE_LEN, "metrics: epoll: %s", strerror(-ret));
	return ret;
}

/*
 * Returns the number of connections to serve: as configured, but so that files for the switches and
 * the database remain.
 */
static unsigned int
connections_allowed(const struct manager_config *config)
{
	const unsigned int wanted = (unsigned int)config->max_connections;
	const unsigned int others = topology_n_peers(&config->topology) + OTHER_FILES;
	const unsigned int files = files_allow(wanted + others);

	if (files >= wanted + others)
		return wanted;
	/* At least 4 connections are served in any case. */
	const unsigned int left = files < others + 4 ? 4 : files - others;

	log_warning(
		"limits.connections is %u, but only %u files may be open (the hard limit, ulimit -Hn): %u connections are served at a time",
		wanted, files, left);
	return left;
}

int
manager_open(const struct manager_config *config, struct manager **manager, char *error)
{
	struct manager *opened = calloc(1, sizeof(*opened));
	const struct control_options options = {
		.service = "manager",
		.name = config->name,
		.commands = commands,
		.user = opened,
		.closed = host_closed,
		.path = config->socket,
		.tcp = config->tcp,
		.answers_hello = true,
		.packet_version = FANIN_WIRE_VERSION,
		.max_clients = connections_allowed(config),
		.line_max = LINE_MAX_BYTES,
	};
	int ret;

	if (opened == NULL) {
		snprintf(error, CONTROL_MESSAGE_LEN, "out of memory");
		return -ENOMEM;
	}
	opened->config = config;
	opened->start_ms = clock_ms();
	opened->moves_from_ms = opened->start_ms + (uint64_t)config->dead_after_ms;
	TAILQ_INIT(&opened->groups);
	TAILQ_INIT(&opened->removals);
	TAILQ_INIT(&opened->waits);
	TAILQ_INIT(&opened->searches);
	opened->epoll_fd = epoll_create1(EPOLL_CLOEXEC);
	ret = opened->epoll_fd < 0 ? -errno : 0;
	if (ret != 0)
		snprintf(error, CONTROL_MESSAGE_LEN, "epoll: %s", strerror(-ret));
	if (ret == 0)
		ret = store_open(config->database, &opened->store, error);
	if (ret == 0)
		ret = open_peers(opened, error);
	if (ret == 0 && (ret = faults_begin(opened)) != 0)
		snprintf(error, CONTROL_MESSAGE_LEN, "out of memory");
	if (ret == 0)
		ret = take_up(opened, error);
	if (ret == 0)
		ret = control_open(&options, &opened->control, error);
	if (ret == 0)
		ret = open_metrics(opened, error);
	if (ret != 0) {
		manager_close(opened);
		return ret;
	}
	*manager = opened;
	return 0;
}

/*
 * Gives the memory of removed jobs back to the system, for many jobs at a time. Returns when to be
 * called next.
 */
static uint64_t
trim_tick(struct manager *manager, uint64_t now_ms)
{
	if (manager->trim_ms == 0)
		return UINT64_MAX;
	if (now_ms >= manager->trim_ms) {
		manager->trim_ms = 0;
		malloc_trim(0);
		return UINT64_MAX;
	}
	return manager->trim_ms;
}

/* Carries out the work that is due. Returns when the next work is due. */
static uint64_t
go_on(struct manager *manager)
{
	uint64_t now = clock_ms();
	uint64_t wake_ms = store_retry(manager->store, now);
	const struct group *group;
	uint64_t search_ms, trim_ms;

	for (uint16_t i = 0; i < topology_n_peers(&manager->config->topology); i++) {
		struct peer *peer = &manager->peers[i];
		uint64_t due_ms;

		/*
		 * Answers that have come may make the next ping due; its request has to go out, and
		 * may be answered at once.
		 */
		peer_serve(peer, now);
		reconcile_tick(manager, peer, now);
		due_ms = peer_serve(peer, now);
		if (due_ms < wake_ms)
			wake_ms = due_ms;
		due_ms = reconcile_due(peer);
		if (due_ms < wake_ms)
			wake_ms = due_ms;
	}
	search_ms = discover_tick(manager, now);
	if (search_ms < wake_ms)
		wake_ms = search_ms;
	trim_ms = trim_tick(manager, now);
	if (trim_ms < wake_ms)
		wake_ms = trim_ms;
	host_end_grace(manager, now);
	host_tell_changes(manager);
	if (!manager->moves_begun && now >= manager->moves_from_ms) {
		manager->moves_begun = true;
		moves_go_on(manager, "a switch did not come back");
	}
	moves_end_jobs(manager);
	if (!manager->moves_begun && manager->moves_from_ms < wake_ms)
		wake_ms = manager->moves_from_ms;
	TAILQ_FOREACH(group, &manager->groups, entry) {
		if (group->grace_ends_ms != 0 && group->grace_ends_ms < wake_ms)
			wake_ms = group->grace_ends_ms;
	}
	return wake_ms;
}

int
manager_serve(struct manager *manager, int wake_fd)
{
	struct epoll_event event = { .events = EPOLLIN, .data.fd = wake_fd };
	struct epoll_event events[EVENTS_PER_ROUND];
	bool more = false;
	int ret;

	if (epoll_ctl(manager->epoll_fd, EPOLL_CTL_ADD, wake_fd, &event) != 0)
		return -errno;
	for (;;) {
		uint64_t wake_ms = go_on(manager);
		uint64_t now = clock_ms();
		uint64_t left_ms = wake_ms <= now ? 0 : wake_ms - now;
		int n;

		if (more)
			left_ms = 0;
		if (manager->metrics != NULL && left_ms > METRICS_MS)
			left_ms = METRICS_MS;
		ret = control_serve(manager->control, manager->epoll_fd,
				    left_ms > INT32_MAX ? -1 : (int)left_ms);
		if (ret < 0)
			return ret;
		more = metrics_server_serve(manager->metrics);
		/*
		 * All peers are served, with or without events; only the caller's descriptor is
		 * looked for.
		 */
		n = epoll_wait(manager->epoll_fd, events, EVENTS_PER_ROUND, 0);
		for (int i = 0; i < n; i++) {
			if (events[i].data.fd == wake_fd)
				return 0;
		}
	}
}

void
manager_close(struct manager *manager)
{
	struct removal *removal;
	struct group *group;

	if (manager == NULL)
		return;
	/* Groups go first, so that the end of a connection does not count as a lost host. */
	while ((group = TAILQ_FIRST(&manager->groups)) != NULL) {
		manager_forget_group(manager, group, NULL);
	}
	metrics_server_close(manager->metrics);
	control_close(manager->control);
	for (uint16_t i = 0;
	     manager->peers != NULL && i < topology_n_peers(&manager->config->topology); i++)
		peer_end(&manager->peers[i]);
	waits_end(manager);
	faults_end(manager);
	while ((removal = TAILQ_FIRST(&manager->removals)) != NULL) {
		TAILQ_REMOVE(&manager->removals, removal, entry);
		free(removal);
	}
	store_close(manager->store);
	if (manager->epoll_fd >= 0)
		close(manager->epoll_fd);
	free(manager->peers);
	free(manager);
}
