"""The configuration as frozen typed values. Each key is declared here once: type, default, bound and a sentence.

`worker.config` reads and writes these classes by the declarations alone, so a new key is a new field here and a line
in config/worker.yaml. Defaults exist nowhere else, apart from the Kafka properties' in `worker.config.kafka`.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields, replace
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Literal

from worker.config import kafka as config_kafka
from worker.config import values as kinds
from worker.config.values import Address, ClassValue, Kind


@dataclass(frozen=True, slots=True)
class Section:
    """A mapping whose keys are the declared fields of a class."""

    expected: ClassVar[str] = "a mapping"
    type: type[Any]


class Properties:
    """A mapping of Kafka properties."""

    expected = "a mapping"


class OverrideList:
    """A list of mappings, each with some of OVERRIDE_KEYS."""

    expected = "a list of overrides"


@dataclass(frozen=True, slots=True)
class Key:
    """The declaration of one key; `default` is dataclasses.MISSING where it must be given."""

    attribute: str
    kind: Kind[Any] | Section | Properties | OverrideList
    sentence: str
    default: object


def key(kind: object, sentence: str, *, name: str | None = None) -> dict[str, object]:
    """The metadata that makes a field a key. `name` is its name in the file where that is not the field's."""
    return {"kind": kind, "sentence": sentence, "name": name}


def section(section_type: type[Any]) -> dict[str, object]:
    return key(Section(section_type), str(section_type.__doc__))


def keys(section_type: type[Any]) -> dict[str, Key]:
    """The declared keys of a section by their name in the file, in order."""
    return {
        each.metadata["name"] or each.name: Key(
            each.name, each.metadata["kind"], each.metadata["sentence"], each.default
        )
        for each in fields(section_type)
        if each.metadata
    }


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the worker reads."""

    topic: str = field(metadata=key(kinds.topic_name(), "Topic of the events."))
    start: Literal["earliest", "latest"] = field(
        default="earliest",
        metadata=key(
            kinds.choice("earliest", "latest"),
            "Where a partition starts that has neither a committed offset nor a checkpoint: earliest or latest.",
        ),
    )
    tombstones: Literal["dead-letter", "reset"] = field(
        default="dead-letter",
        metadata=key(
            kinds.choice("dead-letter", "reset"),
            "What a record without a value does: dead-letter rejects it, reset starts its model anew.",
        ),
    )
    max_bytes: int = field(
        default=1_000_000,
        metadata=key(kinds.size("1B", "1GB"), "Largest record value that is taken; a larger one is a dead letter."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the worker writes."""

    topic: str = field(metadata=key(kinds.topic_name(), "Topic of the predictions."))


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Where records go that cannot be used."""

    topic: str = field(metadata=key(kinds.topic_name(), "Topic of the unusable records, with the reason in headers."))
    max_consecutive: int = field(
        default=1000,
        metadata=key(
            kinds.integer(1, 1_000_000_000),
            "A partition with more dead letters in a row than this stops: by then the input itself is wrong.",
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelParams:
    """The parameters of one model's forest; each of them is part of what determines its state."""

    algorithm: Literal["amf-classifier"] = field(
        default="amf-classifier", metadata=key(kinds.choice("amf-classifier"), "The learner: amf-classifier.")
    )
    n_estimators: int = field(
        default=10, metadata=key(kinds.integer(1, 1000), "Trees of a forest; time and memory grow in proportion.")
    )
    seed: int = field(
        default=0,
        metadata=key(kinds.integer(0, 2**63 - 1), "A model's random stream depends on this and its key alone."),
    )
    classes: Literal["auto"] | tuple[ClassValue, ...] = field(
        default="auto",
        metadata=key(kinds.classes(), "The classes, or auto: each is taken in when its first label comes."),
    )
    features: Literal["auto"] | int | tuple[str, ...] = field(
        default="auto",
        metadata=key(
            kinds.features(100_000),
            "An array's length, a list of an object's names, or auto: what the labelled records bring.",
        ),
    )
    scaling: Literal["auto", "none"] = field(
        default="auto",
        metadata=key(kinds.choice("auto", "none"), "auto weights features by their robust spread, none leaves them."),
    )
    max_bytes: int = field(
        default=64_000_000,
        metadata=key(
            kinds.size("64KB", "1000GB"), "Memory of one forest; at this size it stops splitting and goes on counting."
        ),
    )
    max_classes: int = field(
        default=1000,
        metadata=key(kinds.integer(2, 65_536), "Most classes that auto takes in; a label beyond is a dead letter."),
    )
    max_features: int = field(
        default=10_000,
        metadata=key(kinds.integer(1, 100_000), "Most features that auto takes in; a record beyond is a dead letter."),
    )
    prior: Literal["parent", "dirichlet"] = field(
        default="parent",
        metadata=key(
            kinds.choice("parent", "dirichlet"),
            "What smooths a node's class counts: its parent's forecast, or the dirichlet prior of the papers.",
        ),
    )
    dirichlet: float | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.positive_number()),
            "With prior: dirichlet, the pseudo-count of each class; null chooses it by the number of classes.",
        ),
    )
    smoothing: float = field(
        default=0.4,
        metadata=key(
            kinds.positive_number(),
            "With prior: parent, its weight in samples, times the square of the number of classes a node has seen.",
        ),
    )
    split_pure: bool = field(
        default=False, metadata=key(kinds.boolean(), "Whether a leaf is split whose samples are all of one class.")
    )


@dataclass(frozen=True, slots=True)
class Override:
    """Other parameters for the models whose key matches."""

    match: str = field(
        metadata=key(kinds.text(r"(?s).+", "a glob pattern such as fraud-*"), "Glob pattern of model keys.")
    )
    params: Mapping[str, Any]
    """Some fields of ModelParams with their values."""


OVERRIDE_KEYS: Mapping[str, Key] = {**keys(Override), **keys(ModelParams)}


@dataclass(frozen=True, slots=True, kw_only=True)
class Models:
    """Which forest a model key gets."""

    default: ModelParams = field(metadata=section(ModelParams))
    overrides: tuple[Override, ...] = field(
        default=(),
        metadata=key(
            OverrideList(),
            "Exceptions: a glob pattern of model keys under match, beside the parameters that differ; later ones win.",
        ),
    )
    null_key: str | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.text(r"(?s).+", "the name of a model")),
            "Model of the records without a key; with null they are dead letters.",
        ),
    )
    on_spec_change: Literal["fail", "restart"] = field(
        default="fail",
        metadata=key(
            kinds.choice("fail", "restart"),
            "What becomes of a model saved with other parameters: fail refuses it, restart starts it anew.",
        ),
    )

    def params_for(self, model_key: str) -> ModelParams:
        """The parameters of one model: the default with every matching override applied in order."""
        params = self.default
        for override in self.overrides:
            if fnmatchcase(model_key, override.match):
                params = replace(params, **override.params)
        return params


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often models are saved."""

    url: str = field(
        repr=False,
        metadata=key(
            kinds.store_url(),
            "Folder of the checkpoints: file:///folder, s3://bucket/folder, gs://..., az://... or memory://.",
        ),
    )
    interval_s: float = field(
        default=30.0,
        metadata=key(
            kinds.duration("1ms", "168h"),
            "Longest time between two checkpoints of a partition; what came since is replayed after a crash.",
            name="interval",
        ),
    )
    lineage: str = field(
        default="main",
        metadata=key(kinds.folder_name(), "Name of this history of the models; under a new one they all start anew."),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server of the metrics."""

    listen: Address = field(
        default=Address("127.0.0.1", 9464),
        metadata=key(kinds.address(), "Address of the metrics; with port 0 any free port, printed at start."),
    )

    @property
    def host(self) -> str:
        return self.listen.host

    @property
    def port(self) -> int:
        return self.listen.port


@dataclass(frozen=True, slots=True, kw_only=True)
class Config:
    """The whole configuration."""

    input: Input = field(metadata=section(Input))
    output: Output = field(metadata=section(Output))
    dead_letter: DeadLetter = field(metadata=section(DeadLetter))
    delivery: Literal["exactly-once", "at-least-once"] = field(
        default="exactly-once",
        metadata=key(
            kinds.choice("exactly-once", "at-least-once"),
            "exactly-once: outputs and offsets are one transaction; at-least-once: a crash may repeat outputs.",
        ),
    )
    kafka: Mapping[str, str] = field(
        repr=False,
        metadata=key(
            Properties(), "librdkafka's properties, passed on as they are; those that the guarantees need are reserved."
        ),
    )
    """The user's over our defaults. A client takes what the methods below give."""
    models: Models = field(metadata=section(Models))
    checkpoint: Checkpoint = field(metadata=section(Checkpoint))
    metrics: Metrics = field(metadata=section(Metrics))

    def consumer_properties(self) -> dict[str, str]:
        """For the worker's consumer: cooperative, read_committed, without offset commits of its own."""
        return config_kafka.for_consumer(self.kafka)

    def producer_properties(self, transactional_id: str | None = None) -> dict[str, str]:
        """For an idempotent producer, which is transactional where an id is given."""
        return config_kafka.for_producer(self.kafka, transactional_id)

    def admin_properties(self) -> dict[str, str]:
        """For an admin client: only what consumers and producers share."""
        return config_kafka.for_admin(self.kafka)


def plain(config: Any) -> dict[str, Any]:
    """A section as plain values by the names of its keys: defaults included, secrets masked."""
    return {name: _plain(each.kind, getattr(config, each.attribute)) for name, each in keys(type(config)).items()}


def _plain(kind: object, value: Any) -> Any:
    match kind:
        case Kind():
            return kind.dump(value)
        case Properties():
            return config_kafka.masked(value)
        case OverrideList():
            return [_plain_override(override) for override in value]
        case _:
            return plain(value)


def _plain_override(override: Override) -> dict[str, Any]:
    given = {"match": override.match, **override.params}
    return {
        name: _plain(each.kind, given[each.attribute])
        for name, each in OVERRIDE_KEYS.items()
        if each.attribute in given
    }
