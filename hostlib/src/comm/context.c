/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Contexts, and the loop that waits: it polls, then yields the core, then sleeps until a frame or a
 * timer comes, so a rank never spins without end on a core that the switch or another rank needs.
 */
#include "comm.h"

#include <assert.h>
#include <errno.h>
#include <sched.h>
#include <stddef.h>
#include <stdlib.h>
#include <string.h>
#include <sys/eventfd.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hostlib/src/base/caller.h"

/*
 * Empty polls, each followed by a yield, before sleeping. With four ranks and the switch on two
 * cores: over memif 40 instead of 8 yields save some 5 to 20 %, over the kernel they cost 15 to 25
 * % at 1 and 16 KiB. Never sleeping costs up to a third of the goodput. Two polls more before the
 * first yield, each a system call, cost a sixth of the time up to 1 KiB over the kernel, and change
 * nothing above.
 */
#define WAIT_YIELDS 8
#define WAIT_YIELDS_SHARED 40

/* Longest sleep, so that the interrupt callback is called in time. */
#define WAIT_SLEEP_NS (50 * 1000000ull)
#define INTERRUPT_NS (100 * 1000000ull)

static_assert(FANIN_MAX_RANKS == FANIN_WIRE_MAX_RANKS, "ranks of a job");

/* True if a public struct ends without padding: see fanin.h on how these structs grow. */
#define ENDS_WITH(type, field)                                                                     \
	(offsetof(struct type, field) + sizeof(((struct type *)NULL)->field) == sizeof(struct type))
static_assert(ENDS_WITH(fanin_init_opts, reserved), "padding in fanin_init_opts");
static_assert(ENDS_WITH(fanin_join_opts, hosts), "padding in fanin_join_opts");
static_assert(ENDS_WITH(fanin_report, local_bytes), "padding in fanin_report");
static_assert(ENDS_WITH(fanin_sparse_opts, reserved), "padding in fanin_sparse_opts");
static_assert(ENDS_WITH(fanin_sparse_result, reserved), "padding in fanin_sparse_result");
static_assert(ENDS_WITH(fanin_compact_opts, reserved), "padding in fanin_compact_opts");

/*
 * Calls the user's callback, which need not be thread-safe: a joining call and the progress thread
 * may both log.
 */
static void
print_line(int level, const char *line, void *arg)
{
	struct fanin_ctx *ctx = arg;

	pthread_mutex_lock(&ctx->print_lock);
	ctx->print(level, line, ctx->print_arg);
	pthread_mutex_unlock(&ctx->print_lock);
}

/* Reads FANIN_BACKGROUND_PROGRESS. Returns false if its value is invalid. */
static bool
background_from_environment(bool *background)
{
	const char *value = secure_getenv("FANIN_BACKGROUND_PROGRESS");

	if (value == NULL || value[0] == '\0' || strcmp(value, "0") == 0)
		return true;
	*background = true;
	return strcmp(value, "1") == 0;
}

/* Range of FANIN_RECEIVE_BUFFER, bytes. */
#define MIN_RECEIVE_BUFFER 4096u
#define MAX_RECEIVE_BUFFER (1u << 30)

/* Reads FANIN_RECEIVE_BUFFER. Returns false if its value is invalid. */
static bool
buffer_from_environment(uint32_t *bytes)
{
	const char *value = secure_getenv("FANIN_RECEIVE_BUFFER");
	unsigned long found;
	char *end;

	*bytes = FANIN_UDP_RECEIVE_BUFFER;
	if (value == NULL || value[0] == '\0')
		return true;
	found = strtoul(value, &end, 10);
	if (value[0] < '0' || value[0] > '9' || *end != '\0' || found < MIN_RECEIVE_BUFFER ||
	    found > MAX_RECEIVE_BUFFER)
		return false;
	*bytes = (uint32_t)found;
	return true;
}

/* For callers that were compiled before the header had a number. */
#undef fanin_init
int
fanin_init(const struct fanin_init_opts *opts, fanin_ctx **ctx)
{
	return fanin_init_from(0, opts, ctx);
}

int
fanin_init_from(unsigned int header, const struct fanin_init_opts *opts, fanin_ctx **ctx)
{
	struct fanin_init_opts options = { 0 };
	char text[FANIN_TEXT_LEN];
	struct fanin_ctx *created;
	uint32_t receive_buffer;
	const int status = fanin_caller_check(header, text, sizeof(text));

	if (status != FANIN_OK) {
		/* This field has been there in all headers, and is in all later ones. */
		if (opts != NULL && opts->print != NULL)
			opts->print(FANIN_LOG_ERROR, text, opts->print_arg);
		return status;
	}
	if (ctx == NULL || (opts != NULL && !fanin_options_copy(&options, sizeof(options), opts)))
		return FANIN_ERR_INVALID;
	if (options.transport == NULL)
		options.transport = "auto";
	if (!fanin_transport_known(options.transport) ||
	    !background_from_environment(&options.background_progress) ||
	    !buffer_from_environment(&receive_buffer))
		return FANIN_ERR_INVALID;

	created = calloc(1, sizeof(*created));
	if (created == NULL)
		return FANIN_ERR_NO_MEMORY;
	if (options.print != NULL)
		created->log = (struct fanin_log){ print_line, created };
	created->print = options.print;
	created->print_arg = options.print_arg;
	pthread_mutex_init(&created->print_lock, NULL);
	created->background = options.background_progress;
	created->receive_buffer = receive_buffer;
	created->interrupt = options.interrupt;
	created->interrupt_arg = options.interrupt_arg;
	/* Without a descriptor the callback is called in time, but not at once. */
	created->interrupt_fd = options.interrupt != NULL ? eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)
							  : -1;
	strncpy(created->transport, options.transport, sizeof(created->transport) - 1);
	*ctx = created;
	return FANIN_OK;
}

void
fanin_finalize(fanin_ctx *ctx)
{
	if (ctx == NULL)
		return;
	fanin_progress_stop(ctx);
	/* All at once: ranks need not have joined their jobs in the same order. */
	for (struct fanin_comm *comm = ctx->comms; comm != NULL; comm = comm->next)
		fanin_comm_close_begin(comm);
	while (ctx->comms != NULL)
		fanin_leave(ctx->comms->owner != NULL ? ctx->comms->owner : ctx->comms);
	pthread_mutex_destroy(&ctx->print_lock);
	if (ctx->interrupt_fd >= 0)
		close(ctx->interrupt_fd);
	free(ctx);
}

int
fanin_ctx_attach(struct fanin_ctx *ctx, struct fanin_comm *comm, struct fanin_error *error)
{
	int status = FANIN_OK;

	if (ctx->background || comm->protocol->has_duties)
		status = fanin_progress_start(ctx, error);
	if (status != FANIN_OK)
		return status;
	fanin_ctx_lock(ctx);
	comm->next = ctx->comms;
	ctx->comms = comm;
	fanin_ctx_wake(ctx);
	fanin_ctx_unlock(ctx);
	return FANIN_OK;
}

void
fanin_ctx_detach(struct fanin_ctx *ctx, const struct fanin_comm *comm)
{
	struct fanin_comm **link = &ctx->comms;

	while (*link != NULL && *link != comm)
		link = &(*link)->next;
	if (*link != NULL)
		*link = comm->next;
}

unsigned int
fanin_ctx_poll(struct fanin_ctx *ctx, int *status)
{
	unsigned int frames = 0;
	int last = FANIN_OK;

	for (struct fanin_comm *comm = ctx->comms; comm != NULL; comm = comm->next) {
		int n = comm->ops->poll(comm);

		if (comm->manager != NULL)
			fanin_manager_poll(comm->manager);
		if (n >= 0) {
			frames += (unsigned int)n;
			continue;
		}
		last = n;
		if (comm->owner != NULL)
			fanin_comm_multicast_failed(comm, n);
	}
	if (status != NULL)
		*status = last;
	return frames;
}

void
fanin_ctx_polled(struct fanin_ctx *ctx)
{
	if (ctx->progress == NULL)
		return;
	for (const struct fanin_comm *comm = ctx->comms; comm != NULL; comm = comm->next) {
		if (comm->requests != NULL || comm->protocol->has_duties) {
			fanin_ctx_wake(ctx);
			return;
		}
	}
}

int
fanin_progress(fanin_ctx *ctx)
{
	unsigned int frames;
	int status;

	if (ctx == NULL)
		return FANIN_ERR_INVALID;
	fanin_ctx_lock(ctx);
	frames = fanin_ctx_poll(ctx, &status);
	fanin_ctx_polled(ctx);
	fanin_ctx_unlock(ctx);
	return status < 0 ? status : (int)frames;
}

void
fanin_ctx_clear_errors(const struct pollfd *fds, unsigned int n)
{
	for (unsigned int i = 0; i < n; i++) {
		socklen_t len = sizeof(int);
		int errnum;

		if ((fds[i].revents & POLLERR) != 0)
			getsockopt(fds[i].fd, SOL_SOCKET, SO_ERROR, &errnum, &len);
	}
}

unsigned int
fanin_ctx_poll_fds(struct fanin_ctx *ctx, struct pollfd *fds, uint64_t *sleep_ns)
{
	unsigned int n = 0;

	*sleep_ns = WAIT_SLEEP_NS;
	for (struct fanin_comm *comm = ctx->comms; comm != NULL; comm = comm->next) {
		uint64_t idle_ns = comm->ops->idle_ns(comm);

		if (idle_ns < *sleep_ns)
			*sleep_ns = idle_ns;
		if (n + fanin_comm_max_fds(comm) <= FANIN_CTX_MAX_FDS)
			n += comm->ops->poll_fds(comm, fds + n);
		else
			*sleep_ns = 0;
	}
	return n;
}

/* Sleeps until a frame comes in, a timer is due or a signal arrives. */
static void
ctx_sleep(struct fanin_ctx *ctx)
{
	struct pollfd fds[FANIN_CTX_MAX_FDS + 1];
	struct timespec timeout = { 0 };
	uint64_t sleep_ns;
	const unsigned int n = fanin_ctx_poll_fds(ctx, fds, &sleep_ns);

	/* poll() ignores a descriptor of -1. */
	fds[n] = (struct pollfd){ .fd = ctx->interrupt_fd, .events = POLLIN };
	timeout.tv_nsec = (long)sleep_ns;
	ctx->sleeps++;
	if (ppoll(fds, n + 1, &timeout, NULL) > 0)
		fanin_ctx_clear_errors(fds, n);
}

void
fanin_ctx_interrupt(fanin_ctx *ctx)
{
	const uint64_t one = 1;

	if (ctx == NULL)
		return;
	/* In this order: whoever sees that it was asked empties the descriptor. */
	if (ctx->interrupt_fd >= 0)
		(void)!write(ctx->interrupt_fd, &one, sizeof(one));
	__atomic_store_n(&ctx->interrupt_asked, 1, __ATOMIC_RELEASE);
}

/* Returns true once if fanin_ctx_interrupt was called. */
static bool
ctx_is_asked(struct fanin_ctx *ctx)
{
	uint64_t count;

	if (__atomic_load_n(&ctx->interrupt_asked, __ATOMIC_RELAXED) == 0)
		return false;
	if (ctx->interrupt_fd >= 0)
		(void)!read(ctx->interrupt_fd, &count, sizeof(count));
	return __atomic_exchange_n(&ctx->interrupt_asked, 0, __ATOMIC_ACQUIRE) != 0;
}

static bool
ctx_interrupted(struct fanin_ctx *ctx)
{
	struct timespec now;
	uint64_t now_ns;

	if (ctx->interrupt == NULL)
		return false;
	clock_gettime(CLOCK_MONOTONIC_COARSE, &now);
	now_ns = (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
	if (!ctx_is_asked(ctx) && now_ns < ctx->interrupt_next_ns)
		return false;
	ctx->interrupt_next_ns = now_ns + INTERRUPT_NS;
	return ctx->interrupt(ctx->interrupt_arg);
}

/* Returns the number of yields before sleeping. */
static unsigned int
ctx_yields(const struct fanin_ctx *ctx)
{
	for (const struct fanin_comm *comm = ctx->comms; comm != NULL; comm = comm->next) {
		if (comm->transport != NULL && comm->transport->ops->shares_memory)
			return WAIT_YIELDS_SHARED;
	}
	return WAIT_YIELDS;
}

int
fanin_ctx_wait(struct fanin_ctx *ctx, const struct fanin_request *request, uint64_t deadline_ns)
{
	const unsigned int yields = ctx_yields(ctx);
	unsigned int empty = 0;

	while (request->status == FANIN_IN_PROGRESS) {
		if (ctx_interrupted(ctx))
			return FANIN_ERR_INTERRUPTED;
		if (fanin_ctx_poll(ctx, NULL) != 0) {
			empty = 0;
			continue;
		}
		empty++;
		if (deadline_ns != UINT64_MAX && fanin_now_ns(NULL) >= deadline_ns)
			return FANIN_IN_PROGRESS;
		if (empty > yields) {
			ctx_sleep(ctx);
		} else {
			ctx->yields++;
			sched_yield();
		}
	}
	return request->status;
}

const char *
fanin_ctx_error(const fanin_ctx *ctx)
{
	return ctx == NULL ? "" : ctx->error.text;
}

uint64_t
fanin_ctx_missing(const fanin_ctx *ctx)
{
	return ctx == NULL ? 0 : ctx->error.missing.words[0];
}

size_t
fanin_ctx_missing_ranks(const fanin_ctx *ctx, uint16_t *ranks, size_t n)
{
	return ctx == NULL ? 0 : fanin_list_ranks(&ctx->error.missing, ranks, n);
}
