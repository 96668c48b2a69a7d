import {join} from 'node:path'
import {Finding} from './finding.ts'
import {currentDatabase, requireTables} from './release.ts'
import {command, type Stage} from './stage.ts'
import {type Event, localTime} from './story.ts'
import {listMonths, listTables} from './tables.ts'
import type {Truth} from './truth.ts'

/** The current release holds what the oracle says. */
export async function requireRelease({truth, data, story, listener}: Stage): Promise<void> {
  await requireTables(currentDatabase(data), listTables(truth, truth.lastDay(), story.booksEnded))
  listener.note('releases compared')
}

/** Exports every month to some profiles and compares their balances with what was really funded. */
export async function sweep(stage: Stage, {at, profiles}: Extract<Event, {do: 'sweep'}>): Promise<void> {
  const {truth, books, data, story, listener} = stage
  const last = truth.walks.at(-1)
  if (!last) return
  for (const profile of profiles) {
    let isWhole = true
    for (const month of listMonths(truth, last.on))
      isWhole = (await exportMonth(stage, profile, month, at)) && isWhole
    books.importNew(join(data, 'exports'), truth.walks)
    if (!isWhole) continue
    books.requireBalances(profile, truth, story.booksEnded)
    listener.note('balances compared')
  }
}

/** NetSuite takes ten digits before the point. */
const MOST_OF_NETSUITE = 999_999_999_999n

/**
 * Exports a journal; if the history lacks what was booked from it, books and history are reconciled first.
 * False if a profile does not take an amount.
 */
async function exportMonth(stage: Stage, profile: string, month: string, at: string): Promise<boolean> {
  const {truth, books, data, listener} = stage
  const args = ['export', profile, '--period', month]
  const lacks = books.lacks(truth.walks)
  let {code, error, stderr} = await command(stage, args, at)
  if (code === 0 && lacks.certainly)
    throw new Finding('export: issued from a history that lacks what was issued before')
  if (error === 'JOURNAL_HISTORY' && lacks.perhaps) {
    const trueUp = await command(stage, ['period', 'true-up', '--issue'], at)
    if (trueUp.error === 'JOURNAL_FILE' && hasHuge(truth)) return false
    if (trueUp.code !== 0) throw new Finding(`true-up: expected success, seen ${trueUp.stderr}`)
    listener.note('trued up')
    books.importNew(join(data, 'exports'), truth.walks)
    books.trueUp(truth.walks)
    ;({code, error, stderr} = await command(stage, args, at))
  }
  if (error === 'JOURNAL_FILE' && profile === 'netsuite' && hasHuge(truth)) return false
  if (code !== 0) throw new Finding(`export: expected success, seen ${error}: ${stderr}`)
  return true
}

function hasHuge({deals}: Truth): boolean {
  return [...deals.values()].flat().some(({fields}) => (fields?.amount ?? 0n) > MOST_OF_NETSUITE)
}

/** Closes the first month that can be closed, or reopens the last. */
export async function turnPeriod(
  stage: Stage,
  event: Extract<Event, {do: 'close' | 'reopen'}>,
): Promise<void> {
  const {truth, listener} = stage
  if (truth.walks.length === 0) return
  const months = listMonths(truth, localTime(Date.parse(event.at)).date)
  const why = event.do === 'reopen' ? ['--why', 'a proof'] : []
  for (const month of event.do === 'close' ? months : months.toReversed()) {
    const {code, stderr} = await command(stage, ['period', event.do, month, ...why], event.at)
    if (code === 0 && event.do === 'close') stage.books.noteClosed(truth.walks)
    if (code === 0) return listener.note(`${event.do} done`)
    if (code !== 2) throw new Finding(`period ${event.do}: expected success or a refusal, seen ${stderr}`)
  }
}
