"""The comparison with other programs: Ringlet's part of it, and what becomes of the figures."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from compare import main as script
from comparison.alone import peak_bytes
from comparison.charts import write_charts
from comparison.engine import Engine
from comparison.machine import machine_facts
from comparison.processes import run_process
from comparison.report import Report, as_data, as_markdown, put_into_page
from comparison.ringlet_engine import RingletEngine
from comparison.rounds import Comparison, compare

from ringlet.core.errors import RingletError
from ringlet.core.measurement.benchmark import Settings, SpeedTest

ON, OFF, TORCH = "llama.cpp, flash attention on", "llama.cpp, flash attention off", "transformers, float32"


class Noted(Engine):
    """An engine that notes what it is asked to do."""

    def __init__(self, name: str, notes: list[tuple]) -> None:
        self.name, self._notes = name, notes

    def load(self, model: Path, threads: int, context: int) -> None:
        self._notes.append((self.name, "load", context))

    def hold(self, history, batch: int) -> None:
        self._notes.append((self.name, "hold", len(history), batch))

    def prefill(self, ids) -> None:
        self._notes.append((self.name, "prefill", tuple(ids)))

    def decode(self, ids) -> None:
        self._notes.append((self.name, "decode", tuple(ids)))


def measured(kind: str, depth: int, batch: int = 1, **shares: list[float]) -> Comparison:
    """As if each engine had run three times."""
    speeds = {"Ringlet": [10.0, 20.0, 60.0], ON: [5.0, 4.0, 6.0], OFF: [2.0, 9.0, 3.0], TORCH: [1.0, 1.0, 1.0]}
    return Comparison(SpeedTest(kind, 8, depth, batch), speeds, **shares)


def report_of(*comparisons: Comparison, **more: object) -> Report:
    return Report("tiny.Q4_1", 3, {"CPU": "some | CPU"}, comparisons, **more)


# --- engines take turns ----------------------------------------------------------------------------------------------


def test_engines_take_turns_and_get_the_same_ids() -> None:
    notes: list[tuple] = []
    settings = Settings(prompt=3, generate=2, depths=(0, 4), batches=(2,), repeat=1)
    found = compare([Noted("a", notes), Noted("b", notes)], settings, d_vocab=50)
    assert [(c.test.name, c.test.depth, c.test.batch) for c in found] == [
        ("pp3", 0, 2), ("tg2", 0, 2), ("pp3", 4, 2), ("tg2", 4, 2),
    ]  # fmt: skip
    assert [(name, what) for name, what, *_ in notes] == [
        (name, what)
        for _ in range(2)
        for compute in ("prefill", "decode", "prefill", "decode")
        for name in "ab"
        for what in ("hold", compute)
    ]
    of_a, of_b = ([rest for name, *rest in notes if name == which] for which in "ab")
    assert of_a == of_b
    assert [rest for what, *rest in of_a if what == "hold"] == [[0, 2], [0, 2], [4, 2], [4, 2]] * 2
    assert {len(ids) for what, ids, *_ in of_a if what == "prefill"} == {3}
    assert all(len(c.speeds[name]) == 1 for c in found for name in "ab")
    assert all(c.shares == [] for c in found)


def test_ringlet_as_an_engine(embedded_path: Path) -> None:
    """What it computes is what the pipeline computes for the same ids, in every sequence, again and again."""
    engine = RingletEngine(backend="numpy")
    engine.load(embedded_path, 1, context=32)
    history, ids = [5, 6, 7, 8], [9, 10, 11]
    expected = engine.pipe.logits(history + ids)
    outputs: list[np.ndarray] = []
    forward = engine.pipe.backend.forward

    def noted(batch):
        outputs.append(forward(batch))
        return outputs[-1]

    engine.pipe.backend.forward = noted
    for _ in range(2):
        for batch in (1, 3):
            engine.hold(history, batch)
            outputs.clear()
            engine.decode(ids)
            for sequence in range(batch):
                rows = [logits[sequence] for logits in outputs]
                np.testing.assert_allclose(rows, expected[4:], rtol=1e-4, atol=1e-3)
            engine.hold(history, batch)
            outputs.clear()
            engine.prefill(ids)
            np.testing.assert_allclose(outputs[-1], [expected[-1]] * batch, rtol=1e-4, atol=1e-3)
    engine.hold([], 1)
    outputs.clear()
    engine.prefill(history)
    np.testing.assert_allclose(outputs[-1], expected[3:4], rtol=1e-4, atol=1e-3)


def test_shares_are_ringlet_s(embedded_path: Path) -> None:
    engine, notes = RingletEngine(backend="numpy"), []
    engine.load(embedded_path, 1, context=8)
    settings = Settings(prompt=4, generate=0, repeat=2)
    (found,) = compare([engine, Noted(ON, notes)], settings, engine.pipe.model.config.d_vocab)
    assert len(found.shares) == 2
    assert all(0 < share < float("inf") for share in found.shares)


# --- figures ---------------------------------------------------------------------------------------------------------


def test_medians_ratios_and_the_best_of_llama_cpp() -> None:
    found = measured("tg", 0)
    assert found.speed("Ringlet") == 20
    assert found.best("llama.cpp") == ON  # 5 against 3, though OFF was faster once
    assert found.ratio("llama.cpp") == 5  # of 2, 5 and 10
    assert found.ratio(TORCH) == 20
    assert found.ratio("vLLM") is None
    assert found.spread(ON) == 1


def test_data() -> None:
    data = json.loads(json.dumps(as_data(report_of(measured("pp", 7, 2, shares=[0.5, 0.7]), starts={"Ringlet": 0.5}))))
    (test,) = data["tests"]
    assert (test["test"], test["depth"], test["batch"], test["share_of_limit"]) == ("pp8", 7, 2, 0.6)
    assert test["tokens_per_second"] == {"Ringlet": 20, ON: 5, OFF: 3, TORCH: 1}
    assert test["ratio"] == {"llama.cpp": 5, TORCH: 20}
    assert data["seconds_to_first_token"] == {"Ringlet": 0.5}


def test_markdown() -> None:
    report = report_of(
        measured("pp", 0), measured("tg", 64, 8, shares=[0.845]), starts={"Ringlet": 0.5}, peaks={"Ringlet": 3 << 20}
    )
    text = as_markdown(report, ["charts/a b.svg"])
    rows = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("|")]
    assert rows[0] == [
        "test", "depth", "batch", "Ringlet", ON, OFF, TORCH, "share of limit", "over llama.cpp", f"over {TORCH}",
    ]  # fmt: skip
    assert rows[2] == ["`pp8`", "0", "1", "20.0", "5.0", "3.0", "1.0", "–", "5.00×", "20.00×"]
    assert rows[3][:3] + rows[3][7:8] == ["`tg8`", "64", "8", "84%"]
    assert ["Ringlet", "0.50"] in rows
    assert ["Ringlet", "3.0 MiB"] in rows
    assert ["CPU", "some / CPU"] in rows
    assert "![a b](charts/a b.svg)" in text


def test_only_its_own_place_in_a_page_is_replaced(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    put_into_page(page, "one", "first")
    assert page.read_text() == "<!-- compare one -->\n\nfirst\n\n<!-- /compare -->\n"
    others = "\n<!-- compare two -->\n\nstays\n\n<!-- /compare -->\nend\n"
    page.write_text("# Title\n" + page.read_text() + others)
    put_into_page(page, "one", r"second \1")
    assert page.read_text() == "# Title\n<!-- compare one -->\n\nsecond \\1\n\n<!-- /compare -->\n" + others
    with pytest.raises(RingletError, match="has no place for this: put the lines <!-- compare three -->"):
        put_into_page(page, "three", "x")


# --- charts ----------------------------------------------------------------------------------------------------------


def test_charts_are_written_where_there_are_depths(tmp_path: Path) -> None:
    report = report_of(measured("pp", 0), measured("tg", 0), measured("tg", 64), measured("tg", 64, 8))
    (path,) = write_charts(report, tmp_path / "new")
    assert path.name == "tiny.Q4_1-generation-1.svg"
    assert path.read_text(encoding="utf-8").count("<circle") == 2 * 4


# --- processes and the machine ---------------------------------------------------------------------------------------


def test_the_machine() -> None:
    facts = machine_facts(2)
    assert "2 threads used" in facts["CPU"]
    assert facts["numpy"] == np.__version__
    assert all(facts.values())


def test_processes() -> None:
    seconds, printed = run_process(["-c", "import time; time.sleep(0.2); print(7)"])
    assert 0.2 < seconds < 20
    assert printed.split() == ["7"]
    with pytest.raises(RuntimeError, match=r"exit code 1: ValueError: no$"):
        run_process(["-c", "raise ValueError('no')"])


def test_peak_memory_is_the_process_s_own(repository: Path) -> None:
    held = np.ones(1 << 25)  # 256 MiB, of which a child's figure shows nothing
    code = (
        f"import sys; sys.path.insert(0, {str(repository / 'benchmarks')!r}); from comparison.alone import peak_bytes;"
    )
    small, large = (
        int(run_process(["-c", f"{code} kept = bytearray({n}); kept[::1024] = kept[::1024]; print(peak_bytes())"])[1])
        for n in (1 << 10, 1 << 27)
    )
    assert large - small == pytest.approx(1 << 27, rel=0.2)
    assert small < held.nbytes < peak_bytes()


# --- the script ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["gone.gguf"], r"gone\.gguf"),
        (["README.md", "--depth", "x"], "--depth is 'x'"),
        (["README.md", "--prompt", "0", "--generate", "0"], "nothing is left to measure"),
        (["README.md", "--no-transformers"], "README.md"),
    ],
)
def test_what_the_script_refuses(arguments: list[str], message: str, repository: Path) -> None:
    command = [sys.executable, "benchmarks/compare.py", *arguments]
    done = subprocess.run(command, cwd=repository, capture_output=True, text=True, timeout=120)
    assert done.returncode == 2, done.stderr
    assert re.search(message, done.stderr)
    assert "Traceback" not in done.stderr


def test_the_page_has_every_option_of_the_script(repository: Path) -> None:
    options = {option for parameter in script.params for option in parameter.opts if option.startswith("--")}
    page = (repository / "docs" / "performance.md").read_text(encoding="utf-8")
    first_cells = [line.split("|")[1] for line in page.splitlines() if line.startswith("| `--")]
    assert {option for cell in first_cells for option in re.findall(r"`(--[a-z-]+)", cell)} == options


@pytest.mark.reference
@pytest.mark.real_model
def test_llama_cpp_and_transformers_hold_what_they_are_given(smollm2_path: Path) -> None:
    """Held again from a saved state or cache, they compute the same as at first; a batch computes it for each."""
    pytest.importorskip("llama_cpp")
    from comparison.llama_engine import LlamaCpp
    from comparison.transformers_engine import Transformers

    engine = LlamaCpp(flash_attention=False)
    engine.load(smollm2_path, 2, context=64)
    last = []
    for batch in (1, 1, 2):
        engine.hold(list(range(40, 60)), batch)
        engine.decode([70, 71])
        row = engine._lib.llama_get_logits_ith(engine._context(), batch - 1)
        last.append(np.ctypeslib.as_array(row, (1000,)).copy())
    np.testing.assert_array_equal(last[1], last[0])
    np.testing.assert_allclose(last[2], last[0], atol=0.3)
    torch_engine = Transformers()
    torch_engine.load(smollm2_path, 2, context=64)
    for batch in (1, 2, 2):
        torch_engine.hold(list(range(40, 60)), batch)
        torch_engine.prefill([70, 71, 72])
        assert torch_engine._cache.get_seq_length() == 23
