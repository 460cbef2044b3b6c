// One model in a sheet at the side: what its forecasts rest on, and its loss beside that of the baseline.

import { ask } from "./ask.js";
import { Chart } from "./charts.js";
import { bytes, duration, element, loss, NONE, number, percent, visible } from "./text.js";

const EVERY_MS = 3000;
const sheet = document.querySelector("#model");
const $ = (selector) => sheet.querySelector(selector);
let model = null;
let chart = null;
let askedAt = 0;

// The model that the page's address names, if any: a link to it can be sent around.
export function showLinkedModel() {
  const wanted = new URLSearchParams(location.hash.slice(1));
  if (wanted.has("model")) showModel({ key: wanted.get("model"), partition: wanted.get("partition") });
}

function link(row) {
  const { pathname, search } = location;
  history.replaceState(null, "", row ? `#${named(row, "model")}` : pathname + search);
}

function named({ key, partition }, name = "key") {
  const parameters = new URLSearchParams({ [name]: key });
  if (partition !== null) parameters.set("partition", partition);
  return parameters;
}

export function showModel(row) {
  model = row;
  link(row);
  askedAt = 0;
  $("#model-key").textContent = visible(row.key);
  clear("Asking …");
  if (!sheet.open) sheet.showModal();
  chart?.remove();
  chart = new Chart($("#model-curve"), {
    title: "Recent loss", unit: "beside that of a forecast that knows the labels alone", format: loss, least: 1e-6,
    curves: [{ name: "model", color: "--c0" }, { name: "baseline", color: "--soft", dashed: true }],
  });
  look();
}

export function hideModel() {
  if (sheet.open) sheet.close();
}

sheet.addEventListener("close", () => {
  chart?.remove();
  model = chart = null;
  link(null);
});
sheet.addEventListener("click", (event) => event.target === sheet && sheet.close());

// Called each second with the curves that there are, by key.
export function refreshModel(columns, curves) {
  if (!model) return;
  const curve = curves.get(model.key);
  if (curve) chart.show([columns.at_ms.map((ms) => ms / 1000), curve.loss, curve.baseline]);
  else chart.empty.textContent = "Curves are kept for the models with the most traffic.";
  if (performance.now() - askedAt > EVERY_MS) look();
}

async function look() {
  const asked = model;
  askedAt = performance.now();
  try {
    const found = await ask(`models?${named(asked)}`);
    if (asked === model) render(found);
  } catch (error) {
    if (asked === model) $("#model-note").textContent = visible(error.message);
  }
}

function clear(note) {
  $("#model-note").textContent = note;
  $("dl").replaceChildren();
  $("#model-features").replaceChildren();
  $("#model-weights").hidden = $("#model-moves").hidden = true;
  $("#model-classes").textContent = "";
}

const SCORES = {
  accuracy: ["Accuracy", percent],
  log_loss: ["Log-loss", loss],
  auc: ["Area under ROC", (value) => value.toFixed(3)],
  rmse: ["Error, root mean square", loss],
  mae: ["Error, mean absolute", loss],
  coverage_90: ["Labels in the 90 % band", percent],
};

function render(found) {
  clear([`partition ${found.partition}`, found.algorithm, `spec ${found.spec}`].filter(Boolean).map(visible).join(" · "));
  const of = found.loss ?? {};
  const facts = [
    ["Learned", number(found.samples)],
    ["Recent loss", loss(of.calibrated)],
    ["Loss of the baseline", loss(of.baseline)],
    ["Loss of the trees alone", loss(of.trees)],
    ...Object.entries(SCORES)
      .filter(([name]) => name in found.scores)
      .map(([name, [title, format]]) => [`${title}, of ${number(found.scores.count)} here`, format(found.scores[name])]),
    ["Trees", number(found.trees)],
    ...(found.adaptation
      ? [["Trees that forecast", number(found.adaptation.forecasting)], ["Trees replaced", number(found.adaptation.swaps)]]
      : []),
    ["Nodes", number(found.nodes)],
    ["Depth of leaves", found.depth.toFixed(1)],
    ["Weighted depth", found.weighted_depth == null ? NONE : found.weighted_depth.toFixed(1)],
    ["Memory", found.in_memory ? bytes(found.bytes) : "away"],
    ["Last record", found.last_ms == null ? NONE : `${duration(Math.max(0, Date.now() - found.last_ms) / 1000)} ago`],
  ];
  $("dl").append(
    ...facts.map(([title, value]) => {
      const fact = element("div");
      fact.append(element("dt", title), element("dd", value));
      return fact;
    }),
  );
  const features = found.features ?? [];
  $("#model-features-empty").hidden = features.length > 0;
  $("#model-features").append(...features.map(({ name, share }) => bar(name, share, percent(share))));
  renderBars("#model-weights", found.adaptation?.feature_weights, "weight", (value) => `${value.toFixed(2)} ×`);
  renderBars("#model-moves", found.attributions, "moved", loss);
  const classes = found.classes ?? [];
  $("#model-classes-title").hidden = found.classes == null;
  const more = found.n_classes > classes.length ? `, and ${number(found.n_classes - classes.length)} more` : "";
  $("#model-classes").textContent = classes.map(visible).join(", ") + more;
}

// Bars beside each other, the largest as long as there is room; nothing where there are none.
function renderBars(section, rows, figure, format) {
  if (!rows?.length) return;
  const full = Math.max(...rows.map((row) => row[figure]));
  $(section).hidden = false;
  $(`${section} ol`).replaceChildren(...rows.map((row) => bar(row.name, row[figure] / full, format(row[figure]))));
}

function bar(name, share, value) {
  const row = element("li");
  const room = element("div");
  const filled = element("i");
  filled.style.width = `${100 * share}%`;
  room.append(filled);
  const label = element("span", visible(name));
  label.title = visible(name);
  row.append(label, room, element("span", value));
  return row;
}
