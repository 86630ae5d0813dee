/* SPDX-License-Identifier: BSD-3-Clause */
/* See log.h. */
#include <bpf/libbpf.h>
#include <xdp/libxdp.h>

#include "switch/log.h"

static int
print_libbpf(enum libbpf_print_level level, const char *format, va_list args)
{
	(void)level;
	log_line_va(LOG_LEVEL_DEBUG, "libbpf: ", format, args);
	return 0;
}

static int
print_libxdp(enum libxdp_print_level level, const char *format, va_list args)
{
	(void)level;
	log_line_va(LOG_LEVEL_DEBUG, "libxdp: ", format, args);
	return 0;
}

void
log_libraries(void)
{
	libbpf_set_print(print_libbpf);
	libxdp_set_print(print_libxdp);
}
