"""Which layers have a sliding window of their own, and of how many tokens: the ways in which configurations say it."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from ringlet.core.errors import quoted
from ringlet.core.loading.config_reader import ConfigReader

Windows = list[int | None]
WindowReader = Callable[[ConfigReader, int], Windows]  # of a configuration and n_layers
LAYER_TYPES = {"full_attention": False, "sliding_attention": True}


def no_windows(config: ConfigReader, n_layers: int) -> Windows:
    return [None] * n_layers


def window_everywhere(key: str, default: int | None = None) -> WindowReader:
    """Every layer has the window that stands under the key, if one does (Mistral)."""

    def read(config: ConfigReader, n_layers: int) -> Windows:
        return [config.whole(key, None if config.is_null(key) else default)] * n_layers

    return read


def window_in_late_layers(config: ConfigReader, n_layers: int) -> Windows:
    """Where use_sliding_window is on: the layers that layer_types names, else those from max_window_layers on (Qwen).

    The window of these layers is sliding_window.
    """
    on = config.flag("use_sliding_window", False)
    window = config.whole("sliding_window", None if config.is_null("sliding_window") else 4096)
    first = config.value("max_window_layers", 28)
    if not isinstance(first, int) or isinstance(first, bool) or first < 0:
        config.refuse("max_window_layers", "a whole number from 0 is needed")
    local = layer_types(config, n_layers, [index >= first for index in range(n_layers)] if on else [False] * n_layers)
    if any(local) and not on:
        config.refuse("layer_types", "sliding_attention needs use_sliding_window true")
    return [window if is_local else None for is_local in local]


def window_but_every_nth(key: str, pattern_key: str, default: int | None, n: int) -> WindowReader:
    """The window that stands under the key, but every n-th layer sees all (Gemma 3).

    The pattern's key may give another n. Or layer_types, or flags under the pattern's key, name the layers.
    """

    def read(config: ConfigReader, n_layers: int) -> Windows:
        window = config.whole(key, default)
        pattern = config.value(pattern_key, n)
        if isinstance(pattern, (list, tuple, np.ndarray)):
            if len(pattern) != n_layers or not all(isinstance(item, (bool, np.bool_)) for item in pattern):
                config.refuse(pattern_key, f"true or false for each of {n_layers} layers is needed")
            local = [bool(item) for item in pattern]
        else:
            period = config.whole(pattern_key, n)
            local = layer_types(config, n_layers, [(index + 1) % period != 0 for index in range(n_layers)])
        return [window if is_local else None for is_local in local]

    return read


def layer_types(config: ConfigReader, n_layers: int, default: list[bool]) -> list[bool]:
    """Which layers are local by the key layer_types, or the default where it is not there."""
    types = config.value("layer_types", None)
    if types is None:
        return default
    if not isinstance(types, list) or len(types) != n_layers or not all(isinstance(item, str) for item in types):
        config.refuse("layer_types", f"a list of {n_layers} texts is needed")
    unknown = next((item for item in types if item not in LAYER_TYPES), None)
    if unknown is not None:
        config.refuse("layer_types", f"{quoted(unknown)} is not supported, known are {', '.join(LAYER_TYPES)}")
    return [LAYER_TYPES[item] for item in types]
