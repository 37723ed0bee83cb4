"""Every kernel by its name, such as "byte_product-Q4_K-8": the words after the first are arguments of what makes it."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

from ringlet.plugins.backends.cuda.kernels.attention import attention
from ringlet.plugins.backends.cuda.kernels.byte_products import byte_product
from ringlet.plugins.backends.cuda.kernels.declare import Kernel
from ringlet.plugins.backends.cuda.kernels.float_attention import float_attention
from ringlet.plugins.backends.cuda.kernels.float_products import float_product
from ringlet.plugins.backends.cuda.kernels.hidden import hidden
from ringlet.plugins.backends.cuda.kernels.likeliest import likeliest, rank
from ringlet.plugins.backends.cuda.kernels.lookup import lookup
from ringlet.plugins.backends.cuda.kernels.merge import merge, soft_cap
from ringlet.plugins.backends.cuda.kernels.normalise import normalise
from ringlet.plugins.backends.cuda.kernels.repack import repack
from ringlet.plugins.backends.cuda.kernels.ring_bytes import place_bytes
from ringlet.plugins.backends.cuda.kernels.rotary import angles, place
from ringlet.plugins.backends.cuda.kernels.tile_products import tile_product

SINGLE = {
    kernel.name: kernel
    for kernel in (angles, hidden, likeliest, merge, normalise, place, place_bytes, rank, repack, soft_cap)
}
FAMILIES: dict[str, Callable[..., Kernel]] = {
    "attention": attention,
    "byte_product": byte_product,
    "float_attention": float_attention,
    "float_product": float_product,
    "lookup": lookup,
    "tile_product": tile_product,
}


@cache
def kernel_named(name: str) -> Kernel:
    if name in SINGLE:
        return SINGLE[name]
    family, *arguments = name.split("-")
    return FAMILIES[family](*(int(word) if word.isdigit() else word for word in arguments))
