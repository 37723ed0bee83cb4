"""Hostile chat templates: none reaches outside, and none takes more than a second or so, or much memory."""

# ruff: noqa: E501 - templates in one line

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

from ringlet.core.errors import RingletError
from ringlet.tokenization.chat.template import ChatTemplate

DOUBLING = "{{% set n = namespace(x={start}) %}}{{% for i in range(100) %}}{{% set n.x = {step} %}}{{% endfor %}}{end}"
GROWING_MACRO = "{% macro twice(x) %}{{ x }}{{ x }}{% endmacro %}"
LONG = "x" * 50_000

# What each does is to be stopped after so many steps.
ENDLESS = {
    "loops in loops": "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
    "a loop that only tests": "{% for a in range(99999) %}{% for b in range(99999) if false %}{% endfor %}{% endfor %}",
    "a large body": "{% for a in range(100000) %}" + "{% if a %}{% endif %}" * 2000 + "{% endfor %}",
    "macros that branch": "{% macro m(n) %}{% if n %}{{ m(n-1) }}{{ m(n-1) }}{% endif %}{% endmacro %}{{ m(60) }}",
    "long lists as arguments": "{% macro m() %}{{ varargs }}{% endmacro %}{% for i in range(99) %}{{ m(*range(99999)) }}"
    "{% endfor %}",
    "a cycler": "{% set c = cycler(*range(99999)) %}{% for i in range(99999) %}{{ c.next() }}{% endfor %}",
    "a joiner": "{% set j = joiner('a' * 100000) %}{% for i in range(99999) %}{{ j() }}{% endfor %}",
    "sorting": "{% for i in range(1000) %}{% set x = range(99999) | sort(reverse=true) %}{% endfor %}",
    "filters of filters": "{% for i in range(1000) %}{% set x = range(99999) | map('string') | list %}{% endfor %}",
    "comparing": "{% for i in range(99999) %}{{ ('a' * 99999) == ('a' * 99998 ~ 'b') }}{% endfor %}",
    "searching": "{{ ('a' * 100000).rfind('b' + 'a' * 50000) }}",
    "stripping": "{{ ('a' * 1000000).strip('b' * 1000000) }}",
    "splitting": "{% for i in range(1000) %}{% set x = ('a ' * 400000).split() %}{% endfor %}",
    "characters": "{% for i in range(1000) %}{% set x = ('a' * 1000000) | list %}{% endfor %}",
}
GROWING = {
    "text times": "{{ 'a' * 10 ** 9 }}",
    "times text": "{{ 10 ** 9 * 'a' }}",
    "list times": "{{ ([0] * 10 ** 9) | length }}",
    "tuple times": "{{ ((0,) * 10 ** 9) | length }}",
    "a text doubled": DOUBLING.format(start="'ab'", step="n.x ~ n.x", end=""),
    "a text added": DOUBLING.format(start="'ab'", step="n.x + n.x", end=""),
    "a list added": DOUBLING.format(start="[1]", step="n.x + n.x", end=""),
    "a list in itself, printed": DOUBLING.format(start="[1]", step="[n.x, n.x]", end="{{ n.x }}"),
    "a dict in itself, as JSON": DOUBLING.format(start="{1: 1}", step="{1: n.x, 2: n.x}", end="{{ n.x | tojson }}"),
    "a list in itself, compared": DOUBLING.format(start="[1]", step="[n.x, n.x]", end="{{ n.x == n.x + [] }}"),
    "a set block": DOUBLING.format(start="'ab'", step="y", end="").replace(
        "{% set n.x", "{% set y %}{{ n.x }}{{ n.x }}{% endset %}{% set n.x"
    ),
    "a macro": GROWING_MACRO + DOUBLING.format(start="'ab'", step="twice(n.x)", end=""),
    "arguments in arguments": "{% macro m() %}{{ m(varargs, varargs) }}{% endmacro %}{{ m(1) }}",
    "the template's own text": "{% for i in range(100000) %}" + LONG + "{% endfor %}",
    "the same in a macro": "{% macro m() %}{% for i in range(99999) %}" + LONG + "{% endfor %}{% endmacro %}{{ m() }}",
    "the same in a filter": "{% for i in range(99999) %}{% filter upper %}" + LONG + "{% endfilter %}{% endfor %}",
    ".center": "{{ 'a'.center(10 ** 9) }}",
    "center": "{{ 'a' | center(10 ** 9) }}",
    ".ljust": "{{ 'a'.ljust(10 ** 9, 'b') }}",
    ".rjust": "{{ 'a'.rjust(10 ** 9) }}",
    ".zfill": "{{ 'a'.zfill(10 ** 9) }}",
    "indent": "{{ 'a\nb' | indent(10 ** 9) }}",
    "indent many lines": "{{ ('\n' * 10000) | indent(10000, blank=true) }}",
    "join": "{{ range(99999) | join('a' * 100000) }}",
    ".join": "{{ ('a' * 100000).join(['b'] * 50000) }}",
    ".replace": "{{ ('a' * 10000).replace('a', 'b' * 100000) }}",
    "replace nothing": "{{ ('a' * 10000) | replace('', 'b' * 100000) }}",
    "batch": "{{ [1] | batch(10 ** 9, 0) | list | length }}",
    "slice": "{{ [1] | slice(10 ** 9) | list | length }}",
}
FAILING = {
    "a macro that calls itself": "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
    "macros that call each other": "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{{ a() }}{% endmacro %}{{ a() }}",
    "a caller of itself": "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
    "a loop in itself": "{% for x in [1] recursive %}{{ loop([1, 1]) }}{% endfor %}",
    "a block in itself": "{% block a %}{{ self.a() }}{% endblock %}",
    "a power": "{{ 2 ** 100000000 }}",
    "a negative power": "{{ 2 ** -100000000 }}",
    "products": DOUBLING.format(start="3", step="n.x * n.x", end=""),
    "lists in lists": "{% set n = namespace(x=[]) %}{% for i in range(9999) %}{% set n.x = [n.x] %}{% endfor %}{{ n.x }}",
    "tuples in tuples": "{% set n = namespace(x=(1,)) %}{% for i in range(9999) %}{% set n.x = (n.x,) %}{% endfor %}"
    "{{ {n.x: 1} }}",
    "a width": "{{ '{:1000000000}'.format(1) }}",
    "a width as a field": "{{ '{:{w}}'.format(1, w=10 ** 9) }}",
    "a precision": "{{ '{:.1000000000f}'.format(1) }}",
    "a width in %": "{{ '%1000000000d' % 1 }}",
    "a width of *": "{{ '%*d' % (1000000000, 1) }}",
    "a width in the filter": "{{ '%1000000000d' | format(1) }}",
    "fields in fields": "{{ '" + "{0:" * 500 + "}" * 500 + "'.format(1) }}",
    "indented JSON": "{{ [1, 2] | tojson(indent=10 ** 9) }}",
    "JSON with long marks": "{{ ([1] * 1000) | tojson(separators=('a' * 10000, ':')) }}",
    "digits": "{{ 1.5 | round(10 ** 9, 'ceil') }}",
    "a range": "{{ range(10 ** 9) }}",
    "a range beyond": "{{ range(10 ** 30) }}",
    "tabs": "{{ '\t'.expandtabs(10 ** 9) }}",
    "bytes": "{{ (1).to_bytes(10 ** 9, 'big') }}{{ 'a'.encode().zfill(10 ** 9) }}",
    "random text": "{{ lipsum(n=10 ** 6) }}",
    "a date": "{{ strftime_now('%d' * 100000) }}",
    "the sum of lists": "{{ ([[1] * 100] * 100) | sum(start=[]) }}",
    "a namespace in a list": "{{ [namespace(a=1)] }}",
}
REACHING = {
    "the class": "{{ ''.__class__.__mro__[1].__subclasses__() }}",
    "the class as an item": "{{ messages['__class__']['__base__'] }}",
    "a function's globals": "{{ raise_exception.__globals__['os'] }}",
    "a function of ours": "{{ strftime_now.run.__globals__ }}",
    "globals of a class": "{{ cycler.__init__.__globals__.os }}",
    "namespace": "{{ namespace.__init__.__globals__ }}",
    "a macro's function": "{% macro m() %}{% endmacro %}{{ m._func.__globals__ }}",
    "the loop": "{% for x in [1] %}{{ loop.__init__.__globals__ }}{% endfor %}",
    "the loop's own": "{% for x in [1] %}{{ loop._iterator.x }}{% endfor %}",
    "self": "{{ self._TemplateReference__context.environment }}",
    "what is not defined": "{{ nothing.__init__.__globals__ }}",
    "format": "{{ '{0.__class__.__init__.__globals__}'.format(messages) }}",
    "format, by name": "{{ '{m.append.__self__}'.format(m=messages) }}",
    "changing a list": "{{ messages.append(1) }}",
    "changing a dict": "{{ messages[0].update({'a': 1}) }}",
    "emptying a dict": "{{ messages[0].pop('content') }}",
    "a namespace's own": "{% set n = namespace() %}{% set n._Namespace__attrs = 1 %}",
    "a namespace's class": "{{ namespace(__class__=1) }}",
}
UNUSABLE = {
    "importing": "{% import 'os' as x %}",
    "importing a name": "{% from 'a' import b %}",
    "a file": "{% include '/etc/passwd' %}",
    "a parent": "{% extends 'a' %}",
    "escaping": "{% autoescape true %}{% endautoescape %}",
    "a filter that makes HTML": "{{ 'x' | urlize }}",
    "attr": "{{ '' | attr('__class__') }}",
    "brackets": "{{ " + "(" * 5000 + "1" + ")" * 5000 + " }}",
    "lists": "{{ " + "[" * 5000 + "]" * 5000 + " }}",
    "not": "{{ " + "not " * 20000 + "1 }}",
    "additions": "{{ " + "1+" * 20000 + "1 }}",
    "attributes": "{{ a" + ".b" * 15000 + " }}",
    "elif": "{% if a %}" + "{% elif b %}" * 5000 + "{% endif %}",
    "if in if": "{% if a %}" * 1000 + "{% endif %}" * 1000,
    "for in for": "{% for a in b %}" * 200 + "{% endfor %}" * 200,
    "parts": "{{a}}" * 20000,
    "digits": "{{ " + "9" * 100000 + " }}",
    "length": "x" * 200_000,
    "an open tag": "{{",
    "open comments": "{#" * 50000,
    "no such tag": "{% nothing %}",
}


def told(source: str) -> str:
    """The error of a template's, one line that begins with where it comes from."""
    with pytest.raises(RingletError) as caught:
        ChatTemplate(source, "here", {}).render([{"role": "user", "content": "hi"}])
    text = str(caught.value)
    assert text.startswith("here: ")
    assert "\n" not in text
    return text


@pytest.mark.parametrize("source", [*ENDLESS.values(), *GROWING.values()], ids=[*ENDLESS, *GROWING])
def test_a_template_without_end_is_stopped(source: str) -> None:
    assert re.search(r"the chat template was stopped after 301,\d\d\d steps", told(source))


@pytest.mark.parametrize("source", [*FAILING.values(), *REACHING.values()], ids=[*FAILING, *REACHING])
def test_what_a_template_may_not_do_fails(source: str) -> None:
    assert "the chat template fails in line 1: " in told(source)


@pytest.mark.parametrize("source", UNUSABLE.values(), ids=UNUSABLE)
def test_what_is_no_chat_template_is_refused_at_once(source: str) -> None:
    with pytest.raises(
        RingletError, match=r"^here: .*(no chat template that can be used: |characters; a chat template)"
    ):
        ChatTemplate(source, "here", {})


@pytest.mark.parametrize(
    ("source", "printed"),
    [
        ("{{ ''.__class__ }}{{ ''['__class__'] }}", ""),
        (
            "{{ [''] | map(attribute='__class__') | list }}{{ messages | selectattr('__class__') | list }}",
            "[Undefined][]",
        ),
        ("{% set n = namespace(x=1) %}{% set n.x = n %}{{ n }}{{ n.x == n }}", "<ChatNamespace>True"),
        ("{{ ('9' * 100000) | int }}{{ 'a' * -1 }}{{ [1] * -5 }}", "0[]"),
        ("{{ self.nothing is defined }}{{ self._TemplateReference__context }}", "False"),
    ],
)
def test_harmless_ends(source: str, printed: str) -> None:
    assert ChatTemplate(source, "here", {}).render([{"role": "user", "content": "hi"}]) == printed


def test_a_long_conversation_has_more_steps() -> None:
    source = "{% for m in messages %}{% for n in range(3000) %}{% if n == m.content %}{% endif %}{% endfor %}{{ m.content }}{% endfor %}"
    template = ChatTemplate(source, "here", {})
    with pytest.raises(RingletError, match="steps"):
        template.render([{"role": "user", "content": "hi"}] * 200)
    source = "{% for m in messages %}{{ '<' + m.role + '>' + m.content | trim | upper | lower }}{% endfor %}"
    long = ChatTemplate(source, "here", {}).render([{"role": "user", "content": "ab " * 100_000}] * 20)
    assert len(long) == 20 * (6 + 299_999)


def test_a_template_can_be_rendered_again_after_it_was_stopped() -> None:
    template = ChatTemplate("{% for i in range((messages | length - 1) * 99999) %}{{ i }}{% endfor %}a", "here", {})
    for _ in range(2):
        with pytest.raises(RingletError):
            template.render([{"role": "user", "content": "hi"}] * 2)
        assert template.render([{"role": "user", "content": "hi"}]) == "a"


LIMITED = """
import json, resource, sys
from ringlet.core.errors import RingletError
from ringlet.tokenization.chat.template import ChatTemplate

ChatTemplate("{{ 1 }}", "here", {}).render([{"role": "user", "content": "hi"}])
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
for source in json.load(sys.stdin):
    try:
        ChatTemplate(source, "here", {}).render([{"role": "user", "content": "hi"}])
    except RingletError:
        pass
print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(sys.platform != "linux", reason="ru_maxrss is in other units elsewhere")
def test_no_hostile_template_takes_much_memory(repository: Path) -> None:
    sources = [source for group in (ENDLESS, GROWING, FAILING, REACHING, UNUSABLE) for source in group.values()]
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        input=json.dumps(sources),
        capture_output=True,
        text=True,
        timeout=300,
        cwd=repository.parent,
    )
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) < 200_000, "KiB"
