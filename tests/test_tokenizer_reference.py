"""tokenizer.json beside transformers, live."""

from __future__ import annotations

import pytest
from tiny_tokenizers import SPECIAL, STYLES, train
from tokenizer_battery import WRITTEN, random_texts

from ringlet.tokenization.tokenizer import Tokenizer

transformers = pytest.importorskip("transformers")


@pytest.mark.reference
@pytest.mark.parametrize("style", STYLES)
def test_ids_are_transformers_s(style, tmp_path):
    train(style).save(str(tmp_path / "tokenizer.json"))
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_directory(tmp_path)
    for text in [*WRITTEN.values(), *random_texts(200)]:
        for add_special in (True, False):
            parsed = reference.encode(text, add_special_tokens=add_special)
            assert ours.encode(text, add_special, parse_special=True) == parsed
            # transformers finds special tokens by their text all the same where the model is no BPE.
            if "BPE" in type(reference.backend_tokenizer.model).__name__ or not any(token in text for token in SPECIAL):
                plain = reference.encode(text, add_special_tokens=add_special, split_special_tokens=True)
                assert ours.encode(text, add_special) == plain


@pytest.mark.reference
@pytest.mark.parametrize("style", STYLES)
def test_text_is_transformers_s(style, tmp_path):
    train(style).save(str(tmp_path / "tokenizer.json"))
    reference = transformers.PreTrainedTokenizerFast(tokenizer_file=str(tmp_path / "tokenizer.json"))
    ours = Tokenizer.from_directory(tmp_path)
    for text in [*WRITTEN.values(), *random_texts(200)]:
        ids = ours.encode(text)
        assert ours.decode(ids, skip_special=False) == reference.decode(ids, clean_up_tokenization_spaces=False)
