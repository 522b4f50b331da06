// @ts-check
import { h } from "./dom.js";
import { notes } from "./overview.js";
import { placesOf } from "./places.js";
import { tableOf } from "./table.js";
import { rankText } from "./units.js";
import { keep, link } from "./url.js";

const FIRST = "SELECT rank, short_name, count(*) AS n, sum(\"end\" - start) AS total_ns\nFROM kernels GROUP BY ALL " +
  "ORDER BY total_ns DESC LIMIT 50";

/** Queries over the run's tables. @param {import("./main.js").Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const box = h("textarea", { "aria-label": "query in DuckDB's SQL", spellcheck: "false" });
  box.value = values.query ?? FIRST;
  const place = h("div", { "aria-live": "polite" });
  let stop = new AbortController();

  async function ask() {
    keep("sql", { query: box.value });
    stop.abort();
    stop = new AbortController();
    place.replaceChildren(h("p", { class: "muted" }, "asking ..."));
    try {
      const query = box.value;
      const answer = await ctx.api.post("sql", { query }, stop.signal);
      const places = placesOf(answer.columns);
      const lay = places && h("p", {}, h("a", { href: link("timeline", { ...ranksOf(answer), sql: query }) },
        "lay the rows on the timeline as a track"),
        h("span", { class: "muted" }, " (a start here leads to its place)"));
      place.replaceChildren(lay ?? "", tableOf(answer.columns, answer.rows,
        { name: "query", total: answer.total_rows,
          links: (row, c) => (c === places?.column ? places.address(row) : null) }), notes(answer.notes) ?? "");
    } catch (error) {
      if (error instanceof Error && error.name !== "AbortError") place.replaceChildren(h("p", {}, error.message));
    }
  }

  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void ask();
  });
  ctx.main.append(
    h("h2", {}, "SQL"),
    h("p", { class: "muted" },
      "A single statement that only reads, in DuckDB's SQL, over all ranks' tables: kernels, copies, api, ranges, " +
      "collectives, steps, members, ranks, ... It is stopped after 10 s or 512 MB, and shows 5,000 rows."),
    box,
    h("div", { class: "bar" }, h("button", { type: "button", class: "primary", on: { click: () => void ask() } },
      "Run"), h("span", { class: "muted" }, "Ctrl Enter")),
    place,
  );
  ctx.api.get("tables").then(({ tables }) => {
    const rows = Object.entries(tables).map(([name, columns]) => h("p", {}, h("code", {}, name), " ",
      columns.map((/** @type {string} */ c) => (c === "end" ? '"end"' : c)).join(", ")));
    place.after(h("details", {}, h("summary", {}, "Tables and their columns"), ...rows));
  }, ctx.failed);
  if (values.query) void ask();
  return { close: () => stop.abort() };
}

/** The ranks that an answer is about, in the form that the timeline requests.
 * @param {import("./types.js").Answer} answer */
function ranksOf({ columns, rows }) {
  const at = columns.findIndex((c) => c.name === "rank");
  const ranks = at < 0 ? [] : [...new Set(rows.map((r) => r[at]).filter((r) => typeof r === "number"))];
  return ranks.length ? { ranks: rankText(ranks.slice(0, 64)) } : {};
}
