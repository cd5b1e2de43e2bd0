"""A language model as judge, asked over HTTP in the OpenAI format."""

from functools import partial
from typing import Annotated

from pydantic import Field

from swift_grpo_ext.rewards.contract import Columns, Unscorable, last_question, reward
from swift_grpo_ext.rewards.place import answer_of
from swift_grpo_ext.rewards.runtime.judge_client import Endpoint, ask, request_of

RUBRIC = (
    "Give 10 if the answer is correct and complete, 0 if it is wrong, and numbers between for parts of it."
)


@reward(
    reads=("messages", "solution", "answer"),
    cost="async",
    required=("url", "model"),
)
async def judge(
    completion: str,
    columns: Columns,
    *,
    url: Annotated[str, Field(pattern=r"^(https?://[^\s/?#]+[^\s]*)?$")] = "",
    model: str = "",
    rubric: Annotated[str, Field(min_length=1, max_length=20_000)] = RUBRIC,
    api_key_variable: str = "OPENAI_API_KEY",
    seconds: Annotated[float, Field(gt=0)] = 60.0,
    concurrency: Annotated[int, Field(ge=1, le=1024)] = 16,
    max_tokens: Annotated[int, Field(ge=16)] = 1024,
) -> float:
    """The score of a judge model for the answer, 0..1 in steps of a tenth.

    The judge sees the rubric, the question, the reference if the row has one, and the answer, each text of
    the row between fences that carry a random number. It must end with one line of JSON that repeats the
    number and gives a score from 0 to 10; after four replies without one the case is given up. A request
    that fails is repeated up to five times within the limit. Scores are kept, so the same answer to the same
    question is asked once. Redirections are not followed.

    Args:
        url: Base of the server's API, such as ``http://host:8000/v1``.
        model: Name of the judge model there.
        rubric: What to give points for.
        api_key_variable: Environment variable that holds the key, if the server wants one.
        seconds: Limit for one completion in seconds, from its first request on.
        concurrency: Requests at a time, per rank.
        max_tokens: Most tokens that the judge may write.
    Gold: Optional: ``solution`` (or ``answer``) as reference. The question is the last user turn of
        ``messages``.
    Raises:
        Unscorable: The row has no question. A judge that gives no score within the limit is a failure:
            counted, and the run ends when there are too many.
    Rises with: The judge's opinion.
    Gaming:
        - Instructions to the judge in the answer: fenced, and a score that the answer dictates lacks the
          random number (test_a_dictated_score_is_no_score).
        - Closing the fence: it cannot know the number (test_the_answer_cannot_leave_its_fence).
        - No answer, or one in the thinking part: 0 without asking (test_no_answer_is_not_sent).
        - Persuasion: a judge can be flattered, and no parser helps: it passes on what the judge says
          (test_an_ordinary_score). Look at samples, and weigh it below rewards that compute.
    Source: LLM-as-a-judge (arXiv 2306.05685).
    Example:
        >>> from swift_grpo_ext import get_reward
        >>> # With url="http://host:8000/v1" and model="..."; this answer is empty, so that no judge is asked.
        >>> row = {"messages": [{"role": "user", "content": "What is it?"}], "solution": "a cat"}
        >>> get_reward("ext_judge")("<think>A cat.</think>", row)
        0.0
    """
    if not (question := last_question(columns.get("messages"))):
        raise Unscorable("no question: column messages has no user turn")
    answer = answer_of(completion, "long")
    reference = columns.get("solution") or columns.get("answer")
    texts = {
        "question": question,
        "reference": "" if reference is None else str(reference),
        "answer": answer,
    }
    request = partial(request_of, model, rubric, texts, max_tokens)
    endpoint = Endpoint(url.rstrip("/"), api_key_variable, seconds, concurrency)
    return await ask(endpoint, request) / 10
