"""Adapter: bytes that wait on the local disk, a cache that ends with the process and is never the truth.

What is put is appended to a segment file, and found again through its place in memory. Bytes that were freed stay in
their file as dead ones; once there are more dead bytes than living ones, or half as many and no room, each `put` also
moves what lives in the most wasteful file, as much as is put at least twice over, so that no call has to clean up all
at once. Room for what moves, a file of it, is set aside; a disk that was full counts as one of that size until it takes
more. A file without living bytes is closed, or emptied if it is the one that is written to. The files have no names:
nothing is left behind, however the process ends, and workers that are given the same folder do not see each other.
"""

from __future__ import annotations

import os
import tempfile
import threading
import zlib
from contextlib import suppress
from typing import IO

from worker.base.errors import ConfigError, StateLost
from worker.base.log import Log

_log = Log(__name__)

SEGMENT_BYTES = 64 * 2**20
LEAST_SEGMENTS, MOST_SEGMENTS = 8, 256
"""Files are smaller, or larger, where there would be fewer or more of them than this."""


class _Segment:
    """A file, and the places in it that are in use."""

    __slots__ = ("file", "living", "places", "size")

    def __init__(self, file: IO[bytes]) -> None:
        self.file = file
        self.size = 0
        self.living = 0
        self.places: set[Place] = set()

    def read(self, place: Place) -> bytes:
        """The bytes of a place, fewer where the file ends before."""
        parts, at, end = [], place.start, place.start + place.length
        while at < end and (part := os.pread(self.file.fileno(), end - at, at)):
            parts.append(part)
            at += len(part)
        return parts[0] if len(parts) == 1 else b"".join(parts)


class Place:
    """Where some bytes are. It is good until it is freed."""

    __slots__ = ("_spill", "checksum", "length", "segment", "start")

    def __init__(self, spill: Spill, segment: _Segment, start: int, length: int, checksum: int) -> None:
        self._spill = spill
        self.segment = segment
        self.start = start
        self.length = length
        self.checksum = checksum

    def read(self) -> bytes:
        """The bytes. Raises StateLost where the disk does not give them back as they were."""
        return self._spill.read(self)

    def free(self) -> None:
        """The bytes are not needed any more."""
        self._spill.free(self)


class Spill:
    """At most `limit_bytes` of files in a folder. Any thread may call; a place that is read cannot move meanwhile."""

    def __init__(self, folder: str | None, limit_bytes: int) -> None:
        self._lock = threading.Lock()
        self.used_bytes = 0
        """Bytes of all files."""
        self._folder = folder
        self._limit_bytes = limit_bytes
        self._segment_bytes = min(max(SEGMENT_BYTES, limit_bytes // MOST_SEGMENTS), limit_bytes // LEAST_SEGMENTS)
        self._room_bytes = limit_bytes - self._segment_bytes
        """For what is put; the rest is for what moves."""
        self._full_bytes = limit_bytes
        """With so many the disk took nothing more; the limit, where it has taken more since, or always did."""
        self._living_bytes = 0
        self._segments: dict[_Segment, None] = {}
        """The oldest first."""
        self._failed = False
        try:
            if folder is not None:
                os.makedirs(folder, exist_ok=True)
            self._active = self._open()
        except OSError as error:
            raise ConfigError(
                f"models.spill: no file can be made in {folder or tempfile.gettempdir()}: {error}"
            ) from None

    def put(self, data: bytes) -> Place | None:
        """Keep the bytes; None where there is no room for them, in the limit or on the disk."""
        with self._lock:
            try:
                self._tidy(len(data))
                start = self._write(data, self._room_bytes)
            except OSError as error:
                if not self._failed:
                    _log.warning(
                        "spill-failed",
                        "the spill folder takes nothing more, models stay in memory",
                        detail=error,
                        hint="Free room on the disk of models.spill, or name a folder on another one",
                    )
                self._failed = True
                self._full_bytes = self.used_bytes
                return None
            self._failed = False
            if self.used_bytes > self._full_bytes:
                self._full_bytes = self._limit_bytes
            if start is None:
                return None
            place = Place(self, self._active, start, len(data), zlib.crc32(data))
            self._enter(place)
            return place

    def read(self, place: Place) -> bytes:
        """The bytes of a place. Raises StateLost where the disk does not give them back as they were."""
        with self._lock:
            try:
                data = place.segment.read(place)
            except (OSError, ValueError) as error:  # ValueError: the file is closed, for the place was freed
                raise StateLost(f"the spill folder does not give back {place.length} bytes: {error}") from error
        if zlib.crc32(data) != place.checksum:
            raise StateLost(f"the spill folder gives back other bytes than the {place.length} that were put there")
        return data

    def free(self, place: Place) -> None:
        """The bytes of a place are not needed any more; it is no error if they were freed before."""
        with self._lock:
            self._leave(place)

    def close(self) -> None:
        """Give the space back; no place can be read after that."""
        with self._lock:
            for segment in self._segments:
                segment.file.close()

    def _write(self, data: bytes, limit_bytes: int) -> int | None:
        """Append to the active file; where it begins there, None beyond the limit."""
        if self.used_bytes + len(data) > limit_bytes:
            return None
        if self._active.size and self._active.size + len(data) > self._segment_bytes:
            full, self._active = self._active, self._open()
            self._close_if_dead(full)
        start, written = self._active.size, 0
        while written < len(data):
            written += os.pwrite(self._active.file.fileno(), data[written:], start + written)
        self._active.size += len(data)
        self.used_bytes += len(data)
        return start

    def _enter(self, place: Place) -> None:
        """Count the bytes of a place as living ones of its file."""
        place.segment.places.add(place)
        place.segment.living += place.length
        self._living_bytes += place.length

    def _leave(self, place: Place) -> None:
        segment = place.segment
        if place in segment.places:
            segment.places.remove(place)
            segment.living -= place.length
            self._living_bytes -= place.length
            self._close_if_dead(segment)

    def _is_wasteful(self, put_bytes: int) -> bool:
        """Whether most bytes are dead, or so many that two can be moved for each that is put where there is no room."""
        dead_bytes = self.used_bytes - self._living_bytes
        if self.used_bytes + put_bytes > self._full_bytes - self._segment_bytes:
            return 2 * dead_bytes > self._living_bytes
        return dead_bytes > self._living_bytes + self._segment_bytes

    def _tidy(self, put_bytes: int) -> None:
        """Where too many bytes are dead, move living ones out of the most wasteful file, twice as many as are put."""
        n_bytes = 2 * put_bytes
        while n_bytes > 0 and self._is_wasteful(put_bytes):
            others = (segment for segment in self._segments if segment is not self._active)
            victim = min(others, key=lambda segment: segment.living / segment.size, default=None)
            if victim is None or victim.living == victim.size:
                return
            place = next(iter(victim.places))
            # Bytes that are damaged stay so: their checksum moves with them.
            start = self._write(_as_far_as_it_goes(place).ljust(place.length, b"\0"), self._limit_bytes)
            if start is None:
                return
            n_bytes -= place.length
            self._leave(place)
            place.segment, place.start = self._active, start
            self._enter(place)

    def _open(self) -> _Segment:
        # Without a name from the start: not even a SIGKILL leaves it behind.
        file = tempfile.TemporaryFile(prefix="amf-spill-", dir=self._folder, buffering=0)  # noqa: SIM115
        segment = _Segment(file)
        self._segments[segment] = None
        return segment

    def _close_if_dead(self, segment: _Segment) -> None:
        if segment.places:
            return
        self.used_bytes -= segment.size
        # What a broken disk does not take back nobody reads any more.
        if segment is self._active:
            # On a disk that is full it may be the only one that can give room back.
            segment.size = 0
            with suppress(OSError):
                segment.file.truncate(0)
        else:
            del self._segments[segment]
            with suppress(OSError):
                segment.file.close()


def _as_far_as_it_goes(place: Place) -> bytes:
    """The bytes of a place, none where the disk does not give them back: one bad block is no end of all room."""
    try:
        return place.segment.read(place)
    except OSError:
        return b""
