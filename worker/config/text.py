"""From the text of a scalar to its value: references to the environment and to files, then the plain scalars of YAML
1.2's core schema.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TypeAlias

Scalar: TypeAlias = str | int | float | bool | None
Plain: TypeAlias = "Scalar | list[Plain]"

LONGEST = 2**18
"""Characters of a configuration, and of a file that it refers to. YAML takes seconds for so many, and for a file of
data, named by mistake, minutes."""

MASK = "***"
"""What stands for a secret wherever people may read it."""

INTEGER = r"[-+]?[0-9]{1,40}"
FLOAT = r"[-+]?(?:\.[0-9]+|[0-9]+(?:\.[0-9]*)?)(?:[eE][-+]?[0-9]+)?"

_REFERENCE = re.compile(
    r"\$\{(?:(?:file:(/(?:(?!\$\{)[^}\0])+)|([A-Za-z_][A-Za-z0-9_]*)(?::-((?:(?!\$\{)[^}])*))?)\})?"
)
"""A reference with its file, or its variable and default; without either, a `${` that does not become one."""


@dataclass(frozen=True, slots=True)
class Reading:
    """A scalar by its YAML type and as its text, or a list of both, and what the references in it name."""

    typed: Plain
    text: Plain
    references: tuple[str, ...]

    def as_value(self) -> list[Plain]:
        """What it may stand for. The environment knows no types: 5 is a number or a name, whichever the key takes."""
        return [self.typed, self.text] if self.references else [self.typed]

    def as_property(self) -> list[Plain]:
        """The text that librdkafka gets: what was written (0123 stays 0123), only True becomes true."""
        if self.typed is None or isinstance(self.typed, list):
            return [self.typed]
        if "\0" in str(self.text):
            raise UnfitError("a NUL, at which librdkafka would cut the text off")
        return [str(self.typed).lower() if isinstance(self.typed, bool) and not self.references else self.text]


class UnfitError(ValueError):
    """A value that a key cannot take; the text says what was found, in words that give no secret away."""


def core_scalar(text: str) -> Scalar:
    """The value of a plain scalar, decimal numbers only. Other than in YAML 1.1, `no` and `12:30` are text."""
    if text in ("", "~", "null", "Null", "NULL"):
        return None
    if text in ("true", "True", "TRUE", "false", "False", "FALSE"):
        return text.lower() == "true"
    if re.fullmatch(INTEGER, text):
        return int(text)
    return float(text) if re.fullmatch(FLOAT, text) else text


def read_scalar(source: str, environ: Mapping[str, str], *, quoted: bool) -> Reading:
    """Read the text of a scalar. What is wholly a reference is typed by its value even in quotes: {flow} needs them."""
    text, references = expand(source, environ)
    if _REFERENCE.fullmatch(source):
        return Reading(core_scalar(text.strip()), text, references)
    return Reading(text if quoted else core_scalar(text), text, references)


def expand(text: str, environ: Mapping[str, str]) -> tuple[str, tuple[str, ...]]:
    """The text with its references replaced, and the variables and files that they name.

    As in a shell, the default of `${VAR:-default}` also stands for a variable that is set to nothing. Raises UnfitError
    for a variable that is not set and has no default, for a file that cannot be read, and for a `${` that is no
    reference.
    """
    references: list[str] = []

    def value(match: re.Match[str]) -> str:
        path, name, default = match.groups()
        if path is not None:
            references.append(f"file:{path}")
            return _content(path)
        if name is None:
            raise UnfitError("an unfinished reference, not ${NAME}, ${NAME:-default} or ${file:/path}")
        references.append(name)
        if default is not None:
            return environ.get(name) or default
        if name not in environ:
            raise UnfitError(f"${{{name}}}, which is not set in the environment and has no default")
        return environ[name]

    return _REFERENCE.sub(value, text), tuple(references)


def _content(path: str) -> str:
    """The text of a file without what editors add and `$(cat file)` drops too: line ends at its end.

    Nor is the mark at the beginning part of it by which some editors tell UTF-8.
    """
    try:
        with open(path, encoding="utf-8-sig") as file:
            text = file.read(LONGEST + 1)
    except OSError as error:
        raise UnfitError(f"${{file:{path}}}, which cannot be read: {error.strerror}") from None
    except UnicodeDecodeError:
        raise UnfitError(f"${{file:{path}}}, which is not text in UTF-8") from None
    if len(text) > LONGEST:
        raise UnfitError(f"${{file:{path}}}, which has more than {LONGEST:,} characters")
    return text.rstrip("\n")
