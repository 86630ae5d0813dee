/* SPDX-License-Identifier: BSD-3-Clause */
/* See congestion_run.h. */
#include "lab/bench/congestion_run.h"

/* Pause between two allreduces, in which late packets come. */
#define PAUSE_NS (2 * MS_NS)
/* Maximum time for joining. */
#define READY_NS (60 * SECOND_NS)

void
congestion_run_open(struct congestion_run *run, const struct congestion_options *options,
		    unsigned int megabytes)
{
	char error[RIG_ERROR_LEN] = "";

	virtual_eal(megabytes);
	if (congestion_network_open(&run->network, options, error) != 0)
		virtual_die("the network", error);
}

void
congestion_run_job(struct congestion_run *run, const char *handler, uint64_t bytes)
{
	char reason[128];

	if (congestion_job_init(&run->job, &run->network,
				fanin_protocol_of(handler, reason, sizeof(reason)), bytes) != 0)
		virtual_die("the job", "out of memory");
}

static bool
is_ready(void *user)
{
	return congestion_job_is_ready(user);
}

void
congestion_run_start(struct congestion_run *run)
{
	struct rig *rig = run->network.rig;

	congestion_job_attach(&run->job);
	if (!rig_run(rig, rig_now_ns(rig) + READY_NS, is_ready, &run->job) ||
	    run->job.error[0] != '\0')
		virtual_die("the job is not ready", run->job.error);
}

struct ring_player *
congestion_run_ring(struct congestion_run *run)
{
	struct ring_player *ring = ring_player_create(&run->network.leaf_spine, run->network.ranks,
						      run->network.options.n_ranks,
						      run->network.options.seed);

	if (ring == NULL)
		virtual_die("the ring", "out of memory");
	return ring;
}

void
congestion_run_all(struct congestion_run *run, uint32_t n, bool (*one)(void),
		   bool (*watch)(void *user))
{
	struct rig *rig = run->network.rig;
	uint64_t began_ns = rig_now_ns(rig);

	congestion_links_read(&run->network, &run->before);
	run->began_ns = began_ns;
	while (run->n_done < n && one()) {
		run->took_ns[run->n_done++] = rig_now_ns(rig) - began_ns;
		if (run->n_done < n)
			rig_run(rig, rig_now_ns(rig) + PAUSE_NS, watch, NULL);
		began_ns = rig_now_ns(rig);
	}
	congestion_links_read(&run->network, &run->after);
	run->ended_ns = rig_now_ns(rig);
}

void
congestion_run_print(const struct congestion_run *run, uint32_t n)
{
	json_add("\"done\": %s, \"exact\": %s, \"error\": \"%s\"", json_bool(run->n_done == n),
		 json_bool(!run->job.wrong), run->job.error);
	json_seconds("seconds", run->took_ns, run->n_done);
}

void
congestion_run_close(struct congestion_run *run)
{
	if (congestion_network_close(&run->network) != 0)
		virtual_die("the network", "packets are lost to a leak");
}
