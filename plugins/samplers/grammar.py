"""Constrained output: only tokens that lead to a text that obeys a JSON schema, a regular expression or a grammar.

The work is llguidance's (https://github.com/guidance-ai/llguidance), which comes with the extra `grammar`.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.util import find_spec
from typing import TYPE_CHECKING, Annotated

import numpy as np

from ringlet.core.errors import RingletError, how_to_install
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext

if TYPE_CHECKING:
    from ringlet.plugins.constraints.grammar_text import GrammarText
    from ringlet.plugins.constraints.matcher import TokenMatcher


class Constraint:
    """What the three samplers share. It may stand anywhere in a chain: where those before it have removed every token
    that obeys, it goes back to the model's own logits for them.
    """

    def __init__(self, read: Callable[[], GrammarText]) -> None:
        if find_spec("llguidance") is None:
            raise RingletError(f"llguidance is not installed: {how_to_install('llguidance', 'grammar')}")
        from ringlet.plugins.constraints.matcher import check_grammar

        self._grammar = read()
        check_grammar(self._grammar)
        self._matcher: TokenMatcher | None = None

    def __call__(self, logits: np.ndarray, context: SamplerContext) -> np.ndarray:
        if self._matcher is None:
            from ringlet.plugins.constraints.matcher import TokenMatcher, vocabulary_of

            self._matcher = TokenMatcher(vocabulary_of(context.tokenizer), self._grammar)
        allowed = np.zeros(context.d_vocab, bool)
        found = self._matcher.allowed_after(context.token_ids[context.prompt_length :].tolist())[: context.d_vocab]
        allowed[: len(found)] = found
        if not (logits[allowed] > -np.inf).any():
            logits = context.raw_logits.copy()
        logits[~allowed] = -np.inf
        return logits


class Grammar(Constraint):
    """Removes the tokens that lead out of a Lark grammar, in llguidance's dialect."""

    name = "grammar"

    def __init__(
        self, grammar: Annotated[str, Parameter('a file, or the grammar itself: a text with a rule "start"')]
    ) -> None:
        from ringlet.plugins.constraints.grammar_text import lark_text

        super().__init__(lambda: lark_text(grammar))


class JsonSchema(Constraint):
    """Removes the tokens that lead away from JSON that obeys a schema."""

    name = "json_schema"

    def __init__(
        self,
        schema: Annotated[str, Parameter('a file, or the schema itself: a text that begins with "{"')],
        any_whitespace: Annotated[bool, Parameter("blanks and line breaks as the model likes")] = False,
    ) -> None:
        from ringlet.plugins.constraints.grammar_text import json_schema_text

        super().__init__(lambda: json_schema_text(schema, any_whitespace))


class Regex(Constraint):
    """Removes the tokens that lead away from a completion that matches a regular expression as a whole."""

    name = "regex"

    def __init__(
        self, pattern: Annotated[str, Parameter("in the syntax of Rust's regex, without look-around")]
    ) -> None:
        from ringlet.plugins.constraints.grammar_text import regex_text

        super().__init__(lambda: regex_text(pattern))


@hookimpl
def register_samplers(register: Register) -> None:
    for sampler in (Grammar, JsonSchema, Regex):
        register(sampler)
