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

#define LOCK_PAUSE_MS 5u
#define LOCK_MOST_MS 20000u

struct eal_args {
	char *argv[EAL_MAX_ARGS + 1];
	int argc;
	bool failed;
};

static void __attribute__((format(printf, 2, 3))) add(struct eal_args *args, const char *format, ...)
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
 * Switches of this machine start one after the other, and none while another removes its directory, which may have the
 * same name: the EAL fails if hugepages that were free, or a directory that it made, are gone in the next moment. The lock is
 * on the directory in which the EAL makes its own; one that is held too long is passed by. Returns what unlock_starts takes.
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

	for (unsigned int ms = 0; fd >= 0 && flock(fd, LOCK_EX | LOCK_NB) != 0; ms += LOCK_PAUSE_MS) {
		if (errno != EWOULDBLOCK && errno != EINTR)
			break;
		if (ms >= LOCK_MOST_MS) {
			log_warning("another fanin-switch has been starting or ending for %u s: not waiting for it any longer",
				    LOCK_MOST_MS / 1000);
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

/* Free 2 MiB and 1 GiB pages, in MiB. */
static uint64_t
free_hugepage_megabytes(void)
{
	static const struct {
		const char *path;
		unsigned int megabytes;
	} sizes[] = {
		{ "/sys/kernel/mm/hugepages/hugepages-2048kB/free_hugepages", 2 },
		{ "/sys/kernel/mm/hugepages/hugepages-1048576kB/free_hugepages", 1024 },
	};
	uint64_t total = 0;

	for (size_t i = 0; i < sizeof(sizes) / sizeof(sizes[0]); i++) {
		FILE *file = fopen(sizes[i].path, "re");
		unsigned long pages = 0;

		if (file == NULL)
			continue;
		if (fscanf(file, "%lu", &pages) == 1)
			total += pages * sizes[i].megabytes;
		fclose(file);
	}
	return total;
}

static int
choose_memory(const struct config *config, bool *hugepages, char *error)
{
	uint64_t available = free_hugepage_megabytes();

	*hugepages = config->hugepages != CONFIG_HUGEPAGES_NEVER &&
		     available >= config->memory_megabytes;
	if (*hugepages || config->hugepages == CONFIG_HUGEPAGES_NEVER)
		return 0;
	if (config->hugepages == CONFIG_HUGEPAGES_ALWAYS) {
		snprintf(error, CONFIG_ERROR_LEN,
			 "memory.hugepages: found %lu MiB of free hugepages, expected %u (memory.megabytes): "
			 "reserve more in /sys/kernel/mm/hugepages, or set it to \"auto\"",
			 (unsigned long)available, config->memory_megabytes);
		return -ENOMEM;
	}
	log_warning("%lu MiB of hugepages are free, %u are wanted: using normal pages, which is slower",
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
		/* Numbers are unique; going down past used ones ends after at most CONFIG_MAX_WORKERS steps. */
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
	/* AF_XDP needs a packet pool without gaps, which only virtual addresses give; no device here does DMA. */
	add(args, "--iova-mode=va");
}

/* DPDK's directory for the telemetry's socket, which DPDK removes when the process exits; empty: none. */
static char runtime_directory[PATH_MAX];

static void
remove_runtime_directory(void)
{
	int lock;

	if (runtime_directory[0] == '\0')
		return;
	lock = lock_starts();
	/* It stays while another switch of this name has its socket there. */
	rmdir(runtime_directory);
	unlock_starts(lock);
}

/* Call it with the lock of lock_starts. */
static int
start(const struct config *config, char *error)
{
	struct eal_args args = { 0 };
	bool hugepages;
	int ret = choose_memory(config, &hugepages, error);

	if (ret != 0)
		return ret;
	add(&args, "fanin-switch");
	/* Where the telemetry's socket is; several switches of a name get a number behind the socket's. */
	add(&args, "--file-prefix=fanin-%s", config->name);
	add(&args, "--log-level=%s", config->log_level == LOG_LEVEL_DEBUG ? "debug" : "error");
	/* Neither shares memory with other processes nor leaves files behind; the EAL has two ways to say so. */
	if (hugepages) {
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
	/* EAL permutes the array that it is given. */
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
eal_start(const struct config *config, char *error)
{
	const int lock = lock_starts();
	const int ret = start(config, error);

	unlock_starts(lock);
	return ret;
}

void
eal_stop(void)
{
	rte_eal_cleanup();
}
