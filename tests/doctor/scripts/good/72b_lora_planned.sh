#!/usr/bin/env bash
NPROC_PER_NODE=8 \
MAX_PIXELS=640000 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-72B-Instruct \
    --dataset ../data/numbers.jsonl \
    --reward_funcs accuracy format \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --learning_rate 1e-5 \
    --num_generations 8 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --max_completion_length 2048 \
    --deepspeed ext_zero3 \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.35 \
    --vllm_max_model_len 4096 \
    --ddp_timeout 3600 \
    --external_plugins "$(swift-grpo-ext path)" \
    --vllm_tensor_parallel_size 8 \
    --move_model_batches 36 \
    --sleep_level 1
