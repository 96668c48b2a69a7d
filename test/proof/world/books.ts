import {globSync, readFileSync} from 'node:fs'
import {join} from 'node:path'
import {formatCents} from '../../../src/core/money.ts'
import {type ImportedLine, PROFILE_NAMES, readBatchFile} from '../../support/importer.ts'
import {ENDINGS, listLives} from './life.ts'
import {Finding} from './story.ts'
import {isFirstOfDay, sum} from './tables.ts'
import type {Truth, Walk} from './truth.ts'

/** Account numbers that are not receivables. */
const CLEARING = '1090'
const ENDED = '1900'
const OPENING = '3000'

/** Renders `accounting.json` with these numbers as receivable accounts by program; each account's name contains its number. */
export function writeMapping(receivable: Record<string, string>, booksEnded: boolean): string {
  const account = (code: string) => ({code, name: `Account ${code}`})
  return JSON.stringify({
    receivable: Object.fromEntries(Object.entries(receivable).map(([name, code]) => [name, account(code)])),
    clearing: account(CLEARING),
    opening: account(OPENING),
    ended: booksEnded ? account(ENDED) : 'elsewhere',
  })
}

export function openLedger() {
  const batches = new Map<string, {text: string; lines: ImportedLine[]; ofMonth: number; last: number}>()
  const closings = new Set<number>()
  return {
    importNew(exports: string, walks: readonly Walk[]) {
      const inMonth = (month: string) => (walk: Walk) => walk.on <= `${month}-31` && isFirstOfDay(walk, walks)
      for (const file of globSync(`{${PROFILE_NAMES.join()}}/[!.]*`, {cwd: exports}).sort()) {
        const [profile = '', name = ''] = file.split('/')
        const texts = globSync('*.csv', {cwd: join(exports, file)})
          .sort()
          .map((csv) => readFileSync(join(exports, file, csv), 'utf8'))
        const known = batches.get(file)
        if (known && known.text !== texts.join(''))
          throw new Finding(`batch ${file}: its bytes changed since it was issued`)
        if (known) continue
        const lines = texts.flatMap((text) => readBatchFile(profile, text))
        requireBalanced(file, lines)
        const ofMonth = walks.findLast(inMonth(name.slice(0, 7)))!.id
        batches.set(file, {text: texts.join(''), lines, ofMonth, last: walks.at(-1)!.id})
      }
    },
    names: () => [...batches.keys()],
    /** Removes a given-up batch from the books, as the accountant does. */
    forget: (name: string) => void batches.delete(name),
    /**
     * Says whether a history of these walks lacks something the books rest on: `certainly`, if it lacks the last walk up to the
     * end of a batch's month; `perhaps`, if it lacks any walk that a batch or a closing may rest on.
     */
    lacks(walks: readonly Walk[]) {
      const held = new Set(walks.map(({id}) => id))
      const last = [...closings, ...[...batches.values()].map((batch) => batch.last)]
      return {
        certainly: batches.values().some(({ofMonth}) => !held.has(ofMonth)),
        perhaps: last.some((id) => !held.has(id)),
      }
    },
    noteClosed: (walks: readonly Walk[]) => void closings.add(walks.at(-1)!.id),
    trueUp(walks: readonly Walk[]) {
      const {id} = walks.at(-1)!
      closings.clear()
      for (const batch of batches.values()) Object.assign(batch, {ofMonth: id, last: id})
    },
    requireBalances(profile: string, truth: Truth, booksEnded: boolean) {
      const booked = new Map<string, bigint>()
      for (const [key, {lines}] of batches) {
        if (!key.startsWith(`${profile}/`)) continue
        for (const {deal, account, cents} of lines)
          if (![CLEARING, ENDED, OPENING].includes(account))
            booked.set(deal, (booked.get(deal) ?? 0n) + cents)
      }
      const wanted = listBalances(truth, booksEnded)
      for (const deal of new Set([...booked.keys(), ...wanted.keys()])) {
        const [have, want] = [booked.get(deal) ?? 0n, wanted.get(deal) ?? 0n]
        if (have === want) continue
        throw new Finding(
          `balance: ${profile} issued ${formatCents(have)} for ${deal}, of which ${formatCents(want)} was funded`,
        )
      }
    },
  }
}

/** Returns the expected balance of each deal on the receivable accounts, without its opening. */
function listBalances(truth: Truth, booksEnded: boolean): Map<string, bigint> {
  const out = ['decreased', 'reversed', 'vanished', ...ENDINGS]
  const signOf = (term: string) =>
    out.includes(term) ? -1n : ['originated', 'refunded', 'restored', 'increased'].includes(term) ? 1n : 0n
  const balances = new Map<string, bigint>()
  for (const {id, movements} of listLives(truth, '9999-12-31')) {
    const booked = movements.filter(({ending}) => booksEnded || !ending)
    balances.set(id, sum(booked.map(({term, amount}) => signOf(term) * amount)))
  }
  return balances
}

function requireBalanced(batch: string, lines: readonly ImportedLine[]): void {
  for (const [number, entry] of Map.groupBy(lines, (line) => line.number)) {
    const rest = sum(entry.map(({cents}) => cents))
    if (rest !== 0n) throw new Finding(`batch ${batch}: entry ${number} is out by ${formatCents(rest)}`)
  }
}
