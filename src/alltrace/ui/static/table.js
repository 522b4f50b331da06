// @ts-check
import { download, h } from "./dom.js";
import { cell, count, counted, exact } from "./units.js";

/** @typedef {import("./types.js").Column} Column */

const SHOWN = 200;
const MOST_TEXT = 112;

/** A table that can be sorted, filtered and saved. @param {Column[]} columns @param {any[][]} rows
 * @param {{name: string, total?: number, chosen?: (row: any[], element: HTMLTableRowElement) => void,
 *   links?: (row: any[], column: number) => string|null, filter?: boolean, sort?: string, sorted?: (text: string) =>
 *   void, key?: (row: any[]) => string}} options
 *   `name` names the file that is saved; `chosen` is called with a row that is clicked; `links` returns the address of
 *   a cell; `key` names a row, as its `data-key` */
export function tableOf(columns, rows, options) {
  const numeric = columns.map((_, c) => rows.some((r) => typeof r[c] === "number") &&
    rows.every((r) => r[c] === null || typeof r[c] === "number"));
  let [by, down] = sortOf(options.sort ?? "", columns);
  let words = "";
  let shown = SHOWN;
  const body = h("tbody");
  const more = h("button", { type: "button", on: { click: () => ((shown += 1000), fill()) } });
  const told = h("span", { class: "muted", role: "status" });
  const heads = columns.map((c, i) => {
    const button = h("button", { type: "button", title: `${c.doc ?? ""}${c.unit ? ` (${c.unit})` : ""}` }, heading(c));
    button.addEventListener("click", () => {
      [by, down] = [i, by === i ? !down : numeric[i]];
      options.sorted?.(`${down ? "-" : ""}${columns[i].name}`);
      fill();
    });
    return h("th", { class: numeric[i] ? "number" : null, scope: "col" }, button);
  });

  function chosenRows() {
    const wanted = words.toLowerCase();
    let matching = wanted
      ? rows.filter((r) => r.some((v, i) => cell(v, columns[i].unit, columns[i].name).toLowerCase().includes(wanted)))
      : rows;
    if (by >= 0) matching = [...matching].sort((a, b) => compare(a[by], b[by], down));
    return matching;
  }

  function fill() {
    const matching = chosenRows();
    heads.forEach((th, i) => th.setAttribute("aria-sort", i === by ? (down ? "descending" : "ascending") : "none"));
    body.replaceChildren(...matching.slice(0, shown).map(line));
    more.hidden = matching.length <= shown;
    more.textContent = `show more of ${count(matching.length)} rows`;
    const total = options.total ?? rows.length;
    told.textContent = `${counted(matching.length, "row")}${total > rows.length ? ` of ${count(total)}` : ""}`;
  }

  /** @param {any[]} row */
  function line(row) {
    const tr = h("tr", { "data-key": options.key?.(row) });
    row.forEach((value, i) => {
      const { unit, name } = columns[i];
      const text = cell(value, unit, name);
      const address = options.links?.(row, i);
      const title = unit === "ns" && typeof value === "number" ? `${count(value)} ns` : text.length > 20 ? text : null;
      tr.append(h("td", { class: numeric[i] ? "number" : null, title },
        address ? h("a", { href: address }, shortened(text)) : shortened(text)));
    });
    if (options.chosen) {
      tr.tabIndex = 0;
      const choose = () => {
        for (const other of body.querySelectorAll("tr.chosen")) other.classList.remove("chosen");
        tr.classList.add("chosen");
        options.chosen?.(row, tr);
      };
      tr.addEventListener("click", choose);
      tr.addEventListener("keydown", (e) => {
        if (e.key === "Enter") choose();
        if (e.key === "ArrowDown") /** @type {HTMLElement|null} */ (tr.nextElementSibling)?.focus();
        if (e.key === "ArrowUp") /** @type {HTMLElement|null} */ (tr.previousElementSibling)?.focus();
      });
    }
    return tr;
  }

  const filter = h("input", { type: "text", spellcheck: "false", placeholder: "filter", "aria-label": "filter rows" });
  filter.addEventListener("input", () => {
    words = filter.value;
    fill();
  });
  const save = h("button",
    { type: "button", on: { click: () => download(`${options.name}.csv`, csv(columns, chosenRows())) } }, "CSV");
  fill();
  return h(
    "div",
    {},
    options.filter === false ? null : h("div", { class: "bar" }, filter, save, told),
    h("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": options.name },
      h("table", {}, h("thead", {}, h("tr", {}, ...heads)), body)),
    more,
  );
}

/**
 * Names of hundreds of characters are cut in the middle, so that a row stays on one line: their ends distinguish them.
 * @param {string} text */
const shortened = (text) =>
  (text.length > MOST_TEXT ? `${text.slice(0, MOST_TEXT / 2)} … ${text.slice(-MOST_TEXT / 2)}` : text);

/** @param {Column} column its moments are shown as numbers, so their unit is in the header */
const heading = ({ name, unit }) => name.replace(/_ns$/, "").replace(/_percent$/, " %")
  .replace(/_/g, " ") + (unit === "ns" && /^(start|end|time)/.test(name) ? " [ns]" : "");

/** @param {string} text @param {Column[]} columns @returns {[number, boolean]} */
function sortOf(text, columns) {
  const down = text.startsWith("-");
  return [columns.findIndex((c) => c.name === (down ? text.slice(1) : text)), down];
}

/** What has no value is last in either direction. @param {any} a @param {any} b @param {boolean} down */
function compare(a, b, down) {
  if (a === null || b === null) return a === b ? 0 : a === null ? 1 : -1;
  const order = typeof a === "number" && typeof b === "number" ? a - b
    : String(a).localeCompare(String(b), "en", { numeric: true });
  return down ? -order : order;
}

/** RFC 4180 with LF line ends. @param {Column[]} columns @param {any[][]} rows */
export function csv(columns, rows) {
  const quoted = (/** @type {any} */ v) => {
    const text = v === null || v === undefined ? "" : typeof v === "object" ? JSON.stringify(v) : String(v);
    return /[",\n\r]/.test(text) ? `"${text.replace(/"/g, '""')}"` : text;
  };
  return [columns.map((c) => c.name), ...rows].map((r) => r.map(quoted).join(",")).join("\n") + "\n";
}

/** Names and values, one below the other. @param {Record<string, any>} values */
export function listOf(values) {
  const list = h("dl");
  for (const [name, value] of Object.entries(values)) {
    const time = /^(start|end|time|api_start|api_end)$/.test(name) && typeof value === "number";
    list.append(h("dt", {}, name),
      h("dd", {}, time ? exact(value) : name.endsWith("_ns") ? cell(value, "ns", "") : cell(value, null, name)));
  }
  return list;
}
