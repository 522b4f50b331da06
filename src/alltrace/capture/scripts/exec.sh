#!/bin/sh
# Runs a program as one rank of a job, profiled where this rank is chosen: srun ... sh THIS PROGRAM [ARGUMENT ...]
# Made by `alltrace capture exec --emit-sh`; needs a POSIX shell and the profiler, no Python.
# ALLTRACE_OUTPUT, ALLTRACE_JOB, ALLTRACE_NSYS and ALLTRACE_NCU say otherwise than was said then.
# shellcheck disable=SC2034  # a launcher may tell what no option asks for
set -u

@SETTINGS@
output=${ALLTRACE_OUTPUT:-$output}
job=${ALLTRACE_JOB:-$job}

say() { printf 'alltrace capture: rank %s: %s\n' "$rank" "$1" >&2; }
fail() { say "$1"; exit "$2"; }
# the last PROGRAM and its arguments are in "$@"
[ $# -gt 0 ] || { echo "alltrace capture: give the program and its arguments after $0" >&2; exit 2; }

# Who is this? torchrun first and Slurm last: a batch step's SLURM_PROCID is 0 for all that mpirun starts.
rank='' local_rank='' world_size='' node='' launcher=''
believe() { # NAME RANK LOCAL_RANK WORLD_SIZE NODE
  case $2 in '' | *[!0-9]*) return ;; esac
  if [ -z "$launcher" ]; then
    launcher=$1 rank=$2 local_rank=$3 world_size=$4 node=$5
  elif [ "$rank" != "$2" ]; then
    disagree="$launcher says rank $rank and $1 says rank $2; $launcher is believed"
  fi
}
disagree=''
[ -n "${TORCHELASTIC_RUN_ID-}${LOCAL_RANK-}" ] && believe torchrun "${RANK-}" "${LOCAL_RANK-}" "${WORLD_SIZE-}" "${GROUP_RANK-}"
believe 'Open MPI' "${OMPI_COMM_WORLD_RANK-}" "${OMPI_COMM_WORLD_LOCAL_RANK-}" "${OMPI_COMM_WORLD_SIZE-}" ''
believe MVAPICH2 "${MV2_COMM_WORLD_RANK-}" "${MV2_COMM_WORLD_LOCAL_RANK-}" "${MV2_COMM_WORLD_SIZE-}" ''
believe PALS "${PALS_RANKID-}" "${PALS_LOCAL_RANKID-${PMI_LOCAL_RANK-}}" "${PMI_SIZE-}" "${PALS_NODEID-}"
believe Hydra "${PMI_RANK-}" "${MPI_LOCALRANKID-${PMI_LOCAL_RANK-${SLURM_LOCALID-}}}" "${PMI_SIZE-}" ''
believe JSM "${JSM_NAMESPACE_RANK-}" "${JSM_NAMESPACE_LOCAL_RANK-}" "${JSM_NAMESPACE_SIZE-}" ''
believe Flux "${FLUX_TASK_RANK-}" "${FLUX_TASK_LOCAL_ID-}" "${FLUX_JOB_SIZE-}" ''
believe Slurm "${SLURM_PROCID-}" "${SLURM_LOCALID-}" "${SLURM_STEP_NUM_TASKS-${SLURM_NTASKS-}}" "${SLURM_NODEID-}"
believe PMIx "${PMIX_RANK-}" '' '' ''
[ -n "${WORLD_SIZE-}" ] && believe 'RANK and WORLD_SIZE' "${RANK-}" "${LOCAL_RANK-}" "${WORLD_SIZE-}" ''
if [ -z "$launcher" ]; then
  rank=0 local_rank=0 world_size=1 node=0
  say "no launcher's variables are set, so this is rank 0 of 1"
fi
[ "$rank" != 0 ] || [ -z "$disagree" ] || say "$disagree"

# Is it profiled?
chosen=1
named() { # RANK
  [ -n "$spans" ] || return 0
  for span in $spans; do
    if [ "$1" -ge "${span%-*}" ] && [ "$1" -le "${span#*-}" ]; then return 0; fi
  done
  return 1
}
named "$rank" || chosen=0
if [ -n "$spans" ]; then
  for span in $spans; do
    if [ -n "$world_size" ] && [ "${span%-*}" -lt "$world_size" ]; then inside=1; fi
  done
  [ -z "$world_size" ] || [ -n "${inside-}" ] || fail "--ranks names none of the ranks 0-$((world_size - 1)); nothing would be profiled" 2
fi
if [ -n "$cutoff" ] && [ "$rank" -ge "$cutoff" ]; then chosen=0; fi
if [ -n "$per_node" ]; then
  [ -n "$local_rank" ] || fail "--per-node and first-local need the local rank, which $launcher does not set" 2
  [ "$local_rank" -lt "$per_node" ] || chosen=0
fi
if [ "$profiler" = ncu ]; then # the others wait while kernels are replayed
  export TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC="${TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC-7200}"
  export TORCH_NCCL_ENABLE_MONITORING="${TORCH_NCCL_ENABLE_MONITORING-0}"
  export TORCH_NCCL_ASYNC_ERROR_HANDLING="${TORCH_NCCL_ASYNC_ERROR_HANDLING-0}"
fi
[ "$chosen" = 1 ] || exec "$@"

# Where does the report go?
host=${SLURMD_NODENAME-$(uname -n)}
host=${host%%.*}
given=$job
above_0() { case $1 in '' | *[!0-9]* | ??????????*) return 1 ;; esac && [ "$1" -gt 0 ]; }
if [ -z "$job" ]; then
  for job in "${SLURM_JOB_ID-}" "${PBS_JOBID-}" "${LSB_JOBID-}" "${FLUX_JOB_ID-}" "${PALS_APID-}" \
    "${TORCHELASTIC_RUN_ID-}" "${JOBSET_NAME-}" "${PMIX_NAMESPACE-}" job; do
    [ -z "$job" ] || [ "$job" = none ] || break
  done
  if [ "$job" = "${SLURM_JOB_ID-}" ] && above_0 "${SLURM_STEP_ID-}" && [ -n "${SLURM_STEP_NUM_TASKS-}" ]; then
    job=$job-step$SLURM_STEP_ID # a batch script may run several steps
  fi
fi
# what is started again would find the reports of before, and stop
for again in "${SLURM_RESTART_COUNT-}" "${TORCHELASTIC_RESTART_COUNT-}"; do
  ! above_0 "$again" || job=$job-restart$again
done
job=$(printf %s "$job" | tr -c 'A-Za-z0-9._-' -)
case $profiler in nsys) ending=.nsys-rep ;; *) ending=.ncu-rep ;; esac
report=$output/${job}_rank${rank}_on_$host$ending
mkdir -p "$output" || fail "the folder $output cannot be created; give another --output" 3
[ -w "$output" ] || fail "$output cannot be written; give another --output" 3
if [ "$profiler" = torch ]; then # alltrace.instrument.torch_profile writes the traces
  ALLTRACE_TRACES=$(cd "$output" && pwd) ALLTRACE_JOB=$given exec "$@"
fi
for found in "$report" "${report%"$ending"}".[0-9]*"$ending"; do # nsys numbers the reports of several ranges
  [ "$force" = true ] || [ ! -e "$found" ] || fail "$found already exists; give another --output or --job, or --force" 3
done
case $profiler in nsys) tool=${ALLTRACE_NSYS-${tool:-nsys}} ;; *) tool=${ALLTRACE_NCU-${tool:-ncu}} ;; esac
[ ! -d "$tool" ] || tool=$tool/$profiler
command -v "$tool" >/dev/null || fail "$profiler was not found; put it on PATH, or set ALLTRACE_NSYS or ALLTRACE_NCU" 2
command -v "$1" >/dev/null || fail "$1: there is no such program" 127

# A temporary folder of its own, because ranks of one node would meet in one
base=${tmp:-${TMPDIR:-/tmp}}
private=$(umask 077 && mktemp -d "$base/alltrace-$rank-XXXXXX") || fail "no temporary folder can be created in $base; give another --tmp" 3

# What is the node's is recorded by the first of its ranks that is profiled, where a node's ranks follow each other
first=1 lower=$rank below=${local_rank:-0}
while [ "$below" -gt 0 ] && [ "$lower" -gt 0 ]; do
  lower=$((lower - 1)) below=$((below - 1))
  ! named "$lower" || first=0
done
own=$switches
if [ "$profiler" = nsys ] && [ "$first" = 1 ]; then
  help=$("$tool" profile --help)
  case $gpu_metrics$help in
  true*--gpu-metrics-devices*) switches="$switches --gpu-metrics-devices=all" ;;
  true*) switches="$switches --gpu-metrics-device=all" ;;
  esac
  [ "$nic_metrics" = false ] || switches="$switches --nic-metrics=true"
  if [ "$efa" = true ]; then # the plug-in changed its name
    release=$("$tool" --version | sed -n 's/.*ersion \([0-9]*\)\.\([0-9]*\).*/\1\2/p')
    if [ "${release:-0}" -ge 20251 ]; then
      switches="$switches --enable=efa_metrics"
    elif [ "${release:-0}" -ge 20244 ]; then
      switches="$switches --enable=nic_sampler,-mode:counters,-struct:true,-efa:true"
    else
      say "--efa left out: this nsys has no plug-in for EFA; 2024.4 and later have one; the rest is recorded"
    fi
  fi
fi

# what is there afterwards must be of this run
[ "$force" = false ] || rm -f -- "$report" "${report%"$ending"}".[0-9]*"$ending"

# The shell around the program starts it only where it makes the file with its own process id
# shellcheck disable=SC2016  # expanded by the shells that run it
program_shell='set -C; echo $$ >"${1}shell" || exit 1; set +C; d=$1; shift; trap : HUP INT QUIT TERM USR1 USR2
sh -c '\''echo $$ >"${0}pid"; exec "$@"'\'' "$d" "$@"; c=$?; echo $c >"${d}code"; exit $c'
exec 3<&0

# A guard in a session of its own, which a launcher that kills this shell and its group does not reach: it reads a pipe that this
# shell alone holds, ends the program where the pipe ends, and ends the recording where a program that was asked to end runs on
# shellcheck disable=SC2016  # expanded by the shell that runs it
guard='turn=$1/ tool=$2 after=$3
ended() {
  [ ! -s "$1/again-pid" ] || turn=$1/again-
  [ -s "${turn}code" ] || [ ! -s "${turn}pid" ] || ! kill -0 "$(cat "${turn}pid")"
}
known() { [ ! -s "${turn}shell" ] || [ -s "${turn}pid" ]; }
gone() { ! kill -0 "$(cat "$1/profiler")"; }
within() { n=$1; shift; while [ "$n" -gt 0 ] && ! "$@"; do sleep 1; n=$((n - 1)); done; }
while read -r word; do
  [ "$word" != over ] || exit 0
  within "$after" ended "$1"
  [ -z "$tool" ] || ended "$1" || TMPDIR=$1 "$tool" stop --session="profile-$(cat "$1/profiler")"
done
(set -C; : >"$1/shell")
(set -C; : >"$1/again-shell")
within 2 known
if ! ended "$1"; then
  pid=$(cat "${turn}pid")
  kill -TERM "$pid"
  within 2 ended "$1"
  ended "$1" || kill -KILL "$pid"
fi
within 25 gone "$1" || kill -KILL "$(cat "$1/profiler")"
rm -rf "$1"/shell "$1"/again-* "${turn}pid" "${turn}code" "$1/profiler" "$1/nvidia" "$1"/injection_config_* "$1"/nsys-*
rmdir "$1"'
apart=''
[ -t 0 ] || ! command -v setsid >/dev/null || apart=setsid
if mkfifo "$private/lives" 2>/dev/null; then
  exec 4<>"$private/lives"
  exec 5<"$private/lives"
  rm -f "$private/lives"
  case $profiler in nsys) stops=$tool ;; *) stops='' ;; esac
  $apart sh -c "$guard" sh "$private" "$stops" "$end_after" <&5 >/dev/null 2>&1 3<&- 4>&- 5<&- &
  exec 5<&-
else
  exec 4>/dev/null
fi
target=$(printf %s "$report" | sed 's/%/%%/g')
asked=''
# shellcheck disable=SC2317,SC2329  # called by the traps
pass_on() {
  if [ -z "$child" ]; then
    waiting=$1
    return
  fi
  kill -s "$1" "$(cat "${turn}pid" 2>/dev/null || echo "$child")" 2>/dev/null
}
# shellcheck disable=SC2317,SC2329
end() { # the second one ends the recording, and the program may run on
  pass_on "$1"
  if [ -z "$asked" ]; then
    asked=1
    echo end >&4
  elif [ "$profiler" = nsys ]; then
    TMPDIR=$private "$tool" stop --session="profile-$child" >/dev/null 2>&1 4>&-
  fi
}
lives() { [ -s "$turn$1" ] && kill -0 "$(cat "$turn$1")" 2>/dev/null; }

# Runs it under the profiler, in the background, so that a signal reaches the program at once and not after it
profiled() { # TURN PROGRAM [ARGUMENT ...], TURN being what the names of the shell's files begin with
  turn=$1
  # shellcheck disable=SC2086  # switches are words without blanks
  if [ "$profiler" = ncu ]; then
    [ "$force" = false ] || switches="$switches --force-overwrite"
    set -- "$tool" $switches --kernel-name "regex:$kernels" --export "$target" sh -c "$program_shell" sh "$@"
  else
    set -- "$tool" profile $switches --force-overwrite="$force" --output="$target" sh -c "$program_shell" sh "$@"
  fi
  child='' waiting=''
  trap 'end TERM' TERM INT QUIT
  trap 'end HUP' HUP
  trap 'pass_on USR1' USR1
  trap 'pass_on USR2' USR2
  # shellcheck disable=SC2086  # empty, or one word
  TMPDIR=$private ALLTRACE_CAPTURE=$profiler $apart "$@" <&3 3<&- 4>&- &
  child=$!
  [ -z "$waiting" ] || pass_on "$waiting"
  echo "$child" >"$private/profiler"
  wait "$child"
  code=$?
  while kill -0 "$child" 2>/dev/null; do # a signal has ended the waiting, not the profiler
    wait "$child"
    code=$?
  done
  ended=$code
}
profiled "$private/" "$@"
# nsys ends before the program starts if the node refuses metrics, and sometimes on a busy machine: start it once more
# without them
if [ "$profiler" = nsys ] && [ "$ended" != 0 ] && [ "$ended" -le 128 ] && [ -z "$asked" ] &&
  (set -C && : >"$private/shell") 2>/dev/null; then
  [ "$switches" = "$own" ] || say "the node's metrics left out: nsys ended with $ended before the program started; the rest is recorded"
  switches=$own
  sleep 1
  profiled "$private/again-" "$@"
fi
while [ ! -s "${turn}code" ] && lives pid; do sleep 1; done
for pause in 1 1 1 2 5; do # the shell around the program may be about to write it down
  if [ -s "${turn}code" ] || ! lives shell; then break; fi
  sleep "$pause"
done
[ ! -s "${turn}code" ] || code=$(cat "${turn}code")

# The exit code of nsys does not show whether there is a report
look() { # MESSAGE
  missing=1
  for found in "$report" "${report%"$ending"}".[0-9]*"$ending"; do
    [ -s "$found" ] || continue
    if [ "$profiler" = ncu ] || [ "$(tail -c 5 "$found")" = '[END]' ]; then missing=0; elif [ -n "$1" ]; then say "$found $1"; fi
  done
}
look ''
waited=0
# a front end that was killed, not the program, leaves an agent that may still write
while [ "$missing" = 1 ] && [ "$ended" -gt 128 ] && [ "$ended" != "$code" ] && [ "$waited" -lt "$grace" ]; do
  sleep 1
  waited=$((waited + 1))
  look ''
done
look 'is cut off'
echo over >&4
rm -rf "$private/shell" "$private/profiler" "${turn}shell" "${turn}pid" "${turn}code" "$private/nvidia"
if [ "$missing" = 1 ]; then
  say "no complete report $report; what is left is in $private"
  if [ "$strict" = true ] && [ "$code" = 0 ]; then code=4; fi
else
  rm -f "$private"/injection_config_* "$private"/nsys-*
  rmdir "$private" 2>/dev/null
fi
exit "$code"
