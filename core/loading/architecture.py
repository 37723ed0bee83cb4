"""What an architecture is: tables that say how its models lie in each source format, and one recipe of its blocks.

A plugin registers a class:

    class Llama(Architecture):
        name = "llama"
        recipe = {"norm": "rms", "gated": True}     # fields of ModelConfig that never differ
        hf = SourceTable(...)                       # directories with config.json and safetensors
        gguf = SourceTable(...)

A family that differs in little derives its tables: ``replace(Llama.hf, names=("mine",))``, `dataclasses.replace`.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field, fields
from typing import Any, ClassVar

from ringlet.core.config import ModelConfig
from ringlet.core.errors import FormatError, PluginError
from ringlet.core.formats.tensor import StoredTensor
from ringlet.core.loading.common_names import ACTIVATIONS
from ringlet.core.loading.config_reader import REQUIRED, ConfigReader
from ringlet.core.loading.layers import Layers
from ringlet.core.weights import LayerWeights, ModelWeights

Fields = dict[str, Any]  # ModelConfig's fields by name, as far as they are known

WHOLE_FIELDS = ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v", "d_ff", "d_vocab", "n_layers", "context_length")
NUMBER_FIELDS = ("norm_epsilon", "score_scale", "embedding_scale", "score_soft_cap", "logit_soft_cap")
FLAG_FIELDS = ("tied", "gated", "post_norms", "qk_norm", "learned_positions")
NEEDED_SIZES = ("d_model", "n_heads", "d_ff", "n_layers", "context_length")
NULLABLE_FIELDS = ("n_kv_heads", "d_k", "score_soft_cap", "logit_soft_cap")  # null is not the default, but "none given"
READABLE_FIELDS = (*WHOLE_FIELDS, *NUMBER_FIELDS, *FLAG_FIELDS, "activation")
WEIGHT_NAMES = {item.name for kind in (LayerWeights, ModelWeights) for item in fields(kind)} - {"layers"} | {
    "rope_factors"
}


@dataclass(frozen=True)
class Key:
    """A configuration's key whose number is not the field's own: `convert` makes it so."""

    name: str
    convert: Callable[[Any], Any]


@dataclass(frozen=True)
class SourceTable:
    """How the models of one architecture lie in one source format.

    names: what config.json's model_type, or GGUF's general.architecture, calls it.
    keys: ModelConfig's fields → the key that says them.
    defaults: what a configuration that omits the key means: a value, or a function of the fields so far. What stands
        neither here nor in the recipe nor has a default in ModelConfig must be there.
    weights: our names (fields of ModelWeights and LayerWeights, and "rope_factors") → the tensor's name, "{layer}" its
        number. Several names, "W_q W_k W_v", share the tensor's rows in that order.
    section: the object in config.json under which the keys stand, where the language model is a part of the whole.
    prefixes: what may stand before the tensors' names.
    layers: reads windows and RoPE.
    biases: those that every model has; switched_biases: those that a true flag in the configuration adds, by its key;
        optional_biases: those that a model has if the file has them.
    transposed: weights stored with the inputs first.
    norm_offset: what to add to the norms' stored weights.
    required: flags → the one value that is supported, which is also what a missing key means.
    harmless_keys, harmless_tensors: patterns of what does not change the result.
    """

    names: tuple[str, ...]
    keys: Mapping[str, str | Key]
    weights: Mapping[str, str]
    layers: Layers
    defaults: Mapping[str, Any] = field(default_factory=dict)
    section: str | None = None
    prefixes: tuple[str, ...] = ()
    biases: str = ""
    switched_biases: Mapping[str, str] = field(default_factory=dict)
    optional_biases: str = ""
    transposed: str = ""
    norm_offset: float = 0.0
    required: Mapping[str, bool] = field(default_factory=dict)
    harmless_keys: tuple[str, ...] = ()
    harmless_tensors: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        self._check("keys", self.keys, READABLE_FIELDS)
        self._check("defaults", self.defaults, READABLE_FIELDS)
        self._check("weights", " ".join(self.weights).split(), WEIGHT_NAMES)
        for table in (self.biases, self.optional_biases, self.transposed, *self.switched_biases.values()):
            self._check("biases or transposed", table.split(), " ".join(self.weights).split())

    def find(self, name: str, tensors: Mapping[str, StoredTensor]) -> StoredTensor | None:
        """The tensor of this name, with one of the prefixes or without; None where there is none."""
        found = (tensors.get(prefix + name) for prefix in (*self.prefixes, ""))
        return next((tensor for tensor in found if tensor is not None), None)

    def _check(self, table: str, names: Collection[str], known: Collection[str]) -> None:
        unknown = sorted(set(names) - set(known))
        if unknown:
            raise PluginError(
                f"architecture {self.names[0]}: {table} knows no {unknown[0]!r}, only {', '.join(sorted(known))}"
            )


class Architecture:
    """Base of every architecture. A plugin registers the class; it is never made an instance of.

    name: what `ModelConfig.architecture` says. recipe: fields of ModelConfig that never differ.
    origin: the plugin it comes from; None for a built-in one, and for one that was not registered.
    """

    name: ClassVar[str]
    origin: ClassVar[str | None] = None
    recipe: ClassVar[Mapping[str, Any]] = {}
    hf: ClassVar[SourceTable | None] = None
    gguf: ClassVar[SourceTable | None] = None

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        known = {item.name for item in fields(ModelConfig)} - {"architecture", "layers"}
        unknown = sorted(set(cls.recipe) - known)
        if unknown:
            raise PluginError(
                f"architecture {cls.__name__}: recipe knows no {unknown[0]!r}, only {', '.join(sorted(known))}"
            )
        for format in ("hf", "gguf"):
            if not isinstance(getattr(cls, format), (SourceTable, type(None))):
                raise PluginError(f"architecture {cls.__name__}: {format} must be a SourceTable or None")


def read_config(
    architecture: type[Architecture], table: SourceTable, config: ConfigReader, tensors: Mapping[str, StoredTensor]
) -> tuple[ModelConfig, set[str]]:
    """The model's sizes and recipe, and the names of the biases it has.

    The tensors bound the sizes, so that a hostile configuration costs no memory, and give d_vocab.
    Raises FormatError.
    """
    for key, supported in table.required.items():
        if config.flag(key, supported) != supported:
            config.refuse(key, f"only {str(supported).lower()} is supported")
    known: Fields = dict(architecture.recipe)
    read_fields(WHOLE_FIELDS, table, config, known)
    complete_sizes(known, config, table, tensors)
    read_fields((*NUMBER_FIELDS, *FLAG_FIELDS, "activation"), table, config, known)
    known.setdefault("score_scale", known["d_k"] ** -0.5)
    # A W_t of the file's own is the one to use, whatever the configuration says.
    known["tied"] = known.get("tied", True) and find_tensor("W_t", None, table, tensors) is None
    biases = set(table.biases.split())
    for key, names in table.switched_biases.items():
        if config.flag(key, False):
            biases.update(names.split())
    biases.update(name for name in table.optional_biases.split() if find_tensor(name, 0, table, tensors))
    factors = find_tensor("rope_factors", None, table, tensors)
    known["layers"] = table.layers.read(config, known, factors.vector() if factors else None)
    try:
        return ModelConfig(architecture=architecture.name, **known), biases
    except FormatError as error:
        raise FormatError(f"{config.file}: {error}") from None


def read_fields(names: Collection[str], table: SourceTable, config: ConfigReader, known: Fields) -> None:
    """Adds those of the named fields that have a key or a default in the table."""
    for name in names:
        default = table.defaults.get(name, REQUIRED if name in NEEDED_SIZES else None)
        if callable(default):
            default = default(known)
        entry = table.keys.get(name)
        value = default if entry is None else read_field(name, entry, config, default)
        if value is REQUIRED:
            raise PluginError(f"architecture {table.names[0]}: {name} has neither a key nor a default")
        if value is not None:
            known[name] = value


def read_field(name: str, entry: str | Key, config: ConfigReader, default: Any) -> Any:
    """One field of ModelConfig from the key that says it."""
    if isinstance(entry, Key):
        return entry.convert(config.number(entry.name)) if config.has(entry.name) else config.value(entry.name, default)
    if config.is_null(entry) and name in NULLABLE_FIELDS:
        default = None
    if name == "activation":
        return config.choice(entry, ACTIVATIONS, default)
    if name in FLAG_FIELDS:
        return config.flag(entry, default)
    return config.number(entry, default) if name in NUMBER_FIELDS else config.whole(entry, default)


def complete_sizes(
    known: Fields, config: ConfigReader, table: SourceTable, tensors: Mapping[str, StoredTensor]
) -> None:
    """Fills in the sizes that follow from others, and holds every size against the tensors."""
    embedding = find_tensor("embedding", None, table, tensors)
    if embedding is None:
        raise FormatError(f"{config.file}: the tensor {table.weights['embedding']} is missing")
    rows = embedding.shape[0] if embedding.shape else 0
    if known.setdefault("d_vocab", rows) != rows:
        raise FormatError(f"{config.file}: the vocabulary is {known['d_vocab']}, but {embedding.name} has {rows} rows")
    known.setdefault("n_kv_heads", known["n_heads"])
    if "d_k" not in known:
        if known["d_model"] % known["n_heads"]:
            raise FormatError(
                f"{config.file}: d_model {known['d_model']} is not a multiple of {known['n_heads']} heads, "
                "and no d_k is given"
            )
        known["d_k"] = known["d_model"] // known["n_heads"]
    known.setdefault("d_v", known["d_k"])
    largest = max(max(tensor.shape, default=0) for tensor in tensors.values())
    for name in ("d_model", "n_heads", "n_kv_heads", "d_k", "d_v", "d_ff"):
        if known[name] > largest:
            raise FormatError(
                f"{config.file}: {name} is {known[name]}, but no tensor has a side of more than {largest}"
            )
    if known["n_layers"] > len(tensors):
        raise FormatError(f"{config.file}: {known['n_layers']} layers, but only {len(tensors)} tensors")


def find_tensor(
    name: str, layer: int | None, table: SourceTable, tensors: Mapping[str, StoredTensor]
) -> StoredTensor | None:
    """The tensor that holds this weight alone; None where there is none."""
    pattern = table.weights.get(name)
    return table.find(pattern.format(layer=layer), tensors) if pattern else None
