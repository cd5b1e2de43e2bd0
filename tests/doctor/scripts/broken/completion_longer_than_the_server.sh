#!/usr/bin/env bash
# expect: vllm-model-len
# report: clipped_ratio 1
export MAX_PIXELS=1003520
CUDA_VISIBLE_DEVICES=4,5,6,7 swift rollout --model Qwen/Qwen2.5-VL-7B-Instruct --vllm_data_parallel_size 4 --vllm_max_model_len 2048 &
NPROC_PER_NODE=4 \
CUDA_VISIBLE_DEVICES=0,1,2,3 \
swift rlhf \
    --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --dataset ../data/numbers.jsonl \
    --reward_funcs accuracy format \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --learning_rate 1e-5 \
    --num_generations 4 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --max_completion_length 2048 \
    --deepspeed zero2 \
    --use_vllm true \
    --vllm_mode server \
    --ddp_timeout 3600 \
    --external_plugins "$(swift-grpo-ext path)" \
    --vllm_server_host 127.0.0.1
