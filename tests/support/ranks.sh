# Jobs of several ranks for test scripts, sourced after check.sh:  . "$ECH_SRC/tests/support/ranks.sh"
#
#   start ARGS...          "echelon ARGS" in the background: $launcher, its output in out and err
#   until_steps FILE N     waits until a steps.jsonl has N lines
#   rank_pid R             process of rank R of $launcher
#   over SECONDS           waits for $launcher, at most so long: $code
#   no_rank SECONDS        waits until no process of this test runs the program, at most so long
#   nap                    a hundredth of a second, without a process for it
#
# Times are deadlines in milliseconds of the wall clock, which a busy machine may take up to without harm.
# shellcheck shell=bash disable=SC2154,SC2034,SC2013
export ECH_TEST_MARK=$work
export ECHELON_TUNING=$work/tuning.json
unset RANK WORLD_SIZE LOCAL_RANK LOCAL_WORLD_SIZE ECHELON_COMM_FD ECHELON_TIMEOUT OMP_NUM_THREADS
program=$(readlink -f "$ECHELON")
mkdir "$work/tmp" && export TMPDIR=$work/tmp
exec {never}<> <(:)

nap() { read -r -t 0.01 -u "$never"; true; }
now_ms() { now=$((${EPOCHREALTIME/[.,]/} / 1000)); }
# until_true SECONDS COMMAND...: $took is how long it was, in ms
until_true() {
    local since limit=$(($1 * 1000))
    shift
    now_ms
    since=$now
    while ! "$@"; do
        now_ms
        took=$((now - since))
        ((took < limit)) || return 1
        nap
    done
    now_ms
    took=$((now - since))
}

start() {
    rm -f out err
    env --default-signal "$ECHELON" "$@" >out 2>err </dev/null &
    launcher=$!
}
has_lines() {
    local lines=()
    [[ -e $1 ]] && mapfile -t lines <"$1"
    ((${#lines[@]} >= $2))
}
until_steps() { until_true 30 has_lines "$@"; }
file_says() { # FILE PATTERN
    local text
    IFS= read -r -d '' text <"$1"
    [[ $text =~ $2 ]]
}
rank_pid() {
    local pid found=
    for pid in $(cat "/proc/$launcher/task/$launcher/children" 2>/dev/null); do
        grep -qsaz "^RANK=$1\$" "/proc/$pid/environ" && found=$pid
    done
    echo "$found"
}
is_over() { ! kill -0 "$launcher" 2>/dev/null; }
over() {
    local result=0
    until_true "$1" is_over || { result=1; kill -9 "$launcher" 2>/dev/null; }
    { wait "$launcher"; } 2>/dev/null
    code=$?
    return $result
}
# Processes that run the program and were started by this test.
marked() {
    local environ
    for environ in $(grep -lsaz "^ECH_TEST_MARK=$work\$" /proc/[0-9]*/environ); do
        [[ $(readlink "${environ%environ}exe") == "$program" ]] && echo "$environ"
    done
}
is_empty() { [[ -z $(marked) ]]; }
no_rank() { until_true "$1" is_empty; }
# Nothing that has a name was left: memory, sockets, files.
nothing_left() {
    [[ -z $(ls -A "$TMPDIR") && -z $(find /dev/shm -name '*echelon*' 2>/dev/null) ]]
}
