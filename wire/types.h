/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The data types and operators that a packet can name. The codes are wire format: entries are only
 * ever appended. One line here and one kernel (handlers/kernels) add a data type or an operator.
 */
#ifndef FANIN_WIRE_TYPES_H
#define FANIN_WIRE_TYPES_H

#include <stdint.h>

/* X(ENUMERATOR, name, code, size in bytes) */
#define FANIN_WIRE_DTYPES(X)                                                                       \
	X(I8, "i8", 1, 1)                                                                          \
	X(I16, "i16", 2, 2)                                                                        \
	X(I32, "i32", 3, 4)                                                                        \
	X(I64, "i64", 4, 8)                                                                        \
	X(U8, "u8", 5, 1)                                                                          \
	X(U16, "u16", 6, 2)                                                                        \
	X(U32, "u32", 7, 4)                                                                        \
	X(U64, "u64", 8, 8)                                                                        \
	X(F16, "f16", 9, 2)                                                                        \
	X(BF16, "bf16", 10, 2)                                                                     \
	X(F32, "f32", 11, 4)                                                                       \
	X(F64, "f64", 12, 8)

/* X(ENUMERATOR, name, code) */
#define FANIN_WIRE_OPS(X)                                                                          \
	X(SUM, "sum", 1)                                                                           \
	X(PROD, "prod", 2)                                                                         \
	X(MIN, "min", 3)                                                                           \
	X(MAX, "max", 4)                                                                           \
	X(LAND, "land", 5)                                                                         \
	X(LOR, "lor", 6)                                                                           \
	X(LXOR, "lxor", 7)                                                                         \
	X(BAND, "band", 8)                                                                         \
	X(BOR, "bor", 9)                                                                           \
	X(BXOR, "bxor", 10)                                                                        \
	X(AVG, "avg", 11)

enum fanin_wire_dtype {
	FANIN_WIRE_DTYPE_NONE = 0,
#define FANIN_DTYPE_ENUM(name, text, code, size) FANIN_WIRE_##name = (code),
	FANIN_WIRE_DTYPES(FANIN_DTYPE_ENUM)
#undef FANIN_DTYPE_ENUM
	FANIN_WIRE_DTYPE_COUNT
};

enum fanin_wire_op {
	FANIN_WIRE_OP_NONE = 0,
#define FANIN_OP_ENUM(name, text, code) FANIN_WIRE_##name = (code),
	FANIN_WIRE_OPS(FANIN_OP_ENUM)
#undef FANIN_OP_ENUM
	FANIN_WIRE_OP_COUNT
};

/*
 * Size of one element in bytes; 0 for a code that is not in the table. Thread-safe.
 */
static inline unsigned int
fanin_dtype_size(unsigned int dtype)
{
	static const uint8_t size[FANIN_WIRE_DTYPE_COUNT] = {
#define FANIN_DTYPE_SIZE(name, text, code, bytes) [code] = (bytes),
		FANIN_WIRE_DTYPES(FANIN_DTYPE_SIZE)
#undef FANIN_DTYPE_SIZE
	};

	return dtype < FANIN_WIRE_DTYPE_COUNT ? size[dtype] : 0;
}

/*
 * Names as people write them ("f32", "sum"); "unknown" for a code that is not in the table. Static
 * strings, thread-safe.
 */
const char *fanin_dtype_name(unsigned int dtype);
const char *fanin_op_name(unsigned int op);

/*
 * The codes of names. Return 0 (the NONE code) for a name that is not in the table. Thread-safe.
 */
unsigned int fanin_dtype_from_name(const char *name);
unsigned int fanin_op_from_name(const char *name);

#endif
