// @ts-check
/** @typedef {import("./types.js").Tile} Tile */

/** What the server said it cannot do. */
export class Refused extends Error {
  /** @param {number} status @param {string} message */
  constructor(status, message) {
    super(message);
    this.status = status;
  }
}

/**
 * The token of the server. It is in the address that opens the page, and from then on in the storage of this tab, which
 * pages of another port cannot read; the address bar and the history do not keep it. */
const token = (() => {
  const inAddress = new URLSearchParams(location.search).get("token");
  if (inAddress) {
    sessionStorage.setItem("alltrace-token", inAddress);
    history.replaceState(null, "", `${location.pathname}${location.hash}`);
  }
  return sessionStorage.getItem("alltrace-token") ?? "";
})();

const tabs = new BroadcastChannel("alltrace-token"); // a tab that was opened by a link asks those of the same origin
tabs.addEventListener("message", ({ data }) => data === "" && tabs.postMessage(token));

/** The address of a script or a download, which cannot have headers: it is good for one request.
 * @param {string} path @returns {Promise<string>} */
export async function ticketed(path) {
  const { ticket } = await (await authorized("/ticket", inJson({ path }))).json();
  return `${path}?${new URLSearchParams({ ticket })}`;
}

/** @param {any} body @param {AbortSignal} [signal] @returns {RequestInit} */
function inJson(body, signal) {
  return { method: "POST", headers: { "content-type": "application/json" }, body: JSON.stringify(body), signal };
}

/** @param {string} path @param {RequestInit} [options] */
async function authorized(path, options = {}) {
  let response;
  try {
    const headers = { ...options.headers, authorization: `Bearer ${token}` };
    response = await fetch(path, { ...options, headers, credentials: "omit" });
  } catch (error) {
    if (error instanceof DOMException && error.name === "AbortError") throw error;
    throw new Refused(0, "the server does not answer; is `alltrace ui` still running?");
  }
  if (!response.ok) {
    const body = await response.json().catch(() => ({}));
    throw new Refused(response.status, body.error ?? `the server answered ${response.status}`);
  }
  return response;
}

/** The data of one run. */
export class Api {
  /** @param {string} prefix `/api`, or `/api/b` for the second run */
  constructor(prefix) {
    this.prefix = prefix;
  }

  /** @param {string} path @param {Record<string, any>} [query] @param {AbortSignal} [signal] @returns {Promise<any>} */
  async get(path, query = {}, signal) {
    return (await this.#fetch(`${path}?${new URLSearchParams(query)}`, { signal })).json();
  }

  /** @param {string} path @param {Record<string, any>} body @param {AbortSignal} [signal] @returns {Promise<any>} */
  async post(path, body, signal) {
    return (await this.#fetch(path, inJson(body, signal))).json();
  }

  /** Numbers that come as bytes. @param {string} path @param {Record<string, any>} query
   * @param {AbortSignal} [signal] */
  async numbers(path, query, signal) {
    const response = await this.#fetch(`${path}?${new URLSearchParams(query)}`, { signal });
    return new Float64Array(await response.arrayBuffer());
  }

  /** One tile of the heat map: shares of ranks times bins. @param {string} metric @param {number} level
   * @param {number} index */
  async heat(metric, level, index) {
    return shares(await this.#fetch(`heat?${new URLSearchParams({ metric, level: `${level}`, index: `${index}` })}`,
      {}));
  }

  /** One tile of the heat map finer than what is kept, of some ranks in ascending order. @param {string} metric
   * @param {number} level @param {number} index @param {number[]} ranks @param {AbortSignal} signal */
  async heatFine(metric, level, index, ranks, signal) {
    return shares(await this.#fetch("heat-fine", inJson({ metric, level, index, ranks }, signal)));
  }

  /** @param {string[]} tracks @param {number} level @param {number} first @param {number} count
   * @param {AbortSignal} signal @returns {Promise<Tile[]>} */
  async tiles(tracks, level, first, count, signal) {
    const response = await this.#fetch("tiles", inJson({ tracks, level, first, count }, signal));
    return unpack(await response.arrayBuffer());
  }

  /** @param {string} path @param {RequestInit} options */
  #fetch(path, options) {
    return authorized(`${this.prefix}/${path}`, options);
  }
}

/** @param {Response} response a tile of the heat map */
const shares = async (response) =>
  ({ bins: Number(response.headers.get("x-alltrace-bins")), values: new Uint16Array(await response.arrayBuffer()) });

/** @type {Record<string, any>} */
const ARRAYS = { f8: Float64Array, f4: Float32Array, i4: Int32Array, u4: Uint32Array, u2: Uint16Array, u1: Uint8Array };

/** What a tile without items has: most tiles of a view that is zoomed far. @type {Record<string, any>} */
const NO_ITEMS =
  Object.fromEntries(["start", "length", "row", "name", "count", "lane", "code", "table", "share"].map((n) => [n, []]));

/** The tiles in the bytes that `alltrace.tiles.view.pack` makes. @param {ArrayBuffer} buffer @returns {Tile[]} */
export function unpack(buffer) {
  const view = new DataView(buffer);
  if (buffer.byteLength < 8 || view.getUint32(0) !== 0x41544231) throw new Refused(0, "the server sent no tiles");
  const length = view.getUint32(4, true);
  const header = JSON.parse(new TextDecoder().decode(new Uint8Array(buffer, 8, length)));
  return header.tiles.map((/** @type {any} */ t) => {
    /** @type {Record<string, any>} */
    const arrays = t.kind === "items" && !t.arrays.length ? NO_ITEMS : {};
    for (const [name, type, offset, size] of t.arrays)
      arrays[name] = new ARRAYS[type](buffer, 8 + length + offset, size);
    let lanes = 1;
    if (arrays.lane) for (const lane of arrays.lane) lanes = Math.max(lanes, lane + 1);
    return { track: t.track, index: t.index, level: header.level, kind: t.kind, classes: t.classes, arrays,
      names: header.names, used: 0, lanes };
  });
}
