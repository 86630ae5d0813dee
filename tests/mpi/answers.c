/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * An MPI program that knows nothing of Fanin and compares the answers of reductions with those that
 * it computes itself, without MPI: all predefined types and operators that the MPI standard defines
 * on them, values at both ends of each type, one element to many, in place and not. What the order
 * of ranks would round is not tested: floating-point sums and products are exact here. A NaN and
 * the signs of zeros are what docs/operators.md says, but below the bytes from which the network
 * takes a vector, where minima and maxima have none. Arguments: bytes from which the network takes
 * a vector; a count, which each type and operator is tried with once, beside calls of one element;
 * none: five counts with each call. Prints the first call that is wrong of each type and operator,
 * and "cases N wrong M" at the end.
 */
#include <math.h>
#include <mpi.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

enum op {
	SUM,
	PROD,
	MIN,
	MAX,
	LAND,
	LOR,
	LXOR,
	BAND,
	BOR,
	BXOR,
	MINLOC,
	MAXLOC,
	N_OPS
};

#define BITS(op) (1u << (op))
#define SUMS (BITS(SUM) | BITS(PROD))
#define NUMBER (SUMS | BITS(MIN) | BITS(MAX))
#define LOGIC (BITS(LAND) | BITS(LOR) | BITS(LXOR))
#define BITWISE (BITS(BAND) | BITS(BOR) | BITS(BXOR))
#define PLACES (BITS(MINLOC) | BITS(MAXLOC))

#define N_VALUES 8
#define SHOWN_BYTES 16
#define MXCSR_DEFAULT 0x1f80
#define MXCSR_FLUSH 0x8040

/* How elements of a type are made, combined and compared. */
struct element {
	size_t bytes;
	/*
	 * value: 0 to N_VALUES - 1. first: of the ranks. strange: NaN and zeros of both signs, too.
	 */
	void (*put)(void *at, enum op op, unsigned int value, int of_rank, size_t i, bool strange);
	void (*combine)(enum op op, void *acc, const void *with);
	bool (*same)(const void *a, const void *b);
};

struct type {
	const char *name;
	MPI_Datatype type;
	const struct element *element;
	unsigned int ops; /* that the standard defines on it */
};

static int rank, size;

/* Integers, in the arithmetic of their own width. */
#define INTEGER(name, c_type, wide)                                                                \
	static void put_##name(void *at, enum op op, unsigned int value, int of_rank, size_t i,    \
			       bool strange)                                                       \
	{                                                                                          \
		const uint64_t top = (uint64_t)1 << (8 * sizeof(c_type) - 1);                      \
		const uint64_t values[N_VALUES] = { 0,   1,       2,          top - 1,             \
						    top, top + 1, UINT64_MAX, UINT64_MAX - 1 };    \
		const c_type made = (c_type)values[value];                                         \
		(void)op, (void)of_rank, (void)i, (void)strange;                                   \
		memcpy(at, &made, sizeof(made));                                                   \
	}                                                                                          \
	static void combine_##name(enum op op, void *acc, const void *with)                        \
	{                                                                                          \
		c_type x, y;                                                                       \
		memcpy(&x, acc, sizeof(x));                                                        \
		memcpy(&y, with, sizeof(y));                                                       \
		switch (op) {                                                                      \
		case SUM:                                                                          \
			x = (c_type)((wide)x + (wide)y);                                           \
			break;                                                                     \
		case PROD:                                                                         \
			x = (c_type)((wide)x * (wide)y);                                           \
			break;                                                                     \
		case MIN:                                                                          \
			x = y < x ? y : x;                                                         \
			break;                                                                     \
		case MAX:                                                                          \
			x = y > x ? y : x;                                                         \
			break;                                                                     \
		case LAND:                                                                         \
			x = (c_type)(x != 0 && y != 0);                                            \
			break;                                                                     \
		case LOR:                                                                          \
			x = (c_type)(x != 0 || y != 0);                                            \
			break;                                                                     \
		case LXOR:                                                                         \
			x = (c_type)((x != 0) != (y != 0));                                        \
			break;                                                                     \
		case BAND:                                                                         \
			x = (c_type)(x & y);                                                       \
			break;                                                                     \
		case BOR:                                                                          \
			x = (c_type)(x | y);                                                       \
			break;                                                                     \
		default:                                                                           \
			x = (c_type)(x ^ y);                                                       \
			break;                                                                     \
		}                                                                                  \
		memcpy(acc, &x, sizeof(x));                                                        \
	}                                                                                          \
	static bool same_##name(const void *a, const void *b)                                      \
	{                                                                                          \
		return memcmp(a, b, sizeof(c_type)) == 0;                                          \
	}                                                                                          \
	static const struct element name = { sizeof(c_type), put_##name, combine_##name,           \
					     same_##name }

INTEGER(i8, int8_t, uint32_t);
INTEGER(i16, int16_t, uint32_t);
INTEGER(i32, int32_t, uint32_t);
INTEGER(i64, int64_t, uint64_t);
INTEGER(u8, uint8_t, uint32_t);
INTEGER(u16, uint16_t, uint32_t);
INTEGER(u32, uint32_t, uint32_t);
INTEGER(u64, uint64_t, uint64_t);

/* Truth values: 0 and 1. */
#define LOGICAL(name, of)                                                                          \
	static void put_##name(void *at, enum op op, unsigned int value, int of_rank, size_t i,    \
			       bool strange)                                                       \
	{                                                                                          \
		put_##of(at, op, value % 2, of_rank, i, strange);                                  \
	}                                                                                          \
	static const struct element name = { 0, put_##name, combine_##of, same_##of }

LOGICAL(logical8, u8);
LOGICAL(logical32, u32);

/* IEEE 754-2019's minimum and maximum. */
static bool
is_lesser(long double x, long double y)
{
	return x < y || (x == y && signbit(x) && !signbit(y));
}

static long double
combined(enum op op, long double x, long double y, long double sum, long double product)
{
	switch (op) {
	case SUM:
		return sum;
	case PROD:
		return product;
	default:
		if (isnan(x) || isnan(y))
			return NAN;
		return is_lesser(y, x) == (op == MIN) ? y : x;
	}
}

/*
 * The bits of a NaN that is a minimum or maximum are compared with the canonical one's; sums have
 * any.
 */
static bool nan_is_canonical;

/*
 * What every order of ranks sums or multiplies to the same bits, and the ends of the type for
 * others.
 */
static long double
exact(enum op op, unsigned int value, int of_rank, size_t i, bool strange, int min_exponent,
      int max_exponent, long double most)
{
	/* Of sums: small multiples of one power of two in each place. */
	const int exponents[] = { min_exponent, min_exponent + 20, 0, max_exponent - 12 };
	const long double ends[N_VALUES] = { most,
					     -most,
					     ldexpl(1, min_exponent),
					     -ldexpl(1, min_exponent),
					     strange ? -0.0L : 1,
					     strange ? 0.0L : -1,
					     strange ? NAN : 2,
					     INFINITY };

	if (op == SUM && (i % 11 == 7 || i % 11 == 9) && of_rank == (int)(i % 2))
		return i % 11 == 7 ? INFINITY : NAN;
	if (op == SUM)
		return i % 13 == 5 ? -0.0L : ldexpl((int)value - 3, exponents[i % 4]);
	if (op == PROD && of_rank != 0)
		return value % 2 == 0 ? 1 : -1;
	return ends[value];
}

#define FLOAT(name, c_type, min_exponent, max_exponent, most, canonical)                           \
	static void put_##name(void *at, enum op op, unsigned int value, int of_rank, size_t i,    \
			       bool strange)                                                       \
	{                                                                                          \
		const c_type made = (c_type)exact(op, value, of_rank, i, strange, min_exponent,    \
						  max_exponent, most);                             \
		memcpy(at, &made, sizeof(made));                                                   \
	}                                                                                          \
	static void combine_##name(enum op op, void *acc, const void *with)                        \
	{                                                                                          \
		c_type x, y;                                                                       \
		memcpy(&x, acc, sizeof(x));                                                        \
		memcpy(&y, with, sizeof(y));                                                       \
		x = (c_type)combined(op, x, y, (c_type)(x + y), (c_type)(x * y));                  \
		memcpy(acc, &x, sizeof(x));                                                        \
	}                                                                                          \
	static bool same_##name(const void *a, const void *b)                                      \
	{                                                                                          \
		c_type x, y;                                                                       \
		uint64_t bits = 0;                                                                 \
		memcpy(&x, a, sizeof(x));                                                          \
		memcpy(&y, b, sizeof(y));                                                          \
		memcpy(&bits, a, sizeof(x) < sizeof(bits) ? sizeof(x) : sizeof(bits));             \
		if (isnan(y))                                                                      \
			return isnan(x) &&                                                         \
			       (!nan_is_canonical || (canonical) == 0 || bits == (canonical));     \
		return x == y && !signbit(x) == !signbit(y);                                       \
	}                                                                                          \
	static const struct element name = { sizeof(c_type), put_##name, combine_##name,           \
					     same_##name }

FLOAT(f32, float, -149, 127, 0x1.fffffep127L, 0x7fc00000u);
FLOAT(f64, double, -1074, 1023, 0x1.fffffffffffffp1023L, 0x7ff8000000000000u);
FLOAT(f80, long double, -16445, 16383, 0x1p16383L, 0u);

/* Complex numbers. The network has only their sums; products here are of 1, i, -1 and -i. */
#define COMPLEX(name, part)                                                                        \
	static void put_##name(void *at, enum op op, unsigned int value, int of_rank, size_t i,    \
			       bool strange)                                                       \
	{                                                                                          \
		static const part units[4][2] = { { 1, 0 }, { 0, 1 }, { -1, 0 }, { 0, -1 } };      \
		part made[2];                                                                      \
		for (int k = 0; k < 2; k++)                                                        \
			made[k] = op == PROD ? units[value % 4][k]                                 \
				  : i % 11 == 7 || i % 11 == 9                                     \
					  ? (part)i                                                \
					  : (part)exact(op, (value + (unsigned int)k) % N_VALUES,  \
							of_rank, i, strange, -100, 100, 1);        \
		memcpy(at, made, sizeof(made));                                                    \
	}                                                                                          \
	static void combine_##name(enum op op, void *acc, const void *with)                        \
	{                                                                                          \
		part x[2], y[2], z[2];                                                             \
		memcpy(x, acc, sizeof(x));                                                         \
		memcpy(y, with, sizeof(y));                                                        \
		z[0] = op == SUM ? x[0] + y[0] : x[0] * y[0] - x[1] * y[1];                        \
		z[1] = op == SUM ? x[1] + y[1] : x[0] * y[1] + x[1] * y[0];                        \
		memcpy(acc, z, sizeof(z));                                                         \
	}                                                                                          \
	static bool same_##name(const void *a, const void *b)                                      \
	{                                                                                          \
		part x[2], y[2];                                                                   \
		memcpy(x, a, sizeof(x));                                                           \
		memcpy(y, b, sizeof(y));                                                           \
		return x[0] == y[0] && x[1] == y[1];                                               \
	}                                                                                          \
	static const struct element name = { 2 * sizeof(part), put_##name, combine_##name,         \
					     same_##name }

COMPLEX(c64, float);
COMPLEX(c128, double);
COMPLEX(c160, long double);

/* Values and places. The lesser place of equal values wins. */
#define PAIR(name, value_type, place_type, of)                                                     \
	struct name {                                                                              \
		value_type value;                                                                  \
		place_type place;                                                                  \
	};                                                                                         \
	static void put_##name(void *at, enum op op, unsigned int value, int of_rank, size_t i,    \
			       bool strange)                                                       \
	{                                                                                          \
		struct name made;                                                                  \
		memset(&made, 0, sizeof(made));                                                    \
		put_##of(&made.value, op == MINLOC ? MIN : MAX, value, of_rank, i, strange);       \
		made.place = (place_type)((of_rank * 3 + (int)i) % 7);                             \
		memcpy(at, &made, sizeof(made));                                                   \
	}                                                                                          \
	static void combine_##name(enum op op, void *acc, const void *with)                        \
	{                                                                                          \
		struct name x, y;                                                                  \
		memcpy(&x, acc, sizeof(x));                                                        \
		memcpy(&y, with, sizeof(y));                                                       \
		if (x.value == y.value ? y.place < x.place                                         \
				       : (y.value < x.value) == (op == MINLOC))                    \
			memcpy(acc, with, sizeof(x));                                              \
	}                                                                                          \
	static bool same_##name(const void *a, const void *b)                                      \
	{                                                                                          \
		struct name x, y;                                                                  \
		memcpy(&x, a, sizeof(x));                                                          \
		memcpy(&y, b, sizeof(y));                                                          \
		return x.value == y.value && x.place == y.place;                                   \
	}                                                                                          \
	static const struct element name = { sizeof(struct name), put_##name, combine_##name,      \
					     same_##name }

PAIR(float_int, float, int, f32);
PAIR(double_int, double, int, f64);
PAIR(long_double_int, long double, int, f80);
PAIR(long_int, long, int, i64);
PAIR(short_int, short, int, i16);
PAIR(int_int, int, int, i32);
PAIR(real_real, float, float, f32);
PAIR(double_double, double, double, f64);

static const struct {
	const char *name;
	MPI_Op op;
} ops[N_OPS] = {
	[SUM] = { "MPI_SUM", MPI_SUM },          [PROD] = { "MPI_PROD", MPI_PROD },
	[MIN] = { "MPI_MIN", MPI_MIN },          [MAX] = { "MPI_MAX", MPI_MAX },
	[LAND] = { "MPI_LAND", MPI_LAND },       [LOR] = { "MPI_LOR", MPI_LOR },
	[LXOR] = { "MPI_LXOR", MPI_LXOR },       [BAND] = { "MPI_BAND", MPI_BAND },
	[BOR] = { "MPI_BOR", MPI_BOR },          [BXOR] = { "MPI_BXOR", MPI_BXOR },
	[MINLOC] = { "MPI_MINLOC", MPI_MINLOC }, [MAXLOC] = { "MPI_MAXLOC", MPI_MAXLOC },
};

enum call {
	ALLREDUCE,
	REDUCE,
	REDUCE_SCATTER_BLOCK,
	IALLREDUCE,
	IREDUCE,
	IREDUCE_SCATTER_BLOCK,
	N_CALLS
};
static const char *const call_names[N_CALLS] = { "allreduce",  "reduce",  "reduce_scatter_block",
						 "iallreduce", "ireduce", "ireduce_scatter_block" };

static unsigned int turn;
static int n_cases, n_wrong;

static void
fill(uint8_t *data, const struct type *type, size_t bytes, enum op op, int of_rank, size_t count,
     bool strange)
{
	for (size_t i = 0; i < count; i++) {
		/* Each value with each in the first ranks, wherever a vector begins. */
		const size_t k = i + (size_t)turn * 37;
		const size_t values[4] = { k, k / N_VALUES, k * 5 + 3, k / 3 };

		type->element->put(data + i * bytes, op,
				   (unsigned int)((values[of_rank % 4] + (size_t)of_rank / 4) %
						  N_VALUES),
				   of_rank, i, strange);
	}
}

static void
tell_wrong(enum call call, const struct type *type, enum op op, int count, bool in_place, size_t i,
	   const uint8_t *found, const uint8_t *expected, size_t bytes)
{
	static const struct type *told_type;
	static enum op told_op;
	char text[2][2 * SHOWN_BYTES + 1];

	n_wrong++;
	if (told_type == type && told_op == op)
		return;
	told_type = type, told_op = op;
	for (size_t k = 0; k < bytes && k < SHOWN_BYTES; k++) {
		sprintf(text[0] + 2 * k, "%02x", found[k]);
		sprintf(text[1] + 2 * k, "%02x", expected[k]);
	}
	printf("rank %d: wrong: %s %s %s, %d elements%s: element %zu: found %s, expected %s\n",
	       rank, call_names[call], type->name, ops[op].name, count, in_place ? " in place" : "",
	       i, text[0], text[1]);
}

/* As programs compiled with -ffast-math do it, which the network and its steps in a host don't. */
static void
flush_denormal_numbers(bool flush)
{
#ifdef __SSE__
	__builtin_ia32_ldmxcsr(flush ? MXCSR_DEFAULT | MXCSR_FLUSH : MXCSR_DEFAULT);
#endif
}

/* With MPI 4 every other call is that for counts of MPI_Count. */
#if MPI_VERSION >= 4
#define CALL(name, ...) (turn % 2 == 0 ? name##_c(__VA_ARGS__) : name(__VA_ARGS__))
#else
#define CALL(name, ...) name(__VA_ARGS__)
#endif

static void
carry_out(enum call call, const void *send, void *recv, int count, MPI_Datatype type, MPI_Op op,
	  int root)
{
	const MPI_Comm comm = MPI_COMM_WORLD;
	MPI_Request req = MPI_REQUEST_NULL;

	switch (call) {
	case ALLREDUCE:
		CALL(MPI_Allreduce, send, recv, count, type, op, comm);
		break;
	case REDUCE:
		CALL(MPI_Reduce, send, recv, count, type, op, root, comm);
		break;
	case REDUCE_SCATTER_BLOCK:
		CALL(MPI_Reduce_scatter_block, send, recv, count, type, op, comm);
		break;
	case IALLREDUCE:
		CALL(MPI_Iallreduce, send, recv, count, type, op, comm, &req);
		break;
	case IREDUCE:
		CALL(MPI_Ireduce, send, recv, count, type, op, root, comm, &req);
		break;
	default:
		CALL(MPI_Ireduce_scatter_block, send, recv, count, type, op, comm, &req);
		break;
	}
	if (req != MPI_REQUEST_NULL)
		MPI_Wait(&req, MPI_STATUS_IGNORE);
}

/* Other memory, of that size; what was there is lost. */
static uint8_t *
memory_again(uint8_t *before, size_t bytes)
{
	uint8_t *memory = malloc(bytes);

	free(before);
	if (memory == NULL)
		abort();
	return memory;
}

/* It has all but long double, pairs and products of complex numbers. */
static bool
network_has(const struct element *element, enum op op)
{
	const bool is_complex = element == &c64 || element == &c128;

	return element != &f80 && element != &c160 && op < MINLOC && !(is_complex && op == PROD);
}

static void
reduction(enum call call, const struct type *type, enum op op, int count, size_t min_bytes)
{
	static uint8_t *send, *recv, *one, *expected;
	static size_t room;
	const bool scatters = call == REDUCE_SCATTER_BLOCK || call == IREDUCE_SCATTER_BLOCK;
	const bool is_rooted = call == REDUCE || call == IREDUCE;
	const size_t n = (size_t)count * (scatters ? (size_t)size : 1);
	const int root = (int)(turn % (unsigned int)size);
	bool in_place = turn / N_CALLS % 2 == 1;
	MPI_Aint low, extent;
	int type_bytes;
	size_t bytes;
	bool in_network;

	turn++;
	MPI_Type_get_extent(type->type, &low, &extent);
	MPI_Type_size(type->type, &type_bytes);
	bytes = (size_t)extent;
	in_network = n * (size_t)type_bytes >= min_bytes && network_has(type->element, op);
	nan_is_canonical = op == MIN || op == MAX;
	if (recv == NULL || n * bytes > room) {
		room = n * bytes;
		send = memory_again(send, room);
		recv = memory_again(recv, room);
		one = memory_again(one, room);
		expected = memory_again(expected, room);
	}
	fill(expected, type, bytes, op, 0, n, in_network);
	for (int r = 1; r < size; r++) {
		fill(one, type, bytes, op, r, n, in_network);
		for (size_t i = 0; i < n; i++)
			type->element->combine(op, expected + i * bytes, one + i * bytes);
	}
	fill(send, type, bytes, op, rank, n, in_network);
	/*
	 * MPICH 4.0 crashes if such a root has another host than rank 0, and hosts have several
	 * ranks.
	 */
	in_place = in_place && (!is_rooted || (rank == root && (in_network || root == 0)));
	memset(recv, 0x55, n * bytes);
	if (in_place)
		memcpy(recv, send, n * bytes);
	flush_denormal_numbers(in_network && turn % 3 == 0);
	carry_out(call, in_place ? MPI_IN_PLACE : send, recv, count, type->type, ops[op].op, root);
	flush_denormal_numbers(false);
	n_cases++;
	if (is_rooted && rank != root)
		return;
	for (size_t i = 0; i < (size_t)count; i++) {
		const size_t k = scatters ? (size_t)rank * (size_t)count + i : i;

		if (!type->element->same(recv + i * bytes, expected + k * bytes)) {
			tell_wrong(call, type, op, count, in_place, i, recv + i * bytes,
				   expected + k * bytes, bytes);
			return;
		}
	}
}

#define T(type, element, ops)                                                                      \
	{                                                                                          \
#type, type, &(element), ops                                                       \
	}
/* Of a type whose width is the MPI library's to say. */
#define INTEGER_OF(bytes) ((bytes) == 4 ? &i32 : &i64)

int
main(int argc, char **argv)
{
	const struct type types[] = {
		T(MPI_INT, i32, NUMBER | LOGIC | BITWISE),
		T(MPI_LONG, i64, NUMBER | LOGIC | BITWISE),
		T(MPI_SHORT, i16, NUMBER | LOGIC | BITWISE),
		T(MPI_LONG_LONG, i64, NUMBER | LOGIC | BITWISE),
		T(MPI_SIGNED_CHAR, i8, NUMBER | LOGIC | BITWISE),
		T(MPI_INT8_T, i8, NUMBER | LOGIC | BITWISE),
		T(MPI_INT16_T, i16, NUMBER | LOGIC | BITWISE),
		T(MPI_INT32_T, i32, NUMBER | LOGIC | BITWISE),
		T(MPI_INT64_T, i64, NUMBER | LOGIC | BITWISE),
		T(MPI_UNSIGNED, u32, NUMBER | LOGIC | BITWISE),
		T(MPI_UNSIGNED_LONG, u64, NUMBER | LOGIC | BITWISE),
		T(MPI_UNSIGNED_SHORT, u16, NUMBER | LOGIC | BITWISE),
		T(MPI_UNSIGNED_LONG_LONG, u64, NUMBER | LOGIC | BITWISE),
		T(MPI_UNSIGNED_CHAR, u8, NUMBER | LOGIC | BITWISE),
		T(MPI_UINT8_T, u8, NUMBER | LOGIC | BITWISE),
		T(MPI_UINT16_T, u16, NUMBER | LOGIC | BITWISE),
		T(MPI_UINT32_T, u32, NUMBER | LOGIC | BITWISE),
		T(MPI_UINT64_T, u64, NUMBER | LOGIC | BITWISE),
		/* Not in the standard, but both MPI libraries reduce it. */
		T(MPI_CHAR, i8, NUMBER | LOGIC | BITWISE),
		T(MPI_INTEGER, i32, NUMBER | BITWISE),
		T(MPI_INTEGER1, i8, NUMBER | BITWISE),
		T(MPI_INTEGER2, i16, NUMBER | BITWISE),
		T(MPI_INTEGER4, i32, NUMBER | BITWISE),
		T(MPI_INTEGER8, i64, NUMBER | BITWISE),
		T(MPI_AINT, i64, NUMBER | BITWISE),
		T(MPI_OFFSET, i64, NUMBER | BITWISE),
		T(MPI_COUNT, i64, NUMBER | BITWISE),
		T(MPI_FLOAT, f32, NUMBER),
		T(MPI_DOUBLE, f64, NUMBER),
		T(MPI_LONG_DOUBLE, f80, NUMBER),
		T(MPI_REAL, f32, NUMBER),
		T(MPI_DOUBLE_PRECISION, f64, NUMBER),
		T(MPI_REAL4, f32, NUMBER),
		T(MPI_REAL8, f64, NUMBER),
		T(MPI_C_FLOAT_COMPLEX, c64, SUMS),
		T(MPI_C_DOUBLE_COMPLEX, c128, SUMS),
		T(MPI_C_LONG_DOUBLE_COMPLEX, c160, SUMS),
		T(MPI_CXX_FLOAT_COMPLEX, c64, SUMS),
		T(MPI_CXX_DOUBLE_COMPLEX, c128, SUMS),
		T(MPI_COMPLEX, c64, SUMS),
		T(MPI_DOUBLE_COMPLEX, c128, SUMS),
		T(MPI_COMPLEX8, c64, SUMS),
		T(MPI_COMPLEX16, c128, SUMS),
		T(MPI_LOGICAL, logical32, LOGIC),
		T(MPI_C_BOOL, logical8, LOGIC),
		T(MPI_CXX_BOOL, logical8, LOGIC),
		T(MPI_BYTE, u8, BITWISE),
		T(MPI_FLOAT_INT, float_int, PLACES),
		T(MPI_DOUBLE_INT, double_int, PLACES),
		T(MPI_LONG_INT, long_int, PLACES),
		T(MPI_2INT, int_int, PLACES),
		T(MPI_SHORT_INT, short_int, PLACES),
		T(MPI_LONG_DOUBLE_INT, long_double_int, PLACES),
		T(MPI_2INTEGER, int_int, PLACES),
		T(MPI_2REAL, real_real, PLACES),
		T(MPI_2DOUBLE_PRECISION, double_double, PLACES),
	};
	static const int counts[] = { 1, 127, 128, 129, 1000 };
	const size_t min_bytes = argc > 1 ? strtoul(argv[1], NULL, 10) : 1024;
	const int most = argc > 2 ? atoi(argv[2]) : 0;
	const size_t n_counts = most != 0 ? 1 : sizeof(counts) / sizeof(counts[0]);
	int all_wrong = 0, *each;

	MPI_Init(&argc, &argv);
	MPI_Comm_rank(MPI_COMM_WORLD, &rank);
	MPI_Comm_size(MPI_COMM_WORLD, &size);
	each = calloc((size_t)size, sizeof(*each));
	/* A job, which nonblocking calls need. */
	reduction(ALLREDUCE, &types[0], SUM, 1000, min_bytes);
	for (size_t t = 0; t < sizeof(types) / sizeof(types[0]); t++)
		for (enum op op = 0; op < N_OPS; op++) {
			if ((types[t].ops & BITS(op)) == 0 || types[t].type == MPI_DATATYPE_NULL)
				continue;
			for (size_t c = 0; c < n_counts; c++)
				for (enum call call = 0; call <= IALLREDUCE; call++)
					reduction(call, &types[t], op, counts[c], min_bytes);
			reduction((enum call)(turn % N_CALLS), &types[t], op,
				  most != 0 ? most : 500, min_bytes);
		}
	MPI_Gather(&n_wrong, 1, MPI_INT, each, 1, MPI_INT, 0, MPI_COMM_WORLD);
	for (int r = 0; r < size; r++)
		all_wrong += each[r];
	if (rank == 0)
		printf("cases %d wrong %d\n", n_cases, all_wrong);
	fflush(stdout);
	free(each);
	MPI_Barrier(MPI_COMM_WORLD);
	MPI_Finalize();
	return 0;
}
