/** What a node of the parser's tree may hold. */
export interface Node {
  class?: string
  function_name?: string
  type?: string
  alias?: string
  query_location?: number
  column_names?: string[]
  relation_name?: string
  /** Of a star: whether it is a pattern of names, and what stands in the place of a column. */
  columns?: boolean
  replace_list?: {key: string}[]
  children?: Node[]
  left?: Node
  right?: Node
  child?: Node
}

/** A SELECT, or two that are put together. */
export interface Query extends Node {
  cte_map: {map: {key: string; value: {query: {node: Query}}}[]}
  modifiers?: {type: string; distinct_on_targets?: Node[]}[]
  select_list: Node[]
  from_table: Table
  where_clause?: Node | null
  having?: Node | null
  qualify?: Node | null
  group_expressions: Node[]
  group_sets: number[][]
  left: Query
  right: Query
}

/** What a FROM names: a table, a subquery or a join. */
export interface Table extends Node {
  schema_name: string
  table_name: string
  subquery: {node: Query}
  condition?: Node | null
  join_type: string
  ref_type: string
  using_columns: string[]
  left: Table
  right: Table
}

/** The name in a call of `getvariable`. */
export function variableIn({function_name, children}: Node): string | undefined {
  const [name] = function_name === 'getvariable' ? ((children ?? []) as {value?: {value?: unknown}}[]) : []
  return typeof name?.value?.value === 'string' ? name.value.value : undefined
}

/** The column that an expression is, without its table. */
export function columnOf(node: Node | undefined): string | undefined {
  return node?.column_names?.at(-1)
}

/** The name that an item of a SELECT gives its column. */
export function nameOf(item: Node): string {
  return item.alias || (columnOf(item) ?? '')
}

/** The parts of a condition that must all hold. */
export function conjunctsOf(condition: Node | null | undefined): Node[] {
  if (!condition) return []
  return condition.type === 'CONJUNCTION_AND' ? (condition.children ?? []).flatMap(conjunctsOf) : [condition]
}
