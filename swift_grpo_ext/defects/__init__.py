"""Known defects of ms-swift and the libraries under it, each once; ``docs/findings.md`` explains the ids."""

from swift_grpo_ext.defects.defect import Defect as Defect
from swift_grpo_ext.versions import HOST, HOST_RANGE

SWIFT = "https://github.com/modelscope/ms-swift"
DEEPSPEED = "https://github.com/deepspeedai/DeepSpeed"
ENGINE = "https://github.com/NVIDIA/TransformerEngine"
MEGATRON = "https://github.com/NVIDIA/Megatron-LM"
BRIDGE = "https://github.com/NVIDIA-NeMo/Megatron-Bridge"
TORCH = "https://github.com/pytorch/pytorch"

DDP_TIMEOUT = 1800  # seconds, our default in place of ms-swift's
HOST_DDP_TIMEOUT = 18_000_000  # seconds that ranks wait for each other by ms-swift's default: 208 days (B9)

_ANY_HOST = {HOST: HOST_RANGE}
_ANY_MEGATRON = {**_ANY_HOST, "megatron-core": ">=0.16"}
_ANY_BRIDGE = {**_ANY_HOST, "mcore-bridge": ">=1.6"}
_OF_BRIDGE = (f"{SWIFT}/blob/main/swift/megatron",)

_ALL = (
    Defect(
        "A1",
        "GRPO of templates whose image merge needs labels stops with 'NoneType' object is not iterable; "
        "with --max_length some cut the completion silently",
        _ANY_HOST,
        reports=(f"{SWIFT}/pull/3808",),
        patch="A1-none-labels",
    ),
    Defect(
        "A3",
        "ZeRO-3 without vLLM stops at the second rollout with 'pop from an empty deque'",
        {"deepspeed": "<0.19.2"},
        'pip install "deepspeed>=0.19.2", or --ds3_gather_for_generation false',
        (f"{DEEPSPEED}/pull/8043",),
        "A3-zero3-trace",
    ),
    Defect(
        "A5",
        "DDP with reentrant checkpointing stops with 'Expected to mark a variable ready only once'",
        _ANY_HOST,
        """--gradient_checkpointing_kwargs '{"use_reentrant": false}'""",
        (f"{SWIFT}/issues/3171",),
        "A5-reentrant-ddp",
    ),
    Defect(
        "A7",
        "dataloader workers stop with 'seed_worker() missing 2 required positional arguments'",
        {"torch": ">=2.0"},
        'pip install -U "ms-swift>=4.5" "trl>=0.26"',
        ("https://github.com/huggingface/transformers/pull/37980",),
        "A7-worker-seed",
    ),
    Defect(
        "A9",
        "ranks that cannot be cut into tensor-parallel groups get different prompts and hang",
        fix="--vllm_tensor_parallel_size with a divisor of the number of ranks",
        reports=("https://docs.vllm.ai/en/latest/serving/parallelism_scaling.html",),
    ),
    Defect(
        "B1",
        "ZeRO-2 with CPU offload and gradient accumulation trains on the first and last micro-batch only",
        {"deepspeed": ">=0.15.2,<0.19.0"},
        'pip install "deepspeed>=0.19.2", or --deepspeed zero2 or zero3_offload',
        (f"{DEEPSPEED}/issues/6550", f"{DEEPSPEED}/pull/7967", f"{DEEPSPEED}/pull/7981"),
        "B1-zero2-offload",
    ),
    Defect(
        "C1",
        "any checkpoint is read with trust_remote_code, also one whose class transformers has itself",
        _ANY_HOST,
        reports=(f"{SWIFT}/blob/main/swift/model/model_meta.py",),
        patch="C1-native-config",
    ),
    Defect(
        "C3",
        "a placeholder that vLLM samples crashes the next forward, or silently becomes part of an image",
        _ANY_HOST,
        reports=(f"{SWIFT}/blob/v4.6.0/swift/infer_engine/vllm_engine.py",),
        patch="C3-placeholder-guard",
    ),
    Defect(
        "C3-transformers",
        "a placeholder that transformers samples crashes the next forward, or passes for part of an image",
        _ANY_HOST,
        reports=(f"{SWIFT}/issues/9287", f"{SWIFT}/issues/9317"),
        patch="C3-placeholder-guard-transformers",
    ),
    Defect(
        "F16",
        "REAL compares the completions of a group, so micro-batches must hold whole groups",
        fix="--per_device_train_batch_size with a multiple of --num_generations",
        reports=("https://arxiv.org/abs/2602.05630",),
    ),
    Defect(
        "F18",
        "with --streaming true a group holds num_generations different prompts, so advantages compare "
        "answers to different questions",
        _ANY_HOST,
        "--streaming false",
        (f"{SWIFT}/blob/main/swift/rlhf_trainers/grpo_trainer.py",),
    ),
    Defect(
        "F19",
        "with --truncation_strategy delete each copy of a row that is too long is replaced by another "
        "prompt, so advantages compare answers to different questions",
        _ANY_HOST,
        "a larger --max_length, --truncation_strategy left, or a dataset without such rows",
        (f"{SWIFT}/blob/main/swift/rl_core/resample.py",),
    ),
    Defect(
        "F20",
        "a row whose video is a list of frames ends the run with WrongTypeError of the field 'videos'",
        _ANY_HOST,
        "videos as files",
        (f"{SWIFT}/blob/main/swift/infer_engine/protocol.py",),
        "F20-video-frames",
    ),
    Defect(
        "F21",
        "with --template_backend jinja the completion is not in the trained row, so nothing is learned",
        _ANY_HOST,
        "--template_backend swift",
        (f"{SWIFT}/blob/main/swift/template/base.py",),
        "F21-jinja-completion",
    ),
    Defect(
        "F22",
        "without vLLM the rewards of a gym environment are not read",
        _ANY_HOST,
        "--use_vllm true, or reward functions instead of --gym_env",
        (f"{SWIFT}/blob/main/swift/rlhf_trainers/rollout_mixin.py",),
    ),
    Defect(
        "F24",
        "transformers' rollouts of Gemma 4, and of Qwen3-VL under DeepSpeed, are sampled without images",
        {**_ANY_HOST, "transformers": ">=5"},
        "--use_vllm true",
        (f"{SWIFT}/blob/main/swift/model/models/qwen.py",),
    ),
    Defect(
        "F25",
        "a finished run of several ranks on gloo ends with SIGABRT now and then: threads of gloo "
        "drop their last tensors while the interpreter is being torn down",
        {"torch": ">=2.0"},
        reports=(f"{TORCH}/issues/190489", f"{TORCH}/pull/179291"),
        patch="F25-gloo-exit",
    ),
    Defect(
        "F26",
        "vLLM's prompts of InternVL (transformers' class) lack the new line after an image that training has",
        _ANY_HOST,
        reports=(f"{SWIFT}/blob/main/swift/template/templates/internvl.py",),
        patch="F26-image-newline",
    ),
    Defect(
        "F27",
        "megatron rlhf with tensor parallel above 1 takes right log-probs backward by an all-reduce that "
        "loses most of the gradient",
        {"ms-swift": ">=4.0,<4.5.3"},
        'pip install "ms-swift>=4.5.3", or --tensor_model_parallel_size 1',
        (f"{SWIFT}/pull/9947",),
        "F27-vocabulary-gradient",
    ),
    Defect(
        "F30",
        "a line of a dataset that is not JSON ends the run with 90 lines of traceback that do not name it",
        fix='add --external_plugins "$(swift-grpo-ext path)", which names file and line',
        reports=(
            "https://github.com/huggingface/datasets/blob/main/src/datasets/packaged_modules/json/json.py",
        ),
        patch="F30-broken-line",
    ),
    Defect(
        "F32",
        "vLLM keeps the features of images over a weight sync, and ms-swift drops them from 0.16 on only: "
        "with a vision tower that is trained, rollouts see images that come again as an older tower did",
        {**_ANY_HOST, "vllm": "<0.16"},
        "vLLM 0.16 or newer, or --freeze_vit true --freeze_aligner true",
        (
            "https://github.com/vllm-project/vllm/issues/44910",
            "https://github.com/huggingface/trl/issues/7198",
            f"{SWIFT}/pull/9295",
        ),
    ),
    Defect(
        "F36",
        "weights of an adapter that the model has no place for are passed over with a warning, all of them "
        "if need be",
        _ANY_HOST,
        "look for 'Unexpected LoRA keys' in the log",
        (f"{SWIFT}/blob/v4.6.0/swift/tuners/peft.py",),
        "F36-lost-adapter",
    ),
    Defect(
        "F41",
        "Gemma 3 trains and samples with image tokens that see those before them only, not each other: from "
        "transformers 5.15 on ms-swift marks the token in front of an image as the image",
        {**_ANY_HOST, "transformers": ">=5.15"},
        'pip install "transformers<5.15"',
        (f"{SWIFT}/blob/v4.6.0/swift/template/templates/gemma.py",),
        "F41-gemma-image-types",
    ),
    Defect(
        "F44",
        "args.json of a checkpoint names plugin files by their path on the machine that trained, so swift "
        "infer, export and deploy stop with 'AssertionError: py_dir' wherever there is no such file",
        _ANY_HOST,
        """take the line "external_plugins" out of the checkpoint's args.json""",
        (f"{SWIFT}/blob/v4.6.0/swift/arguments/base_args/base_args.py",),
        "F44-plugin-path",
    ),
    Defect(
        "F45",
        "a checkpoint that transformers 5 has saved, under transformers 4: tokenizer and rotation are not "
        "read, and weights of some models are drawn at random with a warning",
        {**_ANY_HOST, "transformers": "<5"},
        'pip install "transformers>=5"',
        ("https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",),
        "F45-newer-checkpoint",
    ),
    Defect(
        "F46",
        "the output layer of a checkpoint that transformers 4 has saved, tied to the embedding, is drawn at "
        "random by transformers 5.0 to 5.15 (Qwen2.5-VL-3B)",
        {**_ANY_HOST, "transformers": ">=5,<5.16"},
        """add "tie_word_embeddings": true beside "model_type" of the checkpoint's config.json""",
        ("https://github.com/huggingface/transformers/blob/main/MIGRATION_GUIDE_V5.md",),
        "F46-untied-head",
    ),
    Defect(
        "F47",
        "rollouts by transformers 4 of Qwen2-VL, Qwen2.5-VL and the like stop at their second token "
        "('Expected size for first two dimensions of batch2 tensor')",
        {**_ANY_HOST, "transformers": "<5"},
        'pip install "transformers>=5", or --use_vllm true',
        (f"{SWIFT}/blob/v4.6.0/swift/template/templates/qwen.py",),
        "F47-generate-positions",
    ),
    Defect(
        "F50",
        "rollouts that encode rows in several threads, some with padding, end with 'Already borrowed'",
        {"tokenizers": "<0.23"},
        'pip install "tokenizers>=0.23", where transformers takes it',
        ("https://github.com/huggingface/transformers/issues/47085",),
        "F50-shared-tokenizer",
    ),
    Defect(
        "unscored",
        "under Megatron a completion that no reward scored counts as one of 0, and is pushed away from",
        _ANY_HOST,
        "rewards that score every completion",
        (f"{SWIFT}/blob/main/swift/rl_core/advantage.py",),
        "unscored",
    ),
    Defect(
        "hpz-second-model",
        "ZeRO-3 with hpZ stops with 'ZeRO parameter intra parallel group is already initialized' when a "
        "reference, reward or teacher model is loaded",
        {"deepspeed": ">=0.10"},
        'add --external_plugins "$(swift-grpo-ext path)", which fixes it, or --beta 0, or LoRA',
        (f"{DEEPSPEED}/pull/8361", f"{DEEPSPEED}/issues/4901", f"{DEEPSPEED}/issues/7066"),
        "hpz-second-model",
    ),
    Defect(
        "no-workers",
        "with --dataloader_num_workers 0 every run stops with 'persistent_workers option needs "
        "num_workers > 0'",
        {HOST: ">=4.5,<4.6"},
        "--dataloader_persistent_workers false",
        (f"{SWIFT}/blob/v4.6.0/swift/trainers/arguments.py",),
        "no-workers",
    ),
    Defect(
        "M1",
        "under Megatron with tensor parallelism shards of the vocabulary are left out of the norm of the "
        "gradient, so it is clipped too little, and differently for each number of ranks",
        {"ms-swift": ">=4.5.3,<4.7", "megatron-core": ">=0.16,<0.18"},
        "--perform_initialization true, unless the model has an output layer of its own",
        (f"{BRIDGE}/pull/992",),
        "M1-vocabulary-shards",
    ),
    Defect(
        "M2",
        "under Megatron with --sequence_parallel true, --padding_free true and micro-batches above 2 the "
        "first step stops with 'the expanded size of the tensor must match the existing size'",
        _ANY_MEGATRON,
        "--padding_free false, or --micro_batch_size 2",
        (f"{SWIFT}/blob/v4.6.0/swift/rlhf_trainers/utils.py",),
        "M2-pack-padding",
    ),
    Defect(
        "M3",
        "under Megatron with tensor parallelism above 1, --expert_tensor_parallel_size 1 and "
        "--expert_model_parallel_size 1 each rank trains its copy of the experts with its own tokens alone, "
        "and the copies drift apart",
        {"megatron-core": ">=0.16,<0.19"},
        "--expert_tensor_parallel_size with the value of --tensor_model_parallel_size, or "
        "--expert_model_parallel_size above 1",
        (f"{MEGATRON}/pull/5916",),
        "M3-expert-gradients",
    ),
    Defect(
        "M4",
        "under Megatron with tensor parallelism the LoRA factors that each rank has in full count once per "
        "rank in the norm of the gradient, so it is clipped too much",
        {"megatron-core": ">=0.16,<0.18"},
        "--clip_grad with a value that allows for it",
        (f"{ENGINE}/blob/main/transformer_engine/pytorch/module/linear.py",),
        "M4-replicated-weights",
    ),
    Defect(
        "M5",
        "under Megatron with --sequence_parallel true and a trained tower each rank updates its copy of "
        "Qwen3-VL's tower with the deepstack gradient of its own tokens alone, and the copies drift apart",
        _ANY_BRIDGE,
        "--freeze_vit true and --freeze_aligner true, ms-swift's defaults, or --sequence_parallel false",
        _OF_BRIDGE,
        "M5-deepstack-gradient",
    ),
    Defect(
        "M6",
        "rows of GLM-4.5V with images carry the token types of the images' own text, which are fewer than "
        "their tokens; megatron rlhf stops at the first of them",
        {**_ANY_HOST, "transformers": ">=5"},
        reports=(f"{SWIFT}/blob/main/swift/template/templates/glm.py",),
        patch="M6-media-token-types",
    ),
    Defect(
        "M7",
        "under Megatron with tensor parallel above 1 the norms of gated delta nets (Qwen3.5) train wrongly: "
        "without sequence parallel each rank's by its own heads, with it by the gradient times the ranks",
        _ANY_BRIDGE,
        "--tensor_model_parallel_size 1, or --tuner_type lora, which trains no norms",
        _OF_BRIDGE,
        "M7-gated-delta-gradients",
    ),
    Defect(
        "M8",
        "under Megatron with --padding_free false and micro-batches above 1 the deepstack of Qwen3-VL adds "
        "features to image tokens of other rows, in every layer that has them",
        _ANY_BRIDGE,
        "--padding_free true, or --micro_batch_size 1",
        _OF_BRIDGE,
        "M8-deepstack-order",
    ),
    Defect(
        "M9",
        "an adapter of Qwen2-VL, Qwen2.5-VL or InternVL that megatron rlhf saved has names of older "
        "checkpoints, and PEFT loads nothing of it, or nothing of its tower",
        {**_ANY_BRIDGE, "transformers": ">=5"},
        "model.language_model.layers in the place of model.layers in adapter_model.safetensors",
        (
            "https://github.com/huggingface/peft/blob/v0.20.0/src/peft/utils/transformers_weight_conversion.py",
        ),
        "M9-adapter-names",
    ),
    Defect(
        "M10",
        "under Megatron with a pipeline the KL in rewards (--kl_in_reward, on by default with "
        "--advantage_estimator rloo and reinforce_plus_plus) ends the run before its first update",
        _ANY_MEGATRON,
        "--pipeline_model_parallel_size 1, or --kl_in_reward false",
        (f"{SWIFT}/blob/main/swift/megatron/trainers/grpo_trainer.py",),
        "M10-pipeline-kl",
    ),
)

DEFECTS: dict[str, Defect] = {defect.id: defect for defect in _ALL}
PATCHED: set[str] = set()  # names of the patches that are on in this process; the part ``compat`` writes it
