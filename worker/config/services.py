"""The keys of what stands beside a worker and its models: its log, and the schema registry."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from worker.config import values as kinds
from worker.config.keys import Decides, key


@dataclass(frozen=True, slots=True, kw_only=True)
class Logging:
    """What is written to stderr."""

    format: Literal["auto", "human", "json"] = field(
        default="auto",
        metadata=key(
            kinds.choice("auto", "human", "json"),
            "How a line looks: human, a sentence; json, an object; auto: human on a terminal, else json.",
            Decides.NOTHING,
        ),
    )


@dataclass(frozen=True, slots=True, kw_only=True)
class SchemaRegistry:
    """The Confluent Schema Registry of the codecs avro and json-schema."""

    url: str | None = field(
        default=None,
        # A schema is part of the input: any registry that has it is as good as another one.
        metadata=key(
            kinds.optional(kinds.http_folders()),
            "Where it answers; several URLs with commas. Null: there is none.",
            Decides.NOTHING,
        ),
    )
    user_info: str | None = field(
        default=None,
        repr=False,
        metadata=key(
            kinds.optional(kinds.secret(r"(?s)[^:]+:.*", "user:password")),
            "user:password of HTTP basic authentication.",
            Decides.NOTHING,
        ),
    )
    ca_location: str | None = field(
        default=None,
        metadata=key(
            kinds.optional(kinds.text(r"(?s).+", "the path of a file")),
            "File of the certificates that vouch for it; with null those that Python trusts.",
            Decides.NOTHING,
        ),
    )
    timeout_s: float = field(
        default=2.0,
        metadata=key(
            kinds.duration("1ms", "1m"),
            "Longest wait for it; records wait in their partition then.",
            Decides.NOTHING,
            name="timeout",
        ),
    )
    auto_register: bool = field(
        default=True,
        metadata=key(
            kinds.boolean(),
            "Whether the schema of the predictions is registered; otherwise it must be there already.",
            Decides.NOTHING,
        ),
    )
    on_unknown: Literal["wait", "dead-letter"] = field(
        default="wait",
        metadata=key(
            kinds.choice("wait", "dead-letter"),
            "What a record does whose schema is not registered: wait holds its partition until it is; dead-letter "
            "rejects it, though a replay after the registration learns it.",
            Decides.INTAKE,
        ),
    )
