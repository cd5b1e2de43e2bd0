#!/usr/bin/env bash
set -euo pipefail
cd "$(dirname "$0")"
: "${OUTPUT:=output}"
export NPROC_PER_NODE=8
ARGS=(
    --rlhf_type grpo
    --model "${MODEL:-Qwen/Qwen2.5-VL-3B-Instruct}"  # or 7B
    --dataset ../data/numbers.jsonl
    --reward_funcs accuracy format
    --torch_dtype bfloat16
    --learning_rate 1e-5
    --deepspeed zero2
    --output_dir "$OUTPUT/$(date +%F)"
    --external_plugins "$(swift-grpo-ext path)"
    # --max_steps 10
)
MAX_PIXELS=$((1280*28*28)) nohup swift rlhf "${ARGS[@]}" "$@" > train.log 2>&1 &
