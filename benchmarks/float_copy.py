"""A copy of a GGUF model whose matrices are floats again, to quantise them anew.

    python benchmarks/float_copy.py MODEL.gguf COPY.gguf [--format F16]

The copy has the same metadata; what was in blocks is unpacked. (Its weights are no more exact than they were.)
"""

from __future__ import annotations

from pathlib import Path
from struct import pack

import click
import numpy as np

from ringlet.core.formats.file_bytes import file_bytes
from ringlet.core.formats.gguf import open_gguf
from ringlet.core.formats.gguf_metadata import Cursor, read_metadata
from ringlet.core.quantization import BLOCK_FORMATS

N_PAIRS_AT = 16  # bytes: behind "GGUF", the version and the number of tensors


def write_float_copy(source: Path, target: Path, format: str = "F16") -> None:
    """format: of what has two dimensions or more, "F32", "F16" or "BF16"; the rest keeps its own."""
    opened = open_gguf(source)
    pairs, alignment = _metadata_bytes(source)
    head, data, offset = [b"GGUF", pack("<IQ", 3, len(opened.tensors)), pairs], [], 0
    for tensor in opened.tensors.values():
        kind = format if len(tensor.shape) > 1 else tensor.format
        encoded = tensor.data if kind == tensor.format else as_floats(tensor.float_array(), kind)
        dimensions = tensor.shape[::-1]
        name = tensor.name.encode()
        head += [pack("<Q", len(name)), name, pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)]
        head.append(pack("<IQ", BLOCK_FORMATS[kind].gguf_type, offset))
        data.append(encoded.tobytes() + bytes(-encoded.nbytes % alignment))
        offset += len(data[-1])
    start = b"".join(head)
    target.write_bytes(b"".join([start, bytes(-len(start) % alignment), *data]))


def as_floats(values: np.ndarray, format: str) -> np.ndarray:
    """float32 as uint8 in a format of floats; bfloat16 is rounded to the nearest, halves to even."""
    if format == "BF16":
        bits = np.ascontiguousarray(values).view(np.uint32)
        return ((bits + (0x7FFF + (bits >> 16 & 1))) >> 16).astype(np.uint16).view(np.uint8)
    return values.astype({"F32": np.float32, "F16": np.float16}[format]).view(np.uint8)


def _metadata_bytes(path: Path) -> tuple[bytes, int]:
    """The number of pairs and the pairs as they lie in the file, and the alignment that they set."""
    cursor = Cursor(path, file_bytes(path))
    cursor.skip(N_PAIRS_AT, "its head")
    _, alignment = read_metadata(cursor, cursor.count("metadata pairs", 13))
    return cursor.data[N_PAIRS_AT : cursor.at].tobytes(), alignment


@click.command()
@click.argument("model", type=click.Path(exists=True, dir_okay=False, path_type=Path))
@click.argument("copy", type=click.Path(path_type=Path))
@click.option("--format", type=click.Choice(["F32", "F16", "BF16"]), default="F16", show_default=True)
def main(model: Path, copy: Path, format: str) -> None:
    """Write a COPY of MODEL, a GGUF file, with matrices of floats."""
    write_float_copy(model, copy, format)


if __name__ == "__main__":
    main()
