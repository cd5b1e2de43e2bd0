#!/usr/bin/env bash
export MAX_PIXELS=1003520
torchrun --nproc_per_node 8 --master_port 29501 -m swift.cli.rlhf \
    --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl \
    --reward_funcs accuracy format --torch_dtype bfloat16 --learning_rate 1e-5 --num_generations 8 \
    --per_device_train_batch_size 1 --gradient_accumulation_steps 4 --deepspeed zero2 --use_vllm false \
    --external_plugins "$(swift-grpo-ext path)" 2>&1 | tee train.log
