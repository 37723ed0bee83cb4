"""Every block format whose weights are multiplied as bytes."""

from __future__ import annotations

from ringlet.plugins.backends.cpu.byte_weights import BYTE_FORMATS_OF_32
from ringlet.plugins.backends.cpu.byte_weights_k import BYTE_FORMATS_OF_256

BYTE_FORMATS = {**BYTE_FORMATS_OF_32, **BYTE_FORMATS_OF_256}
