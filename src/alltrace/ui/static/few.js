// @ts-check
/** What a run of few ranks has room for below its heat map: the time of each step, the kernels with most time, why devices were idle. */
import { classColor } from "./colors.js";
import { h, svg } from "./dom.js";
import { duration } from "./units.js";
import { link } from "./url.js";

const MOST = 8;
const CAUSES = /** @type {Record<string, string>} */ ({
  host_sync_ns: "the host waits for the device",
  host_ns: "the host does something else",
  launch_ns: "the work is being launched",
  kernel_wait_ns: "the usual delay between kernels",
  dependency_ns: "other work or an event",
  unknown_ns: "unknown",
});

/** @param {import("./main.js").Context} ctx @returns {HTMLElement} */
export function panels(ctx) {
  const [kernels, idle] = [h("div"), h("div")];
  void fill(ctx, kernels, "kernels", { names: "short" }, (rows) => rows.slice(0, MOST).map((r) => [r.name, r.total_ns]), "compute");
  void fill(ctx, idle, "idle", {}, (rows) => {
    const sum = (/** @type {string} */ name) => rows.reduce((all, r) => all + (r[name] ?? 0), 0);
    return Object.entries(CAUSES).map(([name, words]) => /** @type {[string, number]} */ ([words, sum(name)])).filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  }, "host");
  return h(
    "div",
    { class: "few" },
    ctx.run.steps.length ? h("section", {}, h("h3", {}, "Time per step"), steps(ctx.run)) : null,
    h("section", {}, h("h3", {}, "Kernels with most time"), kernels, h("p", {}, h("a", { href: link("recipes", { name: "kernels" }) }, "all kernels"))),
    h("section", {}, h("h3", {}, "Why devices were idle"), idle, h("p", {}, h("a", { href: link("recipes", { name: "idle" }) }, "by device"))),
  );
}

/** A bar for each step, which leads to it on the timeline. @param {import("./types.js").Run} run */
function steps({ steps }) {
  const high = Math.max(...steps.map((s) => s.mean_ns), 1);
  const bars = steps.map((s, at) =>
    svg("a", { href: link("timeline", { start: s.start, end: s.end }), "aria-label": `step ${s.step}: ${duration(s.mean_ns)}` }, svg("rect", { x: at, y: 1 - s.mean_ns / high, width: 0.8, height: s.mean_ns / high, fill: s.kind === "step" ? classColor("compute") : classColor("idle"), stroke: "none" }, svg("title", {}, `step ${s.step}: ${duration(s.mean_ns)}${s.kind === "step" ? "" : `, ${s.kind}`}`))),
  );
  const [first, last] = [steps[0].step, steps[steps.length - 1].step];
  return h("figure", {}, h("div", { class: "few-top muted" }, `${duration(high)} at most`), svg("svg", { width: "100%", height: 120, viewBox: `0 0 ${steps.length} 1`, preserveAspectRatio: "none" }, ...bars), h("figcaption", { class: "muted" }, `step ${first} to ${last}; height: mean time over the ranks, from 0`));
}

/** Bars of what a recipe answers. @param {import("./main.js").Context} ctx @param {HTMLElement} place
 * @param {string} name @param {Record<string, any>} options
 * @param {(rows: Record<string, any>[]) => [string, number][]} pick
 * @param {string} hue the class whose colour the bars have */
async function fill(ctx, place, name, options, pick, hue) {
  place.replaceChildren(h("p", { class: "muted" }, "This comes when it is added up."));
  try {
    /** @type {import("./types.js").Answer} */
    const answer = await ctx.api.post("recipe", { name, options, ranks: null, steps: "", skip_warmup: false });
    const bars = pick(answer.rows.map((row) => Object.fromEntries(answer.columns.map((c, i) => [c.name, row[i]]))));
    const most = Math.max(...bars.map(([, ns]) => ns), 1);
    const bar = (/** @type {number} */ ns) => {
      const made = h("span", { class: "few-bar" });
      made.style.width = `${(100 * ns) / most}%`;
      made.style.background = classColor(hue);
      return made;
    };
    place.replaceChildren(bars.length ? h("ul", { class: "few-bars" }, ...bars.map(([text, ns]) => h("li", {}, h("span", { class: "few-name", title: text }, text), h("span", { class: "few-value" }, duration(ns)), bar(ns)))) : h("p", { class: "muted" }, "nothing"));
  } catch (error) {
    place.replaceChildren(h("p", { class: "muted" }, /** @type {Error} */ (error).message));
  }
}
