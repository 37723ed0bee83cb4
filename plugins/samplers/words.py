"""Biases for tokens and for texts of several tokens; and those that make a text impossible."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Annotated

import numpy as np

from ringlet.core.candidates import Candidates
from ringlet.core.errors import RingletError
from ringlet.core.hookspecs import Register, hookimpl
from ringlet.core.parameters import Parameter
from ringlet.core.sampling import SamplerContext
from ringlet.core.token_texts import bias_of, spellings, split_texts, token_id_sequences, token_ids

TEXTS = Parameter("texts with | between, || for a | itself; need a tokenizer")


class SequenceBias:
    """A bias on the last token of each sequence, where the text ends in the tokens before it.

    As transformers' SequenceBiasLogitsProcessor: biases that meet in a token add up.
    """

    def __init__(self, biases: Iterable[tuple[tuple[int, ...], float]], d_vocab: int) -> None:
        after: dict[tuple[int, ...], dict[int, float]] = {}  # what comes before → last token → bias
        for ids, bias in biases:
            check_ids(ids, d_vocab)
            last = after.setdefault(ids[:-1], {})
            last[ids[-1]] = last.get(ids[-1], 0.0) + bias
        self._after = {before: _addition(last) for before, last in after.items()}
        self._lengths = sorted({len(before) for before in after})

    def apply(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        for length in self._lengths:
            before = context.token_ids[max(0, len(context.token_ids) - length) :]
            biases = self._after.get(tuple(before.tolist()))
            if biases:
                candidates = candidates.change(*biases)
        return candidates


def _addition(biases: dict[int, float]) -> tuple[np.ndarray, Callable[[np.ndarray], np.ndarray]]:
    """The tokens, ascending, and what adds their biases to their logits."""
    ids = np.array(sorted(biases), np.intp)
    bias = np.array([biases[token_id] for token_id in sorted(biases)])
    return ids, lambda logits: logits + bias


class LogitBias:
    """Adds a bias to the logits of some tokens, l + b; −inf removes one.

    OpenAI's API reference (2021), "logit_bias". A text of several tokens has its bias on the last of them, where the
    others have just come, as in transformers' SequenceBiasLogitsProcessor.
    """

    name = "logit_bias"
    takes_candidates = True

    def __init__(
        self,
        bias: Annotated[str | None, Parameter('token ids with their biases, such as "12:+2.5 345:-inf"')] = None,
        words: Annotated[
            str | None, Parameter('texts with theirs, such as "foo:-2|bar:+1"; || for a | itself; need a tokenizer')
        ] = None,
    ) -> None:
        if bias is None and words is None:
            raise RingletError('no bias is given: write logit_bias(bias="12:+2.5 345:-inf") or words="foo:-2|bar:+1"')
        self._ids = [(token_ids(name), value) for name, value in map(_pair, (bias or "").split())]
        self._words = [_pair(text) for text in split_texts(words or "")]
        self._sequences: SequenceBias | None = None

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if self._sequences is None:
            spelled = [(ids, bias) for text, bias in self._words for ids in spellings(text, context.tokenizer)]
            self._sequences = SequenceBias([*self._ids, *spelled], context.d_vocab)
        return self._sequences.apply(candidates, context)


class BadWords:
    """Makes texts impossible: the last token of one is removed where the others have just come.

    As transformers' NoBadWordsLogitsProcessor. A text is forbidden as the tokenizer writes it, at the beginning, after
    a blank and inside a word; spelled with other tokens it may still come.
    """

    name = "bad_words"
    takes_candidates = True

    def __init__(
        self,
        words: Annotated[str | None, TEXTS] = None,
        ids: Annotated[str | None, Parameter('sequences of token ids, such as "12 345|7"')] = None,
    ) -> None:
        self._words, self._ids = parsed_words(self.name, words, ids)
        self._sequences: SequenceBias | None = None

    def __call__(self, candidates: Candidates, context: SamplerContext) -> Candidates:
        if self._sequences is None:
            sequences = all_sequences(self._words, self._ids, context)
            self._sequences = SequenceBias(((ids, -np.inf) for ids in sequences), context.d_vocab)
        return self._sequences.apply(candidates, context)


def parsed_words(name: str, words: str | None, ids: str | None) -> tuple[list[str], list[tuple[int, ...]]]:
    """Texts and sequences of ids as they were written. Raises RingletError where there are none."""
    texts, sequences = split_texts(words or ""), token_id_sequences(ids) if ids else []
    if not texts and not sequences:
        raise RingletError(f'no text is given: write {name}(words="foo|bar") or {name}(ids="12 345|7")')
    return texts, sequences


def all_sequences(
    words: Iterable[str], ids: Iterable[tuple[int, ...]], context: SamplerContext
) -> list[tuple[int, ...]]:
    """Sequences of token ids, none twice: those given, and all spellings of the texts."""
    spelled = (spelling for text in words for spelling in spellings(text, context.tokenizer))
    return sorted({*ids, *spelled})


def check_ids(ids: tuple[int, ...], d_vocab: int) -> None:
    if max(ids) >= d_vocab:
        raise RingletError(f"the token id {max(ids)} is outside the vocabulary of {d_vocab}")


def _pair(text: str) -> tuple[str, float]:
    """ "12:+2.5" as ("12", 2.5)."""
    name, colon, bias = text.rpartition(":")
    if not colon or not name:
        raise RingletError(f'{text!r} has no bias: write it after a colon, as in "12:+2.5"')
    return name, bias_of(bias)


@hookimpl
def register_samplers(register: Register) -> None:
    register(LogitBias)
    register(BadWords)
