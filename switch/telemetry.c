/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * See telemetry.h. DPDK passes no argument of ours to its callbacks, so the meeting place is
 * static.
 */
#include <errno.h>
#include <math.h>
#include <pthread.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_telemetry.h>

#include "pipeline/base/dpdk_names.h"
#include "switch/commands.h"
#include "switch/telemetry.h"

#define ANSWER_SECONDS 2

/*
 * Members of the control commands' answers that are left out: telemetry has only integers, and
 * busy_us has the same information as busy_share; the others have commands of their own.
 */
static const char *const left_out[] = { "busy_share", "workers", "drops" };

static struct {
	pthread_mutex_t lock; /* guards all following members */
	pthread_cond_t answered_or_closed;
	bool open;
	int fd;
	uint64_t asked;    /* number of requests so far */
	uint64_t answered; /* number of requests when `values` was made */
	json_t *values;
} meeting = { .lock = PTHREAD_MUTEX_INITIALIZER, .fd = -1 };

/*
 * Waits until the main thread has made values after this call. The lock is held. Returns false if
 * that takes too long or telemetry is closed.
 */
static bool
ask_main_thread(void)
{
	const uint64_t number = ++meeting.asked;
	struct timespec deadline;

	clock_gettime(CLOCK_MONOTONIC, &deadline);
	deadline.tv_sec += ANSWER_SECONDS;
	if (!meeting.open || eventfd_write(meeting.fd, 1) != 0)
		return false;
	while (meeting.open && meeting.answered < number) {
		if (pthread_cond_timedwait(&meeting.answered_or_closed, &meeting.lock, &deadline) !=
		    0)
			return false;
	}
	return meeting.open;
}

static int add_value(struct rte_tel_data *dict, const char *key, const json_t *value);

static bool
is_left_out(const char *key)
{
	for (size_t i = 0; i < RTE_DIM(left_out); i++) {
		if (strcmp(key, left_out[i]) == 0)
			return true;
	}
	return false;
}

/*
 * Fills a dict with an object's members. Telemetry does not allow names like "2-3": "2_3" is used.
 */
static int
add_members(struct rte_tel_data *dict, const json_t *object) /* NOLINT(misc-no-recursion) */
{
	const json_t *value;
	const char *key;
	char name[64];
	int ret = 0;

	json_object_foreach((json_t *)(uintptr_t)object, key, value) {
		if (is_left_out(key))
			continue;
		snprintf(name, sizeof(name), "%s", key);
		for (char *c = strchr(name, '-'); c != NULL; c = strchr(c, '-'))
			*c = '_';
		ret = add_value(dict, name, value);
		if (ret != 0)
			break;
	}
	return ret;
}

/* Adds a container, which the dict then owns; frees it on failure. */
static int
add_container(struct rte_tel_data *dict, const char *name, struct rte_tel_data *container, int ret)
{
	if (ret == 0)
		ret = rte_tel_data_add_dict_container(dict, name, container, 0);
	if (ret != 0)
		rte_tel_data_free(container);
	return ret;
}

static int
add_object(struct rte_tel_data *dict, const char *name,
	   const json_t *object) /* NOLINT(misc-no-recursion)
				  */
{
	struct rte_tel_data *container = rte_tel_data_alloc();

	if (container == NULL)
		return -ENOMEM;
	rte_tel_data_start_dict(container);
	return add_container(dict, name, container, add_members(container, object));
}

/* Adds an array of integers as such, and an array of objects as a dict by their indexes. */
static int
add_array(struct rte_tel_data *dict, const char *name,
	  const json_t *array) /* NOLINT(misc-no-recursion)
				*/
{
	struct rte_tel_data *container = rte_tel_data_alloc();
	bool integers = !json_is_object(json_array_get(array, 0));
	char number[24];
	const json_t *entry;
	int ret;
	size_t i;

	if (container == NULL)
		return -ENOMEM;
	ret = integers ? rte_tel_data_start_array(container, RTE_TEL_UINT_VAL)
		       : rte_tel_data_start_dict(container);
	json_array_foreach(array, i, entry) {
		if (ret != 0)
			break;
		snprintf(number, sizeof(number), "%zu", i);
		ret = integers ? rte_tel_data_add_array_uint(container,
							     (uint64_t)json_integer_value(entry))
			       : add_value(container, number, entry);
	}
	return add_container(dict, name, container, ret);
}

static int
add_value(struct rte_tel_data *dict, const char *key,
	  const json_t *value) /* NOLINT(misc-no-recursion)
				*/
{
	char text[RTE_TEL_MAX_STRING_LEN];

	switch (json_typeof(value)) {
	case JSON_OBJECT:
		return add_object(dict, key, value);
	case JSON_ARRAY:
		return add_array(dict, key, value);
	case JSON_INTEGER:
	case JSON_REAL:
		return rte_tel_data_add_dict_uint(dict, key,
						  (uint64_t)llround(json_number_value(value)));
	case JSON_TRUE:
	case JSON_FALSE:
		return rte_tel_data_add_dict_uint(dict, key, json_is_true(value));
	case JSON_STRING:
		snprintf(text, sizeof(text), "%s", json_string_value(value));
		return rte_tel_data_add_dict_string(dict, key, text);
	case JSON_NULL:
		break;
	}
	return 0;
}

/* Writes the name of a list's entry. */
static void
name_of(const json_t *entry, const char *key, char *name, size_t size)
{
	const json_t *value = json_object_get(entry, key);

	if (json_is_string(value))
		snprintf(name, size, "%s", json_string_value(value));
	else
		snprintf(name, size, "%" JSON_INTEGER_FORMAT, json_integer_value(value));
}

/* Answers with the names of a list's entries; with a parameter, with the entry of that name. */
static int
give_list(const json_t *list, const char *key, const char *parameter, struct rte_tel_data *data)
{
	char name[RTE_TEL_MAX_STRING_LEN];
	const json_t *entry;
	int ret = 0;
	size_t i;

	if (parameter == NULL)
		rte_tel_data_start_array(data, RTE_TEL_STRING_VAL);
	json_array_foreach(list, i, entry) {
		name_of(entry, key, name, sizeof(name));
		if (parameter == NULL) {
			ret = rte_tel_data_add_array_string(data, name);
			if (ret != 0)
				break;
		} else if (strcmp(parameter, name) == 0) {
			rte_tel_data_start_dict(data);
			return add_members(data, entry);
		}
	}
	return parameter == NULL ? ret : -ENOENT;
}

static int
give_drops(const json_t *drops, struct rte_tel_data *data)
{
	const json_t *drop;
	int ret = 0;
	size_t i;

	rte_tel_data_start_dict(data);
	json_array_foreach(drops, i, drop) {
		if (ret == 0)
			ret = add_value(data, json_string_value(json_object_get(drop, "name")),
					json_object_get(drop, "count"));
	}
	return ret;
}

/* Runs in a telemetry thread. */
static int
handle_command(const char *command, const char *parameter, struct rte_tel_data *data)
{
	json_t *ports, *jobs, *drops, *stats, *workers;
	int ret = -EBUSY;

	if (parameter != NULL && parameter[0] == '\0')
		parameter = NULL;
	pthread_mutex_lock(&meeting.lock);
	if (ask_main_thread() &&
	    json_unpack(meeting.values, "{s:{s:o},s:{s:o},s:{s:o},s:o,s:{s:o}}", "ports", "ports",
			&ports, "jobs", "jobs", &jobs, "drops", "drops", &drops, "stats", &stats,
			"stats", "workers", &workers) == 0) {
		if (strcmp(command, "/fanin/ports") == 0)
			ret = give_list(ports, "name", parameter, data);
		else if (strcmp(command, "/fanin/jobs") == 0)
			ret = give_list(jobs, "id", parameter, data);
		else if (strcmp(command, "/fanin/workers") == 0)
			ret = give_list(workers, "lcore", parameter, data);
		else if (strcmp(command, "/fanin/drops") == 0)
			ret = give_drops(drops, data);
		else if (rte_tel_data_start_dict(data) == 0)
			ret = add_members(data, stats);
	}
	pthread_mutex_unlock(&meeting.lock);
	return ret;
}

int
telemetry_open(void)
{
	static const char *const commands_help[][2] = {
		{ "/fanin/ports", "Names of the ports. Parameter: name, for its counters" },
		{ "/fanin/jobs", "Numbers of the jobs. Parameter: number, for its counters" },
		{ "/fanin/workers", "Lcores of the workers. Parameter: lcore, for its counters" },
		{ "/fanin/drops", "Packets not processed, by reason. No parameters" },
		{ "/fanin/stats", "Switching, memory and faults. No parameters" },
	};
	pthread_condattr_t attributes;
	int ret = 0;

	meeting.fd = eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK);
	if (meeting.fd < 0)
		return -errno;
	pthread_condattr_init(&attributes);
	pthread_condattr_setclock(&attributes, CLOCK_MONOTONIC);
	pthread_cond_init(&meeting.answered_or_closed, &attributes);
	pthread_condattr_destroy(&attributes);
	pthread_mutex_lock(&meeting.lock);
	meeting.open = true;
	pthread_mutex_unlock(&meeting.lock);
	for (size_t i = 0; i < RTE_DIM(commands_help) && ret == 0; i++)
		ret = rte_telemetry_register_cmd(commands_help[i][0], handle_command,
						 commands_help[i][1]);
	if (ret == 0)
		return meeting.fd;
	telemetry_close();
	return ret;
}

void
telemetry_serve(void *daemon)
{
	eventfd_t count;
	uint64_t asked;
	json_t *values;

	if (meeting.fd < 0 || eventfd_read(meeting.fd, &count) != 0)
		return;
	pthread_mutex_lock(&meeting.lock);
	asked = meeting.asked;
	pthread_mutex_unlock(&meeting.lock);
	values = switch_metrics_values(daemon);
	pthread_mutex_lock(&meeting.lock);
	json_decref(meeting.values);
	meeting.values = values;
	meeting.answered = asked;
	pthread_cond_broadcast(&meeting.answered_or_closed);
	pthread_mutex_unlock(&meeting.lock);
}

void
telemetry_close(void)
{
	if (meeting.fd < 0)
		return;
	pthread_mutex_lock(&meeting.lock);
	meeting.open = false;
	pthread_cond_broadcast(&meeting.answered_or_closed);
	close(meeting.fd);
	meeting.fd = -1;
	json_decref(meeting.values);
	meeting.values = NULL;
	pthread_mutex_unlock(&meeting.lock);
}
