"""What runs and learns nothing: rates, randomness, precision."""

from collections.abc import Iterator

from swift_grpo_ext.doctor.check.facts.run import Run
from swift_grpo_ext.doctor.check.rules.table import fault, grpo_anywhere, option, rule
from swift_grpo_ext.findings import ERROR, WARNING, Problem


@rule(
    "identical-completions",
    ERROR,
    symptoms=(
        "reward_std is 0 in every step",
        "loss, grad_norm and kl are all 0",
    ),
    cause="Greedy decoding gives every member of a group the same completion, so every advantage is 0.",
    reports=("A8", "B3"),
    scope=grpo_anywhere,
)
def _identical_completions(run: Run) -> Iterator[Problem]:
    what = "all completions of a group will be the same"
    for name, greedy, fix in (("temperature", 0, 1), ("top_p", 0, 1), ("top_k", 1, -1)):
        if run.arguments.get(name) == greedy:
            yield Problem(what, f"--{name} {greedy}", f"--{name} {fix}")


@rule(
    "hardly-random",
    WARNING,
    symptoms="frac_reward_zero_std is near 1",
    cause="At low temperature most groups are all right or all wrong, and give no gradient.",
    reports="B3",
    scope=grpo_anywhere,
)
def _hardly_random(run: Run) -> Iterator[Problem]:
    for name, least in (("temperature", 0.4), ("top_p", 0.5)):
        value = run.arguments.get(name)
        if value and 0 < value < least:
            yield option(name, f"{name} {value} leaves the completions of a group almost alike", 1)


def _wrong_rate(run: Run) -> tuple[str, str] | None:
    """What the learning rate does, and a usual one."""
    rate = run.arguments.learning_rate or 0
    usual = "1e-6" if run.full else "1e-5"
    most, way = (1e-4, "full training") if run.full else (1e-2, "LoRA")
    if rate < 1e-30:
        return f"at rate {rate:g} nothing is learned", usual
    return (f"{rate:g} destroys the model in {way}", usual) if rate > most else None


fault(
    "learning-rate-kills",
    ERROR,
    _wrong_rate,
    "{}",
    "--learning_rate",
    "--learning_rate {1}",
    symptoms=(
        "no parameter changes, learning_rate is 0",
        "completions are garbage after a few steps, reward falls to 0 and stays",
    ),
    cause="At rate 0 nothing moves; full training above 1e-4 destroys a pretrained model in a few steps.",
    reports="A8",
)


def _steps_of_warmup(run: Run) -> tuple[float, int] | None:
    args = run.arguments
    steps = args.max_steps or -1
    warmup = args.warmup_steps or 0
    spent = warmup if warmup >= 1 else -(-steps * max(warmup, args.warmup_ratio or 0) // 1)
    return (spent, steps) if steps > 0 and spent and spent >= steps / 2 else None


fault(
    "warmup-eats-the-run",
    ERROR,
    _steps_of_warmup,
    "{:g} of {} steps are warmup, the first at lr 0",
    "--warmup_ratio",
    "--warmup_ratio 0",
    symptoms=("a one-step run changes no parameter", "learning_rate is 0 in the log"),
    cause="With any warmup the first optimizer step runs at lr 0; the logged rate is the next step's.",
    reports=("A8", "B5"),
)


def _rounded_away(run: Run) -> tuple[float] | None:
    args = run.arguments
    rate = args.learning_rate or 0
    has_masters = not run.full or args.deepspeed or args.fsdp or args.use_cpu
    return None if has_masters or args.torch_dtype not in (None, "bfloat16") or rate >= 1e-5 else (rate,)


fault(
    "bf16-without-masters",
    WARNING,
    _rounded_away,
    "full training of bf16 weights at lr {:g} rounds most updates away",
    "--torch_dtype",
    "--deepspeed ext_zero2 (fp32 masters), or --torch_dtype float32 --bf16 true",
    symptoms="reward does not move although loss and grad_norm look fine",
    cause="A bf16 weight moves only by 1/256 of itself; without DeepSpeed there is no fp32 copy "
    "that sums smaller steps. At lr 1e-6 1.9 % of the parameters moved per step, in fp32 "
    "99.9 %.",
    reports=("A8", "B2"),
)
fault(
    "fp16-overflows",
    WARNING,
    lambda run: run.arguments.torch_dtype == "float16" or run.arguments.fp16,
    "float16 overflows in these models",
    "--torch_dtype float16",
    "--torch_dtype bfloat16",
    symptoms=("completions are only !!!!!!!!", "loss is NaN in float16"),
    cause="Activations of these models were trained in bfloat16 and exceed float16's range; fp16 "
    "cures none of the crashes that it is advised for.",
    reports="A5",
)
