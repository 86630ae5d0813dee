/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The models of the window protocol, of sparse blocks, of PA-ATP, of Canary, of Push, of Pull, of
 * lost runs, of MPI programs and of versions that differ, searched by tests/model/run.sh. Its
 * output is printed if it fails.
 */
#include <errno.h>
#include <poll.h>
#include <signal.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/wait.h>
#include <time.h>
#include <unistd.h>

#include "tests/unit/suites.h"

#define TIMEOUT_S 900

static char output[256 * 1024];

static time_t
now_s(void)
{
	struct timespec now;

	clock_gettime(CLOCK_MONOTONIC, &now);
	return now.tv_sec;
}

/*
 * Starts a program in a process group of its own. Returns its id, and the reading end of its
 * output.
 */
static pid_t
start(const char *path, int *fd)
{
	int ends[2];
	pid_t pid;

	ck_assert_int_eq(pipe(ends), 0);
	pid = fork();
	ck_assert_int_ge(pid, 0);
	if (pid == 0) {
		setpgid(0, 0);
		dup2(ends[1], STDOUT_FILENO);
		dup2(ends[1], STDERR_FILENO);
		close(ends[0]);
		close(ends[1]);
		execl(path, path, (char *)NULL);
		dprintf(STDERR_FILENO, "%s: %s\n", path, strerror(errno));
		_exit(127);
	}
	setpgid(pid, pid);
	close(ends[1]);
	*fd = ends[0];
	return pid;
}

/*
 * Reads into `output` up to the end of the program, or the deadline. Output beyond its size is left
 * out.
 */
static void
read_output(int fd, time_t deadline_s)
{
	struct pollfd ready = { .fd = fd, .events = POLLIN };
	char overflow[4096];
	size_t len = 0;
	ssize_t n = 1;

	while (n > 0 && now_s() < deadline_s) {
		size_t room = sizeof(output) - 1 - len;

		if (poll(&ready, 1, 1000) <= 0)
			continue;
		n = room != 0 ? read(fd, output + len, room) : read(fd, overflow, sizeof(overflow));
		if (room != 0 && n > 0)
			len += (size_t)n;
	}
	output[len] = '\0';
}

START_TEST(protocols_hold_and_no_mutant_of_them_survives)
{
	time_t deadline_s = now_s() + TIMEOUT_S;
	int status = 0;
	pid_t pid;
	int fd;

	pid = start(FANIN_SOURCE_DIR "/tests/model/run.sh", &fd);
	read_output(fd, deadline_s);
	close(fd);
	if (now_s() >= deadline_s)
		kill(-pid, SIGTERM);
	ck_assert_int_eq(waitpid(pid, &status, 0), pid);
	if (!WIFEXITED(status) || WEXITSTATUS(status) != 0) {
		fputs(output, stderr);
		ck_abort_msg("tests/model/run.sh %s; its output stands above",
			     WIFEXITED(status) ? "failed" : "took too long");
	}
}
END_TEST

Suite *
suite_model(void)
{
	Suite *suite = suite_create("model");
	TCase *tcase = tcase_create("window");

	/* The test has a timeout of its own, which ends the verifiers too. */
	tcase_set_timeout(tcase, TIMEOUT_S + 20);
	tcase_add_test(tcase, protocols_hold_and_no_mutant_of_them_survives);
	suite_add_tcase(suite, tcase);
	return suite;
}
