"""Which kernel multiplies a matrix with how many tokens, and how it is launched."""

from __future__ import annotations

from collections.abc import Iterable

from ringlet.plugins.backends.cuda.device import Device
from ringlet.plugins.backends.cuda.planes import is_quantised
from ringlet.plugins.backends.cuda.scratch import Rows
from ringlet.plugins.backends.cuda.shapes import (
    ACCUMULATE,
    BFLOATS,
    BIAS,
    BYTE_PRODUCT_TOKENS,
    BYTES,
    FLOATS,
    SIMULATED,
    TILES,
    product_rows,
    product_warps,
)
from ringlet.plugins.backends.cuda.weights import DeviceMatrix, Product

MOST_AT_ONCE = BYTE_PRODUCT_TOKENS[-1]  # with more tokens, tensor cores are used where there are some
TENSOR_CORES_FROM = (8, 0)  # that take bfloat16


class Products:
    """Chooses and launches products on a device."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._has_tensor_cores = device.capability >= TENSOR_CORES_FROM

    def form(self, format: str, n_tokens: int) -> int:
        """Of the activations that a matrix takes."""
        if not is_quantised(format):
            return FLOATS
        return BFLOATS if self._on_tensor_cores(n_tokens) else BYTES

    def forms(self, products: Iterable[Product], n_tokens: int) -> int:
        """All that some products take."""
        wanted = 0
        for product in products:
            for format in product.formats:
                wanted |= self.form(format, n_tokens)
        return wanted

    def forms_at_most(self, products: Iterable[Product]) -> int:
        products = list(products)
        return self.forms(products, 1) | self.forms(products, MOST_AT_ONCE + 1)

    def kernels(self, product: Product, n_tokens: int) -> set[str]:
        """Names of the kernels that multiply it."""
        return {self._choice(matrix, n_tokens)[0] for matrix in product.matrices}

    def multiply(self, product: Product, x: Rows, out: int, stride: int, n_tokens: int, flags: int = 0) -> None:
        """out[token·stride + row] = x·W + b, or += with the flag ACCUMULATE."""
        for matrix in product.matrices:
            name, grid = self._choice(matrix, n_tokens)
            place = out + 4 * matrix.first_row
            with_bias = flags | (BIAS if matrix.bias else 0)
            sizes = (matrix.n_rows, matrix.n_blocks, n_tokens, stride, with_bias)
            form = self.form(matrix.format, n_tokens)
            arguments: tuple[int, ...]
            if form == FLOATS:
                arguments = (matrix.planes[0], x.floats, matrix.bias, place, *sizes)
            elif form == BYTES:
                arguments = (*matrix.planes, x.bytes, x.scales, x.sums, matrix.bias, place, *sizes)
            else:
                arguments = (*matrix.planes, x.bfloats, matrix.bias, place, *sizes)
            self._device.launch(name, grid, arguments)

    def _on_tensor_cores(self, n_tokens: int) -> bool:
        return self._has_tensor_cores and n_tokens > MOST_AT_ONCE

    def _choice(self, matrix: DeviceMatrix, n_tokens: int) -> tuple[str, tuple[int, int, int]]:
        """A kernel's name and its grid."""
        quantised = is_quantised(matrix.format)
        if quantised and self._on_tensor_cores(n_tokens):
            name = self._tile(matrix.n_rows, n_tokens)
            tile = TILES[name]
            return f"tile_product-{matrix.format}-{name}", (
                -(-matrix.n_rows // tile.rows),
                -(-n_tokens // tile.tokens),
                1,
            )
        at_once = next((n for n in BYTE_PRODUCT_TOKENS if n >= n_tokens), MOST_AT_ONCE)
        rows = product_warps(matrix.format, at_once) * product_rows(at_once)
        grid = (-(-matrix.n_rows // rows), -(-n_tokens // at_once), 1)
        return f"{'byte' if quantised else 'float'}_product-{matrix.format}-{at_once}", grid

    def _tile(self, n_rows: int, n_tokens: int) -> str:
        """The largest tile that still gives every multiprocessor a block."""
        if SIMULATED:
            return "warp"
        if n_tokens <= TILES["flat"].tokens:
            return "flat"
        large = TILES["large"]
        blocks = -(-n_rows // large.rows) * -(-n_tokens // large.tokens)
        return "large" if blocks >= self._device.multiprocessors else "small"


__all__ = ["ACCUMULATE", "Products"]
