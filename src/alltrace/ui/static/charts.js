// @ts-check
import { ticketed } from "./api.js";
import { h } from "./dom.js";

/** @type {Promise<any>|null} */
let loading = null;

/** The library of charts, loaded when the first picture is drawn. */
function library() {
  loading ??= load().catch((error) => {
    loading = null;
    throw error;
  });
  return loading;
}

/** @returns {Promise<any>} */
async function load() {
  const script = h("script", { src: await ticketed("/library/plotly.js") });
  const loaded = new Promise((resolve, reject) => {
    script.addEventListener("load", resolve);
    script.addEventListener("error", () => reject(new Error("pictures need plotly; install alltrace[ui]")));
  });
  document.head.append(script);
  await loaded;
  return /** @type {any} */ (window).Plotly;
}

/** Draw a figure in plotly's format. @param {HTMLElement} place @param {{data: any[], layout: any}} figure */
export async function picture(place, figure) {
  const plotly = await library();
  const style = getComputedStyle(document.documentElement);
  const text = style.getPropertyValue("--text").trim();
  const line = style.getPropertyValue("--line").trim();
  const axis = { color: text, gridcolor: line, zerolinecolor: line };
  /** @type {any} */
  const layout = { ...figure.layout, font: { color: text }, paper_bgcolor: "rgba(0,0,0,0)",
    plot_bgcolor: "rgba(0,0,0,0)", autosize: true };
  layout.height ??= 380;
  delete layout.title; // the page has its own title
  for (const name of Object.keys(figure.layout).concat("xaxis", "yaxis")) {
    if (/^[xy]axis/.test(name)) layout[name] = { ...figure.layout[name], ...axis };
  }
  await plotly.newPlot(place, figure.data, layout,
    { displaylogo: false, responsive: true, modeBarButtonsToRemove: ["sendDataToCloud"] });
}
