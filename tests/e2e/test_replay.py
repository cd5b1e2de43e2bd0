"""Plugins survive the host's replay in dataloader workers and engine processes."""

import json
import multiprocessing
import pickle

import pytest
from swift.utils import utils as host_utils

from swift_grpo_ext.plugin_files import plugin_file

# From ms-swift 4.5.3 on; before it only forked workers, which inherit all memory, see plugins at all.
REPLAY = getattr(host_utils, "patch_dataloader_external_plugins", None)
MARK = "swift-grpo-ext 0"


class Rows:
    """A map-style dataset whose items say what is registered in the process that reads them."""

    def __len__(self):
        return 4

    def __getitem__(self, index):
        from swift.rewards import orms
        from swift.template import TEMPLATE_MAPPING
        from swift.trainers.trainer_factory import TrainerFactory

        return json.dumps(
            {
                "template": TEMPLATE_MAPPING["qwen2_5_vl"].template_cls.__module__,
                "trainer": TrainerFactory.TRAINER_MAPPING["grpo"],
                "rewards": sorted(name for name in orms if name.startswith("ext_")),
            }
        )


def as_is(batch):
    return batch


@pytest.mark.parametrize(
    "method", ["fork", *([pytest.param("spawn", marks=pytest.mark.slow)] if REPLAY else [])]
)
def test_dataloader_workers_see_every_part(method, capfd):
    from torch.utils.data import DataLoader

    host_utils.import_external_file(str(plugin_file()))
    if REPLAY:
        REPLAY()
    capfd.readouterr()
    loader = DataLoader(Rows(), num_workers=2, multiprocessing_context=method, collate_fn=as_is)
    seen = [json.loads(item) for batch in loader for item in batch]
    assert len(seen) == 4
    for row in seen:
        assert row["template"] == "swift_grpo_ext.models.qwen2_5_vl"
        assert row["trainer"] == "swift_grpo_ext.trainer.grpo.GRPOTrainer"
        assert "ext_format" in row["rewards"]
    assert MARK not in "".join(capfd.readouterr())  # workers do not repeat the line


def engine_process(plugin, connection):
    # What swift.pipelines.infer.rollout.llm_worker does first: it is started by spawn.
    from swift.utils.utils import import_external_file

    import_external_file(plugin)
    connection.send(Rows()[0])


@pytest.mark.slow
def test_a_spawned_rollout_process_sees_every_part():
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    process = context.Process(target=engine_process, args=(str(plugin_file()), theirs))
    process.start()
    assert ours.poll(120)
    row = json.loads(ours.recv())
    process.join(30)
    assert row["template"] == "swift_grpo_ext.models.qwen2_5_vl"


def test_the_template_class_pickles_by_name():
    from swift_grpo_ext.models.qwen2_5_vl import Qwen2_5VLTemplate

    assert pickle.loads(pickle.dumps(Qwen2_5VLTemplate)) is Qwen2_5VLTemplate
