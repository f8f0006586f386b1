"""The targets: every module of the folder `targets` is one."""

from __future__ import annotations

import importlib
from pathlib import Path
from typing import TYPE_CHECKING

from tests.fuzz.mutation import Mutator
from tests.fuzz.script_mutation import ScriptMutator

if TYPE_CHECKING:
    import random
    from collections.abc import Callable, Sequence

HERE = Path(__file__).parent
CORPUS = HERE / "corpus"
NAMES = tuple(sorted(path.stem for path in (HERE / "targets").glob("*.py")))


class Target:
    """One target: what it does with an input, and what to begin with.

    Its module has `target(data)`, which says in a word what became of the input and raises when
    something is wrong; `samples()`, valid inputs by name; and perhaps `WORDS` that mean something
    to it, and `SCRIPT` when its inputs are scripts.
    """

    def __init__(self, name: str) -> None:
        module = importlib.import_module(f"tests.fuzz.targets.{name}")
        self.name = name
        self.run: Callable[[bytes], str] = module.target
        self.samples: Callable[[], dict[str, bytes]] = module.samples
        self.words: tuple[bytes, ...] = getattr(module, "WORDS", ())
        self._scripted: bool = getattr(module, "SCRIPT", False)
        self.corpus = CORPUS / name

    def mutator(self, rng: random.Random, corpus: Sequence[bytes]) -> Mutator | ScriptMutator:
        """What makes inputs for it out of those of `corpus`, which may grow."""
        return (ScriptMutator if self._scripted else Mutator)(rng, corpus, self.words)

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
