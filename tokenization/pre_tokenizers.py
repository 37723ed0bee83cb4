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
    r"A-Za-z\x{B5}\x{C0}-\x{D6}\x{D8}-\x{F6}\x{F8}-\x{1BA}\x{1BC}-\x{1BF}\x{1C4}-\x{293}\x{295}-\x{2AF}"
    r"\x{370}-\x{373}\x{376}\x{377}\x{37B}-\x{37D}\x{37F}\x{386}\x{388}-\x{38A}\x{38C}\x{38E}-\x{3A1}"
    r"\x{3A3}-\x{3F5}\x{3F7}-\x{481}\x{48A}-\x{52F}\x{531}-\x{556}\x{10A0}-\x{10C5}\x{13A0}-\x{13F5}"
    r"\x{13F8}-\x{13FD}\x{1C90}-\x{1CBA}\x{1CBD}-\x{1CBF}\x{1D00}-\x{1D2B}\x{1D6B}-\x{1D77}\x{1D79}-\x{1D9A}"
    r"\x{1E00}-\x{1F15}\x{1F18}-\x{1F1D}\x{1F20}-\x{1F45}\x{1F48}-\x{1F4D}\x{1F50}-\x{1F57}\x{1F59}\x{1F5B}"
    r"\x{1F5D}\x{1F5F}-\x{1F7D}\x{1F80}-\x{1FB4}\x{1FB6}-\x{1FBC}\x{1FBE}\x{1FC2}-\x{1FC4}\x{1FC6}-\x{1FCC}"
    r"\x{1FD0}-\x{1FD3}\x{1FD6}-\x{1FDB}\x{1FE0}-\x{1FEC}\x{1FF2}-\x{1FF4}\x{1FF6}-\x{1FFC}\x{2102}\x{2107}"
    r"\x{210A}-\x{2113}\x{2115}\x{2119}-\x{211D}\x{2124}\x{2126}\x{2128}\x{212A}-\x{212D}\x{212F}-\x{2134}\x{2139}"
    r"\x{213C}-\x{213F}\x{2145}-\x{2149}\x{214E}\x{2183}\x{2184}\x{2C00}-\x{2C7B}\x{2C7E}-\x{2CE4}"
    r"\x{2CEB}-\x{2CEE}\x{2CF2}\x{2CF3}\x{A640}-\x{A66D}\x{A680}-\x{A69B}\x{A722}-\x{A76F}\x{A771}-\x{A787}"
    r"\x{A78B}-\x{A78E}\x{AB70}-\x{ABBF}\x{FB00}-\x{FB06}\x{FB13}-\x{FB17}\x{FF21}-\x{FF3A}\x{FF41}-\x{FF5A}"
    r"\x{10400}-\x{1044F}\x{104B0}-\x{104D3}\x{104D8}-\x{104FB}\x{10C80}-\x{10CB2}\x{10CC0}-\x{10CF2}"
    r"\x{118A0}-\x{118DF}\x{1E900}-\x{1E943}"
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
