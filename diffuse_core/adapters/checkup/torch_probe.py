"""Run as a process: load torch, and say as JSON what it can do."""

from __future__ import annotations

import sys
import time

import msgspec

from diffuse_core.adapters.checkup.software import TorchFacts


def look() -> TorchFacts:
    """What torch says of itself; the reason where it cannot be loaded."""
    start = time.monotonic()
    try:
        import torch
    except Exception as error:  # noqa: BLE001 - whatever breaks it is what is asked for
        return TorchFacts(problem=f"{type(error).__name__}: {str(error)[:400]}")
    return TorchFacts(
        version=str(torch.__version__),
        cuda=torch.version.cuda,
        hip=torch.version.hip,
        cuda_usable=torch.cuda.is_available(),
        mps_usable=torch.backends.mps.is_available(),
        mkl=torch.backends.mkl.is_available(),  # type: ignore[no-untyped-call]
        onednn=torch.backends.mkldnn.is_available(),  # type: ignore[no-untyped-call]
        cpu=torch.backends.cpu.get_cpu_capability(),
        threads=torch.get_num_threads(),
        seconds=round(time.monotonic() - start, 2),
    )


if __name__ == "__main__":
    sys.stdout.buffer.write(msgspec.json.encode(look()))
