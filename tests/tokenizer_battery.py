"""The texts that every tokenizer is tried on, and digests of the ids it gives."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Iterable, Sequence

import numpy as np

WRITTEN = {
    "empty": "",
    "blank": " ",
    "blanks": "  a   b    c" + " " * 50 + "x" + " " * 33,
    "newlines": "\n" * 40 + "z" + "\n" * 31 + "a\n\nb\n",
    "mixed blanks": " \n \n  \n\t\t x \t\n",
    "unicode blanks": "a\u00a0\u00a0b\u3000\u3000c \u2028d\u2009\u1680e\u0085f",
    "carriage returns": "\r\n\r\nfoo\r\rbar\n\r",
    "digits": "0 12 123 1234 12345678901234567890 3.14159 1,000,000 ١٢٣٤ ²³½ Ⅷ １２３",
    "chinese": "我爱你，春风又绿江南岸。明月何时照我还？“好”——「是」！",
    "japanese": "日本語のテキスト、カタカナとひらがな。〆切は１０月",
    "korean": "한국어 텍스트를 씁니다. 가나다",
    "arabic": "مرحبا بالعالم، كيف حالك؟ ١٢٣ السَّلامُ",
    "thai": "สวัสดีชาวโลก ภาษาไทยไม่มีวรรค",
    "hindi": "नमस्ते दुनिया क्षत्रिय",
    "emoji": "👩‍👩‍👧‍👦 🏳️‍🌈 🇨🇳🇩🇪 👍🏽 ☺️ 😀😀😀",
    "combining": "e\u0301 n\u0303 a\u0308\u0323 \u0301x Z͑ͫ̓ͪ̂ͫ̽͏̴̙̤̞ ế",
    "code": 'def f(x):\n    return x[0]**2  # no\n\tif (a!=b && c<=d) { printf("%d\\n", a->b); }\n\n\n}',
    "control": "\x01\x02\x06\x1b[0m\x7f\x85\x0b\x0c",
    "nul": "a\0b\0\0c",
    "special": "<|im_start|>user\nhi<|im_end|><|endoftext|> <s></s><bos><eos><turn|><start_of_turn>x<end_of_turn><unk>",
    "special again": "<pad><0x0A><unused3>[INST]<|im_end|><|im_end|> a <|im_end|>",
    "html": "<table><tr></tr></s></table><h1> <b>bold</b>",
    "contractions": "I'm you're WE'LL they'D it's'S 'tis don’t 'ſ 'Re o'clock",
    "signs": "!!!??? ... --- === +++ ~~~ $$$ ^^^ ```| <>&@# (a) [b] {c} «d» a/b/\n",
    "case": "HTTPServer camelCase XMLHttpRequest ÀÉÎõü ǅ ßSS ΑΒΓαβγ ЖжЁё 中Aa",
    "invisible": "\u200b\u200d\ufeff\u00ad\u200ea\u200fb",
    "space marks": "▁▁ ▁a b▁c Ġx",
    "runs": "a" * 24 + " " + "b" * 5 + " " + "-" * 10 + "_" * 7 + "ababab" * 4,
    "last": "\ufffd\uffff\U0010ffff\ue000\U0001e5d0\u1c89\U0002ebf0",
    "overlap": "x=y[0] x=y =y[0] ax=y[0]x=y",
}

_BLOCKS = (
    (0x00, 0x7F), (0x20, 0x7F), (0x20, 0x7F), (0x80, 0x24F), (0x300, 0x36F), (0x370, 0x5FF), (0x600, 0x6FF),
    (0x900, 0xDFF), (0xE00, 0xE7F), (0x2000, 0x206F), (0x2070, 0x2BFF), (0x3000, 0x30FF), (0x4E00, 0x9FFF),
    (0xAC00, 0xD7A3), (0xF900, 0xFFFF), (0x1F300, 0x1FAFF), (0x10000, 0x1FFFF), (0x00, 0x10FFFF),
)  # fmt: skip


def random_texts(count: int, seed: int = 20) -> list[str]:
    """Texts of 1 to 40 characters from a few blocks each, blanks, digits and signs between them."""
    draw = random.Random(seed).random  # the only method whose numbers no version of Python changes

    def below(n: int) -> int:
        return int(draw() * n)

    def character(blocks: Sequence[tuple[int, int]]) -> str:
        if draw() < 0.15:
            return " \n\t'.,0123"[below(10)]
        first, last = blocks[below(len(blocks))]
        code = first + below(last - first + 1)
        return "�" if 0xD800 <= code < 0xE000 else chr(code)

    texts = []
    for _ in range(count):
        blocks = [_BLOCKS[below(len(_BLOCKS))] for _ in range(1 + below(4))]
        texts.append("".join(character(blocks) for _ in range(1 + below(40))))
    return texts


def document(n_bytes: int = 1_000_000) -> str:
    """A text of that many bytes of UTF-8, of written and random pieces."""
    pieces = [*WRITTEN.values(), *random_texts(500, seed=21)]
    order = random.Random(22)
    parts, size = [], 0
    while size < n_bytes:
        parts.append(pieces[int(order.random() * len(pieces))])
        size += len(parts[-1].encode())
    return "".join(parts).encode()[:n_bytes].decode(errors="ignore")


def digest(lists_of_ids: Iterable[Sequence[int]]) -> str:
    """SHA-256 of the ids as int32, -1 after each text's."""
    sha = hashlib.sha256()
    for ids in lists_of_ids:
        sha.update(np.array([*ids, -1], "<i4").tobytes())
    return sha.hexdigest()


def bytes_digest(tokens: Iterable[bytes]) -> str:
    """SHA-256 of the tokens' bytes, each after its length as int32."""
    sha = hashlib.sha256()
    for data in tokens:
        sha.update(np.array([len(data)], "<i4").tobytes() + data)
    return sha.hexdigest()
