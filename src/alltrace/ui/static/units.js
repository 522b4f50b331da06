// @ts-check
/** Readable numbers. Times are whole ns from the run's start, exact in a double for 104 days. */

const STEPS = /** @type {[number, string][]} */ ([[1e9, "s"], [1e6, "ms"], [1e3, "µs"], [1, "ns"]]);

/** A duration with four digits. @param {number|null} ns */
export function duration(ns) {
  if (ns === null || !Number.isFinite(ns)) return "";
  const [size, unit] = STEPS.find(([s]) => Math.abs(ns) >= s) ?? [1, "ns"];
  const value = ns / size;
  const digits = unit === "ns" ? 0 : Math.max(0, 3 - Math.floor(Math.log10(Math.max(Math.abs(value), 1))));
  return `${value.toLocaleString("en", { maximumFractionDigits: digits })} ${unit}`;
}

/** A moment, to the digit that `perPixel` ns can show. @param {number} ns @param {number} perPixel */
export function moment(ns, perPixel) {
  const digits = Math.max(0, Math.min(9, 9 - Math.floor(Math.log10(Math.max(perPixel, 1)))));
  const whole = Math.trunc(Math.abs(ns) / 1e9);
  const rest = String(Math.round(Math.abs(ns) - whole * 1e9)).padStart(9, "0").slice(0, digits);
  return `${ns < 0 ? "-" : ""}${whole}${rest ? `.${rest.replace(/(\d{3})(?=\d)/g, "$1 ")}` : ""} s`;
}

/** @param {number} ns */
export const exact = (ns) => moment(Math.round(ns), 1);

/** @param {number} n */
export const count = (n) => n.toLocaleString("en");

/** A number of things: `1 rank`, `1,024 ranks`. @param {number} n @param {string} thing what one is called
 * @param {string} [things] what several are called, if not `thing` with an s */
export const counted = (n, thing, things) => `${count(n)} ${n === 1 ? thing : (things ?? `${thing}s`)}`;

/** A cell of a table, by its column's unit. @param {any} value @param {string|null} unit @param {string} name */
export function cell(value, unit, name) {
  if (value === null || value === undefined) return "";
  if (typeof value === "number") {
    if (unit === "ns" && !/^(start|end|time)/.test(name)) return duration(value);
    if (/^(rank|device|row|step|instance|port|local_rank)$/.test(name)) return String(value);
    return Number.isInteger(value) ? count(value) : value.toLocaleString("en", { maximumSignificantDigits: 5 });
  }
  if (Array.isArray(value)) return rankText(value);
  if (typeof value === "object") {
    return Object.entries(value).map(([k, v]) => `${k}=${typeof v === "number" ? Number(v.toPrecision(5)) : v}`)
      .join(", ");
  }
  return String(value);
}

/** `0-3, 7` for 0, 1, 2, 3, 7; other lists are joined. @param {any[]} values */
export function rankText(values) {
  if (!values.every((v) => Number.isInteger(v))) return values.join(", ");
  const parts = /** @type {[number, number][]} */ ([]);
  for (const n of [...values].sort((a, b) => a - b)) {
    const last = parts[parts.length - 1];
    if (last && n === last[1] + 1) last[1] = n;
    else parts.push([n, n]);
  }
  return parts.map(([a, b]) => (a === b ? `${a}` : `${a}-${b}`)).join(",");
}

/** The ranks that a text such as `0-3,7` names, of those that are known; all for an empty text or `all`.
 * @param {string} text @param {number[]} known @returns {number[]} */
export function parseRanks(text, known) {
  if (!text.trim() || text.trim() === "all") return known;
  const there = new Set(known);
  const chosen = new Set();
  for (const part of text.split(",")) {
    const match = /^\s*(\d{1,9})\s*(?:-\s*(\d{1,9}))?\s*$/.exec(part);
    if (!match) continue;
    const [first, last] = [Number(match[1]), Number(match[2] ?? match[1])];
    if (last - first > known.length * 4 + 1000) {
      for (const k of known) if (k >= first && k <= last) chosen.add(k);
    } else {
      for (let n = first; n <= last; n++) if (there.has(n)) chosen.add(n);
    }
  }
  return known.filter((k) => chosen.has(k));
}

/** A time that was typed: `1.5 s`, `20ms`, `300` (ns). @param {string} text @returns {number|null} */
export function parseTime(text) {
  const match = /^\s*(-?[\d.]+)\s*(s|ms|us|µs|ns)?\s*$/.exec(text.replace(/(\d)[ ,](?=\d)/g, "$1"));
  if (!match) return null;
  const size = { s: 1e9, ms: 1e6, us: 1e3, "µs": 1e3, ns: 1 }[match[2] ?? "ns"] ?? 1;
  const value = Math.round(Number(match[1]) * size);
  return Number.isFinite(value) ? value : null;
}
