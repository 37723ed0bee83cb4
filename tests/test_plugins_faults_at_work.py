"""The matrix: what fails at work, in each kind of plugin.

A plugin that the user names (with --plugin, or by using what it brings) ends the command with exit code 2 and one line;
one that is only found is reported, if it cannot be loaded, and the command goes on as if it were not there.
"""

from __future__ import annotations

import json

import pytest
from plugin_texts import architecture, assert_ends, backend, run, sampler
from whole_models import write_whole_directory

GENERATE = ["generate", "the king", "--max-tokens", "3", "--ignore-eos", "--seed", "1", "--json"]
NUMPY = ["--backend", "numpy"]


SAMPLERS = {
    "exception": ("raise ValueError('two\\nlines')", "__call__: ValueError: two lines"),
    "exit": ("raise SystemExit(3)", "__call__: SystemExit: 3"),
    "generator exit": ("raise GeneratorExit", "__call__: GeneratorExit"),
    "own kind": ("raise type('Own', (BaseException,), {})('mine')", "__call__: Own: mine"),
    "recursion": ("return self(logits, context)", "__call__: RecursionError: maximum recursion depth"),
    "memory": ("return np.zeros(1 << 50)", "__call__: MemoryError: Unable to allocate"),
    "shape": ("return logits[:-1]", "__call__: returned the shape (127,), not (128,)"),
    "two dimensions": ("return logits[None]", "__call__: returned the shape (1, 128), not (128,)"),
    "dtype": ("return logits.astype(int)", "__call__: returned int64, not float32"),
    "complex": ("return logits.astype(complex)", "__call__: returned complex128, not float32"),
    "objects": ("return logits.astype(object)", "__call__: returned object, not float32"),
    "nothing": ("logits -= 1", "__call__: returned NoneType, not an array of logits"),
    "list": ("return logits.tolist()", "__call__: returned list, not an array of logits"),
    "masked": ("return np.ma.masked_less(logits, 0)", "__call__: returned a masked array"),
    "NaN": ("logits[3] = np.nan; return logits", "__call__: returned NaN"),
    "infinity": ("return np.where(logits > 0, np.inf, logits)", "__call__: returned +inf"),
    "all removed": ("return np.full_like(logits, -np.inf)", "__call__: removed every token"),
    "the text changed": ("context.token_ids[0] = 5; return logits", "__call__: ValueError: assignment destination is"),
    "the context changed": ("context.step = 5; return logits", "__call__: FrozenInstanceError: cannot assign"),
    "returns the text": ("return context.token_ids", "__call__: returned the shape (3,), not (128,)"),
    "constructor": (("return logits", "def __init__(self): 1 / 0"), "constructor: ZeroDivisionError"),
    "picker: no id": (("", "def pick(self, logits, context): return 1.5"), "pick: returned float, not a token id"),
    "picker: outside": (("", "def pick(self, logits, context): return 128"), "pick: returned 128, which is outside"),
    "picker: removed": (
        ("", "def pick(self, logits, context): return int(logits.argmin())"),
        "pick: returned 0, a token that was removed before",
    ),
}
BACKENDS = {
    "exception": ("raise ValueError('two\\nlines')", "forward: ValueError: two lines"),
    "exit": ("raise SystemExit(3)", "forward: SystemExit: 3"),
    "recursion": ("return self.forward(batch)", "forward: RecursionError"),
    "shape": ("return logits[:, :-1]", "forward: returned float32 (1, 127), not float32 (1, 128)"),
    "one row more": ("return np.repeat(logits, 2, axis=0)", "forward: returned float32 (2, 128), not float32 (1, 128)"),
    "dtype": ("return logits.astype(np.float64)", "forward: returned float64 (1, 128), not float32 (1, 128)"),
    "nothing": ("return None", "forward: returned NoneType, not float32 (1, 128)"),
    "NaN": ("logits[0, 3] = np.nan; return logits", "forward: returned NaN"),
    "infinity": ("return logits + np.float32(np.inf)", "forward: returned +inf"),
    "the batch changed": ("batch.token_ids[0] = 5; return logits", "forward: ValueError: assignment destination is"),
    "commits": ("batch.commit(); return logits", "forward: changed which tokens a ring holds"),
    "constructor": (("return logits", "def __init__(self, *_): 1 / 0"), "constructor: ZeroDivisionError"),
    "no memory": (
        ("return logits", "def new_memory(self, layout, kv_dtype): return {}"),
        "new_memory: returned dict, not a RingMemory",
    ),
}
ARCHITECTURES = {
    "windows raise": (
        "hf = replace(hf, layers=replace(hf.layers, windows=lambda config, n: 1 / 0))",
        "architecture bad ({path}): tables: ZeroDivisionError: division by zero, while",
    ),
    "windows exit": (
        "hf = replace(hf, layers=replace(hf.layers, windows=lambda config, n: exit()))",
        "architecture bad ({path}): tables: SystemExit",
    ),
    "windows no whole numbers": (
        "hf = replace(hf, layers=replace(hf.layers, windows=lambda config, n: [2.5] * n))",
        "layer 0: window 2.5 is not a positive whole number (architecture bad of {path})",
    ),
    "windows too few": (
        "hf = replace(hf, layers=replace(hf.layers, windows=lambda config, n: [None]))",
        "n_layers is 2, but 1 layers are described (architecture bad of {path})",
    ),
    "a key's number": (
        'hf = replace(hf, keys={**hf.keys, "norm_epsilon": Key("rms_norm_eps", lambda value: "x")})',
        "architecture bad ({path}): tables: TypeError",
    ),
    "a default": (
        'hf = replace(hf, defaults={**hf.defaults, "embedding_scale": lambda known: known["x"]})',
        "architecture bad ({path}): tables: KeyError: 'x'",
    ),
    "an unknown activation": (
        'hf = replace(hf, keys={**hf.keys, "activation": "a_key_that_is_not_there"}, '
        'defaults={**hf.defaults, "activation": "mish"}, harmless_keys=("hidden_act",))',
        "activation is 'mish': choose from silu, gelu, gelu_tanh, relu (architecture bad of {path})",
    ),
    "a tensor that is not there": (
        'hf = replace(hf, weights={**hf.weights, "W_o": "layers.{layer}.o.weight"})',
        "the tensor layers.0.o.weight is missing (architecture bad of {path})",
    ),
    "a tensor of another shape": (
        'hf = replace(hf, weights={**hf.weights, "W_k": hf.weights["W_q"], "W_q": hf.weights["W_k"]})',
        "self_attn.k_proj.weight has the shape [32, 64], the configuration needs [64, 64] (architecture bad of {path})",
    ),
    "a shape the other way round": (
        'hf = replace(hf, transposed="W_up")',
        "the configuration needs [64, 72] (architecture bad of {path})",
    ),
    "a recipe without its weights": (
        'recipe = {**Llama.recipe, "qk_norm": True}',
        "bad has no tensor for q_norm in this format (architecture bad of {path})",
    ),
    "sizes that do not agree": (
        'hf = replace(hf, keys={**hf.keys, "n_heads": Key("num_attention_heads", lambda heads: 3)})',
        "(architecture bad of {path})",
    ),
}
KINDS = {"sampler": SAMPLERS, "backend": BACKENDS, "architecture": ARCHITECTURES}
CASES = [(kind, case) for kind, cases in KINDS.items() for case in cases]


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch):
    for variable in ("RINGLET_PLUGINS", "RINGLET_DEBUG"):
        monkeypatch.delenv(variable, raising=False)


@pytest.fixture
def write(tmp_path):
    def write(text: str, name: str = "bad.py") -> str:
        (tmp_path / name).write_text(text, encoding="utf-8")
        return str(tmp_path / name)

    return write


@pytest.fixture(scope="module")
def tiny(tmp_path_factory) -> str:
    """A tiny Llama's directory."""
    return str(write_whole_directory(tmp_path_factory.mktemp("tiny")))


@pytest.fixture(scope="module")
def liar(tmp_path_factory) -> str:
    """The same, but its configuration says model_type "bad"."""
    folder = write_whole_directory(tmp_path_factory.mktemp("liar"))
    config = json.loads((folder / "config.json").read_text())
    (folder / "config.json").write_text(json.dumps(config | {"model_type": "bad"}))
    return str(folder)


def written(kind: str, case: str, write) -> tuple[str, str]:
    """The plugin's file, and the line that has to come."""
    body, message = KINDS[kind][case]
    body, line = body if isinstance(body, tuple) else (body, "")
    if kind == "architecture":
        path = write(architecture(body))
        return path, message.replace("{path}", path)
    path = write(sampler(body or "return logits", line=line) if kind == "sampler" else backend(body, line))
    return path, f"{kind} bad ({path}): {message}"


@pytest.fixture
def using(tiny, liar):
    def using(kind: str) -> list[str]:
        """A command that uses what the plugin brings."""
        return {
            "sampler": [*GENERATE, *NUMPY, "--model", tiny, "--sampler", "top_k=5,bad"],
            "backend": [*GENERATE, "--model", tiny, "--backend", "bad"],
            "architecture": [*GENERATE, *NUMPY, "--model", liar],
        }[kind]

    return using


@pytest.mark.parametrize(("kind", "case"), CASES)
def test_what_fails_at_work_ends_the_command_that_uses_it(kind, case, write, using, monkeypatch):
    """Whether the user named the plugin too, or it was only found."""
    path, message = written(kind, case, write)
    assert_ends(run(*using(kind), "--plugin", path, monkeypatch=monkeypatch), message)
    assert_ends(run(*using(kind), monkeypatch=monkeypatch, RINGLET_PLUGINS=path), message)


@pytest.mark.parametrize("kind", KINDS)
def test_an_interrupt_is_taken_for_the_user_s(kind, write, using, monkeypatch):
    """Nobody can tell them apart: the command ends as after Ctrl-C."""
    text = {
        "sampler": sampler("raise KeyboardInterrupt"),
        "backend": backend("raise KeyboardInterrupt"),
        "architecture": architecture(
            "def raising(config, n): raise KeyboardInterrupt\n    "
            "hf = replace(hf, layers=replace(hf.layers, windows=raising))"
        ),
    }[kind]
    result = run(*using(kind), "--plugin", write(text), monkeypatch=monkeypatch)
    assert (result.exit_code, result.stdout, result.stderr) == (130, "", "")


def test_what_a_plugin_says_to_the_user_is_no_fault(write, using, monkeypatch):
    """RingletError is the way to refuse something."""
    path = write(sampler("raise RingletError('this needs a full moon')"))
    result = run(*using("sampler"), "--plugin", path, monkeypatch=monkeypatch)
    assert_ends(result, f"sampler bad ({path}): this needs a full moon")
