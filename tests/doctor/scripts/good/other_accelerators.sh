#!/usr/bin/env bash
export NPROC_PER_NODE=8 MAX_PIXELS=602112 MKL_NUM_THREADS=4 GLOO_SOCKET_IFNAME=eth0 HCCL_SOCKET_IFNAME=eth0
export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True MUSA_VISIBLE_DEVICES=0,1,2,3,4,5,6,7
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 --num_generations 8 \
    --target_modules q_proj v_proj --external_plugins "$(swift-grpo-ext path)"
