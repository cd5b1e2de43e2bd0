#!/usr/bin/env bash
# expect: lora-leaves-the-aligner
# report: the aligner of Ovis2 does not train
NPROC_PER_NODE=8 \
MAX_PIXELS=1003520 \
swift rlhf \
    --rlhf_type grpo \
    --model thisisiron/Ovis2-2B-hf \
    --dataset ../data/numbers.jsonl \
    --reward_funcs accuracy format \
    --tuner_type lora \
    --torch_dtype bfloat16 \
    --learning_rate 1e-5 \
    --num_generations 8 \
    --per_device_train_batch_size 1 \
    --gradient_accumulation_steps 1 \
    --max_completion_length 512 \
    --deepspeed zero2 \
    --use_vllm false \
    --freeze_aligner false \
    --ddp_timeout 3600 \
    --external_plugins "$(swift-grpo-ext path)"
