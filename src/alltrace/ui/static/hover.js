// @ts-check
/** The text about the place under the pointer if no single event is drawn there. */
import { TILE_BINS } from "./tiles.js";
import { duration, exact } from "./units.js";

/** Lines about a track at a moment: the shares of a bin, or the value of samples.
 * @param {import("./timeline.js").Timeline} timeline @param {number} y @param {number} ns @returns {string[]|null} */
export function under(timeline, y, ns) {
  const row = timeline.rowAt(y);
  if (!row || row.tile || ns < 0 || ns >= timeline.whole) return null;
  const { level } = timeline;
  const tile = timeline.store.best(row.id, level, Math.floor(ns / (2 ** level * TILE_BINS)));
  if (!tile || tile.kind === "items") return null;
  const width = 2 ** tile.level;
  const bin = Math.floor(ns / width) - tile.index * TILE_BINS;
  const where = `${row.head ? row.label : `rank ${row.rank}, ${row.label}`}, ${duration(width)} from ${exact((tile.index * TILE_BINS + bin) * width)}`;
  if (tile.kind === "samples") {
    const { mean, least, most } = tile.arrays;
    if (!(mean[bin] > -Infinity)) return [where, "no sample"];
    const bytes = /^(memory|allocations)\//.test(row.key);
    const text = (/** @type {number} */ v) => `${(bytes ? v / 1e6 : v).toLocaleString("en", { maximumSignificantDigits: 5 })}${bytes ? " MB" : ""}`;
    return [where, least[bin] === most[bin] ? text(mean[bin]) : `mean ${text(mean[bin])}, ${text(least[bin])} to ${text(most[bin])}`];
  }
  const bins = tile.arrays.share.length / tile.classes.length;
  const shares = tile.classes.map((c, i) => /** @type {[string, number]} */ ([c, (100 * tile.arrays.share[i * bins + bin]) / 255]));
  const idle = Math.max(0, 100 - shares.reduce((n, s) => n + s[1], 0));
  const told = [...shares.filter((s) => s[1] > 0), ...(row.head ? [/** @type {[string, number]} */ (["idle", idle])] : [])];
  return [where, ...(told.length ? told.map(([c, v]) => `${c}: ${v.toFixed(0)} %`) : ["nothing"])];
}
