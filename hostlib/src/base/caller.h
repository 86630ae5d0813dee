/* SPDX-License-Identifier: BSD-3-Clause */
/* The version of the header that a caller was compiled with. Any thread may call this. */
#ifndef FANIN_HOSTLIB_CALLER_H
#define FANIN_HOSTLIB_CALLER_H

#include <stddef.h>

/*
 * Returns FANIN_OK, or FANIN_ERR_VERSION if the library is older than the header of this number
 * (FANIN_HEADER_NUMBER); `text` then receives a line with both versions, in `size` bytes.
 */
int fanin_caller_check(unsigned int header, char *text, size_t size);

#endif
