import type {Query} from '../warehouse/select-tree.ts'

/** What a name of a table or of a variable becomes. */
export interface Names {
  /** @param table `core.deal`; CTEs are not asked for */
  table(table: string): string
  /** @param variable `as_of` */
  variable(variable: string): string
}

/** What is written within a SELECT: its subqueries, too. */
export interface Scope extends Names {
  query(query: Query): string
}

/** What nobody has written yet for ClickHouse; it is named. */
export class NotRewritten extends Error {}

export const unknown = (what: string): never => {
  throw new NotRewritten(what)
}

/** What a node may hold that changes nothing: where it stands in the text, and what it does not ask for. */
const PLAIN = ['query_location', 'alias', 'type', 'class', 'schema', 'catalog', 'export_state', 'is_operator']
const UNSAID = ['STANDARD_HANDLING', 'NO_OTHER', 'INVALID', 'ORDER_MODIFIER']

/** Whether a part of a node asks for nothing. */
function isUnsaid(part: unknown): boolean {
  if (typeof part !== 'object' || part === null) return !part || UNSAID.includes(String(part))
  return Object.values(part).every(isUnsaid)
}

/** Requires that a node asks for nothing but what is written of it: what is not looked at would be lost in silence. */
export function requireOnly(node: object, written: readonly string[]): void {
  for (const [part, value] of Object.entries(node))
    if (![...PLAIN, ...written].includes(part) && !isUnsaid(value)) unknown(part.replaceAll('_', ' '))
}
