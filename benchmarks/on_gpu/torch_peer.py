"""torch doing the same matrix work in bfloat16: all products of all layers, nothing else."""

from __future__ import annotations

from on_gpu.limits import Limits, seconds_of, torch_on_gpu
from on_gpu.models import Shape, config_of, product_weights
from on_gpu.report import Part, Share

WEIGHTS = 1 << 29  # bytes at least, so that no cache holds them
TOKENS = (1, 8, 64, 512, 4096)


def measure_torch(part: Part, shapes: dict[str, Shape], limits: Limits) -> None:
    torch = torch_on_gpu()
    if torch is None:
        part.say("no torch with a GPU")
        return
    table = part.table("model", "tokens", "tokens/s", "ms", "of bandwidth", "of bf16 peak")
    for name, shape in shapes.items():
        config = config_of(name, shape)
        qkv = (config.n_heads + 2 * config.n_kv_heads) * config.d_k
        sizes = [
            (qkv, config.d_model),
            (config.d_model, config.n_heads * config.d_v),
            (2 * config.d_ff, config.d_model),
            (config.d_model, config.d_ff),
        ]
        layers = max(1, min(config.n_layers, WEIGHTS // (2 * product_weights(config))))
        weights = [[torch.randn(*size, device="cuda", dtype=torch.bfloat16) for size in sizes] for _ in range(layers)]
        for n_tokens in TOKENS:
            if part.is_late():
                part.say(f"out of time: {n_tokens} tokens of {name} and what follows are left out")
                return
            inputs = [torch.randn(n_tokens, columns, device="cuda", dtype=torch.bfloat16) for _, columns in sizes]

            def work(weights: list = weights, inputs: list = inputs) -> None:
                for layer in weights:
                    for W, x in zip(layer, inputs, strict=True):
                        x @ W.T

            seconds = seconds_of(torch, work, 10) * config.n_layers / layers
            count = product_weights(config) * config.n_layers
            bandwidth = Share(2 * count / seconds / limits.bandwidth)
            peak = None if limits.peak is None else Share(2 * count * n_tokens / seconds / limits.peak)
            table.row(name, n_tokens, n_tokens / seconds, 1000 * seconds, bandwidth, peak)
        del weights
        torch.cuda.empty_cache()
