import {cpSync, existsSync, globSync, mkdirSync, readFileSync, writeFileSync} from 'node:fs'
import {join} from 'node:path'
import {type AccountMapping, DEFAULT_MAPPING} from '../../src/accounting/mapping.ts'
import {readPeriodSpan} from '../../src/accounting/periods.ts'
import type {JournalLine} from '../../src/accounting/profiles.ts'
import {readJournal} from '../../src/accounting/read-journal.ts'
import {requireBuilt} from '../../src/build/build.ts'
import {parseConfig} from '../../src/core/config.ts'
import type {RunStep, WireRecord, World} from '../../src/core/types.ts'
import type {BatchResult} from '../../src/export/batch.ts'
import {exportRelease} from '../../src/outputs.ts'
import {bringUpToDate} from '../../src/record/bring-up-to-date.ts'
import type {DataFolder} from '../../src/store/data-folder.ts'
import {quoteLiteral} from '../../src/store/database.ts'
import {openWarehouse} from '../../src/store/warehouse.ts'
import {settle} from '../../src/sync/settle.ts'
import {runCommand} from './command.ts'
import {createFolder, createWorld, createWorldAt} from './data.ts'
import {balancesOf, type ImportedLine, importBatches, readBatchFile} from './importer.ts'
import {aRecord} from './record.ts'
import {micros, walk} from './walks.ts'

/** A lender's data folder whose days a test defines; disposing it removes it. */
export type Books = ReturnType<typeof openBooks>

export const BOOK_TABLES = '+accounting.* +mart.run'

/** Opens empty books, or a copy of others; their releases hold {@link BOOK_TABLES}. */
export function openBooks(copied?: {folder: DataFolder} | DataFolder) {
  const {folder, [Symbol.dispose]: remove} = createFolder()
  const from = copied && ('folder' in copied ? copied.folder : copied)
  if (from) cpSync(from.root, folder.root, {recursive: true, verbatimSymlinks: true})
  const accounts = join(folder.root, 'accounting.json')
  if (!existsSync(accounts)) writeFileSync(accounts, JSON.stringify(DEFAULT_MAPPING))
  const env = {LOANTAPE_DATA_DIR: folder.root, XDG_CONFIG_HOME: process.env.XDG_CONFIG_HOME}
  const config = parseConfig(env, {readFile: () => ''})
  // Random, so that two runs at one instant get different ids.
  const at = (day: string, onStep: (step: RunStep) => void = () => undefined): World => ({
    ...createWorldAt(`${day}T17:00:00Z`),
    random: Math.random,
    select: BOOK_TABLES,
    onStep,
  })
  return {
    folder,
    config,
    /** Creates a world at 17:00 UTC of a day; `onStep` is called with the steps of an export. */
    at,
    /** Runs a command line at 17:00 UTC of a day in this process, with `--json` by default; `width` is that of a terminal. */
    run: (line: string, day: string, more: Record<string, string> = {}, form = ['--json'], width?: number) =>
      runCommand(
        [...line.split(' '), ...form],
        {LOANTAPE_DATA_DIR: folder.root, LOANTAPE_NOW: `${day}T17:00:00Z`, ...more},
        {select: BOOK_TABLES, width},
      ),
    readBatches(name: string, period: string): Record<string, ImportedLine[]> {
      const batches: Record<string, ImportedLine[]> = {}
      for (const file of globSync(`${name}/${period}*/*.csv`, {cwd: folder.exports}).sort()) {
        const [, batch = ''] = file.split('/')
        const lines = readBatchFile(name, readFileSync(join(folder.exports, file), 'utf8'))
        batches[batch] = [...(batches[batch] ?? []), ...lines]
      }
      return batches
    },
    async walk(day: string, deals: Record<string, WireRecord>) {
      await using db = await openWarehouse(folder, createWorld())
      const records = Object.entries(deals).map(([id, fields]) => aRecord({id, ...fields}))
      await walk(db, {at: `${day}T23:30:00Z`, pages: [records]})
    },
    /** Stores on `today`, as a replay does, a version observed at 12:00 UTC of an earlier day. Stores nothing for a deal that is gone. */
    async learnLate(day: string, today: string, dealId: string, amount: string, program?: string) {
      await using db = await openWarehouse(folder, createWorld())
      const now = micros(`${today}T12:00:00Z`)
      await settle(db, {kind: 'replay', walkId: null, now}, async (recordedAt) => {
        await db.run(
          `insert into history.raw.deal_version by name
         select * replace (
           (select max(seq) + 1 from history.raw.deal_version) as seq,
           'replay' as source,
           cast(${quoteLiteral(amount)} as decimal(18, 2)) as loan_amount,
           ${program === undefined ? 'loan_program' : quoteLiteral(program)} as loan_program,
           cast(${quoteLiteral(`${day} 12:00:00`)} as timestamp) as observed_at,
           cast(${quoteLiteral(day)} as date) as business_date,
           $1 as recorded_at
         )
         from history.raw.deal_version as known
         where deal_id = ${quoteLiteral(dealId)} and kind = 'seen' and business_date <= ${quoteLiteral(day)}
           and exists (from history.raw.deal_head where deal_id = known.deal_id and kind = 'seen')
         order by known.observed_at desc limit 1`,
          [recordedAt],
        )
        return ''
      })
    },
    map(mapping: AccountMapping) {
      writeFileSync(join(folder.root, 'accounting.json'), JSON.stringify(mapping))
    },
    /** Writes a seed into the lender's own SQL folder; it applies from then on. */
    seed(name: string, text: string) {
      config.sqlDir = join(folder.root, 'sql')
      mkdirSync(join(config.sqlDir, 'seeds'), {recursive: true})
      writeFileSync(join(config.sqlDir, 'seeds', `${name}.csv`), text)
    },
    async export(profile: string, period: string, day: string, withOpening = false): Promise<BatchResult[]> {
      await bringUpToDate(config, at(day))
      return exportRelease(config, {profiles: [profile], period, withOpening}, at(day))
    },
    /** Sums cents by account over a profile's batches for a period, or for all (`''`), read from their files. */
    // An entry's number contains its month, whichever batch it came in.
    sumBatches: (name: string, period: string) =>
      balancesOf(
        importBatches(folder.exports, name).filter(({number}) =>
          `20${number.slice(2, 4)}-${number.slice(4, 6)}`.startsWith(period),
        ),
      ),
    async readJournal(period: string, day: string): Promise<JournalLine[]> {
      const span = await readPeriodSpan(config, period, at(day))
      return await readJournal(await requireBuilt(config, {asOf: span.asOf}, at(day)), [period])
    },
    [Symbol.dispose]: remove,
  }
}

/** Fills in the accounts that `accounting init` wrote: each becomes what its placeholder suggests. */
export function setAccounts({root}: Pick<DataFolder, 'root'>): void {
  const file = join(root, 'accounting.json')
  writeFileSync(file, readFileSync(file, 'utf8').replaceAll(/[<>]/g, ''))
}
