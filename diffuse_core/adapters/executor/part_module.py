"""A module of one part of a Slice, with weights: one pass of one Session."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from diffuse_core.adapters.executor.skeleton import Plan, cache_keyword

if TYPE_CHECKING:
    from collections.abc import Mapping

    from diffuse_core.domain.slices import Slice


class PartModule:
    """The layers of `part`, sharing the tensors in `weights` (by the whole model's names)."""

    def __init__(
        self,
        plan: Plan,
        part: Slice,
        weights: Mapping[str, torch.Tensor],
        module: Any,
        device: str = "cpu",
    ) -> None:
        own = {local: weights[plan.global_name(local, part)] for local in module.state_dict()}
        module.load_state_dict(own, strict=True, assign=True)
        module.requires_grad_(False)
        module.to(device)
        self.config = module.config
        self._module = module
        self._body = plan.body(module)
        self._last = part.end == plan.layers
        self._device = device
        self._cache_keyword = cache_keyword(module)

    def forward(
        self, rows: torch.Tensor, position: int, cache: Any, *, want_logits: bool
    ) -> torch.Tensor | None:
        """Run rows through the layers and extend `cache`.

        Args:
            rows: token ids (n) for a first part, else hidden states (n, width).
            position: of the first row.
            cache: the Session's, holding the rows before `position`.
            want_logits: also compute the head for the last row.

        Returns:
            Hidden states (n, width) from a part without the last layer; else the fp32 logits
            (vocab) of the last row when they were wanted, or None.
        """
        count = rows.shape[0]
        inputs: dict[str, Any] = {
            ("input_ids" if rows.dim() == 1 else "inputs_embeds"): rows.unsqueeze(0),
            "position_ids": torch.arange(
                position, position + count, device=self._device
            ).unsqueeze(0),
            self._cache_keyword: cache,
            "use_cache": True,
        }
        if not want_logits:
            hidden: torch.Tensor = self._body(**inputs).last_hidden_state[0]
            return None if self._last else hidden
        # As `generate` does it: the head sees the last row only, and its output becomes fp32.
        logits: torch.Tensor = self._module(**inputs, logits_to_keep=1).logits
        return logits[0, -1].to(torch.float32)
