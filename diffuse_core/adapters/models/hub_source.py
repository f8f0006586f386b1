"""A model on the hub as a source of weights: of its files only what a Slice needs comes here."""

from __future__ import annotations

import logging
import os
import re
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.adapters.models.bundle_files import (
    ENDS,
    MAX_SETTINGS_BYTES,
    MAX_TOKENIZER_BYTES,
    SETTINGS,
    TEMPLATE,
    TOKENIZER,
)
from diffuse_core.adapters.models.directory_source import (
    CONFIG,
    INDEX,
    MAX_INDEX_BYTES,
    SINGLE,
    DirectorySource,
    indexed_files,
)
from diffuse_core.adapters.models.hub_client import PACE, HubClient, Listing, Pace
from diffuse_core.adapters.models.hub_errors import HubUnreachable
from diffuse_core.adapters.models.hub_mirror import Mirror, free_space, recall, remember
from diffuse_core.adapters.models.hub_parallel import gathered
from diffuse_core.adapters.models.safetensors_header import MAX_HEADER_BYTES
from diffuse_core.adapters.models.stored_tensor import sample_places
from diffuse_core.errors import ModelUnusable

if TYPE_CHECKING:
    import threading
    from collections.abc import Callable, Collection, Generator, Iterable

    from diffuse_core.adapters.models.hub_name import HubName
    from diffuse_core.adapters.models.hub_ranges import Range
    from diffuse_core.adapters.models.stored_tensor import StoredTensor
    from diffuse_core.model_ports import Progress

log = logging.getLogger(__name__)

HEAD_BYTES = 2**16
"""Read of a safetensors file at first: most headers are shorter."""
SAMPLE_GAP = 2**15
_SMALL = dict.fromkeys([CONFIG, *ENDS, SETTINGS, TEMPLATE], MAX_SETTINGS_BYTES)
_SMALL |= {TOKENIZER: MAX_TOKENIZER_BYTES, INDEX: MAX_INDEX_BYTES}
_COMMIT = re.compile(r"[0-9a-f]{40}")
_WEIGHTS = re.compile(r"[A-Za-z0-9_][A-Za-z0-9._-]{0,200}\.safetensors")
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")
# Of the phases of opening, for progress.
_SMALL_SHARE, _HEADS_SHARE = 0.5, 0.7


class HubSource(DirectorySource):
    """Reads like a directory does, from files that `fetch` fills where a Slice needs them."""

    def __init__(self, mirror: Mirror, listing: Listing, pace: Pace, progress: Progress) -> None:
        """Read and check the headers that are here, and bring the samples of the fingerprint.

        Raises:
            ModelUnknown: the hub cannot be reached, or denies access.
            ModelUnusable: incomplete, damaged, hostile or of an unproven architecture.
        """
        super().__init__(mirror.directory, listing.repo)
        self._mirror = mirror
        self._pace = pace
        self.commit = listing.commit
        places = (
            (tensor, start, start + length)
            for tensor in self.stored(self.names)
            for start, length in sample_places(tensor)
        )
        mirror.bring(_by_file(places), progress, pace.sample_threads, SAMPLE_GAP)

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        """Bring the bytes of these tensors that are not here yet.

        Raises:
            ModelUnknown: the hub cannot be reached, or denies access.
            ModelUnusable: what comes is not what was promised, or it cannot be stored.
        """
        tensors = self.stored(self.names.intersection(names))
        wanted = _by_file((tensor, 0, tensor.size) for tensor in tensors)
        self._mirror.bring(wanted, progress, self._pace.threads)


def open_hub(
    name: HubName,
    cache: Path,
    progress: Progress,
    endpoint: str | None = None,
    pace: Pace = PACE,
    free: Callable[[Path], int] = free_space,
) -> HubSource:
    """Find a model on the hub and read its headers, settings and tokenizer; blocks.

    What is fetched lies under `cache`, by model and commit. When the hub is out of reach, the
    commit that the name meant last counts, as far as it is here.

    Raises:
        ModelUnknown: there is no such model or revision, it is gated, or out of reach.
        ModelUnusable: damaged, hostile or unsupported files; no room for them.
        UsageError: HF_ENDPOINT or the token is malformed.
    """
    client = HubClient(name, endpoint, pace)
    root = cache / name.repo.replace("/", "--")
    listing = _find(name, root, client, progress)
    try:
        files = weights_listed(listing)
        mirror = Mirror(root / listing.commit, client, listing, free)
        remember(root, name.revision, listing)
        small = {
            file: _all_of(file, most) for file, most in _SMALL.items() if file in listing.files
        }
        mirror.bring(small, lambda f: progress(f * _SMALL_SHARE), pace.sample_threads)
        if INDEX in listing.files:
            files = indexed_files(mirror.directory / INDEX)
        _bring_headers(mirror, files, pace, progress)
        return HubSource(
            mirror, listing, pace, lambda f: progress(_HEADS_SHARE + f * (1 - _HEADS_SHARE))
        )
    except OSError as error:
        raise ModelUnusable(
            f"{name} of the hub cannot be kept in {root}: {error.strerror or error}; mend that, "
            "or set DIFFUSE_CACHE_DIR to another directory"
        ) from error
    except ModelUnusable as error:
        # Its files are named as on the hub, not by where they lie here.
        told = str(error).replace(f"{root / listing.commit}{os.sep}", "")
        raise ModelUnusable(f"{name} of the hub cannot be used: {told}") from error


def _find(name: HubName, root: Path, client: HubClient, progress: Progress) -> Listing:
    known = recall(root, name.revision)
    if known is not None and name.revision == known.commit:
        return known

    def ask(stopped: threading.Event) -> Generator[Listing, None, None]:
        yield client.look_up(stopped)

    try:
        listing = next(gathered([ask], 1, lambda: progress(0.0)))
    except HubUnreachable as error:
        if known is None:
            raise
        log.warning("%s; going on with commit %s, which was fetched before", error, known.commit)
        return known
    log.info("%s of the hub is at commit %s", listing.repo, listing.commit)
    return listing


def weights_listed(listing: Listing) -> list[str]:
    """The files of weights; none where an index is to name them.

    Raises:
        ModelUnusable: there are none that can be read.
    """
    top = [file for file in listing.files if "/" not in file]
    weights = [file for file in top if _WEIGHTS.fullmatch(file)]
    if CONFIG in top and INDEX in top:
        return []
    if CONFIG in top and SINGLE in weights:
        return [SINGLE]
    if CONFIG in top and len(weights) == 1:
        return weights
    gguf = next((file for file in listing.files if file.lower().endswith(".gguf")), None)
    if gguf is not None and not weights:
        raise ModelUnusable(
            f"it has GGUF files only; download one (`hf download {listing.repo} {gguf}`) and "
            "give its path"
        )
    if weights:
        lacking = INDEX if CONFIG in top else CONFIG
        raise ModelUnusable(f"it has safetensors, but no {lacking}; it is no complete model")
    if any(Path(file).suffix.lower() in _PICKLES for file in listing.files):
        raise ModelUnusable(
            "its weights are pickles, which can run code and are never loaded; look for a "
            "version in safetensors, or have the hub's converter make one (it offers it to the "
            "model's owner as a pull request, which @refs/pr/N then names)"
        )
    raise ModelUnusable("it has no safetensors; it is no text-generating model, or not complete")


def _all_of(file: str, most: int) -> Callable[[int], list[Range]]:
    def ranges(size: int) -> list[Range]:
        if size > most:
            raise ModelUnusable(f"{file} has {size} bytes, which no such file has")
        return [(0, size)]

    return ranges


def _bring_headers(mirror: Mirror, files: list[str], pace: Pace, progress: Progress) -> None:
    def tell(fraction: float) -> None:
        progress(_SMALL_SHARE + fraction * (_HEADS_SHARE - _SMALL_SHARE))

    mirror.bring(dict.fromkeys(files, partial(_first, HEAD_BYTES)), tell, pace.sample_threads)
    longer = {file: _header_end(mirror.directory / file) for file in files}
    rest = {file: partial(_first, end) for file, end in longer.items() if end > HEAD_BYTES}
    mirror.bring(rest, tell, pace.sample_threads)


def _first(count: int, size: int) -> list[Range]:
    return [(0, min(count, size))]


def _header_end(path: Path) -> int:
    """Where the header ends, if it is a believable one; its reader refuses what is none."""
    with path.open("rb") as file:
        length = int.from_bytes(file.read(8), "little")
    return 8 + length if length <= MAX_HEADER_BYTES else 0


def _by_file(
    places: Iterable[tuple[StoredTensor, int, int]],
) -> dict[str, Callable[[int], list[Range]]]:
    """The wanted ranges of each file; `places` are relative to their tensors."""
    ranges: dict[str, list[Range]] = {}
    for tensor, start, end in places:
        found = ranges.setdefault(Path(tensor.path).name, [])
        found.append((tensor.offset + start, tensor.offset + end))
    return {file: partial(_fixed, found) for file, found in ranges.items()}


def _fixed(ranges: list[Range], _size: int) -> list[Range]:
    return ranges
