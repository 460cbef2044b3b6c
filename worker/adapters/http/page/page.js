// Asks the worker for its status once a second and shows it. Curves begin with the history that the worker keeps.

import { ask } from "./ask.js";
import { Chart } from "./charts.js";
import { bytes, compact, duration, element, loss, NONE, number, percent, time, visible } from "./text.js";
import { hideModel, refreshModel, showLinkedModel, showModel } from "./model.js";

const EVERY_MS = 1000;
const POINTS = 900;
const CURVES = 6;
const GAP_MS = 5000;
const LEAST_SPAN = 0.2;  // of the baseline: what is less is drawn as next to nothing
const STATES = ["live", "replay", "opening", "waiting", "stopped"];
const COLORS = ["--c0", "--c1", "--c2", "--c3", "--c4", "--c5"];

const $ = (selector) => document.querySelector(selector);
const root = document.documentElement;

let columns = { at_ms: [] };
let models = new Map();
let shown = [];
let order = [];
let seenAt = Date.now();
let movedAt = performance.now();
let lastAt = null;
let misses = 0;

// --- asking ---------------------------------------------------------------------------------------------------------

$("#unlock").addEventListener("submit", (event) => {
  event.preventDefault();
  sessionStorage.setItem("token", $("#token").value.trim());
  $("#token").value = "";
  again();
});

async function look() {
  const status = await ask("status");
  const point = status.point;
  if (point && (lastAt === null || point.at_ms - lastAt > GAP_MS || missing(status.leaders))) await recall();
  else if (point && point.at_ms !== lastAt) append(point);
  if (status.at_ms !== lastAt) movedAt = performance.now();
  lastAt = point ? point.at_ms : null;
  $("#unlock").hidden = true;
  $("#figures").hidden = false;
  render(status);
}

// A model that has a curve is no longer among the leaders, or there is room for one more.
function missing(leaders) {
  const keys = new Set(leaders.filter((each) => each.loss).map((each) => each.key));
  return shown.some((key) => !keys.has(key)) || shown.length < Math.min(CURVES, keys.size);
}

async function recall() {
  const { models: curves, ...rest } = await ask("history");
  columns = rest;
  models = new Map(curves.map(({ key, loss: of, baseline }) => [key, { loss: of, baseline }]));
  const kept = shown.filter((key) => models.has(key));
  const keys = [...kept, ...[...models.keys()].filter((key) => !kept.includes(key))].slice(0, CURVES);
  if (keys.join("\0") !== shown.join("\0")) {
    shown = keys;
    charts.loss.draw([BASELINE, ...shown.map((name, i) => ({ name, color: COLORS[i] }))]);
  }
}

function append(point) {
  for (const [name, column] of Object.entries(columns)) {
    column.push(point[name] ?? null);
    if (column.length > POINTS) column.shift();
  }
  for (const [key, curve] of models) {
    const [now, baseline] = point.losses[key] ?? [null, null];
    curve.loss.push(now);
    curve.baseline.push(baseline);
    if (curve.loss.length > POINTS) [curve.loss, curve.baseline].forEach((column) => column.shift());
  }
}

// --- curves ---------------------------------------------------------------------------------------------------------

const BASELINE = { name: "baseline", color: "--soft", dashed: true };
const ratio = ({ loss: of, baseline }) => of.map((value, i) => (baseline[i] > 0 ? value / baseline[i] : null));
// The histogram of latencies ends there.
const MOST_LATENCY_S = 1800;
const latency = (seconds) => (seconds >= MOST_LATENCY_S ? `over ${duration(MOST_LATENCY_S)}` : duration(seconds));
const chart = (options) => new Chart($("#charts"), options);
const charts = {
  rate: chart({
    title: "Throughput", unit: "records/s", format: number, least: 1,
    curves: [
      { name: "predicted", color: "--c0", fill: true },
      { name: "replayed", color: "--c3" },
      { name: "dead letters", color: "--c4" },
    ],
  }),
  loss: chart({
    title: "Recent loss", unit: "of the top models, as a share of the baseline’s",
    format: (value) => value.toFixed(2), least: 1.1, tall: true, curves: [BASELINE],
  }),
  lag: chart({
    title: "Lag", unit: "records not yet taken in", format: number, least: 10,
    curves: [{ name: "all partitions", color: "--c0", fill: true }],
  }),
  latency: chart({
    title: "Latency", unit: "from a record’s timestamp to its commit", format: latency, least: 0.05,
    curves: [{ name: "median", color: "--c0" }, { name: "99 %", color: "--c1" }],
  }),
  depth: chart({
    title: "Depth", unit: "edges from the root", format: (value) => value.toFixed(1), least: 1,
    curves: [{ name: "leaf", color: "--c2" }, { name: "weighted", color: "--c3" }],
  }),
  saved: chart({
    title: "Checkpoint age", unit: "of the partition that waits longest", format: duration, least: 5,
    curves: [{ name: "oldest", color: "--c2", fill: true }],
  }),
};

function renderCurves() {
  const at = columns.at_ms.map((ms) => ms / 1000);
  const of = (...names) => [at, ...names.map((name) => columns[name] ?? [])];
  charts.rate.show(of("events_per_second", "replayed_per_second", "dead_letters_per_second"));
  const ratios = shown.map((key) => ratio(models.get(key)));
  charts.loss.show([at, at.map(() => (ratios.length ? 1 : null)), ...ratios]);
  charts.lag.show(of("lag"));
  charts.latency.show(of("latency_p50_seconds", "latency_p99_seconds"));
  charts.depth.show(of("depth", "weighted_depth"));
  charts.saved.show(of("checkpoint_age_seconds"));
}

// --- figures --------------------------------------------------------------------------------------------------------

const tiles = Object.fromEntries(
  ["Throughput", "Lag", "Latency", "Checkpoint age", "Models", "Better than baseline"].map((title) => {
    const tile = element("article", null, "tile");
    const value = element("p", NONE, "value");
    const more = element("p", "\u00a0", "more");
    tile.append(element("h2", title), value, more);
    $("#tiles").append(tile);
    return [title, { value, more }];
  }),
);

function tile(title, value, unit, more) {
  tiles[title].value.textContent = value;
  if (unit && value !== NONE) tiles[title].value.append(" ", element("small", unit));
  tiles[title].more.textContent = more || "\u00a0";
}

function render(status) {
  const { point, totals, partitions } = status;
  $("#identity").textContent = visible(`group ${status.group} · topic ${status.topic}`);
  $("#version").textContent = visible(`amf-worker ${status.version}, engine ${status.engine}, started ${new Date(status.started_ms).toLocaleString("en-GB")}`);
  renderWorkers(status.port, status.workers);
  if (point) {
    tile("Throughput", number(Math.round(point.events_per_second)), "/s", `${number(totals.events)} in all`);
    tile("Lag", number(point.lag), "records", waiting(point));
    tile("Latency", latency(point.latency_p50_seconds), "", `99 %: ${latency(point.latency_p99_seconds)}`);
    const failures = totals.checkpoint_failures;
    tile("Checkpoint age", duration(point.checkpoint_age_seconds), "", failures ? `${number(failures)} failures` : "no failures");
    const away = totals.models_away ? `, ${number(totals.models_away)} away` : "";
    tile("Models", number(totals.models + totals.models_away), "", `${bytes(totals.model_bytes)}${away}`);
    const judged = totals.models_useful + totals.models_useless;
    tile("Better than baseline", judged ? percent(totals.models_useful / judged) : NONE, "", `of ${number(judged)} with 100 labels`);
  }
  renderState(status);
  renderPartitions(partitions);
  renderCalibration(status.calibration);
  renderModels(status.leaders);
  renderKinds(totals.kind_changes);
  renderDeadLetters(status.dead_letters, totals.dead_letters);
  if (columns.at_ms.length) renderCurves();
  refreshModel(columns, models);
}

// Of the other workers of one command. They are not asked: whether they live their own pages tell. Which one this
// is it says itself. Where the page was reached by another port, there is no telling where the others are.
function renderWorkers(own, ports) {
  const place = $("#workers");
  if (place.dataset.ports === String(ports)) return;
  place.dataset.ports = ports;
  place.hidden = ports.length < 2;
  const here = ports.indexOf(own);
  const reached = String(own) === location.port;
  const named = ports.map((port) => {
    if (!reached || port === own) return element("span", port);
    const link = element("a", port);
    link.href = `${location.protocol}//${location.hostname}:${port}/`;
    return link;
  });
  const which = here < 0 ? "One" : `Worker ${here + 1}`;
  const told = `${which} of ${ports.length} of one command, at the ports`;
  place.replaceChildren(told, ...named.flatMap((each) => [" ", each]));
}

function waiting({ lag, lag_seconds }) {
  if (lag === 0) return "nothing waits";
  return lag_seconds == null ? "" : `the oldest for ${duration(lag_seconds)}`;
}

function pill(text, mood) {
  $("#state").textContent = text;
  $("#state").className = `pill ${mood}`;
}

function renderState({ at_ms, unready, partitions }) {
  const stopped = partitions.filter((each) => each.state === "stopped").length;
  if (!at_ms) pill("starting", "warn");
  else if (stopped) pill(`${stopped} of ${partitions.length} stopped`, "bad");
  else if (unready?.startsWith("no member")) pill("out of the group", "bad");
  else if (unready) pill(partitions.length ? "getting ready" : "joining the group", "warn");
  else pill(partitions.length ? "live" : "live, standing by", "good");
  const still = performance.now() - movedAt;
  notice(at_ms && still > GAP_MS ? `The loop has not moved for ${duration(still / 1000)}.` : "");
}

function notice(text) {
  if ($("#notice").textContent !== text) $("#notice").textContent = text;
  $("#notice").hidden = !text;
}

function renderPartitions(partitions) {
  const counts = STATES.map((state) => [state, partitions.filter((each) => each.state === state).length]);
  const said = counts.filter(([, n]) => n).map(([state, n]) => `${n} ${state}`);
  $("#partitions h2 small").textContent = said.join(", ");
  $("#partitions .empty").hidden = partitions.length > 0;
  $("#partitions ol").replaceChildren(
    ...partitions.map((each) => {
      const cell = element("li", each.partition, each.state);
      cell.append(element("span", each.state), element("p", each.lag == null ? `lag ${NONE}` : `lag ${number(each.lag)}`));
      if (each.trouble) cell.title = visible(each.trouble);
      return cell;
    }),
  );
}

// For each tenth of confidence a bar, how often predictions were right, a mark, how often they said so, and how many.
function renderCalibration(tenths) {
  $("#calibration .empty").hidden = tenths.some((each) => each);
  $("#calibration ol").replaceChildren(
    ...tenths.map((each, i) => {
      const row = element("li");
      const room = element("div");
      if (each) {
        const [bar, mark] = [element("i"), element("b")];
        bar.style.height = `${100 * each.correct}%`;
        mark.style.bottom = `${100 * each.mean}%`;
        room.append(bar, mark);
        row.title = `${number(each.count)} predictions: said ${percent(each.mean)}, right ${percent(each.correct)}`;
      }
      row.append(room, element("span", 10 * i), element("small", each ? compact(each.count) : NONE));
      return row;
    }),
  );
}

function spark(curve) {
  const svg = document.createElementNS("http://www.w3.org/2000/svg", "svg");
  svg.setAttribute("class", "spark");
  svg.setAttribute("viewBox", "0 0 84 22");
  const values = curve ? ratio(curve).filter((value) => value != null) : [];
  if (values.length > 1) {
    const [least, most] = [Math.min(...values), Math.max(...values)];
    const low = Math.max(0, Math.min(least, (least + most) / 2 - LEAST_SPAN / 2));
    const span = Math.max(most - low, LEAST_SPAN);
    const at = (value, i) => `${((84 * i) / (values.length - 1)).toFixed(1)},${(20 - (18 * (value - low)) / span).toFixed(1)}`;
    const line = document.createElementNS("http://www.w3.org/2000/svg", "polyline");
    line.setAttribute("points", values.map(at).join(" "));
    svg.append(line);
  }
  return svg;
}

function meter(of) {
  const known = of && of.calibrated != null && of.baseline > 0;
  const share = known ? of.calibrated / of.baseline : null;
  const made = element("div", null, share > 1 ? "meter bad" : "meter");
  const bar = element("i");
  bar.style.width = `${100 * Math.min(share ?? 0, 1)}%`;
  made.append(element("div"), element("span", percent(share)));
  made.firstChild.append(bar);
  if (known) made.title = `${loss(of.calibrated)}, baseline ${loss(of.baseline)}`;
  return made;
}

// Leaders change places all the time; on the page each keeps its own.
function settled(leaders) {
  const coming = new Map(leaders.map((each) => [each.key, each]));
  order = [...order.filter((key) => coming.has(key)), ...[...coming.keys()].filter((key) => !order.includes(key))];
  return order.map((key) => coming.get(key));
}

function renderModels(leaders) {
  $("#models .empty").hidden = leaders.length > 0;
  const body = $("#models tbody");
  const focused = document.activeElement?.closest("#models tr")?.rowIndex;
  body.replaceChildren(
    ...settled(leaders).map((each) => {
      const row = element("tr");
      const open = element("button", visible(each.key));
      open.addEventListener("click", () => showModel(each));
      const cells = [
        ["key", open],
        ["number", number(each.samples)],
        ["loss", meter(each.loss)],
        ["trend", spark(models.get(each.key))],
        ["number wide", each.depth == null ? NONE : each.depth.toFixed(1)],
        ["number wide", number(each.nodes)],
        ["number wide", each.in_memory ? bytes(each.bytes) : "away"],
      ];
      for (const [className, content] of cells) {
        const cell = element("td", null, className);
        cell.append(content);
        row.append(cell);
      }
      return row;
    }),
  );
  if (focused) body.rows[focused - 1]?.querySelector("button").focus();
}

// A number that comes as text, say: it is learned, and nothing else of the page would show it.
function renderKinds(changes) {
  $("#kinds").hidden = !changes;
  $("#kinds").textContent = `Features and labels that changed between number and text since the start: ${number(changes)}. The log names them.`;
}

function renderDeadLetters(letters, total) {
  $("#dead-letters h2 small").textContent = total ? `the last ${letters.length} of ${number(total)}` : "";
  $("#dead-letters table").hidden = !letters.length;
  $("#dead-letters .empty").hidden = letters.length > 0;
  $("#dead-letters tbody").replaceChildren(
    ...letters.map((each) => {
      const row = element("tr");
      const key = each.key == null ? "no key" : visible(each.key);
      for (const text of [time(each.at_ms), `${each.partition} : ${each.offset}`, key, each.code, visible(each.reason)]) {
        row.append(element("td", text));
      }
      row.cells[1].title = visible(each.topic);
      return row;
    }),
  );
}

// --- the turn -------------------------------------------------------------------------------------------------------

let hasBegun = false;

async function turn() {
  try {
    await look();
    if (!hasBegun) {
      showLinkedModel();
      addEventListener("hashchange", showLinkedModel);
      hasBegun = true;
    }
    misses = 0;
    seenAt = Date.now();
    root.classList.remove("lost");
  } catch (error) {
    misses += 1;
    if (error.status === 401) {
      hideModel();
      $("#unlock").hidden = false;
      $("#figures").hidden = true;
      pill("locked", "warn");
      notice("");
    } else if (error.status === 503) {
      notice(error.message);
    } else if (misses > 1) {
      // What is shown is as of then; it stays, faded.
      root.classList.add("lost");
      pill("no contact", "bad");
      notice(`No contact with the worker since ${time(seenAt)}. Still trying.`);
      lastAt = null;
    }
    if (!error.status && !(error instanceof TypeError) && error.name !== "TimeoutError") console.error(error);
  }
}

let due;
async function again() {
  clearTimeout(due);
  if (!document.hidden) await turn();
  due = setTimeout(again, EVERY_MS);
}
document.addEventListener("visibilitychange", () => document.hidden || again());
again();
