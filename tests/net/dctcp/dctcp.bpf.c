// SPDX-License-Identifier: BSD-3-Clause
/*
 * DCTCP (RFC 8257) as a congestion control of Linux' TCP, for tests of marks on kernels that have
 * none. The sender estimates the share of bytes that met congestion and shrinks its window by half
 * of that share; the receiver tells of each change of marks at once (section 3.2). Everything else
 * is Reno's, which the kernel exports.
 */
#include <linux/bpf.h>
#include <stdbool.h>

#include <bpf/bpf_helpers.h>
#include <bpf/bpf_tracing.h>

/*
 * The kernel's own types, as far as they are used: their layout comes from its BTF when the program
 * is loaded.
 */
#define KERNEL __attribute__((preserve_access_index))

struct sock {
	int unused;
} KERNEL;

struct inet_connection_sock {
	struct {
		__u8 pending;
	} icsk_ack;
	__u64 icsk_ca_priv[13];
} KERNEL;

struct tcp_sock {
	struct inet_connection_sock inet_conn;
	__u32 rcv_nxt;
	__u32 snd_nxt;
	__u32 snd_una;
	__u32 snd_cwnd;
	__u32 snd_ssthresh;
	__u32 delivered;
	__u32 delivered_ce;
	__u8 ecn_flags;
} KERNEL;

enum tcp_ca_event {
	CA_EVENT_ECN_NO_CE = 4,
	CA_EVENT_ECN_IS_CE = 5,
};

struct tcp_congestion_ops {
	__u32 (*ssthresh)(struct sock *sk);
	void (*cong_avoid)(struct sock *sk, __u32 ack, __u32 acked);
	void (*cwnd_event)(struct sock *sk, enum tcp_ca_event event);
	void (*in_ack_event)(struct sock *sk, __u32 flags);
	__u32 (*undo_cwnd)(struct sock *sk);
	void (*init)(struct sock *sk);
	__u32 flags;
	char name[16];
	void *owner;
};

#define TCP_CONG_NEEDS_ECN 0x2
#define TCP_ECN_DEMAND_CWR 4 /* acknowledgements have ECE until a CWR comes */
#define ICSK_ACK_TIMER 2     /* an acknowledgement is delayed */
#define MIN_WINDOW 2         /* segments */
#define ONE 1024u            /* a share of all, alpha's 1.0 */
#define GAIN_SHIFT 4         /* g = 1/16 */

/* In icsk_ca_priv. */
struct dctcp {
	__u32 delivered;    /* segments, at the window's beginning */
	__u32 delivered_ce; /* of these, marked */
	__u32 window_end;   /* sequence number */
	__u32 alpha;        /* of ONE */
	__u32 rcv_nxt;      /* when the last mark or its absence was seen */
	bool marked;        /* what came last */
};

extern void tcp_reno_cong_avoid(struct sock *sk, __u32 ack, __u32 acked) __ksym;
extern __u32 tcp_reno_undo_cwnd(struct sock *sk) __ksym;

static struct dctcp *
state_of(struct tcp_sock *tp)
{
	return (struct dctcp *)tp->inet_conn.icsk_ca_priv;
}

static void
begin_window(const struct tcp_sock *tp, struct dctcp *state)
{
	state->window_end = tp->snd_nxt;
	state->delivered = tp->delivered;
	state->delivered_ce = tp->delivered_ce;
}

SEC("struct_ops/dctcp_init")
void
BPF_PROG(dctcp_init, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *state = state_of(tp);

	state->alpha = ONE;
	state->rcv_nxt = tp->rcv_nxt;
	state->marked = false;
	begin_window(tp, state);
}

SEC("struct_ops/dctcp_ssthresh")
__u32
BPF_PROG(dctcp_ssthresh, struct sock *sk)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	__u32 window = tp->snd_cwnd;

	window -= window * state_of(tp)->alpha / (2 * ONE);
	return window > MIN_WINDOW ? window : MIN_WINDOW;
}

/* Once in a window of data: alpha moves by g towards the share that was marked. */
SEC("struct_ops/dctcp_in_ack_event")
void
BPF_PROG(dctcp_in_ack_event, struct sock *sk, __u32 flags)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *state = state_of(tp);
	__u32 delivered, marked;

	(void)flags;
	if ((__s32)(tp->snd_una - state->window_end) < 0)
		return;
	delivered = tp->delivered - state->delivered;
	marked = tp->delivered_ce - state->delivered_ce;
	state->alpha -= state->alpha >> GAIN_SHIFT;
	if (delivered != 0 && marked != 0)
		state->alpha += (__u32)((__u64)marked * ONE / delivered) >> GAIN_SHIFT;
	if (state->alpha > ONE)
		state->alpha = ONE;
	begin_window(tp, state);
}

/* An acknowledgement must not be for segments with marks and without. */
SEC("struct_ops/dctcp_cwnd_event")
void
BPF_PROG(dctcp_cwnd_event, struct sock *sk, enum tcp_ca_event event)
{
	struct tcp_sock *tp = (struct tcp_sock *)sk;
	struct dctcp *state = state_of(tp);
	const bool marked = event == CA_EVENT_ECN_IS_CE;

	if (event != CA_EVENT_ECN_IS_CE && event != CA_EVENT_ECN_NO_CE)
		return;
	if (state->marked != marked) {
		/* What is delayed says what came before. */
		if ((tp->inet_conn.icsk_ack.pending & ICSK_ACK_TIMER) != 0) {
			if (state->marked)
				tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
			else
				tp->ecn_flags &= (__u8)~TCP_ECN_DEMAND_CWR;
			bpf_tcp_send_ack(tp, state->rcv_nxt);
		}
		state->marked = marked;
	}
	state->rcv_nxt = tp->rcv_nxt;
	if (marked)
		tp->ecn_flags |= TCP_ECN_DEMAND_CWR;
	else
		tp->ecn_flags &= (__u8)~TCP_ECN_DEMAND_CWR;
}

SEC("struct_ops/dctcp_cong_avoid")
void
BPF_PROG(dctcp_cong_avoid, struct sock *sk, __u32 ack, __u32 acked)
{
	tcp_reno_cong_avoid(sk, ack, acked);
}

SEC("struct_ops/dctcp_undo_cwnd")
__u32
BPF_PROG(dctcp_undo_cwnd, struct sock *sk)
{
	return tcp_reno_undo_cwnd(sk);
}

SEC(".struct_ops")
struct tcp_congestion_ops dctcp = {
	.init = (void *)dctcp_init,
	.ssthresh = (void *)dctcp_ssthresh,
	.in_ack_event = (void *)dctcp_in_ack_event,
	.cwnd_event = (void *)dctcp_cwnd_event,
	.cong_avoid = (void *)dctcp_cong_avoid,
	.undo_cwnd = (void *)dctcp_undo_cwnd,
	.flags = TCP_CONG_NEEDS_ECN,
	.name = "fanin_dctcp",
};

char dctcp_license[] SEC("license") = "Dual BSD/GPL";
