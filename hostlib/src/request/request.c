/* SPDX-License-Identifier: BSD-3-Clause */
/* See request.h. */
#include "request.h"

#include "fanin/fanin.h"

const char *
fanin_collective_name(unsigned int collective)
{
	static const char *const names[] = {
		[FANIN_COLLECTIVE_ALLREDUCE] = "allreduce",
		[FANIN_COLLECTIVE_REDUCE] = "reduce",
		[FANIN_COLLECTIVE_REDUCE_SCATTER] = "reduce_scatter",
		[FANIN_COLLECTIVE_BROADCAST] = "broadcast",
		[FANIN_COLLECTIVE_ALLGATHER] = "allgather",
		[FANIN_COLLECTIVE_ALLREDUCE_SPARSE] = "allreduce_sparse",
	};

	return collective < sizeof(names) / sizeof(names[0]) ? names[collective] : "collective";
}

void
fanin_request_layout(struct fanin_request *request, uint16_t rank, uint16_t size, uint64_t count)
{
	uint32_t element_bytes = fanin_dtype_size(request->dtype);
	uint64_t bytes = count * element_bytes;
	bool is_root = rank == request->root;

	request->element_bytes = (uint8_t)element_bytes;
	request->total_bytes = bytes;
	request->part_bytes = bytes;
	request->n_owners = 0;
	request->send_offset = 0;
	request->send_bytes = bytes;
	request->recv_offset = 0;
	request->recv_bytes = bytes;
	switch ((enum fanin_collective)request->collective) {
	case FANIN_COLLECTIVE_ALLREDUCE:
	case FANIN_COLLECTIVE_ALLREDUCE_SPARSE:
		break;
	case FANIN_COLLECTIVE_REDUCE:
		request->recv_bytes = is_root ? bytes : 0;
		break;
	case FANIN_COLLECTIVE_REDUCE_SCATTER:
		request->total_bytes = bytes * size;
		request->part_bytes = request->total_bytes;
		request->send_bytes = request->total_bytes;
		request->recv_offset = bytes * rank;
		break;
	case FANIN_COLLECTIVE_BROADCAST:
		request->send_bytes = is_root ? bytes : 0;
		request->recv_bytes = is_root ? 0 : bytes;
		break;
	case FANIN_COLLECTIVE_ALLGATHER:
		request->total_bytes = bytes * size;
		request->send_offset = bytes * rank;
		request->recv_bytes = request->total_bytes;
		break;
	}
}

uint64_t
fanin_request_cut(struct fanin_request *request, uint16_t payload_bytes, bool wide)
{
	uint32_t max_bytes = payload_bytes;
	uint64_t part_blocks;

	if (fanin_request_combines(request))
		max_bytes = fanin_payload_limit(payload_bytes, wide, request->dtype, request->op);
	request->block_bytes = max_bytes / request->element_bytes * request->element_bytes;
	/* A collective without elements still is one block, which synchronises the ranks. */
	if (request->total_bytes == 0) {
		request->part_blocks = 1;
		return 1;
	}
	part_blocks = request->part_bytes / request->block_bytes +
		      (request->part_bytes % request->block_bytes != 0);
	request->part_blocks = (uint32_t)part_blocks;
	return request->total_bytes / request->part_bytes * part_blocks;
}

uint64_t
fanin_request_cut_owned(struct fanin_request *request, uint16_t size, uint16_t payload_bytes,
			bool wide)
{
	const uint64_t n_blocks = fanin_request_cut(request, payload_bytes, wide);
	const uint64_t part_bytes = request->total_bytes / size;

	if (size == 1 || request->total_bytes == 0)
		return n_blocks;
	if (request->collective == FANIN_COLLECTIVE_REDUCE)
		request->n_owners = 1;
	/* Parts that don't fill a packet would need more packets than the whole vector does. */
	if (request->collective != FANIN_COLLECTIVE_REDUCE_SCATTER ||
	    part_bytes < request->block_bytes)
		return n_blocks;
	request->n_owners = size;
	request->part_bytes = part_bytes;
	return fanin_request_cut(request, payload_bytes, wide);
}

void
fanin_request_list_init(struct fanin_request_list *list)
{
	list->first = NULL;
	list->tail = &list->first;
}

void
fanin_request_list_append(struct fanin_request_list *list, struct fanin_request *request)
{
	request->done_blocks = 0;
	request->done_bytes = 0;
	request->status = FANIN_IN_PROGRESS;
	request->next = NULL;
	*list->tail = request;
	list->tail = &request->next;
}

void
fanin_request_list_finish(struct fanin_request_list *list, struct fanin_request *request)
{
	struct fanin_request **link = &list->first;

	while (*link != request)
		link = &(*link)->next;
	*link = request->next;
	if (request->next == NULL)
		list->tail = link;
	request->next = NULL;
	request->status = FANIN_OK;
	while (request->whole != NULL && --request->whole->parts_left == 0) {
		request = request->whole;
		request->status = FANIN_OK;
	}
}

void
fanin_request_list_fail(struct fanin_request_list *list, int status)
{
	struct fanin_request *request = list->first;

	while (request != NULL) {
		struct fanin_request *next = request->next;

		for (; request != NULL; request = request->whole)
			request->status = status;
		request = next;
	}
	fanin_request_list_init(list);
}
