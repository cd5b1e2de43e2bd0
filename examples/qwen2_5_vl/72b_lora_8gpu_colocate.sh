#!/usr/bin/env bash
# Qwen2.5-VL-72B, LoRA, eight GPUs of 80 GB shared with one vLLM engine over all of them.
# By the arithmetic of swift-grpo-ext plan a GPU is fullest in the update, with 46 to 58 GiB.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
: "${DATA:+${VAL_DATA:?rows that training does not see}}"  # rows of your own need held-out ones, too
export NPROC_PER_NODE=8
export MAX_PIXELS=1003520
export ROOT_IMAGE_DIR="${IMAGES:-../tasks/data}"
swift rlhf \
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
    --gradient_accumulation_steps 1 \
    --max_length 1536 \
    --max_completion_length 1024 \
    --ddp_timeout 3600 \
    --lora_rank 32 --lora_alpha 64 \
    --lora_dropout 0.0 \
    --deepspeed ext_zero3 \
    --use_vllm true \
    --vllm_mode colocate \
    --move_model_batches 36 \
    --vllm_tensor_parallel_size 8 \
    --vllm_gpu_memory_utilization 0.35 \
    --vllm_max_model_len 2560 \
    --sleep_level 1 \
    --offload_model false \
    --offload_optimizer false \
    --num_train_epochs 3 --num_generations_eval 1 --eval_steps 50 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard \
    --output_dir "${OUTPUT:-output/72b_lora_8gpu_colocate}"
