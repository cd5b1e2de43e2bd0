#!/usr/bin/env bash
# expect: generation-batch
# report: batch arithmetic
GPUS=8
export NPROC_PER_NODE=$GPUS
GROUP=$((GPUS - 2))
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 \
    --num_generations $GROUP --gradient_accumulation_steps $((8 / GPUS))
