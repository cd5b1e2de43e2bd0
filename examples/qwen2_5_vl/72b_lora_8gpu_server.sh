#!/usr/bin/env bash
# Qwen2.5-VL-72B, LoRA, four GPUs of 80 GB that train and four of a rollout server, here on one node.
# By the arithmetic of swift-grpo-ext plan a GPU is fullest in the update, with 60 to
# 72 GiB. Four GPUs do not train here; the server can also stand on another machine (SERVER=...).
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
: "${DATA:+${VAL_DATA:?rows that training does not see}}"  # rows of your own need held-out ones, too
export MAX_PIXELS=1003520  # of the trainer and of the server alike
export ROOT_IMAGE_DIR="${IMAGES:-../tasks/data}"

CUDA_VISIBLE_DEVICES=4,5,6,7 swift rollout \
    --model Qwen/Qwen2.5-VL-72B-Instruct \
    --external_plugins "$(swift-grpo-ext path)" \
    --vllm_tensor_parallel_size 4 \
    --vllm_data_parallel_size 1 \
    --vllm_gpu_memory_utilization 0.9 \
    --vllm_max_model_len 2560 &
trap 'kill $! 2> /dev/null || true' EXIT

NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift rlhf \
    --rlhf_type grpo \
    --external_plugins "$(swift-grpo-ext path)" \
    --model Qwen/Qwen2.5-VL-72B-Instruct \
    --dataset "${DATA:-../tasks/data/counting.jsonl}" \
    --val_dataset "${VAL_DATA:-../tasks/data/counting_held_out.jsonl}" \
    --system ../tasks/system.txt \
    --reward_funcs ext_count ext_format --reward_weights 1 0.2 \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --attn_impl sdpa \
    --learning_rate 2e-5 --warmup_ratio 0.05 \
    --beta 0.04 \
    --num_generations 8 \
    --per_device_train_batch_size 8 \
    --gradient_accumulation_steps 2 \
    --max_length 1536 \
    --max_completion_length 1024 \
    --ddp_timeout 3600 \
    --lora_rank 32 --lora_alpha 64 \
    --lora_dropout 0.0 \
    --deepspeed ext_zero3 \
    --use_vllm true \
    --vllm_mode server \
    --move_model_batches 36 \
    --vllm_server_host "${SERVER:-127.0.0.1}" \
    --vllm_server_port 8000 --vllm_server_timeout 1800 \
    --num_train_epochs 3 --num_generations_eval 1 --eval_steps 50 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard \
    --output_dir "${OUTPUT:-output/72b_lora_8gpu_server}"
