"""How each `tokenizer.ggml.pre` splits a text before its merges: regular expressions, applied one after another.

They do what llama.cpp's src/llama-vocab.cpp and src/unicode.cpp do (September 2026), its reading of `\\p{…}` as the
classes of Unicode 15.1 included, where the `tokenizers` library knows a newer Unicode.
"""

from __future__ import annotations

from dataclasses import dataclass

# Letters, digits, marks, punctuation and symbols that came after Unicode 15.1, and unassigned places between them.
_NEWER = (
    r"\x{897}\x{1B4E}-\x{1B4F}\x{1B7F}\x{1C89}-\x{1C8A}\x{2427}-\x{2429}\x{31E4}-\x{31E5}\x{A7CB}-\x{A7CD}"
    r"\x{A7DA}-\x{A7DC}\x{105C0}-\x{105F3}\x{10D40}-\x{10D8F}\x{10EC2}-\x{10EFC}\x{11380}-\x{113E2}"
    r"\x{116D0}-\x{116E3}\x{11BC0}-\x{11BF9}\x{11F5A}\x{13460}-\x{143FA}\x{16100}-\x{16139}\x{16D40}-\x{16D79}"
    r"\x{18CFF}\x{1CC00}-\x{1CEB3}\x{1E5D0}-\x{1E5FF}\x{1F8B2}-\x{1F8C1}\x{1FA89}-\x{1FA8F}\x{1FABE}\x{1FAC6}"
    r"\x{1FADC}-\x{1FADF}\x{1FAE9}\x{1FBCB}-\x{1FBEF}"
)
_L, _N, _P, _M, _S = (rf"[\p{{{category}}}&&[^{_NEWER}]]" for category in "LNPMS")

_CONTRACTION = "(?:'[sS]|'[tT]|'[rR][eE]|'[vV][eE]|'[mM]|'[lL][lL]|'[dD])"
_BLANKS = r"\s*[\r\n]+|\s+(?!\S)|\s+"
_WORD = rf"[^\r\n{_L}{_N}]?{_L}+"
_SIGNS = rf" ?[^\s{_L}{_N}]+[\r\n]*"

_GPT2 = rf"'s|'t|'re|'ve|'m|'ll|'d| ?{_L}+| ?{_N}+| ?[^\s{_L}{_N}]+|\s+(?!\S)|\s+"
_LLAMA3 = rf"{_CONTRACTION}|{_WORD}|{_N}{{1,3}}|{_SIGNS}|{_BLANKS}"
_QWEN2 = rf"{_CONTRACTION}|{_WORD}|{_N}|{_SIGNS}|{_BLANKS}"
_QWEN35 = rf"{_CONTRACTION}|[^\r\n{_L}{_N}]?[{_L}{_M}]+|{_N}| ?[^\s{_L}{_M}{_N}]+[\r\n]*|{_BLANKS}"

# Letters outside ASCII are neither a-z nor A-Z, so both of these hold them.
_NO_SMALL, _NO_CAPITAL = f"[{_L}&&[^a-z]]", f"[{_L}&&[^A-Z]]"
_CASED = rf"[^\r\n{_L}{_N}]?(?:{_NO_SMALL}*{_NO_CAPITAL}+|{_NO_SMALL}+{_NO_CAPITAL}*)"
_CASED_SIGNS = rf" ?[^\s{_L}{_N}]+[\r\n/]*"

_CJK = "[一-龥぀-ゟ゠-ヿ]+"
_ASCII_SIGN_WORD = r"""[!"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+"""
_DEEPSEEK_CJK = r"[[一-龥ࠀ-一가-퟿]&&\S]+"
_DEEPSEEK_LETTERS = (
    "A-Za-zµÀ-ÖØ-öø-ƺƼ-ƿǄ-ʓʕ-ʯͰ-ͳͶͷͻ-ͽͿΆΈ-ΊΌΎ-ΡΣ-ϵϷ-ҁҊ-ԯԱ-ՖႠ-ჅᎠ-Ᏽᏸ-ᏽᲐ-ᲺᲽ-Ჿᴀ-ᴫᵫ-ᵷᵹ-ᶚḀ-ἕἘ-Ἕἠ-ὅὈ-Ὅὐ-ὗὙὛὝὟ-ώᾀ-ᾴᾶ-ᾼιῂ-ῄῆ-ῌῐ-ΐῖ-Ίῠ-Ῥῲ-ῴ"
    "ῶ-ῼℂℇℊ-ℓℕℙ-ℝℤΩℨK-ℭℯ-ℴℹℼ-ℿⅅ-ⅉⅎↃↄⰀ-ⱻⱾ-ⳤⳫ-ⳮⳲⳳꙀ-ꙭꚀ-ꚛꜢ-ꝯꝱ-ꞇꞋ-ꞎꭰ-ꮿﬀ-ﬆﬓ-ﬗＡ-Ｚａ-ｚ𐐀-𐑏𐒰-𐓓𐓘-𐓻𐲀-𐲲𐳀-𐳲𑢠-𑣟𞤀-𞥃"
)
_EXCEPT_SIGNS = r" ?[^(\s|.,!?…。，、।۔،)]+"


@dataclass(frozen=True)
class PreTokenizer:
    """splits: regular expressions in Oniguruma's syntax; what one matches, and what lies between, the next one splits.

    whole_words: a split that is a token by itself takes no merges. adds_bos: a text begins with the token for it,
    unless the file says otherwise.
    """

    splits: tuple[str, ...]
    whole_words: bool = False
    adds_bos: bool = False


_GPT2_KIND = PreTokenizer((_GPT2,))
_LLAMA3_KIND = PreTokenizer((_LLAMA3,), whole_words=True, adds_bos=True)
_QWEN2_KIND = PreTokenizer((_QWEN2,))
_DIGITS_GPT2_KIND = PreTokenizer((_N, _GPT2))
_GPT4O_KIND = PreTokenizer((rf"{_CASED}{_CONTRACTION}?|{_N}{{1,3}}|{_CASED_SIGNS}|{_BLANKS}",))
_DEEPSEEK3_KIND = PreTokenizer(
    (
        rf"{_N}{{1,3}}",
        _CJK,
        rf"{_ASCII_SIGN_WORD}|[^\r\n{_L}{_P}{_S}]?[{_L}{_M}]+| ?[{_P}{_S}]+[\r\n]*|{_BLANKS}",
    )
)

_KINDS: dict[PreTokenizer, str] = {
    PreTokenizer(
        (rf"[{_P}$+<=>^~|]+", _GPT2, rf"{_N}+", "[0-9][0-9][0-9]"),
    ): "default",
    _GPT2_KIND: "gpt-2 phi-2 jina-es jina-de gigachat jina-v2-es jina-v2-de a.x-4.0 mellum modern-bert exaone4 "
    "jina-v1-en jina-v2-code roberta-bpe mpt olmo jais trillion granite-docling",
    _LLAMA3_KIND: "llama-bpe llama3 llama-v3 falcon3 falcon-h1 pixtral midm-2.0 lfm2 jina-v5-nano",
    PreTokenizer((_LLAMA3,)): "dbrx smaug-bpe chatglm-bpe",
    PreTokenizer((_LLAMA3,), whole_words=True): "glm4 glm5",
    _QWEN2_KIND: "qwen2 deepseek-r1-qwen kormo f2llmv2 megrez stablelm2 hunyuan grok-2 solar-open",
    PreTokenizer((_QWEN35,)): "qwen35",
    _DIGITS_GPT2_KIND: "smollm starcoder refact command-r codeshell exaone minerva-7b mellum2",
    PreTokenizer((rf"[{_P}$+<=>^~|`]+", _GPT2, "[0-9][0-9][0-9]")): "falcon",
    _GPT4O_KIND: "gpt-4o llama4 kanana2 talkie minimax-m2",
    PreTokenizer((rf"{_CASED}|{_N}|{_CASED_SIGNS}|{_BLANKS}",), whole_words=True, adds_bos=True): "tekken",
    PreTokenizer(
        (
            r"[\r\n]",
            rf"\s?[{_DEEPSEEK_LETTERS}]+",
            # llama.cpp reads U+3000 as a blank, so it is none of the signs.
            r"\s?[!-/:-~！-／：-～‘-‟、。]+",
            r"\s+\z",
            _DEEPSEEK_CJK,
            rf"{_N}+",
        )
    ): "deepseek-llm",
    PreTokenizer((r"[\r\n]", rf"\s?{_L}+", rf"\s?{_P}+", _DEEPSEEK_CJK, _N)): "deepseek-coder",
    _DEEPSEEK3_KIND: "deepseek-v3 hunyuan-dense joyai-llm hy_v4",
    PreTokenizer((rf"{_N}{{1,3}}", rf"{_CONTRACTION}|{_WORD}|{_N}+|{_SIGNS}|{_BLANKS}"), whole_words=True): "minicpm5",
    PreTokenizer(
        (rf"'(?:[sSdDmMtT]|[lL][lL]|[vV][eE]|[rR][eE])|{_WORD}|{_N}|{_SIGNS}|\s*[\r\n]|\s+(?!\S)|\s+",)
    ): "bailingmoe bailingmoe2 llada-moe",
    PreTokenizer((rf"{_CONTRACTION}|{_WORD}|{_N}| ?[^\s{_L}{_N}\r\n]+|{_BLANKS}",)): "seed-coder",
    PreTokenizer((_EXCEPT_SIGNS,)): "poro-chat bloom gpt3-finnish",
    PreTokenizer((_EXCEPT_SIGNS, _N)): "viking",
}

PRE_TOKENIZERS: dict[str, PreTokenizer] = {name: kind for kind, names in _KINDS.items() for name in names.split()}
