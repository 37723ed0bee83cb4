"""Beam search and contrastive search as their papers say, plainly: every text is computed anew, whole."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence

import numpy as np

Row = Callable[[list[int]], np.ndarray]  # of a text's ids, the logits after it


def log_softmax(logits: np.ndarray) -> np.ndarray:
    logits = np.asarray(logits, np.float64)
    shifted = logits - logits.max()
    return shifted - np.log(np.exp(shifted).sum())


def beam_search(
    logits_after: Row,
    prompt: Sequence[int],
    eos_ids: Collection[int],
    max_tokens: int,
    beams: int,
    length_penalty: float = 1.0,
) -> list[list[int]]:
    """The finished texts, the best first, of a search that goes on to the very end.

    That is what "never" finds, too, which only ends earlier.
    """
    running, finished = [(0.0, [])], []
    for n_tokens in range(1, max_tokens + 1):
        extended = []
        for score, text in running:
            log_p = log_softmax(logits_after([*prompt, *text]))
            extended += [(score + p, [*text, token]) for token, p in enumerate(log_p) if p > -np.inf]
        extended.sort(key=lambda pair: -pair[0])
        extended = extended[: max(2, 1 + len(eos_ids)) * beams]
        for score, text in extended[:beams]:
            if text[-1] in eos_ids or n_tokens == max_tokens:
                finished.append((score / n_tokens**length_penalty, text))
        running = [pair for pair in extended if pair[1][-1] not in eos_ids][:beams]
        if not running:
            break
    finished.sort(key=lambda pair: -pair[0])
    return [text for _, text in finished[:beams]]


def contrastive_search(
    logits_after: Row, hidden_of: Row, prompt: Sequence[int], max_tokens: int, top_k: int, alpha: float
) -> list[int]:
    """Su et al. 2022, eq. 5. hidden_of: of a text's ids, the hidden states (n, d_model) of all of them."""
    text = list(prompt)
    for _ in range(max_tokens):
        log_p = log_softmax(logits_after(text))
        scores = {}
        for token in np.argsort(-log_p, kind="stable")[:top_k].tolist():
            if log_p[token] > -np.inf:
                h = hidden_of([*text, token]).astype(np.float64)
                h /= np.linalg.norm(h, axis=1, keepdims=True)
                scores[token] = (1 - alpha) * np.exp(log_p[token]) - alpha * (h[:-1] @ h[-1]).max()
        text.append(max(scores, key=scores.__getitem__))
    return text[len(prompt) :]
