#!/usr/bin/env bash
# Qwen2.5-VL-7B, all parameters of the language model, eight GPUs of 80 GB shared with vLLM.
# Gradients and optimizer states are sharded; weights and states leave the GPUs while vLLM samples.
# Without a KL term (beta 0) no reference model is held.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
: "${DATA:+${VAL_DATA:?rows that training does not see}}"  # rows of your own need held-out ones, too
export NPROC_PER_NODE=8
export MAX_PIXELS=1003520  # of one image, after resizing: 1,280 tokens
export ROOT_IMAGE_DIR="${IMAGES:-../tasks/data}"
swift rlhf --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-7B-Instruct \
    --external_plugins "$(swift-grpo-ext path)" \
    --tuner_type full --deepspeed ext_zero2 \
    --dataset "${DATA:-../tasks/data/counting.jsonl}" \
    --val_dataset "${VAL_DATA:-../tasks/data/counting_held_out.jsonl}" \
    --system ../tasks/system.txt \
    --reward_funcs ext_count ext_format --reward_weights 1 0.2 \
    --torch_dtype bfloat16 --learning_rate 1e-6 --beta 0 \
    --num_generations 8 --per_device_train_batch_size 1 --gradient_accumulation_steps 8 \
    --max_length 4096 --max_completion_length 1024 \
    --use_vllm true --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.35 --vllm_max_model_len 5120 \
    --sleep_level 1 --offload_model true --offload_optimizer true \
    --num_train_epochs 3 --eval_steps 50 --save_steps 50 --save_total_limit 2 \
    --logging_steps 1 --log_completions true --report_to tensorboard --ddp_timeout 3600 \
    --output_dir "${OUTPUT:-output/7b_full_8gpu}"
