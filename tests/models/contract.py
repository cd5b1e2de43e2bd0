"""What a template of a vision-language family must keep, as checks that any template can be held against::

    from tests.models import contract

    @pytest.mark.parametrize("check", contract.CHECKS.values(), ids=contract.CHECKS)
    def test_my_template(check):
        check(contract.load("my/checkpoint", template_type="my_template"))

Each check raises an AssertionError that says what differs. A checkpoint of random weights serves.
"""

from collections.abc import Callable
from tempfile import TemporaryDirectory

import torch

from swift_grpo_ext.models.families import family_of
from tests.models.contract_cases import (
    CASES,
    SPECIAL_TEXT,
    VIDEO,
    Case,
    Subject,
    assert_close,
    by_processor,
    collate,
    completion_logps,
    encode,
    load,
    logits_of,
    picture,
    resized,
    video_by_processor,
)

__all__ = ["CHECKS", "Subject", "completion_logps", "load"]


def check_tokens(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Tokens from the template are those from the processor, for every case."""
    for case in cases:
        subject.template.set_mode("transformers")
        ours = list(subject.template.encode(case.row())["input_ids"])
        theirs = by_processor(subject, case, case.images)["input_ids"][0].tolist()
        assert ours == theirs, f"{case.name}: {len(ours)} tokens {ours} != {len(theirs)} tokens {theirs}"


def check_engine_prompt(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """What an engine is given, one placeholder an image, its processor expands to the training prompt."""
    facts = family_of(subject.model.config)
    if facts is not None and "vllm" in facts.lacks:
        return  # such a template refuses the engine
    for case in cases:
        subject.template.set_mode("vllm")
        given = subject.template.encode(case.row())
        prompt = subject.template.tokenizer.decode(given["input_ids"])
        options = {"return_tensors": "pt", **given.get("mm_processor_kwargs", {})}
        expanded = subject.processor(text=[prompt], images=given.get("images") or None, **options)
        subject.template.set_mode("transformers")
        trained = list(subject.template.encode(case.row())["input_ids"])
        assert expanded["input_ids"][0].tolist() == trained, f"{case.name}: an engine would see {prompt!r}"


def check_logits(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Logits of a prompt through the template's training forward are those through the processor."""
    for case in cases:
        images = [resized(subject, image) for image in case.images]
        inputs = by_processor(subject, case, images)
        inputs.pop("grids", None)
        with torch.no_grad():
            theirs = subject.model(**inputs).logits[0]
        ours = logits_of(subject, [case.row(images=images, answer="")])[0, : len(theirs)]
        assert_close(ours, theirs, f"{case.name}: logits")


def check_video(subject: Subject) -> None:
    """A video gives the processor's tokens and logits: as a video, or frame by frame where it knows none."""
    inputs = video_by_processor(subject, VIDEO)
    inputs.pop("grids", None)
    subject.template.set_mode("transformers")
    ours = list(subject.template.encode(VIDEO)["input_ids"])
    theirs = inputs["input_ids"][0].tolist()
    assert ours == theirs, f"video: {len(ours)} tokens {ours} != {len(theirs)} tokens {theirs}"
    with torch.no_grad():
        expected = subject.model(**inputs).logits[0]
    answered = {**VIDEO, "messages": [*VIDEO["messages"], {"role": "assistant", "content": ""}]}
    assert_close(logits_of(subject, [answered])[0, : len(expected)], expected, "video: logits")


def check_batches(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """Log-probs of a completion do not depend on its batch, the padding side or the padding length."""
    rows = [case.row(answer=f"The answer is {number}") for number, case in enumerate(cases)]
    alone = [completion_logps(subject, [row])[0] for row in rows]
    for side in ("right", "left"):
        together = completion_logps(subject, rows, padding_side=side)
        longer = completion_logps(subject, rows, padding_side=side, extra_padding=7)
        for case, expected, found, padded in zip(cases, alone, together, longer, strict=True):
            assert_close(found, expected, f"{case.name}: log-probs in a batch padded on the {side}")
            assert_close(padded, expected, f"{case.name}: log-probs with more padding on the {side}")


def check_slices(subject: Subject, cases: tuple[Case, ...] = CASES) -> None:
    """The visual inputs of a slice of a batch are those of its rows, whatever the slice."""
    encoded = [encode(subject, case.row(answer="yes")) for case in cases]
    single = [collate(subject, [row]) for row in encoded]
    for size in (1, 2, 3, len(encoded)):
        for start in range(0, len(encoded), size):
            batch = collate(subject, encoded[start : start + size])
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
    before = logits_of(subject, [CASES[1].row(answer="yes")])
    template_type = subject.template.template_meta.template_type
    with TemporaryDirectory() as folder:
        subject.model.save_pretrained(folder)
        subject.processor.save_pretrained(folder)
        loaded = load(folder, model_type=subject.model_type, template_type=template_type)
    assert torch.equal(logits_of(loaded, [CASES[1].row(answer="yes")]), before), "logits changed by saving"


def check_lora(subject: Subject) -> None:
    """LoRA on all linear layers of the language model changes the logits and nothing of the tower."""
    from peft import LoraConfig, get_peft_model
    from swift.utils import get_multimodal_target_regex

    row = CASES[1].row(answer="yes")
    before = logits_of(subject, [row])
    pattern = get_multimodal_target_regex(subject.model)
    config = LoraConfig(target_modules=pattern, r=2, init_lora_weights=False, lora_dropout=0.0)
    adapted = get_peft_model(subject.model, config)
    try:
        arch = subject.model.model_meta.model_arch
        for name, _ in adapted.named_parameters():
            outside = any(part in name for part in (*arch.vision_tower, *arch.aligner))
            assert not ("lora_" in name and outside), f"LoRA in the vision tower: {name}"
        adapted.eval()
        after = logits_of(Subject(adapted, subject.template, subject.processor, subject.model_type), [row])
        assert not torch.allclose(before, after), "LoRA changes nothing"
        with adapted.disable_adapter():
            without = Subject(adapted, subject.template, subject.processor, subject.model_type)
            assert torch.equal(logits_of(without, [row]), before), "the model without its adapter has changed"
    finally:
        adapted.unload()


CHECKS: dict[str, Callable[[Subject], None]] = {
    "tokens": check_tokens,
    "engine_prompt": check_engine_prompt,
    "logits": check_logits,
    "video": check_video,
    "batches": check_batches,
    "slices": check_slices,
    "special_text": check_special_text,
    "save_and_load": check_save_and_load,
    "lora": check_lora,
}
