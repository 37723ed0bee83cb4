"""Mutations of a GGUF file that know its structure."""

from __future__ import annotations

from contextlib import suppress
from copy import deepcopy
from functools import lru_cache, partial
from random import Random
from struct import error

from . import gguf_pairs, gguf_tensors, gguf_vocabulary
from .gguf_parts import Parts, Walk
from .interesting import whole_number
from .plain_bytes import Mutation

PART_MUTATIONS = {**gguf_pairs.MUTATIONS, **gguf_tensors.MUTATIONS, **gguf_vocabulary.MUTATIONS}


@lru_cache(maxsize=32)
def walk(data: bytes) -> Walk:
    return Walk(data)


def mutate_parts(name: str, random: Random, data: bytes) -> bytes:
    """One change of the parts; now and then a second one, that meets what the first has left."""
    parts: Parts = deepcopy(walk(data).parts)
    PART_MUTATIONS[name](random, parts)
    if random.random() < 0.25:
        with suppress(
            ArithmeticError, AttributeError, LookupError, TypeError, ValueError, error
        ):  # of values that are no longer well formed
            random.choice(list(PART_MUTATIONS.values()))(random, parts)
    return parts.pack()


def number_of_header(random: Random, data: bytes) -> bytes:
    """A count, length, type, size or offset overwritten where it stands; nothing moves."""
    for at, size in random.sample(walk(data).fields, random.choice([1, 1, 1, 2])):
        actual = int.from_bytes(data[at : at + size], "little")
        new = whole_number(random, 8 * size, actual, len(data)).to_bytes(size, "little")
        data = data[:at] + new + data[at + size :]
    return data


MUTATIONS: dict[str, Mutation] = {name: partial(mutate_parts, name) for name in PART_MUTATIONS}
MUTATIONS["number_of_header"] = number_of_header
