/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bare exchange: what an allreduce over UDP sockets and a switch with packet ports takes
 * without any protocol. Hosts send a vector as super-frames (UDP_SEGMENT), a process in the middle
 * adds them up and sends each sum back to all as a super-frame; there is no admission, nothing is
 * repeated, and whatever is lost ends it. Segments are laid out as Fanin's packets, with its header
 * before each payload; its block is the number of the super-frame.
 */
#ifndef FANIN_LAB_BENCH_PEERS_EXCHANGE_H
#define FANIN_LAB_BENCH_PEERS_EXCHANGE_H

#define EXCHANGE_PORT 21930
#define EXCHANGE_GROUP 0xefc00001u

/* Most bytes behind the UDP header of a super-frame, and most segments. */
#define EXCHANGE_BYTES 65507u
#define EXCHANGE_SEGMENTS 64u

/* Most super-frames of a host that are on their way. */
#define EXCHANGE_WINDOW 4u

/* Empty looks, each with a yield behind it, before a process sleeps. */
#define EXCHANGE_YIELDS 4u

/* Longest sleep; then something was lost. */
#define EXCHANGE_SILENCE_MS 10000

#endif
