"""Numbers from 0 to 1 as text, two characters each: a page with every α of every head stays small."""

from __future__ import annotations

import numpy as np

DIGITS = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_"  # base64url (RFC 4648, section 5)
LARGEST = 64 * 64 - 1  # what stands for 1; so a number is at most half of 1/4095 off
TABLE = np.frombuffer(DIGITS.encode("ascii"), np.uint8)


def shortened(numbers: np.ndarray) -> str:
    """Numbers (n,) from 0 to 1 as 2n characters: two digits of base 64 each, the higher first."""
    levels = np.rint(np.clip(numbers, 0, 1) * LARGEST).astype(np.int64)
    return TABLE[np.stack([levels >> 6, levels & 63], axis=-1)].tobytes().decode("ascii")
