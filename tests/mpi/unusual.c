/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that does what few programs do: calls of MPI in its callbacks, in the order in
 * which MPI allows them; threads that make communicators at the same time; types of absolute
 * addresses, with MPI_BOTTOM; arguments of other calls than collectives that MPI refuses, for each
 * of which rank 0 prints the error class. Sums are checked. The last line has "cases". Argument:
 * "pending", rank 0 has a nonblocking call under way at the end, which the others do not make.
 */
#include "check.h"

#include <pthread.h>
#include <stdlib.h>
#include <string.h>

#define COUNT 1000
#define N_THREADS 4
#define N_ROUNDS 20

static MPI_Comm at_end = MPI_COMM_NULL;

static void
sum_right(MPI_Comm comm)
{
	static __thread int mine[COUNT], sums[COUNT];
	int comm_rank, n, status, n_wrong = 0;

	MPI_Comm_rank(comm, &comm_rank);
	MPI_Comm_size(comm, &n);
	for (int i = 0; i < COUNT; i++)
		mine[i] = i * (comm_rank + 1);
	status = MPI_Allreduce(mine, sums, COUNT, MPI_INT, MPI_SUM, comm);
	for (int i = 0; i < COUNT; i++)
		n_wrong += sums[i] != i * n * (n + 1) / 2;
	check(status == MPI_SUCCESS && n_wrong == 0, "a sum");
}

static void
print_class(const char *name, int status)
{
	int class;

	MPI_Error_class(status, &class);
	if (rank == 0)
		printf("%s: %d\n", name, class);
}

static void
print_refused(void)
{
	MPI_Comm comm = MPI_COMM_NULL;
	MPI_Request req = MPI_REQUEST_NULL;
	MPI_Status statuses[1];

	comm = MPI_COMM_WORLD;
	print_class("MPI_Comm_free of MPI_COMM_WORLD", MPI_Comm_free(&comm));
	sum_right(MPI_COMM_WORLD);
	comm = MPI_COMM_NULL;
	print_class("MPI_Comm_free of none", MPI_Comm_free(&comm));
	print_class("MPI_Comm_disconnect of none", MPI_Comm_disconnect(&comm));
#ifdef MPICH /* Open MPI crashes. */
	print_class("MPI_Comm_free of nothing", MPI_Comm_free(NULL));
#endif
	print_class("MPI_Wait of nothing", MPI_Wait(NULL, MPI_STATUS_IGNORE));
	print_class("MPI_Waitall of nothing", MPI_Waitall(1, NULL, statuses));
	print_class("MPI_Waitall of fewer than none", MPI_Waitall(-1, &req, statuses));
	print_class("MPI_Waitall of none", MPI_Waitall(0, NULL, statuses));
	sum_right(MPI_COMM_WORLD);
}

/* Collectives of the communicator that is copied, and of another, while it is copied. */
static int
copy_attribute(MPI_Comm comm, int key, void *extra, void *value, void *copy, int *flag)
{
	MPI_Comm other;

	(void)key;
	(void)extra;
	sum_right(comm);
	MPI_Comm_split(comm, 0, -rank, &other);
	sum_right(other);
	MPI_Comm_free(&other);
	*(void **)copy = value;
	*flag = 1;
	return MPI_SUCCESS;
}

static int
delete_attribute(MPI_Comm comm, int key, void *value, void *extra)
{
	(void)comm;
	(void)key;
	(void)value;
	(void)extra;
	sum_right(MPI_COMM_WORLD);
	if (at_end != MPI_COMM_NULL)
		sum_right(at_end);
	return MPI_SUCCESS;
}

static void
callbacks(void)
{
	MPI_Comm first, second;
	int key;

	MPI_Comm_dup(MPI_COMM_WORLD, &first);
	sum_right(first);
	MPI_Comm_create_keyval(copy_attribute, delete_attribute, &key, NULL);
	MPI_Comm_set_attr(first, key, &key);
	MPI_Comm_dup(first, &second);
	sum_right(second);
	MPI_Comm_free(&first);
	sum_right(second);
	MPI_Comm_free(&second);
	/* MPI_Finalize deletes it first. */
	MPI_Comm_set_attr(MPI_COMM_SELF, key, &key);
	MPI_Comm_free_keyval(&key);
}

#ifdef OPEN_MPI
static int n_handled;

/* Collectives of the communicator whose call was refused, and of another. */
static void
handle_error(MPI_Comm *comm, int *error, ...)
{
	(void)error;
	n_handled++;
	sum_right(*comm);
	sum_right(MPI_COMM_WORLD);
}

static void
handlers(void)
{
	static int data[COUNT];
	MPI_Errhandler handler;
	MPI_Comm comm;

	MPI_Comm_dup(MPI_COMM_WORLD, &comm);
	MPI_Comm_create_errhandler(handle_error, &handler);
	MPI_Comm_set_errhandler(comm, handler);
	MPI_Errhandler_free(&handler);
	for (int i = 1; i <= 3; i++) {
		MPI_Bcast(data, COUNT, MPI_INT, size, comm);
		check(n_handled == i, "calls of the error handler");
		sum_right(comm);
	}
	MPI_Comm_free(&comm);
}
#endif

/*
 * Communicators of one thread on all ranks, which make their jobs while those of other threads do.
 */
static void *
thread_run(void *arg)
{
	MPI_Comm comm = *(MPI_Comm *)arg, half, copy;
	MPI_Request req;

	for (int i = 0; i < N_ROUNDS; i++) {
		sum_right(comm);
		if (i % 5 != 0)
			continue;
		MPI_Comm_dup(comm, &copy);
		MPI_Comm_split(copy, rank % 2, rank, &half);
		sum_right(half);
		MPI_Ibarrier(copy, &req);
		sum_right(copy);
		MPI_Wait(&req, MPI_STATUS_IGNORE);
		MPI_Comm_free(&half);
		sum_right(copy);
		MPI_Comm_free(&copy);
	}
	return NULL;
}

static void
threads(void)
{
	pthread_t ids[N_THREADS];
	MPI_Comm comms[N_THREADS];

	for (int i = 0; i < N_THREADS; i++)
		MPI_Comm_dup(MPI_COMM_WORLD, &comms[i]);
	for (int i = 0; i < N_THREADS; i++)
		pthread_create(&ids[i], NULL, thread_run, &comms[(i + rank) % N_THREADS]);
	for (int i = 0; i < N_THREADS; i++)
		pthread_join(ids[i], NULL);
	for (int i = 0; i < N_THREADS; i++)
		MPI_Comm_free(&comms[(i + rank) % N_THREADS]);
}

static void
others(void)
{
	MPI_Comm node, merged, inter, half;

	MPI_Comm_split_type(MPI_COMM_WORLD, MPI_COMM_TYPE_SHARED, 0, MPI_INFO_NULL, &node);
	sum_right(node);
	MPI_Comm_split(MPI_COMM_WORLD, rank % 2, rank, &half);
	MPI_Intercomm_create(half, 0, MPI_COMM_WORLD, 1 - rank % 2, 3, &inter);
	MPI_Barrier(inter);
	MPI_Intercomm_merge(inter, rank % 2, &merged);
	sum_right(merged);
	MPI_Comm_disconnect(&merged);
	MPI_Comm_disconnect(&inter);
	MPI_Comm_free(&half);
	MPI_Comm_free(&node);
}

/* n integers, a quarter of them at the first address. */
static MPI_Datatype
type_absolute(int *first, int *second, int n)
{
	const int lengths[2] = { n / 4, n - n / 4 };
	MPI_Aint places[2];
	MPI_Datatype type;

	MPI_Get_address(first, &places[0]);
	MPI_Get_address(second, &places[1]);
	MPI_Type_create_hindexed(2, lengths, places, MPI_INT, &type);
	MPI_Type_commit(&type);
	return type;
}

/* A vector of this rank's in two pieces, the first of which lies behind the second. */
static void
pieces_fill(int pieces[2 * COUNT], int factor)
{
	for (int i = 0; i < COUNT; i++)
		pieces[i < COUNT / 4 ? COUNT + i : i] = factor * i;
}

static int
pieces_wrong(const int pieces[2 * COUNT], int factor)
{
	int n_wrong = 0;

	for (int i = 0; i < COUNT; i++)
		n_wrong += pieces[i < COUNT / 4 ? COUNT + i : i] != factor * i;
	return n_wrong;
}

/* Vectors whose type alone says where they are. */
static void
bottoms(void)
{
	static int mine[2 * COUNT];
	int *all = calloc((size_t)size, sizeof(int) * COUNT);
	MPI_Datatype type = type_absolute(mine + COUNT, mine + COUNT / 4, COUNT), parts;
	MPI_Request req = MPI_REQUEST_NULL;
	int n_wrong = 0;

	sum_right(MPI_COMM_WORLD);
	for (int root = 0; root < size; root++) {
		pieces_fill(mine, rank == root ? root + 1 : -1);
		MPI_Bcast(MPI_BOTTOM, 1, type, root, MPI_COMM_WORLD);
		n_wrong += pieces_wrong(mine, root + 1);
		pieces_fill(mine, rank == root ? root + 2 : -1);
		MPI_Ibcast(MPI_BOTTOM, 1, type, root, MPI_COMM_WORLD, &req);
		MPI_Wait(&req, MPI_STATUS_IGNORE);
		n_wrong += pieces_wrong(mine, root + 2);
	}
	check(n_wrong == 0, "a broadcast of absolute addresses");
	pieces_fill(mine, rank + 1);
	MPI_Allgather(MPI_BOTTOM, 1, type, all, COUNT, MPI_INT, MPI_COMM_WORLD);
	for (int i = 0; i < size * COUNT; i++)
		n_wrong += all[i] != (i / COUNT + 1) * (i % COUNT);
	check(n_wrong == 0, "an allgather that sends from absolute addresses");
	MPI_Type_free(&type);
	memset(all, 0, sizeof(int) * COUNT * (size_t)size);
	type = type_absolute(all, all + COUNT / 4, COUNT);
	MPI_Type_create_resized(type, 0, sizeof(int) * COUNT, &parts);
	MPI_Type_commit(&parts);
	MPI_Type_free(&type);
	type = type_absolute(mine + COUNT, mine + COUNT / 4, COUNT);
	MPI_Allgather(MPI_BOTTOM, 1, type, MPI_BOTTOM, 1, parts, MPI_COMM_WORLD);
	for (int i = 0; i < size * COUNT; i++)
		n_wrong += all[i] != (i / COUNT + 1) * (i % COUNT);
	all[rank * COUNT] = rank;
	MPI_Allgather(MPI_IN_PLACE, 0, MPI_DATATYPE_NULL, MPI_BOTTOM, 1, parts, MPI_COMM_WORLD);
	for (int i = 0; i < size * COUNT; i++)
		n_wrong += all[i] != (i % COUNT == 0 ? i / COUNT : (i / COUNT + 1) * (i % COUNT));
	check(n_wrong == 0, "an allgather at absolute addresses");
	MPI_Type_free(&parts);
	MPI_Type_free(&type);
	free(all);
}

int
main(int argc, char **argv)
{
	static int data[COUNT], sums[COUNT];
	MPI_Request req;
	int level, flag;

	MPI_Finalized(&flag);
	MPI_Init_thread(&argc, &argv, MPI_THREAD_MULTIPLE, &level);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	sum_right(MPI_COMM_WORLD);
	set_errhandler(MPI_ERRORS_RETURN);
	print_refused();
	callbacks();
#ifdef OPEN_MPI /* MPICH holds a lock meanwhile, and ends the program. */
	handlers();
#endif
	others();
	bottoms();
	if (level == MPI_THREAD_MULTIPLE)
		threads();
	MPI_Comm_dup(MPI_COMM_WORLD, &at_end);
	sum_right(at_end);
	MPI_Barrier(MPI_COMM_WORLD);
	if (rank == 0)
		printf("cases\n");
	fflush(stdout);
	if (argc > 1 && strcmp(argv[1], "pending") == 0 && rank == 0)
		MPI_Iallreduce(data, sums, COUNT, MPI_INT, MPI_SUM, MPI_COMM_WORLD, &req);
	MPI_Finalize();
	return 0;
}
