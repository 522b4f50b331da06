// @ts-check
import { TABLES } from "./draw.js";
import { choice, entry, h } from "./dom.js";
import { tableOf } from "./table.js";
import { counted, duration, exact, moment, parseRanks, parseTime, rankText } from "./units.js";
import { keep, link } from "./url.js";

const COLUMNS = [
  { name: "rank", unit: null },
  { name: "table", unit: null },
  { name: "track", unit: null },
  { name: "name", unit: null },
  { name: "start", unit: "ns", doc: "ns from the run's start" },
  { name: "duration_ns", unit: "ns" },
  { name: "row", unit: null, doc: "row of the rank's table" },
];

/** The table of a selection. @param {import("./main.js").Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const known = ctx.run.ranks.map((r) => r.rank);
  const there = TABLES.filter((t) => t === "collectives" || ctx.run.ranks.some((r) => r.tables.includes(t)));
  const asked = {
    tables: (values.tables ?? "kernels").split(",").filter((t) => TABLES.includes(t)),
    ranks: values.ranks ?? rankText(known.slice(0, 1)),
    start: Number(values.start ?? 0) || 0,
    end: Number(values.end ?? ctx.run.grid.span_ns) || 0,
    pattern: values.pattern ?? "",
    track: values.track ?? "",
    least: Number(values.least ?? 0) || 0,
    sort: values.sort ?? "start",
  };
  let stop = new AbortController();
  const place = h("div", {}, h("p", { class: "muted" }, "reading ..."));
  const near = h("section", { "aria-label": "before and after", "aria-live": "polite" });
  const change = (/** @type {Partial<typeof asked>} */ more) => {
    Object.assign(asked, more);
    void load();
  };
  const time = (/** @type {string} */ text, /** @type {number} */ other) => parseTime(text) ?? other;
  ctx.main.append(
    h("h2", {}, "Events"),
    h(
      "div",
      { class: "bar" },
      choice("table", [...there.map((t) => /** @type {[string, string]} */ ([t, t])), [there.join(","), "all"]],
        asked.tables.join(","), (v) => change({ tables: v.split(","), track: "" })),
      entry("ranks", asked.ranks, (v) => change({ ranks: v })),
      entry("from", moment(asked.start, 1), (v) => change({ start: time(v, 0) })),
      entry("to", moment(asked.end, 1), (v) => change({ end: time(v, ctx.run.grid.span_ns) })),
      entry("name", asked.pattern, (v) => change({ pattern: v }), { placeholder: "regular expression" }),
      entry("at least", asked.least ? duration(asked.least) : "", (v) => change({ least: time(v, 0) }),
        { placeholder: "such as 50us" }),
      asked.track ? h("button", { type: "button", title: asked.track,
        on: { click: (/** @type {MouseEvent} */ e) => (/** @type {HTMLElement} */ (e.target).remove(),
          change({ track: "" })) } }, `only track ${asked.track} ×`) : null,
    ),
    place,
    near,
  );

  function remember() {
    const { tables, ranks, start, end, pattern, track, least, sort } = asked;
    keep("events", { tables: tables.join(","), ranks, start, end, pattern, track, least: least || "",
      sort: sort === "start" ? "" : sort, row: values.row });
  }

  async function load() {
    remember();
    stop.abort();
    stop = new AbortController();
    const ranks = parseRanks(asked.ranks, known);
    if (!ranks.length || asked.end <= asked.start) {
      place.replaceChildren(h("p", {}, "The selection is empty: no such ranks, or no time between from and to."));
      return;
    }
    const { tables, start, end, pattern, track, least } = asked;
    try {
      const answer = await ctx.api.post("events", { ranks, tables, start, end, pattern, track, least_ns: least },
        stop.signal);
      ctx.tell("");
      const rows =
        answer.row.map((/** @type {number} */ _, /** @type {number} */ i) => COLUMNS.map((c) => answer[c.name][i]));
      if (!rows.length) {
        place.replaceChildren(h("p", {},
          "No event matches. Choose another table, other ranks or a longer time, or clear the name and the least " +
          "duration."));
        return;
      }
      place.replaceChildren(
        h("p", { class: "muted" },
          `${counted(rows.length, "event")}` +
          (answer.complete ? "" : ", the first that were found: narrow the selection for all of them") +
          ". A row shows what came before and after it."),
        tableOf(COLUMNS, rows, {
          name: "events",
          sort: asked.sort,
          sorted: (sort) => ((asked.sort = sort), remember()),
          links: (row, c) => (c === 3 || c === 4 ? link("timeline", around(row)) : null),
          chosen: (row) => void neighbours(row),
        }),
      );
      const mine = values.row &&
        rows.find((/** @type {any[]} */ r) => r[6] === Number(values.row) && r[0] === ranks[0]);
      if (mine) void neighbours(mine);
    } catch (error) {
      ctx.failed(error);
    }
  }

  /** @param {any[]} row */
  function around(row) {
    const [rank, table, , , start, length, number] = row;
    const room = Math.max(length * 3, 2000);
    return { start: Math.max(0, start - room), end: start + length + room, ranks: rank, open: rank,
      event: `${rank}/${table}/${number}` };
  }

  /** @param {any[]} row */
  async function neighbours(row) {
    const [rank, table, track, name, start, length, number] = row;
    const gpu = track.startsWith("gpu/");
    /** @type {any[][]} */
    let part = [];
    for (const room of [Math.max(length * 20, 1_000_000), ctx.run.grid.span_ns]) {
      const body = { ranks: [rank], tables: gpu ? TABLES.slice(0, 3) : [table], track, start: Math.round(start - room),
        end: Math.round(start + length + room) };
      const answer = await ctx.api.post("events", body).catch(ctx.failed);
      if (!answer) return;
      const at = answer.row.findIndex((/** @type {number} */ r, /** @type {number} */ i) => r === number &&
        answer.table[i] === table);
      // it is not among the first events, the only ones listed if there are many: the nearer result stays
      if (at < 0) break;
      const rows = answer.row.map((/** @type {number} */ _, /** @type {number} */ i) => [i < at ? "before"
        : i > at ? "after" : "this", answer.name[i], answer.start[i], answer.duration_ns[i],
        answer.start[i] - (i ? answer.start[i - 1] + answer.duration_ns[i - 1] : answer.start[i])]);
      part = rows.slice(Math.max(0, at - 6), at + 7);
      if (part.length >= 13) break;
    }
    const columns = [{ name: "when", unit: null }, { name: "name", unit: null }, { name: "start", unit: "ns" },
      { name: "duration_ns", unit: "ns" }, { name: "gap_before_ns", unit: "ns" }];
    near.replaceChildren(
      h("h2", {}, "Before and after"),
      h("p", {}, `${name}, rank ${rank}, ${duration(length)} from ${exact(start)}, on ${track}: `,
        h("a", { href: link("timeline", around(row)) }, "on the timeline")),
      part.length ? tableOf(columns, part, { name: "before and after", filter: false })
        : h("p", { class: "muted" }, "More events lie around it than are told at once."),
    );
  }

  void load();
  return { close: () => stop.abort() };
}
