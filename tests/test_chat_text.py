"""Every operation carries along which characters come from messages."""

# ruff: noqa: E501 - templates in one line

from __future__ import annotations

import jinja2
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ringlet.tokenization.chat import text as texts
from ringlet.tokenization.chat.template import ChatTemplate
from ringlet.tokenization.chat.text import ANSWER, MESSAGE, TEMPLATE, Text, origins_of

# In these tests messages are of Greek letters and blanks alone, and templates have none.
GREEK = "αβγΩ"


def from_message(text: str) -> str:
    return texts.all_from(text, MESSAGE)


def mixed(text: str) -> str:
    """A Text whose Greek letters come from a message, and nothing else."""
    return texts.with_origins(text, bytes(MESSAGE if letter in GREEK else TEMPLATE for letter in text))


def rightly_marked(text: str) -> bool:
    """Whether exactly the Greek letters come from a message."""
    return origins_of(text) == bytes(MESSAGE if letter in GREEK else TEMPLATE for letter in text)


PIECES = st.text(alphabet="ab \n,αβΩ", max_size=12).map(mixed)
SHORT = st.text(alphabet="a ,", min_size=1, max_size=2)


@given(PIECES, SHORT, st.integers(-1, 3))
@pytest.mark.parametrize("method", ["split", "rsplit"])
def test_splitting(method: str, text: str, separator: str, maxsplit: int) -> None:
    for wanted in (separator, None):
        found = texts.split(text, wanted, maxsplit, method)
        assert found == getattr(str.__str__(text), method)(wanted, maxsplit)
        assert all(map(rightly_marked, found))


@given(PIECES, SHORT, SHORT, st.integers(-1, 3))
def test_the_other_operations(text: str, old: str, new: str, count: int) -> None:
    plain = str.__str__(text)
    pairs = [
        (texts.replaced(text, old, new, count), plain.replace(old, new, count)),
        (texts.stripped(text), plain.strip()),
        (texts.stripped(text, old), plain.strip(old)),
        (texts.stripped(text, None, "lstrip"), plain.lstrip()),
        (texts.stripped(text, old, "rstrip"), plain.rstrip(old)),
        (texts.derived(plain.capitalize(), text), plain.capitalize()),
        (texts.repeated(text, count), plain * count),
        (texts.joined([text, old, text], new), new.join([plain, old, plain])),
        (text[::-1], plain[::-1]),
        (text[1:-1:2], plain[1:-1:2]),
        (texts.indented(text, old, True, True), jinja2.filters.do_indent(plain, old, True, True)),
        (texts.indented(text, old, False, False), jinja2.filters.do_indent(plain, old)),
    ]
    pairs += zip(texts.split_lines(text), plain.splitlines(), strict=True)
    pairs += zip(texts.split_lines(text, True), plain.splitlines(True), strict=True)
    pairs += zip(texts.partitioned(text, old), plain.partition(old), strict=True)
    pairs += zip(texts.partitioned(text, old, "rpartition"), plain.rpartition(old), strict=True)
    pairs += zip(text, plain, strict=True)
    for ours, expected in pairs:
        assert str.__str__(ours) == expected
        assert origins_of(ours) == bytes(MESSAGE if letter in "αβΩωΒΑ" else TEMPLATE for letter in ours)


def test_a_text_is_a_str() -> None:
    text = from_message("αβ")
    assert isinstance(text, Text)
    assert text == "αβ"
    assert hash(text) == hash("αβ")
    assert text[-1] == "β"
    with pytest.raises(IndexError):
        text[2]
    assert type(texts.joined(["a", "b"])) is str
    assert type(from_message("αb") + "") is str  # Python's own operations lose the origins


def test_what_changes_a_text_s_length_or_pads_it_has_the_message_s_origin_all_over() -> None:
    for text in (
        texts.derived("SS", from_message("ß")),
        texts.padded(from_message("α"), 5),
        texts.padded("a", 3, from_message("α")),
        texts.replaced(mixed("aα"), "", "-"),
    ):
        assert set(origins_of(text)) == {MESSAGE}
    assert texts.padded("ab", 1) == "ab"


EXPRESSIONS = [
    "c", "c ~ 'x'", "'x' + c", "c * 2", "c[1:]", "c[0]", "c | trim", "c.strip()", "c.split(' ')[0]", "c.split() | join('x')",
    "c | replace(' ', 'x')", "c.replace(' ', '')", "c | upper", "c.lower()", "c | title", "c.capitalize()", "c | string",
    "'<%s>' % c", "'<%s|%5s>' % (c, 1)", "'<%(a)s>' % {'a': c}", "'<{}>'.format(c)", "'<{x}|{y:>3}>'.format(x=c, y=1)",
    "'<%s>' | format(c)", "c | indent(2, true)", "[c, 'x'] | join('-')", "['x', c] | last", "{'a': c}.a", "{'a': c}['a']",
    "c.splitlines() | join('x')", "c.partition(' ')[2]", "(c, 1)[0]", "c | default('x')", "nothing | default(c)",
    "messages | map(attribute='content') | join('x')", "messages[0].values() | list | last", "c if true else 'x'",
    "c | list | join('x')", "c | reverse", "c | first", "c | safe", "namespace(a=c).a", "dict(a=c).a", "[c] | map('trim') | first",
    "[c, 'x'] | sort | last", "messages | groupby('content') | map('first') | first", "c.removeprefix(' ')", "c and c",
]  # fmt: skip
COARSE = [
    "[c]", "{'a': c}", "c | tojson", "messages | tojson", "'%r' % c", "'{!r}'.format(c)", "c.center(9)", "c | truncate(3)",
    "'{:>9}'.format(c)", "'%9s' % c", "messages", "c.format()",
]  # fmt: skip
STATEMENTS = [
    "{{% set x = {} %}}{{{{ x }}}}",
    "{{% set n = namespace() %}}{{% set n.x = {} %}}{{{{ n.x }}}}",
    "{{% for x in [{}] %}}{{{{ x }}}}{{% endfor %}}",
    "{{% macro m(x) %}}<{{{{ x }}}}{{{{ caller() }}}}>{{% endmacro %}}{{% call m({0}) %}}{{{{ {0} }}}}{{% endcall %}}",
    "{{% set x %}}<{{{{ {} }}}}>{{% endset %}}{{{{ x ~ 'x' }}}}",
    "{{% filter trim %}}{{{{ {} }}}}{{% endfilter %}}",
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_a_template_s_characters_are_told_from_a_message_s(expression: str) -> None:
    for form in ("{{{{ {} }}}}", *STATEMENTS):
        source = "{% set c = messages[0].content %}<" + form.format(expression) + ">"
        messages = [{"role": "user", "content": "αβ γ\nΩ"}]
        text = ChatTemplate(source, "here", {}).render(messages)
        for letter, origin in zip(text, origins_of(text), strict=True):
            if letter.isascii() and letter not in " \n":
                assert origin == TEMPLATE, text
            elif not letter.isascii():
                assert origin == MESSAGE, text


@pytest.mark.parametrize("expression", COARSE)
def test_what_cannot_be_told_apart_comes_from_the_message(expression: str) -> None:
    source = "{% set c = messages[0].content %}{{ " + expression + " }}"
    text = ChatTemplate(source, "here", {}).render([{"role": "user", "content": "αβ γ Ω"}])
    assert set(origins_of(text)) == {MESSAGE}


def test_who_wrote_what() -> None:
    messages = [
        {"role": "user", "content": "α", "name": "β"},
        {"role": "assistant", "content": "γ"},
        {"role": "<Ω>", "content": "a"},
    ]
    source = "{% for m in messages %}{{ m.role }}{{ m.content }}{{ m.name }}|{% endfor %}{{ t }}"
    text = ChatTemplate(source, "here", {}).render(messages, variables={"t": "δ"})
    origin = dict(zip("αβγΩδ", (MESSAGE, MESSAGE, ANSWER, MESSAGE, TEMPLATE), strict=True))
    assert str.__str__(text) == "userαβ|assistantγ|<Ω>a|δ"
    for letter, found in zip(text, origins_of(text), strict=True):
        if letter in origin:
            assert found == origin[letter]
    assert origins_of(text)[: len("user")] == bytes(len("user"))  # a role that is a word is one of the template's
    at = text.index("<Ω>a")
    assert set(origins_of(text)[at : at + 4]) == {MESSAGE}


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(EXPRESSIONS + COARSE), min_size=1, max_size=4), st.text(alphabet="αβ \n<|", max_size=9))
def test_no_character_of_a_message_is_ever_taken_for_the_template_s(chain: list[str], content: str) -> None:
    """Operations after each other: the first on the message, each on what the one before gave."""
    source = "{% set c = messages[0].content %}"
    for expression in chain:
        source += "{% set c = (" + expression + ") | string %}"
    try:
        text = ChatTemplate(source + "{{ c }}", "here", {}).render([{"role": "user", "content": content}])
    except ValueError:
        return
    for letter, origin in zip(text, origins_of(text), strict=True):
        assert letter.isascii() or origin == MESSAGE
