/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The daemon's configuration: a JSON file, read once at start and constant afterwards. Every key is
 * checked for spelling, type and range; an error names the file, the path of the key, what was
 * found and what is expected.
 */
#ifndef FANIN_SWITCH_CONFIG_CONFIG_H
#define FANIN_SWITCH_CONFIG_CONFIG_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#include "control/control.h"
#include "control/log.h"
#include "control/interface/interface.h"

#define CONFIG_NAME_LEN 32
#define CONFIG_DEVICE_LEN 256
#define CONFIG_PATH_LEN 108
#define CONFIG_ENDPOINT_LEN 64
#define CONFIG_MEMIF_SUFFIX_LEN 8 /* room for suffixes that are appended to memif.socket */
#define CONFIG_MAX_PORTS 64
#define CONFIG_MAX_WORKERS 16
#define CONFIG_ERROR_LEN 512
#define CONFIG_MAX_ROUTES 256
#define CONFIG_MAX_NEXT_HOPS 16
#define CONFIG_MAX_MTU 61184 /* DPDK keeps a buffer's length, all included, in 16 bits */
/* Frames of full length that may queue for a port without queue_bytes. */
#define CONFIG_QUEUE_FRAMES 256
#define CONFIG_MAX_QUEUE (1 << 28) /* maximum bytes of a port's queue, and of its bucket */

enum config_hugepages {
	CONFIG_HUGEPAGES_AUTO,
	CONFIG_HUGEPAGES_ALWAYS,
	CONFIG_HUGEPAGES_NEVER,
};

enum config_idle {
	CONFIG_IDLE_YIELD,
	CONFIG_IDLE_SPIN,
	CONFIG_IDLE_SLEEP,
};

enum config_policy {
	CONFIG_POLICY_DISPATCH,
	CONFIG_POLICY_RSS,
};

struct config_port {
	char name[CONFIG_NAME_LEN];
	char device[CONFIG_DEVICE_LEN]; /* vdev devargs, or a PCI address */
	bool pci;
	bool memif;   /* the vdev net_memif, as server */
	bool by_rule; /* the file names an interface, and the switch chose the driver */
	char why[INTERFACE_WHY_LEN]; /* reason for the choice, if by_rule */
	uint16_t memif_id;           /* the number with which a host connects to this port */
	uint16_t mtu;                /* bytes, 576 to CONFIG_MAX_MTU */
	bool routed;                 /* leads to another switch */
	uint32_t rate_mbit;          /* limits of the egress queue; 0: the default of each */
	uint32_t bucket_bytes;
	uint32_t queue_bytes;
	uint32_t ecn_bytes;
	uint32_t detour_bytes;
};

struct config_prefix {
	uint32_t ip_be; /* network order; the host bits are 0 */
	uint8_t len;    /* 0 to 32 */
};

struct config_next_hop {
	char port_name[CONFIG_NAME_LEN];
	uint16_t port; /* index in ports; a routed one */
	uint32_t ip_be;
};

struct config_route {
	struct config_prefix prefix;
	struct config_next_hop via[CONFIG_MAX_NEXT_HOPS];
	uint16_t n_via;
};

struct config_worker {
	uint16_t lcore; /* DPDK's number */
	uint16_t cpu;   /* the core that it runs on; several workers may share one */
};

struct config {
	char name[CONFIG_NAME_LEN];
	uint32_t ip_be;      /* the switch's own address, network order */
	uint16_t prefix_len; /* of the subnet that it shares with the hosts */
	uint8_t mac[6];
	uint16_t udp_port; /* host order */
	char control_socket[CONFIG_PATH_LEN];
	char metrics_listen[CONFIG_ENDPOINT_LEN]; /* "IP:PORT"; empty: none */
	char control_listen[CONFIG_NAME_LEN * 2]; /* ADDRESS:PORT; empty: no control over TCP */
	char control_token_file[CONFIG_DEVICE_LEN];
	/* Empty: no TLS; then the next two are empty, too. */
	char tls_certificate[CONFIG_DEVICE_LEN];
	char tls_key[CONFIG_DEVICE_LEN];
	char tls_ca[CONFIG_DEVICE_LEN];
	enum log_level log_level;
	enum config_hugepages hugepages;
	uint32_t memory_megabytes;
	uint32_t mbufs; /* 0: as many as ports and slots need */
	uint32_t mbuf_cache;
	struct config_worker workers[CONFIG_MAX_WORKERS];
	uint16_t n_workers;
	enum config_policy policy;
	uint16_t cluster_size; /* S: workers that share a block */
	uint64_t tree_up_to; /* maximum message sizes for the handlers that "auto" chooses, bytes */
	uint64_t multi2_up_to;
	uint64_t multi4_up_to;
	enum config_idle idle_policy;
	uint32_t idle_empty_polls;
	uint32_t idle_sleep_us;
	uint16_t max_jobs;
	uint32_t slots;        /* of all jobs together */
	uint32_t shared_slots; /* of all jobs of a handler together */
	uint32_t key_rate;     /* packets per second and port that each worker admits by key */
	uint32_t mac_entries;
	uint32_t mac_age_seconds;
	uint32_t probe_ms;     /* between probes of a next hop */
	uint32_t probe_misses; /* missed probes in a row after which a next hop is dead */
	char memif_socket[CONFIG_PATH_LEN - CONFIG_MEMIF_SUFFIX_LEN];
	struct config_port ports[CONFIG_MAX_PORTS];
	uint16_t n_ports;
	struct config_route routes[CONFIG_MAX_ROUTES];
	uint16_t n_routes;
	double fault_drop; /* shares of Fanin packets, 0 to 1 */
	double fault_duplicate;
	double fault_reorder;
	uint64_t fault_seed;
};

/*
 * Reads and validates a file.
 *
 * config: filled on success only. error: CONFIG_ERROR_LEN bytes; on failure one line like
 * "sw.json: ports[1].mtu: found 70000, expected an integer from 576 to 61184".
 * Returns 0, or -errno: -ENOENT and the like for the file itself, -EINVAL for its content.
 */
int config_load(const char *path, struct config *config, char *error);

/* Reads a configuration from text; errors name `source` instead of a file's path. */
int config_parse(const char *text, size_t len, const char *source, struct config *config,
		 char *error);

/*
 * Checks a configuration against this machine: the workers' CPUs; that each port's driver, and the
 * network interface of a vdev's iface= argument, exist, and that the MTU fits them; token file, TLS
 * files and the addresses to listen on. May be called while a switch runs. Same error contract;
 * -ENODEV for a missing interface, device or driver, -EINVAL for the others.
 */
int config_check_machine(const struct config *config, const char *source, char *error);

/*
 * Checks a port's MTU against its driver and its interface, which may change while the switch runs.
 * index: in config->ports. Same error contract; source NULL: the error begins with the key's path.
 */
int config_check_mtu(const struct config_port *port, unsigned int index, const char *source,
		     char *error);

/* True if DPDK has a driver for a virtual device ("net_null1,size=64"). Reads files; any thread. */
bool config_driver_exists(const char *device);

/* Returns the directory of DPDK's drivers. */
const char *config_driver_directory(void);

/* Returns the options of the TCP control listener; borrowed from the configuration. */
struct control_tcp config_control_tcp(const struct config *config);

/*
 * Returns the key by which the file names a port's device: "interface", "vdev", "pci" or "memif".
 */
const char *config_port_key(const struct config_port *port);

/* True if there is a memif port. */
bool config_has_memif(const struct config *config);

/* True if the port's device attaches to an existing interface. A tap device makes its own. */
bool config_port_attaches(const struct config_port *port);

/* True if the port's device is net_af_xdp. */
bool config_port_is_af_xdp(const struct config_port *port);

/* True if the port's device is net_af_packet, which the switch opens itself. */
bool config_port_is_packet(const struct config_port *port);

/*
 * Finds the interface that a virtual device attaches to.
 *
 * interface: size bytes, set if there is one. Returns true if the devargs have an iface= argument.
 */
bool config_vdev_interface(const char *devargs, char *interface, size_t size);

#endif
