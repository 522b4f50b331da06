// @ts-check
/** The picture of a roofline: points under ceilings on logarithmic axes, as SVG, so that each point can be reached by
 * keyboard. */
import { svg, tip } from "./dom.js";

/** @typedef {{of: number, level: string, x: number, y: number, under: string|null, share: number|null,
 *   lines: string[]}} Point */
/** @typedef {{name: string, kind: string, value: number}} Ceiling */
/** @typedef {{precision: string, level: string, chosen: number, weighed: boolean}} Look */
/** @typedef {{x0: number, x1: number, y0: number, y1: number}} Extent decades */
/** @typedef {{e: Extent, X: (v: number) => number, Y: (v: number) => number, width: number, height: number}} Scales
 *   what is shown, the pixels of a value, the picture's size */

const [LEFT, RIGHT, TOP, BOTTOM] = [74, 12, 12, 44];
const SCALES =
  /** @type {[number, string][]} */ ([[1e15, "P"], [1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"], [1, ""]]);

/** A rate in a unit that can be read, such as 3.2 TFLOP/s. @param {number|null} value @param {string} unit */
export function rate(value, unit) {
  if (value === null) return "";
  const [size, letter] = SCALES.find(([s]) => value >= s) ?? [1, ""];
  return `${Number((value / size).toPrecision(3)).toLocaleString("en")} ${letter}${unit}`;
}

const log = Math.log10;

export class RoofPicture {
  /** @param {(launch: number) => void} chosen called with the launch of a point that is clicked or entered */
  constructor(chosen) {
    this.chosen = chosen;
    this.element = document.createElement("div");
    this.element.className = "roof-svg";
    /** @type {Point[]} */
    this.points = [];
    /** @type {Ceiling[]} */
    this.ceilings = [];
    /** @type {Look} */
    this.look = { precision: "", level: "", chosen: -1, weighed: false };
    this.extent = this.#fitted();
    this.focused = 0;
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
    this.element.addEventListener("wheel", (e) => this.#wheel(e), { passive: false });
    this.element.addEventListener("keydown", (e) => this.#key(e));
  }

  close() {
    this.watcher.disconnect();
    tip.hide();
  }

  /** @param {Point[]} points @param {Ceiling[]} ceilings @param {Look} look */
  show(points, ceilings, look) {
    this.points = [...points].sort((a, b) => a.x - b.x || a.y - b.y);
    this.ceilings = ceilings;
    this.look = look;
    this.focused = Math.max(0, this.points.findIndex((p) => p.of === look.chosen));
    this.whole();
  }

  whole() {
    this.extent = this.#fitted();
    this.draw();
  }

  /** @param {number} launch */
  choose(launch) {
    this.look.chosen = launch;
    this.element.querySelectorAll(".roof-point")
      .forEach((p) => p.classList.toggle("chosen", p.getAttribute("data-of") === String(launch)));
  }

  get #compute() {
    return this.ceilings.filter((c) => c.kind === "compute" && c.value > 0);
  }

  get #memory() {
    return this.ceilings.filter((c) => c.kind === "memory" && c.value > 0);
  }

  /** @returns {Extent} what holds all points and the ridges of the chosen ceilings, with room around them */
  #fitted() {
    const top = this.#compute.find((c) => c.name === this.look.precision)?.value ??
      Math.max(0, ...this.#compute.map((c) => c.value));
    const ridges = top ? this.#memory.filter((c) => this.look.level === "all" || c.name === this.look.level)
      .map((c) => top / c.value) : [];
    const xs = [...this.points.map((p) => p.x), ...ridges].map(log);
    const ys = [...this.points.map((p) => p.y), ...(top ? [top, top / 30] : [])].map(log);
    if (!xs.length) xs.push(-1, 3);
    if (!ys.length) ys.push(9, 13);
    return { x0: Math.min(...xs) - 0.6, x1: Math.max(...xs) + 0.8, y0: Math.min(...ys) - 0.5,
      y1: Math.max(...ys) + 0.5 };
  }

  get #size() {
    const width = Math.max(this.element.clientWidth, 280);
    return { width, height: Math.max(260, Math.min(520, Math.round(width * 0.62))) };
  }

  draw() {
    const { width, height } = this.#size;
    const e = this.extent;
    const X = (/** @type {number} */ v) => LEFT + ((log(v) - e.x0) / (e.x1 - e.x0)) * (width - LEFT - RIGHT);
    const Y = (/** @type {number} */ v) => TOP + ((e.y1 - log(v)) / (e.y1 - e.y0)) * (height - TOP - BOTTOM);
    const scales = { e, X, Y, width, height };
    const parts = [...this.#axes(scales), ...this.#roofs(scales)];
    const marks = this.points.map((p, i) => this.#mark(p, i, X(p.x), Y(p.y)));
    const clip = svg("clipPath", { id: "roof-clip" },
      svg("rect", { x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM }));
    const order = marks.map((m, i) => ({ m, r: this.#radius(this.points[i]) })).sort((a, b) => b.r - a.r);
    this.element.replaceChildren(
      svg("svg", { width, height, viewBox: `0 0 ${width} ${height}`, role: "group",
        "aria-label": `roofline of ${this.look.precision || "no precision"}: ${this.points.length} points; arrow ` +
        `keys go from point to point, Enter chooses` },
        svg("defs", {}, clip), ...parts, svg("g", { "clip-path": "url(#roof-clip)" }, ...order.map((o) => o.m))),
    );
  }

  /** @param {Scales} scales */
  #axes({ e, X, Y, width, height }) {
    const parts = [];
    const every = (/** @type {number} */ decades, /** @type {number} */ room) => Math.max(1,
      Math.ceil(decades / Math.max(room / 46, 1)));
    for (let d = Math.ceil(e.x0), by = every(e.x1 - e.x0, width - LEFT); d <= e.x1; d += by) {
      const x = X(10 ** d);
      parts.push(svg("line", { class: "roof-grid", x1: x, x2: x, y1: TOP, y2: height - BOTTOM }));
      parts.push(svg("text", { class: "roof-tick", x, y: height - BOTTOM + 15, "text-anchor": "middle" },
        d < -3 ? `1e${d}` : (10 ** d).toLocaleString("en", { maximumFractionDigits: 3 })));
    }
    for (let d = Math.ceil(e.y0), by = every(e.y1 - e.y0, (height - TOP - BOTTOM) * 1.4); d <= e.y1; d += by) {
      const y = Y(10 ** d);
      parts.push(svg("line", { class: "roof-grid", x1: LEFT, x2: width - RIGHT, y1: y, y2: y }));
      parts.push(svg("text", { class: "roof-tick", x: LEFT - 6, y: y + 4, "text-anchor": "end" },
        rate(10 ** d, "FLOP/s")));
    }
    parts.push(svg("rect",
      { class: "roof-frame", x: LEFT, y: TOP, width: width - LEFT - RIGHT, height: height - TOP - BOTTOM }));
    parts.push(svg("text", { class: "roof-title", x: LEFT + (width - LEFT - RIGHT) / 2, y: height - 8,
      "text-anchor": "middle" }, `FLOP per byte ${this.look.level === "all" ? "moved" : `of ${this.look.level}`}`));
    return parts;
  }

  /** The ceilings: strong for the chosen precision and level, faint for the others. @param {Scales} scales */
  #roofs({ e, X, Y, width }) {
    const parts = [];
    const strong = (/** @type {Ceiling} */ c) => c.name === this.look.precision || c.name === this.look.level ||
      (this.look.level === "all" && c.kind === "memory");
    const own = this.#compute.find((c) => c.name === this.look.precision);
    const roof = own?.value ?? Math.max(0, ...this.#compute.map((c) => c.value));
    const steepest = Math.max(0, ...this.#memory.map((c) => c.value));
    /** @type {{x: number, y: number, w: number}[]} */
    const taken = [];
    const label = (/** @type {Ceiling} */ c, /** @type {number} */ x, /** @type {number} */ y,
      /** @type {string} */ anchor) => {
      const text = `${c.name} ${rate(c.value, c.kind === "compute" ? "FLOP/s" : "B/s")}`;
      const w = text.length * 6.4;
      const left = Math.max(LEFT + 4, anchor === "end" ? x - w : x);
      for (let tries = 0; tries < 4 && taken.some((t) => Math.abs(t.y - y) < 13 && left < t.x + t.w && t.x < left + w);
        tries++) y += 14;
      if (y < TOP + 8) y = TOP + 12;
      taken.push({ x: left, y, w });
      parts.push(svg("text", { class: `roof-name ${strong(c) ? "strong" : ""}`, x: anchor === "end" ? x : left, y,
        "text-anchor": anchor }, text));
    };
    const [low, high] = [10 ** e.x0, 10 ** e.x1];
    for (const c of [...this.#memory].sort((a, b) => b.value - a.value)) {
      const end = roof ? Math.min(roof / c.value, high) : high;
      const from = Math.max(low, 10 ** e.y0 / c.value);
      const to = Math.min(end, 10 ** e.y1 / c.value);
      if (to <= from) continue;
      parts.push(svg("line", { class: `roof-line ${strong(c) ? "strong" : ""}`, x1: X(from), y1: Y(from * c.value),
        x2: X(to), y2: Y(to * c.value) }));
      const at = 10 ** (log(from) + (log(to) - log(from)) * 0.12);
      label(c, X(at) + 8, Y(at * c.value) + 4, "start");
    }
    for (const c of [...this.#compute].sort((a, b) => b.value - a.value)) {
      const from = Math.max(low, steepest ? c.value / steepest : low);
      if (from >= high || log(c.value) > e.y1 || log(c.value) < e.y0) continue;
      parts.push(svg("line", { class: `roof-line ${strong(c) ? "strong" : ""}`, x1: X(from), y1: Y(c.value),
        x2: width - RIGHT, y2: Y(c.value) }));
      label(c, width - RIGHT - 4, Y(c.value) - 4, "end");
    }
    return parts;
  }

  /** @param {Point} p */
  #radius(p) {
    return p.share === null ? (this.look.weighed ? 3.5 : 5) : 4 + 15 * Math.sqrt(p.share / 100);
  }

  /** @param {Point} p @param {number} i @param {number} x @param {number} y */
  #mark(p, i, x, y) {
    const r = this.#radius(p);
    const facts = {
      class: `roof-point roof-${p.under ?? "unknown"}${p.of === this.look.chosen ? " chosen" : ""}`,
      "data-of": p.of,
      "data-level": p.level,
      tabindex: i === this.focused ? 0 : -1,
      role: "button",
      "aria-label": p.lines.join("; "),
    };
    // all levels in one picture: a triangle for L1, a square for L2
    const shape = this.look.level !== "all" || p.level === "DRAM" ? svg("circle", { ...facts, cx: x, cy: y, r })
      : p.level === "L2" ? svg("rect", { ...facts, x: x - r * 0.9, y: y - r * 0.9, width: r * 1.8, height: r * 1.8 })
      : svg("path", { ...facts, d: `M${x} ${y - r * 1.15}L${x + r} ${y + r * 0.8}L${x - r} ${y + r * 0.8}Z` });
    shape.addEventListener("pointermove", (e) => tip.show(e.clientX, e.clientY, p.lines));
    shape.addEventListener("pointerleave", () => tip.hide());
    shape.addEventListener("click", () => ((this.focused = i), this.chosen(p.of)));
    shape.addEventListener("focus", () => {
      const box = shape.getBoundingClientRect();
      if (shape.matches(":focus-visible")) tip.show(box.right, box.top, p.lines);
    });
    shape.addEventListener("blur", () => tip.hide());
    shape.dataset.n = String(i);
    return shape;
  }

  /** @param {KeyboardEvent} e */
  #key(e) {
    if (e.ctrlKey || e.metaKey || e.altKey || !this.points.length) return;
    const middle = this.extent;
    const go = (/** @type {number} */ to) => {
      this.focused = Math.max(0, Math.min(this.points.length - 1, to));
      for (const m of this.element.querySelectorAll(".roof-point")) {
        const own = /** @type {SVGElement} */ (m);
        own.setAttribute("tabindex", own.dataset.n === String(this.focused) ? "0" : "-1");
        if (own.dataset.n === String(this.focused)) own.focus();
      }
    };
    /** @type {Record<string, () => void>} */
    const acts = {
      ArrowRight: () => go(this.focused + 1),
      ArrowDown: () => go(this.focused + 1),
      ArrowLeft: () => go(this.focused - 1),
      ArrowUp: () => go(this.focused - 1),
      Home: () => go(0),
      End: () => go(this.points.length - 1),
      Enter: () => this.chosen(this.points[this.focused].of),
      " ": () => this.chosen(this.points[this.focused].of),
      w: () => this.#zoom(0.7, (middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2),
      s: () => this.#zoom(1 / 0.7, (middle.x0 + middle.x1) / 2, (middle.y0 + middle.y1) / 2),
      0: () => this.whole(),
    };
    const act = acts[e.key];
    if (!act) return;
    e.preventDefault();
    act();
    if (["w", "s", "0"].includes(e.key)) go(this.focused);
  }

  /** @param {WheelEvent} e */
  #wheel(e) {
    if (!e.ctrlKey && !e.shiftKey) return; // the wheel alone scrolls the page
    e.preventDefault();
    const box = this.element.getBoundingClientRect();
    const { width, height } = this.#size;
    const now = this.extent;
    const x = now.x0 + ((e.clientX - box.left - LEFT) / (width - LEFT - RIGHT)) * (now.x1 - now.x0);
    const y = now.y1 - ((e.clientY - box.top - TOP) / (height - TOP - BOTTOM)) * (now.y1 - now.y0);
    this.#zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY || e.deltaX)) / 500), x, y);
  }

  /** @param {number} factor @param {number} x @param {number} y */
  #zoom(factor, x, y) {
    const now = this.extent;
    const by = Math.max(0.2 / (now.x1 - now.x0), Math.min(factor, 24 / (now.x1 - now.x0)));
    this.extent = { x0: x - (x - now.x0) * by, x1: x + (now.x1 - x) * by, y0: y - (y - now.y0) * by,
      y1: y + (now.y1 - y) * by };
    this.draw();
  }
}
