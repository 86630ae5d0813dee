/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Loads the embedded XDP program and attaches it to an interface. The attachment is a BPF link: it
 * is removed with the process, however the process ends, and never replaces another program.
 */
#ifndef FANIN_HOSTLIB_XDP_PROGRAM_H
#define FANIN_HOSTLIB_XDP_PROGRAM_H

#include <stdbool.h>

#include "transport.h"

struct bpf_object;

struct fanin_xdp_program {
	struct bpf_object *object;
	int link_fd;           /* -1: not attached */
	int map_fd;            /* XSKMAP by receive queue */
	bool native;           /* attached in the driver, not in the generic path */
	char native_error[64]; /* why it is not attached in the driver */
};

/*
 * Attaches the program, which takes effect at once, but passes everything to the kernel until
 * sockets are in the map.
 *
 * program: set on success only; end with fanin_xdp_program_close. Returns FANIN_OK,
 * FANIN_ERR_TRANSPORT, FANIN_ERR_PERMISSION or FANIN_ERR_NO_MEMORY. Thread-safe: libbpf's messages,
 * which are global, are serialised.
 */
int fanin_xdp_program_open(const struct fanin_transport_config *config,
			   struct fanin_xdp_program *program, struct fanin_error *error);

/*
 * False if another process has detached it by its link, or the interface is gone; `ip link` and
 * programs that attach others can't detach it. Any thread.
 */
bool fanin_xdp_program_is_attached(const struct fanin_xdp_program *program);

/* Detaches and unloads. */
void fanin_xdp_program_close(struct fanin_xdp_program *program);

#endif
