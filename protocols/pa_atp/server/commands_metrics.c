/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The server's metrics: which value in the commands' answers each one is, and its name. So
 * Prometheus sees the same values as faninctl shows. Main thread only.
 */
#include "protocols/pa_atp/server/commands.h"

#define PORT .labels = { { "port", "name", 0 } }
/* The label "job" would collide with Prometheus' own. */
#define JOB .labels = { { "fanin_job", "id", 0 } }

/*
 * Families by type; the arguments after the text are further fields. Counters get the suffix
 * _total.
 */
#define FAMILY(kind, metric, where, text, ...)                                                     \
	{                                                                                          \
		.name = "fanin_server_" metric, .type = (kind), .help = (text), .path = (where),   \
		__VA_ARGS__                                                                        \
	}
#define COUNTER(metric, ...) FAMILY(METRICS_COUNTER, metric "_total", __VA_ARGS__)
#define GAUGE(...) FAMILY(METRICS_GAUGE, __VA_ARGS__)

#define CONTROL_METRIC(name, text)                                                                 \
	COUNTER("control_" #name, "stats.control." #name,                                          \
		"Control connections and lines: " text "."),

const struct metrics_family server_metrics[] = {
	GAUGE("info", "server", "What the server is; the value is 1.",
	      .labels = { { "name", "name", 0 }, { "version", "version", 0 } }),
	GAUGE("uptime_seconds", "stats.uptime_s", "Time since the server started."),
	COUNTER("rounds", "stats.rounds", "Looks for packets."),
	GAUGE("receive_buffer_bytes", "stats.receive_buffer_bytes",
	      "Memory for packets that have come, as the kernel gave it."),
	GAUGE("port_up", "ports.ports[].link", "Whether the interface's link is up.", PORT),
	GAUGE("port_mtu_bytes", "ports.ports[].mtu", "Longest IP packet of the interface.", PORT),
	COUNTER("port_rx_frames", "ports.ports[].rx_frames", "Packets received.", PORT),
	COUNTER("port_rx_bytes", "ports.ports[].rx_bytes", "Bytes received.", PORT),
	COUNTER("port_rx_missed", "ports.ports[].rx_missed",
		"Packets that the kernel dropped because the socket was full.", PORT),
	COUNTER("port_tx_frames", "ports.ports[].tx_frames", "Packets sent.", PORT),
	COUNTER("port_tx_bytes", "ports.ports[].tx_bytes", "Bytes sent.", PORT),
	COUNTER("port_tx_dropped", "ports.ports[].tx_dropped",
		"Packets to send that the kernel did not take.", PORT),
	GAUGE("memory_resident_bytes", "stats.memory.rss", "Resident memory."),
	GAUGE("memory_jobs_bytes", "stats.memory.jobs", "Memory of the jobs' blocks."),
	GAUGE("memory_limit_bytes", "stats.memory.limit", "Memory that the jobs may have."),
	CONTROL_COUNTERS(CONTROL_METRIC)
		COUNTER("drops", "drops.drops[].count", "Packets that were not processed.",
			.labels = { { "reason", "name", 0 } }),
	GAUGE("jobs_limit", "jobs.limits.max_jobs", "Jobs that there may be."),
	GAUGE("jobs_free", "jobs.limits.jobs_free", "Jobs that there is room for."),
	GAUGE("jobs_slots_limit", "jobs.limits.slots_per_job",
	      "Slots that one job may have, of the longest payload."),
	GAUGE("job_active", "jobs.jobs[].state", "Whether the job's switch has joined.", JOB,
	      .equals = "active"),
	GAUGE("job_size", "jobs.jobs[].size", "Ranks of the job.", JOB),
	GAUGE("job_window_packets", "jobs.jobs[].window", "Blocks that a rank may send ahead.",
	      JOB),
	GAUGE("job_slots", "jobs.jobs[].slots", "Slots of the job.", JOB),
	GAUGE("job_payload_bytes", "jobs.jobs[].payload_bytes", "Longest payload of a packet.",
	      JOB),
	GAUGE("job_memory_bytes", "jobs.jobs[].memory_bytes", "Memory of the job's blocks.", JOB),
	GAUGE("job_waiting_blocks", "jobs.jobs[].waiting",
	      "Blocks with contributions of some ranks only.", JOB),
	GAUGE("job_round_trip_seconds", "jobs.jobs[].round_trip_us",
	      "Round trip to the job's switch that is counted with.", JOB, .scale = 1e-6),
	COUNTER("job_bytes_reduced", "jobs.jobs[].bytes_reduced", "Payload that was combined.",
		JOB),
	COUNTER("job_counter", "jobs.jobs[].counters[].count",
		"What the server counts of each job; times are in nanoseconds.",
		.labels = { { "fanin_job", "id", 0 }, { "counter", "name", 1 } }),
	{ .name = NULL },
};

json_t *
server_metrics_values(void *user)
{
	const struct daemon *daemon = user;
	struct control_error error;

	return json_pack("{s:{s:s,s:s},s:o,s:o,s:o,s:o}", "server", "name", daemon->config->name,
			 "version", FANIN_VERSION, "ports", command_ports_list(user, NULL, &error),
			 "stats", command_stats(user, NULL, &error), "drops",
			 command_drops(user, NULL, &error), "jobs",
			 command_jobs_list(user, NULL, &error));
}
