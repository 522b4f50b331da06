// @ts-check
/** A flame graph on a canvas: the callers on top, each as wide as it lasts with all that it calls. */
import { sliceColor, theme } from "./colors.js";
import { fit, h, tip } from "./dom.js";
import { clipped } from "./draw.js";
import { counted, duration } from "./units.js";

const ROW = 18;
const MOST_ROWS = 40;
const RANGE = 4;

/** @typedef {{name: string[], parent: number[], total_ns: number[], self_ns: number[], count: number[], left_out: number}} Nodes */

export class FlameGraph {
  /** @param {Nodes} nodes a parent before its children, children longest first */
  constructor(nodes) {
    this.nodes = nodes;
    /** @type {number} the node that fills the width; -1 for all */
    this.root = -1;
    /** @type {{node: number, x: number, y: number, w: number}[]} */
    this.drawn = [];
    /** @type {number[][]} */
    this.children = nodes.name.map(() => []);
    /** @type {number[]} */
    this.tops = [];
    nodes.parent.forEach((p, i) => (p < 0 ? this.tops : this.children[p]).push(i));
    this.canvas = h("canvas", { role: "img", tabindex: "0" });
    this.path = h("span", { class: "muted", role: "status" });
    this.element = h("div", { class: "flame" }, this.canvas);
    this.canvas.addEventListener("pointermove", (e) => this.#hover(e));
    this.canvas.addEventListener("pointerleave", () => tip.hide());
    this.canvas.addEventListener("click", (e) => this.focus(this.#at(e)?.node ?? -1));
    this.canvas.addEventListener("keydown", (e) => {
      const up = this.root < 0 ? -1 : nodes.parent[this.root];
      const siblings = up < 0 ? this.tops : this.children[up];
      const place = siblings.indexOf(this.root);
      const to = { ArrowUp: up, ArrowDown: (this.root < 0 ? this.tops : this.children[this.root])[0], ArrowRight: siblings[place + 1], ArrowLeft: siblings[place - 1] }[e.key];
      if (to === undefined) return;
      e.preventDefault();
      e.stopPropagation();
      this.focus(to);
    });
    this.watcher = new ResizeObserver(() => this.draw());
    this.watcher.observe(this.element);
  }

  close() {
    this.watcher.disconnect();
  }

  get whole() {
    return this.tops.reduce((n, t) => n + this.nodes.total_ns[t], 0);
  }

  /** @param {number} node */
  focus(node) {
    this.root = node;
    this.draw();
  }

  /** @param {number} node */
  told(node) {
    const { name, total_ns, self_ns, count } = this.nodes;
    const share = ((100 * total_ns[node]) / Math.max(this.whole, 1)).toFixed(1);
    return [name[node], `${duration(total_ns[node])} in all (${share} %), ${duration(self_ns[node])} of its own`, counted(count[node], "time")];
  }

  draw() {
    const width = this.element.clientWidth;
    if (!width) return;
    const { nodes, root } = this;
    const colors = theme();
    /** @type {number[]} */
    const above = [];
    for (let n = root; n >= 0; n = nodes.parent[n]) above.unshift(n);
    this.drawn = above.map((node, i) => ({ node, x: 0, y: i * ROW, w: width }));
    const total = root < 0 ? this.whole : nodes.total_ns[root];
    const place = (/** @type {number[]} */ list, /** @type {number} */ x, /** @type {number} */ depth) => {
      if (depth >= MOST_ROWS) return;
      for (const node of list) {
        const w = (width * nodes.total_ns[node]) / Math.max(total, 1);
        if (w < 0.6) break; // the following ones are shorter
        this.drawn.push({ node, x, y: depth * ROW, w });
        place(this.children[node], x, depth + 1);
        x += w;
      }
    };
    place(root < 0 ? this.tops : this.children[root], 0, above.length);
    const rows = this.drawn.reduce((most, d) => Math.max(most, d.y / ROW + 1), 1);
    const context = fit(this.canvas, width, rows * ROW + 1);
    context.fillStyle = colors.back;
    context.fillRect(0, 0, width, rows * ROW + 1);
    context.font = "11px system-ui, sans-serif";
    const text = document.documentElement.dataset.theme === "dark" ? "#f2f5f8" : "#101820";
    for (const { node, x, y, w } of this.drawn) {
      context.fillStyle = sliceColor(RANGE, nodes.name[node]);
      context.globalAlpha = above.includes(node) && node !== root ? 0.45 : 1;
      context.fillRect(x, y, Math.max(w - 0.6, 0.4), ROW - 1);
      if (w > 30) {
        context.fillStyle = text;
        context.fillText(clipped(context, nodes.name[node], w - 6), x + 3, y + 13);
      }
      context.globalAlpha = 1;
    }
    const here = root < 0 ? `${counted(nodes.name.length, "chain")} of names, ${duration(this.whole)} in all` : this.told(root).join(", ");
    this.path.textContent = `${here}${root < 0 ? "" : "; a click on what is above leads back"}${nodes.left_out ? `; ${counted(nodes.left_out, "shorter chain")} left out` : ""}`;
    this.canvas.setAttribute("aria-label", `flame graph: ${here}; arrows go from one to the other`);
  }

  /** @param {MouseEvent} e */
  #at(e) {
    const box = this.canvas.getBoundingClientRect();
    const [x, y] = [e.clientX - box.left, e.clientY - box.top];
    return this.drawn.find((d) => y >= d.y && y < d.y + ROW && x >= d.x && x <= d.x + d.w);
  }

  /** @param {PointerEvent} e */
  #hover(e) {
    const hit = this.#at(e);
    if (hit) tip.show(e.clientX, e.clientY, this.told(hit.node));
    else tip.hide();
  }
}
