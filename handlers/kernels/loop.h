/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Building blocks of the kernels of all element types. Loops are written for the vectoriser: the
 * operation on an element must be free of branches. After adding a loop, check with `objdump -d`
 * that it uses vector registers. Internal to handlers/kernels.
 */
#ifndef FANIN_HANDLERS_KERNELS_LOOP_H
#define FANIN_HANDLERS_KERNELS_LOOP_H

#include <stddef.h>
#include <stdint.h>

/* For elements at any address: payloads in the buffers of others need not be aligned. */
#define ANY_ADDRESS __attribute__((aligned(1), may_alias))

/*
 * Defines kernel_NAME: acc[i] = expression, which names the elements x and y. The expression is in
 * a function of its own, because GCC recognises minima and the like only if a condition stands
 * alone.
 */
#define COMBINE_LOOP(name, type, expression)                                                       \
	static inline type combine_##name(type x, type y)                                          \
	{                                                                                          \
		return (type)(expression);                                                         \
	}                                                                                          \
	static void kernel_##name(void *restrict acc, const void *restrict in, size_t count)       \
	{                                                                                          \
		typedef type element ANY_ADDRESS;                                                  \
		element *a = acc;                                                                  \
		const element *b = in;                                                             \
                                                                                                   \
		for (size_t i = 0; i < count; i++)                                                 \
			a[i] = combine_##name(a[i], b[i]);                                         \
	}

/*
 * Defines finish_NAME: acc[i] = expression, which names the element x, and the number of
 * contributions n as n_type.
 */
#define FINISH_LOOP(name, type, n_type, expression)                                                \
	static void finish_##name(void *acc, uint32_t contributions, size_t count)                 \
	{                                                                                          \
		typedef type element ANY_ADDRESS;                                                  \
		element *a = acc;                                                                  \
		n_type n = (n_type)contributions;                                                  \
                                                                                                   \
		for (size_t i = 0; i < count; i++) {                                               \
			type x = a[i];                                                             \
                                                                                                   \
			a[i] = (type)(expression);                                                 \
		}                                                                                  \
	}

#endif
