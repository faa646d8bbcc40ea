# For tests of `echelon lab` with the studies of tests/lab/studies, after check.sh: the program, the
# directory of a lab, and questions about it.
# shellcheck shell=bash disable=SC2154,SC2034
unset ECHELON_TUNING ECHELON_COSTS ECH_CIFAR
export XDG_CACHE_HOME=$work/cache HOME=$work
program=$ECH_BUILD/tests/echelon_studies
lab=$work/lab

# runs DIR STUDY: "id state" of every run, in one line
runs() {
    python3 - "$1/studies/$2.json" <<'END'
import json, sys
print(" ".join(f"{r['id']} {r['status']}" for r in json.load(open(sys.argv[1]))["runs"]))
END
}
# told DIR: the studies of lab.json, in one line
told() { python3 -c 'import json, sys; print(*json.load(open(sys.argv[1] + "/lab.json"))["studies"])' "$1"; }
# is WANTED COMMAND...: what the command prints
is() {
    local wanted=$1 got
    shift
    got=$("$@")
    [[ $got == "$wanted" ]] || { echo "got '$got', not '$wanted'"; return 1; }
}
# code WANTED COMMAND...: its exit code
code() {
    local wanted=$1 got
    shift
    "$@"
    got=$?
    [[ $got == "$wanted" ]] || { echo "exit code $got, not $wanted"; return 1; }
}
# Whether no process of a lab directory is left; they have a moment to go.
nobody() {
    local i
    for ((i = 0; i < 40; i++)); do
        grep -lzs -- "$1/runs" /proc/[0-9]*/cmdline >/dev/null || return 0
        sleep 0.05
    done
    grep -lzs -- "$1/runs" /proc/[0-9]*/cmdline
    return 1
}
