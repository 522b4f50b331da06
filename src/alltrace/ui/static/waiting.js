// @ts-check
/** What the server is still computing of a run: polled until complete, and shown as a bar. */
import { h } from "./dom.js";
import { count, duration } from "./units.js";

/** @typedef {import("./types.js").State} State */
/** @typedef {import("./types.js").Stage} Stage */

const OFTEN_MS = 150;
const SELDOM_MS = 500;
const PATIENCE_MS = 700; // what is made sooner needs no bar

/** @type {Record<string, string>} */
const NAMES = { clocks: "clocks", levels: "levels of detail", "job-time": "where the time went", findings: "findings" };

export class Waiting {
  /** @param {import("./api.js").Api} api @param {HTMLElement} place where the bar is
   * @param {{exchanged: (number: number) => void, failed: (error: any) => void}} calls `exchanged`: what is shown was
   *   exchanged */
  constructor(api, place, calls) {
    this.api = api;
    this.calls = calls;
    this.element = h("div", { class: "stages", hidden: true });
    this.said = h("span", { class: "unseen", role: "status" });
    place.append(this.element, this.said);
    /** @type {State|null} */
    this.state = null;
    this.begun = performance.now();
    /** @type {{stage: string, go: () => void}[]} */
    this.listeners = [];
  }

  /** Go by this state, and ask on until nothing is made any more. @param {State} state */
  follow(state) {
    this.#take(state);
    if (this.#over) return;
    setTimeout(() => this.api.get("state").then((s) => this.follow(s), this.calls.failed),
      performance.now() - this.begun < 3000 ? OFTEN_MS : SELDOM_MS);
  }

  /** Fulfilled once a stage has ended, done or failed; at once if the server does not start it.
   * @param {string} stage @returns {Promise<void>} */
  after(stage) {
    return new Promise((go) => {
      this.listeners.push({ stage, go });
      this.#tell();
    });
  }

  /** Whether a stage is still to come. @param {string} name */
  #open(name) {
    const stage = this.state?.stages.find((s) => s.name === name);
    return !this.state || (!!stage && !this.state.error && (stage.state === "waiting" || stage.state === "doing"));
  }

  get #over() {
    return !!this.state && (!!this.state.error || !this.state.stages.some((s) => this.#open(s.name)));
  }

  /** @param {State} state */
  #take(state) {
    const before = this.state;
    this.state = state;
    this.#draw();
    if (state.error && !before?.error) this.calls.failed(new Error(state.error));
    else if (state.shown !== null && state.shown !== before?.shown) this.calls.exchanged(state.shown);
    this.#tell();
  }

  #tell() {
    const waiting = this.listeners;
    this.listeners = waiting.filter((l) => this.#open(l.stage));
    for (const l of waiting) if (!this.#open(l.stage)) l.go();
  }

  #draw() {
    const { state } = this;
    this.element.hidden = !state || this.#over || performance.now() - this.begun < PATIENCE_MS;
    if (!state || this.element.hidden) return void (this.said.textContent = "");
    const now = state.stages.find((s) => s.state === "doing");
    const rows = state.stages.map((s) => h("li", { class: s.state, "aria-current": s === now ? "step" : null },
      s.state === "done" ? `${NAMES[s.name] ?? s.name} ✓` : NAMES[s.name] ?? s.name));
    const unaligned = state.shown !== null && !state.aligned && !state.partial;
    this.element.replaceChildren(
      h("ol", {}, ...rows),
      now ? bar(now) : "",
      now ? h("span", {}, told(now)) : "",
      unaligned ? h("b", {}, "Times are not aligned yet: each host's own clock tells them.") : "",
    );
    const said = `${now?.doing ?? ""}${unaligned ? "; times are not aligned yet" : ""}`;
    if (this.said.textContent !== said) this.said.textContent = said; // not at every rank
  }
}

/** @param {Stage} stage */
function bar(stage) {
  const known = stage.done > 0 && stage.done < stage.ranks;
  return h("progress", { max: stage.ranks, value: known ? stage.done : null, "aria-label": stage.doing });
}

/** @param {Stage} stage */
function told(stage) {
  if (stage.done >= stage.ranks) return `${stage.doing}: all ranks are read and now laid together`;
  const rest = stage.rest_s === null ? "" : `, about ${duration(Math.max(Math.round(stage.rest_s), 1) * 1e9)} left`;
  return `${stage.doing}: ${count(stage.done)} of ${count(stage.ranks)} ranks${rest}`;
}
