/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * faninctl doctor: processors, memory and kernel of this machine, from files below /sys and /proc.
 */
#include <limits.h>
#include <stdlib.h>
#include <string.h>

#include "tools/doctor.h"

#define OLDEST_MAJOR 5
#define OLDEST_MINOR 11    /* AF_XDP with XDP links */
#define OLDEST_MINOR_UDP 7 /* sockets can be bound to an interface without rights */
/* First version whose packet sockets take super-frames of UDP. */
#define WHOLE_MAJOR 6
#define WHOLE_MINOR 2
#define GOOD_BACKLOG 10000
#define MIN_HUGEPAGE_MIB 512 /* default of memory.megabytes */
#define CPU_DIRECTORY "sys/devices/system/cpu"
#define NODE_DIRECTORY "sys/devices/system/node"

FILE *
doctor_open(const struct doctor *doctor, const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s/%s", doctor->root, path);
	return fopen(whole, "re");
}

bool
doctor_read(const struct doctor *doctor, const char *path, char *line, size_t size)
{
	FILE *file = doctor_open(doctor, path);
	bool is_there;

	line[0] = '\0';
	if (file == NULL)
		return false;
	is_there = fgets(line, (int)size, file) != NULL;
	fclose(file);
	line[strcspn(line, "\n")] = '\0';
	return is_there;
}

DIR *
doctor_open_directory(const struct doctor *doctor, const char *path)
{
	char whole[PATH_MAX];

	snprintf(whole, sizeof(whole), "%s/%s", doctor->root, path);
	return opendir(whole);
}

static bool
is_at_least(int major, int minor, int oldest_major, int oldest_minor)
{
	return major > oldest_major || (major == oldest_major && minor >= oldest_minor);
}

DOCTOR_LOOK(doctor_kernel)
{
	int major = 0;
	int minor = 0;
	const int oldest = doctor->roles == DOCTOR_HOST_UDP ? OLDEST_MINOR_UDP : OLDEST_MINOR;
	char line[128];

	(void)check;
	(void)interface;
	doctor_read(doctor, "proc/sys/kernel/osrelease", line, sizeof(line));
	snprintf(found, DOCTOR_FOUND_LEN, "Linux %s", line);
	if (sscanf(line, "%d.%d", &major, &minor) != 2 ||
	    !is_at_least(major, minor, OLDEST_MAJOR, oldest))
		return DOCTOR_PROBLEM;
	/* Hosts find out by themselves what their switch takes. */
	if ((doctor->roles & DOCTOR_SWITCH) == 0 || doctor->driver == DOCTOR_DRIVER_AF_XDP ||
	    is_at_least(major, minor, WHOLE_MAJOR, WHOLE_MINOR))
		return DOCTOR_OK;
	strncat(found, ": packets of UDP leave packet ports one by one",
		DOCTOR_FOUND_LEN - strlen(found) - 1);
	return DOCTOR_WARNING;
}

static unsigned long
read_number(const struct doctor *doctor, const char *directory, const char *name)
{
	char path[512];
	char line[32];

	snprintf(path, sizeof(path), "%s/%s", directory, name);
	doctor_read(doctor, path, line, sizeof(line));
	return strtoul(line, NULL, 10);
}

/* Adds a NUMA node's hugepages to the finding. Returns the size of its free ones in MiB. */
static unsigned long
add_node(const struct doctor *doctor, const char *node, char *found)
{
	static const struct {
		const char *name;
		const char *size;
		unsigned int mib;
	} kinds[] = { { "2048kB", "2 MiB", 2 }, { "1048576kB", "1 GiB", 1024 } };
	unsigned long mib = 0;

	for (size_t i = 0; i < sizeof(kinds) / sizeof(kinds[0]); i++) {
		char directory[256];
		size_t used = strlen(found);
		unsigned long total, unused;

		snprintf(directory, sizeof(directory),
			 NODE_DIRECTORY "/%.64s/hugepages/hugepages-%s", node, kinds[i].name);
		total = read_number(doctor, directory, "nr_hugepages");
		unused = read_number(doctor, directory, "free_hugepages");
		mib += unused * kinds[i].mib;
		/* Hugepages of 2 MiB are listed even if there are none. */
		if (total != 0 || i == 0)
			snprintf(found + used, DOCTOR_FOUND_LEN - used,
				 "%s%s: %lu of %lu of %s free", used == 0 ? "" : ", ", node, unused,
				 total, kinds[i].size);
	}
	return mib;
}

DOCTOR_LOOK(doctor_hugepages)
{
	DIR *nodes = doctor_open_directory(doctor, NODE_DIRECTORY);
	const struct dirent *entry;
	bool enough = false;
	bool everywhere = true;

	(void)check;
	(void)interface;
	found[0] = '\0';
	while (nodes != NULL && (entry = readdir(nodes)) != NULL) {
		unsigned int number;
		unsigned long mib;

		if (sscanf(entry->d_name, "node%u", &number) != 1)
			continue;
		mib = add_node(doctor, entry->d_name, found);
		enough = enough || mib >= MIN_HUGEPAGE_MIB;
		everywhere = everywhere && mib > 0;
	}
	if (nodes != NULL)
		closedir(nodes);
	if (found[0] == '\0')
		snprintf(found, DOCTOR_FOUND_LEN, "none");
	return enough && everywhere ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_transparent_hugepages)
{
	char line[128];

	(void)check;
	(void)interface;
	if (!doctor_read(doctor, "sys/kernel/mm/transparent_hugepage/enabled", line,
			 sizeof(line))) {
		snprintf(found, DOCTOR_FOUND_LEN, "none");
		return DOCTOR_OK;
	}
	snprintf(found, DOCTOR_FOUND_LEN, "%s", line);
	return strstr(line, "[always]") == NULL ? DOCTOR_OK : DOCTOR_WARNING;
}

/* True if a word is among the flags of the first CPU. */
static bool
has_flag(const char *flags, const char *flag)
{
	size_t len = strlen(flag);

	for (const char *at = strstr(flags, flag); at != NULL; at = strstr(at + len, flag)) {
		if ((at == flags || at[-1] == ' ') &&
		    (at[len] == ' ' || at[len] == '\n' || at[len] == '\0'))
			return true;
	}
	return false;
}

/* Follows handlers/kernels/select.c. */
DOCTOR_LOOK(doctor_cpu_isa)
{
	FILE *file = doctor_open(doctor, "proc/cpuinfo");
	const char *isa = "portable C only";
	char line[8192] = "";

	(void)check;
	(void)interface;
	while (file != NULL && fgets(line, sizeof(line), file) != NULL &&
	       strncmp(line, "flags", strlen("flags")) != 0)
		line[0] = '\0';
	if (file != NULL)
		fclose(file);
	if (has_flag(line, "avx512f") && has_flag(line, "avx512bw") && has_flag(line, "avx512dq") &&
	    has_flag(line, "avx512vl"))
		isa = has_flag(line, "avx512_fp16") ? "AVX-512 with FP16" : "AVX-512";
	else if (has_flag(line, "avx2") && has_flag(line, "f16c"))
		isa = "AVX2";
	snprintf(found, DOCTOR_FOUND_LEN, "%s", isa);
	return isa[0] == 'A' ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_clock_source)
{
	char line[64];

	(void)check;
	(void)interface;
	doctor_read(doctor, "sys/devices/system/clocksource/clocksource0/current_clocksource", line,
		    sizeof(line));
	snprintf(found, DOCTOR_FOUND_LEN, "%s", line[0] == '\0' ? "none" : line);
	return strcmp(line, "tsc") == 0 ? DOCTOR_OK : DOCTOR_WARNING;
}

/* Checks a list of CPUs that should not be empty. */
static enum doctor_state
look_at_cpus(const struct doctor *doctor, const char *path, char *found)
{
	char line[128];
	bool some = doctor_read(doctor, path, line, sizeof(line)) && line[0] >= '0' &&
		    line[0] <= '9';

	snprintf(found, DOCTOR_FOUND_LEN, "%s%s", some ? "CPUs " : "none", some ? line : "");
	return some ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_isolated)
{
	(void)check;
	(void)interface;
	return look_at_cpus(doctor, CPU_DIRECTORY "/isolated", found);
}

DOCTOR_LOOK(doctor_nohz_full)
{
	(void)check;
	(void)interface;
	return look_at_cpus(doctor, CPU_DIRECTORY "/nohz_full", found);
}

DOCTOR_LOOK(doctor_governor)
{
	DIR *cpus = doctor_open_directory(doctor, CPU_DIRECTORY);
	const struct dirent *entry;
	char other[64] = "";
	unsigned int n = 0;
	unsigned int n_others = 0;

	(void)check;
	(void)interface;
	while (cpus != NULL && (entry = readdir(cpus)) != NULL) {
		char path[512];
		char line[64];
		unsigned int number;

		if (sscanf(entry->d_name, "cpu%u", &number) != 1)
			continue;
		snprintf(path, sizeof(path), CPU_DIRECTORY "/%.64s/cpufreq/scaling_governor",
			 entry->d_name);
		if (!doctor_read(doctor, path, line, sizeof(line)))
			continue;
		n++;
		if (strcmp(line, "performance") != 0) {
			n_others++;
			memcpy(other, line, sizeof(other));
		}
	}
	if (cpus != NULL)
		closedir(cpus);
	if (n == 0)
		snprintf(found, DOCTOR_FOUND_LEN, "the kernel does not change the frequency");
	else if (n_others == 0)
		snprintf(found, DOCTOR_FOUND_LEN, "performance on %u CPUs", n);
	else
		snprintf(found, DOCTOR_FOUND_LEN, "%s on %u of %u CPUs", other, n_others, n);
	return n_others == 0 ? DOCTOR_OK : DOCTOR_WARNING;
}

/*
 * Each CPU queues frames that cross from one namespace to another until it processes them. The
 * drops are those of all CPUs since the machine started.
 */
DOCTOR_LOOK(doctor_backlog)
{
	FILE *file = doctor_open(doctor, "proc/net/softnet_stat");
	unsigned long long sum = 0;
	unsigned long long drops;
	unsigned long room;
	char line[512];

	(void)check;
	(void)interface;
	while (file != NULL && fgets(line, sizeof(line), file) != NULL) {
		if (sscanf(line, "%*x %llx", &drops) == 1)
			sum += drops;
	}
	if (file != NULL)
		fclose(file);
	doctor_read(doctor, "proc/sys/net/core/netdev_max_backlog", line, sizeof(line));
	room = strtoul(line, NULL, 10);
	snprintf(found, DOCTOR_FOUND_LEN, "%llu frames dropped, room for %lu", sum, room);
	return sum == 0 || room >= GOOD_BACKLOG ? DOCTOR_OK : DOCTOR_WARNING;
}

DOCTOR_LOOK(doctor_smt)
{
	char line[32];
	bool active = doctor_read(doctor, CPU_DIRECTORY "/smt/active", line, sizeof(line)) &&
		      strcmp(line, "1") == 0;

	(void)check;
	(void)interface;
	snprintf(found, DOCTOR_FOUND_LEN, active ? "CPUs share cores" : "off");
	return active ? DOCTOR_WARNING : DOCTOR_OK;
}
