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
import {DAMAGES, damage, type Loss, nameOf, replace, STORE_NAMES, type Store} from './world/lose.ts'

const singles: Loss[] = STORE_NAMES.flatMap((store) => DAMAGES.map((how) => [[store, how] as const]))

/** Losses of every store alone, then of every pair. */
export const LOSSES: readonly Loss[] = [
  ...singles,
  ...singles.flatMap((one) =>
    singles.filter((two) => one[0]![0] < two[0]![0]).map((two) => [...one, ...two] as const),
  ),
]

interface Played {
  loss: Loss
  refused: {command: string; code: string; message: string} | null
}

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
async function goOn(lab: Lab, env: Record<string, string>, imported: Imported): Promise<Played['refused']> {
  for (const command of NEXT) {
    const ended = await run(lab, env, '2026-03-02', command)
    if (ended.code !== 0) {
      const {error} = refusal.parse(JSON.parse(ended.stdout))
      return {command, ...error}
    }
    readBooks(lab, imported)
  }
  return null
}

const PAGE = join(import.meta.dirname, '../../docs/lost-stores.md')

/**
 * Plays losses, each starting from the same three nights of a lender. Either the books equal the source's to the cent, or a
 * command refuses and names the store. A proof of all losses also writes the page that says what is lost when.
 */
export async function proveStores({
  losses = LOSSES,
  ...request
}: ProofRequest & {losses?: readonly Loss[]}): Promise<Proved & {played: Played[]}> {
  await using lab = await createLab({tables: BOOK_TABLES})
  await using other = await createLab({tables: BOOK_TABLES})
  const env = {LOANTAPE_TAPE_KEY_FILE: lab.env.LOANTAPE_TAPE_KEY_FILE ?? '', LOANTAPE_DETAIL: 'off'}
  await tellNights(other, env, 77)
  const yesterday = await tellNights(lab, env, 3)
  const today = lab.copyFolder('today')
  const from = {yesterday: yesterday.root, other: other.folder.root}
  const played: Played[] = []
  const runs = Math.min(request.runs, losses.length - (request.first ?? 0))
  const proved = await prove('stores', {...request, runs}, async ({run: number, add}) => {
    const loss = losses[number] ?? []
    replace(lab.folder.root, today.root)
    const imported = readBooks(lab)
    damage(lab.folder.root, loss, from)
    const refused = await goOn(lab, env, imported)
    if (refused) assert.notEqual(refused.message, '', nameOf(loss))
    else assert.deepEqual(balanceOf(imported), expectedOf(lab), `${nameOf(loss)}: books`)
    played.push({loss, refused})
    add(refused ? 'refused' : 'gone on with right books')
  })
  if (played.length === LOSSES.length) writeFileSync(PAGE, formatPage(played))
  return {...proved, played}
}

const NAMES: Record<Store, string> = {
  warehouse: '`warehouse.duckdb`',
  state: '`state.sqlite`',
  tapes: '`tape/`',
  releases: '`releases/`, `current`',
  exports: '`exports/`',
}

/** Describes the outcome of a loss on the page: the next commands succeed, or the error code and the store it names. */
function describePlayed({refused}: Played): string {
  if (refused === null) return 'goes on, books right'
  const [, store] = /data', ([\w.]+):/.exec(refused.message) ?? []
  return `\`${refused.code}\`${store ? ` (${store})` : ''}`
}

function formatPage(played: readonly Played[]): string {
  const alone = played.filter(({loss}) => loss.length === 1)
  const pairs = played.filter(({loss}) => loss.length === 2)
  const goesOn = (loss: Loss) => alone.find((one) => nameOf(one.loss) === nameOf(loss))?.refused === null
  const isExpected = ({loss, refused}: Played) => loss.every((one) => goesOn([one])) === (refused === null)
  const cells = (store: string) =>
    DAMAGES.map((how) => {
      const one = alone.find(({loss}) => loss[0]?.[0] === store && loss[0][1] === how)
      return one ? describePlayed(one) : ''
    })
  const exceptions = pairs.filter((one) => !isExpected(one))
  return [
    '# What is lost when',
    '',
    "Every store of a data folder lost, yesterday's, another lender's, or cut off (of a folder the last file): alone, and every two of them.",
    `Written by \`npm run proof stores\`, which plays all ${played.length} cases: the next night is synced, three months are exported, one is closed.`,
    'Either the books are right to the cent, or a command ends with an error that names the store.',
    "Nothing was pruned: otherwise a lost or cut warehouse takes [a backup's](operations.md#what-is-lost-when).",
    '',
    `| store | ${DAMAGES.join(' | ')} |`,
    `|---|${DAMAGES.map(() => '---|').join('')}`,
    ...Object.entries(NAMES).map(([store, name]) => `| ${name} | ${cells(store).join(' | ')} |`),
    '',
    `Of two stores, the next command goes on exactly where it goes on with each alone${exceptions.length > 0 ? ', but for these:' : '.'}`,
    ...(exceptions.length > 0 ? [''] : []),
    ...exceptions.map((one) => `- ${nameOf(one.loss)}: ${describePlayed(one)}`),
    '',
  ].join('\n')
}
