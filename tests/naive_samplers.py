"""The samplers once more, one token after the other and straight from their formulas, for tests to compare with."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Sequence

import numpy as np

Logits = np.ndarray
Text = Sequence[int]


def softmax(logits: Logits) -> np.ndarray:
    e = np.exp(np.asarray(logits, np.float64) - np.max(logits))
    return e / e.sum()


def entropy(logits: Logits) -> float:
    return -sum(p * math.log(p) for p in softmax(logits).tolist() if p > 0)


def likeliest_first(logits: Logits) -> list[int]:
    return sorted(range(len(logits)), key=lambda i: (-logits[i], i))


def kept(logits: Logits, ids: Sequence[int]) -> np.ndarray:
    """Those ids alone."""
    found = np.full(len(logits), -np.inf, np.float32)
    found[list(ids)] = np.asarray(logits)[list(ids)]
    return found


def fewest_with_mass(logits: Logits, order: Sequence[int], p: float) -> list[int]:
    """The first ids of the order whose probabilities sum to p."""
    total, found = 0.0, []
    for token_id in order:
        found.append(token_id)
        total += softmax(logits)[token_id]
        if total >= p:
            break
    return sorted(found)


def typical_order(logits: Logits) -> list[int]:
    h, p = entropy(logits), softmax(logits)
    return sorted(range(len(p)), key=lambda i: (abs(-math.log(p[i]) - h) if p[i] > 0 else math.inf, i))


def dynamic_temperature(logits: Logits, temperature: float, reach: float, exponent: float) -> np.ndarray:
    n = int((np.asarray(logits) > -np.inf).sum())
    low, high = max(0.0, temperature - reach), temperature + reach
    share = entropy(logits) / math.log(n)
    return np.asarray(logits, np.float64) / (low + (high - low) * share**exponent)


def repetition_penalty(logits: Logits, text: Text, penalty: float) -> np.ndarray:
    found = np.array(logits, np.float64)
    for token_id in set(text):
        found[token_id] = found[token_id] / penalty if found[token_id] > 0 else found[token_id] * penalty
    return found


def frequency_penalty(logits: Logits, text: Text, penalty: float) -> np.ndarray:
    found = np.array(logits, np.float64)
    for token_id, count in Counter(text).items():
        found[token_id] -= penalty * count
    return found


def presence_penalty(logits: Logits, text: Text, penalty: float) -> np.ndarray:
    found = np.array(logits, np.float64)
    for token_id in set(text):
        found[token_id] -= penalty
    return found


def no_repeat_ngram(logits: Logits, text: Text, n: int) -> np.ndarray:
    found = np.array(logits, np.float32)
    ngrams = [tuple(text[at : at + n]) for at in range(len(text) - n + 1)]
    for token_id in range(len(logits)):
        if len(text) >= n - 1 and (*text[len(text) - n + 1 :], token_id) in ngrams:
            found[token_id] = -np.inf
    return found


def dry(
    logits: Logits, text: Text, multiplier: float, base: float, allowed_length: int, breakers: Sequence[int] = ()
) -> np.ndarray:
    """breakers: token ids."""
    found = np.array(logits, np.float64)
    longest: dict[int, int] = {}
    for at in range(len(text) - 1):  # text[: at + 1] and the whole text end alike: how far back?
        length = 0
        while length <= at and text[at - length] == text[-1 - length] and text[-1 - length] not in breakers:
            length += 1
        longest[text[at + 1]] = max(longest.get(text[at + 1], 0), length)
    for token_id, length in longest.items():
        if length >= allowed_length and token_id not in breakers:
            found[token_id] -= multiplier * base ** (length - allowed_length)
    return found


def sequence_bias(logits: Logits, text: Text, biases: Sequence[tuple[Text, float]]) -> np.ndarray:
    found = np.array(logits, np.float64)
    for ids, bias in biases:
        if list(text[max(0, len(text) - len(ids) + 1) :] if len(ids) > 1 else []) == list(ids[:-1]):
            found[ids[-1]] += bias
    return found


def rows_of_words(words: Sequence[Text], text: Text) -> tuple[set[int], bool]:
    """What may follow a text that is made of the words, and whether it may end there."""
    if not text:
        return {word[0] for word in words}, True
    following, may_end = set(), False
    for word in words:
        word = list(word)
        if list(text[: len(word)]) == word:
            after, ends = rows_of_words(words, text[len(word) :])
            following, may_end = following | after, may_end or ends
        elif word[: len(text)] == list(text):
            following.add(word[len(text)])
    return following, may_end


def mirostat_k(logits: Logits, mu: float, m: int) -> int:
    """How many of the likeliest tokens are left."""
    p = sorted(softmax(logits).tolist(), reverse=True)
    tops = p[:m]
    t = [math.log((i + 2) / (i + 1)) for i in range(len(tops) - 1)]
    b = [math.log(tops[i] / tops[i + 1]) for i in range(len(tops) - 1)]
    s = sum(x * y for x, y in zip(t, b, strict=True)) / sum(x * x for x in t)
    epsilon = s - 1
    return max(1, int(((epsilon * 2**mu) / (1 - len(p) ** -epsilon)) ** (1 / s)))
