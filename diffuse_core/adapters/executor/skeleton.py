"""An architecture's own module, cut to a Slice, without its weights.

The module is the one of `transformers`, built whole (parameters are on the meta device and take
no memory) and then cut: layers outside the Slice go, what runs before the first and after the
last layer is made neutral. The arithmetic is the library's own, and what depends on a layer's
number is the whole model's.
"""

from __future__ import annotations

import inspect
import re
from operator import attrgetter
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub.errors import StrictDataclassError
from torch import nn
from transformers import AutoModelForCausalLM
from transformers.models.auto.configuration_auto import CONFIG_MAPPING

from diffuse_core.adapters.executor.architectures import Neutral, architecture_of
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Container, Mapping

    from diffuse_core.domain.slices import Slice

DEFAULT_CONTEXT = 2048
"""Positions of a model that sets itself no end (ALiBi)."""

ROPE_TYPES = ("default", "linear", "llama3", "yarn")
"""Rotary scalings that depend on the position alone (others keep state between passes)."""

CONTRADICTIONS = (
    ArithmeticError,
    ValueError,
    KeyError,
    TypeError,
    RuntimeError,
    StrictDataclassError,
)
"""What the library raises over settings that do not fit together."""
# Head and embedding are placed by hand: a slice may hold one without the other. Special tokens
# matter to nobody here, and a padding id beyond the vocabulary would be refused.
_FIXED = {
    "tie_word_embeddings": False,
    "use_cache": True,
    "bos_token_id": None,
    "eos_token_id": None,
    "pad_token_id": None,
}


class Plan:
    """A model's configuration, from which modules for any part of it are built."""

    def __init__(self, config: Mapping[str, object]) -> None:
        """Check the configuration.

        Raises:
            ModelUnusable: an architecture that is not proven, or settings that contradict.
        """
        settings = dict(config)
        self.kind = str(settings.pop("model_type", None))
        self.architecture = architecture_of(config.get("model_type"))
        self._class: Any = CONFIG_MAPPING[self.kind]
        # Left out, it is what the architecture's own configuration says.
        usual = getattr(self._class(), "tie_word_embeddings", False)
        self.tied = bool(settings.pop("tie_word_embeddings", usual))
        self._settings = settings
        whole = self._configuration()
        self.layers: int = whole.num_hidden_layers
        self.hidden: int = whole.hidden_size
        self.vocab: int = whole.vocab_size
        self.context: int = getattr(whole, "max_position_embeddings", DEFAULT_CONTEXT)
        self._layer = re.compile(
            rf"{re.escape(f'{self.architecture.body}.{self.architecture.layers}')}\.(\d+)\.(.+)"
        )

    def build(self, part: Slice, dtype: torch.dtype) -> nn.Module:
        """The module of `part`: a …ForCausalLM without what the part does not hold.

        A part without the first layer has no embedding, one without the last has an identity
        for the final norm and no head. Tables that follow from the settings are real, what
        weights must fill is on "meta".

        Raises:
            ModelUnusable: the settings contradict each other.
        """
        build: Any = AutoModelForCausalLM.from_config
        try:
            with torch.device("meta"):
                model = build(self._configuration(), trust_remote_code=False, dtype=dtype)
            self._cut(model, part)
            _fill_tables(model)
        except CONTRADICTIONS as error:
            raise ModelUnusable(f"the model's settings contradict each other: {error}") from error
        module: nn.Module = model.eval().requires_grad_(False)
        return module

    def body(self, module: Any) -> Any:
        """The part of a built module that runs the layers."""
        return attrgetter(self.architecture.body)(module)

    def global_name(self, local: str, part: Slice) -> str:
        """The whole model's name of a parameter of the module of `part`."""
        match = self._layer.fullmatch(local)
        if match is None:
            return local
        layers = f"{self.architecture.body}.{self.architecture.layers}"
        return f"{layers}.{int(match[1]) + part.start}.{match[2]}"

    def stored_name(self, name: str, names: Container[str]) -> str:
        """Where a parameter's numbers are: with tied weights the head's are the embedding's."""
        known = self.architecture
        if name == known.head_name and self.tied and name not in names:
            return known.embedding_name
        return name

    def layer_of(self, name: str) -> int | None:
        """The layer that a parameter of the whole model belongs to."""
        match = self._layer.fullmatch(name)
        return int(match[1]) if match else None

    def _cut(self, model: Any, part: Slice) -> None:
        known = self.architecture
        body = self.body(model)
        layers = getattr(body, known.layers)[part.start : part.end]
        setattr(body, known.layers, layers)
        for module in layers.modules():
            # It is the index into the cache, which has the part's layers only.
            if getattr(module, "layer_idx", None) is not None:
                module.layer_idx -= part.start
        config = model.config
        for name in known.per_layer:
            kinds = getattr(config, name, None)
            if kinds is not None:
                setattr(config, name, list(kinds[part.start : part.end]))
        config.num_hidden_layers = len(part)
        if part.start > 0:
            setattr(body, known.embedding, None)
            _neutralise(body, known.before)
        if part.end < self.layers:
            setattr(body, known.norm, nn.Identity())
            _neutralise(body, known.after)
            setattr(model, known.head, None)

    def _configuration(self) -> Any:
        try:
            config = self._class(**{**self._settings, **_FIXED})
        except CONTRADICTIONS as error:
            raise ModelUnusable(f"the model's settings contradict each other: {error}") from error
        _check_rope(getattr(config, "rope_parameters", None))
        return config


class _Zero(nn.Module):
    """Stands for a table of positions where these were added already."""

    def forward(self, *_: object, **__: object) -> torch.Tensor:
        return torch.zeros(())


def _neutralise(body: Any, parts: Mapping[str, Neutral]) -> None:
    for name, neutral in parts.items():
        # Only what is there: a name that the library gave up must not pass for neutralised.
        if not hasattr(body, name):
            raise ModelUnusable(
                f"this version of transformers has no {name} in {type(body).__name__}; "
                "install the version that Diffuse asks for"
            )
        value: object = None
        if neutral == "unchanged":
            value = nn.Identity()
        elif neutral == "zero":
            value = _Zero()
        elif neutral == "one":
            value = 1.0
        setattr(body, name, value)


def _fill_tables(model: Any) -> None:
    """Give tables that no file has (rotary frequencies, scales) their memory and numbers."""
    with torch.no_grad():
        for module in model.modules():
            own = module._non_persistent_buffers_set
            tables = [name for name in own if _is_meta(module, name)]
            for name in tables:
                empty = torch.empty_like(getattr(module, name), device="cpu")
                setattr(module, name, empty.fill_(float("nan")))
            if tables:
                # As `from_pretrained` does it: the architecture's own way of making them.
                model._init_weights(module)
            for name in tables:
                if not bool(torch.isfinite(getattr(module, name)).all()):
                    raise ModelUnusable(f"the table {name} of this architecture cannot be made")


def _is_meta(module: nn.Module, name: str) -> bool:
    table = getattr(module, name)
    return isinstance(table, torch.Tensor) and table.is_meta


def _check_rope(settings: object) -> None:
    if not isinstance(settings, dict):
        return
    kind = settings.get("rope_type", "default")
    if kind not in ROPE_TYPES:
        raise ModelUnusable(
            f"rotary positions of kind {str(kind)[:60]!r} depend on how long the text grows; "
            f"that is not proven to give the same text in slices. Supported are "
            f"{', '.join(ROPE_TYPES)}"
        )
    for nested in settings.values():
        _check_rope(nested)


def cache_keyword(module: nn.Module) -> str:
    """What this version of `transformers` calls the cache (renamed in 5.24)."""
    parameters = inspect.signature(module.forward).parameters
    return "cache" if "cache" in parameters else "past_key_values"
