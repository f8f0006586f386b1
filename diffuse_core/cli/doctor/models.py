"""Model files: those that are named, the demo model, and what downloads left in the cache."""

from __future__ import annotations

import contextlib
import hashlib
import re
import threading
from pathlib import Path
from typing import TYPE_CHECKING

from diffuse_core.adapters.checkup.places import files_below, free_bytes
from diffuse_core.cli.doctor.findings import Finding, note, ok, problem, warning
from diffuse_core.cli.doctor.here import split_step
from diffuse_core.domain.plain_text import clean_line
from diffuse_core.domain.selection import DEMO_ALIAS
from diffuse_core.domain.shapes import ITEM_BYTES
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import DiffuseError, ModelUnknown
from diffuse_core.settings import size_text

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from diffuse_core.adapters.models.hub_client import HubClient, Listing
    from diffuse_core.adapters.models.hub_name import HubName
    from diffuse_core.domain.shapes import Contract
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.model_ports import Progress, WeightSource

PIECE = 2**20
LEFT_OVER = (".part", ".new")
HUB_S = 3.0
FILE, HUB = "model file", "hub model"
_ONE_OF_MANY = re.compile(r"[A-Za-z0-9._-]+-\d+-of-\d+\.safetensors")


def judge_model(name: str, cache: Path) -> Finding:
    """Whether a model that somebody names can be used here; blocks. The hub is asked elsewhere."""
    if name == DEMO_ALIAS:
        return judge_demo(cache, asked=True)
    try:
        return _judge_source(name, _open_here(name))
    except DiffuseError as error:
        return problem(FILE, *split_step(error))
    except OSError as error:
        why = f"{clean_line(name, 64)} cannot be read: {error.strerror or error}"
        return problem(FILE, why, "mend that, or give another file")


def on_hub(name: str) -> HubName | None:
    """The model of the hub that is meant; None where it is a file, a directory or `demo`."""
    from diffuse_core.adapters.models.hub_name import parse_hub_name

    return None if name == DEMO_ALIAS or Path(name).exists() else parse_hub_name(name)


def _open_here(name: str) -> WeightSource:
    from diffuse_core.adapters.models.store import FileModelStore

    def no_demo(_progress: Progress) -> Path:
        raise ModelUnknown("the demo model is looked at elsewhere; name it `demo`")

    return FileModelStore(no_demo).open(name, lambda _fraction: None)


def _judge_source(name: str, source: WeightSource) -> Finding:
    shape = source.shape("bf16")
    size = shape.weight_bytes(Slice(0, shape.layers))
    source.bundle()
    found = (
        f"{clean_line(name, 64)}: {source.id}, {shape.layers} layers, {size_text(size)} in bf16, "
        f"content {source.content[:12]}"
    )
    told = {"id": source.id, "layers": shape.layers, "bytes": size, "content": source.content}
    return ok(FILE, found, **told)


def fingerprints(name: str, cache: Path) -> tuple[str, dict[Contract, str]] | None:
    """A model's id and its fingerprint in each contract; None where it is not here, or is no use.

    Blocks.
    """
    from diffuse_core.adapters.models.demo import SMOLLM2
    from diffuse_core.adapters.models.gguf_source import GgufSource
    from diffuse_core.domain.selection import DEMO_MODEL_ID
    from diffuse_core.services.model_choice import reference

    try:
        if name == DEMO_ALIAS:
            source: WeightSource = GgufSource(cache / "models" / SMOLLM2.file_name, DEMO_MODEL_ID)
        else:
            source = _open_here(name)
    except (DiffuseError, OSError):
        return None
    found: dict[Contract, str] = {}
    for contract in ITEM_BYTES:
        # Not every model is computed in all of them.
        with contextlib.suppress(DiffuseError):
            found[contract] = reference(source, contract).fingerprint
    return source.id, found


def judge_same(prints: tuple[str, Mapping[Contract, str]], view: NetworkView) -> Finding | None:
    """Whether hosts of the same content would share Routes; None where nobody has such a model."""
    name, own = prints
    there = [model for model in view.models if model.id == name]
    if not there:
        return None
    same = [model for model in there if own.get(model.contract) == model.fingerprint]
    told = {"id": name, "there": [model.fingerprint for model in there]}
    if same:
        found = f"{clean_line(name, 64)}: the network has the same, in {same[0].contract}"
        return ok(FILE, found, **told)
    found = f"the network's {clean_line(name, 64)} has other weights: no Route would have both"
    step = "host the very file or revision that is hosted there; `diffuse models` tells it"
    return warning(FILE, found, step, **told)


def judge_demo(cache: Path, *, asked: bool) -> Finding:
    """Whether the demo model is here and whole, by its SHA-256."""
    from diffuse_core.adapters.models.demo import SMOLLM2

    path = cache / "models" / SMOLLM2.file_name
    needed = SMOLLM2.size + SMOLLM2.wheel.size
    if not path.exists():
        free = free_bytes(path.parent)
        found = f"not in the cache; it takes {size_text(needed)} while it is fetched"
        if asked and free < needed:
            step = f"only {size_text(free)} are free: make room, or set DIFFUSE_CACHE_DIR"
            return problem("demo model", found, step)
        return note("demo model", found, "`diffuse demo` or `diffuse host --model demo` fetch it")
    digest = hashlib.sha256()
    try:
        with path.open("rb") as file:
            while piece := file.read(PIECE):
                digest.update(piece)
    except OSError as error:
        why = f"{path}: {error.strerror or error}"
        return problem("demo model", why, "mend that, or remove it: it is fetched again")
    if digest.hexdigest() != SMOLLM2.sha256:
        step = f"remove it, and it is fetched again: rm {path}*"
        return problem("demo model", f"{path} is damaged: its SHA-256 is another", step)
    return ok("demo model", f"whole, {size_text(SMOLLM2.size)} in {path.parent}", path=str(path))


def judge_left_over(files: Sequence[tuple[Path, int]], damaged: Sequence[Path]) -> Finding:
    """What downloads left in the cache. `damaged` are journals that say nothing of a file."""
    told = {"files": [str(path) for path, _ in files], "damaged": [str(one) for one in damaged]}
    if damaged:
        found = f"{len(damaged)} downloads of the hub are damaged, e.g. {damaged[0]}"
        step = (
            f"they are fetched again where needed; to free their room: rm -r {damaged[0].parent}"
        )
        return warning("downloads", found, step, **told)
    if files:
        size = size_text(sum(size for _, size in files))
        found = f"{len(files)} unfinished, {size}, e.g. {files[0][0]}"
        step = "they go on where they stopped, or remove them"
        return note("downloads", found, step, **told)
    return ok("downloads", "none unfinished")


def left_over(cache: Path) -> tuple[list[tuple[Path, int]], list[Path]]:
    """Unfinished downloads in the cache, and journals that are of no use; blocks."""
    from diffuse_core.adapters.models.hub_partial import JOURNAL, PartialFile

    damaged = []
    for journal, _ in files_below(cache / "hub", (JOURNAL,)):
        partial = PartialFile(journal.with_name(journal.name.removesuffix(JOURNAL)))
        if not partial.known:
            damaged.append(journal)
    return files_below(cache, LEFT_OVER), damaged


def judge_hub(name: HubName, cache: Path, endpoint: str | None = None) -> Finding:
    """Whether the hub answers for a model, and whether there is room for it; blocks.

    The token itself is in no finding. `endpoint` is another hub than the usual one.
    """
    from huggingface_hub import get_token

    from diffuse_core.adapters.models.hub_client import HubClient, Pace

    token = "with the token of this user" if get_token() else "without a token"
    try:
        pace = Pace(waits=(), connect=HUB_S, stall=HUB_S)
        client = HubClient(name, endpoint, pace)
        listing = client.look_up(threading.Event())
        size = _weight_bytes(client, listing)
    except DiffuseError as error:
        why, step = split_step(error)
        return problem(HUB, f"{why} ({token})", step)
    free = free_bytes(cache)
    found = (
        f"{name}: commit {listing.commit[:12]}, about {size_text(size)} of weights, asked {token}"
    )
    told = {"commit": listing.commit, "bytes": size, "free": free}
    if size > free:
        found += f"; {size_text(free)} are free in the cache"
        step = (
            "a host fetches only what its slice needs: give it less with --memory or "
            "--max-layers, make room, or set DIFFUSE_CACHE_DIR"
        )
        return warning(HUB, found, step, **told)
    return ok(HUB, found, **told)


def _weight_bytes(client: HubClient, listing: Listing) -> int:
    """About how large all weights are: of several files, which are alike, one is asked about.

    Raises:
        ModelUnknown: the hub does not say.
        ModelUnusable: there are no weights that can be read.
    """
    from diffuse_core.adapters.models.hub_source import weights_listed

    files = weights_listed(listing)
    if not files:
        files = [file for file in listing.files if _ONE_OF_MANY.fullmatch(file)]
    if not files:
        return 0
    first = client.locate(listing.commit, files[0], threading.Event())
    return first.size * len(files)
