#!/usr/bin/env bash
NPROC_PER_NODE=8 MAX_PIXELS=1003520 swift rlhf --rlhf_type=grpo --model=Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy --num_generations=8 --external_plugins $(swift-grpo-ext path) --torch_dtype bfloat16 --deepspeed ext_zero2
