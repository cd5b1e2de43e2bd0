"""F44: ``args.json`` names plugin files by their path on the machine that trained.

It is saved with each checkpoint, and ``swift infer``, ``export`` and ``deploy`` import the files it names. So
ours are left out. Where a template of ours is needed, a sentence takes their place: ms-swift prints it as the
file that it cannot import.
"""

from collections.abc import Callable, Sequence
from typing import Any

from swift_grpo_ext.compat.patch import in_source, patch
from swift_grpo_ext.plugin_files import is_plugin_file
from swift_grpo_ext.swap import swapped

NEEDED = (
    "template {template} comes with swift-grpo-ext: pip install it, and add "
    '--external_plugins "$(swift-grpo-ext path)"'
)


@patch(
    "F44",
    "swift.arguments.base_args.base_args:BaseArguments.save_args",
    fingerprint="self, output_dir=",
    probe=lambda: in_source(
        "swift.arguments.base_args.base_args:BaseArguments.load_args_from_ckpt", "'external_plugins'"
    ),
    remove_when="ms-swift no longer takes plugin files from args.json",
)
def fix(save: Callable[..., None], args: Any, output_dir: str | None = None) -> None:
    """Save the arguments of a run without our plugin files."""
    plugins = without_ours(args.external_plugins, args.template)
    # ms-swift 3's name for the same; ms-swift has already added its files to external_plugins.
    older = [file for file in args.custom_register_path if not is_plugin_file(file)]
    with swapped(args, "external_plugins", plugins), swapped(args, "custom_register_path", older):
        save(args, output_dir)


def without_ours(plugins: Sequence[str], template: str | None) -> list[str]:
    """A run's plugin files without ours; a sentence replaces them if the template exists only in ours."""
    from swift.template import TEMPLATE_MAPPING, TemplateType

    others = [file for file in plugins if not is_plugin_file(file)]
    of_ms_swift = [getattr(TemplateType, name) for name in dir(TemplateType)]
    meta = TEMPLATE_MAPPING.get(template)
    if len(others) == len(plugins) or meta is None or template in of_ms_swift:
        return others
    ours = meta.template_cls.__module__.startswith("swift_grpo_ext.")
    return [NEEDED.format(template=template), *others] if ours else others
