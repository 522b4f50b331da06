// @ts-check
/** Colours of classes, names and shares, for light and dark. */

import { DARK, PALETTE } from "./palette.js";

export const dark = () => document.documentElement.dataset.theme === "dark";

/** Class and saturation of slices, as `CLASSES` of the server numbers them; the hue is that of the palette. */
const SLICES = /** @type {[string, number][]} */ ([
  ["compute", 62],
  ["communication", 85],
  ["copy", 45],
  ["api", 38],
  ["ranges", 40],
  ["mpi", 48],
  ["host", 35],
  ["exposed communication", 70], // collectives
]);
const HUES = SLICES.map(([name, saturation]) => [hue(PALETTE[name]), saturation]);

/** The class of ranges; their names count steps and operators, so names that differ only in numbers have one shade. */
const RANGE = 4;

/** @type {Map<string, string>} */
const known = new Map();

/** The colour of a slice: the hue of its class, the shade of its name. @param {number} code @param {string} name */
export function sliceColor(code, name) {
  const key = `${dark() ? "d" : "l"}${code}${name}`;
  let color = known.get(key);
  if (!color) {
    let hash = 2166136261;
    const stem = code === RANGE ? name.replace(/\d+/g, "") : name;
    for (let i = 0; i < stem.length; i++) hash = Math.imul(hash ^ stem.charCodeAt(i), 16777619);
    const [hue, saturation] = HUES[code] ?? [0, 0];
    const turn = ((hash >>> 8) % 37) - 18;
    const light = dark() ? 42 + ((hash >>> 16) % 18) : 62 + ((hash >>> 16) % 20);
    color = `hsl(${hue + turn} ${saturation}% ${light}%)`;
    if (known.size > 20_000) known.clear();
    known.set(key, color);
  }
  return color;
}

/** The colour of a class of a share. @param {string} name */
export function classColor(name) {
  return (dark() && DARK[name]) || PALETTE[name] || "#7f8b73";
}

/** @type {Record<string, Uint32Array>} */
const tables = {};

/** 256 colours from nothing to all, and the colour of missing data at 256, as pixels.
 * @param {boolean} [red] those of a rank that is to blame */
export function shades(red = false) {
  const theme = `${red ? "red " : ""}${dark() ? "dark" : "light"}`;
  tables[theme] ??= scale(
    red ? (dark() ? ["#2a1518", "#ff9a9a"] : ["#fdeeee", "#a4161a"]) : dark()
      ? ["#161c22", "#1d3a57", "#2b6c8f", "#5aa57f", "#d9c24a", "#fff3b0"]
      : ["#f7fafc", "#c9dff0", "#82b6da", "#3c82b9", "#1d4f83", "#0a2342"],
    dark() ? "#2a2230" : "#ece4e4",
  );
  return tables[theme];
}

/** @param {string[]} stops @param {string} none */
function scale(stops, none) {
  const rgb = stops.map(parts);
  const table = new Uint32Array(257);
  for (let i = 0; i < 256; i++) {
    const at = (i / 255) * (rgb.length - 1);
    const low = Math.min(Math.floor(at), rgb.length - 2);
    table[i] = packed(rgb[low].map((v, c) => Math.round(v + (rgb[low + 1][c] - v) * (at - low))));
  }
  table[256] = pixel(none);
  return table;
}

/** @typedef {{back: string, panel: string, line: string, text: string, soft: string, link: string, mark: string,
 *   high: string}} Theme */

/** @type {Record<string, Theme>} */
const themes = {};

/** The page's own colours, as the style sheet has them; read once for light and once for dark. @returns {Theme} */
export function theme() {
  const name = document.documentElement.dataset.theme ?? "light";
  if (!themes[name]) {
    const style = getComputedStyle(document.documentElement);
    const of = (/** @type {string} */ variable) => style.getPropertyValue(variable).trim();
    themes[name] = { back: of("--back"), panel: of("--panel"), line: of("--line"), text: of("--text"),
      soft: of("--soft"), link: of("--link"), mark: of("--mark"), high: of("--high") };
  }
  return themes[name];
}

/** @param {string} color `#rrggbb`, as red, green and blue */
function parts(color) {
  return [1, 3, 5].map((i) => parseInt(color.slice(i, i + 2), 16));
}

/** @param {string} color `#rrggbb`; its hue in degrees */
function hue(color) {
  const [r, g, b] = parts(color);
  const [most, least] = [Math.max(r, g, b), Math.min(r, g, b)];
  const turn = most === r ? (g - b) / (most - least) : most === g ? 2 + (b - r) / (most - least)
    : 4 + (r - g) / (most - least);
  return most === least ? 0 : Math.round((60 * turn + 360) % 360);
}

/** @param {number[]} rgb as a pixel of a picture's data */
const packed = ([r, g, b]) => (255 << 24) | (b << 16) | (g << 8) | r;

/** @param {string} color `#rrggbb`, as a pixel of a picture's data */
export const pixel = (color) => packed(parts(color));
