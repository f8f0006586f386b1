"""The news queue: fresh news first, each a number of times, and never too much of it."""

from __future__ import annotations

import pytest
from domain_samples import ordered

from diffuse_core.domain import newsqueue as module
from diffuse_core.domain.newsqueue import NewsQueue

A, B, C = ordered(1), ordered(2), ordered(3)


@pytest.mark.parametrize(
    ("members", "times"), [(1, 2), (2, 3), (4, 6), (20, 8), (100, 11), (1000, 16), (4096, 19)]
)
def test_news_is_sent_more_often_in_larger_networks(members: int, times: int) -> None:
    queue = NewsQueue()
    queue.tell(A, members)
    sent = 0
    while queue:
        queue.count_down(A, 1)
        sent += 1
    assert sent == times


def test_what_was_sent_least_comes_first_and_of_that_the_latest() -> None:
    queue = NewsQueue()
    for node in (A, B, C):
        queue.tell(node, 100)
    assert queue.freshest(2) == [C, B]
    queue.count_down(C, 4)
    assert queue.freshest(9) == [B, A, C]
    queue.tell(C, 100)
    assert queue.freshest(9) == [C, B, A]
    queue.drop(B)
    queue.drop(B)
    assert (len(queue), queue.freshest(9)) == (2, [C, A])
    queue.clear()
    assert not queue
    assert queue.freshest(9) == []


def test_of_too_much_news_what_was_sent_most_often_goes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MAX_NEWS", 3)
    queue = NewsQueue()
    queue.tell(A, 100)
    queue.count_down(A, 1)
    for number in range(10, 15):
        queue.tell(ordered(number), 100)
    assert queue.freshest(9) == [ordered(14), ordered(13), ordered(12)]
