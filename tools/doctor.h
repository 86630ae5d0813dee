/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of `faninctl doctor`. Each is a line in the table of tools/ctl_doctor.c and a function
 * that inspects this machine or one of its interfaces. No threads.
 */
#ifndef FANIN_TOOLS_DOCTOR_H
#define FANIN_TOOLS_DOCTOR_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DOCTOR_FOUND_LEN 256

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_WARNING, /* it works, but more slowly or not in every case */
	DOCTOR_PROBLEM, /* it will not work */
};

struct doctor {
	const char *root; /* prefix of all file paths; "" for this machine */
	uint16_t udp_port;
};

struct doctor_check {
	const char *name;
	const char *expected;
	const char *action; /* what to do: a command, in which DEV stands for the interface */
	/*
	 * found: DOCTOR_FOUND_LEN bytes, in which the function writes what it found. interface: NULL for checks of the machine.
	 */
	enum doctor_state (*look)(const struct doctor *doctor, const struct doctor_check *check,
				  const char *interface, char *found);
	int argument; /* for the function */
	enum doctor_state worst; /* for functions shared by several checks: the state if the expected is absent */
};

/* Opens a file below the root. path: without the slash in front. Returns NULL if that fails. */
FILE *doctor_open(const struct doctor *doctor, const char *path);

/*
 * Reads the first line of a file, without its newline. Returns false, and an empty line, if there is none.
 */
bool doctor_read(const struct doctor *doctor, const char *path, char *line, size_t size);

#define DOCTOR_LOOK(name)                                                                          \
	enum doctor_state name(const struct doctor *doctor, const struct doctor_check *check,      \
			       const char *interface, char *found)

/* doctor_machine.c: processors, memory, kernel */
DOCTOR_LOOK(doctor_kernel);
DOCTOR_LOOK(doctor_hugepages);
DOCTOR_LOOK(doctor_transparent_hugepages);
DOCTOR_LOOK(doctor_cpu_isa);
DOCTOR_LOOK(doctor_clock_source);
DOCTOR_LOOK(doctor_isolated);
DOCTOR_LOOK(doctor_nohz_full);
DOCTOR_LOOK(doctor_governor);
DOCTOR_LOOK(doctor_smt);
DOCTOR_LOOK(doctor_backlog);

/* doctor_process.c: what the caller may do, and what it would find */
DOCTOR_LOOK(doctor_capability); /* argument: its number */
DOCTOR_LOOK(doctor_memlock);
DOCTOR_LOOK(doctor_bpffs);
DOCTOR_LOOK(doctor_udp_port);
DOCTOR_LOOK(doctor_dpdk);
DOCTOR_LOOK(doctor_drivers);
DOCTOR_LOOK(doctor_libbpf);
DOCTOR_LOOK(doctor_libxdp);

/* doctor_interface.c */
DOCTOR_LOOK(doctor_exists);
DOCTOR_LOOK(doctor_link);
DOCTOR_LOOK(doctor_mtu);
DOCTOR_LOOK(doctor_driver);
DOCTOR_LOOK(doctor_tx_offloads);
DOCTOR_LOOK(doctor_vlan_offload);
DOCTOR_LOOK(doctor_rx_offloads);
DOCTOR_LOOK(doctor_queues);
DOCTOR_LOOK(doctor_rss);

#endif
