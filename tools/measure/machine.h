/* SPDX-License-Identifier: BSD-3-Clause */
/* Properties of the machine, for the output of benchmarks. */
#ifndef FANIN_TOOLS_MEASURE_MACHINE_H
#define FANIN_TOOLS_MEASURE_MACHINE_H

/* Returns the kernel's name of the CPU. Static memory; one thread. */
const char *machine_cpu(void);

/* Returns the number of free hugepages of 2 MiB. */
unsigned long machine_free_hugepages(void);

#endif
