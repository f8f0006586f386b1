"""The terminal as Textual drives it, but odd input does no harm, and its end is noticed."""

from __future__ import annotations

import codecs
import os
import queue
import selectors
import signal
import termios
from contextlib import suppress
from typing import TYPE_CHECKING

from textual._xterm_parser import XTermParser
from textual.drivers.linux_driver import LinuxDriver

if TYPE_CHECKING:
    from collections.abc import Iterable

    from textual.message import Message

READ_BYTES = 4096
TICK_S = 0.1
"""How often a lone escape character is looked at, and whether to end."""
LOOK_S = 0.5
"""How often a write that waits looks whether anybody writes at all."""


class SteadyDriver(LinuxDriver):
    """Reads what no text is, and does not wait for a terminal that is gone."""

    def run_input_thread(self) -> None:
        """Read keys until told to end; without a terminal the process is told to leave."""
        # What is pasted in another encoding is no reason to end, as it is for Textual's own.
        decoder = codecs.getincrementaldecoder("utf-8")("replace")
        parser = XTermParser(self._debug)
        with selectors.SelectSelector() as ready:
            ready.register(self.fileno, selectors.EVENT_READ)
            while not self.exit_event.is_set():
                data = None
                if ready.select(TICK_S):
                    data = self._read()
                    if not data:
                        # Where this is no controlling terminal, nobody else tells.
                        os.kill(os.getpid(), signal.SIGHUP)
                        return
                events = parser.feed(decoder.decode(data)) if data else parser.tick()
                if not self._passed_on(events):
                    parser = XTermParser(self._debug)

    def _read(self) -> bytes:
        """What was typed; nothing when the terminal is gone."""
        with suppress(OSError):
            return os.read(self.fileno, READ_BYTES)
        return b""

    def _passed_on(self, events: Iterable[Message]) -> bool:
        """Hand events to the app; False when a sequence was none of any terminal."""
        try:
            for event in events:
                self.process_message(event)
        except (ValueError, OverflowError):
            return False
        return True

    def write(self, data: str) -> None:
        """Write, waiting for a slow terminal, but not for one that is gone."""
        writer = self._writer_thread
        while writer is not None and writer.is_alive():
            with suppress(queue.Full):
                writer._queue.put(data, timeout=LOOK_S)
                return

    def close(self) -> None:
        """Wait for what is to be written yet; nobody writes when the terminal is gone."""
        if self._writer_thread is not None and self._writer_thread.is_alive():
            super().close()

    def give_back(self) -> None:
        """Leave the terminal as it was, what needs no reader first; may wait for ever."""
        if self.attrs_before is not None:
            with suppress(termios.error):
                termios.tcsetattr(self.fileno, termios.TCSANOW, self.attrs_before)
        self.stop_application_mode()
        self.close()
