const quoted = (text: string, mark: string): string =>
  `${mark}${text.replaceAll('\\', '\\\\').replaceAll(mark, `\\${mark}`)}${mark}`

/** A name quoted for ClickHouse. */
export const quote = (name: string): string => quoted(name, '`')

/** A text quoted for ClickHouse. */
export const literal = (text: string): string => quoted(text, "'")

/** What the names of tables and variables become. */
interface Names {
  /** @param table `core.deal`; never a CTE */
  table(table: string): string
  /** @param variable `as_of` */
  variable(variable: string): string
}

/** Something that cannot be written for ClickHouse; the message names it. */
export class NotRewritten extends Error {}

const unknown = (what: string): never => {
  throw new NotRewritten(what)
}

/**
 * Writes the SELECT of a model in the SQL of ClickHouse, from the parser's tree. Anything unknown is refused by name, never guessed.
 * Columns keep their names; their types may differ, and the caller casts them. Divisions are done in DOUBLE, and halves round away from
 * zero, as in DuckDB.
 *
 * @param tree a statement of `json_serialize_sql`
 * @throws NotRewritten
 */
export function toClickhouseSql(tree: unknown, names: Names): string {
  return writeQuery((tree as {node: Node}).node, names)
}

/**
 * The part we read of the tree that DuckDB's parser makes of a SELECT (`json_serialize_sql`): an expression, whose parts depend on
 * its `class`; or a query, table or join, whose parts depend on its `type`.
 */
interface Node {
  class?: string
  type: string
  alias?: string
  // Of expressions.
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
  subquery: {node: Node}
  relation_name: string
  exclude_list: string[]
  replace_list: unknown[]
  input: Node
  lower: Node
  upper: Node
  // Of queries.
  modifiers: {type: string; orders?: Order[]; limit?: Node | null; offset?: Node | null}[]
  cte_map: {map: {key: string; value: {query: {node: Node}}}[]}
  select_list: Node[]
  from_table: Node
  where_clause: Node | null
  group_expressions: Node[]
  group_sets: number[][]
  aggregate_handling: string
  having: Node | null
  qualify: Node | null
  setop_type: string
  setop_all: boolean
  // Of tables and joins.
  schema_name: string
  table_name: string
  condition: Node | null
  join_type: string
  ref_type: string
}

type Order = {type: string; null_order: string; expression: Node}
type Type = {id: string; type_info: {width: number; scale: number} | null}

/** Parts of a node that do not change its meaning. */
const PLAIN = ['query_location', 'alias', 'type', 'class', 'schema', 'catalog', 'export_state', 'is_operator']

/** Values of parts that are not used. */
const UNUSED = ['STANDARD_HANDLING', 'NO_OTHER', 'INVALID', 'ORDER_MODIFIER']

function isUnused(value: unknown): boolean {
  if (typeof value !== 'object' || value === null) return !value || UNUSED.includes(String(value))
  return Object.values(value).every(isUnused)
}

/** The parts that are written for each class of expression, and for each type of query, table and join. */
const PARTS: Record<string, string> = {
  CONSTANT: 'value',
  COLUMN_REF: 'column_names',
  CAST: 'child cast_type',
  COMPARISON: 'left right',
  CONJUNCTION: 'children',
  BETWEEN: 'input lower upper',
  CASE: 'case_checks else_expr',
  OPERATOR: 'children',
  SUBQUERY: 'subquery subquery_type',
  FUNCTION: 'function_name children filter distinct',
  WINDOW: 'function_name children partitions orders start end filter_expr',
  SELECT_NODE:
    'modifiers cte_map select_list from_table where_clause group_expressions group_sets aggregate_handling having qualify',
  SET_OPERATION_NODE: 'modifiers cte_map setop_type setop_all left right',
  BASE_TABLE: 'schema_name table_name',
  JOIN: 'left right condition join_type ref_type',
  DISTINCT_MODIFIER: '',
}

/** Refuses a node with parts that are not written, because they would be lost silently. */
function requireOnly(node: {class?: string; type: string}): void {
  const kind = node.class ?? node.type
  const written = PARTS[kind]?.split(' ') ?? unknown(kind === node.type ? kind : `${kind} ${node.type}`)
  for (const [part, value] of Object.entries(node))
    if (![...PLAIN, ...written].includes(part) && !isUnused(value)) unknown(part.replaceAll('_', ' '))
}

const COMPARISONS: Record<string, string> = {
  COMPARE_EQUAL: '=',
  COMPARE_NOTEQUAL: '<>',
  COMPARE_LESSTHAN: '<',
  COMPARE_LESSTHANOREQUALTO: '<=',
  COMPARE_GREATERTHAN: '>',
  COMPARE_GREATERTHANOREQUALTO: '>=',
}

function write(node: Node, names: Names): string {
  requireOnly(node)
  const of = (one: Node) => write(one, names)
  switch (node.class) {
    case 'CONSTANT':
      return writeConstant(node)
    case 'COLUMN_REF':
      return node.column_names.map(quote).join('.')
    case 'CAST':
      return writeCast(node.child, node.cast_type, names)
    case 'COMPARISON':
      return `(${of(node.left)} ${COMPARISONS[node.type] ?? unknown(node.type)} ${of(node.right)})`
    case 'BETWEEN':
      return `(${of(node.input)} between ${of(node.lower)} and ${of(node.upper)})`
    case 'CONJUNCTION':
      return `(${node.children.map(of).join(node.type === 'CONJUNCTION_AND' ? ' and ' : ' or ')})`
    case 'CASE': {
      const checks = node.case_checks.map(
        ({when_expr, then_expr}) => `when ${of(when_expr)} then ${of(then_expr)}`,
      )
      return `case ${checks.join(' ')} else ${of(node.else_expr)} end`
    }
    case 'OPERATOR':
      return writeOperator(node, node.children.map(of))
    case 'SUBQUERY': {
      const query = writeQuery(node.subquery.node, names)
      if (node.subquery_type === 'SCALAR') return `(\n${query}\n)`
      return node.subquery_type === 'EXISTS' ? `exists (\n${query}\n)` : unknown(node.subquery_type)
    }
    case 'FUNCTION':
      return writeFunction(node, names)
    case 'WINDOW':
      return writeWindow(node, names)
    default:
      return unknown(`${node.class} ${node.type}`)
  }
}

function writeConstant({value}: Node): string {
  const {type, is_null, value: content} = value
  if (is_null) return 'null'
  if (type.id === 'VARCHAR') return literal(String(content))
  if (['INTEGER', 'BIGINT', 'DOUBLE'].includes(type.id))
    return type.id === 'DOUBLE' ? `toFloat64(${String(content)})` : String(content)
  if (type.id === 'BOOLEAN') return String(content)
  const {type_info: decimal} = type
  if (type.id !== 'DECIMAL' || !decimal) return unknown(`a constant of type ${type.id}`)
  const digits = String(content).padStart(decimal.scale + 1, '0')
  const text = `${digits.slice(0, digits.length - decimal.scale)}.${digits.slice(digits.length - decimal.scale)}`
  return `toDecimal64('${text}', ${decimal.scale})`
}

function writeCast(child: Node, {id, type_info}: Type, names: Names): string {
  if (id === 'BOOLEAN' && child.class === 'CONSTANT') return child.value.value === 't' ? 'true' : 'false'
  const text = write(child, names)
  if (id === 'DATE') return `toDate32(${text})`
  if (id === 'DOUBLE') return `toFloat64(${text})`
  if (id === 'VARCHAR') return `cast(${text} as Nullable(String))`
  if (id === 'DECIMAL' && type_info) {
    const {width, scale} = type_info
    return `${width > 18 ? 'toDecimal128' : 'toDecimal64'}(round(${text}, ${scale}), ${scale})`
  }
  // DuckDB rounds to the nearest whole number.
  const whole = {HUGEINT: 'Int128', BIGINT: 'Int64', INTEGER: 'Int32'}[id]
  return whole === undefined ? unknown(`a cast to ${id}`) : `cast(round(${text}) as Nullable(${whole}))`
}

function writeOperator({type}: Node, parts: string[]): string {
  const [first = '', ...others] = parts
  const written: Record<string, string> = {
    OPERATOR_COALESCE: `coalesce(${parts.join(', ')})`,
    OPERATOR_IS_NULL: `(${first} is null)`,
    OPERATOR_IS_NOT_NULL: `(${first} is not null)`,
    OPERATOR_NOT: `(not ${first})`,
    GROUPING_FUNCTION: `grouping(${first})`,
    COMPARE_IN: `(${first} in (${others.join(', ')}))`,
    COMPARE_NOT_IN: `(${first} not in (${others.join(', ')}))`,
  }
  return written[type] ?? unknown(type)
}

/** Functions with another name or form in ClickHouse. */
const FUNCTIONS: Record<string, (...args: string[]) => string> = {
  '*': (one, other) => `(${one} * ${other})`,
  '+': (one, other) => `(${one} + ${other})`,
  '-': (one, other) => (other === undefined ? `(-${one})` : `(${one} - ${other})`),
  '/': (one, other) => `(toFloat64(${one}) / toFloat64(${other}))`,
  '//': (one, other) => `intDiv(${one}, ${other})`,
  '||': (one, other) => `concat(${one}, ${other})`,
  round: (value, digits) => {
    const scaled = `(${value} * 1e${digits})`
    return `((trunc(${scaled}) + if(abs(${scaled} - trunc(${scaled})) >= 0.5, sign(${scaled}), 0)) / 1e${digits})`
  },
  unnest: (list) => `arrayJoin(${list})`,
  list_value: (...items) => `[${items.join(', ')}]`,
  bool_or: (value) => `max(${value})`,
  any_value: (value) => `any(${value})`,
  last_day: (day) => `toDate32(toLastDayOfMonth(${day}))`,
  range: (end) => `arrayMap(step -> toInt64(step), range(toUInt64(greatest(coalesce(${end}, 0), 0))))`,
  strftime: (instant, format) => `formatDateTime(${instant}, ${format})`,
}

/** Functions that ClickHouse also has. */
const SAME = ['nullif', 'max', 'min', 'sum', 'coalesce', 'greatest', 'least', 'floor', 'trunc']

function writeFunction(node: Node, names: Names): string {
  const {function_name: name, children, filter, distinct} = node
  if (name === 'getvariable') return names.variable(String(children[0]?.value.value))
  if (name === 'generate_series') return writeSeries(children, names)
  const args = children.map((child) => write(child, names))
  const [first = '', second = ''] = args
  const special: Record<string, () => string> = {
    // A null counts as the empty text.
    concat: () => `concat(${args.map((arg) => `coalesce(toString(${arg}), '')`).join(', ')})`,
    date_diff: () => `dateDiff(${args.join(', ')})`,
    date_trunc: () =>
      first === `'month'` ? `toDate32(toStartOfMonth(${second}))` : unknown(`date_trunc ${first}`),
    list_sum: () => {
      const [{function_name, children: [value, count] = []} = {} as Node] = children
      if (function_name !== 'max' || !value || !count) return unknown('list_sum')
      const values = `arrayReverseSort(groupArray(${write(value, names)}))`
      return `arraySum(arraySlice(${values}, 1, ${write(count, names)}))`
    },
  }
  if (special[name]) return special[name]()
  const condition = filter ? ` filter (where ${write(filter, names)})` : ''
  // A count is signed, because a difference of counts may be negative.
  if (name === 'count_star') return `toInt64(count()${condition})`
  if (name === 'count') return `toInt64(count(${distinct ? 'distinct ' : ''}${first})${condition})`
  const known = FUNCTIONS[name]
  if (known && !distinct) return `${known(...args)}${condition}`
  if (!SAME.includes(name)) return unknown(`the function ${name}`)
  return `${name}(${distinct ? 'distinct ' : ''}${args.join(', ')})${condition}`
}

/** The days or months from one date to another, as a list. */
function writeSeries([from, to, step]: readonly Node[], names: Names): string {
  const unit = step && {to_days: 'Day', to_months: 'Month'}[step.function_name]
  if (!from || !to || !unit || findConstant(step) !== 1) return unknown('generate_series')
  const [first, last] = [write(from, names), write(to, names)]
  const count = `dateDiff('${unit.toLowerCase()}', assumeNotNull(${first}), assumeNotNull(${last})) + 1`
  return `arrayMap(step -> add${unit}s(${first}, step), range(toUInt64(greatest(0, ${count}))))`
}

function findConstant(node: Node | undefined): unknown {
  return node?.value?.value ?? (node && findConstant(node.child ?? node.children?.[0]))
}

function writeWindow(node: Node, names: Names): string {
  const {function_name: name, children, partitions, orders, start, end, filter_expr} = node
  if (start !== 'UNBOUNDED_PRECEDING' || end !== 'CURRENT_ROW_RANGE') unknown(`a frame of ${name}`)
  const args = children.map((child) => write(child, names)).join(', ')
  const by =
    partitions.length > 0 ? `partition by ${partitions.map((one) => write(one, names)).join(', ')}` : ''
  const order = orders.length > 0 ? `order by ${writeOrders(orders, names)}` : ''
  const condition = filter_expr ? ` filter (where ${write(filter_expr, names)})` : ''
  const text = `${name}(${args})${condition} over (${[by, order].filter(Boolean).join(' ')})`
  return ['count', 'row_number', 'dense_rank'].includes(name) ? `toInt64(${text})` : text
}

function writeOrders(orders: readonly Order[], names: Names): string {
  return orders
    .map(({type, null_order, expression}) => {
      const down = type === 'DESCENDING' ? ' desc' : ''
      if (!['ORDER_DEFAULT', 'NULLS LAST', 'NULLS FIRST'].includes(null_order)) unknown(null_order)
      return `${write(expression, names)}${down} ${null_order === 'NULLS FIRST' ? 'nulls first' : 'nulls last'}`
    })
    .join(', ')
}

function writeQuery(query: Node, names: Names): string {
  requireOnly(query)
  const ctes = query.cte_map.map.map(
    ({key, value}) => `${quote(key)} as (\n${writeQuery(value.query.node, names)}\n)`,
  )
  const isDistinct = query.modifiers.some(({type}) => type === 'DISTINCT_MODIFIER')
  const tail = query.modifiers.flatMap((modifier) => {
    const {type, orders, limit, offset} = modifier
    if (type === 'DISTINCT_MODIFIER') return requireOnly(modifier) ?? []
    if (type === 'ORDER_MODIFIER') return `order by ${writeOrders(orders ?? [], names)}`
    return type === 'LIMIT_MODIFIER' && limit && !offset ? `limit ${write(limit, names)}` : unknown(type)
  })
  const body =
    query.type === 'SELECT_NODE' ? writeSelect(query, isDistinct, names) : writeSetOperation(query, names)
  return joinLines(ctes.length > 0 && `with\n${ctes.join(',\n')}`, ...body, ...tail)
}

const joinLines = (...lines: (string | false)[]): string => lines.filter(Boolean).join('\n')

function writeSetOperation({setop_type, setop_all, left, right}: Node, names: Names): string[] {
  if (setop_type !== 'UNION') unknown(setop_type)
  return [writeQuery(left, names), `union ${setop_all ? 'all' : 'distinct'}`, writeQuery(right, names)]
}

function writeSelect(query: Node, isDistinct: boolean, names: Names): (string | false)[] {
  const {from_table: from, where_clause, having, qualify} = query
  const clause = (word: string, condition: Node | null) => condition && `${word} ${write(condition, names)}`
  return [
    `select${isDistinct ? ' distinct' : ''}\n${writeItems(query.select_list, names).join(',\n')}`,
    from.type !== 'EMPTY' && `from ${writeTable(from, names)}`,
    clause('where', where_clause) ?? '',
    writeGroups(query, names),
    clause('having', having) ?? '',
    clause('qualify', qualify) ?? '',
  ]
}

/** The columns of a SELECT. Several unnested lists are zipped, because separate array joins would multiply rows. */
function writeItems(list: readonly Node[], names: Names): string[] {
  const unnested = list.filter((item) => item.function_name === 'unnest')
  const lists = unnested.map(({children}) => write(children[0] as Node, names))
  return list.map((item) => {
    if (item.class === 'STAR') return writeStar(item)
    const isZipped = lists.length > 1 && unnested.includes(item)
    const text = isZipped
      ? `tupleElement(arrayJoin(arrayZip(${lists.join(', ')})), ${unnested.indexOf(item) + 1})`
      : write(item, names)
    const name = item.alias || item.column_names?.at(-1)
    return name ? `${text} as ${quote(name)}` : text
  })
}

function writeStar({relation_name, exclude_list, replace_list}: Node): string {
  if (replace_list.length > 0) unknown('a star with replace')
  const star = relation_name === '' ? '*' : `${quote(relation_name)}.*`
  return exclude_list.length === 0 ? star : `${star} except (${exclude_list.map(quote).join(', ')})`
}

function writeGroups({group_expressions, group_sets, aggregate_handling}: Node, names: Names): string {
  if (aggregate_handling === 'FORCE_AGGREGATES') return 'group by all'
  if (group_expressions.length === 0) return ''
  const keys = group_expressions.map((key) => write(key, names))
  const [first = []] = group_sets
  if (group_sets.length <= 1 && first.length === keys.length) return `group by ${keys.join(', ')}`
  const sets = group_sets.map((set) => `(${set.map((index) => keys[index]).join(', ')})`)
  return `group by grouping sets (${sets.join(', ')})`
}

const JOINS: Record<string, string> = {INNER: 'inner join', LEFT: 'left join'}

function writeTable(table: Node, names: Names): string {
  requireOnly(table)
  const {schema_name, table_name: name, ref_type, condition} = table
  if (table.type === 'BASE_TABLE')
    return `${schema_name === '' ? quote(name) : names.table(`${schema_name}.${name}`)} as ${quote(table.alias || name)}`
  if (table.type === 'SUBQUERY') {
    const as = table.alias ? ` as ${quote(table.alias)}` : ''
    return `(\n${writeQuery(table.subquery.node, names)}\n)${as}`
  }
  const [left, right] = [writeTable(table.left, names), writeTable(table.right, names)]
  if (ref_type === 'CROSS') return `${left}\ncross join ${right}`
  if (ref_type !== 'REGULAR') unknown(ref_type)
  const join = JOINS[table.join_type] ?? unknown(`a join of type ${table.join_type}`)
  return `${left}\n${join} ${right} on ${condition ? write(condition, names) : '1 = 1'}`
}
