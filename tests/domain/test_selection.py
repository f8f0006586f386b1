"""Which model a name means, and under which name a model of the network can be got."""

from __future__ import annotations

import msgspec
import pytest
from domain_samples import MODEL, member

from diffuse_core.domain.observe import network_view
from diffuse_core.domain.selection import fetch_name, find_model, require_servable
from diffuse_core.errors import ModelIncomplete, ModelUnknown


@pytest.mark.parametrize(
    ("model_id", "name"),
    [
        ("smollm2-135m-instruct", "demo"),
        ("HuggingFaceTB/SmolLM2-1.7B-Instruct", "HuggingFaceTB/SmolLM2-1.7B-Instruct"),
        ("gpt2", "gpt2"),
        ("a/b/c", None),
        ("/etc/passwd", None),
        ("../x", None),
        ("a/..", None),
        ("~/x", None),
        ("a b", None),
        ("org/name@v1", None),
        ("org/name\n", None),
        ("", None),
        ("x.gguf", None),
        ("org/X.GGUF", None),
        ("org/model.safetensors", None),
        ("auto", None),
        ("demo", None),
        ("org/a--b", None),
        ("org/a.", None),
        ("org-/a", None),
        ("o" * 97, None),
    ],
)
def test_names_that_anybody_can_use(model_id: str, name: str | None) -> None:
    assert fetch_name(model_id) == name


def test_of_several_the_one_that_can_be_served_is_meant() -> None:
    other = msgspec.structs.replace(MODEL, contract="int8", fingerprint="c" * 64)
    members = [member(1, 0, 30), member(2, 0, 5, model=other), member(3, 0, 6, model=other)]
    view = network_view(members, None, 0.0, 0.0, 2)
    assert require_servable(find_model(view, "SMOL")).contract == "bf16"
    lacking = find_model(view, "smol@cc")
    assert lacking.contract == "int8"
    with pytest.raises(ModelIncomplete, match="layers 6:30 of 30 are held by no live node"):
        require_servable(lacking)
    with pytest.raises(ModelUnknown, match="models on this network: smol"):
        find_model(view, "smol@dd")
    with pytest.raises(ModelUnknown, match="none yet"):
        find_model(network_view([], None, 0.0, 0.0, 2), "demo")
