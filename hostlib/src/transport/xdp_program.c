/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads and attaches the XDP program with libbpf. libbpf's output goes to the context's print
 * callback, at most as a warning: the caller decides whether a failure is an error or a reason to
 * take another transport. See xdp_program.h.
 */
#include "xdp_program.h"

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <errno.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <pthread.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include "wire/wire.h"
#include "xdp_filter_object.h"

/* The program reads the job at this offset. */
static_assert(offsetof(struct fanin_hdr, job) == 4, "struct fanin_start in xdp_filter.bpf.c");

static pthread_mutex_t libbpf_mutex = PTHREAD_MUTEX_INITIALIZER;
static const struct fanin_log *libbpf_log; /* log of the thread that holds the mutex */

static int __attribute__((format(printf, 2, 0)))
libbpf_line(enum libbpf_print_level level, const char *format, va_list args)
{
	if (libbpf_log != NULL)
		fanin_log_va(libbpf_log, level == LIBBPF_WARN ? FANIN_LOG_WARNING : FANIN_LOG_DEBUG,
			     format, args);
	return 0;
}

/*
 * Sets the program's constants. They are in its read-only data, in the order of their declaration.
 */
static int
constants_set(struct bpf_object *object, const struct fanin_transport_config *config)
{
	struct {
		uint16_t udp_port;
		uint16_t data_port;
		uint32_t job;
		uint8_t mac[6];
		uint8_t end[2]; /* the map has the size of the fields before it */
	} constants = {
		.udp_port = config->udp_port,
		.data_port = config->data_port,
		.job = config->job,
	};
	struct bpf_map *map;
	const size_t len = sizeof(constants) - sizeof(constants.end);

	memcpy(constants.mac, config->local_mac, sizeof(constants.mac));

	bpf_object__for_each_map(map, object)
	{
		if (strstr(bpf_map__name(map), ".rodata") != NULL)
			return bpf_map__set_initial_value(map, &constants, len);
	}
	return -ENOENT;
}

static int
program_load(const struct fanin_transport_config *config, struct fanin_xdp_program *program,
	     struct fanin_error *error)
{
	LIBBPF_OPTS(bpf_object_open_opts, opts, .object_name = "fanin");
	int status;

	program->object = bpf_object__open_mem(fanin_xdp_filter_object,
					       sizeof(fanin_xdp_filter_object), &opts);
	if (program->object == NULL)
		return fanin_error_set(error, fanin_status_from_errno(errno, FANIN_ERR_TRANSPORT),
				       "cannot open the XDP program: %s", strerror(errno));
	status = constants_set(program->object, config);
	if (status < 0)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "cannot configure the XDP program: %s", strerror(-status));
	status = bpf_object__load(program->object);
	if (status == -EPERM || status == -EACCES)
		return fanin_error_set(error, FANIN_ERR_PERMISSION,
				       "loading an XDP program needs CAP_BPF and CAP_NET_ADMIN");
	if (status < 0)
		return fanin_error_set(error, fanin_status_from_errno(-status, FANIN_ERR_TRANSPORT),
				       "the kernel refused the XDP program: %s", strerror(-status));
	program->map_fd = bpf_object__find_map_fd_by_name(program->object, "fanin_sockets");
	return FANIN_OK;
}

/* Attaches in the driver if it can, else generically. */
static int
program_attach(const struct fanin_transport_config *config, struct fanin_xdp_program *program,
	       struct fanin_error *error)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);
	LIBBPF_OPTS(bpf_link_create_opts, native, .flags = XDP_FLAGS_DRV_MODE);
	LIBBPF_OPTS(bpf_link_create_opts, generic, .flags = XDP_FLAGS_SKB_MODE);
	int fd = bpf_program__fd(bpf_object__find_program_by_name(program->object, "fanin_filter"));

	if (bpf_xdp_query(config->ifindex, 0, &query) == 0 &&
	    query.attach_mode != XDP_ATTACHED_NONE)
		return fanin_error_set(error, FANIN_ERR_TRANSPORT,
				       "another XDP program (id %u) is attached to %s",
				       query.prog_id != 0 ? query.prog_id : query.drv_prog_id,
				       config->interface);

	program->native = true;
	program->link_fd = bpf_link_create(fd, config->ifindex, BPF_XDP, &native);
	if (program->link_fd >= 0)
		return FANIN_OK;
	snprintf(program->native_error, sizeof(program->native_error), "%s",
		 errno == ERANGE ? "the MTU is too large for the driver" : strerror(errno));
	program->native = false;
	program->link_fd = bpf_link_create(fd, config->ifindex, BPF_XDP, &generic);
	if (program->link_fd >= 0)
		return FANIN_OK;
	return fanin_error_set(error, fanin_status_from_errno(errno, FANIN_ERR_TRANSPORT),
			       "cannot attach the XDP program to %s: native: %s, generic: %s",
			       config->interface, program->native_error, strerror(errno));
}

int
fanin_xdp_program_open(const struct fanin_transport_config *config,
		       struct fanin_xdp_program *program, struct fanin_error *error)
{
	struct fanin_xdp_program opened = { .link_fd = -1, .map_fd = -1 };
	libbpf_print_fn_t previous;
	int status;

	pthread_mutex_lock(&libbpf_mutex);
	libbpf_log = config->log;
	previous = libbpf_set_print(libbpf_line);
	status = program_load(config, &opened, error);
	if (status == FANIN_OK)
		status = program_attach(config, &opened, error);
	libbpf_set_print(previous);
	libbpf_log = NULL;
	pthread_mutex_unlock(&libbpf_mutex);

	if (status == FANIN_OK)
		*program = opened;
	else
		fanin_xdp_program_close(&opened);
	return status;
}

bool
fanin_xdp_program_is_attached(const struct fanin_xdp_program *program)
{
	struct bpf_link_info info = { 0 };
	uint32_t len = sizeof(info);

	/* A link that was detached remains, without an interface. */
	return bpf_obj_get_info_by_fd(program->link_fd, &info, &len) != 0 || info.xdp.ifindex != 0;
}

void
fanin_xdp_program_close(struct fanin_xdp_program *program)
{
	if (program->link_fd >= 0)
		close(program->link_fd);
	program->link_fd = -1;
	bpf_object__close(program->object);
	program->object = NULL;
}
