/* SPDX-License-Identifier: BSD-3-Clause */
/* See options.h. */
#include "options.h"

#include <stdint.h>
#include <string.h>

bool
fanin_options_copy(void *copy, size_t copy_len, const void *options)
{
	const uint8_t *bytes = options;
	size_t len;

	memcpy(&len, options, sizeof(len));
	if (len < sizeof(len))
		return false;
	for (size_t i = copy_len; i < len; i++) {
		if (bytes[i] != 0)
			return false;
	}
	memcpy(copy, options, len < copy_len ? len : copy_len);
	return true;
}

bool
fanin_report_copy(void *report, const void *full, size_t len)
{
	size_t sz;

	memcpy(&sz, report, sizeof(sz));
	if (sz < sizeof(sz))
		return false;
	memcpy(report, full, sz < len ? sz : len);
	memcpy(report, &sz, sizeof(sz));
	return true;
}
