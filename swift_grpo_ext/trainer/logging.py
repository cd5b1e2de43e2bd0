"""Contents of the log: means over tokens that one NaN does not poison, and pictures of completions."""

import hashlib
import io
import math
from collections import defaultdict, deque
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import gather
from jaxtyping import Bool, Float
from PIL import Image
from torch import Tensor

from swift_grpo_ext.errors import DatasetRowError
from swift_grpo_ext.group.logps import WeightedMean, per_token_kl, with_mean_for_nonfinite
from swift_grpo_ext.models.images import ImageSource, find_file, read_source
from swift_grpo_ext.ms_swift.shared import GRPOBatch, get_logger
from swift_grpo_ext.once import Once
from swift_grpo_ext.rewards.contract import last_question
from swift_grpo_ext.rewards.gold.columns import as_text
from swift_grpo_ext.rewards.gold.overlay import located
from swift_grpo_ext.rewards.runtime.of_catalogue import OfCatalogue
from swift_grpo_ext.rewards.runtime.scored import Scored
from swift_grpo_ext.settings import current_settings
from swift_grpo_ext.trainer.host import Host
from swift_grpo_ext.trainer.reference import require_equal_start
from swift_grpo_ext.trainer.samples import PerToken, VisionSample
from swift_grpo_ext.watch.guard import watches
from swift_grpo_ext.watch.metrics import FewFigures

MOST_BYTES = 256 * 2**20  # of one rank's pictures in one run; those beyond that are not kept
_ENDINGS = {b"\x89PNG": ".png", b"\xff\xd8": ".jpg", b"GIF8": ".gif", b"RIFF": ".webp"}


class PictureFolder:
    """Writes each picture once, under a name made of its content."""

    def __init__(self, folder: Path, most_bytes: int = MOST_BYTES) -> None:
        self._folder = folder
        self._most_bytes = self._left = most_bytes
        self._kept: dict[str, str] = {}
        self._warn = Once(get_logger().warning)
        self._newest: deque[tuple[Any, str | None]] = deque(maxlen=16)

    def path_of(self, image: ImageSource) -> str | None:
        """Where an image of a row lies: its own path or address, else that of the copy kept here.

        None for anything but a picture, and for one that does not fit any more or cannot be written.
        """
        path = image.get("path") if isinstance(image, dict) else image
        content = (image.get("bytes") or path) if isinstance(image, dict) else image
        if isinstance(path, str):
            with suppress(OSError):
                return find_file(path)
            # Base64 of a small picture is as short as a name, and has no dot.
            if content is path and "." in path and not path.startswith("data:"):
                return path
        for picture, place in self._newest:  # the completions of a group share their pictures
            if picture is content:
                return place
        with suppress(DatasetRowError, OSError):  # PIL's for a mode that PNG does not know
            self._newest.append((content, self._keep(_content(content))))
            return self._newest[-1][1]
        return None

    def _keep(self, content: bytes) -> str | None:
        name = hashlib.sha256(content).hexdigest()[:24]
        if name not in self._kept:
            if len(content) > self._left:
                self._incomplete(f"the report shows no more than {self._most_bytes >> 20} MiB")
                return None
            ending = next((_ENDINGS[start] for start in _ENDINGS if content.startswith(start)), "")
            path = (self._folder / f"{name}{ending}").absolute()
            try:
                self._folder.mkdir(parents=True, exist_ok=True)
                path.write_bytes(content)
            except OSError as problem:
                self._left = 0
                self._incomplete(str(problem))
                return None
            self._left -= len(content)
            self._kept[name] = str(path)
        return self._kept[name]

    def _incomplete(self, why: str) -> None:
        what = "not all pictures that the dataset holds in memory are kept for the report"
        self._warn(f"swift-grpo-ext: {what}: {why}", about=what)


def _content(image: ImageSource) -> bytes:
    """The bytes of a picture file, of base64, or of an image of PIL."""
    if not isinstance(image, Image.Image):
        return read_source(image, lambda address: io.BytesIO())
    buffer = io.BytesIO()
    image.save(buffer, format="PNG")
    return buffer.getvalue()


logger = get_logger()


class Logging:
    """Corrects and completes what ms-swift logs.

    Its mean of ``kl`` depends on how completions were cut into micro-batches; here it is over the window's
    tokens. completions.jsonl gets ``images`` (ms-swift has none: swift#6269), ``regions``, ``split``, the
    ``question``, the ``gold`` of a column that the reward table names, the task of its tasks, and by the name
    of each reward what it ``read`` and its ``reason`` to give no more.
    """

    def __init__(self, host: Host) -> None:
        self._host = host
        self.guard = host.guard
        self.latest: PerToken | None = None  # log-probs of the latest pass
        self._token_kl: defaultdict[str, WeightedMean] = defaultdict(WeightedMean)
        self._pictures: PictureFolder | None = None
        self._few = FewFigures() if current_settings().console == "line" else None

    def note_pass(self, logps: PerToken) -> None:
        """Keep the log-probs of a pass: within a loss the latest are the policy's."""
        self.latest = logps.detach()

    def add_kl(self, grpo_batch: GRPOBatch, metrics: dict[str, Any]) -> None:
        """Count the KL of a loss's tokens, of all ranks, if ms-swift logs one."""
        if "kl" not in metrics:
            return
        sums = self._kl_of(grpo_batch, metrics)
        own_sums = torch.zeros(2, device=self._host.accelerator.device) if sums is None else sums
        total, tokens = gather(own_sums.unsqueeze(0)).sum(0).tolist()
        if sums is not None or tokens:
            self._token_kl[metrics["mode"]].add(total, tokens)
        if tokens:
            require_equal_start(self._host, total / tokens)

    @watches("mean of kl")
    def _kl_of(
        self, grpo_batch: GRPOBatch, metrics: dict[str, Bool[Tensor, "batch keep"]]
    ) -> Float[Tensor, " 2"]:
        assert self.latest is not None
        mask = metrics["completion_mask"]
        kl = per_token_kl(self.latest, grpo_batch.ref_per_token_logps).float()
        return torch.stack([(kl * mask).sum(), mask.sum().float()])

    @watches("figures without NaN")
    def replace_nan(self, metrics: dict[str, Any]) -> None:
        """Put None in the place of an entropy that is NaN, where no token counts: JSON has no NaN."""
        logs = metrics["entropy"].get("entropy_logs")
        if logs is not None:
            metrics["entropy"]["entropy_logs"] = [
                None if math.isnan(entropy) else entropy for entropy in logs
            ]

    def add_columns(self, samples: Sequence[VisionSample]) -> None:
        """Add to the table of completions their images, the places they point at, and what rewards read."""
        host = self._host
        if not host.log_completions:  # of the configuration, so the same on every rank
            return
        tasks = next(
            (each.task_column for each in host.reward_funcs if isinstance(each, Scored) and each.rule.tasks),
            "",
        )
        pictures = self._images_of(samples) or [([], None)] * len(samples)
        local = [
            (
                *picture,
                last_question(sample.messages),
                self._gold_of(sample),
                sample.read,
                sample.reason,
                sample.extra.get(tasks),
            )
            for picture, sample in zip(pictures, samples, strict=True)
        ]
        gathered = host._gather_and_flatten(local, flatten_level=0)
        names = ("images", "regions", "question", "gold", "read", "reason", *filter(None, [tasks]))
        for name, column in zip(names, zip(*gathered, strict=True), strict=False):
            host._logs.setdefault(name, deque(maxlen=host.args.generation_batch_size)).extend(column)

    def _gold_of(self, sample: VisionSample) -> str:
        """The gold in ``solution``, or in the column that the reward table names.

        ms-swift logs ``solution`` only for batches in which all rows have it, so that golds shift.
        """
        column = "solution"
        for function in self._host.reward_funcs:
            rule = function.rule if isinstance(function, Scored) else None
            if rule and rule.gold and rule.is_for(sample.extra.get(function.task_column)):
                column = rule.gold
        gold = sample.extra.get(column)
        return "" if gold is None else as_text(gold)

    @watches("pictures of completions")
    def _images_of(self, samples: Sequence[VisionSample]) -> list[tuple[list[str | None], object]]:
        if self._pictures is None:
            self._pictures = PictureFolder(Path(self._host.args.output_dir) / "watch/images")
        return [
            (list(map(self._pictures.path_of, sample.images)), self._places_of(sample)) for sample in samples
        ]

    def complete(self) -> None:
        """Before ms-swift logs: settle the means, and note with each completion if it was trained on."""
        self._settle_means()
        self._add_split()

    @watches("columns of completions")
    def _add_split(self) -> None:
        host = self._host
        if host.log_completions:
            split = "train" if host.model.training else "eval"
            host._logs["split"] = [split] * len(host._logs["prompt"])

    @watches("means of the log")
    def _settle_means(self) -> None:
        """Put in the token mean of ``kl``, and leave values that are not finite out of all means."""
        step = self._host.state.global_step
        mode = "train" if self._host.model.training else "eval"
        metrics = self._host._metrics[mode]
        token_kl = self._token_kl.pop(mode, None)
        if token_kl is not None:
            metrics["kl"] = [token_kl.value] if token_kl.weight else []
        for name, values in list(metrics.items()):
            bad = sum(not math.isfinite(float(value)) for value in values)
            if bad:
                logger.warning_once(
                    f"swift-grpo-ext: metric {name} was not finite in {bad} of {len(values)} micro-batches "
                    f"before step {step}; logged means leave such values out.",
                    hash_id=f"{name} {self._host.args.output_dir}",
                )
                metrics[name] = with_mean_for_nonfinite(values)
            if not metrics[name]:
                del metrics[name]
        if self._few:
            kept = self._few.of(metrics)
            metrics.clear()
            metrics.update(kept)

    def _places_of(self, sample: VisionSample) -> object:
        """Boxes and points of a sample, read as its reward for places reads them."""
        for function in self._host.reward_funcs:
            if (
                isinstance(function, OfCatalogue)
                and "frame" in function.reward.parameters
                and function.rule.is_for(sample.extra.get(function.task_column))
            ):
                columns = function.with_gold({"objects": sample.objects or None, **sample.extra})
                return located(sample.messages[-1]["content"], columns, function.reward, function.parameters)
        return None
