// @ts-check
import { Api, Refused } from "./api.js";
import { byId, h, tip, typing } from "./dom.js";
import { copyLink, savePicture } from "./share.js";
import { forget, link, read } from "./url.js";

/** @typedef {import("./types.js").Run} Run */
/**
 * What a view is given.
 * @typedef {Object} Context
 * @property {HTMLElement} main
 * @property {Api} api
 * @property {Run} run
 * @property {Api|null} apiB
 * @property {Run|null} runB
 * @property {(error: any) => void} failed tell an error
 * @property {(text: string) => void} tell tell anything
 */
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
];

const KEYS = [
  ["1 ... 8", "the views, from left to right"],
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
  ["Esc, click beside events", "choose nothing"],
  ["Arrows, Enter", "on the roofline: from point to point, and choose one; W, S and 0 zoom"],
];

const status = byId("status");
let shown = "";
/** @type {View|void} */
let view;
/** @type {Context|null} */
let context = null;
let turn = 0;

/** @param {any} error */
function failed(error) {
  if (error?.name === "AbortError") return;
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

/**
 * The facts of a run once it is ready.
 * @param {Api} api
 * @param {Promise<any>} first the answer that was asked for already
 * @returns {Promise<Run>}
 */
async function ready(api, first) {
  for (let asked = first; ; asked = api.get("run")) {
    const run = await asked;
    if (run.state.error) throw new Error(run.state.error);
    if (run.state.ready) return run;
    tell(`${run.name}: ${run.state.doing}, ${run.state.done} of ${run.state.ranks} ranks`);
    await new Promise((r) => setTimeout(r, 300));
  }
}

async function start() {
  applyTheme();
  const api = new Api("/api");
  const first = api.get("run"); // beside the question after the runs, not behind it
  first.catch(() => undefined);
  const { runs } = await (await fetch("/api/runs", { credentials: "same-origin" })).json();
  if (!Array.isArray(runs)) throw new Refused(403, "the token is missing or wrong; open the address that the command printed");
  const other = runs.length > 1 ? new Api("/api/b") : null;
  const run = await ready(api, first);
  const runB = other ? await ready(other, other.get("run")) : null;
  tell(run.state.partial ? "This run is still being imported, or its import was stopped: only the ranks that are there are shown." : "");
  context = { main: byId("main"), api, run, apiB: other, runB, failed, tell };
  byId("run-name").textContent = runB ? `${run.name} and ${runB.name}` : run.name;
  byId("run-name").title = byId("run-name").textContent ?? "";
  document.title = `${run.name} - alltrace`;
  byId("nav").replaceChildren(...VIEWS.map(([name, text]) => h("a", { href: link(name), "data-view": name }, text)));
  window.addEventListener("hashchange", () => void route().catch(failed));
  await route();
  if (run.state.partial) setInterval(() => void again(api, run), 3000);
}

/**
 * Whether more of a run is there that was still being imported; then the page is loaded anew.
 * @param {Api} api
 * @param {Run} before
 */
async function again(api, before) {
  const now = await api.get("run").catch(failed);
  if (now?.state.ready && (now.run.ranks !== before.run.ranks || !now.state.partial)) location.reload();
}

async function route() {
  if (!context) return;
  forget();
  const { view: name, values } = read();
  if (name === shown && view && view.changed?.(values)) return;
  const found = VIEWS.find(([v]) => v === name) ?? VIEWS[0];
  const mine = ++turn;
  const module = await found[2]().catch(() => {
    throw new Refused(0, "the server does not answer; is `alltrace ui` still running?");
  });
  if (mine !== turn) return;
  view?.close?.();
  tip.hide();
  if (status.className === "bad") tell("");
  context.main.replaceChildren();
  context.main.className = "";
  shown = found[0];
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
  dialog.replaceChildren(h("h2", {}, "Keys"), h("table", {}, h("tbody", {}, ...rows)), h("p", {}, h("button", { type: "button", on: { click: () => dialog.close() } }, "Close")));
  dialog.showModal();
}
byId("help").addEventListener("click", keys);
byId("copy").addEventListener("click", () => void copyLink(tell));
byId("save").addEventListener("click", async () => {
  const name = `${context?.run.name ?? "alltrace"}-${shown}`.replace(/[^\w.-]+/g, "_");
  if (!(await savePicture(byId("main"), name))) tell("This view has no picture: tables are saved with their button CSV.");
});
document.addEventListener("keydown", (e) => {
  if (typing() || e.ctrlKey || e.metaKey || e.altKey) return;
  if (e.key === "?") keys();
  const number = Number(e.key);
  if (e.key >= "1" && e.key <= "9" && VIEWS[number - 1]) location.hash = link(VIEWS[number - 1][0]);
});

start().catch(failed);
