"""Python, the libraries, and torch as a process of its own finds it."""

from __future__ import annotations

import asyncio
import contextlib
import platform
import struct
import sys
from dataclasses import dataclass
from importlib import metadata

import msgspec

DISTRIBUTION = "diffuse-tui"
MAX_TOLD = 64 * 1024
PROBE = "diffuse_core.adapters.checkup.torch_probe"


@dataclass(frozen=True)
class PythonFacts:
    """The interpreter that runs this."""

    version: tuple[int, int, int]
    bits: int
    implementation: str
    executable: str


@dataclass(frozen=True)
class Library:
    """A library that Diffuse needs. `installed` None: it is not there."""

    name: str
    wanted: str
    installed: str | None
    fits: bool


class TorchFacts(msgspec.Struct, frozen=True):
    """What torch says of itself. `problem` is why it could not be loaded, empty otherwise.

    `late` is that it had not loaded when it was no longer waited for.
    """

    version: str = ""
    cuda: str | None = None
    hip: str | None = None
    cuda_usable: bool = False
    mps_usable: bool = False
    mkl: bool = False
    onednn: bool = False
    cpu: str = ""
    threads: int = 0
    seconds: float = 0.0
    problem: str = ""
    late: bool = False


def python_facts() -> PythonFacts:
    """Those of this process."""
    version = sys.version_info
    return PythonFacts(
        (version.major, version.minor, version.micro),
        struct.calcsize("P") * 8,
        platform.python_implementation(),
        sys.executable,
    )


def libraries() -> tuple[Library, ...]:
    """What Diffuse declares to need here, extras left out; none where it is not installed."""
    try:
        declared = metadata.requires(DISTRIBUTION) or []
    except metadata.PackageNotFoundError:
        return ()
    try:
        from packaging.requirements import InvalidRequirement, Requirement
    except ImportError:
        # Without it nothing is compared; that it is absent says enough of the installation.
        return (Library("packaging", "", None, fits=False),)
    found = []
    for text in declared:
        try:
            wanted = Requirement(text)
        except InvalidRequirement:
            continue
        if wanted.marker is not None and not wanted.marker.evaluate({"extra": ""}):
            continue
        version = installed_version(wanted.name)
        fits = version is not None and wanted.specifier.contains(version, prereleases=True)
        found.append(Library(wanted.name, str(wanted.specifier), version, fits))
    return tuple(found)


def installed_version(name: str) -> str | None:
    """The version of a distribution; None where there is none."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


async def torch_facts() -> TorchFacts:
    """Load torch in a process of its own: a broken one takes that one down and not this."""
    try:
        child = await asyncio.create_subprocess_exec(
            sys.executable,
            "-m",
            PROBE,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
    except OSError as error:
        return TorchFacts(problem=f"no process can be started: {error}")
    try:
        out, err = await child.communicate()
    finally:
        if child.returncode is None:
            with contextlib.suppress(ProcessLookupError):
                child.kill()
            await child.wait()
    with contextlib.suppress(msgspec.DecodeError):
        return msgspec.json.decode(out[:MAX_TOLD], type=TorchFacts)
    return TorchFacts(problem=_last_words(err[-MAX_TOLD:], child.returncode))


def _last_words(told: bytes, code: int | None) -> str:
    lines = [line.strip() for line in told.decode(errors="replace").splitlines() if line.strip()]
    if code is not None and code < 0:
        return f"it died of signal {-code} while it loaded"
    return lines[-1] if lines else f"it ended with {code} and no word"
