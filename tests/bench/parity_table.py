"""Prints, for every architecture, in how many ways it was cut and whether its text stayed.

    python tests/bench/parity_table.py [MODEL_TYPE ...]

Tiny random models; logits of every pass compared bit for bit in fp32 with the uncut executor,
tokens with those of `transformers`. Ends with status 1 when anything differs.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

import torch
from transformers import __version__ as library
from transformers.utils import logging

from tests.adapters.executor.cases import CASES
from tests.adapters.executor.parity import (
    CHUNKS,
    CROP_BY,
    PROMPT,
    STEPS,
    Cutter,
    cuts,
    generated,
    play,
    same,
    strays,
)
from tests.adapters.executor.tiny import tiny_model

LAYERS = 6


def row(kind: str) -> tuple[str, bool]:
    """One line, and whether all is equal."""
    started = time.perf_counter()
    passes = tried = 0
    farthest = 0.0
    wrong: list[str] = []
    for word, settings in CASES[kind].items():
        source, model = tiny_model(kind, LAYERS, **settings)
        cut = Cutter(source)
        whole = play(cut(0, LAYERS))
        if whole.drawn != generated(model, PROMPT, STEPS):
            wrong.append(f"{word}: tokens")
        farthest = max(farthest, strays(whole, model))
        for borders in cuts(LAYERS):
            tried += 1
            passes += len(whole.logits)
            if not same(whole, play(cut(*borders))):
                wrong.append(f"{word}: {borders}")
    result = "DIFFERS in " + ", ".join(wrong) if wrong else "equal"
    line = (
        f"{kind:12} {len(CASES[kind]):7} {tried:5} {passes:7} {farthest:9.0e} "
        f"{time.perf_counter() - started:6.1f}  {result}"
    )
    return line, not wrong


def main() -> int:
    torch.set_num_threads(1)
    logging.set_verbosity_error()
    print(
        f"transformers {library}, torch {torch.__version__}; {LAYERS} layers, every cut into 2, "
        f"{len(cuts(LAYERS)) - LAYERS + 1} into 3 and 4;\nprompt of {len(PROMPT)} in chunks of "
        f"{CHUNKS}, {STEPS} tokens, {CROP_BY} of them taken back and run again.\n"
        "logits bit-equal to uncut (fp32), tokens equal to transformers' generate; `off` is the\n"
        "largest difference to the library's own logits in one pass, in parts of the largest.\n"
    )
    print(f"{'model_type':12} configs  cuts  passes       off      s  result")
    good = True
    for kind in sys.argv[1:] or CASES:
        line, equal = row(kind)
        good &= equal
        print(line, flush=True)
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
