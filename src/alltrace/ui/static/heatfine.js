// @ts-check
/** The heat map finer than the stored data of all ranks: requested for the rows in view, some at a time, and drawn as
 * they arrive. */

const AT_ONCE = 16;
const MOST_TILES = 12;

/** @typedef {{bins: number, values: Uint16Array, have: Uint8Array, picture: HTMLCanvasElement|null, drawn: string}}
 *   FineTile */

export class FineHeat {
  /** @param {import("./api.js").Api} api @param {Map<number, number>} rowOf the row of each rank
   * @param {{arrived: () => void, failed: (error: any) => void}} calls */
  constructor(api, rowOf, calls) {
    this.api = api;
    this.rowOf = rowOf;
    this.calls = calls;
    /** @type {Map<string, FineTile>} */
    this.tiles = new Map();
    this.stop = new AbortController();
    this.asking = "";
    this.failedKey = "";
  }

  close() {
    this.stop.abort();
  }

  /** @param {string} metric @param {number} level @param {number} index @returns {FineTile|undefined} */
  get(metric, level, index) {
    return this.tiles.get(`${metric}/${level}/${index}`);
  }

  /** Request what is missing of a view; requests of another view are cancelled. @param {string} metric
   * @param {number} level @param {number} first @param {number} last
   * @param {number[]} ranks those in view, from top to bottom */
  want(metric, level, first, last, ranks) {
    const view = `${metric}/${level}/${first}-${last}`;
    if (this.asking && this.asking !== view) {
      this.stop.abort();
      this.stop = new AbortController();
      this.asking = "";
    }
    if (this.asking || this.failedKey === view) return;
    for (let index = first; index <= last; index++) {
      const tile = this.get(metric, level, index);
      const missing = ranks.filter((r) => !tile?.have[this.rowOf.get(r) ?? 0]).slice(0, AT_ONCE);
      if (missing.length) return void this.#load(view, metric, level, index, missing);
    }
  }

  /** @param {string} view @param {string} metric @param {number} level @param {number} index @param {number[]} ranks */
  async #load(view, metric, level, index, ranks) {
    this.asking = view;
    const { signal } = this.stop;
    const sorted = [...ranks].sort((a, b) => a - b);
    try {
      const answer = await this.api.heatFine(metric, level, index, sorted, signal);
      const key = `${metric}/${level}/${index}`;
      const tile = this.tiles.get(key) ?? { bins: answer.bins, values: new Uint16Array(this.rowOf.size * answer.bins),
        have: new Uint8Array(this.rowOf.size), picture: null, drawn: "" };
      sorted.forEach((rank, i) => {
        const row = this.rowOf.get(rank) ?? 0;
        tile.values.set(answer.values.subarray(i * answer.bins, (i + 1) * answer.bins), row * answer.bins);
        tile.have[row] = 1;
      });
      tile.drawn = "";
      this.tiles.delete(key);
      this.tiles.set(key, tile);
      if (this.tiles.size > MOST_TILES) this.tiles.delete(/** @type {string} */ (this.tiles.keys().next().value));
    } catch (error) {
      if (error instanceof DOMException && error.name === "AbortError") return;
      this.failedKey = view; // the coarse one stays; another view requests it again
      this.calls.failed(error);
    } finally {
      if (!signal.aborted) this.asking = "";
    }
    this.calls.arrived();
  }
}
