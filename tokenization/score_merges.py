"""SentencePiece's merging by scores: of all neighbours that join to a token, the best first, the leftmost of equals.

HuggingFace's BPE cannot do it: it ranks pairs, so that two pairs which join to one token are never equals.
"""

from __future__ import annotations

from heapq import heapify, heappop, heappush

import numpy as np

TABLE_BITS = 22

# Words come again: the ids of short parts are kept.
LONGEST_REMEMBERED = 64  # characters
MOST_REMEMBERED = 1 << 16


class ScoreMerger:
    """ids: the tokens by their texts. scores: float32, by id. never: texts of tokens that no text becomes.

    Merges go through the latter; one that is left at the end comes apart again, as SentencePiece's unused pieces do.
    """

    def __init__(self, ids: dict[str, int], scores: np.ndarray, never: frozenset[str] = frozenset()) -> None:
        self._ids, self._never = ids, never
        self._costs = (-scores).tolist()
        self._meets = _meeting_characters(ids)
        self._remembered: dict[str, list[int | str]] = {}

    def encode(self, text: str) -> list[int | str]:
        """Token ids, and as they are the characters that have no token."""
        result: list[int | str] = []
        for part in self._independent_parts(text):
            result.extend(self._remembered.get(part) or self._merge_and_remember(part))
        return result

    def _merge_and_remember(self, part: str) -> list[int | str]:
        ids = self._merge(part)
        if len(part) <= LONGEST_REMEMBERED:
            if len(self._remembered) >= MOST_REMEMBERED:
                self._remembered.clear()
            self._remembered[part] = ids
        return ids

    def _independent_parts(self, text: str) -> list[str]:
        """Cut where two characters meet in no token: no merge reaches over such a place."""
        codes = _codes(text)
        cuts = (np.nonzero(~self._meets[_places(codes)])[0] + 1).tolist()
        return [text[start:stop] for start, stop in zip([0, *cuts], [*cuts, len(text)], strict=True)]

    def _merge(self, text: str) -> list[int | str]:
        ids, costs, never, end = self._ids, self._costs, self._never, len(text)
        # A symbol is known by its first character: stops[i] is where it ends, -1 when it is part of another;
        # befores[i] is the symbol before it.
        stops = list(range(1, end + 1))
        befores = list(range(-1, end - 1))
        seams: dict[tuple[int, int], int] = {}  # where a token that no text becomes was joined

        def join(left: int) -> tuple[float, int, int] | None:
            """(cost, where it begins, where it ends) of the token that a symbol and the next one make."""
            if left < 0 or stops[left] == end:
                return None
            stop = stops[stops[left]]
            token_id = ids.get(text[left:stop])
            return None if token_id is None else (costs[token_id], left, stop)

        queue = [found for left in range(end - 1) if (found := join(left))]
        heapify(queue)
        while queue:
            _, left, stop = heappop(queue)
            right = stops[left]
            if right < 0 or right == end or stops[right] != stop:
                continue  # one of the two has been joined to another since
            if text[left:stop] in never:
                seams[left, stop] = right
            stops[left], stops[right] = stop, -1
            if stop < end:
                befores[stop] = left
            for start in (befores[left], left):
                if found := join(start):
                    heappush(queue, found)

        def spell(left: int, stop: int) -> list[int | str]:
            if seam := seams.get((left, stop)):
                return spell(left, seam) + spell(seam, stop)
            symbol = text[left:stop]
            return [symbol if symbol in never else ids.get(symbol, symbol)]

        result: list[int | str] = []
        at = 0
        while at < end:
            result.extend(spell(at, stops[at]))
            at = stops[at]
        return result


def _codes(text: str) -> np.ndarray:
    return np.frombuffer(text.encode("utf-32-le"), np.uint32)


def _places(codes: np.ndarray) -> np.ndarray:
    """Where the table keeps each pair of neighbours."""
    mixed = codes[:-1] * np.uint32(0x9E3779B1) + codes[1:] * np.uint32(0x85EBCA77)
    return mixed >> np.uint32(32 - TABLE_BITS)


def _meeting_characters(tokens: dict[str, int]) -> np.ndarray:
    """bool: whether two characters may be neighbours in a token. By hash, so that a few that never are pass too."""
    places = _places(_codes("".join(tokens)))
    last = np.cumsum(np.fromiter(map(len, tokens), np.int64, len(tokens)))[:-1] - 1
    inside = np.ones(len(places), bool)
    inside[last] = False  # there one token ends and the next begins
    table = np.zeros(1 << TABLE_BITS, bool)
    table[places[inside]] = True
    return table
