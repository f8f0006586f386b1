"""Prints how far each contract's next-token distributions are from fp32's, on a fixed text.

    python tests/bench/quality.py [MODEL]

MODEL is a GGUF path, a directory or a hub id of a llama-like model; the demo model when left out.
Teacher-forced, one row a pass as when decoding. "From numbers" is with codes made here, as for
files that have none.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from diffuse_core.adapters.executor.loader import set_threads
from diffuse_core.wiring import model_store
from tests.adapters.executor.lean.quality import measured


def main() -> None:
    """Measure and print."""
    model = sys.argv[1] if len(sys.argv) > 1 else "demo"
    set_threads(os.cpu_count() or 1)
    source = model_store().open(model, lambda _fraction: None)
    found = measured(source, ("bf16", "int8", "int4"), from_numbers=("int8",))
    print(f"{source.id} against its fp32:")
    for name, quality in found.items():
        print(f"{name:18}{quality}")


if __name__ == "__main__":
    main()
