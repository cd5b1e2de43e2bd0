"""With --truncation_strategy delete a row that is too long is replaced for its whole group."""

import json

from swift_grpo_ext import testing


def test_a_group_is_one_prompt(grpo, tmp_path):
    questions = tmp_path / "questions.jsonl"
    contents = [f"{'very ' * (300 if number % 2 else 1)}long {number}" for number in range(8)]
    rows = [{"messages": [{"role": "user", "content": content}]} for content in contents]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"truncation_strategy": "delete", "max_length": 200, "per_device_train_batch_size": 8}
    grpo(dataset=questions, max_steps=2, **options)
    asked = [row["prompt"] for row in testing.read_completions(grpo.output)]
    groups = [set(asked[start : start + 4]) for start in range(0, len(asked), 4)]
    assert [len(group) for group in groups] == [1] * 4
    assert not any("very very" in prompt for group in groups for prompt in group)
