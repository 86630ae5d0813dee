/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Sparse calls (Flare section 7): they check the arguments; everything else is up to vector/ and
 * the protocol. See fanin/fanin.h.
 */
#include <stdlib.h>

#include "collectives.h"
#include "hostlib/src/comm/comm.h"
#include "hostlib/src/vector/vector.h"

/* Limit of indices of 4 bytes. */
#define MAX_OF_SHORT (UINT64_C(1) << 32)

static int
operator_check(const struct fanin_comm *comm, enum fanin_dtype dtype, enum fanin_op op,
	       struct fanin_error *error)
{
	const bool is_short_float = dtype == FANIN_F16 || dtype == FANIN_BF16;

	if (dtype < FANIN_I8 || dtype > FANIN_F64)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%d is not a data type of sparse vectors", (int)dtype);
	if (op == FANIN_AVG)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"avg is not defined on sparse vectors, of which a rank may have no "
			"value at an index: take sum");
	if (fanin_op_is_custom((unsigned int)op))
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED,
				       "custom operator %d is not defined on sparse vectors",
				       (int)op);
	if (!fanin_supports(dtype, op))
		return fanin_error_set(error, FANIN_ERR_UNSUPPORTED, "%s is not defined on %s",
				       fanin_op_name_of(op), fanin_dtype_name_of(dtype));
	if (comm->member.wide && is_short_float && op == FANIN_SUM)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job accumulates sums of %s in f32, which are not defined on sparse vectors: take "
			"f32, or a job that does not accumulate in f32",
			fanin_dtype_name_of(dtype));
	return FANIN_OK;
}

/* Checks that the job supports sparse vectors. A rank that is alone needs no support. */
static int
job_check(const struct fanin_comm *comm, struct fanin_error *error)
{
	if (comm->member.config.size == 1)
		return FANIN_OK;
	if ((comm->protocol->collectives >> FANIN_COLLECTIVE_ALLREDUCE_SPARSE & 1) != 0)
		return FANIN_OK;
	if (comm->protocol->on_switch == NULL && !comm->is_local)
		return fanin_error_set(
			error, FANIN_ERR_UNSUPPORTED,
			"the job runs without a switch (%s), and its protocol %s has no "
			"allreduce_sparse: use allreduce",
			comm->mode_reason, comm->protocol->name);
	return fanin_error_set(
		error, FANIN_ERR_UNSUPPORTED,
		"the job's handler %s has no allreduce_sparse: make the job with the handler "
		"sparse, sparse-array or sparse-hash, or use allreduce",
		comm->member.handler);
}

static int
result_check(const struct fanin_vector *sparse, struct fanin_error *error)
{
	const struct fanin_sparse_result *result = sparse->result;
	const uint64_t dense_len = sparse->n * sparse->element_bytes;

	if (result == NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID, "result is NULL");
	if (result->sz < sizeof(*result))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "the result's sz is %zu, expected %zu", result->sz,
				       sizeof(*result));
	if ((result->indices == NULL) != (result->values == NULL))
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"of the result's indices and values one is NULL, expected both or none");
	if (result->dense == NULL)
		return FANIN_OK;
	if (result->indices != NULL)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "the result has dense and indices, expected one of them");
	if (fanin_buffers_overlap(result->dense, dense_len, sparse->indices,
				  sparse->nnz * sparse->index_bytes) ||
	    fanin_buffers_overlap(result->dense, dense_len, sparse->values,
				  sparse->nnz * sparse->element_bytes))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "a dense result overlaps what is sent");
	return FANIN_OK;
}

static int
options_check(struct fanin_sparse_opts *options, const struct fanin_sparse_opts *opts,
	      struct fanin_error *error)
{
	if (opts != NULL && !fanin_options_copy(options, sizeof(*options), opts))
		return fanin_error_set(
			error, FANIN_ERR_INVALID,
			"the options' sz is %zu, this library knows %zu bytes of options", opts->sz,
			sizeof(*options));
	if (options->index_bytes == 0)
		options->index_bytes = 4;
	if (options->index_bytes != 4 && options->index_bytes != 8)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "index_bytes is %u, expected 4 or 8", options->index_bytes);
	/* This also refuses NaN. */
	if (!(options->density >= 0 && options->density <= 1))
		return fanin_error_set(error, FANIN_ERR_INVALID, "density is %g, expected 0 to 1",
				       options->density);
	return FANIN_OK;
}

/* Checks sizes and buffers, but not yet the indices. */
static int
vector_check(const struct fanin_vector *sparse, struct fanin_error *error)
{
	if (sparse->index_bytes == 4 && sparse->n > MAX_OF_SHORT)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "n is %llu, expected at most 2^32 with indices of 4 bytes",
				       (unsigned long long)sparse->n);
	if (sparse->n > SIZE_MAX / sparse->element_bytes)
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "%llu elements of %s exceed the address space",
				       (unsigned long long)sparse->n,
				       fanin_dtype_name(sparse->dtype));
	if (sparse->nnz > SIZE_MAX / (2 * sizeof(uint64_t)))
		return fanin_error_set(error, FANIN_ERR_INVALID,
				       "nnz is %llu, whose values exceed the address space",
				       (unsigned long long)sparse->nnz);
	if (sparse->nnz != 0 && (sparse->indices == NULL || sparse->values == NULL))
		return fanin_error_set(error, FANIN_ERR_INVALID, "%s is NULL, but nnz is %llu",
				       sparse->indices == NULL ? "indices" : "values",
				       (unsigned long long)sparse->nnz);
	return FANIN_OK;
}

/*
 * Checks a sparse vector, with the fields that the caller has given. Returns FANIN_OK if it can be
 * posted.
 */
static int
arguments_check(struct fanin_vector *sparse, const struct fanin_sparse_opts *options,
		struct fanin_error *error)
{
	const double values = options->density * (double)sparse->n;
	int status = vector_check(sparse, error);

	if (status == FANIN_OK)
		status = result_check(sparse, error);
	if (status == FANIN_OK)
		status = fanin_vector_check(sparse, options->coalesce, error);
	if (status != FANIN_OK || options->density == 0)
		return status;
	/* Large numbers may have been rounded up. */
	sparse->most = values >= (double)sparse->n ? sparse->n : values < 1 ? 1 : (uint64_t)values;
	sparse->is_known = true;
	return FANIN_OK;
}

/* Posts a request of the only rank, which has its result at once. */
static int
post_alone(const struct fanin_request *call, fanin_request **req)
{
	struct fanin_error *error = &call->comm->ctx->error;
	struct fanin_request *request = malloc(sizeof(*request));

	if (request == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	*request = *call;
	request->done_bytes = request->total_bytes;
	request->status = fanin_vector_finish_alone(call->sparse);
	fanin_request_link(request);
	*req = request;
	return FANIN_OK;
}

/* Posts a sparse request. given: copied. */
static int
sparse_post(const struct fanin_vector *given, const struct fanin_sparse_opts *options,
	    fanin_comm *comm, fanin_request **req)
{
	struct fanin_error *error = &comm->ctx->error;
	struct fanin_vector *sparse = malloc(sizeof(*sparse));
	const struct fanin_request call = {
		.comm = comm,
		.collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE,
		.sparse = sparse,
		.dtype = given->dtype,
		.op = given->op,
		/* Set for the time while it is held back, too. */
		.total_bytes = given->n * given->element_bytes,
	};
	int status;

	if (sparse == NULL)
		return fanin_error_set(error, FANIN_ERR_NO_MEMORY, "out of memory");
	*sparse = *given;
	status = arguments_check(sparse, options, error);
	if (status == FANIN_OK) {
		fanin_ctx_lock(comm->ctx);
		if (comm->member.config.size == 1)
			status = post_alone(&call, req);
		else
			status = fanin_request_post(&call, sparse->n, req);
		fanin_ctx_unlock(comm->ctx);
	}
	if (status != FANIN_OK)
		fanin_vector_free(sparse);
	return status;
}

int
fanin_iallreduce_sparse(uint64_t n, uint64_t nnz, const void *indices, const void *values,
			struct fanin_sparse_result *result, enum fanin_dtype dtype,
			enum fanin_op op, const struct fanin_sparse_opts *opts, fanin_comm *comm,
			fanin_request **req)
{
	struct fanin_sparse_opts options = { 0 };
	struct fanin_vector sparse;
	struct fanin_error *error;
	int status;

	if (comm == NULL || req == NULL)
		return FANIN_ERR_INVALID;
	error = &comm->ctx->error;
	fanin_error_clear(error);
	status = options_check(&options, opts, error);
	if (status == FANIN_OK)
		status = operator_check(comm, dtype, op, error);
	if (status == FANIN_OK)
		status = job_check(comm, error);
	if (status != FANIN_OK)
		return status;
	sparse = (struct fanin_vector){
		.n = n,
		.nnz = nnz,
		.indices = indices,
		.values = values,
		.result = result,
		.index_bytes = options.index_bytes,
		.dtype = (uint8_t)dtype,
		.op = (uint8_t)op,
		.element_bytes = (uint8_t)fanin_dtype_size_of(dtype),
	};
	return sparse_post(&sparse, &options, comm, req);
}

int
fanin_allreduce_sparse(uint64_t n, uint64_t nnz, const void *indices, const void *values,
		       struct fanin_sparse_result *result, enum fanin_dtype dtype, enum fanin_op op,
		       const struct fanin_sparse_opts *opts, fanin_comm *comm)
{
	fanin_request *request;
	int status = fanin_iallreduce_sparse(n, nnz, indices, values, result, dtype, op, opts, comm,
					     &request);

	return status == FANIN_OK ? fanin_wait(&request) : status;
}

int
fanin_vector_hint_take(struct fanin_request *call, size_t count)
{
	struct fanin_comm *comm = call->comm;
	const uint16_t n_ranks = comm->member.config.size;
	struct fanin_error why;
	struct fanin_vector *sparse;

	if (call->op != FANIN_SUM || n_ranks == 1 || job_check(comm, &why) != FANIN_OK ||
	    operator_check(comm, call->dtype, FANIN_SUM, &why) != FANIN_OK)
		return FANIN_OK;
	sparse = malloc(sizeof(*sparse));
	if (sparse == NULL)
		return fanin_error_set(&comm->ctx->error, FANIN_ERR_NO_MEMORY, "out of memory");
	*sparse = (struct fanin_vector){
		.n = count,
		.result = &sparse->whole,
		.whole = { .sz = sizeof(sparse->whole), .dense = call->recv },
		.dtype = call->dtype,
		.op = call->op,
		.element_bytes = call->element_bytes,
		.combine = fanin_kernel(fanin_isa_detect(), call->dtype, call->op),
		.is_hinted = true,
	};
	fanin_vector_of_dense(sparse, call->send, n_ranks, comm->protocol->on_switch != NULL);
	call->sparse = sparse;
	call->collective = FANIN_COLLECTIVE_ALLREDUCE_SPARSE;
	return FANIN_OK;
}

int
fanin_compact(const void *dense, uint64_t n, enum fanin_dtype dtype,
	      const struct fanin_compact_opts *opts, void *indices, void *values, uint64_t capacity,
	      uint64_t *count)
{
	struct fanin_compact_opts options = { 0 };

	if (count == NULL || (dense == NULL && n != 0) ||
	    (capacity != 0 && (indices == NULL || values == NULL)) || dtype < FANIN_I8 ||
	    dtype > FANIN_F64 ||
	    (opts != NULL && !fanin_options_copy(&options, sizeof(options), opts)))
		return FANIN_ERR_INVALID;
	if (options.index_bytes == 0)
		options.index_bytes = 4;
	if ((options.index_bytes != 4 && options.index_bytes != 8) || !(options.threshold >= 0) ||
	    (options.index_bytes == 4 && n > MAX_OF_SHORT))
		return FANIN_ERR_INVALID;
	return fanin_vector_compact(dense, n, (unsigned int)dtype, &options, indices, values,
				    capacity, count);
}
