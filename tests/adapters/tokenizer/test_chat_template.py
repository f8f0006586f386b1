"""Chat templates in their process: equal to `transformers`, and harmless when hostile."""

from __future__ import annotations

import gc
import time
from typing import TYPE_CHECKING

import psutil
import pytest
from transformers.utils.chat_template_utils import render_jinja_template

from diffuse_core.adapters.tokenizer.chat_template import ChatTemplate
from diffuse_core.errors import UsageError

if TYPE_CHECKING:
    from collections.abc import Callable


def said(role: str, content: str) -> dict[str, str]:
    return {"role": role, "content": content}


CHAT = [
    said("system", "Be brief."),
    said("user", " héllo <b> & \"q\" 'x'\n"),
    said("assistant", "日本 🙂"),
    said("user", "next"),
]
SPECIAL = {"bos_token": "<s>", "eos_token": "</s>"}
TEMPLATES = {
    "plain": "{{ bos_token }}{% for m in messages %}"
    "[{{ m.role }}] {{ m['content'] }}\n{% endfor %}"
    "{% if add_generation_prompt %}[assistant]{% endif %}{{ eos_token }}",
    "blocks": """
    {% for message in messages %}
        {%- if loop.first and message.role != 'system' %}
            none
        {% endif %}
        {{ message.content | trim }}
      {% if loop.last %}
last
      {% endif %}
    {% endfor %}
""",
    "namespace": "{% set ns = namespace(count=0) %}{% for m in messages %}"
    "{% if m.role == 'user' %}{% set ns.count = ns.count + 1 %}{% endif %}{% endfor %}"
    "{{ ns.count }}",
    "tojson": "{{ messages | tojson }}{{ messages | tojson(indent=2) }}"
    "{{ {'b': '<é>'} | tojson }}",
    "macro": "{% macro say(m, end='.') %}<{{ m.content }}{{ end }}>{% endmacro %}"
    "{% for m in messages %}{{ say(m) }}{{ say(m, end='!') }}{% endfor %}",
    "controls": "{% for m in messages %}{% if loop.index == 2 %}{% continue %}{% endif %}"
    "{% if loop.index == 4 %}{% break %}{% endif %}{{ m.content }}{% endfor %}",
    "generation": "{% for m in messages %}{% generation %}{{ m.content }}{% endgeneration %}|"
    "{% endfor %}",
    "absent": "{{ tools is none }}{{ documents }}{{ unknown }}{{ unknown is defined }}",
    "slices": "{{ messages[1:] | map(attribute='content') | join('|') }}{{ messages[::-1][0] }}"
    "{{ messages | selectattr('role', 'equalto', 'user') | list | length }}",
    "strings": "{{ messages[0].content.split(' ')[-1].upper() }}{{ 'a' ~ 1 ~ none }}"
    "{{ '%s' | format('x') }}{{ messages[1].content | replace('l', 'L') }}{{ 'é' | e }}",
    "time": "{{ strftime_now('%Y') }}",
}


@pytest.fixture(scope="module")
def render() -> Callable:
    def make(source: str, chat: list[dict] = CHAT) -> str:
        return ChatTemplate(source, SPECIAL).render(chat)

    return make


@pytest.mark.parametrize("name", sorted(TEMPLATES))
def test_the_text_is_that_of_transformers(render: Callable, name: str) -> None:
    theirs, _ = render_jinja_template(
        [CHAT], chat_template=TEMPLATES[name], add_generation_prompt=True, **SPECIAL
    )
    assert render(TEMPLATES[name]) == theirs[0]


def test_one_process_serves_many_chats() -> None:
    template = ChatTemplate(TEMPLATES["plain"], {})
    before = set(psutil.Process().children())
    for length in range(1, 4):
        assert template.render(CHAT[:length]).count("[user]") == length // 2
    assert set(psutil.Process().children()) == before


def test_a_refusal_is_told_in_the_templates_words(render: Callable) -> None:
    with pytest.raises(UsageError, match=r"refused the chat.*no system, \[31m please"):
        render("{{ raise_exception('no system,\x1b[31m please') }}")


@pytest.mark.parametrize(
    ("source", "told"),
    [
        ("{% for m in messages %}", "TemplateSyntaxError"),
        ("{{ 1 / 0 }}", "ZeroDivisionError"),
        ("{{ unknown.attribute }}", "UndefinedError"),
        ("{{ messages.append(1) }}", "SecurityError"),
        ("{{ ''.__class__.__mro__ }}", "SecurityError"),
        ("{{ self.__init__.__globals__ }}", "SecurityError"),
        ("{{ cycler.__init__.__globals__.os.popen('id').read() }}", "SecurityError"),
        ("{% set ns = namespace(__class__=1) %}{{ ns }}", "SecurityError"),
        ("{% include 'other' %}", "TypeError"),
        ("{% import 'os' as os %}", "TypeError"),
        ("{{ " + "(" * 5000 + ")" * 5000 + " }}", "RecursionError"),
        ("{% if x %}" * 3000, "RecursionError"),
    ],
)
def test_what_a_template_may_not_do_is_told(render: Callable, source: str, told: str) -> None:
    with pytest.raises(UsageError, match=told):
        render(source)


@pytest.mark.parametrize("source", ["{{ ''.__class__ }}", "{{ '{0.__class__}'.format(1) }}"])
def test_what_lies_behind_values_is_not_shown(render: Callable, source: str) -> None:
    assert render(source) == ""


SLOW = (pytest.mark.slow, pytest.mark.timeout(200))


@pytest.mark.parametrize(
    "source",
    [
        pytest.param(
            "{% for a in range(99999) %}{% for b in range(99999) %}{% endfor %}{% endfor %}",
            marks=SLOW,
        ),
        pytest.param("{% set n = 9 %}{{ n ** (n ** n) }}", marks=SLOW),
        pytest.param(
            "{% set ns = namespace(x=[1]) %}"
            "{% for i in range(99) %}{% set ns.x = [ns.x, ns.x] %}{% endfor %}{{ ns.x }}",
            marks=SLOW,
        ),
        "{{ 'a' * 10 ** 11 }}",
        "{% set ns = namespace(x='aaaa') %}"
        "{% for i in range(99) %}{% set ns.x = ns.x ~ ns.x %}{% endfor %}",
        "{% for i in range(99999) %}{{ 'a' * 99999 }}{% endfor %}",
        "{{ '%1000000000000d' % 1 }}",
        "{% macro f(n) %}{{ f(n) }}{{ f(n) }}{% endmacro %}{{ f(1) }}",
    ],
)
def test_a_template_without_measure_is_stopped(source: str) -> None:
    """Within seconds, without taking this process along, and the next chat is served."""
    template = ChatTemplate("{% if messages[0].content == 'go' %}" + source + "{% endif %}ok", {})
    started = time.monotonic()
    with pytest.raises(UsageError):
        template.render([said("user", "go")])
    assert time.monotonic() - started < 8
    assert template.render([said("user", "stay")]) == "ok"


def test_a_chat_of_too_many_messages_is_refused(render: Callable) -> None:
    with pytest.raises(UsageError, match="1024 messages"):
        render("", [said("user", "")] * 1025)


def test_a_long_chat_passes(render: Callable) -> None:
    chat = [said("user", "é" * 1000)] * 1024
    assert len(render("{% for m in messages %}{{ m.content }}{% endfor %}", chat)) == 1_024_000


def test_no_process_is_left_when_the_template_is_dropped() -> None:
    before = set(psutil.Process().children())
    template = ChatTemplate("ok", {})
    assert template.render(CHAT) == "ok"
    (process,) = set(psutil.Process().children()) - before
    del template
    gc.collect()
    psutil.wait_procs([process], timeout=5)
    assert not process.is_running()


def test_a_process_that_was_killed_is_started_again() -> None:
    before = set(psutil.Process().children())
    template = ChatTemplate("ok", {})
    assert template.render(CHAT) == "ok"
    (process,) = set(psutil.Process().children()) - before
    process.kill()
    with pytest.raises(UsageError):
        template.render(CHAT)
    assert template.render(CHAT) == "ok"
