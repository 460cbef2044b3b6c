"""The configuration as frozen typed values. Each key is declared here once: type, default, bound, a
sentence, and what it decides.

`worker.config` reads and writes these classes by the declarations alone, so a new key is a new field here and a line
in config/worker.yaml. Defaults exist nowhere else, apart from the Kafka properties' in `worker.config.kafka` and the
forests' in `amf`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from functools import cached_property, lru_cache
from typing import Literal, TypeAlias, get_args

from worker.config import kafka as config_kafka
from worker.config import values as kinds
from worker.config.keys import Decides, OverrideList, Properties, key, section
from worker.config.model import ModelParams, Override
from worker.config.services import Logging, SchemaRegistry
from worker.config.values import Address

Codec: TypeAlias = Literal["json", "msgpack", "avro", "json-schema"]
REGISTRY_CODECS = frozenset({"avro", "json-schema"})
"""Those that have their schemas from the registry."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Input:
    """What the worker reads."""

    topic: str = field(metadata=key(kinds.topic_name(), "Topic of the events.", Decides.HISTORY))
    start: Literal["earliest", "latest"] = field(
        default="earliest",
        metadata=key(
            kinds.choice("earliest", "latest"),
            "Where a partition starts that has neither a committed offset nor a checkpoint: earliest or latest; one "
            "that was added to the topic later is read from its beginning. Under `repartition` the internal topic "
            "always is.",
            Decides.HISTORY,
        ),
    )
    tombstones: Literal["dead-letter", "reset"] = field(
        default="dead-letter",
        metadata=key(
            kinds.choice("dead-letter", "reset"),
            "What a record without a value does: dead-letter rejects it, reset starts its model anew.",
            Decides.INTAKE,
        ),
    )
    max_bytes: int = field(
        default=1_000_000,
        metadata=key(
            kinds.size("1B", "1GB"),
            "Largest record value that is taken; a larger one is a dead letter.",
            Decides.INTAKE,
        ),
    )
    codec: Codec = field(
        default="json",
        metadata=key(
            kinds.choice(*get_args(Codec)),
            "How values are written: json, msgpack, or avro and json-schema with schemas from schema_registry. Another "
            "one changes the specs of all models.",
            Decides.INTAKE,
        ),
    )
    model_key: str = field(
        default="key",
        metadata=key(
            kinds.model_key(),
            "What names an event's model: key, the record's; or field:NAME, which needs repartition: true.",
            Decides.INTAKE,
        ),
    )
    repartition: bool = field(
        default=False,
        metadata=key(
            kinds.boolean(),
            "Whether events pass through a topic <group.id>--<topic>-repartition that is keyed by model.",
            Decides.HISTORY,
        ),
    )
    on_gap: Literal["fail", "accept"] = field(
        default="fail",
        metadata=key(
            kinds.choice("fail", "accept"),
            "What retention that passed a checkpoint does: fail stops the partition, accept goes on without the "
            "lost records under a lineage of its own.",
            Decides.HISTORY,
        ),
    )
    on_rewind: Literal["fail", "accept"] = field(
        default="fail",
        metadata=key(
            kinds.choice("fail", "accept"),
            "What a group offset before the newest checkpoint does: fail stops the partition (delivery: exactly-once), "
            "accept predicts the records in between a second time.",
            Decides.NOTHING,
        ),
    )
    on_repartition: Literal["fail", "new-models"] = field(
        default="fail",
        metadata=key(
            kinds.choice("fail", "new-models"),
            "What partitions that are added to the topic do: fail stops the worker, new-models lets the keys that "
            "move start anew.",
            Decides.HISTORY,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Output:
    """What the worker writes."""

    topic: str = field(metadata=key(kinds.topic_name(), "Topic of the predictions.", Decides.NOTHING))
    codec: Codec = field(
        default="json",
        metadata=key(kinds.choice(*get_args(Codec)), "How predictions are written, as input.codec.", Decides.NOTHING),
    )
    explain: int = field(
        default=0,
        metadata=key(
            kinds.integer(0, 100),
            "How many of the features that moved a forecast most are published with it. Each labelled event then takes "
            "a call of its own: up to ten times the time.",
            Decides.NOTHING,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Transaction:
    """How many records are published together: more of them cost less, fewer arrive sooner."""

    interval_s: float = field(
        default=0.1,
        metadata=key(
            kinds.duration("1ms", "10s"),
            "Longest time that records are gathered for one transaction.",
            Decides.NOTHING,
            name="interval",
        ),
    )
    max_records: int = field(
        default=10_000,
        metadata=key(
            kinds.integer(1, 100_000), "Most records of one transaction, which ends after 32 MB, too.", Decides.NOTHING
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class DeadLetter:
    """Where records go that cannot be used."""

    topic: str = field(
        metadata=key(kinds.topic_name(), "Topic of the unusable records, with the reason in headers.", Decides.NOTHING)
    )
    max_consecutive: int = field(
        default=1000,
        metadata=key(
            kinds.integer(1, 1_000_000_000),
            "A partition with more dead letters in a row than this stops: by then the input itself is wrong.",
            Decides.NOTHING,
        ),
    )


@dataclass(frozen=True, kw_only=True)
class Models:
    """Which forest a model key gets."""

    default: ModelParams = field(metadata=section(ModelParams))
    overrides: tuple[Override, ...] = field(
        default=(),
        metadata=key(
            OverrideList(),
            "Exceptions: a glob pattern of model keys under match, beside the parameters that differ; later ones win.",
            Decides.SPEC,
        ),
    )
    null_key: str | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.text(r"(?s).+", "the name of a model")),
            "Model of the records without a key; with null they are dead letters. "
            "Not with input.model_key: field:NAME.",
            Decides.INTAKE,
        ),
    )
    on_spec_change: Literal["fail", "restart"] = field(
        default="fail",
        metadata=key(
            kinds.choice("fail", "restart"),
            "What becomes of a model saved with other parameters: fail refuses it, restart starts it anew.",
            Decides.HISTORY,
        ),
    )
    max_models: int = field(
        default=1_000_000,
        metadata=key(
            kinds.integer(1, 100_000_000),
            "Most models of a partition; an event that would make one more is a dead letter.",
            Decides.INTAKE,
        ),
    )
    cache_bytes: int | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.size("1MB", "1000GB")),
            "Memory of all models of this worker; those not used for longest wait on disk. Null: no limit.",
            Decides.NOTHING,
        ),
    )
    spill: str | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.text(r"(?s)/.*", "the absolute path of a folder")),
            "Folder of the models that cache_bytes has no room for, as long as the process lives. Null: the system's.",
            Decides.NOTHING,
        ),
    )
    spill_bytes: int = field(
        default=20_000_000_000,
        metadata=key(
            kinds.size("1MB", "1000000GB"),
            "Most that lies in that folder; models beyond it come back from their checkpoint.",
            Decides.NOTHING,
        ),
    )

    threads: int = field(
        default=1,
        metadata=key(
            kinds.integer(1, 1000),
            "Threads over which the models of a batch are spread, where it has 256 events for each of them.",
            Decides.NOTHING,
        ),
    )

    @property
    def algorithms(self) -> set[str]:
        """All that a model may have."""
        return {self.default.algorithm} | {o.params["algorithm"] for o in self.overrides if "algorithm" in o.params}

    def overrides_for(self, model_key: str) -> list[Override]:
        """Those that match, in order."""
        return [override for override in self.overrides if fnmatchcase(model_key, override.match)]

    def params_for(self, model_key: str) -> ModelParams:
        """The parameters of one model: the default with every matching override applied in order."""
        if not self.overrides:
            return self.default
        matching = (i for i, override in enumerate(self.overrides) if fnmatchcase(model_key, override.match))
        return self._params_with(*matching)

    @cached_property
    def _params_with(self) -> Callable[..., ModelParams]:
        """The parameters by the overrides that match: one object for all models that have them, of the last 256."""
        return lru_cache(maxsize=256)(self._overridden)

    def _overridden(self, *matching: int) -> ModelParams:
        params = self.default
        for i in matching:
            params = replace(params, **self.overrides[i].params)
        return params


@dataclass(frozen=True, slots=True, kw_only=True)
class Checkpoint:
    """Where and how often models are saved."""

    url: str = field(
        repr=False,
        metadata=key(
            kinds.store_url(),
            "Folder of the checkpoints, one for each cluster: file:///folder, s3://bucket/folder, gs://, az:// or memory://.",
            Decides.HISTORY,
        ),
    )
    interval_s: float = field(
        default=30.0,
        metadata=key(
            kinds.duration("1ms", "168h"),
            "Longest time between two checkpoints of a partition; what came since is replayed after a crash.",
            Decides.NOTHING,
            name="interval",
        ),
    )
    recovery_budget_s: float = field(
        default=10.0,
        metadata=key(
            kinds.duration("1ms", "168h"),
            "Most time that a replay may take after a crash: checkpoints are written as often as that needs.",
            Decides.NOTHING,
            name="recovery_budget",
        ),
    )
    lineage: str = field(
        default="main",
        metadata=key(
            kinds.folder_name(),
            "Name of this history of the models; under a new one they all start anew.",
            Decides.HISTORY,
        ),
    )
    warm_start: str | None = field(
        default=None,
        repr=False,
        metadata=key(
            kinds.optional(kinds.store_url()),
            "Folder of checkpoints whose models a new history begins with, from `evaluate --save` say; null for none.",
            Decides.HISTORY,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class Metrics:
    """The HTTP server of the metrics and of the page that shows them."""

    listen: Address = field(
        default=Address("127.0.0.1", 9464),
        metadata=key(
            kinds.address(), "Address of the metrics; with port 0 any free port, printed at start.", Decides.NOTHING
        ),
    )
    token: str | None = field(
        default=None,
        repr=False,
        metadata=key(
            kinds.optional(
                kinds.secret(r"[A-Za-z0-9._~+/=-]{16,}", "16 or more of the characters A-Z a-z 0-9 . _ ~ + / = -")
            ),
            "Bearer token that all but /live, /ready and the empty page asks for. Null: none is asked for.",
            Decides.NOTHING,
        ),
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
            Decides.NOTHING,
        ),
    )
    transaction: Transaction = field(metadata=section(Transaction))
    kafka: Mapping[str, str] = field(
        repr=False,
        metadata=key(
            Properties(),
            "librdkafka's properties, passed on as they are; those that the guarantees need are reserved.",
            Decides.HISTORY,
        ),
    )
    """The user's over our defaults. A client takes what the methods below give."""
    kafka_origins: Mapping[str, config_kafka.Origin] = field(default_factory=dict, repr=False, compare=False)
    """Where the user's properties come from."""
    models: Models = field(metadata=section(Models))
    checkpoint: Checkpoint = field(metadata=section(Checkpoint))
    schema_registry: SchemaRegistry = field(metadata=section(SchemaRegistry))
    metrics: Metrics = field(metadata=section(Metrics))
    logging: Logging = field(metadata=section(Logging))

    @property
    def needs_registry(self) -> bool:
        """Whether one of the codecs has its schemas from the registry."""
        return bool({self.input.codec, self.output.codec} & REGISTRY_CODECS)

    def consumer_properties(self) -> dict[str, str]:
        """For the worker's consumer: cooperative, read_committed, without offset commits of its own."""
        return config_kafka.for_consumer(self.kafka)

    def producer_properties(self, transactional_id: str | None = None, most_bytes: int | None = None) -> dict[str, str]:
        """For an idempotent producer, transactional where an id is given; most_bytes: of a batch, by its topics."""
        return config_kafka.for_producer(self.kafka, transactional_id, most_bytes)

    def admin_properties(self) -> dict[str, str]:
        """For an admin client: only what consumers and producers share."""
        return config_kafka.for_admin(self.kafka)
