// @ts-check
/** Borders that are dragged: how high the details are, how wide the labels. What was chosen is kept in the browser. */
import { h } from "./dom.js";

const STEP = 24;

/**
 * @param {{name: string, label: string, vertical: boolean, least: number, most: () => number, value: () => number,
 *   set: (pixels: number) => void, sign: number}} pane
 *   `vertical`: the border is one between left and right; `sign`: -1 if the pane grows as the pointer moves up */
function border(pane) {
  const element = h("div", { class: `border ${pane.vertical ? "vertical" : "horizontal"}`, role: "separator",
    tabindex: "0", "aria-label": pane.label, "aria-orientation": pane.vertical ? "vertical" : "horizontal" });
  const tell = () => {
    element.setAttribute("aria-valuemin", `${pane.least}`);
    element.setAttribute("aria-valuemax", `${Math.round(pane.most())}`);
    element.setAttribute("aria-valuenow", `${Math.round(pane.value())}`);
  };
  const to = (/** @type {number} */ pixels) => {
    const bounded = Math.max(pane.least, Math.min(pixels, pane.most()));
    pane.set(bounded);
    localStorage.setItem(`alltrace-${pane.name}`, String(Math.round(bounded)));
    tell();
  };
  element.addEventListener("pointerdown", (e) => {
    e.preventDefault();
    element.setPointerCapture(e.pointerId);
    const [from, value] = [pane.vertical ? e.clientX : e.clientY, pane.value()];
    const move = (/** @type {PointerEvent} */ m) =>
      to(value + pane.sign * ((pane.vertical ? m.clientX : m.clientY) - from));
    const end = () => element.removeEventListener("pointermove", move);
    element.addEventListener("pointermove", move);
    element.addEventListener("pointerup", end, { once: true });
    element.addEventListener("pointercancel", end, { once: true });
  });
  element.addEventListener("keydown", (e) => {
    const by = { ArrowUp: -1, ArrowLeft: -1, ArrowDown: 1, ArrowRight: 1 }[e.key];
    if (by === undefined) return;
    e.preventDefault();
    e.stopPropagation();
    to(pane.value() + pane.sign * by * STEP);
  });
  const kept = Number(localStorage.getItem(`alltrace-${pane.name}`));
  if (kept > 0) pane.set(Math.max(pane.least, kept));
  tell();
  return element;
}

/** The border above the details of a timeline; nothing chosen takes no more room than its one line.
 * @param {HTMLElement} details */
export function detailsBorder(details) {
  return border({ name: "details", label: "height of the details", vertical: false, least: 60,
    most: () => window.innerHeight * 0.75, value: () => details.offsetHeight,
    set: (v) => details.style.setProperty("--details", `${v}px`), sign: -1 });
}

/** The border next to the labels of tracks. @param {() => void} changed */
export function labelsBorder(changed) {
  const root = document.documentElement;
  const value = () => parseInt(getComputedStyle(root).getPropertyValue("--labels"), 10) || 200;
  return border({ name: "labels", label: "width of the labels", vertical: true, least: 80,
    most: () => window.innerWidth * 0.5, value, set: (v) =>
    (root.style.setProperty("--labels", `${Math.min(v, window.innerWidth * 0.5)}px`), changed()), sign: 1 });
}
