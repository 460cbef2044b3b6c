"""Single keys that stand above the file: what `--set` gives, put into its tree."""

from __future__ import annotations

import yaml

from worker.base.errors import ConfigError
from worker.config.keys import keys, unknown_key
from worker.config.model import ModelParams
from worker.config.nodes import TEXT, TOO_DEEP, compose, syntax_problem
from worker.config.schema import Config

_OF_SETTINGS = yaml.Mark("--set", 0, -1, 0, "", 0)
"""Where nodes of settings stand: on no line of the file."""


def with_setting(root: yaml.Node | None, name: str, value: str) -> yaml.Node:
    """The tree with another value of a key. Raises ConfigError where that is no YAML or no place for it."""
    try:
        node = compose(value)
    except yaml.YAMLError as error:
        raise ConfigError(f"--set {name}: {syntax_problem(error, value).partition(': ')[2]}") from None
    except RecursionError:
        raise ConfigError(f"--set {name}: {TOO_DEEP}") from None
    first, _, rest = name.partition(".")
    path = [first, rest] if first == "kafka" and rest else name.split(".")  # properties have dots in their names
    if len(path) == 1 and name in keys(ModelParams):
        path = ["models", "default", name]
    elif len(path) == 1 and name not in keys(Config):
        raise ConfigError(f"--set: {name}: {unknown_key(name, {**keys(Config), **keys(ModelParams)})}")
    above = node or yaml.ScalarNode(TEXT, "", _OF_SETTINGS, _OF_SETTINGS)
    above.start_mark = _OF_SETTINGS
    for part in reversed(path):
        key = yaml.ScalarNode(TEXT, part, _OF_SETTINGS, _OF_SETTINGS)
        above = yaml.MappingNode("tag:yaml.org,2002:map", [(key, above)], _OF_SETTINGS, _OF_SETTINGS)
    return _merged(root, above)


def _merged(below: yaml.Node | None, above: yaml.Node) -> yaml.Node:
    """Two trees in one: mappings key by key, of anything else what is above. A key that is there twice stays so."""
    if not (isinstance(below, yaml.MappingNode) and isinstance(above, yaml.MappingNode)):
        return above
    entries = list(below.value)
    for key, node in above.value:
        place = next((place for place, (other, _) in enumerate(entries) if other.value == key.value), None)
        if place is None:
            entries.append((key, node))
        else:
            before, merged = entries[place][0], _merged(entries[place][1], node)
            entries[place] = key if merged is node else before, merged
    return yaml.MappingNode(below.tag, entries, below.start_mark, below.end_mark)
