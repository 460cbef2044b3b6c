"""Which schemas of a registry events may be read with.

A schema must be all that it takes to understand a value, and reading must end, whatever the bytes: a record within
itself could be nested deeper than the stack, and an array of items that take no bytes could be longer than any memory.
"""

from __future__ import annotations

import json
from typing import Any

from worker.rejects import MAX_DEPTH

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_REFERENCES = frozenset({"$ref", "$dynamicRef", "$recursiveRef"})


class Unusable(Exception):
    """Why a schema is refused."""


def vet_avro(text: str) -> None:
    """Raises Unusable."""
    _AvroTypes().look_into(_loaded(text), "")


def vet_json(text: str) -> None:
    """Raises Unusable."""
    pending = [_loaded(text)]
    while pending:
        node = pending.pop()
        if isinstance(node, dict):
            for name, value in node.items():
                if name in _REFERENCES and not str(value).startswith("#"):
                    raise Unusable(f"it refers to another document: {str(value)[:100]}")
        if isinstance(node, dict | list):
            pending += node.values() if isinstance(node, dict) else node


def _loaded(text: str) -> Any:
    try:
        return json.loads(text)
    except (ValueError, RecursionError):
        raise Unusable("it is not JSON") from None


class _AvroTypes:
    """The named types of one schema: how deep their data are nested, and whether they may take no bytes."""

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, bool] | None] = {}
        """None while the type is being looked into."""

    def look_into(self, schema: Any, namespace: str, level: int = 1) -> tuple[int, bool]:
        """Depth of the data of a schema, which stands at so deep a level itself, and whether they may take no bytes."""
        if level > MAX_DEPTH:
            raise Unusable(f"it is nested deeper than {MAX_DEPTH} levels")
        if isinstance(schema, str):
            return (1, schema == "null") if schema in _PRIMITIVES else self._known(schema, namespace)
        if isinstance(schema, list):
            return max((self.look_into(one, namespace, level + 1)[0] for one in schema), default=1), False
        if not isinstance(schema, dict) or "type" not in schema:
            raise Unusable("it is no Avro schema")
        kind = schema["type"]
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, namespace, level)
        if kind in ("array", "map"):
            depth, empty = self.look_into(schema.get("items" if kind == "array" else "values"), namespace, level + 1)
            if kind == "array" and empty:
                raise Unusable("it has an array of items that may take no bytes")
            return self._deeper(depth), False
        return self.look_into(kind, namespace, level + 1)

    def _define(self, schema: dict[str, Any], namespace: str, level: int) -> tuple[int, bool]:
        name = str(schema.get("name"))
        namespace = name.rpartition(".")[0] or str(schema.get("namespace", namespace))
        full = f"{namespace}.{name.rpartition('.')[2]}".lstrip(".")
        self._named[full] = None
        found = 1, schema["type"] == "fixed" and not schema.get("size")
        if schema["type"] in ("record", "error"):
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(field, dict) for field in fields):
                raise Unusable("it is no Avro schema")
            inner = [self.look_into(field.get("type"), namespace, level + 1) for field in fields]
            depth = max((depth for depth, _ in inner), default=0)
            found = self._deeper(depth), all(empty for _, empty in inner)
        self._named[full] = found
        return found

    def _known(self, name: str, namespace: str) -> tuple[int, bool]:
        full = name if "." in name or f"{namespace}.{name}" not in self._named else f"{namespace}.{name}"
        if full not in self._named:
            raise Unusable(f"it refers to another document: {name[:100]}")
        found = self._named[full]
        if found is None:
            raise Unusable(f"{name[:100]} is nested within itself")
        return found

    def _deeper(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise Unusable(f"it is nested deeper than {MAX_DEPTH} levels")
        return depth + 1
