"""Mutations of an index of shards: names that lead out of the folder, name no file, or another tensor's file."""

from __future__ import annotations

import json
from random import Random

from .interesting import JSON_VALUES
from .plain_bytes import Mutation

NAMES = [
    "../outside.safetensors", "/etc/passwd", "/dev/zero", "..", ".", "", "a/b.safetensors", "..\\outside.safetensors",
    "C:\\outside.safetensors", "config.json", "tokenizer.json", "nobody.safetensors", "\0.safetensors", "x" * 300,
    "model.safetensors.index.json", "~/model.safetensors", "file:///", "model-00001-of-00003.safetensors ",
    "\ud800.safetensors", "我.safetensors", "\x1b[31m.safetensors",
]  # fmt: skip


def names_of_shards(random: Random, data: bytes) -> bytes:
    document = json.loads(data)
    shards: dict = document["weight_map"]
    tensor = random.choice(list(shards))
    how = random.choice(["name", "name", "other", "tensor", "none", "all"])
    if how == "name":
        shards[tensor] = random.choice([*NAMES, *JSON_VALUES])
    elif how == "other":
        shards[tensor] = random.choice(list(shards.values()))
    elif how == "tensor":
        shards[random.choice(["nobody.weight", "", "\x1b[31m"])] = shards[tensor]
    elif how == "none":
        del shards[tensor]
    else:
        document["weight_map"] = dict.fromkeys(shards, random.choice(NAMES))
    return json.dumps(document).encode()


MUTATIONS: dict[str, Mutation] = {"names_of_shards": names_of_shards, "more_names_of_shards": names_of_shards}
