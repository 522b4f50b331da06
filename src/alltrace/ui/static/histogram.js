// @ts-check
/** How long events last: a bar per quarter of an octave, its height by the logarithm of how many they are. */
import { classColor, theme } from "./colors.js";
import { fit, h, tip } from "./dom.js";
import { count, counted, duration } from "./units.js";

const HEIGHT = 130;
const FOOT = 18;

/** @typedef {{from_ns: number[], to_ns: number[], count: number[], total_ns: number[]}} Bins */

/** @param {Bins} bins
 * @param {(least: number, most: number) => void} chosen called with the durations of a bar that is clicked */
export function histogram(bins, chosen) {
  const all = bins.count.reduce((a, b) => a + b, 0);
  const whole = bins.total_ns.reduce((a, b) => a + b, 0);
  const range = all ? `${duration(bins.from_ns[0])} to ${duration(bins.to_ns[bins.to_ns.length - 1])}` : "none";
  const canvas = h("canvas", { role: "img", "aria-label": `histogram of ${counted(all, "duration")}, ${range}` });
  const width = 420;
  const wide = width / Math.max(bins.count.length, 1);
  const most = Math.log1p(Math.max(1, ...bins.count));
  const draw = () => {
    const context = fit(canvas, width, HEIGHT);
    const colors = theme();
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, HEIGHT);
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = classColor("ranges");
    bins.count.forEach((n, i) => {
      const high = n ? Math.max(2, ((HEIGHT - FOOT - 4) * Math.log1p(n)) / most) : 0;
      context.fillRect(i * wide, HEIGHT - FOOT - high, Math.max(wide - 1, 1), high);
    });
    context.fillStyle = colors.soft;
    context.fillRect(0, HEIGHT - FOOT, width, 1);
    let free = 0;
    bins.from_ns.forEach((ns, i) => {
      const text = duration(ns);
      const room = context.measureText(text).width + 12;
      if (i * wide < free || i * wide + room > width) return;
      context.fillText(text, i * wide + 1, HEIGHT - 5);
      free = i * wide + room;
    });
  };
  const at = (/** @type {MouseEvent} */ e) => Math.floor((e.clientX - canvas.getBoundingClientRect().left) / wide);
  canvas.addEventListener("pointermove", (e) => {
    const i = at(e);
    if (!(bins.count[i] >= 0)) return tip.hide();
    tip.show(e.clientX, e.clientY, [`${duration(bins.from_ns[i])} to ${duration(bins.to_ns[i])}`, `${counted(bins.count[i], "event")}, ${duration(bins.total_ns[i])} together`, `${((100 * bins.total_ns[i]) / Math.max(whole, 1)).toFixed(1)} % of the time`]);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("click", (e) => {
    const i = at(e);
    if (bins.count[i]) chosen(Math.floor(bins.from_ns[i]), bins.to_ns[i]);
  });
  draw();
  return { element: h("div", {}, canvas, h("p", { class: "muted" }, `${count(all)} durations, ${range}; heights are logarithmic. A bar leads to its events.`)), draw };
}
