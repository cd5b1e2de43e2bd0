"""How far each reward agrees with a careful human, on completions in the styles of many model families.

    python benchmarks/reward_styles.py --json styles.json
    python benchmarks/reward_styles.py --wrong ext_choice

`reward_styles.jsonl` and its second and third set hold the completions, each with its row and the score
that a human gives. Each was written without a look at the code that reads it, the later ones when the one
before was reached; a score in them is changed only where it was a slip. The third is of the kinds of answers
that fresh completions and attacks had shown to be read wrongly. The fourth holds completions of thirteen
families and, with the key ``attack``, answers made to be paid without being right, by class. The fifth
to the fifteenth are more of such material, the seventh in more languages. `docs/benchmarks.md` has the rate
of each before anything was changed for it.
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

STYLES = {
    "first": Path(__file__).with_suffix(".jsonl"),
    "second": Path(__file__).with_name("reward_styles_second.jsonl"),
    "third": Path(__file__).with_name("reward_styles_third.jsonl"),
    "fourth": Path(__file__).with_name("reward_styles_fourth.jsonl"),
    "fifth": Path(__file__).with_name("reward_styles_fifth.jsonl"),
    "sixth": Path(__file__).with_name("reward_styles_sixth.jsonl"),
    "seventh": Path(__file__).with_name("reward_styles_seventh.jsonl"),
    "eighth": Path(__file__).with_name("reward_styles_eighth.jsonl"),
    "ninth": Path(__file__).with_name("reward_styles_ninth.jsonl"),
    "tenth": Path(__file__).with_name("reward_styles_tenth.jsonl"),
    "eleventh": Path(__file__).with_name("reward_styles_eleventh.jsonl"),
    "twelfth": Path(__file__).with_name("reward_styles_twelfth.jsonl"),
    "thirteenth": Path(__file__).with_name("reward_styles_thirteenth.jsonl"),
    "fourteenth": Path(__file__).with_name("reward_styles_fourteenth.jsonl"),
    "fifteenth": Path(__file__).with_name("reward_styles_fifteenth.jsonl"),
}
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


def read_styles(*sets: str) -> list[Style]:
    """Every completion of these sets, or of all, with its reward, row and human score."""
    files = [STYLES[name] for name in sets or STYLES]
    return [json.loads(line) for file in files for line in file.read_text(encoding="utf-8").splitlines()]


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


def shown(sets: dict[str, dict[str, list[bool]]]) -> str:
    """The rates of each set, by reward, as a Markdown table."""
    names = [*dict.fromkeys(name for agreed in sets.values() for name in agreed), "all"]
    lines = [" | ".join(["| reward", *sets]) + " |", "|---" * (len(sets) + 1) + "|"]
    for name in names:
        cells = [name]
        for agreed in sets.values():
            found = [one for key, kept in agreed.items() if name in (key, "all") for one in kept]
            cells.append(f"{sum(found) / len(found):.1%} of {len(found)}" if found else "")
        lines.append("| " + " | ".join(cells) + " |")
    return "\n".join(lines)


def main() -> None:
    """Score, print, write."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--json", type=Path, help="JSON file to write")
    parser.add_argument("--set", choices=STYLES, help="only this set")
    parser.add_argument("--wrong", help="print the completions of this reward, or all, that do not agree")
    options = parser.parse_args()
    measured = {name: agreement(read_styles(name)) for name in ([options.set] if options.set else STYLES)}
    print(shown({name: agreed for name, (agreed, _) in measured.items()}))
    wrong = [style for _, missed in measured.values() for style in missed]
    for style in wrong:
        if options.wrong in (style["reward"], "all"):
            print(json.dumps(style, ensure_ascii=False))
    if options.json:
        rates = {
            name: {reward: sum(found) / len(found) for reward, found in agreed.items()}
            for name, (agreed, _) in measured.items()
        }
        options.json.write_text(
            json.dumps({"agreement": rates, "wrong": wrong}, indent=1, ensure_ascii=False)
        )


if __name__ == "__main__":
    main()
