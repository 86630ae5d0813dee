/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The manager's metrics: the values in commands' answers that are metrics, and their names.
 * Prometheus therefore sees what faninctl shows. Main thread only.
 */
#include "manager/metrics.h"

#include "control/control.h"
#include "manager/commands.h"
#include "manager/manager.h"

#define SWITCH .labels = { { "switch", "name", 0 } }
#define SERVER .labels = { { "server", "name", 0 } }

/* Families by type. More fields may follow the text. Counters get the suffix _total. */
#define FAMILY(kind, metric, where, text, ...)                                                     \
	{                                                                                          \
		.name = "fanin_manager_" metric, .type = (kind), .help = (text), .path = (where),  \
		__VA_ARGS__                                                                        \
	}
#define COUNTER(metric, ...) FAMILY(METRICS_COUNTER, metric "_total", __VA_ARGS__)
#define GAUGE(...) FAMILY(METRICS_GAUGE, __VA_ARGS__)

const struct metrics_family manager_metrics[] = {
	GAUGE("info", "manager", "What the manager is; the value is 1.",
	      .labels = { { "name", "name", 0 }, { "version", "version", 0 } }),
	GAUGE("uptime_seconds", "stats.uptime_s", "Time since the manager started."),
	GAUGE("switch_up", "topology.switches[].state",
	      "Whether the switch answers and its jobs are known.", SWITCH, .equals = "up"),
	GAUGE("switch_trees", "topology.switches[].trees",
	      "Trees of the manager that the switch is in.", SWITCH),
	GAUGE("switch_jobs", "topology.switches[].jobs", "Jobs of the switch, others' included.",
	      SWITCH),
	GAUGE("switch_jobs_limit", "topology.switches[].max_jobs", "Jobs that the switch may have.",
	      SWITCH),
	GAUGE("switch_namesake_jobs", "topology.switches[].namesake_jobs",
	      "Jobs on the switch of another manager with the same name.", SWITCH),
	GAUGE("server_up", "topology.servers[].state",
	      "Whether the parameter server answers and its jobs are known.", SERVER,
	      .equals = "up"),
	GAUGE("server_trees", "topology.servers[].trees",
	      "Trees of the manager that have the server as their root.", SERVER),
	GAUGE("server_jobs", "topology.servers[].jobs", "Jobs of the server, others' included.",
	      SERVER),
	GAUGE("server_jobs_limit", "topology.servers[].max_jobs", "Jobs that the server may have.",
	      SERVER),
	GAUGE("server_namesake_jobs", "topology.servers[].namesake_jobs",
	      "Jobs on the server of another manager with the same name.", SERVER),
	GAUGE("link_up", "topology.links[].state", "Whether both ends of the link are up.",
	      .labels = { { "a", "a", 0 }, { "b", "b", 0 } }, .equals = "up"),
	GAUGE("jobs", "groups[].count", "Jobs by state.", .labels = { { "state", "name", 0 } }),
	GAUGE("jobs_limit", "jobs.limits.jobs", "Jobs that there may be."),
	GAUGE("members", "members[].count", "Hosts of all jobs by state.",
	      .labels = { { "state", "name", 0 } }),
	GAUGE("removals_pending", "stats.removals_pending",
	      "Jobs that are still to be removed from a switch."),
#define JOBS_COUNTER(name, text) COUNTER(#name, "stats.counters." #name, "Number of " text "."),
	MANAGER_COUNTERS(JOBS_COUNTER)
#undef JOBS_COUNTER
		COUNTER("connections", "stats.control.connections",
			"Connections of hosts and people that were accepted."),
	COUNTER("refusals", "refusals[].count", "Connections and lines that came to nothing.",
		.labels = { { "kind", "name", 0 } }),
	{ .name = NULL },
};

static void
count(json_t *counts, const char *name, json_int_t more)
{
	json_int_t before = json_integer_value(json_object_get(counts, name));

	json_object_set_new(counts, name, json_integer(before + more));
}

/*
 * Turns {"a": 1, "b": 2}, a reference that it takes, into [{"name": "a", "count": 1}, {"name": "b",
 * "count": 2}].
 */
static json_t *
listed(json_t *counts)
{
	json_t *list = json_array();
	const char *name;
	json_t *value;

	json_object_foreach(counts, name, value)
		json_array_append_new(list, json_pack("{s:s, s:O}", "name", name, "count", value));
	json_decref(counts);
	return list;
}

static json_t *
groups_by_state(const struct manager *manager)
{
	json_t *counts = json_object();
	const struct group *group;

	for (enum group_state state = GROUP_GATHERING; state <= GROUP_RING; state++)
		count(counts, group_state_name(state), 0);
	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = group_next_job(group))
		count(counts, group_state_name(group->state), 1);
	return listed(counts);
}

static json_t *
members_by_state(const struct manager *manager)
{
	json_t *counts = json_object();
	const struct group *group;

	for (enum member_state state = MEMBER_WAITING; state <= MEMBER_GONE; state++)
		count(counts, member_state_name(state), 0);
	for (group = TAILQ_FIRST(&manager->groups); group != NULL; group = group_next_job(group)) {
		for (uint16_t i = 0; i < group->n_members; i++)
			count(counts, member_state_name(group->members[i].state), 1);
	}
	return listed(counts);
}

static json_t *
refusals_by_kind(const struct manager *manager)
{
	json_t *counts = control_counters_json(manager->control);

	json_object_del(counts, "connections");
	return listed(counts);
}

json_t *
manager_metrics_values(void *user)
{
	const struct manager *manager = user;
	struct control_error error;

	return json_pack("{s:{s:s,s:s},s:o,s:o,s:{s:{s:I}},s:o,s:o,s:o}", "manager", "name",
			 manager->config->name, "version", FANIN_VERSION, "stats",
			 command_stats(user, NULL, &error), "topology",
			 command_topology(user, NULL, &error), "jobs", "limits", "jobs",
			 (json_int_t)manager->config->max_jobs, "groups", groups_by_state(manager),
			 "members", members_by_state(manager), "refusals",
			 refusals_by_kind(manager));
}
