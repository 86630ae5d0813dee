/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The net tests as a suite: each case of tests/net/cases.py is one test, a process of its own. The list is the script's, so
 * that no case can be forgotten; what a case prints is shown if it fails. FANIN_BUILD_DIR in the environment names another
 * build to test.
 */
#include <errno.h>
#include <fcntl.h>
#include <poll.h>
#include <signal.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/suites.h"

#define SCRIPT FANIN_SOURCE_DIR "/tests/net/cases.py"
#define PYTHON "/usr/bin/python3"
#define MAX_CASES 256
#define NAME_LEN 96
#define OUTPUT_LEN 16384
/* From SIGTERM to SIGKILL: the time that a case has to remove its namespaces. */
#define CLEANUP_SECONDS 30

static struct net_case {
	char name[NAME_LEN];
	unsigned int seconds;
} net_cases[MAX_CASES];

static double
now_seconds(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return (double)now.tv_sec + (double)now.tv_nsec / 1e9;
}

/* Starts the script with its output in a pipe; returns the pipe's reading end. */
static int
start_script(const char *argument, pid_t *pid)
{
	int pipe_fds[2];

	ck_assert_int_eq(pipe2(pipe_fds, O_CLOEXEC), 0);
	*pid = fork();
	ck_assert_int_ge(*pid, 0);
	if (*pid == 0) {
		setenv("FANIN_BUILD_DIR", FANIN_BUILD_DIR, 0);
		setenv("PYTHONDONTWRITEBYTECODE", "1", 0);
		dup2(pipe_fds[1], STDOUT_FILENO);
		dup2(pipe_fds[1], STDERR_FILENO);
		execl(PYTHON, PYTHON, SCRIPT, argument, (char *)NULL);
		_exit(127);
	}
	close(pipe_fds[1]);
	return pipe_fds[0];
}

/*
 * Reads until the script closes its output or `seconds` have passed. What does not fit is read and left out. Returns true if
 * it ended by itself.
 */
static bool
read_output(int fd, char *output, double seconds)
{
	double deadline = now_seconds() + seconds;
	size_t len = strlen(output);
	char spill[1024];

	for (;;) {
		struct pollfd poll_fd = { .fd = fd, .events = POLLIN };
		double left = deadline - now_seconds();
		bool full = len + 1 >= OUTPUT_LEN;
		ssize_t n;

		if (left <= 0)
			return false;
		if (poll(&poll_fd, 1, (int)(left * 1000) + 1) <= 0)
			continue;
		n = full ? read(fd, spill, sizeof(spill))
			 : read(fd, output + len, OUTPUT_LEN - 1 - len);
		if (n == 0)
			return true;
		if (n > 0 && !full) {
			len += (size_t)n;
			output[len] = '\0';
		}
	}
}

/* Runs the script to its end; returns its exit status, or -ETIMEDOUT after having ended it. */
static int
run_script(const char *argument, char *output, unsigned int seconds)
{
	int status = 0;
	bool in_time;
	pid_t pid;
	int fd = start_script(argument, &pid);

	output[0] = '\0';
	in_time = read_output(fd, output, seconds);
	if (!in_time) {
		kill(pid, SIGTERM);
		if (!read_output(fd, output, CLEANUP_SECONDS))
			kill(pid, SIGKILL);
	}
	close(fd);
	while (waitpid(pid, &status, 0) < 0 && errno == EINTR)
		;
	if (!in_time)
		return -ETIMEDOUT;
	return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
}

START_TEST(net_case_holds)
{
	const struct net_case *net_case = &net_cases[_i];
	char output[OUTPUT_LEN];
	int status = run_script(net_case->name, output, net_case->seconds);

	ck_assert_msg(status != -ETIMEDOUT, "%s did not end within %u s:\n%s", net_case->name,
		      net_case->seconds, output);
	ck_assert_msg(status == 0, "exit status %d:\n%s", status, output);
	/* A person who waits for minutes wants to see that something happens. */
	if (isatty(STDERR_FILENO))
		fprintf(stderr, "  %s", output);
}
END_TEST

START_TEST(net_cases_are_listed)
{
	ck_abort_msg(PYTHON " " SCRIPT " --list did not list the net tests");
}
END_TEST

/* Fills net_cases from the script's list; returns how many there are, 0 on failure. */
static int
list_cases(void)
{
	char command[] = PYTHON " " SCRIPT " --list";
	FILE *list = popen(command, "re");
	int n = 0;

	if (list == NULL)
		return 0;
	while (n < MAX_CASES && fscanf(list, "%95s %u", net_cases[n].name, &net_cases[n].seconds) == 2)
		n++;
	return pclose(list) == 0 ? n : 0;
}

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

		tcase_set_timeout(tcase, net_cases[i].seconds + CLEANUP_SECONDS + 10);
		tcase_add_loop_test(tcase, net_case_holds, i, i + 1);
		suite_add_tcase(suite, tcase);
	}
	return suite;
}
