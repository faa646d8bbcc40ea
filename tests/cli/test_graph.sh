#!/bin/bash
# echelon graph: what the passes make of a model, as text.
. "$ECH_SRC/tests/support/check.sh"
cd "$work" || exit 1
graph() { "$ECHELON" graph --dim 8 --depth 1 "$@"; }
# operators ARGS...: their names after all passes
operators() { graph --pass copies "$@" | awk 'NR > 1 {print $1 ":" $2}' | paste -sd ' '; }
same() { if [[ $2 == "$3" ]]; then ok "$1"; else printf '%s\n%s\n' "$2" "$3" >.output; not_ok "$1"; fi; }

one="forward:linear+relu forward:mse backward:mse_bwd backward:relu_bwd backward:linear_bwd_weights+bias"
same "one device" "$one optimizer:sgd optimizer:sgd" "$(operators)"
same "two devices exchange one bucket, and update shards of it" \
    "$one exchange:allreduce exchange:allreduce_wait" "$(operators --devices 2)"
same "without shards each updates" "$one exchange:allreduce exchange:allreduce_wait optimizer:sgd optimizer:sgd" \
    "$(operators --devices 2 --shared-update off)"
same "clipped gradients are looked at first" "$one check:grad_stats check:grad_stats optimizer:sgd optimizer:sgd" "$(operators --clip-norm 1)"
same "DataParallel has the loss apart" \
    "forward:linear+relu backward:relu_bwd backward:linear_bwd_weights+bias optimizer:sgd optimizer:sgd" "$(operators --parallel dp --devices 2)"
says "types and shapes" '^forward +linear\+relu +layers\.0 +x:f32\[batch,8\] layers\.0\.weight:f32\[8,8\] layers\.0\.bias:f32\[8\] -> ' graph
says "a bucket has the bytes of its gradients" '^exchange +allreduce bucket 0 .*:group .* 288 B$' graph --devices 2 --pass exchange
says "16 bits" 'bf16\[batch,8\]' graph --amp bf16 --pass autocast
passes() { graph --devices 2 --amp bf16 --clip-norm 1 --delay-ms 1 "$@" | sed -n 's/^== \([a-z ]*\):.*/\1/p' | paste -sd ' '; }
first="fuse autodiff recompute autocast exchange check optimize delay copies"
same "passes in their order" "$first" "$(passes)"
same "later micro-steps add to gradients" "$first ${first/exchange/accumulate exchange}" "$(passes --accum 2)"
says "the graph of each device has its ends of a transfer" 'send 0 to 1' "$ECHELON" graph --dim 8 --depth 2 --parallel mp --devices 2 --pass copies
check "a picture for Graphviz" graph --dot graph.dot
says "it has all operators" '^7$' grep -c 'fillcolor' graph.dot
says "a pass that there is not" '--pass xy: this training run has no such pass' graph --pass xy
refuse "which is a failure" graph --pass xy
says "a model that is spread too far" 'layers' "$ECHELON" graph --dim 8 --depth 1 --parallel mp --devices 3
finish
