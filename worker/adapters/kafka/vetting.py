"""Which schemas of a registry events may be read with.

A schema must be all that it takes to understand a value, and reading must end, whatever the bytes: a record within
itself could be nested deeper than the stack, an array of items that take no bytes could be longer than any memory, and
records or definitions that each refer to the next one twice lead to more parts than could ever be looked at. Nor may it
take long: what a reader does for each byte of a value has a bound.
What is refused is refused for the schema alone, before any value is read with it: how deep a reader can follow depends
on how deep the stack happens to be, and a verdict must not.
"""

from __future__ import annotations

import json
import re
from collections import defaultdict
from collections.abc import Iterable, Iterator
from typing import Any
from urllib.parse import unquote

from worker.base.limits import MAX_DECIMAL_DIGITS, MAX_DEPTH, MAX_EMPTY_PARTS, MAX_PARTS, PARTS_PER_BYTE
from worker.codec.dead_letters import nesting

_PRIMITIVES = frozenset({"null", "boolean", "int", "long", "float", "double", "bytes", "string"})
_REFERENCES = ("$ref", "$dynamicRef", "$recursiveRef")
_ANCHORS = ("$anchor", "$dynamicAnchor")
_DATA = frozenset({"const", "default", "enum", "examples"})
"""What these hold are values, in which no name has a meaning."""
_BY_NAME = frozenset({"$defs", "definitions", "dependencies", "dependentSchemas", "patternProperties", "properties"})
"""What these hold are schemas by names of their own, be one of them `$ref` or `default`."""
_SCHEMAS = frozenset(
    {"additionalItems", "additionalProperties", "allOf", "anyOf", "contains", "contentSchema", "else", "if", "items"}
    | {"not", "oneOf", "prefixItems", "propertyNames", "then", "unevaluatedItems", "unevaluatedProperties"}
)
"""What these hold are schemas, or lists of them."""
_OLD_DRAFT = re.compile(r"draft-0[34]")
"""A draft in which the name of a part is its `id`."""
_OF_A_BYTE = 1 - PARTS_PER_BYTE
"""Parts beyond those that are allowed, of a part that takes a byte."""
_HALVES = re.compile("[\ud800-\udfff]")
_MAX_TEXT_DEPTH = 4 * MAX_DEPTH
"""Levels of the text of a schema: a record of Avro within another takes three."""


class Unusable(Exception):
    """Why a schema is refused."""


def vet_avro(text: str) -> None:
    """Raises Unusable."""
    _AvroTypes().look_into(_loaded(text), "")


def vet_json(text: str) -> int:
    """The number of parts that a validator may come to for each item of a value. Raises Unusable."""
    return _JsonSchema(_loaded(text), ("$id", "id") if _OLD_DRAFT.search(text) else ("$id",)).count_parts()


def _loaded(text: str) -> Any:
    # Both kinds of schema are looked at level by level below; the parser of the text needs a limit before that.
    if nesting(text.encode("utf-8", "surrogatepass")) > _MAX_TEXT_DEPTH:
        raise _too_deep()
    try:
        return json.loads(text)
    except ValueError:
        raise Unusable("it is not JSON") from None


def _too_deep() -> Unusable:
    return Unusable(f"it is nested deeper than {MAX_DEPTH} levels")


NO_AVRO = "it is no Avro schema"
_Node = dict[str, Any] | list[Any]


class _JsonSchema:
    """The objects and arrays of one schema, and which of them lead to which.

    From each it leads to all that is in it and, where it refers to something, there. Every way must end within
    MAX_DEPTH steps. A validator takes at most some of these ways, with up to 8 frames of the stack a step, so that it
    needs 550 of the 1,000 that Python has. What it takes for an item of a value grows with the parts that it comes to,
    each as often as a way leads there, and with what their arrays list: there may be MAX_PARTS of them. Values that are
    in a schema count as parts, and lead nowhere else.
    """

    def __init__(self, root: Any, identifiers: tuple[str, ...]) -> None:
        self._root = root
        self._identifiers = identifiers
        self._named: dict[str, list[_Node]] = defaultdict(list)
        """What can be referred to by a name."""
        self._no_schemas = set(map(id, _without_keywords(root)))
        pending = [root]
        while pending:
            node = pending.pop()
            if isinstance(node, dict) and id(node) not in self._no_schemas:
                self._note_names(node)
            pending += _members(node)

    def count_parts(self) -> int:
        """How many parts there are. Raises Unusable where a way leads back to where it was, is too long, or leads
        nowhere."""
        parts: dict[int, int] = {}
        """Parts that a node leads to, itself included, by its identity."""
        heights: dict[int, int] = {}
        """Steps of the longest way from a node, by its identity; 0 while it is being looked at."""
        ways = [(self._root, self._next(self._root), 1)]
        heights[id(self._root)] = 0
        while ways:
            node, following, height = ways.pop()
            for other in following:
                known = heights.get(id(other))
                if known == 0:
                    raise Unusable("it refers to itself")
                if known is None:
                    ways += [(node, following, height), (other, self._next(other), 1)]
                    heights[id(other)] = 0
                    break
                height = max(height, known + 1)
            else:
                if height > MAX_DEPTH:
                    raise _too_deep()
                heights[id(node)] = height
                listed = sum(not isinstance(one, dict | list) for one in node) if isinstance(node, list) else 0
                parts[id(node)] = 1 + listed + sum(parts[id(other)] for other in self._next(node))
                if parts[id(node)] > MAX_PARTS:
                    raise Unusable(
                        f"it leads to more than {MAX_PARTS} parts, counting each as often as it is referred to"
                    )
                if ways:
                    above, others, found = ways.pop()
                    ways.append((above, others, max(found, height + 1)))
        return parts[id(self._root)]

    def _note_names(self, node: dict[str, Any]) -> None:
        for name in _ANCHORS:
            if isinstance(node.get(name), str):
                self._named[node[name]].append(node)
        for name in self._identifiers if node is not self._root else ():
            identifier = node.get(name)
            if isinstance(identifier, str):
                if not identifier.startswith("#"):
                    raise Unusable(f"a part of it has a name of its own, and so other references: {identifier[:100]}")
                self._named[identifier[1:]].append(node)

    def _next(self, node: _Node) -> Iterator[_Node]:
        """All that a node leads to, one step on."""
        yield from _members(node)
        if isinstance(node, dict) and id(node) not in self._no_schemas:
            for name in _REFERENCES:
                if name in node:
                    yield from self._referred_to(node[name])

    def _referred_to(self, reference: object) -> list[_Node]:
        shown = str(reference)[:100]
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise Unusable(f"it refers to another document: {shown}")
        fragment = unquote(reference[1:])
        found = self._named.get(fragment, []) if fragment and fragment[0] != "/" else [self._at(fragment, shown)]
        if not found:
            raise Unusable(f"the reference {shown} leads nowhere")
        return [node for node in found if isinstance(node, dict | list)]

    def _at(self, pointer: str, shown: str) -> Any:
        """What a JSON pointer leads to."""
        node = self._root
        for step in pointer.split("/")[1:]:
            step = step.replace("~1", "/").replace("~0", "~")
            try:
                node = node[int(step) if isinstance(node, list) else step]
            except (KeyError, IndexError, TypeError, ValueError):
                raise Unusable(f"the reference {shown} leads nowhere") from None
        if id(node) in self._no_schemas:
            raise Unusable(f"the reference {shown} leads to what is no schema")
        return node


def _without_keywords(root: Any) -> Iterator[_Node]:
    """What is in a schema and is none: values, and objects whose members are schemas by names of their own."""
    pending = [(node, "schema") for node in _nodes([root])]
    while pending:
        node, kind = pending.pop()
        if kind in ("value", "map"):
            yield node
        if kind in ("value", "map") or isinstance(node, list):
            pending += [(member, "schema" if kind == "map" else kind) for member in _members(node)]
        else:
            pending += [(member, _kind(name, kind)) for name in node for member in _nodes([node[name]])]


def _kind(name: str, of: str) -> str:
    """What this name holds in a schema, or in what may be one: schemas by names of their own are under other names
    than those of JSON Schema, too, and there `default` may be one of them."""
    if name in _DATA:
        return "value" if of == "schema" else of
    if name in _BY_NAME:
        return "map"
    return "schema" if name in _SCHEMAS else "perhaps"


def _members(node: Any) -> list[_Node]:
    """The objects and arrays that are in one."""
    return _nodes(node.values() if isinstance(node, dict) else node if isinstance(node, list) else ())


def _nodes(values: Iterable[Any]) -> list[_Node]:
    return [value for value in values if isinstance(value, dict | list)]


class _AvroTypes:
    """The named types of one schema: how deep their data are nested, and how many parts they may have beyond
    PARTS_PER_BYTE for each byte.

    A number is one part and takes a byte at least, a record is one beside those of its fields, which may take no bytes
    at all. A record may have MAX_EMPTY_PARTS beyond what its bytes allow, an item none, for there is no end of items.
    """

    def __init__(self) -> None:
        self._named: dict[str, tuple[int, int] | None] = {}
        """None while the type is being looked into."""

    def look_into(self, schema: Any, namespace: str, level: int = 1) -> tuple[int, int]:
        """Depth of the data of a schema, which stands at so deep a level itself, and parts beyond what is allowed."""
        if level > MAX_DEPTH:
            raise _too_deep()
        if isinstance(schema, str):
            if schema in _PRIMITIVES:
                return 1, 1 if schema == "null" else _OF_A_BYTE
            return self._known(schema, namespace)
        if isinstance(schema, list):
            branches = [self.look_into(one, namespace, level + 1) for one in schema] or [(1, 0)]
            # Which of them it is takes a byte.
            return max(depth for depth, _ in branches), max(beyond for _, beyond in branches) + _OF_A_BYTE
        if not isinstance(schema, dict) or "type" not in schema:
            raise Unusable(NO_AVRO)
        kind = schema["type"]
        if schema.get("logicalType") == "decimal" and kind in ("bytes", "fixed"):
            _require_decimal(schema)
        if kind in ("record", "error", "enum", "fixed"):
            return self._define(schema, namespace, level)
        if kind in ("array", "map"):
            depth, beyond = self.look_into(schema.get("items" if kind == "array" else "values"), namespace, level + 1)
            if beyond + (_OF_A_BYTE if kind == "map" else 0) > 0:  # a name takes a byte
                raise Unusable(f"its {kind}s have items that may take no bytes, or have {PARTS_PER_BYTE} parts a byte")
            return self._deeper(depth), _OF_A_BYTE
        return self.look_into(kind, namespace, level + 1)

    def _define(self, schema: dict[str, Any], namespace: str, level: int) -> tuple[int, int]:
        name = str(schema.get("name"))
        # One that is null is none, not that of what is around it.
        namespace = name.rpartition(".")[0] or str(schema.get("namespace", namespace) or "")
        full = f"{namespace}.{name.rpartition('.')[2]}".lstrip(".")
        self._named[full] = None
        found = 1, 1 if schema["type"] == "fixed" and not schema.get("size") else _OF_A_BYTE
        if schema["type"] in ("record", "error"):
            fields = schema.get("fields")
            if not isinstance(fields, list) or not all(isinstance(f, dict) and _is_name(f.get("name")) for f in fields):
                raise Unusable(NO_AVRO)
            inner = [self.look_into(field.get("type"), namespace, level + 1) for field in fields]
            depth = max((depth for depth, _ in inner), default=0)
            found = self._deeper(depth), 1 + sum(beyond for _, beyond in inner)
            if found[1] > MAX_EMPTY_PARTS:
                raise Unusable(f"it has more than {MAX_EMPTY_PARTS} parts for which there are no bytes")
        self._named[full] = found
        return found

    def _known(self, name: str, namespace: str) -> tuple[int, int]:
        full = name if "." in name or f"{namespace}.{name}" not in self._named else f"{namespace}.{name}"
        if full not in self._named:
            raise Unusable(f"it refers to another document: {name[:100]}")
        found = self._named[full]
        if found is None:
            raise Unusable(f"{name[:100]} is nested within itself")
        return found

    def _deeper(self, depth: int) -> int:
        if depth >= MAX_DEPTH:
            raise _too_deep()
        return depth + 1


def _is_name(name: object) -> bool:
    """Whether it is text, as the name of a feature has to be. Half of a surrogate pair is no character."""
    return isinstance(name, str) and not _HALVES.search(name)


def _require_decimal(schema: dict[str, Any]) -> None:
    precision, scale = schema.get("precision"), schema.get("scale", 0)
    if type(precision) is not int or not 1 <= precision <= MAX_DECIMAL_DIGITS:
        raise Unusable(f"a decimal has the precision {str(precision)[:40]}, expected 1 to {MAX_DECIMAL_DIGITS}")
    if type(scale) is not int or not 0 <= scale <= precision:
        raise Unusable(f"a decimal has the scale {str(scale)[:40]}, expected 0 to its precision, {precision}")
