"""Classical Chinese verse → simplified text → a BPE tokenizer → token ids.

    python training/prepare.py package/dist prepared

reads the npm package `chinese-poetry` (training/README.md says how to get it) and writes `tokenizer.json` and
`ids.npy` (uint16, all documents in a row, each `<bos> … <eos>`) into the folder `prepared`. The defaults are those
that made the embedded model: 201,616 documents, 14.7 million characters, 13.6 million tokens. One seeded generator
decides everything random in one fixed order, so the same package gives the same two files.
"""

from __future__ import annotations

import json
import random
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from itertools import chain, islice
from pathlib import Path

import click
import numpy as np
from opencc import OpenCC
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors, trainers

CONTROLS = ["<pad>", "<bos>", "<eos>"]  # ids 0, 1, 2
BYTES = [f"<0x{byte:02X}>" for byte in range(256)]  # ids 3 to 258: any other character is spelt in UTF-8
END = CONTROLS.index("<eos>")
TITLED = 0.3  # the share of poems that open with 《title》
LENGTHS = range(10, 601)  # characters; fragments and long narratives stay out
BRACKETED = re.compile(r"[（(\[【〔].*?[)）\]】〕]")  # editors' notes
MARKS = re.compile(r"[{}《》〈〉□■○●/\\a-zA-Z0-9＊*#_=-]")  # gaps in the text, markup


@dataclass(frozen=True)
class Collection:
    """Files of poems of one kind; `times` repeats the small and the best, `keep` thins out the large."""

    pattern: str
    verses: str = "paragraphs"  # the JSON key that holds a poem's lines
    times: int = 1
    keep: float = 1.0


COLLECTIONS = [
    Collection("quantangshi/poet.tang.*.json"),
    Collection("songci/ci.song.*.json", times=2),
    Collection("yuanqu/yuanqu.json"),
    Collection("shijing/shijing.json", verses="content", times=4),
    Collection("nalanxingde/*.json", verses="para", times=4),
    Collection("wudaishici/*/*.json", times=3),
    Collection("chuci/*.json", verses="content", times=2),
]
SONG_POEMS = Collection("quantangshi/poet.song.*.json", keep=0.35)


def read_poems(source: Path, collection: Collection) -> Iterator[tuple[str, list[str]]]:
    """(title, lines) of each poem of a collection, in the order of the file names."""
    for path in sorted(source.glob(collection.pattern)):
        for poem in json.loads(path.read_text(encoding="utf-8")):
            if not isinstance(poem, dict):
                continue
            lines = [line.strip() for line in poem.get(collection.verses, []) if line.strip()]
            if lines:
                yield poem.get("title") or poem.get("rhythmic") or "", lines


def clean(text: str) -> str:
    """The text without editors' notes, placeholders for lost characters and markup."""
    return MARKS.sub("", BRACKETED.sub("", text)).strip()


def documents_of(
    collection: Collection, source: Path, simplify: Callable[[str], str], rng: random.Random, limit: int | None
) -> Iterator[str]:
    """The training texts of a collection: the poem, sometimes under its title."""
    for title, lines in islice(read_poems(source, collection), limit):
        if collection.keep < 1 and rng.random() > collection.keep:
            continue
        text = "\n".join(clean(line) for line in lines)
        if len(text) not in LENGTHS:
            continue
        text, title = simplify(text), simplify(clean(title))
        for _ in range(collection.times):
            yield f"《{title}》\n{text}" if title and rng.random() < TITLED else text


def alphabet_of(documents: list[str], size: int) -> list[str]:
    """The most frequent characters; of equally frequent ones the lower code point: the trainer leaves it to chance."""
    counts = Counter(chain.from_iterable(documents))
    return sorted(counts, key=lambda character: (-counts[character], character))[:size]


def train_tokenizer(documents: list[str], d_vocab: int) -> Tokenizer:
    """A BPE of characters and short words with byte fallback; a newline is always a token of its own."""
    alphabet = alphabet_of(documents, min(4800, d_vocab - len(CONTROLS + BYTES)))
    tokenizer = Tokenizer(models.BPE(byte_fallback=True, unk_token=None, fuse_unk=False))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("\n", "isolated")
    tokenizer.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Fuse()])
    trainer = trainers.BpeTrainer(
        vocab_size=d_vocab,
        special_tokens=CONTROLS + BYTES,
        initial_alphabet=alphabet,
        limit_alphabet=len(alphabet),
        min_frequency=20,
        max_token_length=4,
    )
    tokenizer.train_from_iterator(documents, trainer)
    return finish_tokenizer(tokenizer)


def finish_tokenizer(tokenizer: Tokenizer) -> Tokenizer:
    """Only the controls stay special, byte tokens are ordinary vocabulary; `<bos>` comes first."""
    spec = json.loads(tokenizer.to_str())
    spec["added_tokens"] = [token for token in spec["added_tokens"] if token["content"] in CONTROLS]
    tokenizer = Tokenizer.from_str(json.dumps(spec))
    tokenizer.post_processor = processors.TemplateProcessing(single="<bos> $A", special_tokens=[("<bos>", 1)])
    return tokenizer


def read_tokenizer(path: Path) -> Tokenizer:
    """A tokenizer that this script made before."""
    tokenizer = Tokenizer.from_file(str(path))
    if any(tokenizer.token_to_id(control) != index for index, control in enumerate(CONTROLS)):
        raise click.UsageError(f"{path}: the first tokens are not {', '.join(CONTROLS)}; give one that prepare.py made")
    return tokenizer


def encode(tokenizer: Tokenizer, documents: list[str]) -> np.ndarray:
    """All documents in a row, uint16 (n,): `<bos> … <eos>` each."""
    ids: list[int] = []
    for encoding in tokenizer.encode_batch(documents):
        ids.extend(encoding.ids)
        ids.append(END)
    return np.array(ids, np.uint16)


@click.command()
@click.argument("source", type=click.Path(exists=True, file_okay=False, path_type=Path))
@click.argument("out", type=click.Path(file_okay=False, path_type=Path))
@click.option("--d-vocab", type=click.IntRange(512, 65536), default=6144, show_default=True, help="Tokens to learn.")
@click.option(
    "--song-share", type=click.FloatRange(0, 1), default=SONG_POEMS.keep, show_default=True,
    help="How much of the 250,000 Song poems to keep.",
)  # fmt: skip
@click.option(
    "--tokenizer", "ready", type=click.Path(exists=True, dir_okay=False, path_type=Path),
    help="Use this tokenizer.json instead of learning one: to train a finished model on.",
)  # fmt: skip
@click.option("--limit", type=click.IntRange(1), help="Only the first N poems of each collection: for a trial.")
def main(source: Path, out: Path, d_vocab: int, song_share: float, ready: Path | None, limit: int | None) -> None:
    """Write OUT/tokenizer.json and OUT/ids.npy from SOURCE, the folder `dist` of the package chinese-poetry."""
    rng = random.Random(0)
    simplify = OpenCC("t2s").convert
    documents: list[str] = []
    for collection in [*COLLECTIONS, replace(SONG_POEMS, keep=song_share)]:
        documents.extend(documents_of(collection, source, simplify, rng, limit))
        click.echo(f"{collection.pattern}: {len(documents):,} documents so far", err=True)
    if not documents:
        raise click.UsageError(f"{source} holds no poems; give the folder package/dist of the npm package")
    rng.shuffle(documents)

    out.mkdir(parents=True, exist_ok=True)
    tokenizer = read_tokenizer(ready) if ready else train_tokenizer(documents, d_vocab)
    tokenizer.save(str(out / "tokenizer.json"))
    ids = encode(tokenizer, documents)
    np.save(out / "ids.npy", ids)
    characters = sum(map(len, documents))
    click.echo(f"{len(documents):,} documents, {characters:,} characters, {len(ids):,} tokens", err=True)


if __name__ == "__main__":
    main()
