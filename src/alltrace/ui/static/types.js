// @ts-check
/** What the server answers, for the type checker. @typedef {{name: string, unit: string|null, doc?: string}} Column
 * @typedef {{columns: Column[], rows: any[][], total_rows: number, notes: string[], extra?: Record<string, any[]>,
 *   figure?: any, verdict?: string}} Answer
 * @typedef {{rank: number, local_rank: number, host: string, role: string|null, devices: string[], rows: number,
 *   tables: string[]}} RankFacts
 * @typedef {{step: number, start: number, end: number, kind: string, mean_ns: number, longest_ns: number}} Step
 * @typedef {{name: string, doing: string, state: "waiting"|"doing"|"done"|"failed", done: number, ranks: number,
 *   rest_s: number|null, error: string|null}} Stage
 * @typedef {{shown: number|null, aligned: boolean, ready: boolean, partial: boolean, error: string|null,
 *   stages: Stage[]}} State
 * @typedef {{name: string, scale: [number, number]|null}} Metric
 * @typedef {{ranks: number, hosts: number, devices: number, span_ns: number}} Facts @typedef {Object} Run
 * @property {Facts} run @property {string} name @property {State} state
 * @property {number} shown how often the shown data had been replaced when these facts were sent
 * @property {RankFacts[]} ranks @property {any[]} clocks @property {number[]} missing_ranks
 * @property {string[]} notes @property {number} origin_ns @property {{level: number, span_ns: number}} grid
 * @property {Metric[]} metrics @property {Record<string, string>} broken @property {Step[]} steps
 * @property {{name: string, ranks: number[]}[]} [communicators]
 * @property {{name: string, size: number}[]} [dimensions] of the grid that communicators form, the one of neighbouring
 *   ranks first
 * @property {string|null} history name of the history of many runs
 * @property {string[]} kernel_reports names of the reports of Nsight Compute
 * @typedef {{key: string, group: string, label: string, rows: number, first: number, last: number}} Track
 * @typedef {Object} Tile @property {string} track @property {number} index @property {number} level
 * @property {"bins"|"items"|"samples"} kind @property {string[]} classes @property {Record<string, any>} arrays
 * @property {string[]} names @property {number} used @property {number} lanes
 * @property {HTMLCanvasElement} [picture] its bins, once drawn @property {string} [drawn] how they were drawn
 * @typedef {{rank: number, table: string, row: number}} EventId @typedef {{start: number, end: number}} Span */
export {};
