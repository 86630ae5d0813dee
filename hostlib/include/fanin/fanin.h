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
 * that disagree get FANIN_ERR_REFUSED; where some have posted more than others, these are waited for
 * as long as they are there, and FANIN_ERR_TIMEOUT names them once they have left.
 * Requests may be waited for in any order. A context may have several communicators: fanin_test,
 * fanin_wait and fanin_progress move the data of all of them, so that members may wait for requests
 * of different communicators in different orders.
 *
 * All collectives synchronise: none is done anywhere before every member has posted it.
 *
 * Threading: a context and everything made from it belong to one thread at a time: calls on a
 * context, its communicators and requests must not overlap, and may come from different threads if
 * the callers see to that (a mutex for each context, say). Different contexts are independent. Only
 * what is marked so is thread-safe by itself.
 *
 * Data moves during fanin_test, fanin_wait, fanin_progress and the blocking collectives. A context may
 * have a thread of the library's, by which it moves at all other times, too: if background_progress
 * asks for it, or if a job's protocol has duties to other ranks, which must be answered while the
 * application computes. It exists while the context has a communicator, sleeps until something comes
 * or is due, and blocks all signals but those of its own faults. What is said above holds unchanged: the library sees to it that
 * its thread and a call on the context do not overlap. Buffers of a request are the library's until a
 * call has told that the request is done or has failed. The print callback may then be called by that
 * thread, by one thread at a time; the interrupt callback is called only by whoever waits.
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
	FANIN_ERR_JOIN_TIMEOUT =
		-6, /* the switch doesn't answer, or other ranks have not joined in time */
	/* no kernel for this operator on this data type, or no such collective in what the job runs */
	FANIN_ERR_UNSUPPORTED = -7,
	FANIN_ERR_TIMEOUT = -8, /* ranks are gone, or the switch is silent: see fanin_comm_error */
	FANIN_ERR_REFUSED = -9, /* the switch refused a packet: see fanin_comm_error */
	FANIN_ERR_SYSTEM = -10, /* a system call failed: see fanin_ctx_error */
	FANIN_ERR_PERMISSION =
		-11, /* raw sockets need CAP_NET_RAW, AF_XDP also CAP_NET_ADMIN and CAP_BPF */
	FANIN_ERR_INTERRUPTED = -12, /* the interrupt callback asked for an end */
	FANIN_ERR_MANAGER = -13,     /* the network manager can't be reached, or makes no sense */
	FANIN_ERR_CAPACITY = -14,    /* a result has more values than there is room for */
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

/* The data type of a custom operator (docs/custom-operators.md) whose elements are that many bytes, 1 to 64. */
#define FANIN_OPAQUE(bytes) ((enum fanin_dtype)(FANIN_OPAQUE_BASE + (bytes)))

/*
 * As in MPI; the logical and bitwise operators are defined on integers only, and logical ones give 0 or 1. Integer sums and
 * products wrap. FANIN_AVG is the sum divided by the number of ranks, truncated toward zero on integers. f16 and bf16 are
 * rounded to nearest even after every combination, or once if the job accumulates in f32. docs/operators.md has all of it.
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
 * A custom operator by the code that it is registered with in the switch, 128 to 255. A switch that doesn't have it, or
 * has it on another data type, refuses: FANIN_ERR_REFUSED.
 */
#define FANIN_CUSTOM(code) ((enum fanin_op)(code))

#define FANIN_MAX_TREES 8    /* of a job */
#define FANIN_MAX_RANKS 4096 /* likewise; of a ring 64 */

typedef struct fanin_ctx fanin_ctx;
typedef struct fanin_comm fanin_comm;
typedef struct fanin_request fanin_request;

/*
 * Takes one line of diagnostics, without a newline. level: 0 error, 1 warning, 2 info, 3 debug. It calls nothing of this library, and waits
 * for nothing that a caller of the context may hold: the library's own thread may call it, too.
 */
typedef void (*fanin_print_fn)(int level, const char *line, void *arg);

/*
 * Called about ten times a second, and after signals, while fanin_join or fanin_wait waits. It may
 * look at the request's progress, but must not call anything else of the context. Returning true
 * ends the call with FANIN_ERR_INTERRUPTED.
 */
typedef bool (*fanin_interrupt_fn)(void *arg);

/*
 * Of all structs with sz: set it to sizeof(struct), and initialise the rest to zero, of which any field takes its default. sz
 * tells which version of this header the caller was compiled with: the library takes what that version had, and uses the default
 * of what came later. A caller that sets what its library does not have yet gets FANIN_ERR_INVALID.
 *
 * How these structs grow, so that callers compiled with any older header stay right:
 * - A field is added behind the last one, reserved bytes included, never between, so that sz grows. What lies within an
 *   older sz keeps place, size and meaning for ever.
 * - Neither padding nor reserved bytes become a field: they are undefined in callers that were compiled before.
 * - A struct ends without padding: `reserved` fills it up to a multiple of 8. The bytes that a library does not know are zero
 *   then, and not undefined, unless they are set.
 */
struct fanin_init_opts {
	size_t sz;
	const char *transport; /* "auto" (default), "af_xdp", "af_packet" or "memif" */
	fanin_print_fn print;  /* default: silent */
	void *print_arg;
	fanin_interrupt_fn interrupt; /* default: waits are only ended by results and timeouts */
	void *interrupt_arg;
	/*
	 * Requests make progress, and other ranks get their answers, while the application does not call the library, by a
	 * thread of the library's (see Threading). Default: if FANIN_BACKGROUND_PROGRESS in the environment is "1", or where a
	 * job's protocol needs it.
	 */
	bool background_progress;
	uint8_t reserved[7]; /* 0; never a field */
};

/*
 * A job is found in one of two ways: by the network manager, if job_name is given, or by switch_address, job and key as they
 * were printed when somebody created it on the switch.
 */
struct fanin_join_opts {
	size_t sz;
	const char *switch_address; /* IPv4 address of the switch, dotted; required without job_name */
	const char *interface;    /* network interface; default: that of the route to the switch */
	uint64_t key;             /* the job's key, as given when it was created */
	uint32_t job;             /* the job's number; required without job_name */
	uint16_t rank;            /* 0 to size - 1; with job_name see fixed_rank */
	uint16_t size;            /* ranks in the job; required */
	uint16_t udp_port;        /* default 21930 */
	uint16_t window;          /* most blocks in flight; limit and usual default: the job's */
	uint32_t join_timeout_ms; /* until all ranks have joined; default 30000 */
	/*
	 * A collective waits for ranks that are late: that load data, write a checkpoint or are stopped. Once there has been no
	 * result for this long, it fails with FANIN_ERR_TIMEOUT if one of the ranks that are missing is gone: its process has
	 * ended, or its host doesn't answer; and if the switch itself doesn't. Of a time longer than 0.1 s between two
	 * calls that make progress a quarter counts, and a twentieth of the timeout at most. Default 5000. See wait_limit_ms.
	 */
	uint32_t timeout_ms;
	bool no_stagger; /* send blocks in order instead of rotated by rank (Flare section 5) */
	/*
	 * Shared memory with a switch on this machine, if memif_socket is given: the path of the switch's memif socket, the
	 * number of its port there, and the IPv4 address that this host has as a member of the job. Not with `interface`.
	 */
	const char *memif_socket;
	const char *address;
	uint32_t memif_id;
	/*
	 * Go on where the collectives were if the switch loses the run, because it was restarted or the job was made anew over
	 * other switches: every rank has to ask for this. Not with memif. Always so with job_name.
	 */
	bool recover;
	/*
	 * The job of this name, 1 to 63 letters, digits, '.', '_' and '-', at the network manager, which makes it when all ranks
	 * have asked for it. Not with switch_address, job and key. `address` is then this host's address as the others and the
	 * switch know it; default: that of `interface`, or of the route to the manager.
	 */
	const char *job_name;
	const char *manager; /* its ADDRESS[:PORT]; default: FANIN_MANAGER, else that in /etc/fanin/fanin.conf */
	const char *token;   /* that it asks for; default: FANIN_TOKEN, else as the file says */
	const char *handler; /* that the job is to have; default "auto" */
	bool fixed_rank;     /* `rank` is this host's; default: by arrival */
	bool reproducible;   /* floating-point sums have the same bits every time */
	bool accumulate_f32; /* sums and averages of f16 and bf16 */
	/*
	 * Where there is no reduction tree for the job, its hosts do the work themselves in a ring over TCP, which the report
	 * shows and a warning tells, unless one of them forbids it here: then all fail.
	 */
	bool no_fallback;
	/*
	 * Reduction trees that the job is to have, at most FANIN_MAX_TREES; default: as many as the manager is configured to
	 * give, mostly 1. The blocks of each collective take turns on them, so that a network with several spines carries a
	 * part on each. The job runs on fewer if there are no more, which the report tells. All ranks ask for the same. Not
	 * with AF_XDP and memif.
	 */
	uint16_t trees;
	/*
	 * Longest wait without a result for ranks that are late, too: then FANIN_ERR_TIMEOUT names them. 0 (default): no limit.
	 */
	uint64_t wait_limit_ms;
	/*
	 * Every packet between this host and the switch carries a message authentication code, so that nobody without the job's
	 * key can change what comes out. The job has to have been created so, and a job of the manager's is: all ranks ask for
	 * the same. A ring has no such codes: the job then fails where there is no reduction tree.
	 */
	bool authenticate;
	uint8_t reserved[7]; /* 0; never a field */
};

/*
 * Where and how a communicator's collectives run. Strings belong to the library, live as long as the communicator, and are as its last
 * report found them.
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
	/* Sums and averages of f16 and bf16 are accumulated in f32 and rounded once. Packets hold half as many of them. */
	bool accumulates_f32;
	uint64_t spurious; /* of the retransmits, those that a second result showed to be needless */
	uint64_t ring_drops; /* frames that the kernel dropped because the receive ring was full */
	uint64_t resumed;    /* runs that the switch had lost and that went on in another */
	uint16_t rank;
	uint16_t size;
	const char *mode;            /* "network" or "ring" */
	const char *mode_reason;     /* why this one */
	const char *manager;         /* its address; "" if the job was found without one */
	const char *job_name;        /* likewise */
	const char *manager_problem; /* "" or why the manager is away; collectives go on meanwhile */
	uint32_t manager_reconnects; /* how often it was away and is there again */
	uint16_t trees;              /* that the collectives run over; 0: in a ring */
	uint16_t trees_asked;
	const char *trees_reason; /* "" or why there are fewer */
	uint64_t queries; /* headers that asked the switch how far blocks are; among frames_sent */
	uint64_t late; /* bitmap of the ranks below 64 that are being waited for now, as far as known; see n_late */
	bool authenticated; /* packets carry message authentication codes */
	uint8_t reserved[7];
	const char *protocol;        /* that the hosts run: "window" or "ring" */
	const char *protocol_reason; /* why this one */
	uint64_t n_late; /* how many ranks are being waited for now, of any number; of several trees in the one that waits for most */
	uint64_t sparse_blocks;   /* of `blocks`, those of sparse allreduces */
	uint64_t sparse_elements; /* indices of these blocks */
	uint64_t sparse_values_sent; /* at how many of them this rank brought a value: the density in */
	uint64_t sparse_values_received; /* and at how many the result has one: the density out */
	uint64_t shards_sent;            /* packets that they took, each time they were sent */
	uint64_t shards_received;        /* each once */
	uint64_t shard_bytes_sent;       /* payload of these */
	uint64_t sparse_dense_bytes;     /* payload that dense blocks would have taken */
};

/*
 * Makes a context. No privileges are needed yet.
 *
 * opts: NULL for the defaults. ctx: set on success only; free with fanin_finalize.
 * Returns FANIN_OK, FANIN_ERR_INVALID, also if FANIN_BACKGROUND_PROGRESS is neither "1" nor "0", or FANIN_ERR_NO_MEMORY.
 */
FANIN_API int fanin_init(const struct fanin_init_opts *opts, fanin_ctx **ctx);

/*
 * Joins a job and waits until every rank has. Chooses the transport.
 *
 * comm: set on success only; free with fanin_leave.
 * Returns FANIN_OK or an error; fanin_ctx_error then tells what was wrong, with the ranks that are missing.
 */
FANIN_API int fanin_join(fanin_ctx *ctx, const struct fanin_join_opts *opts, fanin_comm **comm);

/*
 * Joins the job of a name at the configured network manager, with a rank by arrival: fanin_join with job_name and size.
 */
FANIN_API int fanin_join_job(fanin_ctx *ctx, const char *job_name, uint16_t size, fanin_comm **comm);

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
 * Posts a broadcast: the buffer's count elements go from the rank `root` to all others', bit by bit.
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

/*
 * How a sparse allreduce is done. NULL, or zero: the default.
 */
struct fanin_sparse_opts {
	size_t sz;
	/*
	 * The largest part of the vector that a rank brings values for, 0 to 1, which decides how many indices a block has. All ranks
	 * give the same. It need not be exact: a wrong one costs packets. Default: the ranks find it by a small allreduce before, and
	 * what is posted later waits for that.
	 */
	double density;
	uint8_t index_bytes; /* of each index, sent and received: 4 (uint32_t, default) or 8 (uint64_t) */
	bool coalesce; /* what is sent may have an index several times in a row, whose values are combined by the operator */
	uint8_t reserved[6]; /* 0; never a field */
};

/*
 * Where the result of a sparse allreduce goes: to `dense`, or if that is NULL to `indices` and `values`, or if these are NULL as well to
 * arrays that the library allocates. The caller's, until the request is done the library's; the arrays likewise.
 */
struct fanin_sparse_result {
	size_t sz;
	void *dense;       /* n elements; those at which no rank has a value become zeros */
	void *indices;     /* ascending, of the options' index_bytes */
	void *values;      /* of dtype */
	uint64_t capacity; /* of indices and values; not used if they are NULL */
	uint64_t count; /* set: at how many indices a rank has a value; after FANIN_ERR_CAPACITY the capacity that is needed */
	bool allocated; /* set, if indices and values are to be freed by fanin_sparse_result_free */
	uint8_t reserved[7];
};

/*
 * Posts an allreduce of sparse vectors (docs/collectives.md): recv[i] = send[i] op ... of the ranks that have a value at i. An index at which no
 * rank has one is not in the result.
 *
 * n: length of the vector, the same at all ranks. nnz: values that this rank brings, any number. indices: nnz of them, ascending, each
 * once, below n. values: nnz elements. result: see there; a sparse one may be received in place, where indices and values of the result
 * are those that are sent; a dense one overlaps nothing. opts: may be NULL; copied.
 *
 * Averages and custom operators, and sums of f16 and bf16 in jobs that accumulate in f32, are FANIN_ERR_UNSUPPORTED, as are jobs of
 * several ranks whose handler knows no sparse blocks, and jobs of several trees. If a switch loses the run while it is in progress, it
 * fails with FANIN_ERR_REFUSED. When it is done, fanin_wait may return FANIN_ERR_CAPACITY if the result has no room; the ranks that have some
 * got it.
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

/* Frees arrays that the library has allocated for a result; others stay. result may be NULL. Thread-safe for different results. */
FANIN_API void fanin_sparse_result_free(struct fanin_sparse_result *result);

/* Which elements of a dense vector fanin_compact takes. */
struct fanin_compact_opts {
	size_t sz;
	double threshold; /* those whose magnitude is larger; default 0: those that are not 0. Any NaN is taken */
	uint64_t bucket; /* with top: elements of each bucket, the last of which may be shorter; default: all are one */
	uint64_t top; /* of each bucket only so many with the largest magnitudes, of equal ones the first; 0 (default): all */
	uint8_t index_bytes; /* of each index: 4 (default) or 8 */
	uint8_t reserved[7]; /* 0; never a field */
};

/*
 * Makes a sparse vector of a dense one.
 *
 * dense: n elements of dtype. opts: may be NULL. indices, values: room for `capacity` of them; receive the indices, ascending, and their
 * elements, bit by bit. NULL if capacity is 0. count: receives how many there are. Returns FANIN_OK, FANIN_ERR_CAPACITY if there is no room,
 * with *count the capacity that is needed, FANIN_ERR_INVALID, or FANIN_ERR_NO_MEMORY. Thread-safe.
 */
FANIN_API int fanin_compact(const void *dense, uint64_t n, enum fanin_dtype dtype,
			    const struct fanin_compact_opts *opts, void *indices, void *values,
			    uint64_t capacity, uint64_t *count);

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
 * Bytes that are done, of the total in *total_bytes (may be NULL). That is of what all ranks together get, even if this one
 * gets less of it. For progress bars.
 */
FANIN_API uint64_t fanin_request_progress(const fanin_request *req, uint64_t *total_bytes);

/*
 * Makes progress on all communicators of the context, without blocking.
 * Returns the number of frames handled, or an error.
 */
FANIN_API int fanin_progress(fanin_ctx *ctx);

/*
 * Leaves the job: tells switch and manager, closes the transport, frees the communicator and the requests
 * that are left. Where a lost run can be taken up again (`recover`, and jobs of a manager but for those on memif) the ranks
 * leave together, as from a barrier, because what one has may be what another still needs if a switch fails; a rank waits
 * for the others until its timeout at most, and not at all if it has failed or has requests in progress. comm: may be NULL. Returns FANIN_OK, or FANIN_ERR_TIMEOUT if the switch did not
 * confirm; it is freed in any case.
 */
FANIN_API int fanin_leave(fanin_comm *comm);

/* Leaves what is still joined and frees the context; ctx may be NULL. */
FANIN_API void fanin_finalize(fanin_ctx *ctx);

/* One phrase for a status; a static string. Thread-safe. */
FANIN_API const char *fanin_strerror(int status);

/* What the last failed call on this context found and expected; "" if none failed. Valid until the next call. */
FANIN_API const char *fanin_ctx_error(const fanin_ctx *ctx);

/*
 * Lists the ranks that the last failed call on this context missed, such as those that have not joined, in ascending order.
 *
 * ranks: room for n of them, beyond which the highest are left out; may be NULL if n is 0. Returns how many there are, which may be more than n.
 */
FANIN_API size_t fanin_ctx_missing_ranks(const fanin_ctx *ctx, uint16_t *ranks, size_t n);

/* The same as a bitmap, of ranks below 64 only. */
FANIN_API uint64_t fanin_ctx_missing(const fanin_ctx *ctx);

/*
 * Returns why a communicator has failed, in words: which ranks are missing, or what a switch or the manager refused. "" if it has not.
 * Valid until the next call on the context.
 */
FANIN_API const char *fanin_comm_error(const fanin_comm *comm);

/*
 * Lists the ranks that the oldest unfinished block waits for, late or gone, as last told by the switch; none if that is unknown. Arguments and
 * result as of fanin_ctx_missing_ranks.
 */
FANIN_API size_t fanin_comm_missing_ranks(const fanin_comm *comm, uint16_t *ranks, size_t n);

/* The same as a bitmap, of ranks below 64 only. */
FANIN_API uint64_t fanin_comm_missing(const fanin_comm *comm);

/* Fills as much of the report as report->sz says. Returns FANIN_OK or FANIN_ERR_INVALID. */
FANIN_API int fanin_comm_report(const fanin_comm *comm, struct fanin_report *report);

/*
 * True if the operator is defined on the data type and this version reduces it; false for custom ones, which only the
 * switch knows. Thread-safe.
 */
FANIN_API bool fanin_supports(enum fanin_dtype dtype, enum fanin_op op);

/* "f32", "sum", ...; "opaque" and "custom"; "unknown" for other values. Static strings, thread-safe. */
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
