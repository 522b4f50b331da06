// @ts-check
/** The tiles of tracks: requested as views need them, kept within a limit, dropped when no longer needed. */

/** @typedef {import("./types.js").Tile} Tile */

export const TILE_BINS = 512;
const MOST_TILES = 8000;
const AT_ONCE = 2;

export class TileStore {
  /** @param {import("./api.js").Api} api @param {{arrived: () => void, failed: (error: any) => void}} calls */
  constructor(api, calls) {
    this.api = api;
    this.calls = calls;
    /** @type {Map<string, Tile>} */
    this.tiles = new Map();
    /** @type {Set<{level: number, first: number, last: number, tracks: Set<string>, stop: AbortController}>} */
    this.flying = new Set();
    /** @type {Set<string>} */
    this.failedTracks = new Set();
    this.clock = 0;
  }

  close() {
    for (const f of this.flying) f.stop.abort();
    this.tiles.clear();
  }

  /** @param {string} track @param {number} level @param {number} index @returns {Tile|undefined} */
  get(track, level, index) {
    const tile = this.tiles.get(`${level}/${index}/${track}`);
    if (tile) tile.used = this.clock;
    return tile;
  }

  /** The tile to draw: the one that is wanted, or a coarser one that covers it. @param {string} track
   * @param {number} level @param {number} index @returns {Tile|undefined} */
  best(track, level, index) {
    for (let up = 0; up < 10; up++) {
      const coarser = this.get(track, level + up, Math.floor(index / 2 ** up));
      if (coarser) return coarser;
    }
    return undefined;
  }

  /** Request what is missing of a view; requests of another view are cancelled. @param {string[]} tracks
   * @param {number} level @param {number} first @param {number} last */
  want(tracks, level, first, last) {
    this.clock++;
    const missing = tracks.filter((t) => {
      if (this.failedTracks.has(t)) return false;
      for (let i = first; i <= last; i++) if (!this.tiles.has(`${level}/${i}/${t}`)) return true;
      return false;
    });
    for (const f of this.flying) {
      const useful = f.level === level && f.first <= last && f.last >= first && missing.some((t) => f.tracks.has(t));
      if (!useful) {
        f.stop.abort();
        this.flying.delete(f);
      }
    }
    const coming = (/** @type {string} */ t) => [...this.flying]
      .some((f) => f.first <= first && f.last >= last && f.tracks.has(t));
    const ask = missing.filter((t) => !coming(t));
    if (!ask.length || this.flying.size >= AT_ONCE) return;
    const most = Math.max(1, Math.floor(4096 / (last - first + 1)));
    void this.#load(ask.slice(0, Math.min(most, 96)), level, first, last);
  }

  /** @param {string[]} tracks @param {number} level @param {number} first @param {number} last */
  async #load(tracks, level, first, last) {
    const flight = { level, first, last, tracks: new Set(tracks), stop: new AbortController() };
    this.flying.add(flight);
    try {
      const arrived = await this.api.tiles(tracks, level, first, last - first + 1, flight.stop.signal);
      const got = new Set();
      for (const tile of arrived) {
        tile.used = this.clock;
        got.add(tile.track);
        this.tiles.set(`${level}/${tile.index}/${tile.track}`, tile);
      }
      for (const t of tracks) if (!got.has(t)) this.failedTracks.add(t);
      if (this.tiles.size > MOST_TILES) this.#forget();
    } catch (error) {
      if (!(error instanceof DOMException && error.name === "AbortError")) {
        for (const t of tracks) this.failedTracks.add(t);
        this.calls.failed(error);
      }
    } finally {
      this.flying.delete(flight);
      this.calls.arrived();
    }
  }

  #forget() {
    const old = [...this.tiles.entries()].sort((a, b) => a[1].used - b[1].used).slice(0, MOST_TILES / 4);
    for (const [key] of old) this.tiles.delete(key);
  }
}
