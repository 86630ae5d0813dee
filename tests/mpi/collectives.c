/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that knows nothing of Fanin: all collectives that the library to preload takes
 * over, with all predefined types and operators, in place and not, of several sizes, by ranks that
 * describe the same data differently, on communicators that come and go. Rank 0 prints a line for
 * each case with a digest of what all ranks have received. The net tests compare what it prints
 * with the library and without. Values are such that every order of summation gives the same bits.
 * Arguments: communicators that are made; "nonblocking": by the nonblocking calls, which all of
 * MPI's calls for requests complete; "communicators": nothing else; "few": a quarter of the types.
 */
#include <mpi.h>
#include <sched.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum kind {
	INTEGER,
	FLOAT,
	COMPLEX,
	LOGICAL,
	BYTE,
	PAIR,
	MOVED
};

struct type {
	const char *name;
	MPI_Datatype type;
	enum kind kind;
};

struct op {
	const char *name;
	MPI_Op op;
	const char *kinds; /* a digit for each enum kind that it is defined on */
};

#define T(type, kind)                                                                              \
	{                                                                                          \
#type, type, kind                                                                  \
	}

static int rank, size;
static unsigned long n_cases, n_calls;
static int root;
static bool nonblocking;

/*
 * The blocking call, or the nonblocking one with each way to complete it in turn, some beside
 * messages of this rank to itself.
 */
#define COLLECTIVE(name, iname, ...)                                                               \
	do {                                                                                       \
		if (nonblocking) {                                                                 \
			MPI_Request req_of_call;                                                   \
			iname(__VA_ARGS__, &req_of_call);                                          \
			complete(req_of_call);                                                     \
		} else {                                                                           \
			name(__VA_ARGS__);                                                         \
		}                                                                                  \
	} while (0)

static void
complete(MPI_Request req)
{
	static unsigned int turn;
	int sent = (int)turn, received = -1, done = 0, n = 0, places[3];
	MPI_Request reqs[3] = { MPI_REQUEST_NULL, req, MPI_REQUEST_NULL };
	MPI_Status statuses[3];

	if (turn % 2 == 0) {
		MPI_Irecv(&received, 1, MPI_INT, 0, 17, MPI_COMM_SELF, &reqs[0]);
		MPI_Isend(&sent, 1, MPI_INT, 0, 17, MPI_COMM_SELF, &reqs[2]);
	}
	switch (turn++ % 24) {
	case 0:
	case 1:
		MPI_Waitall(3, reqs, statuses);
		break;
	case 2:
	case 3:
		while (!done) {
			MPI_Testall(3, reqs, &done, statuses);
			sched_yield();
		}
		break;
	case 4:
	case 5:
		while (n != MPI_UNDEFINED)
			MPI_Waitsome(3, reqs, &n, places, statuses);
		break;
	case 6:
		while (n != MPI_UNDEFINED)
			MPI_Waitany(3, reqs, &n, statuses);
		break;
	case 7:
		while (!done) {
			MPI_Request_get_status(reqs[1], &done, statuses);
			sched_yield();
		}
		MPI_Wait(&reqs[1], MPI_STATUS_IGNORE);
		break;
	default:
		for (int i = 0; i < 3; i++)
			MPI_Wait(&reqs[i], MPI_STATUS_IGNORE);
	}
	if (reqs[1] != MPI_REQUEST_NULL || (turn % 2 == 1 && received != sent)) {
		fprintf(stderr, "rank %d: a request that is not done\n", rank);
		MPI_Abort(MPI_COMM_WORLD, 1);
	}
}

static uint64_t
digest(uint64_t sum, const void *data, size_t bytes)
{
	const uint8_t *byte = data;

	for (size_t i = 0; i < bytes; i++)
		sum = (sum ^ byte[i]) * 0x100000001b3u;
	return sum;
}

/*
 * A small number that depends on rank and place: products of all ranks are exact in every type but
 * the smallest.
 */
static unsigned int
value(int of_rank, size_t i)
{
	return (unsigned int)((i * 7 + (size_t)of_rank * 3 + i / 11) % 3 + (size_t)(of_rank == 0));
}

static void
put(uint8_t *at, const struct type *type, int bytes, unsigned int v)
{
	memset(at, 0, (size_t)bytes);
	if (type->kind == LOGICAL || type->kind == BYTE || type->kind == INTEGER ||
	    type->kind == MOVED) {
		at[0] = (uint8_t)(type->kind == LOGICAL ? v & 1 : v);
	} else if (type->kind == PAIR) {
		*(int *)(void *)at = (int)v;
		((int *)(void *)at)[1] = rank;
	} else {
		const int part = type->kind == COMPLEX ? bytes / 2 : bytes;

		for (int offset = 0; offset < bytes; offset += part) {
			if (part == 4)
				*(float *)(void *)(at + offset) = (float)v;
			else if (part == 8)
				*(double *)(void *)(at + offset) = (double)v;
			else
				*(long double *)(void *)(at + offset) = (long double)v;
		}
	}
}

static void
fill(void *data, const struct type *type, int bytes, size_t count)
{
	for (size_t i = 0; i < count; i++)
		put((uint8_t *)data + i * (size_t)bytes, type, bytes, value(rank, i));
}

/* Rank 0 prints one number for what all ranks have. */
static void
show(MPI_Comm comm, const char *what, const char *type, const char *op, int count, bool in_place,
     const void *data, size_t bytes)
{
	uint64_t mine = digest(0xcbf29ce484222325u, data, bytes),
		 *all = calloc((size_t)size, sizeof(*all));

	MPI_Gather(&mine, 1, MPI_UINT64_T, all, 1, MPI_UINT64_T, 0, comm);
	if (rank == 0)
		printf("%s %s %s %d%s %016llx\n", what, type, op, count,
		       in_place ? " in place" : "",
		       (unsigned long long)digest(0, all, (size_t)size * sizeof(*all)));
	free(all);
	n_cases++;
}

static void
reductions(MPI_Comm comm, const struct type *type, const struct op *op, int count, bool in_place)
{
	const size_t n = (size_t)count * (size_t)size;
	uint8_t *send, *recv;
	int bytes;

	MPI_Type_size(type->type, &bytes);
	send = malloc(n * (size_t)bytes + 1);
	recv = calloc(n, (size_t)bytes + 1);
	fill(send, type, bytes, n);
	if (in_place)
		memcpy(recv, send, n * (size_t)bytes);
	COLLECTIVE(MPI_Allreduce, MPI_Iallreduce, in_place ? MPI_IN_PLACE : send, recv, count,
		   type->type, op->op, comm);
	show(comm, "allreduce", type->name, op->name, count, in_place, recv,
	     (size_t)count * (size_t)bytes);

	memcpy(recv, send, n * (size_t)bytes);
	root = (root + 1) % size;
	/* What others than the root have in recv is theirs. */
	COLLECTIVE(MPI_Reduce, MPI_Ireduce, in_place && rank == root ? MPI_IN_PLACE : send,
		   rank == root ? recv : NULL, count, type->type, op->op, root, comm);
	show(comm, "reduce", type->name, op->name, count, in_place, recv,
	     (size_t)count * (size_t)bytes);

	memcpy(recv, send, n * (size_t)bytes);
	/* Here one rank may do it in place, and others not. */
	in_place = in_place && rank != 1;
	COLLECTIVE(MPI_Reduce_scatter_block, MPI_Ireduce_scatter_block,
		   in_place ? MPI_IN_PLACE : send, recv, count, type->type, op->op, comm);
	/*
	 * In place the rest of the vector stays as it was with both MPIs, and programs rely on it.
	 */
	show(comm, "reduce_scatter_block", type->name, op->name, count, in_place, recv,
	     n * (size_t)bytes);
	n_calls += 3;
	free(send);
	free(recv);
}

static void
movements(MPI_Comm comm, const struct type *type, int count, bool in_place)
{
	const size_t n = (size_t)count * (size_t)size;
	MPI_Aint low, extent;
	uint8_t *part, *all;

	MPI_Type_get_extent(type->type, &low, &extent);
	part = calloc((size_t)count, (size_t)extent);
	all = calloc(n, (size_t)extent);
	root = (root + 1) % size;
	for (size_t i = 0; i < n * (size_t)extent && rank == root; i++)
		all[i] = (uint8_t)(i * 31 + i / 253);
	if (type->kind != PAIR) {
		COLLECTIVE(MPI_Bcast, MPI_Ibcast, all, count, type->type, root, comm);
		show(comm, "bcast", type->name, "-", count, false, all,
		     (size_t)count * (size_t)extent);
	}
	memset(all, 0, n * (size_t)extent);
	for (size_t i = 0; i < (size_t)count * (size_t)extent; i++)
		part[i] = (uint8_t)(i * 29 + (size_t)rank * 5 + i / 253);
	if (in_place)
		memcpy(all + (size_t)rank * (size_t)count * (size_t)extent, part,
		       (size_t)count * (size_t)extent);
	if (in_place)
		COLLECTIVE(MPI_Allgather, MPI_Iallgather, MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, all,
			   count, type->type, comm);
	else
		COLLECTIVE(MPI_Allgather, MPI_Iallgather, part, count, type->type, all, count,
			   type->type, comm);
	if (type->kind != PAIR)
		show(comm, "allgather", type->name, "-", count, in_place, all, n * (size_t)extent);
	n_calls += 2;
	free(part);
	free(all);
}

/*
 * Ranks with an odd number describe the data by a type with gaps, in the reverse order of places.
 */
static void
derived(MPI_Comm comm, int count)
{
	MPI_Datatype vector, resized;
	double *sparse = calloc((size_t)count * (size_t)size * 2 + 2, sizeof(double)),
	       *dense = calloc((size_t)count * (size_t)size, sizeof(double));
	const bool odd = rank % 2 == 1;

	MPI_Type_vector(count, 1, 2, MPI_DOUBLE, &vector);
	MPI_Type_create_resized(vector, 0, (MPI_Aint)sizeof(double) * 2 * count, &resized);
	MPI_Type_commit(&resized);
	for (int r = 0; r < size; r++) {
		for (int i = 0; i < count && rank == r; i++)
			sparse[2 * i] = dense[i] = i * 3 + r;
		if (odd)
			COLLECTIVE(MPI_Bcast, MPI_Ibcast, sparse, 1, resized, r, comm);
		else
			COLLECTIVE(MPI_Bcast, MPI_Ibcast, dense, count, MPI_DOUBLE, r, comm);
		for (int i = 0; i < count; i++)
			dense[i] = odd ? sparse[2 * i] : dense[i];
		show(comm, "bcast", "vector", "-", count, false, dense,
		     (size_t)count * sizeof(double));
	}
	for (int in_place = 0; in_place < 2; in_place++) {
		double mine[64];
		const int part = count < 64 ? count : 64;
		MPI_Datatype gaps, gaps_resized;

		MPI_Type_vector(part, 1, 2, MPI_DOUBLE, &gaps);
		MPI_Type_create_resized(gaps, 0, (MPI_Aint)sizeof(double) * 2 * part,
					&gaps_resized);
		MPI_Type_commit(&gaps_resized);
		memset(sparse, 0, sizeof(double) * 2 * (size_t)count * (size_t)size);
		memset(dense, 0, sizeof(double) * (size_t)count * (size_t)size);
		for (int i = 0; i < part; i++)
			mine[i] = dense[rank * part + i] = sparse[2 * (rank * part + i)] = i * 5 +
											   rank;
		COLLECTIVE(MPI_Allgather, MPI_Iallgather, in_place ? MPI_IN_PLACE : mine, part,
			   MPI_DOUBLE, odd ? sparse : dense, odd ? 1 : part,
			   odd ? gaps_resized : MPI_DOUBLE, comm);
		for (int i = 0; i < part * size; i++)
			dense[i] = odd ? sparse[2 * i] : dense[i];
		show(comm, "allgather", "vector", "-", part, in_place != 0, dense,
		     sizeof(double) * (size_t)(part * size));
		MPI_Type_free(&gaps);
		MPI_Type_free(&gaps_resized);
	}
	MPI_Type_free(&vector);
	MPI_Type_free(&resized);
	free(sparse);
	free(dense);
}

static void
last_of(void *in, void *inout, int *n, MPI_Datatype *type)
{
	(void)type;
	for (int i = 0; i < *n; i++)
		((int *)inout)[i] += 2 * ((int *)in)[i];
}

/* What must go to MPI, whatever is preloaded. */
static void
others(MPI_Comm comm)
{
	int data[1000], result[1000];
	MPI_Op op;

	for (int i = 0; i < 1000; i++)
		data[i] = i + rank;
	MPI_Op_create(last_of, 1, &op);
	MPI_Reduce(data, result, 1000, MPI_INT, op, 0, comm);
	show(comm, "reduce", "MPI_INT", "user", 1000, false, result,
	     rank == 0 ? sizeof(result) : 0);
	MPI_Op_free(&op);
	MPI_Allreduce(data, result, 500, MPI_2INT, MPI_MAXLOC, comm);
	show(comm, "allreduce", "MPI_2INT", "MPI_MAXLOC", 500, false, result, sizeof(result));
	MPI_Allreduce(data, result, 1000, MPI_INT, MPI_SUM, MPI_COMM_SELF);
	show(comm, "allreduce self", "MPI_INT", "MPI_SUM", 1000, false, result, sizeof(result));
	MPI_Allreduce(data, result, 0, MPI_INT, MPI_SUM, comm);
}

static void
communicators(int n)
{
	int world_rank = rank, world_size = size;

	for (int i = 0; i < n; i++) {
		int data[700], result[700];
		MPI_Comm half, copy;

		MPI_Comm_split(MPI_COMM_WORLD, world_rank % 2,
			       i % 3 == 0 ? -world_rank : world_rank, &half);
		MPI_Comm_dup(half, &copy);
		for (int k = 0; k < 700; k++)
			data[k] = k * world_rank + i;
		MPI_Allreduce(data, result, 700, MPI_INT, MPI_SUM, half);
		MPI_Bcast(result, 700, MPI_INT, 0, copy);
		rank = world_rank, size = world_size;
		show(MPI_COMM_WORLD, "split and duplicated", "MPI_INT", "MPI_SUM", i, false, result,
		     sizeof(result));
		MPI_Comm_free(&half);
		MPI_Comm_free(&copy);
	}
}

int
main(int argc, char **argv)
{
	static const struct type types[] = {
		T(MPI_INT, INTEGER),
		T(MPI_LONG, INTEGER),
		T(MPI_SHORT, INTEGER),
		T(MPI_LONG_LONG, INTEGER),
		T(MPI_SIGNED_CHAR, INTEGER),
		T(MPI_UNSIGNED, INTEGER),
		T(MPI_UNSIGNED_LONG, INTEGER),
		T(MPI_UNSIGNED_SHORT, INTEGER),
		T(MPI_UNSIGNED_LONG_LONG, INTEGER),
		T(MPI_UNSIGNED_CHAR, INTEGER),
		T(MPI_INT8_T, INTEGER),
		T(MPI_INT16_T, INTEGER),
		T(MPI_INT32_T, INTEGER),
		T(MPI_INT64_T, INTEGER),
		T(MPI_UINT8_T, INTEGER),
		T(MPI_UINT16_T, INTEGER),
		T(MPI_UINT32_T, INTEGER),
		T(MPI_UINT64_T, INTEGER),
		T(MPI_AINT, INTEGER),
		T(MPI_OFFSET, INTEGER),
		T(MPI_COUNT, INTEGER),
		T(MPI_FLOAT, FLOAT),
		T(MPI_DOUBLE, FLOAT),
		T(MPI_LONG_DOUBLE, FLOAT),
		T(MPI_C_FLOAT_COMPLEX, COMPLEX),
		T(MPI_C_DOUBLE_COMPLEX, COMPLEX),
		T(MPI_C_BOOL, LOGICAL),
		T(MPI_BYTE, BYTE),
		T(MPI_CHAR, INTEGER),
		T(MPI_WCHAR, MOVED),
		T(MPI_INTEGER, INTEGER),
		T(MPI_REAL, FLOAT),
		T(MPI_DOUBLE_PRECISION, FLOAT),
		T(MPI_LOGICAL, LOGICAL),
		T(MPI_COMPLEX, COMPLEX),
		T(MPI_DOUBLE_COMPLEX, COMPLEX),
		T(MPI_CHARACTER, MOVED),
		T(MPI_2INT, PAIR),
	};
	static const struct op ops[] = {
		{ "MPI_SUM", MPI_SUM, "012" },     { "MPI_PROD", MPI_PROD, "012" },
		{ "MPI_MIN", MPI_MIN, "01" },      { "MPI_MAX", MPI_MAX, "01" },
		{ "MPI_LAND", MPI_LAND, "03" },    { "MPI_LOR", MPI_LOR, "03" },
		{ "MPI_LXOR", MPI_LXOR, "03" },    { "MPI_BAND", MPI_BAND, "04" },
		{ "MPI_BOR", MPI_BOR, "04" },      { "MPI_BXOR", MPI_BXOR, "04" },
		{ "MPI_MAXLOC", MPI_MAXLOC, "5" },
	};
	static const int counts[] = { 3, 2001 };
	const int n_communicators = argc > 1 ? atoi(argv[1]) : 20;
	bool only_communicators;
	size_t step;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	nonblocking = argc > 2 && strcmp(argv[2], "nonblocking") == 0;
	step = argc > 2 && strcmp(argv[2], "few") == 0 ? 4 : 1;
	/* From here on the communicator may have what its nonblocking calls need. */
	MPI_Bcast(&root, 1, MPI_INT, 0, MPI_COMM_WORLD);
	only_communicators = argc > 2 && strcmp(argv[2], "communicators") == 0;
	for (size_t c = 0; c < sizeof(counts) / sizeof(counts[0]) && !only_communicators; c++) {
		for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t += step) {
			const struct type *type = &types[t];

			/*
			 * Which kinds of integers have which operators, MPI libraries see
			 * differently.
			 */
			for (size_t o = 0; o < sizeof(ops) / sizeof(ops[0]); o++) {
				const bool is_logical = strchr(ops[o].kinds, '3') != NULL;
				const bool is_c = strcmp(type->name, "MPI_INTEGER") != 0 &&
						  strcmp(type->name, "MPI_AINT") != 0 &&
						  strcmp(type->name, "MPI_OFFSET") != 0 &&
						  strcmp(type->name, "MPI_COUNT") != 0;

				if (strchr(ops[o].kinds, '0' + (int)type->kind) == NULL ||
				    (is_logical && !is_c && type->kind == INTEGER))
					continue;
				reductions(MPI_COMM_WORLD, type, &ops[o], counts[c], false);
				reductions(MPI_COMM_WORLD, type, &ops[o], counts[c], true);
			}
			movements(MPI_COMM_WORLD, type, counts[c], false);
			movements(MPI_COMM_WORLD, type, counts[c], true);
		}
		derived(MPI_COMM_WORLD, counts[c]);
		COLLECTIVE(MPI_Barrier, MPI_Ibarrier, MPI_COMM_WORLD);
	}
	if (!only_communicators)
		others(MPI_COMM_WORLD);
	communicators(n_communicators);
	if (rank == 0)
		printf("cases %lu\n", n_cases);
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
