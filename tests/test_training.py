"""The recipe of the embedded model, run on a toy corpus: what it writes must be a model that transformers can use."""

from __future__ import annotations

import importlib.util
import json
import os
import random
import subprocess
import sys
from pathlib import Path
from types import ModuleType

import numpy as np
import pytest

pytestmark = pytest.mark.reference

STEPS = 30
SHAPE = ["--d-model", "32", "--d-ff", "64", "--n-layers", "2", "--n-heads", "2", "--held-out", "1024"]


def run(script: Path, *arguments: object) -> str:
    """Standard error of a script, which has to succeed."""
    command = [sys.executable, str(script), *map(str, arguments)]
    one_thread = {**os.environ, "OMP_NUM_THREADS": "1"}  # a model this small gains nothing from more
    done = subprocess.run(command, capture_output=True, text=True, encoding="utf-8", env=one_thread)
    assert done.returncode == 0, done.stderr
    return done.stderr


def load(script: Path) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"training_{script.stem}", script)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def verses() -> list[str]:
    """Poems of five-character lines from an alphabet of sixty; every line repeats one of twenty pairs."""
    rng = random.Random(1)
    alphabet = [chr(0x4E00 + 7 * index) for index in range(60)]
    pairs = ["".join(rng.sample(alphabet, 2)) for _ in range(20)]
    return ["".join([*rng.choices(pairs, k=2), rng.choice(alphabet), "。"]) for _ in range(2000)]


@pytest.fixture(scope="module")
def prepared(verses: list[str], repository: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    for needed in ("opencc", "torch", "transformers"):
        pytest.importorskip(needed, reason=f"the recipe needs {needed}; it comes with the extra `train`")
    folder = tmp_path_factory.mktemp("training")
    poems = [{"title": "", "paragraphs": verses[start : start + 4]} for start in range(0, len(verses), 4)]
    (folder / "quantangshi").mkdir()
    (folder / "quantangshi" / "poet.tang.0.json").write_text(json.dumps(poems), encoding="utf-8")
    run(repository / "training" / "prepare.py", folder, folder / "prepared", "--d-vocab", 512)
    return folder / "prepared"


def trained(repository: Path, prepared: Path, out: Path, *options: object) -> tuple[Path, float]:
    """The finished model's folder and the loss that the script states."""
    said = run(repository / "training" / "train.py", prepared, out, "--steps", STEPS, *SHAPE, *options)
    return out, float(said.rpartition("held-out loss ")[2].split()[0])


@pytest.fixture(scope="module")
def model(repository: Path, prepared: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, float]:
    return trained(repository, prepared, tmp_path_factory.mktemp("model"))


def test_the_ids_are_the_poems(verses: list[str], prepared: Path) -> None:
    from opencc import OpenCC
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_file(str(prepared / "tokenizer.json"))
    ids = np.load(prepared / "ids.npy")
    assert ids.dtype == np.uint16
    bos, eos = (tokenizer.token_to_id(token) for token in ("<bos>", "<eos>"))
    documents = np.split(ids, np.flatnonzero(ids == eos) + 1)[:-1]
    assert all(document[0] == bos and document[-1] == eos for document in documents)
    simplify = OpenCC("t2s").convert
    expected = [simplify("\n".join(verses[start : start + 4])) for start in range(0, len(verses), 4)]
    assert sorted(tokenizer.decode(document.tolist()) for document in documents) == sorted(expected)


def test_transformers_measures_the_stated_loss(model: tuple[Path, float], prepared: Path) -> None:
    import torch
    from transformers import AutoModelForCausalLM

    path, stated = model
    loaded = AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32)
    x = torch.from_numpy(np.load(prepared / "ids.npy")[-1024:].astype(np.int64)).view(8, 128)

    def loss_of(model: torch.nn.Module) -> float:
        with torch.no_grad():
            logits = model(x).logits
        return torch.nn.functional.cross_entropy(logits[:, :-1].flatten(0, 1), x[:, 1:].flatten()).item()

    assert loss_of(loaded) == pytest.approx(stated, abs=2e-3)  # printed to three decimals; stored in F16
    assert stated < loss_of(AutoModelForCausalLM.from_config(loaded.config))


def test_the_same_steps_give_the_same_weights(
    model: tuple[Path, float], repository: Path, prepared: Path, tmp_path: Path
) -> None:
    again, _ = trained(repository, prepared, tmp_path)
    assert (again / "model.safetensors").read_bytes() == (model[0] / "model.safetensors").read_bytes()


def test_training_goes_on_from_a_checkpoint(
    model: tuple[Path, float], repository: Path, prepared: Path, tmp_path: Path
) -> None:
    path, before = model
    _, after = trained(repository, prepared, tmp_path, "--resume", path / "checkpoint")
    assert after < before


def test_the_defaults_are_the_embedded_model(repository: Path, embedded_path: Path, tmp_path: Path) -> None:
    torch = pytest.importorskip("torch", reason="the recipe needs torch; it comes with the extra `train`")
    pytest.importorskip("transformers", reason="the recipe needs transformers; it comes with the extra `train`")
    from safetensors import safe_open

    recipe = load(repository / "training" / "train.py")
    defaults = {option.name: option.default for option in recipe.main.params}
    shape = {name: defaults[name] for name in ("d_model", "d_ff", "n_layers", "n_heads", "n_kv_heads")}
    torch.manual_seed(0)
    untrained = recipe.LlamaForCausalLM(recipe.llama_config(6144, **shape))
    recipe.export(untrained, embedded_path / "tokenizer.json", tmp_path)
    assert json.loads((tmp_path / "config.json").read_text()) == json.loads((embedded_path / "config.json").read_text())
    layouts = []
    for folder in (tmp_path, embedded_path):
        with safe_open(folder / "model.safetensors", "np") as weights:
            slices = {name: weights.get_slice(name) for name in weights.keys()}  # noqa: SIM118
            layouts.append({name: (part.get_dtype(), part.get_shape()) for name, part in slices.items()})
    assert layouts[0] == layouts[1]
