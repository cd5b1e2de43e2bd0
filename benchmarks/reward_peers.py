"""How far the rewards agree with the public test cases of their peers, re-created as facts.

    python benchmarks/reward_peers.py

`tests/rewards/peers.jsonl` holds them: the peer, the nearest reward of the catalogue, its row, the
completion and the peer's score; where ours differs, our score and why. Loads neither torch nor ms-swift.
"""

from __future__ import annotations

import json
from collections import defaultdict
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.catalogue import get_reward

CASES = Path(__file__).parents[1] / "tests" / "rewards" / "peers.jsonl"
TOLERANCE = 0.01

Case = dict[str, Any]


def read_cases() -> list[Case]:
    """Every case."""
    return [json.loads(line) for line in CASES.read_text(encoding="utf-8").splitlines()]


def agrees(case: Case) -> bool:
    """Whether our score is the peer's."""
    ours, theirs = get_reward(case["reward"])(case["completion"], case["row"]), case["peer_score"]
    return ours == theirs or (None not in (ours, theirs) and abs(ours - theirs) <= TOLERANCE)


def main() -> None:
    """Score and print the agreement with each peer, and the differences, as Markdown."""
    found: dict[str, list[bool]] = defaultdict(list)
    differ = []
    for case in read_cases():
        found[case["peer"]].append(agrees(case))
        if not found[case["peer"]][-1]:
            differ.append(case)
    rows = [*found.items(), ("all", [one for agreed in found.values() for one in agreed])]
    print("| peer | cases | agree |\n|---|---|---|")
    for name, agreed in rows:
        print(f"| {name} | {len(agreed)} | {sum(agreed) / len(agreed):.1%} |")
    print("\n| peer | gold | answer | peer | ours | why |\n|---|---|---|---|---|---|")
    for case in differ:
        gold = case["row"].get("solution", "")
        texts = (str(text).replace("\n", "⏎").replace("|", "\\|") for text in (gold, case["completion"]))
        shown = " | ".join(f"`{text}`" if text else "" for text in texts)
        print(f"| {case['peer']} | {shown} | {case['peer_score']} | {case['ours']} | {case['why']} |")


if __name__ == "__main__":
    main()
