#!/usr/bin/env bash
# GUI: the next action on a screen.
# A click counts inside the gold's box, typed text by its tokens.
# Qwen2.5-VL-3B, LoRA, one GPU of 80 GB shared with vLLM.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
: "${DATA:+${VAL_DATA:?rows that training does not see}}"  # rows of your own need held-out ones, too
export CUDA_VISIBLE_DEVICES=0
export MAX_PIXELS=1003520  # of one image, after resizing: 1,280 tokens
export ROOT_IMAGE_DIR="${IMAGES:-data}"
export SWIFT_GRPO_EXT_REWARD_TABLE='{"rewards": {"ext_click": {"parameters": {"gold_frame": "pixel_original"}}}}'
swift rlhf --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-3B-Instruct \
    --external_plugins "$(swift-grpo-ext path)" \
    --tuner_type lora --lora_rank 32 --lora_alpha 64 \
    --dataset "${DATA:-data/gui.jsonl}" \
    --val_dataset "${VAL_DATA:-data/gui_held_out.jsonl}" \
    --system system.txt \
    --reward_funcs ext_click ext_format --reward_weights 1 0.2 \
    --torch_dtype bfloat16 --learning_rate 2e-5 --warmup_ratio 0.05 \
    --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 8 \
    --max_length 4096 --max_completion_length 1024 \
    --use_vllm true --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.4 --vllm_max_model_len 5120 \
    --num_train_epochs 3 --num_generations_eval 1 --eval_steps 50 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard \
    --output_dir "${OUTPUT:-output/gui}"
