// @ts-check
/** Which tracks are shown and in which order: by words and kinds, hidden ones, ranks by host, by role or by their place
 * in the grid. */
import { choice, entry, h } from "./dom.js";
import { counted } from "./units.js";

/** @typedef {import("./types.js").Track} Track */

const KINDS = /** @type {[string, string, string[]][]} */ ([
  ["", "all kinds", []],
  ["main", "main tracks", []],
  ["gpu", "GPU streams", ["gpu"]],
  ["collectives", "collectives", ["collectives"]],
  ["ranges", "ranges", ["ranges"]],
  ["api", "CUDA API", ["api"]],
  ["mpi", "MPI and UCX", ["mpi", "ucx"]],
  ["host", "OS and host runtimes", ["osrt", "syscalls", "openacc", "openmp"]],
  ["cpu", "CPU and scheduling", ["samples", "sched"]],
  ["memory", "memory", ["memory", "allocations"]],
  ["metrics", "metrics", ["metric", "nic", "switch", "generic"]],
]);

/**
 * What tracks of several ranks have in common that are alike: the same stream of whichever GPU, threads of one name.
 * @param {Track} track */
export function likeness({ group, label }) {
  const device = label.replace(/^GPU \d+ (?=stream)/, "").replace(/GPU \d+/, "GPU");
  return `${group}/${device.replace(/ ?\(\d+\)$/, "").replace(/thread \d+$/, "thread")}`;
}

/** Where a rank computes, communicates and has its ranges, one track each, and what is like the chosen track.
 * @param {Track[]} tracks @param {Track} [chosen] */
function mainTracks(tracks, chosen) {
  const like = chosen &&
    (tracks.find((t) => likeness(t) === likeness(chosen)) ?? tracks.find((t) => t.group === chosen.group));
  const fullest = (/** @type {string} */ group) => tracks.filter((t) => t.group === group)
    .sort((a, b) => b.rows - a.rows)[0];
  const main = ["gpu", "collectives", "mpi", "ranges"]
    .map((group) => (group === "collectives" && like?.group === group ? like : fullest(group)));
  return tracks.filter((t) => t === like || main.includes(t));
}

export class Arrangement {
  /** @param {import("./types.js").Run} run @param {() => void} changed */
  constructor(run, changed) {
    this.run = run;
    this.changed = changed;
    this.words = "";
    this.kind = "";
    this.order = "";
    /** @type {Set<string>} tracks that are hidden, a rank and a key */
    this.hidden = new Set();
    /** @type {number[]} ranks above all others, the culprit of a finding and a peer */
    this.first = [];
    this.restore = h("button",
      { type: "button", hidden: true, on: { click: () => (this.hidden.clear(), this.#done()) } });
    this.element = h("span", { class: "bar-part" });
    this.#fill();
  }

  #fill() {
    const dimensions = this.run.dimensions ?? [];
    const orders = /** @type {[string, string][]} */ ([["", "rank"], ["host", "host"],
      ...(this.#roles.size ? [["role", "role"]] : []), ["tracks", "kind of track"],
      ...dimensions.map((d, i) => [`grid${i}`, `${d.name} (${d.size})`])]);
    this.element.replaceChildren(
      entry("tracks", this.words, (v) => ((this.words = v), this.#done()),
        { placeholder: "words of names", "aria-label": "show tracks whose names have these words" }),
      choice("kind", KINDS.map(([k, t]) => [k, t]), this.kind, (v) => ((this.kind = v), this.#done())),
      choice("order by", orders, this.order, (v) => ((this.order = v), this.#done())),
      this.restore,
    );
  }

  #done() {
    this.#told();
    this.changed();
  }

  #told() {
    this.restore.hidden = !this.hidden.size;
    this.restore.textContent = `show ${counted(this.hidden.size, "hidden track")}`;
  }

  /** @param {string} id */
  hide(id) {
    this.hidden.add(id);
    this.#done();
  }

  /** What an address says. @param {Record<string, string>} values */
  read(values) {
    this.words = values.tracks ?? "";
    this.kind = KINDS.some(([k]) => k === values.kind) ? values.kind : "";
    this.order = /^(host|role|tracks|grid\d)$/.test(values.order ?? "") ? values.order : "";
    this.hidden = new Set((values.hide ?? "").split(",").filter(Boolean));
    this.first = (values.first ?? "").split(",").filter(Boolean).map(Number).filter(Number.isInteger);
    this.#fill();
    this.#told();
  }

  /** The part of the address. */
  values() {
    return { tracks: this.words, kind: this.kind, order: this.order, hide: [...this.hidden].slice(0, 200).join(","),
      first: this.first.join(",") };
  }

  /** The tracks of a rank that are shown. @param {number} rank @param {Track[]} tracks
   * @param {Track} [chosen] the track of what is chosen, maybe of another rank */
  of(rank, tracks, chosen) {
    if (this.kind === "main") return mainTracks(tracks, chosen);
    const groups = KINDS.find(([k]) => k === this.kind)?.[2] ?? [];
    const words = this.words.toLowerCase().split(/\s+/).filter(Boolean);
    return tracks.filter((t) => (!groups.length || groups.includes(t.group)) &&
      words.every((w) => t.label.toLowerCase().includes(w)) && !this.hidden.has(`${rank}/${t.key}`));
  }

  /** What ranks do in a program of several groups of ranks, for those that have a role. */
  get #roles() {
    /** @type {Map<number, string>} */
    const byRank = new Map();
    for (const r of this.run.ranks) if (r.role) byRank.set(r.rank, r.role);
    return byRank;
  }

  /** A rank's place along a dimension of the grid. @param {number} rank @param {number} dimension */
  #place(rank, dimension) {
    const sizes = (this.run.dimensions ?? []).map((d) => d.size);
    const stride = sizes.slice(0, dimension).reduce((a, b) => a * b, 1);
    return Math.floor(rank / stride) % (sizes[dimension] ?? 1);
  }

  /**
   * The ranks in order, those first that the address puts there; along a dimension, ranks that differ only in it are
   * adjacent.
   * @param {number[]} ranks */
  sorted(ranks) {
    if (this.order === "host" || this.order === "role") {
      const words = this.order === "role" ? this.#roles : new Map(this.run.ranks.map((r) => [r.rank, r.host]));
      return [...ranks].sort((a, b) => (words.get(a) ?? "")
        .localeCompare(words.get(b) ?? "", "en", { numeric: true }) || a - b);
    }
    if (!this.order.startsWith("grid")) return [...new Set([...this.first.filter((r) => ranks.includes(r)), ...ranks])];
    const dimension = Number(this.order.slice(4));
    const sizes = (this.run.dimensions ?? []).map((d) => d.size);
    const stride = sizes.slice(0, dimension).reduce((a, b) => a * b, 1);
    const group = (/** @type {number} */ rank) => rank - this.#place(rank, dimension) * stride;
    return [...ranks].sort((a, b) => group(a) - group(b) || a - b);
  }

  /** The text about a rank next to its host. @param {number} rank */
  told(rank) {
    const role = this.#roles.get(rank);
    return `${role ? ` · ${role}` : ""}${this.#placeText(rank)}`;
  }

  /** @param {number} rank */
  #placeText(rank) {
    if (!this.order.startsWith("grid")) return "";
    return ` · ${(this.run.dimensions ?? []).map((d, i) => `${d.name} ${this.#place(rank, i)}`).join(", ")}`;
  }

  /** Whether tracks of one kind are grouped over all ranks, instead of all tracks of one rank. */
  get byKind() {
    return this.order === "tracks";
  }
}
