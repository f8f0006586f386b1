"""Which model needs a Host most: gaps first, whoever looks; and when to leave one for another."""

from __future__ import annotations

import random
from time import process_time
from typing import TYPE_CHECKING

import msgspec
from domain_samples import MODEL, SMOL, member, node, ordered
from hypothesis import given, settings
from hypothesis import strategies as st

from diffuse_core.domain.needs import MAX_MODELS, Means, Need, elsewhere, needs
from diffuse_core.domain.records import Load, ModelRef
from diffuse_core.domain.slices import replicas_per_layer

if TYPE_CHECKING:
    from diffuse_core.domain.members import Member

MIB = 2**20
ALL = frozenset({"fp32", "bf16", "int8", "int4"})


def _model(name: str, **changes: object) -> ModelRef:
    print_of = (name.encode().hex() * 64)[:64]
    return msgspec.structs.replace(MODEL, id=name, fingerprint=print_of, **changes)


A, B, C = _model("a"), _model("b"), _model("c")


def _means(mib: int = 160, number: int = 99, **changes: object) -> Means:
    return Means(own=node(number), capacity=mib * MIB, contracts=ALL, **changes)


def _names(found: tuple[Need, ...]) -> list[str]:
    return [need.model.id for need in found]


def _busy(one: Member, sessions: int) -> Member:
    return msgspec.structs.replace(
        one, record=msgspec.structs.replace(one.record, load=Load(sessions=sessions))
    )


def test_incomplete_comes_before_fragile_before_robust() -> None:
    members = [
        member(1, 0, 30, model=A),
        member(2, 0, 30, model=A),
        member(3, 0, 30, model=B),
        member(4, 0, 20, model=C),
    ]
    found = needs(members, _means())
    assert _names(found) == ["c", "b", "a"]
    assert [need.effect for need in found] == ["fills", "reinforces", "adds"]
    assert found[0].reason == "fills the gap 20:30 of 30, Incomplete -> Fragile"


def test_what_is_being_loaded_is_no_gap() -> None:
    members = [
        member(1, 0, 30, model=A),
        member(2, 0, 20, model=B),
        member(3, 20, 30, model=B, state="loading"),
    ]
    assert {need.effect for need in needs(members, _means())} == {"reinforces"}


def test_a_gap_that_this_host_closes_comes_before_one_it_cannot() -> None:
    members = [member(1, 0, 10, model=A), member(2, 0, 20, model=B)]
    assert _names(needs(members, _means(number=7))) == ["b", "a"]
    assert _names(needs(members, _means(number=8))) == ["b", "a"]


def test_more_demanded_models_come_first() -> None:
    members = [member(1, 0, 30, model=A), _busy(member(2, 0, 30, model=B), 3)]
    for number in range(20, 30):
        found = needs(members, _means(400, number))
        assert _names(found) == ["b", "a"]
        assert found[0].reason.endswith(", 3 sessions")


def test_what_a_host_says_of_its_sessions_never_outweighs_another_host() -> None:
    liar = _busy(member(1, 0, 20, model=A), 2**31)
    members = [liar, member(2, 0, 20, model=B), member(3, 0, 20, model=B)]
    for number in range(20, 30):
        assert _names(needs(members, _means(number=number))) == ["b", "a"]


def test_of_a_great_many_models_those_with_the_most_hosts_are_reckoned_with() -> None:
    liars = [member(number, 0, 20, model=_model(f"m{number}")) for number in range(10, 1500)]
    members = [*liars, member(1, 0, 20, model=B), member(2, 0, 20, model=B)]
    needs(members, _means())
    began = process_time()
    found = needs(members, _means())
    assert process_time() - began < 0.5
    assert len(found) == MAX_MODELS
    assert _names(found)[0] == "b"
    assert found == needs(members[::-1], _means())


def test_hosts_that_see_the_same_picture_spread_over_equal_models() -> None:
    members = [member(1, 0, 20, model=A), member(2, 0, 20, model=B)]
    chosen = {needs(members, _means(number=number))[0].model.id for number in range(20, 40)}
    assert chosen == {"a", "b"}
    assert needs(members, _means()) == needs(members[::-1], _means())


def test_what_a_host_cannot_hold_or_compute_comes_last_and_is_told() -> None:
    large = _model("l", shape=msgspec.structs.replace(SMOL, layer_bytes=200 * MIB))
    wide = _model("w", contract="int4")
    members = [member(1, 0, 10, model=large), member(2, 0, 10, model=wide)]
    members += [member(3, 0, 30, model=A), member(4, 0, 30, model=A)]
    means = Means(own=node(9), capacity=150 * MIB, contracts=frozenset({"bf16"}))
    found = {need.model.id: need for need in needs(members, means)}
    assert _names(needs(members, means))[0] == "a"
    assert found["l"].plan is None
    assert "memory cap 150.0 MiB is too small" in found["l"].reason
    assert found["w"].reason == "in int4, which is not computed here"
    assert found["w"].effect == found["l"].effect == "none"


def test_what_this_host_holds_itself_does_not_count() -> None:
    members = [member(1, 0, 20, model=A), member(9, 20, 30, model=A)]
    (need,) = needs(members, _means(number=9))
    assert need.effect == "fills"
    assert needs([member(9, 0, 30, model=A)], _means(number=9)) == ()


def test_nothing_is_needed_of_nobody() -> None:
    assert needs([], _means()) == ()


SPANS = st.tuples(st.integers(0, 29), st.integers(1, 30))


@settings(max_examples=50)
@given(
    st.lists(
        st.tuples(st.sampled_from([A, B, C]), SPANS, st.sampled_from(["ready", "loading"])),
        max_size=8,
    ),
    st.integers(20, 500),
    st.binary(min_size=32, max_size=32),
    st.integers(0, 2**32),
)
def test_a_gap_that_can_be_filled_beats_all_else_whatever_the_order(
    holdings: list, mib: int, own: bytes, seed: int
) -> None:
    members = [
        member(number, start, min(30, start + length), model=model, state=state)
        for number, (model, (start, length), state) in enumerate(holdings, 1)
    ]
    means = Means(own=own, capacity=mib * MIB, contracts=ALL)
    found = needs(members, means)
    shuffled = random.Random(seed).sample(members, len(members))
    again = needs(shuffled, means)
    assert [(need.model, need.effect, need.plan.slice) for need in found] == [
        (need.model, need.effect, need.plan.slice) for need in again
    ]
    effects = [need.effect for need in found]
    assert effects == sorted(effects, key=["fills", "reinforces", "adds"].index)
    for need in found:
        held = [m.record.holding.slice for m in members if m.record.holding.model == need.model]
        counts = replicas_per_layer(30, held)
        taken = counts[need.plan.slice.start : need.plan.slice.end]
        assert (need.effect == "fills") == (min(taken) == 0)


# --- leaving one model for another -----------------------------------------------------------


def _robust_without_me() -> list[Member]:
    return [
        member(1, 0, 30, model=A),
        member(2, 0, 30, model=A),
        member(9, 0, 30, model=A),
    ]


def test_a_surplus_host_is_wanted_where_it_closes_the_gap() -> None:
    members = [*_robust_without_me(), member(4, 0, 20, model=B)]
    need = elsewhere(members, _means(number=9), A)
    assert need is not None
    assert (need.model, need.change.after) == (B, "Fragile")


def test_a_host_stays_where_its_own_model_would_suffer() -> None:
    gap = member(4, 0, 20, model=B)
    fragile = [member(1, 0, 30, model=A), member(9, 0, 30, model=A)]
    assert elsewhere([*fragile, gap], _means(number=9), A) is None
    unsure = [*_robust_without_me()[1:], member(1, 0, 30, model=A, liveness="suspect")]
    assert elsewhere([*unsure, gap], _means(number=9), A) is None
    loading = [*_robust_without_me()[1:], member(1, 0, 30, model=A, state="loading")]
    assert elsewhere([*loading, gap], _means(number=9), A) is None


def test_a_host_stays_when_nothing_is_won_elsewhere() -> None:
    here = _robust_without_me()
    assert elsewhere(here, _means(number=9), A) is None
    assert elsewhere([*here, member(4, 0, 30, model=B)], _means(number=9), A) is None
    coming = [member(4, 0, 20, model=B), member(5, 20, 30, model=B, state="claiming")]
    assert elsewhere([*here, *coming], _means(number=9), A) is None
    # Only a part of the gap would be filled: B could not be served then, either.
    far = member(4, 0, 5, model=B)
    assert elsewhere([*here, far], _means(number=9), A) is None
    need = elsewhere([*here, far], _means(400, number=9), A)
    assert need is not None
    # Unless that model was tried and could not be had.
    assert elsewhere([*here, far], _means(400, number=9), A, {need.model}) is None


def test_nobody_leaves_for_a_model_that_cannot_be_got_by_its_name() -> None:
    gap = member(4, 0, 20, model=_model("/files/b"))
    assert elsewhere([*_robust_without_me(), gap], _means(number=9), A) is None


def test_ids_that_are_no_keys_do_as_well() -> None:
    means = Means(own=ordered(1), capacity=150 * MIB, contracts=ALL)
    assert needs([member(1, 0, 20)], means)[0].effect == "fills"
