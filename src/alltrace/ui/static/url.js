// @ts-check
/** The state of the view is in the URL after #, so that the URL shows it again:
 * `#timeline?start=0&end=5000&ranks=0-7`. */

/** @typedef {Record<string, string>} Values */

/** @returns {{view: string, values: Values}} */
export function read() {
  const hash = location.hash.slice(1);
  const at = hash.indexOf("?");
  const [view, query] = at < 0 ? [hash, ""] : [hash.slice(0, at), hash.slice(at + 1)];
  return { view: view || "overview", values: Object.fromEntries(new URLSearchParams(query)) };
}

/** The link to a view. @param {string} view
 * @param {Record<string, string|number|null|undefined>} values empty ones are left out */
export function link(view, values = {}) {
  const query = new URLSearchParams();
  for (const [name, value] of Object.entries(values)) {
    if (value !== null && value !== undefined && value !== "") query.set(name, String(value));
  }
  const text = query.toString().replace(/%2C/g, ",").replace(/%2F/g, "/");
  return `#${view}${text ? `?${text}` : ""}`;
}

let waiting = 0;
/** @type {(() => void)|null} */
let held = null;

/** Put the state of the current view into the URL, without a step in the history; not at every frame.
 * @param {string} view @param {Record<string, string|number|null|undefined>} values */
export function keep(view, values) {
  clearTimeout(waiting);
  const before = location.hash;
  held = () => {
    // a link that was opened since is followed, and not written over
    if (location.hash === before && read().view === view) history.replaceState(null, "", link(view, values));
  };
  waiting = window.setTimeout(settle, 150);
}

/** Put into the URL now what `keep` still holds back. */
export function settle() {
  clearTimeout(waiting);
  held?.();
  held = null;
}

/** What `keep` still holds back is forgotten: another view is shown. */
export function forget() {
  clearTimeout(waiting);
  held = null;
}
