/* SPDX-License-Identifier: BSD-3-Clause */
/* The switch's memory, by its uses. Main thread only. */
#include "control/process.h"
#include "pipeline/job.h"
#include "switch/commands.h"
#include "switch/config/config.h"

json_t *
json_memory(const struct daemon *daemon)
{
	uint64_t packets = 0;

	for (size_t i = 0; i < sizeof(daemon->ports.pools) / sizeof(daemon->ports.pools[0]); i++) {
		const struct rte_mempool *pool = daemon->ports.pools[i];

		if (pool != NULL)
			packets += (uint64_t)pool->size *
				   (pool->header_size + pool->elt_size + pool->trailer_size);
	}
	return json_pack("{s:I,s:I,s:I,s:I,s:I}", "rss",
			 (json_int_t)process_status_bytes("VmRSS: %lu kB"), "hugepages",
			 (json_int_t)process_status_bytes("HugetlbPages: %lu kB"), "packets",
			 (json_int_t)packets, "slots",
			 (json_int_t)job_slots_bytes(daemon->pipeline->jobs), "limit",
			 (json_int_t)daemon->config->memory_megabytes << 20);
}
