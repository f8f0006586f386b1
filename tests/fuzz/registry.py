"""The targets: every module of the folder `targets` is one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
NAMES = tuple(sorted(path.stem for path in (HERE / "targets").glob("*.py")))


class Target:
    """One target: what it does with an input, and what to begin with.

    Its module has `target(data)`, which says in a word what became of the input and raises when
    something is wrong; `samples()`, valid inputs by name; and perhaps `WORDS` that mean something.
    """

    def __init__(self, name: str) -> None:
        module = importlib.import_module(f"tests.fuzz.targets.{name}")
        self.name = name
        self.run: Callable[[bytes], str] = module.target
        self.samples: Callable[[], dict[str, bytes]] = module.samples
        self.words: tuple[bytes, ...] = getattr(module, "WORDS", ())
        self.corpus = CORPUS / name

    def inputs(self) -> list[bytes]:
        """The corpus kept in the repository, in the order of the names."""
        return [path.read_bytes() for path in sorted(self.corpus.glob("*"))]

    def write_samples(self) -> int:
        """Write the samples into the corpus, beside what was found there; how many."""
        self.corpus.mkdir(parents=True, exist_ok=True)
        samples = self.samples()
        for name, data in samples.items():
            (self.corpus / name).write_bytes(data)
        return len(samples)
