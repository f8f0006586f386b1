"""What slices take in memory: estimated, counted and measured, held and at the peak of loading.

    python tests/bench/memory.py [--model demo] [--slices 0:10,10:20,20:30,0:30]
        [--contracts fp32,bf16,int8,int4] [--tokens 1024]

Each case is a process of its own. Measured is the resident memory beyond what the process had
with everything imported and the load-time check made; the peak is the kernel's high-water mark
while loading. The KV figure is that of one session that filled `--tokens` positions. Linux only.
"""

from __future__ import annotations

import argparse
import ctypes
import gc
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

MIB = 2**20
ROWS = 8


def status(field: str) -> int:
    """Bytes of a field of the process's status."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(field + ":"):
            return int(line.split()[1]) * 1024
    raise LookupError(field)


def measure(model: str, part_text: str, contract: Any, tokens: int) -> dict[str, float]:
    """One case, in this process; MiB."""
    from diffuse_core.adapters.executor.loader import load_slice, set_threads
    from diffuse_core.adapters.models.store import FileModelStore  # noqa: F401  (its imports)
    from diffuse_core.domain.shapes import HIDDEN_TYPE
    from diffuse_core.domain.slices import Slice
    from diffuse_core.model_ports import StageStep, Tensor
    from diffuse_core.wiring import model_store

    set_threads(1)
    source = model_store().open(model, lambda _: None)
    shape = source.shape(contract)
    start, end = (int(edge) for edge in part_text.split(":"))
    part = Slice(start, end)
    # A load of the same kind first: imports, the check, the allocator's first pages.
    load_slice(source, Slice(shape.layers // 2, shape.layers // 2 + 1), contract, lambda _: None)
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    before = status("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    executor = load_slice(source, part, contract, lambda _: None)
    peak = status("VmHWM") - before
    held = status("VmRSS") - before
    budget = min(tokens, shape.context)
    session = b"m" * 16
    executor.open(session, part, budget)
    # Few rows a pass: longer ones take working memory that is no KV.
    kv_before = 0
    width, item = shape.hidden, 4 if contract == "fp32" else 2
    for at in range(0, budget, ROWS):
        hidden, ids = None, None
        if start > 0:
            hidden = Tensor(HIDDEN_TYPE[contract], (ROWS, width), bytes(ROWS * width * item))
        else:
            ids = tuple(i % shape.vocab for i in range(ROWS))
        step = StageStep(session=session, part=part, position=at, tokens=ids, hidden=hidden)
        executor.run([step])
        if at == budget // 4:
            kv_before = status("VmRSS")
    kv = (status("VmRSS") - kv_before) / (budget - budget // 4 - ROWS)
    return {
        "estimated": shape.weight_bytes(part) / MIB,
        "counted": executor.weight_bytes / MIB,
        "measured": held / MIB,
        "peak": peak / MIB,
        "kv_estimated": len(part) * shape.kv_bytes / 1024,
        "kv_measured": kv / 1024,
    }


def main() -> None:
    """Run the cases and print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--model", default="demo")
    parser.add_argument("--slices", default="0:10,10:20,20:30,0:30")
    parser.add_argument("--contracts", default="fp32,bf16,int8,int4")
    parser.add_argument("--tokens", type=int, default=2048)
    parser.add_argument("--case", nargs=2, help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.case:
        print(json.dumps(measure(given.model, given.case[0], given.case[1], given.tokens)))
        return
    print(
        "contract slice   estimated  counted measured     peak   KV KiB/token estimated measured"
    )
    for contract in given.contracts.split(","):
        for part in given.slices.split(","):
            command = [sys.executable, __file__, "--model", given.model]
            command += ["--tokens", str(given.tokens), "--case", part, contract]
            done = subprocess.run(command, capture_output=True, check=True)
            found = json.loads(done.stdout.splitlines()[-1])
            print(
                f"{contract:8} {part:6} {found['estimated']:10.1f} {found['counted']:8.1f} "
                f"{found['measured']:8.1f} {found['peak']:8.1f}"
                f" {found['kv_estimated']:23.2f} {found['kv_measured']:8.2f}",
                flush=True,
            )


if __name__ == "__main__":
    main()
