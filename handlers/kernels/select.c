/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Chooses kernels at run time by what the CPU can do. Any thread may call these functions; handlers look a kernel up once
 * per block.
 */
#include "handlers/kernels/table.h"

static const struct fanin_kernel_table *const tables[FANIN_ISA_COUNT] = {
	[FANIN_ISA_PORTABLE] = &fanin_kernels_portable,
#ifdef FANIN_KERNELS_X86
	[FANIN_ISA_AVX2] = &fanin_kernels_avx2,
	[FANIN_ISA_AVX512] = &fanin_kernels_avx512,
#endif
};

enum fanin_isa
fanin_isa_detect(void)
{
#ifdef FANIN_KERNELS_X86
	/* The builtin also knows whether the operating system saves the registers. */
	__builtin_cpu_init();
	if (__builtin_cpu_supports("avx512f") && __builtin_cpu_supports("avx512bw") &&
	    __builtin_cpu_supports("avx512dq") && __builtin_cpu_supports("avx512vl"))
		return FANIN_ISA_AVX512;
	if (__builtin_cpu_supports("avx2"))
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
	case FANIN_ISA_COUNT:
		break;
	}
	return "unknown";
}

fanin_kernel_fn
fanin_kernel(enum fanin_isa isa, unsigned int dtype, unsigned int op)
{
	if ((unsigned int)isa >= FANIN_ISA_COUNT || tables[isa] == NULL ||
	    dtype >= FANIN_WIRE_DTYPE_COUNT || op >= FANIN_WIRE_OP_COUNT)
		return NULL;
	return tables[isa]->kernels[dtype][op];
}
