"""Folders of runs as the host leaves them, made up, and what a report of one holds."""

import json
from html.parser import HTMLParser

PROMPT = (
    "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
    "<|im_start|>user\n<|vision_start|><image><|vision_end|>Which digit is this?<|im_end|>\n<|im_start|>assistant\n"
)
HOSTILE = '<script>alert("x")</script><img src=x onerror=alert(1)> {{ 7*7 }} $\\frac{1}{0}$ 数字 \u202e \x07'


def write_run(folder, rewards, *, grad_norm=1.0, completions=(), **figures):
    """A run's folder as the host leaves it, with the given reward at each step."""
    folder.mkdir(parents=True, exist_ok=True)
    records = [
        {
            "loss": 0.0,
            "reward": reward,
            "reward_std": 0.4,
            "frac_reward_zero_std": 0.2,
            "grad_norm": grad_norm,
            "kl": 0.01,
            "completions/mean_length": 2.0,
            "completions/min_length": 1.0,
            "completions/max_length": 4.0,
            "step_time": 0.5,
            "rewards/ext_choice/mean": reward,
            "rewards/ext_format/mean": 1.0,
            "global_step/max_steps": f"{step}/{len(rewards)}",
            **figures,
        }
        for step, reward in enumerate(rewards, start=1)
    ]
    records.append({"train_runtime": 1.0, "global_step/max_steps": f"{len(rewards)}/{len(rewards)}"})
    lines = "".join(json.dumps(record) + "\n" for record in records)
    (folder / "logging.jsonl").write_text(lines, encoding="utf-8")
    tables = "".join(json.dumps(table) + "\n" for table in completions)
    (folder / "completions.jsonl").write_text(tables, encoding="utf-8")
    (folder / "args.json").write_text(json.dumps({"num_generations": 4, "model": "<b>model</b>"}))
    return folder


def table(step, texts, images=(), prompt=PROMPT):
    """A table of completions.jsonl: the first half of the texts is right."""
    right = [float(number < len(texts) // 2) for number in range(len(texts))]
    return {
        "step": [str(step)] * len(texts),
        "prompt": [prompt] * len(texts),
        "completion": list(texts),
        "ext_choice": right,
        "ext_format": [None] * len(texts),
        "advantages": [2 * value - 1 for value in right],
        "solution": ["7"] * len(texts),
        "images": [list(images)] * len(texts),
    }


def data_of(report):
    """What the page's script draws."""
    return Tags(report.html.read_text(encoding="utf-8")).data


class Tags(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.found, self.scripts = [], []
        self.feed(page)
        self.data = json.loads(self.scripts[0])

    def handle_data(self, text):
        if self.found and self.found[-1][0] == "script" and text.strip():
            self.scripts[-1] += text

    def handle_starttag(self, tag, attrs):
        self.found.append((tag, dict(attrs)))
        if tag == "script":
            self.scripts.append("")
