/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl doctor: the caller's rights, the libraries that the switch would load, and its
 * environment.
 */
#include <dlfcn.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include <linux/capability.h>

#include "tools/doctor.h"

/* The directory of DPDK's drivers contains its version: /usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0 */
#define PMD_PREFIX "/dpdk/pmds-"

/*
 * DPDK's library allocates memory when it is loaded and does not free it: the library stays loaded
 * until the process ends.
 */
#define OPEN_FLAGS (RTLD_LAZY | RTLD_LOCAL | RTLD_NODELETE)

/* Returns the number after the libraries' ".so." */
static unsigned long
dpdk_abi(void)
{
	const char *at = strstr(DPDK_DRIVERS, PMD_PREFIX);

	return at == NULL ? 0 : strtoul(at + strlen(PMD_PREFIX), NULL, 10);
}

bool
doctor_has_capability(const struct doctor *doctor, int capability)
{
	FILE *file = doctor_open(doctor, "proc/self/status");
	unsigned long long effective = 0;
	char line[256];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "CapEff: %llx", &effective) == 1)
			break;
	}
	if (file != NULL)
		fclose(file);
	return (effective >> capability & 1) != 0;
}

DOCTOR_LOOK(doctor_capability)
{
	(void)interface;
	if (doctor_has_capability(doctor, check->argument)) {
		snprintf(found, DOCTOR_FOUND_LEN, "effective");
		return DOCTOR_OK;
	}
	if (check->argument == CAP_BPF && doctor_has_capability(doctor, CAP_SYS_ADMIN)) {
		snprintf(found, DOCTOR_FOUND_LEN, "part of CAP_SYS_ADMIN");
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "missing");
	return check->worst;
}

DOCTOR_LOOK(doctor_memlock)
{
	static const char key[] = "Max locked memory";
	FILE *file = doctor_open(doctor, "proc/self/limits");
	char limit[32] = "unknown";
	char line[256];

	(void)check;
	(void)interface;
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (strncmp(line, key, strlen(key)) == 0 &&
		    sscanf(line + strlen(key), "%31s", limit) == 1)
			break;
	}
	if (file != NULL)
		fclose(file);
	if (strcmp(limit, "unlimited") == 0) {
		snprintf(found, DOCTOR_FOUND_LEN, "unlimited");
		return DOCTOR_OK;
	}
	if (doctor_has_capability(doctor, CAP_IPC_LOCK)) {
		snprintf(found, DOCTOR_FOUND_LEN, "%s bytes, lifted by CAP_IPC_LOCK", limit);
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "%s bytes", limit);
	return DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_bpffs)
{
	FILE *file = doctor_open(doctor, "proc/self/mounts");
	bool mounted = false;
	char line[1024];
	char point[256];
	char type[32];

	(void)check;
	(void)interface;
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%*s %255s %31s", point, type) == 2 &&
		    strcmp(point, "/sys/fs/bpf") == 0)
			mounted = strcmp(type, "bpf") == 0;
	}
	if (file != NULL)
		fclose(file);
	snprintf(found, DOCTOR_FOUND_LEN, mounted ? "mounted" : "not mounted");
	/*
	 * Without bpffs, libxdp attaches a program directly instead of through its dispatcher, and
	 * everything works.
	 */
	return mounted ? DOCTOR_OK : DOCTOR_WARNING;
}

/* True if a socket in one of the kernel's tables is bound to the port. */
static bool
is_bound(const struct doctor *doctor, const char *path)
{
	FILE *file = doctor_open(doctor, path);
	bool bound = false;
	unsigned int port;
	char line[512];

	while (file != NULL && fgets(line, sizeof(line), file) != NULL && !bound)
		bound = sscanf(line, "%*u: %*[0-9A-Fa-f]:%x", &port) == 1 &&
			port == doctor->udp_port;
	if (file != NULL)
		fclose(file);
	return bound;
}

DOCTOR_LOOK(doctor_udp_port)
{
	bool bound = is_bound(doctor, "proc/net/udp") || is_bound(doctor, "proc/net/udp6");

	(void)check;
	(void)interface;
	snprintf(found, DOCTOR_FOUND_LEN, bound ? "a socket is bound to %u" : "%u is free",
		 doctor->udp_port);
	return bound ? DOCTOR_WARNING : DOCTOR_OK;
}

/*
 * Opens a library. Below another root it is in DPDK's directory; on this machine the loader finds
 * it.
 */
static void *
open_library(const struct doctor *doctor, const char *name)
{
	static const char pmds[] = DPDK_DRIVERS;
	const char *prefix = strstr(pmds, PMD_PREFIX);
	char path[512];

	if (doctor->root[0] == '\0')
		return dlopen(name, OPEN_FLAGS);
	snprintf(path, sizeof(path), "%s%.*s/%s", doctor->root,
		 prefix == NULL ? 0 : (int)(prefix - pmds), pmds, name);
	return dlopen(path, OPEN_FLAGS);
}

/*
 * Loads a library and calls its version function, which takes no arguments. function NULL: only
 * checks that the library exists.
 */
static enum doctor_state
look_at_library(const struct doctor *doctor, const char *name, const char *function, char *found)
{
	void *library = open_library(doctor, name);
	const char *(*version)(void) = NULL;

	if (library == NULL) {
		snprintf(found, DOCTOR_FOUND_LEN, "%s is missing", name);
		return DOCTOR_PROBLEM;
	}
	if (function != NULL)
		*(void **)&version = dlsym(library, function);
	snprintf(found, DOCTOR_FOUND_LEN, "%s%s%s", version == NULL ? "" : version(),
		 version == NULL ? "" : ", ", name);
	dlclose(library);
	return DOCTOR_OK;
}

/* Hosts may have it where their own programs alone find it: then its version can't be seen. */
DOCTOR_LOOK(doctor_libfanin)
{
	(void)check;
	(void)interface;
	if (look_at_library(doctor, "libfanin.so.0", "fanin_version", found) != DOCTOR_OK)
		return DOCTOR_NOTE;
	return strncmp(found, FANIN_VERSION ",", sizeof(FANIN_VERSION)) == 0 ? DOCTOR_OK
									     : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_dpdk)
{
	enum doctor_state state;
	char name[64];
	size_t used;

	(void)check;
	(void)interface;
	snprintf(name, sizeof(name), "librte_eal.so.%lu", dpdk_abi());
	state = look_at_library(doctor, name, "rte_version", found);
	used = strlen(found);
	snprintf(found + used, DOCTOR_FOUND_LEN - used, "; fanin-switch was built with %s",
		 DPDK_BUILT_WITH);
	return state;
}

DOCTOR_LOOK(doctor_libbpf)
{
	(void)check;
	(void)interface;
	return look_at_library(doctor, "libbpf.so.1", "libbpf_version_string", found);
}

DOCTOR_LOOK(doctor_libxdp)
{
	(void)check;
	(void)interface;
	return look_at_library(doctor, "libxdp.so.1", NULL, found);
}

DOCTOR_LOOK(doctor_drivers)
{
	static const char *const drivers[] = { "net_af_packet", "net_af_xdp", "net_memif" };
	bool all = true;
	size_t used = 0;

	(void)check;
	(void)interface;
	found[0] = '\0';
	for (size_t i = 0; i < sizeof(drivers) / sizeof(drivers[0]); i++) {
		char path[512];

		snprintf(path, sizeof(path), "%s%s/librte_%s.so.%lu", doctor->root, DPDK_DRIVERS,
			 drivers[i], dpdk_abi());
		if (access(path, R_OK) == 0)
			continue;
		all = false;
		used += (size_t)snprintf(found + used, DOCTOR_FOUND_LEN - used, "%s%s",
					 used == 0 ? "missing: " : ", ", drivers[i]);
	}
	if (all)
		snprintf(found, DOCTOR_FOUND_LEN, "net_af_packet, net_af_xdp and net_memif");
	return all ? DOCTOR_OK : DOCTOR_PROBLEM;
}
