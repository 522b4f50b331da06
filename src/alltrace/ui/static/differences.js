// @ts-check
import { choice, h, mark } from "./dom.js";
import { notes } from "./overview.js";
import { tableOf } from "./table.js";
import { count, counted, duration } from "./units.js";
import { link } from "./url.js";

/** @typedef {import("./types.js").Answer} Answer */

const WHAT = /** @type {[string, string][]} */ ([["", "all"],
  ...["kernel", "copy", "range", "call", "collective", "step"].map((w) => [w, `${w.replace(/y$/, "ie")}s`])]);
const VERDICTS = /** @type {[string, string][]} */ ([["", "all"], ["differs", "slower or faster"], ["slower", "slower"],
  ["faster", "faster"], ["one", "in one run only"], ["same", "same"]]);
const SHOWN = ["what", "name", "bytes", "group_size", "verdict", "count_verdict", "call_verdict", "total_change_ns",
  "total_change_percent", "count_a", "count_b", "median_a_ns", "median_b_ns", "median_change_percent", "longer_share",
  "p_value", "total_a_ns", "total_b_ns"];
/** The answer's words for its runs, as the page calls them. @type {Record<string, string>} */
const HEADS = { count_a: "count A", count_b: "count B", total_a_ns: "total A_ns", total_b_ns: "total B_ns",
  median_a_ns: "median A_ns", median_b_ns: "median B_ns", p_value: "p value", bytes: "message bytes" };
/** @type {Record<string, string>} */
const SAID = { only_a: "A only", only_b: "B only", one_sample: "one sample" };

/** What differs between the two runs: a row for each thing of either, matched by what it is. */
export class Differences {
  /** @param {import("./main.js").Context} ctx @param {{what: string, verdict: string}} state
   * @param {() => void} changed */
  constructor(ctx, state, changed) {
    this.ctx = ctx;
    this.state = state;
    this.changed = changed;
    this.stop = new AbortController();
    this.steps = "";
    /** @type {Answer|null} */
    this.answer = null;
    this.sentence = h("p", { class: "verdict", "aria-live": "polite" });
    this.place = h("div", { "aria-live": "polite" });
    this.element = h(
      "section",
      { "aria-label": "what differs" },
      h("h2", {}, "What differs"),
      h(
        "div",
        { class: "bar" },
        choice("of", WHAT, state.what, (v) => {
          state.what = v;
          changed();
          void this.ask(this.steps);
        }),
        choice("verdict", VERDICTS, state.verdict, (v) => {
          state.verdict = v;
          changed();
          this.#fill();
        }),
      ),
      this.place,
    );
  }

  close() {
    this.stop.abort();
  }

  /** @param {string} steps such as 3:4; empty for the whole runs */
  async ask(steps) {
    this.steps = steps;
    this.stop.abort();
    this.stop = new AbortController();
    this.answer = null;
    this.sentence.replaceChildren("Comparing all durations of both runs ...");
    this.place.replaceChildren(h("p", { class: "muted", role: "status" }, "comparing all durations of both runs ..."));
    try {
      this.answer = await this.ctx.api.post("diff", { what: this.state.what, steps }, this.stop.signal);
      this.#fill();
    } catch (error) {
      if (!(error instanceof Error) || error.name === "AbortError") return;
      this.sentence.replaceChildren(`What changed cannot be said: ${error.message}`);
      this.place.replaceChildren();
    }
  }

  /** The kernels that one run alone has, under the innermost range that both have. */
  #replaced() {
    const rows = this.answer?.extra?.replaced ?? [];
    if (!rows.length) return "";
    const names = (/** @type {"A"|"B"} */ run,
      /** @type {string[]} */ all) => all.map((name) => h("li", {}, mark(run), " ", name));
    const one = (/** @type {any} */ r) => {
      const [a, b] = [`${counted(r.kernels_a, "kernel")}, ${duration(r.time_a_ns)}`,
        `${counted(r.kernels_b, "kernel")}, ${duration(r.time_b_ns)}`];
      return h("li", {}, h("details", { open: rows.length < 6 },
        h("summary", {}, h("code", {}, r.range), ` ${a} `, h("span", { "aria-label": "become" }, "→"), ` ${b}`),
        h("ul", {}, ...names("A", r.names_a), ...names("B", r.names_b))));
    };
    return h("div", { class: "replaced" }, h("h3", {}, "What replaced what, in one range"),
      h("ul", {}, ...rows.map(one)));
  }

  #fill() {
    if (!this.answer) return;
    const { columns, rows, total_rows } = this.answer;
    const at = Object.fromEntries(columns.map((c, i) => [c.name, i]));
    const wanted = (/** @type {string} */ verdict) => {
      const { verdict: v } = this.state;
      return !v || v === verdict || (v === "differs" && ["slower", "faster"].includes(verdict)) ||
        (v === "one" && verdict.startsWith("only"));
    };
    const used = SHOWN.filter((c) => rows.some((r) => r[at[c]] !== null));
    const shown = rows.filter((r) => wanted(r[at.verdict]));
    const cellOf = (/** @type {any[]} */ r, /** @type {string} */ c) => {
      const value = r[at[c]];
      if (c === "verdict") return SAID[value] ?? value;
      if (c === "p_value" && typeof value === "number") return value < 0.0001 ? "< 0.0001"
        : Number(value.toPrecision(2));
      if (c.endsWith("_percent") && typeof value === "number") return Math.round(value * 10) / 10;
      return c === "longer_share" && typeof value === "number" ? Math.round(value * 1000) / 1000 : value;
    };
    const head = used.map((c) => ({ ...columns[at[c]], name: HEADS[c] ?? c }));
    const tally = (/** @type {string} */ v) => rows.filter((r) => r[at.verdict] === v).length;
    const told = `Things of both runs are matched by what they are. ${count(tally("slower"))} are slower in B, ` +
      `${count(tally("faster"))} faster, ${count(tally("same"))} the same as far as can be told; ` +
      `${count(tally("only_a"))} are in A only, ${count(tally("only_b"))} in B only.`;
    const pattern = (/** @type {string} */ name) => `^${name.replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$`;
    this.sentence.replaceChildren(...(this.answer.verdict ?? "").split("`")
      .map((text, i) => (i % 2 ? h("code", {}, text) : text)));
    this.place.replaceChildren(
      this.#replaced(),
      h("p", { class: "muted",
        title: "slower or faster: not chance (p value below 0.05, rank test of Mann and Whitney, corrected for the " +
        "number of rows), and the median moved by 1 % or more" }, rows.length ? told : "Neither run has any of these."),
      tableOf(head, shown.map((r) => used.map((c) => cellOf(r, c))), {
        name: "differences",
        total: this.state.verdict ? shown.length : total_rows,
        links: (row, i) => (used[i] === "name" && ["kernel", "range", "call"].includes(row[0])
          ? link("timeline", { ranks: "0-3", search: pattern(String(row[i])) }) : null),
      }),
      notes(this.answer.notes) ?? "",
    );
  }
}
