#!/usr/bin/env bash
NPROC_PER_NODE=8 \
MAX_PIXELS=1003520 \
ROOT_IMAGE_DIR=../data/images \
swift rlhf \
    --rlhf_type grpo --system 'Write the answer between <answer> and </answer>.' \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --dataset ../data/numbers.csv#1000 \
    --reward_funcs ext_numeric ext_format \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --learning_rate 1e-5 \
    --num_generations 8 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --max_completion_length 512 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.4 \
    --vllm_max_model_len 4096 \
    --ddp_timeout 3600 \
    --external_plugins "$(swift-grpo-ext path)" \
    --val_dataset ../data/numbers.jsonl \
    --per_device_eval_batch_size 1
