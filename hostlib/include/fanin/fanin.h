/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fanin's host library: collectives in the network.
 *
 * The order of calls is fanin_init, fanin_join, then any number of collectives with fanin_test or
 * fanin_wait, fanin_leave, fanin_finalize. Calls with an i, like fanin_iallreduce, post a
 * collective and return at once; calls without it, like fanin_allreduce, also wait for it. Any
 * number of requests may be outstanding.
 *
 * Every member of a job posts the same collectives in the same order, with the same counts, data
 * type, operator and root. Collectives are matched in that order, for each communicator separately.
 * Members that disagree get FANIN_ERR_REFUSED. Members that have posted more collectives than
 * others wait for the others; once these have left, FANIN_ERR_TIMEOUT names them.
 * Requests may be waited for in any order. A context may have several communicators: fanin_test,
 * fanin_wait and fanin_progress move the data of all of them, so that members may wait for requests
 * of different communicators in different orders.
 *
 * All collectives synchronise: none completes at any member before every member has posted it.
 *
 * Threading: a context and everything made from it belong to one thread at a time. Calls on a
 * context, its communicators and requests must not overlap; they may come from different threads if
 * the caller serialises them (with a mutex per context, say). Different contexts are independent.
 * Functions are thread-safe by themselves only where their comment says so.
 *
 * Data moves during fanin_test, fanin_wait, fanin_progress and the blocking collectives. A context
 * may also have a progress thread, which moves data at all other times: if background_progress asks
 * for it, or if a job's protocol must answer other ranks while the application computes. The thread
 * exists while the context has a communicator, sleeps until a frame arrives or a timer is due, and
 * blocks all signals except those of its own faults. The rules above hold unchanged: the library
 * serialises its thread and calls on the context. The buffers of a request are in use until a call
 * has returned that the request is done or has failed. The progress thread may call the print
 * callback, but two threads never call it at once; only the thread that waits calls the interrupt
 * callback.
 */
#ifndef FANIN_FANIN_H
#define FANIN_FANIN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define FANIN_API __attribute__((visibility("default")))

/*
 * Version of this header, which is the version of the library that it belongs to: as text, and as a
 * number that grows with it. A library that is older than the header its caller was compiled with
 * refuses to make a context or a server: see FANIN_ERR_VERSION.
 */
#define FANIN_HEADER_VERSION "0.1.0"
#define FANIN_HEADER_NUMBER (0 * 1000000 + 1 * 1000 + 0)

/* Status of a call. 0 is success, positive is "not yet", negative is an error. */
enum fanin_status {
	FANIN_OK = 0,
	FANIN_IN_PROGRESS = 1,
	FANIN_ERR_INVALID = -1,      /* an argument is invalid */
	FANIN_ERR_NO_MEMORY = -2,    /* out of memory */
	FANIN_ERR_TRANSPORT = -3,    /* no transport could be opened, or it failed */
	FANIN_ERR_NO_ROUTE = -4,     /* the switch's address can't be reached from this host */
	FANIN_ERR_JOIN_REFUSED = -5, /* the switch refused to let this rank in */
	FANIN_ERR_JOIN_TIMEOUT = -6, /* the switch does not answer, or other ranks did not join in
					time */
	/*
	 * there is no kernel for this operator on this data type, or the job's handler lacks this
	 * collective
	 */
	FANIN_ERR_UNSUPPORTED = -7,
	FANIN_ERR_TIMEOUT = -8, /* ranks are gone, or the switch is silent: see fanin_comm_error */
	FANIN_ERR_REFUSED = -9, /* ranks disagree, or the switch refused: see fanin_comm_error */
	FANIN_ERR_SYSTEM = -10, /* a system call failed: see fanin_ctx_error */
	FANIN_ERR_PERMISSION = -11,  /* the transport needs rights: af_packet CAP_NET_RAW, af_xdp
					also CAP_NET_ADMIN and CAP_BPF */
	FANIN_ERR_INTERRUPTED = -12, /* the interrupt callback ended the wait */
	FANIN_ERR_MANAGER = -13,  /* the network manager can't be reached, or sent something invalid
				   */
	FANIN_ERR_CAPACITY = -14, /* a result has more values than the caller has room for */
	FANIN_ERR_VERSION = -15,  /* the library is older than the header of its caller: the print
				     callback gets both versions */
};

enum fanin_dtype {
	FANIN_I8 = 1,
	FANIN_I16,
	FANIN_I32,
	FANIN_I64,
	FANIN_U8,
	FANIN_U16,
	FANIN_U32,
	FANIN_U64,
	FANIN_F16,
	FANIN_BF16,
	FANIN_F32,
	FANIN_F64,
	FANIN_OPAQUE_BASE = 128, /* not a data type itself: see FANIN_OPAQUE */
};

/*
 * The data type of a custom operator (docs/custom-operators.md) with elements of `bytes` bytes, 1
 * to 64.
 */
#define FANIN_OPAQUE(bytes) ((enum fanin_dtype)(FANIN_OPAQUE_BASE + (bytes)))

/*
 * Operators, as in MPI. The logical and bitwise operators are defined on integers only, and the
 * logical ones give 0 or 1. Integer sums and products wrap. FANIN_AVG is the sum divided by the
 * number of ranks, truncated toward zero on integers. f16 and bf16 are rounded to nearest even
 * after every combination, or once if the job accumulates in f32. See docs/operators.md.
 */
enum fanin_op {
	FANIN_SUM = 1,
	FANIN_PROD,
	FANIN_MIN,
	FANIN_MAX,
	FANIN_LAND,
	FANIN_LOR,
	FANIN_LXOR,
	FANIN_BAND,
	FANIN_BOR,
	FANIN_BXOR,
	FANIN_AVG,
	FANIN_CUSTOM_FIRST = 128, /* see FANIN_CUSTOM */
	FANIN_CUSTOM_LAST = 255,
};

/*
 * The custom operator that the switch has registered under this code, 128 to 255. A switch that
 * lacks the operator, or has it for another data type, refuses: FANIN_ERR_REFUSED.
 */
#define FANIN_CUSTOM(code) ((enum fanin_op)(code))

#define FANIN_MAX_TREES 8    /* per job */
#define FANIN_MAX_RANKS 4096 /* per job; a ring has at most 64 */

typedef struct fanin_ctx fanin_ctx;
typedef struct fanin_comm fanin_comm;
typedef struct fanin_request fanin_request;
typedef struct fanin_region fanin_region;

/*
 * Receives one line of diagnostics, without a newline. level: 0 error, 1 warning, 2 info, 3 debug.
 * line: valid during the call. arg: print_arg of the context. The callback must not call this
 * library, nor wait for a lock that a caller of the context may hold: the progress thread may call
 * it, too.
 */
typedef void (*fanin_print_fn)(int level, const char *line, void *arg);

/*
 * Called about ten times a second, after signals, and if fanin_ctx_interrupt asks for it, while a
 * call waits: fanin_join, fanin_wait, a blocking collective or fanin_leave. arg: interrupt_arg of
 * the context. The callback may call fanin_request_progress, but no other function on the context.
 * Returning true ends the call with FANIN_ERR_INTERRUPTED.
 */
typedef bool (*fanin_interrupt_fn)(void *arg);

/*
 * For all structs with sz: set sz to sizeof(struct) and zero the rest; a field that is zero takes
 * its default. sz identifies the version of this header that the caller was compiled with: the
 * library reads the fields of that version and uses the defaults of later ones. A caller that sets
 * a field that its library does not know gets FANIN_ERR_INVALID.
 *
 * Rules for changing these structs, so that callers compiled with any older header keep working:
 * - A field is added behind the last one, reserved bytes included, never between, so that sz grows.
 *   Fields within an older sz keep offset, size and meaning for ever.
 * - Neither padding nor reserved bytes become a field: they are undefined in callers that were
 *   compiled with older headers.
 * - A struct ends without padding: `reserved` fills it up to a multiple of 8. Bytes that a library
 *   does not know are then zero unless the caller set them.
 */
struct fanin_init_opts {
	size_t sz;
	const char *transport; /* "auto" (default), "af_xdp", "af_packet", "udp" or "memif" */
	fanin_print_fn print;  /* default: silent */
	void *print_arg;
	fanin_interrupt_fn interrupt; /* default: only results and timeouts end a wait */
	void *interrupt_arg;
	/*
	 * A thread of the library (see Threading) makes progress on requests and answers other
	 * ranks while the application does not call the library. Default: only if
	 * FANIN_BACKGROUND_PROGRESS in the environment is "1", or if a job's protocol needs it.
	 */
	bool background_progress;
	uint8_t reserved[7]; /* 0; never a field */
};

/* For fanin_join_opts. */
enum fanin_multicast_use {
	FANIN_MULTICAST_AUTO = 0,   /* if multicast is faster and the network supports it: see
				       docs/collectives.md */
	FANIN_MULTICAST_ALWAYS = 1, /* for all broadcasts and allgathers with data; joining fails if
				       the network lacks multicast */
	FANIN_MULTICAST_NEVER = 2,
};

/*
 * A job is found in one of two ways: through the network manager, if job_name is given; or by
 * switch_address, job and key, as printed when the job was created on the switch.
 */
struct fanin_join_opts {
	size_t sz;
	const char *switch_address; /* IPv4 address of the switch, dotted; required without job_name
				     */
	const char *interface;      /* network interface; default: the interface of the route to the
				       switch */
	uint64_t key;               /* the job's key, as given when it was created */
	uint32_t job;               /* the job's number; required without job_name */
	uint16_t rank;              /* 0 to size - 1; with job_name see fixed_rank */
	uint16_t size;              /* ranks in the job; required */
	uint16_t udp_port;          /* default 21930 */
	uint16_t window; /* maximum number of blocks in flight; the job's window is the limit and
			    usually the default */
	uint32_t join_timeout_ms; /* time until all ranks must have joined; default 30000 */
	/*
	 * Longest time without a result before a collective fails with FANIN_ERR_TIMEOUT, default
	 * 5000. It fails only if the switch does not answer, or if a missing rank is gone: its
	 * process has ended or its host does not answer. It waits for ranks that are merely late
	 * (loading data, writing a checkpoint, stopped); see wait_limit_ms. With the handlers push
	 * and canary, whose ranks answer each other, a stopped process counts as gone. If more than
	 * 0.1 s passes between two calls that make progress, a quarter of that time counts, and at
	 * most a twentieth of the timeout.
	 */
	uint32_t timeout_ms;
	bool no_stagger; /* send blocks in order instead of in an order rotated by rank (Flare
			    section 5) */
	/*
	 * Shared memory with a switch on this machine, if memif_socket is given: the path of the
	 * switch's memif socket, the number of the switch's port there, and this host's IPv4
	 * address as a member of the job. Not with `interface`.
	 */
	const char *memif_socket;
	const char *address;
	uint32_t memif_id;
	/*
	 * Resume the collectives if the switch loses the run, because it was restarted or the job
	 * was made anew over other switches. All ranks must set this. Not with memif. Always on
	 * with job_name.
	 */
	bool recover;
	/*
	 * Name of the job at the network manager, 1 to 63 letters, digits, '.', '_' and '-'. The
	 * manager makes the job when all ranks have asked for it. Not with switch_address, job and
	 * key. `address` is then this host's address as the other ranks and the switch know it;
	 * default: the address of `interface`, or of the route to the manager.
	 */
	const char *job_name;
	const char *manager; /* the manager's ADDRESS[:PORT]; default: FANIN_MANAGER, else the
				address in /etc/fanin/fanin.conf */
	const char *token; /* the manager's token; default: FANIN_TOKEN, else the token in that file
			    */
	const char *handler; /* the job's handler; default "auto". "ring": the hosts always reduce
				in a ring */
	bool fixed_rank;     /* `rank` is this host's rank; default: the manager assigns ranks by
				switch, then by address */
	bool reproducible; /* sums in the order of ranks (docs/operators.md): the same bits in every
			      run, on any switches, and after moves. If that is impossible, the join
			      is refused */
	bool accumulate_f32; /* accumulate sums and averages of f16 and bf16 in f32; all hosts must
				be at one switch */
	/*
	 * Fail if there is no reduction tree for the job. Default: its hosts then reduce in a ring
	 * over TCP; a warning and the report say so. If one rank sets this, all fail.
	 */
	bool no_fallback;
	/*
	 * Number of reduction trees that the job asks for, at most FANIN_MAX_TREES; default: the
	 * manager's configured number, usually 1. The blocks of each collective take turns on the
	 * trees, so that a network with several spines carries a part on each. If there are fewer
	 * trees, the job runs on these, and the report says so. All ranks ask for the same number.
	 * Not with AF_XDP and memif.
	 */
	uint16_t trees;
	/*
	 * Longest wait without a result, even if all missing ranks are merely late; then
	 * FANIN_ERR_TIMEOUT names them. 0 (default): no limit.
	 */
	uint64_t wait_limit_ms;
	/*
	 * Every packet between this host and the switch carries a message authentication code, so
	 * that nobody without the job's key can change the results. The job must have been created
	 * with authentication; the manager does so if the ranks ask for it, and all must ask for
	 * the same. A ring has no such codes: a job that has no reduction tree then fails.
	 */
	bool authenticate;
	uint8_t reserved[7]; /* 0; never a field */
	/*
	 * enum fanin_multicast_use: when broadcasts and allgathers use multicast. For this the
	 * ranks join a second job beside this one, with the handler "broadcast" and the name
	 * job_name.multicast: in fanin_join with ALWAYS, otherwise in the first blocking
	 * fanin_broadcast or fanin_allgather that benefits. All ranks give the same value; only
	 * with job_name.
	 */
	uint32_t multicast;
	/*
	 * Number of trees that this second job asks for, at most FANIN_MAX_TREES: the packets of a
	 * collective take turns on them (subgroups, Khalilov et al. section IV.C). Default:
	 * `trees`.
	 */
	uint32_t subgroups;
	/*
	 * The host of each rank, `size` entries that are the same at all ranks; hosts have numbers
	 * from 0 on, in the order of their lowest ranks. Ranks with the same host reduce in shared
	 * memory, and the lowest of them, the leader, takes part in the network's job for all of
	 * them, so that this job has one member for each host (docs/local.md). Such ranks run in
	 * one network namespace and belong to one user: see fanin_host_id. There are at most 256 on
	 * a host, and hosts times the ranks of the largest one are at most 4096. Of broadcasts and
	 * allgathers, multicast AUTO is NEVER. `rank` is this rank's, and with job_name fixed_rank
	 * is set. Regions and custom operators are refused. Default: each rank is a host of its
	 * own.
	 */
	const uint16_t *hosts;
};

/*
 * Report about where and how a communicator's collectives run. The strings belong to the library
 * and live as long as the communicator; the next report may change them.
 */
struct fanin_report {
	size_t sz;
	const char *transport;        /* "af_xdp", "af_packet", "udp", "memif" or "tcp ring" */
	const char *transport_reason; /* why this transport */
	const char *handler;   /* the switch's handler, such as "single"; "ring" without a switch */
	const char *interface; /* with memif, "memif" and the port's number */
	bool in_network;       /* the collectives ran in the switch */
	uint16_t window;       /* blocks in flight, in all trees together */
	uint16_t payload_bytes; /* per packet */
	uint64_t blocks;        /* results received, without duplicates */
	uint64_t bytes_reduced; /* bytes of this rank's contributions */
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t retransmits;
	uint64_t duplicates; /* results that had already been received */
	uint64_t invalid;    /* frames that failed validation */
	/*
	 * Sums and averages of f16 and bf16 are accumulated in f32 and rounded once. Packets then
	 * hold half as many of these elements.
	 */
	bool accumulates_f32;
	uint64_t spurious;   /* retransmits that a second result showed to be unnecessary */
	uint64_t ring_drops; /* frames that the kernel dropped because the receive ring was full */
	uint64_t resumed;    /* runs that the switch lost and that were resumed */
	uint16_t rank;
	uint16_t size;
	const char *mode;            /* "network" or "ring"; "local" if all ranks are on one host */
	const char *mode_reason;     /* why this mode */
	const char *manager;         /* its address; "" if the job was found without one */
	const char *job_name;        /* the job's name at the manager; "" likewise */
	const char *manager_problem; /* why the manager can't be reached, while collectives
					continue; or "" */
	uint32_t manager_reconnects; /* times that the connection to the manager was lost and
					restored */
	uint16_t trees;              /* trees that the collectives run over; 0: in a ring */
	uint16_t trees_asked;
	const char *trees_reason; /* why there are fewer trees; or "" */
	uint64_t queries; /* queries sent to the switch about the state of blocks; counted in
			     frames_sent, too */
	uint64_t late;    /* bitmap of the ranks below 64 for which collectives wait now, as far as
			     known; see n_late */
	bool authenticated; /* packets carry message authentication codes */
	uint8_t reserved[7];
	const char *protocol; /* the host protocol: "window", "sparse window", "pa-atp", "canary",
				 "push", "pull", "multicast", or "ring" without a switch */
	const char *protocol_reason; /* why this protocol */
	uint64_t n_late; /* number of all ranks for which collectives wait now; with several trees,
			    in the tree that waits for most */
	uint64_t sparse_blocks;      /* blocks of sparse allreduces; part of `blocks` */
	uint64_t sparse_elements;    /* indices of these blocks */
	uint64_t sparse_values_sent; /* indices of these at which this rank had a value: the input
					density */
	uint64_t sparse_values_received; /* indices at which the result has a value: the output
					    density */
	uint64_t shards_sent;        /* packets of these blocks, counted each time they were sent */
	uint64_t shards_received;    /* packets of results, each counted once */
	uint64_t shard_bytes_sent;   /* payload of shards_sent */
	uint64_t sparse_dense_bytes; /* payload that dense blocks would have taken */
	/*
	 * Without a switch the fields above count differently: sparse_blocks are collectives,
	 * shards the vectors of all rounds, shard_bytes_sent their bytes, and sparse_dense_bytes
	 * the bytes that the ring's allreduce would have sent.
	 */
	const char *sparse_algorithm; /* "in-network", "recursive-doubling" without a switch, or ""
					 without sparse allreduces */
	uint64_t tcp_bytes_sent; /* data sent to other hosts, for all collectives without a switch
				  */
	uint64_t tcp_bytes_received;
	uint64_t maybe_sparse; /* allreduces with the hint FANIN_MAYBE_SPARSE about which the ranks
				  agreed */
	uint64_t maybe_sparse_taken; /* those of them that ran as sparse allreduces */
	/*
	 * The following fields are for jobs with a parameter server (PA-ATP), otherwise 0. With
	 * several trees, windows and counters are sums over the trees; levels and progress are the
	 * highest of any tree. Callers that poll the report see them change.
	 */
	const char *congestion; /* congestion control: "pa-atp", "atp", ...; "" in other jobs */
	double cwd;             /* congestion window, blocks */
	double awd; /* asynchronous degree window, blocks that this rank may be ahead of results */
	double alpha;           /* congestion level of the path, 0 to 1 */
	double beta;            /* occupancy level of the switch's aggregators, 0 to 1 */
	double progress_degree; /* progress as a multiple of the ranks' average; 1 if that is 0 */
	uint64_t in_flight;     /* blocks that the congestion window counts now */
	uint64_t gacks;         /* acknowledgments of this rank's gradients by the switch */
	uint64_t aacks;         /* results, each counted once */
	uint64_t marks;         /* acknowledgments that reported congestion on the path (ECN) */
	uint64_t aecns;         /* results that reported a shortage of aggregators */
	uint64_t asks_answered; /* gradients sent once more because the server asked for them */
	/*
	 * Work of this rank as a leader or home host, in jobs whose blocks have one. Otherwise 0.
	 */
	uint64_t led_blocks; /* blocks whose result this rank made */
	uint64_t led_direct; /* packets with data that no switch had combined, because no descriptor
				was free or the leader asked for it */
	uint64_t asks;       /* questions to ranks whose data was missing */
	uint64_t restores;   /* results to switches that had no descriptor */
	uint64_t repeats;    /* results to single ranks */
	/* Broadcasts and allgathers by multicast. Counters are 0 without multicast. */
	const char *multicast_reason;  /* why some collectives use multicast, or why none does */
	uint64_t multicast_operations; /* broadcasts and allgathers by multicast that are done */
	uint64_t multicast_packets;    /* packets received, each counted once */
	uint64_t multicast_fetched; /* those of them that another rank sent because they were lost
				     */
	uint64_t multicast_late;    /* packets that were asked for, but arrived by multicast */
	/*
	 * Super-frames, several packets that the kernel took or delivered as one, and the packets
	 * in them; 0 with transports without super-frames. If super-frames are not sent, or no
	 * longer sent, `transport_reason` says why.
	 */
	uint64_t super_frames_sent;
	uint64_t super_frame_packets_sent;
	uint64_t super_frames_received;
	uint64_t super_frame_packets_received;
	/*
	 * Work of the library to move packets, including those of barriers and of leaving. Only the
	 * library's own copies are counted, not the kernel's copies of sent and received data.
	 */
	uint64_t send_calls;    /* system calls that sent */
	uint64_t receive_calls; /* system calls that received, or found nothing */
	uint64_t other_calls;   /* other system calls, such as asking how much waits to be sent */
	uint64_t bytes_copied_out; /* payload copied into packets */
	uint64_t bytes_copied_in;  /* results copied from packets into the vector */
	/* Counts over all communicators of the context, including its progress thread's. */
	uint64_t sleeps; /* waits in the kernel for a frame or a timer */
	uint64_t yields; /* times that the core was yielded for a moment before such a wait */
	/*
	 * With `hosts`. Ranks that are not their host's leader tell of the network only what
	 * joining has told; packets and their payload are counted by leaders. Without a network
	 * handler and protocol are "local", and the transport is "shared memory".
	 */
	uint32_t hosts;       /* of the job; 0: each rank is a host of its own */
	uint32_t local_ranks; /* ranks on this host */
	uint64_t local_bytes; /* of this rank, copied into and out of shared memory */
};

/*
 * Makes a context. Needs no privileges.
 *
 * opts: NULL for the defaults; only read during the call. ctx: set on success only; free with
 * fanin_finalize.
 * Returns FANIN_OK, FANIN_ERR_NO_MEMORY or FANIN_ERR_INVALID; the latter also if the environment
 * variable FANIN_BACKGROUND_PROGRESS is neither "1" nor "0", or FANIN_RECEIVE_BUFFER is not a
 * number of bytes; or FANIN_ERR_VERSION. Thread-safe.
 */
FANIN_API int fanin_init(const struct fanin_init_opts *opts, fanin_ctx **ctx);

/*
 * Does the same for a caller that was compiled with the header of this number. Calls of fanin_init
 * are calls of this function with the caller's own number; callers that were compiled before there
 * was one still find fanin_init.
 */
FANIN_API int fanin_init_from(unsigned int header, const struct fanin_init_opts *opts,
			      fanin_ctx **ctx);
#define fanin_init(...) fanin_init_from(FANIN_HEADER_NUMBER, __VA_ARGS__)

/*
 * Writes a text that processes have in common if their ranks can be on one host of a job, as
 * `hosts` in struct fanin_join_opts says: they run on one machine, in one network namespace, and
 * belong to one user. So containers with addresses of their own are hosts of their own, and those
 * without share memory, whatever their /dev/shm is. Programs compare the texts by their own means,
 * such as MPI or a store.
 *
 * id: receives a terminated text of at most FANIN_HOST_ID_LEN bytes.
 * Returns FANIN_OK, or FANIN_ERR_SYSTEM if the system does not tell. Thread-safe.
 */
#define FANIN_HOST_ID_LEN 128
FANIN_API int fanin_host_id(char id[FANIN_HOST_ID_LEN]);

/*
 * Joins a job and waits until every rank has joined. Chooses the transport.
 *
 * opts: only read during the call. comm: set on success only; free with fanin_leave.
 * Returns FANIN_OK or an error. After an error fanin_ctx_error describes it, and
 * fanin_ctx_missing_ranks lists missing ranks.
 */
FANIN_API int fanin_join(fanin_ctx *ctx, const struct fanin_join_opts *opts, fanin_comm **comm);

/*
 * Joins a job by its name at the configured network manager, with a rank by switch and address:
 * fanin_join with job_name and size. comm and returns are as for fanin_join.
 */
FANIN_API int fanin_join_job(fanin_ctx *ctx, const char *job_name, uint16_t size,
			     fanin_comm **comm);

/*
 * Common to all collectives below.
 *
 * Buffers have elements of dtype, with any alignment. The caller owns them. They must live until
 * the request is done, and data to be sent must stay unchanged until then. Counts are numbers of
 * elements and may be 0: the collective then only synchronises, and buffers may be NULL. Buffers
 * that a rank does not need may be NULL, too. A collective that both sends and receives may be done
 * in place: each element is received where it was sent from. This is the meaning of MPI_IN_PLACE
 * except for reduce_scatter, see there. Buffers must not overlap in any other way.
 *
 * For each collective either all ranks use the blocking call, or all ranks use the non-blocking
 * one.
 *
 * req: set on success only; fanin_wait frees it. Returns FANIN_OK, FANIN_ERR_INVALID,
 * FANIN_ERR_UNSUPPORTED, FANIN_ERR_NO_MEMORY, or the communicator's earlier error. The blocking
 * calls also return what fanin_wait returns; if one is interrupted, the buffers stay in use until
 * fanin_leave. A broadcast or allgather that is interrupted while the ranks still join the second
 * job for multicast posts nothing, and ends the communicator: see fanin_join_opts.multicast.
 */

/*
 * Posts an allreduce: recv[i] = send[i] of rank 0 op ... op send[i] of the last rank, for every
 * rank. send, recv: count elements. In place: send == recv.
 */
FANIN_API int fanin_iallreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			       enum fanin_op op, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_allreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			      enum fanin_op op, fanin_comm *comm);

/* Hints about the vectors of an allreduce. */
#define FANIN_MAYBE_SPARSE 1u /* most elements may be 0 */

/*
 * Posts an allreduce with hints. Hints change how the allreduce is carried out and how long it
 * takes, but not its result. All ranks give the same hints.
 *
 * hints: 0 or FANIN_MAYBE_SPARSE. With FANIN_MAYBE_SPARSE each rank counts the elements that are
 * not 0, and the ranks agree on the largest number by a small allreduce, for which all requests
 * posted later wait. They then send sparse vectors if that is shorter, counting the result as well
 * (docs/collectives.md). A sum of only zeros is then +0.0, whatever their signs are. The hint is
 * ignored if the operator is not sum, and in jobs without sparse vectors. The report counts the
 * hinted allreduces about which the ranks agreed, and those that ran as sparse ones.
 */
FANIN_API int fanin_iallreduce_hinted(const void *send, void *recv, size_t count,
				      enum fanin_dtype dtype, enum fanin_op op, unsigned int hints,
				      fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_allreduce_hinted(const void *send, void *recv, size_t count,
				     enum fanin_dtype dtype, enum fanin_op op, unsigned int hints,
				     fanin_comm *comm);

/*
 * Posts a reduce: an allreduce whose result only the rank `root` gets. send, recv: count elements;
 * other ranks' recv is not used. In place: send == recv at the root.
 */
FANIN_API int fanin_ireduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			    enum fanin_op op, uint16_t root, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_reduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			   enum fanin_op op, uint16_t root, fanin_comm *comm);

/*
 * Posts a reduce_scatter in equal blocks (MPI_Reduce_scatter_block): rank r gets the recv_count
 * elements from r * recv_count on of the reduction of size * recv_count elements. send: size *
 * recv_count elements. recv: recv_count elements. In place: recv points to this rank's elements
 * within send, r * recv_count elements from its start (with MPI_IN_PLACE the result would be at its
 * start).
 */
FANIN_API int fanin_ireduce_scatter(const void *send, void *recv, size_t recv_count,
				    enum fanin_dtype dtype, enum fanin_op op, fanin_comm *comm,
				    fanin_request **req);
FANIN_API int fanin_reduce_scatter(const void *send, void *recv, size_t recv_count,
				   enum fanin_dtype dtype, enum fanin_op op, fanin_comm *comm);

/*
 * Posts a broadcast: the buffer's count elements are copied from the rank `root` to all others, bit
 * by bit.
 */
FANIN_API int fanin_ibroadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root,
			       fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_broadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root,
			      fanin_comm *comm);

/*
 * Posts an allgather: rank r's data is copied to elements r * send_count on of every rank's recv,
 * bit by bit. send: send_count elements. recv: size * send_count elements. In place: send points to
 * this rank's elements within recv.
 */
FANIN_API int fanin_iallgather(const void *send, void *recv, size_t send_count,
			       enum fanin_dtype dtype, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_allgather(const void *send, void *recv, size_t send_count,
			      enum fanin_dtype dtype, fanin_comm *comm);

/* Options of a sparse allreduce. NULL, or a field of 0: the default. */
struct fanin_sparse_opts {
	size_t sz;
	/*
	 * The largest density of any single rank's vector, 0 to 1: the part of its indices that
	 * have values. It determines the number of indices in a block. All ranks give the same
	 * number. It need not be exact: a wrong density only costs packets. Default: the ranks find
	 * it by a small allreduce beforehand, for which all requests posted later wait. Not used
	 * without a switch.
	 */
	double density;
	uint8_t index_bytes; /* bytes of each index, sent and received: 4 (uint32_t, default) or 8
				(uint64_t) */
	bool coalesce;       /* sent vectors may repeat an index in a row; the operator combines its
				values */
	uint8_t reserved[6]; /* 0; never a field */
};

/*
 * Destination of the result of a sparse allreduce: `dense`, or if that is NULL `indices` and
 * `values`, or if these are NULL as well arrays that the library allocates. The caller owns the
 * struct and its arrays, but must not touch them until the request is done.
 */
struct fanin_sparse_result {
	size_t sz;
	void *dense;       /* n elements; an element becomes zero if no rank has a value there */
	void *indices;     /* ascending, of the options' index_bytes */
	void *values;      /* of dtype */
	uint64_t capacity; /* capacity of indices and of values, elements; not used if they are NULL
			    */
	uint64_t count;    /* set: the number of indices at which any rank has a value; after
			      FANIN_ERR_CAPACITY, the capacity needed */
	bool allocated;    /* set if the caller must free indices and values with
			      fanin_sparse_result_free */
	uint8_t reserved[7];
};

/*
 * Posts an allreduce of sparse vectors (docs/collectives.md): recv[i] = send[i] op ... of the ranks
 * that have a value at i. The result omits indices at which no rank has a value.
 *
 * n: length of the vector, the same at all ranks. nnz: number of values of this rank, any number.
 * indices: nnz indices, ascending, each once unless opts->coalesce, below n. values: nnz elements.
 * result: see struct fanin_sparse_result. A sparse result may be received in place, if its indices
 * and values are the arrays sent; a dense result must not overlap anything. opts: may be NULL;
 * copied.
 *
 * Without a switch the ranks exchange the vectors by recursive doubling and need no density.
 *
 * Returns what the other collectives do. FANIN_ERR_UNSUPPORTED: averages and custom operators, sums
 * of f16 and bf16 in jobs that accumulate in f32, and jobs of several ranks whose handler has no
 * sparse blocks. fanin_wait returns FANIN_ERR_CAPACITY if the result does not fit; ranks with
 * enough room still get it.
 */
FANIN_API int fanin_iallreduce_sparse(uint64_t n, uint64_t nnz, const void *indices,
				      const void *values, struct fanin_sparse_result *result,
				      enum fanin_dtype dtype, enum fanin_op op,
				      const struct fanin_sparse_opts *opts, fanin_comm *comm,
				      fanin_request **req);
FANIN_API int fanin_allreduce_sparse(uint64_t n, uint64_t nnz, const void *indices,
				     const void *values, struct fanin_sparse_result *result,
				     enum fanin_dtype dtype, enum fanin_op op,
				     const struct fanin_sparse_opts *opts, fanin_comm *comm);

/*
 * Frees arrays that the library has allocated for a result. Leaves the caller's own arrays alone.
 * result may be NULL. Thread-safe for different results.
 */
FANIN_API void fanin_sparse_result_free(struct fanin_sparse_result *result);

/* Selects the elements of a dense vector that fanin_compact takes. */
struct fanin_compact_opts {
	size_t sz;
	double threshold; /* takes elements of larger magnitude, and all NaNs; default 0: all
			     elements that are not 0 */
	uint64_t bucket; /* with top: number of elements per bucket, the last bucket may be shorter;
			    default: one bucket for all elements */
	uint64_t top;    /* takes at most this many elements per bucket, the largest magnitudes, the
			    first of equal ones; 0 (default): all */
	uint8_t index_bytes; /* bytes of each index: 4 (default) or 8 */
	uint8_t reserved[7]; /* 0; never a field */
};

/*
 * Makes a sparse vector of a dense one.
 *
 * dense: n elements of dtype. opts: may be NULL. indices, values: room for `capacity` elements
 * each; they receive the indices, ascending, and their elements, bit by bit. May be NULL if
 * capacity is 0. count: receives the number of elements taken. Returns FANIN_OK, FANIN_ERR_CAPACITY
 * if there is no room, with *count the capacity that is needed, FANIN_ERR_INVALID, or
 * FANIN_ERR_NO_MEMORY. Thread-safe.
 */
FANIN_API int fanin_compact(const void *dense, uint64_t n, enum fanin_dtype dtype,
			    const struct fanin_compact_opts *opts, void *indices, void *values,
			    uint64_t capacity, uint64_t *count);

/* Posts a barrier: it is done once every rank has posted it. */
FANIN_API int fanin_ibarrier(fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_barrier(fanin_comm *comm);

/*
 * Multicast regions (docs/regions.md): a buffer of the same length at every rank, under one range
 * of network addresses. A write by any rank arrives at the same offset in all ranks' buffers.
 * Regions require job_name, a tree of switches, at most 64 ranks, and the transport af_packet or
 * udp.
 */

/* Options of a region: none yet. */
struct fanin_region_opts {
	size_t sz;
};

/*
 * Makes a region. The region has a job of its own, NAME.regionK with K from 0 on, beside the
 * communicator's job. Blocking and collective: all ranks call it at the same place among the
 * communicator's collectives.
 *
 * base: this rank's buffer, of `bytes` bytes, 1 at least, the same number at all ranks. The buffer
 * is in use until fanin_region_free: other ranks' writes may arrive at any time. Each rank chooses
 * its initial content. opts: may be NULL. region: set on success only.
 * Returns FANIN_OK, FANIN_ERR_INVALID (also if the lengths differ), FANIN_ERR_UNSUPPORTED if the
 * network has no regions, FANIN_ERR_NO_MEMORY at all ranks if one rank is out of memory, or the
 * communicator's error; fanin_ctx_error describes it.
 */
FANIN_API int fanin_region_create(fanin_comm *comm, void *base, size_t bytes,
				  const struct fanin_region_opts *opts, fanin_region **region);

/*
 * Leaves the region and returns its buffer to the caller. All ranks call it; a rank waits for the
 * others, as in fanin_leave. fanin_leave frees all remaining regions.
 *
 * region: may be NULL; freed in any case. Returns FANIN_OK, or FANIN_ERR_TIMEOUT if the switch did
 * not confirm the leave.
 */
FANIN_API int fanin_region_free(fanin_region *region);

/*
 * Returns the network address of the region's first byte, which is the same at all ranks. Packets
 * and the switches' tables carry this address.
 */
FANIN_API uint64_t fanin_region_network_address(const fanin_region *region);

/*
 * Writes bytes into the region: into this rank's own buffer at once, and into all other ranks'
 * buffers by the end of the next fence, in any order. One-sided: other ranks make no call. Any rank
 * may write any number of bytes at any time. The call does not wait for the bytes to arrive, but
 * the amount in flight is bounded.
 *
 * Until the next fence neither the application nor any other rank may modify the written bytes.
 * offset: bytes from the region's start. data: `bytes` bytes; may point to the destination in the
 * buffer itself; any other memory is free for reuse after the call.
 * Returns FANIN_OK, FANIN_ERR_INVALID, FANIN_ERR_NO_MEMORY, or the region's earlier error.
 */
FANIN_API int fanin_region_write(fanin_region *region, size_t offset, const void *data,
				 size_t bytes);

/*
 * Ends the writes: when the call returns, this rank's buffer holds all bytes that any rank wrote
 * before its own fence. Blocking and collective: all ranks call it the same number of times for
 * each region. Writes of other ranks after their fence may arrive here before this call returns.
 *
 * Returns FANIN_OK, FANIN_ERR_TIMEOUT if ranks are gone (fanin_ctx_missing_ranks), or the region's
 * earlier error. A region that has failed stays failed; its communicator remains usable. An
 * interrupted fence fails the region.
 */
FANIN_API int fanin_region_fence(fanin_region *region);

/*
 * Run an allreduce in place over a range of the region: afterwards all ranks hold the same
 * elements. Blocking and collective on the region's communicator. No rank may have written these
 * bytes since the last fence, nor write them during the call. push: ranks send contributions, and
 * switches combine those that meet. pull: ranks request parts of the result, and switches combine
 * the answers (Klenk et al., section IV). The calls use a job NAME.push or NAME.pull beside the
 * communicator's, which the ranks join in the first call.
 *
 * offset: bytes from the region's start; needs no alignment. count: elements. Returns what
 * fanin_allreduce does, or FANIN_ERR_UNSUPPORTED if the network has no such handler.
 */
FANIN_API int fanin_region_push(fanin_region *region, size_t offset, size_t count,
				enum fanin_dtype dtype, enum fanin_op op);
FANIN_API int fanin_region_pull(fanin_region *region, size_t offset, size_t count,
				enum fanin_dtype dtype, enum fanin_op op);

/*
 * Makes progress once, without blocking, and returns the request's status. Does not free the
 * request. Returns FANIN_OK if it is done, FANIN_IN_PROGRESS, or an error; fanin_ctx_error
 * describes it.
 */
FANIN_API int fanin_test(fanin_request *req);

/*
 * Waits until the request is done or has failed, and frees it; *req becomes NULL. All communicators
 * of the context make progress meanwhile. Returns FANIN_OK or an error. The call waits for late
 * ranks, without a limit unless wait_limit_ms sets one; if a rank is gone, it fails within the
 * communicator's timeout after the last progress. After FANIN_ERR_INTERRUPTED the request continues
 * and *req is unchanged.
 */
FANIN_API int fanin_wait(fanin_request **req);

/*
 * Makes the call on this context that waits for a collective, or else the next one that will, call
 * the interrupt callback at once, which need not end the wait. With it another thread ends a wait,
 * so that the waiting thread posts what it has been given meanwhile. Without a callback nothing
 * happens. From fanin_init until fanin_finalize. Thread-safe, also while another thread is in a
 * call on the context, and may be called by signal handlers.
 */
FANIN_API void fanin_ctx_interrupt(fanin_ctx *ctx);

/*
 * Returns the number of bytes of a request that are done, for progress bars. total_bytes: receives
 * the total; may be NULL. Both count the whole vector, even if this rank gets only a part of it.
 */
FANIN_API uint64_t fanin_request_progress(const fanin_request *req, uint64_t *total_bytes);

/*
 * Makes progress on all communicators of the context, without blocking.
 * Returns the number of frames handled, or an error.
 */
FANIN_API int fanin_progress(fanin_ctx *ctx);

/*
 * Leaves the job: notifies the switch and the manager, closes the transport, frees the communicator
 * and its remaining requests.
 *
 * If a lost run can be resumed (`recover`, and jobs of a manager except over memif), the ranks
 * leave together, as from a barrier, because another rank may need this rank's results if a switch
 * fails. A rank waits for the others for its timeout at most, and not at all if it has failed or
 * has requests in progress.
 *
 * comm: may be NULL; freed in any case. Returns FANIN_OK, or FANIN_ERR_TIMEOUT if the switch did
 * not confirm the leave.
 */
FANIN_API int fanin_leave(fanin_comm *comm);

/*
 * Leaves the job as fanin_leave does, but at once. Use it if a rank can't continue although its
 * communicator could, for example if its part of a collective has failed elsewhere. Collectives
 * that it has not posted fail at the other ranks.
 *
 * comm: may be NULL; freed in any case. Returns what fanin_leave does.
 */
FANIN_API int fanin_abort(fanin_comm *comm);

/* Leaves all jobs that are still joined and frees the context; ctx may be NULL. */
FANIN_API void fanin_finalize(fanin_ctx *ctx);

/* Returns a phrase for a status; a static string. Thread-safe. */
FANIN_API const char *fanin_strerror(int status);

/*
 * Describes the error of the last failed call on this context: the value found and the value
 * expected. "" if no call has failed. Valid until the next call on the context.
 */
FANIN_API const char *fanin_ctx_error(const fanin_ctx *ctx);

/*
 * Lists the ranks that were missing in the last failed call on this context, such as those that did
 * not join, in ascending order.
 *
 * ranks: room for n ranks; further ranks are left out. May be NULL if n is 0. Returns the number of
 * missing ranks, which may be larger than n.
 */
FANIN_API size_t fanin_ctx_missing_ranks(const fanin_ctx *ctx, uint16_t *ranks, size_t n);

/* Returns the same as a bitmap, of ranks below 64 only. */
FANIN_API uint64_t fanin_ctx_missing(const fanin_ctx *ctx);

/*
 * Returns the reason for which a communicator, or a job beside it for its collectives, has failed:
 * the missing ranks, or the refused packet. "" if none has failed. Valid until the next call on the
 * context.
 */
FANIN_API const char *fanin_comm_error(const fanin_comm *comm);

/*
 * Lists the ranks, late or gone, for which the oldest unfinished block waits, according to the
 * switch's last answer; none if that is unknown. Arguments and result are as for
 * fanin_ctx_missing_ranks.
 */
FANIN_API size_t fanin_comm_missing_ranks(const fanin_comm *comm, uint16_t *ranks, size_t n);

/* Returns the same as a bitmap, of ranks below 64 only. */
FANIN_API uint64_t fanin_comm_missing(const fanin_comm *comm);

/*
 * Fills in the fields of the report that report->sz covers. report: set sz first. Returns FANIN_OK
 * or FANIN_ERR_INVALID.
 */
FANIN_API int fanin_comm_report(const fanin_comm *comm, struct fanin_report *report);

/*
 * Returns true if this version reduces the data type with the operator; false for custom operators,
 * which only the switch knows. Thread-safe.
 */
FANIN_API bool fanin_supports(enum fanin_dtype dtype, enum fanin_op op);

/*
 * Return the name of a data type or operator: "f32", "sum", ...; "opaque" and "custom" for custom
 * operators; "unknown" for other values. Static strings. Thread-safe.
 */
FANIN_API const char *fanin_dtype_name_of(enum fanin_dtype dtype);
FANIN_API const char *fanin_op_name_of(enum fanin_op op);

/* Returns the size of one element in bytes; 0 for an unknown type. Thread-safe. */
FANIN_API size_t fanin_dtype_size_of(enum fanin_dtype dtype);

/*
 * Finds a setting of software built on this library, such as the libraries for MPI and PyTorch: the
 * environment variable of this name, or if it is absent or empty the line "name = value" of
 * fanin.conf(5).
 *
 * name: "FANIN_" and capital letters, digits and "_". value: receives the text, in `size` bytes; ""
 * if there is no setting. Returns FANIN_OK, or FANIN_ERR_INVALID if the file can't be read or has
 * an invalid line, or the value is too long: `value` then says what was found and expected. Reads
 * the file each time; looks at the environment as secure_getenv does. Thread-safe as getenv is.
 */
FANIN_API int fanin_setting(const char *name, char *value, size_t size);

/*
 * Returns the version of the library that the program runs with, "0.1.0"; FANIN_HEADER_VERSION is
 * the one it was built with. Static string, thread-safe.
 */
FANIN_API const char *fanin_version(void);

#ifdef __cplusplus
}
#endif

#endif
