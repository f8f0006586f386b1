"""Ports: what the services need from the world. Adapters implement them, tests too.

Those to models and to what computes them are in `model_ports`.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

import msgspec

from diffuse_core.domain.machine import GpuFigures, Temperature

if TYPE_CHECKING:
    from collections.abc import (
        AsyncGenerator,
        AsyncIterator,
        Awaitable,
        Callable,
        Collection,
        Sequence,
    )

    from diffuse_core.domain.identity import NodeId
    from diffuse_core.domain.tools import Tool, ToolFormat
    from diffuse_core.domain.view import (
        ChatMessage,
        FeedUpdate,
        GenerateEvent,
        GenerateRequest,
        NetworkView,
    )


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
        """HOST:PORT the bytes come from, as this machine sees it; of the Sentinel if relayed."""
        ...

    @property
    def relayed_through(self) -> NodeId | None:
        """The Sentinel that carries the bytes and cannot read them; None for a direct channel."""
        ...

    async def send(self, frame: bytes) -> None:
        """Send one frame (at most codec.MAX_FRAME_BYTES). Raises ChannelClosed."""
        ...

    async def receive(self) -> bytes:
        """The next frame. Raises ChannelClosed when the channel ended or misbehaved."""
        ...

    def narrow(self, most: int) -> None:
        """Take no frame of more than `most` bytes from now on; a larger one ends the channel.

        Nothing larger is held in memory either, apart from what has arrived by now.
        """
        ...

    async def close(self) -> None:
        """End it in an orderly way; idempotent; returns within a bounded time."""
        ...


class Carrier(Protocol):
    """Brings wire messages to another node and back, in order, and need not be trusted."""

    @property
    def remote_address(self) -> str:
        """HOST:PORT the bytes come from."""
        ...

    @property
    def relayed_through(self) -> NodeId | None:
        """The Sentinel in the middle."""
        ...

    async def send(self, wire: bytes) -> None:
        """Send one message of up to MAX_SEALED_BYTES. Raises ChannelClosed.

        Whoever begins to send and is cancelled has sent it whole all the same.
        """
        ...

    async def receive(self) -> bytes:
        """The next message. Raises ChannelClosed."""
        ...

    async def close(self) -> None:
        """End it; idempotent; returns within a bounded time."""
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

    async def secure(
        self,
        carrier: Carrier,
        expected: NodeId | None,
        timeout: float,  # noqa: ASYNC109
        *,
        dialled: bool,
    ) -> Channel:
        """Make a channel over a carrier, which ends with it; `dialled` says who speaks first.

        Both ends prove that they know it to be relayed: a direct handshake that somebody passes
        on leads to no channel.

        Raises:
            Unreachable: as `dial`. The carrier is closed then.
        """
        ...


@dataclass(frozen=True)
class LanNode:
    """A node that says on the LAN that it is there; anybody may say so.

    `node` is None on networks with a key: nobody without the key is to learn ids.
    """

    addresses: tuple[str, ...]
    node: NodeId | None


class Lan(Protocol):
    """Finds nodes of our network on the LAN, and lets them find us."""

    async def open(
        self, found: Callable[[LanNode], None], lost: Callable[[LanNode], None]
    ) -> None:
        """Look from now on, until `close`; `lost` gets exactly what `found` got.

        Raises:
            Unreachable: this machine has no LAN that can be asked, or does not let us.
        """
        ...

    async def announce(self) -> None:
        """Say that we are there, until `close`. Raises Unreachable."""
        ...

    async def close(self) -> None:
        """Take back what was said, and stop; idempotent; returns within a bounded time."""
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

    @property
    def held(self) -> int:
        """Characters that are held back, as they may begin a stop string."""
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

    @property
    def tool_format(self) -> ToolFormat | None:
        """How the model writes calls of tools; None where its template tells no known way."""
        ...

    def encode_chat(
        self, messages: Sequence[ChatMessage], tools: Sequence[Tool] = ()
    ) -> tuple[int, ...]:
        """Render the chat template, with the generation prompt, and encode it.

        Raises:
            UsageError: the model has no template, or the template refuses these messages, or
                there are tools and it knows none.
        """
        ...

    def encode(self, text: str) -> tuple[int, ...]:
        """Encode text as it stands, with the model's own leading tokens and no template."""
        ...

    def stream(self, stop: Sequence[str], *, calls: bool = False) -> TextStream:
        """A fresh stream that skips special tokens; with `calls` it shows those that begin them.

        Some models mark the calls of tools by tokens of their own (see domain.tool_formats).
        """
        ...

    def token_text(self, token: int) -> str:
        """What a token shows amid others; special ones by name, half characters as U+FFFD."""
        ...

    def token_bytes(self, token: int) -> bytes | None:
        """The bytes that a token adds to a text, also half a character; None where unknown.

        Special tokens have those of their name.
        """
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
    """Percent 0..100, bytes; `open_files` counts what the process has open, sockets too."""

    cpu_percent: float
    cpu_count: int
    memory_total: int
    memory_available: int
    process_rss: int
    open_files: int = 0


class Sensors(Protocol):
    """What takes a moment to measure: GPUs, temperatures, the disk."""

    def sample(self) -> SensorSample:
        """Current figures, as far as they can be had; blocks, never raises."""
        ...


class SensorSample(msgspec.Struct, frozen=True):
    """As in Telemetry: at most MAX_GPUS and MAX_CHIPS of them, bytes free for models."""

    gpus: tuple[GpuFigures, ...] = ()
    temperatures: tuple[Temperature, ...] = ()
    disk_free: int | None = None


class Answers(Protocol):
    """What gives answers, and knows which models can: what servers for other programs stand on."""

    async def view(self) -> NetworkView:
        """The network as it was some seconds ago.

        Raises:
            Unreachable: no node of it answers.
        """
        ...

    def generate(self, request: GenerateRequest) -> AsyncGenerator[GenerateEvent, None]:
        """Stream a generation, as services.client does; closing the generator cancels it."""
        ...

    async def token_texts(self, model: str, tokens: Collection[int]) -> dict[int, str]:
        """Texts of single tokens of a model, as `Tokenizer.token_text` gives them."""
        ...

    async def token_bytes(self, model: str, tokens: Collection[int]) -> dict[int, bytes | None]:
        """Bytes of single tokens of a model, as `Tokenizer.token_bytes` gives them."""
        ...

    async def tool_format(self, model: str) -> ToolFormat | None:
        """How a model writes calls of tools, as `Tokenizer.tool_format` tells it."""
        ...


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
