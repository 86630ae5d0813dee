/* SPDX-License-Identifier: BSD-3-Clause */
/* The output of the generator: a table for people, or one JSON object. See pktgen.h. */
#include <arpa/inet.h>
#include <inttypes.h>
#include <stdio.h>

#include <jansson.h>
#include <rte_version.h>

#include "tools/measure/machine.h"
#include "tools/pktgen/pktgen.h"

static double
per_second(const struct pktgen_trial *trial)
{
	return trial->seconds > 0 ? (double)trial->contributions / trial->seconds : 0;
}

/* Returns the share of the results that did not come in time. */
static double
loss(const struct pktgen_stats *stats)
{
	return stats->contributions == 0 ? 0 : (double)stats->lost / (double)stats->contributions;
}

static json_t *
latency_json(const struct histogram *histogram)
{
	return json_pack("{s:f,s:f,s:f,s:f,s:I}", "p50",
			 (double)histogram_percentile(histogram, 50) / 1e3, "p99",
			 (double)histogram_percentile(histogram, 99) / 1e3, "p99.9",
			 (double)histogram_percentile(histogram, 99.9) / 1e3, "max",
			 (double)histogram->max_ns / 1e3, "samples", (json_int_t)histogram->n);
}

static json_t *
row_json(const struct pktgen *gen, const struct pktgen_trial *trial)
{
	const struct pktgen_options *options = gen->options;
	const struct pktgen_job *job = &gen->jobs[0];
	const struct pktgen_stats *stats = &trial->stats;
	const double rate = per_second(trial);

	return json_pack(
		"{s:s,s:s,s:i,s:i,s:i,s:i,s:b,s:s,s:f,s:f,s:f,s:f,s:f,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:I,s:{s:f,s:o,s:o}}",
		"dtype", fanin_dtype_name(job->dtype), "op", fanin_op_name(job->op), "payload",
		(int)job->payload, "hosts", options->hosts, "jobs", gen->n_jobs, "window",
		job->window, "stagger", options->stagger, "interarrival",
		options->exponential ? "exponential" : "fixed", "rate", trial->rate, "seconds",
		trial->seconds, "mpps", rate / 1e6, "gbps", rate * job->payload * 8 / 1e9, "loss",
		loss(stats), "contributions", (json_int_t)stats->contributions, "results",
		(json_int_t)stats->results, "lost", (json_int_t)stats->lost, "retransmits",
		(json_int_t)stats->retransmits, "duplicates", (json_int_t)stats->duplicates,
		"wrong", (json_int_t)stats->wrong, "stale", (json_int_t)stats->stale, "foreign",
		(json_int_t)stats->foreign, "port_drops", (json_int_t)trial->missed, "tx_full",
		(json_int_t)trial->tx_full, "latency_us", "resolution",
		1.0 / (1 << HISTOGRAM_SUB_BITS), "block", latency_json(&stats->block), "own",
		latency_json(&stats->own));
}

static void
print_json(json_t *object)
{
	json_dumpf(object, stdout, JSON_REAL_PRECISION(9));
	putchar('\n');
	fflush(stdout);
	json_decref(object);
}

static void
print_latency(const char *name, const struct histogram *histogram)
{
	printf("  %-34s %10.1f %10.1f %10.1f %10.1f\n", name,
	       (double)histogram_percentile(histogram, 50) / 1e3,
	       (double)histogram_percentile(histogram, 99) / 1e3,
	       (double)histogram_percentile(histogram, 99.9) / 1e3,
	       (double)histogram->max_ns / 1e3);
}

static void
print_table(const struct pktgen *gen, const struct pktgen_trial *trial, unsigned int trials)
{
	const struct pktgen_options *options = gen->options;
	const struct pktgen_job *job = &gen->jobs[0];
	const struct pktgen_stats *stats = &trial->stats;
	const double rate = per_second(trial);

	printf("fanin-pktgen: %u hosts, %u jobs, window %u%s, %.2f s, %s\n", options->hosts,
	       gen->n_jobs, job->window, options->stagger ? ", staggered" : "", trial->seconds,
	       machine_cpu());
	if (trials != 0)
		printf("the highest rate held without loss, to %s of %u trials:\n",
		       "within 1 % of the most", trials);
	printf("\n%-5s %-4s %7s %5s %5s %9s %8s %10s %8s %9s\n", "dtype", "op", "payload", "hosts",
	       "jobs", "Mpps", "Gbit/s", "loss", "wrong", "drops");
	printf("%-5s %-4s %7u %5u %5u %9.4f %8.3f %10.6f %8" PRIu64 " %9" PRIu64 "\n",
	       fanin_dtype_name(job->dtype), fanin_op_name(job->op), job->payload, options->hosts,
	       gen->n_jobs, rate / 1e6, rate * job->payload * 8 / 1e9, loss(stats), stats->wrong,
	       trial->missed);
	printf("\n  %-34s %10s %10s %10s %10s\n", "latency in us, to within 3.1 %", "p50", "p99",
	       "p99.9", "max");
	print_latency("from the last host's contribution", &stats->block);
	print_latency("from the host's own contribution", &stats->own);
	printf("\n  %" PRIu64 " contributions, %" PRIu64 " results, %" PRIu64 " lost, %" PRIu64
	       " retransmits, %" PRIu64 " duplicates\n",
	       stats->contributions, stats->results, stats->lost, stats->retransmits,
	       stats->duplicates);
}

void
pktgen_report(const struct pktgen *gen, const struct pktgen_trial *trial, unsigned int trials)
{
	json_t *object;

	if (!gen->options->json) {
		print_table(gen, trial, trials);
		return;
	}
	object = json_pack("{s:s,s:s,s:s,s:{s:s},s:[o]}", "version", FANIN_VERSION, "dpdk",
			   rte_version(), "dpdk_built", DPDK_BUILT_WITH, "machine", "cpu",
			   machine_cpu(), "results", row_json(gen, trial));
	if (trials != 0)
		json_object_set_new(object, "search",
				    json_pack("{s:i,s:f}", "trials", (int)trials, "resolution",
					      0.01));
	print_json(object);
}

static json_t *
address_json(uint32_t ip_be)
{
	char text[INET_ADDRSTRLEN];

	return json_string(inet_ntop(AF_INET, &ip_be, text, sizeof(text)));
}

static json_t *
mac_json(const uint8_t mac[6])
{
	return json_sprintf("%02x:%02x:%02x:%02x:%02x:%02x", mac[0], mac[1], mac[2], mac[3], mac[4],
			    mac[5]);
}

void
pktgen_report_joined(const struct pktgen *gen)
{
	const struct pktgen_options *options = gen->options;
	json_t *hosts = json_array();
	json_t *jobs = json_array();

	for (uint16_t h = 0; h < options->hosts; h++)
		json_array_append_new(hosts, json_pack("{s:i,s:s,s:o,s:o}", "rank", h, "port",
						       options->ports[gen->hosts[h].port], "ip",
						       address_json(gen->hosts[h].ip_be), "mac",
						       mac_json(gen->hosts[h].mac)));
	for (uint16_t j = 0; j < gen->n_jobs; j++) {
		const struct pktgen_job *job = &gen->jobs[j];

		json_array_append_new(
			jobs,
			json_pack("{s:I,s:o,s:o,s:I,s:i,s:i,s:s,s:s,s:o}", "id",
				  (json_int_t)job->id, "key",
				  json_sprintf("0x%016lx", (unsigned long)job->secret), "up_key",
				  json_sprintf("0x%016lx", (unsigned long)job->keys.up), "epoch",
				  (json_int_t)job->epoch, "window", job->window, "payload",
				  (int)job->payload, "dtype", fanin_dtype_name(job->dtype), "op",
				  fanin_op_name(job->op), "group", address_json(job->group_be)));
	}
	print_json(json_pack("{s:{s:o,s:o,s:i},s:o,s:o}", "switch", "ip",
			     address_json(options->switch_ip_be), "mac",
			     mac_json(gen->hosts[0].switch_mac), "udp_port", options->udp_port,
			     "hosts", hosts, "jobs", jobs));
}
