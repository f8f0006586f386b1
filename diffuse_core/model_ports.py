"""Ports to what computes: executors, the models they load, and the tensors between them.

Arrays cross these borders as `Tensor` (raw little-endian bytes with a dtype and a shape), so that
nothing above the executor imports torch. The other ports are in `ports`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from diffuse_core.domain.decoding import Drawn
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    import numpy as np
    from numpy.typing import NDArray

    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.errors import Refused

TensorType = Literal["fp32", "bf16"]
SessionId = bytes


class Tensor(msgspec.Struct, frozen=True):
    """Raw bytes of an array: little-endian, row-major.

    `len(data)` = product(shape) * item size.
    """

    dtype: TensorType
    shape: tuple[int, ...]
    data: bytes | memoryview


class TokenChooser(Protocol):
    """Draws the tokens of one Session, in order, from the logits of a last Stage."""

    def choose(
        self, logits: NDArray[np.float32], position: int, drafts: Sequence[int]
    ) -> tuple[Drawn, ...]:
        """The token for `position`, and those after it as long as `drafts` guessed right.

        Args:
            logits: (1 + drafts, vocab); row i was computed after the first i drafts.
            position: of the first token that is drawn.
            drafts: tokens guessed for `position` and the positions after it.

        Raises:
            Refused: a logit is not finite.
        """
        ...


class RowsCheck(Protocol):
    """Looks at hidden states that came in, before anything is computed of them."""

    def __call__(self, position: int, rms: Sequence[float]) -> None:
        """Take the root mean squares of rows from `position` on. Called on the executor thread.

        Raises:
            Refused: rows cannot be so.
        """
        ...


class StageStep(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass of one Session: `tokens` on a first Stage, else `hidden` (rows, width).

    `position` is that of the first row. Where the Session's cache holds more rows than that, it
    is cropped to it first; fewer are refused. `alone` asks for each row exactly what it would
    give if it came by itself, as tokens do that are drawn one by one; else the rows are a piece
    of a prompt. `chooser` asks a last Stage to draw: from the last row, or from it and the rows
    of the `drafts` before it when the last rows are guessed ones. `check` sees hidden states
    first; what it refuses leaves the Session as it was.
    """

    session: SessionId
    part: Slice
    position: int
    tokens: tuple[int, ...] | None = None
    hidden: Tensor | None = None
    alone: bool = False
    chooser: TokenChooser | None = None
    drafts: tuple[int, ...] = ()
    check: RowsCheck | None = None


class StageResult(msgspec.Struct, frozen=True):
    """What a pass gave: hidden rows for the next Stage, or tokens drawn, or neither.

    Neither comes from a last Stage of which no token was wanted. `seconds` is compute time.
    """

    hidden: Tensor | None
    drawn: tuple[Drawn, ...]
    seconds: float


class LongPass(Protocol):
    """A pass of many rows, run bit by bit so that short passes can come between."""

    def advance(self, seconds: float) -> StageResult | Refused | None:
        """Work on for about so long, to the next pause at least; what came of it, once done.

        Refused closes the Session. Not called again after anything but None.
        """
        ...


class Executor(Protocol):
    """A loaded Slice. Every method is called from the one executor thread."""

    @property
    def slice(self) -> Slice:
        """The layers held."""
        ...

    @property
    def weight_bytes(self) -> int:
        """Bytes of the tensors held."""
        ...

    @property
    def rows_alone(self) -> int:
        """How many rows of a Session one step may hold that each are to be as if alone; 1: one."""
        ...

    def open(self, session: SessionId, part: Slice, budget: int) -> None:
        """Start a Session through `part` (inside the slice) for at most `budget` positions."""
        ...

    def run(self, steps: Sequence[StageStep]) -> list[StageResult | Refused]:
        """Run steps of different Sessions in one pass; one outcome for each, in order.

        What a Session gets is what it would get alone. A step that contradicts its Session or
        the Slice is Refused and the Session is as it was; one whose numbers fail is Refused
        and its Session closed; the others do not notice.
        """
        ...

    def start(self, step: StageStep) -> LongPass:
        """Begin a pass of many rows. Until it is done its Session takes no other step.

        Raises:
            Refused: the step contradicts the Session or the Slice.
        """
        ...

    def close(self, session: SessionId) -> None:
        """Free the Session's cache; unknown ids are ignored."""
        ...


class ModelSource(Protocol):
    """A model whose headers were read and checked. Reading it needs no torch."""

    @property
    def id(self) -> str:
        """Its name on the network."""
        ...

    @property
    def content(self) -> str:
        """SHA-256 (hexadecimal) over what the weights are: never a path, never a time."""
        ...

    @property
    def lean(self) -> bool:
        """Whether it is of the family that the lean engine computes."""
        ...

    def shape(self, contract: Contract) -> ModelShape:
        """Sizes under a contract, counted from the tensors' headers."""
        ...

    def bundle(self) -> bytes:
        """The tokenizer bundle (see domain.bundle), the same bytes on every host."""
        ...


class RawTensor(msgspec.Struct, frozen=True):
    """Rows of a stored tensor, codes already turned into numbers: little-endian, row-major.

    `len(data)` = product(shape) * item size (4 for fp32, else 2).
    """

    dtype: Literal["fp32", "fp16", "bf16"]
    shape: tuple[int, ...]
    data: bytes | bytearray | memoryview


class GroupCodes(msgspec.Struct, frozen=True):
    """Rows of a 4-bit matrix exactly as its file has them, in one shape for all encodings.

    A number is `scale * code + minimum`; `group` numbers along the last axis share both.
    """

    shape: tuple[int, int]
    """Rows here, and columns."""
    group: int
    codes: bytes | bytearray | memoryview
    """One code 0..15 a byte, rows * columns of them."""
    scales: bytes | bytearray | memoryview
    """fp32, rows * (columns / group)."""
    minima: bytes | bytearray | memoryview
    """fp32, as many."""


class WeightSource(ModelSource, Protocol):
    """A ModelSource whose tensors can be read, in pieces, in the whole model's naming.

    Names and shapes are those of the parameters of the whole `transformers` module, e.g.
    `model.layers.7.mlp.up_proj.weight`, whatever the files call them or how they split them.
    """

    def config(self) -> dict[str, object]:
        """The architecture's settings under `transformers`' names, checked and bounded."""
        ...

    @property
    def names(self) -> frozenset[str]:
        """Every tensor that can be read."""
        ...

    def shape_of(self, name: str) -> tuple[int, ...] | None:
        """A tensor's shape, from the headers; None when the model has none of that name."""
        ...

    def bits_of(self, name: str) -> int:
        """Bits of one stored number: 32 or 16 for plain ones, fewer for codes (4 has `codes`)."""
        ...

    def fetch(self, names: Collection[str], progress: Progress) -> None:
        """Bring what these tensors need and is not on this machine yet; blocks.

        Raises:
            ModelUnknown: it cannot be reached, or access is denied.
            ModelUnusable: what came is not what was promised, or it cannot be stored.
        """
        ...

    def pieces(self, name: str) -> Iterator[RawTensor]:
        """A tensor's numbers, in blocks of whole rows of its first axis, a few MiB each.

        Raises:
            ModelUnusable: the file changed or ended while it was read; there is no such tensor.
        """
        ...

    def codes(self, name: str) -> Iterator[GroupCodes] | None:
        """As `pieces`, of a matrix that is stored in 4 bits; None for any other.

        Raises:
            ModelUnusable: the file changed or ended while it was read.
        """
        ...


Progress = Callable[[float], None]
"""Told a fraction 0..1 as work goes on; may raise to cancel it."""


class ModelStore(Protocol):
    """Finds and opens models. Calls block; run them off the event loop."""

    def open(self, model: str, progress: Progress) -> WeightSource:
        """Resolve `model` (hub id, directory, GGUF path, `demo`).

        Raises:
            ModelUnknown: nothing of that name.
            ModelUnusable: damaged, hostile or unsupported files.
        """
        ...


DeviceKind = Literal["cpu", "cuda", "mps"]
"""What a Slice may be computed on."""


class ExecutorLoader(Protocol):
    """Turns a source into a loaded Slice; the only thing that makes torch load on a CPU."""

    def __call__(
        self,
        source: WeightSource,
        part: Slice,
        contract: Contract,
        progress: Progress,
        *,
        device: DeviceKind,
    ) -> Executor:
        """Load `part`. Called on the executor thread."""
        ...
