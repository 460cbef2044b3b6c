"""Files that commands write, whole or not at all, and the examples that travel with the package."""

from __future__ import annotations

import errno
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import resources
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any, NamedTuple

from worker.base.errors import ConfigError


class _Place(NamedTuple):
    """Where a file comes to be, be its path a link or not."""

    target: Path
    unfinished: Path | None
    """What takes the target's place when all is written; None for a pipe or /dev/null, written to as it is."""

    @classmethod
    def of(cls, path: Path) -> _Place:
        if path.exists() and not path.is_file() and not path.is_dir():
            return cls(path, None)  # Of a pipe such as /dev/stdout, where its links lead is no path.
        target = Path(os.path.realpath(path))
        if target.is_symlink():  # what Path.resolve refuses before Python 3.13 alone
            raise OSError(errno.ELOOP, os.strerror(errno.ELOOP))
        if target.is_dir():
            raise IsADirectoryError(errno.EISDIR, "it is a folder")
        return cls(target, target.with_name(f".{target.name}.part"))


def require_place(path: Path) -> None:
    """Raise ConfigError where `replacing` could not write, before there is anything to write."""
    with errors(path):
        place = _Place.of(path)
        if place.unfinished is not None:
            with place.unfinished.open("w"):
                place.unfinished.unlink()
        # To open a pipe would be to wait for its reader.
        elif not os.access(place.target, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def require_distinct(places: Mapping[str, Path | None]) -> None:
    """Raise ConfigError where two of these are one file, such as what is read and what takes its place.

    The paths are by what they are for; None and what is no file, such as /dev/null, is not in the way of others.
    """
    seen: dict[str, str] = {}
    for use, path in places.items():
        if path is None or (os.path.exists(path) and not os.path.isfile(path)):
            continue
        other = seen.setdefault(os.path.realpath(path), use)
        if other != use:
            raise ConfigError(f"{path}: {use} would take the place of {other}: name another file")


def temporary_for(path: Path) -> IO[str]:
    """A file without a name for what `path` is made of, on the same disk if that is a file. Raises ConfigError."""
    with errors(path):
        place = _Place.of(path)
        folder = None if place.unfinished is None else place.target.parent
        return TemporaryFile("w+", encoding="utf-8", newline="", dir=folder)


@contextmanager
def example(name: str) -> Iterator[Path]:
    """A configuration of the folder config/, of the checkout or as it is in the installed package."""
    package = resources.files("worker")
    packed = package / "examples" / name
    with resources.as_file(packed if packed.is_file() else package / ".." / "config" / name) as path:
        yield path.resolve()


@contextmanager
def replacing(path: Path, mode: str = "w") -> Iterator[IO[Any]]:
    """A file that takes the place of the one at `path` once all is written. Raises ConfigError where it cannot be.

    It has that one's permissions. What is no file, such as a pipe or /dev/null, is written to as it is.
    """
    text: dict[str, Any] = {} if "b" in mode else {"encoding": "utf-8", "newline": ""}
    with errors(path):
        target, unfinished = _Place.of(path)
        if unfinished is None:
            with target.open(mode, **text) as file:
                yield file
            return
        try:
            with unfinished.open(mode, **text) as file:
                yield file
            if target.exists():
                shutil.copymode(target, unfinished)
            os.replace(unfinished, target)
        finally:
            unfinished.unlink(missing_ok=True)


def write(path: Path, text: str) -> None:
    """Make it the content of a file. Raises ConfigError."""
    with replacing(path) as file:
        file.write(text)


@contextmanager
def errors(path: Path) -> Iterator[None]:
    """What the system says against writing to `path` becomes a ConfigError."""
    try:
        yield
    except OSError as error:
        raise ConfigError(f"{path}: cannot be written: {error.strerror}") from None
