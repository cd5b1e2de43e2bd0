#!/usr/bin/env bash
# expect: memory
# report: A9, swift#3592
NPROC_PER_NODE=8 \
MAX_PIXELS=640000 \
swift rlhf \
    --rlhf_type grpo \
    --model /mnt2/models/Qwen__Qwen2.5-VL-72B-Instruct \
    --dataset ../data/numbers.jsonl \
    --reward_funcs accuracy format \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --learning_rate 1e-6 \
    --num_generations 4 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --max_completion_length 2048 \
    --deepspeed zero3_offload \
    --use_vllm true \
    --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.3 \
    --vllm_max_model_len 2048 \
    --ddp_timeout 3600 \
    --max_length 2048 \
    --vllm_tensor_parallel_size 8 \
    --temperature 1.1 \
    --warmup_ratio 0.05
