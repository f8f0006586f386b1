"""A pass that fails takes back what was through before, and only its own session is closed."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from diffuse_core.adapters.executor.loader import load_slice
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.model_ports import StageStep
from tests.adapters.executor.tiny import tiny_model
from tests.greedy import GREEDY

if TYPE_CHECKING:
    import pytest
    import torch

SHORT, LONG = Slice(0, 2), Slice(0, 4)


def test_a_part_that_fails_leaves_those_before_it_as_they_are_alone(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    source, _ = tiny_model("llama", 4, hidden_size=64, intermediate_size=96)

    def run(*, fail: bool) -> tuple[Any, ...]:
        executor = load_slice(source, LONG, "fp32", lambda _: None)
        executor.open(b"a", SHORT, 20)
        executor.open(b"b", LONG, 20)
        engine: Any = executor._engine
        whole = engine._outcomes

        def outcomes(part: Slice, *rest: Any) -> list[torch.Tensor | None]:
            if part == LONG:
                raise RuntimeError("can't allocate memory")
            return whole(part, *rest)

        if fail:
            monkeypatch.setattr(engine, "_outcomes", outcomes)
        steps = [
            StageStep(session=b"a", part=SHORT, position=0, tokens=(1, 2, 3, 4, 5)),
            StageStep(session=b"b", part=LONG, position=0, tokens=(1,), chooser=GREEDY),
        ]
        first, second = executor.run(steps)
        again = executor.run([StageStep(session=b"a", part=SHORT, position=5, tokens=(7,))])
        return first, second, again[0]

    well, broken = run(fail=False), run(fail=True)
    assert isinstance(broken[1], Refused)
    assert bytes(broken[0].hidden.data) == bytes(well[0].hidden.data)
    assert bytes(broken[2].hidden.data) == bytes(well[2].hidden.data)
