/* SPDX-License-Identifier: BSD-3-Clause */
/* See eal.h. The EAL takes its options as a command line, so this builds one. */
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/file.h>
#include <time.h>
#include <unistd.h>

#include <rte_common.h>
#include <rte_dev.h>
#include <rte_eal.h>
#include <rte_errno.h>
#include <rte_lcore.h>

#include "switch/eal.h"
#include "switch/log.h"
#include "switch/memif_gate.h"

#define EAL_MAX_ARGS (32 + 2 * CONFIG_MAX_PORTS)
#define EAL_ARG_LEN 512

#define HUGEPAGES "/sys/kernel/mm/hugepages/hugepages"

/* Environment variable of a switch that starts itself again with normal pages. */
#define NORMAL_PAGES "FANIN_SWITCH_NORMAL_PAGES"

#define LOCK_PAUSE_MS 5u
#define LOCK_MAX_MS 20000u

struct eal_args {
	char *argv[EAL_MAX_ARGS + 1];
	int argc;
	bool failed;
};

static void __attribute__((format(printf, 2, 3)))
add(struct eal_args *args, const char *format, ...)
{
	char text[EAL_ARG_LEN];
	va_list list;

	va_start(list, format);
	if (vsnprintf(text, sizeof(text), format, list) >= (int)sizeof(text) ||
	    args->argc == EAL_MAX_ARGS)
		args->failed = true;
	else
		args->argv[args->argc++] = strdup(text);
	va_end(list);
}

/*
 * Waits for the lock that makes switches of this machine start one after the other, and not while
 * another one removes its directory, which may have the same name: the EAL fails if free hugepages,
 * or a directory that it has just made, disappear in the next moment. The lock is on the directory
 * in which the EAL makes its own. A lock that is held too long is ignored. Returns the argument of
 * unlock_starts.
 */
static int
lock_starts(void)
{
	const struct timespec pause = { .tv_nsec = LOCK_PAUSE_MS * 1000000 };
	const char *service = getenv("RUNTIME_DIRECTORY");
	const char *own = getenv("XDG_RUNTIME_DIR");
	const char *path = service != NULL  ? service
			   : geteuid() == 0 ? "/var/run"
			   : own != NULL    ? own
					    : "/tmp";
	int fd = open(path, O_RDONLY | O_DIRECTORY | O_CLOEXEC);

	for (unsigned int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0;
	     ms += LOCK_PAUSE_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			break;
		if (ms >= LOCK_MAX_MS) {
			log_warning(
				"another fanin-switch has been starting or ending for %u s: not waiting for it any longer",
				LOCK_MAX_MS / 1000);
			break;
		}
		nanosleep(&pause, NULL);
	}
	return fd;
}

static void
unlock_starts(int fd)
{
	if (fd >= 0)
		close(fd);
}

/* Returns the number in a file; 0 if there is none. */
static unsigned long
read_number(const char *path)
{
	FILE *file = fopen(path, "re");
	unsigned long number = 0;

	if (file == NULL)
		return 0;
	if (fscanf(file, "%lu", &number) != 1)
		number = 0;
	fclose(file);
	return number;
}

/*
 * Returns the size of 2 MiB and 1 GiB pages that are free and that no process has reserved, in MiB.
 */
static uint64_t
free_hugepage_megabytes(void)
{
	static const struct {
		const char *free;
		const char *reserved;
		unsigned int megabytes;
	} sizes[] = {
		{ HUGEPAGES "-2048kB/free_hugepages", HUGEPAGES "-2048kB/resv_hugepages", 2 },
		{ HUGEPAGES "-1048576kB/free_hugepages", HUGEPAGES "-1048576kB/resv_hugepages",
		  1024 },
	};
	uint64_t total = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		const unsigned long available = read_number(sizes[i].free);
		const unsigned long reserved = read_number(sizes[i].reserved);

		if (available > reserved)
			total += (available - reserved) * sizes[i].megabytes;
	}
	return total;
}

static int
choose_memory(const struct config *config, bool *hugepages, char *error)
{
	const uint64_t available = free_hugepage_megabytes();

	*hugepages = false;
	if (config->hugepages == CONFIG_HUGEPAGES_AUTO && getenv(NORMAL_PAGES) != NULL)
		return 0;
	*hugepages = config->hugepages != CONFIG_HUGEPAGES_NEVER &&
		     available >= config->memory_megabytes;
	if (*hugepages || config->hugepages == CONFIG_HUGEPAGES_NEVER)
		return 0;
	if (config->hugepages == CONFIG_HUGEPAGES_ALWAYS) {
		snprintf(
			error, CONFIG_ERROR_LEN,
			"memory.hugepages: found %lu MiB of free hugepages, expected %u (memory.megabytes): "
			"reserve more in /sys/kernel/mm/hugepages, or set it to \"auto\"",
			(unsigned long)available, config->memory_megabytes);
		return -ENOMEM;
	}
	log_warning(
		"%lu MiB of hugepages are free, %u are wanted: using normal pages, which is slower",
		(unsigned long)available, config->memory_megabytes);
	return 0;
}

void
eal_vdev_name(const struct config_port *port, char *name, size_t len)
{
	int driver_len = (int)strcspn(port->device, ",");

	snprintf(name, len, "%.*s_%s", driver_len, port->device, port->name);
}

static void
add_vdev(struct eal_args *args, const struct config_port *port, const char *memif_socket)
{
	const char *options = port->device + strcspn(port->device, ",");
	char name[CONFIG_DEVICE_LEN];

	eal_vdev_name(port, name, sizeof(name));
	add(args, "--vdev");
	if (port->memif) {
		add(args, "%s,role=server,id=%u,socket=%s,socket-abstract=no", name, port->memif_id,
		    memif_socket);
		return;
	}
	add(args, "%s%s", name, options);
}

static void
add_lcores(struct eal_args *args, const struct config *config)
{
	char lcores[EAL_ARG_LEN];
	unsigned int main_lcore = RTE_MAX_LCORE - 1;
	unsigned int cpus = (unsigned int)sysconf(_SC_NPROCESSORS_CONF);
	int len;

	for (uint16_t i = 0; i < config->n_workers; i++) {
		/*
		 * Numbers are unique; going down past used ones ends after at most
		 * CONFIG_MAX_WORKERS steps.
		 */
		if (config->workers[i].lcore == main_lcore) {
			main_lcore--;
			i = UINT16_MAX;
		}
	}
	len = snprintf(lcores, sizeof(lcores), "%u@(0-%u)", main_lcore, cpus - 1);
	for (uint16_t i = 0; i < config->n_workers; i++) {
		len += snprintf(lcores + len, sizeof(lcores) - (size_t)len, ",%u@%u",
				config->workers[i].lcore, config->workers[i].cpu);
	}
	add(args, "--lcores");
	add(args, "%s", lcores);
	add(args, "--main-lcore");
	add(args, "%u", main_lcore);
}

static void
add_devices(struct eal_args *args, const struct config *config)
{
	char memif_socket[CONFIG_PATH_LEN];
	bool pci = false;

	memif_driver_socket(config, memif_socket);
	for (uint16_t i = 0; i < config->n_ports; i++) {
		if (config->ports[i].pci) {
			pci = true;
			add(args, "-a");
			add(args, "%s", config->ports[i].device);
		} else if (!config_port_is_packet(&config->ports[i])) {
			add_vdev(args, &config->ports[i], memif_socket);
		}
	}
	if (pci)
		return;
	add(args, "--no-pci");
	/*
	 * AF_XDP needs a packet pool without gaps, which only virtual addresses give; no device
	 * here does DMA.
	 */
	add(args, "--iova-mode=va");
}

/*
 * DPDK's directory for the telemetry socket, which DPDK removes when the process exits; empty:
 * none.
 */
static char runtime_directory[PATH_MAX];

static void
remove_runtime_directory(void)
{
	int lock;

	if (runtime_directory[0] == '\0')
		return;
	lock = lock_starts();
	/* The directory stays while another switch of this name has its socket there. */
	rmdir(runtime_directory);
	unlock_starts(lock);
}

/*
 * Loads this program again, with normal pages, after another program has taken hugepages that were
 * free just before: the EAL starts only once in a process. Returns if that fails.
 */
static void
start_again(char *const argv[])
{
	log_warning(
		"hugepages that were free are taken: starting again with normal pages, which is slower");
	if (setenv(NORMAL_PAGES, "1", 1) != 0 ||
	    close_range(STDERR_FILENO + 1, ~0U, CLOSE_RANGE_CLOEXEC) != 0)
		return;
	execv("/proc/self/exe", argv);
}

/* Call it with the lock of lock_starts. hugepages: set to true if hugepages are used. */
static int
start(const struct config *config, bool *hugepages, char *error)
{
	struct eal_args args = { 0 };
	int ret = choose_memory(config, hugepages, error);

	if (ret != 0)
		return ret;
	add(&args, "fanin-switch");
	/*
	 * The directory of the telemetry socket. Several switches of one name get a number appended
	 * to the socket's name.
	 */
	add(&args, "--file-prefix=fanin-%s", config->name);
	add(&args, "--log-level=%s", config->log_level == LOG_LEVEL_DEBUG ? "debug" : "error");
	/*
	 * Shares no memory with other processes and leaves no files behind. The EAL has two options
	 * for that.
	 */
	if (*hugepages) {
		add(&args, "--in-memory");
	} else {
		add(&args, "--no-huge");
		add(&args, "--no-shconf");
	}
	add(&args, "-m");
	add(&args, "%u", config->memory_megabytes);
	add_lcores(&args, config);
	add_devices(&args, config);
	/* Functions are called in reverse order: DPDK's before this one. */
	atexit(remove_runtime_directory);
	/* The EAL permutes the array that it is given. */
	char *argv[EAL_MAX_ARGS + 1];

	memcpy(argv, args.argv, sizeof(argv));
	if (args.failed) {
		snprintf(error, CONFIG_ERROR_LEN,
			 "the configuration gives more arguments than the EAL takes");
		ret = -E2BIG;
	} else if (rte_eal_init(args.argc, argv) < 0) {
		ret = rte_errno == 0 ? -EIO : -rte_errno;
		snprintf(error, CONFIG_ERROR_LEN,
			 "DPDK's environment does not start: %s (log_level \"debug\" shows why)",
			 strerror(-ret));
	}
	snprintf(runtime_directory, sizeof(runtime_directory), "%s", rte_eal_get_runtime_dir());
	for (int i = 0; i < args.argc; i++)
		free(args.argv[i]);
	return ret;
}

int
eal_start(const struct config *config, char *const argv[], char *error)
{
	const int lock = lock_starts();
	bool hugepages = false;
	const int ret = start(config, &hugepages, error);

	unlock_starts(lock);
	if (ret == -ENOMEM && hugepages && config->hugepages == CONFIG_HUGEPAGES_AUTO)
		start_again(argv);
	return ret;
}

void
eal_stop(void)
{
	rte_eal_cleanup();
}
