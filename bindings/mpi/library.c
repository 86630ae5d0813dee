/* SPDX-License-Identifier: BSD-3-Clause */
/* The start and end of what the doors share. */
#include "core.h"

void
library_start(void)
{
	types_init();
	operators_init();
	if (mpi_settings.enabled)
		self_test();
	arguments_init();
	messages_init();
}

void
library_finish(void)
{
	states_drain();
	states_finish();
	messages_finish();
	report_print();
	arguments_finish();
	operators_finish();
}
