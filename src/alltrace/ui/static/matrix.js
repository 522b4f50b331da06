// @ts-check
import { shades, theme } from "./colors.js";
import { choice, fit, h, tip } from "./dom.js";
import { tableOf } from "./table.js";
import { count, duration } from "./units.js";
import { keep, link } from "./url.js";

const MEASURES = /** @type {[string, string][]} */ ([["wait_ns", "waits"], ["message_bytes", "bytes of messages"],
  ["collective_bytes", "bytes of collectives"]]);
const MEANING = /** @type {Record<string, string>} */ ({
  wait_ns: "The row waited so long for the column, which was last to arrive; waits below what the clocks can tell " +
    "are not counted.",
  message_bytes: "The row sent so much to the column, by sends and receives that were matched.",
  collective_bytes: "The row put so much into collectives in which the column took part; what moves between which " +
    "two depends on the algorithm.",
});
const LEFT = 76;
const TOP = 18;

/** Who communicates with whom, and who waits for whom. @param {import("./main.js").Context} ctx
 * @param {Record<string, string>} values */
export function show(ctx, values) {
  let measure = MEASURES.some(([m]) => m === values.measure) ? values.measure : "wait_ns";
  let by = values.by === "host" || ctx.run.ranks.length > 2048 ? "host" : "rank";
  let stop = new AbortController();
  /** @type {any} */
  let told = null;
  /** @type {Float64Array} */
  let cells = new Float64Array(0);
  const canvas = h("canvas", { role: "img" });
  const place = h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "matrix" }, canvas);
  const meaning = h("p", { class: "muted" });
  const pairs = h("div", { "aria-live": "polite" });
  ctx.main.append(
    h("h2", {}, "Who communicates with whom"),
    h("div", { class: "bar" }, choice("show", MEASURES, measure, (v) => ((measure = v), void ask())),
      choice("by", [["rank", "rank"], ["host", "host"]], by, (v) => ((by = v), void ask()))),
    meaning,
    place,
    pairs,
  );
  const text = (/** @type {number} */ v) => (measure === "wait_ns" ? duration(v) : `${count(v)} bytes`);
  const name = (/** @type {any} */ label) => (by === "rank" ? `rank ${label}` : String(label));
  const size = () => Math.max(1, Math.min(24, Math.floor(640 / Math.max(told?.labels.length ?? 1, 1))));

  function draw() {
    if (!told) return;
    const { labels, most } = told;
    const [n, cell] = [labels.length, size()];
    const context = fit(canvas, LEFT + n * cell + 8, TOP + n * cell + 8);
    const colors = theme();
    const table = shades();
    context.fillStyle = colors.back;
    context.fillRect(0, 0, LEFT + n * cell + 8, TOP + n * cell + 8);
    for (let i = 0; i < n; i++) {
      for (let j = 0; j < n; j++) {
        const value = cells[i * n + j];
        const shade = table[value > 0 ? Math.max(40, Math.min(255, Math.round((255 * value) / Math.max(most, 1)))) : 0];
        context.fillStyle = `rgb(${shade & 255} ${(shade >> 8) & 255} ${(shade >> 16) & 255})`;
        context.fillRect(LEFT + j * cell, TOP + i * cell, cell > 4 ? cell - 1 : cell, cell > 4 ? cell - 1 : cell);
      }
    }
    context.font = "11px system-ui, sans-serif";
    context.fillStyle = colors.soft;
    const every = Math.max(1, Math.ceil(13 / cell));
    const across = Math.max(1, Math.ceil((by === "rank" ? 26 : 60) / cell));
    for (let i = 0; i < n; i += every)
      context.fillText(String(labels[i]), 2, TOP + i * cell + Math.max(cell / 2 + 4, 9), LEFT - 6);
    for (let j = 0; j < n; j += across) context.fillText(String(labels[j]), LEFT + j * cell, 12, across * cell - 2);
    canvas.setAttribute("aria-label",
      `matrix of ${labels.length} by ${labels.length} ${by}s, ${text(told.total)} together, ${text(most)} at most`);
  }

  async function ask() {
    keep("matrix", { measure: measure === "wait_ns" ? "" : measure, by: by === "rank" ? "" : by });
    stop.abort();
    stop = new AbortController();
    pairs.replaceChildren(h("p", { class: "muted" }, "adding up ..."));
    try {
      const [facts, numbers] = await Promise.all([ctx.api.get("matrix", { measure, by }, stop.signal),
        ctx.api.numbers("matrix-cells", { measure, by }, stop.signal)]);
      [told, cells] = [facts, numbers];
      meaning.textContent = MEANING[measure];
      const unit = measure === "wait_ns" ? "ns" : "bytes";
      const rows = told.pairs.map((/** @type {any} */ p) => [p.from, p.to, p.value,
        told.total ? (100 * p.value) / told.total : null]);
      const columns = [{ name: "row", unit: null }, { name: "column", unit: null }, { name: measure, unit },
        { name: "share_percent", unit: "%" }];
      const none = { wait_ns: "No wait is longer than what the clocks can tell, or no operation was matched.",
        message_bytes: "No messages were matched: this run has no sends and receives whose sizes are known.",
        collective_bytes: "No collectives of known size were matched." }[measure];
      if (!told.pairs.length) pairs.replaceChildren(h("p", {}, none ?? ""));
      else pairs.replaceChildren(h("h3", {}, "The largest"),
        tableOf(columns, rows,
          { name: "pairs", total: rows.length, links: (row, c) => (c === 0 ? address(row[0], row[1]) : null) }));
      place.hidden = !told.pairs.length;
      draw();
    } catch (error) {
      if (error instanceof Error && error.name !== "AbortError") pairs.replaceChildren(h("p", {}, error.message));
    }
  }

  /** @param {any} from @param {any} to */
  function address(from, to) {
    const ranks = by === "rank" ? [from, to]
      : ctx.run.ranks.filter((r) => r.host === from || r.host === to).map((r) => r.rank);
    return link("timeline", { ranks: [...new Set(ranks)].slice(0, 64).join(","), open: by === "rank" ? from : "-" });
  }

  /** @param {MouseEvent} e */
  function at(e) {
    const box = canvas.getBoundingClientRect();
    const [j, i] = [Math.floor((e.clientX - box.left - LEFT) / size()),
      Math.floor((e.clientY - box.top - TOP) / size())];
    const n = told?.labels.length ?? 0;
    return i >= 0 && j >= 0 && i < n && j < n ? { from: told.labels[i], to: told.labels[j], value: cells[i * n + j] }
      : null;
  }
  canvas.addEventListener("pointermove", (e) => {
    const pair = at(e);
    if (!pair) return tip.hide();
    const verb = { wait_ns: "waited for", message_bytes: "sent to",
      collective_bytes: "was in collectives with" }[measure];
    tip.show(e.clientX, e.clientY, [`${name(pair.from)} ${verb} ${name(pair.to)}`, text(pair.value)]);
  });
  canvas.addEventListener("pointerleave", () => tip.hide());
  canvas.addEventListener("click", (e) => {
    const pair = at(e);
    if (pair) location.hash = address(pair.from, pair.to);
  });
  void ask();
  return { close: () => (stop.abort(), tip.hide()), themed: draw };
}
