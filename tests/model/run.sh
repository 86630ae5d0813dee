#!/usr/bin/env bash
# SPDX-License-Identifier: BSD-3-Clause
# Checks the models of the window protocol (window.pml), of sparse blocks (sparse.pml), of PA-ATP
# (pa_atp.pml), of Canary (canary.pml), of Push (push.pml), of Pull (pull.pml), of reliable
# multicast (broadcast.pml), of ranks of one host (local.pml), of MPI programs whose network fails
# (mpi_agree.pml), of runs that are taken up again (recovery.pml) and of joining where versions
# differ (version.pml): searches each
# configuration to the end, then sees that each mutant is caught by the property that should catch
# it, as many at a time as there are CPUs. Prints a line for each; fails if a property is violated,
# a search was cut short, or a mutant survives. No arguments; needs spin and gcc, writes to a
# temporary directory only.
set -euo pipefail

models=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
protocols=$(cd "$models/../../protocols" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
trap 'kill $(jobs -p); wait; exit 1' INT TERM
cd "$work"

for tool in spin gcc; do
	command -v $tool >/dev/null || {
		echo "model: $tool is not installed"
		exit 1
	}
done

# Limits of one search; seconds are those of a CPU, so that a busy machine fails nothing. Coming
# near them is a failure, not a pass.
MEGABYTES=1500
DEPTH=5000
SECONDS_EACH=150

# usage: spread FUNCTION ARGUMENTS...: runs it beside others, in a directory of its own; what it
# prints comes at the end.
cpus=$(nproc)
searches=0
spread() {
	local place
	while (($(jobs -rp | wc -l) >= cpus)); do
		wait -n || true
	done
	printf -v place '%03d' $((searches++))
	mkdir "$place"
	(cd "$place" && "$@") >"$place.out" 2>&1 &
}
holds() { spread check_holds "$@"; }
caught() { spread check_caught "$@"; }

# usage: sizes LEVELS W HOSTS BLOCKS; prints the options that give a configuration's sizes
sizes() { echo "-DLEVELS=$1 -DW=$2 -DHOSTS=$3 -DBLOCKS=$4"; }

# usage: budget LOSSES DUPLICATES PREMATURE
budget() { echo "-DLOSSES=$1 -DDUPLICATES=$2 -DPREMATURE=$3"; }

# usage: search OPTIMISATION OPTIONS...; each argument may be several options. Leaves what the
# verifier said in ./log and sets options, states, depth and elapsed. One process has nothing that
# partial order reduction could reduce.
search() {
	local optimisation=$1 start=$EPOCHREALTIME end
	shift
	read -r -a options <<<"$*"
	rm -f pan* ./*.trail
	if ! spin -a "${options[@]}" "$model" >log 2>&1 ||
		! gcc "$optimisation" -w -DSAFETY -DNOREDUCE -DVECTORSZ=256 -DMEMLIM=$MEGABYTES \
			-o pan pan.c >>log 2>&1; then
		echo "not built" >>log
	else
		(ulimit -t $SECONDS_EACH && exec ./pan -m$DEPTH -w22) >>log 2>&1 || echo "pan ended with status $?" >>log
	fi
	end=$EPOCHREALTIME
	states=$(sed -n 's/^ *\([0-9.e+]*\) states, stored.*/\1/p' log)
	depth=$(sed -n 's/.*depth reached \([0-9]*\),.*/\1/p' log)
	elapsed=$(((${end/./} - ${start/./}) / 10000))
	printf -v elapsed '%d.%02d' $((elapsed / 100)) $((elapsed % 100))
}

# usage: report NAME VERDICT
report() { printf '%-38s %9s %6s %7s  %s\n' "$1" "${states:--}" "${depth:--}" "$elapsed" "$2"; }

# What the verifier found, in a few words; nothing if all was searched and is well.
complaint() {
	local found
	found=$(sed -n 's/^pan:1: \(.*\)/\1/p' log | head -n 1)
	if [[ -n $found ]]; then
		echo "$found"
	elif grep -q -e 'max search depth too small' -e 'Search not completed' \
		-e 'out of memory' log ||
		! grep -q 'errors: 0' log; then
		echo "not searched to the end"
	fi
}

# usage: check_holds NAME OPTIMISATION OPTIONS...
check_holds() {
	local name=$1 found
	shift
	search "$@"
	found=$(complaint)
	if [[ -z $found ]]; then
		report "$name" "holds"
		return
	fi
	touch failed
	report "$name" "FAILED: $found"
	if compgen -G '*.trail' >trails; then
		spin -k "$(head -n 1 trails)" -t "${options[@]}" "$model" | head -n 200
	else
		tail -n 20 log
	fi
}

# usage: check_caught PROPERTY MUTANT OPTIONS...; the options may name another mutant, and checks
# that are left out.
check_caught() {
	local property=$1 mutant=${2,,} found
	search -O0 "-DMUTANT_$2" "${@:3}"
	found=$(complaint)
	[[ $* != *-DMUTANT_EARLY_SEND* ]] || mutant+=" + early_send"
	[[ $* != *-DMUTANT_SEEN_CLEARED* ]] || mutant+=" + seen_cleared"
	[[ $* != *-DMUTANT_HASTY* ]] || mutant+=" + hasty"
	[[ $* != *-DWITHOUT_* ]] || mutant+=", effect"
	[[ $* != *-DLOSSES=*-DPREMATURE=* ]] || mutant+=", bounded"
	[[ $* != *-DOWNERS* ]] || mutant="owners $mutant"
	[[ $model != */sparse.pml ]] || mutant="sparse $mutant"
	[[ $model != */pa_atp.pml ]] || mutant="pa-atp $mutant"
	[[ $model != */canary.pml ]] || mutant="canary $mutant"
	[[ $model != */push.pml ]] || mutant="push $mutant"
	[[ $model != */pull.pml ]] || mutant="pull $mutant"
	[[ $model != */broadcast.pml ]] || mutant="multicast $mutant"
	[[ $model != */local.pml ]] || mutant="local $mutant"
	[[ $model != */mpi_agree.pml ]] || mutant="mpi $mutant"
	[[ $model != */version.pml ]] || mutant="version $mutant"
	if [[ $found == "assertion violated $property "* ]]; then
		report "mutant $mutant" "caught: $property"
	else
		touch failed
		report "mutant $mutant" "FAILED: ${found:-survives}, expected $property"
	fi
}

printf '%-38s %9s %6s %7s  %s\n' configuration states depth seconds verdict

# Runs that are lost at any moment. W=2 with 3 hosts is the largest; its blocks reuse a slot
# in the first run.
model=$models/recovery.pml

# usage: lossy W HOSTS BLOCKS LOSSES
lossy() { echo "-DW=$1 -DHOSTS=$2 -DBLOCKS=$3 -DLOSSES=$4"; }

# The longest search begins first.
holds "recovery W=2 3 hosts 1 loss" -O1 "$(lossy 2 3 5 1)"
holds "recovery W=1 2 hosts 2 losses" -O1 "$(lossy 1 2 6 2)"
holds "recovery W=1 3 hosts 2 losses" -O1 "$(lossy 1 3 5 2)"
holds "recovery W=2 2 hosts 2 losses" -O1 "$(lossy 2 2 6 2)"

one="$(lossy 1 2 5 2)"
two="$(lossy 2 2 6 1)"
caught skew_is_below_window NOT_STRICT "$two"
caught result_is_kept NOT_STRICT -DWITHOUT_SKEW_CHECK "$two"
caught everybody_finishes OWN_PROGRESS "$two"
caught everybody_finishes KNOWN_IGNORED "$two"
caught sum_is_exact KNOWN_ADDED "$two"
caught result_is_kept KEEPS_LESS "$two"
caught sum_is_exact CONTRIBUTES_CHANGED "$two"
caught same_everywhere CONTRIBUTES_UNCHANGED "$two"
caught everybody_finishes TOLD_ONCE "$two"
caught everybody_finishes SLOTS_STAY "$two"
caught sum_is_exact ANY_RUN "$two"
caught result_is_kept ACKS_OVERTAKE "$one"

# The same of blocks with owners.
holds "owners   W=1 2 hosts 2 losses" -O1 -DOWNERS "$(lossy 1 2 6 2)"
holds "owners   W=1 3 hosts 2 losses" -O1 -DOWNERS "$(lossy 1 3 5 2)"
holds "owners   W=2 2 hosts 1 loss" -O1 -DOWNERS "$two"
caught everybody_finishes EMPTY_TOLD -DOWNERS "$two"
caught sum_is_exact EMPTY_TAKEN -DOWNERS "$two"
caught everybody_finishes SENDS_NOTHING -DOWNERS "$two"
caught sum_is_exact GIVEN_UP_EARLY -DOWNERS "$two"
caught sum_is_exact OWNER_TAKES_EMPTY -DOWNERS "$two"
caught sum_is_exact CONTRIBUTES_CHANGED -DOWNERS "$two"
caught result_is_kept KEEPS_LESS -DOWNERS "$two"

# Ranks of one host: the second of four chunks is plain, the third small; or all are combined; or
# all are empty.
model=$models/local.pml

# usage: chunked RANKS DEPTH CHUNKS PLAIN SMALL EMPTY
chunked() { echo "-DRANKS=$1 -DDEPTH=$2 -DCHUNKS=$3 -DPLAIN=$4 -DSMALL=$5 -DEMPTY=$6"; }

holds "local    3 ranks 4 chunks" -O1 "$(chunked 3 2 4 2 4 0)"
holds "local    3 ranks combined" -O1 "$(chunked 3 2 4 0 0 0)"
holds "local    3 ranks empty" -O1 "$(chunked 3 2 4 0 0 15)"
holds "local    2 ranks 6 chunks" -O1 "$(chunked 2 2 6 18 4 8)"
chunks=$(chunked 3 2 4 2 4 0)
caught place_is_free POSTS_ON "$(chunked 3 2 4 0 0 15)"
caught right_data FILLS_EARLY "$chunks"
caught right_data REDUCES_EARLY "$chunks"
caught right_data POSTS_EARLY "$chunks"
caught everybody_ends SLEEPS_BLIND "$chunks"
caught everybody_ends SAYS_ONCE "$chunks"
caught everybody_ends LAST_SAYS_NOTHING "$chunks"
caught everybody_ends LEADER_MUTE "$chunks"

# Aggregators that two jobs share, and a server. With three hosts sets of ranks can overlap.
model=$protocols/pa_atp/tests/pa_atp.pml

# usage: served W HOSTS BLOCKS AGGREGATORS LOSSES
served() { echo "-DW=$1 -DHOSTS=$2 -DBLOCKS=$3 -DAGGREGATORS=$4 -DLOSSES=$5"; }

holds "pa-atp W=2 2 hosts" -O1 "$(served 2 2 3 1 0)"
holds "pa-atp W=1 2 hosts 1 loss" -O1 "$(served 1 2 3 1 1)"
holds "pa-atp W=1 2 hosts 2 aggregators" -O1 "$(served 1 2 3 2 0)"
holds "pa-atp W=2 2 hosts 1 loss" -O1 "$(served 2 2 2 1 1)"
holds "pa-atp W=1 3 hosts" -O1 "$(served 1 3 2 1 0)"
holds "pa-atp W=1 3 hosts 1 loss" -O1 "$(served 1 3 1 1 1)"

one="$(served 1 2 3 1 0)"
two="$(served 1 2 2 1 1)"
three="$(served 1 3 1 1 0)"
caught entry_is_free HALF_ENTRIES "$one"
caught entry_is_free EARLY_SEND "$one"
caught sum_is_exact DUPLICATES_MERGED "$one"
caught sum_is_exact OVERLAP_MERGED "$three"
caught sum_is_exact SWITCH_COUNTS "$one"
caught timers_help NO_ASK "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help KNOWN_IGNORED "$two"
caught sum_is_exact OWN_DATA "$two"
caught same_everywhere COMPUTED_AGAIN "$two"

# Descriptors in tables of one place, two spines, and leaders. Quiet: nothing is lost,
# and no rank asks.
model=$protocols/canary/tests/canary.pml

# usage: led W HOSTS BLOCKS LEADERS
led() { echo "-DW=$1 -DHOSTS=$2 -DBLOCKS=$3 -DLEADERS=$4"; }

# usage: faults LOSSES DUPLICATES FORGETS PREMATURE COLLISIONS
faults() { echo "-DLOSSES=$1 -DDUPLICATES=$2 -DFORGETS=$3 -DPREMATURE=$4 -DCOLLISIONS=$5"; }

holds "canary W=2 3 ranks 1 0 0 0 0" -O1 "$(faults 1 0 0 0 0)" "$(led 2 3 3 2)"
holds "canary W=1 3 ranks 1 1 1 1 0" -O1 "$(faults 1 1 1 1 0)" "$(led 1 3 1 1)"
holds "canary W=1 3 ranks 1 1 0 0 0" -O1 "$(faults 1 1 0 0 0)" "$(led 1 3 2 2)"
holds "canary W=1 3 ranks 1 0 1 0 0" -O1 "$(faults 1 0 1 0 0)" "$(led 1 3 2 2)"
holds "canary W=1 3 ranks 0 0 0 1 1" -O1 "$(faults 0 0 0 1 1)" "$(led 1 3 2 1)"
holds "canary W=1 2 ranks 1 0 1 0 1" -O1 "$(faults 1 0 1 0 1)" "$(led 1 2 3 2)"
holds "canary W=1 4 ranks 0 1 0 1 0" -O1 "$(faults 0 1 0 1 0)" "$(led 1 4 1 1)"
holds "canary W=1 4 ranks 1 0 1 0 0" -O1 "$(faults 1 0 1 0 0)" "$(led 1 4 1 1)"
holds "canary W=1 3 ranks 0 0 0 0 0 quiet" -O1 -DQUIET "$(faults 0 0 0 0 0)" "$(led 1 3 4 3)"
holds "canary W=2 3 ranks 0 0 0 0 1 quiet" -O1 -DQUIET "$(faults 0 0 0 0 1)" "$(led 2 3 3 2)"
holds "canary W=1 3 ranks 0 1 0 1 1 quiet" -O1 -DQUIET "$(faults 0 1 0 1 1)" "$(led 1 3 1 1)"
holds "canary W=1 4 ranks 0 0 0 1 1 quiet" -O1 -DQUIET "$(faults 0 0 0 1 1)" "$(led 1 4 1 1)"
holds "canary W=1 4 ranks unbounded" -O1 -DUNBOUNDED -DSWITCHES=1 "$(led 1 4 2 1)"
holds "canary W=1 3 ranks unbounded" -O1 -DUNBOUNDED -DSWITCHES=1 "$(led 1 3 5 1)"
holds "canary W=2 3 ranks unbounded" -O1 -DUNBOUNDED -DSWITCHES=1 "$(led 2 3 5 2)"
holds "canary W=1 3 ranks unbounded, two" -O1 -DUNBOUNDED -DSWITCHES=2 "$(led 1 3 3 3)"

one="-DUNBOUNDED -DSWITCHES=1 $(led 1 3 3 1)"
two="-DUNBOUNDED -DSWITCHES=1 $(led 2 3 4 2)"
four="-DUNBOUNDED -DSWITCHES=1 $(led 1 4 1 1)"
caught entry_is_free HALF_ENTRIES "$one"
caught timers_help HALF_ENTRIES -DWITHOUT_ENTRY_CHECK "$one"
caught entry_is_free EARLY_SEND "$one"
caught timers_help EARLY_SEND -DWITHOUT_ENTRY_CHECK "$one"
caught entry_is_free OLDER_OPENS "$one"
caught timers_help OLDER_OPENS -DWITHOUT_ENTRY_CHECK "$one"
caught sum_is_exact SWITCH_COUNTS "$one"
caught sum_is_exact LEADER_COUNTS "$one"
caught sum_is_exact SUPERSET_ADDED "$one"
caught sum_is_exact OWN_REPLACED "$one"
caught sum_is_exact PASSED_ON_IN_SUM "$four"
caught sum_is_exact NOT_COMPLETE "$one"
caught sum_is_exact ANY_RUN -DUNBOUNDED -DSWITCHES=1 "$(led 1 3 1 1)"
caught one_result MADE_TWICE "$one"
caught data_is_own ANSWERS_ALWAYS "$one"
caught timers_help NO_ASK "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help ENDS_EARLY "$two"
caught timers_help LEADER_LEAVES "$one"

one="$(faults 1 0 0 0 0) $(led 1 3 1 1)"
quiet="-DQUIET $(faults 0 0 0 1 1) $(led 1 3 1 1)"
caught timers_help ASKED_COMBINED "$one"
caught needs_no_query NO_REPEAT_TO_DIRECT "$quiet"
caught needs_no_query NO_RESTORE "$quiet"
caught needs_no_query COLLISION_UNTOLD "$quiet"
caught needs_no_query STRAGGLERS_DROPPED "$quiet"
caught needs_no_query STRAGGLERS_PORT "$quiet"
caught descriptors_end DESCRIPTORS_STAY -DQUIET "$(faults 0 0 0 0 1)" "$(led 1 3 1 1)"

# Tables of one entry, and home hosts.
model=$protocols/push/tests/push.pml

# usage: pushed W HOSTS BLOCKS HOMES LEAVES LOSSES
pushed() { echo "-DW=$1 -DHOSTS=$2 -DBLOCKS=$3 -DHOMES=$4 -DLEAVES=$5 -DLOSSES=$6"; }

holds "push W=1 3 ranks, leaf" -O1 "$(pushed 1 3 2 1 1 0)"
holds "push W=1 2 ranks 4 blocks" -O1 "$(pushed 1 2 4 1 0 0)"
holds "push W=1 2 ranks 1 loss" -O1 "$(pushed 1 2 3 1 0 1)"
holds "push W=1 3 ranks" -O1 "$(pushed 1 3 2 1 0 0)"
holds "push W=1 2 ranks, leaf" -O1 "$(pushed 1 2 3 1 1 0)"
holds "push W=2 2 ranks 2 homes" -O1 "$(pushed 2 2 3 2 0 0)"
holds "push W=1 3 ranks, leaf 1 loss" -O1 "$(pushed 1 3 1 1 1 1)"
holds "push W=1 2 ranks, bound" -O1 -DBOUND "$(pushed 1 2 4 1 0 0)"
holds "push W=1 2 ranks, bound 1 loss" -O1 -DBOUND "$(pushed 1 2 3 1 0 1)"
holds "push W=1 2 ranks 2 homes, bound" -O1 -DBOUND "$(pushed 1 2 4 2 0 0)"

one="$(pushed 1 2 3 1 0 0)"
two="$(pushed 2 2 3 2 0 0)"
three="$(pushed 1 3 2 1 0 0)"
lossy="$(pushed 1 3 2 1 0 1)"
caught entry_is_free HALF_SLOTS "$one"
caught entry_is_free EARLY_SEND "$one"
caught one_result OLDER_OPENS "$one"
caught sum_is_exact EVICTED_UNMARKED "$one"
caught one_result QUERY_COPIES "$three"
caught one_result COMMITTED_TAKES "$three"
caught one_result DONE_FORGOTTEN "$one"
caught one_result DATA_WITH_RESULT "$one"
caught sum_is_exact OVERLAP_COMBINED "$three"
caught sum_is_exact PARTLY_SEEN -DMUTANT_SEEN_CLEARED "$(pushed 1 3 2 1 1 0)"
caught timers_help OWN_AT_POST "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help NO_ASK "$one"
caught timers_help ENDS_EARLY "$two"
caught one_result SUM_SURVIVES "$lossy"
caught sum_is_exact ENTRY_SURVIVES "$lossy"
caught one_result ANY_RUN "$lossy"
caught one_result SENDS_KNOWN "$(pushed 2 2 3 2 0 1)"
caught not_too_new BOUND_TIGHT -DBOUND "$one"
caught not_too_new DATA_UNNOTED -DBOUND "$one"
caught not_too_new RESULT_UNNOTED -DBOUND "$one"
caught not_too_new NOTES_BEGIN_EARLY -DBOUND "$(pushed 2 2 5 1 0 1)"
caught stale_is_over STALE_TIGHT -DBOUND "$one"

# Owners that pull, past tables of one entry.
model=$protocols/pull/tests/pull.pml

# usage: pulled RANKS PACKETS OPERATIONS
pulled() { echo "-DRANKS=$1 -DPACKETS=$2 -DOPERATIONS=$3"; }

holds "pull 3 ranks, 2 operations scatter" -O1 -DSCATTER "$(pulled 3 2 2)"
holds "pull 4 ranks, 1 operation" -O1 "$(pulled 4 1 1)"
holds "pull 3 ranks, 3 operations" -O1 "$(pulled 3 1 3)"
holds "pull 3 ranks, 1 operation" -O1 "$(pulled 3 2 1)"

one="$(pulled 3 1 1)"
two="$(pulled 3 1 2)"
four="$(pulled 4 1 1)"
caught sum_is_exact NUMBERLESS "$two"
caught sum_is_exact EXPIRED_OF_ANY_RUN "$two"
caught sum_is_exact OVERLAP_COMBINED "$four"
caught sum_is_exact SWITCH_COUNTS "$four"
caught sum_is_exact NOT_COMPLETE "$one"
caught sum_is_exact ANSWERS_ANY -DMUTANT_HASTY "$one"
caught timers_help NO_ASK "$one"
caught timers_help UNFAITHFUL -DSCATTER "$one"

model=$protocols/broadcast/tests/broadcast.pml

# usage: fetched RANKS PACKETS OPERATIONS LOSSES DUPLICATES PREMATURE
fetched() { echo "-DRANKS=$1 -DPACKETS=$2 -DOPERATIONS=$3 -DLOSSES=$4 -DDUPLICATES=$5 -DPREMATURE=$6"; }

holds "multicast 3 ranks, 2 operations 3 1 1" -O1 "$(fetched 3 2 2 3 1 1)"
holds "multicast 3 ranks, 2 operations 1 1 1" -O1 "$(fetched 3 2 2 1 1 1)"
holds "multicast 4 ranks, 1 operation 1 1 1" -O1 "$(fetched 4 2 1 1 1 1)"
holds "multicast 4 ranks, 1 operation 2 0 1" -O1 "$(fetched 4 2 1 2 0 1)"

one="$(fetched 3 2 2 1 1 1)"
caught data_is_the_operations NUMBERLESS "$one"
caught all_have_all HASTY "$one"
caught timers_help UNFAITHFUL "$one"
caught timers_help NEVER_ASKS "$one"
caught gives_what_it_sent GIVES_UNSENT "$one"

model=$models/mpi_agree.pml

# usage: called RANKS CALLS NONBLOCKING SMALL REFUSALS [SECOND FREES]; bits for each
# call, see the model
called() { echo "-DRANKS=$1 -DCALLS=$2 -DNONBLOCKING=$3 -DSMALL=$4 -DREFUSALS=$5 -DSECOND=${6:-0} -DFREES=${7:-0} -DDEPTH=2"; }

holds "mpi 3 ranks, 5 calls, 4 nonblocking" -O1 "$(called 3 5 $((2#01111)) $((2#00100)) 0)"
holds "mpi 3 ranks, 6 calls, 4 nonblocking" -O0 "$(called 3 6 $((2#011011)) $((2#001010)) 0)"
holds "mpi 3 ranks, 2 communicators, free" -O0 "$(called 3 4 $((2#0101)) $((2#0010)) 0 $((2#0101)) $((2#0100)))"
holds "mpi 2 ranks, 2 communicators, 6 calls" -O0 "$(called 2 6 $((2#011101)) $((2#000010)) 0 $((2#010101)))"
holds "mpi 3 ranks, 4 calls, 1 refusal" -O0 "$(called 3 4 $((2#1011)) $((2#0010)) 1)"
holds "mpi 3 ranks, 4 blocking, 1 refusal" -O0 "$(called 3 4 0 $((2#1111)) 1)"

one="$(called 3 4 $((2#0011)) $((2#0010)) 0)"
queued="$(called 3 4 $((2#1111)) $((2#1100)) 0)"
refused="$(called 3 4 $((2#0011)) $((2#0010)) 1)"
two="$(called 2 4 0 0 0 $((2#0001)) $((2#0100)))"
caught everybody_ends AGREES_LATE "$one"
caught everybody_ends AGREES_LATE "$two"
caught same_on_shadow BARRIER_AT_END "$one"
caught everybody_ends LEAVES_ALONE "$one"
caught everybody_ends ONE_BY_ONE "$(called 2 4 0 0 0 $((2#0001)))"
caught everybody_ends OWN_NEXT "$one"
caught same_on_shadow OWN_NEXT -DWITHOUT_END_CHECK "$queued"
caught everybody_ends MINIMUM "$one"
caught same_on_shadow FIRST_ERROR "$one"
caught one_way FIRST_ERROR -DWITHOUT_SHADOW_CHECK -DWITHOUT_END_CHECK "$queued"
caught errors_are_few GIVES_UP "$(called 2 5 $((2#00011)) 0 0)"
caught same_on_comm DIRECT "$queued"
caught everybody_ends EARLY_ROOT "$one"
caught everybody_ends POSTS_ON "$refused"
caught sum_is_exact POSTS_ON -DWITHOUT_END_CHECK "$refused"

# Joining where hosts, switch and parent have versions of their own. Two hosts below a switch of the
# version before and a newer parent are left out: the first one is told, and what the second one
# hears is that of the release before.
model=$models/version.pml

# usage: versions HOSTS HOST_OLD SWITCH_OLD PARENT_OLD LOSSES DUPLICATES PREMATURE
versions() { echo "-DHOSTS=$1 -DHOST_OLD=$2 -DSWITCH_OLD=$3 -DPARENT_OLD=$4 -DLOSSES=$5 -DDUPLICATES=$6 -DPREMATURE=$7"; }

for old in "0 0 0" "0 0 1" "0 1 0" "0 1 1" "1 0 0" "1 0 1" "1 1 0" "1 1 1"; do
	holds "version 1 host  old: $old" -O0 "$(versions 1 $old 2 1 1)"
done
for old in "0 0 0" "0 0 1" "0 1 0" "0 1 1" "1 0 0" "1 0 1" "1 1 0" "1 1 1" \
	"3 0 0" "3 0 1" "3 1 1"; do
	holds "version 2 hosts old: $old" -O0 "$(versions 2 $old 2 1 0)"
done

caught nobody_waits HOST_ASKS_NOTHING "$(versions 1 0 1 1 1 1 1)"
caught nobody_waits SWITCH_ASKS_NOTHING "$(versions 1 0 0 1 1 1 1)"
caught nobody_waits SWITCH_IS_SILENT "$(versions 1 1 0 0 1 1 1)"
caught nobody_waits TOLD_ONCE "$(versions 2 0 0 1 1 0 0)"
caught right_refusal TAKES_ANY "$(versions 1 0 0 0 1 1 1)"
caught right_refusal TELLS_NO_VERSION "$(versions 1 0 0 0 1 1 1)"
caught right_refusal SWITCH_TAKES_ANY "$(versions 1 0 0 0 1 1 1)"
caught both_versions TELLS_NO_VERSION "$(versions 1 1 0 0 1 1 1)"
caught never_mixed ASKS_WITH_COOKIE "$(versions 1 0 1 1 1 1 1)"

model=$protocols/sparse/tests/sparse.pml

# Blocks of several shards, with spills. Every slot is used three times or more, but with W=2 and in
# the largest one.
holds "sparse 2 levels W=1 3 hosts" -O1 "$(sizes 2 1 3 3)"
holds "sparse 2 levels W=1 2 hosts" -O1 "$(sizes 2 1 2 6)"
holds "sparse 1 level  W=2 2 hosts" -O1 "$(sizes 1 2 2 7)"
holds "sparse 1 level  W=1 2 hosts" -O0 "$(sizes 1 1 2 7)"
holds "sparse 1 level  W=1 3 hosts" -O0 "$(sizes 1 1 3 5)"
holds "sparse 1 level  W=1 2 hosts 3 shards" -O0 -DSHARDS=3 "$(sizes 1 1 2 5)"

one="$(sizes 1 1 2 5)"
two="$(sizes 2 1 2 5)"
caught sum_is_exact COUNTS "$one"
caught sum_is_exact COUNTS "$two"
caught sum_is_exact DUPLICATES_COUNTED "$one"
caught sum_is_exact HOST_COUNTS "$one"
caught sum_is_exact LAST_ENDS "$two"
caught sum_is_exact BITS_STAY "$one"
caught sum_is_exact KEEPS_SPILLED "$two"
caught sum_is_exact NO_BUFFER "$two"
caught same_content RENUMBERED "$two"
caught sum_is_exact RENUMBERED -DWITHOUT_CONTENT_CHECK "$two"
caught slot_is_free HALF_SLOTS "$two"
caught slot_is_free FIRST_SHARD "$one"
caught timers_help FIRST_SHARD -DWITHOUT_SLOT_CHECK "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help NO_REPEAT "$two"
caught timers_help REPEATS_LAST "$one"
caught timers_help NO_RESEND "$one"
caught timers_help RESENDS_LAST "$two"
caught timers_help STALE_BITMAP "$one"
caught timers_help NO_PASS "$two"
caught timers_help PASSES_ONE "$two"
caught timers_help ABSENT_DOWN "$two"
caught timers_help NO_RESEND_UP "$two"
caught sum_is_exact STALE_ABSENT "$two"
caught slots_are_finished PASSES_UNKEPT "$two"
caught timers_help LEAF_DONE_AT_ONCE "$two"

# The same blocks where the run is lost at any moment, and some hosts have results that others lack.
holds "sparse 1 level  W=2 2 hosts 1 loss" -O1 -DLOSSES=1 "$(sizes 1 2 2 4)"
holds "sparse 2 levels W=1 2 hosts 2 losses" -O1 -DLOSSES=2 "$(sizes 2 1 2 3)"
holds "sparse 1 level  W=1 3 hosts 2 losses" -O1 -DLOSSES=2 "$(sizes 1 1 3 3)"
holds "sparse 2 levels W=1 3 hosts 2 losses" -O1 -DLOSSES=2 "$(sizes 2 1 3 1)"

one="-DLOSSES=1 $(sizes 1 1 2 3)"
two="-DLOSSES=1 $(sizes 2 1 2 3)"
caught same_content SPILLS_WHOLE "$one"
caught same_content SPILLS_WHOLE "$two"
caught sum_is_exact PARTS_STAY "$one"
caught sum_is_exact CONTRIBUTES_CHANGED "$one"
caught same_everywhere CONTRIBUTES_UNCHANGED "$one"
caught sum_is_exact TOLD_ADDED "$one"
caught sum_is_exact TOLD_ADDED "$two"
caught timers_help TOLD_IGNORED "$one"
caught timers_help TOLD_ONCE "$two"
caught timers_help TOLD_AT_ONCE "$two"
caught timers_help TOLD_UP_ONCE "$two"
caught slots_are_finished LEAF_WAITS "$two"

model=$protocols/dense/tests/window.pml

# Any loss, duplication and reordering, then a network without. Every slot is used three times or
# more, but with W=4. Where there is little to search, -O0 saves more than it costs.
for hosts in 2 3; do
	holds "1 level  W=1 $hosts hosts unbounded" -O0 -DUNBOUNDED "$(sizes 1 1 $hosts 6)"
	holds "1 level  W=2 $hosts hosts unbounded" -O0 -DUNBOUNDED "$(sizes 1 2 $hosts 12)"
	holds "2 levels W=1 $hosts hosts unbounded" -O0 -DUNBOUNDED "$(sizes 2 1 $hosts 6)"
	holds "3 levels W=1 $hosts hosts unbounded" -O0 -DUNBOUNDED "$(sizes 3 1 $hosts 6)"
done
holds "1 level  W=4 2 hosts unbounded" -O1 -DUNBOUNDED "$(sizes 1 4 2 10)"
holds "2 levels W=2 2 hosts unbounded" -O0 -DUNBOUNDED "$(sizes 2 2 2 12)"
holds "2 levels W=2 3 hosts unbounded" -O1 -DUNBOUNDED "$(sizes 2 2 3 12)"
holds "3 levels W=2 2 hosts unbounded" -O0 -DUNBOUNDED "$(sizes 3 2 2 12)"

# Every order of events on links with at most so many losses, duplicates and premature queries.
holds "1 level  W=1 2 hosts budget 2 1 1" -O1 "$(budget 2 1 1)" "$(sizes 1 1 2 6)"
holds "1 level  W=1 3 hosts budget 1 0 1" -O0 "$(budget 1 0 1)" "$(sizes 1 1 3 5)"
holds "1 level  W=1 3 hosts budget 1 1 0" -O0 "$(budget 1 1 0)" "$(sizes 1 1 3 5)"
holds "1 level  W=2 2 hosts budget 1 1 1" -O1 "$(budget 1 1 1)" "$(sizes 1 2 2 6)"
holds "1 level  W=2 2 hosts budget 1 1 0" -O0 "$(budget 1 1 0)" "$(sizes 1 2 2 9)"
holds "2 levels W=1 2 hosts budget 1 1 1" -O1 "$(budget 1 1 1)" "$(sizes 2 1 2 5)"
holds "2 levels W=1 3 hosts budget 1 1 0" -O1 "$(budget 1 1 0)" "$(sizes 2 1 3 5)"
holds "2 levels W=1 3 hosts budget 1 0 1" -O1 "$(budget 1 0 1)" "$(sizes 2 1 3 4)"
holds "2 levels W=2 2 hosts budget 1 1 0" -O1 "$(budget 1 1 0)" "$(sizes 2 2 2 6)"
holds "3 levels W=1 2 hosts budget 1 1 0" -O0 "$(budget 1 1 0)" "$(sizes 3 1 2 5)"

# The same with hosts that have a window of any size, which may change between any two packets.
holds "1 level  W<=2 2 hosts budget 1 1 0" -O1 -DWINDOWS "$(budget 1 1 0)" "$(sizes 1 2 2 9)"
holds "1 level  W<=2 3 hosts budget 1 0 0" -O1 -DWINDOWS "$(budget 1 0 0)" "$(sizes 1 2 3 6)"
holds "2 levels W<=2 2 hosts budget 1 0 0" -O0 -DWINDOWS "$(budget 1 0 0)" "$(sizes 2 2 2 6)"

# "effect": the checks of slots and order are left out, to see what their violation
# does to the hosts.
one="-DUNBOUNDED $(sizes 1 1 2 6)"
two="-DUNBOUNDED $(sizes 2 1 2 6)"
wide="-DUNBOUNDED $(sizes 1 2 2 6)"
effect="-DWITHOUT_SLOT_CHECK -DWITHOUT_ORDER_CHECK"
caught slot_is_free HALF_SLOTS "$one"
caught timers_help HALF_SLOTS "$effect" "$one"
caught slot_is_free HALF_SLOTS "$two"
caught sum_is_exact NO_BITMAP "$one"
caught sum_is_exact PRESENT_STAYS "$one"
caught slot_is_free EARLY_SEND "$one"
caught result_is_in_order EARLY_SEND -DWITHOUT_SLOT_CHECK "$wide"
caught timers_help ANY_NEWER -DMUTANT_EARLY_SEND "$effect" "$one"
caught never_refused NO_STALE_CHECK "$one"
caught slot_is_free ANY_BLOCK "$one"
caught slots_are_finished ANY_BLOCK "$effect" "$one"
caught timers_help PLAIN_COMPARISON "$one"
caught never_refused FEW_NUMBERS -DUNBOUNDED "$(sizes 1 1 2 10)"
caught sum_is_exact ANY_RESULT "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help NO_FLAG "$one"
caught timers_help PROBES_NEWEST "$wide"
caught timers_help NO_RESEND "$one"
caught timers_help QUERY_OPENS "$one"
caught never_refused QUERY_RESETS "$one"
caught timers_help NO_PASS "$two"
caught timers_help ABSENT_DOWN "$two"
caught timers_help NO_REPEAT_UP "$two"
caught sum_is_exact LEAF_ANSWERS "$two"
caught sum_is_exact LEAF_TAKES_ANY "$two"
caught sum_is_exact STALE_ABSENT -DUNBOUNDED "$(sizes 2 1 3 6)"
caught timers_help IN_FLIGHT -DWINDOWS "$(budget 0 0 0)" "$(sizes 1 2 2 6)"

one="$(budget 1 1 1) $(sizes 1 1 2 5)"
two="$(budget 1 1 1) $(sizes 2 1 2 5)"
caught slot_is_free HALF_SLOTS "$one"
caught sum_is_exact NO_BITMAP "$one"
caught never_refused NO_STALE_CHECK "$one"
caught sum_is_exact ANY_RESULT "$one"
caught timers_help NO_REPEAT "$one"
caught timers_help NO_RESEND "$one"
caught slots_are_finished QUERY_RESETS "$one"
caught timers_help NO_PASS "$two"
caught timers_help ABSENT_DOWN "$two"
caught timers_help NO_REPEAT_UP "$two"
caught sum_is_exact LEAF_ANSWERS "$two"

wait
cat ./*.out
failures=$(find . -name failed | wc -l)
# A search that ended otherwise has no line.
missing=$((searches - $(grep -l -e 'holds$' -e 'caught: ' -e 'FAILED: ' ./*.out | wc -l)))
if ((failures + missing > 0)); then
	echo "model: $failures of $searches searches failed, $missing did not end"
	exit 1
fi
