// @ts-check
/** From a row of any table with a time to its place on the timeline. */
import { link } from "./url.js";

/** @typedef {import("./types.js").Column} Column */

const STARTS = ["start", "device start", "api start", "projected start", "kernel start", "range start", "orig start",
  "time", "peak at"];
const ENDS = ["end", "device end", "range end"];
const LENGTHS = ["duration", "projected duration", "length", "span"];
const RANKS = ["rank", "run rank"];

/** @param {Column} column */
const plain = ({ name }) => name.replace(/_ns$| \(ns\)$/, "").replace(/_/g, " ").toLowerCase();

/** Where the rows of a table are on the timeline. @param {Column[]} columns
 * @param {number} [zero] what a time of the table is at the run's start: of `stats` and `nsys` the session's clock
 * @returns {{column: number, address: (row: any[]) => string|null}|null} the column that leads there; null if no row
 *   has a time */
export function placesOf(columns, zero = 0) {
  const names = columns.map(plain);
  const first = (/** @type {string[]} */ wanted) => wanted.map((w) => names.findIndex((n, i) => n === w &&
    (columns[i].unit === "ns" || columns[i].unit === null))).find((i) => i >= 0) ?? -1;
  const [start, end, length, rank] = [first(STARTS), first(ENDS), first(LENGTHS), first(RANKS)];
  if (start < 0) return null;
  return {
    column: start,
    address: (row) => {
      if (typeof row[start] !== "number") return null;
      const from = row[start] - zero;
      const to = typeof row[end] === "number" ? row[end] - zero
        : from + (typeof row[length] === "number" ? row[length] : 0);
      const room = Math.max((to - from) * 2, 1000);
      const where = typeof row[rank] === "number" ? { ranks: row[rank], open: row[rank] } : {};
      return link("timeline", { start: Math.round(from - room), end: Math.round(Math.max(to, from) + room), ...where,
        cursors: to > from ? `${from},${to}` : from });
    },
  };
}
