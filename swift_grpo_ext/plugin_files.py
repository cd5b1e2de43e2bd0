"""Where the files for ``--external_plugins`` lie: beside the package in a checkout, inside it in a wheel."""

from pathlib import Path

from swift_grpo_ext.errors import SwiftGrpoExtError
from swift_grpo_ext.parts import check_part_names

_PACKAGE = Path(__file__).resolve().parent


def plugin_file(part: str = "all") -> Path:
    """Absolute path of a part's plugin file.

    The files of single parts carry the prefix ``ext_``: ms-swift puts their folder first on ``sys.path``,
    where a plain ``rewards.py`` would shadow a user's own module.

    Raises:
        UnknownPartError: There is no such part.
        SwiftGrpoExtError: The installation lacks the file.
    """
    if part != "all":
        check_part_names([part])
    name = "all.py" if part == "all" else f"ext_{part}.py"
    folders = (_PACKAGE / "plugins", _PACKAGE.parent / "plugins")
    for folder in folders:
        if (folder / name).is_file():
            return folder / name
    raise SwiftGrpoExtError(
        f"plugin file {name} is missing",
        where=", ".join(map(str, folders)),
        fix="reinstall: pip install --force-reinstall --no-deps swift-grpo-ext",
    )
