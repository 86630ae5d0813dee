/* SPDX-License-Identifier: BSD-3-Clause */
/* See split.h. */
#include "split.h"

#include <stdlib.h>

/* Checks that every engine can take its blocks, so that all of them get their parts or none. */
static int
engines_accept(const struct fanin_split *split, uint64_t n_blocks)
{
	for (uint16_t i = 0; i < split->n_endpoints; i++) {
		int status = split->protocol->on_switch->accepts(split->endpoints[i], n_blocks);

		if (status != FANIN_OK)
			return status;
	}
	return FANIN_OK;
}

/* Fails all engines, and every request, with split->status and split->error. */
static void
engines_abort(const struct fanin_split *split)
{
	for (uint16_t i = 0; i < split->n_endpoints; i++)
		split->protocol->on_switch->abort(split->endpoints[i], split->status,
						  &split->error);
}

void
fanin_split_abort(struct fanin_split *split, int status, const struct fanin_error *error)
{
	if (split->status != FANIN_OK)
		return;
	split->status = status;
	split->error = *error;
	engines_abort(split);
}

int
fanin_split_post(struct fanin_split *split, struct fanin_request *request, uint64_t count)
{
	uint64_t n_blocks = split->protocol->on_switch->cut(split->endpoints[0], request, count);
	uint16_t n_parts = n_blocks < split->n_endpoints ? (uint16_t)n_blocks : split->n_endpoints;
	int status = split->status != FANIN_OK ? split->status : engines_accept(split, n_blocks);
	struct fanin_request *parts;

	if (status != FANIN_OK)
		return status;
	parts = calloc(n_parts, sizeof(*parts));
	if (parts == NULL)
		return FANIN_ERR_NO_MEMORY;
	request->parts = parts;
	request->n_parts = n_parts;
	request->parts_left = n_parts;
	request->done_bytes = 0;
	request->status = FANIN_IN_PROGRESS;
	for (uint16_t i = 0; i < n_parts; i++) {
		parts[i] = *request;
		parts[i].parts = NULL;
		parts[i].n_parts = 0;
		parts[i].whole = request;
		parts[i].stride = split->n_endpoints;
		parts[i].start = i;
		status = split->protocol->post(
			split->endpoints[(split->next + i) % split->n_endpoints], &parts[i], count);
		/*
		 * The engine has just accepted it, so only memory can lack. Some parts may be
		 * posted already.
		 */
		if (status != FANIN_OK) {
			split->status = fanin_error_set(&split->error, status,
							"part %u of a collective can't be posted",
							i);
			engines_abort(split);
			request->status = status;
			break;
		}
	}
	split->next = (uint16_t)((split->next + n_blocks) % split->n_endpoints);
	return FANIN_OK;
}

int
fanin_split_settle(struct fanin_split *split)
{
	if (split->status != FANIN_OK)
		return split->status;
	for (uint16_t i = 0; i < split->n_endpoints && split->status == FANIN_OK; i++) {
		split->status = split->protocol->on_switch->accepts(split->endpoints[i], 0);
		if (split->status != FANIN_OK)
			split->error = *split->protocol->error(split->endpoints[i]);
	}
	if (split->status != FANIN_OK)
		engines_abort(split);
	return split->status;
}

uint64_t
fanin_split_done_bytes(const struct fanin_request *request)
{
	uint64_t bytes = request->done_bytes;

	for (uint16_t i = 0; i < request->n_parts; i++)
		bytes += request->parts[i].done_bytes;
	return bytes;
}

void
fanin_split_free(struct fanin_request *request)
{
	free(request->parts);
	request->parts = NULL;
	request->n_parts = 0;
}
