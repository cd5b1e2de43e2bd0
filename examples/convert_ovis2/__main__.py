"""``python -m examples.convert_ovis2 SOURCE TARGET``: prints the folder that was written.

The exit code is 2 for wrong arguments, and 1 for a checkpoint or a folder that will not do, said in one line.
"""

import argparse
import sys

from examples.convert_ovis2.checkpoint import convert_checkpoint
from swift_grpo_ext.errors import SwiftGrpoExtError


def main() -> None:
    """Read the two folders and convert."""
    parser = argparse.ArgumentParser(prog="python -m examples.convert_ovis2")
    parser.add_argument("source", help="folder of an original AIDC-AI/Ovis2 checkpoint")
    parser.add_argument("target", help="folder to write; missing or empty")
    given = parser.parse_args()
    try:
        print(convert_checkpoint(given.source, given.target))
    except SwiftGrpoExtError as error:
        sys.exit(str(error))


if __name__ == "__main__":
    main()
