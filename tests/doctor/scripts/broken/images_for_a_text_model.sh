#!/usr/bin/env bash
# expect: images-for-text-model
# report: config without vision
export NPROC_PER_NODE=8 MAX_PIXELS=602112
export ROOT_IMAGE_DIR=../data
swift rlhf --rlhf_type grpo --model ../data/text_model --dataset ../data/two_images.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 \
    --num_generations 8
