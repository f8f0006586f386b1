"""A whole Route of Stages in one place: whatever comes between, it says what one Stage would say.

Rows are tokens here and a pass computes nothing, so that it can be told for each row what it was
computed from. Passes, messages, guesses and losses come in any order.
"""

from __future__ import annotations

import random
from collections import deque
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from diffuse_core.domain.decoding import DecodingParams, Drawn
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.kept import Kept, Piece
from diffuse_core.domain.messages import Hop, OpenSession, Reroute
from diffuse_core.domain.session import StageSession
from diffuse_core.domain.slices import Slice
from diffuse_core.domain.token_line import TokenLine, Tokens

STAGES, PROMPT, COUNT, PIECE, ALONE = 3, 11, 20, 4, 4
IDS = tuple(range(1, PROMPT + 1))


def next_token(text: tuple[int, ...]) -> int:
    """What a model would say: few tokens, so that guesses are often right."""
    return (len(text) * 7 + sum(text[-3:])) % 4


def whole() -> tuple[int, ...]:
    text = IDS
    while len(text) < PROMPT + COUNT:
        text += (next_token(text),)
    return text[PROMPT:]


@dataclass
class Stage:
    state: StageSession
    line: TokenLine = field(default_factory=TokenLine)
    kept: Kept = field(default_factory=lambda: Kept(PROMPT, 1, PIECE))
    cache: list[int] = field(default_factory=list)
    steps: deque = field(default_factory=deque)
    inbox: deque = field(default_factory=deque)
    runs: list[int] = field(default_factory=list)
    """How often each row was computed, but for guesses that were wrong."""
    flowing: bool = True
    start: int = 0


class Chain:
    """The Stages, the links between them, and the Client."""

    def __init__(self, rng: random.Random) -> None:
        self.rng = rng
        self.epoch = 0
        self.names = 0
        self.tokens: list[int] = []
        self.stages = [self._new(index) for index in range(STAGES)]
        self.feed: deque[Tokens] = deque()
        self._begin_feed(0)

    def _hops(self) -> tuple[Hop, ...]:
        return tuple(Hop(NodeId(bytes([at]) * 32), (), Slice(at, at + 1)) for at in range(STAGES))

    def _new(self, index: int) -> Stage:
        message = OpenSession(
            b"s" * 16, "m", "0" * 64, self._hops(), index, PROMPT + COUNT + 1, PROMPT,
            DecodingParams(COUNT), 99, self.epoch, len(self.tokens),
        )  # fmt: skip
        return Stage(StageSession(message, ALONE, PIECE), flowing=self.epoch == 0)

    def _begin_feed(self, held: int) -> None:
        known = (*IDS, *self.tokens)
        self.feed.clear()
        for start, stop in ((held, PROMPT), (max(held, PROMPT), len(known))):
            if start < stop:
                self.feed.append(Tokens(start, known[start:stop]))

    # --- what may happen ----------------------------------------------------------------

    def moves(self) -> list[tuple[str, int]]:
        found = [("feed", 0)] if self.feed else []
        for at, stage in enumerate(self.stages):
            found += [("take", at)] if stage.inbox else []
            found += [("run", at)] if stage.steps else []
        return found

    def move(self, what: str, at: int) -> None:
        stage = self.stages[at]
        if what == "feed":
            tokens = self.feed.popleft()
            self._submit(stage, stage.line.feed(tokens), ())
            if (early := stage.line.early()) is not None:
                self._ring(stage, early)
        elif what == "take":
            self._take(stage, *stage.inbox.popleft())
        else:
            self._run(at, *stage.steps.popleft())

    def _take(self, stage: Stage, epoch: int, item: Tokens | Piece) -> None:
        if epoch != stage.state.epoch:
            return
        if isinstance(item, Tokens):
            self._ring(stage, item)
            return
        for group in stage.state.take_rows(item.position, item.rows, item.drafts):
            at = group.position - item.position
            stage.steps.append((group, tuple(item.data[at : at + group.rows])))

    def _ring(self, stage: Stage, tokens: Tokens) -> None:
        new, _ = stage.line.ring(tokens)
        if new is None:
            return
        most = min(self.rng.randrange(ALONE), stage.state.budget - new.end)
        drafts = tuple(self.rng.randrange(4) for _ in range(most))
        stage.line.guess(drafts)
        self._submit(stage, new, drafts)

    def _submit(self, stage: Stage, run: Tokens, drafts: tuple[int, ...]) -> None:
        tokens = run.tokens + drafts
        for group in stage.state.take_rows(run.position, len(tokens), drafts):
            at = group.position - run.position
            stage.steps.append((group, tokens[at : at + group.rows]))

    def _run(self, at: int, group: object, tokens: tuple[int, ...]) -> None:
        stage = self.stages[at]
        assert group.position <= len(stage.cache)
        del stage.cache[group.position :]
        stage.cache.extend(tokens)
        stage.runs.extend(range(group.position, group.right))
        draws = stage.state.draws
        drew = stage.state.is_last and group.right == draws.next
        assert stage.state.count_ran() == group
        if drew and draws.finish is None:
            self._draw(stage, group.drafts)
        elif not stage.state.is_last:
            stage.kept.append(Piece(group.position, group.rows, bytes(tokens), group.drafts))
            stage.state.sent = min(stage.state.sent, max(group.position, stage.start))
            self._pass_on(at)

    def _draw(self, stage: Stage, drafts: tuple[int, ...]) -> None:
        text, drawn = tuple(stage.cache[: len(stage.cache) - len(drafts)]), []
        for guess in (*drafts, None):
            token = next_token(text)
            drawn.append(Drawn(token))
            text += (token,)
            if guess != token:
                break
        draws = stage.state.draws
        draws.add(drawn)
        message = draws.to_tell()
        draws.told(message)
        assert message.position == PROMPT + len(self.tokens)
        self.tokens.extend(message.tokens)
        if (run := draws.to_go_round()) is not None:
            self.stages[0].inbox.append((self.epoch, Tokens(*run)))

    def _pass_on(self, at: int) -> None:
        stage = self.stages[at]
        while stage.flowing and (piece := stage.kept.after(stage.state.sent)) is not None:
            assert stage.state.may_send(piece.rows)
            stage.state.sent = piece.end
            self.stages[at + 1].inbox.append((self.epoch, piece))

    # --- losses -------------------------------------------------------------------------

    def lose(self, lost: set[int]) -> None:
        """Other Stages take the place of these; the rest forget what had no pass."""
        self.epoch += 1
        held = []
        for at, stage in enumerate(self.stages):
            if at in lost:
                self.stages[at] = self._new(at)
                held.append(0)
                continue
            stage.steps.clear()
            held.append(stage.state.settle())
            assert held[-1] <= len(stage.cache)
            stage.line.settle(held[-1])
            stage.kept.truncate(held[-1])
            if stage.state.is_last:
                stage.state.draws.tell_again(len(self.tokens))
            stage.state.reroute(Reroute(b"s" * 16, self.epoch, self._hops(), at, 0))
            stage.flowing = False
        self._begin_feed(held[0])
        for at, stage in enumerate(self.stages[:-1]):
            stage.flowing, stage.start = True, held[at + 1]
            stage.state.sent = stage.start
            self._pass_on(at)

    def check(self) -> None:
        text = IDS + whole()
        assert self.tokens == list(text[PROMPT : PROMPT + len(self.tokens)])
        for stage in self.stages:
            received, ran, _ = stage.state.known
            assert ran <= received
            assert tuple(stage.cache[:ran]) == text[:ran]


@given(st.integers(0, 2**32), st.sampled_from([0, 3, 12]))
def test_any_order_of_passes_guesses_and_losses_says_the_same(seed: int, losses: int) -> None:
    rng = random.Random(seed)
    chain = Chain(rng)
    turns = 0
    while moves := chain.moves():
        if losses and not rng.randrange(12):
            losses -= 1
            chain.lose(set(rng.sample(range(STAGES), rng.choice((0, 1, 1, 2)))))
        else:
            chain.move(*rng.choice(moves))
        chain.check()
        turns += 1
        assert turns < 3000
    assert tuple(chain.tokens) == whole()


@pytest.mark.parametrize("victim", range(STAGES))
@given(seed=st.integers(0, 2**32))
def test_who_stays_computes_no_known_row_again(victim: int, seed: int) -> None:
    rng = random.Random(seed)
    chain = Chain(rng)
    left = rng.randrange(120)
    while moves := chain.moves():
        if left == 0:
            chain.lose({victim})
        else:
            chain.move(*rng.choice(moves))
        left -= 1
    assert tuple(chain.tokens) == whole()
    for at, stage in enumerate(chain.stages):
        # The last token that went round the ring may be fed again, by the Client.
        again = len(stage.runs) - len(set(stage.runs))
        assert again == 0, (at, victim)
