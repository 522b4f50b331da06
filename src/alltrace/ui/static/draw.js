// @ts-check
/** How one track is drawn from its tiles. */
import { classColor, pixel, sliceColor } from "./colors.js";

/** @typedef {import("./types.js").Tile} Tile */
/** @typedef {{left: number, width: number, start: number, scale: number}} Frame pixels where time begins and ends, ns
 *   there, pixels per ns */
/** @typedef {{rank: number, track: string, tile: Tile, item: number, x: number, y: number, w: number,
 *   h: number}} Hit */
/** @typedef {{text: string, soft: string, lit: Set<string>|null, mark: string}} Style `lit`: only these names are
 *   bright */
/**
 * Where a tile is drawn: the pixels that it may draw on, and where drawn items are added, to be found under the
 * pointer.
 * @typedef {{context: CanvasRenderingContext2D, frame: Frame, from: number, to: number, y: number, height: number,
 *   style: Style, hits: Hit[], tops: Map<string, number>}} Place */

export const LANE = 16;
export const TABLES = ["kernels", "copies", "graphs", "collectives", "ranges", "api", "mpi", "ucx", "osrt", "syscalls",
  "openacc", "openmp", "samples", "sched"];

/** @param {Tile} tile @param {Place} place */
export function drawTile(tile, place) {
  const { context, from, to, y, height } = place;
  if (to <= from) return;
  context.save();
  context.beginPath();
  context.rect(from, y, to - from, height);
  context.clip();
  if (tile.kind === "bins") drawBins(tile, place);
  else if (tile.kind === "items") drawItems(tile, place);
  else drawSamples(tile, place);
  context.restore();
}

/** @param {Tile} tile @param {Place} place */
function drawBins(tile, { context, frame, y, height }) {
  const bins = tile.arrays.share.length / tile.classes.length;
  const width = 2 ** tile.level;
  const x0 = frame.left + (tile.index * bins * width - frame.start) * frame.scale;
  const picture = binsPicture(tile, bins, height - 2);
  context.imageSmoothingEnabled = width * frame.scale < 1;
  context.drawImage(picture, x0, y + 1, bins * width * frame.scale, height - 2);
}

/** The bins of a tile, a pixel each, drawn once: shares by class, one on the other. @param {Tile} tile
 * @param {number} bins @param {number} height @returns {HTMLCanvasElement} */
function binsPicture(tile, bins, height) {
  const key = `${document.documentElement.dataset.theme}${height}`;
  if (tile.picture && tile.drawn === key) return tile.picture;
  const picture = document.createElement("canvas");
  [picture.width, picture.height] = [bins, Math.max(height, 1)];
  const context = picture.getContext("2d");
  if (context) {
    const image = context.createImageData(bins, picture.height);
    const data = new Uint32Array(image.data.buffer);
    const share = /** @type {Uint8Array} */ (tile.arrays.share);
    const colors = tile.classes.map((c) => pixel(classColor(c)));
    for (let b = 0; b < bins; b++) {
      let row = height;
      for (let c = 0; c < colors.length; c++) {
        const value = share[c * bins + b];
        if (!value) continue;
        const high = Math.max(1, Math.round((value / 255) * height));
        for (const end = Math.max(0, row - high); row > end; ) data[--row * bins + b] = colors[c];
      }
    }
    context.putImageData(image, 0, 0);
  }
  tile.picture = picture;
  tile.drawn = key;
  return picture;
}

/** @param {Tile} tile @param {Place} place */
function drawItems(tile, { context, frame, from, to, y, height, style, hits }) {
  const { start, length, name, lane, code, count, share } = tile.arrays;
  const rank = Number(tile.track.slice(0, tile.track.indexOf("/")));
  for (let i = 0; i < start.length; i++) {
    const x0 = frame.left + (start[i] - frame.start) * frame.scale;
    const x1 = x0 + length[i] * frame.scale;
    if (x1 < from - 1 || x0 > to) continue;
    const x = Math.max(x0, frame.left - 2); // the same in every tile, so that the text is at one place
    const w = Math.max(Math.min(x1, frame.width + 2) - x, 1);
    const top = y + 1 + lane[i] * LANE;
    if (top >= y + height) continue;
    const text = tile.names[name[i]] ?? "";
    const bright = !style.lit || style.lit.has(text);
    context.globalAlpha = (count[i] > 1 ? 0.35 + (0.65 * share[i]) / 255 : 1) * (bright ? 1 : 0.18);
    context.fillStyle = style.lit && bright ? style.mark : sliceColor(code[i], text);
    context.fillRect(x, top, w > 3 ? w - 0.5 : w, LANE - 2);
    hits.push({ rank, track: tile.track, tile, item: i, x, y: top, w: Math.max(w, 2), h: LANE - 2 });
    if (w > 34 && count[i] === 1) {
      context.globalAlpha = bright ? 1 : 0.3;
      context.fillStyle = style.lit && bright ? "#1a1300" : style.text;
      context.fillText(clipped(context, text, w - 6), x + 3, top + 11);
    }
  }
  context.globalAlpha = 1;
}

/** @type {Map<string, number>} */
const widths = new Map();

/** As much of a text as fits into a width. @param {CanvasRenderingContext2D} context @param {string} text
 * @param {number} room */
export function clipped(context, text, room) {
  let wide = widths.get(text);
  if (wide === undefined) {
    if (widths.size > 20_000) widths.clear();
    wide = context.measureText(text).width;
    widths.set(text, wide);
  }
  if (wide <= room) return text;
  const letters = Math.floor((text.length * room) / wide) - 1;
  return letters > 1 ? `${text.slice(0, letters)}…` : "";
}

/** @param {Tile} tile @param {Place} place */
function drawSamples(tile, { context, frame, from, to, y, height, tops }) {
  const { mean, most } = tile.arrays;
  let top = tops.get(tile.track) ?? 0;
  for (const v of most) if (v > top) top = v;
  tops.set(tile.track, top); // one scale for all tiles of a track, as far as they were seen
  top = top <= 100 && top > 0 ? 100 : top || 1;
  const width = 2 ** tile.level;
  const step = width * frame.scale;
  const x0 = frame.left + (tile.index * mean.length * width - frame.start) * frame.scale;
  let last = NaN;
  context.fillStyle = classColor("ranges");
  for (let b = 0; b < mean.length; b++) {
    const value = Number.isNaN(mean[b]) ? last : mean[b];
    if (Number.isNaN(value)) continue;
    last = value;
    const x = x0 + b * step;
    if (x + step < from || x > to) continue;
    const high = Math.max(0, Math.min(1, value / top)) * (height - 3);
    context.fillRect(x, y + height - 1 - high, Math.max(step, 1), high);
  }
}

/** An arrow between two points. @param {CanvasRenderingContext2D} context @param {number} x0 @param {number} y0
 * @param {number} x1 @param {number} y1 */
export function arrow(context, x0, y0, x1, y1) {
  const bend = Math.min(60, Math.abs(x1 - x0) / 2 + 12);
  context.beginPath();
  context.moveTo(x0, y0);
  context.bezierCurveTo(x0 + bend, y0, x1 - bend, y1, x1 - 5, y1);
  context.stroke();
  context.beginPath();
  context.moveTo(x1, y1);
  context.lineTo(x1 - 6, y1 - 3.5);
  context.lineTo(x1 - 6, y1 + 3.5);
  context.fill();
}
