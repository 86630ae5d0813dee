/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses kernels at run time by the CPU's features. Any thread may call these functions; handlers
 * look a kernel up once per block.
 */
#include "handlers/kernels/table.h"

#ifdef FANIN_KERNELS_X86
#include <cpuid.h>
#endif

static const struct fanin_kernel_table *const tables[FANIN_ISA_COUNT] = {
	[FANIN_ISA_PORTABLE] = &fanin_kernels_portable,
#ifdef FANIN_KERNELS_X86
	[FANIN_ISA_AVX2] = &fanin_kernels_avx2,
	[FANIN_ISA_AVX512] = &fanin_kernels_avx512,
#endif
#ifdef FANIN_KERNELS_AVX512FP16
	[FANIN_ISA_AVX512FP16] = &fanin_kernels_avx512fp16,
#endif
};

static const struct fanin_kernel_sparse_tables *const sparse_tables[FANIN_ISA_COUNT] = {
	[FANIN_ISA_PORTABLE] = &fanin_kernel_sparse_portable,
#ifdef FANIN_KERNELS_X86
	[FANIN_ISA_AVX2] = &fanin_kernel_sparse_avx2,
	[FANIN_ISA_AVX512] = &fanin_kernel_sparse_avx512,
#endif
#ifdef FANIN_KERNELS_AVX512FP16
	[FANIN_ISA_AVX512FP16] = &fanin_kernel_sparse_avx512fp16,
#endif
};

#ifdef FANIN_KERNELS_X86
#define CPUID_1_ECX_F16C (1u << 29)
#define CPUID_7_EDX_AVX512FP16 (1u << 23)

/*
 * Return true if the CPU has a feature that not every compiler's builtin knows. The builtin's
 * answers about AVX2 and AVX-512 cover the registers that these features use.
 */
static bool
cpu_has_f16c(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid(1, &eax, &ebx, &ecx, &edx) != 0 && (ecx & CPUID_1_ECX_F16C) != 0;
}

static bool
cpu_has_avx512fp16(void)
{
	unsigned int eax, ebx, ecx, edx;

	return __get_cpuid_count(7, 0, &eax, &ebx, &ecx, &edx) != 0 &&
	       (edx & CPUID_7_EDX_AVX512FP16) != 0;
}
#endif

enum fanin_isa
fanin_isa_detect(void)
{
#ifdef FANIN_KERNELS_X86
	/* The builtin also knows whether the operating system saves the registers. */
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl")) {
		if (tables[FANIN_ISA_AVX512FP16] != NULL && cpu_has_avx512fp16())
			return FANIN_ISA_AVX512FP16;
		return FANIN_ISA_AVX512;
	}
	if (__builtin_cpu_supports("avx2") && cpu_has_f16c())
		return FANIN_ISA_AVX2;
#endif
	return FANIN_ISA_PORTABLE;
}

const char *
fanin_isa_name(enum fanin_isa isa)
{
	switch (isa) {
	case FANIN_ISA_PORTABLE:
		return "portable";
	case FANIN_ISA_AVX2:
		return "avx2";
	case FANIN_ISA_AVX512:
		return "avx512";
	case FANIN_ISA_AVX512FP16:
		return "avx512fp16";
	case FANIN_ISA_COUNT:
		break;
	}
	return "unknown";
}

/*
 * Returns the instruction set whose tables have the kernels of a data type: AVX512FP16's have those
 * of f16 alone. FANIN_ISA_COUNT for an instruction set without kernels in this build, or for codes
 * out of range.
 */
static enum fanin_isa
isa_of(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	if ((unsigned int)isa >= FANIN_ISA_COUNT || tables[isa] == NULL ||
	    dtype >= FANIN_WIRE_DTYPE_COUNT || op >= FANIN_WIRE_OP_COUNT)
		return FANIN_ISA_COUNT;
	return isa == FANIN_ISA_AVX512FP16 && dtype != FANIN_WIRE_F16 ? FANIN_ISA_AVX512 : isa;
}

static const struct fanin_kernel_table *
table_of(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	const enum fanin_isa there = isa_of(isa, dtype, op);

	return there == FANIN_ISA_COUNT ? NULL : tables[there];
}

fanin_kernel_fn
fanin_kernel(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	const struct fanin_kernel_table *table = table_of(isa, dtype, op);

	return table == NULL ? NULL : table->combine[dtype][op];
}

fanin_finish_fn
fanin_kernel_finish(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	const struct fanin_kernel_table *table = table_of(isa, dtype, op);

	return table == NULL ? NULL : table->finish[dtype][op];
}

const struct fanin_wide_kernels *
fanin_kernel_wide(enum fanin_isa isa, unsigned int dtype)
{
	const struct fanin_kernel_table *table = table_of(isa, dtype, FANIN_WIRE_SUM);

	return table == NULL ? NULL : table->wide[dtype];
}

const struct fanin_kernel_sparse_combine *
fanin_kernel_sparse(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	const enum fanin_isa there = isa_of(isa, dtype, op);

	return there == FANIN_ISA_COUNT ? NULL : sparse_tables[there]->combine[dtype][op];
}

/* These loops know no type, only a size: AVX-512's serve AVX512FP16, too. */
const struct fanin_kernel_sparse_take *
fanin_kernel_sparse_take(enum fanin_isa isa, unsigned int dtype)
{
	const enum fanin_isa there = isa_of(isa, FANIN_WIRE_F32, FANIN_WIRE_SUM);
	const unsigned int size = fanin_dtype_size(dtype);

	if (there == FANIN_ISA_COUNT || dtype >= FANIN_WIRE_DTYPE_COUNT || size == 0)
		return NULL;
	return &sparse_tables[there]->take[__builtin_ctz(size)];
}

const struct fanin_kernel_sparse_table *
fanin_kernel_sparse_table(enum fanin_isa isa)
{
	const enum fanin_isa there = isa_of(isa, FANIN_WIRE_F32, FANIN_WIRE_SUM);

	return there == FANIN_ISA_COUNT ? NULL : &sparse_tables[there]->table;
}
