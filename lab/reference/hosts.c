/* SPDX-License-Identifier: BSD-3-Clause */
/* See hosts.h. The data are fanin-perf's. */
#include <errno.h>
#include <stdlib.h>
#include <string.h>

#include "lab/reference/hosts.h"
#include "lab/reference/perf_data.h"

int
hosts_data_make(struct hosts_data *data, unsigned int dtype, unsigned int op, bool wide,
		uint16_t n_hosts, uint32_t bytes, uint32_t seed)
{
	const struct perf_data source = {
		.dtype = (enum fanin_dtype)dtype,
		.op = (enum fanin_op)op,
		.seed = seed,
		.size = n_hosts,
		.wide = wide,
	};
	const uint64_t count = bytes / fanin_dtype_size(dtype);

	*data = (struct hosts_data){ .bytes = bytes, .n_hosts = n_hosts };
	data->contributions = malloc((size_t)HOSTS_PATTERNS * n_hosts * bytes);
	data->results = malloc((size_t)HOSTS_PATTERNS * bytes);
	if (data->contributions == NULL || data->results == NULL) {
		hosts_data_free(data);
		return -ENOMEM;
	}
	for (uint32_t pattern = 0; pattern < HOSTS_PATTERNS; pattern++) {
		for (uint16_t host = 0; host < n_hosts; host++)
			perf_data_fill(&source, host, pattern, 0, count,
				       data->contributions +
					       ((size_t)pattern * n_hosts + host) * bytes);
		perf_data_expect(&source, pattern, 0, count,
				 data->results + (size_t)pattern * bytes);
	}
	return 0;
}

void
hosts_data_free(struct hosts_data *data)
{
	free(data->contributions);
	free(data->results);
	*data = (struct hosts_data){ 0 };
}

void
hosts_headers(struct fanin_headers *headers, const struct fanin_flow *flow,
	      const struct hosts_member *member)
{
	fanin_wire_encode_l4(headers, flow, member->bytes);
	fanin_wire_encode_header(&headers->fanin, FANIN_TYPE_CONTRIBUTION, member->job,
				 member->epoch, member->key);
	headers->fanin.rank = member->rank;
	headers->fanin.contributions = 1;
	headers->fanin.dtype = member->dtype;
	headers->fanin.op = member->op;
	headers->fanin.count = (uint16_t)(member->bytes / fanin_dtype_size(member->dtype));
	hosts_headers_set_block(headers, 0);
}
