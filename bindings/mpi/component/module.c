/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * A communicator's module: the collectives that may go into the network, blocking and nonblocking.
 * Each hands a call on, to the function that was there before, if the network does not carry it
 * out, or if it is not the program's: Open MPI itself uses collectives to make communicators,
 * windows and files.
 */
#include "component.h"

#include <dlfcn.h>
#include <string.h>

/* What the module takes over: name of the function, and the kind. */
#define COLLECTIVES(X)                                                                             \
	X(allreduce, ALLREDUCE)                                                                    \
	X(reduce, REDUCE)                                                                          \
	X(bcast, BCAST)                                                                            \
	X(barrier, BARRIER)                                                                        \
	X(allgather, ALLGATHER)                                                                    \
	X(reduce_scatter_block, REDUCE_SCATTER_BLOCK)

struct module {
	mca_coll_base_module_t super;
	struct comm_state *state; /* atomic */
	bool is_own;              /* the communicator is the library's own */
	/* The functions that were there, and their modules. */
	struct {
#define X(name, kind)                                                                              \
	mca_coll_base_module_##name##_fn_t name;                                                   \
	mca_coll_base_module_t *name##_module;                                                     \
	mca_coll_base_module_i##name##_fn_t i##name;                                               \
	mca_coll_base_module_t *i##name##_module;
		COLLECTIVES(X)
#undef X
	} before;
};
typedef struct module fanin_module_t;

static bool are_enabled;
/* In static memory of threads: this is read in each call. */
static __thread __attribute__((tls_model("initial-exec"))) bool is_inside;

void
modules_enable(bool enable)
{
	are_enabled = enable;
}

bool
library_enter(void)
{
	const bool was_inside = is_inside;

	is_inside = true;
	return was_inside;
}

void
library_leave(bool was_inside)
{
	is_inside = was_inside;
}

/* ---- whose call it is */

/*
 * Where MPI's functions for programs call this module, blocking and not, as far as known. Each has
 * one such place in Open MPI.
 */
static const void *callers[N_COLLECTIVES][2];

static bool
begins_with(const char *text, const char *beginning)
{
	return strncmp(text, beginning, strlen(beginning)) == 0;
}

/* Returns the name of the object file that the address is in, without its directory. */
static const char *
file_of(const Dl_info *info)
{
	const char *slash = strrchr(info->dli_fname, '/');

	return slash == NULL ? info->dli_fname : slash + 1;
}

/*
 * True if the address is in MPI's function of this name, or in a component that hands on the
 * program's calls. Other functions of MPI's interface call collectives, too: MPI_Comm_disconnect a
 * barrier.
 */
static bool
is_of_program(const void *caller, const char *function)
{
	static const char *const handing_on[] = { "mca_scoll_", "mca_coll_monitoring",
						  "mca_coll_sync",
						  /* Where OpenSHMEM's components are part of it. */
						  "liboshmem." };
	const char *symbol;
	Dl_info info;

	if (dladdr(caller, &info) == 0 || info.dli_fname == NULL)
		return false;
	symbol = info.dli_sname == NULL ? "" : info.dli_sname;
	if (strcmp(symbol[0] == 'P' ? symbol + 1 : symbol, function) == 0)
		return true;
	for (size_t i = 0; i < sizeof(handing_on) / sizeof(handing_on[0]); i++)
		if (begins_with(file_of(&info), handing_on[i]))
			return true;
	return false;
}

static bool
caller_look(const void *caller, enum collective_kind kind, bool is_nonblocking)
{
	static const char *const functions[N_COLLECTIVES][2] = {
		[COLLECTIVE_ALLREDUCE] = { "MPI_Allreduce", "MPI_Iallreduce" },
		[COLLECTIVE_REDUCE] = { "MPI_Reduce", "MPI_Ireduce" },
		[COLLECTIVE_BCAST] = { "MPI_Bcast", "MPI_Ibcast" },
		[COLLECTIVE_BARRIER] = { "MPI_Barrier", "MPI_Ibarrier" },
		[COLLECTIVE_ALLGATHER] = { "MPI_Allgather", "MPI_Iallgather" },
		[COLLECTIVE_REDUCE_SCATTER_BLOCK] = { "MPI_Reduce_scatter_block",
						      "MPI_Ireduce_scatter_block" },
	};

	if (!is_of_program(caller, functions[kind][is_nonblocking]))
		return false;
	__atomic_store_n(&callers[kind][is_nonblocking], caller, __ATOMIC_RELAXED);
	return true;
}

static bool
is_programs_call(const struct module *module, const void *caller, enum collective_kind kind,
		 bool is_nonblocking)
{
	if (!are_enabled || is_inside || module->is_own)
		return false;
	return __atomic_load_n(&callers[kind][is_nonblocking], __ATOMIC_RELAXED) == caller ||
	       caller_look(caller, kind, is_nonblocking);
}

/* ---- calls */

/* A type that MPI reduces rightly by all operators: the last one of a small call. */
static MPI_Datatype right_type;

/*
 * True if the program's call goes to MPI because it is small, which most calls of many programs
 * are. bytes: of the vector. Counts it. False says nothing. On the way to MPI there are less than
 * 60 instructions, so this looks nothing up.
 */
static inline bool
is_small(enum collective_kind kind, size_t bytes, MPI_Datatype type, const void *caller)
{
	if (bytes >= mpi_settings.min_bytes || is_inside || states_are_wanted() ||
	    __atomic_load_n(&callers[kind][0], __ATOMIC_RELAXED) != caller ||
	    (type != NULL && __atomic_load_n(&right_type, __ATOMIC_RELAXED) != type))
		return false;
	report_count(kind, WAY_TOO_SMALL, bytes);
	return true;
}

static inline size_t
bytes_of(MPI_Datatype type, int count)
{
	return type->super.size * (size_t)count;
}

/*
 * Carries out a program's call, if it is for the network. Returns true if the call is done, with
 * its return value in *result.
 */
static bool
take(const struct collective *call, int *result)
{
	const bool was_inside = library_enter();
	const bool is_taken = collective_take(call, result);

	library_leave(was_inside);
	return is_taken;
}

static bool
start(const struct collective *call, MPI_Request *req, int *result)
{
	const bool was_inside = library_enter();
	const bool is_started = collective_start(call, req, result);

	library_leave(was_inside);
	if (is_started)
		workers_look();
	return is_started;
}

static void
small_remember(size_t bytes, MPI_Datatype type)
{
	if (bytes < mpi_settings.min_bytes && type != NULL && type_is_right_in_mpi(type))
		__atomic_store_n(&right_type, type, __ATOMIC_RELAXED);
}

/* If MPI's own operator is wrong, MPI gets this library's. */
#define FOR_MPI (are_enabled ? operator_for_mpi(type, op) : op)

#define LIST(...) __VA_ARGS__
/*
 * The three functions of a collective: blocking, first as it is called and then for what is not
 * small, and nonblocking. description: of a struct collective, without what all have. bytes: of the
 * vector. reduced: the type if the call reduces, or NULL. params, args: of the call. for_mpi: the
 * arguments for MPI.
 */
#define COLLECTIVE(name, kind_of_call, description, bytes, reduced, params, args, for_mpi)         \
	static __attribute__((noinline)) int take_any_##name(LIST params, MPI_Comm comm,           \
							     struct module *module,                \
							     const void *caller)                   \
	{                                                                                          \
		const struct collective call = { .kind = COLLECTIVE_##kind_of_call,                \
						 .comm = comm,                                     \
						 .module = module,                                 \
						 LIST description };                               \
		int result;                                                                        \
                                                                                                   \
		if (is_programs_call(module, caller, COLLECTIVE_##kind_of_call, false)) {          \
			small_remember(bytes, reduced);                                            \
			if (take(&call, &result))                                                  \
				return result;                                                     \
		}                                                                                  \
		return module->before.name(LIST for_mpi, comm, module->before.name##_module);      \
	}                                                                                          \
	static int take_##name(LIST params, MPI_Comm comm, mca_coll_base_module_t *base)           \
	{                                                                                          \
		struct module *module = (struct module *)base;                                     \
                                                                                                   \
		if (is_small(COLLECTIVE_##kind_of_call, bytes, reduced,                            \
			     __builtin_return_address(0)))                                         \
			return module->before.name(LIST args, comm, module->before.name##_module); \
		return take_any_##name(LIST args, comm, module, __builtin_return_address(0));      \
	}                                                                                          \
	static int start_##name(LIST params, MPI_Comm comm, MPI_Request *req,                      \
				mca_coll_base_module_t *base)                                      \
	{                                                                                          \
		struct module *module = (struct module *)base;                                     \
		const struct collective call = { .kind = COLLECTIVE_##kind_of_call,                \
						 .comm = comm,                                     \
						 .module = module,                                 \
						 LIST description };                               \
		int result;                                                                        \
                                                                                                   \
		if (is_programs_call(module, __builtin_return_address(0),                          \
				     COLLECTIVE_##kind_of_call, true) &&                           \
		    start(&call, req, &result))                                                    \
			return result;                                                             \
		return module->before.i##name(LIST for_mpi, comm, req,                             \
					      module->before.i##name##_module);                    \
	}

COLLECTIVE(allreduce, ALLREDUCE,
	   (.send = send, .recv = recv, .count = count, .type = type, .op = op),
	   bytes_of(type, count), type,
	   (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op),
	   (send, recv, count, type, op), (send, recv, count, type, FOR_MPI))

COLLECTIVE(reduce, REDUCE,
	   (.send = send, .recv = recv, .count = count, .type = type, .op = op, .root = root),
	   bytes_of(type, count), type,
	   (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op, int root),
	   (send, recv, count, type, op, root), (send, recv, count, type, FOR_MPI, root))

COLLECTIVE(bcast, BCAST, (.recv = data, .count = count, .type = type, .root = root),
	   bytes_of(type, count), NULL, (void *data, int count, MPI_Datatype type, int root),
	   (data, count, type, root), (data, count, type, root))

COLLECTIVE(allgather, ALLGATHER,
	   (.send = send, .send_count = send_count, .send_type = send_type, .recv = recv,
	    .count = count, .type = type),
	   bytes_of(type, count) * (size_t)ompi_comm_size(comm), NULL,
	   (const void *send, int send_count, MPI_Datatype send_type, void *recv, int count,
	    MPI_Datatype type),
	   (send, send_count, send_type, recv, count, type),
	   (send, send_count, send_type, recv, count, type))

COLLECTIVE(reduce_scatter_block, REDUCE_SCATTER_BLOCK,
	   (.send = send, .recv = recv, .count = count, .type = type, .op = op),
	   bytes_of(type, count) * (size_t)ompi_comm_size(comm), type,
	   (const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op),
	   (send, recv, count, type, op), (send, recv, count, type, FOR_MPI))

/* A barrier has no data that could be small. */
static int
take_barrier(MPI_Comm comm, mca_coll_base_module_t *base)
{
	struct module *module = (struct module *)base;
	const struct collective call = { .kind = COLLECTIVE_BARRIER,
					 .comm = comm,
					 .module = module };
	int result;

	if (is_programs_call(module, __builtin_return_address(0), COLLECTIVE_BARRIER, false) &&
	    take(&call, &result))
		return result;
	return module->before.barrier(comm, module->before.barrier_module);
}

static int
start_barrier(MPI_Comm comm, MPI_Request *req, mca_coll_base_module_t *base)
{
	struct module *module = (struct module *)base;
	const struct collective call = { .kind = COLLECTIVE_BARRIER,
					 .comm = comm,
					 .module = module };
	int result;

	if (is_programs_call(module, __builtin_return_address(0), COLLECTIVE_BARRIER, true) &&
	    start(&call, req, &result))
		return result;
	return module->before.ibarrier(comm, req, module->before.ibarrier_module);
}

/* ---- the communicator's state */

int
state_find(const struct collective *call, struct comm_state **state)
{
	*state = __atomic_load_n(&((struct module *)call->module)->state, __ATOMIC_ACQUIRE);
	return MPI_SUCCESS;
}

void
state_attach(const struct collective *call, struct comm_state *state)
{
	__atomic_store_n(&((struct module *)call->module)->state, state, __ATOMIC_RELEASE);
}

/* Open MPI passes what a module returns to the handler. */
int
error_raise(MPI_Comm comm, int error)
{
	(void)comm;
	return error;
}

/* Returns the communicator's module; NULL: it has none. */
static struct module *
module_of(MPI_Comm comm)
{
	mca_coll_base_avail_coll_t *item;

	OPAL_LIST_FOREACH(item, comm->c_coll->module_list, mca_coll_base_avail_coll_t)
	if (item->ac_module->coll_allreduce == take_allreduce)
		return (struct module *)item->ac_module;
	return NULL;
}

void
own_comm(MPI_Comm comm)
{
	struct module *module = module_of(comm);

	if (module != NULL)
		module->is_own = true;
}

void *
module_of_world(void)
{
	return module_of(MPI_COMM_WORLD);
}

/* ---- making and ending modules */

static int
module_enable(mca_coll_base_module_t *base, struct ompi_communicator_t *comm)
{
	struct module *module = (struct module *)base;

#define X(name, kind)                                                                              \
	if (comm->c_coll->coll_##name == NULL || comm->c_coll->coll_i##name == NULL)               \
		return OMPI_ERR_NOT_AVAILABLE;
	COLLECTIVES(X)
#undef X
#define X(name, kind)                                                                              \
	module->before.name = comm->c_coll->coll_##name;                                           \
	module->before.name##_module = comm->c_coll->coll_##name##_module;                         \
	OBJ_RETAIN(module->before.name##_module);                                                  \
	module->before.i##name = comm->c_coll->coll_i##name;                                       \
	module->before.i##name##_module = comm->c_coll->coll_i##name##_module;                     \
	OBJ_RETAIN(module->before.i##name##_module);
	COLLECTIVES(X)
#undef X
	return OMPI_SUCCESS;
}

static void
module_construct(fanin_module_t *module)
{
	module->state = NULL;
	module->is_own = false;
	memset(&module->before, 0, sizeof(module->before));
}

/*
 * Ends the communicator's job, in the background. Waits for nobody: ranks free communicators in any
 * order.
 */
static void
state_end(struct comm_state *state)
{
	if (state->way != WAY_NETWORK) {
		state_drop(state);
		return;
	}
	state->comm = MPI_COMM_NULL;
	/* This keeps other threads from freeing it while this one needs it. */
	__atomic_store_n(&state->is_taken, true, __ATOMIC_RELAXED);
	state_close_begin(state);
	__atomic_store_n(&state->is_taken, false, __ATOMIC_RELEASE);
}

static void
module_destruct(fanin_module_t *module)
{
#define X(name, kind)                                                                              \
	if (module->before.name##_module != NULL) {                                                \
		OBJ_RELEASE(module->before.name##_module);                                         \
		OBJ_RELEASE(module->before.i##name##_module);                                      \
	}
	COLLECTIVES(X)
#undef X
	if (module->state != NULL)
		state_end(module->state);
}

static OBJ_CLASS_INSTANCE(fanin_module_t, mca_coll_base_module_t, module_construct,
			  module_destruct);

mca_coll_base_module_t *
module_make(void)
{
	fanin_module_t *module = OBJ_NEW(fanin_module_t);

	if (module == NULL)
		return NULL;
	module->super.coll_module_enable = module_enable;
#define X(name, kind)                                                                              \
	module->super.coll_##name = take_##name;                                                   \
	module->super.coll_i##name = start_##name;
	COLLECTIVES(X)
#undef X
	return &module->super;
}
