"""A scheduler of three turns, each with an image of its own, as a tool that cuts crops gives them."""

from swift.rollout.multi_turn import MultiTurnScheduler


class Crops(MultiTurnScheduler):
    """Answers each turn with a further image and a question."""

    def step(self, infer_request, response_choice, current_turn):
        infer_request.images = [*infer_request.images, infer_request.images[0]]
        infer_request.messages.append({"role": "user", "content": "<image>And this crop?"})
        return {"infer_request": infer_request, "rollout_infos": {"images": list(infer_request.images)}}

    def check_finished(self, infer_request, response_choice, current_turn):
        return current_turn == 3
