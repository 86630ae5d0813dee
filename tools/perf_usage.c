/* SPDX-License-Identifier: BSD-3-Clause */
/* What fanin-perf says of its options. See perf.h. */
#include <stdarg.h>
#include <stdio.h>
#include <stdlib.h>

#include "tools/perf.h"

static const char usage_text[] =
	"Usage: fanin-perf --switch IP --job N --rank R --size P --key-file FILE [option...]\n"
	"       fanin-perf --job-name NAME --size P [--manager ADDRESS] [option...]\n"
	"Runs collectives as rank R of P of a job on a Fanin switch and measures them. The job\n"
	"was created on the switch, or is found by its name at the network manager.\n"
	"\n"
	"  --manager ADDRESS    the network manager's address, with :PORT if that is not 21932\n"
	"                       (default: FANIN_MANAGER, else that in /etc/fanin/fanin.conf)\n"
	"  --job-name NAME      the job's name there; --rank is then by arrival unless given\n"
	"  --handler NAME       that the job is to have (default: auto)\n"
	"  --reproducible       the job gives the same bits every time\n"
	"  --accumulate f32     the job sums f16 and bf16 in f32\n"
	"  --authenticate       packets carry message authentication codes; the job must have been\n"
	"                       created so, and one of the manager's is\n"
	"  --trees N            reduction trees that the job is to have, which its blocks take\n"
	"                       in turn (default: the manager's)\n"
	"  --no-fallback        fail if no reduction tree can be had, instead of a ring of hosts\n"
	"  --switch IP          the switch's IPv4 address\n"
	"  --job N              the job's number\n"
	"  --rank R             this host's rank, 0 to P - 1\n"
	"  --size P             ranks in the job\n"
	"  --key-file FILE      has the job's key, as 0x...; - is standard input\n"
	"                       (default: the key is in FANIN_KEY)\n"
	"  --key KEY            the same on the command line, which other users can see until it\n"
	"                       is read\n"
	"  --interface NAME     network interface (default: that of the route to the switch)\n"
	"  --transport NAME     auto, af_xdp, af_packet or memif (default: auto)\n"
	"  --memif SOCKET:ID    shared memory with a switch on this machine: its socket and the\n"
	"                       port's number there; needs --address\n"
	"  --address IP         this host's address as a member of the job; needed with --memif,\n"
	"                       with --job-name (default: that of the route to the manager)\n"
	"  --collective NAME    allreduce, reduce, reduce_scatter, broadcast, allgather or\n"
	"                       barrier (default: allreduce)\n"
	"  --root R             of reduce and broadcast (default: 0)\n"
	"  --in-place           receive where the data to be sent are\n"
	"  --bytes N            size of the vector, with reduce_scatter and allgather of all ranks'\n"
	"                       parts together; k, KiB, MB, MiB, GiB... (default: 64MiB)\n"
	"  --dtype TYPE         i8, i16, i32, i64, u8, u16, u32, u64, f16, bf16, f32 or f64\n"
	"                       (default: f32)\n"
	"  --op OP              sum, prod, min, max or avg; on integers also land, lor, lxor,\n"
	"                       band, bor and bxor; not used where nothing is combined\n"
	"                       (default: sum)\n"
	"                       --dtype complex-f32 --op prod is a custom operator\n"
	"  --iters N            measured collectives (default: 1)\n"
	"  --warmup N           collectives before that (default: 0)\n"
	"  --check              compare every element with a result computed here\n"
	"  --check-ends         only in the first and the last one, which alone get new data\n"
	"  --data KIND          exact: sums without rounding (default); random: sums of f16, bf16,\n"
	"                       f32 or f64 that depend on the order, checked bit by bit if\n"
	"                       the job is reproducible\n"
	"  --seed N             of the data; the same on every rank (default: 1)\n"
	"  --window N           most packets in flight (default: the job's, but 512 KiB of packets\n"
	"                       that hold more than 32 KiB)\n"
	"  --no-stagger         send in order instead of rotated by rank\n"
	"  --recover            go on if the job is made anew, as when a switch has failed\n"
	"  --timeout-ms N       longest wait without a result if a rank or the switch is gone\n"
	"                       (default: 5000)\n"
	"  --wait-limit-ms N    longest wait for ranks that are late (default: 0, no limit)\n"
	"  --join-timeout-ms N  longest wait for the other ranks to join (default: 30000)\n"
	"  --pause SECONDS      this rank sleeps once, as if it wrote a checkpoint: the others wait\n"
	"  --pause-at N         before that iteration, from 0, those of the warm-up too\n"
	"                       (default: 0)\n"
	"  --pause-busy         computes instead, while the collective is posted\n"
	"  --json               print one JSON object\n"
	"  --times              with the seconds of each measured collective in it\n"
	"  --progress, --no-progress\n"
	"                       progress bar on stderr (default: if it is a terminal)\n"
	"  --verbose            diagnostics on stderr\n"
	"  --help, --version\n";

void __attribute__((noreturn, format(printf, 1, 2))) usage_error(const char *format, ...)
{
	va_list args;

	fputs("fanin-perf: ", stderr);
	va_start(args, format);
	vfprintf(stderr, format, args);
	va_end(args);
	fputs("\nfanin-perf --help lists the options.\n", stderr);
	exit(2);
}

void __attribute__((noreturn)) usage_print(void)
{
	fputs(usage_text, stdout);
	exit(0);
}
