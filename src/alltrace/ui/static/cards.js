// @ts-check
/** The findings in readable form: the verdict, a card for each finding, and where the time of the job went. */
import { classColor } from "./colors.js";
import { h, svg } from "./dom.js";
import { duration, rankText } from "./units.js";
import { link } from "./url.js";

/**
 * @typedef {{ranks: number[], culprit: number, peer: number|null, start: number, end: number,
 *   event: [number, string, number]|null, says: string}} Place
 * @typedef {{steps: number[], times_ns: number[], marked: number, words: string}} StepTimes
 * @typedef {{kind: string, severity: string, what: string, who: string, where: string, cost: string, evidence: string,
 *   advice: string, confidence: number, ranks: number[], measure: string, proof:
 *   {recipe: string, options: Record<string, any>}, step_times: StepTimes|null, place: Place|null}} Card
 * @typedef {{verdict: string, cards: Card[], notes: string[]}} Found
 * @typedef {{classes: {name: string, ns: number}[], devices: number, notes: string[]}} JobTime */

/** The finding that the verdict is about: the first that is not a fault of the capture. @param {Found} findings
 * @returns {Card|undefined} */
export const mainCard = (findings) => findings.cards.find((c) => c.kind !== "capture-fault") ?? findings.cards[0];

/** The verdict, with what shows and what proves it. @param {Found} findings
 * @param {boolean} links whether the views are of this run */
export function verdict(findings, links) {
  const main = mainCard(findings);
  return h("div", {}, h("p", { class: "verdict" }, findings.verdict),
    links && main ? buttons(main, findings.cards.indexOf(main)) : null);
}

/** @param {Found} findings @param {boolean} links whether the views are of this run */
export function cards(findings, links) {
  return h("ol", { class: "finding-cards" }, ...findings.cards.map((c, at) => card(c, at, links)));
}

/** @param {Card} card @param {number} at its place in the list @param {boolean} links */
function card(card, at, links) {
  const rows = [
    ["ranks", card.who],
    ["cost", card.cost],
    ["where", card.where],
    ["evidence", card.evidence],
    ["advice", card.advice],
  ].filter(([, text]) => text);
  return h(
    "li",
    { class: `finding ${card.severity}` },
    h("h3", {}, h("span", { class: `severity ${card.severity}` }, card.severity), " ", card.what),
    card.step_times && bars(card.step_times),
    h("dl", {}, ...rows.flatMap(([name, text]) => [h("dt", {}, name), h("dd", {}, text)])),
    links ? buttons(card, at) : null,
    h("p", { class: "muted" }, card.kind),
  );
}

/** A bar for each step, the marked one dark. @param {StepTimes} times */
function bars(times) {
  const high = Math.max(...times.times_ns, 1);
  const rects = times.times_ns.map((ns, at) =>
    svg("rect", { x: at, y: 1 - ns / high, width: 0.8, height: ns / high, opacity: at === times.marked ? 1 : 0.4 },
      svg("title", {}, `step ${times.steps[at]}: ${duration(ns)}`)),
  );
  const shape = { width: "100%", height: 40, viewBox: `0 0 ${rects.length} 1`, preserveAspectRatio: "none",
    fill: "currentColor", role: "img", "aria-label": times.words };
  return h("figure", { class: "steptimes" }, svg("svg", shape, ...rects),
    h("figcaption", { class: "muted" }, times.words));
}

/** @param {Card} card @param {number} at its place in the list */
function buttons(card, at) {
  const { place, proof } = card;
  const options = Object.fromEntries(Object.entries(proof.options).map(([k, v]) => [`o.${k}`, String(v)]));
  const compared = place ? [place.culprit, ...(place.peer === null ? [] : [place.peer])] : [];
  const shows = place && {
    start: place.start,
    end: place.end,
    ranks: rankText(place.ranks),
    open: rankText(compared),
    first: compared.join(","),
    event: place.event?.join("/"),
    kind: "main",
    finding: at,
  };
  return h(
    "p",
    { class: "actions" },
    shows ? h("a", { class: "button", href: link("timeline", shows), "aria-label": `show me: ${card.what}` }, "show me")
      : null,
    h("a", { class: "button", href: link("recipes", { name: proof.recipe, ...options }),
      "aria-label": `prove it: ${card.what}` }, "prove it"),
  );
}

/** Where the time of all devices went, as one bar with its legend. @param {JobTime} times */
export function timeBar(times) {
  // without unclassified kernels the class is left out
  const classes = times.classes.filter((c) => c.ns || c.name !== "unclassified");
  const total = classes.reduce((sum, c) => sum + c.ns, 0);
  if (!total) return h("p", { class: "muted" }, "No device did anything.");
  const percent = (/** @type {number} */ ns) => `${((100 * ns) / total).toFixed(1)} %`;
  const bar = h("div", { class: "jobbar", role: "img",
    "aria-label": `the devices' time: ${classes.map((c) => `${c.name} ${percent(c.ns)}`).join(", ")}` });
  const legend = h("ul", { class: "joblegend" });
  for (const { name, ns } of classes) {
    const part = h("div", { title: `${name}: ${duration(ns)}, ${percent(ns)}` });
    part.style.flexGrow = String(ns / total);
    part.style.background = classColor(name);
    bar.append(part);
    const hue = h("span", { class: "hue" });
    hue.style.background = classColor(name);
    legend.append(h("li", {}, hue, `${name} ${percent(ns)}`));
  }
  return h("div", {}, bar, legend);
}
