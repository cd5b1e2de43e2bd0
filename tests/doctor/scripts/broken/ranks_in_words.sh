#!/usr/bin/env bash
# expect: ranks-no-number
# report: Unsupported nproc_per_node value
export NPROC_PER_NODE=eight MAX_PIXELS=602112
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 --num_generations 8
