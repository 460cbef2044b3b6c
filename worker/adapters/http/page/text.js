// Numbers, times and foreign text for people. All text reaches the page by textContent: whoever sends records chooses
// keys, names and reasons, and none of that is ever markup.

const LOCALE = "en";
const whole = new Intl.NumberFormat(LOCALE, { maximumFractionDigits: 0 });
const few = new Intl.NumberFormat(LOCALE, { notation: "compact", maximumSignificantDigits: 2 });
const clock = new Intl.DateTimeFormat(LOCALE, { hour: "2-digit", minute: "2-digit", second: "2-digit", hour12: false });
const UNSEEN = /[\p{Cc}\p{Cf}\p{Zl}\p{Zp}]/gu;

export const NONE = "–";

export const time = (ms) => clock.format(ms);

// Characters that are not seen, or that turn the direction of what follows, are written as escapes.
export const visible = (text) =>
  text.replace(UNSEEN, (each) => `\\u{${each.codePointAt(0).toString(16)}}`);

export function number(value) {
  if (value == null) return NONE;
  const size = Math.abs(value);
  if (size >= 1e9) return `${(value / 1e9).toFixed(1)} G`;
  if (size >= 1e6) return `${(value / 1e6).toFixed(1)} M`;
  if (size >= 100 || Number.isInteger(value)) return whole.format(value);
  return value.toFixed(size >= 10 ? 1 : 2);
}

// Where there is room for four characters.
export const compact = (value) => few.format(value);

export const loss = (value) => (value == null ? NONE : value.toPrecision(3));

export const percent = (share) => (share == null ? NONE : `${(100 * share).toFixed(share < 0.1 ? 1 : 0)} %`);

export function bytes(value) {
  if (value == null) return NONE;
  for (const [unit, size] of [["GB", 1e9], ["MB", 1e6], ["kB", 1e3]]) {
    if (value >= size) return `${(value / size).toFixed(value >= 100 * size ? 0 : 1)} ${unit}`;
  }
  return `${value} B`;
}

// A digit behind the point where there is but one before it: two ticks of an axis are never the same text.
const short = (value) => (value < 10 ? String(Number(value.toFixed(1))) : value.toFixed(0));

// Seconds, in the unit that people would take.
export function duration(seconds) {
  if (seconds == null) return NONE;
  if (seconds === 0) return "0 s";
  if (seconds < 0.9995) return `${(1000 * seconds).toFixed(0)} ms`;
  if (seconds < 10) return `${seconds.toFixed(1)} s`;
  if (seconds < 120) return `${seconds.toFixed(0)} s`;
  if (seconds < 7200) return `${short(seconds / 60)} min`;
  return seconds < 172800 ? `${short(seconds / 3600)} h` : `${short(seconds / 86400)} days`;
}

export function element(name, text, className) {
  const made = document.createElement(name);
  if (text != null) made.textContent = text;
  if (className) made.className = className;
  return made;
}
