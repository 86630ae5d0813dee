/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The switch's metrics: the values in commands' answers that are metrics, and their names.
 * Prometheus therefore sees the same values as faninctl shows. Main thread only.
 */
#include <rte_version.h>

#include "handlers/handler.h"
#include "switch/commands.h"
#include "switch/config/config.h"

#define PORT .labels = { { "port", "name", 0 } }
#define TROUBLE .labels = { { "port", "name", 0 }, { "trouble", "name", 1 } }
#define WORKER .labels = { { "worker", "lcore", 0 } }
/* Prometheus uses the label "job" itself, for the configuration that a sample is from. */
#define JOB .labels = { { "fanin_job", "id", 0 } }
#define VALUE .labels = { { "fanin_job", "id", 0 }, { "value", "name", 1 } }
#define NEXT_HOP .labels = { { "port", "port", 0 }, { "ip", "ip", 0 } }
#define NANOSECONDS .scale = 1e-9
#define MICROSECONDS .scale = 1e-6

/* Families by type. More fields may follow the text. Counters get the suffix _total. */
#define FAMILY(kind, metric, where, text, ...)                                                     \
	{                                                                                          \
		.name = "fanin_" metric, .type = (kind), .help = (text), .path = (where),          \
		__VA_ARGS__                                                                        \
	}
#define COUNTER(metric, ...) FAMILY(METRICS_COUNTER, metric "_total", __VA_ARGS__)
#define GAUGE(...) FAMILY(METRICS_GAUGE, __VA_ARGS__)
#define HISTOGRAM(...) FAMILY(METRICS_HISTOGRAM, __VA_ARGS__)

/* Counters of control connections, by outcome. */
#define CONTROL_METRIC(name, text)                                                                 \
	COUNTER("control_" #name, "stats.control." #name,                                          \
		"Control connections and lines: " text "."),

/* Counters that all handlers have, for each job. */
#define JOB_COUNTER(field, text) COUNTER("job_" #field, "jobs.jobs[].stats." #field, text, JOB),

const struct metrics_family switch_metrics[] = {
	GAUGE("switch_info", "switch", "What the switch is; the value is 1.",
	      .labels = { { "name", "name", 0 },
			  { "version", "version", 0 },
			  { "dpdk", "dpdk", 0 },
			  { "isa", "isa", 0 } }),
	GAUGE("uptime_seconds", "stats.uptime_s", "Time since the switch started."),
	GAUGE("port_up", "ports.ports[].link", "Whether the port's link is up.", PORT),
	GAUGE("port_trouble", "ports.ports[].troubles[].now",
	      "Whether the port has this trouble now, which the log and faninctl ports describe.",
	      TROUBLE),
	COUNTER("port_troubles", "ports.ports[].troubles[].count",
		"Times that the port had this trouble, also if it was mended at once.", TROUBLE),
	GAUGE("port_mtu_bytes", "ports.ports[].mtu", "Longest IP packet of the port.", PORT),
	GAUGE("port_queues", "ports.ports[].queues", "Receive queues of the port.", PORT),
	GAUGE("port_routed", "ports.ports[].routed", "Whether the port leads to another switch.",
	      PORT),
	COUNTER("port_rx_frames", "ports.ports[].rx_frames", "Frames received.", PORT),
	COUNTER("port_rx_bytes", "ports.ports[].rx_bytes", "Bytes received.", PORT),
	COUNTER("port_rx_missed", "ports.ports[].rx_missed",
		"Frames that the device or its socket dropped because the worker was too slow.",
		PORT),
	COUNTER("port_rx_errors", "ports.ports[].rx_errors",
		"Frames received that are longer than the port takes, or damaged.", PORT),
	COUNTER("port_rx_refused", "ports.ports[].rx_refused",
		"Frames dropped because a packet socket's header can't say what is left to be done on them, such as super-frames of tunnels.",
		PORT),
	COUNTER("port_tx_frames", "ports.ports[].tx_frames", "Frames sent.", PORT),
	COUNTER("port_tx_bytes", "ports.ports[].tx_bytes", "Bytes sent.", PORT),
	COUNTER("port_tx_dropped", "ports.ports[].tx_dropped",
		"Frames to send that the queue had no room for, or the device never takes.", PORT),
	COUNTER("port_tx_delayed", "ports.ports[].tx_delayed",
		"Frames to send that waited for the device or for the port's rate.", PORT),
	COUNTER("port_rx_super_frames", "ports.ports[].super_frames.rx",
		"Super-frames received: the kernel handed several frames over as one.", PORT),
	COUNTER("port_rx_super_segments", "ports.ports[].super_frames.rx_segments",
		"Frames that came in super-frames.", PORT),
	COUNTER("port_tx_super_frames", "ports.ports[].super_frames.tx",
		"Super-frames sent: the kernel took several frames as one.", PORT),
	COUNTER("port_tx_super_segments", "ports.ports[].super_frames.tx_segments",
		"Frames that left in super-frames.", PORT),
	COUNTER("port_ecn_marked", "ports.ports[].egress.ecn_marked",
		"Frames in which congestion was marked (ECN).", PORT),
	GAUGE("port_backlog_bytes", "ports.ports[].egress.backlog_bytes",
	      "Bytes that wait to be sent.", PORT),
	GAUGE("port_backlog_frames", "ports.ports[].egress.backlog_frames",
	      "Frames that wait to be sent.", PORT),
	GAUGE("port_queue_bytes", "ports.ports[].egress.queue_bytes",
	      "Bytes that may wait to be sent.", PORT),
	GAUGE("port_rate_mbit", "ports.ports[].egress.rate_mbit",
	      "Rate at which frames leave, Mbit/s; 0: as fast as the device.", PORT),
	COUNTER("port_link_rx_dropped", "ports.ports[].link_rx_dropped",
		"Frames that the kernel dropped at the port's interface on the way in.", PORT),
	COUNTER("port_link_tx_dropped", "ports.ports[].link_tx_dropped",
		"Frames that the kernel dropped at the port's interface on the way out.", PORT),
	COUNTER("worker_bursts", "stats.workers[].bursts", "Polls that brought packets.", WORKER),
	COUNTER("worker_empty_polls", "stats.workers[].empty_polls",
		"Rounds over all queues without a packet.", WORKER),
	COUNTER("worker_packets", "stats.workers[].packets", "Packets that the worker took.",
		WORKER),
	COUNTER("worker_handed_over", "stats.workers[].handed_over",
		"Packets that the worker passed on by a cluster's queue.", WORKER),
	COUNTER("worker_retries", "stats.workers[].retries",
		"Handler calls that found another worker in the way.", WORKER),
	COUNTER("worker_retry_wait_seconds", "stats.workers[].retry_wait_us",
		"Time that packets waited for other workers.", WORKER, MICROSECONDS),
	COUNTER("worker_busy_seconds", "stats.workers[].busy_us",
		"Time in rounds that brought packets.", WORKER, MICROSECONDS),
	COUNTER("worker_yields", "stats.workers[].yields",
		"Times that the worker gave its core to others for a moment.", WORKER),
	COUNTER("worker_sleeps", "stats.workers[].sleeps", "Times that the worker slept.", WORKER),
	COUNTER("worker_wakes", "stats.workers[].wakes", "Of these, those that a frame has ended.",
		WORKER),
	COUNTER("worker_long_rounds", "stats.workers[].long_rounds",
		"Times that the worker did not look at its ports for a millisecond or more, while it was not asleep.",
		WORKER),
	GAUGE("worker_longest_round_seconds", "stats.workers[].longest_round_us",
	      "Longest time that the worker did not look at its ports, while it was not asleep.",
	      WORKER, MICROSECONDS),
	COUNTER("worker_cpu_seconds", "stats.workers[].cpu_us",
		"Time that the worker's thread was on a core.", WORKER, MICROSECONDS),
	COUNTER("worker_run_queue_seconds", "stats.workers[].run_queue_us",
		"Time that the worker's thread waited for a core that others had.", WORKER,
		MICROSECONDS),
	COUNTER("worker_slices", "stats.workers[].slices",
		"Times that the worker's thread got a core.", WORKER),
	COUNTER("worker_timers", "stats.workers[].timers", "Timers of handlers that have expired.",
		WORKER),
	COUNTER("worker_timers_early", "stats.workers[].timers_early",
		"Timers that expired before their time because there were too many.", WORKER),
	HISTOGRAM("worker_queue_length", "stats.workers[].queue_lengths",
		  "Packets in the cluster's queue when it was polled.", WORKER, .sum = "queue_sum"),
	HISTOGRAM("worker_input_occupancy", "stats.workers[].input_occupancy",
		  "Packets that waited for a handler when a burst was taken.", WORKER,
		  .sum = "input_sum"),
	COUNTER("switching_forwarded", "stats.switching.forwarded",
		"Foreign frames sent to a known port."),
	COUNTER("switching_routed", "stats.switching.routed",
		"IPv4 packets passed on by the table of routes."),
	GAUGE("next_hop_up", "routes.next_hops[].up",
	      "Whether the next hop answers and its port has a link.", NEXT_HOP),
	COUNTER("next_hop_probes", "routes.next_hops[].probes", "ARP requests to the next hop.",
		NEXT_HOP),
	COUNTER("next_hop_missed", "routes.next_hops[].missed",
		"Probes of the next hop without an answer in time.", NEXT_HOP),
	COUNTER("next_hop_lost", "routes.next_hops[].lost",
		"How often the next hop was found dead.", NEXT_HOP),
	COUNTER("switching_flooded", "stats.switching.flooded",
		"Foreign frames sent to all other ports."),
	COUNTER("switching_local", "stats.switching.local",
		"ARP, ICMP, JOIN and LEAVE for the switch itself."),
	COUNTER("switching_learn_failed", "stats.switching.learn_failed",
		"Source addresses that the full MAC table could not take."),
	GAUGE("mac_entries", "stats.mac_entries", "Addresses in the MAC table."),
	GAUGE("mempool_packets", "stats.mempool.size", "Packet buffers."),
	GAUGE("mempool_free_packets", "stats.mempool.free", "Packet buffers that are free."),
	GAUGE("memory_resident_bytes", "stats.memory.rss", "Resident memory without hugepages."),
	GAUGE("memory_hugepages_bytes", "stats.memory.hugepages", "Hugepages in use."),
	GAUGE("memory_packets_bytes", "stats.memory.packets", "Memory of the packet buffers."),
	GAUGE("memory_slots_bytes", "stats.memory.slots", "Memory of the jobs' slots."),
	GAUGE("memory_limit_bytes", "stats.memory.limit", "Memory that DPDK may use."),
	CONTROL_COUNTERS(CONTROL_METRIC) COUNTER("faults_duplicated", "stats.faults.duplicated",
						 "Fanin packets that were doubled on purpose."),
	COUNTER("faults_reordered", "stats.faults.reordered",
		"Fanin packets that were held back on purpose."),
	COUNTER("machine_backlog_dropped", "stats.machine.backlog_dropped",
		"Frames that the kernel's backlog did not take, of all network namespaces of the machine."),
	COUNTER("drops", "drops.drops[].count", "Packets that were not processed.",
		.labels = { { "reason", "name", 0 } }),
	GAUGE("jobs_limit", "jobs.limits.max_jobs", "Jobs that there may be."),
	GAUGE("jobs_free", "jobs.limits.jobs_free", "Jobs that there is room for."),
	GAUGE("jobs_slots_limit", "jobs.limits.slots_per_job", "Slots that one job may have."),
	GAUGE("jobs_slot_packets_limit", "jobs.limits.mbufs_per_job",
	      "Packets that the slots of one job may hold together."),
	GAUGE("job_info", "jobs.jobs[]", "What the job is; the value is 1.",
	      .labels = { { "fanin_job", "id", 0 },
			  { "handler", "handler", 0 },
			  { "accumulate", "accumulate", 0 },
			  { "reproducible", "reproducible", 0 },
			  { "authenticated", "authenticated", 0 } }),
	GAUGE("job_active", "jobs.jobs[].state", "Whether all members have joined.", JOB,
	      .equals = "active"),
	GAUGE("job_size", "jobs.jobs[].size", "Members of the job.", JOB),
	GAUGE("job_buffers", "jobs.jobs[].buffers", "Buffers per block, for handlers with several.",
	      JOB),
	GAUGE("job_window_packets", "jobs.jobs[].window", "Packets that a member may send ahead.",
	      JOB),
	GAUGE("job_slots", "jobs.jobs[].slots", "Slots of the job.", JOB),
	GAUGE("job_slot_bytes", "jobs.jobs[].slot_bytes", "Bytes of each slot.", JOB),
	GAUGE("job_payload_bytes", "jobs.jobs[].payload_bytes", "Longest payload of a packet.",
	      JOB),
	GAUGE("job_member_joined", "jobs.jobs[].members[].joined", "Whether the member has joined.",
	      .labels = { { "fanin_job", "id", 0 }, { "rank", "rank", 1 }, { "port", "port", 1 } }),
	FANIN_HANDLER_COUNTERS(JOB_COUNTER)
		GAUGE("job_parent_joined", "jobs.jobs[].parent.joined",
		      "Whether this switch has joined at its parent; only below the root.", JOB),
	GAUGE("job_progress_slots_used", "jobs.jobs[].progress.slots_used",
	      "Slots that blocks of the job hold; where hosts are not in step.", JOB),
	GAUGE("job_progress_slots", "jobs.jobs[].progress.slots",
	      "Slots that the job shares with others; likewise.", JOB),
	GAUGE("job_progress_overflowed", "jobs.jobs[].progress.overflowed",
	      "Contributions to unfinished blocks that found their slot taken; likewise.", JOB),
	GAUGE("job_progress_behind", "jobs.jobs[].progress.ranks[].behind",
	      "Blocks that the rank is behind the furthest one; likewise.",
	      .labels = { { "fanin_job", "id", 0 }, { "rank", "rank", 1 } }),
	COUNTER("job_probes", "jobs.jobs[].stats.probes", "Probes of members that others wait for.",
		JOB),
	COUNTER("job_probe_answers", "jobs.jobs[].stats.probe_answers",
		"Answers to probes, whichever they are.", JOB),
	COUNTER("job_block_seconds", "jobs.jobs[].stats.block_ns",
		"Time of finished blocks from their first to their last contribution.", JOB,
		NANOSECONDS),
	COUNTER("job_counter", "jobs.jobs[].counters[].count",
		"What the job's handler counts itself.",
		.labels = { { "fanin_job", "id", 0 }, { "counter", "name", 1 } }),
	GAUGE("job_value_min", "jobs.jobs[].values[].min",
	      "Least of what the job's handler tells, such as of all leaders' blocks.", VALUE),
	GAUGE("job_value_median", "jobs.jobs[].values[].median",
	      "Median of what the job's handler tells.", VALUE),
	GAUGE("job_value_max", "jobs.jobs[].values[].max", "Most of what the job's handler tells.",
	      VALUE),
	HISTOGRAM("job_occupancy", "jobs.jobs[].occupancy", "Open blocks of the job, sampled.", JOB,
		  .sum = "occupancy_sum"),
	{ .name = NULL },
};

json_t *
switch_metrics_values(void *user)
{
	const struct daemon *daemon = user;
	struct control_error error;

	return json_pack("{s:{s:s,s:s,s:s,s:s},s:o,s:o,s:o,s:o,s:o}", "switch", "name",
			 daemon->config->name, "version", FANIN_VERSION, "dpdk", rte_version(),
			 "isa", fanin_isa_name(fanin_isa_detect()), "ports",
			 command_ports_list(user, NULL, &error), "stats",
			 command_stats(user, NULL, &error), "drops",
			 command_drops(user, NULL, &error), "jobs",
			 command_jobs_list(user, NULL, &error), "routes",
			 command_routes_list(user, NULL, &error));
}
