/* SPDX-License-Identifier: BSD-3-Clause */
/* See caller.h. */
#include "caller.h"

#include <stdio.h>

#include "fanin/fanin.h"

int
fanin_caller_check(unsigned int header, char *text, size_t size)
{
	if (header <= FANIN_HEADER_NUMBER)
		return FANIN_OK;
	snprintf(text, size,
		 "found libfanin " FANIN_VERSION ", expected %u.%u.%u or newer: the caller was "
		 "compiled with that header",
		 header / 1000000, header / 1000 % 1000, header % 1000);
	return FANIN_ERR_VERSION;
}
