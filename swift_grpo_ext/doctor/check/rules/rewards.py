"""Which rewards are given: their names, their weights, and what they need."""

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.host import table as host_table
from swift_grpo_ext.doctor.check.rules.table import OUR_PLUGIN, anywhere, fault, grpo_anywhere, option, rule
from swift_grpo_ext.doctor.check.unknown import decided
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import ERROR, NotKnownError, Problem
from swift_grpo_ext.rewards import catalogue


@rule(
    "reward-weights",
    ERROR,
    symptoms="Number of reward weights (...) must match number of reward functions (...)",
    cause="Found by ms-swift after the model is loaded.",
    scope=grpo_anywhere,
)
def _weights(run: Run) -> Iterator[Problem]:
    args = run.arguments
    sources = len(args.reward_funcs or []) + len(args.reward_model or [])
    gym = decided(args.use_gym_env)
    sources += bool(args.gym_env if gym is None else gym)
    weights = decided(args.reward_weights)
    if weights is not None and len(weights) != sources:
        what = f"{len(weights)} weights for {sources} rewards"
        fix = " ".join(f"{weight:g}" for weight in [*weights, *[1.0] * sources][:sources])
        yield option("reward_weights", what, fix)


fault(
    "rewards-weigh-nothing",
    ERROR,
    lambda run: run.arguments.reward_weights and not any(run.arguments.reward_weights),
    "every reward has weight 0",
    "--reward_weights",
    "leave --reward_weights out: then each has weight 1",
    symptoms="reward is 0 in every step although each reward function scores",
    cause="The reward is the weighted sum of all reward functions; with weights of 0 nothing is left of it.",
    reports="B3",
    scope=anywhere,
)


@rule(
    "no-reward",
    ERROR,
    symptoms="ValueError: You must specify reward_funcs or reward_model",
    cause="Nothing scores the completions.",
    reports="B3",
    scope=grpo_anywhere,
)
def _no_reward(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if any(map(args.get, _REWARDS)):
        return
    if args.use_vllm and args.vllm_mode == "server" and decided(args.use_gym_env) is None:
        if not run.servers:
            raise NotKnownError("rewards, which a gym on the rollout server may give")
        if any(server.arguments.get(name) for server in run.servers for name in _GYM):
            return
    yield option("reward_funcs", "no reward function is given", "ext_choice ext_format")


_GYM = ("use_gym_env", "gym_env")
_REWARDS = ("reward_funcs", "reward_model", *_GYM, "teacher_model", "teacher_model_server")


@rule(
    "unknown-reward",
    ERROR,
    symptoms="ValueError: reward_function ... is not implemented in swift.rewards",
    cause="Found by ms-swift only after the model is loaded. Names starting with ext_ need our plugin.",
    scope=grpo_anywhere,
)
def _unknown_reward(run: Run) -> Iterator[Problem]:
    registered = {*host_table.names("reward_funcs"), *catalogue.NAMES}
    for text in run.arguments.reward_funcs or []:
        try:
            name = catalogue.split_form(text)[0]
        except SwiftGrpoExtError as error:
            yield Problem(error.what, error.where or "--reward_funcs", error.fix)
            continue
        if "," in name or " " in name.strip():
            names = " ".join(name.replace(",", " ").split())
            yield option("reward_funcs", f"{name} is taken for one name", names)
        elif name in catalogue.NAMES and "rewards" not in run.parts:
            yield Problem(f"{name} needs our plugin", "--reward_funcs", OUR_PLUGIN)
        elif name not in registered and (name.startswith("ext_") or not run.has_plugins_of_the_user):
            close = nearest(name, registered, NEAR)
            fix = f"--reward_funcs {close}" if close else "register it in --external_plugins"
            yield Problem(f"no reward is called {name}", "--reward_funcs", fix)
