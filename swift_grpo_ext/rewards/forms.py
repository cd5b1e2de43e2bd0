"""The form in which each reward reads an answer, and the ``--system`` text that asks a model for it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

# A prompt that holds one of these names a place: a block, a box, a line, or keys of JSON.
_PLACES = re.compile(
    r"<answer>|\\boxed|<\|begin_of_box\|>|<tool_call>|<box>|bbox_2d|point_2d|\bJSON\b|\bAnswer:|答案[:：]"
)


@dataclass(frozen=True)
class Form:
    """How an answer is written: a sample, as it stands between the tags, and what that is in words."""

    sample: str
    words: str

    @property
    def answer(self) -> str:
        """The sample in its place."""
        return f"<answer>{self.sample}</answer>"

    @property
    def system(self) -> str:
        """A system text that asks for it, in the format that `ext_format` pays by default."""
        return (
            "Think about the question between <think> and </think>. Then write the answer between <answer> "
            f"and </answer>, and nothing else: {self.words}. For example: <think>...</think>{self.answer}"
        )


_BOX = Form('{"bbox_2d": [10, 20, 110, 220]}', "the box as JSON, its corners x1, y1, x2, y2")
_BOXES = Form(
    '[{"bbox_2d": [10, 20, 110, 220], "label": "cat"}]', "a JSON list with the box and label of each object"
)
_POINT = Form('{"point_2d": [60, 120]}', "the point as JSON, x and y")
_TEXT = Form("the text itself", "the text, without quotes or comments")

FORMS: dict[str, Form] = {
    "ext_iou": _BOX,
    "ext_giou": _BOX,
    "ext_detection_f1": _BOXES,
    "ext_point_in_box": _POINT,
    "ext_click": Form('{"action": "click", "coordinate": [60, 120]}', "one action as JSON"),
    "ext_tool_call": Form('{"name": "search", "arguments": {"query": "cat"}}', "the call as JSON"),
    "ext_temporal_iou": Form("[3.5, 12]", "start and end in seconds, in square brackets"),
    "ext_count": Form("4", "a whole number"),
    "ext_count_shaped": Form("4", "a whole number"),
    "ext_choice": Form("B", "the letter of the right option"),
    "ext_yes_no": Form("yes", "yes or no"),
    "ext_numeric": Form("12.5", "one number, with its unit if it has one"),
    "ext_math": Form(r"\frac{1}{2}", "the result in LaTeX"),
    "ext_answer": Form("B", "the bare answer: a letter, yes or no, a number, a formula or a few words"),
    "ext_ocr": _TEXT,
    "ext_wer": _TEXT,
    "ext_anls": Form("Paris", "a few words"),
    "ext_text_f1": Form("Paris", "a few words"),
    "ext_rouge": _TEXT,
    "ext_table": Form("| a | b |\n|---|---|\n| 1 | 2 |", "the table in Markdown or HTML"),
    "ext_json_schema": Form('{"total": 12}', "one JSON object with the keys that were asked for"),
}


def form_not_asked(reward: str, texts: Sequence[str]) -> str:
    """The form that a reward reads, if no text that a model sees (system, user turns) names a place.

    Empty if one does, or if the reward needs no form. ``reward`` is a name in ``--reward_funcs``.

    Example:
        >>> form_not_asked("ext_count", ["How many cats?"])
        '<answer>4</answer>'
        >>> form_not_asked("ext_count", ["Write it between <answer> and </answer>.", "How many cats?"])
        ''
    """
    form = FORMS.get(reward.partition(":")[0])
    if form is None or any(_PLACES.search(text) for text in texts):
        return ""
    return form.answer


def system_text(reward: str) -> str:
    """A ``--system`` text for a reward of the catalogue, which also earns `ext_format`.

    Empty if the reward needs no form.

    Example:
        >>> system_text("ext_yes_no").endswith("<think>...</think><answer>yes</answer>")
        True
    """
    form = FORMS.get(reward.partition(":")[0])
    return form.system if form else ""
