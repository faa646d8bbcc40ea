#!/bin/bash
# Several devices from the command line: what the records and the trace say, bits, a straggler that
# is found again, ranks that disagree, and evaluation over ranks.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

train() { "$ECHELON" train "$@"; }
# run NAME ARGS...: a run with records in NAME and its output in NAME.json
run() {
    local name=$1
    shift
    train --json --run-dir "$name" "$@" >"$name.json" 2>.output
}
# holds WHAT FILE EXPRESSION: a record r (or, of .jsonl, the list of its lines) is as Python says
holds() {
    check "$1" python3 -c '
import json, sys
text = open(sys.argv[1]).read()
r = [json.loads(l) for l in text.splitlines()] if sys.argv[1].endswith("l") else json.loads(text)
s = r["summary"] if isinstance(r, dict) else None
c = s.get("communication") if s else None
if not ('"$3"'):
    sys.exit("not so: " + sys.argv[2] + "\nin: " + json.dumps(c or r)[:1500])' "$2" "$3"
}
get() { python3 -c \
    'import json, sys; s = json.load(open(sys.argv[1]))["summary"]; print(eval(sys.argv[2]))' \
    "$1" "$2"; }
# same WHAT A B: both are there and equal.
same() {
    echo "$2 and $3" >.output
    if [[ -n $2 && $2 == "$3" ]]; then ok "$1"; else not_ok "$1"; fi
}

# ---- records ----

linear=(--dim 64 --depth 2 --batch-size 8 --tune off)
check "two devices" run two "${linear[@]}" --devices 2 --steps 12 --trace --bucket-mb 0.01
holds "the run is done" two/run.json \
    'r["state"] == "done" and r["config"]["devices"] == 2 and r["config"]["global_batch"] == 16'
holds "what is printed is what is kept" two.json "s == json.load(open('two/run.json'))['summary']"
holds "measured on two devices" two.json 's["clock"] == "measured" and s["world_size"] == 2 and s["devices"] == 2'
holds "each parameter's gradient is exchanged once" two.json \
    's["comm_bytes_per_step"] == 4 * s["parameters"] == 4 * 2 * (64 * 64 + 64)'
holds "every device has its figures" two.json \
    'all(len(s[k]) == 2 for k in ("peak_memory_bytes", "planned_memory_bytes", "utilisation")) and len(c["ranks"]) == 2'
holds "a device takes what was planned" two.json 's["peak_memory_bytes"] == s["planned_memory_bytes"]'
holds "and computes for a part of the time" two.json 'all(0 < u <= 1 for u in s["utilisation"])'
holds "times are in order" two.json 's["step_time_s"]["min"] <= s["step_time_s"]["median"] <= s["step_time_s"]["p95"]'
holds "buckets are as large as was asked for" two.json \
    'len(c["buckets"]) == 3 and min(b["bytes"] for b in c["buckets"][:2]) >= 10485 and sum(b["bytes"] for b in c["buckets"]) == s["comm_bytes_per_step"] and all(b["busbw_gbs"] > 0 for b in c["buckets"])'
holds "every step is there" two/steps.jsonl '[l["step"] for l in r] == list(range(1, 13))'
holds "with all its fields" two/steps.jsonl \
    'all(k in l for l in r for k in "epoch loss time_s data_s forward_s backward_s comm_exposed_s optimizer_s lr wait_s other_s comm_hidden_s slowest_rank rank_wait_s buckets".split())'
holds "phases are not negative" two/steps.jsonl \
    'all(l[k] >= 0 for l in r for k in "time_s data_s forward_s backward_s comm_exposed_s wait_s other_s optimizer_s".split())'
holds "and add up to the step's time" two/steps.jsonl \
    'all(abs(sum(l[k] for k in "forward_s backward_s optimizer_s comm_exposed_s wait_s other_s".split()) - l["time_s"]) <= 1e-6 * l["time_s"] for l in r)'
holds "buckets are ready, then started, then done, on every rank" two/steps.jsonl \
    'all(a <= b <= c for l in r for k in l["buckets"] for a, b, c in zip(k["ready_s"], k["start_s"], k["done_s"])) and all(len(k["ready_s"]) == 2 for l in r for k in l["buckets"])'
holds "none starts before all ranks have it ready" two/steps.jsonl \
    'all(max(k["ready_s"]) <= min(k["start_s"]) for l in r for k in l["buckets"])'
holds "they become ready in their order" two/steps.jsonl \
    'all(a <= b for l in r for k, m in zip(l["buckets"], l["buckets"][1:]) for a, b in zip(k["ready_s"], m["ready_s"]))'
holds "rank 0 waits as long as the list of ranks says" two/steps.jsonl \
    'all(l["rank_wait_s"][0] == l["wait_s"] and min(l["rank_wait_s"]) >= 0 for l in r)'
check "the trace shows both ranks, their operators and the exchange" python3 -c '
import json
events = json.load(open("two/trace.json"))
bars = [e for e in events if e["ph"] == "X"]
assert {e["args"]["name"] for e in events if e["name"] == "process_name"} == {"rank 0", "rank 1"}
for rank in 0, 1:
    mine = [e for e in bars if e["pid"] == rank]
    assert all(e["dur"] >= 0 for e in mine)
    for bucket in 0, 1, 2:
        assert sum(e["name"] == "bucket %d allreduce" % bucket for e in mine) == 12
    assert sum(e["name"] == "linear_bwd_weights layers.0" for e in mine) == 12
    assert sum(e["cat"] == "step" for e in mine) == 12'

# ---- bits ----

uneven=(--model lenet --limit 40 --global-batch 7 --devices 2 --momentum 0.9 --steps 9)
run u1 "${uneven[@]}" && run u2 "${uneven[@]}" --tuning-file "$work/tuning.json" \
    && run u3 "${uneven[@]}" --bucket-mb 0.001
same "an uneven batch gives the same bits in every run" "$(get u1.json 's["params_sha256"]')" \
    "$(get u2.json 's["params_sha256"]')"
same "with any buckets" "$(get u1.json 's["params_sha256"]')" "$(get u3.json 's["params_sha256"]')"
holds "and the same losses" u1/steps.jsonl \
    "[l['loss'] for l in r] == [json.loads(l)['loss'] for l in open('u2/steps.jsonl')]"
holds "whose bits have the hash of the record" u1.json \
    "s['losses_sha256'] == __import__('hashlib').sha256(b''.join(__import__('struct').pack('<d', json.loads(l)['loss']) for l in open('u1/steps.jsonl'))).hexdigest()"
run u4 "${uneven[@]}" --accum 3
holds "the last steps of an epoch have fewer samples than micro-steps and ranks, and no other loss" u4/steps.jsonl \
    "all(abs(l['loss'] - json.loads(m)['loss']) < 1e-3 for l, m in zip(r, open('u1/steps.jsonl')))"
holds "and steps have the samples of the whole" u4.json \
    'r["config"]["global_batch"] == 7 and r["config"]["batch_size"] == 2'
run launched --dim 64 --depth 2 --batch-size 8 --tune off --devices 2 --steps 12
"$ECHELON" run -n 2 -- "$ECHELON" train "${linear[@]}" --steps 12 --json >by_run.json 2>.output
same "ranks of echelon run train as those of --devices" \
    "$(get launched.json 's["params_sha256"]')" "$(get by_run.json 's["params_sha256"]')"
"$ECHELON" run -n 2 -- "$ECHELON" train "${linear[@]}" --steps 12 --devices 2 --json >by_both.json 2>.output
same "also where both say so" "$(get launched.json 's["params_sha256"]')" "$(get by_both.json 's["params_sha256"]')"
says "but not where they differ" '--devices 3: 2 ranks are already started' "$ECHELON" run -n 2 -- "$ECHELON" \
    train "${linear[@]}" --devices 3

# ---- memory ----

for how in "--accum 3" "--devices 2 --accum 2" "--devices 2 --global-batch 13 --accum 2" \
    "--devices 3 --global-batch 13" \
    "--reproducible --global-batch 16" "--devices 2 --reproducible --global-batch 16"; do
    # shellcheck disable=SC2086
    run memory --model lenet --limit 60 --global-batch 12 --steps 5 --threads 1 --tune off $how
    holds "a device takes what was planned: $how" memory.json 's["peak_memory_bytes"] == s["planned_memory_bytes"]'
done
limited=(--dim 64 --depth 2 --accum 2 --batch-size 8 --threads 1 --tune off --steps 3)
run memory "${limited[@]}"
bytes=$(get memory.json 's["planned_memory_bytes"][0]')
check "exactly that is enough" train "${limited[@]}" --device-memory "$bytes"
says "a byte less is refused, with a batch that fits" \
    "a batch of 8 needs $bytes bytes .* the largest batch that fits is 7" \
    train "${limited[@]}" --device-memory $((bytes - 1))

# ---- batch norms ----

resnet8=(--model resnet8 --limit 30 --global-batch 10 --steps 4 --tune off --devices 2)
run b1 "${resnet8[@]}"
holds "buffers travel from rank 0" b1.json \
    'c["buffer_bytes"] == 4 * 2 * (16 + 2 * 16 + 3 * 32 + 3 * 64) and c["statistics_bytes"] == 0'
run b2 "${resnet8[@]}" --no-broadcast-buffers
holds "or stay where they are" b2.json 'c["buffer_bytes"] == 0 and r["config"]["broadcast_buffers"] is False'
same "which the parameters do not see" "$(get b1.json 's["params_sha256"]')" "$(get b2.json 's["params_sha256"]')"
run b3 "${resnet8[@]}" --sync-bn
holds "statistics are exchanged forward and backward" b3.json \
    'c["statistics_bytes"] == 2 * c["buffer_bytes"] and r["config"]["sync_bn"] is True'
train "${resnet8[@]}" --devices 1 --threads 1 --json >b4.json 2>.output
check "with them two devices train as one does" python3 -c '
import json
loss = [json.load(open(f))["summary"]["final_loss"] for f in ("b1.json", "b3.json", "b4.json")]
assert abs(loss[1] - loss[2]) < 1e-4 < abs(loss[0] - loss[2]), loss'

# ---- evaluation ----

lenet=(--model lenet --limit 500 --batch-size 32 --tune off)
train "${lenet[@]}" --threads 1 --steps 20 --lr 0.05 --save-params start.safetensors >/dev/null 2>&1
for devices in 1 2 3; do
    train "${lenet[@]}" --epochs 1 --lr 0 --init start.safetensors --devices $devices --threads 1 \
        --json >e$devices.json 2>.output
done
holds "an accuracy is a number of the 500 samples" e2.json \
    'abs(s["accuracy"] * 500 - round(s["accuracy"] * 500)) < 1e-9 and s["accuracy"] == s["epochs"][0]["accuracy"] > 0'
same "two devices find the accuracy of one" "$(get e1.json 's["accuracy"]')" "$(get e2.json 's["accuracy"]')"
same "so do three" "$(get e1.json 's["accuracy"]')" "$(get e3.json 's["accuracy"]')"
check "and the loss, over training and test samples" python3 -c '
import json
e = [json.load(open("e%d.json" % n))["summary"]["epochs"][0] for n in (1, 2, 3)]
assert all(abs(x[k] - e[0][k]) < 1e-5 for x in e for k in ("loss", "test_loss", "train_accuracy")), e'

# ---- a straggler ----

run late "${linear[@]}" --devices 2 --steps 20 --straggle 1:20
holds "the rank that idles is found, where, and for how long" late.json \
    'c["straggler"]["rank"] == 1 and c["straggler"]["phase"] == "backward" and 15 <= c["straggler"]["ms"] <= 30'
holds "the parts of every rank add up to its step" late.json \
    'all(abs(sum(x[k] for k in "forward_s backward_s optimizer_s comm_exposed_s wait_s other_s".split()) - x["step_s"]) <= 1e-9 for x in c["ranks"])'
holds "hidden communication is under computing" late.json \
    'all(0 <= x["comm_hidden_s"] <= x["forward_s"] + x["backward_s"] + x["optimizer_s"] for x in c["ranks"])'
holds "the other one waits for it" late.json 'c["ranks"][0]["wait_s"] >= 0.015 and c["ranks"][1]["wait_s"] < 0.005'
holds "which is not exposed communication" late.json 'c["ranks"][0]["comm_exposed_s"] < 0.015 and s["step_time_s"]["median"] >= 0.02'
says "there are only so many ranks" '--straggle 2:20: there are ranks 0 to 1' train \
    "${linear[@]}" --devices 2 --straggle 2:20

# ---- disagreement ----

# differ WHAT PATTERN SCRIPT: two ranks that a script starts with options of their own
differ() {
    timeout 60 "$ECHELON" run -n 2 -- sh -c "exec \"$ECHELON\" train --tune off --batch-size 8 $3" >out 2>.output
    local code=$?
    echo "exit code $code" >>.output
    if [[ $code == 1 && ! -s out ]] && grep -qE -- "$2" .output \
        && grep -qE 'rank 0.*rank 1|rank 1.*rank 0' .output; then
        ok "$1"
    else
        not_ok "$1"
    fi
}
differ "another width" 'dim.*64.*128|dim.*128.*64' '--dim $((64 + 64 * RANK))'
differ "another rate" 'lr' '--dim 64 --lr 0.0$((1 + RANK))'
differ "another seed" 'seed' '--dim 64 --seed $RANK'
differ "another number of steps" 'steps' '--dim 64 --steps $((10 + RANK))'
differ "another model" 'model|lenet' '$([ $RANK = 0 ] && echo --model lenet --limit 100 || echo --dim 64)'
check "nothing is left in shared memory" test -z \
    "$(find /dev/shm -user "$(id -u)" -newer "$work/two.json" -name '*echelon*')"
finish
