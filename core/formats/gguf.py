"""GGUF files, version 2 and 3: metadata and memory-mapped tensors, also of a model split over several files.

Source: the GGUF specification (ggml, docs/gguf.md). A file is: "GGUF", version, number of tensors, number of metadata
pairs; the pairs; the tensors' names, shapes, formats and offsets; from the next aligned byte on, their data.
Every count, length and offset is checked against the file's size before it is followed.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from itertools import pairwise
from math import prod
from pathlib import Path

import numpy as np

from ringlet.core.errors import FormatError, quoted
from ringlet.core.formats.file_bytes import file_bytes
from ringlet.core.formats.gguf_metadata import MOST_PAIRS, Cursor, Metadata, read_metadata
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.quantization import BLOCK_FORMATS

MOST_DIMENSIONS = 4
MOST_TENSORS = 1 << 16  # far more than any model has; each costs much more memory than its entry has bytes
SHARD_NAME = re.compile(r"(?P<stem>.+)-(?P<number>\d{5})-of-(?P<count>\d{5})\.gguf", re.DOTALL)

# ggml's other types, by number: name, weights in a block, bytes of a block. A file may hold them; no weight may be one.
OTHER_FORMATS: dict[int, tuple[str, int, int]] = {
    9: ("Q8_1", 32, 40),
    15: ("Q8_K", 256, 292),
    16: ("IQ2_XXS", 256, 66),
    17: ("IQ2_XS", 256, 74),
    18: ("IQ3_XXS", 256, 98),
    19: ("IQ1_S", 256, 50),
    21: ("IQ3_S", 256, 110),
    22: ("IQ2_S", 256, 82),
    24: ("I8", 1, 1),
    25: ("I16", 1, 2),
    26: ("I32", 1, 4),
    27: ("I64", 1, 8),
    28: ("F64", 1, 8),
    29: ("IQ1_M", 256, 56),
    34: ("TQ1_0", 256, 54),
    35: ("TQ2_0", 256, 66),
    39: ("MXFP4", 32, 17),
    40: ("NVFP4", 64, 36),
    41: ("Q1_0", 128, 18),
}
FORMATS = {b.gguf_type: (name, b.n_weights, b.n_bytes) for name, b in BLOCK_FORMATS.items()} | OTHER_FORMATS
WITHDRAWN_FORMATS = {
    4: "Q4_2",
    5: "Q4_3",
    31: "Q4_0_4_4",
    32: "Q4_0_4_8",
    33: "Q4_0_8_8",
    36: "IQ4_NL_4_4",
    37: "IQ4_NL_4_8",
    38: "IQ4_NL_8_8",
}


@dataclass(frozen=True)
class GGUFFile:
    """What a GGUF file holds; of a split model, the first file's metadata and every file's tensors."""

    paths: tuple[Path, ...]
    version: int
    metadata: Metadata
    tensors: dict[str, StoredTensor]

    @property
    def path(self) -> Path:
        return self.paths[0]


def open_gguf(path: str | Path, mmap: bool = True) -> GGUFFile:
    """Open a GGUF file; of a model split as NAME-00001-of-0000N.gguf, all files, whichever is named.

    mmap=False reads the files into memory. Raises FormatError, which names the file and what is wrong with it.
    """
    opened = _open_one(Path(path), mmap)
    n_shards = _whole_number(opened.metadata, "split.count")
    return opened if n_shards is None or n_shards < 2 else _open_shards(opened, n_shards, mmap)


def _open_one(path: Path, mmap: bool) -> GGUFFile:
    cursor = Cursor(path, file_bytes(path, mmap))
    version = _read_version(cursor)
    n_tensors = cursor.count("tensors", 24, MOST_TENSORS)
    n_pairs = cursor.count("metadata pairs", 13, MOST_PAIRS)
    metadata, alignment = read_metadata(cursor, n_pairs)
    entries = [_read_entry(cursor) for _ in range(n_tensors)]
    data_start = -(-cursor.at // alignment) * alignment
    tensors: dict[str, StoredTensor] = {}
    for entry in entries:
        if entry.name in tensors:
            raise cursor.error(f"tensor {quoted(entry.name)} appears twice")
        tensors[entry.name] = StoredTensor(
            entry.name, entry.shape, entry.format, _tensor_data(cursor, entry, data_start, alignment), path
        )
    _refuse_overlaps(cursor, entries)
    return GGUFFile((path,), version, metadata, tensors)


def _read_version(cursor: Cursor) -> int:
    start = cursor.skip(min(4, cursor.left), "its first bytes")
    if cursor.data[start : cursor.at].tobytes() != b"GGUF":
        raise cursor.error("not a GGUF file (it does not begin with 'GGUF')")
    version = int(cursor.number("<I", "the version"))
    if version and version & 0xFFFF == 0:
        raise cursor.error("a big-endian GGUF file; convert it to little-endian")
    if version not in (2, 3):
        raise cursor.error(f"GGUF version {version}; versions 2 and 3 can be read")
    return version


@dataclass(frozen=True)
class _Entry:
    """A tensor as the header describes it; offset counts from the start of the data."""

    name: str
    shape: tuple[int, ...]
    format: str
    n_bytes: int
    offset: int


def _read_entry(cursor: Cursor) -> _Entry:
    name = cursor.name("a tensor's name")
    what = f"the entry of tensor {quoted(name)}"
    n_dimensions = int(cursor.number("<I", what))
    if n_dimensions > MOST_DIMENSIONS:
        raise cursor.error(f"tensor {quoted(name)} has {n_dimensions} dimensions; {MOST_DIMENSIONS} are possible")
    shape = tuple(int(cursor.number("<Q", what)) for _ in range(n_dimensions))[::-1]
    number = int(cursor.number("<I", what))
    offset = int(cursor.number("<Q", what))
    if number not in FORMATS:
        known = WITHDRAWN_FORMATS.get(number)
        fault = f"{known}, which ggml has withdrawn; convert the model again" if known else f"unknown type {number}"
        raise cursor.error(f"tensor {quoted(name)} is stored as {fault}")
    format, n_weights, n_bytes = FORMATS[number]
    if 0 in shape:
        raise cursor.error(f"tensor {quoted(name)} has the shape {list(shape)}: it holds nothing")
    row = shape[-1] if shape else 1
    if row % n_weights:
        raise cursor.error(
            f"tensor {quoted(name)}: rows of {row} weights are not whole blocks of {n_weights} ({format})"
        )
    return _Entry(name, shape, format, prod(shape) // n_weights * n_bytes, offset)


def _tensor_data(cursor: Cursor, entry: _Entry, data_start: int, alignment: int) -> np.ndarray:
    if entry.offset % alignment:
        raise cursor.error(f"tensor {quoted(entry.name)} lies at offset {entry.offset}, no multiple of {alignment}")
    start = data_start + entry.offset
    stop = start + entry.n_bytes
    if stop > len(cursor.data):
        raise cursor.error(
            f"tensor {quoted(entry.name)} reaches to byte {stop} of a file of {len(cursor.data)}: the file is cut short"
        )
    return cursor.data[start:stop]


def _refuse_overlaps(cursor: Cursor, entries: list[_Entry]) -> None:
    entries = sorted(entries, key=lambda entry: entry.offset)
    for entry, following in pairwise(entries):
        if entry.offset + entry.n_bytes > following.offset:
            raise cursor.error(f"tensors {quoted(entry.name)} and {quoted(following.name)} overlap")


def shard_names(name: str) -> list[str]:
    """The names of all files of a split model, in order, from one of them; [name] where it is no such name."""
    match = SHARD_NAME.fullmatch(name)
    if match is None or not 1 <= int(match["number"]) <= int(match["count"]):
        return [name]
    return [f"{match['stem']}-{number:05}-of-{match['count']}.gguf" for number in range(1, int(match["count"]) + 1)]


def _open_shards(opened: GGUFFile, n_shards: int, mmap: bool) -> GGUFFile:
    """All the files of a split model; `opened` is one of them."""
    names = shard_names(opened.path.name)
    if len(names) != n_shards:
        raise FormatError(f"{opened.path}: one of {n_shards} files; its name must end in -00001-of-{n_shards:05}.gguf")
    shards = []
    for index, name in enumerate(names):
        path = opened.path.with_name(name)
        if not path.exists():
            raise FormatError(f"{opened.path}: one of {n_shards} files, of which {name} is missing beside it")
        shard = opened if path == opened.path else _open_one(path, mmap)
        said = _whole_number(shard.metadata, "split.no"), _whole_number(shard.metadata, "split.count")
        if said != (index, n_shards):
            raise FormatError(f"{path}: says it is another file of the split model than its name says")
        shards.append(shard)
    return _join(shards)


def _join(shards: list[GGUFFile]) -> GGUFFile:
    first = shards[0]
    tensors: dict[str, StoredTensor] = {}
    for shard in shards:
        twice = tensors.keys() & shard.tensors.keys()
        if twice:
            raise FormatError(f"{shard.path}: tensor {quoted(min(twice))} is in another file of the split model too")
        tensors |= shard.tensors
    promised = _whole_number(first.metadata, "split.tensors.count")
    if promised is not None and promised != len(tensors):
        raise FormatError(
            f"{first.path}: the split model should hold {promised} tensors, its files hold {len(tensors)}"
        )
    return GGUFFile(tuple(shard.path for shard in shards), first.version, first.metadata, tensors)


def _whole_number(metadata: Metadata, key: str) -> int | None:
    value = metadata.get(key)
    return value if isinstance(value, int) else None
