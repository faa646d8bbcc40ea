#!/bin/bash
# What `make install` leaves behind is enough to build and run a program of one's own.
. "$ECH_SRC/tests/support/check.sh"

root=$work/root
prefix=$root/usr/local
lib=$prefix/lib/libechelon.so
export PKG_CONFIG_PATH=$prefix/lib/pkgconfig LD_LIBRARY_PATH=$prefix/lib
# A library that was built with sanitizers wants a program that has them too.
san=(${ECH_SAN:+"-fsanitize=$ECH_SAN"})

check "everything is installed below DESTDIR" \
    env DESTDIR="$root" cmake --install "$ECH_BUILD" --prefix /usr/local
cp "$work/.output" "$work/installed"
refuse "and nothing anywhere else" sh -c 'grep "^-- Installing: " "$0" | grep -vF ": $1/usr/local/"' \
    "$work/installed" "$root"

version=$(sed -n 's/^#define ECH_VERSION "\(.*\)"/\1/p' "$ECH_SRC/include/echelon/echelon.h")
check "the library file carries the version" test -f "$lib.$version"
says "the soname carries the major version" 'SONAME.*\[libechelon\.so\.0\]' readelf -d "$lib"
refuse "the library needs no libpng: only the program reads pictures" \
    sh -c 'readelf -d "$0" | grep -E "NEEDED.*png"' "$lib"
check "the soname is found" test -e "$prefix/lib/libechelon.so.0"
check "no search path of the build is left in the library" \
    sh -c 'readelf -d "$0" >"$1" && ! grep -E "R(UN)?PATH" "$1"' "$lib" "$work/dynamic"
if [[ -z $ECH_SAN ]]; then
    check "only ech_ symbols are visible" \
        sh -c \
        'nm -D --defined-only "$0" >"$1" && test -s "$1" && ! grep -vE " ech_[a-z0-9]" "$1"' \
        "$lib" "$work/symbols"
fi
says "the version is the same to a program, pkg-config and the header" "^$version\$" \
    pkg-config --modversion echelon
check "the pkg-config file names no path of the build" \
    sh -c 'test -s "$0" && ! grep -F "$1" "$0"' "$PKG_CONFIG_PATH/echelon.pc" "$ECH_SRC"

# compile SOURCE PROGRAM: against the installed tree and nothing else.
compile() {
    local flags
    read -r -a flags <<<"$(pkg-config --cflags --libs echelon)"
    cc -std=c11 -Wall -Wextra -Wpedantic -Werror "${san[@]}" -o "$2" "$1" "${flags[@]}"
}

# At home, where the loader does not look.
home=$work/home/.local
at_home() { env -u LD_LIBRARY_PATH PKG_CONFIG_PATH="$home/lib/pkgconfig" "$@"; }
check "a prefix of one's own" cmake --install "$ECH_BUILD" --prefix "$home"
check "the line of the README builds there" at_home sh -c \
    'cc "$@" $(pkg-config --cflags --libs echelon) -o "$0"' "$work/own_model" "${san[@]}" \
    "$ECH_SRC/examples/own_model.c"
check "and the program starts" at_home env -C "$work" "$work/own_model"
check "below /usr" env DESTDIR="$work/system" cmake --install "$ECH_BUILD" --prefix /usr
refuse "where the loader looks, a program gets no search path" grep rpath "$work/system/usr/lib/pkgconfig/echelon.pc"

cat >"$work/small.c" <<'END'
#include <echelon/echelon.h>
#include <string.h>
int main(void) { return strcmp(ech_version(), ECH_VERSION) != 0; }
END
check "a program builds against the header and pkg-config" compile "$work/small.c" "$work/small"
check "and runs against the library" "$work/small"
cp "$work/small.c" "$work/small.cpp"
if echo 'int main() { return 0; }' | cc -x c++ -fsyntax-only - 2>/dev/null; then
    check "the header is C++ too" cc -Wall -Wextra -Werror -fsyntax-only -I"$prefix/include" "$work/small.cpp"
else
    ok "the header is C++ too # skip no C++ compiler"
fi

for example in own_model convnet dp ddp_benchmark model_parallel quantize; do
    check "the example $example builds against the installed tree" \
        compile "$ECH_SRC/examples/$example.c" "$work/$example"
    check "and runs" env -C "$work" "$work/$example"
done

for example in ddp_accumulation ddp_amp practical5_single; do
    check "the example $example builds against the installed tree" \
        compile "$ECH_SRC/examples/$example.c" "$work/$example"
    says "and runs on one device" "^$example: 1 rank, .* 0 steps skipped; loss 0\\." "$work/$example" 64 2 3
    says "and on two" "^$example: 2 ranks, .* 0 steps skipped; loss 0\\." "$prefix/bin/echelon" \
        run -n 2 -- "$work/$example" 64 2 3
    says "and says how it is called" "^usage: .* \\[DIM" "$work/$example" 0
done
says "accumulation with mixed precision counts its micro-steps" ': 2 ranks, fp16, 3 micro-steps of 32 samples: ' \
    "$prefix/bin/echelon" run -n 2 -- "$work/practical5_single" 64 2 3 3 fp16

says "an example of ranks runs as two of them" '^2 ranks: .* exchange; loss 0\.' \
    "$prefix/bin/echelon" run -n 2 -- "$work/ddp_benchmark" 64 2
says "and as three, and says what is left out" '^1 of 64 samples a step are left out: 3 ranks have 21 each' \
    "$prefix/bin/echelon" run -n 3 -- "$work/ddp_benchmark" 64 2
says "more ranks than samples are refused" '65 ranks: at most 64 share a batch of 64' \
    "$prefix/bin/echelon" run -n 65 -- "$work/ddp_benchmark" 8 1
for example in ddp_benchmark dp model_parallel ddp_accumulation ddp_amp practical5_single; do
    for wrong in 0 12x 1000000 "8 2x" "8 2 1 1 1 1 1"; do
        # shellcheck disable=SC2086 # one argument or several
        says "$example $wrong gets its usage" "^usage: .*$example \\[DIM" "$work/$example" $wrong
    done
done

# One core, whatever the machine has: two ranks share it.
core=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
two=(taskset -c "$core" "$prefix/bin/echelon" run -n 2)
says "ranks that share a core have emulated times" '^2 ranks: .*, emulated\), .* exchange' \
    "${two[@]}" -- "$work/ddp_benchmark" 64 2
says "or, by the real clock, times that are marked" '^2 ranks: .*, measured, oversubscribed\), ' \
    "${two[@]}" --clock real -- "$work/ddp_benchmark" 64 2
says "the launcher warns of them" 'echelon run: 2 ranks share 1 core: times are not those' \
    "${two[@]}" --clock real -- true
# One bucket of 33280 bytes: two messages of a half over a ring of two, so 0.43 s a step, which take no time.
says "a program's own steps have the links that are given" '^2 ranks: 43[0-9]\.[0-9]* ms a step \(.*, emulated\)' \
    "$prefix/bin/echelon" run -n 2 --clock virtual --link 100kB/s,50ms -- "$work/ddp_benchmark" 64 2
says "a link without latency is refused" 'link' "$prefix/bin/echelon" run -n 2 --link 1GB/s -- true
says "links of the real clock are refused" '--link requires --clock virtual' \
    "$prefix/bin/echelon" run -n 2 --clock real --link 1GB/s,1us -- true
says "a clock that is none is refused" "ECHELON_CLOCK 'sun': must be auto, real or virtual" env \
    ECHELON_CLOCK=sun "$work/ddp_benchmark" 64 2
says "devices of one process that share a core are marked" \
    '^2 devices: .* \(measured, oversubscribed\)' taskset -c "$core" "$work/dp" 64 2

check "the example cifar_ddp builds against the installed tree" \
    compile "$ECH_SRC/examples/cifar_ddp.c" "$work/cifar_ddp"
says "cifar_ddp gets its usage" '^usage: cifar_ddp' "$work/cifar_ddp" - 2x
cifar=(env -C "$work" ECHELON_TUNING="$work/cifar.json" "$work/cifar_ddp" - 2 330)
says "it trains epochs and tests them" \
    '^\[Epoch 2/2\] time=[0-9.]+s loss=[0-9.]+ acc=0\.[0-9]+ \(measured; synthetic images\)$' \
    "${cifar[@]}"
says "also as two ranks, with a last step of uneven shares" '^\[Epoch 2/2\] time=[0-9.]+s loss=[0-9.]+ acc=0\.[0-9]+' \
    "$prefix/bin/echelon" run -n 2 -- "${cifar[@]}"

program=$prefix/bin/echelon
man=$prefix/share/man/man1/echelon.1
completion=$prefix/share/bash-completion/completions/echelon
check "the program runs from the installed tree" env -u LD_LIBRARY_PATH -C / "$program" --help
check "and knows the machine" env -u LD_LIBRARY_PATH -C / "$program" info
check "the man page is there" test -s "$man"
check "the man page has no warning" sh -c 'groff -ww -man -Tutf8 -z "$0" 2>"$1" && ! grep . "$1"' "$man" "$work/groff"
says "the man page tells of training" 'batch-size' sh -c 'groff -man -Tascii -P-cbou "$0"' "$man"
check "the completion is shell" bash -n "$completion"
says "the completion completes echelon" 'complete .*echelon' \
    bash -c 'source "$0" && complete -p echelon' "$completion"
finish
