"""A plugin with a reward that varies even over the gibberish of a random model."""

from swift.rewards import ORM, orms


class EvenCharacters(ORM):
    def __call__(self, completions, **kwargs):
        return [sum(ord(char) % 2 for char in text) / max(len(text), 1) for text in completions]


orms["even_characters"] = EvenCharacters
