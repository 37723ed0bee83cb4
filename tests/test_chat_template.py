"""Chat templates: rendered as jinja2 and transformers do it, and stopped where they reach out or have no end."""

# ruff: noqa: E501 - templates in one line

from __future__ import annotations

import json
import re
from datetime import datetime
from pathlib import Path

import jinja2
import pytest
from chat_battery import CONVERSATIONS, SPECIAL_TOKENS, TEMPLATES
from hypothesis import given, settings
from hypothesis import strategies as st
from jinja2.ext import loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

from ringlet.core.errors import RingletError
from ringlet.tokenization.chat.shipped import SHIPPED, shipped_template
from ringlet.tokenization.chat.template import ChatTemplate
from ringlet.tokenization.tokenizer import Tokenizer

FIXTURE = Path(__file__).parent / "fixtures" / "chat" / "rendered.json"
HELLO = [{"role": "user", "content": " Hello, world! \n two\tlines "}]


def render(source: str, messages: list[dict] = HELLO, generate: bool = False, **variables: object) -> str:
    return ChatTemplate(source, "here", SPECIAL_TOKENS).render(messages, generate, variables)


def reference(source: str, messages: list[dict] = HELLO, generate: bool = False, **variables: object) -> str:
    """What jinja2 gives, set up as transformers does it (`utils/chat_template_utils.py`)."""

    def refuse(message: str) -> None:
        raise jinja2.exceptions.TemplateError(message)

    environment = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols])
    environment.filters["tojson"] = lambda x, ensure_ascii=False, **options: json.dumps(
        x, ensure_ascii=ensure_ascii, **options
    )
    environment.globals |= {"raise_exception": refuse, "strftime_now": datetime.now().strftime}
    given = {"messages": messages, "tools": None, "documents": None, "add_generation_prompt": generate}
    return environment.from_string(source).render(**given, **SPECIAL_TOKENS, **variables)


# --- rendering is transformers' --------------------------------------------------------------------------------------


def test_templates_in_the_manner_of_models_render_as_transformers_does() -> None:
    """The fixture is made by tests/make_fixtures/chat.py; null where transformers raises an exception."""
    expected = json.loads(FIXTURE.read_text(encoding="utf-8"))
    assert len(expected) == len(TEMPLATES) * len(CONVERSATIONS) * 2
    for case in expected:
        source, messages = TEMPLATES[case["template"]], CONVERSATIONS[case["conversation"]]
        if case["text"] is None:
            with pytest.raises(RingletError, match=r"^here: the chat template "):
                render(source, messages, case["generate"])
        else:
            assert render(source, messages, case["generate"]) == case["text"], case


EXPRESSIONS = r"""
1 + 2 * 3 - 4 / 5 // 6 % 7; 2 ** 10; -3; +3; 7 // -2; 1.5; 1e3; true and none or 'x'; not 1
'a' ~ 1 ~ none ~ true ~ 1.5; 'a' + 'b'; 'ab' * 3; 3 * 'ab'; [1] + [2]; (1,) + (2, 3); [0] * 3; 'a' * -1; (-1) ** 0.5
[1, 2.5, none, true, 'q"', "it's", (1,), {'a': [1]}]; {'a': 1, 'b': {'c': none}}; (); []; {}; (1, 2); [nothing]
1 == 1.0; 'a' < 'b' < 'c'; 1 < 2 > 3; 'ell' in 'hello'; 2 not in [1, 2]; 'a' in {'a': 1}; [1, 2] < [1, 3]
messages[0].content[2:5]; messages[0]['content'][::-1]; messages[-1].role; 'abc'[-1]; 'abc'[5:]; [1, 2, 3][::2]
messages[0].nothing is defined; messages[7] is defined; nothing ~ 'x'; nothing is undefined; messages[0].get('x', 5)
nothing.x; messages[0].nothing.x; nothing + 1; messages[0].content.nothing; messages['x']; 5['x']; 'abc'['x'] is defined
messages[0].content.strip(); messages[0].content.lstrip().rstrip('\n '); 'xxaxx'.strip('x'); ' a b  c '.split()
'a,b,,c'.split(','); 'a,b,,c'.rsplit(',', 1); 'a,b,,c'.split(',', 1); 'abab'.split('ab'); ' a b c'.rsplit(none, 1)
'a\nb\r\nc'.splitlines(); 'a\nb\n'.splitlines(true); 'a-b-c'.partition('-'); 'a-b-c'.rpartition('-'); 'a'.split('')
'Straße ǆ'.upper(); 'ÀB İ'.lower(); 'hello wORLD'.title(); 'hELLO'.capitalize(); 'aB'.swapcase(); 'ß'.casefold()
'banana'.replace('an', 'AN', 1); 'ab'.replace('', '-'); 'banana'.count('a'); 'banana'.find('n'); 'banana'.rfind('n')
'banana'.index('n'); 'banana'.startswith(('a', 'b')); 'banana'.endswith('na'); 'ab'.isalpha(); '12'.isdigit()
'ab'.center(9, '*'); 'ab'.ljust(5) ~ '.'; 'ab'.rjust(5); '-7'.zfill(5); 'xab'.removeprefix('x'); 'abx'.removesuffix('x')
'-'.join(['a', 'b']); '-'.join([1]); '{0}-{1}'.format('a', 2); '{}{}'.format(1.5, none); 'abx'.removesuffix('')
'{} {x!r:>5} {y[0]} {{}}'.format(1, x='a', y=[5]); '{:{w}}'.format(1, w=4); '{'.format(1); '{}'.format(); '{a}'.format(b=1)
'{x[a]} {x.b} {y!r}'.format(x={'a': 1, 'b': 2}, y='q'); '{:>8.3f},{:<4},{:^5}'.format(3.14159, 'ab', 7); '{0.x}'.format(1)
'%s %d %5.2f %% %r' % ('a', 3, 2.5, 'b'); '%(a)s' % {'a': 1}; '%s' % 'x'; '%s,%-5s,' | format('a', 'b'); '%c%x' % ('a', 255)
'%s' % (); '%s' % (1, 2); 'x' % 1; '%d' % 'x'; '%z' % 1; '%' % (); '%%' % (); '%s %s' % 'x'; '%(a)s' % 1; '%5%' % ()
{'a': 1}.items() | list; {'a': 1}.keys() | list; {'a': 1}.values() | list; [1, 2, 1].count(1); [1, 2].index(2)
' x ' | trim; 'x' | upper; 'abc' | first; 'abc' | last; [3, 1, 2] | sort; [3, 1] | sort(reverse=true); ['b', 'A'] | sort
[1, 2] | sum; [1, 2] | max; [1, 2] | min; [1, none, 2] | select | list; [0, 1] | reject | list; range(5) | list
range(1, 9, 3) | list; range(3) | length; 'abc' | list; 'abc' | reverse; [1, 2] | reverse | list; 'abc' | length; range(3)
[1, 1, 2] | unique | list; [1, 2, 3] | batch(2, 0) | list; [1, 2, 3] | slice(2) | list; {'b': 1, 'a': 2} | dictsort
messages | map(attribute='role') | list; messages | selectattr('role', 'equalto', 'user') | list | length; 5 | length
messages | rejectattr('role', 'eq', 'user') | list; ['a', 'b'] | map('upper') | join('+'); [1, 2] | join; [[1, 2]] | join(d='-')
messages | join(', ', attribute='role'); 'a\nb\n\nc' | indent(2); 'a\n\nb' | indent(2, true, true); 'a\nb' | indent('> ', first=true)
'' | indent; '\n' | indent(1, true, true); 'a\n' | indent(1); 'a\r\nb' | indent(1); 'x\n\n' | indent(1, false, true); none | indent
nothing | default('d'); '' | default('d', true); none | d('x'); '5' | int; 'x' | int(7); 'ff' | int(0, 16); '2.5' | float; 3.7 | int
2.567 | round(1); 2.5 | round; 2.1 | round(method='ceil'); -3 | abs; 'hello world foo' | truncate(9); 'a b c' | wordcount
'hello wOrld-foo' | title; 'aBC' | capitalize; 'ABC' | lower; 'x' | center(5); 'aXbX' | replace('X', '1'); 5 | string
{'a': [1, none, true, 'é"<']} | tojson; [1, {'b': 2}] | tojson(indent=2); {'b': 1, 'a': 2} | tojson(sort_keys=true); nothing | tojson
[1] | tojson(separators=(',', ':')); messages | tojson; messages is iterable; messages[0] is mapping; 'x' is string; 1 is number
1 is odd; 2 is even; 6 is divisibleby 3; none is none; true is true; true is boolean; 'a' is lower; 'A' is upper; 1 is integer
1 is in [1, 2]; 1 is sameas 1; 2 is gt 1; 'x' if false else 'y'; 'x' if false; namespace(a=1).a; dict(a=1)['a']; dict([('a', 2)])
bos_token + eos_token; tools is none; add_generation_prompt; pad_token is defined; sep_token is defined; messages[0].items() | list
messages | groupby('role') | map('first') | list; (messages | groupby('role'))[0].grouper; 'é' | tojson(ensure_ascii=true); 1.0 is float
1 / 0; 'a' - 1; [1] - [2]; 'a' < 1; range('x'); 'a' * 'b'; [1, 'a'] | sort; {[1]: 2}; messages[0].append; messages.append(1); 1()
""".strip()


@pytest.mark.parametrize("expression", [e for line in EXPRESSIONS.splitlines() for e in line.split("; ")])
def test_expressions_are_jinja_s(expression: str) -> None:
    for source in ("{{ %s }}", "{% set x = {1: %s} %}{{ x }}", "{%% if %s %%}a{%% else %%}b{%% endif %%}"):
        source = source.replace("%s", expression).replace("%%", "%")
        try:
            expected = reference(source)
        except Exception:
            with pytest.raises(RingletError):
                render(source)
        else:
            if "object at 0x" not in expected and "built-in" not in expected and "Undefined" not in expected:
                assert render(source) == expected, source


STATEMENTS = [
    "{% for x in [1, 2, 3] %}{{ loop.index }}{{ loop.index0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }}"
    "{{ loop.revindex }}{{ loop.previtem }}{{ loop.nextitem }}{{ loop.cycle('a', 'b') }}{{ loop.changed(x) }}{% endfor %}",
    "{% for x in [1, 2, 3, 4] if x is odd %}{{ x }}/{{ loop.length }}{% else %}none{% endfor %}",
    "{% for x in [] %}{{ x }}{% else %}empty{% endfor %}{% for x in nothing %}{% else %}undefined{% endfor %}",
    "{% for k, v in {'a': 1, 'b': 2}.items() %}{{ k }}={{ v }};{% endfor %}{% for c in 'añb' %}[{{ c }}]{% endfor %}",
    "{% for x in range(9) %}{% if x == 2 %}{% continue %}{% elif x > 4 %}{% break %}{% endif %}{{ x }}{% endfor %}",
    "{% for x in [[1, [2]], [3]] recursive %}{% if x is iterable %}({{ loop(x) }}){% else %}{{ x }}@{{ loop.depth }}"
    "{% endif %}{% endfor %}",
    "{% set x = 1 %}{% for i in [1, 2] %}{{ x }}{% set x = i + 5 %}{{ x }}{% endfor %}{{ x }}",
    "{% set n = namespace(x=0) %}{% for i in range(4) %}{% set n.x = n.x + i %}{% endfor %}{{ n.x }}",
    "{% set x %}a{{ 1 }}b{% endset %}{{ x }}{% set y | upper %}abc{% endset %}{{ y }}{% set a, b = 1, 'z' %}{{ b }}{{ a }}",
    "{% macro m(a, b='d', *c) %}[{{ a }}{{ b }}{{ varargs }}{{ kwargs }}]{% endmacro %}",
    "{% macro m(a, b='d') %}[{{ a }}{{ b }}{{ varargs }}{{ kwargs }}]{% endmacro %}{{ m(1) }}{{ m(1, 2, 3, z=4) }}{{ m() }}",
    "{% macro m(a) %}<{{ caller(a, a + 1) }}>{% endmacro %}{% call(x, y) m(3) %}{{ x }}{{ y }}{% endcall %}",
    "{% macro f(n) %}{{ n }}{% if n > 0 %}{{ f(n - 1) }}{% endif %}{% endmacro %}{{ f(5) }}{{ f(2) | upper }}",
    "{% filter upper %}abc{{ 'd' }}{% endfilter %}{% with a = 1, b = 2 %}{{ a + b }}{% endwith %}{{ a is defined }}",
    "{% block one %}1{{ messages[0].role }}{% endblock %}{{ self.one() }}{% raw %}{{ x }}{% endraw %}{# no #}",
    "  {%- if true -%}  a  {%- endif -%}  \n  {% if 1 %}\n  b\n  {% endif %}\n{{ 'c' }}\n\n",
    "{% set c = cycler('a', 'b') %}{{ c.next() }}{{ c.next() }}{{ c.current }}{% set j = joiner('|') %}{{ j() }}x{{ j() }}y",
    "{% for message in messages %}{{ message.role }}:{{ message['content'] | trim }}\n{% endfor %}",
    "{% for i in range(3) %}{% set m = messages[0] %}{{ m.content[i] }}{% endfor %}{{ messages[0] }}",
    "{% if messages[0].role == 'user' and (messages | length) > 0 %}yes{% endif %}{{ raise_exception('no') if false }}",
    "{{ strftime_now('%Y-%m-%d') }}{{ '<b>' | safe }}",
]


@pytest.mark.parametrize("source", STATEMENTS)
def test_statements_are_jinja_s(source: str) -> None:
    try:
        expected = reference(source)
    except Exception:
        with pytest.raises(RingletError):
            render(source)
    else:
        assert render(source) == expected


def test_a_generation_tag_renders_what_is_inside() -> None:
    assert render("{% generation %}a{% set x = 1 %}{{ x }}{% endgeneration %}{{ x }}") == "a1"


def test_a_template_s_exception_is_told_with_its_text_and_source() -> None:
    with pytest.raises(RingletError) as caught:
        render("{{ raise_exception('roles must alternate,\nplease') }}")
    assert str(caught.value).startswith("here: the chat template refuses these messages: roles must alternate")


def test_a_template_s_exception_is_one_line_that_a_terminal_may_show() -> None:
    """A template comes from strangers: its text moves no cursor, and is not without end."""
    with pytest.raises(RingletError) as caught:
        render(r"{{ raise_exception('no\n\x1b[2J\x07\x9b ' + 'x' * 9000) }}")
    told = str(caught.value)
    assert told.startswith(r"here: the chat template refuses these messages: no \x1b[2J\x07\x9b xxx")
    assert told.isprintable()
    assert len(told) < 400


TEXTS = st.text(alphabet="ab AB\n\tΩß<|>", max_size=6)
LEAVES = st.one_of(
    TEXTS.map(repr), st.integers(-9, 9).map(str), st.sampled_from(["none", "true", "c", "m.content", "n"])
)
FORMS = (
    "({} + {})", "({} ~ {})", "({} * {})", "({} % {})", "({} == {})", "({} in {})", "({} and {})", "({} or {})",
    "({}).upper()", "({}).strip()", "({}).split()", "({}).split('a')", "({}).replace({}, {})", "({}).splitlines()",
    "({}).rsplit('b', 1)", "({} | trim)", "({} | length)", "({} | list)", "({} | join({}))", "({} | string)", "({} | tojson)",
    "({} ~ '' | indent(2))", "({} | reverse)", "({} | first)", "({} | default({}))", "({} ~ 'ab')[1:]", "([{}] + [1])[-2:1]", "({})[0]",
    "[{}, {}]", "({} if {} else {})", "'<{{}}>'.format({})", "('<%s>' % ({},))", "({} | upper)", "({} | title)",
)  # fmt: skip


def combined(inner: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    return st.sampled_from(FORMS).flatmap(
        lambda form: st.tuples(inner, inner, inner).map(lambda filled: form.format(*filled))
    )


@settings(max_examples=150, deadline=None)
@given(st.recursive(LEAVES, combined, max_leaves=6), TEXTS)
def test_any_expression_is_jinja_s(expression: str, content: str) -> None:
    source = "{% set m = messages[0] %}{% set c = m.content ~ 'x' %}{{ " + expression + " }}"
    messages = [{"role": "user", "content": content}]
    try:
        expected = reference(source, messages)
    except Exception:
        with pytest.raises(RingletError):
            render(source, messages)
        return
    if "<" in expected and "object at" in expected:
        return
    assert render(source, messages) == expected


@pytest.mark.reference
def test_rendering_is_that_of_the_installed_transformers() -> None:
    template_utils = pytest.importorskip("transformers.utils.chat_template_utils")
    for name, source in {**TEMPLATES, **{name: shipped_template(name) for name in SHIPPED}}.items():
        for messages in CONVERSATIONS.values():
            for generate in (False, True):
                plain = template_utils._normalize_chat_messages(messages)
                options = {"chat_template": source, "add_generation_prompt": generate, **SPECIAL_TOKENS}
                try:
                    ((expected,), _) = template_utils.render_jinja_template([plain], **options)
                except Exception:
                    with pytest.raises(RingletError):
                        render(source, messages, generate)
                else:
                    assert render(source, messages, generate) == expected, name


# --- templates that come with us -------------------------------------------------------------------------------------


def turns(messages: list[dict]) -> list[tuple[str, str]]:
    return [(message["role"], message["content"]) for message in messages]


def chatml(messages: list[dict], generate: bool) -> str:
    text = "".join(f"<|im_start|>{role}\n{content}<|im_end|>\n" for role, content in turns(messages))
    return text + ("<|im_start|>assistant\n" if generate else "")


def llama3(messages: list[dict], generate: bool) -> str:
    def head(role: str) -> str:
        return f"<|start_header_id|>{role}<|end_header_id|>\n\n"

    text = "".join(f"{head(role)}{content.strip()}<|eot_id|>" for role, content in turns(messages))
    return BOS + text + (head("assistant") if generate else "")


def system_and_others(messages: list[dict]) -> tuple[str, list[tuple[str, str]]]:
    if messages[0]["role"] == "system":
        return messages[0]["content"] + "\n\n", turns(messages[1:])
    return "", turns(messages)


def gemma(messages: list[dict], generate: bool) -> str:
    before, others = system_and_others(messages)
    text = BOS
    for role, content in others:
        name = {"user": "user", "assistant": "model"}[role]
        text += f"<start_of_turn>{name}\n{before}{content.strip()}<end_of_turn>\n"
        before = ""
    return text + ("<start_of_turn>model\n" if generate else "")


def mistral(messages: list[dict], generate: bool) -> str:
    before, others = system_and_others(messages)
    text = BOS
    for role, content in others:
        text += f" [INST] {before}{content} [/INST]" if role == "user" else f" {content}{EOS}"
        before = ""
    return text


def plain(messages: list[dict], generate: bool) -> str:
    return BOS + "".join(f"{content}\n" for _, content in turns(messages))


BOS, EOS = SPECIAL_TOKENS["bos_token"], SPECIAL_TOKENS["eos_token"]
FORMULAS = {"chatml": chatml, "gemma": gemma, "llama3": llama3, "mistral": mistral, "plain": plain}
TALKS = [
    HELLO,
    [{"role": "system", "content": " Be brief. "}, *HELLO],
    [*HELLO, {"role": "assistant", "content": " 你好\n"}, {"role": "user", "content": "1 < 2 & 3"}],
    [{"role": "system", "content": "s"}, *HELLO, {"role": "assistant", "content": ""}, *HELLO],
]


@pytest.mark.parametrize("name", SHIPPED)
@pytest.mark.parametrize("generate", [False, True])
def test_a_template_of_ours_is_its_formula(name: str, generate: bool) -> None:
    for talk in TALKS:
        assert render(shipped_template(name), talk, generate) == FORMULAS[name](talk, generate)
        assert reference(shipped_template(name), talk, generate) == FORMULAS[name](talk, generate)


@pytest.mark.parametrize("name", SHIPPED)
def test_a_template_of_ours_does_for_a_model_without_special_tokens(name: str) -> None:
    found = ChatTemplate(shipped_template(name), name, {}).render(TALKS[2], True, {})
    assert found == FORMULAS[name](TALKS[2], True).replace(BOS, "").replace(EOS, "")


@pytest.mark.parametrize("name", ["gemma", "mistral"])
def test_a_format_of_turns_refuses_what_is_none(name: str) -> None:
    with pytest.raises(RingletError, match="after the system message, user and assistant must alternate"):
        render(shipped_template(name), [*HELLO, *HELLO])


def test_a_template_of_ours_names_its_control_tokens() -> None:
    for name, controls in SHIPPED.items():
        assert set(re.findall(r"<[|\w]+>", shipped_template(name))) == set(controls)


def test_a_template_of_ours_is_found_by_its_name_unless_the_model_has_one_of_it() -> None:
    poet = Tokenizer.from_pretrained(None)
    assert poet.chat_format("plain").render(HELLO) == f"<bos>{HELLO[0]['content']}\n"
    own = Tokenizer(poet._codec, chat_templates={"plain": "mine"})
    assert own.chat_format("plain").render(HELLO) == "mine"
