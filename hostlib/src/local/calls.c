/* SPDX-License-Identifier: BSD-3-Clause */
/* Ranks that make different calls are found, chunk by chunk. See local_internal.h. */
#include <stdio.h>
#include <string.h>

#include "local_internal.h"

struct fanin_local_call
fanin_local_call_of(const struct fanin_local *local, const struct fanin_request *request)
{
	return (struct fanin_local_call){
		.bytes = request->total_bytes /
			 (fanin_local_has_parts(request) ? local->config.layout.size : 1u),
		.most = request->sparse != NULL ? request->sparse->most : 0,
		.root = request->root,
		.collective = request->collective,
		.dtype = request->dtype,
		.op = fanin_request_combines(request) ? request->op : 0,
	};
}

static const char *
call_in_words(const struct fanin_local_call *call, char *text, size_t len)
{
	snprintf(text, len, "%s of %llu bytes of %s, %s%s%u",
		 fanin_collective_name(call->collective), (unsigned long long)call->bytes,
		 fanin_dtype_name_of((enum fanin_dtype)call->dtype),
		 call->op != 0 ? fanin_op_name_of((enum fanin_op)call->op) : "",
		 call->op != 0 ? ", root " : "root ", call->root);
	return text;
}

/* Compares what the ranks do in a chunk. Returns false, having failed, if they differ. */
bool
fanin_local_calls_compare(struct fanin_local *local, uint64_t chunk)
{
	const struct fanin_local_meeting *meeting = &local->config.meeting;
	const struct fanin_local_call *here =
		&fanin_local_own(local)->calls[chunk % FANIN_LOCAL_DEPTH];
	char words[96], others[96];

	for (unsigned int place = 0; place < meeting->n; place++) {
		const struct fanin_local_call *there =
			&meeting->memory.members[place].calls[chunk % FANIN_LOCAL_DEPTH];

		if (memcmp(here, there, sizeof(*here)) == 0)
			continue;
		fanin_error_set(&local->error, FANIN_ERR_REFUSED,
				"ranks of one host make different calls: rank %u %s, rank %u %s",
				local->config.layout.rank,
				call_in_words(here, words, sizeof(words)), meeting->ranks[place],
				call_in_words(there, others, sizeof(others)));
		fanin_local_fail(local, FANIN_ERR_REFUSED);
		return false;
	}
	return true;
}
