"""Compiled kernels on disk: never those of other sources, never needed to run, and brought along by an image."""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import numpy as np
import pytest
from numba import config, float64

import amf
from amf.jit import cache
from amf.jit.decorators import called, inlined, kernel
from amf.jit.linking import address_of_kernel, call_kernel

ROOT = Path(__file__).parents[2]

pytestmark = pytest.mark.skipif(config.DISABLE_JIT, reason="NUMBA_DISABLE_JIT is set: nothing is compiled")

TELL = """
def tell():
    "How many specialisations of kernels were loaded from disk, how many compiled, how many one kernel has at most."
    # `run` is one kernel for all systems, and has labels of two types: classes and numbers.
    every = {id(k): k for m in [*sys.modules.values()] if (getattr(m, "__name__", None) or "").startswith("amf")
             for v in vars(m).values() for k in (v if isinstance(v, tuple) else (v,))
             if isinstance(getattr(k, "_cache", None), KernelCache)}.values()
    print(sum(sum(k.stats.cache_hits.values()) for k in every), sum(sum(k.stats.cache_misses.values()) for k in every),
          max(len(k.signatures) - (k.__name__ == 'run') for k in every))
"""


def run(script: str, home: Path = ROOT, **options: object) -> list[str]:
    """What a new process prints that imports the package from the folder `home`."""
    start = f"import sys\nimport amf\nimport numpy as np\nfrom amf.jit.cache import KernelCache\n{TELL}"
    environment = {**os.environ, "PYTHONPATH": str(home), **options.pop("env", {})}
    done = subprocess.run(
        [sys.executable, "-c", start + textwrap.dedent(script)],
        cwd=home,
        env={name: value for name, value in environment.items() if value is not None},
        capture_output=True,
        text=True,
        check=False,
        **options,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


def copy_of_package(to: Path) -> Path:
    """Without its kernels."""
    shutil.copytree(ROOT / "amf", to / "amf", ignore=shutil.ignore_patterns("*.nbc"))
    return to


def nobody(home: Path) -> dict[str, object]:
    """Options of a process that may write nowhere: into the package neither."""
    for path in (home, *home.rglob("*")):
        path.chmod(0o555 if path.is_dir() else 0o444)
    environment = {"HOME": os.devnull, "XDG_CACHE_HOME": None, "NUMBA_CACHE_DIR": None}
    return {"env": environment, "preexec_fn": obey if os.geteuid() == 0 else None}


def obey() -> None:
    """Give up what lets root write to what is read-only."""
    set_drop, overriding, by_ownership = 24, 1, 3
    for capability in (overriding, by_ownership):
        assert ctypes.CDLL(None).prctl(set_drop, capability, 0, 0, 0) == 0


THREE = """
from amf.jit.decorators import exported
from amf.kernels.aggregation import chain_odds
amf.odds = exported(chain_odds)
print(amf.odds(1.0, 2))
"""


def test_an_edit_of_what_a_kernel_inlines_is_seen_though_time_and_size_stay(tmp_path):
    home = copy_of_package(tmp_path)
    assert run(THREE, home, env={"NUMBA_CACHE_DIR": None}) == ["3.0"]
    inlined = home / "amf" / "jit" / "elementary.py"
    was, source = inlined.stat(), inlined.read_text()
    edited = source.replace("_power(k - half)", "_power(k + half)")
    assert edited != source
    inlined.write_text(edited)
    os.utime(inlined, ns=(was.st_atime_ns, was.st_mtime_ns))
    for compiled in (inlined.parent / "__pycache__").glob("elementary.*.pyc"):
        compiled.unlink()  # Python's own cache goes by time and size, too
    assert run(THREE, home, env={"NUMBA_CACHE_DIR": None}) == ["15.0"]


def test_where_nothing_can_be_written_kernels_are_compiled_in_memory(tmp_path):
    home = copy_of_package(tmp_path / "home")
    script = THREE + "tell()"
    assert run(script, home, **nobody(home)) == ["3.0", "0", "1", "1"]


@pytest.mark.full
def test_a_start_with_kernels_on_disk_loads_nothing_of_the_compiler_and_can_compile_all_the_same():
    script = """
    amf.compile_kernels([amf.AMFClassifier])
    x = np.random.default_rng(0).random((50, 3))
    forecasts = amf.AMFClassifier(2).predict_learn(x, [0, 1] * 25)
    print("numba.np.arraymath" in sys.modules, np.isfinite(forecasts).all())
    import numba

    @numba.njit
    def summed(a):
        numbers = [a.sum(), np.sort(a)[0], {1: 2.0}[1]]
        numbers.sort()
        return numbers[-1], "x" + str(len(numbers))

    print(summed(np.array([2.0, 3.0]))[1], numba.njit(lambda a: a * a)(3))
    """
    run("amf.compile_kernels([amf.AMFClassifier])")
    assert run(script) == ["False", "True", "x3", "9"]


def test_after_compile_kernels_nothing_is_compiled_for_other_parameters_or_arrays():
    """Whoever gives a whole number for a real one, or an array of another kind, must not stop the stream for it."""
    script = """
    amf.compile_kernels(threads=True)
    tell()
    rng = np.random.default_rng(0)
    x = rng.random((100, 3))
    labels = [0, 1] * 50
    frozen, odd = x.copy(), np.frombuffer(b"x" + x.tobytes(), np.float64, offset=1).reshape(x.shape)
    frozen.flags.writeable = False
    arrays = [x, frozen, odd, x.astype("f4"), x.astype(">f8"), np.asfortranarray(x), x[::-1], x.tolist(), x[:1], x[:0]]
    targets = np.array(labels, np.float64)
    targets.flags.writeable = False
    packed = np.frombuffer(b"x" + targets.tobytes(), np.float64, offset=1)
    plain = [{}, {"n_estimators": 3, "n_threads": 2}, {"max_bytes": 3_000}]
    common = [*plain, {"charge_first": True}]
    mondrian = [*plain, {"lifetime": 1}, {"min_samples_split": 3, "calibration": False}, {"split_pure": True}]
    increasing = [*plain, {"lifetime": 2, "lifetime_exponent": 1}, {"domain": "cube", "calibration": False}]
    free = [{"mode": "sampled", "scaling": "none"}, {"mode": "expected", "split_pure": True}]
    prior = [{"prior": "dirichlet", "dirichlet": 1}, {"prior": "dirichlet"}, {"smoothing": 1}, {"classes": [0, 1]}]
    settings = {
        amf.AMFClassifier: [*common, *free, *prior, {"pause": 1}],
        amf.AMFRegressor: [*common, *free, {"loss": "square", "bound": 1}, {"calibration": False}],
        amf.UnrestrictedAMFClassifier: [*common, *prior],
        amf.MondrianForestClassifier: [*mondrian, {"smoothing": "path_mean"}, {"discount": 1}, {"classes": [0, 1]}],
        amf.MondrianForestRegressor: mondrian,
        amf.IncreasingLifetimeForestClassifier: [*increasing, {"combine": "vote"}, {"classes": [0, 1]}],
        amf.IncreasingLifetimeForestRegressor: increasing,
        amf.AdaptiveAMFClassifier: [*common, {"background": 0.5, "review_every": 3}, {"background": 0}],
        amf.AdaptiveAMFRegressor: [*common, {"background": 0.5, "review_every": 3}],
        amf.BSPForestClassifier: [*plain, {"combine": "vote"}, {"lifetime": 1}, {"lifetime_exponent": 0}],
        amf.BSPForestRegressor: [*plain, {"rate_scale": 1, "min_samples_split": 1}, {"calibration": False}],
    }
    for system, choices in settings.items():
        for setting in choices:
            forest = system(**setting).partial_fit(x, labels)
            forest.prequential(x, labels)
            forest.attribute(x)
        for rows in arrays:
            for y in (labels, targets, packed, targets[::-1], np.array(labels), [None] * 100):
                forest = system(2).partial_fit(rows, y[:len(rows)])
                forest.prequential(x, y)
                forest.partial_fit(x, labels).weighted_depth(rows)
                forest.attribute(rows)
            real = () if forest.class_labels else (targets, packed)
            for y in (labels, np.array(labels), np.array(labels, "i4")[::-1], *real):
                for n_threads in (1, 2):
                    slots = list(range(len(rows)))[::-1]
                    some = [forest.copy() for _ in slots]
                    if some:
                        amf.predict_learn_many(some, rows, slots, y[:len(rows)], n_threads=n_threads)
        data = forest.dumps()
        for again in (data, bytearray(data), memoryview(b"x" + data)[1:]):
            amf.loads(again).copy().describe()
        stray = np.concatenate([np.ones((1, 3)), 1e-4 * x])
        system(3, n_threads=2).partial_fit(stray, [0, *labels]).predict(x)
    tell()
    """
    *before, most, loaded, compiled, _ = run(script)
    assert most == "1", "a kernel was compiled for more than one kind of arguments"
    assert int(loaded) + int(compiled) == sum(map(int, before)), "kernels were compiled in mid-stream"


def run_module(folder: Path, text: str, script: str) -> list[str]:
    """What a new process prints that has this module of somebody else's, `systems`, and keeps kernels beside it."""
    (folder / "systems.py").write_text(textwrap.dedent(text))
    environment = {"NUMBA_CACHE_DIR": str(folder / "kernels"), "PYTHONDONTWRITEBYTECODE": "1"}
    return run(f"sys.path.insert(0, {str(folder)!r})\nfrom systems import *\n{script}", env=environment)


def test_kernels_that_two_processes_compiled_keep_their_parts_apart(tmp_path):
    """Parts of one name, of the same types, and of the same place in the order in which a process compiles them."""
    text = """
    from amf.jit.decorators import called, kernel
    from amf.jit.elementary import exp, log

    def system(name, step):
        @called
        def part(x):
            for _ in range(3):
                STEPS
            return x

        def run(x):
            return part(x) + part(x + 1.0)

        run.__qualname__ = f"{name}.run"
        return kernel(run)

    one, two = system("one", 1.0), system("two", 2.0)
    """.replace("STEPS", "; ".join(["x += step * exp(-x) + log(x + 2.0)"] * 20))  # too long to be inlined
    alone = [run_module(tmp_path, text, f"print({name}(1.0))")[0] for name in ("one", "two")]
    assert alone[0] != alone[1]
    assert run_module(tmp_path, text, "print(one(1.0), two(1.0), one.stats.cache_misses)") == [*alone, "Counter()"]


OF_ANOTHER = """
from amf.jit.decorators import inlined, kernel

STEP = 1.0

@inlined
def part(x):
    return x + STEP

def make(part):
    def run(x):
        return 10.0 * part(x)
    return kernel(run)

one = make(part)
"""


@pytest.mark.parametrize("edit", [("+ STEP", "- STEP"), ("STEP = 1.0", "STEP = 3.0"), ("10.0 *", "20.0 *")], ids=str)
def test_an_edit_of_a_module_that_brings_parts_of_its_own_is_seen(tmp_path, edit):
    script = "print(one(5.0), sum(one.stats.cache_hits.values()))"
    before = run_module(tmp_path, OF_ANOTHER, script)
    assert [before, run_module(tmp_path, OF_ANOTHER, script)] == [["60.0", "0"], ["60.0", "1"]]
    value, hits = run_module(tmp_path, OF_ANOTHER.replace(*edit), script)
    assert float(value) not in (60.0, 0.0)
    assert hits == "0"


def test_kernels_of_parts_that_have_no_text_are_not_kept(tmp_path):
    folder = tmp_path / "kernels"
    script = f"{OF_ANOTHER}\nprint(one(5.0))"
    assert run(script, env={"NUMBA_CACHE_DIR": str(folder)}) == ["60.0"]
    assert not folder.exists()


@pytest.fixture
def shelf(tmp_path, monkeypatch):
    """Folders for kernels: one that takes no files, because it is none, and one that does."""
    (tmp_path / "file").touch()
    monkeypatch.setattr(cache, "folders", lambda: iter([tmp_path / "file" / "below", tmp_path / "kernels"]))
    return tmp_path / "kernels"


def test_what_is_called_is_not_inlined_by_force_into_what_is(shelf):
    """numba would hand that down, to all that is called in turn: such kernels took 14 times as long to compile."""

    @called
    def part(x):
        return x + 1.0

    @inlined
    def amid(x):
        return part(x)

    def whole(x):
        return amid(x)

    assert kernel(whole)(1.0) == 2.0
    by_force = ["alwaysinline" in each.overloads[float64,].library.get_llvm_str() for each in (part, amid)]
    assert by_force == [False, True]


def test_a_kernel_that_is_called_by_address_does_what_it_does_and_what_it_raises_is_raised(shelf):
    def halve(numbers, to_place):
        if to_place > numbers.shape[0]:
            raise ValueError("beyond the last one")
        numbers[:to_place] *= 0.5

    def call(address, numbers, to_place):
        call_kernel(address, (numbers, to_place))

    numbers = np.ones(3)
    address = address_of_kernel(kernel(halve), numbers, 1)
    kernel(call)(address, numbers, 2)
    assert numbers.tolist() == [0.5, 0.5, 1.0]
    with pytest.raises(ValueError, match="beyond the last one"):
        kernel(call)(address, numbers, 4)


def test_what_systems_have_in_common_is_compiled_once():
    plain, adaptive, other = (
        each._kernels for each in (amf.AMFClassifier, amf.AdaptiveAMFClassifier, amf.BSPForestRegressor)
    )
    assert plain.run is adaptive.run is other.run
    assert [one is two for one, two in zip(plain, adaptive, strict=True)] == [*[True] * 4, False, *[True] * 3, False]
    assert plain.walk is not other.walk


def test_a_kernel_leaves_numba_and_the_garbage_collector_as_they_were(tmp_path):
    """Functions of numba that a kernel brought along serve others as well, and collection goes on, or stays off."""
    script = """
    import gc
    from amf.jit.decorators import kernel
    from numba import njit
    from numba.core import compiler

    def total(n):
        values = np.zeros(n)
        return max(values.sum(), 1.0) + np.empty(n).size

    def broken(n):
        return n.nothing_of_that_name

    compile_extra, seen = compiler.compile_extra, []
    seen.append(kernel(total)(3) == njit(total)(3) == total(3))
    seen.append(gc.isenabled())
    try:
        kernel(broken)(3)
    except Exception as error:
        seen.append("nothing_of_that_name" in str(error))
    seen.append(gc.isenabled())
    gc.disable()
    kernel(total)(np.int32(3))
    seen.append(not gc.isenabled())
    seen.append(compiler.compile_extra is compile_extra)
    print(all(seen), len(seen), seen)
    """
    assert run(script, env={"NUMBA_CACHE_DIR": str(tmp_path)})[:2] == ["True", "6"]


def doubled(x):
    return x * 2


def traffic(value: float) -> tuple[int, int]:
    """(loaded, compiled) specialisations of a new kernel that is called once."""
    double = kernel(doubled)
    assert double(value) == 2 * value
    return sum(double.stats.cache_hits.values()), sum(double.stats.cache_misses.values())


def test_a_kernel_is_compiled_once_for_each_type(shelf):
    assert [traffic(1), traffic(1), traffic(0.5), traffic(0.5)] == [(0, 1), (1, 0), (0, 1), (1, 0)]
    assert len(list(shelf.iterdir())) == 2


@pytest.mark.parametrize("setting", ["NUMBA_OPT", "NUMBA_BOUNDSCHECK", "NUMBA_SLP_VECTORIZE"])
def test_a_kernel_that_was_compiled_with_other_settings_is_not_taken(shelf, monkeypatch, setting):
    """One without optimisation would slow all later processes down."""
    with monkeypatch.context() as changed:
        changed.setenv(setting, "0")
        assert [traffic(1), traffic(1)] == [(0, 1), (1, 0)]
    assert [traffic(1), traffic(1)] == [(0, 1), (1, 0)]


def test_what_is_compiled_is_announced_once_with_the_folder_that_will_keep_it(shelf, monkeypatch):
    said = []
    monkeypatch.setattr(cache.tally, "announce", said.append)
    assert [traffic(1), traffic(0.5)] == [(0, 1), (0, 1)]
    assert [(each.folder, bool(each.cpu)) for each in said] == [(shelf, True)]


def test_nothing_is_announced_where_all_is_on_disk(shelf, monkeypatch):
    traffic(1)
    said = []
    monkeypatch.setattr(cache.tally, "announce", said.append)
    loaded = cache.tally.loaded
    assert traffic(1) == (1, 0)
    assert (said, cache.tally.loaded) == ([], loaded + 1)


def test_where_no_folder_takes_files_the_announcement_says_so(shelf, monkeypatch, tmp_path):
    monkeypatch.setattr(cache, "folders", lambda: iter([tmp_path / "file" / "below"]))
    said = []
    monkeypatch.setattr(cache.tally, "announce", said.append)
    assert traffic(1) == (0, 1)
    assert [each.folder for each in said] == [None]


def test_kernels_of_other_sources_are_replaced(shelf, monkeypatch):
    assert traffic(1) == (0, 1)
    monkeypatch.setattr(cache, "_SOURCES", b"other")
    assert [traffic(1), traffic(1)] == [(0, 1), (1, 0)]
    assert len(list(shelf.iterdir())) == 1


def test_a_damaged_kernel_is_compiled_again(shelf):
    traffic(1)
    [file] = shelf.iterdir()
    data = file.read_bytes()
    for at in (0, 40, len(data) // 2, len(data) - 1):
        file.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
        assert [traffic(1), traffic(1)] == [(0, 1), (1, 0)]
        file.write_bytes(data[:at])
        assert traffic(1) == (0, 1)


def test_a_package_without_source_files_keeps_nothing_on_disk(shelf, monkeypatch):
    """From an archive, say: then nothing tells which sources a file belongs to."""
    monkeypatch.setattr(cache, "_SOURCES", cache._hash_of_sources(shelf))
    assert [traffic(1), traffic(1)] == [(0, 1), (0, 1)]
    assert not shelf.exists()


def test_the_hash_follows_content_and_names(tmp_path):
    def write(**sources):
        shutil.rmtree(tmp_path / "p", ignore_errors=True)
        (tmp_path / "p" / "q").mkdir(parents=True)
        for name, source in sources.items():
            (tmp_path / "p" / f"{name.replace('_', '/')}.py").write_text(source)
        return cache._hash_of_sources(tmp_path / "p")

    states = [{"a": "1", "q_b": "2"}, {"a": "1", "q_b": "3"}, {"a": "1", "b": "2"}, {"a": "12", "q_b": ""}]
    assert len({write(**state) for state in states}) == len(states)
    assert write(**states[0]) == write(**states[0])


def test_one_system_alone_can_be_compiled():
    amf.compile_kernels([amf.AMFRegressor])
    again = amf.compile_kernels([amf.AMFRegressor], announce=lambda _: pytest.fail("all of it is in memory"))
    assert again == (0, 0)
    assert np.isfinite(amf.AMFRegressor(1).partial_fit([[0.0], [1.0]], [0, 1]).predict([[0.5]])).all()


def test_a_compilation_that_fails_announces_nothing_later():
    class Broken(amf.AMFRegressor):
        def partial_fit(self, *_):
            raise MemoryError

    with pytest.raises(MemoryError):
        amf.compile_kernels([Broken], announce=lambda _: None)
    assert cache.tally.announce is None
