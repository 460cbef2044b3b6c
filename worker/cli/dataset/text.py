"""Rows of a file of text: from a path, gzip or not, or from stdin, which can be read once only."""

from __future__ import annotations

import gzip
import sys
import zlib
from abc import abstractmethod
from codecs import BOM_UTF16_BE, BOM_UTF16_LE
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager
from io import BufferedReader
from pathlib import Path
from typing import IO, cast

from worker.base.errors import ConfigError
from worker.cli.dataset.rows import STDIN, FileRows, Line, readable

MOST_LINE_CHARS = 2**24
"""A file without line breaks is none of rows, and may be of any size once it is unpacked."""
_GZIP = b"\x1f\x8b"
_NO_TEXT = {
    b"PK\x03\x04": "a zip archive: `unzip -p` writes what is in it, and spreadsheets save as `CSV UTF-8`",
    b"\x28\xb5\x2f\xfd": "what zstd has packed: `zstd -dc` unpacks it",
    b"\xfd7zXZ\x00": "what xz has packed: `xz -dc` unpacks it",
    b"BZh91AY&SY": "what bzip2 has packed: `bzip2 -dc` unpacks it",
    b"PAR1\x15": "a Parquet file: give it by its path, with a name that ends in .parquet",
}
"""Other files that people have rows in, by how they begin; and what to do."""


class TextRows(FileRows):
    """The rows of a text, whose format says how to read its lines."""

    total = None
    _once: Iterator[Line] | None = None

    @abstractmethod
    def _read(self) -> Generator[Line | None, None, None]:
        """Nothing as soon as the beginning is known to be right, then the lines."""

    def _begin(self) -> None:
        """Look at the beginning, for which a subclass must be ready."""
        lines = self._read()
        next(lines)
        if self.from_stdin:
            self._once = cast(Iterator[Line], lines)
        else:
            lines.close()

    def _lines(self) -> Iterator[Line]:
        if self.from_stdin:
            once, self._once = self._once, None
            if once is None:
                raise ConfigError("stdin can be read only once: give a file")
            return once
        lines = self._read()
        next(lines)
        return cast(Iterator[Line], lines)

    @contextmanager
    def _unpacked(self) -> Iterator[tuple[IO[bytes], Callable[[], float]]]:
        """The bytes of the text, and how far the file was read."""
        with readable(self.name), _bytes_of(self.path) as raw:
            size = 0 if self.from_stdin else self.path.stat().st_size
            for begin, found in _NO_TEXT.items():
                if raw.peek(len(begin)).startswith(begin):
                    raise ConfigError(f"{self.name}: expected text, packed by gzip or not, found {found}")
            try:
                yield _unpacked(raw), lambda: raw.tell() / size if size else 0.0
            except (EOFError, zlib.error, gzip.BadGzipFile) as error:
                raise ConfigError(f"{self.name}: expected a whole gzip file: {error}") from None

    def _place_of_other_bytes(self) -> str:
        """The line that is not UTF-8: what is decoded runs ahead of the rows, so that it is looked for again."""
        if self.from_stdin:
            return self.name
        with _bytes_of(self.path) as raw:
            for number, line in enumerate(_unpacked(raw), 1):
                try:
                    line.decode()
                except UnicodeDecodeError:
                    return f"{self.name}:{number}"
        return self.name


def not_utf8(place: str, error: UnicodeDecodeError, remedy: str = "") -> ConfigError:
    """What is said of other bytes than those of UTF-8."""
    found = error.object[error.start : error.start + 2]
    encoding = "UTF-16" if found in (BOM_UTF16_LE, BOM_UTF16_BE) else "WINDOWS-1252"
    return ConfigError(
        f"{place}: expected text in UTF-8, found other bytes, 0x{found[0]:02x} first; {remedy}"
        f"`iconv -f {encoding} -t UTF-8` converts what was written otherwise"
    )


def head_of(path: Path) -> bytes:
    """Some first bytes of the text in a file, or in stdin, where they stay."""
    with readable(str(path)), _bytes_of(path) as raw:
        head = raw.peek()
        if not head.startswith(_GZIP):
            return head
        try:
            return zlib.decompressobj(wbits=31).decompress(head, MOST_LINE_CHARS)
        except zlib.error:
            return b""


@contextmanager
def _bytes_of(path: Path) -> Iterator[BufferedReader]:
    if str(path) == STDIN:
        yield cast(BufferedReader, sys.stdin.buffer)
    elif path.is_fifo():
        # Each look at the beginning would take it away from the next one, without a word.
        raise ConfigError(f"{path}: is a pipe, which can be read only once: give it as stdin, and - for the file")
    else:
        with path.open("rb") as file:
            yield file


def _unpacked(raw: BufferedReader) -> IO[bytes]:
    return cast(IO[bytes], gzip.GzipFile(fileobj=raw) if raw.peek(2)[:2] == _GZIP else raw)
