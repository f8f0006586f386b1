"""The tokenizer files beside a model's weights as a bundle."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from diffuse_core.domain.bundle import MAX_BUNDLE_BYTES, MAX_TEMPLATE_CHARS, Bundle
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from tokenizers import Tokenizer

TOKENIZER = "tokenizer.json"
SETTINGS = "tokenizer_config.json"
TEMPLATE = "chat_template.jinja"
ENDS = ("config.json", "generation_config.json")
MAX_SETTINGS_BYTES = 16 * 2**20
# Room for the template and the rest of the bundle.
MAX_TOKENIZER_BYTES = MAX_BUNDLE_BYTES - 2**20
MAX_STOP_IDS = 64
MAX_ID = 2**24


def directory_bundle(directory: Path, context: int) -> Bundle:
    """The bundle of a model's directory; `context` is in positions.

    Raises:
        ModelUnusable: tokenizer.json is missing, or a file is damaged or hostile.
    """
    path = directory / TOKENIZER
    data = _read(path, MAX_TOKENIZER_BYTES)
    if data is None:
        raise ModelUnusable(
            f"{directory} has no {TOKENIZER}, which clients need; download the model with its "
            "tokenizer, or make the file with transformers' save_pretrained"
        )
    tokenizer = check_tokenizer(data, str(path))
    settings = _settings(directory / SETTINGS)
    eos = _token_text(settings.get("eos_token"))
    ends = [_settings(directory / name).get("eos_token_id") for name in ENDS]
    ids = {token for value in ends for token in _ids(value, directory)}
    if eos and (named := tokenizer.token_to_id(eos)) is not None:
        ids.add(named)
    return Bundle(
        tokenizer_json=data,
        chat_template=_template(directory, settings),
        stop_ids=tuple(sorted(ids))[:MAX_STOP_IDS],
        context=context,
        bos=_token_text(settings.get("bos_token")),
        eos=eos,
    )


def check_tokenizer(data: bytes, where: str) -> Tokenizer:
    """Load a tokenizer.json, so that a bad one fails at its Host and not at every Client.

    Raises:
        ModelUnusable: the library cannot read it.
    """
    from tokenizers import Tokenizer

    try:
        return Tokenizer.from_buffer(data)
    except BaseException as error:
        # A panic of the library's Rust code is no Exception.
        if isinstance(error, KeyboardInterrupt | SystemExit):
            raise
        raise ModelUnusable(
            f"the tokenizer of {where} cannot be read: {str(error)[:200]}; download it again"
        ) from error


def _read(path: Path, limit: int) -> bytes | None:
    try:
        with path.open("rb") as file:
            data = file.read(limit + 1)
    except FileNotFoundError:
        return None
    except OSError as error:
        raise ModelUnusable(f"{path} cannot be read: {error.strerror}") from error
    if len(data) > limit:
        raise ModelUnusable(f"{path} is larger than {limit} bytes, which no such file is")
    return data


def _settings(path: Path) -> dict[str, object]:
    data = _read(path, MAX_SETTINGS_BYTES)
    if data is None:
        return {}
    try:
        return msgspec.json.decode(data, type=dict[str, object])
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise ModelUnusable(f"{path} is malformed: {error}; download it again") from error


def _token_text(value: object) -> str:
    """A special token's text, given as such or as the settings of an added token."""
    if isinstance(value, dict):
        value = value.get("content")
    return value if isinstance(value, str) and len(value) <= 256 else ""


def _ids(value: object, directory: Path) -> Iterable[int]:
    found = value if isinstance(value, list) else [] if value is None else [value]
    for token in found:
        if not isinstance(token, int) or not 0 <= token <= MAX_ID:
            raise ModelUnusable(f"{directory} names {token!r} as an end id, which is none")
        yield token


def _template(directory: Path, settings: dict[str, object]) -> str | None:
    path = directory / TEMPLATE
    data = _read(path, 4 * MAX_TEMPLATE_CHARS)
    if data is None:
        template = _default(settings.get("chat_template"))
    else:
        try:
            template = data.decode()
        except UnicodeDecodeError as error:
            raise ModelUnusable(f"{path} is not UTF-8; download it again") from error
    if template is not None and len(template) > MAX_TEMPLATE_CHARS:
        raise ModelUnusable(
            f"the chat template of {directory} is longer than {MAX_TEMPLATE_CHARS} characters"
        )
    return template


def _default(value: object) -> str | None:
    """The template in the settings; of several, each with a name, the one named default."""
    if isinstance(value, str):
        return value
    if isinstance(value, list):
        for entry in value:
            if isinstance(entry, dict) and entry.get("name") == "default":
                return _default(entry.get("template"))
    return None
