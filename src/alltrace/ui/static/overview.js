// @ts-check
import { cards, mainCard, timeBar, verdict } from "./cards.js";
import { classColor, shades } from "./colors.js";
import { choice, h, svg } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { listOf, tableOf } from "./table.js";
import { count, counted, duration, rankText } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {import("./main.js").Context} Context */

const FEW_RANKS = 4; // leave room below their rows of the heat map

/** What was found, the facts, and the heat map. @param {Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const { run, api } = ctx;
  // until the findings are there the busy time is shown, and then what the first of them is about, the culprits on top
  const state = { metric: values.metric ?? "busy", group: values.group ?? "host", sort: values.sort ?? "culprits" };
  let closed = false;
  /** @type {Set<number>} */
  let culprits = new Set();
  /** @type {import("./cards.js").JobTime|null} */
  let time = null;
  const map = new HeatMap(api, run, {
    failed: (e) => ctx.failed(e),
    painted: () => ask(), // data that costs the server more follows the first picture
    moved: () => remember(),
    opened: (rank, ns, perPixel) => {
      const half = Math.max(perPixel * 60, 500);
      const step = run.steps.find((s) => s.start <= ns && ns < s.end);
      const narrow = map.span.end - map.span.start < run.grid.span_ns * 0.9;
      const span = narrow ? map.span : step ?? { start: Math.max(0, ns - half), end: ns + half };
      const at = run.ranks.findIndex((r) => r.rank === rank);
      const near = run.ranks.slice(Math.max(0, at - 2), at + 3).map((r) => r.rank);
      location.hash = link("timeline",
        { start: Math.round(span.start), end: Math.round(span.end), ranks: rankText(near), open: rank });
    },
  });
  if (run.metrics.some((m) => m.name === state.metric)) map.metric = state.metric;
  /** @type {Record<string, (number|null)[]>|null} */
  let byRank = null;

  function remember() {
    const whole = map.span.start === 0 && map.span.end === run.grid.span_ns;
    keep("overview", {
      metric: values.metric,
      group: state.group === "host" ? "" : state.group,
      sort: state.sort === "culprits" ? "" : state.sort,
      start: whole ? "" : Math.round(map.span.start),
      end: whole ? "" : Math.round(map.span.end),
    });
  }

  function arrange() {
    const worth = state.sort === "rank" || !byRank ? null : byRank[state.sort];
    const first = state.sort === "culprits" ? culprits : new Set();
    const order =
      new Map(run.ranks.map((r, i) => [r.rank, worth ? -(worth[i] ?? -1) : first.has(r.rank) ? -1 : r.rank]));
    const sorted = (/** @type {number[]} */ ranks) => [...ranks]
      .sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0) || a - b);
    /** @type {import("./heatmap.js").Group[]} */
    let groups = [{ name: "", ranks: run.ranks.map((r) => r.rank) }];
    if (state.group === "host" || state.group === "role") {
      const of = (/** @type {import("./types.js").RankFacts} */ r) => (state.group === "role" ? (r.role ?? "no role")
        : r.host);
      groups = [...new Set(run.ranks.map(of))]
        .map((name) => ({ name, ranks: run.ranks.filter((r) => of(r) === name).map((r) => r.rank) }));
    } else if (state.group === "communicator" && run.communicators) {
      const left = new Set(run.ranks.map((r) => r.rank));
      groups = [];
      for (const c of [...run.communicators].sort((a, b) => a.ranks.length - b.ranks.length)) {
        const members = c.ranks.filter((r) => left.has(r));
        if (members.length > 1) {
          groups.push({ name: c.name, ranks: members });
          for (const m of members) left.delete(m);
        }
      }
      if (left.size) groups.push({ name: groups.length ? "other" : "", ranks: [...left] });
    }
    const blamed = (/** @type {number[]} */ ranks) => (ranks.some((r) => first.has(r)) ? 0 : 1);
    groups.sort((a, b) => blamed(a.ranks) - blamed(b.ranks));
    map.arrange(groups.map((g) => ({ name: g.name, ranks: sorted(g.ranks) })));
    remember();
  }

  const sorts = h("span");
  function sortChoice() {
    const names = ["culprits", ...(byRank ? Object.keys(byRank) : ["rank"])];
    const options = /** @type {[string, string][]} */ (names.map((n) => [n, n.replace(/_ns$/, "")]));
    sorts.replaceChildren(choice("sort by", options, state.sort, (v) => ((state.sort = v), arrange())));
  }
  sortChoice();
  // of one height, so that the heat map stays where it is when the findings come
  const told = h("div", { class: "told", "aria-live": "polite" },
    h("p", { class: "verdict muted" }, "What costs time is told here once it is found."));
  const bar = h("div", { class: "jobtime" });
  const storyCards = h("div", { class: "story-cards", tabindex: "0", role: "region", "aria-label": "findings" });
  const other = h("div");
  const metrics = h("span");
  const perRank = h("div");
  const few = h("div");
  function metricChoice() {
    metrics.replaceChildren(choice("show", run.metrics.map((m) => [m.name, m.name]), map.metric, (v) => {
      state.metric = map.metric = v;
      values.metric = v; // chosen
      legend();
      arrange();
    }));
  }
  metricChoice();
  const groupings =
    /** @type {[string, string][]} */ ([["host", "host"], ["communicator", "communicator"], ["none", "nothing"]]);
  if (run.ranks.some((r) => r.role)) groupings.splice(1, 0, ["role", "role"]);
  ctx.main.append(
    ctx.runB ? h("h2", {}, run.name) : "",
    told,
    bar,
    h(
      "div",
      { class: "story" },
      h(
        "div",
        { class: "story-map" },
        h(
          "div",
          { class: "bar" },
          metrics,
          choice("group by", groupings, state.group, (v) => ((state.group = v), arrange())),
          sorts,
          h("button", { type: "button", on: { click: () => map.look({ start: 0, end: run.grid.span_ns }) } },
            "whole run"),
          h("span", { class: "legend", id: "legend" }),
        ),
        h("p", { class: "muted" },
          "Drag to zoom, click to open the timeline there; W S A D zoom and move, Ctrl and wheel zooms."),
        map.element,
        perRank,
        facts(run),
        few,
      ),
      storyCards,
    ),
    other,
    details(run),
  );
  legend();
  if (values.start && values.end) map.look({ start: Number(values.start), end: Number(values.end) });
  arrange();

  function legend() {
    const place = ctx.main.querySelector("#legend");
    const bar = h("canvas", { width: 128, height: 10, "aria-hidden": "true" });
    const context = bar.getContext("2d");
    const table = shades();
    for (let i = 0; context && i < 128; i++) {
      const v = table[i * 2];
      context.fillStyle = `rgb(${v & 255} ${(v >> 8) & 255} ${(v >> 16) & 255})`;
      context.fillRect(i, 0, 1, 10);
    }
    place?.replaceChildren(map.told(0), bar, map.told(1));
  }

  /** Data that the server computes after the first picture is shown as soon as it is there. */
  function ask() {
    void ctx.after("levels").then(sortable);
    void ctx.after("job-time").then(jobTime);
    void ctx.after("findings").then(story).then(further);
    if (run.ranks.length <= FEW_RANKS)
      void ctx.after("findings").then(() => closed || few.replaceChildren(panels(ctx)));
  }

  async function story() {
    if (closed) return;
    try {
      const answer = await api.get("findings");
      if (closed) return;
      told.replaceChildren(verdict(answer, true));
      const more = notes(answer.notes);
      if (more && !answer.cards.length) more.open = true; // they say why
      storyCards.replaceChildren(cards(answer, true), more ?? "");
      const main = mainCard(answer);
      if (main) lead(main);
    } catch (error) {
      told.replaceChildren(h("p", { class: "verdict muted" },
        `Nothing can be said: ${/** @type {Error} */ (error).message}`));
    }
  }

  async function sortable() {
    if (closed) return;
    try {
      const { columns } = await api.get("by-rank");
      byRank = columns;
      sortChoice();
      if (state.sort !== "rank" && state.sort !== "culprits") arrange();
      const names = Object.keys(columns);
      const rows = run.ranks.map((r, i) => [r.rank, r.host, ...names.slice(1).map((n) => columns[n][i])]);
      const shown = [{ name: "rank", unit: null }, { name: "host", unit: null },
        ...names.slice(1).map((n) => ({ name: n, unit: n.endsWith("_ns") ? "ns" : "%" }))];
      perRank.replaceChildren(h("details", {}, h("summary", {}, "the same as a table: means over the run, %"),
        tableOf(shown, rows,
          { name: "ranks", links: (row, c) => (c === 0 ? link("timeline", { ranks: row[0], open: row[0] }) : null) })));
    } catch (error) {
      ctx.failed(error);
    }
  }

  /** Data that costs the server more follows the findings, and is skipped if another view is shown by then. */
  function further() {
    if (closed) return;
    if (ctx.runB && ctx.apiB) {
      const { name } = ctx.runB;
      const { apiB } = ctx;
      ctx.afterB("findings").then(() => apiB.get("findings")).then((answer) => {
        const compare = h("p", { class: "actions" },
          h("a", { class: "button", href: link("compare") }, "compare both runs"));
        other.replaceChildren(h("h2", {}, name), verdict(answer, false), compare, cards(answer, false),
          notes(answer.notes) ?? "");
      }, (e) => other.replaceChildren(h("h2", {}, name),
        h("p", { class: "muted" }, `Nothing can be said: ${e.message}`)));
    }
  }

  function jobTime() {
    if (closed) return;
    api.get("job-time").then((answer) => ((time = answer), bar.replaceChildren(timeBar(answer))), (e) => {
      bar.replaceChildren(h("p", { class: "muted" }, `where the time went cannot be said: ${e.message}`));
    });
  }

  /** The heat map on what the first finding is about, its culprits on top; what a person or the address chose stays.
   * @param {import("./cards.js").Card} main */
  function lead(main) {
    map.marked = culprits = new Set(main.ranks.length < run.ranks.length ? main.ranks : []);
    if (values.metric === undefined && run.metrics.some((m) => m.name === main.measure)) map.metric = main.measure;
    metricChoice();
    legend();
    arrange();
  }

  return { close: () => ((closed = true), map.close()),
    themed: () => (legend(), map.draw(), time && bar.replaceChildren(timeBar(time))) };
}

/** @param {string[]} lines */
export function notes(lines) {
  return lines.length ? h("details", {}, h("summary", {}, `${lines.length} note${lines.length > 1 ? "s" : ""}`),
    h("ul", { class: "notes" }, ...lines.map((l) => h("li", {}, l)))) : null;
}

/** @param {import("./types.js").Run} run */
function facts(run) {
  const card = (/** @type {string} */ value, /** @type {string} */ name) => h("li", {}, h("b", {}, value),
    h("span", {}, name));
  const number = (/** @type {number} */ n, /** @type {string} */ thing) => card(count(n),
    counted(n, thing).replace(/^\S+ /, ""));
  const errors = run.clocks.map((c) => c.error_ns).filter((e) => e !== null);
  return h(
    "ul",
    { class: "cards", "aria-label": "facts of the run" },
    card(duration(run.run.span_ns), "span"),
    number(run.run.ranks, "rank"),
    number(run.run.hosts, "host"),
    number(run.run.devices, "GPU"),
    number(run.ranks.reduce((n, r) => n + r.rows, 0), "event"),
    run.steps.length ? number(run.steps.length, "step") : null,
    errors.length ? card(duration(Math.max(...errors)), "largest clock error") : null,
    run.missing_ranks.length ? number(run.missing_ranks.length, "missing rank") : null,
  );
}

/** @param {import("./types.js").Run} run */
function details(run) {
  const columns = [{ name: "host", unit: null }, { name: "offset_ns", unit: "ns" }, { name: "drift_ppm", unit: null },
    { name: "error_ns", unit: "ns" }, { name: "residual_ns", unit: "ns" }, { name: "evidence", unit: null }];
  const rows = run.clocks.map((c) => columns.map((k) => c[k.name]));
  return h(
    "div",
    {},
    h("h2", {}, "Clocks"),
    tableOf(columns, rows, { name: "clocks", filter: false }),
    run.missing_ranks.length ? listOf({ "missing ranks": rankText(run.missing_ranks) }) : null,
    notes([...run.notes, ...Object.entries(run.broken).map(([r, why]) => `rank ${r}: ${why}`)]),
  );
}

/** What a run of few ranks has room for below its heat map: the time of each step, the kernels with most time, why
 * devices were idle. */

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
function panels(ctx) {
  const [kernels, idle] = [h("div"), h("div")];
  void fill(ctx, kernels, "kernels", { names: "short" }, (rows) => rows.slice(0, MOST).map((r) => [r.name, r.total_ns]),
    "compute");
  void fill(ctx, idle, "idle", {}, (rows) => {
    const sum = (/** @type {string} */ name) => rows.reduce((all, r) => all + (r[name] ?? 0), 0);
    return Object.entries(CAUSES).map(([name, words]) => /** @type {[string, number]} */ ([words, sum(name)]))
      .filter(([, ns]) => ns > 0).sort((a, b) => b[1] - a[1]);
  }, "host");
  return h(
    "div",
    { class: "few" },
    ctx.run.steps.length ? h("section", {}, h("h3", {}, "Time per step"), steps(ctx.run)) : null,
    h("section", {}, h("h3", {}, "Kernels with most time"), kernels,
      h("p", {}, h("a", { href: link("recipes", { name: "kernels" }) }, "all kernels"))),
    h("section", {}, h("h3", {}, "Why devices were idle"), idle,
      h("p", {}, h("a", { href: link("recipes", { name: "idle" }) }, "by device"))),
  );
}

/** A bar for each step, which leads to it on the timeline. @param {import("./types.js").Run} run */
function steps({ steps }) {
  const high = Math.max(...steps.map((s) => s.mean_ns), 1);
  const bars = steps.map((s, at) =>
    svg("a", { href: link("timeline", { start: s.start, end: s.end }),
      "aria-label": `step ${s.step}: ${duration(s.mean_ns)}` },
      svg("rect", { x: at, y: 1 - s.mean_ns / high, width: 0.8, height: s.mean_ns / high,
        fill: s.kind === "step" ? classColor("compute") : classColor("idle"), stroke: "none" },
        svg("title", {}, `step ${s.step}: ${duration(s.mean_ns)}${s.kind === "step" ? "" : `, ${s.kind}`}`))),
  );
  const [first, last] = [steps[0].step, steps[steps.length - 1].step];
  return h("figure", {}, h("div", { class: "few-top muted" }, `${duration(high)} at most`),
    svg("svg", { width: "100%", height: 120, viewBox: `0 0 ${steps.length} 1`, preserveAspectRatio: "none" }, ...bars),
    h("figcaption", { class: "muted" }, `step ${first} to ${last}; height: mean time over the ranks, from 0`));
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
      const part = h("span", { class: "few-bar" });
      part.style.width = `${(100 * ns) / most}%`;
      part.style.background = classColor(hue);
      return part;
    };
    place.replaceChildren(bars.length ? h("ul", { class: "few-bars" },
      ...bars.map(([text, ns]) => h("li", {}, h("span", { class: "few-name", title: text }, text),
        h("span", { class: "few-value" }, duration(ns)), bar(ns)))) : h("p", { class: "muted" }, "nothing"));
  } catch (error) {
    place.replaceChildren(h("p", { class: "muted" }, /** @type {Error} */ (error).message));
  }
}
