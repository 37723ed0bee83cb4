"""A pipeline's last ring as a session: what it holds, which prompt it began with, and the logits after that."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from ringlet.core import backend_calls
from ringlet.core.checks import is_whole
from ringlet.core.errors import RingletError
from ringlet.core.generation.loop import PromptState
from ringlet.core.ring_cache import RingLayout
from ringlet.core.session_file import SessionFile, open_session_file, write_session_file

if TYPE_CHECKING:
    from ringlet.core.pipeline import Pipeline

TOKEN_IDS, LOGITS, MESSAGES = "token_ids", "logits", "messages"
RING = "ring."  # before the names of the ring's own arrays


@dataclass(frozen=True)
class Session:
    """What a session file says. token_ids: all that the ring holds. prompt_length: of them, those of the last prompt.

    messages: the conversation, where it is one. left_out: how many of its messages the model no longer saw, the
    system's apart.
    """

    token_ids: list[int]
    prompt_length: int
    messages: list[dict[str, Any]] | None = None
    left_out: int = 0

    def __repr__(self) -> str:
        messages = "" if self.messages is None else f", {len(self.messages)} messages"
        return f"<Session of {len(self.token_ids)} tokens, {self.prompt_length} of the prompt{messages}>"


def save_session(pipe: Pipeline, path: str | os.PathLike[str], messages: Any = None, left_out: int = 0) -> None:
    """messages, left_out: see `Session`. Raises RingletError where nothing has been generated yet, or the file cannot
    be written."""
    with pipe.idle_ring.held() as kept:
        if kept is None:
            raise RingletError("there is nothing to save yet: generate a text first")
        state, prompt_ids = kept
        ring = state.ring
        has_logits = state.logits is not None and ring.length >= len(prompt_ids)
        session = {
            "model": pipe.model.name,
            "fingerprint": pipe.fingerprint,
            "kv_dtype": pipe.kv_dtype,
            "layout": _layout_facts(ring.layout),
            "length": ring.length,
            "prompt_length": min(len(prompt_ids), ring.length),
            "first_held": ring.first_held,
            "has_logits": has_logits,
            "left_out": left_out,
        }
        arrays = {TOKEN_IDS: np.array(ring.token_ids, np.int32)}
        if has_logits:
            arrays[LOGITS] = np.asarray(state.logits, np.float32)
        if messages is not None:
            arrays[MESSAGES] = np.frombuffer(json.dumps(messages, ensure_ascii=False).encode(), np.uint8)
        held = backend_calls.ring_contents(pipe.backend, ring)
        write_session_file(path, session, arrays | {f"{RING}{name}": array for name, array in held.items()})


def load_session(pipe: Pipeline, path: str | os.PathLike[str]) -> Session:
    """The next generation begins with what the file's ring holds. Raises FormatError, in one line that names the file.

    The ring may come from another context where it had not begun to overwrite anything.
    """
    with open_session_file(path) as file:
        said = _checked(file, pipe)
        ring = pipe.new_ring()
        held = backend_calls.ring_contents(pipe.backend, ring, said["length"])
        expected: dict[str, Any] = {TOKEN_IDS: (np.dtype(np.int32), (said["length"],))}
        if said["has_logits"]:
            expected[LOGITS] = (np.dtype(np.float32), (pipe.model.config.d_vocab,))
        if MESSAGES in file.shapes:
            expected[MESSAGES] = (np.dtype(np.uint8), (file.shapes[MESSAGES][1] or (0,))[:1])
        expected |= {f"{RING}{name}": (array.dtype, array.shape) for name, array in held.items()}
        arrays = file.read(expected)
        token_ids = arrays[TOKEN_IDS].tolist()
        if not all(0 <= token_id < pipe.model.config.d_vocab for token_id in token_ids):
            raise file.error("it holds token ids that the model has not")
        contents = {name: arrays[f"{RING}{name}"] for name in held}
        backend_calls.restore_ring(pipe.backend, ring, token_ids, said["first_held"], contents)
        messages = _messages(file, arrays)
    prompt_ids = token_ids[: said["prompt_length"]]
    pipe.idle_ring.give_back(PromptState(ring, len(prompt_ids), arrays.get(LOGITS)), prompt_ids)
    return Session(token_ids, said["prompt_length"], messages, said["left_out"])


def _checked(file: SessionFile, pipe: Pipeline) -> Mapping[str, Any]:
    """The description, once it fits this model, and the ring's layout this pipeline's."""
    said = file.session
    if said.get("fingerprint") != pipe.fingerprint:
        raise file.error(f"a session of another model ({said.get('model')}); this one is {pipe.model.name}")
    if said.get("kv_dtype") != pipe.kv_dtype:
        raise file.error(f"its ring holds {said.get('kv_dtype')}, this one {pipe.kv_dtype}: choose that kv_dtype")
    length, prompt_length = (_whole(file, key) for key in ("length", "prompt_length"))
    if not 0 <= prompt_length <= length:
        raise file.error("damaged: its lengths cannot be")
    if _whole(file, "left_out") < 0:
        raise file.error("damaged: it left out fewer messages than none")
    if not isinstance(said.get("has_logits"), bool):
        raise file.error("damaged: it does not say whether it has logits")
    layout = pipe.layout
    if layout.overflow == "stop" and length > layout.context:
        raise file.error(f"it holds {length} tokens, more than the context of {layout.context}: choose a larger one")
    _check_layout(file, said.get("layout"), layout, length)
    if not _are_first_held(said.get("first_held"), layout, length):
        raise file.error("damaged: what its ring holds cannot be")
    return said


def _whole(file: SessionFile, key: str) -> int:
    value = file.session.get(key)
    if not isinstance(value, int) or isinstance(value, bool):
        raise file.error(f"damaged: its {key} cannot be {value!r}")
    return value


def _layout_facts(layout: RingLayout) -> dict[str, Any]:
    layers = [[layer.capacity, layer.sinks, layer.slots] for layer in layout.layers]
    return {"context": layout.context, "sinks": layout.sinks, "overflow": layout.overflow, "layers": layers}


def _check_layout(file: SessionFile, said: Any, layout: RingLayout, length: int) -> None:
    """A ring that has overwritten nothing, and whose tokens see all before them, is the same in any layout."""
    mine = _layout_facts(layout)
    layers = said.get("layers") if isinstance(said, dict) else None
    if not isinstance(layers, list) or len(layers) != len(mine["layers"]):
        raise file.error("damaged: its layout cannot be")
    if said == mine:
        return
    pairs = zip(layers, mine["layers"], strict=True)
    fits = all(theirs == ours or length <= min(_smallest(theirs), _smallest(ours)) for theirs, ours in pairs)
    if not fits:
        wanted = f"context {said.get('context')}, sinks {said.get('sinks')}, overflow {said.get('overflow')}"
        raise file.error(f"its ring has slid, and fits only the same options: {wanted}")


def _smallest(layer: Any) -> int:
    """How many tokens a layer takes before any is unseen or overwritten."""
    sound = isinstance(layer, list) and len(layer) == 3 and all(map(is_whole, layer))
    return min(layer[0], layer[2]) if sound else 0


def _are_first_held(first_held: Any, layout: RingLayout, length: int) -> bool:
    if not isinstance(first_held, list) or len(first_held) != len(layout.layers) or not all(map(is_whole, first_held)):
        return False
    pairs = zip(first_held, layout.layers, strict=True)
    return all(max(0, length - (layer.slots - layer.sinks)) <= first <= length for first, layer in pairs)


def _messages(file: SessionFile, arrays: Mapping[str, np.ndarray]) -> list[dict[str, Any]] | None:
    if MESSAGES not in arrays:
        return None
    try:
        messages = json.loads(arrays[MESSAGES].tobytes())
    except (ValueError, RecursionError):
        raise file.error("damaged: its messages cannot be read") from None
    if not isinstance(messages, list) or not all(isinstance(message, dict) for message in messages):
        raise file.error("damaged: its messages are no list of messages")
    return messages
