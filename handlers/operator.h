/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Custom operators (Flare's F1): what a user compiles into the switch to reduce data of their own.
 * Each is a file in handlers/operators/ that ends with FANIN_OPERATOR_REGISTER;
 * docs/custom-operators.md goes through one. All dense handlers run them; a block's operator is
 * looked up when it begins.
 */
#ifndef FANIN_HANDLERS_OPERATOR_H
#define FANIN_HANDLERS_OPERATOR_H

#include <stdbool.h>
#include <stdint.h>

#include "handlers/kernels/kernels.h"
#include "wire/types.h"

struct fanin_operator {
	const char *name;       /* as in faninctl, without blanks */
	const char *dtype_name; /* likewise; a built-in type's own */

	uint8_t dtype; /* FANIN_WIRE_OPAQUE + size of an element, or a built-in type's code */
	uint8_t op;    /* FANIN_WIRE_CUSTOM to FANIN_WIRE_CUSTOM_LAST, no other operator's */

	/*
	 * Whether the order of operands matters, as in a product of matrices. Such an operator runs
	 * only where a handler combines in the order of the ranks. All must be associative.
	 */
	bool ordered;

	/*
	 * One element that, combined with any x from either side, gives x: what an absent element
	 * stands for.
	 */
	const void *identity;

	/*
	 * As in kernels.h. Any thread may call it, on elements at any address and with any content.
	 */
	fanin_kernel_fn combine;
};

/*
 * Why an operator can't be registered, such as a code that is taken; a static string, or NULL if it
 * can. Thread-safe after start-up.
 */
const char *fanin_operator_problem(const struct fanin_operator *candidate);

/*
 * Adds an operator to the registry. Called by FANIN_OPERATOR_REGISTER before main, single-threaded.
 * If there is a problem it ends the process, saying what it is.
 */
void fanin_operator_register(const struct fanin_operator *registered);

/*
 * The operator of a code, or NULL; packets that name it must have its dtype too. Thread-safe after
 * start-up.
 */
const struct fanin_operator *fanin_operator_find(unsigned int op);

#define FANIN_OPERATOR_REGISTER(custom)                                                            \
	static void __attribute__((constructor)) register_##custom(void)                           \
	{                                                                                          \
		fanin_operator_register(&(custom));                                                \
	}

#endif
