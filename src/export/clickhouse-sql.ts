import {z} from 'zod'
import type {Database} from '../store/database.ts'

const quoted = (text: string, mark: string): string =>
  `${mark}${text.replaceAll('\\', '\\\\').replaceAll(mark, `\\${mark}`)}${mark}`

export const quote = (name: string): string => quoted(name, '`')

export const literal = (text: string): string => quoted(text, "'")

/** The message names the construct that cannot be written for ClickHouse. */
export class NotRewritten extends Error {}

const unknown = (what: string): never => {
  throw new NotRewritten(what)
}

/** The database whose view `release` says which releases readers see. */
export const STATE = 'loantape'

/**
 * The visible partitions of all tables, and the latest day. ClickHouse computes a subquery of the same text once per query, so a
 * query sees one release of each source, on every node.
 */
export const VISIBLE = `(select (groupArrayArray(contents), max(as_of)) from ${STATE}.release)`

/** The database of the tables over all lenders. */
export const MADE = 'total'

/**
 * Rewrites a model's SELECT, a statement of `json_serialize_sql`, for ClickHouse, over the tables of {@link MADE}. Changes the
 * parser's tree where the engines differ, and has DuckDB print it; refuses anything it does not know. Columns keep their names
 * but may change type, so the caller casts them. Divisions are done in DOUBLE, and halves round away from zero, as in DuckDB.
 * @throws NotRewritten
 */
export async function toClickhouseSql(db: Database, tree: unknown): Promise<string> {
  const statements = [{node: rewrite((tree as {node: Node}).node), named_param_map: []}]
  // Positions may exceed JavaScript's numbers. ClickHouse decides by itself which CTEs to materialize.
  const given = new Map([
    ['query_location', undefined],
    ['materialized', 'CTE_MATERIALIZE_DEFAULT'],
  ])
  const json = JSON.stringify({error: false, statements}, (part, value) =>
    given.has(part) ? given.get(part) : value,
  )
  const [sql = ''] = await db.column(z.string(), 'select json_deserialize_sql($1::varchar::json)', [json])
  return sql.replaceAll(`"${AS_OF}"`, `${VISIBLE}.2`)
}

/** Printed as a column; then replaced by the latest day. */
const AS_OF = '{as_of}'

/** The part we read of the parser's tree. An expression has a `class`; a query, table, join or modifier has only a `type`. */
interface Node {
  class?: string
  type: string
  alias?: string
  // Fields of expressions.
  function_name: string
  column_names: string[]
  children: Node[]
  child: Node
  is_operator: boolean
  cast_type: Type
  value: {type: Type; is_null: boolean; value: unknown}
  // Fields of queries, tables and joins.
  modifiers: unknown[]
  cte_map: {map: unknown[]}
  select_list: Node[]
  setop_all: boolean
  schema_name: string
  table_name: string
  condition: Node | null
  ref_type: string
}

type Type = {id: string; type_info: {width: number; scale: number} | null}

/** Fields of a node that do not change its meaning. */
const PLAIN = ['query_location', 'alias', 'type', 'class', 'schema', 'catalog', 'export_state', 'is_operator']

/** Values that mean a field is not used. */
const UNUSED = [
  'STANDARD_HANDLING',
  'NO_OTHER',
  'INVALID',
  'ORDER_MODIFIER',
  'UNBOUNDED_PRECEDING',
  'CURRENT_ROW_RANGE',
]

function isUnused(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return !value || UNUSED.includes(String(value))
  return Object.values(value).every(isUnused)
}

/** By class or type of node: the fields that ClickHouse reads as DuckDB does. */
const PARTS: Record<string, string> = {
  CONSTANT: 'value',
  COLUMN_REF: 'column_names',
  STAR: 'relation_name',
  CAST: 'child cast_type',
  COMPARISON: 'left right',
  CONJUNCTION: 'children',
  BETWEEN: 'input lower upper',
  CASE: 'case_checks else_expr',
  OPERATOR: 'children',
  SUBQUERY: 'subquery subquery_type',
  FUNCTION: 'function_name children filter distinct',
  WINDOW: 'function_name children partitions orders filter_expr',
  SELECT_NODE:
    'modifiers cte_map select_list from_table where_clause group_expressions group_sets aggregate_handling having qualify',
  SET_OPERATION_NODE: 'modifiers cte_map setop_type setop_all left right',
  EMPTY: '',
  FROM: 'subquery',
  BASE_TABLE: 'schema_name table_name',
  JOIN: 'left right condition join_type ref_type',
  DISTINCT_MODIFIER: '',
  ORDER_MODIFIER: 'orders',
  LIMIT_MODIFIER: 'limit',
  ORDER_DEFAULT: 'null_order expression',
  ASCENDING: 'null_order expression',
  DESCENDING: 'null_order expression',
}

/** For the node types and fields that have other values too: the values that ClickHouse reads as DuckDB does. */
const VALUES: Record<string, RegExp> = {
  COMPARISON: /^COMPARE_(EQUAL|NOTEQUAL|(LESS|GREATER)THAN(OREQUALTO)?)$/,
  OPERATOR: /^(OPERATOR_(COALESCE|IS_NULL|IS_NOT_NULL|NOT)|GROUPING_FUNCTION|COMPARE_(NOT_)?IN)$/,
  subquery_type: /^(SCALAR|EXISTS)$/,
  setop_type: /^UNION$/,
  join_type: /^(INNER|LEFT)$/,
  ref_type: /^(REGULAR|CROSS)$/,
}

/** A subquery in FROM has the same type as one in an expression. */
const kindOf = (node: Node) => node.class ?? (node.type === 'SUBQUERY' ? 'FROM' : node.type)

/** Refuses what ClickHouse lacks or reads differently. @throws NotRewritten */
function requireKnown(node: Node): void {
  const kind = kindOf(node)
  const parts = PARTS[kind]?.split(' ') ?? unknown(kind === node.type ? kind : `${kind} ${node.type}`)
  if (VALUES[kind]?.test(node.type) === false) unknown(node.type)
  for (const [part, value] of Object.entries(node)) {
    const name = part.replaceAll('_', ' ')
    if (![...PLAIN, ...parts].includes(part) && !isUnused(value)) unknown(name)
    if (VALUES[part]?.test(String(value)) === false) unknown(`${name} ${value}`)
  }
}

function rewrite(node: Node): Node {
  requireKnown(node)
  const changed = (RULES[kindOf(node)] ?? rewriteParts)(node)
  return {...changed, alias: node.alias || (changed.alias ?? '')}
}

const rewriteParts = <T extends object>(parent: T): T =>
  Object.fromEntries(Object.entries(parent).map(([part, value]) => [part, rewriteValue(value)])) as T

function rewriteValue(value: unknown): unknown {
  if (Array.isArray(value)) return value.map(rewriteValue)
  if (typeof value !== 'object' || value === null) return value
  return 'type' in value && typeof value.type === 'string' ? rewrite(value as Node) : rewriteParts(value)
}

const make = (parts: Partial<Node> & Record<string, unknown>): Node => parts as Node & typeof parts

const constant = (id: string, value: unknown): Node =>
  make({
    class: 'CONSTANT',
    type: 'VALUE_CONSTANT',
    value: {type: {id, type_info: null}, is_null: false, value},
  })

const text = (value: string) => constant('VARCHAR', value)

const integer = (value: number) => constant('BIGINT', value)

/** As a constant, a whole number would lose its type in JSON. */
const double = (value: number): Node => call('toFloat64', text(String(value)))

const column = (name: string): Node => make({class: 'COLUMN_REF', type: 'COLUMN_REF', column_names: [name]})

const call = (name: string, ...children: Node[]): Node =>
  make({class: 'FUNCTION', type: 'FUNCTION', function_name: name, children, order_bys: NO_ORDER})

const NO_ORDER = {type: 'ORDER_MODIFIER', orders: []}

/** Nodes without a rule stay; only those below them are rewritten. */
const RULES: Record<string, (node: Node) => Node> = {
  CONSTANT(node) {
    const {type, is_null, value} = node.value
    if (is_null || ['INTEGER', 'BIGINT', 'BOOLEAN'].includes(type.id)) return node
    if (type.id === 'DOUBLE') return double(Number(value))
    // ClickHouse reads `\n` in a text as a line break.
    if (type.id === 'VARCHAR') return text(String(value).replaceAll('\\', '\\\\'))
    const {scale} =
      (Number.isSafeInteger(value) && type.type_info) || unknown(`a constant of type ${type.id}`)
    const digits = String(value).replace(/\d+/, (all) => all.padStart(scale + 1, '0'))
    const [whole, part] = [digits.slice(0, digits.length - scale), digits.slice(digits.length - scale)]
    return call('toDecimal64', text(`${whole}.${part}`), integer(scale))
  },
  CAST(node) {
    const {id, type_info} = node.cast_type
    if (id === 'BOOLEAN' && node.child.class === 'CONSTANT') return node
    const value = rewrite(node.child)
    if (id === 'DECIMAL' && type_info) {
      const scale = integer(type_info.scale)
      return call(type_info.width > 18 ? 'toDecimal128' : 'toDecimal64', call('round', value, scale), scale)
    }
    // DuckDB rounds to the nearest whole number.
    const whole = {HUGEINT: 'toInt128', BIGINT: 'toInt64', INTEGER: 'toInt32'}[id]
    if (whole !== undefined) return call(whole, call('round', value))
    const plain = {DATE: 'toDate32', DOUBLE: 'toFloat64', VARCHAR: 'toString'}[id]
    return call(plain ?? unknown(`a cast to ${id}`), value)
  },
  FUNCTION: rewriteFunction,
  WINDOW(node) {
    const name = node.function_name.replace('count_star', 'count')
    const window = {...rewriteParts(node), function_name: name, alias: ''}
    if (['count', 'row_number', 'rank', 'dense_rank'].includes(name)) return call('toInt64', window)
    if (['sum', 'min', 'max'].includes(name)) return window
    if (!['lag', 'lead'].includes(name)) return unknown(`the window function ${name}`)
    // Beyond the first and last row, only what may be null is null.
    return {...window, children: window.children.map((child) => call('toNullable', child))}
  },
  SELECT_NODE: (node) => ({
    ...rewriteParts({...node, select_list: []}),
    select_list: rewriteItems(node.select_list),
  }),
  SET_OPERATION_NODE(node) {
    const {modifiers, cte_map, setop_all} = node
    if (setop_all && modifiers.length + cte_map.map.length === 0) return rewriteParts(node)
    // ClickHouse requires ALL or DISTINCT after UNION, and allows no clause around a union.
    const union = rewriteParts({...node, modifiers: [], cte_map: {map: []}, setop_all: true})
    const distinct = {type: 'DISTINCT_MODIFIER', distinct_on_targets: []}
    return make({
      type: 'SELECT_NODE',
      modifiers: [...(setop_all ? [] : [distinct]), ...modifiers.map(rewriteValue)],
      cte_map: rewriteParts(cte_map),
      select_list: [
        make({class: 'STAR', type: 'STAR', relation_name: '', exclude_list: [], replace_list: []}),
      ],
      from_table: {type: 'SUBQUERY', alias: '', subquery: {node: union}},
      aggregate_handling: 'STANDARD_HANDLING',
    })
  },
  BASE_TABLE(node) {
    const {schema_name: schema, table_name: name} = node
    return schema === '' ? node : {...node, schema_name: MADE, table_name: `${schema}.${name}`, alias: name}
  },
  JOIN(node) {
    const joined = rewriteParts(node)
    if (joined.condition) return joined
    // A cross join would be printed as a comma, which binds weaker than a join.
    const one = integer(1)
    return {
      ...joined,
      ref_type: 'REGULAR',
      condition: make({class: 'COMPARISON', type: 'COMPARE_EQUAL', left: one, right: one}),
    }
  },
}

/** Several unnested lists are zipped, because separate array joins would multiply rows. */
function rewriteItems(list: readonly Node[]): Node[] {
  const unnested = list.filter((item) => item.function_name === 'unnest')
  const lists = unnested.length > 1 ? unnested.flatMap(({children}) => children.map(rewrite)) : []
  return list.map((item) => {
    const at = lists.length > 0 ? unnested.indexOf(item) : -1
    const zipped = () => call('tupleElement', call('arrayJoin', call('arrayZip', ...lists)), integer(at + 1))
    return {...(at < 0 ? rewrite(item) : zipped()), alias: item.alias || (item.column_names?.at(-1) ?? '')}
  })
}

/** Functions that differ only in their name in ClickHouse. */
const NAMES: Record<string, string> = {
  ...Object.fromEntries(
    'nullif max min sum greatest least floor trunc * + -'.split(' ').map((name) => [name, name]),
  ),
  '||': 'concat',
  unnest: 'arrayJoin',
  list_value: 'array',
  bool_or: 'max',
  any_value: 'any',
}

/** Functions that are written differently in ClickHouse. */
const FORMS: Record<string, (...args: Node[]) => Node> = {
  '/': (one, other) => call('divide', call('toFloat64', one), call('toFloat64', other)),
  round(value, digits) {
    const scale = double(10 ** Number(digits ? (digits.value ?? unknown('round to a column')).value : 0))
    const scaled = call('multiply', value, scale)
    const whole = call('trunc', scaled)
    const isHalf = call('greaterOrEquals', call('abs', call('minus', scaled, whole)), double(0.5))
    const away = call('if', isHalf, call('sign', scaled), integer(0))
    return call('divide', call('plus', whole, away), scale)
  },
  // DuckDB's `concat` treats a null as an empty text.
  concat: (...parts) =>
    call('concat', ...parts.map((part) => call('coalesce', call('toString', part), text('')))),
  '//': (one, other) => call('intDiv', one, call('nullif', other, integer(0))),
  // Weeks begin on another day there.
  date_diff: (unit, from, to) =>
    /^(day|month|year)$/.test(String(unit.value?.value))
      ? call('dateDiff', unit, from, to)
      : unknown('a unit of date_diff'),
  // Other letters mean something else there: `%M` is the name of a month.
  strftime: (instant, format) =>
    /^([^%]|%[Ymd])*$/.test(String(format.value?.value ?? '%'))
      ? call('formatDateTime', instant, format)
      : unknown('a format of strftime'),
  last_day: (day) => call('toDate32', call('toLastDayOfMonth', day)),
  range(end) {
    const given = call('greatest', call('coalesce', end, integer(0)), integer(0))
    return mapSteps('toInt64', [], given)
  },
  date_trunc: (unit, instant) =>
    unit.value?.value === 'month' ? call('toDate32', call('toStartOfMonth', instant)) : unknown('date_trunc'),
  list_sum({function_name, children: [value, count] = []}) {
    if (function_name !== 'max' || !value || !count) return unknown('list_sum')
    const values = call('arrayReverseSort', call('groupArray', value))
    return call('arraySum', call('arraySlice', values, integer(1), count))
  },
}

/** The results of a function for the numbers from 0 to below `end`. */
const mapSteps = (name: string, first: Node[], end: Node): Node => {
  const expr = call(name, ...first, column('step'))
  const each = make({class: 'LAMBDA', type: 'LAMBDA', lhs: column('step'), expr})
  return call('arrayMap', each, call('range', call('toUInt64', end)))
}

function rewriteFunction(node: Node): Node {
  const {function_name: name, children} = node
  if (name === 'getvariable') {
    const variable = String(children[0]?.value.value)
    return variable === 'as_of' ? column(AS_OF) : unknown(`the variable ${variable}`)
  }
  if (name === 'generate_series') return rewriteSeries(children)
  const parts = {...rewriteParts(node), schema: '', alias: ''}
  // Makes a count signed, because a difference of counts may be negative.
  if (name === 'count' || name === 'count_star') return call('toInt64', {...parts, function_name: 'count'})
  const [value] = parts.children
  if (name === 'quantile_disc' && value && isHalf(children[1]))
    return {...parts, function_name: 'medianExactLow', children: [value]}
  const other = NAMES[name]
  if (other !== undefined)
    return {...parts, function_name: other, is_operator: node.is_operator && other === name}
  return FORMS[name]?.(...parts.children) ?? unknown(`the function ${name}`)
}

/** The days or months from one date to another. */
function rewriteSeries([from, to, step]: readonly Node[]): Node {
  const unit = step && {to_days: 'Day', to_months: 'Month'}[step.function_name]
  if (!from || !to || !unit || findConstant(step) !== 1) return unknown('generate_series')
  const [first, last] = [rewrite(from), rewrite(to)]
  const dates = [first, last].map((date) => call('assumeNotNull', date))
  const count = call('plus', call('dateDiff', text(unit.toLowerCase()), ...dates), integer(1))
  return mapSteps(`add${unit}s`, [first], call('greatest', integer(0), count))
}

/** The parser's tree has 0.5 as a decimal. */
const isHalf = (node: Node | undefined) => node?.value?.value === 5 && node.value.type.type_info?.scale === 1

function findConstant(node: Node | undefined): unknown {
  return node?.value?.value ?? (node && findConstant(node.child ?? node.children?.[0]))
}
