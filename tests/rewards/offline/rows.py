"""Three rows of boxes, one of them without gold."""

import json

BOX = [10, 20, 110, 220]
ROWS_OF_THREE = [
    {
        "messages": [{"role": "user", "content": "<image>Where is the cat?"}],
        "images": ["a.png"],
        "solution": BOX,
    },
    {
        "messages": [{"role": "user", "content": "<image>Where is the dog?"}],
        "images": ["b.png"],
        "solution": BOX,
    },
    {
        "messages": [{"role": "user", "content": "<image>Read [bold]it[/]."}],
        "images": ["c.png"],
        "solution": None,
    },
]
HALF = "<answer>[10, 20, 60, 220]</answer>"


def lines(path, values):
    path.write_text("".join(json.dumps(value) + "\n" for value in values))
    return path
