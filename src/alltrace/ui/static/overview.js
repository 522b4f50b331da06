// @ts-check
import { shades } from "./colors.js";
import { choice, h } from "./dom.js";
import { HeatMap } from "./heatmap.js";
import { listOf, tableOf } from "./table.js";
import { cell, count, duration, rankText } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {import("./main.js").Context} Context */

/**
 * What was found, the facts, and the heat map.
 * @param {Context} ctx
 * @param {Record<string, string>} values
 */
export function show(ctx, values) {
  const { run, api } = ctx;
  const state = { metric: values.metric ?? "busy", group: values.group ?? "host", sort: values.sort ?? "rank" };
  let closed = false;
  const map = new HeatMap(api, run, {
    failed: (e) => ctx.failed(e),
    painted: () => ask(), // what costs the server more comes behind the first picture
    moved: () => remember(),
    opened: (rank, ns, perPixel) => {
      const half = Math.max(perPixel * 60, 500);
      const step = run.steps.find((s) => s.start <= ns && ns < s.end);
      const narrow = map.span.end - map.span.start < run.grid.span_ns * 0.9;
      const span = narrow ? map.span : step ?? { start: Math.max(0, ns - half), end: ns + half };
      const at = run.ranks.findIndex((r) => r.rank === rank);
      const near = run.ranks.slice(Math.max(0, at - 2), at + 3).map((r) => r.rank);
      location.hash = link("timeline", { start: Math.round(span.start), end: Math.round(span.end), ranks: rankText(near), open: rank });
    },
  });
  if (run.metrics.some((m) => m.name === state.metric)) map.metric = state.metric;
  /** @type {Record<string, (number|null)[]>|null} */
  let byRank = null;

  function remember() {
    const whole = map.span.start === 0 && map.span.end === run.grid.span_ns;
    keep("overview", {
      metric: map.metric === "busy" ? "" : map.metric,
      group: state.group === "host" ? "" : state.group,
      sort: state.sort === "rank" ? "" : state.sort,
      start: whole ? "" : Math.round(map.span.start),
      end: whole ? "" : Math.round(map.span.end),
    });
  }

  function arrange() {
    const worth = state.sort === "rank" || !byRank ? null : byRank[state.sort];
    const order = new Map(run.ranks.map((r, i) => [r.rank, worth ? -(worth[i] ?? -1) : r.rank]));
    const sorted = (/** @type {number[]} */ ranks) => [...ranks].sort((a, b) => (order.get(a) ?? 0) - (order.get(b) ?? 0) || a - b);
    /** @type {import("./heatmap.js").Group[]} */
    let groups = [{ name: "", ranks: run.ranks.map((r) => r.rank) }];
    if (state.group === "host") {
      const hosts = [...new Set(run.ranks.map((r) => r.host))];
      groups = hosts.map((host) => ({ name: host, ranks: run.ranks.filter((r) => r.host === host).map((r) => r.rank) }));
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
    map.arrange(groups.map((g) => ({ name: g.name, ranks: sorted(g.ranks) })));
    remember();
  }

  const sorts = h("span");
  function sortChoice() {
    const names = byRank ? Object.keys(byRank) : ["rank"];
    const options = /** @type {[string, string][]} */ (names.map((n) => [n, n.replace(/_ns$/, "")]));
    sorts.replaceChildren(choice("sort by", options, state.sort, (v) => ((state.sort = v), arrange())));
  }
  sortChoice();
  // of one height, so that what is below stays where it is when the findings come
  const findings = h("div", { class: "found", tabindex: "0", role: "region", "aria-label": "findings" }, h("p", { class: "muted" }, "looking for what costs time ..."));
  const perRank = h("div");
  ctx.main.append(
    h("h2", {}, "What was found"),
    findings,
    facts(run),
    h("h2", {}, "Ranks over time"),
    h(
      "div",
      { class: "bar" },
      choice("show", run.metrics.map((m) => [m.name, m.name]), map.metric, (v) => {
        map.metric = v;
        legend();
        arrange();
      }),
      choice("group by", [["host", "host"], ["communicator", "communicator"], ["none", "nothing"]], state.group, (v) => ((state.group = v), arrange())),
      sorts,
      h("button", { type: "button", on: { click: () => map.look({ start: 0, end: run.grid.span_ns }) } }, "whole run"),
      h("span", { class: "legend", id: "legend" }),
    ),
    h("p", { class: "muted" }, "Drag to zoom, click to open the timeline there; W S A D zoom and move, Ctrl and wheel zooms."),
    map.element,
    perRank,
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

  function ask() {
    if (closed) return;
    api.get("findings").then((found) => findings.replaceChildren(findingsTable(ctx, found)), (e) => {
      findings.replaceChildren(h("p", { class: "muted" }, `nothing can be said: ${e.message}`));
    });
    api.get("by-rank").then((found) => {
      byRank = found.columns;
      sortChoice();
      if (state.sort !== "rank") arrange();
      const names = Object.keys(found.columns);
      const rows = run.ranks.map((r, i) => [r.rank, r.host, ...names.slice(1).map((n) => found.columns[n][i])]);
      const columns = [{ name: "rank", unit: null }, { name: "host", unit: null }, ...names.slice(1).map((n) => ({ name: n, unit: n.endsWith("_ns") ? "ns" : "%" }))];
      perRank.replaceChildren(h("details", {}, h("summary", {}, "the same as a table: means over the run, %"), tableOf(columns, rows, { name: "ranks", links: (row, c) => (c === 0 ? link("timeline", { ranks: row[0], open: row[0] }) : null) })));
    }, (e) => ctx.failed(e));
  }

  return { close: () => ((closed = true), map.close()), themed: () => (legend(), map.draw()) };
}

/**
 * @param {Context} ctx
 * @param {any} found
 */
function findingsTable(ctx, found) {
  if (!found.rows.length) return h("div", {}, h("p", {}, "No finding."), notes(found.notes)); // the first note says why
  const at = Object.fromEntries(found.columns.map((/** @type {any} */ c, /** @type {number} */ i) => [c.name, i]));
  const body = h("tbody");
  found.rows.forEach((/** @type {any[]} */ row, /** @type {number} */ i) => {
    const place = found.places[i];
    const many = row[at.ranks]?.length > 1 && row[at.ranks].length === ctx.run.ranks.length;
    const title = row[at.kind].replace(/-/g, " ");
    body.append(
      h(
        "tr",
        {},
        h("td", {}, place ? h("a", { href: link("timeline", { start: place.start, end: place.end, ranks: rankText(place.ranks), open: place.ranks[0] }) }, title) : title),
        h("td", {}, h("span", { class: `severity ${row[at.severity]}` }, row[at.severity])),
        h("td", { class: "number", title: cell(row[at.lost_ns], null, "") + " ns" }, row[at.lost_ns] === null ? "" : duration(row[at.lost_ns])),
        h("td", { class: "number" }, row[at.lost_share] === null ? "" : `${(100 * row[at.lost_share]).toFixed(1)} %`),
        h("td", {}, many ? "all" : cell(row[at.ranks], null, "")),
        h("td", {}, [row[at.where], row[at.launched_by]].filter(Boolean).map((text) => cell(text, null, "")).join(", ")),
        h("td", { title: cell(row[at.evidence], null, "") }, row[at.advice]),
      ),
    );
  });
  const heads = ["finding", "severity", "lost", "of the run", "ranks", "where", "what to do"];
  return h(
    "div",
    {},
    h("table", { class: "findings" }, h("thead", {}, h("tr", {}, ...heads.map((t) => h("th", { scope: "col" }, t)))), body),
    notes(found.notes),
  );
}

/** @param {string[]} lines */
export function notes(lines) {
  return lines.length ? h("details", {}, h("summary", {}, `${lines.length} note${lines.length > 1 ? "s" : ""}`), h("ul", { class: "notes" }, ...lines.map((l) => h("li", {}, l)))) : null;
}

/** @param {import("./types.js").Run} run */
function facts(run) {
  const card = (/** @type {string} */ value, /** @type {string} */ name) => h("li", {}, h("b", {}, value), h("span", {}, name));
  const residuals = run.clocks.map((c) => c.residual_ns).filter((r) => r !== null);
  return h(
    "ul",
    { class: "cards", "aria-label": "facts of the run" },
    card(duration(run.run.span_ns), "span"),
    card(count(run.run.ranks), "ranks"),
    card(count(run.run.hosts), "hosts"),
    card(count(run.run.devices), "GPUs"),
    card(count(run.ranks.reduce((n, r) => n + r.rows, 0)), "events"),
    run.steps.length ? card(count(run.steps.length), "steps") : null,
    residuals.length ? card(duration(Math.max(...residuals)), "largest clock residual") : null,
    run.missing_ranks.length ? card(count(run.missing_ranks.length), "missing ranks") : null,
  );
}

/** @param {import("./types.js").Run} run */
function details(run) {
  const columns = [{ name: "host", unit: null }, { name: "offset_ns", unit: "ns" }, { name: "drift_ppm", unit: null }, { name: "residual_ns", unit: "ns" }, { name: "evidence", unit: null }];
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
