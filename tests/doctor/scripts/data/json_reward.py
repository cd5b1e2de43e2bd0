"""A user's reward that reads an answer from JSON alone."""

import json

from swift.rewards import ORM, orms


class JsonAnswer(ORM):
    def __call__(self, completions, solution, **kwargs):
        return [_score(text, gold) for text, gold in zip(completions, solution, strict=True)]


def _score(text, gold):
    try:
        return float(json.loads(text)["answer"] == gold)
    except (ValueError, KeyError, TypeError):
        return 0.0


orms["json_answer"] = JsonAnswer
