import assert from 'node:assert/strict'
import {globSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {z} from 'zod'
import {DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {BOOK_TABLES} from '../support/books.ts'
import {balancesOf, type ImportedLine, readBatchFile} from '../support/importer.ts'
import {aDeal, createLab, type Ended, type Lab} from '../support/lab.ts'
import {type ProofRequest, type Proved, prove} from './proof.ts'
import {DAMAGES, damage, type Loss, nameOf, replace, STORE_NAMES} from './world/lose.ts'

const singles: Loss[] = STORE_NAMES.flatMap((store) => DAMAGES.map((how) => [[store, how] as const]))

/** Losses of every store alone, then of every pair. */
export const LOSSES: readonly Loss[] = [
  ...singles,
  ...singles.flatMap((one) =>
    singles.filter((two) => one[0]![0] < two[0]![0]).map((two) => [...one, ...two] as const),
  ),
]

/** The first command that refused, and its error; null if all succeeded. */
type Refused = {code: string; message: string} | null

const refusal = z.object({error: z.object({code: z.string(), message: z.string()})})

const DEALS = 12

/** Lines of every batch ever issued, by entry number: an importer takes each entry once. */
type Imported = Map<string, ImportedLine[]>

function readBooks({folder: {exports}}: Lab, imported: Imported = new Map()): Imported {
  const lines = globSync('xero/*/*.csv', {cwd: exports}).flatMap((file) => {
    try {
      return readBatchFile('xero', readFileSync(join(exports, file), 'utf8'))
    } catch {
      // An importer refuses a truncated file; its batch comes again.
      return []
    }
  })
  for (const [number, own] of Map.groupBy(lines, (line) => line.number))
    if (!imported.has(number)) imported.set(number, own)
  return imported
}

function balanceOf(imported: Imported): Record<string, bigint> {
  const lines = [...imported.values()].flat().filter(({account}) => account.startsWith('12'))
  return balancesOf(lines.map((line) => ({...line, account: line.deal})))
}

function expectedOf(lab: Lab): Record<string, bigint> {
  const funded = lab.service.store.list({status: 'funded', limit: 1000})
  return Object.fromEntries(funded.map(({id, loan_amount_cents}) => [id, loan_amount_cents]))
}

/** Runs a command on a day; all lenders share one tape key. */
const run = (lab: Lab, env: Record<string, string>, day: string, command: string): Promise<Ended> =>
  lab.run([...command.split(' '), '--json'], {...env, LOANTAPE_NOW: `${day}T23:30:00Z`})

/** Plays three nights of a lender. @returns a copy of the folder from before the third */
async function tellNights(lab: Lab, env: Record<string, string>, first: number): Promise<DataFolder> {
  const {store} = lab.service
  const id = (number: number) => aDeal(first + number).id
  const night = async (day: string, ...commands: string[]) => {
    for (const command of commands) {
      const ended = await run(lab, env, day, command)
      assert.equal(ended.code, 0, `${day} ${command}: ${ended.stderr}`)
    }
  }
  store.insert(Array.from({length: DEALS}, (_, index) => aDeal(first + index)))
  await night('2026-01-30', 'sync')
  writeFileSync(join(lab.folder.root, 'accounting.json'), JSON.stringify(DEFAULT_MAPPING))
  for (let number = 0; number < 4; number += 1) store.update(id(number), {status: 'funded'})
  await night('2026-01-31', 'sync', 'export xero --period 2026-01')
  const yesterday = lab.copyFolder('before')
  store.update(id(0), {loan_amount_cents: 123_456_78n})
  store.update(id(1), {status: 'withdrawn'})
  store.update(id(5), {status: 'funded'})
  await night('2026-02-02', 'sync', 'export xero --period 2026-02', 'period close 2026-01')
  store.update(id(6), {status: 'funded'})
  return yesterday
}

/** What an operator and an accountant do next: the nightly sync, each month's export, a closing. */
const NEXT = [
  'sync',
  'export xero --period 2026-02',
  'export xero --period 2026-01',
  'export xero --period 2026-03',
  'period close 2026-02',
]

/** Runs the next commands until one refuses, and imports whatever is issued. */
async function goOn(lab: Lab, env: Record<string, string>, imported: Imported): Promise<Refused> {
  for (const command of NEXT) {
    const ended = await run(lab, env, '2026-03-02', command)
    if (ended.code !== 0) return refusal.parse(JSON.parse(ended.stdout)).error
    readBooks(lab, imported)
  }
  return null
}

const PAGE = readFileSync(join(import.meta.dirname, '../../docs/lost-stores.md'), 'utf8')
const GOES_ON = 'goes on, books right'

/** What the page says of each store lost alone: a row for each store, a cell for each damage. */
const SAID = new Map(
  [...PAGE.matchAll(/^\| `.+(?= \|$)/gm)].flatMap(([row], store) =>
    row
      .split(' | ')
      .slice(1)
      .map((cell, how) => [nameOf([[STORE_NAMES[store]!, DAMAGES[how]!]]), cell] as const),
  ),
)

/** Returns what a page's cell says of this end: the next commands succeed, or the error code and the store it names. */
function describeEnd(refused: Refused): string {
  if (refused === null) return GOES_ON
  const [, store] = /data', ([\w.]+):/.exec(refused.message) ?? []
  return `\`${refused.code}\`${store ? ` (${store})` : ''}`
}

/**
 * Plays losses, each starting from the same three nights of a lender. Either the books equal the source's to the cent, or a
 * command refuses, as the page says of each loss; with two, the next commands go on where they do with each alone.
 */
export async function proveStores({
  losses = LOSSES,
  ...request
}: ProofRequest & {losses?: readonly Loss[]}): Promise<Proved> {
  await using lab = await createLab({tables: BOOK_TABLES})
  await using other = await createLab({tables: BOOK_TABLES})
  const env = {LOANTAPE_TAPE_KEY_FILE: lab.env.LOANTAPE_TAPE_KEY_FILE ?? '', LOANTAPE_DETAIL: 'off'}
  await tellNights(other, env, 77)
  const yesterday = await tellNights(lab, env, 3)
  const today = lab.copyFolder('today')
  const from = {yesterday: yesterday.root, other: other.folder.root}
  const runs = Math.min(request.runs, losses.length - (request.first ?? 0))
  return await prove('stores', {...request, runs}, async ({run: number, add}) => {
    const loss = losses[number] ?? []
    replace(lab.folder.root, today.root)
    const imported = readBooks(lab)
    damage(lab.folder.root, loss, from)
    const refused = await goOn(lab, env, imported)
    const said = loss.map((one) => SAID.get(nameOf([one])))
    const end = describeEnd(refused)
    if (said.length === 1) assert.equal(end, said[0], nameOf(loss))
    const goesOn = said.every((words) => words === GOES_ON)
    assert.equal(refused === null, goesOn, `${nameOf(loss)}: ${end}`)
    if (!refused) assert.deepEqual(balanceOf(imported), expectedOf(lab), `${nameOf(loss)}: books`)
    add(refused?.code ?? 'gone on with right books')
  })
}
