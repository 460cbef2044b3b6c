"""How values are read by a schema that was vetted: in time that grows with the value, and to the last digit.

The libraries' own readers do neither: fastavro's takes quadratic time for the digits of a decimal, and rounds them in a
context that all threads share; a `pattern` that backtracks takes twice as long with each character.
"""

from __future__ import annotations

import json
from decimal import Context, Decimal
from io import BytesIO
from typing import Any

from worker.adapters.kafka.vetting import NO_AVRO, Unusable, vet_avro, vet_json
from worker.base.limits import MAX_CHECKS, MAX_DECIMAL_DIGITS

_EXACT = Context(prec=MAX_DECIMAL_DIGITS)
_MAX_EXPLAINED_BYTES = 10_000
"""Of longer values nobody is told what is wrong: each branch of a schema that does not fit would quote the value."""
_MAX_PATTERN_BYTES = 10_000_000
"""Memory of one compiled pattern; `((a{1000}){1000}){1000}` would take any."""


def read_as_written() -> None:
    """Have fastavro read dates, times and ids as the numbers and texts that they are written as, as JSON has them, and
    decimals by `read_decimal`. It has one table of readers for the whole process."""
    from fastavro.read import LOGICAL_READERS

    LOGICAL_READERS.clear()
    LOGICAL_READERS.update({"bytes-decimal": read_decimal, "fixed-decimal": read_decimal})


def read_decimal(data: bytes, schema: dict[Any, Any] | None = None, _: object = None) -> Decimal:
    """The decimal of a schema whose precision is at most MAX_DECIMAL_DIGITS. Raises ValueError beyond it."""
    assert schema is not None, "fastavro passes the schema of the writer"
    unscaled = int.from_bytes(data, "big", signed=True)
    # Digits are made after this alone: making them is quadratic in their number, reading and comparing is not.
    if abs(unscaled) >= 10 ** schema["precision"]:
        raise ValueError(f"a decimal of {len(data)} bytes has more than the {schema['precision']} digits of its schema")
    return Decimal(unscaled).scaleb(-schema.get("scale", 0), _EXACT)


class AvroReader:
    """Reads values that were written with one schema."""

    def __init__(self, text: str) -> None:
        """Raises Unusable."""
        vet_avro(text)
        from fastavro import parse_schema

        try:
            self._schema = parse_schema(json.loads(text))
        except (MemoryError, RecursionError):
            raise  # It says nothing of the schema.
        except Exception as error:  # of any type: it takes for granted much of what a schema has to be
            raise Unusable(f"{NO_AVRO}: {error}"[:200]) from None

    def datum(self, value: bytes) -> object:
        """The one datum that a value is. Raises what fastavro does, and ValueError where bytes are left."""
        from fastavro import schemaless_reader

        file = BytesIO(value)
        datum = schemaless_reader(file, self._schema, None)
        if left := len(value) - file.tell():
            raise ValueError(f"{left} bytes are left behind it")
        return datum


class JsonValidator:
    """Judges values by a JSON Schema without looking back in a text and without asking anybody for other documents."""

    def __init__(self, text: str) -> None:
        """Raises Unusable."""
        self.most_bytes = MAX_CHECKS // vet_json(text)
        """Of a longer value judging might take minutes."""
        import jsonschema_rs

        try:
            self._validator = jsonschema_rs.validator_for(
                json.loads(text),
                validate_formats=False,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=_MAX_PATTERN_BYTES),
                offline=True,
            )
        except jsonschema_rs.ValidationError as error:
            about = "/".join(map(str, error.instance_path)) or "its root"
            hint = (
                " that can be matched without looking ahead or back in the text"
                if "regex" in error.message[-20:]
                else ""
            )
            raise Unusable(f"{about}: {error.message[:200]}{hint}") from None
        except (jsonschema_rs.ReferencingError, ValueError) as error:
            raise Unusable(str(error)[:200]) from None

    def refusal(self, text: bytes) -> str | None:
        """What is wrong with a JSON text; None where it is what the schema demands. Raises ValueError for no JSON."""
        import jsonschema_rs

        value = json.loads(text)
        if self._validator.is_valid(value):
            return None
        if len(text) <= _MAX_EXPLAINED_BYTES:
            try:
                self._validator.validate(value)
            except jsonschema_rs.ValidationError as error:
                return f"at {'/'.join(map(str, error.instance_path)) or 'its root'}: {error.message}"
        return f"it has {len(text)} bytes, too many to say where"
