"""Plugin: a gym environment of two turns that likes even characters."""

from swift.rollout.gym_env import Env, envs


class EvenCharacters(Env):
    """Asks the row's question, and once more."""

    async def reset(self, config):
        self.turn = 0
        return config.messages[-1]["content"], {}, ""

    async def step(self, action):
        self.turn += 1
        text = action[-1]["content"]
        reward = sum(ord(char) % 2 == 0 for char in text) / max(len(text), 1)
        return "And the other one?", reward, self.turn == 2, {}

    async def close(self):
        """Nothing is open."""


envs["even_characters"] = EvenCharacters
