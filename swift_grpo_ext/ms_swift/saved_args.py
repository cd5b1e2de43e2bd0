"""``args.json``, which lies beside each checkpoint and is read by ``swift infer``, ``export`` and ``deploy``.

ms-swift writes the paths of the plugin files that a run was given, and imports them again: on another machine,
or after uninstalling, that is ``AssertionError: py_dir``. So ours are left out. Where a template of ours is
needed, a sentence stands in their place, which ms-swift prints as the file that it cannot import.
"""

import functools
from collections.abc import Sequence
from typing import Any

from swift.arguments import BaseArguments
from swift.template import TEMPLATE_MAPPING, TemplateType

from swift_grpo_ext.plugin_files import is_plugin_file
from swift_grpo_ext.swap import swapped

_NEEDED = (
    "template {template} comes with swift-grpo-ext: pip install it, and add "
    '--external_plugins "$(swift-grpo-ext path)"'
)


def register() -> list[str]:
    """From now on ms-swift saves its arguments without our plugin files."""
    original = BaseArguments.save_args
    if getattr(original, "leaves_plugins_out", False):
        return []

    @functools.wraps(original)
    def save_args(self: Any, output_dir: str | None = None) -> None:
        plugins = without_ours(self.external_plugins, self.template)
        # ms-swift 3's name, whose files ms-swift has put among the others by now.
        older = [file for file in self.custom_register_path if not is_plugin_file(file)]
        with swapped(self, "external_plugins", plugins), swapped(self, "custom_register_path", older):
            original(self, output_dir)

    save_args.leaves_plugins_out = True  # type: ignore[attr-defined]
    BaseArguments.save_args = save_args
    return ["args.json"]


def without_ours(plugins: Sequence[str], template: str | None) -> list[str]:
    """The plugin files of a run but for ours; a sentence in their place where the template is ours alone."""
    others = [file for file in plugins if not is_plugin_file(file)]
    if len(others) == len(plugins) or not template or template in TemplateType.get_template_name_list():
        return others
    meta = TEMPLATE_MAPPING.get(template)
    ours = meta is not None and meta.template_cls.__module__.startswith("swift_grpo_ext.")
    return [_NEEDED.format(template=template), *others] if ours else others
