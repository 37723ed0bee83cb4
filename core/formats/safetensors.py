"""Safetensors files as memory-mapped tensors: one file, or shards listed by an index.

Source: the safetensors format (huggingface/safetensors, README "Format"): a little-endian uint64 N, N bytes of JSON
that maps each name to its dtype, shape and place, and the data. The `safetensors` library has no way to hand bfloat16
to NumPy, so the header is read here, with that library's checks.
"""

from __future__ import annotations

import re
from itertools import pairwise
from math import prod
from pathlib import Path
from typing import TypeGuard

from ringlet.core.errors import FormatError, quoted
from ringlet.core.formats.file_bytes import file_bytes
from ringlet.core.formats.json_object import parse_json_object, read_json_object
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.quantization import BLOCK_FORMATS

FILE_NAME = "model.safetensors"
INDEX_NAME = "model.safetensors.index.json"
WEIGHT_BYTES = {"F32": 4, "F16": 2, "BF16": 2}  # the dtypes that can be weights
DTYPE_NAME = re.compile(r"[A-Z0-9_]{1,16}")
MOST_DIMENSIONS = 64
LARGEST_NUMBER = 1 << 63
LONGEST_NAME = 1024  # characters of a tensor's name
LONGEST_FILE_NAME = 255
LONGEST_HEADER = 1 << 25  # bytes; those of the largest models have a tenth of it


def open_safetensors(directory_or_file: str | Path, mmap: bool = True) -> dict[str, StoredTensor]:
    """Every tensor by name, of a file, or of a directory's model.safetensors or the shards that its index lists.

    A tensor of another dtype than F32, F16 and BF16 is refused when it is used. mmap=False reads the files into memory.
    Raises FormatError, which names the file and what is wrong with it.
    """
    path = Path(directory_or_file)
    if not path.is_dir():
        return _open_file(path, mmap)
    if (path / FILE_NAME).exists():
        return _open_file(path / FILE_NAME, mmap)
    if (path / INDEX_NAME).exists():
        return _open_shards(path / INDEX_NAME, mmap)
    raise FormatError(f"{path}: neither {FILE_NAME} nor {INDEX_NAME} is in the directory")


def _open_shards(index: Path, mmap: bool) -> dict[str, StoredTensor]:
    content = read_json_object(index, LONGEST_HEADER)
    weight_map = content.get("weight_map")
    if not isinstance(weight_map, dict) or not all(isinstance(shard, str) for shard in weight_map.values()):
        raise FormatError(f"{index}: 'weight_map' must map tensor names to file names")
    shards: dict[str, dict[str, StoredTensor]] = {}
    for name in sorted(set(weight_map.values())):
        if name in ("", ".", "..") or any(mark in name for mark in "/\\:\0") or not is_short(name):
            raise FormatError(f"{index}: {quoted(name)} is not the name of a file beside it")
        if not name.endswith(".safetensors"):
            raise FormatError(f"{index}: {quoted(name)} is not the name of a safetensors file")
        if not (index.parent / name).exists():
            raise FormatError(f"{index}: the shard {name} is missing; download it to {index.parent}")
        shards[name] = _open_file(index.parent / name, mmap)
    for tensor, name in weight_map.items():
        if tensor not in shards[name]:
            raise FormatError(f"{index}: tensor {quoted(tensor)} should be in {name}, but is not")
    return {tensor: shards[name][tensor] for tensor, name in weight_map.items()}


def _open_file(path: Path, mmap: bool) -> dict[str, StoredTensor]:
    contents = file_bytes(path, mmap)
    if len(contents) < 8:
        raise FormatError(f"{path}: not a safetensors file: it has only {len(contents)} bytes")
    length = int.from_bytes(contents[:8].tobytes(), "little")
    if length > min(LONGEST_HEADER, len(contents) - 8):
        raise FormatError(f"{path}: a header of {length} bytes does not fit: not a safetensors file, or cut short")
    header = parse_json_object(contents[8 : 8 + length].tobytes(), f"{path}: the header")
    header.pop("__metadata__", None)
    data = contents[8 + length :]
    tensors, places = {}, [(0, 0)]
    for name, entry in header.items():
        format, shape, start, stop = _read_entry(path, name, entry)
        places.append((start, stop))
        tensors[name] = StoredTensor(name, shape, format, data[start:stop], path)
    places.sort()
    if any(before[1] != after[0] for before, after in pairwise(places)) or places[-1][1] > len(data):
        raise FormatError(f"{path}: the tensors overlap, leave gaps or reach past the end: damaged or cut short")
    return tensors


def _read_entry(path: Path, name: str, entry: object) -> tuple[str, tuple[int, ...], int, int]:
    """dtype, shape, first byte and end of a tensor; FormatError unless they agree."""
    fields = entry if isinstance(entry, dict) else {}
    dtype, shape, offsets = fields.get("dtype"), fields.get("shape"), fields.get("data_offsets")
    is_named = DTYPE_NAME.fullmatch(str(dtype)) is not None and len(name) <= LONGEST_NAME
    if (
        not isinstance(dtype, str)
        or not is_named
        or not _whole_numbers(shape)
        or not _whole_numbers(offsets)
        or len(offsets) != 2
    ):
        raise FormatError(f"{path}: the entry of tensor {quoted(name)} is damaged")
    start, stop = offsets
    n_bytes = prod(shape) * WEIGHT_BYTES[dtype] if dtype in WEIGHT_BYTES else stop - start
    if start > stop or stop - start != n_bytes:
        raise FormatError(f"{path}: tensor {quoted(name)} of {dtype} {quoted(shape)} cannot have {stop - start} bytes")
    if dtype in BLOCK_FORMATS and dtype not in WEIGHT_BYTES:
        raise FormatError(f"{path}: tensor {quoted(name)} has the dtype {dtype}, which is none of safetensors")
    return dtype, tuple(shape), start, stop


def _whole_numbers(value: object) -> TypeGuard[list[int]]:
    if not isinstance(value, list) or len(value) > MOST_DIMENSIONS:
        return False
    return all(type(number) is int and 0 <= number < LARGEST_NUMBER for number in value)


def is_short(name: str) -> bool:
    """Whether a name may stand in a message as it is."""
    return len(name) <= LONGEST_FILE_NAME and name.isprintable()
