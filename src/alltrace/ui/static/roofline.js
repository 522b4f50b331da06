// @ts-check
import { choice, h } from "./dom.js";
import { notes } from "./overview.js";
import { rate, RoofPicture } from "./roofpicture.js";
import { listOf, tableOf } from "./table.js";
import { count, counted, duration } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {import("./types.js").Answer} Answer */
/** @typedef {import("./roofpicture.js").Point} Point */
/** @typedef {Record<string, any>} Row */

/** The rows of an answer by the names of its columns. @param {Answer} answer @returns {Row[]} */
const named = (answer) => answer.rows.map((row) => Object.fromEntries(answer.columns.map((c, i) => [c.name, row[i]])));

/** The roofline of the launches that Nsight Compute measured, and what they represent in the run.
 * @param {import("./main.js").Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  ctx.main.append(h("h2", {}, "Roofline"));
  if (!ctx.run.kernel_reports.length) {
    ctx.main.append(
      h("p", {}, "No reports of kernels are open. `alltrace ui RUN --ncu REPORT` shows those of Nsight Compute " +
        "(.ncu-rep) here, weighed by the time of each kernel in the run; `alltrace capture exec --profiler ncu` " +
        "makes them."),
    );
    return undefined;
  }
  const place = h("div", {}, h("p", { class: "muted", role: "status" }, "reading the reports ..."));
  ctx.main.append(place);
  const stop = new AbortController();
  /** @type {Roofline|null} */
  let view = null;
  ctx.api.get("roofline", {}, stop.signal).then((answers) => {
    view = new Roofline(ctx, place, answers, values);
    ctx.api.get("weighed", {}, stop.signal).then((weighed) => view?.weigh(weighed), (error) => {
      if (error?.name !== "AbortError") view?.unweighed(error.message);
    });
  }, ctx.failed);
  return { close: () => (stop.abort(), view?.close()), themed: () => view?.picture.draw() };
}

class Roofline {
  /** @param {import("./main.js").Context} ctx @param {HTMLElement} place
   * @param {{launches: Answer, points: Answer, advice: Answer, ceilings: Row[], notes: string[]}} answers
   * @param {Record<string, string>} values */
  constructor(ctx, place, answers, values) {
    this.ctx = ctx;
    this.answers = answers;
    this.launches = named(answers.launches);
    const key = (/** @type {Row} */ r) => `${r.report}/${r.launch}`;
    const number = new Map(this.launches.map((l, i) => [key(l), i]));
    /** @type {(Row & {of: number})[]} */
    this.points = named(answers.points).filter((p) => p.precision !== null && number.has(key(p)))
      .map((p) => ({ ...p, of: number.get(key(p)) ?? 0 }));
    /** @type {Row[][]} */
    this.advice = this.launches.map(() => []);
    for (const a of named(answers.advice)) this.advice[number.get(key(a)) ?? 0]?.push(a);
    /** @type {(Row|null)[]|null} */
    this.weights = null;
    this.devices = [...new Set(this.launches.map((l) => l.device ?? ""))];
    this.device = this.devices.includes(values.device) ? values.device : this.devices[0];
    const drawn = this.points.filter((p) => this.#can(p));
    const precisions = [...new Set(this.points.map((p) => p.precision))];
    const often = (/** @type {string} */ n) => drawn.filter((p) => p.precision === n).length;
    this.precisions = precisions;
    this.precision = precisions.includes(values.precision) ? values.precision
      : [...precisions].sort((a, b) => often(b) - often(a))[0] ?? "";
    this.level = ["L1", "L2", "DRAM", "all"].includes(values.level) ? values.level : "DRAM";
    this.sort = values.sort ?? "";
    this.chosen = values.launch && this.launches[Number(values.launch)] ? Number(values.launch) : -1;
    this.picture = new RoofPicture((i) => this.choose(i, "picture"));
    this.told = h("p", { class: "muted", role: "status" });
    this.table = h("div", { class: "roof-table" });
    this.details = h("section", { "aria-label": "launch", "aria-live": "polite" });
    this.weighing = h("p", { class: "muted", role: "status" }, "weighing by the run ...");
    const set = (/** @type {"device"|"precision"|"level"} */ name) => (/** @type {string} */ v) => {
      this[name] = v;
      this.draw();
    };
    place.replaceChildren(
      h(
        "div",
        { class: "bar" },
        this.devices.length > 1 ? choice("device", this.devices.map((d) => [d, d || "unknown"]), this.device,
          set("device")) : h("span", {}, this.device || "unknown device"),
        precisions.length ? choice("precision", precisions.map((p) => [p, p]), this.precision, set("precision")) : null,
        choice("memory", [["L1", "L1"], ["L2", "L2"], ["DRAM", "DRAM"], ["all", "all levels"]], this.level,
          set("level")),
        h("button", { type: "button", on: { click: () => this.picture.whole() } }, "whole picture"),
        h("span", { class: "legend" }, ...["memory", "compute"]
          .map((u) => h("span", {}, h("span", { class: `hue roof-${u}` }), `under the ${u} ceiling`))),
      ),
      this.told,
      h("div", { class: "roof" }, h("div", { class: "roof-picture" }, this.picture.element, this.weighing), this.table),
      this.details,
      notes([...answers.notes, ...(answers.launches.total_rows > this.launches.length
        ? [`only the first ${this.launches.length} of ${answers.launches.total_rows} launches are shown`] : [])]) ?? "",
    );
    this.draw();
    if (this.chosen >= 0) this.choose(this.chosen, "address");
  }

  close() {
    this.picture.close();
  }

  /** Whether a point has a place on logarithmic axes. @param {Row} p */
  #can(p) {
    return p.intensity_flop_per_byte > 0 && p.work_flop_per_s > 0;
  }

  #keep() {
    keep("roofline", {
      device: this.devices.length > 1 ? this.device : "",
      precision: this.precision,
      level: this.level === "DRAM" ? "" : this.level,
      launch: this.chosen >= 0 ? this.chosen : "",
      sort: this.sort,
    });
  }

  draw() {
    const mine = (/** @type {Row} */ l) => (l.device ?? "") === this.device;
    const wanted = this.points.filter((p) => p.precision === this.precision &&
      (this.level === "all" || p.level === this.level) && mine(this.launches[p.of]));
    const shown = wanted.filter((p) => this.#can(p));
    const launches = this.launches.filter(mine).length;
    const without = launches - new Set(shown.map((p) => p.of)).size;
    this.told.textContent = !this.precisions.length
      ? `None of ${count(launches)} launches has a count of floating-point operations in its report; \`ncu --set ` +
        `roofline\` collects them. The table shows the rest.`
      : `${counted(launches - without, "launch", "launches")} as ` +
        `points${without ? `; ${count(without)} without one: they did no ${this.precision} work, moved nothing, or ` +
          "the report does not say" : ""}.`;
    const ceilings = this.answers.ceilings.filter((c) => (c.device ?? "") === this.device)
      .map((c) => ({ name: c.name.split(",")[0], kind: c.kind, value: c.value }));
    this.picture.show(
      shown.map((p) => {
        const l = this.launches[p.of];
        const weight = this.weights?.[p.of];
        const lines = [
          `${p.name}${l.grid ? `, ${l.grid} of ${l.block}` : ""}`,
          `${rate(p.work_flop_per_s, "FLOP/s")} at ${Number(p.intensity_flop_per_byte.toPrecision(4))} FLOP per byte ` +
            `of ${p.level}`,
          p.roof_percent === null ? "no ceiling is known"
            : `${p.roof_percent.toFixed(1)} % of what it can be, under the ${p.under} ceiling`,
        ];
        if (weight)
          lines.push(`${duration(weight.total_ns)} in the run, ${weight.share_percent.toFixed(1)} % of its kernels' ` +
            `time`);
        return /** @type {Point} */ ({ of: p.of, level: p.level, x: p.intensity_flop_per_byte, y: p.work_flop_per_s,
          under: p.under, share: weight ? weight.share_percent : null, lines });
      }),
      ceilings,
      { precision: this.precision, level: this.level, chosen: this.chosen, weighed: !!this.weights?.some((w) => w) },
    );
    this.#fill(wanted, mine);
    this.#keep();
  }

  /** The table next to the picture: a row for each launch of the device. @param {(Row & {of: number})[]} points
   * @param {(launch: Row) => boolean} mine */
  #fill(points, mine) {
    /** @type {Map<number, Row>} */
    const best = new Map();
    // the level with the nearest ceiling
    for (const p of points) if (!best.has(p.of) || (p.roof_percent ?? -1) > (best.get(p.of)?.roof_percent ?? -1))
      best.set(p.of, p);
    const head = [
      { name: "launch", unit: null, doc: "number of the launch, over all reports" },
      { name: "name", unit: null },
      { name: "in_run_ns", unit: "ns", doc: "time of the kernel with this grid and block in the run, over all ranks" },
      { name: "share_percent", unit: "%", doc: "that, as a share of the time of all kernels of the run" },
      { name: "duration_ns", unit: "ns", doc: "of the measured launch" },
      { name: "roof_percent", unit: "%", doc: "work per second, of the lower ceiling at its intensity" },
      { name: "limiter", unit: null, doc: "the ceiling that the point is under" },
      { name: "occupancy limiter", unit: null, doc: "what lets the fewest blocks onto a multiprocessor" },
      { name: "advice", unit: null, doc: "the rule with the largest gain" },
      { name: "gain_percent", unit: "%", doc: "upper bound of the gain, as a share of the launch's time" },
      { name: "grid", unit: null },
      { name: "block", unit: null },
      ...(this.ctx.run.kernel_reports.length > 1 ? [{ name: "report", unit: null }] : []),
    ];
    const rounded = (/** @type {any} */ v) => (typeof v === "number" ? Math.round(v * 10) / 10 : null);
    const rows = this.launches.flatMap((l, i) => {
      if (!mine(l)) return [];
      const [p, w, a] = [best.get(i), this.weights?.[i], this.advice[i][0]];
      const level = p && this.level === "all" && p.under === "memory" ? ` (${p.level})` : "";
      return [[i, l.name, w?.total_ns ?? null, rounded(w?.share_percent), l.duration_ns, rounded(p?.roof_percent),
        p?.under ? p.under + level : null, l.occupancy_limiter, a?.rule.replace(/-/g, " ") ?? null,
        rounded(a?.gain_percent), l.grid, l.block, l.report].slice(0, head.length)];
    });
    this.table.replaceChildren(
      tableOf(head, rows, {
        name: "launches",
        sort: this.sort,
        sorted: (text) => ((this.sort = text), this.#keep()),
        key: (row) => String(row[0]),
        chosen: (row) => this.choose(row[0], "table"),
      }),
    );
    this.#mark();
  }

  #mark() {
    for (const tr of this.table.querySelectorAll("tbody tr"))
      tr.classList.toggle("chosen", tr instanceof HTMLElement && tr.dataset.key === String(this.chosen));
  }

  /** @param {number} launch @param {"picture"|"table"|"address"} from */
  choose(launch, from) {
    this.chosen = launch;
    this.picture.choose(launch);
    this.#mark();
    const row = this.table.querySelector("tr.chosen");
    const scroll = this.table.querySelector(".scroll");
    if (from !== "table" && row instanceof HTMLElement && scroll)
      scroll.scrollTop = row.offsetTop - scroll.clientHeight / 2;
    this.#tell();
    this.#keep();
  }

  #tell() {
    const l = this.launches[this.chosen];
    if (!l) return;
    const w = this.weights?.[this.chosen];
    const own = this.points.filter((p) => p.of === this.chosen);
    const facts = Object.fromEntries(this.answers.launches.columns.filter((c) => !["name"].includes(c.name) &&
      l[c.name] !== null).map((c) => [c.name,
        typeof l[c.name] === "number" && !Number.isInteger(l[c.name]) ? Math.round(l[c.name] * 100) / 100
        : l[c.name]]));
    const pattern = w
      ? `^${String(l.name).split(/[<(]/)[0].trim().split(/\s+/).pop()?.replace(/^.*::/, "")
        .replace(/[.*+?^${}()|[\]\\]/g, "\\$&")}$` : "";
    this.details.replaceChildren(
      h("h2", {}, l.name),
      w ? h("p", {},
        `In the run: ${counted(w.count, "launch", "launches")} on ${counted(w.ranks, "rank")}, ` +
        `${duration(w.total_ns)} together, ${w.share_percent.toFixed(1)} % of the time of all kernels; ` +
        `${duration(w.mean_ns)} each, ${duration(w.profiled_ns)} when measured. `,
        h("a", { href: link("timeline", { search: pattern, ranks: "0-15" }) }, "find it on the timeline"))
        : h("p", { class: "muted" }, this.weights ? "The run has no launch of this name, grid and block." : ""),
      h(
        "div",
        { class: "columns" },
        h("div", {}, h("h3", {}, "Advice"),
          this.advice[this.chosen].length ? h("dl", {}, ...this.advice[this.chosen].flatMap((a) => [
          h("dt", {}, a.rule.replace(/-/g, " "), a.gain_percent === null ? ""
            : h("div", {}, `at most ${a.gain_percent.toFixed(1)} %`)),
          h("dd", {}, h("div", {}, a.advice), h("div", { class: "muted" }, a.evidence)),
        ])) : h("p", { class: "muted" }, "No rule found anything.")),
        own.length ? h("div", {}, h("h3", {}, "Points"), tableOf(
          [{ name: "precision", unit: null }, { name: "memory", unit: null }, { name: "work", unit: null },
            { name: "moved", unit: null }, { name: "FLOP per byte", unit: null }, { name: "of the roof", unit: null },
            { name: "counted by", unit: null }],
          own.map((p) => [p.precision, p.level, rate(p.work_flop_per_s, "FLOP/s"), rate(p.moved_bytes_per_s, "B/s"),
            p.intensity_flop_per_byte === null ? null : Number(p.intensity_flop_per_byte.toPrecision(4)),
            p.roof_percent === null ? null : `${p.roof_percent.toFixed(1)} %, ${p.under}`, p.basis]),
          { name: "points", filter: false },
        )) : null,
        h("div", {}, h("h3", {}, "Launch"), listOf(facts)),
      ),
    );
  }

  /** @param {Answer & {of: (number|null)[]}} answers */
  weigh(answers) {
    const rows = named(answers);
    this.weights = this.launches.map((_, i) => (typeof answers.of[i] === "number" ? rows[answers.of[i]] : null));
    const matched = this.weights.filter((w) => w).length;
    const share = rows.reduce((n, r) => n + r.share_percent, 0);
    this.weighing.textContent = matched
      ? `${count(matched)} of ${count(this.launches.length)} launches are in the run by name, grid and block: ` +
        `${share.toFixed(1)} % of the time of its kernels. Larger points have more of it.`
      : "No launch of the reports is in the run by name, grid and block, so points are not weighed.";
    if (!this.sort && matched) this.sort = "-in_run_ns";
    this.draw();
    this.#tell();
  }

  /** @param {string} why */
  unweighed(why) {
    this.weighing.textContent = `Points are not weighed by the run: ${why}`;
  }
}
