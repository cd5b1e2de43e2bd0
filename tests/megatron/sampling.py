"""Rollouts by a copy of the policy in transformers, which has vLLM's place: it gets the weights before each generation.

Each completion is a line of OUTPUT_DIR/sampled.jsonl: name of its image, token ids, text, why it ended.
"""

import json
from copy import copy
from pathlib import Path

import torch
from made_up import image_name
from recording import plain_name


class Sampler:
    """What ms-swift calls its engine."""

    def __init__(self, trainer):
        from swift.infer_engine import TransformersEngine
        from transformers import AutoConfig, AutoModelForImageTextToText

        folder = trainer.args.model_info.model_dir
        config = AutoConfig.from_pretrained(folder)
        text = config.get_text_config()
        text.rope_theta = text.rope_parameters["rope_theta"]  # mcore-bridge's way of rope, for all models
        options = {"config": config, "dtype": torch.float32}
        self.model = AutoModelForImageTextToText.from_pretrained(folder, **options).eval()
        self._parameters = {plain_name(name): value for name, value in self.model.named_parameters()}
        template = copy(trainer.template)
        template.padding_free = template.use_megatron = False
        template.remove_unused_columns = True
        self._record = Path(trainer.args.output_dir) / "sampled.jsonl"
        self._engine = TransformersEngine(self.model, template=template, max_batch_size=0)

    @torch.no_grad()
    def load(self, weights):
        """Take weights, ``(name, tensor)`` as in a checkpoint."""
        missing = set(self._parameters)
        for name, value in weights:
            name = plain_name(name)
            if name in self._parameters:  # an output layer that is the embedding has no parameter of its own
                self._parameters[name].copy_(value)
                missing.discard(name)
        if missing:
            raise RuntimeError(f"no weights for {sorted(missing)[:3]}")

    def infer(self, infer_requests, request_config, use_tqdm=False):
        """Answers with their token ids."""
        from swift.infer_engine.protocol import RolloutOutput

        with self._engine.template.generate_context():
            answers = self._engine.infer(infer_requests, request_config, use_tqdm=use_tqdm)
        with open(self._record, "a", encoding="utf-8") as record:
            for request, answer in zip(infer_requests, answers, strict=True):
                choice = answer.choices[0]
                made = (choice.token_ids, choice.message.content, choice.finish_reason)
                record.write(json.dumps([image_name(request.images), *made]) + "\n")
        return [RolloutOutput(response=answer) for answer in answers]


def use_sampled_completions():
    """Let ms-swift's rollouts, weights and all, go to a `Sampler`."""
    from swift.megatron.trainers.rollout_mixin import MegatronRolloutMixin

    start = MegatronRolloutMixin._init_rollout_engine

    def _init_rollout_engine(self):
        self.args.use_vllm = False  # the arguments demand vLLM; from here on nothing needs it
        start(self)
        self.engine = Sampler(self)

    def _move_model_to_vllm(self):
        self.engine.load(self.bridge.export_weights(self.unwrapped_models))

    MegatronRolloutMixin._init_rollout_engine = _init_rollout_engine
    MegatronRolloutMixin._move_model_to_vllm = _move_model_to_vllm
