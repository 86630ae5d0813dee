/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of fanin-perf. See perf.h. */
#include <inttypes.h>
#include <stdio.h>
#include <string.h>

#include "tools/perf.h"

static const char *
status_code(int status)
{
	switch (status) {
	case FANIN_ERR_INVALID:
		return "invalid";
	case FANIN_ERR_NO_MEMORY:
		return "no_memory";
	case FANIN_ERR_TRANSPORT:
		return "transport";
	case FANIN_ERR_NO_ROUTE:
		return "no_route";
	case FANIN_ERR_JOIN_REFUSED:
		return "join_refused";
	case FANIN_ERR_JOIN_TIMEOUT:
		return "join_timeout";
	case FANIN_ERR_UNSUPPORTED:
		return "unsupported";
	case FANIN_ERR_TIMEOUT:
		return "timeout";
	case FANIN_ERR_REFUSED:
		return "refused";
	case FANIN_ERR_PERMISSION:
		return "permission";
	case FANIN_ERR_INTERRUPTED:
		return "interrupted";
	case FANIN_ERR_MANAGER:
		return "manager";
	case FANIN_ERR_CAPACITY:
		return "capacity";
	default:
		return "system";
	}
}

/* Returns the rank after the join; before that, the requested one. */
static uint16_t
rank_of(const struct run *run)
{
	return run->comm != NULL ? run->report.rank : run->options->join.rank;
}

void
perf_json_string(const char *name, const char *value)
{
	printf("\"%s\": ", name);
	if (value == NULL) {
		printf("null, ");
		return;
	}
	putchar('"');
	for (; *value != '\0'; value++) {
		if (*value == '"' || *value == '\\')
			printf("\\%c", *value);
		else if ((unsigned char)*value < ' ')
			printf("\\u%04x", (unsigned int)*value);
		else
			putchar(*value);
	}
	printf("\", ");
}

static void
json_digest(const struct run *run)
{
	if (run_has_digest(run))
		printf("\"digest\": \"0x%016" PRIx64 "\", ", run->digest);
	else
		printf("\"digest\": null, ");
}

static double
goodput_gbps(const struct run *run)
{
	return run->seconds > 0
		       ? (double)(run->options->bytes * run->measured) * 8 / run->seconds / 1e9
		       : 0;
}

/* Prints one number for each measured collective; nothing without --times. */
static void
json_seconds(const char *name, const double *seconds, uint64_t n)
{
	if (seconds == NULL)
		return;
	printf("\"%s\": [", name);
	for (uint64_t i = 0; i < n; i++)
		printf("%s%.9f", i == 0 ? "" : ", ", seconds[i]);
	printf("], ");
}

/*
 * Prints the figures of sparse allreduces: densities before and after, packets, and bytes compared
 * with dense ones.
 */
static void
json_sparse(const struct run *run)
{
	const struct fanin_report *report = &run->report;
	const double elements = report->sparse_elements == 0 ? 1 : (double)report->sparse_elements;

	if (!options_has_zeros(run->options)) {
		printf("\"sparse\": null, ");
		return;
	}
	printf("\"sparse\": {");
	perf_json_string("pattern", run->options->pattern_file != NULL
					    ? run->options->pattern_file
					    : perf_pattern_name(run->options->pattern));
	perf_json_string("algorithm", report->sparse_algorithm);
	printf("\"density\": %.9g, \"density_in\": %.9g, \"density_out\": %.9g, "
	       "\"blocks\": %" PRIu64 ", \"shards_sent\": %" PRIu64
	       ", \"shards_received\": %" PRIu64 ", \"bytes_sent\": %" PRIu64
	       ", \"dense_bytes\": %" PRIu64 ", \"maybe_sparse\": %" PRIu64
	       ", \"maybe_sparse_taken\": %" PRIu64 "}, ",
	       run->options->density, (double)report->sparse_values_sent / elements,
	       (double)report->sparse_values_received / elements, report->sparse_blocks,
	       report->shards_sent, report->shards_received, report->shard_bytes_sent,
	       report->sparse_dense_bytes, report->maybe_sparse, report->maybe_sparse_taken);
}

/* Prints the congestion control of a job with a parameter server, as it is at the end. */
static void
json_congestion(const struct fanin_report *report)
{
	if (report->congestion == NULL || report->congestion[0] == '\0') {
		printf("\"congestion\": null, ");
		return;
	}
	printf("\"congestion\": {");
	perf_json_string("name", report->congestion);
	printf("\"cwd\": %.3f, \"awd\": %.3f, \"in_flight\": %" PRIu64
	       ", \"alpha\": %.6f, \"beta\": %.6f, \"p\": %.6f, \"gacks\": %" PRIu64
	       ", \"aacks\": %" PRIu64 ", \"marks\": %" PRIu64 ", \"aecns\": %" PRIu64
	       ", \"asks_answered\": %" PRIu64 "}, ",
	       report->cwd, report->awd, report->in_flight, report->alpha, report->beta,
	       report->progress_degree, report->gacks, report->aacks, report->marks, report->aecns,
	       report->asks_answered);
}

/* Prints the positions of the bits that are set, as elements of a list. */
static void
json_bits(uint64_t ranks)
{
	for (const char *separator = ""; ranks != 0; ranks &= ranks - 1, separator = ", ")
		printf("%s%d", separator, __builtin_ctzll(ranks));
}

void
json_print(const struct run *run)
{
	const struct options *options = run->options;
	const struct fanin_report *report = &run->report;

	printf("{\"ok\": %s, \"rank\": %u, \"size\": %u, \"bytes\": %" PRIu64 ", ",
	       run->status == FANIN_OK && run->mismatches == 0 ? "true" : "false", rank_of(run),
	       options->join.size, options->bytes);
	perf_json_string("version", FANIN_VERSION);
	perf_json_string("libfanin", fanin_version());
	perf_json_string("libfanin_built", FANIN_HEADER_VERSION);
	perf_json_string("collective", perf_collective_name(options->collective));
	perf_json_string("dtype", options->dtype_name);
	perf_json_string("op", options->op_name);
	printf("\"iters\": %" PRIu64 ", \"checked\": %s, \"mismatches\": %" PRIu64
	       ", \"seconds\": %.9f, "
	       "\"goodput_gbps\": %.6f, ",
	       run->measured, options->check ? "true" : "false", run->mismatches, run->seconds,
	       goodput_gbps(run));
	json_digest(run);
	perf_json_string("transport", report->transport);
	perf_json_string("transport_reason", report->transport_reason);
	printf("\"in_network\": %s, ", report->in_network ? "true" : "false");
	perf_json_string("mode", report->mode);
	perf_json_string("mode_reason", report->mode_reason);
	perf_json_string("manager", report->manager);
	perf_json_string("job_name", report->job_name);
	perf_json_string("manager_problem", report->manager_problem);
	printf("\"manager_reconnects\": %u, ", report->manager_reconnects);
	perf_json_string("handler", report->handler);
	perf_json_string("protocol", report->protocol);
	perf_json_string("protocol_reason", report->protocol_reason);
	perf_json_string("accumulate", run->wide ? "f32" : "native");
	printf("\"authenticated\": %s, ", report->authenticated ? "true" : "false");
	printf("\"trees\": %u, \"trees_asked\": %u, ", report->trees, report->trees_asked);
	perf_json_string("trees_reason", report->trees_reason);
	perf_json_string("multicast_reason", report->multicast_reason);
	printf("\"multicast_operations\": %" PRIu64 ", \"multicast_packets\": %" PRIu64
	       ", \"multicast_fetched\": %" PRIu64 ", \"multicast_late\": %" PRIu64 ", ",
	       report->multicast_operations, report->multicast_packets, report->multicast_fetched,
	       report->multicast_late);
	printf("\"led_blocks\": %" PRIu64 ", \"led_direct\": %" PRIu64 ", \"asks\": %" PRIu64
	       ", \"restores\": %" PRIu64 ", \"repeats\": %" PRIu64 ", ",
	       report->led_blocks, report->led_direct, report->asks, report->restores,
	       report->repeats);
	printf("\"super_frames\": {\"sent\": %" PRIu64 ", \"sent_packets\": %" PRIu64
	       ", \"received\": %" PRIu64 ", \"received_packets\": %" PRIu64 "}, ",
	       report->super_frames_sent, report->super_frame_packets_sent,
	       report->super_frames_received, report->super_frame_packets_received);
	printf("\"send_calls\": %" PRIu64 ", \"receive_calls\": %" PRIu64
	       ", \"other_calls\": %" PRIu64 ", \"bytes_copied_out\": %" PRIu64
	       ", \"bytes_copied_in\": %" PRIu64 ", \"sleeps\": %" PRIu64 ", \"yields\": %" PRIu64
	       ", \"hosts\": %u, \"local_ranks\": %u, \"local_bytes\": %" PRIu64 ", ",
	       report->send_calls, report->receive_calls, report->other_calls,
	       report->bytes_copied_out, report->bytes_copied_in, report->sleeps, report->yields,
	       report->hosts, report->local_ranks, report->local_bytes);
	printf("\"retransmits\": %" PRIu64 ", \"duplicates\": %" PRIu64 ", \"invalid\": %" PRIu64
	       ", \"spurious\": %" PRIu64 ", \"ring_drops\": %" PRIu64 ", \"resumed\": %" PRIu64
	       ", \"queries\": %" PRIu64 ", \"frames_sent\": %" PRIu64
	       ", \"frames_received\": %" PRIu64
	       ", \"window\": %u, \"payload_bytes\": %u, \"late\": [",
	       report->retransmits, report->duplicates, report->invalid, report->spurious,
	       report->ring_drops, report->resumed, report->queries, report->frames_sent,
	       report->frames_received, report->window, report->payload_bytes);
	json_bits(report->late);
	printf("], \"n_late\": %" PRIu64 ", \"tcp_bytes_sent\": %" PRIu64
	       ", \"tcp_bytes_received\": %" PRIu64 ", ",
	       report->n_late, report->tcp_bytes_sent, report->tcp_bytes_received);
	json_sparse(run);
	json_congestion(report);
	if (run->profile.collectives != 0)
		profile_json(&run->profile, report);
	else
		printf("\"profile\": null, ");
	json_seconds("times", run->times, run->measured);
	json_seconds("begins", run->begins, run->measured);
	if (run->status == FANIN_OK) {
		printf("\"error\": null}\n");
		return;
	}
	printf("\"error\": {");
	perf_json_string("code", status_code(run->status));
	perf_json_string("message", run->message);
	printf("\"missing\": [");
	for (size_t i = 0; i < run->n_missing; i++)
		printf("%s%u", i == 0 ? "" : ", ", run->missing[i]);
	printf("]}}\n");
}

void
line_print(const struct run *run)
{
	const struct options *options = run->options;
	const struct fanin_report *report = &run->report;
	char trees[32] = "", hosts[48] = "";

	if (report->trees > 1)
		snprintf(trees, sizeof(trees), "  %u trees", report->trees);
	if (report->hosts != 0)
		snprintf(hosts, sizeof(hosts), "  %u hosts", report->hosts);
	if (run->status != FANIN_OK) {
		fprintf(stderr, "fanin-perf: %s\n", run->message);
		return;
	}
	printf("rank %u/%u  %s  %" PRIu64 " bytes %s %s x%" PRIu64
	       "  %.6f s  %.3f Gbit/s  %s  %s (%s)  "
	       "%" PRIu64 " retransmits%s%s%s%s  %s\n",
	       rank_of(run), options->join.size, perf_collective_name(options->collective),
	       options->bytes, options->dtype_name,
	       perf_collective_combines(options->collective) ? options->op_name : "copied",
	       run->measured, run->seconds, goodput_gbps(run), report->transport,
	       report->in_network ? "in network" : "not in network", report->handler,
	       report->retransmits, run->wide ? "  accumulated in f32" : "",
	       report->authenticated ? "  authenticated" : "", trees, hosts,
	       run->mismatches != 0 ? "WRONG"
	       : options->check     ? "checked"
				    : "not checked");
	if (report->congestion != NULL && report->congestion[0] != '\0')
		printf("%s  CWD %.1f  AWD %.1f  alpha %.2f  beta %.2f  p %.2f  %" PRIu64
		       " GACKs (%" PRIu64 " marked)  %" PRIu64 " AACKs (%" PRIu64 " AECN)  %" PRIu64
		       " queries  %" PRIu64 " asks answered\n",
		       report->congestion, report->cwd, report->awd, report->alpha, report->beta,
		       report->progress_degree, report->gacks, report->marks, report->aacks,
		       report->aecns, report->queries, report->asks_answered);
	if (report->multicast_operations != 0)
		printf("multicast  %" PRIu64 " collectives  %" PRIu64 " packets  %" PRIu64
		       " fetched  %" PRIu64 " late\n",
		       report->multicast_operations, report->multicast_packets,
		       report->multicast_fetched, report->multicast_late);
	if (run_has_digest(run))
		printf("digest 0x%016" PRIx64 "\n", run->digest);
	if (run->profile.collectives != 0)
		profile_print(&run->profile, report);
	if (run->mismatches != 0)
		fprintf(stderr, "fanin-perf: %" PRIu64 " elements are wrong\n", run->mismatches);
}
