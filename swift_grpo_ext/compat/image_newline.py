"""F26: vLLM's prompts of InternVL (transformers' class) lack the new line after an image."""

from collections.abc import Callable

from swift_grpo_ext.compat.patch import in_source, patch

_IMAGE = "<IMG_CONTEXT>"
_TARGET = "swift.template.templates.internvl:InternvlhfTemplate.replace_tag"


@patch(
    "F26",
    _TARGET,
    fingerprint="self, media_type, index, inputs",
    probe=lambda: in_source(_TARGET, f"return ['{_IMAGE}']"),
    remove_when="ms-swift's internvl_hf template gives vLLM the new line after an image",
)
def fix(replace_tag: Callable[..., object], *args: object) -> object:
    """Write the same as the checkpoint's chat template and the training prompt."""
    replacement = replace_tag(*args)
    return [f"{_IMAGE}\n"] if replacement == [_IMAGE] else replacement
