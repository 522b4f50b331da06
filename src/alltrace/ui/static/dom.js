// @ts-check
/** Elements. Text is always set as text, so that a name from a trace is never markup. */

/** An element with attributes and children; strings and numbers become text.
 * @template {keyof HTMLElementTagNameMap} K @param {K} tag
 * @param {Record<string, any>} [attributes] `on` holds listeners; a false or null value leaves the attribute out
 * @param {...(Node|string|number|null|undefined|false)} children @returns {HTMLElementTagNameMap[K]} */
export function h(tag, attributes = {}, ...children) {
  const element = document.createElement(tag);
  for (const [name, value] of Object.entries(attributes)) {
    if (name === "on") {
      for (const [event, listener] of Object.entries(value))
        element.addEventListener(event, /** @type {any} */ (listener));
    } else if (value === true) {
      element.setAttribute(name, "");
    } else if (value !== false && value !== null && value !== undefined) {
      element.setAttribute(name, String(value));
    }
  }
  for (const child of children) {
    if (child !== null && child !== undefined && child !== false)
      element.append(child instanceof Node ? child : String(child));
  }
  return element;
}

/** The name of SVG, in parts: an address as a whole is what the modules may not hold. */
const SPACE = ["http:", "", "www.w3.org", "2000", "svg"].join("/");

/** An SVG element; strings become text. @param {string} tag @param {Record<string, string|number|null>} attributes
 * @param {...(Node|string)} children */
export function svg(tag, attributes, ...children) {
  const element = /** @type {SVGElement} */ (document.createElementNS(SPACE, tag));
  for (const [name, value] of Object.entries(attributes)) if (value !== null) element.setAttribute(name, String(value));
  element.append(...children);
  return element;
}

/** The element with an id, which the page has. @param {string} id @returns {HTMLElement} */
export function byId(id) {
  const node = document.getElementById(id);
  if (!node) throw new Error(`the page has no #${id}`);
  return node;
}

/** What one of two runs or steps is called, in its colour. @param {"A"|"B"} which */
export const mark = (which) => h("span", { class: `mark-${which.toLowerCase()}` }, which);

/** A labelled choice. @param {string} label
 * @param {(readonly [string, string] | readonly [string, string, string])[]} options value, text and the group they
 *   stand in, one after the other
 * @param {string} value @param {(value: string) => void} changed */
export function choice(label, options, value, changed) {
  const select = h("select", { on: { change: () => changed(select.value) } });
  /** @type {HTMLElement} */
  let place = select;
  for (const [key, text, group] of options) {
    if (group && /** @type {HTMLOptGroupElement} */ (place).label !== group)
      select.append((place = h("optgroup", { label: group })));
    place.append(h("option", { value: key, selected: key === value }, text));
  }
  return h("label", {}, label, select);
}

/** A labelled line of text. @param {string} label @param {string} value
 * @param {(value: string) => void} changed called when it is entered @param {Record<string, any>} [attributes] */
export function entry(label, value, changed, attributes = {}) {
  const input = h("input", { type: "text", value, spellcheck: "false", autocomplete: "off", ...attributes });
  input.addEventListener("change", () => changed(input.value));
  return h("label", {}, label, input);
}

/** Whether keys belong to what is focused and not to the view. */
export function typing() {
  const focused = document.activeElement;
  return focused instanceof HTMLInputElement || focused instanceof HTMLTextAreaElement ||
    focused instanceof HTMLSelectElement;
}

/** A canvas with this size in CSS pixels, sharp on the screen it is on; its context draws in CSS pixels.
 * @param {HTMLCanvasElement} canvas @param {number} width @param {number} height @returns {CanvasRenderingContext2D} */
export function fit(canvas, width, height) {
  const ratio = window.devicePixelRatio || 1;
  const [w, t] = [Math.max(1, Math.round(width * ratio)), Math.max(1, Math.round(height * ratio))];
  if (canvas.width !== w || canvas.height !== t) {
    canvas.width = w;
    canvas.height = t;
    canvas.style.width = `${width}px`;
    canvas.style.height = `${height}px`;
  }
  const context = canvas.getContext("2d");
  if (!context) throw new Error("this browser cannot draw on a canvas");
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  return context;
}

/** The bubble next to the pointer. */
class Tip {
  constructor() {
    this.element = h("div", { class: "tip", hidden: true, role: "presentation" });
  }

  /** @param {number} x @param {number} y @param {string[]} lines */
  show(x, y, lines) {
    if (!this.element.isConnected) document.body.append(this.element);
    this.element.replaceChildren(...lines.map((l) => h("div", {}, l)));
    this.element.hidden = false;
    const box = this.element.getBoundingClientRect();
    this.element.style.left = `${Math.max(4, Math.min(x + 14, window.innerWidth - box.width - 6))}px`;
    this.element.style.top =
      `${Math.max(4, y + 18 + box.height > window.innerHeight ? y - box.height - 10 : y + 18)}px`;
  }

  hide() {
    this.element.hidden = true;
  }
}

export const tip = new Tip();

/** Offer text as a file. @param {string} name @param {string} text */
export function download(name, text) {
  const url = URL.createObjectURL(new Blob([text], { type: "text/csv" }));
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
