"""What objects say of themselves in a notebook: one short line, whatever they hold, and nothing is computed for it."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from tiny_pipeline import EOS, random_pipeline, told_pipeline

from ringlet import Chunk, Completion, Matrix, Pipeline, SamplerChain, Tokenizer
from ringlet.core.completion import Usage
from ringlet.core.model import Model
from ringlet.core.session import Session
from ringlet.plugins.samplers import TopK

LONG = "爱\n\x1b[31m" * 5000


def test_what_they_say(tmp_path):
    pipe = told_pipeline("hello", " world")
    sizes = "random, n_layers 2, d_model 32, d_vocab 262"
    assert repr(pipe) == f"<Pipeline tiny: {sizes}; told, context 256, overflow stop, f32 rings>"
    assert repr(pipe.tokenizer) == f"<Tokenizer of 259 tokens: bos_id None, eos_ids [{EOS}]>"
    completion = pipe.generate("hello", sampler="greedy")
    assert repr(completion) == "<Completion ' world', 7 tokens, stop>"
    chunks = [repr(chunk) for chunk in pipe.stream("hello", sampler="greedy", max_tokens=2)]
    assert chunks == ["<Chunk ' ', token_ids [32]>", "<Chunk 'w', token_ids [119], length>"]
    random = random_pipeline()
    trace = random.trace("hello", max_tokens=1)
    assert repr(trace).startswith("<Trace of tiny: 'hello")
    assert repr(trace).endswith("', 6 tokens, 5 of the prompt, 2 layers>")
    assert repr(trace.steps) == "(<StepTrace of tokens 0 to 4, 2 layers>, <StepTrace of tokens 5 to 5, 2 layers>)"
    assert repr(trace.steps[0].layers[0]) == "<LayerTrace of 5 tokens, S (4, 5, 5)>"
    random.generate("hello", max_tokens=1)
    random.save_session(tmp_path / "a.session")
    assert repr(random.load_session(tmp_path / "a.session")) == "<Session of 5 tokens, 5 of the prompt>"


@pytest.mark.parametrize(
    ("spec", "text"),
    [
        ("top_k=40,temperature=0.8", "top_k(k=40),temperature(temperature=0.8)"),
        ("greedy", "greedy"),
        ("", ""),
        (["dry(breakers=',|(')", TopK(3), lambda logits, context: logits], 'dry(breakers=",|("),top_k(…),<lambda>(…)'),
    ],
)
def test_a_chain_says_its_samplers(spec, text):
    assert repr(SamplerChain(spec)) == f"<SamplerChain {text}>"
    if isinstance(spec, str):
        assert repr(SamplerChain(text)) == f"<SamplerChain {text}>"


def test_the_embedded_model():
    pipe = Pipeline.from_pretrained(backend="numpy")
    assert repr(pipe.tokenizer) == repr(Tokenizer.from_pretrained())
    assert pipe.model.config.sizes in repr(pipe.model)
    assert repr(pipe.model).endswith(f" {pipe.model.weights.nbytes / 1e6:.1f} MB>")


def test_each_is_one_short_line_whatever_it_holds():
    pipe = random_pipeline(context=512)
    model = Model(pipe.model.config, pipe.model.weights, pipe.tokenizer, LONG[:90], Path())
    usage = Usage.of(1, 5000)
    held = [
        model,
        model.weights,
        Pipeline(model, pipe.backend, pipe.layout, "f16", pipe.plugins),
        Completion(LONG, [7] * 5000, "stop", usage),
        Chunk(LONG, [7] * 5000, "length", usage),
        Session([1] * 5000, 9, [{"role": "user", "content": LONG}]),
        pipe.trace("hello " * 60),
        Matrix.from_float(np.zeros((300, 300), np.float32)),
    ]
    for each in held:
        assert repr(each).isprintable(), repr(each)
        assert len(repr(each)) <= 250, repr(each)
