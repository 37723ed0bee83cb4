"""GGUF files that the `gguf` package writes are read back; damaged and hostile ones are refused in one line."""

from __future__ import annotations

import re
import struct
from pathlib import Path

import numpy as np
import pytest

from ringlet.core.errors import FormatError
from ringlet.core.formats import gguf as gguf_module
from ringlet.core.formats.gguf import FORMATS, WITHDRAWN_FORMATS, open_gguf
from ringlet.core.quantization import BLOCK_FORMATS

gguf = pytest.importorskip("gguf")

TEXTS = ["", "a", "我爱你", "\0", "👨‍👩‍👧", "é", "\n" * 300, "x" * 70_000]


def text(value: str | bytes) -> bytes:
    raw = value.encode() if isinstance(value, str) else value
    return struct.pack("<Q", len(raw)) + raw


def pair(key: str | bytes, kind: int, value: bytes) -> bytes:
    return text(key) + struct.pack("<I", kind) + value


def entry(name: str, dimensions: list[int], number: int = 0, offset: int = 0) -> bytes:
    sizes = struct.pack(f"<I{len(dimensions)}Q", len(dimensions), *dimensions)
    return text(name) + sizes + struct.pack("<IQ", number, offset)


def file(
    path: Path,
    pairs: list[bytes] = [],  # noqa: B006
    entries: list[bytes] = [],  # noqa: B006
    data: bytes = b"",
    version: int = 3,
    counts: tuple[int, int] | None = None,
    alignment: int = 32,
) -> Path:
    n_tensors, n_pairs = counts or (len(entries), len(pairs))
    header = b"GGUF" + struct.pack("<IQQ", version, n_tensors, n_pairs) + b"".join(pairs) + b"".join(entries)
    path.write_bytes(header + bytes(-len(header) % alignment) + data)
    return path


def refused(path: Path, words: str) -> None:
    """Opening fails with one line that names the file and holds the words."""
    with pytest.raises(FormatError, match=re.escape(words)) as caught:
        open_gguf(path)
    assert str(path) in str(caught.value)
    assert "\n" not in str(caught.value)


def written(path: Path, **options) -> Path:
    """A file by the `gguf` package, with values and tensors of every kind."""
    random = np.random.default_rng(1)
    writer = gguf.GGUFWriter(path, "llama", **options)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -(2**31))
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -(2**63))
    writer.add_float32("f32", 0.1)
    writer.add_float64("f64", 0.1)
    writer.add_bool("yes", True)
    writer.add_bool("no", False)
    writer.add_string("text", "我爱你\0x")
    writer.add_array("texts", TEXTS)
    writer.add_array("ints", [-1, 2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("bools", [True, False, True])
    writer.add_tensor("vector", random.standard_normal(7, np.float32))
    writer.add_tensor("half", random.standard_normal((3, 5)).astype(np.float16))
    writer.add_tensor("cube", random.standard_normal((2, 3, 4)).astype(np.float32))
    for name, block in BLOCK_FORMATS.items():
        rows = random.integers(0, 256, (4, 2 * block.n_bytes), np.uint8)
        writer.add_tensor(f"as.{name}", rows, raw_dtype=gguf.GGMLQuantizationType[name])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


@pytest.mark.parametrize("mmap", [True, False])
def test_metadata_of_every_type(tmp_path, mmap):
    metadata = open_gguf(written(tmp_path / "a.gguf"), mmap=mmap).metadata
    expected = {
        "general.architecture": "llama",
        "u8": 255,
        "i8": -128,
        "u16": 65535,
        "i16": -32768,
        "u32": 2**32 - 1,
        "i32": -(2**31),
        "u64": 2**64 - 1,
        "i64": -(2**63),
        "f32": float(np.float32(0.1)),
        "f64": 0.1,
        "yes": True,
        "no": False,
        "text": "我爱你\0x",
        "texts": TEXTS,
    }
    found = {key: metadata[key] for key in expected}
    assert found == expected
    assert {key: type(value) for key, value in found.items()} == {key: type(v) for key, v in expected.items()}
    for key, values, dtype in [
        ("ints", [-1, 2, 3], np.int32),
        ("floats", [0.5, -1.5], np.float32),
        ("bools", [True, False, True], np.bool_),
    ]:
        assert metadata[key].dtype == dtype
        assert metadata[key].tolist() == values
    assert set(metadata) == {*expected, "ints", "floats", "bools"}


def assert_same_tensors(path: Path, mmap: bool = True) -> None:
    tensors, truth = open_gguf(path, mmap=mmap).tensors, gguf.GGUFReader(path).tensors
    assert list(tensors) == [tensor.name for tensor in truth]
    for theirs in truth:
        ours = tensors[theirs.name]
        assert ours.shape == tuple(theirs.shape[::-1].tolist())
        assert ours.format == theirs.tensor_type.name
        assert ours.data.tobytes() == theirs.data.tobytes()
        assert not ours.data.flags.writeable


@pytest.mark.parametrize("mmap", [True, False])
def test_tensors_are_those_of_the_gguf_package(tmp_path, mmap):
    assert_same_tensors(written(tmp_path / "a.gguf"), mmap)


@pytest.mark.filterwarnings("ignore:invalid value", "ignore:overflow")
def test_values_of_tensors(tmp_path):
    path = written(tmp_path / "a.gguf")
    tensors, truth = open_gguf(path).tensors, {tensor.name: tensor for tensor in gguf.GGUFReader(path).tensors}
    assert tensors["vector"].vector().tobytes() == truth["vector"].data.tobytes()
    assert np.array_equal(tensors["cube"].float_array(), truth["cube"].data)
    assert np.array_equal(tensors["half"].float_array(), truth["half"].data.astype(np.float32))
    for name in BLOCK_FORMATS:
        theirs, matrix = truth[f"as.{name}"], tensors[f"as.{name}"].matrix()
        assert matrix.shape == (4, 2 * BLOCK_FORMATS[name].n_weights)
        assert matrix.dequantize().tobytes() == gguf.quants.dequantize(theirs.data, theirs.tensor_type).tobytes()
        assert np.shares_memory(matrix.data, tensors[f"as.{name}"].data)


def test_wrong_number_of_dimensions(tmp_path):
    tensors = open_gguf(written(tmp_path / "a.gguf")).tensors
    for use in (tensors["cube"].matrix, tensors["vector"].matrix, tensors["half"].vector):
        with pytest.raises(
            FormatError, match=r"a\.gguf: tensor '\w+' has the shape \[.*\], but must have \d dimensions"
        ):
            use()


def test_other_alignment_and_version_2(tmp_path):
    random = np.random.default_rng(2)
    for alignment in (1, 8, 256):
        values = random.standard_normal(6).astype(np.float32)
        path = file(
            tmp_path / "a.gguf",
            [pair("general.alignment", 4, struct.pack("<I", alignment))],
            [entry("a", [2, 3])],
            values.tobytes(),
            version=2,
            alignment=alignment,
        )
        opened = open_gguf(path)
        assert opened.version == 2
        assert np.array_equal(opened.tensors["a"].matrix().dequantize(), values.reshape(3, 2))


def test_arrays_of_arrays_and_empty_arrays(tmp_path):
    number = struct.pack("<IQ2H", 2, 2, 7, 8)
    texts = struct.pack("<IQ", 8, 1) + text("x")
    pairs = [
        pair("nested", 9, struct.pack("<IQ", 9, 2) + number + texts),
        *(pair(f"empty.{kind}", 9, struct.pack("<IQ", kind, 0)) for kind in range(13)),
    ]
    metadata = open_gguf(file(tmp_path / "a.gguf", pairs)).metadata
    assert metadata["nested"][0].tolist() == [7, 8]
    assert metadata["nested"][1] == ["x"]
    assert all(len(metadata[f"empty.{kind}"]) == 0 for kind in range(13))


def test_vocabulary_only(tmp_path):
    path = file(tmp_path / "a.gguf", [pair("k", 8, text("v"))], alignment=1)
    assert open_gguf(path).metadata["k"] == "v"
    assert open_gguf(path).tensors == {}


def test_ggmls_other_types():
    for number, (name, n_weights, n_bytes) in FORMATS.items():
        assert gguf.GGMLQuantizationType(number).name == name
        assert gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType(number)] == (n_weights, n_bytes)
    assert {int(number) for number in gguf.GGMLQuantizationType} == set(FORMATS)
    assert not set(FORMATS) & set(WITHDRAWN_FORMATS)


def test_unsupported_format_is_refused_by_name_when_used(tmp_path):
    path = file(tmp_path / "a.gguf", [], [entry("w", [256, 1], 16)], bytes(66))
    tensor = open_gguf(path).tensors["w"]
    assert tensor.format == "IQ2_XXS"
    for use in (tensor.matrix, tensor.vector, tensor.float_array):
        with pytest.raises(FormatError, match=r"a\.gguf: tensor 'w' is stored as IQ2_XXS; supported are F32"):
            use()


def split(tmp_path: Path, per_file: int = 5) -> list[Path]:
    written(tmp_path / "m.gguf", split_max_tensors=per_file)
    return sorted(tmp_path.glob("m-*-of-*.gguf"))


def test_split_files_open_together(tmp_path):
    whole = open_gguf(written(tmp_path / "whole.gguf"))
    shards = split(tmp_path)
    assert len(shards) == 4
    for shard in shards:
        opened = open_gguf(shard)
        assert opened.paths == tuple(shards)
        assert list(opened.tensors) == list(whole.tensors)
        assert all(opened.tensors[name].data.tobytes() == whole.tensors[name].data.tobytes() for name in whole.tensors)
        assert opened.metadata["texts"] == TEXTS


def test_missing_shard_is_named(tmp_path):
    shards = split(tmp_path)
    shards[2].unlink()
    for shard in (shards[0], shards[3]):
        refused(shard, f"of which {shards[2].name} is missing")


def test_shards_in_disorder(tmp_path):
    shards = split(tmp_path)
    shards[1].write_bytes(shards[2].read_bytes())
    with pytest.raises(FormatError, match="says it is another file of the split model"):
        open_gguf(shards[0])


def test_renamed_shard(tmp_path):
    shard = split(tmp_path)[0]
    refused(shard.rename(tmp_path / "model.gguf"), "one of 4 files; its name must end in -00001-of-00004.gguf")


def shard_pairs(number: int, count: int, tensors: int) -> list[bytes]:
    return [
        pair("split.no", 2, struct.pack("<H", number)),
        pair("split.count", 2, struct.pack("<H", count)),
        pair("split.tensors.count", 5, struct.pack("<i", tensors)),
    ]


def test_shards_that_repeat_or_lack_a_tensor(tmp_path):
    first, second = (tmp_path / f"m-0000{n}-of-00002.gguf" for n in (1, 2))
    file(first, shard_pairs(0, 2, 2), [entry("a", [1])], bytes(4))
    file(second, shard_pairs(1, 2, 2), [entry("a", [1])], bytes(4))
    refused(second, "tensor 'a' is in another file of the split model too")
    file(second, shard_pairs(1, 2, 2))
    refused(first, "the split model should hold 2 tensors, its files hold 1")


def test_files_that_are_no_gguf(tmp_path):
    path = tmp_path / "a.gguf"
    refused(path, "no such file")
    refused(tmp_path, "not a regular file")
    for content, words in [
        (b"", "the file is empty"),
        (b"GG", "not a GGUF file"),
        (b"PK\x03\x04" + bytes(100), "not a GGUF file"),
        (b"GGUF" + struct.pack(">IQQ", 3, 0, 0), "a big-endian GGUF file"),
        (b"GGUF" + struct.pack("<IQQ", 1, 0, 0), "GGUF version 1; versions 2 and 3"),
        (b"GGUF" + struct.pack("<IQQ", 0, 0, 0), "GGUF version 0"),
        (b"GGUF" + struct.pack("<IQQ", 4, 0, 0), "GGUF version 4"),
    ]:
        path.write_bytes(content)
        refused(path, words)


HUGE = 2**64 - 1
HOSTILE_PAIRS = {
    "unknown value type": (pair("k", 13, bytes(8)), "metadata 'k' has the unknown value type 13"),
    "unknown element type": (pair("k", 9, struct.pack("<IQ", 99, 1)), "array of the unknown value type 99"),
    "long text": (pair("k", 8, struct.pack("<Q", HUGE)), "bytes of metadata 'k' cannot fit"),
    "long key": (struct.pack("<Q", HUGE), "a metadata key is over 1024 bytes long"),
    "many numbers": (pair("k", 9, struct.pack("<IQ", 10, 2**61)), "elements of metadata 'k' cannot fit"),
    "many texts": (pair("k", 9, struct.pack("<IQ", 8, HUGE)), "elements of metadata 'k' cannot fit"),
    "many bools": (pair("k", 9, struct.pack("<IQ", 7, 2**40)), "elements of metadata 'k' cannot fit"),
    "many arrays": (pair("k", 9, struct.pack("<IQ", 9, 2**60)), "elements of metadata 'k' cannot fit"),
    "text in a list too long": (
        pair("k", 9, struct.pack("<IQ", 8, 2) + text("ok") + struct.pack("<Q", 2**63)),
        "the file ends inside metadata 'k'",
    ),
    "deep arrays": (pair("k", 9, struct.pack("<IQ", 9, 1) * 50), "arrays inside arrays, more than 4 deep"),
    "bool of 2": (pair("k", 7, b"\2"), "a truth value that is neither 0 nor 1"),
    "bools of 2": (pair("k", 9, struct.pack("<IQ", 7, 3) + b"\0\1\2"), "a truth value that is neither 0 nor 1"),
    "key not UTF-8": (pair(b"\xff\xfe", 0, b"\0"), "a metadata key is not valid UTF-8"),
    "text not UTF-8": (pair("k", 8, text(b"\xe6\x88")), "metadata 'k' is not valid UTF-8"),
    "alignment 64-bit": (pair("general.alignment", 10, struct.pack("<Q", 32)), "general.alignment is 32: a uint32"),
    "alignment 0": (pair("general.alignment", 4, struct.pack("<I", 0)), "general.alignment is 0: a uint32 that is"),
    "alignment 48": (pair("general.alignment", 4, struct.pack("<I", 48)), "general.alignment is 48"),
}


@pytest.mark.parametrize("case", HOSTILE_PAIRS)
def test_hostile_metadata(tmp_path, case):
    raw, words = HOSTILE_PAIRS[case]
    refused(file(tmp_path / "a.gguf", [raw], data=bytes(64)), words)


def test_list_with_a_text_that_is_not_utf8(tmp_path):
    """Half a character in each of two texts, which together would be valid."""
    raw = pair("k", 9, struct.pack("<IQ", 8, 2) + text(b"\xc3") + text(b"\xa9"))
    metadata = open_gguf(file(tmp_path / "a.gguf", [raw])).metadata
    with pytest.raises(FormatError, match=r"a\.gguf: metadata 'k' holds a text that is not valid UTF-8"):
        metadata["k"]


def test_key_twice(tmp_path):
    refused(file(tmp_path / "a.gguf", [pair("k", 0, b"\1"), pair("k", 0, b"\2")]), "metadata key 'k' appears twice")


HOSTILE_ENTRIES = {
    "five dimensions": ([entry("w", [1] * 5)], "tensor 'w' has 5 dimensions; 4 are possible"),
    "many dimensions": ([text("w") + struct.pack("<I", 2**32 - 1)], "4294967295 dimensions; 4 are possible"),
    "empty": ([entry("w", [4, 0])], "tensor 'w' has the shape [0, 4]: it holds nothing"),
    "product past 2^64": ([entry("w", [2**32, 2**32, 2**32])], "the file is cut short"),
    "product 2^64": ([entry("w", [2**62, 4])], "the file is cut short"),
    "unknown type": ([entry("w", [1], 99)], "tensor 'w' is stored as unknown type 99"),
    "withdrawn type": ([entry("w", [32], 31)], "tensor 'w' is stored as Q4_0_4_4, which ggml has withdrawn"),
    "part of a block": ([entry("w", [33, 32], 2)], "rows of 33 weights are not whole blocks of 32 (Q4_0)"),
    "odd offset": ([entry("w", [1], 0, 4)], "tensor 'w' lies at offset 4, no multiple of 32"),
    "far offset": ([entry("w", [1], 0, 2**64 - 32)], "the file is cut short"),
    "one past the end": ([entry("w", [129])], "tensor 'w' reaches to byte"),
    "same name": ([entry("w", [1]), entry("w", [1], 0, 32)], "tensor 'w' appears twice"),
    "overlap": ([entry("v", [9], 0, 0), entry("w", [1], 0, 32)], "tensors 'v' and 'w' overlap"),
    "same place": ([entry("v", [8], 0, 0), entry("w", [8], 0, 0)], "tensors 'v' and 'w' overlap"),
    "name not UTF-8": ([text(b"\xff") + bytes(40)], "a tensor's name is not valid UTF-8"),
    "long name": ([struct.pack("<Q", 2**62)], "a tensor's name is over 1024 bytes long"),
}


@pytest.mark.parametrize("case", HOSTILE_ENTRIES)
def test_hostile_tensors(tmp_path, case):
    entries, words = HOSTILE_ENTRIES[case]
    refused(file(tmp_path / "a.gguf", [], entries, bytes(512)), words)


@pytest.mark.parametrize("counts", [(HUGE, 0), (0, HUGE), (2**40, 1), (1, 2**40)])
def test_counts_beyond_the_file(tmp_path, counts):
    refused(file(tmp_path / "a.gguf", counts=counts, data=bytes(64)), "the file is cut short or damaged")


def small_file(path: Path) -> bytes:
    pairs = [
        pair("general.alignment", 4, struct.pack("<I", 32)),
        pair("texts", 9, struct.pack("<IQ", 8, 3) + text("a") + text("我") + text("")),
        pair("nested", 9, struct.pack("<IQIQ2H", 9, 1, 2, 2, 7, 8)),
        pair("split.count", 2, struct.pack("<H", 1)),
        pair("flag", 7, b"\1"),
    ]
    entries = [entry("a", [32, 2], 2), entry("b", [5], 0, 64)]
    return file(path, pairs, entries, bytes(64 + 20)).read_bytes()


@pytest.fixture
def open_bytes(monkeypatch):
    """Opens a GGUF file that is only bytes, reads every value of it, and says whether it was refused."""

    def refuses(content: bytes) -> bool:
        monkeypatch.setattr(gguf_module, "file_bytes", lambda path, mmap: np.frombuffer(content, np.uint8))
        try:
            opened = open_gguf("a.gguf")
            for key in opened.metadata:
                opened.metadata[key]
            for tensor in opened.tensors.values():
                tensor.float_array()
        except FormatError:
            return True
        return False

    return refuses


def test_cut_anywhere(tmp_path, open_bytes):
    whole = small_file(tmp_path / "a.gguf")
    assert not open_bytes(whole)
    assert all(open_bytes(whole[:length]) for length in range(len(whole)))


def test_changed_anywhere(tmp_path, open_bytes):
    """A damaged byte is either harmless or a FormatError, at opening or at first use; nothing else is raised."""
    whole = small_file(tmp_path / "a.gguf")
    header = len(whole) - 84
    refusals = sum(
        open_bytes(whole[:at] + bytes([value]) + whole[at + 1 :])
        for at in range(header)
        for value in (0x00, 0x01, 0x09, 0x20, 0x7F, 0x80, 0xFF)
    )
    assert refusals > header


@pytest.mark.real_model
def test_gemma_s_vocabulary_is_read_whole(gemma_path):
    tokens = open_gguf(gemma_path).metadata["tokenizer.ggml.tokens"]
    assert len(tokens) == 262_144
    assert tokens[:4] == ["<pad>", "<eos>", "<bos>", "<unk>"]


@pytest.mark.real_model
def test_smollm2_is_what_the_gguf_package_reads(smollm2_path):
    assert_same_tensors(smollm2_path)
    metadata, fields = open_gguf(smollm2_path).metadata, gguf.GGUFReader(smollm2_path).fields
    for key, value in metadata.items():
        truth = fields[key].contents()
        assert (value.tolist() if isinstance(value, np.ndarray) else value) == truth
