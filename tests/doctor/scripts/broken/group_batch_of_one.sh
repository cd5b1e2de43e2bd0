#!/usr/bin/env bash
# expect: group-batch
export NPROC_PER_NODE=8 MAX_PIXELS=602112 SWIFT_GRPO_EXT_GROUP_BATCH=1
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --external_plugins "$(swift-grpo-ext path)" --per_device_train_batch_size 1 --max_completion_length 512 --num_generations 8
