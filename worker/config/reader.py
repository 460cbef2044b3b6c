"""The values of a file along the declarations of its keys: frozen sections out, and every problem on the way."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from types import MappingProxyType
from typing import Any

import yaml

from worker.config import kafka as config_kafka
from worker.config import overrides, repartition
from worker.config.keys import Key, OverrideList, Properties, Section, keys, unknown_key
from worker.config.model import OVERRIDE_KEYS, ModelParams, Override, fits, preset_values
from worker.config.nodes import TEXT, is_null, type_of
from worker.config.schema import Config
from worker.config.text import Plain, Reading, UnfitError, read_scalar
from worker.config.values import Kind, describe


@dataclass(frozen=True, slots=True)
class Entry:
    """A value of the file and the line of its key; the node is None where the file says nothing."""

    line: int
    node: yaml.Node | None


class Reader:
    """Walks the nodes along the declarations and collects every problem.

    A value with a problem is read as None; a configuration that holds one is never handed out.
    """

    def __init__(self, environ: Mapping[str, str], source: str) -> None:
        # What is missing stands behind what is wrong, by which it may have come: a key with its name misspelt.
        self.problems: list[tuple[bool, int, str]] = []
        self._environ = environ
        self._source = source
        self._origins: dict[str, config_kafka.Origin] = {}
        self._lines: dict[str, int] = {}
        self._default = ModelParams()

    def place(self, line: int) -> str:
        """Where a line is, in the words of an error."""
        return f"{self._source}:{line}" if line else "--set"

    def config(self, root: Entry) -> Config:
        """The whole configuration; to be handed out where there are no problems then."""
        config: Config = replace(self._section(Config, root, ""), kafka_origins=MappingProxyType(self._origins))
        owners: dict[str, str] = {}
        for owner in ("input", "output", "dead_letter"):
            topic = getattr(config, owner).topic
            if topic is not None and topic in owners:
                path = f"{owner}.topic"
                self._fail(self._lines[path], path, f"expected a topic of its own, found that of {owners[topic]}.topic")
            owners.setdefault(topic, owner)
        for path, problem in () if self.problems else repartition.problems(config):
            self._fail(self._lines[path], path, problem)
        if not self.problems and config.needs_registry and config.schema_registry.url is None:
            needed = "expected a URL, which codecs avro and json-schema need, found nothing"
            self._fail(self._lines["schema_registry"], "schema_registry.url", needed)
        return config

    def _section(self, section_type: type[Any], entry: Entry, path: str) -> Any:
        declared = keys(section_type)
        entries = self._entries(entry, path, declared)
        values: dict[str, Any] = {}
        for name, key in declared.items():
            # A section that is left out is read all the same: it may have keys that must be given.
            if name in entries or isinstance(key.kind, Section | Properties):
                child = entries.get(name, Entry(entry.line, None))
                values[key.attribute] = self._value(key.kind, child, _join(path, name))
            elif key.default is MISSING:
                values[key.attribute] = self._missing(key.kind, entry.line, _join(path, name))
        return section_type(**values)

    def _value(self, kind: object, entry: Entry, path: str) -> Any:
        self._lines[path] = entry.line
        match kind:
            case Section() if kind.type is ModelParams:
                return self._default_model(entry, path)
            case Section():
                return self._section(kind.type, entry, path)
            case Properties():
                return self._properties(entry, path)
            case OverrideList():
                return self._overrides(entry, path)
            case Kind():
                return self._leaf(kind, entry, path)

    def _overrides(self, entry: Entry, path: str) -> Any:
        if not isinstance(entry.node, yaml.SequenceNode):
            return self._fail(entry.line, path, f"expected a list of overrides, found {type_of(entry.node)}")
        items = [Entry(node.start_mark.line + 1, node) for node in entry.node.value]
        found = tuple(self._override(item, f"{path}[{index}]") for index, item in enumerate(items))
        for index, problem in () if self.problems else overrides.misfits(self._default, found):
            self._fail(items[index].line, f"{path}[{index}]", f"expected parameters that a forest takes {problem}")
        return found

    def _default_model(self, entry: Entry, path: str) -> ModelParams:
        # It is read before the overrides, which are on top of it.
        self._default = ModelParams(**self._parameters(entry, path, keys(ModelParams)))
        return self._default

    def _override(self, entry: Entry, path: str) -> Override:
        values = self._parameters(entry, path, OVERRIDE_KEYS)
        if "match" not in values:
            values["match"] = self._missing(OVERRIDE_KEYS["match"].kind, entry.line, _join(path, "match"))
        return Override(values.pop("match"), MappingProxyType(values))

    def _parameters(self, entry: Entry, path: str, declared: Mapping[str, Key]) -> dict[str, Any]:
        """Parameters of a model, those that the preset stands for included.

        They must fit the algorithm that is named beside them, without one that of the default. By themselves they must
        be what a forest takes; what they are on top of others is looked at when all are known.
        """
        entries = self._entries(entry, path, declared)
        values = {
            declared[name].attribute: self._value(declared[name].kind, child, _join(path, name))
            for name, child in entries.items()
        }
        algorithm = values.get("algorithm", self._default.algorithm)
        for name, child in entries.items():
            if algorithm and not fits(declared[name].attribute, algorithm):
                way_out = "" if "algorithm" in values else ", or name its algorithm beside it"
                problem = f"expected a key of algorithm {algorithm}, found another's: leave it out{way_out}"
                self._fail(child.line, _join(path, name), problem)
        if self.problems:
            return values
        if "preset" in values:
            values = {**preset_values(algorithm, values["preset"]), **values}
        parameters = {name: value for name, value in values.items() if name != "match"}
        try:
            ModelParams(**{"algorithm": algorithm, **parameters}).of_forest(seed=0)
        except ValueError as error:
            self._fail(entry.line, path, f"expected parameters that a forest takes: {error}")
        # No bound is none to put in the place of another: the loss that needs one may be what another override says.
        return {name: value for name, value in values.items() if (name, value) != ("bound", None)}

    def _properties(self, entry: Entry, path: str) -> Mapping[str, str]:
        entries = self._entries(entry, path, None)
        given = {
            name: self._leaf(config_kafka.kind_of(name), child, _join(path, name), Reading.as_property)
            for name, child in entries.items()
        }
        for name, child in entries.items():
            is_reference = isinstance(child.node, yaml.ScalarNode) and "${" in child.node.value
            self._origins[name] = config_kafka.Origin(self.place(child.line), is_reference)
            reason = config_kafka.refusal(name, given)
            if reason is not None:
                self._fail(child.line, _join(path, name), f"reserved: {reason}")
        if config_kafka.REQUIRED not in entries:
            required = config_kafka.REQUIRED
            self._missing(config_kafka.kind_of(required), entry.line, _join(path, required))
        return MappingProxyType(config_kafka.merge(given))

    def _leaf(
        self, kind: Kind[Any], entry: Entry, path: str, candidates: Callable[[Reading], list[Plain]] = Reading.as_value
    ) -> Any:
        try:
            reading = self._reading(entry.node)
            return _parse(kind, candidates(reading), reading.references)
        except UnfitError as unfit:
            return self._fail(entry.line, path, f"expected {kind.expected}, found {unfit}")

    def _entries(self, entry: Entry, path: str, known: Mapping[str, Key] | None) -> dict[str, Entry]:
        """The values of a mapping by key. Where the keys are not known beforehand, any property name will do."""
        if entry.node is None or is_null(entry.node):
            return {}
        if not isinstance(entry.node, yaml.MappingNode):
            self._fail(entry.line, path, f"expected a mapping, found {type_of(entry.node)}")
            return {}
        entries: dict[str, Entry] = {}
        for key_node, node in entry.node.value:
            line, name = key_node.start_mark.line + 1, key_node.value
            if not isinstance(name, str) or (known is None and not re.fullmatch(r"[\w.-]+", name)):
                self._fail(line, _join(path, _shown(name)), "expected the name of a property, found something else")
            elif known is not None and name not in known:
                self._fail(line, _join(path, _shown(name)), unknown_key(name, known))
            elif name in entries:
                first = entries[name].line
                where = f"on line {first}" if first else "in --set"
                self._fail(line, _join(path, name), f"expected one value, found another {where}")
            else:
                entries[name] = Entry(line, node)
        return entries

    def _reading(self, node: yaml.Node | None) -> Reading:
        if not isinstance(node, yaml.SequenceNode):
            return self._scalar(node)
        items = [self._scalar(item) for item in node.value]
        references = tuple(name for item in items for name in item.references)
        return Reading([item.typed for item in items], [item.text for item in items], references)

    def _scalar(self, node: yaml.Node | None) -> Reading:
        if not isinstance(node, yaml.ScalarNode):
            raise UnfitError(type_of(node))
        if node.tag != TEXT:
            raise UnfitError("a value with a YAML tag")
        _require_characters(node.value)  # before it names a file
        reading = read_scalar(node.value, self._environ, quoted=bool(node.style))
        _require_characters(str(reading.text))
        return reading

    def _missing(self, kind: Kind[Any] | Section | Properties | OverrideList, line: int, path: str) -> Any:
        return self._fail(line, path, f"expected {kind.expected}, found nothing", is_missing=True)

    def _fail(self, line: int, path: str, problem: str, *, is_missing: bool = False) -> Any:
        self.problems.append((is_missing, line, f"{path}: {problem}" if path else problem))


def _require_characters(text: str) -> None:
    if re.search("[\ud800-\udfff]", text):
        raise UnfitError("half of a surrogate pair, which is no character")


def _parse(kind: Kind[Any], candidates: list[Plain], references: tuple[str, ...]) -> Any:
    """The first candidate that the kind takes. Raises UnfitError, which shows nothing of what references stand for."""
    for candidate in candidates:
        try:
            return kind.parse(candidate)
        except ValueError as error:
            found = str(error) if isinstance(error, UnfitError) else describe(candidate)
    raise UnfitError(f"another value in {', '.join(f'${{{name}}}' for name in references)}" if references else found)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(name: object) -> str:
    """A key as far as it looks like one: `password:secret`, for want of a space, is all key to YAML."""
    start = re.match(r"<<|[\w.-]*", name if isinstance(name, str) else "")
    assert start is not None
    return start[0] if start[0] == name else f"{start[0]}..."
