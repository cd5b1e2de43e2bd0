#!/bin/bash
set -e
MODEL=Qwen/Qwen2.5-VL-7B-Instruct
export NPROC_PER_NODE=8 MAX_PIXELS=1003520
# a comment between commands
swift rlhf --rlhf_type grpo --model "$MODEL" --dataset ../data/numbers.jsonl \
  --reward_funcs accuracy --num_generations 8 --torch_dtype bfloat16 \
  --external_plugins "$(swift-grpo-ext path)" --learning_rate 1e-5 --deepspeed zero2 --use_vllm false --max_completion_length 512
