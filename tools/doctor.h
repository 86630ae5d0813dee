/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The checks of `faninctl doctor`. Each is a line in the table of tools/ctl_doctor.c and a function
 * that inspects this machine or one of its interfaces. No threads.
 */
#ifndef FANIN_TOOLS_DOCTOR_H
#define FANIN_TOOLS_DOCTOR_H

#include <dirent.h>
#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>
#include <stdio.h>

#define DOCTOR_FOUND_LEN 256

enum doctor_state {
	DOCTOR_OK,
	DOCTOR_NOTE,    /* unknown: it can't be seen from here */
	DOCTOR_WARNING, /* it works, but more slowly or not in every case */
	DOCTOR_PROBLEM, /* it will not work */
};

/* The driver of a switch's port. */
enum doctor_driver {
	DOCTOR_DRIVER_UNKNOWN,
	DOCTOR_DRIVER_AF_PACKET,
	DOCTOR_DRIVER_AF_XDP,
};

/* Bits of the machines that a check is for. */
enum doctor_role {
	DOCTOR_SWITCH = 1,
	DOCTOR_HOST_UDP = 2, /* a host, by its transport */
	DOCTOR_HOST_AF_PACKET = 4,
	DOCTOR_HOST_AF_XDP = 8,
	DOCTOR_RAW_HOSTS = DOCTOR_HOST_AF_PACKET | DOCTOR_HOST_AF_XDP,
	DOCTOR_HOSTS = DOCTOR_HOST_UDP | DOCTOR_RAW_HOSTS,
	DOCTOR_EVERYBODY = DOCTOR_SWITCH | DOCTOR_HOSTS,
	DOCTOR_XDP = DOCTOR_SWITCH | DOCTOR_HOST_AF_XDP,
};

struct doctor {
	const char *root; /* prefix of all file paths; "" for this machine */
	uint16_t udp_port;
	enum doctor_driver driver; /* of the switch's ports: the interfaces are these ports, or lead
				      to them */
	enum doctor_role roles;    /* of this machine */
};

struct doctor_check {
	const char *name;
	const char *expected;
	const char *action; /* suggestion: a command, in which DEV stands for the interface */
	/*
	 * Checks, and writes the finding to found, DOCTOR_FOUND_LEN bytes. interface: NULL for
	 * checks of the machine.
	 */
	enum doctor_state (*look)(const struct doctor *doctor, const struct doctor_check *check,
				  const char *interface, char *found);
	int argument; /* for the function */
	enum doctor_role roles;
	enum doctor_state worst; /* state if the expected is absent, for functions shared by several
				    checks */
};

/* Opens a file below the root. path: without a leading slash. Returns NULL on failure. */
FILE *doctor_open(const struct doctor *doctor, const char *path);

/*
 * Reads the first line of a file, without its newline. If there is none, returns false and an empty
 * line.
 */
bool doctor_read(const struct doctor *doctor, const char *path, char *line, size_t size);

DIR *doctor_open_directory(const struct doctor *doctor, const char *path);

/* True if the caller has a capability, given by its number. */
bool doctor_has_capability(const struct doctor *doctor, int capability);

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

/* doctor_process.c: rights of the caller, and its environment */
DOCTOR_LOOK(doctor_capability); /* argument: number of the capability */
DOCTOR_LOOK(doctor_memlock);
DOCTOR_LOOK(doctor_bpffs);
DOCTOR_LOOK(doctor_udp_port);
DOCTOR_LOOK(doctor_libfanin);
DOCTOR_LOOK(doctor_dpdk);
DOCTOR_LOOK(doctor_drivers);
DOCTOR_LOOK(doctor_libbpf);
DOCTOR_LOOK(doctor_libxdp);

/* doctor_host.c, doctor_firewall.c: conditions for results to reach a host */
DOCTOR_LOOK(doctor_rmem_max);
DOCTOR_LOOK(doctor_igmp_snooping);
DOCTOR_LOOK(doctor_rp_filter);
DOCTOR_LOOK(doctor_membership);
DOCTOR_LOOK(doctor_firewall);
DOCTOR_LOOK(doctor_profile); /* support for fanin-perf --profile */

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
