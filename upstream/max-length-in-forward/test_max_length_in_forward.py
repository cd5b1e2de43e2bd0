"""A template that cuts at its max_length while embedding must not cut the completion in GRPO."""

from swift.template import register_template
from swift.template.templates.qwen import Qwen2_5VLTemplate, QwenTemplateMeta

cut = []


class CutsWhileEmbedding(Qwen2_5VLTemplate):
    """As Ovis1.6 and Ovis2, which hand `max_length` to the model's merge; here the loss is only counted."""

    def _post_encode(self, model, inputs):
        if self.is_training and self.max_length is not None:
            cut.append(max(0, inputs["input_ids"].shape[1] - self.max_length))
        return super()._post_encode(model, inputs)


def test_no_token_of_the_completion_is_cut(grpo):
    register_template(QwenTemplateMeta("cuts", template_cls=CutsWhileEmbedding), exist_ok=True)
    cut.clear()
    grpo(template="cuts", max_length=64, max_completion_length=48)
    assert sum(cut) == 0, f"tokens cut per forward: {cut}"
