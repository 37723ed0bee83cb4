"""Makes tests/fixtures/tokenizers/transformers_ids.json: the battery's ids by transformers, for the embedded tokenizer.

    python tests/make_fixtures/tokenizer_json_ids.py

Needs transformers (the fixture was made with 5.24.0).
"""

from __future__ import annotations

import json
import sys
from pathlib import Path

from transformers import PreTrainedTokenizerFast

TESTS = Path(__file__).resolve().parent.parent
sys.path[:0] = [str(TESTS)]

from tokenizer_battery import WRITTEN, digest, document, random_texts  # noqa: E402

N_RANDOM = 2000


def main() -> None:
    reference = PreTrainedTokenizerFast(tokenizer_file=str(TESTS.parent / "data" / "poet" / "tokenizer.json"))
    texts = [*WRITTEN.values(), *random_texts(N_RANDOM)]

    def ids(text: str, mode: str) -> list[int]:
        return reference.encode(text, add_special_tokens=mode[0] == "1", split_special_tokens=mode[1] == "0")

    found: dict = {mode: digest(ids(text, mode) for text in texts) for mode in ("00", "01", "10", "11")}
    found |= {"n_random": N_RANDOM, "document": digest([ids(document(), "00")])}
    path = TESTS / "fixtures" / "tokenizers" / "transformers_ids.json"
    path.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
