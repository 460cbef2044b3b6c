"""What is put into the spill comes back as it was, or not at all; and it takes no more room than it may."""

from __future__ import annotations

import errno
import os
import random
import threading
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from worker.adapters import spill
from worker.adapters.spill import Place, Spill
from worker.base.errors import ConfigError, StateLost


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of about 100 bytes."""
    monkeypatch.setattr(spill, "SEGMENT_BYTES", 100)


def put(into: Spill, data: bytes) -> Place:
    place = into.put(data)
    assert place is not None
    return place


def test_bytes_come_back(tmp_path: Path) -> None:
    store = Spill(str(tmp_path / "new" / "folder"), 1_000_000)
    places = {data: put(store, data) for data in (b"one", b"", b"two" * 1000)}
    assert {place.read(): place.length for place in places.values()} == {b"one": 3, b"": 0, b"two" * 1000: 3000}
    assert store.used_bytes == 3003


def test_nothing_lies_in_the_folder_that_could_be_left_behind(tmp_path: Path) -> None:
    store, other = Spill(str(tmp_path), 1000), Spill(str(tmp_path), 1000)
    mine, theirs = put(store, b"mine"), put(other, b"theirs")
    assert list(tmp_path.iterdir()) == []
    other.close()
    assert mine.read() == b"mine"
    with pytest.raises(StateLost):
        theirs.read()


def test_there_is_no_room_beyond_the_limit_less_a_file_for_what_moves(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 80)
    kept = put(store, b"1" * 60)
    assert store.put(b"2" * 11) is None
    assert store.put(b"2" * 10) is not None
    assert store.put(b"3") is None
    assert kept.read() == b"1" * 60


@pytest.mark.parametrize("limit_bytes", [1000, 20_000])
@pytest.mark.usefixtures("small")
def test_a_spill_that_was_full_has_room_again_for_as_much_as_is_freed(tmp_path: Path, limit_bytes: int) -> None:
    """Bytes that stay for long must not keep files that are nearly dead."""
    rng = random.Random(1)
    store, living = Spill(str(tmp_path), limit_bytes), dict[bytes, Place]()

    def keep(number: int) -> bool:
        data = b"%010d" % number
        place = store.put(data)
        if place is not None:
            living[data] = place
        return place is not None

    n = next(number for number in range(limit_bytes) if not keep(number))
    assert store.used_bytes > 0.8 * limit_bytes
    for data in rng.sample(sorted(living), 2 * len(living) // 5):
        living.pop(data).free()
    n_living, waited = len(living), 0
    for _ in range(2000):
        living.pop(rng.choice(list(living))).free()
        while len(living) < n_living and keep(n):
            n += 1
        waited = max(waited, n_living - len(living))
        assert store.used_bytes <= limit_bytes
    assert waited < 5
    assert n > 1900
    assert all(place.read() == data for data, place in living.items())


@pytest.mark.usefixtures("small")
def test_a_file_whose_bytes_are_all_freed_is_given_back(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 300)
    first, second = [put(store, b"a" * 50) for _ in range(2)], [put(store, b"b" * 50) for _ in range(2)]
    assert store.used_bytes == 200
    for place in first:
        place.free()
        place.free()
    assert store.used_bytes == 100
    assert [place.read() for place in second] == [b"b" * 50] * 2
    with pytest.raises(StateLost):
        first[0].read()


@pytest.mark.usefixtures("small")
def test_dead_bytes_never_take_much_more_than_the_living_ones(tmp_path: Path) -> None:
    rng = random.Random(1)
    store, living = Spill(str(tmp_path), 20_000), dict[bytes, Place]()
    for number in range(3000):
        data = b"%06d" % number * rng.randint(1, 6)
        living[data] = put(store, data)
        if len(living) > 100:
            living.pop(rng.choice(list(living))).free()
        # A file that is being filled, and what one put moves, may be on top.
        assert store.used_bytes <= 2 * sum(map(len, living)) + 300
    assert all(place.read() == data for data, place in living.items())


@pytest.mark.usefixtures("small")
def test_where_there_is_no_room_to_move_what_lives_it_stays_where_it_is(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 900)
    kept = nearly_dead(store, 8)
    # As if nothing were set aside for it.
    store._limit_bytes = store.used_bytes
    assert [store.put(b"new") for _ in range(3)] == [None] * 3
    assert [place.read() for place in kept] == [b"%d" % i * 10 for i in range(8)]


@pytest.mark.usefixtures("small")
def test_no_put_cleans_up_much_more_than_it_puts_twice_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    store = Spill(str(tmp_path), 20_000)
    kept = nearly_dead(store, 50)
    sizes = written(monkeypatch)
    for _ in range(10):
        used_bytes = store.used_bytes
        sizes.clear()
        put(store, b"x" * 20)
        # Four of ten bytes each, out of files that are given back.
        assert sizes == [10, 10, 10, 10, 20]
        assert store.used_bytes == used_bytes + 60 - 4 * 100
    assert [place.read() for place in kept] == [b"%d" % (i % 10) * 10 for i in range(50)]


def written(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """How many bytes each write has from now on."""
    sizes, pwrite = list[int](), os.pwrite

    def noted(descriptor: int, data: bytes, offset: int) -> int:
        sizes.append(len(data))
        return pwrite(descriptor, data, offset)

    monkeypatch.setattr(os, "pwrite", noted)
    return sizes


def nearly_dead(store: Spill, n: int) -> list[Place]:
    """So many files in which 10 bytes of 100 are alive."""
    pairs = [(put(store, b"%d" % (i % 10) * 10), put(store, b"?" * 90)) for i in range(n)]
    for _, dead in pairs:
        dead.free()
    return [kept for kept, _ in pairs]


def test_what_the_system_takes_and_gives_piece_by_piece_is_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store, pwrite, pread = Spill(str(tmp_path), 1000), os.pwrite, os.pread
    monkeypatch.setattr(os, "pwrite", lambda descriptor, data, offset: pwrite(descriptor, data[:3], offset))
    monkeypatch.setattr(os, "pread", lambda descriptor, n, offset: pread(descriptor, min(n, 3), offset))
    places = {data: put(store, data) for data in (b"12345678", b"", b"abcdefg" * 20)}
    assert {data: place.read() for data, place in places.items()} == {data: data for data in places}


@given(st.lists(st.tuples(st.booleans(), st.integers(0, 130)), max_size=60))
def test_any_order_of_puts_and_frees_gives_back_what_is_there(steps: list[tuple[bool, int]]) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(spill, "SEGMENT_BYTES", 100)
        store, living = Spill(None, 1000), dict[Place, bytes]()
        for n, (is_put, size) in enumerate(steps):
            if is_put:
                data = bytes([n]) * size
                place = store.put(data)
                if place is not None:
                    living[place] = data
            elif living:
                place = list(living)[size % len(living)]
                del living[place]
                place.free()
            assert store.used_bytes <= 1000
        assert {place: place.read() for place in living} == living
        store.close()


@pytest.mark.parametrize("damage", [lambda fd: os.truncate(fd, 3), lambda fd: os.pwrite(fd, b"x", 2)])
def test_damaged_bytes_do_not_come_back(tmp_path: Path, damage: object) -> None:
    store = Spill(str(tmp_path), 1000)
    place = put(store, b"12345")
    damage(place.segment.file.fileno())  # type: ignore[operator]
    with pytest.raises(StateLost, match="5"):
        place.read()


@pytest.mark.usefixtures("small")
def test_damaged_bytes_are_not_healed_by_a_move(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 20_000)
    place, segment = put(store, b"1" * 10), store._active
    os.pwrite(segment.file.fileno(), b"0", 0)
    until_moved(store, place)
    with pytest.raises(StateLost, match="other bytes"):
        place.read()


def until_moved(store: Spill, place: Place) -> None:
    """Put something until a place, in a file that is nearly dead, lies in another one."""
    segment = place.segment
    for _ in range(60):
        put(store, b"x" * 90).free()
        nearly_dead(store, 1)
        if place.segment is not segment:
            return
    pytest.fail("it was never moved")


def test_a_full_disk_is_no_room_and_is_logged_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = Spill(str(tmp_path), 1000)
    kept = put(store, b"kept")

    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, "no space left")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert [store.put(b"1"), store.put(b"2")] == [None, None]
    [warning] = [record.getMessage() for record in caplog.records]
    assert "no space left" in warning
    assert "Free room on the disk of models.spill" in warning, "it says what to do"
    assert (kept.read(), put(store, b"again").read()) == (b"kept", b"again")
    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", full)
        assert store.put(b"3") is None
    assert len(caplog.records) == 2, "it is full for another reason, perhaps"


def on_a_disk(store: Spill, n_bytes: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the files of a store lie on a disk with room for so much."""
    pwrite = os.pwrite

    def write(descriptor: int, data: bytes, at: int) -> int:
        others = sum(os.fstat(each.file.fileno()).st_size for each in store._segments if each is not store._active)
        if others + at + len(data) > n_bytes:
            raise OSError(errno.ENOSPC, "no space left")
        return pwrite(descriptor, data, at)

    monkeypatch.setattr(os, "pwrite", write)


def test_a_disk_that_was_full_of_what_is_freed_has_room_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Though all of it lies in one file, which is not even full."""
    store = Spill(str(tmp_path), 20_000)
    on_a_disk(store, 1000, monkeypatch)
    places = [put(store, b"x" * 100) for _ in range(10)]
    assert store.put(b"more") is None
    for place in places:
        place.free()
    assert (put(store, b"more").read(), store.used_bytes) == (b"more", 4)


def test_what_a_broken_disk_does_not_take_back_is_free_all_the_same(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who forgets a model must not end for it, nor a checkpoint fail that has taken its bytes."""

    class Broken:
        def __getattr__(self, name: str) -> Callable[..., object]:
            def fail(*_: object) -> object:
                raise OSError(errno.EIO, "bad block")

            return fail

    store = Spill(str(tmp_path), 1000)
    place = put(store, b"12345")
    with monkeypatch.context() as patch:
        patch.setattr(place.segment, "file", Broken())
        place.free()
    assert (store.used_bytes, put(store, b"again").read()) == (0, b"again")


@pytest.mark.usefixtures("small")
def test_a_disk_that_is_smaller_than_the_limit_is_cleaned_up_as_one_of_its_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    rng, refused = random.Random(1), list[int]()
    store, living = Spill(str(tmp_path), 20_000), list[Place]()
    on_a_disk(store, 2000, monkeypatch)
    for n in range(3000):
        place = store.put(b"x" * rng.randint(1, 20))
        if place is None:
            refused.append(n)
        else:
            living.append(place)
        if place is None or len(living) > 100:
            living.pop(rng.randrange(len(living))).free()
    assert len(refused) < 30


@pytest.mark.usefixtures("small")
def test_what_lives_is_not_moved_for_a_disk_that_has_room_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    store = Spill(str(tmp_path), 20_000)
    with monkeypatch.context() as patch:
        on_a_disk(store, 60, patch)
        put(store, b"x" * 50)
        assert store.put(b"x" * 50) is None
    pairs = [(put(store, b"1" * 50), put(store, b"0" * 50)) for _ in range(4)]
    segments = [kept.segment for kept, _ in pairs]
    for _, dead in pairs:
        dead.free()
    put(store, b"x" * 50)
    assert [kept.segment for kept, _ in pairs] == segments


def test_a_folder_that_cannot_be_used_is_a_mistake_of_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"")
    with pytest.raises(ConfigError, match=r"models\.spill"):
        Spill(str(tmp_path / "file"), 1000)


@pytest.fixture
def bad_block(monkeypatch: pytest.MonkeyPatch) -> set[int]:
    """Descriptors of files that the disk does not give back."""
    bad, pread = set[int](), os.pread

    def read(descriptor: int, n: int, offset: int) -> bytes:
        if descriptor in bad:
            raise OSError(errno.EIO, "bad block")
        return pread(descriptor, n, offset)

    monkeypatch.setattr(os, "pread", read)
    return bad


def test_a_bad_block_is_a_loss_of_what_lies_there(tmp_path: Path, bad_block: set[int]) -> None:
    store = Spill(str(tmp_path), 1000)
    place = put(store, b"12345")
    bad_block.add(place.segment.file.fileno())
    with pytest.raises(StateLost, match="bad block"):
        place.read()


@pytest.mark.usefixtures("small")
def test_a_bad_block_does_not_keep_others_from_their_room(tmp_path: Path, bad_block: set[int]) -> None:
    store = Spill(str(tmp_path), 20_000)
    kept = nearly_dead(store, 20)
    bad_block.add(kept[3].segment.file.fileno())
    until_moved(store, kept[3])
    bad_block.clear()
    with pytest.raises(StateLost, match="other bytes"):
        kept.pop(3).read()
    assert {place.read() for place in kept} == {b"%d" % i * 10 for i in range(10)}


@pytest.mark.parametrize("act", ["put", "free", "close", "read"])
def test_nothing_else_happens_while_a_place_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: str) -> None:
    """Its file could be closed, and its descriptor be another file's, or its bytes could move."""
    store, pread = Spill(str(tmp_path), 1000), os.pread
    place, other = put(store, b"12345"), put(store, b"67890")
    acts = {"put": lambda: store.put(b"new"), "free": place.free, "close": store.close, "read": other.read}
    thread = threading.Thread(target=acts[act])
    overtaken = list[bool]()

    def read(descriptor: int, n: int, offset: int) -> bytes:
        if not overtaken:
            overtaken.append(False)
            thread.start()
            thread.join(0.2)
            overtaken[:] = [not thread.is_alive()]
        return pread(descriptor, n, offset)

    monkeypatch.setattr(os, "pread", read)
    assert place.read() == b"12345"
    thread.join(10.0)
    assert overtaken == [False]


@pytest.mark.usefixtures("small")
@pytest.mark.parametrize("dead", [[90], [1000]], ids=["less than a file is dead", "all others are alive"])
def test_what_would_give_no_room_worth_its_while_is_not_moved(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, dead: list[int]
) -> None:
    store = Spill(str(tmp_path), 20_000)
    put(store, b"1" * (100 - dead[0] if dead[0] < 100 else 100))
    for place in [put(store, b"?" * n) for n in dead]:
        place.free()
    if dead[0] < 100:
        put(store, b"2" * 50)
    sizes = written(monkeypatch)
    put(store, b"x" * 20)
    assert sizes == [20]


@pytest.mark.usefixtures("small")
def test_what_is_larger_than_a_file_takes_an_empty_one_as_it_is(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 20_000)
    put(store, b"")
    before = put(store, b"1" * 1000).segment
    assert [*store._segments] == [before]


def test_however_large_it_may_be_it_has_no_more_than_some_hundred_files() -> None:
    limit_bytes = 10**15
    assert Spill(None, limit_bytes)._segment_bytes * spill.MOST_SEGMENTS >= limit_bytes - spill.MOST_SEGMENTS


@pytest.mark.usefixtures("small")
def test_what_was_cut_off_takes_its_room_where_it_is_moved_all_the_same(tmp_path: Path) -> None:
    store = Spill(str(tmp_path), 20_000)
    kept = nearly_dead(store, 20)
    os.truncate(kept[3].segment.file.fileno(), 4)
    until_moved(store, kept[3])
    assert all(segment.living <= segment.size for segment in store._segments)
    with pytest.raises(StateLost):
        kept[3].read()
