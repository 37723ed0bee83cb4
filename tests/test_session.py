"""Sessions: a ring in a file comes back to the last bit, and nothing but a sound file of this model is taken."""

# ruff: noqa: E501 - tables

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny_pipeline import Recorded, byte_model, pipeline_of, random_pipeline

from ringlet.core import session_file
from ringlet.core.errors import FormatError, PluginError, RingletError
from ringlet.core.host_memory import HostMemory
from ringlet.core.pipeline import Pipeline
from ringlet.core.ring_cache import RingMemory
from ringlet.core.session import save_session
from ringlet.core.session_file import open_session_file

TEXT = "the ring of the king and the sea"
LAYOUTS = [
    {},
    {"context": 64, "overflow": "slide", "sinks": 3, "chunk": 5},
    {"context": 40, "overflow": "slide"},
]


def tokens(pipe: Pipeline, prompt: str | list[int], **options: object) -> list[int]:
    return pipe.generate(prompt, 12, "temperature=1.5", seed=3, ignore_eos=True, **options).token_ids


def all_bits(pipe: Pipeline) -> list[bytes]:
    with pipe.idle_ring.held() as kept:
        assert kept is not None
        ring = kept[0].ring
        return [array.tobytes() for array in ring.memory.contents(ring.length).values()]


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("window", [None, 7])
def test_a_generation_after_loading_is_the_one_without(layout: dict, window: int | None, tmp_path: Path) -> None:
    first, second = (random_pipeline(window=window, **layout) for _ in range(2))
    prompt = TEXT[:30]
    drawn = tokens(first, prompt)
    first.save_session(tmp_path / "s")
    session = second.load_session(tmp_path / "s")
    assert session.token_ids == [*prompt.encode(), *drawn[:-1]]
    assert (session.prompt_length, session.messages) == (30, None)
    assert all_bits(second) == all_bits(first)
    for follow in (prompt, prompt + "!", [*prompt.encode(), *drawn, 65, 66], prompt[:20], "something else altogether"):
        del first.backend.steps[:], second.backend.steps[:]
        assert tokens(second, follow) == tokens(first, follow)
        assert second.backend.steps == first.backend.steps
        assert all_bits(second) == all_bits(first)


@pytest.mark.parametrize("kv_dtype", ["f16", "f32", "q8"])
def test_the_embedded_model_on_the_cpu(kv_dtype: str, tmp_path: Path) -> None:
    prompt = "春眠不觉晓，处处闻啼鸟。\n夜来风雨声，"
    first, second = (Pipeline.from_pretrained(context=96, kv_dtype=kv_dtype) for _ in range(2))
    drawn = first.generate(prompt, 20, seed=1, ignore_eos=True)
    first.save_session(tmp_path / "s")
    second.load_session(tmp_path / "s")
    for follow in (prompt, prompt + drawn.text + "花"):
        assert second.generate(follow, 20, seed=5) == first.generate(follow, 20, seed=5)
    assert all_bits(second) == all_bits(first)


def test_the_same_prompt_needs_no_step(tmp_path: Path) -> None:
    first, second = random_pipeline(), random_pipeline()
    drawn = tokens(first, TEXT)
    first.save_session(tmp_path / "s")
    second.load_session(tmp_path / "s")
    assert tokens(second, TEXT) == drawn
    assert second.backend.steps == [[1]] * 11  # what follows the first token


@pytest.mark.parametrize("n_chunks", [0, 1, 3])
def test_a_generation_that_was_left_early_can_be_saved(n_chunks: int, tmp_path: Path) -> None:
    first, second = random_pipeline(chunk=4), random_pipeline(chunk=4)
    stream = first.stream(TEXT, 9, seed=1)
    for _ in range(n_chunks):
        next(stream)
    stream.close()
    if n_chunks == 0:
        with pytest.raises(RingletError, match="nothing to save yet"):
            first.save_session(tmp_path / "s")
        return
    first.save_session(tmp_path / "s")
    second.load_session(tmp_path / "s")
    assert tokens(second, TEXT) == tokens(first, TEXT)


def test_a_prompt_that_was_interrupted_is_computed_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pipe, fresh = random_pipeline(chunk=4), random_pipeline(chunk=4)
    forward = Recorded.forward

    def interrupted(backend: Recorded, batch: object) -> np.ndarray:
        if len(backend.steps) == 6:
            raise KeyboardInterrupt
        return forward(backend, batch)

    with monkeypatch.context() as patched:
        patched.setattr(Recorded, "forward", interrupted)
        with pytest.raises(KeyboardInterrupt):
            pipe.generate(TEXT, 5)
    pipe.save_session(tmp_path / "s")
    session = fresh.load_session(tmp_path / "s")
    assert session.token_ids == list(TEXT[:24].encode())
    assert tokens(fresh, TEXT) == tokens(random_pipeline(chunk=4), TEXT)
    assert fresh.backend.steps[0] == [4]
    assert len(fresh.backend.steps) == 2 + 11


def test_a_generation_that_a_sampler_ended_is_gone_on_with(tmp_path: Path) -> None:
    """A fault costs the call, and not what was computed."""
    pipe = random_pipeline(chunk=4)
    n_steps = len(TEXT) // 4
    with pytest.raises(RingletError, match="removed every token"):
        pipe.generate(TEXT, 9, "allowed_words(ids='5'),bad_words(ids='5')")
    pipe.save_session(tmp_path / "s")
    assert tokens(pipe, TEXT) == tokens(random_pipeline(chunk=4), TEXT)
    assert pipe.backend.steps == [[4]] * n_steps + [[1]] * 11


def test_messages_are_kept(tmp_path: Path) -> None:
    pipe = random_pipeline()
    tokens(pipe, TEXT)
    messages = [{"role": "user", "content": "我爱你\ud800"}, {"role": "assistant", "content": "x", "n": [1, None]}]
    messages[0]["content"] = "我爱你"
    save_session(pipe, tmp_path / "s", messages)
    assert random_pipeline().load_session(tmp_path / "s").messages == messages


def test_the_file_is_plain_safetensors(tmp_path: Path) -> None:
    from safetensors import safe_open

    pipe = random_pipeline()
    tokens(pipe, TEXT)
    pipe.save_session(tmp_path / "s")
    with safe_open(tmp_path / "s", "numpy") as file:
        assert file.metadata()["format"] == "ringlet session"
        said = json.loads(file.metadata()["session"])
        assert (said["length"], said["prompt_length"]) == (len(TEXT) + 11, len(TEXT))
        ids = file.get_tensor("token_ids")
        assert ids[: len(TEXT)].tolist() == list(TEXT.encode())
        with pipe.idle_ring.held() as kept:
            for name, array in kept[0].ring.memory.contents(len(ids)).items():
                assert np.array_equal(file.get_tensor(f"ring.{name}"), array)


# --- what does not fit is refused ------------------------------------------------------------------------------------


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    pipe = random_pipeline(chunk=4)
    tokens(pipe, TEXT)
    pipe.save_session(tmp_path / "s")
    return tmp_path / "s"


def told(pipe: Pipeline, path: Path) -> str:
    before = pipe.idle_ring._kept
    with pytest.raises(FormatError) as caught:
        pipe.load_session(path)
    assert pipe.idle_ring._kept is before
    text = str(caught.value)
    assert text.startswith(str(path))
    assert "\n" not in text
    return text


def test_another_model_is_told(saved: Path) -> None:
    config, weights = byte_model(seed=1)
    assert "a session of another model (tiny)" in told(pipeline_of(Recorded(config, weights)), saved)
    config, weights = byte_model()
    assert "another model" in told(pipeline_of(Recorded(replace(config, norm_epsilon=1e-6), weights)), saved)
    other = np.array(weights.layers[-1].feed_forward_norm)
    other[0] += 1
    changed = replace(weights, layers=(*weights.layers[:-1], replace(weights.layers[-1], feed_forward_norm=other)))
    assert "another model" in told(pipeline_of(Recorded(config, changed)), saved)


def test_another_kind_of_ring_is_told(saved: Path) -> None:
    pipe = random_pipeline(chunk=4)
    pipe.kv_dtype = "f16"
    assert "its ring holds f32, this one f16" in told(pipe, saved)


def test_another_context_will_do_if_nothing_was_overwritten(saved: Path, tmp_path: Path) -> None:
    for layout in ({"context": 500}, {"context": 50}, {"context": 64, "overflow": "slide", "sinks": 2}, {"chunk": 9}):
        pipe, fresh = random_pipeline(**layout), random_pipeline(**layout)
        pipe.load_session(saved)
        assert tokens(pipe, TEXT) == tokens(fresh, TEXT)
    assert "43 tokens, more than the context of 40" in told(random_pipeline(context=40), saved)
    sliding = {"context": 40, "overflow": "slide"}
    assert "has slid" in told(random_pipeline(**sliding), saved)
    pipe = random_pipeline(**sliding, chunk=4)
    tokens(pipe, TEXT)
    pipe.save_session(tmp_path / "slid")
    assert "fits only the same options: context 40, sinks 0, overflow slide" in told(
        random_pipeline(), tmp_path / "slid"
    )
    random_pipeline(**sliding, chunk=4).load_session(tmp_path / "slid")


FOREIGN = {
    "empty": b"",
    "short": b"\x10\0\0",
    "text": b"Once upon a time there was a file that was no session." * 9,
    "zeros": bytes(4096),
    "a huge header": b"\xff" * 64,
    "JSON": b'{"a": 1}',
    "an array": (9).to_bytes(8, "little") + b"[1, 2, 3]",
    "safetensors": (60).to_bytes(8, "little")
    + b'{"a":{"dtype":"F32","shape":[1],"data_offsets":[0,4]}}      '
    + b"abcd",
    "deep JSON": (200_000).to_bytes(8, "little") + b"[" * 200_000,
    "other metadata": (30).to_bytes(8, "little") + b'{"__metadata__":{"format":1}} ',
    "metadata of another kind": (21).to_bytes(8, "little") + b'{"__metadata__":"abc"}'[:21],
}


@pytest.mark.parametrize("data", FOREIGN.values(), ids=FOREIGN)
def test_a_foreign_file_is_no_session(data: bytes, tmp_path: Path) -> None:
    (tmp_path / "s").write_bytes(data)
    told(random_pipeline(), tmp_path / "s")


def test_what_is_no_file(tmp_path: Path) -> None:
    assert told(random_pipeline(), tmp_path / "none").endswith("no such file or directory")
    assert told(random_pipeline(), tmp_path).endswith("not a regular file")
    if hasattr(os, "mkfifo"):
        os.mkfifo(tmp_path / "pipe")
        assert told(random_pipeline(), tmp_path / "pipe").endswith("not a regular file")


def rewritten(path: Path, change: Mapping) -> Path:
    """The file with other things in its description, and with a digest that is right."""
    with open_session_file(path) as file:
        session, shapes = dict(file.session), dict(file.shapes)
        arrays = file.read(shapes)
    session_file.write_session_file(path.with_name("changed"), {**session, **change}, arrays)
    return path.with_name("changed")


@pytest.mark.parametrize(
    "change",
    [
        {"length": 1 << 40}, {"length": -1}, {"length": 1.5}, {"length": None}, {"length": 42}, {"length": True},
        {"prompt_length": 99}, {"prompt_length": -1}, {"prompt_length": "a"}, {"prompt_length": []},
        {"has_logits": False}, {"has_logits": 1}, {"layout": None}, {"layout": {}}, {"layout": {"layers": [1, 2]}},
        {"layout": {"layers": [[1, 2, 3], "a"]}}, {"layout": {"layers": [[9, 0, 9]] * 2}},
        {"first_held": None}, {"first_held": [0]}, {"first_held": [0, 99]}, {"first_held": [-1, 0]},
        {"first_held": [0, "a"]}, {"kv_dtype": ["f32"]}, {"fingerprint": 5}, {"fingerprint": None},
    ],
    ids=str,
)  # fmt: skip
def test_a_description_that_cannot_be_is_refused(change: dict, saved: Path) -> None:
    told(random_pipeline(chunk=4), rewritten(saved, change))


def test_arrays_that_cannot_be_are_refused(saved: Path) -> None:
    with open_session_file(saved) as file:
        session, arrays = dict(file.session), file.read(file.shapes)
    path = saved.with_name("changed")
    ids = arrays["token_ids"].copy()
    ids[0] = 5000
    messages = np.frombuffer(b"[" * 9, np.uint8)
    for change in (
        {"token_ids": ids}, {"token_ids": ids[:-1]}, {"token_ids": -ids}, {"logits": arrays["logits"][:5]}, {"more": ids},
        {"ring.0.keys": arrays["ring.0.keys"].astype(np.float16)}, {"ring.0.keys": arrays["ring.0.keys"][:, :-1]},
        {"messages": messages}, {"messages": np.frombuffer(b'{"a": 1}', np.uint8)}, {"messages": ids},
        {"messages": np.frombuffer(b"[1]", np.uint8).reshape(3, 1)},
    ):  # fmt: skip
        session_file.write_session_file(path, session, {**arrays, **change})
        told(random_pipeline(chunk=4), path)
    del arrays["ring.1.values"]
    session_file.write_session_file(path, session, arrays)
    told(random_pipeline(chunk=4), path)


def test_another_version_is_told(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_file, "VERSION", "9")
    changed = rewritten_at_another_version(saved)
    monkeypatch.undo()
    assert "a session in format '9': this version reads '1'" in told(random_pipeline(chunk=4), changed)


def rewritten_at_another_version(path: Path) -> Path:
    data = path.read_bytes().replace(b'"version": "1"', b'"version": "9"')
    path.with_name("changed").write_bytes(data)
    return path.with_name("changed")


@settings(max_examples=250, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_a_mutated_file_is_refused_or_the_same(tmp_path_factory: pytest.TempPathFactory, data: st.DataObject) -> None:
    """A change is refused, unless it is one of blanks in the header, which say nothing."""
    original, bits = mutation_source(tmp_path_factory)
    length = int.from_bytes(original[:8], "little")
    place = data.draw(st.one_of(st.integers(0, 8 + length), st.integers(0, len(original) - 1)))
    kind = data.draw(st.sampled_from(["bit", "byte", "cut", "insert", "remove", "swap", "repeat"]))
    other = data.draw(st.integers(0, len(original) - 1))
    changed = {
        "bit": lambda: original[:place] + bytes([original[place] ^ (1 << other % 8)]) + original[place + 1 :],
        "byte": lambda: original[:place] + bytes([other % 256]) + original[place + 1 :],
        "cut": lambda: original[:place],
        "insert": lambda: original[:place] + bytes([other % 256]) + original[place:],
        "remove": lambda: original[:place] + original[place + 1 + other % 64 :],
        "swap": lambda: original[other:] + original[:other],
        "repeat": lambda: original + original[place:],
    }[kind]()
    path = tmp_path_factory.getbasetemp() / "mutated"
    path.write_bytes(changed)
    pipe = random_pipeline(chunk=4)
    try:
        pipe.load_session(path)
    except FormatError as error:
        line = str(error)
    else:
        assert all_bits(pipe) == bits
        return
    assert "\n" not in line
    assert line.startswith(str(path))


_sources: list[tuple[bytes, list[bytes]]] = []


def mutation_source(tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, list[bytes]]:
    if not _sources:
        pipe = random_pipeline(chunk=4)
        tokens(pipe, TEXT)
        path = tmp_path_factory.mktemp("session") / "s"
        pipe.save_session(path)
        _sources.append((path.read_bytes(), all_bits(pipe)))
    return _sources[0]


# --- writing ---------------------------------------------------------------------------------------------------------


def test_nothing_to_save_yet(tmp_path: Path) -> None:
    with pytest.raises(RingletError, match=r"^there is nothing to save yet: generate a text first$"):
        random_pipeline().save_session(tmp_path / "s")
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.name == "nt", reason="modes of files are POSIX's")
def test_a_session_is_private(saved: Path) -> None:
    assert stat.S_IMODE(saved.stat().st_mode) == 0o600


def test_where_nothing_can_be_written(saved: Path, tmp_path: Path) -> None:
    pipe = random_pipeline()
    tokens(pipe, TEXT)
    for path in (tmp_path / "no such folder" / "s", tmp_path, saved / "s"):
        with pytest.raises(RingletError) as caught:
            pipe.save_session(path)
        assert str(caught.value).startswith(f"{path}: cannot be written: ")
    assert [path.name for path in tmp_path.iterdir()] == ["s"]


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="no pipes by name here")
def test_a_device_is_not_replaced(tmp_path: Path) -> None:
    pipe = random_pipeline()
    tokens(pipe, TEXT)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null")):
        with pytest.raises(RingletError, match=f"^{path}: cannot be written: not a regular file$"):
            pipe.save_session(path)
        assert not path.is_file()


@pytest.mark.skipif(os.name == "nt", reason="links need a right on Windows")
def test_a_link_stays_a_link(saved: Path, tmp_path: Path) -> None:
    pipe = random_pipeline()
    tokens(pipe, TEXT[::-1])
    before = saved.read_bytes()
    (tmp_path / "link").symlink_to(saved)
    pipe.save_session(tmp_path / "link")
    assert (tmp_path / "link").is_symlink()
    assert saved.read_bytes() != before
    (tmp_path / "circle").symlink_to(tmp_path / "circle")
    with pytest.raises(RingletError, match="cannot be written"):
        pipe.save_session(tmp_path / "circle")


def test_a_full_disk_leaves_the_old_file(saved: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = saved.read_bytes()
    pipe = random_pipeline(chunk=4)
    tokens(pipe, TEXT[::-1])

    def full(handle: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(RingletError, match=r"s: cannot be written: no space left on device$"):
        pipe.save_session(saved)
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["s"]
    monkeypatch.undo()
    pipe.save_session(saved)  # what it had is still there
    assert saved.read_bytes() != before


SAVING = """
import os, resource, signal, sys
sys.path.insert(0, {tests!r})
from tiny_pipeline import random_pipeline
from ringlet.core.errors import RingletError

pipe = random_pipeline(chunk=4)
pipe.generate("a text that is another one", 30, seed=1, ignore_eos=True)
{limit}
try:
    pipe.save_session({path!r})
except RingletError as error:
    print(error)
"""


def save_in_a_process(path: Path, limit: str) -> subprocess.CompletedProcess:
    code = SAVING.format(tests=str(Path(__file__).parent), path=str(path), limit=limit)
    return subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)


@pytest.mark.skipif(os.name == "nt", reason="limits of a process are POSIX's")
def test_a_limit_of_the_system_s_leaves_the_old_file(saved: Path) -> None:
    before = saved.read_bytes()
    done = save_in_a_process(saved, "resource.setrlimit(resource.RLIMIT_FSIZE, (3000, 3000))")
    assert done.stdout == f"{saved}: cannot be written: file too large\n", done.stderr
    assert saved.read_bytes() == before
    assert [path.name for path in saved.parent.iterdir()] == ["s"]


@pytest.mark.skipif(os.name == "nt", reason="SIGKILL is POSIX's")
def test_a_process_that_is_killed_leaves_the_old_file(saved: Path) -> None:
    before = saved.read_bytes()
    done = save_in_a_process(saved, "os.fsync = lambda handle: os.kill(os.getpid(), signal.SIGKILL)")
    assert done.returncode == -signal.SIGKILL
    assert saved.read_bytes() == before
    random_pipeline(chunk=4).load_session(saved)
    others = [path.name for path in saved.parent.iterdir() if path != saved]
    assert all(name.startswith(".s.") and name.endswith(".part") for name in others)


# --- rings in memory of a plugin's own -------------------------------------------------------------------------------


class Elsewhere(HostMemory):
    """As if in the memory of a device: what is read and written are copies, in bytes."""

    def contents(self, length: int) -> dict[str, np.ndarray]:
        held = super().contents(length)
        return {f"device.{name}": array.copy().view(np.uint8) for name, array in held.items()}

    def restore(self, contents: Mapping[str, np.ndarray], length: int) -> None:
        kinds = super().contents(length)
        super().restore(
            {name: np.ascontiguousarray(contents[f"device.{name}"]).view(array.dtype) for name, array in kinds.items()},
            length,
        )


class OnDevice(Recorded):
    memory: type[RingMemory] = Elsewhere

    def new_memory(self, layout: object, kv_dtype: str) -> RingMemory:
        return self.memory(self.config, layout, kv_dtype)


def test_a_backend_s_own_memory_is_read_and_written_by_its_methods(tmp_path: Path) -> None:
    first, second = (pipeline_of(OnDevice(*byte_model())) for _ in range(2))
    drawn = tokens(first, TEXT)
    first.save_session(tmp_path / "s")
    second.load_session(tmp_path / "s")
    assert tokens(second, [*TEXT.encode(), *drawn, 65]) == tokens(first, [*TEXT.encode(), *drawn, 65])


@pytest.mark.parametrize(
    ("contents", "kind", "said"),
    [
        (RingMemory.contents, RingletError, "the rings of this backend cannot be saved"),
        (lambda memory, length: [1], PluginError, "backend told (theirs): contents: returned no dict of arrays"),
        (lambda memory, length: 1 / 0, PluginError, "contents: ZeroDivisionError: division by zero"),
        (lambda memory, length: {"a": np.zeros(3, np.float64)}, RingletError, "a ring of float64 cannot be kept"),
    ],
)
def test_memory_that_cannot_be_saved_is_told(contents: object, kind: type, said: str, tmp_path: Path) -> None:
    memory = type("Theirs", (HostMemory,), {"contents": contents})
    backend = type("Their", (OnDevice,), {"memory": memory, "name": "told"})(*byte_model())
    pipe = pipeline_of(backend)
    tokens(pipe, TEXT)
    backend.origin = "theirs"
    with pytest.raises(kind) as caught:
        pipe.save_session(tmp_path / "s")
    assert said in str(caught.value)
    assert not list(tmp_path.iterdir())


@pytest.mark.real_model
def test_smollm2_and_gemma(smollm2_path: Path, gemma_path: Path, tmp_path: Path) -> None:
    for path, options in ((smollm2_path, {}), (gemma_path, {}), (smollm2_path, {"overflow": "slide", "sinks": 4})):
        first, second = (Pipeline.from_pretrained(path, context=64, **options) for _ in range(2))
        prompt = "The quick brown fox jumps over the lazy dog. " * 4
        first.generate(prompt, 40, seed=1, ignore_eos=True)
        first.save_session(tmp_path / "s")
        second.load_session(tmp_path / "s")
        for follow in (prompt, prompt + "And then"):
            assert second.generate(follow, 12, seed=2) == first.generate(follow, 12, seed=2)
        assert all_bits(second) == all_bits(first)
    with pytest.raises(FormatError, match="another model"):
        Pipeline.from_pretrained(gemma_path, context=64).load_session(tmp_path / "s")
