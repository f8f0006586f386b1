"""Ports: what the services need from the world. Adapters implement them, tests too.

Arrays cross these borders as `Tensor` (raw little-endian bytes with a dtype and a shape), so that
nothing above the executor imports torch.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Iterator, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

import msgspec

from diffuse_core.domain.decoding import SamplingParams
from diffuse_core.domain.slices import Slice

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.shapes import Contract, ModelShape
    from diffuse_core.domain.view import ChatMessage, FeedUpdate, GenerateEvent, GenerateRequest
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


class Clock(Protocol):
    """Time as an argument."""

    def monotonic(self) -> float:
        """Seconds from an arbitrary start; never goes back."""
        ...

    def wall(self) -> float:
        """Unix time in seconds."""
        ...


class Channel(Protocol):
    """An authenticated, encrypted, ordered stream of frames between two nodes."""

    @property
    def remote(self) -> NodeId:
        """Who is at the other end: proven by the handshake."""
        ...

    @property
    def remote_address(self) -> str:
        """HOST:PORT the bytes come from, as this machine sees it."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame (at most codec.MAX_FRAME_BYTES). Raises ChannelClosed."""
        ...

    async def receive(self) -> bytes:
        """The next frame. Raises ChannelClosed when the channel ended or misbehaved."""
        ...

    async def close(self) -> None:
        """End it in an orderly way; idempotent; returns within a bounded time."""
        ...


class Listener(Protocol):
    """A listening port."""

    @property
    def address(self) -> str:
        """HOST:PORT that is bound."""
        ...

    async def close(self) -> None:
        """Stop accepting and end what was accepted; idempotent."""
        ...


class Transport(Protocol):
    """Makes channels."""

    async def dial(self, address: str, expected: NodeId | None, timeout: float) -> Channel:  # noqa: ASYNC109
        """Open a channel to HOST:PORT; `expected` is the id that must answer, when known.

        Raises:
            Unreachable: refused, silent past `timeout` seconds, not a Diffuse node, or another id.
        """
        ...

    async def listen(
        self, host: str, port: int, accept: Callable[[Channel], Awaitable[None]]
    ) -> Listener:
        """Accept channels; `accept` runs in a task per channel once both identities are proven.

        Port 0 takes a free one. Raises UsageError when the port is taken or not ours to bind.
        """
        ...


class StageStep(msgspec.Struct, frozen=True, kw_only=True):
    """One forward pass of one Session: `tokens` on a first Stage, else `hidden` (rows, width).

    `position` is that of the first row, which must equal the rows the Session's cache holds.
    `want_token` asks a last Stage to sample from the last row.
    """

    session: SessionId
    part: Slice
    position: int
    tokens: tuple[int, ...] | None = None
    hidden: Tensor | None = None
    want_token: bool = False
    sampling: SamplingParams = SamplingParams()


class StageResult(msgspec.Struct, frozen=True):
    """What a pass gave: hidden rows for the next Stage, or a token, or neither.

    Neither comes from a last Stage of which no token was wanted. `seconds` is compute time.
    """

    hidden: Tensor | None
    token: int | None
    seconds: float


class LongPass(Protocol):
    """A pass of many rows, run bit by bit so that short passes can come between."""

    def advance(self, seconds: float) -> StageResult | Refused | None:
        """Work on for about so long (one layer at least); what came of it, once it is done.

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

    def crop(self, session: SessionId, length: int) -> None:
        """Forget the Session's positions from `length` on."""
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


class TextStream(Protocol):
    """Turns a stream of token ids into text, whole characters only, stop strings held back."""

    def push(self, token: int) -> str:
        """Text that became certain with this token, maybe empty."""
        ...

    def flush(self) -> str:
        """What was still held back, at the end."""
        ...

    @property
    def stopped(self) -> bool:
        """A stop string was met; text from it on is dropped."""
        ...


class Tokenizer(Protocol):
    """A model's tokenizer and chat template, from its bundle."""

    @property
    def stop_ids(self) -> tuple[int, ...]:
        """Every id that ends a turn: union of config, generation config and tokenizer."""
        ...

    @property
    def context(self) -> int:
        """Positions the model was made for."""
        ...

    def encode_chat(self, messages: Sequence[ChatMessage]) -> tuple[int, ...]:
        """Render the chat template, with the generation prompt, and encode it.

        Raises:
            UsageError: the model has no template, or the template refuses these messages.
        """
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode text as it stands, with the model's own leading tokens and no template."""
        ...

    def stream(self, stop: Sequence[str]) -> TextStream:
        """A fresh stream that skips special tokens."""
        ...


class Storage(Protocol):
    """Small named blobs that outlive the process. Names are plain file names."""

    def read(self, name: str) -> bytes | None:
        """The blob, or None."""
        ...

    def write(self, name: str, data: bytes) -> None:
        """Replace the blob atomically."""
        ...

    def delete(self, name: str) -> None:
        """Remove it if there."""
        ...


class Hardware(Protocol):
    """Figures of this machine and process."""

    def available_memory(self) -> int:
        """Bytes that could be taken now without swapping."""
        ...

    def sample(self) -> HardwareSample:
        """Current figures."""
        ...

    def cores(self) -> int:
        """Physical cores that this process may keep busy."""
        ...

    def fast_bf16(self) -> bool:
        """Whether the CPU multiplies bf16 about as fast as fp32, or faster."""
        ...

    def accelerator_likely(self) -> bool:
        """Whether it is worth an AcceleratorLook; a cheap guess that never misses one."""
        ...


class HardwareSample(msgspec.Struct, frozen=True):
    """Percent 0..100, bytes."""

    cpu_percent: float
    cpu_count: int
    memory_total: int
    memory_available: int
    process_rss: int


class Attachment(Protocol):
    """A running node as its owner sees it: what the terminal app draws from."""

    def updates(self) -> AsyncIterator[FeedUpdate]:
        """About one update a second, ending with ChannelClosed when the node goes."""
        ...

    def generate(self, request: GenerateRequest) -> AsyncIterator[GenerateEvent]:
        """Run a generation through the node; closing the iterator cancels it everywhere."""
        ...

    async def close(self) -> None:
        """Detach; the node goes on."""
        ...
