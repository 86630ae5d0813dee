/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * MPI's predefined types and operators, and their counterparts in the network. Types and operators
 * that are not in the tables go to MPI: user-defined operators, pair types, long double, products
 * of complex numbers.
 */
#include "core.h"

#include <limits.h>
#include <stdlib.h>

/* Classes of types by the operators that MPI defines on them (MPI 3.1, section 5.9.2). */
enum type_class {
	CLASS_NONE, /* moved, never reduced here */
	CLASS_INTEGER,
	CLASS_FORTRAN_INTEGER,
	CLASS_COUNT, /* MPI_AINT and the like */
	CLASS_FLOAT,
	CLASS_COMPLEX,
	CLASS_LOGICAL,
	CLASS_BYTE,
};

struct type_entry {
	MPI_Datatype type;
	enum type_class class;
	uint32_t bytes;
	enum fanin_dtype dtype;  /* 0: no type of the network is as wide */
	struct finding *finding; /* about MPI's reductions of the type */
};

/* A hash table with open addressing; handles are pointers or numbers. */
#define TABLE_SIZE 256
static struct type_entry table[TABLE_SIZE];
static bool table_used[TABLE_SIZE];
/*
 * In the order in which types_init enters them, which is the same on all ranks; handles may be
 * addresses.
 */
static struct finding findings[N_TYPES];
static unsigned int n_types;

static unsigned int
handle_hash(MPI_Datatype type)
{
	const uint64_t x = (uint64_t)(uintptr_t)type * 0x9e3779b97f4a7c15u;

	return (unsigned int)(x >> 56) & (TABLE_SIZE - 1);
}

static const struct type_entry *
type_find(MPI_Datatype type)
{
	for (unsigned int i = handle_hash(type); table_used[i]; i = (i + 1) & (TABLE_SIZE - 1))
		if (table[i].type == type)
			return &table[i];
	return NULL;
}

static enum fanin_dtype
integer_of(uint32_t bytes, bool is_signed)
{
	switch (bytes) {
	case 1:
		return is_signed ? FANIN_I8 : FANIN_U8;
	case 2:
		return is_signed ? FANIN_I16 : FANIN_U16;
	case 4:
		return is_signed ? FANIN_I32 : FANIN_U32;
	case 8:
		return is_signed ? FANIN_I64 : FANIN_U64;
	default:
		return 0;
	}
}

static enum fanin_dtype
float_of(uint32_t bytes)
{
	return bytes == 4 ? FANIN_F32 : bytes == 8 ? FANIN_F64 : 0;
}

static void
type_enter(MPI_Datatype type, enum type_class class, bool is_signed)
{
	struct type_entry entry = { .type = type, .class = class };
	MPI_Aint low, extent;
	unsigned int i;
	int bytes;

	if (n_types == N_TYPES)
		abort();
	entry.finding = &findings[n_types++];
	if (type == MPI_DATATYPE_NULL || type_find(type) != NULL)
		return;
	if (PMPI_Type_size(type, &bytes) != MPI_SUCCESS || bytes <= 0 ||
	    PMPI_Type_get_extent(type, &low, &extent) != MPI_SUCCESS || low != 0 || extent != bytes)
		return;
	entry.bytes = (uint32_t)bytes;
	if (class == CLASS_FLOAT)
		entry.dtype = float_of(entry.bytes);
	else if (class == CLASS_COMPLEX)
		entry.dtype = float_of(entry.bytes / 2);
	else if (class != CLASS_NONE)
		entry.dtype = integer_of(entry.bytes, is_signed);
	for (i = handle_hash(type); table_used[i]; i = (i + 1) & (TABLE_SIZE - 1))
		;
	table[i] = entry;
	table_used[i] = true;
}

#define ENTER_ALL(class, is_signed, ...)                                                           \
	do {                                                                                       \
		const MPI_Datatype types[] = { __VA_ARGS__ };                                      \
		for (size_t k = 0; k < sizeof(types) / sizeof(types[0]); k++)                      \
			type_enter(types[k], class, is_signed);                                    \
	} while (0)

void
types_init(void)
{
	ENTER_ALL(CLASS_INTEGER, true, MPI_INT, MPI_LONG, MPI_SHORT, MPI_LONG_LONG, MPI_SIGNED_CHAR,
		  MPI_INT8_T, MPI_INT16_T, MPI_INT32_T, MPI_INT64_T);
	ENTER_ALL(CLASS_INTEGER, false, MPI_UNSIGNED, MPI_UNSIGNED_LONG, MPI_UNSIGNED_SHORT,
		  MPI_UNSIGNED_LONG_LONG, MPI_UNSIGNED_CHAR, MPI_UINT8_T, MPI_UINT16_T,
		  MPI_UINT32_T, MPI_UINT64_T);
	/* The standard defines no operator on it, but both MPIs do, and programs rely on them. */
	ENTER_ALL(CLASS_INTEGER, CHAR_MIN < 0, MPI_CHAR);
	ENTER_ALL(CLASS_FORTRAN_INTEGER, true, MPI_INTEGER, MPI_INTEGER1, MPI_INTEGER2,
		  MPI_INTEGER4, MPI_INTEGER8);
	ENTER_ALL(CLASS_COUNT, true, MPI_AINT, MPI_OFFSET, MPI_COUNT);
	ENTER_ALL(CLASS_FLOAT, true, MPI_FLOAT, MPI_DOUBLE, MPI_REAL, MPI_DOUBLE_PRECISION,
		  MPI_REAL4, MPI_REAL8);
	ENTER_ALL(CLASS_COMPLEX, true, MPI_C_FLOAT_COMPLEX, MPI_C_DOUBLE_COMPLEX, MPI_COMPLEX,
		  MPI_DOUBLE_COMPLEX, MPI_COMPLEX8, MPI_COMPLEX16, MPI_CXX_FLOAT_COMPLEX,
		  MPI_CXX_DOUBLE_COMPLEX);
	ENTER_ALL(CLASS_LOGICAL, true, MPI_LOGICAL, MPI_C_BOOL, MPI_CXX_BOOL);
	ENTER_ALL(CLASS_BYTE, false, MPI_BYTE);
	ENTER_ALL(CLASS_NONE, false, MPI_WCHAR, MPI_CHARACTER, MPI_PACKED);
}

size_t
type_plain_bytes(MPI_Datatype type)
{
	const struct type_entry *entry = type_find(type);

	return entry == NULL ? 0 : entry->bytes;
}

static bool
class_has(enum type_class class, enum fanin_op op)
{
	const bool is_number = class == CLASS_INTEGER || class == CLASS_FORTRAN_INTEGER ||
			       class == CLASS_COUNT || class == CLASS_FLOAT;

	switch (op) {
	case FANIN_SUM:
		return is_number || class == CLASS_COMPLEX;
	case FANIN_PROD:
	case FANIN_MIN:
	case FANIN_MAX:
		return is_number;
	case FANIN_LAND:
	case FANIN_LOR:
	case FANIN_LXOR:
		return class == CLASS_INTEGER || class == CLASS_LOGICAL;
	case FANIN_BAND:
	case FANIN_BOR:
	case FANIN_BXOR:
		return (is_number && class != CLASS_FLOAT) || class == CLASS_BYTE;
	default:
		return false;
	}
}

/*
 * Finds the type's entry if the network reduces the type by the operator; NULL otherwise, with the
 * reason in *way.
 */
static const struct type_entry *
type_reduced_by(MPI_Datatype type, MPI_Op op, enum fanin_op *fanin_op, enum way *way)
{
	const struct type_entry *entry = type_find(type);

	*way = WAY_TYPE;
	if (entry == NULL || entry->dtype == 0)
		return NULL;
	*way = WAY_OPERATOR;
	*fanin_op = operator_to_fanin(op);
	if (*fanin_op == 0 || !class_has(entry->class, *fanin_op) ||
	    !fanin_supports(entry->dtype, *fanin_op))
		return NULL;
	*way = WAY_NETWORK;
	return entry;
}

enum way
type_to_fanin(MPI_Datatype type, MPI_Op op, enum fanin_dtype *dtype, enum fanin_op *fanin_op)
{
	enum way way;
	const struct type_entry *entry = type_reduced_by(type, op, fanin_op, &way);

	if (entry == NULL)
		return way;
	/* MPI would refuse small vectors, while the network would take large ones. */
	if ((entry->finding->refused & OP_BIT(*fanin_op)) != 0)
		return WAY_OPERATOR;
	*dtype = entry->dtype;
	return WAY_NETWORK;
}

bool
type_is_right_in_mpi(MPI_Datatype type)
{
	const struct type_entry *entry = type_find(type);

	return !findings_some_wrong || entry == NULL || entry->finding->wrong == 0;
}

bool
type_is_wrong_in_mpi(MPI_Datatype type, MPI_Op op)
{
	const struct type_entry *entry;

	if (!findings_some_wrong)
		return false;
	entry = type_find(type);
	return entry != NULL && entry->finding->wrong != 0 &&
	       (entry->finding->wrong & OP_BIT(operator_to_fanin(op))) != 0;
}

enum fanin_dtype
type_element(MPI_Datatype type)
{
	const struct type_entry *entry = type_find(type);

	return entry == NULL ? 0 : entry->dtype;
}

bool
type_next(unsigned int *place, struct type_view *view)
{
	for (; *place < TABLE_SIZE; (*place)++) {
		const struct type_entry *entry = &table[*place];

		if (!table_used[*place] || entry->dtype == 0)
			continue;
		*view = (struct type_view){ .type = entry->type,
					    .dtype = entry->dtype,
					    .bytes = entry->bytes,
					    .is_logical = entry->class == CLASS_LOGICAL,
					    .finding = entry->finding };
		for (unsigned int op = FANIN_SUM; op <= FANIN_BXOR; op++)
			if (class_has(entry->class, op) && fanin_supports(entry->dtype, op))
				view->ops |= OP_BIT(op);
		(*place)++;
		return true;
	}
	return false;
}

struct finding *
type_findings(void)
{
	return findings;
}
