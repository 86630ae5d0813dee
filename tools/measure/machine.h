/* SPDX-License-Identifier: BSD-3-Clause */
/* What a benchmark says of the machine that it ran on. */
#ifndef FANIN_TOOLS_MEASURE_MACHINE_H
#define FANIN_TOOLS_MEASURE_MACHINE_H

/* The CPU's name as the kernel knows it. Static memory; one thread. */
const char *machine_cpu(void);

/* Free hugepages of 2 MiB. */
unsigned long machine_free_hugepages(void);

#endif
