"""A tiny random llama in a directory: weights, a tokenizer of words, a template, end ids."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import torch
from tokenizers import AddedToken, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from transformers import LlamaConfig, LlamaForCausalLM

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

LAYERS = 10
CONTEXT = 128
WORDS = 96
BEGIN, END = WORDS, WORDS + 1
VOCAB = WORDS + 2
TEMPLATE = (
    "{% for m in messages %}<|begin|> {{ m.content }} <|end|> {% endfor %}"
    "{% if add_generation_prompt %}<|begin|>{% endif %}"
)


def words(count: int, salt: int = 0) -> str:
    """A prompt of `count` words: as many tokens."""
    return " ".join(f"w{token}" for token in ids(count, salt))


def ids(count: int, salt: int = 0) -> tuple[int, ...]:
    """The token ids of `words`: scattered, without a generator."""
    return tuple((37 * i * i + 11 * count + 53 * salt) % WORDS for i in range(count))


@dataclass
class TinyModel:
    """Where the model lies, and the reference: `transformers` on the same files."""

    path: Path
    reference: LlamaForCausalLM
    stop_ids: tuple[int, ...]
    _known: dict[tuple[tuple[int, ...], int, bool], tuple[int, ...]] = field(default_factory=dict)

    def says(
        self, prompt: Sequence[int], count: int, *, ignore_eos: bool = False
    ) -> tuple[int, ...]:
        """What `generate` gives, greedily, the end id included."""
        key = (tuple(prompt), count, ignore_eos)
        if key not in self._known:
            given = torch.tensor([list(prompt)])
            with torch.inference_mode():
                out = self.reference.generate(
                    given,
                    attention_mask=torch.ones_like(given),
                    max_new_tokens=count,
                    do_sample=False,
                    pad_token_id=0,
                    eos_token_id=None if ignore_eos else list(self.stop_ids),
                )
            self._known[key] = tuple(out[0, len(prompt) :].tolist())
        return self._known[key]


def make_tiny_model(directory: Path, context: int = CONTEXT) -> TinyModel:
    """Write the model; its end ids are that of the tokenizer and one that it really says."""
    torch.manual_seed(1)
    config = LlamaConfig(
        vocab_size=VOCAB,
        hidden_size=32,
        intermediate_size=48,
        num_hidden_layers=LAYERS,
        num_attention_heads=4,
        num_key_value_heads=2,
        max_position_embeddings=context,
        # Wide enough that the logits of random weights differ clearly.
        initializer_range=0.3,
        bos_token_id=None,
        eos_token_id=None,
        pad_token_id=None,
        attn_implementation="sdpa",
    )
    model = LlamaForCausalLM(config).eval()
    model.generation_config.eos_token_id = None
    model.save_pretrained(directory)
    tiny = TinyModel(directory, model, (END,))
    tiny.stop_ids = (END, spoken_end(tiny))
    tiny._known.clear()
    settings = {"eos_token_id": list(tiny.stop_ids[1:])}
    (directory / "generation_config.json").write_text(json.dumps(settings))
    write_tokenizer(directory)
    return tiny


def spoken_end(tiny: TinyModel) -> int:
    """A word that the answer to some prompt reaches after a few others."""
    said = tiny.says(ids(5), 24, ignore_eos=True)
    return next(token for at, token in enumerate(said) if at >= 6 and token not in said[:at])


def write_tokenizer(directory: Path) -> None:
    """Words w0, w1, ... and two special tokens."""
    tokenizer = Tokenizer(
        WordLevel({f"w{number}": number for number in range(WORDS)}, unk_token="w0")
    )
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.add_special_tokens(
        [AddedToken(text, special=True) for text in ("<|begin|>", "<|end|>")]
    )
    assert tokenizer.token_to_id("<|end|>") == END
    tokenizer.save(str(directory / "tokenizer.json"))
    settings = {"eos_token": "<|end|>", "chat_template": TEMPLATE}
    (directory / "tokenizer_config.json").write_text(json.dumps(settings))
