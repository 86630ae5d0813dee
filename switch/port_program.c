/* SPDX-License-Identifier: BSD-3-Clause */
/* See port_program.h. */
#include "switch/port_program.h"

#include <errno.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>
#include <linux/bpf.h>
#include <linux/if_link.h>
#include <xdp/libxdp.h>

#define MAX_MAPS 16

/*
 * Returns the id of the program that is attached to an interface; 0: none, or the kernel does not
 * say.
 */
static uint32_t
attached_id(unsigned int ifindex, bool *generic)
{
	LIBBPF_OPTS(bpf_xdp_query_opts, query);

	if (bpf_xdp_query((int)ifindex, 0, &query) != 0)
		return 0;
	*generic = query.attach_mode == XDP_ATTACHED_SKB;
	return query.prog_id != 0 ? query.prog_id : query.drv_prog_id;
}

/*
 * Counts the maps of AF_XDP sockets that a program uses. *map_fd: a new file descriptor of the
 * first one, if it was -1.
 */
static unsigned int
sockets_of(int program_fd, int *map_fd)
{
	uint32_t ids[MAX_MAPS];
	struct bpf_prog_info info = { .nr_map_ids = MAX_MAPS, .map_ids = (uintptr_t)ids };
	uint32_t len = sizeof(info);
	unsigned int n = 0;

	if (bpf_obj_get_info_by_fd(program_fd, &info, &len) != 0)
		return 0;
	for (uint32_t i = 0; i < info.nr_map_ids && i < MAX_MAPS; i++) {
		struct bpf_map_info map = { 0 };
		int fd = bpf_map_get_fd_by_id(ids[i]);
		bool has_sockets;

		len = sizeof(map);
		has_sockets = fd >= 0 && bpf_obj_get_info_by_fd(fd, &map, &len) == 0 &&
			      map.type == BPF_MAP_TYPE_XSKMAP;
		n += has_sockets;
		if (has_sockets && *map_fd < 0)
			*map_fd = fd;
		else if (fd >= 0)
			close(fd);
	}
	return n;
}

/*
 * Returns the next program of a dispatcher, or the only program if there is no dispatcher; NULL: no
 * more.
 */
static struct xdp_program *
next_program(const struct xdp_multiprog *all, const struct xdp_program *before)
{
	if (!xdp_multiprog__is_legacy(all))
		return xdp_multiprog__next_prog(before, all);
	return before == NULL ? xdp_multiprog__main_prog(all) : NULL;
}

int
port_program_find(unsigned int ifindex, struct port_program *program, char *text)
{
	struct port_program found = PORT_PROGRAM_NONE;
	struct xdp_multiprog *all = xdp_multiprog__get_from_ifindex((int)ifindex);
	struct xdp_program *one = NULL;
	unsigned int n_maps = 0;

	snprintf(text, PORT_PROGRAM_TEXT_LEN, "no XDP program of its driver is found");
	if (libxdp_get_error(all) != 0)
		return -ENOENT;
	found.attached = attached_id(ifindex, &found.generic);
	while ((one = next_program(all, one)) != NULL) {
		const unsigned int n = sockets_of(xdp_program__fd(one), &found.map_fd);

		if (n != 0)
			found.own = xdp_program__id(one);
		n_maps += n;
	}
	if (n_maps == 1 && xdp_multiprog__is_legacy(all))
		found.own_fd = bpf_prog_get_fd_by_id(found.own);
	xdp_multiprog__close(all);
	if (n_maps != 1) {
		if (n_maps != 0)
			snprintf(
				text, PORT_PROGRAM_TEXT_LEN,
				"its XDP programs have %u maps of AF_XDP sockets, expected one: it is not known which has the port's",
				n_maps);
		port_program_release(&found);
		return -ENOENT;
	}
	*program = found;
	return 0;
}

/*
 * True if a dispatcher at the interface calls the program. Other users add their programs by making
 * another dispatcher.
 */
static bool
is_called(const struct port_program *program, unsigned int ifindex)
{
	struct xdp_multiprog *all = xdp_multiprog__get_from_ifindex((int)ifindex);
	struct xdp_program *one = NULL;
	bool found = false;

	if (libxdp_get_error(all) != 0)
		return false;
	while (!found && (one = next_program(all, one)) != NULL)
		found = xdp_program__id(one) == program->own;
	xdp_multiprog__close(all);
	return found;
}

static void
name_of(uint32_t id, char *name, size_t len)
{
	struct bpf_prog_info info = { 0 };
	uint32_t info_len = sizeof(info);
	int fd = bpf_prog_get_fd_by_id(id);

	snprintf(name, len, "?");
	if (fd < 0)
		return;
	if (bpf_obj_get_info_by_fd(fd, &info, &info_len) == 0 && info.name[0] != '\0')
		snprintf(name, len, "%.*s", (int)sizeof(info.name), info.name);
	close(fd);
}

enum port_program_state
port_program_look(struct port_program *program, unsigned int ifindex, uint32_t id, char *text)
{
	char name[BPF_OBJ_NAME_LEN + 1];

	if (id != 0 && id == program->attached)
		return PORT_PROGRAM_ATTACHED;
	if (id == 0) {
		snprintf(text, PORT_PROGRAM_TEXT_LEN, "its XDP program (id %u) was taken off",
			 program->attached);
		return PORT_PROGRAM_OFF;
	}
	if (is_called(program, ifindex)) {
		program->attached = id;
		return PORT_PROGRAM_ATTACHED;
	}
	name_of(id, name, sizeof(name));
	snprintf(text, PORT_PROGRAM_TEXT_LEN,
		 "another XDP program, \"%s\" (id %u), has taken the place of its own (id %u)",
		 name, id, program->attached);
	return PORT_PROGRAM_FOREIGN;
}

/*
 * Loads a program that passes each frame to the socket of its queue, or to the kernel if there is
 * none.
 */
static int
program_load(int map_fd)
{
	const struct bpf_insn code[] = {
		/* r2 = ctx->rx_queue_index */
		{ .code = BPF_LDX | BPF_MEM | BPF_W,
		  .dst_reg = BPF_REG_2,
		  .src_reg = BPF_REG_1,
		  .off = offsetof(struct xdp_md, rx_queue_index) },
		/* r1 = the map, in two instructions */
		{ .code = BPF_LD | BPF_IMM | BPF_DW,
		  .dst_reg = BPF_REG_1,
		  .src_reg = BPF_PSEUDO_MAP_FD,
		  .imm = map_fd },
		{ .code = 0 },
		/* r3 = action without a socket */
		{ .code = BPF_ALU64 | BPF_MOV | BPF_K, .dst_reg = BPF_REG_3, .imm = XDP_PASS },
		{ .code = BPF_JMP | BPF_CALL, .imm = BPF_FUNC_redirect_map },
		{ .code = BPF_JMP | BPF_EXIT },
	};
	int fd = bpf_prog_load(BPF_PROG_TYPE_XDP, "fanin_port", "Dual BSD/GPL", code,
			       sizeof(code) / sizeof(code[0]), NULL);

	return fd < 0 ? -errno : fd;
}

int
port_program_attach(struct port_program *program, unsigned int ifindex, char *text)
{
	LIBBPF_OPTS(bpf_link_create_opts, opts,
		    .flags = program->generic ? XDP_FLAGS_SKB_MODE : XDP_FLAGS_DRV_MODE);
	bool generic;
	int link_fd, fd;

	fd = program->own_fd >= 0 ? program->own_fd : program_load(program->map_fd);
	if (fd < 0) {
		snprintf(text, PORT_PROGRAM_TEXT_LEN, "the kernel refuses the program: %s",
			 strerror(-fd));
		return fd;
	}
	program->own_fd = fd;
	/*
	 * A link whose program was detached by the interface's name still exists, but has no
	 * effect.
	 */
	if (program->link_fd >= 0)
		close(program->link_fd);
	program->link_fd = -1;
	link_fd = bpf_link_create(fd, (int)ifindex, BPF_XDP, &opts);
	if (link_fd < 0) {
		const int ret = -errno;

		snprintf(text, PORT_PROGRAM_TEXT_LEN, "the kernel refuses to attach it: %s",
			 strerror(-ret));
		return ret;
	}
	program->link_fd = link_fd;
	program->attached = attached_id(ifindex, &generic);
	program->own = program->attached;
	return 0;
}

void
port_program_release(struct port_program *program)
{
	if (program->link_fd >= 0)
		close(program->link_fd);
	if (program->own_fd >= 0)
		close(program->own_fd);
	if (program->map_fd >= 0)
		close(program->map_fd);
	*program = PORT_PROGRAM_NONE;
}
