"""The configuration: YAML with ${VAR} and ${file:/path} in; frozen values out, or one ConfigError for all mistakes.

Plain scalars follow YAML 1.2's core schema, not YAML 1.1: `no` is text (a class, say), `12:30` is not a number. A value
that holds a reference is never shown in an error, since a secret may stand in the wrong place.

The keys are declared in `worker.config.schema`, `services` and `model`; this is the only file that knows yaml.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Callable, Mapping
from dataclasses import MISSING, dataclass, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from worker.base.errors import ConfigError
from worker.config import kafka as config_kafka
from worker.config import overrides, repartition
from worker.config.keys import Key, OverrideList, Properties, Section, keys
from worker.config.model import OVERRIDE_KEYS, ModelParams, Override, fits, preset_values
from worker.config.schema import (
    REGISTRY_CODECS,
    Checkpoint,
    Config,
    DeadLetter,
    Input,
    Metrics,
    Models,
    Output,
    Transaction,
)
from worker.config.services import Logging, SchemaRegistry
from worker.config.text import FLOAT, Plain, Reading, UnfitError, core_scalar, read_scalar
from worker.config.values import Address, Kind, describe
from worker.config.views import history_of, intake_of, plain

__all__ = [
    "REGISTRY_CODECS",
    "Address",
    "Checkpoint",
    "Config",
    "DeadLetter",
    "Input",
    "Logging",
    "Metrics",
    "ModelParams",
    "Models",
    "Output",
    "Override",
    "SchemaRegistry",
    "Transaction",
    "effective",
    "history_of",
    "intake_of",
    "load",
    "loads",
]


def load(path: str | Path, environ: Mapping[str, str], settings: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Read a configuration file; arguments as `loads`. Raises ConfigError with one line per mistake."""
    try:
        text = Path(path).read_text(encoding="utf-8")
    except OSError as error:
        raise ConfigError(f"{path}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{path}: expected text in UTF-8, found other bytes") from None
    return loads(text, environ, str(path), settings)


def loads(
    text: str,
    environ: Mapping[str, str],
    source: str = "<string>",
    settings: Mapping[str, str] = MappingProxyType({}),
) -> Config:
    """Read a configuration from its text; `source` is what errors call it. Raises ConfigError as `load` does.

    `settings` stand above the text: the name of a key, such as models.max_models, or of a parameter of the default
    model, and its value in YAML.
    """
    reader = _Reader(environ, source)
    try:
        root = yaml.compose(text, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}:{_syntax_problem(error, text)}") from None
    except RecursionError:
        raise ConfigError(f"{source}: {_TOO_DEEP}") from None
    for name, value in settings.items():
        root = _with_setting(root, name, value)
    config = reader.config(_Entry(1, root))
    if reader.problems:
        raise ConfigError("\n".join(f"{reader.place(line)}: {text}" for _, line, text in sorted(reader.problems)))
    return config


def effective(config: Config) -> str:
    """The configuration as YAML: every key with the value in use, secrets and what may be one masked.

    It loads back equal unless something was masked or a text holds `${`, which a file can only say by a reference.
    """
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Loader(yaml.SafeLoader):
    """Composes nodes without guessing types; `core_scalar` types the plain ones."""

    yaml_implicit_resolvers: dict[str, Any] = {}  # noqa: RUF012 (pyyaml's own name and place for it)


class _Dumper(yaml.SafeDumper):
    """Quotes text that either YAML version would take for something else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"(?:{FLOAT})\Z"), list("-+.0123456789"))


@dataclass(frozen=True, slots=True)
class _Entry:
    """A value of the file and the line of its key; the node is None where the file says nothing."""

    line: int
    node: yaml.Node | None


class _Reader:
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

    def config(self, root: _Entry) -> Config:
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

    def _section(self, section_type: type[Any], entry: _Entry, path: str) -> Any:
        declared = keys(section_type)
        entries = self._entries(entry, path, declared)
        values: dict[str, Any] = {}
        for name, key in declared.items():
            # A section that is left out is read all the same: it may have keys that must be given.
            if name in entries or isinstance(key.kind, Section | Properties):
                child = entries.get(name, _Entry(entry.line, None))
                values[key.attribute] = self._value(key.kind, child, _join(path, name))
            elif key.default is MISSING:
                values[key.attribute] = self._missing(key.kind, entry.line, _join(path, name))
        return section_type(**values)

    def _value(self, kind: object, entry: _Entry, path: str) -> Any:
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

    def _overrides(self, entry: _Entry, path: str) -> Any:
        if not isinstance(entry.node, yaml.SequenceNode):
            return self._fail(entry.line, path, f"expected a list of overrides, found {_type_of(entry.node)}")
        items = [_Entry(node.start_mark.line + 1, node) for node in entry.node.value]
        found = tuple(self._override(item, f"{path}[{index}]") for index, item in enumerate(items))
        for index, problem in () if self.problems else overrides.misfits(self._default, found):
            self._fail(items[index].line, f"{path}[{index}]", f"expected parameters that a forest takes {problem}")
        return found

    def _default_model(self, entry: _Entry, path: str) -> ModelParams:
        # It is read before the overrides, which are on top of it.
        self._default = ModelParams(**self._parameters(entry, path, keys(ModelParams)))
        return self._default

    def _override(self, entry: _Entry, path: str) -> Override:
        values = self._parameters(entry, path, OVERRIDE_KEYS)
        if "match" not in values:
            values["match"] = self._missing(OVERRIDE_KEYS["match"].kind, entry.line, _join(path, "match"))
        return Override(values.pop("match"), MappingProxyType(values))

    def _parameters(self, entry: _Entry, path: str, declared: Mapping[str, Key]) -> dict[str, Any]:
        """Parameters of a model, those that the preset stands for included.

        They must fit the algorithm that is named beside them, without one that of the default. By themselves they must
        be what a forest takes; what they are on top of others is looked at when all are known.
        """
        entries = self._entries(entry, path, declared)
        values = {
            declared[name].attribute: self._value(declared[name].kind, child, _join(path, name))
            for name, child in entries.items()
        }
        algorithm = values.get("algorithm") or self._default.algorithm
        for name, child in entries.items():
            if algorithm and not fits(declared[name].attribute, algorithm):
                self._fail(child.line, _join(path, name), f"expected a key of algorithm {algorithm}, found another's")
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

    def _properties(self, entry: _Entry, path: str) -> Mapping[str, str]:
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
        self, kind: Kind[Any], entry: _Entry, path: str, candidates: Callable[[Reading], list[Plain]] = Reading.as_value
    ) -> Any:
        try:
            reading = self._reading(entry.node)
            return _parse(kind, candidates(reading), reading.references)
        except UnfitError as unfit:
            return self._fail(entry.line, path, f"expected {kind.expected}, found {unfit}")

    def _entries(self, entry: _Entry, path: str, known: Mapping[str, Key] | None) -> dict[str, _Entry]:
        """The values of a mapping by key. Where the keys are not known beforehand, any property name will do."""
        if entry.node is None or _is_null(entry.node):
            return {}
        if not isinstance(entry.node, yaml.MappingNode):
            self._fail(entry.line, path, f"expected a mapping, found {_type_of(entry.node)}")
            return {}
        entries: dict[str, _Entry] = {}
        for key_node, node in entry.node.value:
            line, name = key_node.start_mark.line + 1, key_node.value
            if not isinstance(name, str) or (known is None and not re.fullmatch(r"[\w.-]+", name)):
                self._fail(line, _join(path, _shown(name)), "expected the name of a property, found something else")
            elif known is not None and name not in known:
                self._fail(line, _join(path, _shown(name)), _unknown(name, known))
            elif name in entries:
                self._fail(line, _join(path, name), f"expected one value, found another on line {entries[name].line}")
            else:
                entries[name] = _Entry(line, node)
        return entries

    def _reading(self, node: yaml.Node | None) -> Reading:
        if not isinstance(node, yaml.SequenceNode):
            return self._scalar(node)
        items = [self._scalar(item) for item in node.value]
        references = tuple(name for item in items for name in item.references)
        return Reading([item.typed for item in items], [item.text for item in items], references)

    def _scalar(self, node: yaml.Node | None) -> Reading:
        if not isinstance(node, yaml.ScalarNode):
            raise UnfitError(_type_of(node))
        if node.tag != _TEXT:
            raise UnfitError("a value with a YAML tag")
        reading = read_scalar(node.value, self._environ, quoted=bool(node.style))
        if re.search("[\ud800-\udfff]", str(reading.text)):
            raise UnfitError("half of a surrogate pair, which is no character")
        return reading

    def _missing(self, kind: Kind[Any] | Section | Properties | OverrideList, line: int, path: str) -> Any:
        return self._fail(line, path, f"expected {kind.expected}, found nothing", is_missing=True)

    def _fail(self, line: int, path: str, problem: str, *, is_missing: bool = False) -> Any:
        self.problems.append((is_missing, line, f"{path}: {problem}" if path else problem))


def _parse(kind: Kind[Any], candidates: list[Plain], references: tuple[str, ...]) -> Any:
    """The first candidate that the kind takes. Raises UnfitError, which shows nothing of what references stand for."""
    for candidate in candidates:
        try:
            return kind.parse(candidate)
        except ValueError as error:
            found = str(error) if isinstance(error, UnfitError) else describe(candidate)
    raise UnfitError(f"another value in {', '.join(f'${{{name}}}' for name in references)}" if references else found)


def _unknown(name: str, known: Mapping[str, Key]) -> str:
    near = difflib.get_close_matches(name, known, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    return f"unknown key, expected one of {', '.join(known)}{hint}"


def _syntax_problem(error: yaml.YAMLError, text: str) -> str:
    """Line and problem of a syntax error, without the words of the file that yaml quotes: they may be a secret."""
    if isinstance(error, yaml.reader.ReaderError):
        return f"{text.count(chr(10), 0, error.position) + 1}: expected YAML, found a character that it does not allow"
    if not isinstance(error, yaml.MarkedYAMLError) or error.problem_mark is None:
        return "1: expected YAML, found something else"
    problem = re.sub(r"'[\w!.-]{2,}'", "'...'", ", ".join(filter(None, (error.context, error.problem))))
    lines = text.splitlines() or [""]
    line = min(error.problem_mark.line, len(lines) - 1)  # the end of the text is behind its last line
    hint = "; inside { } and [ ] a ${reference} needs quotes" if "${" in lines[line] else ""
    return f"{line + 1}: expected YAML, found a syntax error: {problem}{hint}"


_TOO_DEEP = "expected some levels of lists and mappings, found hundreds"
_TEXT = "tag:yaml.org,2002:str"
_OF_SETTINGS = yaml.Mark("--set", 0, -1, 0, "", 0)
"""Where nodes of settings stand: on no line of the file."""


def _with_setting(root: yaml.Node | None, name: str, value: str) -> yaml.Node:
    """The tree with another value of a key. Raises ConfigError where that is no YAML or no place for it."""
    try:
        node = yaml.compose(value, Loader=_Loader)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: {_syntax_problem(error, value).partition(': ')[2]}") from None
    except RecursionError:
        raise ConfigError(f"--set {name}: {_TOO_DEEP}") from None
    first, _, rest = name.partition(".")
    path = [first, rest] if first == "kafka" else name.split(".")  # properties have dots in their names
    if len(path) == 1 and name in keys(ModelParams):
        path = ["models", "default", name]
    elif len(path) == 1 and name not in keys(Config):
        raise ConfigError(f"--set: {name}: {_unknown(name, {**keys(Config), **keys(ModelParams)})}")
    above = node or yaml.ScalarNode(_TEXT, "", _OF_SETTINGS, _OF_SETTINGS)
    above.start_mark = _OF_SETTINGS
    for part in reversed(path):
        key = yaml.ScalarNode(_TEXT, part, _OF_SETTINGS, _OF_SETTINGS)
        above = yaml.MappingNode("tag:yaml.org,2002:map", [(key, above)], _OF_SETTINGS, _OF_SETTINGS)
    return _merged(root, above)


def _merged(below: yaml.Node | None, above: yaml.Node) -> yaml.Node:
    """Two trees in one: mappings key by key, of anything else what is above."""
    if not (isinstance(below, yaml.MappingNode) and isinstance(above, yaml.MappingNode)):
        return above
    entries = list(below.value)
    for key, node in above.value:
        before = next((node for other, node in entries if other.value == key.value), None)
        entries = [entry for entry in entries if entry[0].value != key.value]
        entries.append((key, _merged(before, node)))
    return yaml.MappingNode(below.tag, entries, below.start_mark, below.end_mark)


def _join(path: str, name: str) -> str:
    return f"{path}.{name}" if path else name


def _shown(name: object) -> str:
    """A key as far as it looks like one: `password:secret`, for want of a space, is all key to YAML."""
    start = re.match(r"[\w.-]*", name if isinstance(name, str) else "")
    assert start is not None
    return start[0] if start[0] == name else f"{start[0]}..."


def _is_null(node: yaml.Node) -> bool:
    return isinstance(node, yaml.ScalarNode) and not node.style and core_scalar(node.value) is None


def _type_of(node: yaml.Node | None) -> str:
    """What a node is, without its value."""
    if node is None or _is_null(node):
        return "nothing"
    if isinstance(node, yaml.MappingNode):
        return "a mapping"
    return "a list" if isinstance(node, yaml.SequenceNode) else "a single value"
