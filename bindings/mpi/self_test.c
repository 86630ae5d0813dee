/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Compares MPI's own reductions with the network's arithmetic when the program starts, for each
 * type and operator that both have. Small vectors go to MPI, and a program's results must not
 * depend on their size. If MPI is wrong on one rank, whose CPU may have other instructions than
 * others', the network takes vectors of any size, on all ranks.
 *
 * MPI_Reduce_local calls the same functions as Open MPI's and MPICH's collectives. The values are
 * those at both ends of a type. NaNs and zeros of both signs are not among them: MPI defines
 * neither.
 */
#include "core.h"

#include <stdlib.h>
#include <string.h>

/* Values of a type; a vector has all pairs of them. */
#define N_VALUES 6
#define N_PAIRS (N_VALUES * N_VALUES)
/*
 * Enough for vectors of 64 bytes and all shorter ones that a loop may end with, whatever the type.
 */
#define COUNT 127
/* All pairs pass each element, as vectors begin at each of the first N_PAIRS elements. */
#define N_ELEMENTS (COUNT + N_PAIRS)
#define MAX_SELF_TEST_BYTES 16

bool findings_some_wrong;

/* A pair of vectors, the network's result and MPI's result. */
struct trial {
	uint8_t in[N_ELEMENTS * MAX_SELF_TEST_BYTES];
	uint8_t acc[N_ELEMENTS * MAX_SELF_TEST_BYTES];
	uint8_t expected[N_ELEMENTS * MAX_SELF_TEST_BYTES];
	uint8_t found[COUNT * MAX_SELF_TEST_BYTES];
};

static void
value_put(uint8_t *at, enum fanin_dtype dtype, bool is_logical, unsigned int value)
{
	static const float singles[N_VALUES] = { 1,         0x1.fffffep127f, -0x1.fffffep127f,
						 0x1p-149f, -0x1p-149f,      __builtin_inff() };
	static const double doubles[N_VALUES] = {
		1,          0x1.fffffffffffffp1023, -0x1.fffffffffffffp1023, 0x1p-1074,
		-0x1p-1074, __builtin_inf()
	};
	const size_t bytes = fanin_dtype_size_of(dtype);
	const uint64_t top = (uint64_t)1 << (8 * bytes - 1);
	const uint64_t integers[N_VALUES] = { 0, 1, top - 1, top, UINT64_MAX, UINT64_MAX / 3 };
	const uint64_t integer = is_logical ? value % 2 : integers[value];

	if (dtype == FANIN_F32)
		memcpy(at, &singles[value], bytes);
	else if (dtype == FANIN_F64)
		memcpy(at, &doubles[value], bytes);
	else
		/* Little-endian, as all elements are. */
		memcpy(at, &integer, bytes);
}

/* Fills the vectors. Both parts of a complex number have the same value. */
static void
trial_fill(struct trial *trial, const struct type_view *type)
{
	const size_t bytes = fanin_dtype_size_of(type->dtype);

	for (unsigned int i = 0; i < N_ELEMENTS; i++)
		for (size_t part = i * type->bytes; part < (i + 1) * type->bytes; part += bytes) {
			value_put(trial->in + part, type->dtype, type->is_logical,
				  i % N_PAIRS / N_VALUES);
			value_put(trial->acc + part, type->dtype, type->is_logical, i % N_VALUES);
		}
}

/*
 * True if the results are equal. As booleans all values but 0 are true in C, and may be in Fortran.
 */
static bool
is_same(const struct type_view *type, const uint8_t *found, const uint8_t *expected, size_t n)
{
	static const uint8_t zero[MAX_SELF_TEST_BYTES];

	if (memcmp(found, expected, n * type->bytes) == 0)
		return true;
	if (!type->is_logical)
		return false;
	for (size_t i = 0; i < n * type->bytes; i += type->bytes)
		if ((memcmp(found + i, zero, type->bytes) == 0) !=
		    (memcmp(expected + i, zero, type->bytes) == 0))
			return false;
	return true;
}

/* Runs MPI's reduction of n elements from the i-th on. Returns false if MPI has none. */
static bool
trial_run(struct trial *trial, const struct type_view *type, enum fanin_op op, unsigned int i,
	  unsigned int n)
{
	const size_t from = i * type->bytes;

	memcpy(trial->found, trial->acc + from, n * type->bytes);
	if (PMPI_Reduce_local(trial->in + from, trial->found, (int)n, type->type,
			      operator_of_mpi(op)) != MPI_SUCCESS) {
		type->finding->refused |= OP_BIT(op);
		return false;
	}
	if (!is_same(type, trial->found, trial->expected + from, n))
		type->finding->wrong |= OP_BIT(op);
	return true;
}

static void
type_try(struct trial *trial, const struct type_view *type)
{
	trial_fill(trial, type);
	for (enum fanin_op op = FANIN_SUM; op <= FANIN_BXOR; op++) {
		if ((type->ops & OP_BIT(op)) == 0)
			continue;
		memcpy(trial->expected, trial->acc, sizeof(trial->expected));
		local_combine(type->dtype, op, trial->expected, trial->in,
			      N_ELEMENTS * type->bytes / fanin_dtype_size_of(type->dtype));
		for (unsigned int i = 0; i < N_PAIRS; i++)
			if (!trial_run(trial, type, op, i, COUNT) ||
			    !trial_run(trial, type, op, i, 1 + i % 7))
				break;
	}
}

/* Makes MPI return errors: an operator that MPI does not have for a type would end the program. */
static void
errors_return(MPI_Comm comm, MPI_Errhandler *before)
{
	PMPI_Comm_get_errhandler(comm, before);
	PMPI_Comm_set_errhandler(comm, MPI_ERRORS_RETURN);
}

static void
errors_restore(MPI_Comm comm, MPI_Errhandler *before)
{
	PMPI_Comm_set_errhandler(comm, *before);
	PMPI_Errhandler_free(before);
}

/* Tries all types in the network's arithmetic, independently of the program's settings. */
static void
types_try(struct trial *trial)
{
	MPI_Errhandler world, self;
	struct type_view type;
	unsigned int place = 0;
	fenv_t programs;

	errors_return(MPI_COMM_WORLD, &world);
	errors_return(MPI_COMM_SELF, &self);
	arithmetic_enter(&programs);
	while (type_next(&place, &type))
		type_try(trial, &type);
	arithmetic_leave(&programs);
	errors_restore(MPI_COMM_SELF, &self);
	errors_restore(MPI_COMM_WORLD, &world);
}

void
self_test(void)
{
	struct finding *findings = type_findings();
	struct trial *trial = malloc(sizeof(*trial));

	if (trial == NULL)
		no_memory();
	types_try(trial);
	free(trial);
	/* The ranks combine by this library's operator, since MPI's own may be wrong. */
	if (PMPI_Allreduce(MPI_IN_PLACE, findings, N_TYPES * (int)sizeof(*findings), MPI_BYTE,
			   operator_own(FANIN_BOR), library_comm) != MPI_SUCCESS)
		PMPI_Abort(MPI_COMM_WORLD, 1);
	for (unsigned int i = 0; i < N_TYPES; i++)
		findings_some_wrong = findings_some_wrong || findings[i].wrong != 0;
}
