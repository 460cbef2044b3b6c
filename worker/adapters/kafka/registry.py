"""Adapter to a Confluent Schema Registry, through the client and the serialisers of confluent-kafka.

Ids and GUIDs are for ever, so each schema is asked for once and what a value is follows from its bytes and its schema
alone. A schema that the registry does not have may be registered a moment later: records wait for it, since a replay
that found it there would learn what had been refused. With `schema_registry.on_unknown: dead-letter` the registry's own
word that it has no such schema is taken; everything else that is no schema (no connection, 5xx, a page of some proxy, a
refused password) is a registry that cannot be asked.
"""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Callable
from functools import partial
from typing import Any, TypeVar, cast

from worker.adapters.kafka.bounded import bound
from worker.adapters.kafka.reading import AvroReader, JsonValidator, read_as_written
from worker.adapters.kafka.vetting import Unusable
from worker.base.aside import Aside
from worker.base.errors import ConfigError, Fatal, Transient, WorkerError
from worker.base.log import printable
from worker.base.records import Reject
from worker.config import Config

T = TypeVar("T")

MAX_SCHEMAS = 10_000
"""Schemas that are remembered; the one after them makes all be asked for again."""
REST_S = 5.0
"""A registry that could not be asked is left alone for so long, and so is one that does not give a schema, with
questions for that schema: partitions that need nothing of it go on meanwhile."""
LONGEST_REST_S = 60.0
"""Longest time for which a schema is not asked for whose questions make the registry fail."""

_NO_SCHEMA = 40403
_NO_GUIDS = 404
"""What a registry says that is too old for GUIDs; it has none."""
_MAX_ID = 2**31 - 1
_RETRIABLE = frozenset({408, 429})
_STEPS = 3
"""Of a question, each of which may take `schema_registry.timeout`: the connection, the headers and the body."""
_NOBODY = (None, -1)
"""Error codes of answers that are no registry's."""


def open_registry(config: Config) -> ConfluentRegistry | None:
    """The registry that the codecs need, None where they need none. Asks nothing yet. Raises ConfigError."""
    return ConfluentRegistry(config) if config.needs_registry else None


class ConfluentRegistry:
    """See worker.base.ports.SchemaRegistry."""

    def __init__(self, config: Config) -> None:
        self._config = config.schema_registry
        self._properties = {
            "url": self._config.url,
            "timeout": self._config.timeout_s,
            # The loop tries again itself, and does other work in between.
            "max.retries": 0,
            **({} if self._config.user_info is None else {"basic.auth.user.info": self._config.user_info}),
            **({} if self._config.ca_location is None else {"ssl.ca.location": self._config.ca_location}),
        }
        self._rests_until_s = 0.0
        self._most_s = _STEPS * self._config.timeout_s * (1 + str(self._config.url).count(","))
        self._asking: Aside[Any] | None = None
        """The last question."""
        self._withheld: dict[bytes, tuple[float, int | None, str]] = {}
        """Schemas that the registry did not give: when it is asked for them again, and its code and words."""
        self._failing: dict[bytes, tuple[float, str]] = {}
        """Schemas with which the registry failed: when it is asked for them again, and why."""
        self._schemas = self._open()

    def read_avro(self, value: bytes, n: int) -> object:
        reader = self._vetted_schema(value[:n], "AVRO", AvroReader)
        if isinstance(reader, Reject):
            return reader
        try:
            return reader.datum(value[n:])
        except (MemoryError, RecursionError):
            raise  # It says nothing of the value.
        except Exception as error:
            return Reject("malformed-avro", _said("the value is not what its schema says", error))

    def check_json(self, value: bytes, n: int) -> Reject | None:
        validator = self._vetted_schema(value[:n], "JSON", JsonValidator)
        if isinstance(validator, Reject):
            return validator
        if len(value) - n > validator.most_bytes:
            expected = f"expected at most {validator.most_bytes} by a JSON Schema of so many parts"
            return Reject("too-large", f"the value has {len(value) - n} bytes, {expected}")
        try:
            problem = validator.refusal(value[n:])
        except ValueError as error:
            # Python reads no integers of thousands of digits.
            return Reject("schema-mismatch", _said("the value cannot be judged by its schema", error))
        if problem is None:
            return None
        return Reject("schema-mismatch", _line("the value is not what its schema demands", problem))

    def avro_writer(self, topic: str, schema: str, example: object) -> Callable[[object], bytes]:
        from confluent_kafka.schema_registry.avro import AvroSerializer

        def serializer() -> Any:
            return AvroSerializer(self._schemas.client, schema, conf=self._writing)

        return self._writer(topic, serializer, example)

    def json_writer(self, topic: str, schema: str) -> Callable[[object], bytes]:
        from confluent_kafka.schema_registry.json_schema import JSONSerializer

        def serializer() -> Any:
            # It is our own text already.
            return JSONSerializer(
                schema, self._schemas.client, conf={**self._writing, "validate": False}, json_encode=lambda text: text
            )

        return self._writer(topic, serializer, "{}")

    def probe(self) -> str:
        """Ask it something; returns a sentence about it. Raises WorkerError."""
        kinds = self._asked(lambda: sorted(map(str, self._schemas.client.get_schema_types())))
        return f"answers, and has schemas of the types {', '.join(kinds)}"

    @property
    def _writing(self) -> dict[str, object]:
        return {"auto.register.schemas": self._config.auto_register}

    def _writer(self, topic: str, serializer: Callable[[], Any], example: object) -> Callable[[object], bytes]:
        from confluent_kafka.serialization import MessageField, SerializationContext

        context = SerializationContext(topic, MessageField.VALUE)
        write = serializer()
        try:
            # The first call registers the schema, or looks it up; all others only write.
            self._asked(lambda: write(example, context))
        except _Refused as refused:
            auto = "true" if self._config.auto_register else "false"
            raise Fatal(
                f"the schema registry refuses the schema of predictions for subject {topic}-value "
                f"(schema_registry.auto_register is {auto}): {refused}"
            ) from None
        return lambda value: bytes(write(value, context))

    def _vetted_schema(self, frame: bytes, kind: str, vet: Callable[[str], T]) -> T | Reject:
        """What `vet` gives of the text of a schema, or why no value with this schema can be read.

        The client has the schema then, and asks for it no more. Raises Transient.
        """
        vetted = self._schemas.vetted
        if frame in vetted:
            return cast(T | Reject, vetted[frame])
        if len(vetted) >= MAX_SCHEMAS:
            self._schemas = self._open()
        by_id, client = frame[0] == 0, self._schemas.client
        number, guid = int.from_bytes(frame[1:]), str(uuid.UUID(bytes=frame[1:].rjust(16, b"\0")))
        name = f"id {number}" if by_id else f"GUID {guid}"
        if by_id and number > _MAX_ID:
            return Reject("unknown-schema", f"no schema registry has a schema of {name}")
        try:
            ask = partial(client.get_schema, number) if by_id else partial(client.get_schema_by_guid, guid)
            schema = self._given(frame, name, ask)
        except _Refused as no:
            if no.code == _NO_SCHEMA or (no.code == _NO_GUIDS and not by_id):
                return self._unknown(name)
            raise self._unanswered(str(no)) from None
        found = self._schemas.vetted[frame] = _vetted(schema, kind, vet, name)
        return found

    def _given(self, frame: bytes, name: str, ask: Callable[[], Any]) -> Any:
        """The schema that a framing names. Raises Transient, and _Refused where the registry does not give it."""
        again_s, code, said = self._withheld.get(frame, (0.0, None, ""))
        if time.monotonic() < again_s:
            raise _Refused(code, said)
        again_s, why = self._failing.get(frame, (0.0, ""))
        if time.monotonic() < again_s:
            raise Transient(why)
        self._require_rested()
        try:
            schema = self._answer(ask)
            if isinstance(schema.schema_str, str):
                return schema
            # The client remembers even that.
            self._schemas = self._open()
            raise self._resting(f"no schema in the answer for {name}")
        except Transient as error:
            self._let_others_ask(frame, str(error))
            raise
        except _Refused as no:
            # It may be registered yet, or may be read. But each question may take as long as the registry pleases, and
            # all partitions wait for the answer; and what is said of one schema says nothing of the others.
            if len(self._withheld) >= MAX_SCHEMAS:
                self._withheld.clear()
            self._withheld[frame] = time.monotonic() + REST_S, no.code, str(no)
            raise

    def _let_others_ask(self, frame: bytes, why: str) -> None:
        """Leave time for the questions of others between two with which the registry fails, and with all that do.

        It may be this schema alone with which it does, for good.
        """
        now_s = time.monotonic()
        self._failing = {each: known for each, known in self._failing.items() if known[0] > now_s and each != frame}
        rest_s = min(REST_S * (len(self._failing) + 2), LONGEST_REST_S)
        self._failing[frame] = now_s + rest_s, why

    def _unknown(self, name: str) -> Reject:
        """What becomes of a value whose schema is not registered. Raises Transient where it waits."""
        missing = f"the schema registry at {self._config.url} has no schema of {name}"
        if self._config.on_unknown == "dead-letter":
            return Reject("unknown-schema", missing)
        raise Transient(
            f"{missing}: register it, correct schema_registry.url, or make such records dead letters with "
            "schema_registry.on_unknown: dead-letter"
        )

    def _asked(self, ask: Callable[[], T]) -> T:
        """The answer of the registry, if it is not to rest. Raises Transient where there is none, _Refused where it is
        no."""
        self._require_rested()
        return self._answer(ask)

    def _require_rested(self) -> None:
        """Raises Transient where nothing is to be asked now."""
        if time.monotonic() < self._rests_until_s:
            raise Transient("the schema registry could not be asked a moment ago")
        if self._asking is not None and not self._asking.ends_within(0):
            raise self._resting("an earlier question has not come to its end")

    def _answer(self, ask: Callable[[], T]) -> T:
        """The answer of the registry. Raises Transient where there is none, _Refused where it is no.

        The client gives each piece of the headers a timeout of its own, and the look for an address none at all. What
        is not answered in time is left behind, and nothing else is asked before it has ended: there is one at most.
        """
        from confluent_kafka.schema_registry.error import SchemaRegistryError

        self._asking = asking = Aside("schema-registry", ask)
        if not asking.ends_within(self._most_s):
            raise self._resting(f"no answer in {self._most_s:g} s")
        try:
            return asking.answer()
        except SchemaRegistryError as error:
            status = error.http_status_code
            if status >= 500 or status in _RETRIABLE or error.error_code in _NOBODY:
                raise self._resting(_said(f"HTTP status {status}", error)) from None
            raise _Refused(error.error_code, _said(f"HTTP status {status}", error)) from None
        except Exception as error:
            raise self._resting(_said("no answer", error)) from None

    def _resting(self, reason: str) -> Transient:
        self._rests_until_s = time.monotonic() + REST_S
        return self._unanswered(reason)

    def _unanswered(self, reason: str) -> Transient:
        return Transient(f"the schema registry at {self._config.url} cannot be asked: {reason}")

    def _open(self) -> _Schemas:
        try:
            return _Schemas(self._properties)
        except ImportError as error:
            raise ConfigError(
                f"codecs avro and json-schema need a library that is missing ({error.name}): pip install '.[registry]'"
            ) from None
        except OSError as error:  # also what is no PEM
            where = f"the file {self._config.ca_location} cannot be used"
            raise ConfigError(f"schema_registry.ca_location: {where}: {error.strerror or error}") from None
        except ValueError as error:
            raise ConfigError(f"schema_registry: the client refuses it: {error}") from None


class _Schemas:
    """A client with the schemas that it has fetched, and what reads values with them."""

    def __init__(self, properties: dict[str, Any]) -> None:
        # Not used before a JSON Schema comes, but a worker that lacks it says so at its start.
        import jsonschema_rs  # noqa: F401
        from confluent_kafka.schema_registry import SchemaRegistryClient

        read_as_written()
        self.client = SchemaRegistryClient(properties)
        bound(self.client._rest_client.session, properties["timeout"])
        self.vetted: dict[bytes, Any] = {}
        """What was found in vetting a schema, a `Reject` where it cannot be used, by the framing of its values."""


_ADDRESS = re.compile(r" at 0x[0-9a-fA-F]+")


class _Refused(WorkerError):
    """The registry answered, but not with what it was asked for."""

    def __init__(self, code: int | None, message: str) -> None:
        super().__init__(message)
        self.code = code


def _vetted(schema: Any, kind: str, vet: Callable[[str], T], name: str) -> T | Reject:
    found = schema.schema_type or "AVRO"
    try:
        if found != kind:
            raise Unusable(f"it is of type {found}, not {kind}")
        if schema.references:
            raise Unusable(f"it refers to another document: {schema.references[0].subject}")
        return vet(schema.schema_str)
    except Unusable as problem:
        # It repeats what the schema holds, be that no text that could be published.
        return Reject("unusable-schema", printable(f"the schema of {name} cannot be used: {problem}"))


def _said(what: str, error: Exception) -> str:
    return _line(what, f"{type(error).__name__}: {error}")


def _line(what: str, said: str) -> str:
    """One line with what a library says; it may repeat anything, but not at any length, and no address of an object:
    what a dead letter says must be the same when it is made again."""
    return printable(f"{what}: {' '.join(_ADDRESS.sub('', said).split())[:200]}")
