"""Options of llama.cpp, llama-bench and transformers that people type by habit, and what we have for them."""

from __future__ import annotations

from collections.abc import Collection

OTHER_NAMES = {  # ours → theirs; where several of ours have a name in common, the first that a command has
    "--model MODEL": ("-m", "--model-path", "--model-name-or-path"),
    "--model org/name": ("-hf", "--hf-repo"),
    "--context N": ("-c", "--ctx-size", "--n-ctx", "--max-length", "--max-model-len"),
    "--max-tokens N": ("-n", "--predict", "--n-predict", "--max-new-tokens", "--num-predict"),
    "--generate N": ("-n", "--n-gen"),
    "--prompt N": ("-p", "--n-prompt"),
    "--depth N": ("-d", "--n-depth"),
    "--repeat N": ("-r", "--repetitions"),
    "--threads N": ("-t",),
    "--seed N": ("-s",),
    "--stop TEXT": ("-r", "--reverse-prompt", "--stop-strings"),
    "--system TEXT": ("-sys", "--system-prompt"),
    "--template FILE": ("--chat-template", "--chat-template-file"),
    "--verbose": ("-v",),
    "--backend cuda": ("-ngl", "--gpu-layers", "--n-gpu-layers", "--gpu"),
    "--device N": ("-dev", "-mg", "--main-gpu"),
    "--kv-dtype TYPE": ("-ctk", "-ctv", "--cache-type-k", "--cache-type-v"),
    "--quantize FORMAT": ("--load-in-8bit", "--load-in-4bit", "--dtype", "--torch-dtype"),
    "--sinks N": ("--keep",),
    "--overflow slide": ("--context-shift",),
    "--parse-special": ("-sp", "--special"),
    "--n N": ("--num-return-sequences",),
    "--grammar FILE": ("--grammar-file",),
    "--json-schema FILE": ("-j", "-jf", "--json-schema-file"),
    '--strategy "beam_search(beams=…)"': ("--num-beams",),
    '--strategy "contrastive_search(penalty_alpha=…)"': ("--penalty-alpha",),
    '--sampler "temperature=…"': ("--temp", "--temperature"),
    '--sampler "top_k=…"': ("--top-k",),
    '--sampler "top_p=…"': ("--top-p",),
    '--sampler "min_p=…"': ("--min-p",),
    '--sampler "top_n_sigma=…"': ("--top-n-sigma", "--top-nsigma"),
    '--sampler "typical=…"': ("--typical", "--typical-p"),
    '--sampler "epsilon=…"': ("--epsilon-cutoff",),
    '--sampler "eta=…"': ("--eta-cutoff",),
    '--sampler "xtc=…"': ("--xtc-probability",),
    '--sampler "mirostat_v2(tau=…)"': ("--mirostat", "--mirostat-ent"),
    '--sampler "repetition_penalty=…"': ("--repeat-penalty", "--repetition-penalty"),
    '--sampler "frequency_penalty=…"': ("--frequency-penalty",),
    '--sampler "presence_penalty=…"': ("--presence-penalty",),
    '--sampler "dry=…"': ("--dry-multiplier",),
    '--sampler "no_repeat_ngram=…"': ("--no-repeat-ngram-size",),
    '--sampler "logit_bias(bias=…)"': ("-l", "--logit-bias"),
    '--sampler "min_new_tokens=…"': ("--min-new-tokens", "--min-tokens"),
    "--sampler greedy for the likeliest token, else leave it out": ("--do-sample",),
    "nothing: a text comes as it is drawn, unless --json is given": ("--stream",),
    "PROMPT itself, without an option": ("-p", "--prompt"),
    "- for PROMPT, and < FILE": ("-f", "--file"),
}
NEEDED = {  # where the option is not the first word
    "nothing: a text comes as it is drawn, unless --json is given": "--max-tokens",
    "PROMPT itself, without an option": "prompt",
    "- for PROMPT, and < FILE": "prompt",
}


def ours_for(theirs: str, names: Collection[str]) -> str | None:
    """What to write for another program's option; None where there is nothing.

    names: options of the command that it was given to, and of its arguments.
    """
    wanted = theirs.replace("_", "-")
    for ours, others in OTHER_NAMES.items():
        if wanted in others and NEEDED.get(ours, ours.partition(" ")[0]) in names:
            return ours
    return None
