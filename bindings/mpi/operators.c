/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Combines vectors inside a process and a host by the switch's own kernels (docs/operators.md), so
 * that a result is the same wherever its ranks are. Where MPI moves the data of such a step, it
 * combines by the operators that are made here, never by its own, which some MPI libraries have
 * wrong for some types.
 */
#include "core.h"

#include "handlers/kernels/kernels.h"

/* From version 4 on MPI passes counts wider than int. */
#if MPI_VERSION >= 4
#define OWN_COUNT MPI_Count
#define OWN_CREATE PMPI_Op_create_c
#else
#define OWN_COUNT int
#define OWN_CREATE PMPI_Op_create
#endif

static enum fanin_isa isa;

void
arithmetic_enter(fenv_t *programs)
{
	fegetenv(programs);
	fesetenv(FE_DFL_ENV);
}

void
arithmetic_leave(const fenv_t *programs)
{
	fesetenv(programs);
}

void
local_combine(enum fanin_dtype dtype, enum fanin_op op, void *acc, const void *in, size_t elements)
{
	fanin_kernel(isa, dtype, op)(acc, in, elements);
}

/* The operators that both MPI and the network have, and this library's own ones for MPI's steps. */
#define OPERATORS(X)                                                                               \
	X(SUM)                                                                                     \
	X(PROD)                                                                                    \
	X(MIN)                                                                                     \
	X(MAX)                                                                                     \
	X(LAND)                                                                                    \
	X(LOR)                                                                                     \
	X(LXOR)                                                                                    \
	X(BAND)                                                                                    \
	X(BOR)                                                                                     \
	X(BXOR)

/* Combines received data, of a type that types.c knows. Called by MPI. */
static void
own_combine(enum fanin_op op, const void *in, void *acc, OWN_COUNT n, MPI_Datatype type)
{
	const enum fanin_dtype dtype = type_element(type);
	fenv_t programs;

	arithmetic_enter(&programs);
	local_combine(dtype, op, acc, in,
		      (size_t)n * type_plain_bytes(type) / fanin_dtype_size_of(dtype));
	arithmetic_leave(&programs);
}

#define X(name)                                                                                    \
	static void own_##name(void *in, void *acc, OWN_COUNT *n, MPI_Datatype *type)              \
	{                                                                                          \
		own_combine(FANIN_##name, in, acc, *n, *type);                                     \
	}
OPERATORS(X)
#undef X

static struct {
	const char *name;
	MPI_Op mpi, own;
} operators[] = {
#define X(name) [FANIN_##name] = { "MPI_" #name, MPI_OP_NULL, MPI_OP_NULL },
	OPERATORS(X)
#undef X
};
#define N_OPERATORS (sizeof(operators) / sizeof(operators[0]))

/* Sets the handles at run time: in some MPI libraries they are addresses. */
void
operators_init(void)
{
	isa = fanin_isa_detect();
#define X(name)                                                                                    \
	operators[FANIN_##name].mpi = MPI_##name;                                                  \
	if (OWN_CREATE(own_##name, 1, &operators[FANIN_##name].own) != MPI_SUCCESS)                \
		no_memory();
	OPERATORS(X)
#undef X
}

void
operators_finish(void)
{
	/*
	 * Functions of the program that MPI_Finalize calls may still reduce, by MPI's own
	 * operators.
	 */
	findings_some_wrong = false;
	for (size_t op = 1; op < N_OPERATORS; op++)
		if (operators[op].own != MPI_OP_NULL)
			PMPI_Op_free(&operators[op].own);
}

enum fanin_op
operator_to_fanin(MPI_Op op)
{
	for (size_t i = 1; i < N_OPERATORS; i++)
		if (operators[i].mpi == op)
			return (enum fanin_op)i;
	return 0;
}

const char *
operator_name(enum fanin_op op)
{
	return operators[op].name;
}

MPI_Op
operator_of_mpi(enum fanin_op op)
{
	return operators[op].mpi;
}

MPI_Op
operator_own(enum fanin_op op)
{
	return operators[op].own;
}

MPI_Op
operator_for_mpi(MPI_Datatype type, MPI_Op op)
{
	return type_is_wrong_in_mpi(type, op) ? operator_own(operator_to_fanin(op)) : op;
}
