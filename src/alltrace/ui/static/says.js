// @ts-check
/** What is seen of a finding on the timeline, in a sentence above the tracks. */
import { h } from "./dom.js";
import { link } from "./url.js";

export class Says {
  /** @param {import("./main.js").Context} ctx */
  constructor(ctx) {
    this.ctx = ctx;
    this.finding = ""; // its place in the list of findings
    this.element = h("p", { class: "main-sentence", hidden: true });
  }

  /** @param {string} finding */
  async show(finding) {
    this.finding = finding;
    this.element.hidden = !finding;
    if (!finding) return;
    await this.ctx.after("findings");
    const { cards } = await this.ctx.api.get("findings").catch(() => ({ cards: [] }));
    const says = cards[Number(finding)]?.place?.says;
    if (this.finding === finding && says)
      this.element.replaceChildren(says, " ", h("a", { href: link("overview") }, "back to the findings"));
  }
}
