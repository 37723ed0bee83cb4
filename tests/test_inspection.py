"""What `inspect` tells."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
from tiny_models import FOLDER, architectures

from ringlet.core.formats.gguf import open_gguf
from ringlet.core.host_memory import HostMemory
from ringlet.core.loading.model_files import load_directory, load_gguf
from ringlet.core.measurement.inspection import describe_weights, inspect_model
from ringlet.core.model import load_model
from ringlet.core.ring_cache import RingLayout
from ringlet.core.terminal.inspection_text import inspection_lines


def test_the_embedded_model(embedded_path: Path) -> None:
    model = load_model(None, architectures())
    layout = RingLayout.of(model.config, 512, sinks=4, overflow="slide", chunk=256)
    told = json.loads(json.dumps(inspect_model(model, layout)))
    assert (told["architecture"], told["d_model"], told["d_k"], told["n_tokens"]) == ("llama", 192, 64, 6144)
    assert told["tied"]
    assert told["weights"]["W_q"] == {
        "shape": [192, 192],
        "count": 4,
        "formats": {"F16": 4},
        "bytes": 4 * 192 * 192 * 2,
    }
    assert told["weights"]["W_k"]["shape"] == [192, 64]
    assert told["weights"]["W_t"]["shape"] == [192, 6144]
    # All but the nine norms of 192 numbers, and the header, are matrices of 2 bytes a weight.
    header = 8 + int.from_bytes((embedded_path / "model.safetensors").read_bytes()[:8], "little")
    matrices = (embedded_path / "model.safetensors").stat().st_size - header - 9 * 192 * 2
    assert told["weight_bytes"] == matrices == 2 * told["n_weights"]
    assert told["bits_per_weight"] == 16
    assert (told["bos"], told["eos"]) == ({"id": 1, "piece": "<bos>"}, [{"id": 2, "piece": "<eos>"}])
    assert told["chat_templates"] == []
    for dtype, nbytes in told["ring"]["bytes"].items():
        memory = HostMemory(model.config, layout, dtype)
        assert nbytes == sum(-(-array.nbytes // 64) * 64 for array in memory.arrays)


@pytest.mark.parametrize(
    ("names", "shown"), [([], "none"), (["default"], "yes"), (["default", "a\x1b[2J"], "default, a\\x1b[2J")]
)
def test_chat_templates_for_people(names: list[str], shown: str) -> None:
    model = load_model(None, architectures())
    found = inspect_model(model, RingLayout.of(model.config, 512, sinks=0, overflow="stop", chunk=256))
    lines = inspection_lines(found | {"chat_templates": names, "bos": None})
    facts = dict(re.split(r"\s{2,}", line, maxsplit=1) for line in lines[: lines.index("")])
    assert facts["chat template"] == shown
    assert facts["begins a text"] == "none"
    assert facts["end a text"] == "<eos> (2)"
    assert facts["weights"].endswith(" MiB, 16.00 bits each")


def test_gpt2s_weights_apart() -> None:
    """Shapes as the theory writes them, (inputs, outputs), though one file holds q, k and v fused and transposed."""
    of_hf = describe_weights(load_directory(FOLDER / "gpt2", architectures())[1])
    of_gguf = describe_weights(load_gguf(open_gguf(FOLDER / "gpt2" / "model.gguf"), architectures())[1])
    assert of_hf == of_gguf
    assert {name: of_hf[name]["shape"] for name in ("embedding", "W_q", "W_up", "W_down", "W_t", "positions")} == {
        "embedding": [96, 36],
        "W_q": [36, 36],
        "W_up": [36, 144],
        "W_down": [144, 36],
        "W_t": [36, 96],
        "positions": [64, 36],
    }
