import {existsSync} from 'node:fs'
import {join} from 'node:path'
import {formatCents} from '../../../src/core/money.ts'
import {openDatabase} from '../../../src/store/database.ts'
import {anyRow} from '../../support/data.ts'
import {listLives} from './life.ts'
import {command, type Stage} from './stage.ts'
import {type Event, Finding, localTime} from './story.ts'
import {listMonths, listTables, type Row} from './tables.ts'
import type {Truth} from './truth.ts'

export async function requireRelease({truth, data, story, note}: Stage): Promise<void> {
  const database = join(data, 'current/portfolio.duckdb')
  await requireTables(database, listTables(truth, truth.lastDay(), story.booksEnded))
  note('releases compared')
}

export async function sweep(stage: Stage, {at, profiles}: Extract<Event, {do: 'sweep'}>): Promise<void> {
  const {truth, books, data, story, note} = stage
  const last = truth.walks.at(-1)
  if (!last) return
  for (const profile of profiles) {
    let isWhole = true
    for (const month of listMonths(truth, last.on))
      isWhole = (await exportMonth(stage, profile, month, at)) && isWhole
    books.importNew(join(data, 'exports'), truth.walks)
    if (!isWhole) continue
    books.requireBalances(profile, truth, story.booksEnded)
    note('balances compared')
  }
}

/** The largest amounts that these importers take, in cents: eleven and ten digits before the point. */
const MOST: Record<string, bigint> = {quickbooks: 9_999_999_999_999n, netsuite: 999_999_999_999n}

/**
 * Exports a journal. If the history lacks what was booked from it, first reconciles books and history.
 * @returns false if the profile does not take an amount, or a loan left the book under a status without a class
 */
async function exportMonth(stage: Stage, profile: string, month: string, at: string): Promise<boolean> {
  const {truth, books, data, note} = stage
  const args = ['export', profile, '--period', month]
  const lacks = books.lacks(truth.walks)
  let {code, error, stderr} = await command(stage, args, at)
  if (code === 0 && lacks.certainly)
    throw new Finding('export: issued from a history that lacks what was issued before')
  const unclear = listUnclear(truth)
  if (code === 0 && unclear.includes(month))
    throw new Finding('export: a loan under a status without a class was taken off the books')
  if (error === 'ACCOUNTING_UNMAPPED' && unclear.length > 0) return false
  if (error === 'JOURNAL_HISTORY' && lacks.perhaps) {
    const trueUp = await command(stage, ['period', 'true-up', '--issue'], at)
    if (trueUp.error === 'JOURNAL_FILE' && hasHuge(truth, 'netsuite')) return false
    if (trueUp.error === 'ACCOUNTING_UNMAPPED' && unclear.length > 0) return false
    if (trueUp.code !== 0) throw new Finding(`true-up: expected success, seen ${trueUp.stderr}`)
    note('trued up')
    books.importNew(join(data, 'exports'), truth.walks)
    books.trueUp(truth.walks)
    ;({code, error, stderr} = await command(stage, args, at))
  }
  if (error === 'JOURNAL_FILE' && hasHuge(truth, profile)) return false
  if (code !== 0) throw new Finding(`export: expected success, seen ${error}: ${stderr}`)
  return true
}

const listUnclear = (truth: Truth): string[] =>
  listLives(truth, truth.lastDay())
    .flatMap(({movements}) => movements)
    .filter(({term, amount, version}) => {
      return term === 'reversed' && amount > 0n && version.statusClass === 'unclassified'
    })
    .map(({month}) => month)

function hasHuge({deals}: Truth, profile: string): boolean {
  const most = MOST[profile]
  if (most === undefined) return false
  return [...deals.values()].flat().some(({fields}) => (fields?.amount ?? 0n) > most)
}

export async function turnPeriod(
  stage: Stage,
  event: Extract<Event, {do: 'close' | 'reopen'}>,
): Promise<void> {
  const {truth, note} = stage
  if (truth.walks.length === 0) return
  const months = listMonths(truth, localTime(Date.parse(event.at)).date)
  const why = event.do === 'reopen' ? ['--why', 'a proof'] : []
  for (const month of event.do === 'close' ? months : months.toReversed()) {
    const {code, stderr} = await command(stage, ['period', event.do, month, ...why], event.at)
    if (code === 0 && event.do === 'close') stage.books.noteClosed(truth.walks)
    if (code === 0) return note(`${event.do} done`)
    if (code !== 2) throw new Finding(`period ${event.do}: expected success or a refusal, seen ${stderr}`)
  }
}

export async function requireTables(file: string, tables: Record<string, Row[]>): Promise<void> {
  if (!existsSync(file)) throw new Finding(`release: '${file}' is not there`)
  await using db = await openDatabase({attach: [{path: file, alias: 'release', readOnly: true}]})
  await db.run('use release')
  for (const [table, expected] of Object.entries(tables)) {
    const names = Object.keys(expected[0] ?? {}).map((name) => `"${name}"`)
    const seen = await db.all(anyRow, `select ${names.join(', ') || '*'} from ${table}`)
    const difference = findDifference(expected, seen as Row[])
    if (difference !== null) throw new Finding(`${table}: ${difference}`)
  }
}

function findDifference(expected: readonly Row[], seen: readonly Row[]): string | null {
  // Only shares are numbers in a query's result. They are compared with a tolerance, so they cannot order rows.
  const isExact = ([name]: [string, unknown]) => !seen.some((row) => typeof row[name] === 'number')
  const keyOf = (row: Row) => JSON.stringify(Object.entries(row).filter(isExact).map(toText).sort())
  const sort = (rows: readonly Row[]) => rows.toSorted((one, other) => (keyOf(one) < keyOf(other) ? -1 : 1))
  const [wanted, found] = [sort(expected), sort(seen)]
  for (let index = 0; index < Math.max(wanted.length, found.length); index += 1) {
    const [want, have] = [wanted[index], found[index]]
    if (want && have && Object.keys(want).every((name) => isSame(want[name], have[name]))) continue
    return `expected ${wanted.length} rows, ${showRow(want, have)}; seen ${found.length} rows, ${showRow(have, want)}`
  }
  return null
}

function toText([name, value]: [string, Row[string] | undefined]): [string, string | boolean | null] {
  if (typeof value === 'bigint') return [name, formatCents(value)]
  return [name, typeof value === 'number' ? String(value) : (value ?? null)]
}

function showRow(row: Row | undefined, other: Row | undefined): string {
  if (row === undefined) return 'none there'
  const isShown = ([name, value]: [string, Row[string]], place: number) =>
    place < 2 || !other || !isSame(value, other[name])
  return JSON.stringify(Object.fromEntries(Object.entries(row).filter(isShown).map(toText)))
}

function isSame(one: Row[string] | undefined, other: Row[string] | undefined): boolean {
  if (typeof one === 'number' && typeof other === 'number')
    return Math.abs(one - other) <= 2e-6 * Math.max(1, Math.abs(one))
  return toText(['', one])[1] === toText(['', other])[1]
}
