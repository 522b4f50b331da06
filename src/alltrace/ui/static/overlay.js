// @ts-check
import { theme } from "./colors.js";
import { arrow, LANE } from "./draw.js";
import { line } from "./heatmap.js";
import { exact } from "./units.js";

/** The overlay of the tracks: steps, the selected range, arrows, cursors.
 * @param {import("./timeline.js").Timeline} timeline @param {CanvasRenderingContext2D} context */
export function overlay(timeline, context) {
  const { height } = timeline;
  const colors = theme();
  context.save();
  context.beginPath();
  context.rect(timeline.left, 0, timeline.width - timeline.left, height);
  context.clip();
  if (timeline.ctx.run.steps.length * timeline.perPixel * 40 < timeline.span.end - timeline.span.start ||
    timeline.perPixel < timeline.whole / 4000) {
    context.strokeStyle = colors.soft;
    context.globalAlpha = 0.3;
    for (const step of timeline.ctx.run.steps) {
      const x = Math.round(timeline.x(step.start)) + 0.5;
      if (x > timeline.left && x < timeline.width) line(context, x, 0, x, height);
    }
    context.globalAlpha = 1;
  }
  if (timeline.range) {
    context.fillStyle = colors.link;
    context.globalAlpha = 0.16;
    const [x, wide] = [timeline.x(timeline.range.start),
      Math.max((timeline.range.end - timeline.range.start) / timeline.perPixel, 1)];
    const own = timeline.area && new Set(timeline.area);
    if (!own) context.fillRect(x, 0, wide, height);
    else for (const row of timeline.visible()) if (own.has(row.id)) context.fillRect(x, timeline.top(row), wide,
      row.height);
    context.globalAlpha = 1;
  }
  arrows(timeline, context);
  timeline.cursors.forEach((ns, i) => {
    const x = Math.round(timeline.x(ns)) + 0.5;
    context.strokeStyle = i ? colors.high : colors.link;
    context.setLineDash([4, 3]);
    line(context, x, 0, x, height);
    context.setLineDash([]);
    context.fillStyle = context.strokeStyle;
    context.fillText(`${i + 1}: ${exact(ns)}`, x + 4, height - 6 - 13 * i);
  });
  context.restore();
}

/** The frame of the chosen event, the arrow from its call, and those from who was last to all others.
 * @param {import("./timeline.js").Timeline} timeline @param {CanvasRenderingContext2D} context */
function arrows(timeline, context) {
  const { facts: event } = timeline;
  if (!event) return;
  const rowOf = (/** @type {number} */ rank, /** @type {string} */ key) => timeline.rows.find((r) => r.rank === rank &&
    r.key === key && !r.head) ?? timeline.rows.find((r) => r.rank === rank && r.head);
  const middle = (/** @type {import("./timeline.js").Row} */ r) => timeline.top(r) + Math.min(r.height / 2,
    LANE / 2 + 1);
  const own = timeline.rows.filter((r) => r.rank === event.rank && r.key === event.track && !timeline.behind(r));
  context.strokeStyle = context.fillStyle = theme().high;
  context.lineWidth = 2;
  const { start, end } = event.span;
  for (const row of own) {
    const hit = timeline.hits.find((b) => b.track === row.id && b.tile.arrays.row[b.item] === event.row &&
      b.y >= timeline.top(row) - 1 && b.y < timeline.top(row) + row.height);
    context.strokeRect(timeline.x(start), hit ? hit.y - 1 : timeline.top(row) + 1,
      Math.max((end - start) / timeline.perPixel, 2), LANE);
  }
  context.lineWidth = 1.2;
  const here = own[0] ?? rowOf(event.rank, event.track);
  if (here && event.call) {
    const call = rowOf(event.rank, event.call.track);
    if (call && !call.head && !timeline.behind(call))
      arrow(context, timeline.x(event.call.columns.start), middle(call), timeline.x(start), middle(here));
  }
  for (const work of event.launched ?? []) {
    const there = rowOf(event.rank, work.track);
    if (here && there && !there.head && !timeline.behind(there))
      arrow(context, timeline.x(start), middle(here), timeline.x(work.start), middle(there));
  }
  eventArrows(timeline, context, rowOf, middle);
  const members = event.instance?.members ?? [];
  const last = members.find((/** @type {any} */ m) => m.rank === event.instance.last_rank);
  const key = event.table === "collectives" ? event.track : timeline.collectiveKey(event.rank, event.track);
  const origin = last && rowOf(last.rank, key);
  if (!origin) return;
  context.globalAlpha = 0.7;
  const near = (/** @type {import("./timeline.js").Row} */ r) => timeline.top(r) > -40 &&
    timeline.top(r) < timeline.height + 40;
  for (const m of members) {
    const there = m.certain ? rowOf(m.rank, key) : null; // waits that the clocks cannot resolve are not drawn
    if (there && timeline.behind(there)) continue;
    if (there && !timeline.behind(origin) && (near(there) || near(origin)))
      arrow(context, timeline.x(last.start), middle(origin), timeline.x(event.instance.last_arrival), middle(there));
    if (there) context.fillRect(timeline.x(m.start), middle(there) + 4,
      Math.max(m.wait_ns / timeline.perPixel, 0.5), 3);
  }
  context.globalAlpha = 1;
}

/**
 * From the record of a CUDA event to the calls that wait for it, and from the work before the record to the work after
 * the wait.
 * @param {import("./timeline.js").Timeline} timeline @param {CanvasRenderingContext2D} context
 * @param {(rank: number, key: string) => import("./timeline.js").Row|undefined} rowOf
 * @param {(row: import("./timeline.js").Row) => number} middle */
function eventArrows(timeline, context, rowOf, middle) {
  const { rank, track, span, awaits, waited_by: waits = [] } = timeline.facts;
  const draw = (/** @type {string} */ from, /** @type {number} */ at, /** @type {string} */ to,
    /** @type {number} */ then) => {
    const [here, there] = [rowOf(rank, from), rowOf(rank, to)];
    if (here && there && !here.head && !there.head && !timeline.behind(here) && !timeline.behind(there))
      arrow(context, timeline.x(at), middle(here), timeline.x(then), middle(there));
  };
  for (const w of waits) draw(track, span.start, w.track, w.columns.start);
  if (!awaits) return;
  draw(awaits.record.track, awaits.record.columns.start, track, span.start);
  if (awaits.before && awaits.behind)
    draw(awaits.before.track, awaits.before.end, awaits.behind.track, awaits.behind.start);
}
