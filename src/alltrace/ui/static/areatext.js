// @ts-check
/** The tracks of a selected area as words of an address. */
import { parseRanks, rankText } from "./units.js";

/** The tracks of an area as an address has them: ranks for what their devices did, else keys.
 * @param {string[]} tracks */
export function areaText(tracks) {
  const folded = tracks.filter((t) => t.endsWith("/summary")).map((t) => parseInt(t, 10));
  return [rankText(folded), ...tracks.filter((t) => !t.endsWith("/summary")).slice(0, 200)].filter(Boolean).join(",");
}

/** @param {string} text @param {number[]} known @returns {string[]|null} */
export function areaOf(text, known) {
  if (!text) return null;
  const parts = text.split(",");
  const ranks = parts.filter((p) => !p.includes("/")).join(",");
  return [...(ranks ? parseRanks(ranks, known).map((r) => `${r}/summary`) : []),
    ...parts.filter((p) => p.includes("/"))];
}
