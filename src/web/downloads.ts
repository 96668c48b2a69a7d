import {QUOTED, quoteLiteral, quoteName, trimStatement} from '../store/database.ts'
import type {TableColumn} from '../store/sql.ts'
import {type Block, listShown} from './cells.ts'
import {LONGEST_ADDRESS, linked} from './figures.ts'
import {addressOf, ofAllDeals} from './filter.ts'
import {type Html, html} from './html.ts'
import type {AskingView, View} from './view.ts'

const QUOTED_OR_PARAM = new RegExp(String.raw`${QUOTED}|(?<!\w)[$?]([\p{L}\p{M}\p{N}_]*)`, 'gisu')

export const listParams = (sql: string) =>
  new Set([...sql.matchAll(QUOTED_OR_PARAM)].flatMap(([, , name]) => name || []))

/** Values in place of parameters: whoever has the address needs no others. */
export const fillIn = (sql: string, params: Record<string, string>) =>
  sql.replaceAll(QUOTED_OR_PARAM, (text, _tag, name?: string) => {
    if (name === undefined) return text
    return Object.hasOwn(params, name) ? quoteLiteral(params[name] ?? '') : 'null'
  })

/** Each value is several lines, texts that may lead somewhere. */
const isOfLines = ({type}: TableColumn) => /^STRUCT\(.*"text" VARCHAR.*\)\[\]$/.test(type)

/**
 * Links to the rows of a block in files, without totals and without what stands beside columns or within them, except texts of lines.
 */
export function renderDownloads(
  {sql, params, isWhole}: {sql: string; params: Record<string, string>; isWhole: boolean},
  block: Block,
  view: Pick<View, 'filter' | 'isFile'> & Partial<Pick<AskingView, 'askAsPerson'>>,
): Html | false {
  const kept = listShown(block).filter((column) => !/^STRUCT|\]$/.test(column.type) || isOfLines(column))
  if (view.askAsPerson === undefined || view.isFile || kept.length === 0) return false
  const names = block.columns.map(({name}) => name)
  const left = names.filter((name) => kept.every((column) => column.name !== name))
  const where = left.includes('is_total') ? ' where coalesce(try_cast(is_total as double), 0) <= 0' : ''
  const asked = fillIn(sql, params)
  const textOf = (lines: string) => `array_to_string([line.text for line in ${lines}], ', ') as ${lines}`
  const texts = kept.filter(isOfLines).map(({name}) => textOf(quoteName(name)))
  const how = [
    left.length > 0 && ` exclude (${left.map(quoteName).join(', ')})`,
    texts.length > 0 && ` replace (${texts.join(', ')})`,
  ]
  const q = how.some(Boolean)
    ? `select *${how.filter(Boolean).join('')} from (${trimStatement(asked)}\n)${where}`
    : asked
  const filter = isWhole ? ofAllDeals(view.filter) : view.filter
  const links = [
    ['CSV', addressOf('/data/query.csv', filter, {q})],
    ['XLSX', addressOf('/data/query.xlsx', filter, {q})],
    ['SQL', addressOf('/sql', filter, {q})],
  ] as const
  return (
    links.every(([, href]) => href.length <= LONGEST_ADDRESS) &&
    html`<p class="downloads small">${links.map(([name, href]) => html`${linked(name, href)} `)}</p>`
  )
}
