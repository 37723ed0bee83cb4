"""GPT-2's byte alphabet: every byte is a visible character, so that a vocabulary is text (Radford et al. 2019)."""

from __future__ import annotations


def _alphabet() -> str:
    """The character of each byte: its own in Latin-1 where that is printable, else the next free one from U+0100."""
    printable = {*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)}
    others = iter(range(0x100, 0x200))
    return "".join(chr(byte if byte in printable else next(others)) for byte in range(256))


BYTE_ALPHABET = _alphabet()
_BYTES = {character: byte for byte, character in enumerate(BYTE_ALPHABET)}


def bytes_of_alphabet(text: str) -> bytes:
    """The bytes that the text stands for; with any other character, as an added token has, it stands for itself."""
    try:
        return bytes([_BYTES[character] for character in text])
    except KeyError:
        return text.encode()
