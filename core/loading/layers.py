"""What differs from layer to layer, windows and RoPE, read from either kind of configuration."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np

from ringlet.core import rope
from ringlet.core.config import LayerConfig, Rope
from ringlet.core.errors import FormatError
from ringlet.core.loading.config_reader import ConfigReader
from ringlet.core.loading.windows import WindowReader, no_windows

SCALINGS = {kind: kind for kind in ("default", "linear", "llama3", "yarn")}
GGUF_SCALINGS = {kind: kind for kind in ("none", "linear", "yarn")}  # Llama 3's comes as a tensor


@dataclass(frozen=True)
class Layers(ABC):
    """Reads what differs from layer to layer; one subclass for each source format.

    base: of the RoPE where the configuration names none; None: the model has no RoPE. local_base: the same for layers
    with a window; None: as in the others. partial: how much of a head is rotated where the configuration says nothing.
    """

    pairing: Literal["halves", "adjacent"] = "halves"
    windows: WindowReader = no_windows
    base: float | None = 10000.0
    local_base: float | None = None
    partial: float = 1.0

    def read(
        self, config: ConfigReader, sizes: Mapping[str, Any], factors: np.ndarray | None
    ) -> tuple[LayerConfig, ...]:
        """sizes: d_k, n_layers and context_length. factors: float32, what the file divides each frequency by."""
        windows = self.windows(config, sizes["n_layers"])
        if self.base is None:
            return tuple(LayerConfig(window, None) for window in windows)
        with np.errstate(all="ignore"):  # what comes of an absurd base is refused below
            everywhere, local = self.read_ropes(config, sizes, factors)
        return tuple(LayerConfig(window, everywhere if window is None else local) for window in windows)

    @abstractmethod
    def read_ropes(
        self, config: ConfigReader, sizes: Mapping[str, Any], factors: np.ndarray | None
    ) -> tuple[Rope, Rope]:
        """The RoPE of layers that see all, and of those with a window."""

    def make_rope(self, frequencies: np.ndarray, magnitude: float, config: ConfigReader) -> Rope:
        if not np.all(np.isfinite(frequencies)):
            raise FormatError(f"{config.file}: the RoPE's base and scaling give frequencies that are no numbers")
        return Rope(tuple(frequencies.tolist()), self.pairing, magnitude)


class HuggingFaceLayers(Layers):
    """From config.json: rope_theta and rope_scaling, or rope_parameters, flat or one for each type of layer."""

    def read_ropes(
        self, config: ConfigReader, sizes: Mapping[str, Any], factors: np.ndarray | None
    ) -> tuple[Rope, Rope]:
        base = config.number("rope_theta", self.base)
        local_base = config.number("rope_local_base_freq", self.local_base) if self.local_base else None
        nested = config.section("rope_parameters") if self.local_base else None
        if nested is not None:
            everywhere, local = nested.section("full_attention"), nested.section("sliding_attention")
        else:
            everywhere, local = config.section("rope_scaling") or config.section("rope_parameters"), None
        shared = self.read_rope(config, everywhere, base, sizes)
        return shared, self.read_rope(config, local, local_base, sizes) if local_base else shared

    def read_rope(
        self, config: ConfigReader, parameters: ConfigReader | None, base: float, sizes: Mapping[str, Any]
    ) -> Rope:
        """From the object that describes one RoPE, or plain where there is none."""
        given = parameters or ConfigReader({}, config.file)
        base = given.number("rope_theta", base)
        partial = given.number("partial_rotary_factor", config.number("partial_rotary_factor", self.partial))
        width = int(sizes["d_k"] * partial)
        if width % 2 or not 2 <= width <= sizes["d_k"]:
            raise FormatError(f"{config.file}: RoPE cannot rotate {width} of a head's {sizes['d_k']} parts")
        kind = given.choice("rope_type", SCALINGS, given.choice("type", SCALINGS, "default"))
        original = given.whole("original_max_position_embeddings", sizes["context_length"])
        original = config.whole("original_max_position_embeddings", original)
        frequencies, magnitude = rope.plain(width, base), 1.0
        if kind == "linear":
            frequencies = rope.linear(frequencies, given.number("factor"))
        elif kind == "llama3":
            frequencies = scaled_as_llama3(given, frequencies, original)
        elif kind == "yarn":
            frequencies, magnitude = scaled_as_yarn(given, width, base, original)
        return self.make_rope(frequencies, magnitude, config)


def scaled_as_llama3(given: ConfigReader, frequencies: np.ndarray, original: int) -> np.ndarray:
    low, high = given.number("low_freq_factor"), given.number("high_freq_factor")
    if low >= high:
        given.refuse("high_freq_factor", f"more than low_freq_factor ({low}) is needed")
    return rope.llama3(frequencies, given.number("factor"), low, high, original)


def scaled_as_yarn(given: ConfigReader, width: int, base: float, original: int) -> tuple[np.ndarray, float]:
    """Frequencies, and what multiplies cos and sin."""
    factor, truncate = given.number("factor"), given.flag("truncate", True)
    fast, slow = given.number("beta_fast", 32.0), given.number("beta_slow", 1.0)
    frequencies = yarn_frequencies(given, width, base, factor, original, fast, slow, truncate)
    weight, all_weight = given.number("mscale", None), given.number("mscale_all_dim", None)
    magnitude = rope.yarn_magnitude(factor)
    if weight and all_weight:
        magnitude = rope.yarn_magnitude(factor, weight) / rope.yarn_magnitude(factor, all_weight)
    return frequencies, given.number("attention_factor", magnitude)


class GgufLayers(Layers):
    """From GGUF metadata; Llama 3's scaling comes as a tensor of factors."""

    def read_ropes(
        self, config: ConfigReader, sizes: Mapping[str, Any], factors: np.ndarray | None
    ) -> tuple[Rope, Rope]:
        base = config.number("rope.freq_base", self.base)
        width = config.whole("rope.dimension_count", int(sizes["d_k"] * self.partial))
        if width % 2 or width > sizes["d_k"]:
            config.refuse("rope.dimension_count", f"an even number up to d_k ({sizes['d_k']}) is needed")
        if factors is not None and (factors.shape != (width // 2,) or not np.all(factors > 0)):
            raise FormatError(f"{config.file}: rope_freqs.weight needs {width // 2} positive numbers")
        divisors = 1.0 if factors is None else factors.astype(np.float64)
        kind = config.choice("rope.scaling.type", GGUF_SCALINGS, "linear")
        factor = config.number("rope.scaling.factor", 1.0)
        original = config.whole("rope.scaling.original_context_length", sizes["context_length"])
        frequencies, magnitude = rope.plain(width, base), config.number("rope.scaling.attn_factor", 1.0)
        if kind == "linear":
            frequencies = rope.linear(frequencies, factor)
        elif kind == "yarn":
            fast = config.number("rope.scaling.yarn_beta_fast", 32.0)
            slow = config.number("rope.scaling.yarn_beta_slow", 1.0)
            frequencies = yarn_frequencies(config, width, base, factor, original, fast, slow, True)
            magnitude *= rope.yarn_magnitude(factor)
        shared = self.make_rope(frequencies / divisors, magnitude, config)
        if self.local_base is None:
            return shared, shared
        local_base = config.number("rope.freq_base_swa", self.local_base)
        return shared, self.make_rope(rope.plain(width, local_base) / divisors, 1.0, config)


def yarn_frequencies(
    config: ConfigReader, width: int, base: float, factor: float, original: int, fast: float, slow: float, whole: bool
) -> np.ndarray:
    if base <= 1 or fast <= slow:
        raise FormatError(f"{config.file}: YaRN needs a base above 1 and beta_fast above beta_slow")
    return rope.yarn(width, base, factor, original, fast, slow, whole)
