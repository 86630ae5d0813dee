/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program whose collectives have arguments that MPI refuses, and a few odd ones that it
 * takes. Rank 0 prints a line for each call, with each rank's error class and how often the error
 * handlers of the communicator and of MPI_COMM_WORLD were called. After each call that was refused
 * all ranks sum right, also if only one of them has made it. The net tests compare what is printed
 * with the library and without. Argument: "unusable", only buffers that MPI does not look at, and
 * crashes or sums whatever it finds; "wanted", only calls that are MPI's own, on communicators that
 * wait for a blocking call to make their job.
 */
#include "check.h"

#include <stdbool.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 500
#define MAX_RANKS 8
/* The rank that makes refused calls alone, too. */
#define ROOT 1

enum kind {
	ALLREDUCE,
	REDUCE,
	BCAST,
	BARRIER,
	ALLGATHER,
	REDUCE_SCATTER_BLOCK,
	N_KINDS
};

static const char *const kind_names[] = {
	"Allreduce", "Reduce", "Bcast", "Barrier", "Allgather", "Reduce_scatter_block",
};

/* How a call is made. */
enum form {
	BLOCKING,
	NONBLOCKING,
	WIDE, /* counts of MPI_Count */
	WIDE_NONBLOCKING,
	N_FORMS
};

static const char *const form_names[] = { "", "I", "_c", "I_c" };

struct call {
	enum kind kind;
	const void *send;
	void *recv;
	long long send_count, count;
	MPI_Datatype send_type, type;
	MPI_Op op;
	int root;
	MPI_Comm comm;
	bool no_request;
	bool skipped; /* this rank does not make the call */
};

static int numbers[MAX_RANKS * COUNT], results[MAX_RANKS * COUNT];
static MPI_Comm own, copy, inter;
static MPI_Datatype uncommitted, empty;
static MPI_Op users, freed_op = MPI_OP_NULL;
/* Calls of the handlers of the communicator and of MPI_COMM_WORLD. */
static int n_of_copy, n_of_world;

static void
copy_failed(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	n_of_copy++;
}

static void
world_failed(MPI_Comm *comm, int *error, ...)
{
	(void)comm;
	(void)error;
	n_of_world++;
}

static void
add(void *in, void *inout, int *n, MPI_Datatype *type)
{
	const int *from = in;
	int *to = inout;

	(void)type;
	for (int i = 0; i < *n; i++)
		to[i] += from[i];
}

static struct call
right_call(enum kind kind)
{
	return (struct call){ .kind = kind,
			      .send = numbers,
			      .recv = results,
			      .send_count = COUNT,
			      .count = COUNT,
			      .send_type = MPI_INT,
			      .type = MPI_INT,
			      .op = MPI_SUM,
			      .root = ROOT,
			      .comm = copy };
}

static int
call_blocking(const struct call *c)
{
	switch (c->kind) {
	case ALLREDUCE:
		return MPI_Allreduce(c->send, c->recv, (int)c->count, c->type, c->op, c->comm);
	case REDUCE:
		return MPI_Reduce(c->send, c->recv, (int)c->count, c->type, c->op, c->root,
				  c->comm);
	case BCAST:
		return MPI_Bcast(c->recv, (int)c->count, c->type, c->root, c->comm);
	case ALLGATHER:
		return MPI_Allgather(c->send, (int)c->send_count, c->send_type, c->recv,
				     (int)c->count, c->type, c->comm);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Reduce_scatter_block(c->send, c->recv, (int)c->count, c->type, c->op,
						c->comm);
	default:
		return MPI_Barrier(c->comm);
	}
}

static int
call_nonblocking(const struct call *c, MPI_Request *req)
{
	switch (c->kind) {
	case ALLREDUCE:
		return MPI_Iallreduce(c->send, c->recv, (int)c->count, c->type, c->op, c->comm,
				      req);
	case REDUCE:
		return MPI_Ireduce(c->send, c->recv, (int)c->count, c->type, c->op, c->root,
				   c->comm, req);
	case BCAST:
		return MPI_Ibcast(c->recv, (int)c->count, c->type, c->root, c->comm, req);
	case ALLGATHER:
		return MPI_Iallgather(c->send, (int)c->send_count, c->send_type, c->recv,
				      (int)c->count, c->type, c->comm, req);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Ireduce_scatter_block(c->send, c->recv, (int)c->count, c->type, c->op,
						 c->comm, req);
	default:
		return MPI_Ibarrier(c->comm, req);
	}
}

#if MPI_VERSION >= 4
static int
call_wide(const struct call *c)
{
	switch (c->kind) {
	case ALLREDUCE:
		return MPI_Allreduce_c(c->send, c->recv, c->count, c->type, c->op, c->comm);
	case REDUCE:
		return MPI_Reduce_c(c->send, c->recv, c->count, c->type, c->op, c->root, c->comm);
	case BCAST:
		return MPI_Bcast_c(c->recv, c->count, c->type, c->root, c->comm);
	case ALLGATHER:
		return MPI_Allgather_c(c->send, c->send_count, c->send_type, c->recv, c->count,
				       c->type, c->comm);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Reduce_scatter_block_c(c->send, c->recv, c->count, c->type, c->op,
						  c->comm);
	default:
		return MPI_Barrier(c->comm);
	}
}

static int
call_wide_nonblocking(const struct call *c, MPI_Request *req)
{
	switch (c->kind) {
	case ALLREDUCE:
		return MPI_Iallreduce_c(c->send, c->recv, c->count, c->type, c->op, c->comm, req);
	case REDUCE:
		return MPI_Ireduce_c(c->send, c->recv, c->count, c->type, c->op, c->root, c->comm,
				     req);
	case BCAST:
		return MPI_Ibcast_c(c->recv, c->count, c->type, c->root, c->comm, req);
	case ALLGATHER:
		return MPI_Iallgather_c(c->send, c->send_count, c->send_type, c->recv, c->count,
					c->type, c->comm, req);
	case REDUCE_SCATTER_BLOCK:
		return MPI_Ireduce_scatter_block_c(c->send, c->recv, c->count, c->type, c->op,
						   c->comm, req);
	default:
		return MPI_Ibarrier(c->comm, req);
	}
}
#endif

/* Makes the call. Returns its error class. */
static int
class_of(const struct call *c, enum form form)
{
	MPI_Request req = MPI_REQUEST_NULL, *to = c->no_request ? NULL : &req;
	int status, class;

	switch (form) {
	case BLOCKING:
		status = call_blocking(c);
		break;
	case NONBLOCKING:
		status = call_nonblocking(c, to);
		break;
#if MPI_VERSION >= 4
	case WIDE:
		status = call_wide(c);
		break;
	case WIDE_NONBLOCKING:
		status = call_wide_nonblocking(c, to);
		break;
#endif
	default:
		return MPI_SUCCESS;
	}
	if (status == MPI_SUCCESS && !c->no_request && req != MPI_REQUEST_NULL)
		status = MPI_Wait(&req, MPI_STATUS_IGNORE);
	MPI_Error_class(status, &class);
	return class;
}

/* The program goes on. */
static void
sum_right(MPI_Comm comm)
{
	static int mine[COUNT], sums[COUNT];
	static int turn;

	turn++;
	for (int i = 0; i < COUNT; i++)
		mine[i] = i + turn * (rank + 1);
	check(MPI_Allreduce(mine, sums, COUNT, MPI_INT, MPI_SUM, comm) == MPI_SUCCESS,
	      "a sum after a call that was refused returned an error");
	for (int i = 0; i < COUNT; i++)
		check(sums[i] == i * size + turn * size * (size + 1) / 2,
		      "a sum after a call that was refused");
}

/* The classes of all ranks, and how often handlers were called: of each rank, at rank 0. */
static void
print_line(const char *name, enum kind kind, enum form form, int class)
{
	int mine[3] = { class, n_of_copy, n_of_world }, all[3 * MAX_RANKS];

	MPI_Gather(mine, 3, MPI_INT, all, 3, MPI_INT, 0, own);
	if (rank != 0)
		return;
	printf("%s%s, %s:", kind_names[kind], form_names[form], name);
	for (int i = 0; i < size; i++) {
		char text[MPI_MAX_ERROR_STRING] = "not made";
		int length;

		if (all[3 * i] >= 0)
			MPI_Error_string(all[3 * i], text, &length);
		printf(" [%.30s; %d %d]", text, all[3 * i + 1], all[3 * i + 2]);
	}
	printf("\n");
	fflush(stdout);
}

static void
try_call(const char *name, const struct call *c, enum form form)
{
	int class = -1, worst;

	n_of_copy = n_of_world = 0;
	if (getenv("ARGUMENTS_VERBOSE") != NULL && rank == 0)
		fprintf(stderr, "%s%s, %s\n", kind_names[c->kind], form_names[form], name);
	if (!c->skipped)
		class = class_of(c, form);
	print_line(name, c->kind, form, class);
	sum_right(copy);
	/* What MPI takes would wait for the others. */
	worst = rank == ROOT ? class : 0;
	MPI_Bcast(&worst, 1, MPI_INT, ROOT, own);
	if (worst <= 0)
		return;
	if (rank == ROOT)
		class_of(c, form);
	sum_right(copy);
}

static bool
has_send(enum kind kind)
{
	return kind != BCAST && kind != BARRIER;
}

static bool
has_op(enum kind kind)
{
	return kind == ALLREDUCE || kind == REDUCE || kind == REDUCE_SCATTER_BLOCK;
}

static bool
has_root(enum kind kind)
{
	return kind == REDUCE || kind == BCAST;
}

#define TRY(name, ...)                                                                             \
	do {                                                                                       \
		struct call c = right_call(kind);                                                  \
		__VA_ARGS__;                                                                       \
		try_call(name, &c, form);                                                          \
	} while (0)

static void
try_no_buffers(enum kind kind, enum form form)
{
	const bool roots_only = kind == REDUCE && rank != ROOT;

	TRY("no receive buffer", c.recv = NULL; c.skipped = roots_only);
	if (has_send(kind))
		TRY("no send buffer", c.send = NULL);
}

static void
try_in_place(enum kind kind, enum form form)
{
	if (kind == BCAST)
		TRY("MPI_IN_PLACE", c.recv = MPI_IN_PLACE);
	else
		TRY("MPI_IN_PLACE at others than the root", c.send = MPI_IN_PLACE;
		    c.skipped = rank == ROOT);
}

static void
try_buffers(enum kind kind, enum form form)
{
	const bool roots_only = kind == REDUCE && rank != ROOT;

	TRY("right");
#ifdef OPEN_MPI
	if (has_root(kind))
		try_in_place(kind, form);
#endif
	/* Others than the root do not look at it. */
	if (kind != BCAST)
		TRY("MPI_IN_PLACE as the receive buffer", c.recv = MPI_IN_PLACE;
		    c.skipped = roots_only);
	TRY("no data and no buffers", c.recv = NULL; c.send = NULL; c.count = c.send_count = 0);
	if (kind == BCAST)
		TRY("no data of an empty type", c.recv = NULL; c.type = empty);
#ifndef OPEN_MPI
	try_no_buffers(kind, form);
#endif
	if (!has_send(kind))
		return;
	if (kind != ALLGATHER)
		TRY("one buffer", c.send = c.recv; c.skipped = roots_only);
#ifdef OPEN_MPI
	if (kind == ALLGATHER)
		TRY("one buffer", c.send = c.recv);
	TRY("buffers that lie over each other", c.recv = results + 1; c.send = results);
#endif
	if (kind == ALLGATHER)
		TRY("a part of the receive buffer", c.send = results + rank * COUNT);
	TRY("MPI_IN_PLACE for both", c.send = c.recv = MPI_IN_PLACE; c.skipped = roots_only);
	if (kind != REDUCE)
		TRY("in place", c.send = MPI_IN_PLACE);
	else {
		TRY("no receive buffer at others than the root",
		    c.recv = rank == ROOT ? (void *)results : NULL);
		TRY("MPI_IN_PLACE as the receive buffer at others than the root",
		    c.recv = rank == ROOT ? (void *)results : MPI_IN_PLACE);
		TRY("one buffer at others than the root",
		    c.recv = rank == ROOT ? (void *)results : (void *)numbers);
	}
	if (kind == ALLGATHER)
		TRY("fewer elements than are received", c.send_count = COUNT / 2);
	if (kind == ALLGATHER)
		TRY("in place, other send arguments invalid", c.send = MPI_IN_PLACE;
		    c.send_count = -3; c.send_type = MPI_DATATYPE_NULL);
}

static void
try_counts_and_types(enum kind kind, enum form form)
{
	/* MPICH does not look at those of reductions, and crashes. */
#ifdef MPICH
	if (!has_op(kind))
#endif
	{
		TRY("a negative count", c.count = -1);
		TRY("a very negative count", c.count = -2147483647 - 1);
		TRY("a negative count, and MPI_IN_PLACE as the receive buffer", c.count = -1;
		    c.recv = MPI_IN_PLACE);
	}
	TRY("no type", c.type = MPI_DATATYPE_NULL);
	TRY("a type that was not committed", c.type = uncommitted);
	if (kind == ALLGATHER) {
		TRY("a negative send count", c.send_count = -1);
		TRY("no send type", c.send_type = MPI_DATATYPE_NULL);
		TRY("a send type that was not committed", c.send_type = uncommitted);
	}
}

static void
try_ops(enum kind kind, enum form form)
{
	TRY("no operator", c.op = MPI_OP_NULL);
	TRY("an operator on pairs", c.op = MPI_MINLOC);
	TRY("an operator of one-sided calls", c.op = MPI_REPLACE);
	TRY("bits of numbers with a fraction", c.type = MPI_FLOAT; c.op = MPI_BAND);
#ifdef OPEN_MPI
	TRY("a logical operator on numbers with a fraction", c.type = MPI_FLOAT; c.op = MPI_LAND);
#endif
	TRY("a sum of bytes", c.type = MPI_BYTE; c.op = MPI_SUM);
	TRY("a sum of characters", c.type = MPI_WCHAR; c.op = MPI_SUM);
	TRY("an order of complex numbers", c.type = MPI_C_FLOAT_COMPLEX; c.op = MPI_MAX);
	TRY("a sum of truths", c.type = MPI_C_BOOL; c.op = MPI_SUM);
	TRY("a sum of packed data", c.type = MPI_PACKED; c.op = MPI_SUM);
	TRY("the program's own operator", c.op = users);
	TRY("the program's own operator and no type", c.op = users; c.type = MPI_DATATYPE_NULL);
	if (freed_op != MPI_OP_NULL)
		TRY("an operator that was freed", c.op = freed_op);
}

static void
try_others(enum kind kind, enum form form)
{
#ifdef MPICH
	MPI_Comm comm;
#endif

#ifdef OPEN_MPI
	if (kind != ALLGATHER) /* which crashes */
#endif
		TRY("no communicator", c.comm = MPI_COMM_NULL);
#ifdef MPICH /* Others' handles are pointers. */
	TRY("a communicator that was freed", MPI_Comm_dup(MPI_COMM_SELF, &comm); c.comm = comm;
	    MPI_Comm_free(&comm));
#endif
#ifndef OPEN_MPI /* which crashes */
	if (form == NONBLOCKING || form == WIDE_NONBLOCKING)
		TRY("no place for the request", c.no_request = true);
#endif
	if (kind == ALLREDUCE || kind == BARRIER)
		TRY("an intercommunicator", c.comm = inter);
	if (kind == ALLREDUCE) {
		TRY("in place on an intercommunicator", c.comm = inter; c.send = MPI_IN_PLACE);
		TRY("no type on an intercommunicator", c.comm = inter; c.type = MPI_DATATYPE_NULL);
	}
	if (!has_root(kind))
		return;
	TRY("a negative root", c.root = -1);
	TRY("MPI_ROOT", c.root = MPI_ROOT);
	TRY("MPI_PROC_NULL as the root", c.root = MPI_PROC_NULL);
	TRY("a root beyond the last rank", c.root = size);
	TRY("a root of an intercommunicator beyond the last rank", c.comm = inter; c.root = size);
	TRY("a root of an intercommunicator", c.comm = inter;
	    c.root = rank == 0 ? MPI_ROOT : (rank % 2 == 0 ? MPI_PROC_NULL : 0));
}

static void
try_unusable(enum kind kind, enum form form)
{
#ifdef OPEN_MPI
	if (kind != BARRIER)
		try_no_buffers(kind, form);
#else
	if (has_root(kind))
		try_in_place(kind, form);
#endif
}

/*
 * A call that MPI refuses, of one rank, which the others do not make, and do not go on before it
 * has returned; or one of all ranks that it takes.
 */
static void
try_wanted_call(const char *name, struct call *c, bool is_refused)
{
	MPI_Errhandler handler;
	MPI_Request req;
	int class = -1;

	n_of_copy = n_of_world = 0;
	MPI_Comm_dup(MPI_COMM_WORLD, &c->comm);
	MPI_Comm_get_errhandler(copy, &handler);
	MPI_Comm_set_errhandler(c->comm, handler);
	MPI_Iallreduce(numbers, results, COUNT, MPI_INT, MPI_SUM, c->comm, &req);
	MPI_Wait(&req, MPI_STATUS_IGNORE);
	if (!is_refused || rank == ROOT)
		class = class_of(c, BLOCKING);
	print_line(name, c->kind, BLOCKING, class);
	sum_right(c->comm);
	MPI_Errhandler_free(&handler);
	MPI_Comm_free(&c->comm);
}

#define TRY_WANTED(name, is_refused, ...)                                                          \
	do {                                                                                       \
		struct call c = right_call(kind);                                                  \
		__VA_ARGS__;                                                                       \
		try_wanted_call(name, &c, is_refused);                                             \
	} while (0)

static void
try_wanted(enum kind kind)
{
#ifdef OPEN_MPI
	const bool nothing_in_place_is_refused = true;
#else
	const bool nothing_in_place_is_refused = false;
#endif

	TRY_WANTED("no data", false, c.count = c.send_count = 0);
	TRY_WANTED("no data and no buffers", false, c.count = c.send_count = 0;
		   c.send = c.recv = NULL);
	TRY_WANTED("no data and MPI_IN_PLACE as the receive buffer", nothing_in_place_is_refused,
		   c.count = c.send_count = 0;
		   c.recv = MPI_IN_PLACE);
	if (kind == ALLGATHER) {
		TRY_WANTED("no data and no send type", true, c.count = c.send_count = 0;
			   c.send_type = MPI_DATATYPE_NULL);
		TRY_WANTED("no data of an empty type", false, c.type = c.send_type = empty);
	}
	if (has_root(kind)) {
		TRY_WANTED("no data and a negative root", true, c.count = 0; c.root = -1);
		TRY_WANTED("no data and a root beyond the last rank", true, c.count = 0;
			   c.root = size);
	}
	if (!has_op(kind))
		return;
	TRY_WANTED("no operator", true, c.op = MPI_OP_NULL);
	TRY_WANTED("no data and no operator", true, c.op = MPI_OP_NULL; c.count = 0);
	TRY_WANTED("an operator on pairs", true, c.op = MPI_MINLOC);
	TRY_WANTED("bits of numbers with a fraction", true, c.type = MPI_FLOAT; c.op = MPI_BAND);
	TRY_WANTED("an empty type", true, c.type = empty);
	TRY_WANTED("the program's own operator", false, c.op = users);
	TRY_WANTED("the program's own operator, MPI_IN_PLACE as the receive buffer", true,
		   c.op = users;
		   c.recv = MPI_IN_PLACE);
	if (has_root(kind))
		TRY_WANTED("the program's own operator and a negative root", true, c.op = users;
			   c.root = -1);
}

static void
objects_make(void)
{
	MPI_Errhandler handlers[2];
	MPI_Comm half;

	MPI_Comm_create_errhandler(copy_failed, &handlers[0]);
	MPI_Comm_create_errhandler(world_failed, &handlers[1]);
	MPI_Comm_dup(MPI_COMM_WORLD, &own);
	MPI_Comm_dup(MPI_COMM_WORLD, &copy);
	MPI_Comm_set_errhandler(copy, handlers[0]);
	set_errhandler(handlers[1]);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Intercomm_create(half, 0, own, 1 - rank % 2, 5, &inter);
	MPI_Comm_set_errhandler(inter, handlers[0]);
	MPI_Type_contiguous(2, MPI_INT, &uncommitted);
	MPI_Type_contiguous(0, MPI_INT, &empty);
	MPI_Type_commit(&empty);
	MPI_Op_create(add, 1, &users);
#ifdef MPICH
	MPI_Op op;

	MPI_Op_create(add, 1, &op);
	freed_op = op;
	MPI_Op_free(&op);
#endif
}

int
main(int argc, char **argv)
{
	const int n_forms = MPI_VERSION >= 4 ? N_FORMS : WIDE;
	const char *which = argc > 1 ? argv[1] : "";

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	objects_make();
	for (int kind = 0; kind < N_KINDS; kind++)
		for (int form = 0; form < n_forms; form++) {
			if (strcmp(which, "wanted") == 0) {
				if (kind != BARRIER && form == BLOCKING)
					try_wanted(kind);
				continue;
			}
			if (strcmp(which, "unusable") == 0) {
				try_unusable(kind, form);
				continue;
			}
			if (kind != BARRIER) {
				try_buffers(kind, form);
				try_counts_and_types(kind, form);
			}
			if (has_op(kind))
				try_ops(kind, form);
			try_others(kind, form);
		}
	if (rank == 0)
		printf("cases %d\n", n_cases);
	fflush(stdout);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
