"""Numbers, texts and JSON values at which readers of files have failed before."""

from __future__ import annotations

from random import Random

TEXTS = ["", " ", "\0", "a" * 2000, "我", "\U0010ffff", "\x1b[31m", "a\nb", "../../etc/passwd", "{layer}", "-1", "NaN"]
BROKEN_UTF8 = [b"\xff", b"\xc3", b"\xe6\x88", b"\xed\xa0\x80", b"\xf4\x90\x80\x80", b"\xc0\x80", b"ok\x80"]
FLOATS = [0.0, -0.0, -1.0, 0.5, 1e-45, 1e38, -1e38, 1e308, float("inf"), float("-inf"), float("nan")]
JSON_VALUES = [
    None, True, False, 0, -1, 1, 2, 3, 7, 255, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 32, 1 << 53, 1 << 63, 1 << 64,
    1 << 200, -(1 << 63), 0.5, -0.5, 1.5, 1e-320, 1e30, 1e308, "", "1", "64", "abc", "\u0000", "我", [], {}, [0],
    [1, 2],
    [[]], [[[[]]]], [None], {"a": 1}, {"": {}}, [1] * 1000, "a" * 5000, [-1, 1], ["a", "b"], {"type": "linear"},
]  # fmt: skip


def whole_number(random: Random, bits: int, actual: int, file_size: int) -> int:
    """A number of so many bits: at a border, a power of two, near the file's size, or near what stands there."""
    near = random.choice(
        [
            0,
            1 << random.randrange(bits),
            (1 << bits) - 1,
            (1 << bits) // random.choice([2, 3, 4, 8, 16, 32]),
            file_size,
            file_size // random.choice([1, 2, 4, 8, 12, 16, 24]),
            actual,
            actual * 2,
            actual // 2,
            random.getrandbits(bits),
        ]
    )
    return (near + random.choice([-32, -1, 0, 0, 0, 1, 2, 32])) & ((1 << bits) - 1)
