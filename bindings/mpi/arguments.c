/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Arguments that MPI refuses. Calls with such arguments are handed to MPI, which reports the error
 * by the communicator's error handler, and other ranks hear nothing of it. A call that MPI would
 * carry out must not be handed to it in this way: the other ranks are in the network. Checks that
 * differ between MPI libraries and their settings are left to MPI itself, on a communicator of this
 * process alone.
 */
#include "core.h"

#include <pthread.h>

/* A communicator of this process, which returns errors. */
static MPI_Comm judge = MPI_COMM_NULL;

/*
 * Number of elements from which MPI refuses a send buffer that is the receive buffer, or this
 * rank's part of it; 0: it never does.
 */
static int one_buffer_from[N_COLLECTIVES];
/* MPI accepts an uncommitted type for the data that an allgather receives. */
static bool takes_uncommitted;
/* MPI accepts MPI_IN_PLACE as the receive buffer of a call that has no data. */
static bool takes_in_place_of_nothing;
/* A communicator has one collective at a time. */
static pthread_mutex_t judge_lock = PTHREAD_MUTEX_INITIALIZER;

static int
one_buffer(enum collective_kind kind, int *data, int n)
{
	switch (kind) {
	case COLLECTIVE_ALLREDUCE:
		return PMPI_Allreduce(data, data, n, MPI_INT, MPI_SUM, judge);
	case COLLECTIVE_REDUCE:
		return PMPI_Reduce(data, data, n, MPI_INT, MPI_SUM, 0, judge);
	case COLLECTIVE_REDUCE_SCATTER_BLOCK:
		return PMPI_Reduce_scatter_block(data, data, n, MPI_INT, MPI_SUM, judge);
	case COLLECTIVE_ALLGATHER:
		return PMPI_Allgather(data, n, MPI_INT, data, n, MPI_INT, judge);
	default:
		return MPI_SUCCESS;
	}
}

static void
answers_ask(void)
{
	int data[2] = { 0 }, from[2] = { 0 };
	MPI_Datatype pair;

	for (int kind = 0; kind < N_COLLECTIVES; kind++)
		for (int n = 1; n <= 2 && one_buffer_from[kind] == 0; n++)
			if (one_buffer(kind, data, n) != MPI_SUCCESS)
				one_buffer_from[kind] = n;
	PMPI_Type_contiguous(2, MPI_INT, &pair);
	takes_uncommitted = PMPI_Allgather(from, 2, MPI_INT, data, 1, pair, judge) == MPI_SUCCESS;
	PMPI_Type_free(&pair);
	takes_in_place_of_nothing = PMPI_Allgather(from, 0, MPI_INT, MPI_IN_PLACE, 0, MPI_INT,
						   judge) == MPI_SUCCESS;
}

/*
 * Finds out what MPI accepts. In MPI_Init, where no other thread calls MPI: Open MPI passes some
 * errors to MPI_COMM_WORLD's handler, whatever the communicator.
 */
void
arguments_init(void)
{
	MPI_Errhandler handler;

	if (PMPI_Comm_dup(MPI_COMM_SELF, &judge) != MPI_SUCCESS)
		no_memory();
	PMPI_Comm_set_errhandler(judge, MPI_ERRORS_RETURN);
	PMPI_Comm_get_errhandler(MPI_COMM_WORLD, &handler);
	PMPI_Comm_set_errhandler(MPI_COMM_WORLD, MPI_ERRORS_RETURN);
	answers_ask();
	PMPI_Comm_set_errhandler(MPI_COMM_WORLD, handler);
	PMPI_Errhandler_free(&handler);
}

void
arguments_finish(void)
{
	if (judge != MPI_COMM_NULL)
		PMPI_Comm_free(&judge);
}

/*
 * True if MPI accepts the type for a message to MPI_PROC_NULL: it checks the type and reads no
 * data.
 */
static bool
is_sendable(MPI_Datatype type)
{
	return PMPI_Send(&judge, 1, type, MPI_PROC_NULL, 0, judge) == MPI_SUCCESS;
}

static bool
type_holds(MPI_Datatype type)
{
	return type_plain_bytes(type) != 0 || (type != MPI_DATATYPE_NULL && is_sendable(type));
}

bool
received_type_holds(const struct collective *call)
{
	return type_holds(call->type) || (call->kind == COLLECTIVE_ALLGATHER && takes_uncommitted &&
					  call->type != MPI_DATATYPE_NULL);
}

MPI_Datatype
type_committed(MPI_Datatype type)
{
	MPI_Datatype copy = MPI_DATATYPE_NULL;

	if (!type_holds(type) && PMPI_Type_dup(type, &copy) == MPI_SUCCESS)
		PMPI_Type_commit(&copy);
	return copy;
}

/*
 * Verdicts on errors that the MPI library does not check, so that it crashes or sums arbitrary
 * memory: a buffer that is NULL, or MPI_IN_PLACE in a broadcast and at other ranks than the root of
 * a reduce.
 */
#ifdef OPEN_MPI
#define WITHOUT_BUFFER VERDICT_UNUSABLE
#define IN_PLACE_OF_NONE VERDICT_REFUSED
#else
#define WITHOUT_BUFFER VERDICT_REFUSED
#define IN_PLACE_OF_NONE VERDICT_UNUSABLE
#endif

/* Judges a buffer. NULL may also be MPI_BOTTOM, which is used with types of absolute addresses. */
static enum verdict
memory_judge(const void *data, MPI_Count count, MPI_Datatype type)
{
	MPI_Aint low = 0, extent = 1;

	if (data == MPI_IN_PLACE)
		return count == 0 && takes_in_place_of_nothing ? VERDICT_TAKEN : VERDICT_REFUSED;
	if (data != NULL || count == 0)
		return VERDICT_TAKEN;
	if (type_plain_bytes(type) == 0)
		PMPI_Type_get_true_extent(type, &low, &extent);
	return low != 0 || extent == 0 ? VERDICT_TAKEN : WITHOUT_BUFFER;
}

/*
 * True if the send buffer is the receive buffer or, in an allgather, this rank's part of it, and
 * MPI refuses this. part: bytes of each rank's part.
 */
static bool
is_one_buffer(const struct collective *call, size_t part, int rank)
{
	const int from = one_buffer_from[call->kind];

	if (from == 0 || call->count < from)
		return false;
	if (call->kind != COLLECTIVE_ALLGATHER)
		return call->send == call->recv;
	return call->send_type == call->type && call->send_count == call->count &&
	       call->send == (const uint8_t *)call->recv + (size_t)rank * part;
}

static enum verdict
send_judge(const struct collective *call)
{
	if (call->send == MPI_IN_PLACE)
		return VERDICT_TAKEN;
	if (call->kind != COLLECTIVE_ALLGATHER)
		return memory_judge(call->send, call->count, call->type);
	if (call->send_count < 0 || !type_holds(call->send_type))
		return VERDICT_REFUSED;
	return memory_judge(call->send, call->send_count, call->send_type);
}

/* Judges by MPI's own check: a reduce without data, whose operator MPI checks all the same. */
bool
operator_holds(const struct collective *call)
{
	int from = 0, to = 0, status;

	pthread_mutex_lock(&judge_lock);
	status = PMPI_Reduce(&from, &to, 0, call->type, call->op, 0, judge);
	pthread_mutex_unlock(&judge_lock);
	return status == MPI_SUCCESS;
}

enum verdict
arguments_judge(const struct collective *call, size_t bytes, int rank, int size)
{
	enum verdict verdict;

	if (call->kind == COLLECTIVE_BARRIER)
		return VERDICT_TAKEN;
	if (call->root < 0 || call->root >= size)
		return VERDICT_REFUSED;
	if (call->kind == COLLECTIVE_BCAST)
		return call->recv == MPI_IN_PLACE
			       ? IN_PLACE_OF_NONE
			       : memory_judge(call->recv, call->count, call->type);
	verdict = send_judge(call);
	if (call->kind == COLLECTIVE_REDUCE && call->root != rank)
		return call->send == MPI_IN_PLACE ? IN_PLACE_OF_NONE : verdict;
	if (verdict == VERDICT_TAKEN)
		verdict = memory_judge(call->recv, call->count, call->type);
	if (verdict == VERDICT_TAKEN && is_one_buffer(call, bytes / (size_t)size, rank))
		verdict = VERDICT_REFUSED;
	return verdict;
}
