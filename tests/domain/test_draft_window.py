"""What guessing gains and loses, in a model of passes, links and texts."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import pytest

from diffuse_core.domain.draft_window import CHECK, SIZES, DraftWindow
from diffuse_core.domain.drafts import Drafter

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    Cost = Callable[[int], float]


def int4(rows: int) -> float:
    """Seconds of a pass on a processor in 4 bit: eight rows take 2.8 times as long as one."""
    return 0.020 * (1 + (rows - 1) * 1.8 / 7)


def bf16(rows: int) -> float:
    return 0.040 * (1 + (rows - 1) * 0.04)


def by_eights(rows: int) -> float:
    """Any started group of eight rows takes as long as a full one, but a single row."""
    return 0.020 if rows == 1 else 0.045 * (1 + (rows - 1) // 8)


def dear(rows: int) -> float:
    return 0.020 * rows


COSTS = pytest.mark.parametrize("compute", [int4, bf16, by_eights, dear])
LINKS = pytest.mark.parametrize("link", [0.0, 0.040], ids=["0ms", "40ms"])
NOISE = pytest.mark.parametrize("noise", [0.0, 0.5])


def over(compute: Cost, link: float) -> Cost:
    """Two Stages: a cycle goes over the link twice."""
    return lambda rows: compute(rows) + 2 * link


def gain(prompt: Sequence[int], text: Sequence[int], cost: Cost, noise: float = 0.0) -> float:
    """How many times faster `text` is drawn with guesses than without."""
    rng = random.Random(3)

    def late() -> float:
        return 1 + noise * rng.random()

    drafter = Drafter()
    drafter.extend(prompt)
    drafter.extend(text[:1], drawn=True)
    at, taken = 1, 0.0
    while at < len(text):
        guessed = drafter.propose(min(31, len(text) - at - 1))
        right = 0
        while right < len(guessed) and guessed[right] == text[at + right]:
            right += 1
        seconds = cost(1 + len(guessed)) * late()
        taken += seconds
        drafter.settled(len(guessed), right, seconds)
        drafter.extend(text[at : at + right + 1], drawn=True)
        at += right + 1
    return sum(cost(1) * late() for _ in text[1:]) / taken


def prose(count: int, seed: int) -> list[int]:
    """Tokens as frequent as words are, in no order: pairs repeat, what follows them does not."""
    words = range(2000)
    return random.Random(seed).choices(words, [1 / (1 + word) for word in words], k=count)


@COSTS
@LINKS
@NOISE
@pytest.mark.parametrize("seed", [1, 2])
def test_text_without_repeats_loses_next_to_nothing(
    compute: Cost, link: float, noise: float, seed: int
) -> None:
    cost = over(compute, link)
    assert gain(prose(300, 9), list(range(3000, 3200)), cost, noise) >= 0.97
    assert gain(prose(300, 9), prose(300, seed), cost, noise) >= 0.97


@NOISE
def test_a_copy_is_much_faster(noise: float) -> None:
    doc = prose(300, 5)
    for compute in (int4, bf16, by_eights):
        assert gain(doc, doc[:200], over(compute, 0.040), noise) >= 4
    assert gain(doc, doc[:200], int4, noise) >= 2
    assert gain(doc, doc[:200], bf16, noise) >= 5
    assert gain(doc, doc[:200], dear, noise) >= 0.97


@NOISE
def test_an_edited_copy_is_faster(noise: float) -> None:
    rng, doc = random.Random(4), prose(400, 5)
    edited = [token if rng.random() > 0.06 else 2500 + rng.randrange(99) for token in doc]
    assert gain(doc, edited, over(int4, 0.040), noise) >= 2
    assert gain(doc, edited, int4, noise) >= 1.3


def test_a_loop_is_faster_though_nothing_was_in_the_prompt() -> None:
    assert gain([], [1, 2, 3, 4, 5] * 40, over(int4, 0.040)) >= 4


@LINKS
def test_a_mixture_wins_where_it_copies(link: float) -> None:
    doc = prose(400, 5)
    text = prose(150, 6) + doc[50:150] + prose(150, 7) + doc[200:300]
    assert gain(doc, text, over(int4, link)) >= 1.2


def misled(cost: Cost, count: int) -> float:
    """A text that goes on as before while nothing is guessed, and otherwise whenever it is."""
    drafter, taken, new = Drafter(), 0.0, 10_000
    history = [1, 2, 3, 4, 5, 6, 7, 8] * 8
    drafter.extend(history)
    for _ in range(count):
        guessed = drafter.propose(31)
        taken += cost(1 + len(guessed))
        drafter.settled(len(guessed), 0, cost(1 + len(guessed)))
        token = history[-8]
        if guessed:
            new += 1
            token = new if new % 2 else (guessed[0] + 1) % 8 + 1
        history.append(token)
        drafter.extend([token], drawn=True)
    return count * cost(1) / taken


@COSTS
@LINKS
def test_a_text_that_misleads_on_purpose_loses_little(compute: Cost, link: float) -> None:
    assert misled(over(compute, link), 120) >= 0.97
    assert misled(over(compute, link), 1000) >= 0.98


def test_after_a_lucky_run_a_misleading_text_cannot_take_it_all_back() -> None:
    window = DraftWindow()
    for _ in range(4):
        window.settled(0, 0, 0.02)
    for _ in range(200):
        size = window.size(16, 31)
        window.seen(16, right=True)
        window.settled(size, size, int4(1 + size))
    lost = 0
    while (size := window.size(16, 31)) and lost < 100:
        lost += 1
        window.seen(16, right=False)
        window.settled(size, 0, int4(1 + size))
    assert 0 < lost < 12


def test_it_tries_again_when_rows_became_cheap() -> None:
    window = DraftWindow()
    for _ in range(4):
        window.settled(0, 0, 0.02)

    def run(cost: Cost, passes: int) -> int:
        guesses = 0
        for _ in range(passes):
            size = window.size(8, 31)
            window.settled(size, size, cost(1 + size))
            guesses += size > 0
        return guesses

    assert run(lambda rows: 0.04 * rows, 200) < 20
    assert run(bf16, 400) > 200


def test_while_guessing_it_looks_now_and_then_at_a_pass_without() -> None:
    window = DraftWindow()
    for _ in range(4):
        window.settled(0, 0, 0.02)
    plain = 0
    for _ in range(10 * CHECK):
        size = window.size(16, 31)
        window.seen(16, right=True)
        window.settled(size, size, bf16(1 + size))
        plain += size == 0
    assert 8 <= plain <= 12


def test_one_stall_does_not_end_guessing() -> None:
    window = DraftWindow()
    for _ in range(4):
        window.settled(0, 0, 0.02)
    for turn in range(30):
        size = window.size(16, 31)
        window.settled(size, size, 5.0 if turn == 20 else int4(1 + size))
    assert window.size(16, 31) > 0


def test_sizes_it_never_proposes_teach_it_as_well() -> None:
    window = DraftWindow()
    window.settled(4, 4, 1.0)
    for _ in range(3):
        window.settled(0, 0, 0.02)
    window.settled(4, 4, 0.021)
    assert window.size(16, 4) == 3
    assert window.size(1, 31) in (0, *SIZES)
