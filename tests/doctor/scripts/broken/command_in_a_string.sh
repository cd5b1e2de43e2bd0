#!/usr/bin/env bash
# expect: no-reward
# report: B3
CMD="swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512"
CMD+=" --num_generations 8 --gradient_accumulation_steps 8"
eval "$CMD"
