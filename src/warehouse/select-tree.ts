/**
 * The tree that DuckDB's parser makes of a SELECT (`json_serialize_sql`), as far as it is looked at. Which parts a node has depends on
 * its `class`, those of a query or a table on its `type`.
 */

export interface Node {
  class: string
  type: string
  alias?: string
  /** A byte of the text. */
  query_location?: number
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
  subquery: {node: Query}
  relation_name: string
  exclude_list: string[]
  replace_list: {key: string}[]
  /** Of a star: whether it is a pattern of names. */
  columns?: boolean
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

/** A SELECT, or two that are put together. */
export interface Query {
  type: string
  modifiers: {
    type: string
    orders?: Order[]
    limit?: Node | null
    offset?: Node | null
  }[]
  cte_map: {map: {key: string; value: {query: {node: Query}}}[]}
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
  left: Query
  right: Query
}

/** What a FROM names: a table, a subquery or a join. */
export interface Table {
  type: string
  query_location?: number
  alias?: string
  schema_name: string
  table_name: string
  subquery: {node: Query}
  left: Table
  right: Table
  condition: Node | null
  join_type: string
  ref_type: string
}
