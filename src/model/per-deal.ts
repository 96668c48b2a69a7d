import {DEAL_ID} from '../contract/deal.ts'
import {STREAMS} from '../contract/streams.ts'
import type {BuildPlan, Check, Model} from '../types.ts'
import {
  columnOf,
  conjunctsOf,
  type Node,
  nameOf,
  type Query,
  type Table,
  variableIn,
} from '../warehouse/select-tree.ts'
import {createModelError} from './model-error.ts'
import {findObjects, type ParsedSelect} from './table-references.ts'

/** The column of each raw table that says which deal a row is of; a raw table without one is of no deal. */
export const DEAL_COLUMNS: Readonly<Record<string, string>> = {
  ...Object.fromEntries(STREAMS.map(({name, parent}) => [`${name}_version`, parent?.column ?? DEAL_ID])),
  deal_confirmation: DEAL_ID,
  deal_extra: DEAL_ID,
  listing: 'parent_id',
  quarantine: 'record_id',
}

/**
 * What the rows of a relation depend on: nothing of any deal; the certificates of walks, of which later ones are added;
 * on the deal that `keys` name; or on nothing but the values of the columns `keys`, each there once.
 */
interface Relation {
  on: 'nothing' | 'walks' | 'deal' | 'values'
  keys: ReadonlySet<string>
}

const NOTHING: Relation = {on: 'nothing', keys: new Set()}

/** The relations that a FROM names. */
type Scope = ReadonlyMap<string, Relation>

/**
 * The models, of which those stay `per: deal_id` that read no table of deals that is built whole: somebody's own may have taken the
 * place of one that was not.
 *
 * @param models each behind what it reads
 */
export function markPerDeal(models: readonly Model[], reads: BuildPlan['reads']): Model[] {
  const marked: Model[] = []
  for (const model of models) {
    const isPerDeal = model.isPerDeal && !readsWholeDeals(reads.get(model.name), marked)
    marked.push({...model, isPerDeal})
  }
  return marked
}

/** The checks, of which those are run over the changed deals that read no table of deals that is built whole. */
export function markChecks(
  checks: readonly Check[],
  {models, checkReads}: Pick<BuildPlan, 'models' | 'checkReads'>,
): Check[] {
  return checks.map((check) =>
    readsWholeDeals(checkReads.get(check.name), models) ? {...check, changedSql: undefined} : check,
  )
}

function readsWholeDeals(read: readonly string[] | undefined, models: readonly Model[]): boolean {
  return models.some(
    ({name, isPerDeal, columns}) =>
      !isPerDeal && read?.includes(name) && columns.some((column) => column.name === DEAL_ID),
  )
}

/**
 * Holds of a model or check with `-- per: deal_id` that each of its rows depends on rows of the same deal alone, as far as its
 * SELECT shows: joins and windows keep the deal, rows are counted by one, and `as_of` and `known_at` do nothing but say which
 * raw rows count.
 *
 * @throws CheckError `MODEL_PER_DEAL`, with file and line
 */
export function requirePerDeal(
  model: Pick<Model, 'name' | 'file'>,
  select: ParsedSelect,
  models: BuildPlan['models'],
): void {
  const [statement] = select.statements as {node: Query}[]
  const perDeal = new Set(models.filter(({isPerDeal}) => isPerDeal).map(({name}) => name))
  const refuse = (problem: string, node?: Pick<Node, 'query_location'>): never => {
    const line = node?.query_location === undefined ? 1 : select.lineAt(node.query_location)
    throw createModelError(
      'MODEL_PER_DEAL',
      {file: model.file, line},
      `'${model.name}' says \`per: ${DEAL_ID}\`, but ${problem}: expected rows that depend on rows of their own deal alone,`,
    )
  }
  const relation = statement && relationOf(statement.node, new Map(), {perDeal, refuse})
  if (relation?.on !== 'deal' || !relation.keys.has(DEAL_ID))
    refuse(`no column '${DEAL_ID}' of it names the deal`)
  requireCountedRows(select, refuse)
}

/** What is known while a SELECT is looked at. */
interface Context {
  perDeal: ReadonlySet<string>
  refuse: (problem: string, node?: Pick<Node, 'query_location'>) => never
}

const COUNTED: Record<string, string> = {as_of: 'business_date', known_at: 'recorded_at'}

/** `as_of` and `known_at` say of each raw table, and of nothing else, which of its rows count; lists count with their walk. */
function requireCountedRows(select: ParsedSelect, refuse: Context['refuse']): void {
  const moments = Object.keys(COUNTED)
  const uses = findObjects(select.statements, (node: Node) => moments.includes(variableIn(node) ?? ''))
  const selects = findObjects(select.statements, (node: Query) => node.type === 'SELECT_NODE')
  const filters = selects
    .filter(({from_table}) => from_table.schema_name === 'raw')
    .map(({from_table, where_clause}) => ({from_table, uses: conjunctsOf(where_clause).flatMap(momentOf)}))
  const allowed = filters.flatMap((filter) => filter.uses)
  const other = uses.find((node) => !allowed.includes(node))
  if (other) refuse(`it uses ${variableIn(other)} for more than which raw rows count`, other)
  const tables = findObjects(select.statements, (node: Table) => node.schema_name === 'raw')
  const whole = tables
    .filter(({table_name}) => table_name !== 'listing')
    .find((table) => filters.find(({from_table}) => from_table === table)?.uses.length !== moments.length)
  if (whole) refuse(`it does not say which rows of raw.${whole.table_name} count`, whole)
}

/** The variable that a condition compares with its own column, as in `business_date <= cast(getvariable('as_of') as date)`. */
function momentOf({type, left, right}: Node): Node[] {
  if (type !== 'COMPARE_LESSTHANOREQUALTO' || left.class !== 'COLUMN_REF') return []
  const variable = right.child ?? right
  return columnOf(left) === COUNTED[variableIn(variable) ?? ''] ? [variable] : []
}

function relationOf(query: Query, outer: Scope, context: Context): Relation {
  const {refuse} = context
  const named = new Map(outer)
  const modifiers = query.modifiers
  const picks = ({type, distinct_on_targets: targets = []}: (typeof modifiers)[number]) =>
    type === 'LIMIT_MODIFIER' || targets.length > 0
  if (modifiers.some(picks)) refuse('it takes some rows of all deals')
  for (const {key, value} of query.cte_map.map) named.set(key, relationOf(value.query.node, named, context))
  if (query.type === 'SET_OPERATION_NODE') {
    const [left, right] = [relationOf(query.left, named, context), relationOf(query.right, named, context)]
    if (left.on !== right.on) refuse('it puts rows of deals and others together')
    return {on: left.on, keys: new Set([...left.keys].filter((key) => right.keys.has(key)))}
  }
  if (query.type !== 'SELECT_NODE') return refuse('it is more than SELECTs and their unions')
  const scope = scopeOf(query.from_table, named, context)
  const on = [...scope.values()].map((relation) => relation.on)
  for (const part of [query.select_list, query.where_clause, query.having, query.qualify])
    requireSubqueries(part, scope, named, context)
  if (!on.includes('deal')) {
    const values = [...scope.values()].find((relation) => relation.on === 'values')
    if (values) return {on: 'values', keys: outputKeys(query, scope, 'values')}
    return on.includes('walks') ? {on: 'walks', keys: new Set()} : NOTHING
  }
  const windows = findObjects([query.select_list, query.qualify], (node: Node) => node.class === 'WINDOW')
  const mixed = windows.find(({partitions}) => !partitions.some(isKeyIn(scope)))
  if (mixed) refuse('a window reaches over deals', mixed)
  const groups = query.group_expressions
  if (groups.length > 0 && !(query.group_sets.length === 1 && groups.some(isKeyIn(scope))))
    refuse('it groups rows of several deals', groups[0])
  const keys = outputKeys(query, scope)
  if (keys.size > 0) return {on: 'deal', keys}
  const [only, ...more] = query.select_list
  if (modifiers.some(({type}) => type === 'DISTINCT_MODIFIER') && only?.column_names && more.length === 0)
    return {on: 'values', keys: new Set([nameOf(only)])}
  return refuse('rows of several deals become one', only)
}

/** The columns of a SELECT that are keys of what it selects from: of the deal, where there is one. */
function outputKeys({select_list}: Query, scope: Scope, on: 'deal' | 'values' = 'deal'): Set<string> {
  const keys = new Set<string>()
  for (const item of select_list) {
    if (item.class === 'STAR' && !item.columns) {
      for (const [name, relation] of scope)
        if ([undefined, '', name].includes(item.relation_name)) for (const key of relation.keys) keys.add(key)
      for (const {key} of item.replace_list) keys.delete(key)
    } else if (isKeyIn(scope, on)(item)) keys.add(nameOf(item))
  }
  return keys
}

/** Whether an expression is a key: the column itself, or a CASE that gives it or nothing. */
function isKeyIn(scope: Scope, on: 'deal' | 'values' = 'deal'): (node: Node | undefined) => boolean {
  return (node) => {
    if (node?.class === 'CASE') {
      const results = [...node.case_checks.map(({then_expr}) => then_expr), node.else_expr]
      return results.every((result) => result.class === 'CONSTANT' || isKeyIn(scope, on)(result))
    }
    if (node?.class !== 'COLUMN_REF') return false
    const [column, table] = node.column_names?.toReversed() ?? []
    return [...scope].some(
      ([name, relation]) =>
        relation.on === on && relation.keys.has(column ?? '') && (table === undefined || table === name),
    )
  }
}

function scopeOf(table: Table, named: Scope, context: Context): Scope {
  switch (table.type) {
    case 'BASE_TABLE':
      return new Map([[table.alias || table.table_name, relationOfTable(table, named, context)]])
    case 'SUBQUERY':
      return new Map([[table.alias ?? '', relationOf(table.subquery.node, named, context)]])
    case 'JOIN': {
      const [left, right] = [scopeOf(table.left, named, context), scopeOf(table.right, named, context)]
      const joined = joinScopes(table, left, right, context.refuse)
      requireSubqueries(table.condition, joined, named, context)
      return joined
    }
    case 'EMPTY':
    case 'EXPRESSION_LIST':
    case 'TABLE_FUNCTION':
      return new Map([[table.alias ?? '', NOTHING]])
    default:
      return context.refuse(`it reads from a ${table.type}`, table)
  }
}

function relationOfTable(table: Table, named: Scope, {perDeal, refuse}: Context): Relation {
  const {schema_name: schema, table_name: name} = table
  const known = schema === '' ? named.get(name) : undefined
  if (known) return known
  if (schema === 'raw') {
    if (name === 'walk') return {on: 'walks', keys: new Set()}
    return {on: 'deal', keys: new Set([DEAL_COLUMNS[name] ?? refuse(`raw.${name} is not of deals`, table)])}
  }
  return perDeal.has(`${schema}.${name}`) ? {on: 'deal', keys: new Set([DEAL_ID])} : NOTHING
}

/** Joins two sides: what is of deals is joined to rows of the same deal, and to walks in a way that later walks do not change. */
function joinScopes(join: Table, left: Scope, right: Scope, refuse: Context['refuse']): Scope {
  const has = (scope: Scope, ...on: Relation['on'][]) =>
    [...scope.values()].some((relation) => on.includes(relation.on))
  const isInner = ['INNER', 'CROSS'].includes(join.join_type) || join.ref_type === 'CROSS'
  if (!isInner && !['LEFT', 'SEMI', 'ANTI'].includes(join.join_type))
    refuse(`of a ${join.join_type} join`, join)
  const conditions = conjunctsOf(join.condition)
  const isEqual = (matches: (one: Node, other: Node) => boolean) =>
    conditions
      .filter(({type}) => type === 'COMPARE_EQUAL')
      .some(({left, right}) => matches(left, right) || matches(right, left))
  const [isLeftOfDeals, isRightOfDeals] = [has(left, 'deal', 'values'), has(right, 'deal', 'values')]
  if (isRightOfDeals && !isLeftOfDeals && !isInner) refuse('it joins deals to what is of none', join)
  if (isRightOfDeals && isLeftOfDeals) {
    const isSameDeal =
      join.using_columns.includes(DEAL_ID) ||
      isEqual((one, other) => isKeyIn(left)(one) && isKeyIn(right)(other))
    const isSameValue = isEqual((_, other) => isKeyIn(right, 'values')(other))
    if (!has(left, 'deal') || !(has(right, 'deal') ? isSameDeal : isSameValue))
      refuse('it joins rows of different deals', join)
  }
  const isByWalk = isEqual((one, other) => [one, other].every((node) => columnOf(node) === 'walk_id'))
  const isLastBefore =
    join.ref_type === 'ASOF' &&
    conditions.some(
      (condition) =>
        condition.type === 'COMPARE_GREATERTHAN' && WALK_TIMES.includes(columnOf(condition.right)),
    )
  const meetsWalks =
    (isLeftOfDeals && has(right, 'walks')) || (!isLeftOfDeals && has(left, 'walks') && isRightOfDeals)
  if (meetsWalks && !isByWalk && !(isLeftOfDeals && isLastBefore))
    refuse('it joins walks that may still come', join)
  return new Map([...left, ...right])
}

/** The times of a walk: of one that comes later neither lies before what was known. */
const WALK_TIMES: readonly (string | undefined)[] = ['ended_at', 'recorded_at']

/** A subquery within an expression asks for the deal's own rows, or for none of deals. */
function requireSubqueries(part: unknown, scope: Scope, named: Scope, context: Context): void {
  for (const node of findObjects(part, (node: Node) => node.class === 'SUBQUERY')) {
    const {subquery, subquery_type, child} = node
    const relation = relationOf(subquery.node, named, context)
    const [first] = subquery.node.select_list
    const isOwn =
      subquery_type === 'ANY' && isKeyIn(scope)(child) && first && relation.keys.has(nameOf(first))
    if (relation.on !== 'nothing' && !isOwn) context.refuse('a subquery asks for rows of other deals', node)
  }
}
