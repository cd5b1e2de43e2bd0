"""What a row asks for."""

from swift_grpo_ext.rewards.contract import Columns, last_question
from swift_grpo_ext.rewards.reading.tokens import named_by

QUESTION = ("question", "problem", "query", "messages")
MAX_CHARS = 400  # at the end of a question that are read


def question_of(columns: Columns) -> str:
    """The end of the row's question, "" if it has none."""
    given = (columns.get(name) for name in QUESTION)
    questions = (value if isinstance(value, str) else last_question(value) for value in given)
    return next(filter(None, questions), "")[-MAX_CHARS:]


def topic_of(columns: Columns) -> frozenset[str]:
    """What the row's question names."""
    return named_by(question_of(columns))
