"""The library's own model over a source's weights: what the slices are checked against."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from diffuse_core.adapters.executor.reading import read_tensors
from diffuse_core.adapters.executor.skeleton import Plan
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from collections.abc import Sequence

    from diffuse_core.model_ports import Progress, WeightSource


class LibraryModel:
    """A whole model in fp32, computed and decoded by the library alone."""

    def __init__(self, source: WeightSource, progress: Progress, device: str) -> None:
        """Read all weights.

        Raises:
            ModelUnusable: a tensor is missing or has another shape.
        """
        plan = Plan(source.config())
        module: Any = plan.build(Slice(0, plan.layers), torch.float32)
        names = source.names
        places = {name: plan.stored_name(name, names) for name in module.state_dict()}
        wanted = {
            places[name]: (tuple(tensor.shape), tensor.dtype)
            for name, tensor in module.state_dict().items()
        }
        weights = read_tensors(source, wanted, progress, device)
        state = {name: weights[place] for name, place in places.items()}
        module.load_state_dict(state, strict=True, assign=True)
        self._module = module.to(device)
        self._device = device

    @torch.inference_mode()
    def generate(self, prompt: Sequence[int], count: int) -> list[int]:
        """What `generate` says, greedily, past any end."""
        given = torch.tensor([list(prompt)], device=self._device)
        out = self._module.generate(
            given,
            attention_mask=torch.ones_like(given),
            max_new_tokens=count,
            do_sample=False,
            pad_token_id=0,
            eos_token_id=None,
        )
        found: list[int] = out[0, len(prompt) :].tolist()
        return found

    @torch.inference_mode()
    def logits(self, tokens: Sequence[int]) -> torch.Tensor:
        """Logits (n, vocab) of one pass over all `tokens`."""
        given = torch.tensor([list(tokens)], device=self._device)
        found: torch.Tensor = self._module(input_ids=given, use_cache=False).logits[0]
        return found.to(torch.float32).cpu()
