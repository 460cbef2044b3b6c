"""Files that commands write: replaced whole, and refused before the work where they cannot be written."""

from __future__ import annotations

import os
import threading
from pathlib import Path

import pytest

from worker.base.errors import ConfigError
from worker.cli.files import replacing, require_distinct, require_place, temporary_for


def test_what_is_no_file_is_written_to_as_it_is(tmp_path: Path) -> None:
    pipe, read = tmp_path / "pipe", list[str]()
    os.mkfifo(pipe)
    reader = threading.Thread(target=lambda: read.append(pipe.read_text()))
    reader.start()
    with replacing(pipe) as file:
        file.write("through")
    reader.join(10)
    assert (read, pipe.is_fifo()) == (["through"], True)


def test_a_pipe_without_a_path_is_written_to_as_well() -> None:
    """As `--out /dev/stdout | gzip` has one, and `--out >(gzip)` in a shell."""
    reads, writes = os.pipe()
    path = Path(f"/dev/fd/{writes}")
    require_place(path)
    with temporary_for(path):
        pass
    with replacing(path) as file:
        file.write("through")
    os.close(writes)
    with open(reads, encoding="utf-8") as pipe:
        assert pipe.read() == "through"


def test_what_can_be_written_is_not_refused_before(tmp_path: Path) -> None:
    pipe, link, away = tmp_path / "pipe", tmp_path / "link", tmp_path / "away" / "file"
    os.mkfifo(pipe)
    link.symlink_to(away)
    away.parent.mkdir()
    for path in (pipe, link, away, Path(os.devnull)):
        require_place(path)
    assert list(away.parent.iterdir()) == []


def test_what_cannot_be_written_is_refused_before(tmp_path: Path) -> None:
    nowhere, ring = tmp_path / "nowhere", tmp_path / "ring"
    nowhere.symlink_to(tmp_path / "none" / "file")
    ring.symlink_to(ring)
    for path in (nowhere, ring, tmp_path, tmp_path / ("n" * 253), tmp_path / "none" / "file"):
        with pytest.raises(ConfigError, match="cannot be written"):
            require_place(path)


def test_the_file_behind_a_link_is_replaced_and_keeps_its_permissions(tmp_path: Path) -> None:
    file, link = tmp_path / "file", tmp_path / "link"
    file.write_text("before")
    file.chmod(0o600)
    link.symlink_to(file)
    with replacing(link) as written:
        written.write("after")
    assert link.is_symlink()
    assert (file.read_text(), file.stat().st_mode & 0o777) == ("after", 0o600)
    assert sorted(tmp_path.iterdir()) == [file, link]


def test_what_is_not_written_to_its_end_leaves_the_file_that_was_there(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("before")

    def write_half() -> None:
        with replacing(file) as written:
            written.write("half of what comes after")
            written.flush()
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        write_half()
    assert file.read_text() == "before"
    assert list(tmp_path.iterdir()) == [file]


def test_what_a_file_is_made_of_is_on_the_disk_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for it, where there may be none among the temporary files of the system."""
    folders: list[Path | None] = []
    monkeypatch.setattr("worker.cli.files.TemporaryFile", lambda *_, dir, **__: folders.append(dir))
    for path in (tmp_path / "file", Path(os.devnull)):
        temporary_for(path)
    assert folders == [tmp_path, None]


def test_one_file_for_two_uses_is_refused_however_it_is_called(tmp_path: Path) -> None:
    file, link, ring = tmp_path / "file", tmp_path / "link", tmp_path / "ring"
    link.symlink_to(file)
    ring.symlink_to(ring)
    with pytest.raises(ConfigError, match="--out would take the place of the rows"):
        require_distinct({"the rows": file, "--report": None, "--out": link})
    nothing, long = Path(os.devnull), tmp_path / ("n" * 300)
    require_distinct({"a": file, "b": nothing, "c": nothing, "d": ring, "e": long, "f": None, "g": None})
