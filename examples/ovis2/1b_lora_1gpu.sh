#!/usr/bin/env bash
# Ovis2-1B as transformers ships it, LoRA, one GPU of 80 GB.
# transformers samples: vLLM does not serve this class. Each step takes 8 groups of 8 completions.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
: "${DATA:+${VAL_DATA:?rows that training does not see}}"  # rows of your own need held-out ones, too
export CUDA_VISIBLE_DEVICES=0
export ROOT_IMAGE_DIR="${IMAGES:-../tasks/data}"
swift rlhf --rlhf_type grpo \
    --model thisisiron/Ovis2-1B-hf \
    --external_plugins "$(swift-grpo-ext path)" \
    --tuner_type lora --lora_rank 32 --lora_alpha 64 \
    --dataset "${DATA:-../tasks/data/counting.jsonl}" \
    --val_dataset "${VAL_DATA:-../tasks/data/counting_held_out.jsonl}" \
    --system ../tasks/system.txt \
    --reward_funcs ext_count ext_format --reward_weights 1 0.2 \
    --torch_dtype bfloat16 --learning_rate 2e-5 --warmup_ratio 0.05 \
    --num_generations 8 --per_device_train_batch_size 8 --gradient_accumulation_steps 8 \
    --max_length 4096 --max_completion_length 512 \
    --use_vllm false \
    --num_train_epochs 3 --num_generations_eval 1 --eval_steps 50 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard \
    --output_dir "${OUTPUT:-output/1b_lora_1gpu}"
