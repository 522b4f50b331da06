// @ts-check
import { h } from "./dom.js";
import { notes } from "./overview.js";
import { tableOf } from "./table.js";
import { keep } from "./url.js";

const FIRST = "SELECT rank, short_name, count(*) AS n, sum(\"end\" - start) AS total_ns\nFROM kernels GROUP BY ALL ORDER BY total_ns DESC LIMIT 50";

/**
 * Queries over the run's tables.
 * @param {import("./main.js").Context} ctx
 * @param {Record<string, string>} values
 */
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
      const answer = await ctx.api.post("sql", { query: box.value }, stop.signal);
      place.replaceChildren(tableOf(answer.columns, answer.rows, { name: "query", total: answer.total_rows }), notes(answer.notes) ?? "");
    } catch (error) {
      if (error instanceof Error && error.name !== "AbortError") place.replaceChildren(h("p", {}, error.message));
    }
  }

  box.addEventListener("keydown", (e) => {
    if (e.key === "Enter" && (e.ctrlKey || e.metaKey)) void ask();
  });
  ctx.main.append(
    h("h2", {}, "SQL"),
    h("p", { class: "muted" }, "One reading statement in DuckDB's SQL over all ranks' tables: kernels, copies, api, ranges, collectives, steps, members, ranks, ... It is stopped after 10 s or 512 MB, and shows 5,000 rows."),
    box,
    h("div", { class: "bar" }, h("button", { type: "button", class: "primary", on: { click: () => void ask() } }, "Ask"), h("span", { class: "muted" }, "Ctrl Enter")),
    place,
  );
  if (values.query) void ask();
  return { close: () => stop.abort() };
}
