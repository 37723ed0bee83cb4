"""Logits of the cuda backend beside those of the cpu backend, both against the reference in float32."""

from __future__ import annotations

import numpy as np
from on_gpu.models import Shape, synthetic
from on_gpu.report import Part

from ringlet.core.backend import Backend
from ringlet.core.ring_cache import RingLayout
from ringlet.core.step import run_step
from ringlet.plugins.backends.cpu.backend import CpuBackend
from ringlet.plugins.backends.cuda.backend import CudaBackend
from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.numpy import NumpyBackend

TOKENS = 40  # of a text; more than a step of integer products takes
MOST_KL = 1.5  # times the cpu backend's, and a little: what counts as the same


def check_logits(part: Part, device: Device, shapes: dict[str, Shape], tiny: bool) -> None:
    """A row a model and size of steps: mean KL from the reference, and how often the likeliest agree."""
    table = part.table("model", "steps of", "KL cuda", "KL cpu", "same likeliest, cuda", "same likeliest, cpu")
    for name, shape in shapes.items():
        if part.is_late():
            part.say(f"out of time: {name} is left out")
            continue
        model = synthetic(name, shape)
        ids = np.random.default_rng(1).integers(0, shape.d_vocab, 11 if tiny else TOKENS).tolist()
        reference = logits_of(NumpyBackend(*model), ids, len(ids))
        for size in (1, len(ids)):
            found = [logits_of(made, ids, size) for made in (CudaBackend(*model, device=device), CpuBackend(*model))]
            kl = [mean_kl(reference, logits) for logits in found]
            same = [float((logits.argmax(-1) == reference.argmax(-1)).mean()) for logits in found]
            table.row(name, size, *kl, *same)
            if not kl[0] <= MOST_KL * kl[1] + 1e-5:
                part.wrong(f"logits of {name} in steps of {size}: KL {kl[0]:.3g}, on the cpu {kl[1]:.3g}")


def logits_of(backend: Backend, ids: list[int], size: int) -> np.ndarray:
    ring = backend.new_ring(RingLayout.of(backend.config, len(ids), chunk=len(ids)), "f16")
    parts = [ids[at : at + size] for at in range(0, len(ids), size)]
    return np.concatenate([run_step(backend, [(ring, part, "all")]) for part in parts])


def mean_kl(reference: np.ndarray, logits: np.ndarray) -> float:
    """Σ p·(ln p - ln q) in nats, mean over the rows."""
    p, q = (log_softmax(values.astype(float)) for values in (reference, logits))
    return float((np.exp(p) * (p - q)).sum(-1).mean())


def log_softmax(logits: np.ndarray) -> np.ndarray:
    shifted = logits - logits.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
