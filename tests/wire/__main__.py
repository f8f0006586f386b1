"""Record what a version writes: `python -m tests.wire record [--old CHECKOUT]`.

What is recorded is frozen: tests hold all later versions to it. Record a version once, when it is
released or just before the messages change:

    git worktree add --detach /tmp/old COMMIT
    python -m tests.wire record --old /tmp/old
"""

from __future__ import annotations

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from tests.wire.checkout import run_tests_module
from tests.wire.conversation import record_conversations
from tests.wire.recording import folder, record


def main() -> int:
    """The command."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.wire",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("what", choices=["record"])
    parser.add_argument("--old", type=Path, help="record the version in this checkout")
    given = parser.parse_args()
    if given.old is not None:
        return run_tests_module(given.old, "tests.wire", "record")
    try:
        record(folder())
    except FileExistsError:
        print(f"{folder()} is there already and stays as it is", file=sys.stderr)  # noqa: T201
        return 1
    with tempfile.TemporaryDirectory() as place:
        made = Path(place) / "conversations.json"
        record_conversations(made)
        shutil.copy(made, folder())
    print(f"recorded in {folder()}")  # noqa: T201
    return 0


if __name__ == "__main__":
    sys.exit(main())
