"""Mutations of a GGUF file's metadata: types, values, lengths, alignment, nesting, keys."""

from __future__ import annotations

from random import Random
from struct import pack

from .gguf_parts import (
    ARRAY,
    BOOL,
    FLOAT32,
    FLOAT64,
    INT8,
    INT32,
    INT64,
    LETTERS,
    SIZES,
    TEXT,
    UINT8,
    UINT32,
    UINT64,
    Pair,
    Parts,
    array_of,
    numbers,
    text,
    texts,
)  # fmt: skip
from .interesting import BROKEN_UTF8, FLOATS, TEXTS, whole_number


def some_pair(random: Random, parts: Parts) -> Pair:
    if not parts.pairs:
        parts.pairs.append(Pair(b"general.architecture", TEXT, text(b"llama")))
    return random.choice(parts.pairs)


def number_of(random: Random, kind: int) -> bytes:
    """Some value of a number's type."""
    if kind in (FLOAT32, FLOAT64):
        value = random.choice(FLOATS)
        return pack(f"<{LETTERS[kind]}", value if abs(value) < 3e38 or kind == FLOAT64 else float("inf"))
    return whole_number(random, 8 * SIZES[kind], 64, 150_000).to_bytes(SIZES[kind], "little")


def value_changed(random: Random, parts: Parts) -> None:
    pair = some_pair(random, parts)
    if pair.kind in SIZES:
        pair.value = number_of(random, pair.kind)
    elif pair.kind == TEXT:
        pair.value = text(random.choice([*(t.encode() for t in TEXTS), *BROKEN_UTF8]))
    else:
        element_changed(random, parts, pair)


def element_changed(random: Random, parts: Parts, pair: Pair | None = None) -> None:
    """An element of an array, or its length."""
    arrays = [pair for pair in parts.pairs if pair.kind == ARRAY]
    if pair is None and not arrays:
        return
    pair = pair or random.choice(arrays)
    kind, values = array_of(pair.value)
    how = random.choice(["longer", "shorter", "empty", "other", "other", "turned"])
    if how == "longer":
        values = values + values[: random.choice([1, 2, len(values)])]
    elif how == "shorter":
        values = values[: -random.choice([1, 2, max(1, len(values) // 2)])]
    elif how == "empty":
        values = []
    elif how == "turned":
        values = values[::-1]
    elif values:
        at = random.randrange(len(values))
        values = list(values)
        if kind == TEXT:
            values[at] = random.choice([*(t.encode() for t in TEXTS), *BROKEN_UTF8, values[0]])
        else:
            (values[at],) = array_of(pack("<IQ", kind, 1) + number_of(random, kind))[1]
    pair.value = texts(values) if kind == TEXT else numbers(kind, values)


def value_type_changed(random: Random, parts: Parts) -> None:
    """The same key with a value of another type, well formed."""
    pair = some_pair(random, parts)
    kind = random.choice([*SIZES, TEXT, ARRAY])
    if kind in SIZES:
        value = number_of(random, kind) if kind != BOOL else random.choice([b"\0", b"\1", b"\2"])
    elif kind == TEXT:
        value = text(random.choice(TEXTS).encode())
    else:
        value = random.choice(
            [
                numbers(UINT32, [1, 2]),
                numbers(FLOAT32, [1.0] * 64),
                numbers(BOOL, [True, False]),
                texts([b"a", b"b"]),
                texts([]),
                pack("<IQ", ARRAY, 1) + numbers(UINT8, [1]),
            ]
        )
    pair.kind, pair.value = kind, value


def elements_narrower(random: Random, parts: Parts) -> None:
    """An array of another element type than its reader assumes: as many elements, or the bytes as they lie."""
    arrays = [pair for pair in parts.pairs if pair.kind == ARRAY and array_of(pair.value)[0] != TEXT]
    if not arrays:
        return
    pair = random.choice(arrays)
    _, values = array_of(pair.value)
    other = random.choice([UINT8, INT8, BOOL, INT32, INT64, UINT64, FLOAT32, FLOAT64])
    if random.random() < 0.3:
        pair.value = pack("<IQ", other, len(values)) + pair.value[12:]
    elif other in (FLOAT32, FLOAT64):
        pair.value = numbers(other, [float(value) for value in values])
    else:
        lowest, highest = (-128, 127) if other == INT8 else (0, 1) if other == BOOL else (0, 255)
        pair.value = numbers(other, [int(min(max(value, lowest), highest)) for value in values])


def alignment_changed(random: Random, parts: Parts) -> None:
    """Of the wrong type, 0, no power of two, huge; the data may lie by it, or as they did."""
    kind = random.choice([UINT32, UINT32, UINT32, UINT64, INT32, FLOAT32, BOOL, TEXT, ARRAY])
    value = random.choice([0, 1, 2, 3, 8, 16, 24, 31, 33, 48, 64, 4096, 1 << 20, 1 << 30, 1 << 31, (1 << 32) - 1])
    if kind == TEXT:
        raw = text(str(value).encode())
    elif kind == ARRAY:
        raw = numbers(UINT32, [value])
    elif kind == FLOAT32:
        raw = pack("<f", value)
    else:
        raw = value.to_bytes(8, "little")[: SIZES[kind]]
    parts.set(b"general.alignment", kind, raw)
    if random.random() < 0.5 and 0 < value <= 4096:
        parts.alignment = value


def arrays_nested(random: Random, parts: Parts) -> None:
    """Arrays inside arrays, a few deep or very, each with one element or, so they say, with many."""
    depth = random.choice([1, 2, 3, 4, 5, 6, 100, 5000])
    count = random.choice([1, 1, 1, 2, 1 << 20, 1 << 60])
    innermost = random.choice([numbers(UINT8, [1]), texts([b"a"]), texts([b"\xff"]), numbers(FLOAT64, [])])
    pair = Pair(random.choice([b"nested", b"tokenizer.ggml.tokens", b"llama.rope.scaling.type"]), ARRAY, b"")
    pair.value = pack("<IQ", ARRAY, count) * depth + innermost
    parts.pairs = [pair, *(other for other in parts.pairs if other.key != pair.key)]


def pair_twice(random: Random, parts: Parts) -> None:
    parts.pairs.insert(random.randrange(len(parts.pairs) + 1), some_pair(random, parts))


def pair_left_out(random: Random, parts: Parts) -> None:
    parts.pairs.remove(some_pair(random, parts))


def key_changed(random: Random, parts: Parts) -> None:
    pair = some_pair(random, parts)
    new = [
        *(t.encode() for t in TEXTS),
        *BROKEN_UTF8,
        pair.key.replace(b"llama", b"qwen2"),
        random.choice(parts.pairs).key,
    ]
    pair.key = random.choice(new)


def architecture_changed(random: Random, parts: Parts) -> None:
    """Another family's, with every key under its name."""
    names = [b"llama", b"qwen2", b"qwen3", b"gemma2", b"gemma3", b"gpt2", b"mistral", b"", b"mamba", b"general"]
    found, new = parts.pair(b"general.architecture"), random.choice(names)
    old = found.value[8:] if found is not None else b"llama"
    for pair in parts.pairs:
        if pair.key.startswith(old + b"."):
            pair.key = new + pair.key[len(old) :]
    parts.set(b"general.architecture", TEXT, text(new))


def splits_said(random: Random, parts: Parts) -> None:
    """A file that says it is one of several."""
    for key in (b"split.count", b"split.no", b"split.tensors.count"):
        if random.random() < 0.7:
            kind = random.choice([UINT8, UINT32, INT32, UINT64, INT64, BOOL])
            value = random.choice([0, 1, 2, 3, 255, (1 << 31) - 1, (1 << 63) - 1])
            parts.set(key, kind, value.to_bytes(8, "little")[: SIZES[kind]])


def version_changed(random: Random, parts: Parts) -> None:
    parts.version = random.choice([0, 1, 2, 4, 3 << 24, (1 << 32) - 1])


def counts_changed(random: Random, parts: Parts) -> None:
    """Of tensors and of pairs: small enough for one check, too large for the next."""
    size = len(parts.data) + 5000
    true = [len(parts.entries), len(parts.pairs)]
    wrong = [whole_number(random, 64, count, size) for count in true]
    parts.counts = random.choice([(wrong[0], true[1]), (true[0], wrong[1]), (wrong[0], wrong[1])])


MUTATIONS = {
    function.__name__: function
    for function in (
        value_changed,
        element_changed,
        value_type_changed,
        elements_narrower,
        alignment_changed,
        arrays_nested,
        pair_twice,
        pair_left_out,
        key_changed,
        architecture_changed,
        splits_said,
        version_changed,
        counts_changed,
    )
}
