"""A plugin whose reward varies within a group for odd digits only: dynamic sampling has to replace the others."""

from swift.rewards import ORM, orms

EQUAL = "odd_digits: a group has equal rewards"


def score(text: str, solution: str) -> float:
    return sum(ord(char) % 2 for char in text) / max(len(text), 1) if int(solution) % 2 else 0.0


class OddDigits(ORM):
    def __call__(self, completions, solution, **kwargs):
        if any(int(digit) % 2 == 0 for digit in solution):
            print(EQUAL, flush=True)
        return [score(*pair) for pair in zip(completions, solution, strict=True)]


orms["odd_digits"] = OddDigits
