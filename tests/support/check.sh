# What a test script begins with:  . "$ECH_SRC/tests/support/check.sh"
#
#   check "what should hold" COMMAND ARGS...     one case: the command succeeds
#   refuse "what must not" COMMAND ARGS...       one case: the command fails
#   says "what is printed" PATTERN COMMAND ...   one case: output (both streams) matches the pattern (grep -E)
#   on_reference                                 whether this is a second run on the reference device, for which sizes are small
#   has_part NAME                                whether this build has an optional part, named as echelon info does
#   covered "part"                               the list at the end of make test says: this part was tested
#   left_out "part" "why"                        or: it was not
#   skip "why"                                   leaves the whole script out
#   finish                                       last line: the exit code
#
# $work is an empty directory that goes away at the end.
# shellcheck shell=bash
set -u
failures=0
work=$(mktemp -d) || exit 1
trap 'rm -rf "$work"' EXIT

ok() { echo "ok - $1"; }
not_ok() {
    echo "not ok - $1"
    [[ -s $work/.output ]] && sed 's/^/    /' "$work/.output" | tail -n 30
    failures=$((failures + 1))
}
check() {
    local what=$1
    shift
    if "$@" >"$work/.output" 2>&1; then ok "$what"; else not_ok "$what"; fi
}
refuse() {
    local what=$1
    shift
    if "$@" >"$work/.output" 2>&1; then not_ok "$what"; else ok "$what"; fi
}
says() {
    local what=$1 pattern=$2
    shift 2
    "$@" >"$work/.output" 2>&1
    if grep -qE -- "$pattern" "$work/.output"; then ok "$what"; else not_ok "$what"; fi
}
on_reference() { [[ ${ECHELON_DEVICE:-cpu} == ref* ]]; }
has_part() { ! "$ECHELON" info | grep -q "^left out *$1 "; }
covered() { echo "covered - $1"; }
left_out() { echo "left out - $1: $2"; }
skip() { echo "skipped: $1"; exit 77; }
finish() { exit $((failures > 0)); }
