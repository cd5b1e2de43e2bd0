"""The tool of the agent, as a plugin: ``--external_plugins ... scheduler.py --multi_turn_scheduler corners``.

A row's image is a sheet of four digits, too small to read, and its question asks for one of them. The model
names a corner, is shown that corner in full size, and answers with the digit.
"""

import base64
import io
from typing import Any

from PIL import Image
from swift.infer_engine.protocol import ChatCompletionResponseChoice, RolloutInferRequest
from swift.rollout.multi_turn import MultiTurnScheduler, multi_turns

CORNERS = ("A", "B", "C", "D")  # upper left, upper right, lower left, lower right
LOOK = "<image>Which digit is this?"
NOWHERE = "There is no such corner."


class Corners(MultiTurnScheduler):
    """Cuts the corner out that the first turn names."""

    def step(
        self,
        infer_request: RolloutInferRequest,
        response_choice: ChatCompletionResponseChoice,
        current_turn: int,
    ) -> dict[str, Any]:
        """What the tool answers: the conversation with a message of its own, and all images so far.

        The sampled tokens go back as they are: text that is tokenized anew need not give the same tokens, and
        rows that differ in a token share nothing behind it.
        """
        corner = str(response_choice.message.content).strip()
        tokens = list(response_choice.token_ids)
        shown = NOWHERE
        if corner in CORNERS:
            shown = LOOK
            infer_request.images = [*infer_request.images, cut(infer_request.data_dict["sheet"], corner)]
        infer_request.messages.append({"role": "user", "content": shown})
        return {
            "infer_request": infer_request,
            "response_token_ids": tokens,
            "response_loss_mask": [1] * len(tokens),
            "rollout_infos": {"images": list(infer_request.images), "corner": corner},
        }

    def check_finished(
        self,
        infer_request: RolloutInferRequest,
        response_choice: ChatCompletionResponseChoice,
        current_turn: int,
    ) -> bool:
        """After the second turn, however it reads."""
        return current_turn == 2


def cut(sheet: str, corner: str) -> str:
    """A corner of the sheet in this file, as base64: a server hands it to the trainer as text."""
    image = Image.open(sheet)
    half = image.width // 2
    row, column = divmod(CORNERS.index(corner), 2)
    part = image.crop((column * half, row * half, (column + 1) * half, (row + 1) * half))
    png = io.BytesIO()
    part.save(png, "PNG")
    return base64.b64encode(png.getvalue()).decode()


multi_turns["corners"] = Corners
