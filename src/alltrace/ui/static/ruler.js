// @ts-check
import { theme } from "./colors.js";
import { fit } from "./dom.js";
import { moment } from "./units.js";

export const RULER = 30;

/** Ticks of time, and the steps above them. @param {HTMLCanvasElement} canvas @param {number} width
 * @param {number} left where time begins @param {import("./types.js").Span} span
 * @param {import("./types.js").Step[]} steps */
export function drawRuler(canvas, width, left, span, steps) {
  const context = fit(canvas, width, RULER);
  const colors = theme();
  context.fillStyle = colors.back;
  context.fillRect(0, 0, width, RULER);
  const perPixel = (span.end - span.start) / Math.max(width - left, 1);
  const step = niceStep(perPixel * 150);
  context.font = "11px system-ui, sans-serif";
  context.fillStyle = colors.soft;
  context.strokeStyle = colors.line;
  for (let t = Math.ceil(span.start / step) * step; t < span.end; t += step) {
    const x = left + (t - span.start) / perPixel;
    context.fillRect(Math.round(x), 16, 1, RULER - 16);
    if (x < width - 60) context.fillText(moment(t, step / 10), x + 3, RULER - 4);
  }
  context.fillStyle = colors.text;
  let free = left;
  for (const s of steps) {
    if (s.end < span.start || s.start > span.end) continue;
    const x = Math.max(left, left + (s.start - span.start) / perPixel);
    const end = left + (s.end - span.start) / perPixel;
    context.fillStyle = s.kind === "step" ? colors.mark : colors.line;
    context.fillRect(x, 0, Math.max(1, Math.min(end - x - 1, width - x)), 3);
    const text = `step ${s.step}${s.kind === "step" ? "" : ` (${s.kind})`}`;
    const room = context.measureText(text).width + 6;
    if (x >= free && Math.min(end, width) - x > room) {
      context.fillStyle = colors.text;
      context.fillText(text, x + 2, 13);
      free = x + room;
    }
  }
}

/** The next of 1, 2, 5, 10, ... ns. @param {number} ns */
export function niceStep(ns) {
  const base = 10 ** Math.floor(Math.log10(Math.max(ns, 1)));
  return [1, 2, 5, 10].map((f) => f * base).find((s) => s >= ns) ?? 10 * base;
}
