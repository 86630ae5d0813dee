/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Multicast regions of a communicator (protocols/region/README.md): each is a job beside the
 * communicator's, whose parameters tell the switches its range of addresses. The jobs that reduce
 * regions are beside the communicator's, too, one for each way of reducing; they are joined when
 * first used.
 */
#include "comm.h"

#include <inttypes.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

/*
 * Addresses of a communicator's regions: the first one, and the alignment of all. The step leaves
 * unused addresses between two regions.
 */
#define FIRST_ADDRESS UINT64_C(0x10000)
#define ADDRESS_STEP UINT64_C(0x10000)
/* Ensures that no region, however many there were, ends beyond the maximum of a parameter. */
#define MAX_REGION_BYTES (UINT64_C(1) << 48)

/* Values that must be the same at all ranks. */
struct likeness {
	uint64_t bytes;
	uint64_t not_bytes; /* ~bytes: its minimum gives the maximum of bytes */
	uint64_t no_memory; /* this rank if it has no memory, else a number above all ranks */
};

/*
 * Checks that all ranks give the same length, and have memory. Returns FANIN_OK, FANIN_ERR_INVALID
 * or FANIN_ERR_NO_MEMORY at all ranks, or the status with which the communicator has failed.
 */
static int
likeness_check(struct fanin_comm *comm, uint64_t bytes, bool has_memory, struct fanin_error *error)
{
	struct likeness least = {
		.bytes = bytes,
		.not_bytes = ~bytes,
		.no_memory = has_memory ? UINT64_MAX : comm->member.config.rank,
	};
	int status = fanin_comm_min_of_all(comm, "a region", FANIN_U64, &least, 3, error);

	if (status != FANIN_OK)
		return status;
	if (least.bytes != ~least.not_bytes)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "the ranks give regions of %" PRIu64 " to %" PRIu64
				       " bytes, expected the same length everywhere",
				       least.bytes, ~least.not_bytes);
	if (least.no_memory != UINT64_MAX)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY,
				       "rank %" PRIu64 " has no memory for a region",
				       least.no_memory);
	return FANIN_OK;
}

/*
 * Gives the engine the region's memory, once all ranks are in the job. All ranks learn whether all
 * engines have accepted it.
 */
static int
region_attach(struct fanin_region *region, struct fanin_error *error)
{
	struct fanin_comm *comm = region->comm;
	struct fanin_error found = { 0 };
	uint8_t there;
	int status;

	fanin_ctx_lock(comm->ctx);
	status = comm->protocol->region == NULL
			 ? fanin_error_set(&found, FANIN_ERR_UNSUPPORTED,
					   "the job's protocol is %s, which has no regions",
					   comm->protocol->name)
			 : comm->protocol->region->attach(comm->endpoint, region->memory,
							  region->address, region->bytes, &found);
	fanin_ctx_unlock(comm->ctx);
	there = status == FANIN_OK;
	status = fanin_comm_min_of_all(region->owner, "a region", FANIN_U8, &there, 1, error);
	if (status != FANIN_OK || there)
		return status;
	return fanin_error_set(error, FANIN_ERR_REFUSED, "%s",
			       found.text[0] != '\0' ? found.text
						     : "another rank could not begin the region");
}

/* Joins the region's job. */
static int
region_join(struct fanin_region *region, uint32_t number, struct fanin_error *error)
{
	struct fanin_comm *comm = region->owner;
	const struct fanin_join_opts *options = &comm->kept.options;
	const struct fanin_manager_parameter parameters[] = { { "base", region->address },
							      { "bytes", region->bytes } };
	char digits[16];
	const struct fanin_beside job = {
		.owner = comm,
		.use = FANIN_BESIDE_REGION,
		.number = digits,
		.what = "a region",
		.trees = 1,
		.parameters = parameters,
		.n_parameters = sizeof(parameters) / sizeof(parameters[0]),
	};
	char why[FANIN_TEXT_LEN] = "";
	int status;

	snprintf(digits, sizeof(digits), "%" PRIu32, number);
	status = fanin_comm_beside_join(options, &job,
					fanin_comm_beside_obstacle(comm, options, job.use, digits),
					&region->comm, why, error);
	if (status != FANIN_OK || region->comm != NULL)
		return status;
	return fanin_error_set(error, FANIN_ERR_UNSUPPORTED, "job '%s' has no region: %.350s",
			       comm->job_name, why);
}

/* Checks for reasons that are the same at all ranks, which therefore need not ask each other. */
static int
check(const struct fanin_comm *comm, struct fanin_error *error)
{
	const struct fanin_join_opts *options = &comm->kept.options;

	if (options->job_name == NULL)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job was given by its switch, and only the network manager makes regions");
	if (!fanin_protocol_has_tree(comm->protocol))
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"job '%s' runs without a tree of switches, which regions need: %.300s",
			comm->job_name, comm->mode_reason);
	return FANIN_OK;
}

int
fanin_comm_region_create(struct fanin_comm *comm, void *memory, uint64_t bytes,
			 struct fanin_region **region, struct fanin_error *error)
{
	struct fanin_region *made;
	uint32_t number;
	int status = check(comm, error);

	if (status != FANIN_OK)
		return status;
	/* A rank without memory tells the others, which would wait for it. */
	made = calloc(1, sizeof(*made));
	status = likeness_check(comm, bytes, made != NULL, error);
	if (status == FANIN_OK && (bytes == 0 || bytes > MAX_REGION_BYTES))
		status = fanin_error_set(error, FANIN_ERR_INVALID,
					 "bytes is %" PRIu64 ", expected 1 to %" PRIu64, bytes,
					 MAX_REGION_BYTES);
	if (status != FANIN_OK) {
		free(made);
		return status;
	}
	/* All ranks do the same from here on, even if it fails. */
	number = comm->regions.n_asked++;
	made->owner = comm;
	made->memory = memory;
	made->bytes = bytes;
	made->address = comm->regions.next_address == 0 ? FIRST_ADDRESS
							: comm->regions.next_address;
	comm->regions.next_address = made->address +
				     (bytes + ADDRESS_STEP - 1) / ADDRESS_STEP * ADDRESS_STEP +
				     ADDRESS_STEP;
	status = region_join(made, number, error);
	if (status == FANIN_OK)
		status = region_attach(made, error);
	if (status != FANIN_OK) {
		const struct fanin_error kept = *error;

		fanin_leave(made->comm);
		free(made);
		*error = kept;
		return status;
	}
	made->next = comm->regions.first;
	comm->regions.first = made;
	*region = made;
	return FANIN_OK;
}

int
fanin_comm_region_free(struct fanin_region *region)
{
	struct fanin_region **link = &region->owner->regions.first;
	int status;

	while (*link != region)
		link = &(*link)->next;
	*link = region->next;
	status = fanin_leave(region->comm);
	free(region);
	return status;
}

int
fanin_comm_region_reducing(struct fanin_comm *comm, enum fanin_beside_use way,
			   struct fanin_comm **reducing, struct fanin_error *error)
{
	const struct fanin_join_opts *options = &comm->kept.options;
	const struct fanin_protocol *protocol = fanin_protocol_beside(way);
	const struct fanin_beside job = {
		.owner = comm,
		.use = way,
		.number = "",
		.what = "reducing regions",
		.trees = options->trees,
	};
	char why[FANIN_TEXT_LEN] = "";
	int status = FANIN_OK;

	if (comm->beside[way] == NULL)
		status = fanin_comm_beside_join(options, &job,
						fanin_comm_beside_obstacle(comm, options, way, ""),
						&comm->beside[way], why, error);
	if (status == FANIN_OK && comm->beside[way] == NULL)
		status = fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
					 "job '%s' does not reduce regions %s%s: %.350s",
					 comm->job_name, protocol == NULL ? "in this way" : "by ",
					 protocol == NULL ? "" : protocol->name, why);
	if (status == FANIN_OK)
		*reducing = comm->beside[way];
	return status;
}
