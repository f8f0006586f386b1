"""What the commands of a chat do."""

from __future__ import annotations

import asyncio
import shutil
from typing import TYPE_CHECKING

from diffuse_core.cli.chat import saved
from diffuse_core.cli.chat.asker import say
from diffuse_core.cli.chat.commands import help_lines
from diffuse_core.domain.plain_text import clean, clean_line, shorten
from diffuse_core.domain.saved_chat import MAX_BYTES
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from diffuse_core.cli.chat.asker import Asker
    from diffuse_core.cli.chat.knobs import Knobs
    from diffuse_core.domain.slash import Said
    from diffuse_core.domain.view import NetworkView
    from diffuse_core.ports import Clock

FILE_S = 20.0
"""How long a disk may take."""
MAX_SHOWN = 50
"""Turns that are listed."""
KEYS = "Alt+Enter: new line · Ctrl+R: search · Ctrl+C: stop the answer"


class Actions:
    """Runs commands.

    Args:
        asker: The conversation, and who asks.
        knobs: How answers are made.
        clock: When files are written.
    """

    def __init__(self, asker: Asker, knobs: Knobs, clock: Clock) -> None:
        self._asker = asker
        self._knobs = knobs
        self._clock = clock
        self.draft = ""
        """What is to stand at the next prompt, to be changed."""

    async def run(self, said: Said) -> None:
        """Run a command.

        Raises:
            DiffuseError: it cannot be done, and why.
        """
        action = getattr(self, f"_{said.name}")
        done = action(said.rest) if said.rest else action()
        if asyncio.iscoroutine(done):
            await done

    def _help(self) -> None:
        for line in (*help_lines(), KEYS):
            say(line)

    async def _models(self) -> None:
        from diffuse_core.cli.common import table
        from diffuse_core.cli.coverage_text import model_rows

        models = (await self._asker.look()).models
        if not models:
            return say("no host holds any model; start one with `diffuse host --model ...`")
        head, *rows = model_rows(models)
        # The fingerprint is wide, and needed only where a name means several.
        several = len({model.id for model in models}) < len(models)
        shown = [row if several else row[:-1] for row in (head, *rows)]
        return say(clean(table(shown)))

    async def _model(self, name: str = "") -> None:
        given = self._asker.given
        if not name:
            return say(f"asking {clean_line(given['model'])}; /models lists them all")
        from diffuse_core.cli.model_choice import name_on_network
        from diffuse_core.domain.selection import find_model

        async with asyncio.timeout(FILE_S):
            wanted = await asyncio.to_thread(name_on_network, name)
        model = find_model(await self._asker.look(), wanted)
        given["model"] = wanted
        return say(f"asking {clean_line(model.id)} ({model.state}) from now on")

    def _system(self, text: str = "") -> None:
        from diffuse_core.domain.context import MAX_SYSTEM

        if len(text) > MAX_SYSTEM:
            raise UsageError(f"a system prompt has at most {MAX_SYSTEM:,} characters; shorten it")
        self._asker.conversation.system = text
        say("system prompt set" if text else "no system prompt from now on")

    def _set(self, text: str = "") -> None:
        if not text:
            for line in self._knobs.lines():
                say(line)
            return
        name, _, value = text.partition(" ")
        if not value and "=" in name:
            name, _, value = name.partition("=")
        say(self._knobs.set(name, value.strip()))

    async def _retry(self) -> None:
        await self._asker.retry()

    def _undo(self) -> str:
        """Take the last turn back; gives its question as it was typed, nothing without one."""
        asker = self._asker
        if asker.unanswered is not None:
            # Nothing came of it; but there it is.
            question, asker.unanswered = asker.unanswered, None
            return asker.as_typed(question)
        turn = asker.conversation.undo()
        if turn is None:
            say("(nothing to take back)")
            return ""
        say(f"taken back: {_line(turn.question)}")
        return asker.as_typed(turn.question)

    def _edit(self) -> None:
        self.draft = self._undo()

    def _reset(self) -> None:
        asker = self._asker
        asker.conversation.reset()
        asker.files.clear()
        asker.unanswered = asker.answer = None
        say("forgotten; a new conversation begins")

    def _history(self) -> None:
        conversation = self._asker.conversation
        if conversation.system:
            say(f"system: {_line(conversation.system)}")
        turns = conversation.turns
        for number, turn in list(enumerate(turns, 1))[-MAX_SHOWN:]:
            cut = "■ " if turn.state == "stopped" else ""
            say(f"{number:>3} {_line(turn.question)}\n  → {_line(cut + turn.answer)}")
        if not turns:
            say("(nothing was said yet)")

    async def _save(self, path: str = "") -> None:
        from diffuse_core.text_files import write_export

        if not path:
            raise UsageError("/save needs a file: chat.json, to be loaded, or chat.md, to be read")
        asker = self._asker
        turns, system = asker.conversation.turns, asker.conversation.system
        model = clean_line(str(asker.given["model"]))
        if path.lower().rstrip("\"'").endswith((".md", ".markdown")):
            ending, text = ".md", saved.to_markdown(turns, model, system)
        else:
            values = self._knobs.values()
            values["speculate"] = not values.pop("no_speculation")
            text = saved.to_json(turns, model, system, values, self._clock.wall())
            ending = ".json"
        async with asyncio.timeout(FILE_S):
            where = await asyncio.to_thread(write_export, path, "chat", ending, text)
        say(f"saved to {clean_line(str(where))}")

    async def _load(self, path: str = "") -> None:
        from diffuse_core.text_files import read_bytes

        if not path:
            raise UsageError("/load needs a file that /save wrote, or the app")
        async with asyncio.timeout(FILE_S):
            data = await asyncio.to_thread(read_bytes, path, MAX_BYTES)
        file = saved.from_json(data)
        self._knobs.load(file.parameters)
        asker = self._asker
        self._asker.conversation.reset()
        for turn in file.as_turns():
            asker.conversation.add(turn)
        asker.conversation.system = file.system
        asker.unanswered = asker.answer = None
        count = len(asker.conversation.turns)
        say(f"loaded: {count} turn{'' if count == 1 else 's'}; asking {_name(asker)} as before")

    async def _attach(self, path: str = "") -> None:
        from diffuse_core.domain.context import MAX_CHARS
        from diffuse_core.text_files import read_text_file

        files = self._asker.files
        if not path:
            names = ", ".join(clean_line(file.name, 60) for file in files)
            return say(f"with the next question: {names or 'no file'}")
        taken = sum(len(file.text) for file in files)
        async with asyncio.timeout(FILE_S):
            file = await asyncio.to_thread(read_text_file, path, MAX_CHARS - taken)
        files.append(file)
        if file.note:
            say(clean_line(file.note))
        return say(
            f"{clean_line(file.name, 60)}, {len(file.text):,} characters, goes with the next "
            "question"
        )

    def _route(self) -> None:
        from diffuse_core.cli.aside import step_text

        answer = self._asker.answer
        if answer is None or not answer.route:
            return say("(there was no answer yet)")
        for step in answer.route:
            say(step_text(step))
        for event in answer.events():
            say(clean(event))
        return None

    def _stats(self) -> None:
        from diffuse_core.cli.aside import times_text

        answer = self._asker.answer
        times = None if answer is None else times_text(answer)
        say(times or "(there was no answer yet)")

    async def _status(self) -> None:
        from diffuse_core.cli.coverage_text import standing_lines
        from diffuse_core.domain.selection import find_model

        view = await self._asker.look()
        say(_nodes(view))
        for line in standing_lines(find_model(view, self._asker.given["model"])):
            say(clean(line))


def _name(asker: Asker) -> str:
    return clean_line(str(asker.given["model"]))


def _nodes(view: NetworkView) -> str:
    alive = [node for node in view.nodes if node.liveness == "alive"]
    hosts = sum(node.role == "host" for node in alive)
    return f"{len(alive)} nodes, {hosts} of them hosts"


def _line(text: str) -> str:
    return shorten(clean_line(text), max(20, shutil.get_terminal_size().columns - 6))
