// @ts-check
import { tip, typing } from "./dom.js";
import { TABLES } from "./draw.js";
import { NO_TABLE } from "./laid.js";
import { TILE_BINS } from "./tiles.js";
import { duration, exact } from "./units.js";

/** @typedef {import("./timeline.js").Timeline} Timeline */

/** Let pointer, wheel and keys move a timeline. @param {Timeline} timeline @returns {() => void} what ends it */
export function listen(timeline) {
  const box = timeline.tracksBox;
  box.addEventListener("pointerdown", (e) => {
    const { x, y } = timeline.at(e);
    if (e.button !== 0 || x < timeline.left || x > box.clientWidth) return;
    box.setPointerCapture(e.pointerId);
    timeline.drag = { x, y, start: { ...timeline.span }, pan: e.shiftKey, moved: false };
  });
  box.addEventListener("pointermove", (e) => {
    const { x, y, ns } = timeline.at(e);
    timeline.pointer = ns;
    if (timeline.drag) {
      timeline.drag.moved ||= Math.abs(x - timeline.drag.x) > 3;
      if (!timeline.drag.moved) return;
      const from = timeline.drag.start.start + (timeline.drag.x - timeline.left) * timeline.perPixel;
      if (timeline.drag.pan) {
        const by = (x - timeline.drag.x) * timeline.perPixel;
        timeline.look(timeline.drag.start.start - by, timeline.drag.start.end - by);
      } else {
        timeline.range = { start: Math.max(0, Math.min(from, ns)), end: Math.min(timeline.whole, Math.max(from, ns)) };
        timeline.area = timeline.between(timeline.drag.y, y);
        timeline.draw();
      }
      return;
    }
    const hit = timeline.hit(x, y);
    if (!hit) {
      const lines = x < timeline.left ? null : under(timeline, y, ns);
      return lines ? tip.show(e.clientX, e.clientY, lines) : tip.hide();
    }
    const { start, length, count, name } = hit.tile.arrays;
    const many = count[hit.item] > 1;
    const lines = [hit.tile.names[name[hit.item]] ?? "",
      `${duration(length[hit.item])} from ${exact(start[hit.item])}`];
    tip.show(e.clientX, e.clientY, many ? [`${count[hit.item]} events, the longest of them:`, ...lines] : lines);
  });
  box.addEventListener("pointerleave", () => tip.hide());
  box.addEventListener("pointerup", (e) => {
    const drag = timeline.drag;
    timeline.drag = null;
    if (!drag) return;
    if (drag.moved) {
      if (!drag.pan) timeline.selectRange(timeline.range, timeline.area?.length ? timeline.area : null);
      return;
    }
    const { x, y } = timeline.at(e);
    const hit = timeline.hit(x, y);
    const row = timeline.rowAt(y);
    if (row) timeline.trackChosen = row.id;
    if (hit && hit.tile.arrays.table[hit.item] === NO_TABLE) timeline.details.laid(hit.tile, hit.item);
    else if (hit) void timeline.choose({ rank: hit.rank, table: TABLES[hit.tile.arrays.table[hit.item]],
      row: hit.tile.arrays.row[hit.item] });
    else timeline.deselect();
  });
  box.addEventListener(
    "wheel",
    (e) => {
      const { x, ns } = timeline.at(e);
      const zooms = e.ctrlKey || e.metaKey;
      const moves = e.shiftKey || Math.abs(e.deltaX) > Math.abs(e.deltaY);
      if (!zooms && (!moves || x < timeline.left)) return; // it scrolls the tracks
      e.preventDefault();
      if (!zooms) timeline.pan((e.deltaX || e.deltaY) / 800);
      else timeline.zoom(Math.exp(Math.max(-200, Math.min(200, e.deltaY)) / 350), ns);
    },
    { passive: false },
  );
  timeline.labels.addEventListener("click", (e) => {
    const button = /** @type {HTMLElement} */ (e.target).closest("button");
    if (button?.dataset.act === "fold") timeline.fold(Number(button.dataset.rank));
    if (button?.dataset.act === "hide") timeline.arrangement.hide(button.dataset.id ?? "");
    if (button?.dataset.act === "pin") timeline.pin(button.dataset.id ?? "", e.shiftKey);
  });
  timeline.find.addEventListener("keydown", (e) => {
    if (e.key === "Escape") {
      timeline.clear();
      box.focus();
    }
    // Enter in a finished search moves to the next event
    const input = timeline.find.querySelector("input");
    if (e.key === "Enter" && input?.value && input.value === timeline.search.pattern)
      timeline.search.step(e.shiftKey ? -1 : 1);
  });
  const onKey = (/** @type {KeyboardEvent} */ e) => key(timeline, e);
  document.addEventListener("keydown", onKey);
  return () => document.removeEventListener("keydown", onKey);
}

/** @param {Timeline} timeline @param {KeyboardEvent} e */
function key(timeline, e) {
  if (typing() || e.ctrlKey || e.metaKey || e.altKey || document.querySelector("dialog[open]")) return;
  const middle = (timeline.span.start + timeline.span.end) / 2;
  const around = timeline.pointer >= timeline.span.start && timeline.pointer <= timeline.span.end ? timeline.pointer
    : middle;
  /** @type {Record<string, () => void>} */
  const acts = {
    w: () => timeline.zoom(0.6, around),
    s: () => timeline.zoom(1 / 0.6, around),
    a: () => timeline.pan(-0.2),
    d: () => timeline.pan(0.2),
    ArrowLeft: () => timeline.pan(-0.1),
    ArrowRight: () => timeline.pan(0.1),
    ArrowUp: () => void (timeline.tracksBox.scrollTop -= 60),
    ArrowDown: () => void (timeline.tracksBox.scrollTop += 60),
    Home: () => timeline.look(0, timeline.whole),
    0: () => timeline.look(0, timeline.whole),
    "/": () => timeline.find.querySelector("input")?.focus(),
    "]": () => void timeline.onTrack(true),
    "[": () => void timeline.onTrack(false),
    ".": () => void timeline.sameName(true),
    ",": () => void timeline.sameName(false),
    t: () => timeline.nextTrack(1),
    T: () => timeline.nextTrack(-1),
    o: () => timeline.trackChosen && timeline.fold(Number(timeline.trackChosen.split("/")[0])),
    p: () => timeline.trackChosen && timeline.pin(timeline.trackChosen),
    P: () => timeline.trackChosen && timeline.pin(timeline.trackChosen, true),
    m: () => timeline.mark(around),
    M: () => {
      const selected = timeline.range ?? timeline.facts?.span;
      if (selected) [selected.start, selected.end].forEach((ns) => timeline.mark(ns));
    },
    b: () => timeline.notes.write(Math.round(around)),
    n: () => timeline.search.step(1),
    N: () => timeline.search.step(-1),
    h: () => timeline.trackChosen && !timeline.trackChosen.endsWith("/summary") &&
      timeline.arrangement.hide(timeline.trackChosen),
    g: () => timeline.follow(),
    q: () => timeline.details.toggle(),
    r: () => timeline.selectRange({ ...timeline.span }),
    f: () => {
      const selected = timeline.range ?? timeline.facts?.span;
      if (selected) timeline.look(selected.start - (selected.end - selected.start) * 0.1 - 5,
        selected.end + (selected.end - selected.start) * 0.1 + 5);
    },
    Escape: () => timeline.clear(),
  };
  const act = acts[e.key] ?? (e.key.length === 1 && !/[TNPM]/.test(e.key) ? acts[e.key.toLowerCase()] : undefined);
  if (!act) return;
  const scrolls = e.target instanceof Element && e.target.closest(".details") && e.key.startsWith("Arrow");
  if (scrolls) return;
  e.preventDefault();
  act();
}

/** The text about the place under the pointer if no single event is drawn there. */

/** Lines about a track at a moment: the shares of a bin, or the value of samples.
 * @param {import("./timeline.js").Timeline} timeline @param {number} y @param {number} ns @returns {string[]|null} */
function under(timeline, y, ns) {
  const row = timeline.rowAt(y);
  if (!row || row.tile || ns < 0 || ns >= timeline.whole) return null;
  const { level } = timeline;
  const tile = timeline.store.best(row.id, level, Math.floor(ns / (2 ** level * TILE_BINS)));
  if (!tile || tile.kind === "items") return null;
  const width = 2 ** tile.level;
  const bin = Math.floor(ns / width) - tile.index * TILE_BINS;
  const where = `${row.head ? row.label : `rank ${row.rank}, ${row.label}`}, ${duration(width)} from ` +
    `${exact((tile.index * TILE_BINS + bin) * width)}`;
  if (tile.kind === "samples") {
    const { mean, least, most } = tile.arrays;
    if (!(mean[bin] > -Infinity)) return [where, "no sample"];
    const bytes = /^(memory|allocations)\//.test(row.key);
    const text = (/** @type {number} */ v) =>
      `${(bytes ? v / 1e6 : v).toLocaleString("en", { maximumSignificantDigits: 5 })}${bytes ? " MB" : ""}`;
    return [where, least[bin] === most[bin] ? text(mean[bin])
      : `mean ${text(mean[bin])}, ${text(least[bin])} to ${text(most[bin])}`];
  }
  const bins = tile.arrays.share.length / tile.classes.length;
  const shares =
    tile.classes.map((c, i) => /** @type {[string, number]} */ ([c, (100 * tile.arrays.share[i * bins + bin]) / 255]));
  const idle = Math.max(0, 100 - shares.reduce((n, s) => n + s[1], 0));
  const told = [...shares.filter((s) => s[1] > 0),
    ...(row.head ? [/** @type {[string, number]} */ (["idle", idle])] : [])];
  return [where, ...(told.length ? told.map(([c, v]) => `${c}: ${v.toFixed(0)} %`) : ["nothing"])];
}
