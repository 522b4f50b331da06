// @ts-check
import { Api, Refused } from "./api.js";
import { byId, h, mark, tip, typing } from "./dom.js";
import { copyLink, savePicture } from "./share.js";
import { forget, link, read, settle } from "./url.js";
import { Waiting } from "./waiting.js";

/** @typedef {import("./types.js").Run} Run */
/** The arguments of a view. @typedef {Object} Context @property {HTMLElement} main @property {Api} api
 * @property {Run} run @property {Api|null} apiB @property {Run|null} runB
 * @property {(stage: string) => Promise<void>} after once a stage of the server is over
 * @property {(stage: string) => Promise<void>} afterB the same of the second run
 * @property {(error: any) => void} failed show an error @property {(text: string) => void} tell show a message */
/** @typedef {{close?: () => void, themed?: () => void, changed?: (values: Record<string, string>) => boolean}} View */
/** @typedef {(ctx: Context, values: Record<string, string>) => View|void} Show */

/** @type {[string, string, () => Promise<{show: Show}>][]} */
const VIEWS = [
  ["overview", "Overview", () => import("./overview.js")],
  ["timeline", "Timeline", () => import("./timeline.js")],
  ["events", "Events", () => import("./events.js")],
  ["recipes", "Recipes", () => import("./recipes.js")],
  ["compare", "Compare", () => import("./compare.js")],
  ["sql", "SQL", () => import("./sql.js")],
  ["roofline", "Roofline", () => import("./roofline.js")],
  ["matrix", "Matrix", () => import("./matrix.js")],
  ["history", "History", () => import("./history.js")],
];

const KEYS = [
  ["1 ... 9", "the views, from left to right"],
  ["?", "these keys"],
  ["W S, Ctrl and wheel", "zoom in and out; the wheel alone scrolls"],
  ["A D, arrows, Shift and wheel", "move in time"],
  ["Home or 0", "the whole run"],
  ["/", "search names in all ranks; Enter, then N and Shift N go to the next and previous"],
  ["[ ]", "previous and next event on the track; takes the first one where none is chosen"],
  [", .", "previous and next event of the same name"],
  ["T, Shift T", "next and previous track"],
  ["O", "open or fold the rank of the chosen track"],
  ["P, Shift P", "pin the chosen track to the top; that of all ranks shown, such as one stream of every rank"],
  ["H", "hide the chosen track"],
  ["G", "follow the arrow: from work to its call and back, in a collective to who was last and on to the next rank"],
  ["F", "zoom to what is chosen"],
  ["M, Shift M", "put a cursor at the pointer; two measure. Put both around what is chosen"],
  ["R", "select all that is shown: totals, flame graph, durations"],
  ["B", "write a note on what is selected, or at the pointer"],
  ["Q", "hide or show the details"],
  ["Esc, click next to events", "choose nothing"],
  ["Arrows, Enter", "on the roofline: from point to point, and choose one; W, S and 0 zoom"],
];

const SOON_MS = 500;
const NOT_READY = 503;
const status = byId("status");
let shown = "";
/** @type {View|void} */
let view;
/** @type {Context|null} */
let context = null;
/** @type {Source[]} */
let sources = [];
let turn = 0;

/** @param {any} error */
function failed(error) {
  if (error?.name === "AbortError") return;
  if (error instanceof Refused && error.status === NOT_READY)
    return tell(`Not yet: ${error.message}. It is shown as soon as it is there.`);
  status.hidden = false;
  status.className = "bad";
  status.textContent = error instanceof Error ? error.message : String(error);
}

/** @param {string} text */
function tell(text) {
  status.hidden = !text;
  status.className = "";
  status.textContent = text;
}

/** A run on the page, and what the server still makes of it. */
class Source {
  /** @param {Api} api @param {Promise<any>} asked its facts, already requested */
  constructor(api, asked) {
    this.api = api;
    this.asked = asked;
    /** @type {Run|null} */
    this.run = null;
    this.waiting = new Waiting(api, byId("making"),
      { failed, exchanged: (number) => void this.#renew(number).catch(failed) });
    /** @type {(run: Run) => void} */
    this.done = () => undefined;
    /** @type {Promise<Run>} */
    this.first = new Promise((done) => (this.done = done));
  }

  async start() {
    const run = await this.asked;
    if (run.state.error) throw new Error(run.state.error);
    if (run.grid) this.#take(run);
    this.waiting.follow(run.state);
  }

  /** @param {Run} run */
  #take(run) {
    this.run = run;
    this.done(run);
  }

  /** Show what has come in place of what was shown. @param {number} number */
  async #renew(number) {
    if (this.run && this.run.shown >= number) return;
    while (this.run && typing()) await new Promise((r) => setTimeout(r, SOON_MS)); // do not interrupt the user
    const run = await this.api.get("run");
    if (this.run && this.run.shown >= run.shown) return;
    this.#take(run);
    if (context) await exchange();
  }
}

async function start() {
  applyTheme();
  const api = new Api("/api");
  const first = api.get("run"); // at the same time as the request for the runs, not after it
  first.catch(() => undefined);
  const { runs } = await api.get("runs");
  const other = runs.length > 1 ? new Api("/api/b") : null;
  sources = [new Source(api, first), ...(other ? [new Source(other, other.get("run"))] : [])];
  await Promise.all(sources.map((s) => s.start()));
  const [run, runB = null] = await Promise.all(sources.map((s) => s.first));
  tell(run.state.partial
    ? "This run is still being imported, or its import was stopped: only the ranks that are there are shown." : "");
  takeContext();
  byId("run-name").replaceChildren(...(runB ? [mark("A"), ` ${run.name} `, mark("B"), ` ${runB.name}`] : [run.name]));
  byId("run-name").title = byId("run-name").textContent ?? "";
  document.title = `${run.name} - alltrace`;
  const empty = emptyViews(run, runB);
  byId("nav").replaceChildren(...VIEWS.filter(([name]) => !empty.has(name))
    .map(([name, text]) => h("a", { href: link(name), "data-view": name }, text)));
  window.addEventListener("hashchange", () => void route().catch(failed));
  await route();
  if (run.state.partial) setInterval(() => void again(api, run), 3000);
}

/** The views that have nothing to show; their addresses still work, and say why. @param {Run} run
 * @param {Run|null} runB */
function emptyViews(run, runB) {
  const content = { compare: runB !== null || run.steps.length > 1, roofline: run.kernel_reports.length > 0,
    matrix: run.ranks.length > 1, history: run.history !== null };
  return new Set(Object.entries(content).filter(([, is]) => !is).map(([name]) => name));
}

function takeContext() {
  const [a, b] = sources;
  const after = (/** @type {Source|undefined} */ of) => (/** @type {string} */ stage) => of?.waiting.after(stage) ??
    Promise.resolve();
  if (a.run) context = { main: byId("main"), api: a.api, run: a.run, apiB: b?.api ?? null, runB: b?.run ?? null,
    after: after(a), afterB: after(b), failed, tell };
}

/** Show the view again with the current data, at the same place. */
async function exchange() {
  settle();
  const places = ["#main", ".tracks", ".heat-scroll"];
  const scrolled = places.map((p) => document.querySelector(p)?.scrollTop ?? 0);
  const focused = document.activeElement?.className;
  takeContext();
  await route(true);
  places.forEach((p, i) => {
    const box = document.querySelector(p);
    if (box && scrolled[i]) box.scrollTop = scrolled[i];
  });
  if (focused === "tracks") document.querySelector(/** @type {"div"} */ (".tracks"))?.focus();
}

/** Whether more of a run that is still being imported is available; then the page is reloaded. @param {Api} api
 * @param {Run} before */
async function again(api, before) {
  const now = await api.get("run").catch(failed);
  if (now?.state.ready && (now.run.ranks !== before.run.ranks || !now.state.partial)) location.reload();
}

/** @param {boolean} [anew] whether to rebuild the view even if it is shown */
async function route(anew = false) {
  if (!context) return;
  forget();
  const { view: name, values } = read();
  if (!anew && name === shown && view && view.changed?.(values)) return;
  const choice = VIEWS.find(([v]) => v === name) ?? VIEWS[0];
  const mine = ++turn;
  const module = await choice[2]().catch(() => {
    throw new Refused(0, "the server does not answer; is `alltrace ui` still running?");
  });
  if (mine !== turn) return;
  view?.close?.();
  tip.hide();
  if (status.className === "bad" || anew) tell("");
  context.main.replaceChildren();
  context.main.className = "";
  shown = choice[0];
  for (const a of byId("nav").querySelectorAll("a")) {
    if (a.dataset.view === shown) a.setAttribute("aria-current", "page");
    else a.removeAttribute("aria-current");
  }
  view = module.show(context, values);
  document.body.dataset.shown = shown;
}

function applyTheme() {
  const chosen = localStorage.getItem("alltrace-theme") ?? "auto";
  const isDark = chosen === "dark" || (chosen === "auto" && matchMedia("(prefers-color-scheme: dark)").matches);
  document.documentElement.dataset.theme = isDark ? "dark" : "light";
  byId("theme").textContent = { auto: "Theme: auto", dark: "Theme: dark", light: "Theme: light" }[chosen] ?? "Theme";
  view?.themed?.();
}

byId("theme").addEventListener("click", () => {
  const order = ["auto", "dark", "light"];
  const now = localStorage.getItem("alltrace-theme") ?? "auto";
  localStorage.setItem("alltrace-theme", order[(order.indexOf(now) + 1) % 3]);
  applyTheme();
});
matchMedia("(prefers-color-scheme: dark)").addEventListener("change", applyTheme);

function keys() {
  const dialog = /** @type {HTMLDialogElement} */ (byId("keys"));
  const rows = KEYS.map(([key, what]) => h("tr", {}, h("td", {}, h("kbd", {}, key)), h("td", {}, what)));
  dialog.replaceChildren(h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, ...rows)),
    h("p", {}, h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")));
  dialog.showModal();
}
byId("help").addEventListener("click", keys);
byId("copy").addEventListener("click", () => void copyLink(tell));
byId("save").addEventListener("click", async () => {
  const name = `${context?.run.name ?? "alltrace"}-${shown}`.replace(/[^\w.-]+/g, "_");
  if (!(await savePicture(byId("main"), name)))
    tell("This view has no picture: tables are saved with their button CSV.");
});
document.addEventListener("keydown", (e) => {
  if (typing() || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "?") keys();
  const number = Number(e.key);
  const views = byId("nav").querySelectorAll("a");
  if (e.key >= "1" && e.key <= "9" && views[number - 1]) location.hash = views[number - 1].hash;
});

start().catch(failed);
