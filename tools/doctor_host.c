/* SPDX-License-Identifier: BSD-3-Clause */
/* faninctl doctor: conditions for results to reach a host's sockets. */
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <net/if.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>
#include <unistd.h>

#include <linux/capability.h>

#include "tools/doctor.h"

/*
 * The kernel doubles this size: enough for a window of 1024 packets of MTU 1500, or for 128
 * super-frames.
 */
#define GOOD_RMEM_MAX (4 * 1024 * 1024)

DOCTOR_LOOK(doctor_rmem_max)
{
	char line[32];
	unsigned long most;

	(void)check;
	(void)interface;
	doctor_read(doctor, "proc/sys/net/core/rmem_max", line, sizeof(line));
	most = strtoul(line, NULL, 10);
	if (doctor_has_capability(doctor, CAP_NET_ADMIN)) {
		snprintf(found, DOCTOR_FOUND_LEN, "%lu bytes, lifted by CAP_NET_ADMIN", most);
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "%lu bytes", most);
	return most >= GOOD_RMEM_MAX ? DOCTOR_OK : DOCTOR_WARNING;
}

/*
 * A Linux bridge floods groups until it hears a querier. This machine can't see whether there is a
 * querier, and whether its queries are answered.
 */
DOCTOR_LOOK(doctor_igmp_snooping)
{
	DIR *interfaces = doctor_open_directory(doctor, "sys/class/net");
	const struct dirent *entry;
	size_t used = 0;

	(void)check;
	(void)interface;
	found[0] = '\0';
	while (interfaces != NULL && (entry = readdir(interfaces)) != NULL) {
		char path[512];
		char line[32];

		snprintf(path, sizeof(path), "sys/class/net/%.64s/bridge/multicast_snooping",
			 entry->d_name);
		if (!doctor_read(doctor, path, line, sizeof(line)) || strcmp(line, "1") != 0)
			continue;
		snprintf(path, sizeof(path), "sys/class/net/%.64s/bridge/multicast_querier",
			 entry->d_name);
		if (doctor_read(doctor, path, line, sizeof(line)) && strcmp(line, "1") == 0)
			continue;
		if (used < DOCTOR_FOUND_LEN)
			used += (size_t)snprintf(found + used, DOCTOR_FOUND_LEN - used, "%s%.64s",
						 used == 0 ? "without a querier of its own: "
							   : ", ",
						 entry->d_name);
	}
	if (interfaces != NULL)
		closedir(interfaces);
	if (used != 0)
		return DOCTOR_NOTE;
	snprintf(found, DOCTOR_FOUND_LEN, "no bridge here that only listens");
	return DOCTOR_OK;
}

/*
 * The kernel uses the higher value of the interface's own and that of "all": 1 is strict, 2 loose.
 */
DOCTOR_LOOK(doctor_rp_filter)
{
	const char *const names[] = { "all", interface };
	unsigned long value = 0;

	(void)check;
	for (size_t i = 0; i < sizeof(names) / sizeof(names[0]); i++) {
		char path[128];
		char line[32];

		snprintf(path, sizeof(path), "proc/sys/net/ipv4/conf/%.64s/rp_filter", names[i]);
		doctor_read(doctor, path, line, sizeof(line));
		if (strtoul(line, NULL, 10) > value)
			value = strtoul(line, NULL, 10);
	}
	snprintf(found, DOCTOR_FOUND_LEN, "%s",
		 value == 0   ? "off"
		 : value == 1 ? "strict"
			      : "loose");
	return value == 1 ? DOCTOR_WARNING : DOCTOR_OK;
}

/* Tries to join the group of all hosts, to which nothing is sent. */
DOCTOR_LOOK(doctor_membership)
{
	const struct ip_mreqn all_hosts = {
		.imr_multiaddr = { .s_addr = htonl(INADDR_ALLHOSTS_GROUP) },
		.imr_ifindex = (int)if_nametoindex(interface),
	};
	int fd = socket(AF_INET, SOCK_DGRAM | SOCK_CLOEXEC, 0);
	bool is_member;

	(void)doctor;
	(void)check;
	is_member = fd >= 0 && setsockopt(fd, IPPROTO_IP, IP_ADD_MEMBERSHIP, &all_hosts,
					  sizeof(all_hosts)) == 0;
	snprintf(found, DOCTOR_FOUND_LEN, "%s", is_member ? "possible" : strerror(errno));
	if (fd >= 0)
		close(fd);
	return is_member ? DOCTOR_OK : DOCTOR_PROBLEM;
}

DOCTOR_LOOK(doctor_profile)
{
	char line[64];

	(void)check;
	(void)interface;
	/* A kernel that does not count reports 0 0 0. */
	if (doctor_read(doctor, "proc/self/schedstat", line, sizeof(line)) &&
	    strncmp(line, "0 0 0", strlen("0 0 0")) != 0) {
		snprintf(found, DOCTOR_FOUND_LEN,
			 "counted; why is it slow here: fanin-perf --profile");
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "not counted");
	return DOCTOR_NOTE;
}
