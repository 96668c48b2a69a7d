import type {Node, Query, Table} from '../warehouse/select-tree.ts'
import {write, writeOrders} from './expressions.ts'
import {quote} from './quote.ts'
import {type Names, NotRewritten, requireOnly, type Scope, unknown} from './scope.ts'

export {NotRewritten}

/**
 * A SELECT of a model in the SQL of ClickHouse, written from the parser's tree: what is not known here is refused by name, never
 * guessed. Names of its columns are those of the model; their types may differ, which is for the caller to cast. Divisions are of DOUBLE, and halves are rounded away from zero, as DuckDB has it.
 *
 * @param tree a statement of `json_serialize_sql`
 * @throws NotRewritten
 */
export function toClickhouseSql(tree: unknown, names: Names): string {
  const scope: Scope = {...names, query: (query) => writeQuery(query, scope)}
  return writeQuery((tree as {node: Query}).node, scope)
}

const SELECT_PARTS = [
  'modifiers',
  'cte_map',
  'select_list',
  'from_table',
  'where_clause',
  'group_expressions',
  'group_sets',
]
const SET_PARTS = ['modifiers', 'cte_map', 'setop_type', 'setop_all', 'left', 'right']

function writeQuery(query: Query, scope: Scope): string {
  requireOnly(
    query,
    query.type === 'SELECT_NODE'
      ? [...SELECT_PARTS, 'aggregate_handling', 'having', 'qualify']
      : query.type === 'SET_OPERATION_NODE'
        ? SET_PARTS
        : unknown(query.type),
  )
  const ctes = query.cte_map.map.map(
    ({key, value}) => `${quote(key)} as (\n${writeQuery(value.query.node, scope)}\n)`,
  )
  const body = query.type === 'SELECT_NODE' ? writeSelect(query, scope) : writeSetOperation(query, scope)
  const isDistinct = query.modifiers.some(({type}) => type === 'DISTINCT_MODIFIER')
  const tail = query.modifiers.flatMap((modifier) => {
    if (modifier.type === 'DISTINCT_MODIFIER') return requireOnly(modifier, []) ?? []
    if (modifier.type === 'ORDER_MODIFIER') return [`order by ${writeOrders(modifier.orders ?? [], scope)}`]
    if (modifier.type === 'LIMIT_MODIFIER' && modifier.limit && !modifier.offset)
      return [`limit ${write(modifier.limit, scope)}`]
    return unknown(modifier.type)
  })
  const select = isDistinct ? body.replace(/^select/, 'select distinct') : body
  return [ctes.length > 0 ? `with\n${ctes.join(',\n')}` : '', select, ...tail].filter(Boolean).join('\n')
}

function writeSetOperation({setop_type, setop_all, left, right}: Query, scope: Scope): string {
  if (setop_type !== 'UNION') unknown(setop_type)
  return `${writeQuery(left, scope)}\nunion ${setop_all ? 'all' : 'distinct'}\n${writeQuery(right, scope)}`
}

function writeSelect(query: Query, scope: Scope): string {
  const group = writeGroups(query, scope)
  const from = query.from_table.type === 'EMPTY' ? '' : `from ${writeTable(query.from_table, scope)}`
  return [
    `select\n${writeItems(query.select_list, scope).join(',\n')}`,
    from,
    query.where_clause ? `where ${write(query.where_clause, scope)}` : '',
    group,
    query.having ? `having ${write(query.having, scope)}` : '',
    query.qualify ? `qualify ${write(query.qualify, scope)}` : '',
  ]
    .filter(Boolean)
    .join('\n')
}

/** The columns of a SELECT. Several lists that are unnested go side by side, where arrays joined one by one would multiply. */
function writeItems(list: readonly Node[], scope: Scope): string[] {
  const unnested = list.filter((item) => item.function_name === 'unnest')
  const lists = unnested.map(({children}) => write(children[0] as Node, scope))
  return list.map((item) => {
    if (item.class === 'STAR') return writeStar(item)
    const isZipped = lists.length > 1 && unnested.includes(item)
    const text = isZipped
      ? `tupleElement(arrayJoin(arrayZip(${lists.join(', ')})), ${unnested.indexOf(item) + 1})`
      : write(item, scope)
    const name = item.alias || item.column_names?.at(-1)
    return name ? `${text} as ${quote(name)}` : text
  })
}

function writeStar({relation_name, exclude_list, replace_list}: Node): string {
  if (replace_list.length > 0) unknown('a star that replaces')
  const star = relation_name === '' ? '*' : `${quote(relation_name)}.*`
  return exclude_list.length === 0 ? star : `${star} except (${exclude_list.map(quote).join(', ')})`
}

function writeGroups({group_expressions, group_sets, aggregate_handling}: Query, scope: Scope): string {
  if (aggregate_handling === 'FORCE_AGGREGATES') return 'group by all'
  if (group_expressions.length === 0) return ''
  const keys = group_expressions.map((key) => write(key, scope))
  const [first = []] = group_sets
  if (group_sets.length <= 1 && first.length === keys.length) return `group by ${keys.join(', ')}`
  const sets = group_sets.map((set) => `(${set.map((place) => keys[place]).join(', ')})`)
  return `group by grouping sets (${sets.join(', ')})`
}

const JOINS: Record<string, string> = {INNER: 'inner join', LEFT: 'left join'}

/** What is written of each kind of table. */
const TABLE_PARTS: Record<string, string[]> = {
  BASE_TABLE: ['schema_name', 'table_name'],
  SUBQUERY: ['subquery'],
  JOIN: ['left', 'right', 'condition', 'join_type', 'ref_type'],
}
function writeTable(table: Table, scope: Scope): string {
  requireOnly(table, TABLE_PARTS[table.type] ?? unknown(table.type))
  const as = table.alias ? ` as ${quote(table.alias)}` : ''
  if (table.type === 'BASE_TABLE') {
    const {schema_name, table_name} = table
    return `${schema_name === '' ? quote(table_name) : scope.table(`${schema_name}.${table_name}`)}${as || ` as ${quote(table_name)}`}`
  }
  if (table.type === 'SUBQUERY') return `(\n${writeQuery(table.subquery.node, scope)}\n)${as}`
  const [left, right] = [writeTable(table.left, scope), writeTable(table.right, scope)]
  if (table.ref_type === 'CROSS') return `${left}\ncross join ${right}`
  if (table.ref_type !== 'REGULAR') unknown(table.ref_type)
  const join = JOINS[table.join_type] ?? unknown(`a join that is ${table.join_type}`)
  return `${left}\n${join} ${right} on ${table.condition ? write(table.condition, scope) : '1 = 1'}`
}
