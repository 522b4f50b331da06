// @ts-check
/** What the colours of the timeline mean. */
import { classColor } from "./colors.js";
import { h } from "./dom.js";

const SHOWN = [["compute"], ["communication"], ["exposed communication"], ["exposed copy", "copy"], ["ranges"],
  ["api", "CUDA API"], ["mpi", "MPI"], ["host", "host runtimes"]];

export class Legend {
  constructor() {
    this.element = h("ul", { class: "colors", "aria-label": "colours" });
    this.draw();
  }

  draw() {
    this.element.replaceChildren(
      ...SHOWN.map(([name, text]) => {
        const hue = h("span", { class: "hue", "aria-hidden": "true" });
        hue.style.background = classColor(name);
        return h("li", {}, hue, text ?? name);
      }),
      h("li", {}, h("span", { class: "hue nothing", "aria-hidden": "true" }), "idle or nothing"),
    );
  }
}
