"""Single keys that stand above the file: what `--set` gives, put into its tree."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping, Sequence
from typing import TypeAlias

import yaml

from worker.base.errors import ConfigError
from worker.config.keys import Key, keys, unknown_key
from worker.config.model import ModelParams
from worker.config.nodes import NOT_IN_FILE, TEXT, TOO_DEEP, compose, syntax_problem
from worker.config.schema import Config

_Pair: TypeAlias = tuple[yaml.Node, yaml.Node]
"""A key and its value."""


def with_settings(root: yaml.Node | None, settings: Mapping[str, str]) -> yaml.Node | None:
    """The tree with other values of keys, each above those before it.

    Raises ConfigError where one is no YAML or there is no place for it.
    """
    sections, parameters = keys(Config), keys(ModelParams)
    layers = [] if root is None else [root]
    for name, value in settings.items():
        layers.append(_tree(_path(name, sections, parameters), _value(name, value)))
    try:
        return _merged([(_key(""), layer) for layer in layers])[1] if layers else None
    except RecursionError:
        raise ConfigError(f"--set: {TOO_DEEP}") from None


def _path(name: str, sections: Mapping[str, Key], parameters: Mapping[str, Key]) -> Sequence[str]:
    first, _, rest = name.partition(".")
    path = [first, rest] if first == "kafka" and rest else name.split(".")  # properties have dots in their names
    if len(path) > 1 or name in sections:
        return path
    if name in parameters:
        return ["models", "default", name]
    raise ConfigError(f"--set: {name}: {unknown_key(name, {**sections, **parameters})}")


def _value(name: str, value: str) -> yaml.Node:
    try:
        return compose(value, in_file=False) or yaml.ScalarNode(TEXT, "", NOT_IN_FILE, NOT_IN_FILE)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: {syntax_problem(error, value).partition(': ')[2]}") from None
    except RecursionError:
        raise ConfigError(f"--set {name}: {TOO_DEEP}") from None


def _tree(path: Sequence[str], value: yaml.Node) -> yaml.Node:
    for part in reversed(path):
        value = yaml.MappingNode("tag:yaml.org,2002:map", [(_key(part), value)], NOT_IN_FILE, NOT_IN_FILE)
    return value


def _key(name: str) -> yaml.Node:
    return yaml.ScalarNode(TEXT, name, NOT_IN_FILE, NOT_IN_FILE)


def _merged(layers: Sequence[_Pair]) -> _Pair:
    """One of several, each above those before it: mappings key by key, of anything else what is above.

    A key that is twice in one of them stays so. They come all at once, since there may be thousands.
    """
    plain = [place for place, (_, node) in enumerate(layers) if not isinstance(node, yaml.MappingNode)]
    hidden = min(plain[-1] + 1, len(layers) - 1) if plain else 0
    (key, below), *above = layers[hidden:]
    if not above:
        return key, below
    entries: list[_Pair] = list(below.value)
    places: dict[object, int] = {}
    for place, (each, _) in enumerate(entries):
        places.setdefault(_name(each), place)
    stacks: dict[int, list[_Pair]] = defaultdict(list)
    for _, layer in above:
        met = set[object]()
        for each, node in layer.value:
            name = _name(each)
            if name in places and name not in met:
                stacks[places[name]].append((each, node))
            else:
                places.setdefault(name, len(entries))
                entries.append((each, node))
            met.add(name)
    for place, pairs in stacks.items():
        entries[place] = _merged([entries[place], *pairs])
    return key, yaml.MappingNode(below.tag, entries, below.start_mark, below.end_mark)


def _name(key: yaml.Node) -> object:
    """What is no text is no key of a configuration: it stays by itself, to be complained of."""
    return key.value if isinstance(key, yaml.ScalarNode) else key
