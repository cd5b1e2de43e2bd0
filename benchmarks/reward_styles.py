"""How far each reward agrees with a careful human, on completions in the styles of many model families.

    python benchmarks/reward_styles.py --json styles.json
    python benchmarks/reward_styles.py --wrong ext_choice

`reward_styles.jsonl` holds the completions, each with its row and the score that a human gives. It was
written before the code that reads them was looked at; a score in it is changed only where it was a slip.
Loads neither torch nor ms-swift. ext_judge asks a judge on the loopback interface that says 10 if it is
shown what the row's ``shown`` says, else 0.
"""

from __future__ import annotations

import argparse
import json
import re
import threading
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

from swift_grpo_ext.rewards.catalogue import get_reward

STYLES = Path(__file__).with_suffix(".jsonl")
TOLERANCE = 0.02
"""A score as near as this to the human's agrees: humans write 0.33 for a third."""

Style = dict[str, Any]


class _Judge(BaseHTTPRequestHandler):
    """Says 10 if the answer that it is shown is the one expected."""

    def do_POST(self) -> None:
        request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        rubric, text = (message["content"] for message in request["messages"])
        number = re.findall(r"BEGIN ([0-9a-f]{16})", rubric)[0]
        expected = json.loads(re.findall(r"shown: (\".*\")", text)[0])
        score = 10 if f"\n{expected}\n" in text.rpartition("BEGIN")[2] else 0
        verdict = json.dumps({"number": number, "score": score})
        body = json.dumps({"choices": [{"message": {"role": "assistant", "content": verdict}}]}).encode()
        self.send_response(200)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: Any) -> None:
        """Nothing."""


@contextmanager
def judge_server() -> Iterator[str]:
    """Address of a judge that runs while the context is open."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), _Judge)
    threading.Thread(target=server.serve_forever, args=(0.05,), daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}/v1"
    server.shutdown()
    server.server_close()


def read_styles() -> list[Style]:
    """Every completion with its reward, row and human score."""
    return [json.loads(line) for line in STYLES.read_text(encoding="utf-8").splitlines()]


def score(style: Style, judge: str) -> float | None:
    """What the package says to it."""
    reward, row = get_reward(style["reward"]), style["row"]
    if style["reward"] != "ext_judge":
        return reward(style["completion"], row)
    rubric = f"Is this the answer? shown: {json.dumps(row['shown'], ensure_ascii=False)}"
    return reward(style["completion"], row, url=judge, model="m", rubric=rubric, seconds=5.0)


def agreement(styles: list[Style]) -> tuple[dict[str, list[bool]], list[Style]]:
    """Whether each completion's score is the human's, by reward, and those where it is not."""
    agreed: dict[str, list[bool]] = defaultdict(list)
    wrong = []
    with judge_server() as judge:
        for style in styles:
            ours = score(style, judge)
            agreed[style["reward"]].append(ours is not None and abs(ours - style["human"]) <= TOLERANCE)
            if not agreed[style["reward"]][-1]:
                wrong.append({**style, "ours": ours})
    return dict(agreed), wrong


def shown(agreed: dict[str, list[bool]]) -> str:
    """The rates as a Markdown table."""
    lines = ["| reward | completions | agree |", "|---|---|---|"]
    rows = [*agreed.items(), ("all", [one for found in agreed.values() for one in found])]
    return "\n".join(
        [*lines, *(f"| {name} | {len(found)} | {sum(found) / len(found):.1%} |" for name, found in rows)]
    )


def main() -> None:
    """Score, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="JSON file to write")
    parser.add_argument("--wrong", help="print the completions of this reward, or all, that do not agree")
    options = parser.parse_args()
    agreed, wrong = agreement(read_styles())
    print(shown(agreed))
    for style in wrong:
        if options.wrong in (style["reward"], "all"):
            print(json.dumps(style, ensure_ascii=False))
    if options.json:
        rates = {name: sum(found) / len(found) for name, found in agreed.items()}
        options.json.write_text(
            json.dumps({"agreement": rates, "wrong": wrong}, indent=1, ensure_ascii=False)
        )


if __name__ == "__main__":
    main()
