import type {Node, Order, Type} from '../warehouse/select-tree.ts'
import {literal, quote} from './quote.ts'
import {requireOnly, type Scope, unknown} from './scope.ts'

/** What is written of each class of expression. */
const PARTS: Record<string, string[]> = {
  CONSTANT: ['value'],
  COLUMN_REF: ['column_names'],
  CAST: ['child', 'cast_type'],
  COMPARISON: ['left', 'right'],
  CONJUNCTION: ['children'],
  BETWEEN: ['input', 'lower', 'upper'],
  CASE: ['case_checks', 'else_expr'],
  OPERATOR: ['children'],
  SUBQUERY: ['subquery', 'subquery_type'],
  FUNCTION: ['function_name', 'children', 'filter', 'distinct'],
  WINDOW: ['function_name', 'children', 'partitions', 'orders', 'start', 'end', 'filter_expr'],
}

const COMPARISONS: Record<string, string> = {
  COMPARE_EQUAL: '=',
  COMPARE_NOTEQUAL: '<>',
  COMPARE_LESSTHAN: '<',
  COMPARE_LESSTHANOREQUALTO: '<=',
  COMPARE_GREATERTHAN: '>',
  COMPARE_GREATERTHANOREQUALTO: '>=',
}

export function write(node: Node, scope: Scope): string {
  requireOnly(node, PARTS[node.class] ?? unknown(`${node.class} ${node.type}`))
  const of = (one: Node) => write(one, scope)
  switch (node.class) {
    case 'CONSTANT':
      return writeConstant(node)
    case 'COLUMN_REF':
      return node.column_names.map(quote).join('.')
    case 'CAST':
      return writeCast(node.child, node.cast_type, scope)
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
      const query = scope.query(node.subquery.node)
      if (node.subquery_type === 'SCALAR') return `(\n${query}\n)`
      return node.subquery_type === 'EXISTS' ? `exists (\n${query}\n)` : unknown(node.subquery_type)
    }
    case 'FUNCTION':
      return writeFunction(node, scope)
    case 'WINDOW':
      return writeWindow(node, scope)
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

function writeCast(child: Node, {id, type_info}: Type, scope: Scope): string {
  if (id === 'BOOLEAN' && child.class === 'CONSTANT') return child.value.value === 't' ? 'true' : 'false'
  const text = write(child, scope)
  if (id === 'DATE') return `toDate32(${text})`
  if (id === 'DOUBLE') return `toFloat64(${text})`
  if (id === 'VARCHAR') return `cast(${text} as Nullable(String))`
  if (id === 'DECIMAL' && type_info) {
    const {width, scale} = type_info
    return `${width > 18 ? 'toDecimal128' : 'toDecimal64'}(round(${text}, ${scale}), ${scale})`
  }
  // A fraction becomes the nearest whole number.
  const whole = {HUGEINT: 'Int128', BIGINT: 'Int64', INTEGER: 'Int32'}[id]
  return whole === undefined ? unknown(`a cast to ${id}`) : `cast(round(${text}) as Nullable(${whole}))`
}

function writeOperator({type}: Node, parts: string[]): string {
  const [first = '', ...others] = parts
  switch (type) {
    case 'OPERATOR_COALESCE':
      return `coalesce(${parts.join(', ')})`
    case 'OPERATOR_IS_NULL':
      return `(${first} is null)`
    case 'OPERATOR_IS_NOT_NULL':
      return `(${first} is not null)`
    case 'OPERATOR_NOT':
      return `(not ${first})`
    case 'GROUPING_FUNCTION':
      return `grouping(${first})`
    case 'COMPARE_IN':
      return `(${first} in (${others.join(', ')}))`
    case 'COMPARE_NOT_IN':
      return `(${first} not in (${others.join(', ')}))`
    default:
      return unknown(type)
  }
}

/** Functions of another name or form; those of {@link SAME} are called as they are. */
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

const SAME = ['nullif', 'max', 'min', 'sum', 'coalesce', 'greatest', 'least', 'floor', 'trunc']

function writeFunction(node: Node, scope: Scope): string {
  const {function_name: name, children, filter, distinct} = node
  if (name === 'getvariable') return scope.variable(String(children[0]?.value.value))
  if (name === 'generate_series') return writeSeries(children, scope)
  const args = children.map((child) => write(child, scope))
  const [first = '', second = ''] = args
  const special: Record<string, () => string> = {
    // What is nothing counts as the empty text.
    concat: () => `concat(${args.map((arg) => `coalesce(toString(${arg}), '')`).join(', ')})`,
    date_diff: () => `dateDiff(${args.join(', ')})`,
    date_trunc: () =>
      first === `'month'` ? `toDate32(toStartOfMonth(${second}))` : unknown(`date_trunc ${first}`),
    list_sum: () => {
      const [{function_name, children: [value, count] = []} = {} as Node] = children
      if (function_name !== 'max' || !value || !count) return unknown('list_sum')
      const values = `arrayReverseSort(groupArray(${write(value, scope)}))`
      return `arraySum(arraySlice(${values}, 1, ${write(count, scope)}))`
    },
  }
  if (special[name]) return special[name]()
  const condition = filter ? ` filter (where ${write(filter, scope)})` : ''
  // A count is signed: what is taken from it may be more.
  if (name === 'count_star') return `toInt64(count()${condition})`
  if (name === 'count') return `toInt64(count(${distinct ? 'distinct ' : ''}${first})${condition})`
  const known = FUNCTIONS[name]
  if (known && !distinct) return `${known(...args)}${condition}`
  if (!SAME.includes(name)) return unknown(`the function ${name}`)
  return `${name}(${distinct ? 'distinct ' : ''}${args.join(', ')})${condition}`
}

/** The days or months from one to another, as a list. */
function writeSeries([from, to, step]: readonly Node[], scope: Scope): string {
  const unit = step && {to_days: 'Day', to_months: 'Month'}[step.function_name]
  if (!from || !to || !unit || findConstant(step) !== 1) return unknown('generate_series')
  const [first, last] = [write(from, scope), write(to, scope)]
  const count = `dateDiff('${unit.toLowerCase()}', assumeNotNull(${first}), assumeNotNull(${last})) + 1`
  return `arrayMap(step -> add${unit}s(${first}, step), range(toUInt64(greatest(0, ${count}))))`
}

function findConstant(node: Node | undefined): unknown {
  return node?.value?.value ?? (node && findConstant(node.child ?? node.children?.[0]))
}

function writeWindow(node: Node, scope: Scope): string {
  const {function_name: name, children, partitions, orders, start, end, filter_expr} = node
  if (start !== 'UNBOUNDED_PRECEDING' || end !== 'CURRENT_ROW_RANGE') unknown(`a frame of ${name}`)
  const args = children.map((child) => write(child, scope)).join(', ')
  const by =
    partitions.length > 0 ? `partition by ${partitions.map((one) => write(one, scope)).join(', ')}` : ''
  const order = orders.length > 0 ? `order by ${writeOrders(orders, scope)}` : ''
  const condition = filter_expr ? ` filter (where ${write(filter_expr, scope)})` : ''
  const text = `${name}(${args})${condition} over (${[by, order].filter(Boolean).join(' ')})`
  return ['count', 'row_number', 'dense_rank'].includes(name) ? `toInt64(${text})` : text
}

export function writeOrders(orders: readonly Order[], scope: Scope): string {
  return orders
    .map(({type, null_order, expression}) => {
      const down = type === 'DESCENDING' ? ' desc' : ''
      if (!['ORDER_DEFAULT', 'NULLS LAST', 'NULLS FIRST'].includes(null_order)) unknown(null_order)
      return `${write(expression, scope)}${down} ${null_order === 'NULLS FIRST' ? 'nulls first' : 'nulls last'}`
    })
    .join(', ')
}
