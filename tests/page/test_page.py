"""The page in a real browser, on the traffic of a real worker."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import ConsoleMessage, Page, expect

from tests.page.browser import DESKTOP, PHONE, Scheme, opened
from tests.page.traffic import ATTACK, Traffic, attacking, changing, faulty, traffic
from worker.adapters.http import serve
from worker.base.metrics import Metrics
from worker.base.status import Board, Status

pytestmark = pytest.mark.full

TOKEN = "a-token-of-some-length"
SHIFTS = """() => new Promise(resolve => {
  let total = 0;
  new PerformanceObserver(list => { for (const each of list.getEntries()) total += each.value; })
    .observe({ type: "layout-shift" });
  setTimeout(() => resolve(total), 5000);
})"""
INK = """canvas => {
  const { data } = canvas.getContext("2d").getImageData(0, 0, canvas.width, canvas.height);
  const colors = new Set();
  for (let i = 0; i < data.length; i += 4) if (data[i + 3] > 200) colors.add(data.slice(i, i + 3).join());
  return colors.size;
}"""

BARS = """(sheet, section) => [...sheet.querySelectorAll(`${section} li`)].map(row => [
  row.querySelector("i").getBoundingClientRect().width, row.getBoundingClientRect().right, row.lastChild.textContent,
])"""
"""Length, right end and text of each bar, all at one moment: they are drawn anew every few seconds."""


BURST = """async () => {
  const [{ Chart }, { number }] = [await import("./charts.js"), await import("./text.js")];
  const parts = { title: "burst", unit: "", format: number, curves: [{ name: "one", color: "--c1" }] };
  const drawn = async values => {
    const chart = new Chart(document.body, parts);
    chart.show([[1000, 1001, 1002, 1003], values]);
    await new Promise(resolve => requestAnimationFrame(() => requestAnimationFrame(resolve)));
    const picture = chart.card.querySelector("canvas").toDataURL();
    chart.remove();
    return picture;
  };
  return [await drawn([null, null, null, null]), await drawn([null, 0.5, null, null])];
}"""
"""A curve without any value, and one with a value between two gaps."""

TICKS = """async () => {
  const { duration } = await import("./text.js");
  return [60, 100, 1800].map(step => [1, 2, 3, 4, 5, 6].map(i => duration(i * step)));
}"""
"""How axes of durations are written, with six ticks each."""


@pytest.fixture(scope="module")
def worker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Traffic]:
    """A worker with payments, faults and attacks flowing in."""
    with traffic(tmp_path_factory.mktemp("traffic")) as running:
        running.send(faulty(), 400)
        running.send(attacking(), 100)
        yield running


@pytest.fixture
def faults() -> list[str]:
    """What a browser complained about."""
    return []


def listen(page: Page, faults: list[str]) -> None:
    """Note what goes wrong in a page, and whom else it asks.

    That a worker is busy is no fault of the page, which asks again: on a machine that others use its loop may be late.
    """
    host = urlsplit(page.url).netloc

    def hear(message: ConsoleMessage) -> None:
        if message.type in ("error", "warning") and "status of 503" not in message.text:
            faults.append(message.text)

    page.on("pageerror", lambda error: faults.append(str(error)))
    page.on("console", hear)
    page.on("request", lambda request: faults.append(request.url) if urlsplit(request.url).netloc != host else None)
    page.reload()


def come_to_work(page: Page) -> None:
    """Wait until the worker has learned and been saved, so that there is something in every curve."""
    expect(page.locator("#state")).to_have_text("live")
    expect(page.locator(".plot .empty:visible")).to_have_count(0)
    expect(page.locator("#models tbody tr").nth(8)).to_be_visible()


def test_every_curve_and_table_shows_the_traffic(worker: Traffic, tmp_path: Path, faults: list[str]) -> None:
    with opened(tmp_path, worker.url) as page:
        listen(page, faults)
        come_to_work(page)
        assert page.locator(".plot canvas").count() == 6
        for canvas in page.locator(".plot canvas").all():
            assert canvas.evaluate(INK) >= 2, "nothing but one colour: there is a grid at most"
        expect(page.locator("#partitions li.live")).to_have_count(4)
        expect(page.locator("#dead-letters tbody")).to_contain_text("malformed-json")
        taken = "() => document.querySelector('.tile .more').textContent"
        before = page.evaluate(taken)
        page.wait_for_function(f"before => ({taken})() !== before", arg=before)
    assert faults == []


def test_a_model_opens_with_its_features_and_its_curve(worker: Traffic, tmp_path: Path, faults: list[str]) -> None:
    with opened(tmp_path, worker.url) as page:
        listen(page, faults)
        come_to_work(page)
        page.get_by_role("button", name="hotels", exact=True).click()
        sheet = page.get_by_role("dialog")
        expect(sheet.get_by_role("heading", name="hotels")).to_be_visible()
        expect(sheet.locator("#model-features li")).to_have_count(5)
        expect(sheet.locator("#model-classes")).to_contain_text("fraud")
        expect(sheet.locator(".legend")).to_contain_text("baseline")
        sheet.get_by_role("button", name="Close").click()
        expect(sheet).to_be_hidden()
    assert faults == []


@pytest.mark.parametrize(("size", "scheme"), [(DESKTOP, "light"), (PHONE, "dark")], ids=["desktop", "phone"])
def test_a_model_that_adapts_shows_the_weights_of_its_features_and_what_moved_its_forecasts(
    worker: Traffic, tmp_path: Path, faults: list[str], size: tuple[int, int], scheme: Scheme
) -> None:
    with opened(tmp_path, worker.url, size, scheme) as page:
        listen(page, faults)
        come_to_work(page)
        page.get_by_role("button", name="hotels", exact=True).click()
        sheet = page.get_by_role("dialog")
        expect(sheet.locator("#model-note")).to_contain_text("adaptive-classifier")
        expect(sheet.locator("dl")).to_contain_text("Trees replaced")
        for section, ending in (("#model-weights", "\u00d7"), ("#model-moves", "")):
            expect(sheet.locator(f"{section} li")).to_have_count(5)
            lengths, ends, texts = zip(*sheet.evaluate(BARS, section), strict=True)
            assert lengths == tuple(sorted(lengths, reverse=True))
            assert lengths[0] > 50
            assert max(ends) <= size[0]
            assert all(text.endswith(ending) for text in texts)
        assert sheet.evaluate("each => each.scrollWidth <= each.clientWidth")
        sheet.get_by_role("button", name="Close").click()
        page.get_by_role("button", name="books", exact=True).click()
        expect(sheet.locator("#model-note")).to_contain_text("amf-classifier")
        expect(sheet.locator("#model-moves li").first).to_be_visible()
        expect(sheet.locator("#model-weights")).to_be_hidden()
    assert faults == []


def test_whoever_chooses_keys_and_names_makes_no_markup(worker: Traffic, tmp_path: Path, faults: list[str]) -> None:
    with opened(tmp_path, worker.url) as page:
        listen(page, faults)
        come_to_work(page)
        expect(page.locator("#models tbody")).to_contain_text(ATTACK)
        expect(page.locator("#dead-letters tbody")).to_contain_text("<img src=x onerror=")
        expect(page.locator("#models tbody")).to_contain_text("\\u{202e}right to left")
        for shown in (ATTACK, "..", "a%2Fb/c?d=e#f", "two\\u{a}lines"):
            page.get_by_role("button", name=shown, exact=True).click()
            expect(page.locator("#model-key")).to_have_text(shown)
            expect(page.locator("#model-note")).to_contain_text("spec")
            assert "no model" not in page.locator("#model-note").inner_text()
            address = page.url
            page.get_by_role("button", name="Close").click()
            expect(page).to_have_url(worker.url)
            page.goto(address)
            expect(page.locator("#model-key")).to_have_text(shown)
            page.get_by_role("button", name="Close").click()
        assert page.title() == "amf-worker"
        assert page.locator("img").count() == 1
    assert faults == []


def test_a_feature_that_changes_its_kind_is_shown(worker: Traffic, tmp_path: Path, faults: list[str]) -> None:
    with opened(tmp_path, worker.url) as page:
        listen(page, faults)
        come_to_work(page)
        expect(page.locator("#kinds")).to_be_hidden()
        worker.send(changing(), 5)
        expect(page.locator("#kinds")).to_have_text(
            "Features and labels that changed between number and text since the start: 1. The log names them."
        )
    assert "feature-kind-changed" in worker.log()
    assert faults == []


def test_the_workers_of_one_command_lead_to_each_other_also_where_one_is_dead(
    tmp_path: Path, faults: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        dead = listener.getsockname()[1]
    board = Board(Status(unready=None))
    server = serve(Metrics(), "127.0.0.1", 0, board=board)
    other = serve(Metrics(), "127.0.0.1", 0, board=Board(Status(group="other", unready=None)))
    board.status = Status(unready=None, port=server.port, workers=(dead, server.port, other.port))
    try:
        with opened(tmp_path, f"http://127.0.0.1:{server.port}/") as page:
            listen(page, faults)
            told = page.locator("#workers")
            expect(told).to_have_text(f"Worker 2 of 3 of one command, at the ports {dead} {server.port} {other.port}")
            assert told.locator("a").all_inner_texts() == [str(dead), str(other.port)]
            expect(page.locator("#state")).to_have_text("starting")
            assert faults == []
            told.get_by_role("link", name=str(other.port)).click()
            expect(page.locator("#identity")).to_contain_text("group other")
            expect(page.locator("#workers")).to_be_hidden()
    finally:
        server.close()
        other.close()


def test_a_worker_behind_the_port_of_another_one_knows_who_it_is_and_leads_nowhere(
    tmp_path: Path, faults: list[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        own = listener.getsockname()[1]
    board = Board(Status(unready=None))
    forwarded = serve(Metrics(), "127.0.0.1", 0, board=board)
    board.status = Status(unready=None, port=own, workers=(forwarded.port, own))
    try:
        with opened(tmp_path, f"http://127.0.0.1:{forwarded.port}/") as page:
            listen(page, faults)
            told = page.locator("#workers")
            expect(told).to_have_text(f"Worker 2 of 2 of one command, at the ports {forwarded.port} {own}")
            assert told.locator("a").count() == 0
            assert faults == []
    finally:
        forwarded.close()


@pytest.mark.parametrize("size", [DESKTOP, PHONE], ids=["desktop", "phone"])
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_it_fits_and_stays_where_it_is(
    worker: Traffic, tmp_path: Path, faults: list[str], size: tuple[int, int], scheme: Scheme
) -> None:
    with opened(tmp_path, worker.url, size, scheme) as page:
        listen(page, faults)
        come_to_work(page)
        assert page.evaluate("document.documentElement.scrollWidth") <= size[0]
        for chart in page.locator(".plot canvas").all():
            box = chart.bounding_box()
            assert box is not None
            assert box["x"] + box["width"] <= size[0]
        ground = page.evaluate("getComputedStyle(document.documentElement).backgroundColor")
        brightness = sum(map(int, ground.strip("rgb()").split(", "))) / 3
        assert (brightness > 200) == (scheme == "light")
        assert page.evaluate(SHIFTS) < 0.02
    assert faults == []


def test_a_burst_between_two_gaps_is_seen_and_no_two_ticks_of_an_axis_read_the_same(
    worker: Traffic, tmp_path: Path
) -> None:
    with opened(tmp_path, worker.url) as page:
        nothing, burst = page.evaluate(BURST)
        assert nothing != burst
        for ticks in page.evaluate(TICKS):
            assert len(set(ticks)) == len(ticks), ticks


def test_colours_follow_when_the_scheme_changes(worker: Traffic, tmp_path: Path) -> None:
    with opened(tmp_path, worker.url) as page:
        come_to_work(page)
        picture = "() => document.querySelector('.plot canvas').toDataURL()"
        page.route("**/status", lambda route: route.abort())  # so that nothing else changes the picture
        page.wait_for_function("() => document.documentElement.classList.contains('lost')")
        before = page.evaluate(picture)
        page.emulate_media(color_scheme="dark")
        page.wait_for_function(f"before => ({picture})() !== before", arg=before)


def test_a_worker_that_goes_and_comes_back_is_seen_to(tmp_path: Path) -> None:
    """Behind a token: asked for, refused, accepted; then the worker is killed, and started again."""
    with traffic(tmp_path, token=TOKEN) as running, opened(tmp_path, "about:blank") as page:
        running.send(faulty(), 200)
        page.goto(running.url)
        form = page.locator("#unlock")
        for given in ("wrong", TOKEN):
            expect(form).to_be_visible()
            expect(page.locator("#figures")).to_be_hidden()
            form.get_by_role("textbox").fill(given)
            form.get_by_role("button").click()
        expect(form).to_be_hidden()
        expect(page.locator("#state")).to_have_text("live")
        running.worker.kill()
        expect(page.get_by_role("alert")).to_contain_text("No contact with the worker since")
        expect(page.locator("#state")).to_have_text("no contact")
        running.start()
        expect(page.get_by_role("alert")).to_be_hidden()
        expect(page.locator("#state")).to_have_text("live")
