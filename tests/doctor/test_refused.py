"""What ms-swift's own argument classes refuse, in our rows and by their own methods."""

import ast
import importlib.metadata
import logging
import types
from pathlib import Path

import pytest
import yaml

from swift_grpo_ext.doctor.check import inputs
from swift_grpo_ext.doctor.check.host_table import folder
from swift_grpo_ext.doctor.check.rules import table

RULES = ("host-refuses", "liger-refuses", "teacher-refuses", "megatron-refuses")
CHECKS = """
    _process_loss_type _init_grpo _set_default _init_lazy_tokenize _handle_hf_removed_args _check_padding_free
    _check_sequence_parallel _check_teacher _check_grpo _check_opd_rl _check_rlsd _check_sdar
    get_quantization_config
    """
TEACHER = "--teacher_model some/teacher"
RLSD = "--advantage_reweight rlsd"
REFUSED = f"""
    --cached_dataset a
    --cached_val_dataset a
    --lazy_tokenize true --packing true --attn_impl flash_attn
    --lazy_tokenize true --streaming true
    --warmup_ratio 0.1 --warmup_steps 5
    --warmup_ratio 1
    --async_generate true --multi_turn_scheduler math_tip_trick
    --loss_weights 1 --loss_type grpo
    --loss_type grpo bnpo
    --quant_method bnb
    --quant_method eetq
    --quant_method bnb --quant_bits 3
    --quant_method quanto --quant_bits 3
    --use_liger_kernel true --delta 2
    --use_liger_kernel true --sequence_parallel_size 2
    --use_liger_kernel true --padding_free true --attn_impl flash_attn
    --use_liger_kernel true --packing true --attn_impl flash_attn
    --use_liger_kernel true --top_entropy_quantile 0.2
    --use_liger_kernel true --log_entropy true
    --use_liger_kernel true --off_policy_sequence_mask_delta 1
    --use_liger_kernel true --importance_sampling_level sequence_token
    --use_liger_kernel true --advantage_estimator rloo
    {TEACHER} --teacher_model_server http://10.0.0.1:8000
    {TEACHER} --use_liger_kernel true
    {TEACHER} --loss_type real --num_generations 1
    --teacher_model_server http://10.0.0.1:8000 --loss_type fipo
    {TEACHER} --off_policy_sequence_mask_delta 1
    {TEACHER} --dynamic_sample true
    {TEACHER} --scale_rewards gdpo
    {RLSD} --reward_funcs format --rlsd_lambda 2
    {RLSD} --reward_funcs format --rlsd_lambda -1
    {RLSD} --reward_funcs format --rlsd_reweight_clip_range -1
    {RLSD}
    {RLSD} --reward_funcs format --use_liger_kernel true
    {RLSD} --reward_funcs format --loss_type real --num_generations 1
    {RLSD} --reward_funcs format --off_policy_sequence_mask_delta 1
    {RLSD} --reward_funcs format --teacher_model_server http://10.0.0.1:8000
    --sdar_loss_coef 1 --sdar_gate_beta 0
    --sdar_loss_coef 1 --use_liger_kernel true
    --sdar_loss_coef 1 {RLSD} --reward_funcs format
    --sdar_loss_coef 1 --teacher_model_server http://10.0.0.1:8000
    """
OF_MEGATRON = f"""
    --async_generate true
    --sync_ref_model true
    --num_iterations 2
    {TEACHER} --teacher_model_server http://10.0.0.1:8000
    --use_ray true --teacher_model_server http://10.0.0.1:8000
    --truncation_strategy right
    --reward_funcs soft_overlong
    --use_vllm false
    --loss_type real --micro_batch_size 4
    """


def found(words, *more):
    """The run of some words, and what our rows say to it, without what is ours in it."""
    run = inputs.run_of(["--rlhf_type", "grpo", *more, *words.split()], environ={})
    rules = [one for one in table.judged(run) if one.rule in RULES or one.rule == "real-cuts-groups"]
    return run, [one.what.removeprefix("ms-swift refuses it: ") for one in rules]


def raised(arguments, methods):
    """What the methods of an object of ms-swift raise."""
    for method in methods:
        try:
            method(arguments)
        except (ValueError, NotImplementedError, AssertionError) as error:
            yield f"{type(error).__name__}: {error}"
        except AttributeError:  # of a model that is not loaded
            continue


def said_by_both(ours, theirs):
    """The beginning of a message, up to what ms-swift explains in brackets."""
    return [
        one for one in ours if any(other.startswith(one.partition(" (")[0].rstrip(".")) for other in theirs)
    ]


def lines(text):
    return [line.strip() for line in text.strip().splitlines()]


@pytest.fixture
def own_methods(monkeypatch):
    """ms-swift's own checks of a run's arguments. It asks for Liger's release first, which is not installed."""
    from swift.arguments import RLHFArguments

    real = importlib.metadata.version
    monkeypatch.setattr(
        importlib.metadata, "version", lambda name: "0.7.0" if "liger" in name else real(name)
    )

    def ask(run):
        arguments = object.__new__(RLHFArguments)
        vars(arguments).update(run.arguments.values, model_meta=None)
        return list(raised(arguments, [getattr(RLHFArguments, name) for name in CHECKS.split()]))

    return ask


@pytest.mark.parametrize("words", lines(REFUSED))
def test_ms_swift_refuses_it_with_the_same_words(words, own_methods):
    run, ours = found(words)
    assert said_by_both(ours, own_methods(run)) == ours != []


@pytest.mark.parametrize("words", lines(OF_MEGATRON))
def test_megatron_refuses_it_with_the_same_words(words):
    """Its class cannot be imported without megatron-core; its methods can be made from its source."""
    source = (folder() / "megatron/arguments/megatron_args.py").read_text(encoding="utf-8")
    classes = [node for node in ast.parse(source).body if isinstance(node, ast.ClassDef)]
    own = next(node for node in classes if node.name == "RLHFMegatronArgumentsMixin")
    wanted = [node for node in own.body if getattr(node, "name", "") in ("_check_teacher", "_init_grpo")]
    names = {"logger": logging.getLogger("megatron"), "Optional": None, "List": list}
    exec(compile(ast.Module(wanted, []), "megatron_args.py", "exec"), names)
    more = () if "--use_vllm" in words else ("--use_vllm", "true")
    run, ours = found(words, "--tensor_model_parallel_size", "1", "--reward_funcs", "format", *more)
    arguments = types.SimpleNamespace(**run.arguments.values, _init_generation_batch_params=lambda: None)
    theirs = list(raised(arguments, [names["_check_teacher"], names["_init_grpo"]]))
    assert theirs
    assert ours
    assert said_by_both(ours, theirs) or "REAL" in theirs[0]


def test_every_row_has_its_command():
    rows = {row["what"][:70] for rule in RULES for row in table.texts[rule]["finds"]}
    said = {one for words in lines(REFUSED) for one in found(words)[1]}
    said |= {
        one for words in lines(OF_MEGATRON) for one in found(words, "--tensor_model_parallel_size", "1")[1]
    }
    missed = [
        row
        for row in rows
        if not any(
            one.startswith(row.removeprefix("ms-swift refuses it: ").partition("{")[0]) for one in said
        )
    ]
    assert missed == []


def test_ms_swift_refuses_no_setting_that_runs(own_methods):
    launches = yaml.safe_load(Path(__file__).with_name("launches.yaml").read_text(encoding="utf-8"))
    for text in (*launches["settings"].values(), *launches["warned"].values()):
        assert own_methods(found(text)[0]) == found(text)[1] == [], text
