"""Where a text stands in a grammar, and which of the model's tokens may follow."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Sequence
from functools import lru_cache
from threading import Lock
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np

from ringlet.core.errors import RingletError
from ringlet.plugins.constraints.building import build, error_text
from ringlet.plugins.constraints.grammar_text import GrammarText
from ringlet.tokenization.tokenizer import Tokenizer

DISOBEYED, NOTHING_FOLLOWS = "satisfy the grammar", "NoExtensionBias"  # llguidance's own words
MOST_KEPT = 8  # grammars a vocabulary keeps ready


@lru_cache(maxsize=64)
def check_grammar(grammar: GrammarText) -> None:
    """Raises RingletError, in one line, for a grammar that is wrong or asks for too much; it needs no model."""
    from llguidance import LLTokenizer

    new_matcher(LLTokenizer("byte"), grammar)


def new_matcher(library: Any, grammar: GrammarText) -> Any:
    """An LLMatcher at the grammar's beginning. library: an LLTokenizer."""
    from llguidance import LLMatcher

    lark = LLMatcher.grammar_from_lark(grammar.lark)
    matcher = build(lambda: LLMatcher(library, lark, log_level=0), grammar.name)
    if matcher.is_error():
        raise RingletError(f"{grammar.name}: {error_text(matcher.get_error(), grammar.has_lines)}")
    return matcher


class GrammarVocabulary:
    """A model's tokens as llguidance takes them: the bytes of each, as our tokenizer has them.

    n_tokens: every token's id is below it. end_ids: those that end a completion, one at least.
    """

    def __init__(self, tokenizer: Tokenizer) -> None:
        from llguidance import LLTokenizer, TokenizerWrapper

        self.n_tokens = tokenizer.n_tokens
        self.end_ids = sorted(token_id for token_id in tokenizer.eos_ids if 0 <= token_id < self.n_tokens)
        if not self.end_ids:
            raise RingletError("the model has no end token, and a grammar needs one to end with")
        # Any of the end tokens may end a text, and none is text; llguidance gets to know the first alone.
        self.eos_token_id, self.bos_token_id = self.end_ids[0], None
        self.special_token_ids = sorted(tokenizer.special_ids.union(self.end_ids))
        self.tokens = [tokenizer.token_bytes(token_id) for token_id in range(self.n_tokens)]
        self._library = LLTokenizer(TokenizerWrapper(self))
        self._ready: OrderedDict[GrammarText, Any] = OrderedDict()
        self._lock = Lock()

    def __call__(self, text: bytes) -> list[int]:
        """llguidance's way to ask for the ids of a text; with forcing off it does not."""
        return []

    def matcher(self, grammar: GrammarText) -> Any:
        """An LLMatcher at the grammar's beginning; the last few grammars are kept ready."""
        with self._lock:
            ready = self._ready.pop(grammar, None) or new_matcher(self._library, grammar)
            self._ready[grammar] = ready
            if len(self._ready) > MOST_KEPT:
                self._ready.popitem(last=False)
            return ready.deep_copy()


_vocabularies: WeakKeyDictionary[Tokenizer, GrammarVocabulary] = WeakKeyDictionary()
_vocabularies_lock = Lock()


def vocabulary_of(tokenizer: Tokenizer | None) -> GrammarVocabulary:
    """The tokenizer's, made once: it takes about a second for a quarter of a million tokens."""
    if tokenizer is None:
        raise RingletError("a tokenizer is needed: SamplerChain(…, tokenizer=pipe.tokenizer)")
    with _vocabularies_lock:
        if tokenizer not in _vocabularies:
            _vocabularies[tokenizer] = GrammarVocabulary(tokenizer)
        return _vocabularies[tokenizer]


class TokenMatcher:
    """One completion's way through a grammar."""

    def __init__(self, vocabulary: GrammarVocabulary, grammar: GrammarText) -> None:
        self._vocabulary, self._grammar = vocabulary, grammar
        self._end_ids = frozenset(vocabulary.end_ids)
        self._bits = np.zeros((1, -(-vocabulary.n_tokens // 32)), np.int32)
        self._begin()

    def _begin(self) -> None:
        self._matcher = self._vocabulary.matcher(self._grammar)
        self._ids: list[int] = []
        self._is_ended = False

    def __deepcopy__(self, memo: dict[int, Any]) -> TokenMatcher:
        copy = object.__new__(TokenMatcher)
        copy.__dict__.update(self.__dict__)
        copy._matcher, copy._ids, copy._bits = self._matcher.deep_copy(), self._ids[:], self._bits.copy()
        return copy

    def allowed_after(self, ids: Sequence[int]) -> np.ndarray:
        """bool (n_tokens,): which tokens may follow these ids of the completion.

        An end token may where the grammar may end; after one, nothing else. Raises RingletError where the ids do not
        obey, where no token fits, and where the grammar asks for too much work.
        """
        from llguidance.numpy import fill_next_token_bitmask

        self._follow(list(ids))
        vocabulary = self._vocabulary
        if self._is_ended or self._matcher.is_stopped():
            self._check()
            allowed = np.zeros(vocabulary.n_tokens, bool)
            allowed[vocabulary.end_ids] = True
            return allowed
        fill_next_token_bitmask(self._matcher, self._bits)
        self._check()
        bits = np.unpackbits(self._bits.view(np.uint8), count=vocabulary.n_tokens, bitorder="little")
        allowed = bits.view(bool)
        allowed[vocabulary.end_ids] = allowed[vocabulary.eos_token_id]
        return allowed

    def _follow(self, ids: list[int]) -> None:
        """Be where the ids lead, from where the last call was, or from the beginning where they are others."""
        n_known = len(self._ids)
        if ids[:n_known] != self._ids:
            self._begin()
            n_known = 0
        for token_id in ids[n_known:]:
            if token_id in self._end_ids:
                self._is_ended = True
            elif self._is_ended or not self._matcher.consume_token(token_id):
                raise self._failure()
            self._ids.append(token_id)

    def _check(self) -> None:
        """Raises RingletError where the matcher can say no more."""
        if self._matcher.stop_reason() not in ("NotStopped", "NoExtension", "EndOfSentence"):
            raise self._failure()

    def _failure(self) -> RingletError:
        """What has gone wrong; the next call begins anew."""
        message = error_text(self._matcher.get_error(), self._grammar.has_lines)
        if self._is_ended or DISOBEYED in message:
            message = "a token was drawn that the grammar does not allow"
        elif message == NOTHING_FOLLOWS:
            message = "no token can follow: the grammar allows no text here, or the model's vocabulary lacks it"
        self._begin()
        return RingletError(f"{self._grammar.name}: {message}")
