"""wandb (offline), swanlab (local) and tensorboard get the same scalars.

    make test-trackers

One real run reports to all three; what they wrote is read back from their files.
"""

import json
import sqlite3
import struct
from collections import defaultdict

import pytest

from swift_grpo_ext import testing

pytestmark = pytest.mark.lane

STEPS = 3
OURS = (
    "watch/moved",
    "watch/skipped",
    "watch/entropy",
    "seconds/reward",
    "seconds/backward",
)


@pytest.fixture(scope="module")
def folder(tiny_qwen, digits, tmp_path_factory):
    folder = tmp_path_factory.mktemp("trackers")
    arguments = testing.grpo_arguments(
        tiny_qwen,
        digits.train,
        folder / "run",
        reward_funcs=["ext_choice", "ext_format"],
        per_device_train_batch_size=8,
        max_steps=STEPS,
        beta=0,
        report_to=["tensorboard", "wandb", "swanlab"],
        logging_dir=folder / "tensorboard",
        swanlab_mode="local",
        swanlab_project="swift-grpo-ext",
    )
    variables = {
        "WANDB_MODE": "offline",
        "WANDB_DIR": str(folder),
        "WANDB_SILENT": "true",
        "SWANLAB_LOG_DIR": str(folder / "swanlab"),
        "HOME": str(folder),  # both keep settings there
    }
    testing.run_in_process("rlhf", arguments, env=variables)
    import swanlab
    import wandb

    wandb.finish()
    if swanlab.get_run() is not None:
        swanlab.finish()
    return folder


@pytest.fixture(scope="module")
def logged(folder):
    return [row for row in testing.read_logging(folder / "run") if "loss" in row]


def records_of_wandb(data):
    """Records of a file in LevelDB's log format, behind a header of 7 bytes: blocks of 32 KiB of fragments."""
    at, parts = 7, []
    while at + 7 <= len(data):
        left = 32768 - at % 32768
        if left < 7:
            at += left
            continue
        _, size, kind = struct.unpack_from("<IHB", data, at)
        parts.append(data[at + 7 : at + 7 + size])
        at += 7 + size
        if kind in (1, 4):  # whole, or the last fragment
            yield b"".join(parts)
            parts = []


def records_in(folder):
    from wandb.proto import wandb_internal_pb2

    (path,) = folder.glob("wandb/offline-run-*/*.wandb")
    return map(wandb_internal_pb2.Record.FromString, records_of_wandb(path.read_bytes()))


def history_of_wandb(folder):
    for record in records_in(folder):
        items = record.history.item
        yield {item.key or "/".join(item.nested_key): json.loads(item.value_json) for item in items}


def scalars_of_wandb(folder):
    found = defaultdict(list)
    for row in history_of_wandb(folder):
        for name, value in row.items():
            if isinstance(value, (int, float)):
                found[name].append(value)
    return found


def scalars_of_swanlab(folder):
    found = {}
    (run,) = folder.glob("swanlab/run-*")
    with sqlite3.connect(folder / "swanlab/runs.swanlab") as tables:
        names = tables.execute("select name, folder from tag where type = 'line'").fetchall()
    for name, number in names:
        found[name] = [
            row["data"]
            for path in sorted(run.glob(f"logs/{number}/*.log"))
            for row in testing.read_jsonl(path)
        ]
    return found


def scalars_of_tensorboard(folder):
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    events = EventAccumulator(str(folder / "tensorboard")).Reload()
    return {name: [event.value for event in events.Scalars(name)] for name in events.Tags()["scalars"]}


@pytest.mark.parametrize("scalars_of", [scalars_of_wandb, scalars_of_swanlab, scalars_of_tensorboard])
def test_every_tracker_has_what_the_log_has(folder, logged, scalars_of):
    scalars = scalars_of(folder)
    names = {name for row in logged for name in row if f"train/{name}" in scalars}
    assert {"loss", "reward", "grad_norm", "rewards/ext_choice/mean", *OURS} <= names
    for name in names:
        expected = [row[name] for row in logged if name in row]
        assert scalars[f"train/{name}"][: len(expected)] == pytest.approx(expected, rel=1e-5, abs=1e-6), name


def test_all_have_the_same(folder, logged):
    names = {f"train/{name}" for row in logged for name in row}
    found = [
        names & set(kind(folder)) for kind in (scalars_of_wandb, scalars_of_swanlab, scalars_of_tensorboard)
    ]
    assert found[0] == found[1] == found[2]
    assert len(found[0]) > 40
