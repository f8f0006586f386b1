from __future__ import annotations

from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from diffuse_core.domain.admission import MAX_SESSIONS, MOST_OF_ONE, admit, check_route
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.session_memory import Wishes, session_bytes
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from tests.domain.session_samples import MODEL, ROUTE, A, B, C, opening, terms

if TYPE_CHECKING:
    from diffuse_core.domain.identity import NodeId

NEED = session_bytes(MODEL.shape, MODEL.contract, Slice(0, 4), 20, Wishes(prompt=5))
PENALTIES = DecodingParams(10, SamplingParams(presence_penalty=1.0))


def test_a_session_that_fits_is_admitted_with_all_that_it_may_come_to_take() -> None:
    assert admit(opening(), terms(kv_budget=NEED)) == NEED


def test_what_is_asked_for_beside_is_counted() -> None:
    last = terms(own=B, held=Slice(4, 6))
    plain = admit(opening(index=1), last)
    sampling = SamplingParams(logit_bias=((1, 2.0),))
    for wish in (
        {"spots": (1, 2)},
        {"timed": True},
        {"audit": True, "epoch": 1},
        {"decoding": DecodingParams(10, logprobs=0)},
        {"decoding": DecodingParams(10, logprobs=20)},
        {"decoding": PENALTIES},
        {"decoding": DecodingParams(10, sampling)},
    ):
        assert admit(opening(index=1, **wish), last) > plain


def test_one_client_does_not_take_all_places() -> None:
    admit(opening(), terms(sessions=MOST_OF_ONE, of_client=MOST_OF_ONE - 1))
    with pytest.raises(Refused, match=f"{MOST_OF_ONE} sessions of yours") as refusal:
        admit(opening(), terms(sessions=MOST_OF_ONE, of_client=MOST_OF_ONE))
    assert refusal.value.reason == "busy"


@pytest.mark.parametrize(
    ("change", "offer", "reason"),
    [
        ({"route": ROUTE[1:]}, {}, "invalid"),
        ({"route": ROUTE[:1]}, {}, "invalid"),
        ({"route": (ROUTE[0], msgspec.structs.replace(ROUTE[1], node=A))}, {}, "invalid"),
        ({"index": 2}, {}, "invalid"),
        ({"prompt": 20}, {}, "invalid"),
        ({"prompt": 15, "drawn": 5}, {}, "invalid"),
        ({"drawn": 1, "past": (1, 2)}, {}, "invalid"),
        ({"seen": tuple(range(6))}, {}, "invalid"),
        ({"fingerprint": "2" * 64}, {}, "model"),
        ({}, {"own": B}, "slice"),
        ({}, {"held": Slice(0, 3)}, "slice"),
        ({"budget": 65}, {}, "context"),
        ({"spots": (3, 8)}, {}, "invalid"),
        ({"audit": True}, {}, "invalid"),
        ({}, {"leaving": True}, "leaving"),
        ({}, {"kv_budget": 1}, "memory"),
        ({}, {"kv_budget": NEED - 1}, "memory"),
        ({}, {"sessions": MAX_SESSIONS}, "busy"),
        ({}, {"kv_budget": NEED, "kv_used": 1}, "memory"),
    ],
)
def test_what_cannot_run_is_refused_with_its_reason(
    change: dict[str, Any], offer: dict[str, Any], reason: str
) -> None:
    with pytest.raises(Refused) as refusal:
        admit(opening(**change), terms(**offer))
    assert refusal.value.reason == reason


def test_penalties_need_the_tokens_before_on_a_last_stage_only() -> None:
    last = terms(own=B, held=Slice(4, 6))
    admit(opening(drawn=2, decoding=PENALTIES), terms())
    admit(opening(drawn=2, decoding=PENALTIES, index=1, past=(7, 8)), last)
    with pytest.raises(Refused, match="penalties"):
        admit(opening(drawn=2, decoding=PENALTIES, index=1), last)


def hops(*nodes: NodeId) -> tuple[Hop, ...]:
    return tuple(Hop(node, (), Slice(at, at + 1)) for at, node in enumerate(nodes))


def test_only_the_first_and_the_last_stage_may_be_on_one_node() -> None:
    check_route(hops(A, B, A), 2, 3)
    check_route(hops(A, B, C, A), 0, 4)
    for twice in ((A, A), (A, B, B), (A, A, B), (A, B, B, A), (A, B, A, A), (A, B, A, C)):
        with pytest.raises(Refused, match="twice"):
            check_route(hops(*twice), 0, len(twice))
