"""Small tokenizers, one of each style that tokenizer.json files come in."""

from __future__ import annotations

import json

import tokenizers
from tokenizers import decoders, models, normalizers, pre_tokenizers, processors, trainers

CORPUS = [
    "the ring of the king",
    "我爱你，春风又绿江南岸",
    "naïve café 👩‍👩‍👧 12345",
    "  two  blanks\n\n\tx = y[0]",
] * 4
STYLES = ["byte_level", "byte_fallback", "unigram", "word_piece", "word_level"]
SPECIAL = ["<unk>", "<s>", "</s>"]


def train(style: str) -> tokenizers.Tokenizer:
    """One of STYLES."""
    if style == "byte_level":
        library = tokenizers.Tokenizer(models.BPE())
        library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
        library.decoder = decoders.ByteLevel()
        alphabet = pre_tokenizers.ByteLevel.alphabet()
        trainer = trainers.BpeTrainer(
            vocab_size=400, special_tokens=SPECIAL, initial_alphabet=alphabet, show_progress=False
        )
    elif style == "byte_fallback":
        library = tokenizers.Tokenizer(models.BPE(byte_fallback=True, unk_token="<unk>", fuse_unk=True))
        library.normalizer = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
        chain = [decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
        library.decoder = decoders.Sequence(chain)
        byte_tokens = [f"<0x{byte:02X}>" for byte in range(256)]
        trainer = trainers.BpeTrainer(vocab_size=400, special_tokens=SPECIAL + byte_tokens, show_progress=False)
    elif style == "unigram":
        library = tokenizers.Tokenizer(models.Unigram())
        library.pre_tokenizer = pre_tokenizers.Metaspace()
        library.decoder = decoders.Metaspace()
        trainer = trainers.UnigramTrainer(
            vocab_size=120, special_tokens=SPECIAL, unk_token="<unk>", show_progress=False
        )
    elif style == "word_level":  # without a decoder: blanks between tokens
        library = tokenizers.Tokenizer(models.WordLevel(unk_token="<unk>"))
        library.pre_tokenizer = pre_tokenizers.Whitespace()
        trainer = trainers.WordLevelTrainer(special_tokens=SPECIAL, show_progress=False)
    else:
        library = tokenizers.Tokenizer(models.WordPiece(unk_token="<unk>"))
        library.normalizer = normalizers.BertNormalizer()
        library.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
        library.decoder = decoders.WordPiece()
        trainer = trainers.WordPieceTrainer(vocab_size=150, special_tokens=SPECIAL, show_progress=False)
    library.train_from_iterator(CORPUS, trainer)
    if style == "byte_fallback":  # the trainer's special tokens are all special; byte tokens are none
        description = json.loads(library.to_str())
        description["added_tokens"] = description["added_tokens"][:3]
        library = tokenizers.Tokenizer.from_str(json.dumps(description))
    library.post_processor = processors.TemplateProcessing(single="<s> $A", special_tokens=[("<s>", 1)])
    return library
