/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Finds which virtual devices DPDK has drivers for, without running its code: each driver is a
 * library in one directory, with a text for each of its names, which DPDK's own dpdk-pmdinfo.py
 * reads, too.
 */
#include <dirent.h>
#include <fcntl.h>
#include <limits.h>
#include <stdio.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include "switch/config/config.h"

static const char name_mark[] = "PMD_INFO_STRING= {\"name\": \"";

const char *
config_driver_directory(void)
{
	return DPDK_DRIVERS;
}

/*
 * True if one of the driver names in a library's bytes is a prefix of the device's, as DPDK
 * compares them: net_null is the driver of net_null1.
 */
static bool
has_driver(const char *bytes, size_t len, const char *device)
{
	const size_t mark_len = strlen(name_mark);
	const char *end = bytes + len;
	const char *at = bytes;

	while ((at = memmem(at, (size_t)(end - at), name_mark, mark_len)) != NULL) {
		const char *quote;

		at += mark_len;
		quote = memchr(at, '"', (size_t)(end - at));
		if (quote != NULL && quote > at && strncmp(at, device, (size_t)(quote - at)) == 0)
			return true;
	}
	return false;
}

static bool
library_has_driver(const char *path, const char *device)
{
	struct stat status;
	bool found = false;
	int fd = open(path, O_RDONLY | O_CLOEXEC);

	if (fd < 0)
		return false;
	if (fstat(fd, &status) == 0 && S_ISREG(status.st_mode) && status.st_size > 0) {
		size_t len = (size_t)status.st_size;
		void *bytes = mmap(NULL, len, PROT_READ, MAP_PRIVATE, fd, 0);

		if (bytes != MAP_FAILED) {
			found = has_driver(bytes, len, device);
			munmap(bytes, len);
		}
	}
	close(fd);
	return found;
}

bool
config_driver_exists(const char *device)
{
	DIR *directory = opendir(DPDK_DRIVERS);
	const struct dirent *entry;
	char path[PATH_MAX];
	bool found = false;

	/*
	 * Without the directory DPDK's drivers are linked into its libraries and can't be listed
	 * here.
	 */
	if (directory == NULL)
		return true;
	while (!found && (entry = readdir(directory)) != NULL) {
		if (strncmp(entry->d_name, "librte_", strlen("librte_")) != 0 ||
		    strstr(entry->d_name, ".so") == NULL)
			continue;
		snprintf(path, sizeof(path), "%s/%s", DPDK_DRIVERS, entry->d_name);
		found = library_has_driver(path, device);
	}
	closedir(directory);
	return found;
}
