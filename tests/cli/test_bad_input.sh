#!/bin/bash
# Wrong calls get one line on stderr that names what is wrong, nothing on stdout, the right exit code, and leave
# nothing behind.
. "$ECH_SRC/tests/support/check.sh"
export XDG_CACHE_HOME=$work/cache HOME=$work
mkdir "$work/empty" && cd "$work/empty" || exit 1

# wrong CODE PATTERN ARGS...: one case
wrong() {
    local code=$1 pattern=$2 got
    shift 2
    timeout 20 "$ECHELON" "$@" >"$work/out" 2>"$work/err" </dev/null
    got=$?
    cp "$work/err" "$work/.output"
    if [[ $got == "$code" && ! -s $work/out && $(wc -l <"$work/err") == 1 ]] &&
        grep -qE -- "$pattern" "$work/err" && [[ -z $(ls -A) ]]; then
        ok "echelon $*"
    else
        echo "exit $got, expected $code with /$pattern/" >>"$work/.output"
        not_ok "echelon $*"
        rm -rf ./*
    fi
}

wrong 2 "frob: unknown command" frob
wrong 2 "bench needs one of" bench
wrong 2 "unknown option; did you mean --dim" train --dimm 4
wrong 2 "--dim 0: must be at least 1" train --dim 0
wrong 2 "--dim needs a value" train --dim
wrong 2 "--dim x: must be a whole number" train --dim x
wrong 2 "--depth 1001: must be at most 1000" train --depth 1001
wrong 2 "--lr nan: must be a number" train --lr nan
wrong 2 "--lr -1: must be at least 0" train --lr -1
wrong 2 "--optimizer sdg: .*sgd" train --optimizer sdg
wrong 2 "--model mlp: .*linear" train --model mlp
wrong 2 "--device-memory 4X: must be a size" train --device-memory 4X
wrong 2 "--threads 0: must be at least 1" train --threads 0
wrong 2 "--steps and --epochs" train --model lenet --steps 5 --epochs 1
wrong 2 "--warmup 3 with --steps 3" train --steps 3 --warmup 3
wrong 2 "--trace requires --run-dir" train --trace
wrong 2 "--nesterov requires" train --nesterov
wrong 2 "--momentum requires --optimizer sgd" train --optimizer adam --momentum 0.9
wrong 2 "both given; give one" train --batch-size 4 --global-batch 4
wrong 2 "--lr-step requires" train --lr-step 4
wrong 2 "--data-dir requires --data cifar10" train --data-dir .
wrong 2 "--memory runs nothing" train --fit --run-dir x
wrong 2 "stray" train stray
wrong 2 "--accum 0: must be at least 1" train --accum 0
wrong 2 "--amp bf15: .*bf16" train --amp bf15
wrong 2 "--grad-dtype f16: .*bf16" train --grad-dtype f16
wrong 2 "--clip-norm -1: must be at least 0" train --clip-norm -1
wrong 2 "--clip-norm nan: must be a number" train --clip-norm nan
wrong 2 "--loss-scale much: must be a number or off" train --loss-scale much
wrong 2 "--loss-scale 1e-06: must be at least 6.10352e-05" train --loss-scale 1e-6
wrong 2 "--loss-scale -2: must be at least 0" train --loss-scale=-2
wrong 2 "--loss-scale nan: must be a number or off" train --loss-scale nan
wrong 2 "--grad-dtype bf16 is not supported with DataParallel: device 0 adds" train --parallel dp --grad-dtype bf16
wrong 2 "--clip-norm is not supported with DataParallel: device 0 adds" train --parallel dp --clip-norm 1
wrong 2 "--loss-scale, which --amp fp16 implies, is not supported with DataParallel" train --parallel dp --amp fp16
wrong 2 "--grad-dtype bf16: --reproducible" train --grad-dtype bf16 --reproducible --global-batch 8
wrong 2 "--against has nothing to compare" train --fit --against x
wrong 2 "--global-batch 10 must be divisible by --accum 4" plan --global-batch 10 --accum 4
wrong 2 "--accum is not supported with DataParallel" plan --parallel dp --accum 2

wrong 2 "--ranks 0: must be at least 1" run -n 0 -- true
wrong 2 "--ranks 257: must be at most 256" run -n 257 -- true
wrong 2 "--ranks x: must be a whole number" run -n x -- true
wrong 2 "--ranks is missing" run -- true
wrong 2 "-- PROG is missing" run -n 2
wrong 2 "-- PROG is missing" run -n 2 --
wrong 2 "name is empty" run -n 2 -- ''
wrong 2 "--lr: unknown option" run -n 2 --lr 0.1 true
wrong 2 "--max-restarts -1: must be at least 0" run -n 2 --max-restarts -1 -- true
wrong 127 "nosuchprogram: no such program in PATH" run -n 2 -- nosuchprogram
wrong 127 "/nonexistent/x cannot be started: No such file" run -n 2 -- /nonexistent/x
wrong 126 "/dev/null cannot be started: Permission denied" run -n 2 -- /dev/null
wrong 126 "/ cannot be started: Permission denied" run -n 2 -- /

wrong 1 "/nonexistent: cannot be opened" train --data /nonexistent
wrong 1 "/dev/zero: is a device" train --data /dev/zero
wrong 1 "/: is a directory" train --init /
wrong 1 "cifar10 needs --data-dir DIR" train --model lenet --data cifar10
wrong 1 "takes images" train --model lenet --data /nonexistent
wrong 1 "cifar10 has images" train --data cifar10
wrong 1 "no epochs; use --steps" train --epochs 2
wrong 1 "3 samples per step for 1 devices with 4 micro-steps each: at least 4" train --global-batch 3 --accum 4
wrong 1 "10 samples a step cannot be divided into 8 equal slots" train --reproducible --global-batch 10
wrong 1 "nowhere/run.json" train --dim 8 --against nowhere
wrong 1 "run directory /proc/x cannot be written" train --run-dir /proc/x
wrong 1 "run directory /dev/null/x cannot be written" train --run-dir /dev/null/x
wrong 1 "run directory /dev/null" train --run-dir /dev/null
wrong 1 "/nonexistent/x: cannot be written" train --save-params /nonexistent/x
wrong 1 "not even a batch of 1 fits" train --dim 512 --device-memory 1M --run-dir never
wrong 1 "needs .* bytes \(.*weights .*gradients .*activations .*limit is 9000000 bytes.*largest batch that fits is [1-9]" \
    train --dim 512 --depth 3 --batch-size 4096 --device-memory 9000000 --run-dir never
wrong 1 "limit is" train --dim 1000000 --depth 1000

# A limit on the size of files, which would end the program with SIGXFSZ.
printf '#!/bin/bash\nulimit -f 1\nexec "%s" "$@"\n' "$ECHELON" >"$work/limited"
chmod +x "$work/limited"
ECHELON=$work/limited wrong 1 "p.st: cannot be written at byte 1024: File too large" \
    train --dim 64 --depth 2 --steps 2 --tune off --json --save-params p.st
ECHELON=$work/limited wrong 1 "checkpoint of step 2 is not saved: .*: File too large" \
    train --dim 64 --depth 2 --steps 2 --tune off --json --save saved
ECHELON=$work/limited wrong 1 "File too large" train --dim 64 --devices 2 --steps 2 --tune off

# Files that are not what they should be.
printf 'x' >"$work/short"
head -c 8 /dev/zero >"$work/zero"
printf '\xff\xff\xff\xff\xff\xff\xff\x7f{}' >"$work/huge"
printf '\x10\0\0\0\0\0\0\0{}' >"$work/past"
printf '\x02\0\0\0\0\0\0\0{}' >"$work/nothing"
for file in short zero huge past nothing; do
    wrong 1 "$work/$file" train --data "$work/$file"
    wrong 1 "$work/$file" train --init "$work/$file"
done
printf 'garbage' >"$work/tuning"
says "a foreign tuning file is told" 'starting without kernel timings: .*tuning file' "$ECHELON" train --dim 8 --steps 6 --tuning-file "$work/tuning"
check "and stops no training run" "$ECHELON" train --dim 8 --steps 6 --tuning-file "$work/tuning"
check "nor is it replaced" test "$(cat "$work/tuning")" = garbage

check "a limit that is enough lets it run" "$ECHELON" train --dim 16 --steps 6 --device-memory 1M
check "records appear in a directory that is made" "$ECHELON" train --dim 16 --steps 6 --run-dir a/b --trace
for file in run.json steps.jsonl trace.json; do
    check "$file is JSON" python3 -c "
import json, sys
text = open('a/b/$file').read()
rows = [json.loads(l) for l in text.splitlines()] if '$file'.endswith('l') else json.loads(text)
sys.exit(not rows)"
done
check "a loss reads back to the same bits" python3 -c "
import json
rows = [json.loads(l) for l in open('a/b/steps.jsonl')]
run = json.load(open('a/b/run.json'))
assert len(rows) == 6 and rows[-1]['loss'] == run['summary']['final_loss']
assert run['summary']['clock'] == 'measured'
assert run['summary']['peak_memory_bytes'] == run['summary']['planned_memory_bytes']
for key in ('step', 'epoch', 'loss', 'time_s', 'data_s', 'forward_s', 'backward_s', 'comm_exposed_s',
            'optimizer_s', 'lr'):
    assert key in rows[0], key"
says "info says what machine this is" "processor" "$ECHELON" info
says "a closed output is noticed" "cannot write standard output" sh -c "\"$ECHELON\" info >/dev/full"
finish
