// @ts-check
/** The colours of classes, as `charts/words.py` has them; a test compares both. */

/** @type {Record<string, string>} */
export const PALETTE = {
  compute: "#095f8c",
  communication: "#cd6d0a",
  "exposed communication": "#df4c29",
  unclassified: "#f0c64a",
  copy: "#6dc286",
  "exposed copy": "#6dc286",
  idle: "#dee3e8",
  api: "#7d5ba4",
  ranges: "#3fb0b3",
  mpi: "#b74c82",
  host: "#aab065",
};

/** What differs on a dark page. @type {Record<string, string>} */
export const DARK = {
  idle: "#29343c",
};
