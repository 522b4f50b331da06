// @ts-check
import { showSteps } from "./comparesteps.js";
import { Differences } from "./differences.js";
import { choice, h, mark } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { tableOf } from "./table.js";
import { counted as things, duration } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {import("./types.js").Step} Step */

/** Two runs side by side, aligned by step. @param {import("./main.js").Context} ctx
 * @param {Record<string, string>} values */
export function show(ctx, values) {
  const { run, runB, api, apiB } = ctx;
  if (!runB || !apiB) {
    if (run.steps.length > 1) return showSteps(ctx, values);
    ctx.main.append(h("h2", {}, "Compare"),
      h("p", {}, "This run does not have two steps that could be compared. To compare two runs: ",
        h("code", {}, "alltrace ui RUN RUN_B"), "."));
    return undefined;
  }
  const second = runB;
  const stepsOf = (/** @type {import("./types.js").Run} */ r) => new Map(r.steps.map((s) => [s.step, s]));
  const [a, b] = [stepsOf(run), stepsOf(runB)];
  const common = [...a.keys()].filter((s) => b.has(s));
  // the maps begin at a step in the middle; what is counted are the whole runs until someone chooses a step
  let step = values.step ?? (common.length ? String(common[Math.floor(common.length / 2)]) : "");
  let asked = values.step ?? "";
  let metric = values.metric ?? "compute";
  const metrics = run.metrics.filter((m) => runB.metrics.some((o) => o.name === m.name));
  let busy = false;
  const follow = (/** @type {HeatMap} */ other, /** @type {() => number} */ shift) =>
    (/** @type {import("./types.js").Span} */ span) => {
      if (busy) return;
      busy = true;
      other.look({ start: span.start + shift(), end: span.end + shift() });
      busy = false;
    };
  /** From a moment of the first run to the same moment of the second, counted from the step's start. */
  const shift = () => {
    const [x, y] = [a.get(Number(step)), b.get(Number(step))];
    return step && x && y ? y.start - x.start : 0;
  };
  const most = 300;
  const extent = 2 * Math.max(run.grid.span_ns, second.grid.span_ns);
  const mapA = new HeatMap(api, run, { failed: ctx.failed, most, extent, moved: (s) => follow(mapB, shift)(s) });
  const mapB = new HeatMap(apiB, runB,
    { failed: ctx.failed, most, extent, moved: (s) => follow(mapA, () => -shift())(s) });

  const tables = h("div", { class: "columns" });
  const breakdown = h("div", {}, h("p", { class: "muted", role: "status" }, "counting ..."));
  const remember = () => keep("compare",
    { step: asked, metric: metric === "compute" ? "" : metric, what: chosen.what, verdict: chosen.verdict });
  const chosen = { what: values.what ?? "", verdict: values.verdict ?? "" };
  const differences = new Differences(ctx, chosen, remember);
  let stop = new AbortController();

  function look() {
    remember();
    mapA.metric = mapB.metric = metric;
    const [x, y] = [a.get(Number(step)), b.get(Number(step))];
    busy = true;
    if (step && x && y) {
      const length = Math.max(x.end - x.start, y.end - y.start) * 1.05;
      mapA.look({ start: x.start, end: x.start + length });
      mapB.look({ start: y.start, end: y.start + length });
    } else {
      const length = Math.max(run.grid.span_ns, second.grid.span_ns);
      mapA.look({ start: 0, end: length });
      mapB.look({ start: 0, end: length });
    }
    busy = false;
  }

  /** What both did in the step, or as a whole. */
  function ask() {
    void counted(a.get(Number(asked)), b.get(Number(asked)));
    void differences.ask(asked ? `${asked}:${Number(asked) + 1}` : "");
  }

  /** @param {Step|undefined} x @param {Step|undefined} y */
  async function counted(x, y) {
    stop.abort();
    stop = new AbortController();
    const whole = (/** @type {import("./types.js").Run} */ r, /** @type {Step|undefined} */ s) =>
      (asked && s ? { start: s.start, end: s.end } : { start: 0, end: r.grid.span_ns });
    const ranks = run.ranks.map((r) => r.rank).filter((r) => second.ranks.some((o) => o.rank === r));
    try {
      const both = await Promise.all([api.post("window", { ...whole(run, x), ranks }, stop.signal),
        /** @type {import("./api.js").Api} */ (apiB).post("window", { ...whole(second, y), ranks }, stop.signal)]);
      const classes = ["compute_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns"];
      const totals = both.map((w) => Object.fromEntries(classes.map((c) =>
        [c, w.breakdown.reduce((/** @type {number} */ n, /** @type {any} */ r) => n + r[c], 0) /
          Math.max(w.breakdown.length, 1)])));
      const rows = classes.map((c) => [c.replace(/_ns$/, "").replace(/_/g, " "), totals[0][c], totals[1][c],
        totals[1][c] - totals[0][c], ratio(totals[0][c], totals[1][c])]);
      const time = (/** @type {string} */ name) => ({ name, unit: "ns" });
      const part = both[0].ranks_done < ranks.length || both[1].ranks_done < ranks.length;
      breakdown.replaceChildren(
        h("h2", {}, "Breakdown, mean of the devices"),
        tableOf([{ name: "class", unit: null }, time("A"), time("B"), time("change"), { name: "B / A", unit: null }],
          rows, { name: "breakdown", filter: false }),
        h("p", { class: "muted" },
          `${asked ? `step ${asked}` : "whole runs"}, ${things(both[0].ranks_done, "rank")} of A, ` +
          `${both[1].ranks_done} of B${part ? ", as many as could be counted in the time there is" : ""}`),
      );
    } catch (error) {
      ctx.failed(error);
    }
  }

  const options =
    /** @type {[string, string][]} */ ([["", "whole runs"], ...common.map((s) => [String(s), `step ${s}`])]);
  const steps = common.map((s) => {
    const [x, y] = [/** @type {Step} */ (a.get(s)), /** @type {Step} */ (b.get(s))];
    return [s, x.mean_ns, y.mean_ns, y.mean_ns - x.mean_ns, ratio(x.mean_ns, y.mean_ns)];
  });
  tables.append(
    h("div", {}, h("h2", {}, "Steps"), common.length ? tableOf([{ name: "step", unit: null }, { name: "A", unit: "ns" },
      { name: "B", unit: "ns" }, { name: "change", unit: "ns" }, { name: "B / A", unit: null }], steps,
      { name: "steps", filter: false, links: (row, c) => (c === 1 ? stepPlace(a.get(row[0])) : null), chosen: (row) => {
      asked = step = String(row[0]);
      chooser.querySelector("select")?.querySelectorAll("option").forEach((o) => (o.selected = o.value === step));
      look();
      ask();
    } }) : h("p", {}, "The runs have no step in common; they are aligned by their starts.")),
    breakdown,
  );
  const chooser = choice("aligned at", options, step, (v) => ((asked = step = v), look(), ask()));
  ctx.main.append(
    differences.sentence,
    h("h2", {}, "Two runs, aligned by step"),
    h("div", { class: "bar" }, chooser,
      choice("show", metrics.map((m) => [m.name, m.name]), metric, (v) => ((metric = v), look()))),
    h("h3", {}, mark("A"), ` ${run.name}: ${things(run.run.ranks, "rank")}, ${duration(run.run.span_ns)}`),
    mapA.element,
    h("h3", {}, mark("B"), ` ${runB.name}: ${things(runB.run.ranks, "rank")}, ${duration(runB.run.span_ns)}`),
    mapB.element,
    tables,
    differences.element,
  );
  look();
  ask();
  return {
    close: () => (stop.abort(), differences.close(), mapA.close(), mapB.close()),
    themed: () => (mapA.draw(), mapB.draw()),
  };
}

/** Where a step of the first run is on the timeline. @param {Step|undefined} step */
const stepPlace = (step) => (step ? link("timeline", { start: step.start, end: step.end }) : null);

/** @param {number} x @param {number} y */
function ratio(x, y) {
  return x ? Math.round((y / x) * 1000) / 1000 : null;
}
