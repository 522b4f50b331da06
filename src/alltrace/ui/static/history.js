// @ts-check
/** The history of many runs: step times, where the time went, findings that come back, hosts that are slow. */
import { picture } from "./charts.js";
import { choice, h } from "./dom.js";
import { notes } from "./overview.js";
import { tableOf } from "./table.js";
import { duration } from "./units.js";
import { keep } from "./url.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {{run: Answer, host: Answer, finding: Answer, breakdown: {figure?: any}, jobs: string[], tags: string[],
 *   place: number|null}} Told */

/** @param {import("./main.js").Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const stop = new AbortController();
  const chosen = { job: values.job ?? "", tag: values.tag ?? "" };
  /** @type {[HTMLElement, any][]} */
  let pictures = [];
  ctx.main.append(h("h2", {}, "History"));
  if (ctx.run.history === null) {
    ctx.main.append(
      h("p", {}, "No history is open. `alltrace ui RUN --history HISTORY` shows here how runs of a job changed over " +
        "time, which findings come back, and which hosts are slow in many runs; `alltrace history FOLDER -o HISTORY` " +
        "makes it of the run directories in a folder."),
    );
    return undefined;
  }
  const place = h("div", {}, h("p", { class: "muted", role: "status" }, "asking the history ..."));
  ctx.main.append(place);

  async function ask() {
    keep("history", chosen);
    try {
      draw(await ctx.api.get("history", chosen, stop.signal));
    } catch (error) {
      if (error instanceof Error && error.name !== "AbortError") place.replaceChildren(h("p", {}, error.message));
    }
  }

  /** @param {Told} told */
  function draw(told) {
    pictures = [];
    const drawing = (/** @type {any} */ figure) => {
      if (!figure) return "";
      const box = h("div", { class: "picture" });
      pictures.push([box, figure]);
      return box;
    };
    const pick = (/** @type {"job"|"tag"} */ what, /** @type {string[]} */ names) => {
      const options = /** @type {[string, string][]} */ ([["", `all ${what}s`], ...names.map((n) => [n, n])]);
      return names.length ? choice(what, options, chosen[what], (v) => ((chosen[what] = v), void ask())) : "";
    };
    const table = (/** @type {Answer} */ answer, /** @type {string} */ name) =>
      answer.rows.length ? tableOf(answer.columns, answer.rows, { name, total: answer.total_rows }) : "";
    const part = (/** @type {string} */ title, /** @type {Answer} */ answer, /** @type {string} */ name) => [
      h("h3", {}, title),
      drawing(answer.figure),
      table(answer, name),
      notes(answer.notes) ?? "",
    ];
    place.replaceChildren(
      h("div", { class: "bar" }, pick("job", told.jobs), pick("tag", told.tags)),
      h("p", { class: "verdict" }, sentence(told)),
      h("h3", {}, "Median step of each run"),
      drawing(told.run.figure),
      ...part("Hosts that are slow in many runs", told.host, "history-hosts"),
      ...part("Findings that come back", told.finding, "history-findings"),
      h("h3", {}, "The runs"),
      table(told.run, "history"),
      notes(told.run.notes) ?? "",
      h("h3", {}, "Where the time of each run went"),
      drawing(told.breakdown.figure), // last, as it has a bar per run
    );
    paint();
  }

  function paint() {
    for (const [box, figure] of pictures) void picture(box, figure).catch(ctx.failed);
  }

  void ask();
  return { close: () => stop.abort(), themed: paint };
}

/** What the history has on the run that is shown. @param {Told} told */
function sentence(told) {
  if (told.place === null)
    return "The run that is shown is not among these runs; `alltrace history RUN --history HISTORY` adds it.";
  const row = told.run.rows[told.place];
  /** @type {Record<string, any>} */
  const of = Object.fromEntries(told.run.columns.map((c, i) => [c.name, row[i]]));
  const job = of.job === null ? "" : ` of ${of.job}`;
  if (of.step_ns === null) return `The run that is shown is number ${of.number}${job}. It has no steps to compare.`;
  const change = of.change_percent === null ? ""
    : `, ${Math.abs(of.change_percent).toFixed(1)} % ${of.change_percent < 0 ? "less" : "more"} than the median of ` +
    `earlier runs`;
  const verdict = of.verdict === null ? ""
    : `: ${of.verdict === "usual" ? "within" : `${of.verdict} than`} their spread`;
  return `The run that is shown is number ${of.number}${job}. Its median step takes ` +
    `${duration(of.step_ns)}${change}${verdict}.`;
}
