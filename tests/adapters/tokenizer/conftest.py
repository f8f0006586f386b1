"""A tokenizer like the demo model's, small enough to be trained in a moment."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

from diffuse_core.adapters.tokenizer.bundle_tokenizer import load_tokenizer
from diffuse_core.domain.bundle import Bundle

if TYPE_CHECKING:
    from collections.abc import Callable

TEMPLATE = (
    "{% for message in messages %}"
    "{% if loop.first and messages[0]['role'] != 'system' %}"
    "{{ '<|im_start|>system\nBe helpful.<|im_end|>\n' }}"
    "{% endif %}"
    "{{'<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>' + '\n'}}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)
SPECIAL = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]


def byte_tokenizer() -> Tokenizer:
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=300,
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        special_tokens=SPECIAL,
        show_progress=False,
    )
    tokenizer.train_from_iterator(["user system assistant the capital of France"], trainer)
    return tokenizer


@pytest.fixture
def make_bundle() -> Callable:
    def make(**changes: object) -> Bundle:
        fields = {
            "tokenizer_json": byte_tokenizer().to_str().encode(),
            "chat_template": TEMPLATE,
            "stop_ids": (2,),
            "context": 64,
            "bos": "<|im_start|>",
            "eos": "<|im_end|>",
        }
        return Bundle(**(fields | changes))

    return make


@pytest.fixture
def load(make_bundle: Callable) -> Callable:
    """Load a tokenizer from a bundle with changes."""
    return lambda **changes: load_tokenizer(make_bundle(**changes))
