/**
 * The named points of a run, in their order; `pages stored`, `details stored` and `lists stored` come many times, and what follows
 * the last comes once more for each stream.
 */
export const RUN_STEPS = [
  'warehouse opened',
  'walk begun',
  'pages stored',
  'walk certified',
  'details stored',
  'changes planned',
  'changes applied',
  'lists stored',
  'history copied',
  'models compiled',
  'models built',
  'checks passed',
  'tables written',
  'release published',
  'current moved',
] as const

/** The named points of a journal's export, in their order. */
export const JOURNAL_STEPS = [
  'journal planned',
  'act written',
  'journal issued',
  'journal written',
  'journal in place',
  'journal handed over',
] as const

/** A point of {@link RUN_STEPS} or {@link JOURNAL_STEPS}. */
export type RunStep = (typeof RUN_STEPS)[number] | (typeof JOURNAL_STEPS)[number]
