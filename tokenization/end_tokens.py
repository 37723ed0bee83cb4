"""Which tokens of a GGUF vocabulary end a generation, and which are control tokens whatever the file calls them.

Files often name one end and mean more, and mark control tokens as others. The texts, and the order in which the rules
apply, are those of llama.cpp's src/llama-vocab.cpp (`llama_vocab::impl::load`, September 2026).
"""

from __future__ import annotations

import numpy as np

from ringlet.tokenization.gguf_vocabulary import CONTROL, NORMAL, USER_DEFINED, GGUFVocabulary

ENDS = (
    "<|eot_id|>", "<|im_end|>", "<|end|>", "<|return|>", "<|call|>", "<|flush|>", "<|calls|>", "<end_of_turn>",
    "<|endoftext|>", "</s>", "<|eom_id|>", "<EOT>", "_<EOT>", "[EOT]", "[EOS]", "<|end_of_text|>", "<end_of_utterance>",
    "<eos>", "<turn|>", "<|tool_response>", "<｜end▁of▁sentence｜>", "[e~[",
)  # fmt: skip

# Fill-in-the-middle tokens by role; the first text that the vocabulary has takes a role that the file leaves open.
FILL_IN = {
    "fim_pre": (
        "<|fim_prefix|>", "<fim-prefix>", "<fim_prefix>", "<｜fim▁begin｜>", "<PRE>", "▁<PRE>", "<|code_prefix|>",
        "<|prefix|>",
    ),
    "fim_suf": (
        "<|fim_suffix|>", "<fim-suffix>", "<fim_suffix>", "<｜fim▁hole｜>", "<SUF>", "▁<SUF>", "<|code_suffix|>",
        "<|suffix|>",
    ),
    "fim_mid": (
        "<|fim_middle|>", "<fim-middle>", "<fim_middle>", "<｜fim▁end｜>", "<MID>", "▁<MID>", "<|code_middle|>",
        "<|middle|>",
    ),
    "fim_pad": ("<|fim_pad|>", "<fim-pad>", "<fim_pad>", "<PAD>", "[PAD]"),
    "fim_rep": ("<|fim_repo|>", "<|repo_name|>", "<fim-repo>", "<REPO>", "<reponame>"),
    "fim_sep": ("<|file_sep|>",),
}  # fmt: skip
FILL_IN_ENDS = ("fim_pad", "fim_rep", "fim_sep")

SHOWN = ("<|channel|>", "<|message|>", "<|start|>", "<|constrain|>")  # parts of an answer in gpt-oss's format


def settle_ends(vocabulary: GGUFVocabulary) -> tuple[frozenset[int], np.ndarray]:
    """The ids that end a generation, and the kinds of all tokens, corrected."""
    ids, kinds, named = vocabulary.ids, vocabulary.kinds.copy(), dict(vocabulary.named_ids)
    for role, texts in FILL_IN.items():
        token_id = next((ids[text] for text in texts if text in ids), None)
        if role not in named and token_id is not None:
            named[role] = token_id
            kinds[token_id] = CONTROL
    known = [ids[text] for text in ENDS if text in ids]
    kinds[known] = CONTROL
    kinds[[ids[text] for text in SHOWN if text in ids]] = USER_DEFINED
    ends = {*known, *(named[role] for role in (*FILL_IN_ENDS, "eos", "eot", "eom") if role in named)}

    def has(text: str) -> bool:
        return ids.get(text) in ends

    answers = (has("<|return|>") and (has("<|call|>") or has("<|calls|>"))) or (
        (has("<|call|>") or has("<|calls|>")) and has("<|flush|>")
    )
    if answers and has("<|end|>"):  # there it ends a part of the answer only
        ends.discard(ids["<|end|>"])
        kinds[ids["<|end|>"]] = USER_DEFINED
    if (has("<|tool_response>") or has("<|plamo:eos|>")) and has("</s>"):  # there it is HTML
        ends.discard(ids["</s>"])
        kinds[ids["</s>"]] = NORMAL
    return frozenset(ends), kinds
