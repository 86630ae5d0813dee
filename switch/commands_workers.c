/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Workers in the answer to the control command "stats": their work, and how the kernel has
 * scheduled their threads. Main thread.
 */
#include <rte_cycles.h>

#include "control/schedstat.h"
#include "switch/commands.h"

/* Returns a worker's counters. */
static json_t *
counters_json(const struct counters *counters, double uptime)
{
	const double busy_s = (double)counters->busy_cycles / (double)rte_get_tsc_hz();

	return json_pack(
		"{s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:f,s:f,s:f,s:o,s:I,s:o,s:I,s:I,s:I}",
		"bursts", (json_int_t)counters->bursts, "empty_polls",
		(json_int_t)counters->empty_polls, "packets", (json_int_t)counters->packets,
		"yields", (json_int_t)counters->yields, "sleeps", (json_int_t)counters->sleeps,
		"wakes", (json_int_t)counters->wakes, "long_rounds",
		(json_int_t)counters->long_rounds, "handed_over", (json_int_t)counters->handed_over,
		"retries", (json_int_t)counters->retries, "retry_wait_us",
		(double)counters->retry_wait_ns / 1e3, "busy_us", busy_s * 1e6, "busy_share",
		uptime > 0 ? busy_s / uptime : 0, "queue_lengths",
		json_histogram(counters->queue_lengths), "queue_sum",
		(json_int_t)counters->queue_sum, "input_occupancy",
		json_histogram(counters->input_occupancy), "input_sum",
		(json_int_t)counters->input_sum, "timers", (json_int_t)counters->timers,
		"timers_early", (json_int_t)counters->timers_early);
}

/* Adds the kernel's times of a worker's thread, if the kernel counts them. */
static void
add_thread(json_t *entry, pid_t thread)
{
	struct schedstat stat;

	if (thread == 0 || schedstat_read(thread, &stat) != 0)
		return;
	json_object_set_new(entry, "cpu_us", json_real((double)stat.run_ns / 1e3));
	json_object_set_new(entry, "run_queue_us", json_real((double)stat.wait_ns / 1e3));
	json_object_set_new(entry, "slices", json_integer((json_int_t)stat.slices));
}

json_t *
command_list_workers(const struct pipeline *pipeline, double uptime)
{
	json_t *list = json_array();

	for (uint16_t i = 0; i < pipeline->n_workers; i++) {
		json_t *entry =
			json_pack("{s:i,s:i,s:f}", "lcore", pipeline->lcores[i], "cluster",
				  i / pipeline->cluster_size, "longest_round_us",
				  (double)pipeline_worker_longest_round_ns(pipeline, i) / 1e3);

		json_object_update_new(entry, counters_json(pipeline_worker_counters(pipeline, i),
							    uptime));
		add_thread(entry, pipeline_worker_thread(pipeline, i));
		json_array_append_new(list, entry);
	}
	return list;
}
