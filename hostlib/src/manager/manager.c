/* SPDX-License-Identifier: BSD-3-Clause */
/* The life of a membership's connection: joining, heartbeats, reconnecting. See manager.h. */
#include "manager_internal.h"

#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <time.h>

#include "hostlib/src/base/clock.h"

#define HEARTBEAT_NS (1000 * 1000000ull)
#define SILENCE_NS (3 * HEARTBEAT_NS)
#define POLL_NS (20 * 1000000ull)
#define WAIT_NS (50 * 1000000ull)
#define RETRY_FIRST_NS (200 * 1000000ull)
#define RETRY_LAST_NS (5000 * 1000000ull)
#define HELLO_TRIES 10
#define HELLO_PAUSE_NS (50 * 1000000l)
#define LEAVE_NS (1000 * 1000000ull)

uint32_t
fanin_manager_local_ip(const struct fanin_manager *manager)
{
	struct sockaddr_in address = { 0 };
	socklen_t len = sizeof(address);

	getsockname(fanin_link_pollfd(manager->link).fd, (struct sockaddr *)&address, &len);
	return address.sin_addr.s_addr;
}

const char *
fanin_manager_address(const struct fanin_manager *manager)
{
	return manager->settings.address;
}

const char *
fanin_manager_problem(const struct fanin_manager *manager)
{
	return manager->problem;
}

const char *
fanin_manager_stranded(const struct fanin_manager *manager, uint16_t tree)
{
	return manager->stranded[tree];
}

const char *
fanin_manager_ended(const struct fanin_manager *manager)
{
	return manager->ended;
}

const struct fanin_manager_home *
fanin_manager_home(const struct fanin_manager *manager, uint16_t tree)
{
	return manager->homes[tree].ip_be == 0 ? NULL : &manager->homes[tree];
}

const struct fanin_ranks *
fanin_manager_left(const struct fanin_manager *manager)
{
	return &manager->left;
}

bool
fanin_manager_is_current(const struct fanin_manager *manager)
{
	return manager->state == FANIN_MANAGER_MEMBER;
}

void
fanin_manager_away(const struct fanin_manager *manager, struct fanin_ranks *away,
		   uint64_t *since_ns)
{
	*since_ns = manager->away_ns;
	*away = manager->lost;
	fanin_ranks_merge(away, &manager->silent);
}

uint32_t
fanin_manager_changes(const struct fanin_manager *manager)
{
	return manager->news;
}

uint32_t
fanin_manager_reconnects(const struct fanin_manager *manager)
{
	return manager->reconnects;
}

static void
link_drop(struct fanin_manager *manager)
{
	fanin_link_close(manager->link);
	manager->link = NULL;
	manager->state = FANIN_MANAGER_DOWN;
}

static int
link_begin(struct fanin_manager *manager, struct fanin_error *error)
{
	int status = fanin_link_open(&manager->settings, &manager->link, error);

	if (status != FANIN_OK)
		return status;
	manager->state = FANIN_MANAGER_GREETING;
	manager->opened_ns = fanin_now_ns(NULL);
	status = fanin_manager_say_hello(manager);
	if (status != FANIN_OK)
		fanin_error_set(error, status, "out of memory");
	return status;
}

/* ------------------------------------------------------------- blocking */

/* Sleeps until the connection has an event, for a moment at most. */
static void
link_wait(const struct fanin_manager *manager)
{
	struct pollfd fd = fanin_link_pollfd(manager->link);

	poll(&fd, 1, (int)(WAIT_NS / 1000000));
}

/*
 * Waits for one line of a kind.
 *
 * what: names that line in the text of a timeout. result: as set by fanin_manager_read. Returns
 * FANIN_OK or the status.
 */
static int
line_wait(struct fanin_manager *manager, enum fanin_manager_line wanted, const char *what,
	  json_t **result, struct fanin_error *error)
{
	const struct fanin_manager_options *options = &manager->options;

	for (;;) {
		int status = fanin_link_poll(manager->link, error);
		const char *line;

		while ((line = fanin_link_line(manager->link)) != NULL) {
			struct fanin_error refusal;
			int refused = FANIN_OK;
			enum fanin_manager_line kind = fanin_manager_read(manager, line, result,
									  &refused, &refusal);

			if (kind == FANIN_MANAGER_LINE_FAILED)
				*error = refusal;
			if (kind == FANIN_MANAGER_LINE_FAILED)
				return refused;
			if (kind == wanted)
				return FANIN_OK;
		}
		if (status != FANIN_OK)
			return status;
		if (fanin_now_ns(NULL) >= options->deadline_ns)
			return fanin_error_set(error, FANIN_ERR_JOIN_TIMEOUT,
					       "the manager %s %s within %.1f s",
					       manager->settings.address, what,
					       (double)options->timeout_ns / 1e9);
		if (options->interrupt != NULL && options->interrupt(options->interrupt_arg))
			return fanin_error_set(error, FANIN_ERR_INTERRUPTED,
					       "interrupted while waiting for the manager %s",
					       manager->settings.address);
		link_wait(manager);
	}
}

/*
 * Connects and waits for the answer to the handshake. A manager with too many new connections
 * closes, without a message, those that have not sent anything yet: connecting is then retried a
 * few times.
 */
static int
manager_handshake(struct fanin_manager *manager, struct fanin_error *error)
{
	const struct timespec pause = { .tv_nsec = HELLO_PAUSE_NS };
	json_t *none;

	for (unsigned int left = HELLO_TRIES;; left--) {
		int status = link_begin(manager, error);

		if (status != FANIN_OK)
			return status;
		status = line_wait(manager, FANIN_MANAGER_LINE_HELLO, "did not answer", &none,
				   error);
		if (status != FANIN_ERR_MANAGER || left == 1 ||
		    !fanin_link_was_closed(manager->link) ||
		    fanin_now_ns(NULL) >= manager->options.deadline_ns)
			return status;
		link_drop(manager);
		nanosleep(&pause, NULL);
	}
}

int
fanin_manager_open(const struct fanin_manager_options *options, struct fanin_manager **manager,
		   struct fanin_error *error)
{
	struct fanin_manager *created = calloc(1, sizeof(*created));
	int status;

	if (created == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	created->options = *options;
	status = fanin_manager_settings_find(options->manager, options->token, &created->settings,
					     error);
	if (status == FANIN_OK)
		status = manager_handshake(created, error);
	if (status != FANIN_OK) {
		fanin_link_close(created->link);
		free(created);
		return status;
	}
	created->state = FANIN_MANAGER_GREETED;
	*manager = created;
	return FANIN_OK;
}

int
fanin_manager_join(struct fanin_manager *manager, const struct fanin_manager_join *join,
		   struct fanin_manager_answer *answer, struct fanin_error *error)
{
	json_t *result = NULL;
	int status;

	strncpy(manager->job, join->job, sizeof(manager->job) - 1);
	manager->state = FANIN_MANAGER_ASKING;
	status = fanin_manager_say_join(manager, join);
	if (status != FANIN_OK)
		return fanin_error_set(error, status, "out of memory");
	status = line_wait(manager, FANIN_MANAGER_LINE_RESULT,
			   "has not put the job together: not all ranks have come", &result, error);
	if (status == FANIN_OK)
		status = fanin_manager_read_answer(manager, result, join->size, answer, error);
	json_decref(result);
	if (status != FANIN_OK)
		return status;
	manager->rank = answer->rank;
	manager->key = answer->key;
	manager->state = FANIN_MANAGER_MEMBER;
	manager->polled_ns = fanin_now_ns(NULL);
	manager->heartbeat_ns = manager->polled_ns;
	return FANIN_OK;
}

uint64_t
fanin_manager_key(const struct fanin_manager *manager)
{
	return manager->key;
}

void
fanin_manager_give_up(struct fanin_manager *manager)
{
	if (manager == NULL || manager->gave_up)
		return;
	manager->gave_up = true;
	manager->opened_ns = fanin_now_ns(NULL);
	if (manager->state == FANIN_MANAGER_MEMBER &&
	    fanin_manager_say(manager, "leave") == FANIN_OK)
		manager->state = FANIN_MANAGER_LEAVING;
	else
		link_drop(manager);
	manager->next_poll_ns = 0;
}

void
fanin_manager_leave(struct fanin_manager *manager)
{
	struct fanin_error ignored;
	json_t *result = NULL;

	if (manager == NULL)
		return;
	if (manager->state == FANIN_MANAGER_MEMBER) {
		manager->state = FANIN_MANAGER_LEAVING;
		manager->options.deadline_ns = fanin_now_ns(NULL) + LEAVE_NS;
		manager->options.interrupt = NULL;
		if (fanin_manager_say(manager, "leave") == FANIN_OK)
			line_wait(manager, FANIN_MANAGER_LINE_RESULT, "did not answer", &result,
				  &ignored);
		json_decref(result);
	}
	fanin_link_close(manager->link);
	free(manager);
}

/* ------------------------------------------------------- in the background */

/* Drops a connection that has failed. */
static void
lose(struct fanin_manager *manager, uint64_t now_ns, const char *words)
{
	/*
	 * Logs one line each time that the manager goes away, however often connecting is retried.
	 */
	if (manager->state >= FANIN_MANAGER_MEMBER && !manager->gave_up) {
		fanin_log_line(manager->options.log, FANIN_LOG_WARNING,
			       "%s; the job goes on, connecting again", words);
		manager->retry_after_ns = RETRY_FIRST_NS;
	}
	snprintf(manager->problem, sizeof(manager->problem), "%s", words);
	link_drop(manager);
	manager->retry_ns = now_ns + manager->retry_after_ns;
	manager->retry_after_ns *= 2;
	if (manager->retry_after_ns > RETRY_LAST_NS)
		manager->retry_after_ns = RETRY_LAST_NS;
}

/*
 * Advances the state: hello was answered, the host has its membership back, or a heartbeat was
 * answered.
 */
static int
line_done(struct fanin_manager *manager, enum fanin_manager_line kind, const json_t *result,
	  uint64_t now_ns)
{
	if (kind == FANIN_MANAGER_LINE_HELLO) {
		manager->state = FANIN_MANAGER_ASKING;
		return fanin_manager_say_reattach(manager);
	}
	if (kind == FANIN_MANAGER_LINE_RESULT && manager->state == FANIN_MANAGER_ASKING) {
		manager->state = FANIN_MANAGER_MEMBER;
		manager->heartbeat_ns = now_ns;
		manager->reconnects++;
		manager->problem[0] = '\0';
		fanin_manager_note_job(manager, result);
		fanin_log_line(manager->options.log, FANIN_LOG_INFO,
			       "connected to the manager %s again", manager->settings.address);
	}
	if (kind == FANIN_MANAGER_LINE_RESULT)
		manager->heartbeat_open = false;
	return FANIN_OK;
}

/* Works on the connection. Returns FANIN_OK, or a status with the reason to drop it. */
static int
link_work(struct fanin_manager *manager, uint64_t now_ns, struct fanin_error *error)
{
	int status = fanin_link_poll(manager->link, error);
	const char *line;
	json_t *result;

	while ((line = fanin_link_line(manager->link)) != NULL) {
		struct fanin_error refusal;
		int refused = FANIN_OK;
		enum fanin_manager_line kind = fanin_manager_read(manager, line, &result, &refused,
								  &refusal);

		if (kind == FANIN_MANAGER_LINE_FAILED)
			*error = refusal;
		else if (line_done(manager, kind, result, now_ns) != FANIN_OK)
			refused = fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
		json_decref(result);
		if (refused != FANIN_OK)
			return refused;
	}
	return status;
}

/* Sends a heartbeat every second and expects an answer to each. */
static int
heartbeat(struct fanin_manager *manager, uint64_t now_ns, struct fanin_error *error)
{
	uint64_t since_ns = manager->state == FANIN_MANAGER_MEMBER ? manager->heartbeat_ns
								   : manager->opened_ns;
	bool open = manager->state != FANIN_MANAGER_MEMBER || manager->heartbeat_open;

	if (open && now_ns - since_ns >= SILENCE_NS)
		return fanin_error_set(error, FANIN_ERR_MANAGER,
				       "the manager %s has not answered for %.1f s",
				       manager->settings.address, (double)SILENCE_NS / 1e9);
	if (open || now_ns - since_ns < HEARTBEAT_NS)
		return FANIN_OK;
	manager->heartbeat_open = true;
	manager->heartbeat_ns = now_ns;
	if (fanin_manager_say(manager, "heartbeat") != FANIN_OK)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	return FANIN_OK;
}

void
fanin_manager_poll(struct fanin_manager *manager)
{
	uint64_t now_ns = fanin_now_ns(NULL);
	struct fanin_error error;
	int status;

	if (now_ns < manager->next_poll_ns || (manager->gave_up && manager->link == NULL))
		return;
	/* A caller that was away has not read the manager's lines meanwhile. */
	if (now_ns - manager->polled_ns > SILENCE_NS / 2 && manager->heartbeat_open)
		manager->heartbeat_ns = now_ns;
	manager->polled_ns = now_ns;
	manager->next_poll_ns = now_ns + POLL_NS;
	if (manager->link == NULL && now_ns < manager->retry_ns)
		return;
	if (manager->link == NULL) {
		manager->heartbeat_open = false;
		status = link_begin(manager, &error);
	} else {
		status = link_work(manager, now_ns, &error);
		if (status == FANIN_OK)
			status = heartbeat(manager, now_ns, &error);
	}
	if (status != FANIN_OK)
		lose(manager, now_ns, error.text);
}
