import assert from 'node:assert/strict'
import {existsSync, rmSync} from 'node:fs'
import {explainError, type LoantapeError} from '../../src/core/errors.ts'
import {exportRelease} from '../../src/export.ts'
import {syncDeals} from '../../src/pipeline.ts'
import {type DataFolder, dataFolderAt} from '../../src/store/data-folder.ts'
import {aDeal, createLab, someDeals} from '../support/lab.ts'
import {type FailingFiles, type FileErrorCode, installFailingFiles} from './failing-files.ts'
import {type ProofRequest, type Proved, proveCases} from './proof.ts'
import {createQuickWorld} from './quick-world.ts'
import {readPortfolio, requireSoundFolder, requireWholeFiles} from './soundness.ts'

const DAY_1 = '2026-02-02T23:30:00-05:00'
const DAY_2 = '2026-02-03T23:30:00-05:00'
/** The documented codes for a failing disk: during the run, and if the folder itself is refused. */
const CODES: Record<FileErrorCode, string> = {EIO: 'DISK_FAULT', ENOSPC: 'DISK_FULL'}

/** Which file operation fails, and how, in a new folder or one filled on the day before. */
interface Case {
  isNew: boolean
  nth: number
  code: FileErrorCode
  isForEver: boolean
}

/** Runs while files fail; returns how the run failed, if it did, and how many operations there were. */
async function runFailing(files: FailingFiles, {nth, code, isForEver}: Case, run: () => Promise<void>) {
  files.arm(nth, code, isForEver)
  try {
    await run()
    return {failure: undefined, operations: files.disarm()}
  } catch (error) {
    return {failure: explainError(error), operations: files.disarm()}
  }
}

function judgeFailure(failure: LoantapeError | undefined, {code}: Case): void {
  assert(failure, 'the run continued as if nothing had failed')
  const isRefused = failure.code.endsWith('_NOT_WRITABLE')
  assert.equal(failure.exitCode, isRefused ? 2 : 1, failure.message)
  if (isRefused) assert.match(failure.message, new RegExp(`cannot be written \\(${code}\\)`))
  else assert.equal(failure.code, CODES[code], failure.message)
  assert(failure.kept && failure.next, failure.message)
}

/**
 * Makes the nth file operation of a sync and its exports fail, for every n, with EIO and ENOSPC, once and permanently, in a new
 * folder and in a filled one. The run ends with a documented code and a clear message, nothing under a final name is torn, the
 * warehouse is sound, and the next run reaches the same result as an undisturbed one.
 *
 * It replaces the functions of `node:fs` in this process.
 */
export async function proveNthFile({
  tables = 'all',
  ...request
}: ProofRequest & {tables?: string}): Promise<Proved> {
  const files = await installFailingFiles()
  await using lab = await createLab({tables})
  const {store} = lab.service
  store.insert(someDeals(60))
  await lab.sync(DAY_1)
  store.insert([aDeal(61)])
  store.update('deal_000003', {loanAmountCents: 400_000_01n})
  store.remove('deal_000007')
  const runDay = async (folder: DataFolder) => {
    const config = {...lab.config, dataDir: folder.root, pageSize: 20}
    const world = createQuickWorld({now: DAY_2, tables})
    await syncDeals(config, {}, world)
    await exportRelease(config, {profiles: ['csv', 'parquet']}, world)
  }
  const makeFolder = (isNew: boolean, name: string) =>
    isNew ? dataFolderAt(`${lab.folder.root}-${name}`) : lab.copyFolder(name)

  const cases: Case[] = []
  const expected = new Map<boolean, unknown>()
  for (const isNew of [true, false]) {
    const folder = makeFolder(isNew, 'counted')
    const none: Case = {isNew, nth: Number.POSITIVE_INFINITY, code: 'EIO', isForEver: false}
    const {failure, operations} = await runFailing(files, none, () => runDay(folder))
    if (failure) throw failure
    expected.set(isNew, await readPortfolio(folder))
    for (let nth = 1; nth <= operations; nth += 1)
      for (const code of ['EIO', 'ENOSPC'] as const)
        for (const isForEver of [false, true]) cases.push({isNew, nth, code, isForEver})
  }
  return await proveCases('nth-file', request, cases, async (one, {run, add}) => {
    const folder = makeFolder(one.isNew, `case-${run}`)
    const {failure} = await runFailing(files, one, () => runDay(folder))
    judgeFailure(failure, one)
    await requireWholeFiles(folder)
    if (existsSync(folder.warehouse)) await requireSoundFolder(folder)
    await runDay(folder)
    await requireSoundFolder(folder)
    assert.deepEqual(await readPortfolio(folder), expected.get(one.isNew))
    rmSync(folder.root, {recursive: true})
    add('cases')
    add(`exit ${failure?.exitCode}`)
  })
}
