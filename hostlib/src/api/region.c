/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The calls on multicast regions: they check the arguments, and wait where the caller has to. See
 * fanin/fanin.h.
 */
#include <inttypes.h>

#include "hostlib/src/comm/comm.h"

int
fanin_region_create(fanin_comm *comm, void *base, size_t bytes,
		    const struct fanin_region_opts *opts, fanin_region **region)
{
	struct fanin_region_opts options = { 0 };

	if (comm == NULL || region == NULL || (base == NULL && bytes != 0))
		return FANIN_ERR_INVALID;
	fanin_error_clear(&comm->ctx->error);
	if (opts != NULL && !fanin_options_copy(&options, sizeof(options), opts))
		return fanin_error_set(
			&comm->ctx->error, FANIN_ERR_INVALID,
			"the options' sz is %zu, this library knows %zu bytes of options", opts->sz,
			sizeof(options));
	return fanin_comm_region_create(comm, base, bytes, region, &comm->ctx->error);
}

int
fanin_region_free(fanin_region *region)
{
	return region == NULL ? FANIN_OK : fanin_comm_region_free(region);
}

uint64_t
fanin_region_network_address(const fanin_region *region)
{
	return region == NULL ? 0 : region->address;
}

/* Checks that a range lies within the region. */
static int
range_check(const struct fanin_region *region, size_t offset, size_t bytes,
	    struct fanin_error *error)
{
	if (offset <= region->bytes && bytes <= region->bytes - offset)
		return FANIN_OK;
	return fanin_error_set(error, FANIN_ERR_INVALID,
			       "%zu bytes from offset %zu on exceed the region, which has %" PRIu64,
			       bytes, offset, region->bytes);
}

/*
 * Makes the error of a region's job that has failed the context's last error. Returns the status.
 */
static int
failed(const struct fanin_region *region, int status)
{
	const struct fanin_error *why = region->comm->ops->error(region->comm);

	if (why->text[0] != '\0')
		region->comm->ctx->error = *why;
	return status;
}

int
fanin_region_write(fanin_region *region, size_t offset, const void *data, size_t bytes)
{
	struct fanin_comm *comm;
	int status;

	if (region == NULL || (data == NULL && bytes != 0))
		return FANIN_ERR_INVALID;
	comm = region->comm;
	fanin_ctx_lock(comm->ctx);
	fanin_error_clear(&comm->ctx->error);
	status = range_check(region, offset, bytes, &comm->ctx->error);
	if (status == FANIN_OK) {
		status = comm->protocol->region->store(comm->endpoint, offset, data, bytes);
		if (status == FANIN_OK) {
			/*
			 * Polls once, to start sending and to receive what others report about
			 * earlier writes.
			 */
			(void)comm->ops->poll(comm);
			fanin_ctx_wake(comm->ctx);
		} else if (status == FANIN_ERR_INVALID) {
			fanin_error_set(
				&comm->ctx->error, status,
				"a fence is under way, or more packets were written than a fence can count: expected its end, or a fence");
		} else if (status == FANIN_ERR_NO_MEMORY) {
			fanin_error_set(&comm->ctx->error, status, "out of memory");
		} else {
			failed(region, status);
		}
	}
	fanin_ctx_unlock(comm->ctx);
	return status;
}

int
fanin_region_fence(fanin_region *region)
{
	struct fanin_request request = { 0 };
	struct fanin_comm *comm;
	int status;

	if (region == NULL)
		return FANIN_ERR_INVALID;
	comm = region->comm;
	request.comm = comm;
	fanin_ctx_lock(comm->ctx);
	fanin_error_clear(&comm->ctx->error);
	status = comm->protocol->region->fence(comm->endpoint, &request);
	if (status == FANIN_OK) {
		fanin_ctx_wake(comm->ctx);
		status = fanin_ctx_wait(comm->ctx, &request, UINT64_MAX);
	}
	/* The engine must not refer to the request any more. */
	if (request.status == FANIN_IN_PROGRESS) {
		struct fanin_error why = { 0 };

		fanin_error_set(&why, status, "interrupted in a fence");
		fanin_comm_abort(comm, status, &why);
	}
	if (status != FANIN_OK)
		failed(region, status);
	fanin_ctx_unlock(comm->ctx);
	return status;
}

/* Posts an allreduce of a range of all ranks' regions, in place, and waits for it. */
static int
reduce(struct fanin_region *region, enum fanin_beside_use way, size_t offset, size_t count,
       enum fanin_dtype dtype, enum fanin_op op)
{
	const size_t element_bytes = fanin_dtype_size_of(dtype);
	struct fanin_error *error;
	struct fanin_comm *reducing;
	int status;

	if (region == NULL)
		return FANIN_ERR_INVALID;
	error = &region->owner->ctx->error;
	fanin_error_clear(error);
	if (element_bytes == 0)
		return fanin_error_set(error, FANIN_ERR_INVALID, "%d is not a data type",
				       (int)dtype);
	if (count > SIZE_MAX / element_bytes)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%zu elements of %s exceed the address space", count,
				       fanin_dtype_name_of(dtype));
	status = range_check(region, offset, count * element_bytes, error);
	if (status == FANIN_OK)
		status = fanin_comm_region_reducing(region->owner, way, &reducing, error);
	if (status != FANIN_OK)
		return status;
	status = fanin_allreduce(region->memory + offset, region->memory + offset, count, dtype, op,
				 reducing);
	if (status != FANIN_OK && fanin_comm_error(reducing)[0] != '\0') {
		fanin_ctx_lock(reducing->ctx);
		*error = *reducing->ops->error(reducing);
		fanin_ctx_unlock(reducing->ctx);
	}
	return status;
}

int
fanin_region_push(fanin_region *region, size_t offset, size_t count, enum fanin_dtype dtype,
		  enum fanin_op op)
{
	return reduce(region, FANIN_BESIDE_PUSH, offset, count, dtype, op);
}

int
fanin_region_pull(fanin_region *region, size_t offset, size_t count, enum fanin_dtype dtype,
		  enum fanin_op op)
{
	return reduce(region, FANIN_BESIDE_PULL, offset, count, dtype, op);
}
