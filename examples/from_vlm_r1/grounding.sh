#!/usr/bin/env bash
# What VLM-R1's REC recipe becomes: Qwen2.5-VL-3B, LoRA of rank 64, eight GPUs of 80 GB, here shared with vLLM.
# rows.jsonl is what convert.py --task rec makes of vlm_r1.jsonl. Like the recipe it does not evaluate while it trains;
# --val_dataset FILE --eval_steps 50 would, on rows that training does not see.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
export NPROC_PER_NODE=8
export MAX_PIXELS=1003520  # of one image, after resizing: 1,280 tokens
export ROOT_IMAGE_DIR="${IMAGES:-.}"
export SWIFT_GRPO_EXT_REWARD_TABLE='{"rewards": {"ext_iou": {"parameters": {"gold_frame": "pixel_original"}}}}'
swift rlhf --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-3B-Instruct \
    --external_plugins "$(swift-grpo-ext path)" \
    --tuner_type lora --lora_rank 64 --lora_alpha 128 --deepspeed ext_zero2 \
    --dataset "${DATA:-rows.jsonl}" \
    --system ../tasks/system.txt \
    --reward_funcs ext_iou ext_format \
    --torch_dtype bfloat16 --learning_rate 1e-5 --beta 0.04 \
    --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 2 \
    --max_length 4096 --max_completion_length 2048 \
    --use_vllm true --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.4 --vllm_max_model_len 6144 \
    --num_train_epochs 2 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard --ddp_timeout 3600 \
    --output_dir "${OUTPUT:-output/grounding}"
