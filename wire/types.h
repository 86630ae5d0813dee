/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data types and operators that a packet can name, and their valid combinations. The codes are
 * wire format: entries are only ever appended. Names, sizes, the switch's table of kernels and the
 * host library's types all follow from these tables: one line and its kernels (handlers/kernels)
 * add a data type or an operator.
 *
 * Codes from 128 on are for custom operators (handlers/operators). The code of a custom data type
 * contains the size of its elements, so that any packet's length can be checked without knowing the
 * type; only the switch knows the meaning of a custom operator's code.
 *
 * The code 64 combines nothing: the block has the data of one rank, its root, which the header
 * names. Ranks that disagree about the root are refused, as with any other operator.
 */
#ifndef FANIN_WIRE_TYPES_H
#define FANIN_WIRE_TYPES_H

#include <stdbool.h>
#include <stdint.h>

/* X(ENUMERATOR, name, code, size in bytes, KIND) */
#define FANIN_WIRE_DTYPES(X)                                                                       \
	X(I8, i8, 1, 1, INTEGER)                                                                   \
	X(I16, i16, 2, 2, INTEGER)                                                                 \
	X(I32, i32, 3, 4, INTEGER)                                                                 \
	X(I64, i64, 4, 8, INTEGER)                                                                 \
	X(U8, u8, 5, 1, INTEGER)                                                                   \
	X(U16, u16, 6, 2, INTEGER)                                                                 \
	X(U32, u32, 7, 4, INTEGER)                                                                 \
	X(U64, u64, 8, 8, INTEGER)                                                                 \
	X(F16, f16, 9, 2, FLOAT)                                                                   \
	X(BF16, bf16, 10, 2, FLOAT)                                                                \
	X(F32, f32, 11, 4, FLOAT)                                                                  \
	X(F64, f64, 12, 8, FLOAT)

/*
 * X(ENUMERATOR, name, code, KIND of data types it is defined on, operator that combines, ...)
 *
 * Contributions to an average are combined like those to a sum; the division comes at the end.
 * Further arguments are passed to each X unchanged.
 */
#define FANIN_WIRE_OPS(X, ...)                                                                     \
	X(SUM, sum, 1, ANY, sum, ##__VA_ARGS__)                                                    \
	X(PROD, prod, 2, ANY, prod, ##__VA_ARGS__)                                                 \
	X(MIN, min, 3, ANY, min, ##__VA_ARGS__)                                                    \
	X(MAX, max, 4, ANY, max, ##__VA_ARGS__)                                                    \
	X(LAND, land, 5, INTEGER, land, ##__VA_ARGS__)                                             \
	X(LOR, lor, 6, INTEGER, lor, ##__VA_ARGS__)                                                \
	X(LXOR, lxor, 7, INTEGER, lxor, ##__VA_ARGS__)                                             \
	X(BAND, band, 8, INTEGER, band, ##__VA_ARGS__)                                             \
	X(BOR, bor, 9, INTEGER, bor, ##__VA_ARGS__)                                                \
	X(BXOR, bxor, 10, INTEGER, bxor, ##__VA_ARGS__)                                            \
	X(AVG, avg, 11, ANY, sum, ##__VA_ARGS__)

/*
 * Operator of blocks with the data of one rank only. Defined on every data type. No other operator
 * has a code from 64 to 127.
 */
#define FANIN_WIRE_COPY 64u

/*
 * A custom data type's code is FANIN_WIRE_OPAQUE plus the size of its elements in bytes, 1 to
 * FANIN_WIRE_OPAQUE_MAX.
 */
#define FANIN_WIRE_OPAQUE 128u
#define FANIN_WIRE_OPAQUE_MAX 64u

/* Custom operators have the codes from here to FANIN_WIRE_CUSTOM_LAST. */
#define FANIN_WIRE_CUSTOM 128u
#define FANIN_WIRE_CUSTOM_LAST 255u

/* Kinds of data types; bits, so that an operator can be defined on several kinds. */
enum fanin_wire_kind {
	FANIN_KIND_INTEGER = 1,
	FANIN_KIND_FLOAT = 2,
	FANIN_KIND_ANY = FANIN_KIND_INTEGER | FANIN_KIND_FLOAT
};

enum fanin_wire_dtype {
	FANIN_WIRE_DTYPE_NONE = 0,
#define FANIN_DTYPE_ENUM(name, text, code, size, kind) FANIN_WIRE_##name = (code),
	FANIN_WIRE_DTYPES(FANIN_DTYPE_ENUM)
#undef FANIN_DTYPE_ENUM
	FANIN_WIRE_DTYPE_COUNT
};

enum fanin_wire_op {
	FANIN_WIRE_OP_NONE = 0,
#define FANIN_OP_ENUM(name, text, code, kind, combine) FANIN_WIRE_##name = (code),
	FANIN_WIRE_OPS(FANIN_OP_ENUM)
#undef FANIN_OP_ENUM
	FANIN_WIRE_OP_COUNT
};

static inline bool
fanin_dtype_is_opaque(unsigned int dtype)
{
	return dtype > FANIN_WIRE_OPAQUE && dtype <= FANIN_WIRE_OPAQUE + FANIN_WIRE_OPAQUE_MAX;
}

static inline bool
fanin_op_is_custom(unsigned int op)
{
	return op >= FANIN_WIRE_CUSTOM && op <= FANIN_WIRE_CUSTOM_LAST;
}

static inline bool
fanin_op_is_copy(unsigned int op)
{
	return op == FANIN_WIRE_COPY;
}

/*
 * Returns true for predefined operators, copies and custom operators; not every switch has the
 * latter.
 */
static inline bool
fanin_op_is_known(unsigned int op)
{
	return (op != FANIN_WIRE_OP_NONE && op < FANIN_WIRE_OP_COUNT) || fanin_op_is_copy(op) ||
	       fanin_op_is_custom(op);
}

/* Returns the size of one element in bytes; 0 for an unknown code. Thread-safe. */
static inline unsigned int
fanin_dtype_size(unsigned int dtype)
{
	static const uint8_t size[FANIN_WIRE_DTYPE_COUNT] = {
#define FANIN_DTYPE_SIZE(name, text, code, bytes, kind) [code] = (bytes),
		FANIN_WIRE_DTYPES(FANIN_DTYPE_SIZE)
#undef FANIN_DTYPE_SIZE
	};

	if (dtype < FANIN_WIRE_DTYPE_COUNT)
		return size[dtype];
	return fanin_dtype_is_opaque(dtype) ? dtype - FANIN_WIRE_OPAQUE : 0;
}

/*
 * Returns true if the operator is defined on the data type, by MPI's rules; averages are defined on
 * all types. Returns false for codes that are not in the tables. Switches of this version have a
 * kernel for each defined pair. Thread-safe.
 */
static inline bool
fanin_operation_defined(unsigned int dtype, unsigned int op)
{
	static const uint8_t kind_of[FANIN_WIRE_DTYPE_COUNT] = {
#define FANIN_DTYPE_KIND(name, text, code, bytes, kind) [code] = FANIN_KIND_##kind,
		FANIN_WIRE_DTYPES(FANIN_DTYPE_KIND)
#undef FANIN_DTYPE_KIND
	};
	static const uint8_t kinds_of[FANIN_WIRE_OP_COUNT] = {
#define FANIN_OP_KIND(name, text, code, kind, combine) [code] = FANIN_KIND_##kind,
		FANIN_WIRE_OPS(FANIN_OP_KIND)
#undef FANIN_OP_KIND
	};

	return dtype < FANIN_WIRE_DTYPE_COUNT && op < FANIN_WIRE_OP_COUNT &&
	       (kind_of[dtype] & kinds_of[op]) != 0;
}

/*
 * Returns true if a job that accumulates in f32 does so for this operator and data type: sums and
 * averages of f16 and bf16. Thread-safe.
 */
static inline bool
fanin_operation_widens(unsigned int dtype, unsigned int op)
{
	return (dtype == FANIN_WIRE_F16 || dtype == FANIN_WIRE_BF16) &&
	       (op == FANIN_WIRE_SUM || op == FANIN_WIRE_AVG);
}

/*
 * Return the name of a code ("f32", "sum"); "opaque" and "custom" for the codes of custom
 * operators, "copy" for the code of copies, "unknown" for others. Static strings. Thread-safe.
 */
const char *fanin_dtype_name(unsigned int dtype);
const char *fanin_op_name(unsigned int op);

/* Return the code of a name; 0 (the NONE code) for a name that is not in the table. Thread-safe. */
unsigned int fanin_dtype_from_name(const char *name);
unsigned int fanin_op_from_name(const char *name);

#endif
