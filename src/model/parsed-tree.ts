/** The tree that DuckDB's parser makes of a SELECT, as far as it is rewritten. */

/** A node of the parser's tree, as far as it is looked at. */
export interface Node {
  class: string
  type: string
  alias?: string
  function_name: string
  column_names: string[]
  children: Node[]
  left: Node
  right: Node
  child: Node
  filter?: Node | null
  filter_expr?: Node | null
  distinct?: boolean
  start: string
  end: string
  partitions: Node[]
  orders: Order[]
  case_checks: {when_expr: Node; then_expr: Node}[]
  else_expr: Node
  cast_type: Type
  value: {type: Type; is_null: boolean; value: unknown}
  subquery_type: string
  subquery: {node: Select}
  relation_name: string
  exclude_list: string[]
  replace_list: unknown[]
  input: Node
  lower: Node
  upper: Node
}

export interface Order {
  type: string
  null_order: string
  expression: Node
}

export interface Type {
  id: string
  type_info: {width: number; scale: number} | null
}

export interface Select {
  type: string
  modifiers: {
    type: string
    orders?: Order[]
    limit?: Node | null
    offset?: Node | null
    distinct_on_targets?: Node[]
  }[]
  cte_map: {map: {key: string; value: {query: {node: Select}}}[]}
  select_list: Node[]
  from_table: Table
  where_clause: Node | null
  group_expressions: Node[]
  group_sets: number[][]
  aggregate_handling: string
  having: Node | null
  qualify: Node | null
  setop_type: string
  setop_all: boolean
  left: Select
  right: Select
}

export interface Table {
  type: string
  alias?: string
  schema_name: string
  table_name: string
  subquery: {node: Select}
  left: Table
  right: Table
  condition: Node | null
  join_type: string
  ref_type: string
  using_columns: string[]
}

/** What a name of a table or of a variable becomes. */
export interface Names {
  /** @param table `core.deal`; CTEs are not asked for */
  table(table: string): string
  /** @param variable `as_of` */
  variable(variable: string): string
}

/** What is written within a SELECT: its subqueries, too. */
export interface Scope extends Names {
  query(select: Select): string
}

/** Something that this page does not know. */
export class NotRewritten extends Error {}

export const unknown = (what: string): never => {
  throw new NotRewritten(what)
}

export const quote = (name: string): string => `\`${name.replaceAll('\\', '\\\\').replaceAll('`', '\\`')}\``
export const literal = (text: string): string => `'${text.replaceAll('\\', '\\\\').replaceAll("'", "\\'")}'`

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
