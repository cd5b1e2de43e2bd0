#!/usr/bin/env bash
# expect: server-differs
# report: the server answers 404
CUDA_VISIBLE_DEVICES=4,5,6,7 MAX_PIXELS=602112 swift deploy --model Qwen/Qwen2.5-VL-7B-Instruct &
export MAX_PIXELS=602112
NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --reward_funcs accuracy \
    --tuner_type lora --torch_dtype bfloat16 --learning_rate 1e-5 --deepspeed zero2 --ddp_timeout 3600 \
    --per_device_train_batch_size 1 --max_completion_length 512 --num_generations 4 \
    --use_vllm true --vllm_mode server --vllm_server_host 127.0.0.1
