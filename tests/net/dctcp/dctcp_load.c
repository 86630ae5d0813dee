/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Gives this machine's TCP the congestion control of dctcp.bpf.c, under the name fanin_dctcp, until
 * SIGTERM or SIGINT. "ready" on standard output says that it is there. The kernel keeps what a
 * killed process has registered: the next one takes that away first.
 *
 * dctcp-load OBJECT
 */
#include <errno.h>
#include <signal.h>
#include <stdint.h>
#include <stdio.h>
#include <string.h>
#include <unistd.h>

#include <bpf/bpf.h>
#include <bpf/libbpf.h>

#define MAP_NAME "dctcp"

static void
remove_registered(void)
{
	const uint32_t key = 0;
	uint32_t id = 0;

	while (bpf_map_get_next_id(id, &id) == 0) {
		struct bpf_map_info info = { 0 };
		uint32_t len = sizeof(info);
		int fd = bpf_map_get_fd_by_id(id);

		if (fd < 0)
			continue;
		if (bpf_obj_get_info_by_fd(fd, &info, &len) == 0 &&
		    info.type == BPF_MAP_TYPE_STRUCT_OPS && strcmp(info.name, MAP_NAME) == 0)
			bpf_map_delete_elem(fd, &key);
		close(fd);
	}
}

int
main(int argc, char **argv)
{
	struct bpf_object *object;
	struct bpf_link *link;
	struct bpf_map *map;
	sigset_t signals;
	int signum;

	if (argc != 2) {
		fprintf(stderr, "usage: dctcp-load OBJECT\n");
		return 2;
	}
	sigemptyset(&signals);
	sigaddset(&signals, SIGTERM);
	sigaddset(&signals, SIGINT);
	sigprocmask(SIG_BLOCK, &signals, NULL);
	remove_registered();
	object = bpf_object__open_file(argv[1], NULL);
	if (object == NULL || bpf_object__load(object) != 0) {
		fprintf(stderr, "dctcp-load: %s: %s\n", argv[1], strerror(errno));
		return 1;
	}
	map = bpf_object__find_map_by_name(object, MAP_NAME);
	link = map == NULL ? NULL : bpf_map__attach_struct_ops(map);
	if (link == NULL) {
		fprintf(stderr, "dctcp-load: the kernel does not take the congestion control: %s\n",
			strerror(errno));
		return 1;
	}
	printf("ready\n");
	fflush(stdout);
	sigwait(&signals, &signum);
	bpf_link__destroy(link);
	bpf_object__close(object);
	return 0;
}
