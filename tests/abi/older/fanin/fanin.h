/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * Fanin's host library: collectives in the network.
 *
 * The order of calls is fanin_init, fanin_join, then any number of collectives with fanin_test or
 * fanin_wait, fanin_leave, fanin_finalize. Those with an i, like fanin_iallreduce, post a
 * collective and return at once; those without, like fanin_allreduce, wait for it, too. Any number
 * of requests may be outstanding.
 *
 * Every member of a job posts the same collectives in the same order, with the same counts, data
 * type, operator and root: they are matched in that order, for each communicator apart. Members
 * that disagree get FANIN_ERR_REFUSED; where some have posted more than others, these are waited
 * for as long as they are there, and FANIN_ERR_TIMEOUT names them once they have left. Requests may
 * be waited for in any order. A context may have several communicators: fanin_test, fanin_wait and
 * fanin_progress move the data of all of them, so that members may wait for requests of different
 * communicators in different orders.
 *
 * All collectives synchronise: none is done anywhere before every member has posted it.
 *
 * Threading: a context and everything made from it belong to one thread at a time: calls on a
 * context, its communicators and requests must not overlap, and may come from different threads if
 * the callers see to that (a mutex for each context, say). Different contexts are independent. Only
 * what is marked so is thread-safe by itself. The library has no threads of its own: data moves
 * during fanin_test, fanin_wait, fanin_progress and the blocking collectives.
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

/* Status of a call. 0 is success, positive is "not yet", negative is an error. */
enum fanin_status {
	FANIN_OK = 0,
	FANIN_IN_PROGRESS = 1,
	FANIN_ERR_INVALID = -1,      /* an argument is invalid */
	FANIN_ERR_NO_MEMORY = -2,    /* out of memory */
	FANIN_ERR_TRANSPORT = -3,    /* no transport could be opened, or it failed */
	FANIN_ERR_NO_ROUTE = -4,     /* the switch's address can't be reached from here */
	FANIN_ERR_JOIN_REFUSED = -5, /* the switch refused to let this rank in */
	FANIN_ERR_JOIN_TIMEOUT = -6, /* the switch doesn't answer, or other ranks have not joined in
					time */
	FANIN_ERR_UNSUPPORTED = -7,  /* no kernel for this operator on this data type */
	FANIN_ERR_TIMEOUT = -8, /* ranks are gone, or the switch is silent: see fanin_comm_error */
	FANIN_ERR_REFUSED = -9, /* the switch refused a packet: see fanin_comm_error */
	FANIN_ERR_SYSTEM = -10, /* a system call failed: see fanin_ctx_error */
	FANIN_ERR_PERMISSION = -11,  /* raw sockets need CAP_NET_RAW, AF_XDP also CAP_NET_ADMIN and
					CAP_BPF */
	FANIN_ERR_INTERRUPTED = -12, /* the interrupt callback asked for an end */
	FANIN_ERR_MANAGER = -13,     /* the network manager can't be reached, or makes no sense */
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
	FANIN_OPAQUE_BASE = 128, /* itself no data type: see FANIN_OPAQUE */
};

/*
 * The data type of a custom operator (docs/custom-operators.md) whose elements are that many bytes,
 * 1 to 64.
 */
#define FANIN_OPAQUE(bytes) ((enum fanin_dtype)(FANIN_OPAQUE_BASE + (bytes)))

/*
 * As in MPI; the logical and bitwise operators are defined on integers only, and logical ones give
 * 0 or 1. Integer sums and products wrap. FANIN_AVG is the sum divided by the number of ranks,
 * truncated toward zero on integers. f16 and bf16 are rounded to nearest even after every
 * combination, or once if the job accumulates in f32. docs/operators.md has all of it.
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
 * A custom operator by the code that it is registered with in the switch, 128 to 255. A switch that
 * doesn't have it, or has it on another data type, refuses: FANIN_ERR_REFUSED.
 */
#define FANIN_CUSTOM(code) ((enum fanin_op)(code))

#define FANIN_MAX_TREES 8 /* of a job */

typedef struct fanin_ctx fanin_ctx;
typedef struct fanin_comm fanin_comm;
typedef struct fanin_request fanin_request;

/* Takes one line of diagnostics, without a newline. level: 0 error, 1 warning, 2 info, 3 debug. */
typedef void (*fanin_print_fn)(int level, const char *line, void *arg);

/*
 * Called about ten times a second, and after signals, while fanin_join or fanin_wait waits. It may
 * look at the request's progress, but must not call anything else of the context. Returning true
 * ends the call with FANIN_ERR_INTERRUPTED.
 */
typedef bool (*fanin_interrupt_fn)(void *arg);

/* Set sz to sizeof(struct); zero in any other field takes the default. */
struct fanin_init_opts {
	size_t sz;
	const char *transport; /* "auto" (default), "af_xdp", "af_packet" or "memif" */
	fanin_print_fn print;  /* default: silent */
	void *print_arg;
	fanin_interrupt_fn interrupt; /* default: waits are only ended by results and timeouts */
	void *interrupt_arg;
};

/*
 * A job is found in one of two ways: by the network manager, if job_name is given, or by
 * switch_address, job and key as they were printed when somebody created it on the switch.
 */
struct fanin_join_opts {
	size_t sz;
	const char *switch_address; /* IPv4 address of the switch, dotted; required without job_name
				     */
	const char *interface;    /* network interface; default: that of the route to the switch */
	uint64_t key;             /* the job's key, as given when it was created */
	uint32_t job;             /* the job's number; required without job_name */
	uint16_t rank;            /* 0 to size - 1; with job_name see fixed_rank */
	uint16_t size;            /* ranks in the job; required */
	uint16_t udp_port;        /* default 21930 */
	uint16_t window;          /* most blocks in flight; limit and usual default: the job's */
	uint32_t join_timeout_ms; /* until all ranks have joined; default 30000 */
	/*
	 * A collective waits for ranks that are late: that load data, write a checkpoint or are
	 * stopped. Once there has been no result for this long, it fails with FANIN_ERR_TIMEOUT if
	 * one of the ranks that are missing is gone: its process has ended, or its host doesn't
	 * answer; and if the switch itself doesn't. Default 5000. See wait_limit_ms.
	 */
	uint32_t timeout_ms;
	bool no_stagger; /* send blocks in order instead of rotated by rank (Flare section 5) */
	/*
	 * Shared memory with a switch on this machine, if memif_socket is given: the path of the
	 * switch's memif socket, the number of its port there, and the IPv4 address that this host
	 * has as a member of the job. Not with `interface`.
	 */
	const char *memif_socket;
	const char *address;
	uint32_t memif_id;
	/*
	 * Go on where the collectives were if the switch loses the run, because it was restarted or
	 * the job was made anew over other switches: every rank has to ask for this. Not with
	 * memif. Always so with job_name.
	 */
	bool recover;
	/*
	 * The job of this name, 1 to 63 letters, digits, '.', '_' and '-', at the network manager,
	 * which makes it when all ranks have asked for it. Not with switch_address, job and key.
	 * `address` is then this host's address as the others and the switch know it; default: that
	 * of `interface`, or of the route to the manager.
	 */
	const char *job_name;
	const char *manager; /* its ADDRESS[:PORT]; default: FANIN_MANAGER, else that in
				/etc/fanin/fanin.conf */
	const char *token;   /* that it asks for; default: FANIN_TOKEN, else as the file says */
	const char *handler; /* that the job is to have; default "auto" */
	bool fixed_rank;     /* `rank` is this host's; default: by arrival */
	bool reproducible;   /* floating-point sums have the same bits every time */
	bool accumulate_f32; /* sums and averages of f16 and bf16 */
	/*
	 * Where there is no reduction tree for the job, its hosts do the work themselves in a ring
	 * over TCP, which the report shows and a warning tells, unless one of them forbids it here:
	 * then all fail.
	 */
	bool no_fallback;
	/*
	 * Reduction trees that the job is to have, at most FANIN_MAX_TREES; default: as many as the
	 * manager is configured to give, mostly 1. The blocks of each collective take turns on
	 * them, so that a network with several spines carries a part on each. The job runs on fewer
	 * if there are no more, which the report tells. All ranks ask for the same. Not with AF_XDP
	 * and memif.
	 */
	uint16_t trees;
	/*
	 * Longest wait without a result for ranks that are late, too: then FANIN_ERR_TIMEOUT names
	 * them. 0 (default): no limit.
	 */
	uint64_t wait_limit_ms;
	/*
	 * Every packet between this host and the switch carries a message authentication code, so
	 * that nobody without the job's key can change what comes out. The job has to have been
	 * created so, and a job of the manager's is: all ranks ask for the same. A ring has no such
	 * codes: the job then fails where there is no reduction tree.
	 */
	bool authenticate;
};

/*
 * Where and how a communicator's collectives run. Strings belong to the library and live as long as
 * the communicator.
 */
struct fanin_report {
	size_t sz;
	const char *transport;        /* "af_xdp", "af_packet", "memif" or "tcp ring" */
	const char *transport_reason; /* why this one */
	const char *handler;          /* the switch's handler, "single"; "ring" without a switch */
	const char *interface;        /* with memif, "memif" and the port's number */
	bool in_network;              /* the collectives ran in the switch */
	uint16_t window;              /* blocks in flight, in all trees together */
	uint16_t payload_bytes;       /* per packet */
	uint64_t blocks;              /* results received, each once */
	uint64_t bytes_reduced;       /* of this rank's data */
	uint64_t frames_sent;
	uint64_t frames_received;
	uint64_t retransmits;
	uint64_t duplicates; /* results that had been received before */
	uint64_t invalid;    /* frames that failed validation */
	/*
	 * Sums and averages of f16 and bf16 are accumulated in f32 and rounded once. Packets hold
	 * half as many of them.
	 */
	bool accumulates_f32;
	uint64_t spurious;   /* of the retransmits, those that a second result showed to be needless
			      */
	uint64_t ring_drops; /* frames that the kernel dropped because the receive ring was full */
	uint64_t resumed;    /* runs that the switch had lost and that went on in another */
	uint16_t rank;
	uint16_t size;
	const char *mode;            /* "network" or "ring" */
	const char *mode_reason;     /* why this one */
	const char *manager;         /* its address; "" if the job was found without one */
	const char *job_name;        /* likewise */
	const char *manager_problem; /* "" or why the manager is away; collectives go on meanwhile
				      */
	uint32_t manager_reconnects; /* how often it was away and is there again */
	uint16_t trees;              /* that the collectives run over; 0: in a ring */
	uint16_t trees_asked;
	const char *trees_reason; /* "" or why there are fewer */
	uint64_t queries; /* headers that asked the switch how far blocks are; among frames_sent */
	uint64_t late;    /* bitmap of the ranks that are being waited for now, as far as known */
	bool authenticated; /* packets carry message authentication codes */
};

/*
 * Makes a context. No privileges are needed yet.
 *
 * opts: NULL for the defaults. ctx: set on success only; free with fanin_finalize.
 * Returns FANIN_OK, FANIN_ERR_INVALID or FANIN_ERR_NO_MEMORY.
 */
FANIN_API int fanin_init(const struct fanin_init_opts *opts, fanin_ctx **ctx);

/*
 * Joins a job and waits until every rank has. Chooses the transport.
 *
 * comm: set on success only; free with fanin_leave.
 * Returns FANIN_OK or an error; fanin_ctx_error then tells what was wrong, with the ranks that are
 * missing.
 */
FANIN_API int fanin_join(fanin_ctx *ctx, const struct fanin_join_opts *opts, fanin_comm **comm);

/*
 * Joins the job of a name at the configured network manager, with a rank by arrival: fanin_join
 * with job_name and size.
 */
FANIN_API int fanin_join_job(fanin_ctx *ctx, const char *job_name, uint16_t size,
			     fanin_comm **comm);

/*
 * What holds for all collectives below.
 *
 * Buffers have elements of dtype, any alignment. They stay the caller's and must live, what is sent
 * unchanged, until the request is done. Counts may be 0: the collective then only synchronises, and
 * buffers may be NULL, as may those that a rank does not need. Where something is both sent and
 * received, it may be done in place: each element is then received where it was sent from. That is
 * the meaning of MPI_IN_PLACE but for reduce_scatter, see there. Buffers must not overlap in any
 * other way.
 *
 * req: set on success only; fanin_wait frees it. Returns FANIN_OK, FANIN_ERR_INVALID,
 * FANIN_ERR_UNSUPPORTED, FANIN_ERR_NO_MEMORY, or the communicator's earlier error. The blocking
 * calls also return what fanin_wait does; if one is interrupted, the buffers stay in use until
 * fanin_leave.
 */

/*
 * Posts an allreduce: recv[i] = send[i] of rank 0 op ... op send[i] of the last rank, for every
 * rank. send, recv: count elements. In place: send == recv.
 */
FANIN_API int fanin_iallreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			       enum fanin_op op, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_allreduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			      enum fanin_op op, fanin_comm *comm);

/*
 * Posts a reduce: an allreduce whose result only the rank `root` gets. send, recv: count elements;
 * other ranks' recv is not used. In place: send == recv at the root.
 */
FANIN_API int fanin_ireduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			    enum fanin_op op, uint16_t root, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_reduce(const void *send, void *recv, size_t count, enum fanin_dtype dtype,
			   enum fanin_op op, uint16_t root, fanin_comm *comm);

/*
 * Posts a reduce_scatter in equal blocks (MPI_Reduce_scatter_block): of the reduction of size *
 * recv_count elements, rank r gets elements r * recv_count on. send: size * recv_count elements.
 * recv: recv_count. In place: recv is where these elements are in send, r * recv_count elements
 * from its start (with MPI_IN_PLACE the result would be at its start).
 */
FANIN_API int fanin_ireduce_scatter(const void *send, void *recv, size_t recv_count,
				    enum fanin_dtype dtype, enum fanin_op op, fanin_comm *comm,
				    fanin_request **req);
FANIN_API int fanin_reduce_scatter(const void *send, void *recv, size_t recv_count,
				   enum fanin_dtype dtype, enum fanin_op op, fanin_comm *comm);

/*
 * Posts a broadcast: the buffer's count elements go from the rank `root` to all others', bit by
 * bit.
 */
FANIN_API int fanin_ibroadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root,
			       fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_broadcast(void *buffer, size_t count, enum fanin_dtype dtype, uint16_t root,
			      fanin_comm *comm);

/*
 * Posts an allgather: elements r * send_count on of every rank's recv are what rank r sends, bit by
 * bit. send: send_count elements. recv: size * send_count. In place: send is where this rank's
 * elements are in recv.
 */
FANIN_API int fanin_iallgather(const void *send, void *recv, size_t send_count,
			       enum fanin_dtype dtype, fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_allgather(const void *send, void *recv, size_t send_count,
			      enum fanin_dtype dtype, fanin_comm *comm);

/* Posts a barrier: it is done once every rank has posted it. */
FANIN_API int fanin_ibarrier(fanin_comm *comm, fanin_request **req);
FANIN_API int fanin_barrier(fanin_comm *comm);

/*
 * Makes progress once, without blocking, and tells whether the request is done. The request stays
 * the caller's. Returns FANIN_OK if done, FANIN_IN_PROGRESS, or an error.
 */
FANIN_API int fanin_test(fanin_request *req);

/*
 * Waits until the request is done or has failed, and frees it; *req becomes NULL. All communicators
 * of the context make progress meanwhile. Returns FANIN_OK or an error. Ranks that are late are
 * waited for, without a limit unless wait_limit_ms sets one; of those that are gone there is an
 * error within the communicator's timeout after the last progress. After FANIN_ERR_INTERRUPTED the
 * request goes on and *req is unchanged.
 */
FANIN_API int fanin_wait(fanin_request **req);

/*
 * Bytes that are done, of the total in *total_bytes (may be NULL). That is of what all ranks
 * together get, even if this one gets less of it. For progress bars.
 */
FANIN_API uint64_t fanin_request_progress(const fanin_request *req, uint64_t *total_bytes);

/*
 * Makes progress on all communicators of the context, without blocking.
 * Returns the number of frames handled, or an error.
 */
FANIN_API int fanin_progress(fanin_ctx *ctx);

/*
 * Leaves the job: tells switch and manager, closes the transport, frees the communicator and the
 * requests that are left. Where a lost run can be taken up again (`recover`, and jobs of a manager
 * but for those on memif) the ranks leave together, as from a barrier, because what one has may be
 * what another still needs if a switch fails; a rank waits for the others until its timeout at
 * most, and not at all if it has failed or has requests in progress. comm: may be NULL. Returns
 * FANIN_OK, or FANIN_ERR_TIMEOUT if the switch did not confirm; it is freed in any case.
 */
FANIN_API int fanin_leave(fanin_comm *comm);

/* Leaves what is still joined and frees the context; ctx may be NULL. */
FANIN_API void fanin_finalize(fanin_ctx *ctx);

/* One phrase for a status; a static string. Thread-safe. */
FANIN_API const char *fanin_strerror(int status);

/*
 * What the last failed call on this context found and expected; "" if none failed. Valid until the
 * next call.
 */
FANIN_API const char *fanin_ctx_error(const fanin_ctx *ctx);

/*
 * Bitmap of the ranks that the last failed call on this context missed, such as those that have not
 * joined; or 0.
 */
FANIN_API uint64_t fanin_ctx_missing(const fanin_ctx *ctx);

/* What went wrong in this communicator, naming missing ranks or the refusal; "" if nothing did. */
FANIN_API const char *fanin_comm_error(const fanin_comm *comm);

/*
 * Bitmap of the ranks that the oldest unfinished block waits for, late or gone, as last told by the
 * switch; 0 if unknown.
 */
FANIN_API uint64_t fanin_comm_missing(const fanin_comm *comm);

/* Fills as much of the report as report->sz says. Returns FANIN_OK or FANIN_ERR_INVALID. */
FANIN_API int fanin_comm_report(const fanin_comm *comm, struct fanin_report *report);

/*
 * True if the operator is defined on the data type and this version reduces it; false for custom
 * ones, which only the switch knows. Thread-safe.
 */
FANIN_API bool fanin_supports(enum fanin_dtype dtype, enum fanin_op op);

/*
 * "f32", "sum", ...; "opaque" and "custom"; "unknown" for other values. Static strings,
 * thread-safe.
 */
FANIN_API const char *fanin_dtype_name_of(enum fanin_dtype dtype);
FANIN_API const char *fanin_op_name_of(enum fanin_op op);

/* Size in bytes of one element; 0 for an unknown type. Thread-safe. */
FANIN_API size_t fanin_dtype_size_of(enum fanin_dtype dtype);

/* Library version, "0.1.0". Static string, thread-safe. */
FANIN_API const char *fanin_version(void);

#ifdef __cplusplus
}
#endif

#endif
