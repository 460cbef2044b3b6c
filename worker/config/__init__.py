"""The configuration: YAML with ${VAR} and ${file:/path} in; frozen values out, or one ConfigError for all mistakes.

Plain scalars follow YAML 1.2's core schema, not YAML 1.1: `no` is text (a class, say), `12:30` is not a number. A value
that holds a reference is never shown in an error, since a secret may stand in the wrong place.

The keys are declared in `worker.config.schema`, `services` and `model`; `nodes` knows what YAML makes of a file,
`settings` puts single keys above it, and `reader` reads all of it along the declarations.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType

import yaml

from worker.base.errors import ConfigError
from worker.config.model import ModelParams, Override
from worker.config.nodes import TOO_DEEP, compose, syntax_problem
from worker.config.reader import Entry, Reader
from worker.config.schema import REGISTRY_CODECS, Codec, Config, Models
from worker.config.settings import with_settings
from worker.config.text import FLOAT, LONGEST
from worker.config.values import Address
from worker.config.views import history_of, intake_of, plain

__all__ = [
    "REGISTRY_CODECS",
    "Address",
    "Codec",
    "Config",
    "ModelParams",
    "Models",
    "Override",
    "effective",
    "history_of",
    "intake_of",
    "load",
    "loads",
]


def load(path: str | Path, environ: Mapping[str, str], settings: Mapping[str, str] = MappingProxyType({})) -> Config:
    """Read a configuration file; arguments as `loads`. Raises ConfigError with one line per mistake."""
    try:
        with open(path, encoding="utf-8") as file:
            text = file.read(LONGEST + 1)
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

    `settings` stand above the text, each above those before it: the name of a key, such as models.max_models, or of a
    parameter of the default model, and its value in YAML.
    """
    if len(text) > LONGEST:
        raise ConfigError(f"{source}: expected a configuration, of at most {LONGEST:,} characters, found a longer file")
    reader = Reader(environ, source)
    try:
        root = compose(text)
    except yaml.YAMLError as error:
        raise ConfigError(f"{source}:{syntax_problem(error, text)}") from None
    except RecursionError:
        raise ConfigError(f"{source}: {TOO_DEEP}") from None
    config = reader.config(Entry(1, with_settings(root, settings)))
    if reader.problems:
        raise ConfigError("\n".join(f"{reader.place(line)}: {text}" for _, line, text in sorted(reader.problems)))
    return config


def effective(config: Config) -> str:
    """The configuration as YAML: every key with the value in use, secrets and what may be one masked.

    It loads back equal unless something was masked or a text holds `${`, which a file can only say by a reference.
    """
    return yaml.dump(plain(config), Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=120)


class _Dumper(yaml.SafeDumper):
    """Quotes text that either YAML version would take for something else."""


_Dumper.add_implicit_resolver("tag:yaml.org,2002:float", re.compile(rf"(?:{FLOAT})\Z"), list("-+.0123456789"))
