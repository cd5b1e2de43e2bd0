"""Facts of a run, of an optimizer step, and of the completions that the step trained on."""

from dataclasses import dataclass

MOST = 0.9  # share of completions or groups from which a fault counts as a fault of the run


@dataclass(frozen=True)
class RewardFacts:
    """One reward function over one generation batch of all ranks."""

    name: str  # as typed by the user
    scored: float  # scored share of the completions that the reward applies to, 0 to 1
    commonest: float | None = None  # the most frequent score, to six places
    commonest_share: float = 0.0
    unread: float = 0.0  # share of the completions that it applies to in which it read no answer
    reason: str = ""  # an example of why completions were not scored, or not read


@dataclass(frozen=True)
class RolloutFacts:
    """One generation batch of all ranks. Shares lie between 0 and 1; None where nothing could be observed."""

    groups: int = 0
    rewards: tuple[RewardFacts, ...] = ()
    advantaged: float | None = None  # share of completions whose advantage is not 0
    coverage: float | None = None  # share of completions that can be compared with others of their group
    zero_variance: float | None = None  # share of groups whose rewards are all equal
    identical: float | None = None  # share of groups whose completions are all the same text
    clipped: float | None = None  # share of completions cut off at the length limit
    empty: float | None = None  # share of completions without a visible character
    example: str = ""  # for messages: a row with its prediction and its gold

    @property
    def is_scored(self) -> bool:
        """True if some reward scored some completion, or nothing is known about the rewards."""
        return not self.rewards or any(reward.scored for reward in self.rewards)


# Rule ids of faults between rollout engine and trainer.
PROMPT = "engine-prompt"
WEIGHTS = "engine-weights"
NUMERICS = "engine-numerics"


@dataclass(frozen=True)
class EngineRecord:
    """The newest comparison of engine and trainer; d is the difference of a token's log-probs in nats."""

    ratio: float | None = None  # mean of exp|d| over sampled tokens; None if not compared
    mean: float | None = None  # of |d|
    largest: float | None = None
    rule: str = ""  # id of the fault, if there is one
    text: str = ""  # the fault with its cause


@dataclass(frozen=True)
class StepFacts:
    """One optimizer step."""

    step: int  # global, counted from 1
    learning_rate: float | None = None  # of this step's update
    grad_norm: float | None = None  # before clipping; None where ms-swift does not report it
    skipped: bool = False  # the update was dropped: by ms-swift for a NaN, by the loss scaler or by DeepSpeed
    moved: float | None = None  # share of sampled trainable elements whose value changed
    master_moved: float | None = None  # share of the optimizer's float32 copies; None without copies
    tokens: int | None = None  # completion tokens in the loss, all ranks
    entropy: float | None = None  # nats per token at the sampling temperature
    rollout: RolloutFacts = RolloutFacts()  # the completions that the step trained on
    engine: EngineRecord = EngineRecord()  # the last check of the engine that sampled them


@dataclass(frozen=True)
class RunFacts:
    """Facts that do not change during a run."""

    num_generations: int = 0
    beta: float = 0.0
    temperature: float = 1.0
    learning_rate: float | None = None  # the argument, which is the peak of the schedule; None if unknown
    precision: str = "float32"  # of the trainable parameters
    masters: bool = False  # the optimizer keeps float32 copies of them

    @property
    def coarse_weights(self) -> bool:
        """True if the optimizer updates the 16-bit weights themselves."""
        return self.precision in ("bfloat16", "float16") and not self.masters
