/** What a status counts as. */
export type Class = 'pipeline' | 'funded' | 'ended_funded' | 'ended_unfunded' | 'unclassified'

/** Classes and orders of statuses, and true funding dates. */
export interface Reference {
  /** By status: its class, its order, and how it ends a loan. */
  statuses: Record<string, [Class, number, string?]>
  fundedOn: Record<string, string>
}

/** The statuses that stories use, as shipped. */
export const SHIPPED_STATUSES: Reference['statuses'] = {
  draft: ['pipeline', 10],
  underwriting: ['pipeline', 40],
  approved: ['pipeline', 60],
  funded: ['funded', 90],
  servicing: ['funded', 100],
  paid_off: ['ended_funded', 110, 'paid_off'],
  withdrawn: ['ended_unfunded', 160],
}
