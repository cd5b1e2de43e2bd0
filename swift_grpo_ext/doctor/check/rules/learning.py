"""What runs and learns nothing."""

from __future__ import annotations

from collections.abc import Iterator

from swift_grpo_ext.doctor.check import host_table
from swift_grpo_ext.doctor.check.arguments import NotKnown
from swift_grpo_ext.doctor.check.rules.table import table
from swift_grpo_ext.doctor.check.run import Run
from swift_grpo_ext.errors import NEAR, SwiftGrpoExtError, nearest
from swift_grpo_ext.findings import Problem
from swift_grpo_ext.rewards import catalogue


@table.on("learning-rate-kills")
def _deadly_rate(run: Run) -> Iterator[Problem]:
    rate, limit = run.arguments.learning_rate, 1e-4 if run.full else 1e-2
    usual = "1e-6" if run.full else "1e-5"
    if rate <= 0:
        yield Problem(f"at rate {rate:g} nothing is learned", "--learning_rate", f"--learning_rate {usual}")
    elif rate > limit:
        kind = "full training" if run.full else "LoRA"
        yield Problem(f"{rate:g} destroys the model in {kind}", "--learning_rate", f"--learning_rate {usual}")


@table.on("learning-rate")
def _rate(run: Run) -> Iterator[Problem]:
    rate = run.arguments.learning_rate
    low, high = (1e-8, 5e-5) if run.full else (1e-7, 1e-3)
    deadly = 1e-4 if run.full else 1e-2
    if 0 < rate < low or high < rate <= deadly:
        kind, usual = ("full training", "1e-6") if run.full else ("LoRA", "1e-5")
        what = f"{rate:g} is unusual for {kind}: between {low:g} and {high:g}"
        yield Problem(what, "--learning_rate", f"--learning_rate {usual}")


@table.on("warmup-eats-the-run")
def _warmup(run: Run) -> Iterator[Problem]:
    args = run.arguments
    steps, warmup = args.max_steps or -1, args.warmup_steps or 0
    if steps <= 0:
        return
    spent = warmup if warmup >= 1 else -(-steps * max(warmup, args.warmup_ratio or 0) // 1)
    if spent and spent >= steps / 2:
        yield Problem(
            f"{spent:g} of {steps} steps are warmup, the first at lr 0", "--warmup_ratio", "--warmup_ratio 0"
        )


@table.on("no-reward")
def _no_reward(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if args.reward_funcs or args.reward_model or args.use_gym_env or args.gym_env:
        return
    if args.teacher_model or args.teacher_model_server:
        return
    if args.use_vllm and args.vllm_mode == "server" and args.use_gym_env is None:
        servers = run.launch.all("rollout") if run.launch else ()
        if not servers:
            raise NotKnown("rewards, which a gym on the rollout server may give")
        if any(server.value("use_gym_env") or server.value("gym_env") for server in servers):
            return
    yield Problem("no reward function is given", "--reward_funcs", "--reward_funcs ext_choice ext_format")


@table.on("rewards-weigh-nothing")
def _weigh_nothing(run: Run) -> Iterator[Problem]:
    weights = run.arguments.reward_weights
    if weights and not any(weights):
        fix = " ".join("1" for _ in weights)
        yield Problem("every reward has weight 0", "--reward_weights", f"--reward_weights {fix}")


@table.on("unknown-reward")
def _unknown_reward(run: Run) -> Iterator[Problem]:
    known = {*host_table.names("reward_funcs"), *catalogue.NAMES}
    for text in run.arguments.reward_funcs or []:
        try:
            name = catalogue.split_form(text)[0]
        except SwiftGrpoExtError as error:
            yield Problem(error.what, error.where or "--reward_funcs", error.fix)
            continue
        if "," in name or " " in name.strip():
            fix = f"--reward_funcs {' '.join(name.replace(',', ' ').split())}"
            yield Problem(f"{name} is taken for one name", "--reward_funcs", fix)
        elif name in catalogue.NAMES and "rewards" not in run.parts:
            yield Problem(
                f"{name} needs our plugin", "--reward_funcs", '--external_plugins "$(swift-grpo-ext path)"'
            )
        elif name not in known and (name.startswith("ext_") or not run.has_plugins_of_the_user):
            close = nearest(name, known, NEAR)
            fix = f"--reward_funcs {close}" if close else "register it in --external_plugins"
            yield Problem(f"no reward is called {name}", "--reward_funcs", fix)


@table.on("reference-without-adapter")
def _ref_adapters(run: Run) -> Iterator[Problem]:
    args = run.arguments
    if (
        args.adapters
        and not args.ref_adapters
        and args.beta
        and not run.full
        and not args.resume_from_checkpoint
    ):
        yield Problem(
            "the reference lacks the adapter that training starts from",
            "--adapters",
            f"--ref_adapters {' '.join(args.adapters)}, or --beta 0",
        )
