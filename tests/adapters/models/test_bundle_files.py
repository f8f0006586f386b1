from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest
from tokenizers import Tokenizer, models

from diffuse_core.adapters.models import bundle_files
from diffuse_core.adapters.models.bundle_files import directory_bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path


@pytest.fixture
def write(tmp_path: Path) -> Callable:
    """Write a model's tokenizer files; a value that is no text becomes JSON, None no file."""

    def make(**files: object) -> Path:
        tokenizer = Tokenizer(models.BPE({"a": 0, "b": 1}, []))
        tokenizer.add_special_tokens(["<s>", "</s>", "<|im_end|>"])
        defaults: dict[str, object] = {"tokenizer.json": tokenizer.to_str()}
        for name, content in (defaults | files).items():
            if content is not None:
                text = content if isinstance(content, str) else json.dumps(content)
                (tmp_path / name).write_text(text, encoding="utf-8")
        return tmp_path

    return make


def test_everything_is_gathered(write: Callable) -> None:
    directory = write(
        **{
            "tokenizer_config.json": {
                "bos_token": "<s>",
                "eos_token": {"content": "</s>", "special": True},
                "chat_template": "from settings",
            },
            "config.json": {"eos_token_id": 1},
            "generation_config.json": {"eos_token_id": [4, 0]},
        }
    )
    bundle = directory_bundle(directory, 512)
    assert bundle.tokenizer_json == (directory / "tokenizer.json").read_bytes()
    assert bundle.chat_template == "from settings"
    assert bundle.stop_ids == (0, 1, 3, 4)
    assert (bundle.bos, bundle.eos, bundle.context) == ("<s>", "</s>", 512)


def test_tokenizer_json_alone_is_enough(write: Callable) -> None:
    bundle = directory_bundle(write(), 16)
    assert (bundle.chat_template, bundle.stop_ids) == (None, ())
    assert (bundle.bos, bundle.eos) == ("", "")


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ("plain", "plain"),
        (
            [
                {"name": "tool_use", "template": "tools"},
                {"name": "default", "template": "the default"},
            ],
            "the default",
        ),
        ([{"name": "tool_use", "template": "tools"}], None),
        ([], None),
        (7, None),
        (None, None),
    ],
)
def test_the_template_in_the_settings_may_be_one_of_several(
    write: Callable, value: object, expected: str | None
) -> None:
    directory = write(**{"tokenizer_config.json": {"chat_template": value}})
    assert directory_bundle(directory, 16).chat_template == expected


def test_a_template_of_its_own_file_goes_first(write: Callable) -> None:
    directory = write(
        **{
            "tokenizer_config.json": {"chat_template": "old"},
            "chat_template.jinja": "{{ 'né' }}\n",
        }
    )
    assert directory_bundle(directory, 16).chat_template == "{{ 'né' }}\n"


@pytest.mark.parametrize("value", [None, 5, ["</s>"], {"content": 3}, {}, "x" * 300])
def test_special_tokens_of_no_use_are_passed_over(write: Callable, value: object) -> None:
    directory = write(**{"tokenizer_config.json": {"eos_token": value}})
    assert directory_bundle(directory, 16).eos == ""


def test_a_model_without_tokenizer_says_what_to_do(write: Callable) -> None:
    with pytest.raises(ModelUnusable, match=r"no tokenizer\.json.*save_pretrained"):
        directory_bundle(write(**{"tokenizer.json": None}), 16)


@pytest.mark.parametrize(
    ("name", "content", "told"),
    [
        ("tokenizer.json", "{}", "cannot be read"),
        ("tokenizer.json", "[" * 50_000, "cannot be read"),
        ("tokenizer_config.json", "[1]", "malformed"),
        ("tokenizer_config.json", '{"a": ' * 50_000, "malformed"),
        ("config.json", '{"eos_token_id": 2', "malformed"),
        ("config.json", {"eos_token_id": -1}, "end id"),
        ("config.json", {"eos_token_id": "2"}, "end id"),
        ("config.json", {"eos_token_id": 2**24 + 1}, "end id"),
        ("generation_config.json", {"eos_token_id": [1, 2.5]}, "end id"),
    ],
)
def test_damaged_files_are_named(write: Callable, name: str, content: object, told: str) -> None:
    with pytest.raises(ModelUnusable, match=told):
        directory_bundle(write(**{name: content}), 16)


def test_a_template_that_is_no_text_is_refused(write: Callable) -> None:
    directory = write()
    (directory / "chat_template.jinja").write_bytes(b"\xff\xfe")
    with pytest.raises(ModelUnusable, match="not UTF-8"):
        directory_bundle(directory, 16)


@pytest.mark.parametrize("place", ["chat_template.jinja", "tokenizer_config.json"])
def test_a_template_longer_than_any_is_refused(write: Callable, place: str) -> None:
    text = "x" * 200_001
    content = text if place == "chat_template.jinja" else {"chat_template": text}
    with pytest.raises(ModelUnusable, match="longer than 200000"):
        directory_bundle(write(**{place: content}), 16)


@pytest.mark.parametrize(
    ("name", "limit"),
    [("tokenizer.json", "MAX_TOKENIZER_BYTES"), ("config.json", "MAX_SETTINGS_BYTES")],
)
def test_files_larger_than_any_are_not_read(
    write: Callable, monkeypatch: pytest.MonkeyPatch, name: str, limit: str
) -> None:
    monkeypatch.setattr(bundle_files, limit, 20)
    with pytest.raises(ModelUnusable, match="larger than 20 bytes"):
        directory_bundle(write(**{name: " " * 21}), 16)


def test_a_file_that_cannot_be_opened_is_named(write: Callable) -> None:
    directory = write()
    (directory / "config.json").mkdir()
    with pytest.raises(ModelUnusable, match=r"config\.json cannot be read"):
        directory_bundle(directory, 16)
