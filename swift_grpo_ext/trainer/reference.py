"""The reference is the policy at its start: a copy of what trains, or a second model of its checkpoint."""

from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager, nullcontext
from pathlib import Path

import torch
from jaxtyping import Shaped
from peft import PeftModel
from peft.tuners.tuners_utils import BaseTunerLayer
from peft.utils.other import AuxiliaryTrainingWrapper
from safetensors.torch import load_file, save_file
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from swift_grpo_ext.errors import RefusedError
from swift_grpo_ext.ms_swift.shared import get_logger
from swift_grpo_ext.trainer.host import Host, base_model, unwrapped
from swift_grpo_ext.trainer.noise import noise_in, noise_of_run

HALF, FULL = 1e-2, 1e-4
"""Largest kl of rounding alone, nats a token: of two forwards of the same weights in 16 and in 32 bits."""
Values = dict[str, Shaped[Tensor, "..."]]
"""Tensors by the names of their parameters."""
START = Path("reference", "start.safetensors")
"""In a checkpoint, the copy; in a folder of its own, for engines load every such file beside the model's."""
_OTHER_BASE = ("pissa", "olora", "corda", "loftq", "lora_ga")
"""Ways to start LoRA that change the weights below it, too."""


def why_no_copy(host: Host) -> str:
    """Reason why the reference needs no copy of what trains, in a clause; empty if it does."""
    if not host.beta:
        return "beta is 0"
    if host.ref_model is not None:
        return "the reference is a model of its own"
    if host.ref_adapter_name:
        return "the reference has adapters of its own"
    if starts_with_adapters_off(unwrapped(host.model)):
        return "with its adapters off the policy is as it started"
    return ""


def starts_with_adapters_off(model: nn.Module) -> bool:
    """True if a policy with PEFT's adapters off, which is ms-swift's reference, is as it started.

    With ``lora_llm`` the vision tower has been trained; tuners of ms-swift (``adapter``, ``llamapro``)
    are not off at all, so that the kl is 0 in every step.
    """
    if not isinstance(model, PeftModel):
        return False
    starts = (str(getattr(config, "init_lora_weights", "")) for config in model.peft_config.values())
    if any(start.startswith(_OTHER_BASE) for start in starts):
        return False
    adapters = {
        id(parameter)
        for path, module in model.named_modules()
        if isinstance(module, (BaseTunerLayer, AuxiliaryTrainingWrapper)) or path == "prompt_encoder"
        for name, parameter in module.named_parameters()
        if not name.startswith(("base_layer.", "original_module."))
    }
    return all(id(parameter) in adapters for parameter in model.parameters() if parameter.requires_grad)


class Reference:
    """The policy at its start, in a run without a second model: what trains, adapters included, is copied."""

    def __init__(self, host: Host) -> None:
        self._host = host
        self._values: Values = {}  # of the start, by parameter; none before the first pass

    @contextmanager
    def standing_in(self) -> Iterator[None]:
        """While this is open, the policy is as it started; then as it is, to the last bit. On every rank."""
        model = unwrapped(self._host.model)
        _divide_again(model)
        trained = {name: parameter for name, parameter in model.named_parameters() if parameter.requires_grad}
        if not self._values:  # models are in their wrappers, and no update has been made
            self._values = self._begun(exchanged(trained, {}))
        now = exchanged(trained, self._values)
        try:
            yield
        finally:
            _divide_again(model)
            exchanged(trained, now)

    def _begun(self, values: Values) -> Values:
        """The values of the start, by those with which the trainer begins."""
        args = self._host.args
        if not args.resume_from_checkpoint or args.resume_only_model:
            return values
        saved = Path(args.resume_from_checkpoint) / START
        if saved.is_file():
            return load_file(saved)
        get_logger().warning(f"swift-grpo-ext: kl is to the weights of the checkpoint, without its {START}")
        return values

    def save(self, checkpoint: Path) -> None:
        """Save the copy, if any, in a checkpoint; not under FSDP, where no rank has it whole."""
        host = self._host
        if self._values and host.accelerator.is_main_process and not host.is_fsdp_enabled:
            path = checkpoint / START
            path.parent.mkdir(exist_ok=True)
            save_file(self._values, path)


def _divide_again(model: nn.Module) -> None:
    """Free whole parameters that FSDP2 keeps after a forward: the next one would use them unchanged."""
    for module in model.modules():
        if isinstance(module, FSDPModule):
            module.reshard()


@torch.no_grad()
def exchanged(parameters: Mapping[str, nn.Parameter], values: Values) -> Values:
    """Copy values into the parameters that they name; returns all former values. On every rank."""
    divided = [parameter for parameter in parameters.values() if hasattr(parameter, "ds_id")]
    with _gathered(divided) if divided else nullcontext():
        before = {name: parameter.detach().clone() for name, parameter in parameters.items()}
        for name, value in values.items():
            parameters[name].copy_(value)
    return before


def _gathered(divided: list[nn.Parameter]) -> AbstractContextManager[None]:
    """While this is open, parameters that ZeRO-3 divides are whole, and may be written to."""
    from deepspeed.runtime.zero import GatheredParameters  # imports what this process may lack

    whole: AbstractContextManager[None] = GatheredParameters(divided, modifier_rank=0)
    return whole


def starts_as_policy(host: Host) -> bool:
    """True before the first update of a policy whose reference model is loaded from the same checkpoint."""
    if host.ref_model is None or host.args.resume_from_checkpoint or host.state.global_step:
        return False
    policy, reference = (
        getattr(base_model(host, model), "model_info", None) for model in (host.model, host.ref_model)
    )
    return bool(policy and reference and policy.model_dir == reference.model_dir)


def require_equal_start(host: Host, kl: float) -> None:
    """Check the kl of the first step, a mean over the tokens of all ranks in nats.

    Where the policy's own noise (NEFTune, dropout) explains it, that is logged.

    Raises:
        RefusedError: It is not 0, and nothing explains it; on every rank, for all have the same mean.
    """
    limit = HALF if host.args.bf16 or host.args.fp16 else FULL
    if not starts_as_policy(host) or abs(kl) <= limit:
        return
    if noise := noise_in(host.model) or noise_of_run(host.args, base_model(host, host.model)):
        get_logger().warning_once(
            f"swift-grpo-ext: kl of the first step is {kl:.2g}: the reference is the policy without its "
            f"noise ({noise})",
            hash_id=f"kl {host.args.output_dir}",
        )
        return
    raise RefusedError(
        f"kl of the first step is {kl:.2g} nats a token and must be 0: the reference model has other weights "
        "than the policy, though both are one checkpoint",
        where="--beta, before the first update",
        fix="if a rank loads no weights and none are handed to it, turn off cpu_ram_efficient_loading "
        "(--fsdp, FSDP_CPU_RAM_EFFICIENT_LOADING)",
    )
