// @ts-check
import { choice, h, mark } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { tableOf } from "./table.js";
import { counted, duration } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {import("./types.js").Step} Step */

const CLASSES = [{ name: "class", unit: null }, { name: "A", unit: "ns" }, { name: "B", unit: "ns" },
  { name: "change", unit: "ns" }];
const NAMES = [{ name: "kind", unit: null }, { name: "name", unit: null }, { name: "A", unit: "ns" },
  { name: "B", unit: "ns" }, { name: "change", unit: "ns" }, { name: "count A", unit: null },
  { name: "count B", unit: null }];

/** Two steps of one run, one above the other. @param {import("./main.js").Context} ctx
 * @param {Record<string, string>} values */
export function showSteps(ctx, values) {
  const { run, api } = ctx;
  const steps = new Map(run.steps.map((s) => [String(s.step), s]));
  const by = [...run.steps].sort((a, b) => a.mean_ns - b.mean_ns);
  const [usual, slowest] = [by[by.length >> 1], by[by.length - 1]];
  let first = steps.has(values.first) ? values.first : String(usual.step);
  let second = steps.has(values.second) ? values.second
    : String(slowest.step === usual.step ? by[0].step : slowest.step);
  let metric = run.metrics.some((m) => m.name === values.metric) ? values.metric : "compute";
  let stop = new AbortController();
  const maps = [0, 1].map(() => new HeatMap(api, run, { failed: ctx.failed, most: 260 }));
  maps.forEach((m, i) => m.scroll.addEventListener("scroll",
    () => (maps[1 - i].scroll.scrollTop = m.scroll.scrollTop)));
  const heads = [0, 1].map(() => h("h3", {}));
  const tables = h("div", { "aria-live": "polite" });
  const options = /** @type {[string, string][]} */ (run.steps.map((s) => [String(s.step),
    `step ${s.step}${s.kind === "step" ? "" : ` (${s.kind})`}, ${duration(s.longest_ns)}`]));
  ctx.main.append(
    h("h2", {}, "Two steps of this run"),
    h("p", { class: "muted" },
      "A is the typical step and B the slowest one, by their means over the ranks, until you choose others. To " +
      "compare two runs: ", h("code", {}, "alltrace ui RUN RUN_B"), "."),
    h(
      "div",
      { class: "bar" },
      choice("A", options, first, (v) => ((first = v), look())),
      choice("B", options, second, (v) => ((second = v), look())),
      choice("show", run.metrics.map((m) => [m.name, m.name]), metric, (v) => ((metric = v), look())),
    ),
    ...[0, 1].flatMap((i) => [heads[i], maps[i].element]),
    tables,
  );

  function look() {
    keep("compare", { first, second, metric: metric === "compute" ? "" : metric });
    const chosen = [first, second].map((s) => /** @type {Step} */ (steps.get(s)));
    const length = Math.max(...chosen.map((s) => s.end - s.start));
    chosen.forEach((s, i) => {
      maps[i].metric = metric;
      maps[i].look({ start: s.start, end: s.start + length });
      heads[i].replaceChildren(mark(i ? "B" : "A"), " ", h("a",
        { href: link("timeline", { start: s.start, end: s.end }) }, `step ${s.step}`),
        `, ${duration(s.end - s.start)}`);
    });
    void ask(chosen);
  }

  /** @param {Step[]} chosen */
  async function ask([a, b]) {
    stop.abort();
    stop = new AbortController();
    tables.replaceChildren(h("p", { class: "muted", role: "status" }, "counting ..."));
    try {
      const answer = await api.post("two-spans",
        { ranks: null, first_start: a.start, first_end: a.end, second_start: b.start, second_end: b.end }, stop.signal);
      const part = answer.ranks_done < answer.ranks_asked
        ? `, as many of ${counted(answer.ranks_asked, "rank")} as could be counted in the time there is` : "";
      const classes = answer.breakdown.map((/** @type {any} */ r) => [r.class.replace(/_ns$/, "").replace(/_/g, " "),
        r.first_ns, r.second_ns, r.more_ns]);
      const names = answer.names.map((/** @type {any} */ r) => [r.kind, r.name, r.first_ns, r.second_ns, r.more_ns,
        r.first_count, r.second_count]);
      tables.replaceChildren(
        h(
          "div",
          { class: "columns" },
          h("div", {}, h("h3", {}, "Breakdown, mean of the devices"),
            tableOf(CLASSES, classes, { name: "breakdown", filter: false })),
          h("div", {}, h("h3", {}, "What takes more or less, summed over the ranks"),
            tableOf(NAMES, names, { name: "names" })),
        ),
        h("p", { class: "muted" }, `${counted(answer.ranks_done, "rank")}${part}`),
      );
    } catch (error) {
      ctx.failed(error);
    }
  }

  look();
  return { close: () => (stop.abort(), maps.forEach((m) => m.close())), themed: () => maps.forEach((m) => m.draw()) };
}
