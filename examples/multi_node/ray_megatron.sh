#!/usr/bin/env bash
# Qwen2.5-VL-7B on Megatron under Ray, one node for training and one for vLLM. Start the cluster first:
#   ray start --head     on the first node, and     ray start --address=FIRST:6379     on the second,
# then this on the first. It needs ray, megatron-core, mcore-bridge and vLLM. Prompts and images are shared as without Ray.
set -euo pipefail
cd "$(dirname "$0")"
export MAX_PIXELS=1003520  # of one image, after resizing: 1,280 tokens
export ROOT_IMAGE_DIR="${IMAGES:-$PWD/../tasks/data}"
mkdir -p "${OUTPUT:=$PWD/output/ray_megatron}"
sed -e "s|PLUGIN|$(swift-grpo-ext path)|" -e "s|DATA|${DATA:-$PWD/../tasks/data/counting.jsonl}|" \
    -e "s|SYSTEM|$PWD/../tasks/system.txt|" -e "s|OUTPUT|$OUTPUT|" ray_megatron.yaml > "$OUTPUT/config.yaml"
megatron rlhf --use_ray true --config "$OUTPUT/config.yaml"
