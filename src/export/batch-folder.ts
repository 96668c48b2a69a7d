import {existsSync, mkdirSync, readFileSync, renameSync, rmSync, statSync} from 'node:fs'
import {basename, dirname, join} from 'node:path'
import {z} from 'zod'
import {codeOf} from '../core/errors.ts'
import {parseJson} from '../core/json.ts'
import {GENERATOR, removeAbandoned, WRITER_MARK} from '../core/process.ts'
import {type Database, quoteName} from '../store/database.ts'
import {digestFileNow, moveIntoPlace} from '../store/files.ts'
import type {ReleaseManifest} from '../store/release.ts'
import {readColumns} from '../store/sql.ts'
import type {NeutralisedCell, WrittenFile} from './profile.ts'

/** One file of a batch; its control totals are for importers. */
export interface BatchFile extends WrittenFile {
  bytes: number
  sha256: string
}

/** What the manifest of a batch says beside the release it was made from. */
interface BatchContent {
  batch_id: string
  profile: string
  /** `YYYY-MM`; null for a batch that was not asked for by its period. */
  period: string | null
  /** Whether the month was over and seen to its end; null without a period. */
  period_complete: boolean | null
  files: readonly BatchFile[]
  /** Batches this one takes the place of, wholly or in part: those it reverses entries of. */
  supersedes?: readonly string[]
  /** Of a journal: how it ties out to the journal of its month. */
  bridge?: object
  /** The texts that got a `'` in front; only where that was asked for. */
  neutralised?: readonly NeutralisedCell[]
}

/** The text of a batch's `manifest.json`; it is written last, so a batch without it is not finished. */
export function formatManifest(release: ReleaseManifest, batch: BatchContent): string {
  const manifest = {
    schema_version: 1,
    generator: GENERATOR,
    batch_id: batch.batch_id,
    profile: batch.profile,
    release_id: release.release_id,
    as_of: release.as_of,
    period: batch.period,
    period_complete: batch.period_complete,
    known_at: release.known_at,
    history_id: release.history_id,
    went_on: release.went_on,
    currency: release.currency,
    time_zone: release.time_zone,
    files: batch.files,
    source: release.source,
    supersedes: batch.supersedes ?? [],
    bridge: batch.bridge,
    neutralised: batch.neutralised,
  }
  return `${JSON.stringify(manifest, null, 2)}\n`
}

/** What is read of a batch's manifest. */
type WrittenManifest = z.output<typeof writtenManifest>
const namedFile = z.object({name: z.string(), bytes: z.number(), sha256: z.string()})
const writtenManifest = z.object({
  batch_id: z.string(),
  release_id: z.string(),
  period: z.string().nullish(),
  files: z.array(namedFile),
})

/** What a batch's manifest says of its id, its origin and its files; undefined when there is none that can be read. */
export function readBatchManifest(dir: string): WrittenManifest | undefined {
  const path = join(dir, 'manifest.json')
  if (!existsSync(path)) return undefined
  return writtenManifest.safeParse(parseJson(readFileSync(path, 'utf8'))).data
}

/** Whether a folder holds a batch, every file of it there and byte for byte what the manifest says. */
export function isWholeBatch(dir: string): boolean {
  return readBatchManifest(dir)?.files.every((file) => isAsWritten(dir, file)) ?? false
}

/** Another process may take the file away in this very moment. */
function isAsWritten(dir: string, {name, bytes, sha256}: z.output<typeof namedFile>): boolean {
  const path = join(dir, name)
  try {
    return statSync(path).size === bytes && digestFileNow(path) === sha256
  } catch (error) {
    if (codeOf(error) === 'ENOENT') return false
    throw error
  }
}

/** A batch that is being written; disposing it removes what was not finished. */
interface BatchFolder extends Disposable {
  /** Where its files go until then. */
  readonly dir: string
  /**
   * Gives the folder its final name in the place of what lies there, except where that is whole by now: another process
   * has written the same batch, and somebody may read it already.
   */
  finish(isWhole: () => boolean): void
}

/** Begins a batch under a temporary name beside its final one; what exports that died left there is removed. */
export function beginBatch(final: string): BatchFolder {
  const parent = dirname(final)
  removeAbandoned(parent, '.writing-')
  const dir = join(parent, `.writing-${basename(final)}${WRITER_MARK}`)
  const aside = join(parent, `.writing-${basename(final)}-before${WRITER_MARK}`)
  const remove = () => {
    for (const path of [dir, aside]) rmSync(path, {recursive: true, force: true})
  }
  remove()
  mkdirSync(dir, {recursive: true})
  return {
    dir,
    finish(isWhole) {
      if (isWhole()) return
      try {
        if (existsSync(final)) renameSync(final, aside)
        moveIntoPlace(dir, final)
      } catch (error) {
        if (!['ENOENT', 'ENOTEMPTY', 'EEXIST'].includes(codeOf(error)) || !isWhole()) throw error
      }
    },
    [Symbol.dispose]: remove,
  }
}

/** Removes a batch: it is there or not, half removed it bears the name of one that was never finished. */
export function removeBatch(final: string): void {
  const aside = join(dirname(final), `.writing-${basename(final)}-before${WRITER_MARK}`)
  renameSync(final, aside)
  rmSync(aside, {recursive: true, force: true})
}

/** What rows come to, for importers to compare. */
export type ControlTotals = z.output<typeof totalsRow> & {columns: string[]}
const totalsRow = z.object({
  rows: z.coerce.number(),
  /** Sum of the column `loan_amount` or `amount`, null where there is neither. */
  sum_amount: z.string().nullable(),
  /** Sums of the columns `debit` and `credit`, null where there are none. */
  sum_debit: z.string().nullable(),
  sum_credit: z.string().nullable(),
})

/** What a table, or the part of it that `where` selects, comes to. */
export async function readControlTotals(db: Database, table: string, where = 'true'): Promise<ControlTotals> {
  const columns = (await readColumns(db, `release.${table}`)).map(({name}) => name)
  const sumOf = (...names: string[]) => {
    const name = names.find((known) => columns.includes(known))
    return name === undefined ? 'null::varchar' : `cast(sum(${quoteName(name)}) as varchar)`
  }
  const totals = await db.one(
    totalsRow,
    `select count(*) as rows, ${sumOf('loan_amount', 'amount')} as sum_amount, ${sumOf('debit')} as sum_debit,
       ${sumOf('credit')} as sum_credit
     from release.${table} where ${where}`,
  )
  return {...totals, columns}
}
