"""What is tried: which model, which of its files, how it is mutated, and what is then done with it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import PurePath
from random import Random

from . import gguf, json_values, large, plain_bytes, safetensors_header, shard_index, tokenizer_json
from .plain_bytes import Mutation
from .seeds import SeedModel

PROMPTS = ["the ring", "", "the king 我爱你 <|im_start|>\n", "a" * 300]
LARGE_ONE_IN = 5000  # files of tens of megabytes, that are written and read for seconds
FIRST_LARGE = 1_000_000_000  # cases from this number on are all of these
PLAIN_ONE_IN = 5  # bytes changed without regard to the format


@dataclass(frozen=True)
class Case:
    """A seed model with one file changed. mutations: by name. on_cpu: after the numpy backend, the cpu one too."""

    number: int
    model: SeedModel
    file: str
    content: bytes
    mutations: tuple[str, ...]
    use: str
    prompt: str
    on_cpu: bool

    def __str__(self) -> str:
        return f"case {self.number}: {self.model.name}, {self.file}: {', '.join(self.mutations)}; {self.use}"


def mutations_for(file: str) -> dict[str, Mutation]:
    """Those that know the file's format."""
    if PurePath(file).suffix == ".gguf":
        return gguf.MUTATIONS
    if PurePath(file).suffix == ".safetensors":
        return safetensors_header.MUTATIONS
    if file == "tokenizer.json":
        return json_values.MUTATIONS | tokenizer_json.MUTATIONS
    if file.endswith(".index.json"):
        return json_values.MUTATIONS | shard_index.MUTATIONS
    return json_values.MUTATIONS


def make_case(seed: int, number: int, models: list[SeedModel]) -> Case:
    """The case of this number: the same one for the same seed."""
    random = Random(f"{seed} {number}")
    model = random.choice(models)
    file = random.choice(list(model.files))
    content, prompt = model.files[file], random.choice(PROMPTS)
    use = model.uses[0] if random.random() < 0.85 else model.uses[-1]
    on_cpu = random.random() < 0.3
    if number >= FIRST_LARGE or random.randrange(LARGE_ONE_IN) == 0:
        name = random.choice(large.names_for(file))
        return Case(number, model, file, large.LARGE[name](random, content), (name,), use, prompt, on_cpu)
    names = []
    if random.randrange(PLAIN_ONE_IN):
        known = mutations_for(file)
        names.append(random.choice(list(known)))
        content = known[names[0]](random, content)
    while not names or random.random() < 0.05:
        names.append(random.choice(list(plain_bytes.MUTATIONS)))
        content = plain_bytes.MUTATIONS[names[-1]](random, content)
    return Case(number, model, file, content, tuple(names), use, prompt, on_cpu)
