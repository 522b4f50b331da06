// @ts-check
/** The address of what is shown, and a picture of it. */
import { theme } from "./colors.js";
import { h } from "./dom.js";

/** @param {(text: string) => void} tell */
export async function copyLink(tell) {
  const address = `${location.origin}${location.pathname}${location.hash}`; // without the token, which is a secret
  try {
    await navigator.clipboard.writeText(address);
    tell("The address is copied. It works where this server runs and for who has its token.");
  } catch {
    tell(address);
  }
}

/** A picture of the view: an SVG if it is one, else a PNG of its canvases and the labels next to them.
 * @param {HTMLElement} main @param {string} name what the file is called
 * @returns {Promise<boolean>} whether there was something to draw */
export async function savePicture(main, name) {
  const drawings = [...main.querySelectorAll("svg")]
    .filter((s) => s.getBoundingClientRect().height > 40 && !s.parentElement?.closest("svg"));
  const canvases = [...main.querySelectorAll("canvas")].filter((c) => c.clientHeight > 20 && c.width > 1);
  if (!canvases.length) {
    const area = (/** @type {SVGSVGElement} */ s) => s.getBoundingClientRect().width * s.getBoundingClientRect().height;
    const largest = [...drawings].sort((a, b) => area(b) - area(a))[0];
    if (!largest) return false;
    const layers = drawings.filter((s) => s.parentElement === largest.parentElement); // such as a chart and its legend
    offer(new Blob([new XMLSerializer().serializeToString(joined(layers))], { type: "image/svg+xml" }), `${name}.svg`);
    return true;
  }
  const blob = await painted(main, canvases);
  if (blob) offer(blob, `${name}.png`);
  return blob !== null;
}

/** What a drawing's look depends on; the page's style sheet is not in the file. */
const LOOKS = ["fill", "fill-opacity", "stroke", "stroke-width", "stroke-dasharray", "opacity", "font-size",
  "font-family", "font-weight", "text-anchor"];

const SVG = "http:" + "//www.w3.org/2000/svg";

/** Merges drawings on top of each other into one. @param {SVGSVGElement[]} layers */
function joined(layers) {
  const boxes = layers.map((s) => s.getBoundingClientRect());
  const [left, top] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top))];
  const [width, height] = [Math.max(...boxes.map((b) => b.right)) - left,
    Math.max(...boxes.map((b) => b.bottom)) - top];
  const root = document.createElementNS(SVG, "svg");
  const back = document.createElementNS(SVG, "rect");
  for (const [name, value] of Object.entries({ width, height })) for (const made of [root, back])
    made.setAttribute(name, `${value}`);
  back.setAttribute("fill", theme().back);
  root.append(back);
  layers.forEach((layer, i) => {
    const copy = styled(layer);
    copy.setAttribute("x", `${boxes[i].left - left}`);
    copy.setAttribute("y", `${boxes[i].top - top}`);
    root.append(copy);
  });
  return root;
}

/** @param {SVGSVGElement} drawing */
function styled(drawing) {
  const copy = /** @type {SVGSVGElement} */ (drawing.cloneNode(true));
  const [from, to] = [[drawing, ...drawing.querySelectorAll("*")], [copy, ...copy.querySelectorAll("*")]];
  from.forEach((element, i) => {
    const style = getComputedStyle(element);
    for (const look of LOOKS) to[i].setAttribute(look, style.getPropertyValue(look));
  });
  const box = drawing.getBoundingClientRect();
  copy.setAttribute("width", `${box.width}`);
  copy.setAttribute("height", `${box.height}`);
  return copy;
}

/** @param {HTMLElement} main @param {HTMLCanvasElement[]} canvases @returns {Promise<Blob|null>} */
function painted(main, canvases) {
  const boxes = canvases.map((c) => visible(c, main));
  const [left, top] = [Math.min(...boxes.map((b) => b.left)), Math.min(...boxes.map((b) => b.top))];
  const [right, bottom] = [Math.max(...boxes.map((b) => b.right)), Math.max(...boxes.map((b) => b.bottom))];
  const ratio = window.devicePixelRatio || 1;
  const picture = h("canvas");
  [picture.width, picture.height] = [Math.max(1, Math.round((right - left) * ratio)),
    Math.max(1, Math.round((bottom - top) * ratio))];
  const context = picture.getContext("2d");
  if (!context) return Promise.resolve(null);
  const colors = theme();
  context.setTransform(ratio, 0, 0, ratio, 0, 0);
  context.fillStyle = colors.back;
  context.fillRect(0, 0, right - left, bottom - top);
  canvases.forEach((c, i) => {
    const [whole, part] = [c.getBoundingClientRect(), boxes[i]];
    const [x, y, w, t] = [part.left - whole.left, part.top - whole.top, part.right - part.left, part.bottom - part.top];
    if (w > 0 && t > 0)
      context.drawImage(c, x * ratio, y * ratio, w * ratio, t * ratio, part.left - left, part.top - top, w, t);
  });
  context.font = "12px system-ui, sans-serif";
  context.textBaseline = "middle";
  for (const label of main.querySelectorAll(".label span")) {
    const box = visible(label, main);
    if (box.bottom - box.top < 8 || box.right <= box.left) continue;
    context.fillStyle = colors.text;
    context.fillText(label.textContent ?? "", box.left - left, (box.top + box.bottom) / 2 - top, box.right - box.left);
  }
  return new Promise((resolve) => picture.toBlob(resolve, "image/png"));
}

/** The part of an element that can be seen in what scrolls around it. @param {Element} element
 * @param {HTMLElement} main */
function visible(element, main) {
  let { left, top, right, bottom } = element.getBoundingClientRect();
  for (let around = element.parentElement; around; around = around === main ? null : around.parentElement) {
    if (getComputedStyle(around).overflowY === "visible") continue;
    const box = around.getBoundingClientRect();
    [left, top, right, bottom] = [Math.max(left, box.left), Math.max(top, box.top), Math.min(right, box.right),
      Math.min(bottom, box.bottom)];
  }
  return { left, top, right: Math.max(left, right), bottom: Math.max(top, bottom) };
}

/** @param {Blob} blob @param {string} name */
function offer(blob, name) {
  const url = URL.createObjectURL(blob);
  h("a", { href: url, download: name }).click();
  setTimeout(() => URL.revokeObjectURL(url), 10_000);
}
