// @ts-check
import { picture } from "./charts.js";
import { choice, entry, h } from "./dom.js";
import { notes } from "./overview.js";
import { placesOf } from "./places.js";
import { tableOf } from "./table.js";
import { parseRanks } from "./units.js";
import { keep, link } from "./url.js";

/** @typedef {{name: string, type: string, default: any, help: string, choices: string[]|null, required: boolean}}
 *   Option */
/** @typedef {{name: string, group: string, summary: string, windowed: boolean, session_time: boolean,
 *   options: Option[]}} Recipe */

/** Any recipe's table and picture. @param {import("./main.js").Context} ctx @param {Record<string, string>} values */
export function show(ctx, values) {
  const known = ctx.run.ranks.map((r) => r.rank);
  const form = h("div", {}, h("p", { class: "muted", role: "status" }, "reading the recipes ..."));
  const place = h("div", { "aria-live": "polite" });
  ctx.main.append(h("h2", {}, "Recipes"), form, place);
  /** @type {Recipe[]} */
  let recipes = [];
  let name = values.name ?? "breakdown";
  let ranks = values.ranks ?? "all";
  let steps = values.steps ?? "";
  let warmup = values.skip_warmup === "1";
  /** @type {Record<string, any>} */
  let options =
    Object.fromEntries(Object.entries(values).filter(([k]) => k.startsWith("o.")).map(([k, v]) => [k.slice(2), v]));
  let stop = new AbortController();
  /** @type {any} */
  let figure = null;
  const drawing = h("div", { class: "picture" });

  function remember() {
    keep("recipes", { name, ranks: ranks === "all" ? "" : ranks, steps, skip_warmup: warmup ? 1 : "",
      ...Object.fromEntries(Object.entries(options).map(([k, v]) => [`o.${k}`, v])) });
  }

  function fill() {
    const recipe = recipes.find((r) => r.name === name) ?? recipes[0];
    if (!recipe) return;
    name = recipe.name;
    form.replaceChildren(
      h(
        "div",
        { class: "bar" },
        choice("recipe", recipes.map((r) => [r.name, r.name, r.group]), name, (v) => {
          [name, options] = [v, {}];
          place.replaceChildren();
          fill();
          void ask();
        }),
        entry("ranks", ranks, (v) => (ranks = v || "all")),
        ...(recipe.windowed
          ? [
              entry("steps", steps, (v) => (steps = v), { placeholder: "all, or 10:50" }),
              h("label", {}, h("input", { type: "checkbox", checked: warmup,
                on: { change: (/** @type {Event} */ e) =>
                  (warmup = /** @type {HTMLInputElement} */ (e.target).checked) } }), "without warm-up"),
            ]
          : []),
        ...recipe.options.map(field),
        h("button", { type: "button", class: "primary", on: { click: () => void ask() } }, "Run"),
      ),
      h("p", { class: "muted" }, recipe.summary),
    );
  }

  /** @param {Option} option */
  function field(option) {
    const now = options[option.name] ?? option.default;
    const set = (/** @type {any} */ v) => {
      if (v === "" || v === null) delete options[option.name];
      else options[option.name] = v;
    };
    const label = option.name.replace(/_/g, " ");
    let control;
    if (option.choices) control = choice(label, option.choices.map((c) => [c, c]), String(now), set);
    else if (option.type === "bool") {
      control = h("label", {}, h("input", { type: "checkbox", checked: now === true || now === "true",
        on: { change: (/** @type {Event} */ e) => set(/** @type {HTMLInputElement} */ (e.target).checked) } }), label);
    } else control = entry(label, now ?? "", set);
    control.title = option.help;
    return control;
  }

  async function ask() {
    remember();
    stop.abort();
    stop = new AbortController();
    const recipe = recipes.find((r) => r.name === name);
    if (!recipe) return;
    place.replaceChildren(h("p", { class: "muted", role: "status" }, `asking ${name} ...`));
    /** @type {Record<string, any>} */
    const given = {};
    for (const o of recipe.options) {
      const v = options[o.name];
      if (v === undefined || v === "") continue;
      given[o.name] = o.type === "int" || o.type === "float" ? Number(v)
        : o.type === "bool" ? v === true || v === "true" : v;
    }
    const chosen = ranks === "all" ? null : parseRanks(ranks, known);
    try {
      /** @type {import("./types.js").Answer} */
      const answer = await ctx.api.post("recipe", { name, options: given, ranks: chosen, steps: recipe.windowed ? steps
        : "", skip_warmup: warmup && recipe.windowed }, stop.signal);
      const at = answer.columns.findIndex((c) => c.name === "rank");
      figure = answer.total_rows ? answer.figure : null;
      const places = placesOf(answer.columns, recipe.session_time ? ctx.run.origin_ns : 0);
      const links = (/** @type {any[]} */ row, /** @type {number} */ c) => (c === places?.column ? places.address(row)
        : c === at && typeof row[c] === "number" ? link("timeline", { ranks: row[c], open: row[c] }) : null);
      const table = tableOf(answer.columns, answer.rows, { name, total: answer.total_rows, links });
      const more = notes(answer.notes);
      if (more && !answer.total_rows) more.open = true; // they say why
      place.replaceChildren(...(figure ? [drawing] : []), answer.total_rows ? table
        : h("p", {}, "The answer has no rows for this run and these options."), more ?? "");
      if (figure) await picture(drawing, figure);
    } catch (error) {
      if (error instanceof Error && error.name !== "AbortError") place.replaceChildren(h("p", {}, error.message));
    }
  }

  ctx.api.get("recipes").then((response) => {
    recipes = response.recipes;
    fill();
    void ask();
  }, (error) => (form.replaceChildren(), ctx.failed(error)));
  return { close: () => stop.abort(), themed: () => void (figure && drawing.isConnected && picture(drawing, figure)) };
}
