/* SPDX-License-Identifier: BSD-3-Clause */
/*
 * The bare exchange: the cost of an allreduce over UDP sockets and a switch with packet ports,
 * without any protocol. Hosts send a vector as super-frames (UDP_SEGMENT); a process in the middle
 * adds them and sends each sum back to all hosts as a super-frame. There is no admission, nothing
 * is repeated, and any loss ends the exchange. Segments have the layout of Fanin's packets, with
 * its header before each payload; the header's block is the number of the super-frame.
 */
#ifndef FANIN_LAB_BENCH_PEERS_EXCHANGE_H
#define FANIN_LAB_BENCH_PEERS_EXCHANGE_H

#define EXCHANGE_PORT 21930
#define EXCHANGE_GROUP 0xefc00001u

/* Maximum of bytes after the UDP header of a super-frame, and of segments. */
#define EXCHANGE_BYTES 65507u
#define EXCHANGE_SEGMENTS 64u

/* Maximum of a host's super-frames in flight. */
#define EXCHANGE_WINDOW 4u

/* Empty looks, each followed by a yield, before a process sleeps. */
#define EXCHANGE_YIELDS 4u

/* Maximum of a sleep; after this, something was lost. */
#define EXCHANGE_SILENCE_MS 10000

#endif
