#!/bin/bash
# The virtual clock: the numbers are those of the real one, times are what the plan's dependencies give, and no test here
# depends on how fast the machine is.
. "$ECH_SRC/tests/support/check.sh"
export ECHELON_TUNING=$work/tuning.json
cd "$work" || exit 1

run() {
    local name=$1
    shift
    "$ECHELON" train --tune off --json --run-dir "$name" "$@" >"$name.json" 2>.output
}
# holds WHAT EXPRESSION NAMES...: of the summaries s[NAME] of runs.
holds() {
    local what=$1 expression=$2
    shift 2
    check "$what" python3 -c '
import json, sys
s = {n: json.load(open(n + "/run.json"))["summary"] for n in sys.argv[2:]}
m = {n: s[n]["step_time_s"]["median"] for n in s}
if not eval(sys.argv[1]):
    sys.exit("not so: " + sys.argv[1] + "\n" + json.dumps({n: [s[n]["step_time_s"], s[n]["clock"], s[n].get("communication", {}).get("straggler")] for n in s}))' "$expression" "$@"
}
linear=(--dim 64 --depth 2 --batch-size 8 --steps 20)

# ---- the same numbers ----

check "four devices by the real clock" run real "${linear[@]}" --devices 4 --threads 1 --clock real
check "and by the virtual one" run virtual "${linear[@]}" --devices 4 --clock virtual
holds "they compute the same" 's["real"]["params_sha256"] == s["virtual"]["params_sha256"] and s["real"]["final_loss"] == s["virtual"]["final_loss"]' real virtual
holds "each says which clock it ran by" 's["real"]["clock"] == "measured" and s["virtual"]["clock"] == "emulated"' real virtual
holds "memory is what was planned" 's["virtual"]["peak_memory_bytes"] == s["virtual"]["planned_memory_bytes"]' virtual
says "the terminal says it too" 'emulated' "$ECHELON" train --tune off "${linear[@]}" --devices 2 --clock virtual
check "the model with batch norms does the same" run bn-real --model resnet8 --limit 64 --batch-size 4 --steps 2 --warmup 1 --devices 2 --threads 1 --clock real
check "by both clocks" run bn-virtual --model resnet8 --limit 64 --batch-size 4 --steps 2 --warmup 1 --devices 2 --clock virtual
holds "to the bit" 's["bn-real"]["params_sha256"] == s["bn-virtual"]["params_sha256"]' bn-real bn-virtual

# ---- devices that share cores ----

# One core, whatever the machine has.
core=$(sed -n 's/^Cpus_allowed_list:[[:space:]]*\([0-9]*\).*/\1/p' /proc/self/status)
on_one_core() {
    local name=$1
    shift
    taskset -c "$core" "$ECHELON" train --tune off --json --run-dir "$name" "${linear[@]}" "$@" >"$name.json" 2>.output
}
marked() { holds "$1" "s['$2']['clock'] == '$3' and s['$2']['oversubscribed'] is $4" "$2"; }
check "two ranks on one core" on_one_core crowd --devices 2
marked "are emulated" crowd emulated False
check "by the real clock" on_one_core crowd-real --devices 2 --clock real
marked "they are marked" crowd-real measured True
check "DataParallel on one core" on_one_core crowd-dp --devices 2 --parallel dp
marked "is marked" crowd-dp measured True
check "ranks of two threads each, which have no virtual clock" on_one_core crowd-threads --devices 2 --threads 2
marked "are marked" crowd-threads measured True
check "two threads on one core" on_one_core threads --threads 2
marked "are no device of two cores" threads measured True
check "one device" on_one_core one
marked "has the core for itself" one measured False
says "the terminal says it too" '\(measured, oversubscribed, .*\)' taskset -c "$core" "$ECHELON" train --tune off "${linear[@]}" --devices 2 --parallel dp
says "and with whom it was shared" 'oversubscribed: 2 devices with 1 thread each on 1 core,' taskset -c "$core" "$ECHELON" train --tune off "${linear[@]}" --devices 2 --parallel dp

# ---- delays have a stated length and take no time ----

# Steps of 5 s by their clock; 8 of them would take 40 s.
for devices in 1 2; do
    start=$SECONDS
    check "delays on $devices devices" run "delay$devices" --dim 16 --depth 1 --batch-size 4 --steps 8 --warmup 1 --devices $devices --clock virtual --delay-ms 5000
    took=$((SECONDS - start))
    echo "$took s" >.output
    check "are not waited for" test $took -lt 35
    holds "and are in the step" "5 <= m['delay$devices'] <= 5.5" "delay$devices"
done
check "a straggler" run straggle "${linear[@]}" --devices 3 --clock virtual --straggle 1:2000
holds "is in the step" '2 <= m["straggle"] <= 2.2' straggle
holds "and is found again" 's["straggle"]["communication"]["straggler"]["rank"] == 1' straggle
holds "the others wait for it" 'all((r["wait_s"] >= 1.8) == (i != 1) for i, r in enumerate(s["straggle"]["communication"]["ranks"]))' straggle

# ---- links ----

# One bucket of 4 (64 * 64 + 64) 2 bytes; a ring of 4 devices sends 6 messages of a fourth, one of 2 has 2 of a half.
bytes=$((4 * (64 * 64 + 64) * 2))
check "slow links" run slow "${linear[@]}" --devices 4 --clock virtual --link 100kB/s,50ms --algorithm ring
holds "cost bytes by bandwidth and latency by message" "abs(m['slow'] - 6 * (0.05 + $bytes / 4 / 1e5)) <= 0.1 * m['slow']" slow
check "half as many devices" run two "${linear[@]}" --devices 2 --clock virtual --link 100kB/s,50ms --algorithm ring
holds "send less" "abs(m['two'] - 2 * (0.05 + $bytes / 2 / 1e5)) <= 0.1 * m['two']" two
cat >two-nodes.json <<'END'
{"nodes": 2, "devices_per_node": 2, "inside": {"bandwidth": "1GB/s", "latency": "1us"},
 "between": {"bandwidth": "10MB/s", "latency": "500ms"}}
END
check "a cluster" run cluster "${linear[@]}" --devices 4 --clock virtual --cluster two-nodes.json --algorithm hierarchical
holds "pays for its slow links" '1 <= m["cluster"] <= 1.3' cluster
holds "records name their links" 's["slow"]["emulation"]["algorithm"] == "ring" and s["slow"]["emulation"]["links"]["source"] == "given" and s["virtual"]["emulation"]["links"]["source"] in ("measured", "default") and s["virtual"]["emulation"]["links"]["moved_by"] == "shared memory"' slow virtual
holds "links change times and nothing else" 's["slow"]["params_sha256"] == s["cluster"]["params_sha256"] == s["virtual"]["params_sha256"]' slow cluster virtual

# ---- what it refuses ----

refused() {
    local what=$1 pattern=$2
    shift 2
    "$ECHELON" train --dim 64 "$@" >/dev/null 2>.output
    local code=$?
    if ((code != 0)) && grep -qE -- "$pattern" .output; then ok "$what"; else not_ok "$what"; fi
}
refused "links that are none" "link" --clock virtual --link fast
refused "a link without latency" "link" --clock virtual --link 1GB/s
refused "links of the real clock" "virtual" --clock real --link 1GB/s,1us
refused "two descriptions" "both" --clock virtual --link 1GB/s,1us --cluster two-nodes.json
refused "more than one thread" "thread" --clock virtual --threads 2
refused "DataParallel" "DataParallel" --clock virtual --parallel dp --devices 2 --global-batch 8
finish
