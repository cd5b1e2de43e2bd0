#!/usr/bin/env bash
# Qwen2.5-VL-32B, LoRA, two nodes of eight GPUs of 80 GB shared with vLLM. Start it on both nodes:
#   NODE_RANK=0 MASTER_ADDR=10.0.0.1 torchrun.sh     and     NODE_RANK=1 MASTER_ADDR=10.0.0.1 torchrun.sh
# With NNODES set, swift starts torchrun by itself. Weights are gathered inside a node only (hpZ), an engine of four
# GPUs never spans nodes, and OUTPUT must be on a file system that both nodes see.
#
# swift-grpo-ext check --gpu-memory 80:
#   nothing
set -euo pipefail
cd "$(dirname "$0")"
export NNODES=2 NPROC_PER_NODE=8
export NODE_RANK="${NODE_RANK:-0}" MASTER_ADDR="${MASTER_ADDR:-127.0.0.1}" MASTER_PORT="${MASTER_PORT:-29500}"
export MAX_PIXELS=1003520  # of one image, after resizing: 1,280 tokens
export ROOT_IMAGE_DIR="${IMAGES:-../tasks/data}"
swift rlhf --rlhf_type grpo \
    --model Qwen/Qwen2.5-VL-32B-Instruct \
    --external_plugins "$(swift-grpo-ext path)" \
    --tuner_type lora --lora_rank 32 --lora_alpha 64 --deepspeed ext_zero3_hpz \
    --dataset "${DATA:-../tasks/data/counting.jsonl}" \
    --system ../tasks/system.txt \
    --reward_funcs ext_count ext_format --reward_weights 1 0.2 \
    --torch_dtype bfloat16 --learning_rate 2e-5 --warmup_ratio 0.05 \
    --num_generations 8 --per_device_train_batch_size 1 --gradient_accumulation_steps 4 \
    --max_length 4096 --max_completion_length 1024 \
    --use_vllm true --vllm_mode colocate \
    --vllm_gpu_memory_utilization 0.45 --vllm_max_model_len 5120 --vllm_tensor_parallel_size 4 \
    --sleep_level 1 --move_model_batches 16 \
    --num_train_epochs 3 --save_steps 100 --logging_steps 1 --log_completions true --ddp_timeout 3600 \
    --output_dir "${OUTPUT:-output/torchrun}"
