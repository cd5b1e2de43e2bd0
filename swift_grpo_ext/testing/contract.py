"""What a template of a vision-language family must keep, as checks that any template can be held against::

    from swift_grpo_ext.testing import contract

    @pytest.mark.parametrize("check", contract.CHECKS.values(), ids=contract.CHECKS)
    def test_my_template(check):
        check(contract.load("my/checkpoint", template_type="my_template"))

Each check raises an AssertionError that says what differs. A checkpoint of random weights serves.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch

from swift_grpo_ext.testing.contract_cases import CASES, SPECIAL_TEXT, Case, picture

TOLERANCE = 1e-5  # of log-probs and logits, in fp32


@dataclass(frozen=True)
class Subject:
    """A template with its model, and the processor that transformers itself would use.

    Attributes:
        model: Model in fp32, in eval mode.
        template: The host's template, bound to the model's processor.
        processor: The checkpoint's processor, loaded by transformers.
        model_type: The host's ``--model_type``.
    """

    model: Any
    template: Any
    processor: Any
    model_type: str


def load(
    checkpoint: str | Path, *, model_type: str | None = None, template_type: str | None = None
) -> Subject:
    """Load a checkpoint the host's way and, for comparison, transformers' own.

    Args:
        checkpoint: Folder of the checkpoint.
        model_type: The host's ``--model_type``, where the config does not say it.
        template_type: The host's ``--template``, where the model type does not say it.
    """
    from swift.model import get_model_processor
    from swift.template import get_template
    from transformers import AutoProcessor

    model, processor = get_model_processor(
        str(checkpoint), torch_dtype=torch.float32, model_type=model_type, device_map="cpu"
    )
    template = get_template(processor, template_type=template_type)
    template.model = model
    own = AutoProcessor.from_pretrained(str(checkpoint))
    return Subject(model.eval(), template, own, model.model_meta.model_type)


def check_tokens(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Tokens from the template are those from the processor, for every case."""
    for case in cases:
        subject.template.set_mode("transformers")
        ours = list(subject.template.encode(case.row())["input_ids"])
        theirs = _by_processor(subject, case, case.images)["input_ids"][0].tolist()
        assert ours == theirs, f"{case.name}: {len(ours)} tokens {ours} != {len(theirs)} tokens {theirs}"


def check_logits(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Logits of a prompt through the template's training forward are those through the processor."""
    for case in cases:
        resized = [_resized(subject, image) for image in case.images]
        inputs = _by_processor(subject, case, resized)
        inputs.pop("grids", None)
        with torch.no_grad():
            theirs = subject.model(**inputs).logits[0]
        ours = _logits(subject, [case.row(images=resized, answer="")])[0, : len(theirs)]
        _assert_close(ours, theirs, f"{case.name}: logits")


def check_batches(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Log-probs of a completion do not depend on its batch, the padding side or the padding length."""
    rows = [case.row(answer=f"The answer is {number}") for number, case in enumerate(cases)]
    alone = [completion_logps(subject, [row])[0] for row in rows]
    for side in ("right", "left"):
        together = completion_logps(subject, rows, padding_side=side)
        longer = completion_logps(subject, rows, padding_side=side, extra_padding=7)
        for case, expected, found, padded in zip(cases, alone, together, longer, strict=True):
            _assert_close(found, expected, f"{case.name}: log-probs in a batch padded on the {side}")
            _assert_close(padded, expected, f"{case.name}: log-probs with more padding on the {side}")


def check_slices(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """The visual inputs of a slice of a batch are those of its rows, whatever the slice."""
    encoded = [_encode(subject, case.row(answer="yes")) for case in cases]
    single = [_collate(subject, [row]) for row in encoded]
    for size in (1, 2, 3, len(encoded)):
        for start in range(0, len(encoded), size):
            batch = _collate(subject, encoded[start : start + size])
            for name in ("pixel_values", "image_grid_thw"):
                parts = [row[name] for row in single[start : start + size] if name in row]
                assert (name in batch) == bool(parts), f"rows {start} to {start + size}: {name}"
                assert not parts or torch.equal(batch[name], torch.cat(parts)), f"{name} of {start}:{size}"


def check_special_text(subject: Subject, texts: tuple[str, ...] = SPECIAL_TEXT) -> None:
    """Special tokens that a user merely wrote come back as text; they make no control token, no image."""
    tokenizer = subject.template.tokenizer
    special = set(tokenizer.all_special_ids)
    subject.template.set_mode("transformers")

    def encode(question: str) -> list[int]:
        row = {"messages": [{"role": "user", "content": f"<image>{question}"}], "images": [picture(56, 56)]}
        return list(subject.template.encode(row)["input_ids"])

    expected = [token for token in encode("plain") if token in special]
    for text in texts:
        tokens = encode(text)
        found = [token for token in tokens if token in special]
        assert found == expected, f"{text!r} made special tokens: {tokenizer.convert_ids_to_tokens(found)}"
        assert text in tokenizer.decode(tokens), f"{text!r} came back as {tokenizer.decode(tokens)!r}"


def check_save_and_load(subject: Subject) -> None:
    """A saved and loaded model gives the same logits."""
    before = _logits(subject, [CASES[1].row(answer="yes")])
    template_type = subject.template.template_meta.template_type
    with TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        subject.processor.save_pretrained(folder)
        loaded = load(folder, model_type=subject.model_type, template_type=template_type)
    assert torch.equal(_logits(loaded, [CASES[1].row(answer="yes")]), before), "logits changed by saving"


def check_lora(subject: Subject) -> None:
    """LoRA on all linear layers of the language model changes the logits and nothing of the tower."""
    from peft import LoraConfig, get_peft_model
    from swift.utils import get_multimodal_target_regex

    row = CASES[1].row(answer="yes")
    before = _logits(subject, [row])
    pattern = get_multimodal_target_regex(subject.model)
    config = LoraConfig(target_modules=pattern, r=2, init_lora_weights=False, lora_dropout=0.0)
    adapted = get_peft_model(subject.model, config)
    try:
        arch = subject.model.model_meta.model_arch
        for name, _ in adapted.named_parameters():
            outside = any(part in name for part in (*arch.vision_tower, *arch.aligner))
            assert not ("lora_" in name and outside), f"LoRA in the vision tower: {name}"
        adapted.eval()
        after = _logits(Subject(adapted, subject.template, subject.processor, subject.model_type), [row])
        assert not torch.allclose(before, after), "LoRA changes nothing"
        with adapted.disable_adapter():
            without = Subject(adapted, subject.template, subject.processor, subject.model_type)
            assert torch.equal(_logits(without, [row]), before), "the model without its adapter has changed"
    finally:
        adapted.unload()


def completion_logps(
    subject: Subject, rows: list[dict[str, Any]], *, padding_side: str = "right", extra_padding: int = 0
) -> list[torch.Tensor]:
    """Log-probs of the last assistant turn of each row, forwarded in one batch.

    Args:
        subject: Template and model.
        rows: Rows of the host's format, with the answer.
        padding_side: ``right`` or ``left``.
        extra_padding: Tokens of padding beyond the longest row.

    Returns:
        For each row, ``(completion,)``.
    """
    template = subject.template
    before, template.padding_side = template.padding_side, padding_side
    try:
        encoded = [_encode(subject, row) for row in rows]
        longest = max(len(row["input_ids"]) for row in encoded)
        batch = _collate(subject, encoded, padding_to=longest + extra_padding)
    finally:
        template.padding_side = before
    labels = batch["labels"][:, 1:]
    logps = _forward(subject, batch)[:, :-1].log_softmax(-1)
    chosen = logps.gather(-1, labels.clamp(min=0).unsqueeze(-1)).squeeze(-1)
    return [row[wanted] for row, wanted in zip(chosen, labels != -100, strict=True)]


def _encode(subject: Subject, row: dict[str, Any]) -> dict[str, Any]:
    subject.template.set_mode("train")
    return dict(subject.template.encode(row, return_length=True))


def _collate(
    subject: Subject, encoded: list[dict[str, Any]], *, padding_to: int | None = None
) -> dict[str, Any]:
    return dict(subject.template.data_collator([dict(row) for row in encoded], padding_to=padding_to))


def _forward(subject: Subject, batch: dict[str, Any]) -> torch.Tensor:
    inputs = {name: value for name, value in batch.items() if name != "labels"}
    with torch.no_grad():
        _, kwargs = subject.template.pre_forward_hook(subject.model, None, inputs)
        logits: torch.Tensor = subject.model(**kwargs).logits
    return logits.float()


def _logits(subject: Subject, rows: list[dict[str, Any]]) -> torch.Tensor:
    return _forward(subject, _collate(subject, [_encode(subject, row) for row in rows]))


def _resized(subject: Subject, image: Any) -> Any:
    """The image in the template's own size: resizing differs between libraries by a grey level."""
    subject.template.set_mode("vllm")
    row = {"messages": [{"role": "user", "content": "<image>"}], "images": [image]}
    return subject.template.encode(row)["images"][0]


def _by_processor(subject: Subject, case: Case, images: list[Any]) -> dict[str, Any]:
    prompt = subject.processor.apply_chat_template(
        case.structured(), add_generation_prompt=True, tokenize=False
    )
    return dict(subject.processor(text=[prompt], images=images or None, return_tensors="pt"))


def _assert_close(found: torch.Tensor, expected: torch.Tensor, what: str) -> None:
    assert found.shape == expected.shape, f"{what}: {tuple(found.shape)} != {tuple(expected.shape)}"
    difference = (found - expected).abs().max().item() if found.numel() else 0.0
    assert difference <= TOLERANCE, f"{what} differ by {difference:.1e}"


CHECKS: dict[str, Callable[[Subject], None]] = {
    "tokens": check_tokens,
    "logits": check_logits,
    "batches": check_batches,
    "slices": check_slices,
    "special_text": check_special_text,
    "save_and_load": check_save_and_load,
    "lora": check_lora,
}
