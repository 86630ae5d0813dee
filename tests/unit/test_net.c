/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The net tests as a suite: each case of tests/net/cases.py is one test, a process of its own, and
 * as many run at a time as there are CPUs. The list comes from the script, so no case can be
 * forgotten; a case's output is printed if it fails. FANIN_BUILD_DIR in the environment names
 * another build to test.
 */
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <limits.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/prctl.h>
#include <sys/wait.h>
#include <unistd.h>

#include "tests/unit/net_cases.h"
#include "tests/unit/suites.h"

#define MODULE "tests.net.cases"
#define PYTHON "/usr/bin/python3"
#define LIST "PYTHONPATH=" FANIN_SOURCE_DIR " " PYTHON " -m " MODULE " --list"
#define MAX_CASES 1024
#define NAME_LEN 128
#define OUTPUT_LEN 16384
#define MAX_LANES 8
#define LANES_PER_CPU 2
#define DIRECTORY "/tmp/fanin-net-XXXXXX"
#define POLL_MS 50
#define CASES_PER_LINE 25 /* of progress where nobody looks */

static struct net_case {
	char name[NAME_LEN];
	unsigned int seconds;
} net_cases[MAX_CASES];

/*
 * The script that runs the cases, some at a time. It is the parent process's child; tests in
 * processes of their own see its files.
 */
static struct {
	char directory[sizeof(DIRECTORY)]; /* empty: not started */
	pid_t pid;
	int fd; /* readable when the script has ended */
	pid_t owner;
} lanes;

static void
start_script(int write_fd)
{
	char python[] = PYTHON, run[] = "-m", module[] = MODULE, option[] = "--lanes";
	char number[24];
	char *argv[MAX_CASES + 7] = { python, run, module, option, number, lanes.directory };
	const long cpus = sysconf(_SC_NPROCESSORS_ONLN);
	const char *only = getenv("CK_RUN_CASE");
	int argc = 6;

	snprintf(number, sizeof(number), "%ld",
		 cpus * LANES_PER_CPU > MAX_LANES ? MAX_LANES : cpus * LANES_PER_CPU);
	for (int i = 0; i < MAX_CASES && net_cases[i].name[0] != '\0'; i++) {
		if (only == NULL || strcmp(only, net_cases[i].name) == 0)
			argv[argc++] = net_cases[i].name;
	}
	prctl(PR_SET_PDEATHSIG, SIGTERM);
	setenv("FANIN_BUILD_DIR", FANIN_BUILD_DIR, 0);
	setenv("PYTHONDONTWRITEBYTECODE", "1", 0);
	setenv("PYTHONPATH", FANIN_SOURCE_DIR, 1);
	/* The script keeps this end open as long as it lives; the cases don't inherit it. */
	fcntl(write_fd, F_SETFD, 0);
	execv(PYTHON, argv);
	_exit(127);
}

static void
remove_directory(void)
{
	DIR *directory;
	struct dirent *entry;

	if (getpid() != lanes.owner || (directory = opendir(lanes.directory)) == NULL)
		return;
	while ((entry = readdir(directory)) != NULL)
		unlinkat(dirfd(directory), entry->d_name, 0);
	closedir(directory);
	rmdir(lanes.directory);
}

/* Called at the end of this process: the script ends its cases, which remove their namespaces. */
static void
stop_lanes(void)
{
	if (getpid() != lanes.owner)
		return;
	kill(lanes.pid, SIGTERM);
	while (waitpid(lanes.pid, NULL, 0) < 0 && errno == EINTR)
		;
	remove_directory();
}

/*
 * Fills net_cases from the script's list, once. Returns their number; 0 on failure, also if there
 * is no room for all of them or for a name.
 */
static int
list_cases(void)
{
	static int n_listed;
	const char *which = getenv(NET_CASES_LISTED);
	char command[PATH_MAX + 128];
	FILE *list;
	int n = 0;
	bool whole;

	if (n_listed > 0)
		return n_listed;
	snprintf(command, sizeof(command), LIST " %s", which == NULL ? "" : which);
	list = popen(command, "re");
	if (list == NULL)
		return 0;
	while (n < MAX_CASES &&
	       fscanf(list, "%127s %u", net_cases[n].name, &net_cases[n].seconds) == 2)
		n++;
	/* A name that is too long ends the list. */
	whole = feof(list) != 0;
	n_listed = pclose(list) == 0 && whole && n < MAX_CASES ? n : 0;
	return n_listed;
}

void
net_cases_start(void)
{
	int pipe_fds[2];

	if (lanes.directory[0] != '\0' || list_cases() == 0)
		return;
	strcpy(lanes.directory, DIRECTORY);
	if (mkdtemp(lanes.directory) == NULL || pipe2(pipe_fds, O_CLOEXEC) != 0 ||
	    (lanes.pid = fork()) < 0) {
		fprintf(stderr, "fanin-check: cannot start the net tests: %s\n", strerror(errno));
		exit(2);
	}
	lanes.owner = getpid();
	if (lanes.pid == 0) {
		lanes.owner = 0;
		start_script(pipe_fds[1]);
	}
	close(pipe_fds[1]);
	lanes.fd = pipe_fds[0];
	atexit(stop_lanes);
}

/* Reads a file of a case; returns false if there is none. */
static bool
read_file(const char *name, const char *suffix, char *text, size_t size)
{
	char path[sizeof(DIRECTORY) + NAME_LEN + 16];
	size_t len;
	FILE *file;

	snprintf(path, sizeof(path), "%s/%s.%s", lanes.directory, name, suffix);
	file = fopen(path, "re");
	if (file == NULL)
		return false;
	len = fread(text, 1, size - 1, file);
	text[len] = '\0';
	fclose(file);
	return true;
}

void
net_cases_print_times(void)
{
	char command[sizeof(DIRECTORY) + 128];

	if (lanes.directory[0] == '\0')
		return;
	/* A case that passes prints how long it took: "NAME: ok, 12.3 s". */
	snprintf(
		command, sizeof(command),
		"sed -n 's/^\\([a-z0-9_]*\\): ok, \\([0-9.]*\\) s$/\\2 s  \\1/p' %s/*.out | sort -rn",
		lanes.directory);
	fflush(stdout);
	if (system(command) != 0)
		fprintf(stderr, "fanin-check: cannot list the times of net cases\n");
}

START_TEST(net_case_holds)
{
	const struct net_case *net_case = &net_cases[_i];
	struct pollfd script = { .fd = lanes.fd, .events = POLLIN };
	char output[OUTPUT_LEN] = "";
	char status[16];
	bool ended = false;

	/* The script limits the time of each case. */
	while (!read_file(net_case->name, "status", status, sizeof(status))) {
		ck_assert_msg(!ended, "cases.py ended without having run %s", net_case->name);
		ended = poll(&script, 1, POLL_MS) > 0;
	}
	read_file(net_case->name, "out", output, sizeof(output));
	ck_assert_msg(strcmp(status, "timeout\n") != 0, "%s did not end within %u s:\n%s",
		      net_case->name, net_case->seconds, output);
	ck_assert_msg(strcmp(status, "0\n") == 0, "exit status %s%s", status, output);
	/* Progress for a person who waits for minutes. */
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "  %s", output);
	else if ((_i + 1) % CASES_PER_LINE == 0)
		fprintf(stderr, "  %d net cases have ended\n", _i + 1);
}
END_TEST

START_TEST(net_cases_are_listed)
{
	ck_abort_msg(PYTHON " -m " MODULE " --list did not list the net tests");
}
END_TEST

Suite *
suite_net(void)
{
	Suite *suite = suite_create("net");
	int n = list_cases();

	if (n == 0) {
		TCase *listing = tcase_create("list");

		tcase_add_test(listing, net_cases_are_listed);
		suite_add_tcase(suite, listing);
	}
	for (int i = 0; i < n; i++) {
		TCase *tcase = tcase_create(net_cases[i].name);

		tcase_set_timeout(tcase, 0);
		tcase_add_unchecked_fixture(tcase, net_cases_start, NULL);
		tcase_add_loop_test(tcase, net_case_holds, i, i + 1);
		suite_add_tcase(suite, tcase);
	}
	return suite;
}
