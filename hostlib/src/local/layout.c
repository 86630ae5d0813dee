/* SPDX-License-Identifier: BSD-3-Clause */
/* The placement of ranks on hosts. See local.h. */
#include "local.h"

#include <stdlib.h>

#include "handlers/kernels/kernels.h"

/* Elements have at most this many bytes. */
#define MAX_ELEMENT_BYTES 16u

/*
 * Counts hosts, and checks that they are numbered in the order of their lowest ranks. n_of: ranks
 * of each host.
 */
static int
hosts_check(struct fanin_local_layout *layout, const uint16_t *hosts, uint16_t *n_of,
	    struct fanin_error *error)
{
	for (unsigned int rank = 0; rank < layout->size; rank++) {
		if (hosts[rank] > layout->n_hosts)
			return fanin_error_set(
				error, FANIN_ERR_INVALID,
				"hosts: found host %u for rank %u, expected 0 to %u: hosts have "
				"numbers in the order of their lowest ranks",
				hosts[rank], rank, layout->n_hosts);
		if (hosts[rank] == layout->n_hosts)
			layout->n_hosts++;
		else if (hosts[rank] != hosts[rank - 1])
			layout->in_row = false;
		layout->host_of[rank] = hosts[rank];
		layout->place_of[rank] = n_of[hosts[rank]]++;
		if (n_of[hosts[rank]] > layout->most)
			layout->most = n_of[hosts[rank]];
	}
	if (layout->most > FANIN_LOCAL_MAX)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "hosts: found %u ranks on one host, expected at most %u",
				       layout->most, FANIN_LOCAL_MAX);
	if ((uint64_t)layout->n_hosts * layout->most * MAX_ELEMENT_BYTES > FANIN_LOCAL_CHUNK_BYTES)
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"hosts: found %u hosts, of which one has %u ranks, expected at most %u "
			"ranks if all had as many",
			layout->n_hosts, layout->most, FANIN_LOCAL_CHUNK_BYTES / MAX_ELEMENT_BYTES);
	return FANIN_OK;
}

int
fanin_local_layout_make(struct fanin_local_layout *layout, const uint16_t *hosts, uint16_t rank,
			uint16_t size, struct fanin_error *error)
{
	uint16_t *n_of = calloc(size, sizeof(*n_of));
	int status;

	*layout = (struct fanin_local_layout){ .rank = rank,
					       .size = size,
					       .in_row = true,
					       .host_of = calloc(size, sizeof(uint16_t)),
					       .place_of = calloc(size, sizeof(uint16_t)),
					       .neighbors = calloc(size, sizeof(uint16_t)),
					       .isa = (uint8_t)fanin_isa_detect() };
	if (n_of == NULL || layout->host_of == NULL || layout->place_of == NULL ||
	    layout->neighbors == NULL)
		status = fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	else
		status = hosts_check(layout, hosts, n_of, error);
	free(n_of);
	if (status != FANIN_OK) {
		fanin_local_layout_free(layout);
		return status;
	}
	layout->host = hosts[rank];
	for (unsigned int other = 0; other < size; other++)
		if (hosts[other] == layout->host)
			layout->neighbors[layout->n_neighbors++] = (uint16_t)other;
	return FANIN_OK;
}

void
fanin_local_layout_free(struct fanin_local_layout *layout)
{
	free(layout->host_of);
	free(layout->place_of);
	free(layout->neighbors);
	*layout = (struct fanin_local_layout){ 0 };
}
