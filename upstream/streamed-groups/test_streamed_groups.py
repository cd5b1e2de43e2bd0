"""With --streaming true the completions of a group answer one prompt."""

import json
from itertools import islice

from swift_grpo_ext import testing


def test_a_group_is_one_prompt(grpo, tmp_path):
    questions = tmp_path / "questions.jsonl"
    rows = [{"messages": [{"role": "user", "content": f"number {n}"}]} for n in range(16)]
    questions.write_text("".join(json.dumps(row) + "\n" for row in rows))
    grpo(dataset=questions, streaming=True, per_device_train_batch_size=8, max_steps=2)
    asked = [row["prompt"] for row in testing.read_completions(grpo.output)]
    groups = [set(asked[start : start + 4]) for start in range(0, len(asked), 4)]
    assert [len(group) for group in groups] == [1, 1, 1, 1]
    assert len(set.union(*groups)) == 4


def test_the_order_is_that_of_the_sampler():
    from swift.dataloader.repeat import RepeatIterableDataset
    from trl.trainer.grpo_trainer import RepeatSampler

    rows = list(range(9))
    repeat = {"mini_repeat_count": 2, "batch_size": 4, "repeat_count": 3}
    order = list(RepeatSampler(rows, shuffle=False, **repeat))
    assert list(islice(RepeatIterableDataset(rows, **repeat), 99)) == order
