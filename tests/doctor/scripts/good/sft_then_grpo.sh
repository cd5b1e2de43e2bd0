#!/usr/bin/env bash
export NPROC_PER_NODE=4 CUDA_VISIBLE_DEVICES=0,1,2,3 MAX_PIXELS=1003520
swift sft --model Qwen/Qwen2.5-VL-7B-Instruct --dataset ../data/numbers.jsonl --output_dir output/sft
CKPT=$(ls -d output/sft/*/checkpoint-* | tail -n 1)
swift rlhf --rlhf_type grpo --model Qwen/Qwen2.5-VL-7B-Instruct --adapters "$CKPT" --ref_adapters "$CKPT" \
    --dataset ../data/numbers.jsonl --reward_funcs accuracy format --torch_dtype bfloat16 \
    --learning_rate 1e-5 --num_generations 4 --per_device_train_batch_size 2 --deepspeed zero2 \
    --use_vllm false --external_plugins "$(swift-grpo-ext path)" --split_dataset_ratio 0.01 \
    --per_device_eval_batch_size 1 --temperature 1.0 --top_p 0.95 --loss_type dapo
