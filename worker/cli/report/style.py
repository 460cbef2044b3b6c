"""The style sheet of the page: light and dark, wide and narrow. Colours are those of Okabe and Ito (amf.plot)."""

STYLE = """
:root { color-scheme: light dark; --page: #f6f7f9; --paper: #fff; --ink: #1c2330; --dim: #667085; --rule: #e3e6eb;
  --first: #0072b2; --second: #e69f00; --good: #00795c; --poor: #b34700; }
@media (prefers-color-scheme: dark) { :root { --page: #14171c; --paper: #1d2128; --ink: #e8eaee; --dim: #98a2b3;
  --rule: #30363f; --first: #56b4e9; --second: #e69f00; --good: #3cc49b; --poor: #ff9d5c; } }
* { box-sizing: border-box; }
body { margin: 0 auto; max-width: 1180px; padding: 28px 20px; background: var(--page); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", sans-serif; }
h1 { margin: 0 0 4px; font-size: 26px; overflow-wrap: anywhere; }
h1 small { color: var(--dim); font-weight: 400; font-size: 18px; }
h2 { margin: 0 0 10px; font-size: 15px; overflow-wrap: anywhere; }
.verdict { margin: 6px 0; padding-left: 12px; border-left: 4px solid; overflow-wrap: anywhere; }
.good { border-color: var(--good); }
.poor { border-color: var(--poor); }
main { display: grid; grid-auto-flow: dense; gap: 16px; margin: 20px 0;
  grid-template-columns: repeat(2, minmax(0, 1fr)); }
section { background: var(--paper); border: 1px solid var(--rule); border-radius: 10px; padding: 16px 18px; }
section p { margin: 8px 0 0; color: var(--dim); font-size: 13px; }
.wide { grid-column: 1 / -1; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(150px, 1fr)); gap: 14px; }
.cards span, .cards small { display: block; color: var(--dim); font-size: 13px; overflow-wrap: anywhere; }
.cards b { font-size: 22px; font-variant-numeric: tabular-nums; }
svg { display: block; width: 100%; height: auto; }
.cramped { display: none; }
svg text { fill: var(--dim); font-size: 12px; }
.grid { stroke: var(--rule); }
.axis { stroke: var(--dim); }
.line { fill: none; stroke-width: 2; stroke-linejoin: round; }
.line.first { stroke: var(--first); }
.line.second { stroke: var(--second); stroke-width: 1.2; opacity: .75; }
.line.faint { stroke: var(--dim); stroke-dasharray: 5 4; stroke-width: 1.4; }
.dot.first { fill: var(--first); fill-opacity: .7; }
.legend .key { margin-right: 18px; white-space: nowrap; }
.key::before { content: ""; display: inline-block; width: 18px; margin: 0 6px 4px 0; border-top: 3px solid; }
.key.first::before { color: var(--first); }
.key.second::before { color: var(--second); }
.key.faint::before { border-top: 2px dashed var(--dim); }
.scroll { overflow-x: auto; }
table { border-collapse: collapse; width: 100%; font-size: 13px; font-variant-numeric: tabular-nums; }
th, td { padding: 4px 8px; text-align: right; border-bottom: 1px solid var(--rule); }
th:first-child { min-width: 6em; text-align: left; font-weight: 500; overflow-wrap: anywhere; }
thead th { color: var(--dim); font-weight: 500; }
tbody tr:last-child > * { border-bottom: 0; }
.share { background: color-mix(in srgb, var(--first) calc(var(--share) * 55%), transparent); }
.bars { table-layout: fixed; }
.bars .name { width: 27%; }
.bars .figure { width: 4.7em; }
.bars .bar { padding-right: 0; }
.bar i { display: block; height: 12px; border-radius: 3px; background: var(--first); }
ul { margin: 0; padding-left: 20px; overflow-wrap: anywhere; }
.facts { display: flex; flex-wrap: wrap; gap: 4px 22px; color: var(--dim); font-size: 13px; }
.facts b { color: var(--ink); font-weight: 500; overflow-wrap: anywhere; }
footer { color: var(--dim); font-size: 13px; }
@media (max-width: 760px) { main { grid-template-columns: minmax(0, 1fr); }
  .cramped { display: block; } .roomy { display: none; } svg text { font-size: 17px; }
  .cards { grid-template-columns: repeat(2, minmax(0, 1fr)); } th, td { padding: 4px 5px; }
  .bars th, .bars td { padding: 4px 3px; } .bars .name { width: 36%; } .bars .figure { width: 3.7em; } }
@media print { body { background: none; } section { break-inside: avoid; } }
"""
