"""Where the files for ``--external_plugins`` lie: beside the package in a checkout, inside it in a wheel."""

import sys
from pathlib import Path

from swift_grpo_ext.errors import EnvironmentMismatchError
from swift_grpo_ext.folders import PACKAGE, shipped
from swift_grpo_ext.parts import PARTS, check_part_names

_FOLDERS = (PACKAGE / "plugins", PACKAGE.parent / "plugins")


def plugin_file(part: str = "all") -> Path:
    """Absolute path of a part's plugin file.

    The files of single parts carry the prefix ``ext_``: ms-swift puts their folder first on ``sys.path``,
    where a plain ``rewards.py`` would shadow a user's own module.

    Raises:
        UnknownPartError: The package has no such part.
        EnvironmentMismatchError: The installation lacks the file.
    """
    if part != "all":
        check_part_names([part])
    return shipped(f"plugins/{_file_name(part)}")


def is_plugin_file(path: str | Path) -> bool:
    """True for a plugin file of this package, in any copy of the package::

    assert is_plugin_file("/usr/lib/python3/site-packages/swift_grpo_ext/plugins/all.py")
    assert not is_plugin_file("plugins/my_reward.py")
    """
    file = Path(path).expanduser().resolve()
    beside = file.parent.parent
    ours = beside.name == PACKAGE.name or (beside / PACKAGE.name / "plugin_files.py").is_file()
    return ours and file.parent.name == "plugins" and file.name in map(_file_name, ("all", *PARTS))


def check_one_copy() -> None:
    """Check that the plugin files that ms-swift has imported are those of the package that runs.

    Raises:
        EnvironmentMismatchError: One of them belongs to another copy, whose code would not run.
    """
    for name, module in list(sys.modules.items()):
        file = getattr(module, "__file__", None) if name.startswith("_swift_external_") else None
        if file and is_plugin_file(file) and Path(file).resolve().parent not in _FOLDERS:
            raise EnvironmentMismatchError(
                f"two copies of swift-grpo-ext: the plugin file {file} would run the code of {PACKAGE}",
                where="--external_plugins",
                fix='--external_plugins "$(swift-grpo-ext path)", or uninstall one of them',
            )


def _file_name(part: str) -> str:
    return "all.py" if part == "all" else f"ext_{part}.py"
