"""An answer is asked for that the Stages have room for, to the last token of it."""

from __future__ import annotations

import random
from types import SimpleNamespace

import msgspec
import pytest

from diffuse_core.domain.admission import StageTerms, admit
from diffuse_core.domain.decoding import DecodingParams, SamplingParams
from diffuse_core.domain.identity import NodeId
from diffuse_core.domain.members import Member
from diffuse_core.domain.messages import Hop
from diffuse_core.domain.records import Holding, Load, ModelRef, Record
from diffuse_core.domain.shapes import ModelShape
from diffuse_core.domain.slices import Slice
from diffuse_core.errors import Refused
from diffuse_core.services.answer_log import AnswerLog
from diffuse_core.services.route_choice import RouteChoice
from diffuse_core.services.session_terms import Asked, opening

SHAPE = ModelShape(6, 64, 1000, 4000, 1, 1, 1, kv_bytes=256)
MODEL = ModelRef("m", "f" * 64, "bf16", SHAPE, "0" * 64)
ROUTE = [Hop(NodeId(bytes([at]) * 32), (), Slice(at * 2, at * 2 + 2)) for at in range(3)]
ROOM = 2**21
PENALTIES = SamplingParams(temperature=0.7, repetition_penalty=1.2, logit_bias={3: 1.0, 4: -1.0})


def holder(hop: Hop, room: int) -> Member:
    holding = Holding(MODEL, hop.part, "ready")
    record = Record(hop.node, 1, "host", "test", (), ROOM, holding, Load(kv_budget=room))
    return Member(record=record, liveness="alive", heard_at=0.0)


@pytest.mark.parametrize("small", range(3))
@pytest.mark.parametrize("timed", [False, True])
@pytest.mark.parametrize("spots", [(), tuple(range(16))])
@pytest.mark.parametrize(
    "decoding",
    [DecodingParams(3900), DecodingParams(3900, PENALTIES), DecodingParams(3900, logprobs=20)],
)
def test_every_stage_admits_what_is_fitted_and_not_a_token_more(
    small: int, timed: bool, spots: tuple[int, ...], decoding: DecodingParams
) -> None:
    rooms = [ROOM if at == small else 64 * ROOM for at in range(3)]
    members = [holder(hop, room) for hop, room in zip(ROUTE, rooms, strict=True)]
    choice = RouteChoice(SimpleNamespace(members=lambda: members), MODEL, random.Random(1), None)
    asked = Asked(MODEL.id, MODEL.fingerprint, timed=timed, spots=lambda at: spots if at else ())
    log = AnswerLog(range(50), decoding, SHAPE.vocab)
    log.decoding = choice.fit(ROUTE, asked, log)
    assert 50 < log.decoding.max_tokens < decoding.max_tokens

    course = SimpleNamespace(session=bytes(16), epoch=0, route=tuple(ROUTE))

    def admit_all() -> None:
        for at, (hop, room) in enumerate(zip(ROUTE, rooms, strict=True)):
            terms = StageTerms(hop.node, MODEL, hop.part, 0, room, 0)
            admit(opening(asked, log, course, at, 1), terms)

    admit_all()
    more = log.decoding.max_tokens + 1
    log.decoding = msgspec.structs.replace(log.decoding, max_tokens=more)
    with pytest.raises(Refused, match="more than this host ever has room for"):
        admit_all()
