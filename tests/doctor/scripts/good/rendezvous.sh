#!/usr/bin/env bash
export MAX_PIXELS=602112
torchrun --nproc_per_node 8 --nnodes 2 --rdzv_backend c10d --rdzv_endpoint 10.0.0.1:29400 -m swift.cli.rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 --num_generations 16 \
    --external_plugins "$(swift-grpo-ext path)"
