"""The command ``swift-grpo-ext score``."""

import json
from collections.abc import Sequence
from pathlib import Path

from swift_grpo_ext.errors import DatasetRowError, SettingsError
from swift_grpo_ext.folders import made_folder
from swift_grpo_ext.rewards.names import require_reward
from swift_grpo_ext.rewards.offline import printed
from swift_grpo_ext.rewards.offline.files import completions_of, read_rows, with_image_sizes
from swift_grpo_ext.rewards.offline.scoring import Scores, score
from swift_grpo_ext.rewards.runtime.rules import load_table
from swift_grpo_ext.settings import current_settings


def run(
    data: Path,
    rewards: Sequence[str],
    *,
    completions: Path | None = None,
    gold: bool = False,
    table: str = "",
    output: Path | None = None,
    plugins: Sequence[str] = (),
) -> bool:
    """Score a file, print and write scores; True if no reward failed and each of `gold` is the maximum.

    Raises:
        SettingsError: Options contradict each other.
        OutputFolderError: The folder cannot be written.
        DatasetRowError: A file cannot be read, or no completion got a score.
        RewardError: A reward has an unknown name.
    """
    if gold and completions is not None:
        raise SettingsError("--gold scores the gold answers, not --completions", fix="give one of the two")
    rules = load_table(table, "--table") if table else load_table(current_settings().reward_table)
    for name in rewards:
        require_reward(name, plugins)
    rows = with_image_sizes(read_rows(data), data.parent, gold)
    names = dict.fromkeys(rewards)
    texts = None if gold else completions_of(rows, completions)
    results = [score(name, rows, texts, rules, plugins) for name in names]
    file = _write(results, output or Path())
    printed.print_all(results)
    print(file)
    if gold:
        return all(scores.records and not any(map(scores.wants, scores.records)) for scores in results)
    records = [record for scores in results for record in scores.records]
    has_failed = any(record["failed"] for record in records)
    if not has_failed and all(record["score"] is None for record in records):
        columns = ", ".join(dict.fromkeys(name for row in rows for name in row))
        raise DatasetRowError(
            f"{', '.join(names)}: no row was scored",
            where=str(data),
            fix=f"the rows have the columns {columns}; the reward table can name another gold",
        )
    return not has_failed


def _write(results: Sequence[Scores], folder: Path) -> Path:
    """Write one JSON line for each reward and row: the columns of the table, and the completion.

    Raises:
        OutputFolderError: The folder cannot be written.
    """
    path = made_folder(folder, "--output") / "scores.jsonl"
    with path.open("w", encoding="utf-8", errors="backslashreplace") as file:
        for scores in results:
            for record in scores.records:
                file.write(json.dumps(record, ensure_ascii=False, default=str) + "\n")
    return path
